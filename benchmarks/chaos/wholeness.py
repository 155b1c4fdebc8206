"""What must be true of a home after a kill, and after the killed command has been run again."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from toolscout.index.catalogue import Catalogue
from toolscout.index.search import SearchIndex
from toolscout.settings import Settings

QUESTION, ANSWER = "tune a clarinet", "base/0/tune"
State = dict[str, list[str]]


def in_child(work: Callable[..., Any], *args: Any) -> Any:
    """``work`` in a forked process, its answer through JSON: this process must stay without threads, to be forked."""
    with tempfile.TemporaryFile() as answer:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                found = work(*args)
                os.write(answer.fileno(), json.dumps(found).encode())
                code = 0
            except BaseException as error:
                message = [f"{work.__name__} failed: {type(error).__name__}: {error}"]
                os.write(answer.fileno(), json.dumps(message).encode())
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        answer.seek(0)
        said = answer.read()
        return json.loads(said) if said else [f"{work.__name__} ended with {code}"]


def settings_of(home: Path) -> Settings:
    """Settings over a home."""
    return Settings(home=home, starter=False)


def state(home: Path) -> State:
    """Everything in the catalogue that counts: each server, and each tool with its fingerprint and review."""
    with Catalogue(settings_of(home).database_url) as catalogue:
        return {
            server.server_id: sorted(
                f"{tool.name} {tool.fingerprint} {tool.review}" for tool in catalogue.tools(server.server_id)
            )
            for server in catalogue.servers()
        }


def after_kill(home: Path, before: State, may_change: Collection[str]) -> list[str]:
    """Everything that was committed is there, and the index that was there answers."""
    wrong = []
    file = sqlite3.connect(home / "catalogue.db")
    said = file.execute("PRAGMA integrity_check").fetchall()
    file.close()
    if said != [("ok",)]:
        wrong.append(f"the database is damaged: {said[:3]}")
    now = state(home)
    for server, tools in before.items():
        if server not in now:
            wrong.append(f"{server} is gone")
        elif now[server] != tools and server not in may_change:
            wrong.append(f"{server} is not what it was: {now[server][:2]} instead of {tools[:2]}")
    reviews = {tool.rpartition(" ")[2] for server in may_change for tool in now.get(server, [])}
    if len(reviews) > 1:
        wrong.append(f"a review was done by halves: {sorted(reviews)}")
    return wrong + _serves(home)


def after_rerun(home: Path, wanted: State, indexed: bool) -> list[str]:
    """The catalogue is as after a run nobody killed, the index (if ``indexed``) of it, and nothing lies about."""
    settings = settings_of(home)
    wrong = _serves(home)
    now = state(home)
    if different := [name for name in {*now, *wanted} if now.get(name) != wanted.get(name)]:
        wrong.append(f"not as after an unharmed run: {sorted(different)[:5]}")
    with Catalogue(settings.database_url) as catalogue:
        index = SearchIndex.open(settings.index_dir, settings=settings)
        if indexed and index.revision != catalogue.revision:
            wrong.append(f"the index is of revision {index.revision}, the catalogue of {catalogue.revision}")
    half = [entry.name for entry in settings.index_dir.iterdir() if entry.name.startswith("tmp-")]
    return wrong + ([f"left behind: {half}"] if half else [])


def _serves(home: Path) -> list[str]:
    settings = settings_of(home)
    hits = SearchIndex.open(settings.index_dir, settings=settings).find(QUESTION).hits
    if not hits or hits[0].tool_id != ANSWER:
        return [f"the index does not answer: {[hit.tool_id for hit in hits[:3]]}"]
    return []
