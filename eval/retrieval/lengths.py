"""What dynamic length does: how long answers are, and what they gain and lose against a fixed number of tools."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from toolscout.eval.metrics import Judged, mean, recall_at
from toolscout.records import JsonObject

FIXED = 5


@dataclass(frozen=True)
class Lengths:
    """One answerable request: its ranking, and how the answer came out both ways (abstention aside).

    ``dynamic`` is the number of tools in the answer of dynamic length; tokens are those of the answers' texts.
    """

    judged: Judged
    dynamic: int
    dynamic_tokens: int
    fixed_tokens: int
    refused: bool


def length_report(rows: Sequence[Lengths]) -> JsonObject | None:
    """Recall within the answer (equivalent and strict), mean tools and tokens, for fixed and dynamic length.

    ``same_length`` is the recall of a fixed length that costs as many tools as the dynamic one does on average, between
    the two whole numbers next to it in proportion: dynamic length pays if it is above that. ``gained`` and ``lost`` are
    rows whose answer holds more or less of what was wanted than five tools do. ``as_given`` is the dynamic answer after
    abstention: a refused request has an empty one. None without rows.
    """
    if not rows:
        return None
    lengths = [row.dynamic for row in rows]
    average = sum(lengths) / len(lengths)
    dynamic = [_recall(row, row.dynamic) for row in rows]
    fixed = [_recall(row, FIXED) for row in rows]
    below = int(average)
    between = average - below
    return {
        "n": len(rows),
        "lengths": {str(length): count for length, count in sorted(Counter(lengths).items())},
        "fixed": {
            "k": FIXED,
            "equivalent": _rounded(mean(fixed)),
            "strict": _rounded(mean(_recall(row, FIXED, strict=True) for row in rows)),
            "tools": _rounded(mean(min(FIXED, len(row.judged.ranked)) for row in rows), 2),
            "tokens": _rounded(mean(row.fixed_tokens for row in rows), 1),
        },
        "dynamic": {
            "equivalent": _rounded(mean(dynamic)),
            "strict": _rounded(mean(_recall(row, row.dynamic, strict=True) for row in rows)),
            "tools": round(average, 2),
            "tokens": _rounded(mean(row.dynamic_tokens for row in rows), 1),
        },
        "same_length": {
            "k": round(average, 2),
            "equivalent": _rounded(
                mean((1 - between) * _recall(row, below) + between * _recall(row, below + 1) for row in rows)
            ),
        },
        "gained": sum(d > f for d, f in zip(dynamic, fixed, strict=True)),
        "lost": sum(d < f for d, f in zip(dynamic, fixed, strict=True)),
        "as_given": {
            "equivalent": _rounded(
                mean(0.0 if row.refused else found for row, found in zip(rows, dynamic, strict=True))
            ),
            "refused": sum(row.refused for row in rows),
        },
    }


def _recall(row: Lengths, k: int, *, strict: bool = False) -> float:
    gains = row.judged.strict_gains() if strict else row.judged.equivalent_gains()
    return recall_at(gains, len(row.judged.gold), k)


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)
