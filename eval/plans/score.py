"""Verdicts on plans, row by row, and what they come to over rows: shares, precision, recall, F1, intervals."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from toolscout.eval.plans.graph import Plan
from toolscout.eval.plans.match import Comparison, Fits
from toolscout.eval.plans.schema import misfits
from toolscout.eval.rows import grouped, lang_of, split_of
from toolscout.records import Call, GoldCall, JsonObject, Tool

RESAMPLES = 1000
_CHUNK = 2_000_000
"""Drawn rows held at a time."""

NO_PLAN = "no plan"
PROBLEMS = (NO_PLAN, "cycle", "reference to no call", "other tools", "other arguments", "other edges")


@dataclass(frozen=True)
class Overlap:
    """How many of the gold's things the plan has; and how many things each has."""

    hits: int = 0
    made: int = 0
    gold: int = 0


@dataclass
class Verdict:
    """One row. None where the row, or the lack of a plan, leaves nothing to say."""

    id: str
    split: str
    lang: str
    steps: int
    answered: bool
    tools: bool = False
    last: bool | None = None
    last_paths: bool | None = None
    graph: bool | None = None
    graph_paths: bool | None = None
    nodes: Overlap = field(default_factory=Overlap)
    edges: Overlap = field(default_factory=Overlap)
    schema_valid: bool | None = None
    acyclic: bool | None = None
    references: bool | None = None
    problem: str = ""
    """Of `PROBLEMS` the first that holds; empty where the graph is right."""
    detail: str = ""


def judge(row: Call, calls: Sequence[GoldCall], tools: Mapping[str, Tool], fits: Fits) -> Verdict:
    """The verdict on the calls made for a row with gold. Without calls there is no plan: wrong wherever gold asks."""
    gold, made = Plan(row.gold), Plan(calls)
    schemas = {g.tool_id: tools[g.tool_id].input_schema for g in row.gold if g.tool_id in tools}
    compared = Comparison(made, gold, fits, schemas)
    verdict = Verdict(row.id, split_of(row), lang_of(row), len(gold), bool(made.calls))
    verdict.tools = compared.tools
    verdict.nodes = Overlap(compared.node_hits, len(made), len(gold))
    verdict.edges = Overlap(compared.edge_hits, len(made.edges), len(gold.edges))
    stated = all(g.arguments is not None for g in row.gold)
    if stated:
        verdict.last, verdict.last_paths = compared.last(paths=False), compared.last(paths=True)
        verdict.graph, verdict.graph_paths = compared.graph(paths=False), compared.graph(paths=True)
    if made.calls:
        wrong = misfits(made, tools)
        verdict.schema_valid, verdict.acyclic, verdict.references = not wrong, made.acyclic, not made.dangling
    if not verdict.graph:
        verdict.problem, verdict.detail = _problem(compared, made, gold, stated)
    return verdict


def _problem(compared: Comparison, made: Plan, gold: Plan, stated: bool) -> tuple[str, str]:
    if not made.calls:
        return NO_PLAN, ""
    if not made.acyclic:
        return "cycle", "calls that wait for each other: " + _named(made, set(range(len(made))) - set(made.order))
    if made.dangling:
        return "reference to no call", ", ".join(dict.fromkeys(made.dangling))
    if not compared.tools:
        said = [f"lacks {gold.calls[g].tool_id}" for g in compared.lacking]
        return "other tools", "; ".join(said + [f"adds {made.calls[m].tool_id}" for m in compared.added])
    if not stated:
        return "", ""
    if not compared.values(paths=False):
        return "other arguments", "of the gold's " + _named(gold, compared.unmet) if compared.unmet else ""
    return "other edges", f"{compared.edge_hits} of {len(gold.edges)} are between the right tools"


def _named(plan: Plan, places: Iterable[int]) -> str:
    return ", ".join(plan.ids[at] for at in sorted(places))


Ratio = Callable[[Verdict], tuple[float, float]]
"""What a row adds above and below the line: every number is a ratio of two sums over rows."""


def _flag(name: str) -> Ratio:
    def ratio(verdict: Verdict) -> tuple[float, float]:
        value = getattr(verdict, name)
        return float(bool(value)), float(value is not None)

    return ratio


def _of(name: str, measure: str) -> Ratio:
    def ratio(verdict: Verdict) -> tuple[float, float]:
        o: Overlap = getattr(verdict, name)
        below = {"precision": o.made, "recall": o.gold, "f1": (o.made + o.gold) / 2}[measure]
        return float(o.hits), float(below)

    return ratio


METRICS: dict[str, Ratio] = {
    **{name: _flag(name) for name in ("graph", "graph_paths", "last", "last_paths", "tools")},
    **{f"node_{m}": _of("nodes", m) for m in ("precision", "recall", "f1")},
    **{f"edge_{m}": _of("edges", m) for m in ("precision", "recall", "f1")},
    **{name: _flag(name) for name in ("schema_valid", "acyclic", "references", "answered")},
}


def rates(verdicts: Sequence[Verdict], seed: int = 0) -> JsonObject:
    """``n``, every number of `METRICS`, and under ``intervals`` its 95 % bootstrap interval."""
    shares: JsonObject = {"n": len(verdicts)}
    intervals: JsonObject = {}
    drawn = _drawn(len(verdicts), seed)
    sums = {name: np.array([ratio(v) for v in verdicts], dtype=float).reshape(-1, 2) for name, ratio in METRICS.items()}
    for name, parts in sums.items():
        above, below = parts.sum(axis=0)
        shares[name] = round(float(above / below), 4) if below else None
        intervals[name] = _interval(parts, drawn)
    return {**shares, "intervals": intervals}


def _drawn(n: int, seed: int) -> list[np.ndarray]:
    """`RESAMPLES` draws of n rows with replacement, in chunks; the same ones for every number."""
    if n < 2:
        return []
    random = np.random.default_rng(seed)
    step = max(1, _CHUNK // n)
    return [random.integers(0, n, (min(step, RESAMPLES - at), n)) for at in range(0, RESAMPLES, step)]


def _interval(parts: np.ndarray, drawn: Sequence[np.ndarray]) -> list[float] | None:
    """2.5th and 97.5th percentile of the ratio over resampled rows (Efron's percentile bootstrap); None for less than
    two rows that have something to say.
    """
    if np.count_nonzero(parts[:, 1]) < 2:
        return None
    totals = np.concatenate([parts[rows].sum(axis=1) for rows in drawn])
    ratios = totals[totals[:, 1] > 0]
    low, high = np.percentile(ratios[:, 0] / ratios[:, 1], [2.5, 97.5])
    return [round(float(low), 4), round(float(high), 4)]


def score(verdicts: Sequence[Verdict], seed: int = 0) -> JsonObject:
    """The result's numbers: of all rows, by split, by number of gold calls, by language; and what went wrong."""

    def groups(key: Callable[[Verdict], str]) -> JsonObject:
        return {name: rates(rows, seed) for name, rows in grouped(verdicts, key).items()}

    by_steps = groups(lambda v: f"{v.steps:06}")
    return {
        "overall": rates(verdicts, seed),
        "by_split": groups(lambda v: v.split),
        "by_steps": {str(int(name)): part for name, part in by_steps.items()},
        "by_lang": groups(lambda v: v.lang),
        "problems": {name: sum(v.problem == name for v in verdicts) for name in PROBLEMS},
    }
