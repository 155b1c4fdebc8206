"""Recall of requests with gold tools, over a pack and over an index of the same tools with their texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolscout.eval.metrics import Judged, mean, recall_at
from toolscout.index.search import SearchIndex
from toolscout.records import Call

DEPTHS = (1, 5, 10)


def compare_recall(indexes: Mapping[str, SearchIndex], calls: Sequence[Call]) -> dict[str, dict[str, float]]:
    """Ask every call that has gold tools of each index: strict and equivalent recall at `DEPTHS`, 0..1."""
    served = [call for call in calls if call.gold]
    return {name: {"n": len(served), **_recall(index, served)} for name, index in indexes.items()}


def _recall(index: SearchIndex, calls: Sequence[Call]) -> dict[str, float]:
    judged = []
    for call in calls:
        answer = index.find(call.query, limit=max(DEPTHS), dynamic=False, abstain=False)
        gold = frozenset(g.tool_id for g in call.gold)
        judged.append(Judged([hit.tool_id for hit in answer.hits], gold, frozenset(call.relevant_ids())))
    gains = {"strict": Judged.strict_gains, "equivalent": Judged.equivalent_gains}
    return {
        f"{kind}@{k}": round(mean(recall_at(gain(j), len(j.gold), k) for j in judged) or 0.0, 4)
        for kind, gain in gains.items()
        for k in DEPTHS
    }
