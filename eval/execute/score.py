"""The numbers of executed trials: Pass@K, success of calls, root causes. docs/EVALUATION.md defines each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from math import comb

from toolscout.causes import Cause
from toolscout.eval.execute.judge import Trial, agreement
from toolscout.eval.metrics import mean, share, spread, wilson
from toolscout.eval.rows import grouped
from toolscout.records import JsonObject
from toolscout.synth.trajectories.run import StepRun


def pass_at(n: int, right: int, k: int) -> float:
    """Chance that at least one of k trials, drawn from n of which ``right`` passed, passed: 1 - C(n-c, k) / C(n, k).

    The unbiased estimator of Chen et al. (arXiv 2107.03374). Needs 1 <= k <= n.
    """
    return 1.0 - comb(n - right, k) / comb(n, k)


def score(trials: Sequence[Trial], count: int, server_of: Callable[[str], str]) -> JsonObject:
    """The result's numbers over ``count`` trials of each row."""
    steps = [step for trial in trials for step in trial.steps]
    rows = _rows(trials)
    return {
        **passes(list(rows.values()), count),
        "by_split": {name: passes(part, count) for name, part in _splits(rows).items()},
        "answered": _round(share(t.answered for t in trials)),
        "failures": dict(Counter(t.failure for t in trials if t.failure).most_common()),
        "judged": {
            "by_rules": sum(part[0].rule is not None for part in rows.values()),
            "by_model": sum(part[0].rule is None and part[0].model is not None for part in rows.values()),
            "not": sum(not _judged(part) for part in rows.values()),
        },
        "unjudged": dict(Counter(t.unjudged for t in trials if t.unjudged).most_common()),
        "agreement": agreement(trials),
        "calls": calls(steps),
        "by_server": {name: calls(part) for name, part in _touched(steps, server_of).items()},
        "outcomes": _outcomes(rows, server_of),
        "by_tool": {name: calls(part) for name, part in _touched(steps, lambda tool_id: tool_id).items()},
        "by_rule": dict(Counter(f"{s.cause}/{s.rule}" for s in steps if s.cause).most_common()),
    }


def passes(rows: Sequence[Sequence[Trial]], count: int) -> JsonObject:
    """``n`` judged rows, ``pass@k`` for each k up to ``count``, ``any_of`` the first k trials, and 95 % intervals of
    the former (Wilson, over rows)."""
    judged = [part for part in rows if _judged(part)]
    rights = [sum(bool(t.passed) for t in part) for part in judged]
    found: JsonObject = {"n": len(judged), "pass": {}, "intervals": {}, "any_of": {}}
    for k in range(1, count + 1):
        values = [pass_at(len(part), right, k) for part, right in zip(judged, rights, strict=True)]
        found["pass"][f"pass@{k}"] = _round(mean(values))
        found["intervals"][f"pass@{k}"] = wilson(sum(values), len(values)) if values else None
        found["any_of"][str(k)] = _round(share(any(t.passed for t in part[:k]) for part in judged))
    return found


def calls(steps: Sequence[StepRun]) -> JsonObject:
    """Of calls: how many were made and went well, why the others failed, and their seconds. ``success_rate`` is over
    the calls that were made."""
    made = [step for step in steps if step.response is not None]
    well = sum(not step.cause for step in made)
    return {
        "made": len(made),
        "went_well": well,
        "success_rate": _round(well / len(made)) if made else None,
        "skipped": sum(step.skipped for step in steps),
        "by_cause": {c.value: n for c in Cause if (n := sum(s.cause == c for s in steps))},
        "seconds": spread([step.seconds for step in made]),
    }


def _outcomes(rows: Mapping[str, Sequence[Trial]], server_of: Callable[[str], str]) -> JsonObject:
    """Of each server the judged rows whose calls were all its own, the share that came out right (Pass@1) and its 95 %
    interval (Wilson, over rows: trials of one row are no rows more)."""
    shares: dict[str, list[float]] = {}
    for part in rows.values():
        asked = {server_of(step.tool_id) for trial in part for step in trial.steps}
        if len(asked) == 1 and _judged(part):
            shares.setdefault(asked.pop(), []).append(sum(bool(t.passed) for t in part) / len(part))
    return {
        name: {"n": len(known), "right": _round(mean(known)), "interval": wilson(sum(known), len(known))}
        for name, known in sorted(shares.items())
    }


def _judged(part: Sequence[Trial]) -> bool:
    return all(t.passed is not None for t in part)


def _rows(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    rows: dict[str, list[Trial]] = {}
    for trial in sorted(trials, key=lambda t: t.trial):
        rows.setdefault(trial.id, []).append(trial)
    return rows


def _splits(rows: Mapping[str, list[Trial]]) -> dict[str, list[list[Trial]]]:
    return grouped(rows.values(), lambda part: part[0].split)


def _touched(steps: Sequence[StepRun], key: Callable[[str], str]) -> dict[str, list[StepRun]]:
    return grouped((s for s in steps if s.response is not None or s.cause), lambda s: key(s.tool_id))


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
