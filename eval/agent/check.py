"""Whether a task's end state holds: files, the database, repositories and the answer. Runs nothing of theirs."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from toolscout.errors import ToolscoutError
from toolscout.eval.agent.state import DATABASE, git, inside
from toolscout.eval.agent.tasks import Check, Task

_MARK = re.compile(r"(?im)^[\s*_#>]*(?:final\s+)?answer[\s*_]*:[\s*_]*")
_NUMBER = re.compile(r"[-+\u2212]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
_LARGEST = 2_000_000
_STEPS = 5_000_000
"""A query gets so many steps of SQLite's machine: an agent may have put a view in a table's place."""


def failures(task: Task, folder: Path, answer: str) -> list[str]:
    """What does not hold, a sentence each with the kind before it (``file: ...``); empty if the task is done."""
    found = []
    for check in task.checks:
        try:
            found += _failed(check, task, folder, answer)
        except (OSError, ToolscoutError, sqlite3.Error, UnicodeDecodeError) as error:
            found.append(f"{_kind(check)}: {error}")
    return found


def said(answer: str) -> str:
    """The answer proper: what follows the last ``ANSWER:`` at the beginning of a line, else the last line with text."""
    marks = list(_MARK.finditer(answer))
    if marks:
        return answer[marks[-1].end() :].strip()
    lines = [line.strip() for line in answer.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def first_number(text: str) -> float | None:
    """The first number of a text, thousands separated by commas or not."""
    match = _NUMBER.search(text)
    return float(match.group().replace(",", "").replace("\u2212", "-")) if match else None


def _kind(check: Check) -> str:
    return next(name for name in ("file", "sql", "git", "answer", "unchanged") if getattr(check, name) is not None)


def _failed(check: Check, task: Task, folder: Path, answer: str) -> list[str]:
    if check.unchanged is not None:
        return [f"unchanged: {name} was changed" for name in check.unchanged if not _same(task, folder, name)]
    if check.sql is not None:
        found = _rows(folder, check.sql)
        return [] if found == check.rows else [f"sql: {check.sql} gives {found}, not {check.rows}"]
    if check.file is not None:
        path = inside(folder, check.file)
        if check.exists is not None:
            return [] if path.exists() == check.exists else [f"file: {check.file} is {'not ' * check.exists}there"]
        if not path.is_file():
            return [f"file: {check.file} is not there"]
        return _text(check, f"file: {check.file}", _read(path))
    if check.git is not None:
        return _text(check, f"git: {check.git} {check.fact}", _fact(inside(folder, check.git), check.fact))
    text = said(answer)
    if check.number is not None:
        number = first_number(text)
        if number is None or abs(number - check.number) > check.within:
            return [f"answer: {text[:80]!r} is not {check.number:g}"]
    return _text(check, "answer", text, fold=True)


def _text(check: Check, what: str, text: str, *, fold: bool = False) -> list[str]:
    """The tests of a text; space at its end does not count, nor case in an answer (``fold``)."""
    text = text.replace("\r\n", "\n").rstrip()
    shown = f"{text[:80]!r}"

    def same(value: str) -> str:
        return value.casefold() if fold else value

    found = []
    if check.equals is not None and same(text).strip() != same(check.equals).strip():
        found.append(f"{what} is {shown}, not {check.equals[:80]!r}")
    found += [f"{what} lacks {part!r}" for part in check.contains if same(part) not in same(text)]
    found += [f"{what} has {part!r}" for part in check.lacks if same(part) in same(text)]
    if check.matches is not None and re.search(check.matches, text, re.MULTILINE | (re.I if fold else 0)) is None:
        found.append(f"{what} is {shown} and does not match {check.matches!r}")
    if check.json_value is not None and _json(text) != check.json_value:
        found.append(f"{what} is {shown}, not the JSON {json.dumps(check.json_value)[:80]}")
    return found


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _read(path: Path) -> str:
    if path.stat().st_size > _LARGEST:
        return ""
    return path.read_text(encoding="utf-8", errors="replace")


def _same(task: Task, folder: Path, name: str) -> bool:
    before = {**task.start.files, **task.start.edits}[name]
    path = inside(folder, name)
    return path.is_file() and _read(path) == before


def _rows(folder: Path, query: str) -> list[list[Any]]:
    """What a query gives; it can only read."""
    path = folder / DATABASE
    if not path.is_file():
        return []
    reading = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION)
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database:
        database.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in reading else sqlite3.SQLITE_DENY)
        database.set_progress_handler(lambda: 1, _STEPS)
        return [list(row) for row in database.execute(query).fetchmany(1000)]


def _fact(repository: Path, fact: str) -> str:
    """A fact of a repository, as text. Raises BadInput where git cannot say it."""
    name, _, value = fact.partition(":")
    match name, value:
        case "branch", "":
            return git(repository, "symbolic-ref", "--short", "HEAD")
        case "branches", "":
            return git(repository, "for-each-ref", "--format=%(refname:short)", "refs/heads")
        case "log", _:
            return git(repository, "log", "--format=%s", value or "HEAD", "--")
        case "head", "":
            return git(repository, "log", "-1", "--format=%s")
        case "count", "":
            return git(repository, "rev-list", "--count", "HEAD")
        case "staged", "":
            return git(repository, "diff", "--cached", "--name-only", "--no-ext-diff")
        case "modified", "":
            return git(repository, "diff", "--name-only", "--no-ext-diff")
        case "tracked", "":
            return git(repository, "ls-files")
        case _:
            return git(repository, "show", "--no-textconv", f"HEAD:{value}")
