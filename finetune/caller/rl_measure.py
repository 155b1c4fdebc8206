"""Held-out rows answered greedily, before and after: the rewards, and Tool, Param and AST as the measure counts them.

Answers are written freely. Serving constrains them, so its form is always right; what is compared here is the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import comb
from pathlib import Path
from typing import Any

from toolscout.finetune.caller.rewards import REWARDS, all_right, score, weighted
from toolscout.finetune.caller.rl_data import RlRow, whole_lines
from toolscout.finetune.caller.rl_options import RlOptions
from toolscout.finetune.caller.rl_rollout import sample
from toolscout.records import JsonObject

_TOGETHER = 16
"""Rows that are answered side by side."""


@dataclass(frozen=True)
class Measured:
    """One held-out row's answer and its rewards."""

    id: str
    kind: str
    text: str
    rewards: dict[str, float]


def measure(
    model: Any,
    tokenizer: Any,
    rows: Sequence[RlRow],
    options: RlOptions,
    file: Path,
    *,
    say: Callable[[str], None],
) -> list[Measured]:
    """Each row's greedy answer; ``file`` keeps them, and a resumed run goes on from it."""
    done = {line["id"]: line["text"] for line in whole_lines(file)}
    todo = [row for row in rows if row.row.id not in done]
    with file.open("a", encoding="utf-8") as sink:
        for begin in range(0, len(todo), _TOGETHER):
            some = todo[begin : begin + _TOGETHER]
            answers = sample(
                model,
                [row.prompt for row in some],
                1,
                max_new=options.max_completion,
                temperature=0,
                end=[tokenizer.eos_token_id],
                seed=0,
            )
            for row, (ids,) in zip(some, answers, strict=True):
                done[row.row.id] = tokenizer.decode(ids, skip_special_tokens=True)
                sink.write(json.dumps({"id": row.row.id, "text": done[row.row.id]}, ensure_ascii=False) + "\n")
            sink.flush()
            say(f"{file.stem}: {len(rows) - len(todo) + begin + len(some)} of {len(rows)} held-out rows answered")
    return [Measured(row.row.id, row.row.kind, done[row.row.id], score(done[row.row.id], row.target)) for row in rows]


def summary(found: Sequence[Measured], options: RlOptions) -> JsonObject:
    """Means of the rewards; Tool, Param and AST over the rows with a call; what is right on the other kinds."""
    calls = [m for m in found if m.kind == "call"]
    none = [m for m in found if m.kind.startswith("none")]
    missing = [m for m in found if m.kind == "missing"]
    return {
        "rows": len(found),
        "reward": _mean([weighted(m.rewards, options.weights) for m in found]),
        "rewards": {name: _mean([m.rewards[name] for m in found]) for name in REWARDS},
        "calls": {
            "rows": len(calls),
            "tool": _mean([m.rewards["right_tool"] for m in calls]),
            "param": _mean([m.rewards["right_names"] for m in calls]),
            "ast": _mean([float(all_right(m.rewards)) for m in calls]),
        },
        "none": {"rows": len(none), "right": _mean([float(all_right(m.rewards)) for m in none])},
        "missing": {"rows": len(missing), "right": _mean([float(all_right(m.rewards)) for m in missing])},
    }


def comparison(before: Sequence[Measured], after: Sequence[Measured]) -> JsonObject:
    """Rows that became right and rows that became wrong, and how likely so uneven a split is by chance (two-sided
    sign test): above 0.05 or so, the two adapters cannot be told apart on these rows."""
    pairs = [(all_right(b.rewards), all_right(a.rewards)) for b, a in zip(before, after, strict=True)]
    won, lost = sum(a and not b for b, a in pairs), sum(b and not a for b, a in pairs)
    tail = sum(comb(won + lost, k) for k in range(min(won, lost) + 1)) / 2 ** (won + lost)
    return {
        "became_right": won,
        "became_wrong": lost,
        "p_value": round(min(1.0, 2 * tail), 4),
        "answers_changed": sum(b.text != a.text for b, a in zip(before, after, strict=True)),
    }


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None
