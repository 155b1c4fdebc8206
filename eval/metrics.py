"""Ranking and abstention metrics: plain functions over ids and numbers, each with its definition.

Two readings of "found", reported side by side:

* strict: only the gold tools count.
* equivalent: any tool in ``relevant`` (gold included) does the job of a gold tool. With g gold tools, the first g
  relevant tools in the ranking count as found; for one gold tool this is "any relevant tool in the top k".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

RANKING_KEYS = ("recall@1", "recall@5", "recall@10", "mrr", "ndcg@10")


@dataclass(frozen=True)
class Judged:
    """One ranking with what was wanted: ``gold`` tool ids (at least one) and ``relevant`` ones (gold included)."""

    ranked: Sequence[str]
    gold: frozenset[str]
    relevant: frozenset[str]

    def strict_gains(self) -> list[int]:
        """1 where the tool at that rank is gold, else 0."""
        return _gains(self.ranked, self.gold, len(self.gold))

    def equivalent_gains(self) -> list[int]:
        """1 where the tool at that rank fills the place of a gold tool, else 0; at most as many ones as gold tools."""
        return _gains(self.ranked, self.relevant | self.gold, len(self.gold))


def _gains(ranked: Sequence[str], wanted: Set[str], places: int) -> list[int]:
    seen: set[str] = set()
    gains = []
    for tool_id in ranked:
        hit = tool_id in wanted and tool_id not in seen and len(seen) < places
        if hit:
            seen.add(tool_id)
        gains.append(int(hit))
    return gains


def recall_at(gains: Sequence[int], wanted: int, k: int) -> float:
    """Share of the ``wanted`` tools (> 0) found in the first k ranks, 0..1."""
    return sum(gains[:k]) / wanted


def reciprocal_rank(gains: Sequence[int]) -> float:
    """1 / rank of the first tool found, 0 if none is in the ranking."""
    return next((1 / rank for rank, gain in enumerate(gains, start=1) if gain), 0.0)


def ndcg_at(gains: Sequence[int], wanted: int, k: int) -> float:
    """Normalised discounted cumulative gain with gains of 0 or 1 and the discount 1 / log2(rank + 1), 0..1.

    The ideal ranking has all ``wanted`` (> 0) tools, or as many as fit in k, at the top.
    """
    found = sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:k], start=1))
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(wanted, k) + 1))
    return found / ideal


def ranking_scores(gains: Sequence[int], wanted: int) -> dict[str, float]:
    """The contract's five ranking numbers (`RANKING_KEYS`) of one row."""
    return {
        "recall@1": recall_at(gains, wanted, 1),
        "recall@5": recall_at(gains, wanted, 5),
        "recall@10": recall_at(gains, wanted, 10),
        "mrr": reciprocal_rank(gains),
        "ndcg@10": ndcg_at(gains, wanted, 10),
    }


def mean(values: Iterable[float]) -> float | None:
    """Arithmetic mean; None of nothing."""
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else None


def mean_scores(rows: Sequence[Mapping[str, float]], keys: Sequence[str] = RANKING_KEYS) -> dict[str, float | None]:
    """Mean over rows, key by key; None where there are no rows."""
    return {key: mean(row[key] for row in rows) for key in keys}


def auroc(positives: Sequence[float], negatives: Sequence[float]) -> float | None:
    """Probability that a positive's score is above a negative's, ties counted half (Mann-Whitney U); None if either
    side is empty. O(n log n).
    """
    if not positives or not negatives:
        return None
    scored = sorted([(score, 1) for score in positives] + [(score, 0) for score in negatives])
    rank_sum, start = 0.0, 0
    while start < len(scored):
        end = start
        while end < len(scored) and scored[end][0] == scored[start][0]:
            end += 1
        shared_rank = (start + 1 + end) / 2
        rank_sum += shared_rank * sum(positive for _, positive in scored[start:end])
        start = end
    n_pos, n_neg = len(positives), len(negatives)
    return (rank_sum - n_pos * (n_pos + 1) / 2) / (n_pos * n_neg)


def share(flags: Iterable[bool]) -> float | None:
    """Share of true ones; None of nothing."""
    return mean(float(flag) for flag in flags)


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile (0..100) with linear interpolation between order statistics; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    position = (len(ordered) - 1) * q / 100
    low = math.floor(position)
    high = math.ceil(position)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def spread(values: Sequence[float], digits: int = 3) -> dict[str, float | None]:
    """``{"p50", "p95"}`` of the values, rounded."""
    result: dict[str, float | None] = {}
    for name, q in (("p50", 50), ("p95", 95)):
        value = percentile(values, q)
        result[name] = None if value is None else round(value, digits)
    return result


def wilson(count: float, total: int, z: float = 1.96) -> list[float]:
    """95 % interval of a share (Wilson's score interval), total > 0; what counts in part counts as that part."""
    share = count / total
    centre = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return [round(max(0.0, centre - half), 4), round(min(1.0, centre + half), 4)]
