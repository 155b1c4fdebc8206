"""Makes a task's starting state in a fresh folder, serves its pages on loopback, and applies plain operations to it."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import sqlite3
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput, NotAllowed, StorageError
from toolscout.eval.agent.tasks import Start
from toolscout.records import JsonObject

DATABASE = "data.db"
"""The one database of a task, in its folder."""

_GIT_VERBS = ("add", "commit", "branch", "checkout", "reset", "mv")
GIT_ENV = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.com",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.com",
    # The server that commits may be another user than the one who made the folder.
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "safe.directory",
    "GIT_CONFIG_VALUE_0": "*",
}
"""Nobody's configuration but this; for our own git and for servers that run it."""


def inside(folder: Path, name: str) -> Path:
    """The path of a task's file. Raises BadInput for one that leads out of the task's folder."""
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise BadInput(f"The path {name!r} leads out of the task's folder.", "Paths of tasks are relative to it.")
    return path


def place(start: Start, folder: Path, site: Path) -> None:
    """Make the starting state in ``folder`` and its pages in ``site``; what was in either is gone.

    The folders themselves stay, for servers may have them open. Raises BadInput for a state that cannot be made.
    """
    empty(folder)
    empty(site)
    for name, text in start.pages.items():
        _write(inside(site, name), text)
    for name in start.folders:
        inside(folder, name).mkdir(parents=True, exist_ok=True)
    for name, text in start.files.items():
        _write(inside(folder, name), text)
    if start.tables:
        for statement in start.tables:
            _sql(folder, statement)
    for name, commits in start.repos.items():
        repository = inside(folder, name)
        repository.mkdir(parents=True, exist_ok=True)
        git(repository, "init", "--quiet", "--initial-branch=main")
        known = {"main"}
        for number, commit in enumerate(commits):
            if commit.branch not in known:
                git(repository, "checkout", "--quiet", "-b", commit.branch)
                known.add(commit.branch)
            elif number:
                git(repository, "checkout", "--quiet", commit.branch)
            for path, text in commit.files.items():
                _write(inside(repository, path), text)
            git(repository, "add", "--all")
            # Fixed times: the same commits have the same ids in every trial.
            when = f"2026-01-{number % 28 + 1:02}T12:00:00Z"
            words = ("commit", "--quiet", "--allow-empty", "-m", commit.message, f"--date={when}")
            git(repository, *words, moment=when)
        git(repository, "checkout", "--quiet", "main")
    for name, text in start.edits.items():
        _write(inside(folder, name), text)
    for name, paths in start.staged.items():
        git(inside(folder, name), "add", "--", *paths)


def apply(operations: Sequence[JsonObject], folder: Path) -> str:
    """Apply plain operations, in order; returns the answer that they give, if any.

    ``{write: PATH, text}``, ``{append: PATH, text}``, ``{mkdir: PATH}``, ``{move: [FROM, TO]}``, ``{sql: STATEMENT}``,
    ``{git: [WORD, ...], in: REPOSITORY}``, ``{answer: TEXT}``. Raises BadInput for anything else.
    """
    answer = ""
    for operation in operations:
        match operation:
            case {"write": str(name), "text": str(text)}:
                _write(inside(folder, name), text)
            case {"append": str(name), "text": str(text)}:
                path = inside(folder, name)
                _write(path, path.read_text("utf-8") + text)
            case {"mkdir": str(name)}:
                inside(folder, name).mkdir(parents=True)
            case {"move": [str(source), str(target)]}:
                inside(folder, target).parent.mkdir(parents=True, exist_ok=True)
                inside(folder, source).rename(inside(folder, target))
            case {"sql": str(statement)}:
                _sql(folder, statement)
            case {"git": [str(verb), *words], "in": str(name)} if verb in _GIT_VERBS:
                git(inside(folder, name), verb, *map(str, words))
            case {"answer": str(text)}:
                answer = text
            case _:
                raise BadInput(f"This is no operation of a solution: {operation}.", "See eval/data/README.md.")
    return answer


def git(repository: Path, *words: str, moment: str = "2026-02-01T12:00:00Z") -> str:
    """Run git in a repository of a task; what it printed. Raises NotAllowed without git, BadInput if it fails."""
    program = shutil.which("git")
    if program is None:
        raise NotAllowed("git is not on the PATH, and some tasks are about repositories.", "Install git, then retry.")
    if words[0] != "init":
        _plain_config(repository)
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("GIT_")}, **GIT_ENV, "GIT_COMMITTER_DATE": moment}
    line = [program, "-c", f"core.hooksPath={os.devnull}", *words]
    done = subprocess.run(line, cwd=repository, env=env, capture_output=True, text=True, errors="replace")
    if done.returncode:
        raise BadInput(f"git {words[0]} failed in {repository.name}: {done.stderr.strip()[:200]}.")
    return done.stdout


def _plain_config(repository: Path) -> None:
    """Take back what an agent may have written into the configuration: hooks and filters there are programs of its
    own, and this git runs as us and outside any sandbox.
    """
    own = repository / ".git"
    if not own.is_dir() or own.is_symlink():
        raise BadInput(f"{repository.name} is no repository.")
    config = own / "config"
    config.unlink(missing_ok=True)
    config.write_text("[core]\n\trepositoryformatversion = 0\n\tbare = false\n")


def empty(folder: Path) -> None:
    """Remove all that is in a folder; make it where it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def hand_over(folder: Path, uid: int) -> None:
    """Give the folder and all in it to the user that the servers run as; nothing to do for one's own."""
    if os.geteuid() != 0 or uid == 0:
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)


class _Site(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the progress is ours."""


@contextmanager
def serving(site: Path) -> Iterator[str]:
    """Serve a folder's pages on a loopback port of their own; the site's address, without a slash at the end."""
    site.mkdir(parents=True, exist_ok=True)
    try:
        server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Site, directory=str(site)))
    except OSError as error:
        raise StorageError(f"The pages of the tasks cannot be served on this machine: {error}.") from None
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _sql(folder: Path, statement: str) -> None:
    try:
        with closing(sqlite3.connect(folder / DATABASE)) as database, contextlib.closing(database.cursor()) as cursor:
            cursor.execute(statement)
            database.commit()
    except sqlite3.Error as error:
        raise BadInput(f"The statement {statement[:80]!r} fails: {error}.") from None
