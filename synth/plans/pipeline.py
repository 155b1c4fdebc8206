"""The pipeline of plans over a folder: combine, sample, template, fill, rewrite, rules, duplicates, two judges.

FOLDER/01-combine.jsonl ...    what became of each input of each step (`toolscout.synth.chain`)
FOLDER/answers.db              model answers by content (unless it is shared and lies elsewhere)
FOLDER/plans.jsonl             the plans that passed everything: calls of the data contract
FOLDER/report.json             counts, drop reasons, thresholds, tokens and price
FOLDER/report.html             the same with samples to read, as a page
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput, ToolscoutError
from toolscout.files import write_json
from toolscout.jsonl import write_records
from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Step, StepCount, Sweep, Tick, run_step, run_sweep
from toolscout.synth.drafts import Draft, Subject
from toolscout.synth.pipeline import Result, working_in
from toolscout.synth.plans.categories import by_category
from toolscout.synth.plans.codes import absent, available, editions
from toolscout.synth.plans.combine import Combine, asks
from toolscout.synth.plans.copies import Copies
from toolscout.synth.plans.dag import LEAST, MOST
from toolscout.synth.plans.fillings import Fill
from toolscout.synth.plans.judges import Reasonable, Semantic
from toolscout.synth.plans.rewrite import Rewrite
from toolscout.synth.plans.rules import Rules
from toolscout.synth.plans.sample import Sample, seats
from toolscout.synth.plans.state import Plan, row, shape
from toolscout.synth.plans.template import Template
from toolscout.synth.report import categories, distance, report, spread
from toolscout.synth.report_folder import CATEGORIES
from toolscout.synth.report_page import page_at_the_end

FILTERS = ("rules", "duplicates", "reasonable", "semantic")
"""In the order in which they run: what costs nothing first."""

_MAKING = ("combine", "sample", "template", "fill", "rewrite")
_ORDER = (*_MAKING, *FILTERS)
_THRESHOLDS = (
    "longest_instruction", "copied_words", "ungrounded_above", "duplicate_from", "plan_reasonable_below",
    "plan_matches_below",
)  # fmt: skip
_MADE_WITH = (
    "plans", "plans_across", "plan_smallest", "plan_largest", "plan_near", "plan_fillings", "allow_names", "seed",
    "temperature", "max_tokens", "repairs", "concurrency", "max_cost",
)  # fmt: skip


async def make_plans(
    subjects: Sequence[Subject],
    bench: Bench,
    folder: Path,
    *,
    filters: Sequence[str] = FILTERS,
    left_out: dict[str, int] | None = None,
    tick: Tick | None = None,
) -> Result:
    """Make plans over the subjects; the same call goes on where an earlier run in the folder stopped.

    Raises:
        BadInput: another run works in the folder, a filter that is none, or bounds that are none.
        CeilingReached: see `toolscout.synth.writer`. The steps done so far are in the folder, and in its report.
        ModelError, NotAllowed: the endpoint cannot be used.
    """
    s = bench.settings
    if unknown := [name for name in filters if name not in FILTERS]:
        raise BadInput(f"There is no filter {unknown[0]!r}.", f"Filters of plans are {', '.join(FILTERS)}.")
    if not LEAST <= s.plan_smallest <= s.plan_largest <= MOST:
        raise BadInput(
            f"A plan cannot be over {s.plan_smallest} to {s.plan_largest} tools.",
            f"Give bounds from {LEAST} to {MOST}.",
        )
    categories = by_category(subjects)
    lists = available()
    run = _Run(bench, folder, tick, {"tools": len(subjects), "categories": len(categories), "left_out": left_out or {}})
    with working_in(folder):
        for writer in (bench.first, bench.second):
            if writer is not None:
                await writer.prepare()
        tests: dict[str, Step[Any] | Sweep] = {
            "rules": Rules(bench),
            "duplicates": Copies(s.duplicate_from),
            "reasonable": Reasonable(bench, s.plan_reasonable_below),
            "semantic": Semantic(bench, s.plan_matches_below),
        }
        asked = asks(categories, bench)
        if s.plans_across and not asked:
            run.about["remarks"] = [
                f"No plan is over several categories: the servers of these tools are of {len(categories)}. Give the "
                "servers with their categories by --servers."
            ]
        run.begin([*_MAKING, *(name for name in FILTERS if name in filters)], len(asked))
        combined = await run.step(Combine(bench), asked)
        drafts = await run.step(Sample(bench, categories), [*seats(categories), *combined])
        for step in (Template(bench, lists), Fill(bench, lists), Rewrite(bench)):
            drafts = await run.step(step, drafts)
        for name in FILTERS:
            if name in filters:
                drafts = await run.step(tests[name], drafts)
        return run.finish(drafts)


class _Run:
    """Steps one after the other, each with its file; the report is written whatever happens."""

    def __init__(self, bench: Bench, folder: Path, tick: Tick | None, about: JsonObject) -> None:
        self.bench, self.folder, self.tick, self.about = bench, folder, tick, about
        self.counts: list[StepCount] = []

    def begin(self, planned: Sequence[str], inputs: int) -> None:
        """A killed run leaves what it was about, and does not pass for the finished one before it."""
        self.about |= {"planned": list(planned), "inputs": inputs}
        self._write(None)

    async def step(self, step: Step[Any] | Sweep, items: Sequence[Draft]) -> list[Draft]:
        path = self._file(step.name)
        try:
            if isinstance(step, Sweep):
                drafts, count = run_sweep(step, items, path)
            else:
                at_once = self.bench.inputs_at_once
                drafts, count = await run_step(step, items, path, concurrency=at_once, tick=self.tick)
        except BaseException:  # Ctrl-C, too
            with suppress(ToolscoutError):  # what ended the run is said, not what came of it
                self._write(None)
            raise
        self.counts.append(count)
        return drafts

    def finish(self, drafts: Sequence[Draft]) -> Result:
        calls = [row(draft) for draft in drafts]
        write_records(self.folder / "plans.jsonl", calls)
        return Result(list(calls), self._write(drafts))

    def _file(self, name: str) -> Path:
        """A step's file keeps its number whichever filters are chosen."""
        return self.folder / f"{_ORDER.index(name) + 1:02d}-{name}.jsonl"

    def _write(self, drafts: Sequence[Draft] | None) -> JsonObject:
        settings = self.bench.settings.model_dump()
        made = {
            **report(self.bench, self.counts, None, self.about),
            "finished": drafts is not None,
            "thresholds": {name: settings[name] for name in _THRESHOLDS},
            "settings": {name: settings[name] for name in _MADE_WITH},
            "dictionaries": {"installed": editions(), "missing": absent()},
            "kept": _kept(self.bench, drafts) if drafts is not None else None,
        }
        write_json(self.folder / "report.json", made)
        write_json(self.folder / CATEGORIES, categories(self.bench))
        if drafts is not None:
            page_at_the_end(self.folder, made, self.bench.encoder)
        return made


def _kept(bench: Bench, drafts: Sequence[Draft]) -> JsonObject:
    plans = [Plan.of(draft) for draft in drafts]
    shapes = [shape(plan) for plan in plans]
    tools = {t for plan in plans for t in plan.used}

    def counted(values: Sequence[Any]) -> dict[str, int]:
        return {str(k): n for k, n in sorted(Counter(values).items())}

    return {
        "plans": len(plans),
        "templates": len({draft.parent for draft in drafts}),
        "tools": len(tools),
        "servers": len({bench.tools[t].server_id for t in tools}),
        "by_calls": counted([s["calls"] for s in shapes]),
        "by_depth": counted([s["depth"] for s in shapes]),
        "by_form": counted([s["form"] for s in shapes]),
        "by_servers": counted([len({bench.tools[t].server_id for t in plan.used}) for plan in plans]),
        "by_category": counted([c for plan in plans for c in plan.categories]),
        "across_categories": sum(len(plan.categories) > 1 for plan in plans),
        "references": sum(s["references"] for s in shapes),
        "slots_by_type": counted([f.type for plan in plans for f in plan.filled.values()]),
        "words": spread([len(d.text.split()) for d in drafts]),
        "characters": spread([len(d.text) for d in drafts]),
        "mean_cosine_distance": distance(drafts, bench.encoder) if bench.encoder else None,
    }
