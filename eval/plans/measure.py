"""Measures plans: requests whose gold is a graph of calls. docs/EVALUATION.md, Plans, defines each number."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput
from toolscout.eval.calls.measure import Pool, Suggests, answerable_rows
from toolscout.eval.metrics import mean, spread
from toolscout.eval.plans.answers import read_answers
from toolscout.eval.plans.graph import Plan
from toolscout.eval.plans.match import fitting
from toolscout.eval.plans.run import Given, Planning, run_plans
from toolscout.eval.plans.score import Verdict, judge, score
from toolscout.eval.provenance import of_experiment
from toolscout.eval.rows import Say, read_calls, read_tools, silent
from toolscout.records import Call, JsonObject
from toolscout.settings import Settings


@dataclass
class PlansRun:
    """``result`` is what ``--json`` writes; verdicts and answers are in the rows' order."""

    result: JsonObject
    rows: list[Call]
    given: list[Given]
    verdicts: list[Verdict]
    warnings: list[str] = field(default_factory=list)


def measure_plans(
    tools: Sequence[Path],
    calls: Sequence[Path],
    *,
    settings: Settings | None = None,
    found: int | None = None,
    limit: int | None = None,
    seed: int = 0,
    work: Path | None = None,
    caller: Suggests | None = None,
    say: Say = silent,
) -> PlansRun:
    """Ask every row and score the plans. ``settings.model`` and ``settings.model_url`` choose the model.

    ``work`` gets each plan as soon as it is there; a later run goes on from it. ``found`` tools are searched for a row
    without candidates, by default as many as suggest_call searches. ``caller`` replaces the product's. Raises BadInput
    for files that do not fit together or a ``work`` file of another run, ModelError when the model fails.
    """
    settings = settings or Settings()
    pool = Pool(read_tools(tools))
    rows, warnings = plan_rows(read_calls(calls, limit, seed), pool, say)
    planning = Planning(pool, tools, settings, found, seed)
    given = asyncio.run(run_plans(rows, planning, work, caller, say))
    model = settings.model or next((g.model for g in given if g.model), "")
    who = {"model": model, "answers": None, "of": of_experiment(planning.header(ours=caller is None))}
    return _scored(rows, given, pool, who, seed, warnings)


def score_answers(
    tools: Sequence[Path],
    calls: Sequence[Path],
    answers: Path,
    *,
    limit: int | None = None,
    seed: int = 0,
    say: Say = silent,
) -> PlansRun:
    """Score plans made elsewhere (see `plan_answers`). A row without an answer counts as one without a plan.

    Raises BadInput for files that do not fit together.
    """
    made = read_answers(answers)
    pool = Pool(read_tools(tools))
    asked = read_calls(calls)
    rows, warnings = plan_rows(read_calls(calls, limit, seed) if limit else asked, pool, say)
    unknown = [id_ for id_ in made if id_ not in {row.id for row in asked}]
    if len(unknown) == len(made):
        raise BadInput(
            f"None of the answers is to a row of the calls files; the first is to {unknown[0]!r}.",
            "Check that --answers and --calls belong together.",
        )
    remarks = []
    if unknown:
        remarks.append(f"{len(unknown)} answers are to no row of the calls files, e.g. {unknown[0]!r}.")
    lacking = [row.id for row in rows if row.id not in made]
    if lacking:
        remarks.append(f"{len(lacking)} rows have no answer and count as rows without a plan, e.g. {lacking[0]!r}.")
    for remark in remarks:
        say(remark)
    given = [Given(row.id, calls=[c.model_dump(exclude={"accept"}) for c in made.get(row.id, [])]) for row in rows]
    return _scored(rows, given, pool, {"model": None, "answers": answers.name}, seed, warnings + remarks)


def plan_rows(rows: Sequence[Call], pool: Pool, say: Say) -> tuple[list[Call], list[str]]:
    """The rows that can be measured, and what to say about the others and about gold that nothing can meet.

    Raises BadInput if none is left.
    """
    kept, warnings = answerable_rows(rows, pool)
    empty = [row.id for row in kept if not row.gold]
    if empty:
        warnings.append(f"{len(empty)} rows left out: they have no gold, so there is no plan to compare with.")
    broken = [row.id for row in kept if row.gold and not _sound(row)]
    if broken:
        warnings.append(
            f"{len(broken)} rows left out: their gold is no graph (a cycle, a reference to no call, an id twice), "
            f"e.g. {broken[0]!r}."
        )
    kept = [row for row in kept if row.gold and row.id not in set(broken)]
    if not kept:
        raise BadInput("No row has a gold plan that can be compared with.", "Give rows whose gold is a graph of calls.")
    unmet = [row.id for row in kept if judge(row, row.gold, pool.tools, fitting(row, pool.tools)).graph is False]
    if unmet:
        warnings.append(
            f"{len(unmet)} rows have gold calls that break their tool's schema and cannot be met, e.g. {unmet[0]!r}."
        )
    for warning in warnings:
        say(warning)
    return kept, warnings


def _sound(row: Call) -> bool:
    plan = Plan(row.gold)
    return plan.acyclic and not plan.dangling and len(set(plan.ids)) == len(plan)


def _scored(
    rows: list[Call], given: list[Given], pool: Pool, who: Mapping[str, Any], seed: int, warnings: list[str]
) -> PlansRun:
    verdicts = [
        judge(row, answer.plan(), pool.tools, fitting(row, pool.tools)) for row, answer in zip(rows, given, strict=True)
    ]
    tokens = {
        kind: _tenths(mean(float(n) for n in (getattr(g, f"{kind}_tokens") for g in given) if n is not None))
        for kind in ("prompt", "completion")
    }
    result = {
        "n": len(rows),
        **who,
        **score(verdicts, seed),
        "seconds": spread([g.seconds for g in given if g.seconds is not None]),
        "tokens": tokens,
    }
    return PlansRun(result, rows, given, verdicts, warnings)


def _tenths(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
