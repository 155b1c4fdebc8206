"""Steps over a folder: one JSONL file a step, one line an input, so that all of it can be read and any kill resumed.

A line says what became of one input: what was made of it, and what was dropped and why. It carries a mark, a hash of
the input and of all that decides the step's result (prompt, model, settings). A line whose mark no longer fits is made
anew; with its answers in the store that costs nothing where nothing changed.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from pydantic import Field, ValidationError

from toolscout.errors import BadInput, StorageError
from toolscout.jsonl import read_objects, well_formed, write_records
from toolscout.records import JsonObject, Record, canonical_json, sha256_hex
from toolscout.synth.drafts import Draft, Subject
from toolscout.synth.writer import NoAnswer

Tick = Callable[[str, int, int], None]
"""Called with the step's name, inputs done and inputs in all."""

Item = Subject | Draft
I_contra = TypeVar("I_contra", bound=Item, contravariant=True)


class Dropped(Record):
    """One thing that does not go on. ``reason`` is what reports count; ``detail`` and ``text`` are for reading."""

    reason: str
    detail: str = ""
    text: str = ""


class Line(Record):
    """What became of the input ``id``."""

    id: str
    mark: str
    made: list[Draft] = Field(default_factory=list)
    dropped: list[Dropped] = Field(default_factory=list)


@dataclass
class Outcome:
    """What a step makes of one input."""

    made: list[Draft] = field(default_factory=list)
    dropped: list[Dropped] = field(default_factory=list)

    @classmethod
    def drop(cls, reason: str, detail: str = "", text: str = "") -> Outcome:
        """Nothing goes on."""
        return cls(dropped=[Dropped(reason=reason, detail=detail, text=text)])


class Step(Protocol[I_contra]):
    """A step that looks at one input at a time."""

    name: str

    def decides(self) -> JsonObject:
        """All but the input that decides the result: prompt, model, settings."""
        ...

    async def work(self, item: I_contra) -> Outcome:
        """What becomes of one input. `NoAnswer` drops it; any other error stops the run, and what was done stays."""
        ...


@runtime_checkable
class Sweep(Protocol):
    """A step that looks at all inputs at once, in their order; cheap enough to be done anew each time."""

    name: str

    def decides(self) -> JsonObject:
        """As `Step.decides`."""
        ...

    def sweep(self, items: Sequence[Draft]) -> list[Outcome]:
        """What becomes of each input."""
        ...


@dataclass
class StepCount:
    """What a step did, over the whole folder."""

    step: str
    inputs: int = 0
    made: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def to_dict(self) -> JsonObject:
        """As one JSON object, reasons by name."""
        return {
            "step": self.step,
            "inputs": self.inputs,
            "made": self.made,
            "dropped": dict(sorted(self.dropped.items())),
        }


async def run_step(
    step: Step[Any], items: Sequence[Item], path: Path, *, concurrency: int = 8, tick: Tick | None = None
) -> tuple[list[Draft], StepCount]:
    """Do what is not done yet; (everything made, in the order of the inputs; the counts).

    Raises:
        BadInput: two inputs have one id.
        ModelError, NotAllowed: the first failure that is no single input's; lines made before it stay.
    """
    marks = _marks(step.name, step.decides(), items)
    lines = _kept(path, marks)
    todo = [item for item in items if item.id not in lines]
    tell = tick or (lambda name, done, total: None)
    tell(step.name, len(lines), len(items))
    failure: list[BaseException] = []
    waiting = iter(todo)
    with _Appender(path) as out:

        async def worker() -> None:
            for item in waiting:
                if failure:
                    return
                try:
                    outcome = await step.work(item)
                except NoAnswer as none:
                    outcome = Outcome.drop(none.reason, none.detail, getattr(item, "text", ""))
                except Exception as error:
                    # The others finish what they are at: it is paid for.
                    failure.append(error)
                    return
                line = Line(id=item.id, mark=marks[item.id], made=outcome.made, dropped=outcome.dropped)
                out.write(line)
                lines[item.id] = line
                tell(step.name, len(lines), len(items))

        await asyncio.gather(*(worker() for _ in range(min(concurrency, len(todo)) or 1)))
    if failure:
        raise failure[0]
    return _in_order(step.name, items, lines)


def run_sweep(step: Sweep, items: Sequence[Draft], path: Path) -> tuple[list[Draft], StepCount]:
    """As `run_step`, for a step over all inputs; its file is replaced in one go."""
    marks = _marks(step.name, step.decides(), items)
    lines = {
        item.id: Line(id=item.id, mark=marks[item.id], made=outcome.made, dropped=outcome.dropped)
        for item, outcome in zip(items, step.sweep(items), strict=True)
    }
    write_records(path, lines.values())
    return _in_order(step.name, items, lines)


def _in_order(name: str, items: Sequence[Item], lines: dict[str, Line]) -> tuple[list[Draft], StepCount]:
    count = StepCount(name, inputs=len(items))
    made: list[Draft] = []
    for item in items:
        line = lines[item.id]
        made += line.made
        count.dropped.update(d.reason for d in line.dropped)
    count.made = len(made)
    return made, count


def _marks(name: str, decides: JsonObject, items: Sequence[Item]) -> dict[str, str]:
    base = sha256_hex(canonical_json([name, decides]))
    marks: dict[str, str] = {}
    for item in items:
        if item.id in marks:
            raise BadInput(f"Two inputs of the step {name} have the id {item.id!r}.", "Give each row an id of its own.")
        marks[item.id] = sha256_hex(base + canonical_json(item.model_dump(mode="json", exclude_none=True)))[:16]
    return marks


def _kept(path: Path, marks: dict[str, str]) -> dict[str, Line]:
    """The lines that still hold. A file with others in it (of changed inputs, of a write that a kill cut short) is
    written anew without them."""
    if not path.exists():
        return {}
    lines: dict[str, Line] = {}
    bad: list[BadInput] = []
    count = 0
    for _, row in read_objects(path, on_bad=bad.append):
        count += 1
        try:
            line = Line.model_validate(row)
        except ValidationError:
            continue
        if marks.get(line.id) == line.mark:
            lines[line.id] = line
    if bad or count != len(lines) or not _ends_whole(path):
        write_records(path, lines.values())
    return lines


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


class _Appender:
    """Whole lines at the end of a file, each handed to the system at once: a killed process loses none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> _Appender:
        try:
            self._file = self.path.open("ab", buffering=0)
        except OSError as error:
            raise StorageError(f"{self.path} cannot be written: {error.strerror}.") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, line: Line) -> None:
        safe = line.model_copy(update={"made": [Draft.model_validate(well_formed(d.model_dump())) for d in line.made]})
        data = safe.to_json().encode("utf-8", "replace") + b"\n"
        try:
            while data:
                data = data[self._file.write(data) or 0 :]
        except OSError as error:
            raise StorageError(f"{self.path} cannot be written: {error.strerror}.") from None
