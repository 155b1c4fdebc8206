"""What rows are like, in numbers: counts, spreads, and how far apart the instructions are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toolscout.index.encoder import Encoder
from toolscout.records import JsonObject
from toolscout.synth.drafts import draw
from toolscout.synth.report_rows import Row

SAMPLE = 1000
"""How many instructions the mean distance is taken of (MCP-Flow, arXiv 2510.24284)."""

Points = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """At most 1,000 rows, drawn by their ids, and the vectors [n, dim] of their instructions, L2-normalised."""

    rows: list[Row]
    vectors: Points


def drawn(rows: Sequence[Row], most: int, why: str = "diversity") -> list[Row]:
    """At most so many rows, drawn by their ids: the same ones each time."""
    return sorted(rows, key=lambda row: (draw(why, row.id), row.id))[:most]


def sample_of(rows: Sequence[Row], encoder: Encoder) -> Sample:
    """The sample that distances and plots are made of."""
    found = drawn(rows, SAMPLE)
    vectors = encoder.encode([row.text for row in found]).astype(np.float64) if found else np.zeros((0, encoder.dim))
    return Sample(found, vectors)


def mean_distance(vectors: Points) -> tuple[float, float] | None:
    """(mean cosine distance of all pairs, half of its 95 % interval); None below two vectors.

    The interval is that of another draw of as many instructions: each one's mean distance to the others varies, and the
    mean of pairs varies twice as much as the mean of those would (Hoeffding 1948).
    """
    n = len(vectors)
    if n < 2:
        return None
    near = (vectors @ vectors.sum(axis=0) - (vectors**2).sum(axis=1)) / (n - 1)  # of each one to the others
    return 1 - float(near.mean()), 2 * 1.96 * float(near.std(ddof=1)) / n**0.5


def facts(rows: Sequence[Row], *, server_of: Callable[[str], str]) -> JsonObject:
    """Counts over the rows; texts are measured in words (by spaces) and characters."""
    tools = {tool for row in rows for tool, _ in row.calls}
    return {
        "calls": len(rows),
        "tools": len(tools),
        "servers": len({server_of(tool) for tool in tools}),
        "by_level": _counted(row.level for row in rows),
        "by_direction": _counted(row.directions[-1] for row in rows if row.directions),
        "by_language": _counted(row.lang for row in rows if row.lang),
        "by_category": dict(Counter(row.category for row in rows).most_common()),
        "by_steps": _numbers(len(row.calls) for row in rows),
        "words": spread([len(row.text.split()) for row in rows]),
        "characters": spread([len(row.text) for row in rows]),
        "arguments": _numbers(row.arguments for row in rows),
    }


def spread(values: Sequence[float]) -> JsonObject | None:
    """Percentiles and the mean; None of nothing."""
    if not values:
        return None
    points = np.percentile(values, [5, 25, 50, 75, 95])
    named = zip(("p5", "p25", "p50", "p75", "p95"), points, strict=True)
    return {**{name: round(float(p), 1) for name, p in named}, "mean": round(float(np.mean(values)), 1)}


def bins(values: Sequence[float], most: int = 14) -> list[tuple[str, int]]:
    """(range, count) over about ``most`` ranges of one round width, from the smallest value to the largest.

    Ranges of whole numbers are named by both their ends, others by where they begin.
    """
    if not values:
        return []
    whole = all(float(v).is_integer() for v in values)
    width = _round_width((max(values) - min(values)) / most)
    width = max(1.0, width) if whole else width
    at = [int(np.floor(v / width + 1e-9)) for v in values]
    found, first = Counter(at), min(at)

    def named(n: int) -> str:
        if not whole:
            return f"{n * width:.4g}"
        return f"{n * width:.0f}" if width == 1 else f"{n * width:.0f}–{n * width + width - 1:.0f}"

    return [(named(n), found[n]) for n in range(first, max(at) + 1)]


def _round_width(least: float) -> float:
    if least <= 0:
        return 1.0
    step = 10.0 ** np.floor(np.log10(least))
    return float(next(n * step for n in (1, 2, 5, 10) if n * step >= least * 0.999))


def _counted(values: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(values).items()))


def _numbers(values: Iterable[int]) -> dict[str, int]:
    return {str(value): count for value, count in sorted(Counter(values).items())}
