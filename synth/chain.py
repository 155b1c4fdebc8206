"""Steps over a folder: one JSONL file a step, one line an input, so that all of it can be read and any kill resumed.

A line says what became of one input: what was made of it, and what was dropped and why. It carries a mark, a hash of
the input and of all that decides the step's result (prompt, model, settings). A line whose mark no longer fits is made
anew; with its answers in the store that costs nothing where nothing changed. So is a line that says that no answer
came at all (not in time, the request refused): another time one may.
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

from toolscout.errors import BadInput, ModelError, StorageError
from toolscout.jsonl import read_objects, well_formed, write_records
from toolscout.records import JsonObject, Record, canonical_json, sha256_hex
from toolscout.synth.chat import Unreachable
from toolscout.synth.drafts import Draft, Subject
from toolscout.synth.writer import REFUSED, TOO_LONG, UNANSWERED, NoAnswer

_REFUSED_IN_ROW = 8
"""With inputs of so many tools that the endpoint refuses and none that it takes between, it is not the inputs."""

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

    Inputs that an earlier run got no answer for come last, and stay as they are where it is in vain again.

    Raises:
        BadInput: two inputs have one id.
        ModelError, NotAllowed: the first failure that is no single input's; lines made before it stay.
    """
    marks = _marks(step.name, step.decides(), items)
    kept = _kept(path, marks)
    silent = {i: line for i, line in kept.items() if not UNANSWERED.isdisjoint(d.reason for d in line.dropped)}
    lines = {i: line for i, line in kept.items() if i not in silent}
    todo = sorted((item for item in items if item.id not in lines), key=lambda item: item.id in silent)
    tell = tick or (lambda name, done, total: None)
    tell(step.name, len(lines), len(items))
    failure: list[BaseException] = []
    in_vain: list[str] = []
    waiting = iter(todo)
    with _Appender(path) as out:

        async def worker() -> None:
            # Of this worker alone: refusals come at once, and before the answers that others wait for.
            refused: Counter[str] = Counter()
            for item in waiting:
                if failure:
                    return
                if in_vain and item.id in silent:
                    lines[item.id] = silent[item.id]
                    continue
                try:
                    outcome = await _outcome(step, item)
                    line = Line(id=item.id, mark=marks[item.id], made=outcome.made, dropped=outcome.dropped)
                    out.write(line)
                except Exception as error:
                    if isinstance(error, Unreachable) and item.id in silent:
                        in_vain.append(item.id)  # it was slow before, too: no reason to stop what else is done
                        lines[item.id] = silent[item.id]
                        continue
                    # The others finish what they are at: it is paid for.
                    failure.append(error)
                    return
                lines[item.id] = line
                if not _is_refused(line):
                    refused.clear()
                elif item.id not in silent:
                    refused[getattr(item, "tool_id", "") or item.id] += 1  # what is of one tool is refused together
                    if len(refused) == _REFUSED_IN_ROW:
                        failure.append(_not_taken(step.name, f"{refused.total()} inputs in a row", line))
                tell(step.name, len(lines), len(items))

        await asyncio.gather(*(worker() for _ in range(min(concurrency, len(todo)) or 1)))
    if failure:
        raise failure[0]
    if silent:
        write_records(path, (lines[item.id] for item in items))  # what was asked again has two lines
    if items and all(_is_refused(line) for line in lines.values()):
        raise _not_taken(step.name, f"all {len(items)} inputs", lines[items[0].id])
    return _in_order(step.name, items, lines)


async def _outcome(step: Step[Any], item: Item) -> Outcome:
    try:
        return await step.work(item)
    except NoAnswer as none:
        return Outcome.drop(none.reason, none.detail, getattr(item, "text", ""))


def _is_refused(line: Line) -> bool:
    return not line.made and any(d.reason in (TOO_LONG, REFUSED) for d in line.dropped)


def _not_taken(name: str, which: str, line: Line) -> ModelError:
    lost = next(d for d in line.dropped if d.reason in (TOO_LONG, REFUSED))
    change = "Lower --max-tokens, or give the model a longer context" if lost.reason == TOO_LONG else "See to that"
    return ModelError(
        f"In the step {name}, {which} are {lost.reason}: {lost.detail}",
        f"{change}, and run the same command again to go on.",
    )


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
