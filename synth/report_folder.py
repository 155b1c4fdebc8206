"""A run's folder read for its report: at any time, also while a run works in it or after one was killed."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput, StorageError
from toolscout.jsonl import read_objects
from toolscout.records import JsonObject
from toolscout.synth.answer_store import AnswerStore
from toolscout.synth.report_rows import Row, row_of_object

CATEGORIES = "categories.json"
"""Categories of the run's servers, by id: step files name tools only."""

SEAT = "in-"
"""How ids begin of inputs that come in at a later step than the first: categories, at the step ``sample`` of plans."""

_STEP = re.compile(r"(\d\d)-([\w-]+)\.jsonl")
_KEPT = ("calls.jsonl", "kept.jsonl", "plans.jsonl", "trajectories.jsonl")


@dataclass(frozen=True)
class Loss:
    """Something that a step dropped."""

    step: str
    id: str
    reason: str
    detail: str
    text: str


@dataclass
class StepSeen:
    """What a step's file says: ``inputs`` are lines, ``waiting`` inputs that have none yet (None: not known)."""

    step: str
    inputs: int = 0
    made: int = 0
    waiting: int | None = None
    dropped: Counter[str] = field(default_factory=Counter)


@dataclass
class RunSeen:
    """All that a folder tells. ``rows`` are the kept ones, or in an unfinished run what its last step made."""

    name: str
    report: JsonObject
    steps: list[StepSeen]
    rows: list[Row]
    losses: list[Loss]
    rows_from: str
    spent: dict[str, JsonObject]

    @property
    def finished(self) -> bool:
        """Whether the last run in the folder came to its end."""
        return bool(self.report.get("finished"))


def read_run(folder: Path, categories: Mapping[str, str] | None = None) -> RunSeen:
    """Read a folder. Lines that cannot be read (a write may be under way) are passed over.

    :param categories: categories of servers by id, which win over those that the run noted.
    :raises BadInput: there is no run in the folder.
    """
    found = sorted(p for p in folder.glob("*.jsonl") if _STEP.fullmatch(p.name))
    report = _object(folder / "report.json")
    kept = next((folder / name for name in _KEPT if (folder / name).is_file()), None)
    if not found or not folder.is_dir():
        raise BadInput(
            f"There is no run of synthesis in {folder}.",
            "Give the --out folder of `toolscout synth calls` or `toolscout synth filter`.",
        )
    known = {**{str(k): str(v) for k, v in _object(folder / CATEGORIES).items()}, **(categories or {})}
    steps, losses, made = _read_steps(found, report)
    finished = bool(report.get("finished")) and kept is not None
    whole = kept if finished else None
    objects = [row for _, row in _lines(whole)] if whole else made
    rows_from = whole.name if whole else next((step.step for step in reversed(steps) if step.made), "")
    rows = [row for one in objects if (row := row_of_object(one, known)) is not None]
    name = folder.resolve().name
    return RunSeen(name, {**report, "finished": finished}, steps, rows, losses, rows_from, _spent(folder, report))


def _read_steps(
    found: list[Path], report: Mapping[str, Any]
) -> tuple[list[StepSeen], list[Loss], list[dict[str, Any]]]:
    """(counts, what was dropped, what the last step with anything made).

    A line counts when its input is what the step before made, or came in at this step: files of earlier settings lie in
    the folder, too.
    """
    planned = report.get("planned") or [s["step"] for s in report.get("steps") or ()]
    steps: list[StepSeen] = []
    losses: list[Loss] = []
    last: list[dict[str, Any]] = []
    wanted: dict[str, None] | None = None
    for path in found:
        match = _STEP.fullmatch(path.name)
        name = match.group(2) if match else path.stem
        if planned and name not in planned:
            continue
        lines = {str(line.get("id")): line for _, line in _lines(path)}
        if wanted is not None:
            wanted = {**{i: None for i in lines if i.startswith(SEAT)}, **wanted} if name == "sample" else wanted
            lines = {i: lines[i] for i in wanted if i in lines}
        seen, made = StepSeen(name, inputs=len(lines)), []
        for i, line in lines.items():
            made += [one for one in line.get("made") or () if isinstance(one, dict)]
            for lost in line.get("dropped") or ():
                loss = Loss(name, i, *(str(lost.get(k) or "") for k in ("reason", "detail", "text")))
                seen.dropped[loss.reason] += 1
                losses.append(loss)
        seen.made = len(made)
        seen.waiting = len(wanted) - len(lines) if wanted is not None else _waiting(report, name, len(lines))
        steps.append(seen)
        wanted = {str(one.get("id")): None for one in made}
        last = made or last
    return steps, losses, last


def _waiting(report: Mapping[str, Any], name: str, done: int) -> int | None:
    """Of the first step's inputs, of which only the report tells how many there are. Reports of earlier versions say so
    of tools alone, which are what ``generate`` begins with."""
    total = report.get("inputs", report.get("tools") if name == "generate" else None)
    if total is None:
        total = next((s.get("inputs") for s in report.get("steps") or () if s.get("step") == name), None)
    return max(0, total - done) if isinstance(total, int) else None


def _spent(folder: Path, report: Mapping[str, Any]) -> dict[str, JsonObject]:
    """By model: from the folder's own store, which a killed run has kept up to date, or from the report where that
    knows of more: earlier versions booked in the store that folders shared."""
    said = (report.get("spent") or {}).get("by_model") or {}
    found = {str(model): dict(numbers) for model, numbers in said.items()}
    path = folder / "answers.db"
    if path.is_file():
        with contextlib.suppress(StorageError), contextlib.closing(AnswerStore(path)) as store:
            return max(found, store.spent(), key=lambda s: sum(int(n.get("requests") or 0) for n in s.values()))
    return found


def _object(path: Path) -> JsonObject:
    """A JSON object; empty where there is none, or none that can be read."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _lines(path: Path) -> Iterator[tuple[int, JsonObject]]:
    return read_objects(path, on_bad=lambda error: None)
