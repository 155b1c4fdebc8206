"""Execution accuracy: calls are made for real, several trials a request, and their outcome is judged.

Pass@K and root causes follow MCPToolBench++ (arXiv 2508.07575, section 4.1.2); docs/EVALUATION.md defines each number.
Calls go through ``invoke`` of a real Toolscout, as in ``synth trajectories``, whose planning, execution and causes are
used here.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolscout.causes import Cause
from toolscout.errors import BadInput
from toolscout.eval.execute.calls import Made, Source, gather, together
from toolscout.eval.execute.expect import ExecuteRow
from toolscout.eval.execute.judge import NO_CALLS, NOT_MADE, ModelJudge, Trial, judge_by_rules
from toolscout.eval.execute.score import score
from toolscout.eval.rows import Say, draw, silent, split_of
from toolscout.index.acts import act_of
from toolscout.jsonl import read_records
from toolscout.records import Call, GoldCall, JsonObject, Server, Tool
from toolscout.synth.bench import Bench
from toolscout.synth.drafts import shown
from toolscout.synth.pipeline import working_in
from toolscout.synth.settings import SynthSettings
from toolscout.synth.trajectories.caller import Caller
from toolscout.synth.trajectories.execute import Execute
from toolscout.synth.trajectories.executions import Executions
from toolscout.synth.trajectories.plan import Plan
from toolscout.synth.trajectories.run import Run, draft_of_row

TRIALS = 5

Lookup = Callable[[Iterable[str]], tuple[Mapping[str, Tool], Mapping[str, Server]]]
"""``lookup(tool ids)``: those tools that are known, by id, and their servers, by theirs."""


@dataclass
class ExecuteRun:
    """``result`` is what ``--json`` writes; the trials are ordered by row, then by number."""

    result: JsonObject
    rows: dict[str, ExecuteRow]
    trials: list[Trial]
    made: dict[tuple[str, int], Made]
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Executing:
    """How calls are made. ``writes``: also those that may change something; ``again``: root causes whose failed calls
    are made once more."""

    settings: SynthSettings
    trials: int = TRIALS
    writes: bool = False
    again: Sequence[str] = ()


def read_rows(paths: Sequence[Path], limit: int | None = None, seed: int = 0) -> list[ExecuteRow]:
    """The rows of all files; ``limit`` keeps that many, drawn as everywhere.

    Raises BadInput when there are none, an id occurs twice, or an ``expect`` is none.
    """
    rows = [row for path in paths for row in read_records(path, ExecuteRow)]
    if not rows:
        raise BadInput("The calls files hold no rows.", "Give at least one file of calls with --calls.")
    twice = next((row_id for row_id, n in Counter(row.id for row in rows).items() if n > 1), None)
    if twice is not None:
        raise BadInput(f"The row id {twice!r} occurs twice in the calls files.", "Row ids must be unique.")
    if limit is not None and limit < len(rows):
        kept = {row.id for row in sorted(rows, key=lambda row: draw(seed, row.id))[:limit]}
        rows = [row for row in rows if row.id in kept]
    return rows


def measurable(
    rows: Sequence[ExecuteRow], lookup: Lookup, *, gold: bool, writes: bool
) -> tuple[list[ExecuteRow], dict[str, int]]:
    """The rows that can be measured, and why how many others cannot.

    :param gold: whether the gold calls are made, which then have to be stated and callable.

    Raises BadInput if none is left.
    """
    found, servers = lookup({g.tool_id for row in rows for g in row.gold})
    tools = shown(found.values(), servers)
    kept, left = [], Counter[str]()
    for row in rows:
        why = _barred(row, tools, gold=gold, writes=writes)
        if why:
            left[why] += 1
        else:
            kept.append(row)
    if not kept:
        reasons = ", ".join(f"{n} {why}" for why, n in left.items())
        raise BadInput(
            f"No row can be measured: {reasons}.", "Check that --calls and the home or --tools fit together."
        )
    return kept, dict(left)


def _barred(row: ExecuteRow, tools: Mapping[str, Tool], *, gold: bool, writes: bool) -> str:
    if not row.gold:
        return "without gold" if gold or not row.expect else ""
    if gold and any(g.arguments is None for g in row.gold):
        return "with a gold call without arguments"
    if any(g.tool_id not in tools for g in row.gold):
        return "with a gold tool that is unknown or not approved"
    if not writes and any(act_of(tools[g.tool_id]).writes for g in row.gold):
        return "with a gold call that may write (--writes makes it)"
    return ""


async def measure_execution(
    rows: Sequence[ExecuteRow],
    source: Source,
    caller: Caller,
    lookup: Lookup,
    how: Executing,
    folder: Path,
    *,
    judge: Bench | None = None,
    left_out: Mapping[str, int] | None = None,
    say: Say = silent,
) -> ExecuteRun:
    """Get each trial's calls, make them, judge them, and count.

    ``folder`` keeps calls and responses as they come: the same command goes on, and nothing is asked or called twice.
    ``judge``: a bench whose model judges; without one, rows without checks are executed and not judged.

    Raises:
        BadInput: another run works in the folder, or it holds one of other calls.
        UpstreamError: the Toolscout cannot be reached.
        ModelError, NotAllowed: no model suggests, or the judge fails. What was done is in the folder.
    """
    _check_causes(how.again)
    with working_in(folder), closing(Executions(folder / "executions.db")) as executions:
        made = await gather(rows, source, how.trials, folder / "calls.jsonl", how.settings.calls_at_once, say)
        tools, servers = lookup({call.tool_id for one in made.values() for call in one.calls})
        known = shown(tools.values(), servers)
        if how.again:
            callable_ = {t for t, tool in known.items() if how.writes or not act_of(tool).writes}
            executions.forget(list(how.again), callable_)
        # Checks look at all that was recorded of a response, not at what a prompt would show of it.
        whole = how.settings.model_copy(update={"response_characters": how.settings.response_stored})
        bench = Bench(known, servers, whole)
        trials = await _make(rows, made, bench, caller, executions, how, say)
        by_id = {row.id: row for row in rows}
        for trial in trials:
            judge_by_rules(by_id[trial.id], trial)
        if judge is not None:
            await _judge(by_id, trials, replace(judge, tools=known, servers=servers), say)
    result = {
        "rows": len(rows),
        "trials": how.trials,
        "calls_from": source.header()["calls"],
        "model": next((m.model for m in made.values() if m.model), None),
        "judge": judge.judge.model if judge is not None else None,
        "left_out": dict(left_out or {}),
        **score(trials, how.trials, lambda tool_id: tools[tool_id].server_id if tool_id in tools else ""),
    }
    return ExecuteRun(result, by_id, trials, made, _warnings(result))


async def _make(
    rows: Sequence[ExecuteRow],
    made: Mapping[tuple[str, int], Made],
    bench: Bench,
    caller: Caller,
    executions: Executions,
    how: Executing,
    say: Say,
) -> list[Trial]:
    """Every trial's calls, made once; the trials of a row one after the other, rows side by side."""
    plan, execute = Plan(bench, writes=how.writes), Execute(bench, caller, executions)
    gate, done = asyncio.Semaphore(how.settings.calls_at_once), 0

    async def one(row: ExecuteRow) -> list[Trial]:
        nonlocal done
        async with gate:
            found = [await _trial(row, made[row.id, n], plan, execute) for n in range(1, how.trials + 1)]
        done += 1
        if done in (1, 5) or done % 10 == 0 or done == len(rows):
            say(f"executed {done} of {len(rows)} rows")
        return found

    parts = await together(one(row) for row in rows)
    return [trial for part in parts for trial in part]


async def _trial(row: ExecuteRow, made: Made, plan: Plan, execute: Execute) -> Trial:
    trial = Trial(row.id, made.trial, split_of(row))
    if not made.calls:
        trial.failure, trial.why = NO_CALLS, made.reason or "nothing was suggested"
        return trial
    calls: list[GoldCall] = list(made.calls)
    # The place of a call in the store is its row, trial and step: trials never share a response.
    call = Call(id=f"{row.id}#{made.trial}", query=row.query, gold=calls, lang=row.lang)
    draft = draft_of_row(call, plan.bench.tools)
    planned = await plan.work(draft)
    if not planned.made:
        dropped = planned.dropped[0]
        trial.steps = Run.of(draft).steps
        trial.failure, trial.why = f"{NOT_MADE}: {dropped.reason}", dropped.detail
        return trial
    trial.steps = Run.of((await execute.work(planned.made[0])).made[0]).steps
    return trial


async def _judge(rows: Mapping[str, ExecuteRow], trials: Sequence[Trial], bench: Bench, say: Say) -> None:
    judge = ModelJudge(bench)
    await bench.judge.prepare()
    gate = asyncio.Semaphore(bench.settings.concurrency)

    async def one(trial: Trial) -> None:
        async with gate:
            await judge.look(rows[trial.id], trial)

    await together(one(trial) for trial in trials)
    judge.check()
    say(f"judged {sum(t.score is not None for t in trials)} trials")


def _check_causes(again: Collection[str]) -> None:
    known = [cause.value for cause in Cause]
    wrong = [name for name in again if name not in known]
    if wrong:
        raise BadInput(f"There is no root cause {wrong[0]!r}.", f"Root causes are {', '.join(known)}.")


def _warnings(result: JsonObject) -> list[str]:
    notes = [f"{n} rows left out: {why}." for why, n in result["left_out"].items()]
    if result["judged"]["not"]:
        notes.append(
            f"{result['judged']['not']} rows are not judged, so Pass@K leaves them out: they have no `expect`, and "
            + ("the judge gave no verdict." if result["judge"] else "no judge was named (--judge-url).")
        )
    if result["unjudged"]:
        reasons = ", ".join(f"{n} {why}" for why, n in result["unjudged"].items())
        notes.append(f"Trials without the judge's verdict: {reasons}. The same command asks again where none came.")
    return notes


def report_row(run: ExecuteRun, trial: Trial, characters: int = 2000) -> JsonObject:
    """One trial for ``rows.jsonl``: what was asked and called, what came back (cut), and the verdicts."""
    steps = []
    for step in trial.steps:
        shown_ = json.loads(step.model_copy(update={"response": None}).to_json())
        if step.response is not None:
            shown_["answer"] = step.response.shown(characters)
        steps.append(shown_)
    return {
        "id": trial.id, "trial": trial.trial, "query": run.rows[trial.id].query, "passed": trial.passed,
        "failure": trial.failure, "why": trial.why, "rule": trial.rule, "model": trial.model, "score": trial.score,
        "unjudged": trial.unjudged,
        "calls": [json.loads(call.to_json()) for call in run.made[trial.id, trial.trial].calls], "steps": steps,
    }  # fmt: skip
