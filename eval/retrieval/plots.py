"""The plot that every page of `eval retrieval` has: recall of all rows and of each split."""

from __future__ import annotations

from pathlib import Path

from toolscout.eval.charts import Series, figure, height_of, legend, ranges, short
from toolscout.eval.metrics import wilson
from toolscout.eval.plots import save_figure
from toolscout.records import JsonObject

_KEYS = ("recall@1", "recall@5", "recall@10")


def recall_plot(result: JsonObject, path: Path) -> str | None:
    """Recall at 1, 5 and 10 of all rows and by split, equivalent and strict, into a PNG file; returned as SVG, too.

    The intervals are Wilson's over rows; a row with several gold tools, found in part, counts for that part. None where
    matplotlib is missing. Raises StorageError if the file cannot be written.
    """
    groups = [("all", result)]
    if len(result["by_split"]) > 1:
        groups += [(short(name), part) for name, part in result["by_split"].items()]
    drawn = figure(11, height_of(len(groups), len(_KEYS)))
    if drawn is None:
        return None
    names = [f"{name}\nn={part['n']}" for name, part in groups]
    panels = drawn.subplots(1, 2, sharey=True)
    for axes, reading in zip(panels, ("equivalent", "strict"), strict=True):
        ranges(axes, names, [
            Series(key, [part[reading][key] for _, part in groups], [_around(part, reading, key) for _, part in groups])
            for key in _KEYS
        ], xlabel="% of gold tools, 95 % intervals", title=f"Recall, {reading}")  # fmt: skip
    legend(drawn, panels[0])
    return save_figure(drawn, path)


def _around(part: JsonObject, reading: str, key: str) -> list[float] | None:
    share, n = part[reading][key], part["n"]
    return wilson(share * n, n) if n and share is not None else None
