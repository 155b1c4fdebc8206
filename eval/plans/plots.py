"""The plot of `eval plan`: how good plans are by their length, and what is wrong first in those that are not."""

from __future__ import annotations

from pathlib import Path

from toolscout.eval.charts import Series, bars, figure, legend, over
from toolscout.eval.plots import save_figure
from toolscout.records import JsonObject

_SHOWN = {"graph": "graph", "last": "last calls", "tools": "tools", "node_f1": "node F1", "edge_f1": "edge F1"}


def plan_plot(result: JsonObject, path: Path) -> str | None:
    """Accuracy by number of gold calls with 95 % intervals, and rows by problem, into a PNG file; returned as SVG,
    too. None where matplotlib is missing. Raises StorageError if the file cannot be written."""
    drawn = figure(11, 4.6)
    if drawn is None:
        return None
    left, right = drawn.subplots(1, 2, width_ratios=(1.5, 1))
    groups = list(result["by_steps"].items())
    groups.append(("all", result["overall"]))
    names = [f"{name}\nn={part['n']}" for name, part in groups]
    over(left, names, [
        Series(label, [part[key] for _, part in groups], [part["intervals"][key] for _, part in groups])
        for key, label in _SHOWN.items()
    ], ylabel="%", title="By number of gold calls, 95 % intervals", apart=1)  # fmt: skip
    left.set_xlabel("gold calls")
    right_ones = result["n"] - sum(result["problems"].values())
    bars(right, {"nothing": right_ones, **result["problems"]}, xlabel="rows", title="What is wrong first")
    legend(drawn, left)
    return save_figure(drawn, path)
