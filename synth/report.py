"""The report of a run: what each step made and dropped and why, what it cost, and what the kept calls are like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from toolscout.index.encoder import Encoder
from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import StepCount
from toolscout.synth.drafts import Draft
from toolscout.synth.report_facts import facts, mean_distance, sample_of, spread
from toolscout.synth.report_rows import NO_CATEGORY, row_of_draft

__all__ = ["categories", "distance", "report", "spread"]

_THRESHOLDS = (
    "longest_instruction", "copied_words", "fill_shared_from", "growth_words", "resembles_above", "ungrounded_above",
    "duplicate_from", "distractors", "judge_below",
)  # fmt: skip
_MADE_WITH = (
    "instructions", "depth", "keep_levels", "languages", "allow_names", "seed", "temperature", "max_tokens", "repairs",
    "concurrency", "max_cost",
)  # fmt: skip


def report(bench: Bench, counts: Sequence[StepCount], kept: Sequence[Draft] | None, about: JsonObject) -> JsonObject:
    """One JSON object. ``kept`` None: the run stopped, and only the steps before that are counted. ``remarks`` are
    sentences for who started the run."""
    settings = bench.settings.model_dump()
    spent = bench.first.store.spent() if bench.first else {}
    return {
        "finished": kept is not None,
        "remarks": [],
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


def categories(bench: Bench) -> dict[str, str]:
    """Categories of the tools' servers, by id, as far as they have one: what a folder keeps for its page."""
    ids = sorted({tool.server_id for tool in bench.tools.values()})
    named = {i: bench.servers[i].category for i in ids if i in bench.servers}
    return {i: category for i, category in named.items() if category}


def _answers(bench: Bench) -> dict[str, int]:
    total: Counter[str] = Counter(dict.fromkeys(("asked", "stored", "repaired", "unusable"), 0))
    for writer in (bench.first, bench.second):
        total.update(writer.counts if writer else {})
    return dict(total)


def distance(kept: Sequence[Draft], encoder: Encoder) -> float | None:
    """Mean cosine distance of all pairs of at most 1,000 instructions, drawn by their ids; None below two."""
    found = mean_distance(sample_of([row_of_draft(d) for d in kept], encoder).vectors)
    return round(found[0], 4) if found else None


def _kept(bench: Bench, kept: Sequence[Draft]) -> JsonObject:
    known = categories(bench)
    rows = [row_of_draft(d, known.get(bench.tools[d.tool_id].server_id, NO_CATEGORY)) for d in kept]
    return {
        **facts(rows, server_of=lambda tool_id: bench.tools[tool_id].server_id),
        "mean_cosine_distance": distance(kept, bench.encoder) if bench.encoder else None,
    }
