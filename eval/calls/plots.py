"""Plots of `eval calls`, of its ``--compare`` and of `eval scaling`; none without matplotlib (extra ``eval``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from toolscout.eval.charts import (
    COLOURS,
    Series,
    beside,
    figure,
    height_of,
    legend,
    ranges,
    short,
    spans,
    tell_ticks,
    tell_values,
)
from toolscout.eval.plots import save_figure
from toolscout.records import JsonObject

KEYS = {"tool": ("Tool", "#2563a8"), "param": ("Param", "#3c8a4e"), "ast": ("AST", "#c43c35")}

_SOME = " (Param, AST: of those with arguments)"


def compare_plot(comparison: JsonObject, path: Path) -> str | None:
    """Draw Tool, Param and AST of each variant into a PNG file: lines over numbers of candidates, else bars.

    Returns it as SVG, too; None where matplotlib is missing. Raises StorageError if the file cannot be written.
    """
    variants: Mapping[str, JsonObject] = comparison["variants"]
    if comparison["by"] == "candidates":
        points = sorted(((float(size), result) for size, result in variants.items()), key=lambda point: point[0])
        return _lines({"": points}, path, "candidate tools", "Accuracy by number of candidates")
    drawn = figure(6.4, 4.2)
    if drawn is None:
        return None
    axes = drawn.subplots()
    for number, (key, (label, colour)) in enumerate(KEYS.items()):
        places = [place + 0.27 * (number - 1) for place in range(len(variants))]
        heights = [100 * (v["overall"][key] or 0.0) for v in variants.values()]
        around = [_around(v, key) for v in variants.values()]
        axes.bar(
            places, heights, 0.25, color=colour, label=label, yerr=spans(heights, around),
            error_kw={"elinewidth": 0.8, "capsize": 2, "ecolor": "#555555"},
        )  # fmt: skip
        for place, height, at in zip(places, heights, around, strict=True):
            # Where no interval is: at the foot of the bar, or above it all.
            inside = (100 * at[0] if at else height) > 8
            top = max(height, 100 * at[1] if at else height)
            axes.text(
                place, 2 if inside else top + 1, f"{height:.1f}", ha="center", fontsize=7,
                color="white" if inside else "black",
            )  # fmt: skip
    n = next(iter(variants.values()))["n"]
    axes.set_xticks(range(len(variants)), list(variants))
    axes.set(ylabel=f"% of {n} requests{_SOME}, 95 % intervals", ylim=(0, 105), title=f"Accuracy by {comparison['by']}")
    legend(drawn, axes)
    return save_figure(drawn, path)


def calls_plot(result: JsonObject, path: Path) -> str | None:
    """Draw Tool, Param and AST by split and by marketplace, with 95 % intervals; as :func:`compare_plot`."""
    intervals = result["intervals"]
    groups = [("all", {"n": result["n"], **result["overall"]}, intervals["overall"])]
    for key, word in (("by_split", ""), ("by_marketplace", "from ")):
        parts = result[key]
        if len(parts) > 1:
            groups += [(f"{word}{short(name)}", part, intervals[key][name]) for name, part in parts.items()]
    drawn = figure(8.5, height_of(len(groups), 3))
    if drawn is None:
        return None
    axes = drawn.subplots()
    names = [f"{name}\nn={part['n']}" for name, part, _ in groups]
    ranges(axes, names, [
        Series(label, [part[key] for _, part, _ in groups], [around[key] for _, _, around in groups], colour)
        for key, (label, colour) in KEYS.items()
    ], xlabel="% of the requests that ask for it, 95 % intervals")  # fmt: skip
    axes.set_title(f"Among {result['candidates']} candidates")
    legend(drawn, axes)
    return save_figure(drawn, path)


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
    drawn = figure(8, 4.8)
    if drawn is None:
        return None
    axes = drawn.subplots()
    places = sorted({x for points in curves.values() for x, _ in points})
    log = len(places) > 1 and places[0] > 0
    marks: list[tuple[float, float, str, str]] = []
    bars: list[tuple[float, float, float]] = []
    lines = [(name, key, points) for name, points in curves.items() for key in keys]
    for number, (name, key, points) in enumerate(lines):
        label, colour = KEYS[key]
        if name:
            label, colour = short(name), COLOURS[number % len(COLOURS)]
        rows = {r["n"] for _, r in points}
        label += f" (n={rows.pop()})" if name and len(rows) == 1 else ""
        known = [(x, 100 * v, _around(r, key)) for x, r in points if (v := r.get("overall", r)[key]) is not None]
        if not known:
            continue
        shares, around = [y for _, y, _ in known], [at for _, _, at in known]
        at_x = beside(places, number, len(lines), log=log)
        axes.errorbar(
            [at_x[x] for x, _, _ in known], shares, yerr=spans(shares, around),
            fmt="-o", markersize=4, capsize=2, elinewidth=1, color=colour, label=label,
        )  # fmt: skip
        bars += [(at_x[x], 100 * at[0], 100 * at[1]) for x, _, at in known if at]
        marks += [(at_x[x], y, f"{y:.1f}", colour) for x, y, _ in known]
    if log:
        axes.set_xscale("log")
    axes.minorticks_off()
    n = next(r["n"] for points in curves.values() for _, r in points)
    unit = ("AST, %" if list(keys) == ["ast"] else f"% of {n} requests{_SOME}") + ", 95 % intervals"
    axes.set(xlabel=xlabel, ylabel=unit, ylim=(-2, 108), title=title)
    axes.grid(alpha=0.3)
    legend(drawn, axes)
    tell_ticks(drawn, axes, {x: f"{x:g}" for x in places})
    tell_values(drawn, axes, marks, bars)
    return save_figure(drawn, path)


def _around(rates: JsonObject, key: str) -> Sequence[float] | None:
    """A share's interval, which results of older versions lack."""
    found: JsonObject = rates.get("intervals") or {}
    group: JsonObject = found.get("overall", found)
    around: Sequence[float] | None = group.get(key)
    return around
