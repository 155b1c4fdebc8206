"""Trajectories over a folder: plan, execute, look at what failed, judge the responses, answer, judge the answer.

FOLDER/01-plan.jsonl ...       what became of each row at each step (`toolscout.synth.chain`)
FOLDER/executions.db           calls that were sent, and their responses
FOLDER/answers.db              model answers by content (unless it is shared and lies elsewhere)
FOLDER/trajectories.jsonl      the runs that passed
FOLDER/failed.jsonl            the runs that failed at a call, with the root cause as their outcome
FOLDER/report.json             counts, drop reasons, failures by server and tool, tokens and price
FOLDER/report.html             the same with samples to read, as a page
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolscout.causes import Cause
from toolscout.errors import BadInput, ToolscoutError
from toolscout.files import write_json
from toolscout.jsonl import read_records, write_records
from toolscout.records import Call, JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Line, Step, StepCount, Sweep, Tick, run_step, run_sweep
from toolscout.synth.drafts import Draft
from toolscout.synth.pipeline import working_in
from toolscout.synth.report import categories, report
from toolscout.synth.report_folder import CATEGORIES
from toolscout.synth.report_page import page_at_the_end
from toolscout.synth.trajectories.answer import Answer
from toolscout.synth.trajectories.caller import Caller
from toolscout.synth.trajectories.execute import Execute
from toolscout.synth.trajectories.executions import Executions
from toolscout.synth.trajectories.judged import JudgeAnswer, JudgeResponse
from toolscout.synth.trajectories.outcome import WentWell
from toolscout.synth.trajectories.plan import Plan
from toolscout.synth.trajectories.run import Run, SynthTrajectory, draft_of_row, trajectory
from toolscout.synth.trajectories.tally import tally

_ORDER = ("plan", "execute", "outcome", "response", "answer", "faithful")
_THRESHOLDS = ("response_below", "answer_below")
_MADE_WITH = (
    "call_timeout", "calls_at_once", "calls_a_server", "response_characters", "response_stored", "max_tokens",
    "repairs", "concurrency", "max_cost",
)  # fmt: skip


@dataclass
class Ran:
    """What a run of the pipeline gives: the trajectories kept, those that failed, and the report."""

    kept: list[SynthTrajectory]
    failed: list[SynthTrajectory]
    report: JsonObject = field(default_factory=dict)


async def make_trajectories(
    calls: Sequence[Call],
    bench: Bench,
    caller: Caller,
    folder: Path,
    *,
    writes: bool = False,
    again: Collection[str] = (),
    tick: Tick | None = None,
) -> Ran:
    """Execute the rows' calls and make trajectories of them; the same call goes on where an earlier run stopped.

    Without a model on the bench it ends after the execution: what went well is kept without an answer, and a later run
    with a model goes on from there.

    :param writes: also execute calls of tools that may change something.
    :param again: root causes whose failed calls are made once more.

    Raises:
        BadInput: another run works in the folder; a cause that is none.
        UpstreamError: the server cannot be reached.
        CeilingReached, ModelError, NotAllowed: see `toolscout.synth.writer`. What was done is in the folder.
    """
    _check(again)
    served = [call for call in calls if call.gold]
    rows = [call for call in served if all(g.arguments is not None for g in call.gold)]
    drafts = [draft_of_row(call, bench.tools) for call in rows]
    about = {
        "calls": len(calls),
        "left_out": _left(len(calls) - len(served), len(served) - len(rows)),
        "writes": writes,
    }
    with working_in(folder), closing(Executions(folder / "executions.db")) as executions:
        for writer in (bench.first, bench.second):
            if writer is not None:
                await writer.prepare()
        if again:
            _forget(again, executions, bench, folder, writes)
        steps: list[Step[Any] | Sweep] = [Plan(bench, writes=writes), Execute(bench, caller, executions), WentWell()]
        if bench.first is not None:
            steps += [JudgeResponse(bench), Answer(bench), JudgeAnswer(bench)]
        return await _Rows(bench, folder, about, tick).run(drafts, steps)


class _Rows:
    """The rows' way through the steps; the report is written whatever happens."""

    def __init__(self, bench: Bench, folder: Path, about: JsonObject, tick: Tick | None) -> None:
        self.bench, self.folder, self.about, self.tick = bench, folder, about, tick
        self.counts: list[StepCount] = []
        self.rows: set[str] = set()
        self.executed: list[Draft] | None = None

    async def run(self, drafts: list[Draft], steps: Sequence[Step[Any] | Sweep]) -> Ran:
        settings = self.bench.settings
        # a killed run leaves what it was about, and does not pass for the finished one before it
        self.about |= {"planned": [step.name for step in steps], "inputs": len(drafts)}
        self.rows = {draft.id for draft in drafts}
        self._write(None)
        for step in steps:
            path = self.folder / _file(step.name)
            try:
                if isinstance(step, Sweep):
                    drafts, count = run_sweep(step, drafts, path)
                else:
                    at_once = settings.calls_at_once if step.name == "execute" else self.bench.inputs_at_once
                    drafts, count = await run_step(step, drafts, path, concurrency=at_once, tick=self.tick)
            except BaseException:  # Ctrl-C, too
                with suppress(ToolscoutError):  # what ended the run is said, not what came of it
                    self._write(None)
                raise
            self.counts.append(count)
            if step.name == "execute":
                self.executed = drafts
        kept = [self._record(d) for d in drafts]
        failed = [self._record(d) for d in self.executed or () if Run.of(d).failure is not None]
        write_records(self.folder / "trajectories.jsonl", kept)
        write_records(self.folder / "failed.jsonl", failed)
        return Ran(kept, failed, self._write(drafts))

    def _record(self, draft: Draft) -> SynthTrajectory:
        return trajectory(draft, self.bench.tools, self.bench.settings.response_characters)

    def _so_far(self) -> list[Draft]:
        """What a run that did not come to its end has executed, by the step's file."""
        path = self.folder / _file("execute")
        found = read_records(path, Line, on_bad=lambda error: None) if path.exists() else ()
        return [draft for line in found if line.id in self.rows for draft in line.made]

    def _write(self, kept: Sequence[Draft] | None) -> JsonObject:
        settings = self.bench.settings.model_dump()
        made = report(self.bench, self.counts, None, self.about)
        made |= {
            "finished": kept is not None,
            "thresholds": {name: settings[name] for name in _THRESHOLDS},
            "settings": {name: settings[name] for name in _MADE_WITH},
            "executed": tally(map(Run.of, self._so_far() if self.executed is None else self.executed), self.bench),
            "kept": _kept(self.bench, kept) if kept is not None else None,
        }
        write_json(self.folder / "report.json", made)
        write_json(self.folder / CATEGORIES, categories(self.bench))
        if kept is not None:
            page_at_the_end(self.folder, made, self.bench.encoder)
        return made


def _kept(bench: Bench, drafts: Sequence[Draft]) -> JsonObject:
    runs = [Run.of(d) for d in drafts]
    tools = {t for run in runs for t in run.tools()}
    return {
        "trajectories": len(runs),
        "answered": sum(1 for run in runs if run.answer),
        "tools": len(tools),
        "servers": len({bench.tools[t].server_id for t in tools}),
        "by_steps": {str(n): count for n, count in sorted(Counter(len(run.steps) for run in runs).items())},
        "by_language": dict(sorted(Counter(d.lang for d in drafts).items())),
    }


def _left(unserved: int, bare: int) -> dict[str, int]:
    return {why: n for why, n in (("no gold call", unserved), ("a call without arguments", bare)) if n}


def _check(again: Collection[str]) -> None:
    known = [cause.value for cause in Cause]
    wrong = [name for name in again if name not in known]
    if wrong:
        raise BadInput(f"There is no root cause {wrong[0]!r}.", f"Root causes are {', '.join(known)}.")


def _forget(again: Collection[str], executions: Executions, bench: Bench, folder: Path, writes: bool) -> None:
    """Take failed calls out of the store, and their rows' lines out of the step's file, so that both are made anew.

    Calls of tools that may write stay unless writes are allowed: a call that failed may have been carried out in part.
    """
    from toolscout.index.acts import act_of

    tools = [t.tool_id for t in bench.tools.values() if writes or not act_of(t).writes]
    executions.forget(again, set(tools))
    path = folder / _file("execute")
    if path.exists():
        bad: list[BadInput] = []
        lines = [line for line in read_records(path, Line, on_bad=bad.append) if not _failed_by(line, again)]
        write_records(path, lines)


def _failed_by(line: Line, causes: Collection[str]) -> bool:
    return any((failed := Run.of(d).failure) is not None and failed.cause in causes for d in line.made)


def _file(name: str) -> str:
    return f"{_ORDER.index(name) + 1:02d}-{name}.jsonl"
