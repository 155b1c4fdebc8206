"""The report of a run: what each step made and dropped and why, what it cost, and what the kept calls are like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from toolscout.index.encoder import Encoder
from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import StepCount
from toolscout.synth.drafts import Draft, draw

_SAMPLE = 1000
_THRESHOLDS = ("resembles_above", "ungrounded_above", "duplicate_from", "distractors", "judge_below")
_MADE_WITH = (
    "instructions", "depth", "keep_levels", "languages", "allow_names", "seed", "temperature", "max_tokens", "repairs",
    "concurrency", "max_cost",
)  # fmt: skip


def report(bench: Bench, counts: Sequence[StepCount], kept: Sequence[Draft] | None, about: JsonObject) -> JsonObject:
    """One JSON object. ``kept`` None: the run stopped, and only the steps before that are counted."""
    settings = bench.settings.model_dump()
    spent = bench.first.store.spent() if bench.first else {}
    return {
        "finished": kept is not None,
        **about,
        "steps": [count.to_dict() for count in counts],
        "thresholds": {name: settings[name] for name in _THRESHOLDS},
        "settings": {name: settings[name] for name in _MADE_WITH},
        "models": {
            "writes": bench.first.model if bench.first else None,
            "judges": (bench.second or bench.first).model if bench.first else None,
        },
        "spent": {
            "by_model": spent,
            "prompt_tokens": sum(s["prompt_tokens"] for s in spent.values()),
            "completion_tokens": sum(s["completion_tokens"] for s in spent.values()),
            "price": round(sum(s["price"] for s in spent.values()), 6),
        },
        "answers_of_this_run": _answers(bench),
        "kept": _kept(bench, kept) if kept is not None else None,
    }


def _answers(bench: Bench) -> dict[str, int]:
    total: Counter[str] = Counter(dict.fromkeys(("asked", "stored", "repaired", "unusable"), 0))
    for writer in (bench.first, bench.second):
        total.update(writer.counts if writer else {})
    return dict(total)


def _kept(bench: Bench, kept: Sequence[Draft]) -> JsonObject:
    tools = {d.tool_id for d in kept}
    servers = {bench.tools[t].server_id for t in tools}
    categories = Counter(_category(bench, d.tool_id) for d in kept)
    return {
        "calls": len(kept),
        "tools": len(tools),
        "servers": len(servers),
        "by_level": {str(k): v for k, v in sorted(Counter(d.level for d in kept).items())},
        "by_direction": dict(sorted(Counter(d.directions[-1] for d in kept if d.directions).items())),
        "by_language": dict(sorted(Counter(d.lang for d in kept).items())),
        "by_category": dict(categories.most_common()),
        "words": _spread([len(d.text.split()) for d in kept]),
        "characters": _spread([len(d.text) for d in kept]),
        "arguments": {str(k): v for k, v in sorted(Counter(len(d.arguments or {}) for d in kept).items())},
        "mean_cosine_distance": _distance(kept, bench.encoder) if bench.encoder else None,
    }


def _category(bench: Bench, tool_id: str) -> str:
    server = bench.servers.get(bench.tools[tool_id].server_id)
    return (server.category if server else None) or "none"


def _spread(values: Sequence[int]) -> JsonObject | None:
    if not values:
        return None
    points = np.percentile(values, [5, 25, 50, 75, 95])
    named = zip(("p5", "p25", "p50", "p75", "p95"), points, strict=True)
    return {**{name: round(float(p), 1) for name, p in named}, "mean": round(float(np.mean(values)), 1)}


def _distance(kept: Sequence[Draft], encoder: Encoder) -> float | None:
    """Mean cosine distance of all pairs of at most 1,000 instructions, drawn by their ids."""
    sample = sorted(kept, key=lambda d: draw("diversity", d.id))[:_SAMPLE]
    if len(sample) < 2:
        return None
    vectors = encoder.encode([d.text for d in sample]).astype(np.float64)
    n = len(sample)
    total = float((vectors.sum(axis=0) ** 2).sum())  # of all dot products, each vector's with itself among them
    return round(1 - (total - n) / (n * (n - 1)), 4)
