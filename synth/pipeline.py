"""The single-call pipeline over a folder: generate, fill, evolve, translate, call, filters, and what is kept.

FOLDER/01-generate.jsonl ...   what became of each input of each step (`toolscout.synth.chain`)
FOLDER/answers.db              model answers by content (unless it is shared and lies elsewhere)
FOLDER/calls.jsonl             the calls that passed all filters
FOLDER/report.json             counts, drop reasons, tokens and price
FOLDER/report.html             the same with samples to read, as a page
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from toolscout.errors import BadInput, StorageError, ToolscoutError
from toolscout.files import write_json
from toolscout.jsonl import write_records
from toolscout.records import Call, JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Item, Step, StepCount, Sweep, Tick, run_step, run_sweep
from toolscout.synth.drafts import Draft, Subject, draft_of
from toolscout.synth.filters.duplicates import Duplicates
from toolscout.synth.filters.grounded import Grounded
from toolscout.synth.filters.invocation import Invocation
from toolscout.synth.filters.judge import Judge
from toolscout.synth.filters.resembles import Resembles
from toolscout.synth.filters.schema import FitsSchema
from toolscout.synth.making.call import MakeCall
from toolscout.synth.making.evolve import Evolve
from toolscout.synth.making.fill import Fill
from toolscout.synth.making.generate import Generate
from toolscout.synth.making.translate import Translate
from toolscout.synth.report import categories, report
from toolscout.synth.report_folder import CATEGORIES
from toolscout.synth.report_page import page_at_the_end

FILTERS = ("schema", "grounded", "resembles", "duplicates", "invocation", "judge")
"""In the order in which they run: what costs nothing first."""

_ORDER = ("generate", "fill", "evolve", "translate", "call", *FILTERS)
"""A step's file keeps its number whichever filters are chosen."""

WITH_MODEL = ("invocation", "judge")


@dataclass
class Result:
    """What a run gives: the calls kept, in the order of the inputs, and the report."""

    calls: list[Call]
    report: JsonObject = field(default_factory=dict)


async def make_calls(
    subjects: Sequence[Subject],
    bench: Bench,
    folder: Path,
    *,
    filters: Sequence[str] = FILTERS,
    left_out: dict[str, int] | None = None,
    tick: Tick | None = None,
) -> Result:
    """Make calls for the subjects; the same call goes on where an earlier run in the folder stopped.

    Raises:
        BadInput: another run works in the folder.
        CeilingReached: see `toolscout.synth.writer`. The steps done so far are in the folder, and in its report.
        ModelError, NotAllowed: the endpoint cannot be used.
    """
    steps: list[Step[Any]] = [Generate(bench), Fill(bench), Evolve(bench), Translate(bench), MakeCall(bench)]
    with working_in(folder):
        await _prepare(bench)
        chain = _Chain(bench, folder, "calls", tick, {"tools": len(subjects), "left_out": left_out or {}})
        drafts = await chain.run(subjects, [*steps, *make_filters(bench, filters)])
        return chain.finish([d.call() for d in drafts], drafts)


async def filter_calls(
    calls: Sequence[Call],
    bench: Bench,
    folder: Path,
    *,
    filters: Sequence[str] = FILTERS,
    tick: Tick | None = None,
) -> Result:
    """Put calls from elsewhere through the filters. Rows without exactly one gold call with arguments are left out.

    Raises: as `make_calls`.
    """
    rows = _by_id(calls)
    drafts = [
        d.model_copy(update={"id": id_}) for id_, call in rows.items() if (d := draft_of(call, bench.tools)) is not None
    ]
    with working_in(folder):
        await _prepare(bench)
        left = {"not one gold call of these tools with arguments": len(calls) - len(drafts)}
        chain = _Chain(bench, folder, "filter", tick, {"calls": len(calls), "left_out": left})
        kept = await chain.run(drafts, make_filters(bench, filters))
        return chain.finish([rows[d.id] for d in kept], kept)


def make_filters(bench: Bench, names: Sequence[str]) -> list[Step[Any] | Sweep]:
    """The filters of these names, in the order in which they run.

    Raises:
        BadInput: a name that is none, or a filter that needs what the bench lacks.
    """
    unknown = [name for name in names if name not in FILTERS]
    if unknown:
        raise BadInput(f"There is no filter {unknown[0]!r}.", f"Filters are {', '.join(FILTERS)}.")
    if bench.first is None and (asking := [n for n in names if n in WITH_MODEL]):
        raise BadInput(f"The filter {asking[0]} needs a model.", "Give --endpoint, or leave it out with --filters.")
    made: dict[str, Callable[[], Step[Any] | Sweep]] = {
        "schema": lambda: FitsSchema(bench),
        "grounded": lambda: Grounded(bench, _given(bench.ungrounded)),
        "resembles": lambda: Resembles(bench, _given(bench.encoder)),
        "duplicates": lambda: Duplicates(bench.settings.duplicate_from),
        "invocation": lambda: Invocation(bench),
        "judge": lambda: Judge(bench),
    }
    return [made[name]() for name in FILTERS if name in names]


class _Chain:
    """Steps one after the other, each with its file; the report is written whatever happens."""

    def __init__(self, bench: Bench, folder: Path, kind: str, tick: Tick | None, about: JsonObject) -> None:
        self.bench, self.folder, self.kind, self.tick, self.about = bench, folder, kind, tick, about
        self.counts: list[StepCount] = []

    async def run(self, items: Sequence[Item], steps: Sequence[Step[Any] | Sweep]) -> list[Draft]:
        drafts: list[Draft] = []
        # a killed run leaves what it was about: `toolscout synth report` counts the rest from the steps' files
        self.about |= {"planned": [step.name for step in steps], "inputs": len(items)}
        write_json(self.folder / CATEGORIES, categories(self.bench))
        self._write(None)
        for step in steps:
            path = self.folder / f"{_ORDER.index(step.name) + 1:02d}-{step.name}.jsonl"
            try:
                if isinstance(step, Sweep):
                    drafts, count = run_sweep(step, [i for i in items if isinstance(i, Draft)], path)
                else:
                    concurrency = self.bench.inputs_at_once
                    drafts, count = await run_step(step, items, path, concurrency=concurrency, tick=self.tick)
            except BaseException:  # Ctrl-C, too
                with suppress(ToolscoutError):  # what ended the run is said, not what came of it
                    self._write(None)
                raise
            self.counts.append(count)
            if isinstance(step, Fill):
                self.about["placeholders_replaced"] = sum(draft.replaced or 0 for draft in drafts)
            if isinstance(step, Invocation):
                self.about["remarks"] = step.remarks([item for item in items if isinstance(item, Draft)])
            items = drafts
        return drafts

    def finish(self, calls: Sequence[Call], drafts: Sequence[Draft]) -> Result:
        write_records(self.folder / f"{'calls' if self.kind == 'calls' else 'kept'}.jsonl", calls)
        return Result(list(calls), self._write(drafts))

    def _write(self, drafts: Sequence[Draft] | None) -> JsonObject:
        made = report(self.bench, self.counts, drafts, self.about)
        write_json(self.folder / "report.json", made)
        if drafts is not None:
            page_at_the_end(self.folder, made, self.bench.encoder)
        return made


@contextmanager
def working_in(folder: Path) -> Iterator[None]:
    """The folder for one run alone. Raises BadInput when another one works in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock", blocking=False)
        with lock:
            yield
    except Timeout:
        raise BadInput(f"Another run works in {folder}.", "Wait for it, or give another folder with --out.") from None
    except OSError as error:
        raise StorageError(f"The folder {folder} cannot be used: {error.strerror or error}.") from None


def _by_id(calls: Sequence[Call]) -> dict[str, Call]:
    """The rows by their ids, in their order; an id that came before gets a number. Two runs of synthesis over the same
    tools give their rows the same ids."""
    rows: dict[str, Call] = {}
    taken = {call.id for call in calls}
    count: Counter[str] = Counter()
    for call in calls:
        id_ = call.id
        while id_ in rows or (id_ != call.id and id_ in taken):
            count[call.id] += 1
            id_ = f"{call.id}~{count[call.id] + 1}"
        rows[id_] = call
    return rows


async def _prepare(bench: Bench) -> None:
    for writer in (bench.first, bench.second):
        if writer is not None:
            await writer.prepare()


def _given(value: Any) -> Any:
    if value is None:
        raise BadInput("A filter lacks what it works with.", "Leave it out with --filters.")
    return value
