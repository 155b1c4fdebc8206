"""Plots of `eval calls --compare` and of `eval scaling`; none without matplotlib (extra ``eval``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolscout.eval.plots import save_figure
from toolscout.records import JsonObject

KEYS = {"tool": ("Tool", "#2563a8"), "param": ("Param", "#3c8a4e"), "ast": ("AST", "#c43c35")}


def compare_plot(comparison: JsonObject, path: Path) -> str | None:
    """Draw Tool, Param and AST of each variant into a PNG file: lines over numbers of candidates, else bars.

    Returns it as SVG, too; None where matplotlib is missing. Raises StorageError if the file cannot be written.
    """
    variants: Mapping[str, JsonObject] = comparison["variants"]
    if comparison["by"] == "candidates":
        points = [(float(size), result) for size, result in variants.items()]
        return _lines({"": points}, path, "candidate tools", "Accuracy by number of candidates")
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    for number, (key, (label, colour)) in enumerate(KEYS.items()):
        places = [place + 0.27 * (number - 1) for place in range(len(variants))]
        heights = [100 * (v["overall"][key] or 0.0) for v in variants.values()]
        bars = axes.bar(places, heights, 0.25, color=colour, label=label)
        axes.bar_label(bars, fmt="%.1f", fontsize=7)
    n = next(iter(variants.values()))["n"]
    axes.set_xticks(range(len(variants)), list(variants))
    axes.set(ylabel=f"% of {n} requests", ylim=(0, 105), title=f"Accuracy by {comparison['by']}")
    axes.legend(ncols=3, frameon=False, fontsize=8)
    return save_figure(figure, path)


def scaling_plot(curves: Mapping[str, Sequence[tuple[float, JsonObject]]], path: Path) -> str | None:
    """Draw results over the share of the training data, a curve a split; as :func:`compare_plot`."""
    return _lines(curves, path, "share of the training data", "Accuracy by training data", keys=("ast",))


def _lines(
    curves: Mapping[str, Sequence[tuple[float, JsonObject]]],
    path: Path,
    xlabel: str,
    title: str,
    keys: Sequence[str] = tuple(KEYS),
) -> str | None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes: Any = figure.subplots()
    places = sorted({x for points in curves.values() for x, _ in points})
    for name, points in curves.items():
        for key in keys:
            label, colour = KEYS[key]
            drawn = [(x, 100 * value) for x, r in points if (value := r.get("overall", r)[key]) is not None]
            style = {"label": name, "marker": "o"} if name else {"label": label, "marker": "o", "color": colour}
            axes.plot([x for x, _ in drawn], [y for _, y in drawn], **style)
            for x, y in drawn:
                axes.annotate(f"{y:.1f}", (x, y), xytext=(0, 5), textcoords="offset points", fontsize=7, ha="center")
    if len(places) > 1 and places[0] > 0:
        axes.set_xscale("log")
    axes.set_xticks(places, [f"{x:g}" for x in places])
    axes.minorticks_off()
    axes.set(xlabel=xlabel, ylabel="AST, %" if list(keys) == ["ast"] else "%", ylim=(0, 105), title=title)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower left", fontsize=8)
    return save_figure(figure, path)
