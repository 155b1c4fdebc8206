"""Tasks of the agent experiment: a request, the state it starts from, and the state that counts as success, as data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field, model_validator

from toolscout.errors import BadInput, NotFound
from toolscout.eval.rows import draw
from toolscout.jsonl import parse_record, read_objects
from toolscout.records import JsonObject, Record

OWN_TASKS = Path(__file__).parents[1] / "data" / "agent_tasks.jsonl"
"""The set that comes with the repository (not with the wheel)."""

FACTS = ("branch", "branches", "log", "head", "count", "staged", "modified", "tracked")
"""What is asked of a repository; ``log:BRANCH`` and ``show:PATH`` as well."""


class Strict(Record):
    """A record of ours: a field that is misspelt is an error, for a check that is skipped would pass."""

    model_config = ConfigDict(extra="forbid")


class Commit(Strict):
    """One commit of the starting state, on ``branch`` (made where it is new, from the commit before)."""

    message: str
    files: dict[str, str] = Field(default_factory=dict)
    branch: str = "main"


class Start(Strict):
    """The starting state. Paths are relative to the task's folder, those of pages to the site's root."""

    files: dict[str, str] = Field(default_factory=dict)
    folders: list[str] = Field(default_factory=list)
    tables: list[str] = Field(default_factory=list)
    """SQL statements that fill ``data.db``."""
    repos: dict[str, list[Commit]] = Field(default_factory=dict)
    edits: dict[str, str] = Field(default_factory=dict)
    """Files written after the commits: changes that are not committed."""
    staged: dict[str, list[str]] = Field(default_factory=dict)
    """By repository, the edited files that are staged."""
    pages: dict[str, str] = Field(default_factory=dict)


_SUBJECTS = ("file", "sql", "git", "answer", "unchanged")
_TESTS = ("equals", "contains", "lacks", "matches", "json", "rows", "number", "exists")


class Check(Strict):
    """One thing that must hold at the end: one subject, and at least one test of it.

    ``file`` (its text), ``git`` with ``fact`` (its text, see `FACTS`) and ``answer`` take ``equals``, ``contains``,
    ``lacks``, ``matches`` (a regular expression); a file also ``json`` and ``exists``, an answer ``number`` (within
    ``within``); ``sql`` takes ``rows``; ``unchanged`` names files that must be as they were at the start.
    """

    file: str | None = None
    sql: str | None = None
    git: str | None = None
    answer: bool | None = None
    unchanged: list[str] | None = None
    fact: str = ""
    equals: str | None = None
    contains: list[str] = Field(default_factory=list)
    lacks: list[str] = Field(default_factory=list)
    matches: str | None = None
    json_value: Any = Field(default=None, alias="json")
    rows: list[list[Any]] | None = None
    number: float | None = None
    within: float = 1e-6
    exists: bool | None = None

    @model_validator(mode="after")
    def _one_subject(self) -> Check:
        subjects = [name for name in _SUBJECTS if getattr(self, name) not in (None, False)]
        if len(subjects) != 1:
            raise ValueError(f"a check has one of {', '.join(_SUBJECTS)}")
        if subjects[0] != "unchanged" and not any(self._says(name) for name in _TESTS):
            raise ValueError(f"a check tests something: {', '.join(_TESTS)}")
        if self.git is not None and self.fact not in FACTS and not self.fact.startswith(("log:", "show:")):
            raise ValueError(f"{self.fact!r} is no fact of a repository")
        return self

    def _says(self, name: str) -> bool:
        value = getattr(self, "json_value" if name == "json" else name)
        return value is not None and (value != [] or name == "rows")


class Task(Strict):
    """One task. ``servers`` names those that a solution needs; ``solution`` are plain operations that reach the end
    (see `toolscout.eval.agent.state.apply`), for proving the checks, never for the agent.
    """

    id: str
    request: str
    servers: list[str]
    start: Start = Field(default_factory=Start)
    checks: list[Check] = Field(min_length=1)
    solution: list[JsonObject] = Field(default_factory=list)
    split: str = ""
    level: str = ""

    def filled(self, folder: Path, pages: str) -> Task:
        """The task at its place: ``{folder}`` and ``{pages}`` replaced by the trial's folder and its site's address."""

        def put(value: Any) -> Any:
            if isinstance(value, str):
                return value.replace("{folder}", str(folder)).replace("{pages}", pages)
            if isinstance(value, list):
                return [put(inner) for inner in value]
            if isinstance(value, dict):
                return {key: put(inner) for key, inner in value.items()}
            return value

        return Task.model_validate(put(self.model_dump(by_alias=True, exclude_none=True)))

    def asked(self) -> str:
        """What of it decides an outcome, as text: an outcome of another wording or state is not this task's."""
        return json.dumps(self.model_dump(by_alias=True, exclude={"solution", "split", "level"}), sort_keys=True)


class Coordinates(Strict):
    """Where a server of the set comes from.

    ``until`` (YYYY-MM-DD): none of what it depends on is taken from later; a server written for an older MCP library
    does not start with today's. ``network``: it needs more than its pipes (the pages are on loopback).
    """

    registry: str
    package: str
    version: str | None = None
    until: str | None = Field(default=None, pattern=r"^\d{4}-\d{2}-\d{2}$")
    command: str = ""
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)
    network: bool = False


def read_tasks(path: Path) -> tuple[list[Task], dict[str, Coordinates]]:
    """The tasks of a file, and the servers that its first line names (``{"servers": {NAME: coordinates}}``), if any.

    Raises NotFound or BadInput for a file that is not there, is empty, or holds a line that is no task.
    """
    if not path.exists():
        hint = " It is in the repository, not in the package." if path == OWN_TASKS else ""
        raise NotFound(f"There is no file {path}.{hint}", "Name a file of tasks with --tasks.")
    tasks: list[Task] = []
    servers: dict[str, Coordinates] = {}
    seen: set[str] = set()
    for number, found in read_objects(path):
        if set(found) == {"servers"} and not tasks:
            entries = found["servers"] if isinstance(found["servers"], dict) else {}
            servers = {name: parse_record(e, Coordinates, f"{path}:{number}: {name}") for name, e in entries.items()}
            continue
        task = parse_record(found, Task, f"{path}:{number}")
        if task.id in seen:
            raise BadInput(f"{path}:{number}: the task {task.id!r} is there twice.", "Task ids must be unique.")
        seen.add(task.id)
        tasks.append(task)
    if not tasks:
        raise BadInput(f"{path} holds no tasks.", "Each line is one; see eval/data/README.md.")
    return tasks, servers


def limited(tasks: Sequence[Task], limit: int | None, seed: int) -> list[Task]:
    """So many tasks, drawn by a hash of seed and id: the same ones in every run."""
    if limit is None or limit >= len(tasks):
        return list(tasks)
    kept = {task.id for task in sorted(tasks, key=lambda task: draw(seed, task.id))[:limit]}
    return [task for task in tasks if task.id in kept]
