"""What the calls of a run of the pipeline came to: per server and per tool, with the root causes of failures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from toolscout.causes import Cause
from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.trajectories.run import Run, StepRun

_EXAMPLES = 3


def tally(runs: Iterable[Run], bench: Bench) -> JsonObject:
    """Counts of the calls. ``calls`` are those that ``invoke`` was asked for; ``skipped`` and references that gave no
    value never came to that, but the latter are failures, too."""
    steps = [s for run in runs for s in run.steps]
    asked = [s for s in steps if s.response is not None]
    failed = [s for s in steps if s.cause]
    return {
        "calls": len(asked),
        "went_well": sum(1 for s in asked if not s.cause),
        "failed": len(failed),
        "skipped": sum(1 for s in steps if s.skipped),
        "cut": sum(1 for s in asked if s.response is not None and s.response.cut),
        "seconds": _seconds(asked),
        "references": dict(sorted(Counter(how for s in steps for how in s.found.values()).items())),
        "by_cause": {c.value: n for c in Cause if (n := sum(1 for s in failed if s.cause == c))},
        "by_rule": dict(Counter(f"{s.cause}/{s.rule}" for s in failed).most_common()),
        "by_server": _grouped(steps, lambda s: bench.tools[s.tool_id].server_id),
        "by_tool": _grouped(steps, lambda s: s.tool_id),
        "examples": _examples(failed),
    }


def _grouped(steps: Sequence[StepRun], key: Callable[[StepRun], str]) -> JsonObject:
    groups: dict[str, list[StepRun]] = {}
    for step in steps:
        if step.response is not None or step.cause:
            groups.setdefault(key(step), []).append(step)
    return {
        name: {
            "calls": sum(1 for s in group if s.response is not None),
            "went_well": sum(1 for s in group if not s.cause),
            "failed": dict(sorted(Counter(s.cause for s in group if s.cause).items())),
        }
        for name, group in sorted(groups.items())
    }


def _examples(failed: Sequence[StepRun]) -> JsonObject:
    out: dict[str, list[JsonObject]] = {}
    for step in failed:
        rows = out.setdefault(f"{step.cause}/{step.rule}", [])
        if len(rows) < _EXAMPLES:
            rows.append({"tool_id": step.tool_id, "evidence": step.evidence})
    return dict(sorted(out.items()))


def _seconds(asked: Sequence[StepRun]) -> JsonObject | None:
    if not asked:
        return None
    p50, p95 = np.percentile([s.seconds for s in asked], [50, 95])
    return {"p50": round(float(p50), 3), "p95": round(float(p95), 3)}
