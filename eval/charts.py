"""Parts that the plots of several experiments share: shares with their intervals, bars, and what a page gets of them.

Names in a plot are mostly foreign (splits, servers, models): none is read as a formula, long ones are cut.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
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
    if plain.startswith("_"):
        plain = f" {plain}"  # matplotlib leaves such names out of legends
    half = most // 2 - 1
    return plain if len(plain) <= most else f"{plain[:half]}…{plain[-half:]}"


def height_of(names: int, series: int) -> float:
    """Inches that ``ranges`` needs for its rows."""
    return 1.3 + names * (0.16 + 0.17 * series)


def ranges(
    axes: Any, names: Sequence[str], series: Sequence[Series], *, xlabel: str, title: str = "", percent: bool = True
) -> None:
    """A row for each name, a point with its interval for each kind of share; the values stand at the right edge.

    ``percent``: shares are shown in per cent, else as they are, between 0 and 1.
    """
    unit, form = (100, "{:.1f}") if percent else (1, "{:.3f}")
    step = 0.8 / max(1, len(series))
    for number, one in enumerate(series):
        colour = one.colour or COLOURS[number % len(COLOURS)]
        places = [row + (number - (len(series) - 1) / 2) * step for row in range(len(names))]
        known = _known(places, one, unit)
        shares, around = [v for _, v, _ in known], [at for _, _, at in known]
        axes.errorbar(
            shares, [place for place, _, _ in known], xerr=spans(shares, around, unit),
            fmt="o", markersize=4, capsize=2, elinewidth=1.2, color=colour, label=one.label,
        )  # fmt: skip
        for place, value in zip(places, one.values, strict=True):  # beside the axes, where no other mark can be
            said = "–" if value is None else form.format(unit * value)
            axes.annotate(said, (1.01, place), xycoords=_MARGIN, va="center", fontsize=7, color=colour)
    named(axes, names)
    for row in range(1, len(names)):
        axes.axhline(row - 0.5, color="#8884", linewidth=0.6)
    axes.set(xlabel=xlabel, xlim=(-0.02 * unit, 1.02 * unit), title=title)
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
        known = _known([at + shift for at in range(len(names))], one)
        shares, around = [v for _, v, _ in known], [at for _, _, at in known]
        colour = one.colour or COLOURS[number % len(COLOURS)]
        axes.errorbar(
            [x for x, _, _ in known], shares, yerr=spans(shares, around),
            fmt="o", markersize=4, capsize=2, elinewidth=1, color=colour, label=one.label,
        )  # fmt: skip
        joined = [(x, v) for x, v, _ in known if x < len(names) - apart - 0.5]
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
    axes.set_ylim(max(1, len(names)) - 0.5, -0.5)


def legend(drawn: Any, axes: Any) -> None:
    """The kinds below everything else, where they cover no mark."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        columns = min(len(labels), 4)
        made = drawn.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
        for said in made.get_texts():
            said.set_parse_math(False)


def _known(places: Sequence[float], series: Series, unit: float = 100) -> list[tuple[float, float, Around]]:
    """(place, value in ``unit`` parts of the whole, interval) of the values that there are."""
    around = series.around or [None] * len(series.values)
    found = zip(places, series.values, around, strict=True)
    return [(place, unit * value, at) for place, value, at in found if value is not None]


def spans(values: Sequence[float], around: Sequence[Around], unit: float = 100) -> list[list[float]]:
    """How far each interval (of shares) reaches to both sides of its value (by default in per cent); rounding may put
    an end on the wrong side."""
    pairs = list(zip(values, around, strict=True))
    low = [max(0.0, v - unit * at[0]) if at else 0.0 for v, at in pairs]
    return [low, [max(0.0, unit * at[1] - v) if at else 0.0 for v, at in pairs]]


def beside(places: Sequence[float], number: int, of: int, *, log: bool) -> dict[float, float]:
    """Where the ``number``-th of ``of`` series stands at each place of an axis: a little beside the others, so that
    no interval covers another one's."""
    at = [math.log(place) if log else float(place) for place in places]
    width = (at[-1] - at[0]) or 1.0
    gaps = [after - before for before, after in pairwise(at)]
    # All series of a place stay nearer to it than to its neighbours.
    step = min(0.012 * width, 0.06 * width / max(1, of), 0.4 * min(gaps, default=width) / max(1, of - 1))
    shift = (number - (of - 1) / 2) * step
    return {place: math.exp(x + shift) if log else x + shift for place, x in zip(places, at, strict=True)}


def tell_ticks(drawn: Any, axes: Any, names: Mapping[float, str]) -> None:
    """Ticks at all these places of the lower axis, names only where there is room for them."""
    axes.set_xticks(list(names), [""] * len(names))
    _lay_out(drawn)
    spaces: dict[float, tuple[float, float]] = {}
    order = list(names)
    for place in [order[0], order[-1], *order[1:-1]] if order else []:  # the ends are told before what lies between
        at, half = axes.transData.transform((place, 0))[0], _width(drawn, names[place], 9) / 2 + 2
        if all(at + half < low or high < at - half for low, high in spaces.values()):
            spaces[place] = (at - half, at + half)
    shown = [name if place in spaces else "" for place, name in names.items()]
    axes.set_xticks(list(names), shown, fontsize=9)


def tell_values(
    drawn: Any,
    axes: Any,
    marks: Sequence[tuple[float, float, str, str]],
    bars: Sequence[tuple[float, float, float]] = (),
) -> None:
    """Write ``(x, y, text, colour)`` beside their points, each where nothing stands yet, no interval ``(x, low, high)``
    of ``bars`` either; what finds no room is left out (the tables have it)."""
    _lay_out(drawn)
    per_point = drawn.dpi / 72
    places = [axes.transData.transform((x, y)) for x, y, _, _ in marks]
    taken = [(px - 4, py - 4, px + 4, py + 4) for px, py in places]
    for x, low_end, high_end in bars:
        (px, low), (_, high) = axes.transData.transform([(x, low_end), (x, high_end)])
        taken.append((px - 3, low, px + 3, high))
    height = 7 * per_point
    for (px, py), (x, y, said, colour) in zip(places, marks, strict=True):
        width = _width(drawn, said, 7)
        for dx, dy in ((5, 4), (5, -10), (-5 - width / per_point, 4), (-5 - width / per_point, -10)):
            left, low = px + dx * per_point, py + dy * per_point
            box = (left, low, left + width, low + height)
            if not any(box[0] < b[2] and b[0] < box[2] and box[1] < b[3] and b[1] < box[3] for b in taken):
                taken.append(box)
                axes.annotate(
                    said, (x, y), xytext=(dx, dy), textcoords="offset points", fontsize=7, color=colour, bbox=_BEHIND
                )
                break


_BEHIND = {"facecolor": "white", "alpha": 0.75, "linewidth": 0, "pad": 0.4}
"""What is written beside a point hides the lines that pass behind it."""


def _lay_out(drawn: Any) -> None:
    """Bring everything to its place, so that places on the paper can be told."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        drawn.draw_without_rendering()


def _width(drawn: Any, text: str, size: float) -> float:
    """About how many pixels a text is wide."""
    return len(text) * 0.62 * size * float(drawn.dpi) / 72
