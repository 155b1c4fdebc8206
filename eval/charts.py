"""Parts that the plots of several experiments share: shares with their intervals, bars, and what a page gets of them.

Names in a plot are mostly foreign (splits, servers, models): none is read as a formula, long ones are cut.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from toolscout.eval.plots import NO_PLOTS
from toolscout.records import JsonObject

COLOURS = ("#2563a8", "#c43c35", "#3c8a4e", "#c98a1b", "#7b52ab", "#4d4d4d")
LONGEST = 34
"""Characters of a name."""

_MARGIN = ("axes fraction", "data")

Around = Sequence[float] | None
Draw = Callable[[JsonObject, Path], str | None]
"""Draws a result into a PNG file and returns the same as SVG; None where matplotlib is missing."""


@dataclass(frozen=True)
class Series:
    """Shares (0 to 1) of one kind, one for each name, with their 95 % intervals where they are known."""

    label: str
    values: Sequence[float | None]
    around: Sequence[Around] = ()
    colour: str = ""


def plot_part(title: str, result: JsonObject, path: Path, draw: Draw) -> str:
    """A plot as a part of a page, its PNG file written; without matplotlib the part says what is missing."""
    return f"<h2>{escape(title)}</h2>{draw(result, path) or escape(NO_PLOTS)}"


def figure(width: float, height: float) -> Any:
    """An empty figure; None where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    return Figure(figsize=(width, height), layout="constrained")


def short(name: str, most: int = LONGEST) -> str:
    """A foreign name as a plot can show it: on one line, its middle left out if it is long."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in name).split()) or "none"
    half = most // 2 - 1
    return plain if len(plain) <= most else f"{plain[:half]}…{plain[-half:]}"


def height_of(names: int, series: int) -> float:
    """Inches that ``ranges`` needs for its rows."""
    return 1.3 + names * (0.16 + 0.17 * series)


def ranges(axes: Any, names: Sequence[str], series: Sequence[Series], *, xlabel: str, title: str = "") -> None:
    """A row for each name, a point with its interval for each kind of share; the values stand at the right edge."""
    step = 0.8 / max(1, len(series))
    for number, one in enumerate(series):
        colour = one.colour or COLOURS[number % len(COLOURS)]
        places = [row + (number - (len(series) - 1) / 2) * step for row in range(len(names))]
        drawn = [
            (place, 100 * v, at) for place, v, at in zip(places, one.values, _rest(one), strict=True) if v is not None
        ]
        axes.errorbar(
            [v for _, v, _ in drawn], [place for place, _, _ in drawn], xerr=_errors([(v, at) for _, v, at in drawn]),
            fmt="o", markersize=4, capsize=2, elinewidth=1.2, color=colour, label=one.label,
        )  # fmt: skip
        for place, value in zip(places, one.values, strict=True):  # beside the axes, where no other mark can be
            said = "–" if value is None else f"{100 * value:.1f}"
            axes.annotate(said, (1.01, place), xycoords=_MARGIN, va="center", fontsize=7, color=colour)
    named(axes, names)
    for row in range(1, len(names)):
        axes.axhline(row - 0.5, color="#8884", linewidth=0.6)
    axes.set(xlabel=xlabel, xlim=(-2, 102), title=title)
    axes.grid(axis="x", alpha=0.3)


def over(
    axes: Any, names: Sequence[str], series: Sequence[Series], *, ylabel: str, title: str = "", apart: int = 0
) -> None:
    """Lines over names that have an order, with intervals; the kinds stand a little beside each other.

    The last ``apart`` names are no further steps of the order (such as "all"): no line leads there.
    """
    step = min(0.09, 0.6 / max(1, len(series)))
    for number, one in enumerate(series):
        shift = (number - (len(series) - 1) / 2) * step
        drawn = [
            (at + shift, 100 * v, a)
            for at, (v, a) in enumerate(zip(one.values, _rest(one), strict=True))
            if v is not None
        ]
        colour = one.colour or COLOURS[number % len(COLOURS)]
        axes.errorbar(
            [x for x, _, _ in drawn], [v for _, v, _ in drawn], yerr=_errors([(v, a) for _, v, a in drawn]),
            fmt="o", markersize=4, capsize=2, elinewidth=1, color=colour, label=one.label,
        )  # fmt: skip
        joined = [(x, v) for x, v, _ in drawn if x < len(names) - apart - 0.5]
        axes.plot([x for x, _ in joined], [v for _, v in joined], linewidth=1.2, color=colour)
    axes.set_xticks(range(len(names)), names, fontsize=8, parse_math=False)
    axes.set(ylabel=ylabel, ylim=(-2, 104), xlim=(-0.5, len(names) - 0.5), title=title)
    axes.grid(axis="y", alpha=0.3)


def bars(axes: Any, values: Mapping[str, float], *, xlabel: str, title: str = "", form: str = "{:,.0f}") -> None:
    """A bar for each name, its value beside it."""
    axes.barh(range(len(values)), list(values.values()), color=COLOURS[0], height=0.65)
    most = max(values.values(), default=0) or 1
    for row, value in enumerate(values.values()):
        axes.text(value + most * 0.01, row, form.format(value), va="center", fontsize=8)
    named(axes, list(values))
    axes.set(xlabel=xlabel, xlim=(0, most * 1.2), title=title)
    axes.grid(axis="x", alpha=0.3)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_axisbelow(True)


def grouped_bars(
    axes: Any, names: Sequence[str], parts: Mapping[str, Sequence[float | None]], *, xlabel: str, title: str = "",
    form: str = "{:,.0f}",
) -> None:  # fmt: skip
    """A row for each name, a bar for each kind of number."""
    height = 0.8 / max(1, len(parts))
    most = max((v for values in parts.values() for v in values if v is not None), default=0) or 1
    for number, (label, values) in enumerate(parts.items()):
        places = [row + (number - (len(parts) - 1) / 2) * height for row in range(len(names))]
        axes.barh(places, [v or 0 for v in values], height=height * 0.9, color=COLOURS[number % 6], label=label)
        for place, value in zip(places, values, strict=True):
            said = "unknown" if value is None else form.format(value)
            axes.text((value or 0) + most * 0.01, place, said, va="center", fontsize=7)
    named(axes, names)
    axes.set(xlabel=xlabel, xlim=(0, most * 1.18), title=title)
    axes.grid(axis="x", alpha=0.3)
    axes.xaxis.set_major_formatter("{x:,g}")
    axes.set_axisbelow(True)


def named(axes: Any, names: Sequence[str]) -> None:
    """Rows from the top, with their names."""
    axes.set_yticks(range(len(names)), names, fontsize=8, parse_math=False)
    axes.set_ylim(len(names) - 0.5, -0.5)


def legend(drawn: Any, axes: Any) -> None:
    """The kinds below everything else, where they cover no mark."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        drawn.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6), frameon=False, fontsize=8)


def _rest(series: Series) -> Sequence[Around]:
    return series.around or [None] * len(series.values)


def _errors(points: Sequence[tuple[float, Around]]) -> list[list[float]]:
    """How far each interval reaches to both sides, in per cent; rounding may put an end on the wrong side."""
    low = [max(0.0, v - 100 * at[0]) if at else 0.0 for v, at in points]
    return [low, [max(0.0, 100 * at[1] - v) if at else 0.0 for v, at in points]]
