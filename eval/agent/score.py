"""What the trials come to: success, steps, weighted steps, tokens, seconds by arm; arms compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from toolscout.errors import BadInput
from toolscout.eval.agent.trials import FAILURES, Trial
from toolscout.eval.metrics import mean, wilson
from toolscout.eval.rows import grouped
from toolscout.records import JsonObject


@dataclass(frozen=True)
class Prices:
    """What a step costs, in any one unit: a tool call, by name or for all, and 1,000 tokens read or written."""

    call: float = 1.0
    by_tool: Mapping[str, float] = field(default_factory=dict)
    prompt: float = 0.0
    completion: float = 0.0

    @classmethod
    def parse(cls, call: float, given: Sequence[str], prompt: float, completion: float) -> Prices:
        """``given``: ``NAME=PRICE``, where a name is a tool's id, a server, or ``toolscout/find_tools``.

        Raises BadInput for a price that is none.
        """
        named = {}
        for pair in given:
            name, _, value = pair.rpartition("=")
            try:
                named[name] = float(value)
            except ValueError:
                named[name] = -1.0
            if not name or not 0 <= named[name] < float("inf"):
                raise BadInput(f"--price {pair} is no price.", "Write NAME=PRICE, such as search/query=5.")
        if min(call, prompt, completion) < 0:
            raise BadInput("A price cannot be below 0.")
        return cls(call, named, prompt, completion)

    def of(self, trial: Trial) -> float:
        """Weighted steps of a trial: the sum of its calls' prices, and of its tokens'."""
        calls = sum(self._call(str(made["tool"])) for made in trial.calls)
        return calls + (trial.prompt_tokens * self.prompt + trial.completion_tokens * self.completion) / 1000

    def _call(self, tool: str) -> float:
        return self.by_tool.get(tool, self.by_tool.get(tool.partition("/")[0], self.call))

    def as_json(self) -> JsonObject:
        """For the record."""
        named = dict(self.by_tool)
        return {"call": self.call, "by_tool": named, "prompt_1000": self.prompt, "completion_1000": self.completion}


def score(trials: Sequence[Trial], prices: Prices, model: str, arms: Sequence[str]) -> JsonObject:
    """The result's numbers. ``against`` compares each further arm with the first, trial by trial of the same task."""
    by_arm = {arm: [t for t in trials if t.arm == arm] for arm in arms}
    return {
        "n": len({t.id for t in trials}),
        "trials": max((t.trial for t in trials), default=0),
        "model": model,
        "prices": prices.as_json(),
        "arms": {arm: _arm(rows, prices) for arm, rows in by_arm.items()},
        "by_split": {
            arm: {name: _few(part, prices) for name, part in grouped(rows, lambda t: t.split or "all").items()}
            for arm, rows in by_arm.items()
        },
        "against": {arm: _against(by_arm[arms[0]], by_arm[arm]) for arm in arms[1:]},
    }


def _few(rows: Sequence[Trial], prices: Prices) -> JsonObject:
    return {
        "n": len(rows),
        "success": _mean([t.passed for t in rows]),
        "interval": _interval(rows),
        "steps": _mean([t.steps for t in rows]),
        "weighted_steps": _mean([prices.of(t) for t in rows]),
        "tokens": {
            "prompt": _mean([t.prompt_tokens for t in rows]),
            "completion": _mean([t.completion_tokens for t in rows]),
        },
    }


def _arm(rows: Sequence[Trial], prices: Prices) -> JsonObject:
    passed = [t for t in rows if t.passed]
    kinds = [t.bootstrap for t in rows if t.bootstrap]
    return {
        **_few(rows, prices),
        "every_trial": _mean([all(t.passed for t in part) for part in grouped(rows, lambda t: t.id).values()]),
        "steps_of_successes": _mean([t.steps for t in passed]),
        "weighted_steps_of_successes": _mean([prices.of(t) for t in passed]),
        "turns": _mean([t.turns for t in rows]),
        "failed_calls": _mean([sum(not made["ok"] for made in t.calls) for t in rows]),
        "seconds": {"p50": _quantile(rows, 50), "p95": _quantile(rows, 95)},
        "failures": {name: sum(t.failure == name for t in rows) for name in FAILURES},
        "bootstrap": {kind: kinds.count(kind) for kind in sorted(set(kinds))},
    }


def _against(first: Sequence[Trial], other: Sequence[Trial]) -> JsonObject:
    before = {(t.id, t.trial): t.passed for t in first}
    pairs = [(before[t.id, t.trial], t.passed) for t in other if (t.id, t.trial) in before]
    return {"won": sum(b and not a for a, b in pairs), "lost": sum(a and not b for a, b in pairs), "n": len(pairs)}


def _interval(rows: Sequence[Trial]) -> list[float] | None:
    """95 % interval of the success rate over tasks, each with all its trials (Wilson: of some width where all fail)."""
    shares = [mean([float(t.passed) for t in part]) or 0.0 for part in grouped(rows, lambda t: t.id).values()]
    return wilson(sum(shares), len(shares)) if shares else None


def _mean(values: Sequence[float]) -> float | None:
    return round(float(np.mean(values)), 4) if values else None


def _quantile(rows: Sequence[Trial], percent: int) -> float | None:
    return round(float(np.percentile([t.seconds for t in rows], percent)), 3) if rows else None
