"""Parts of the report's page: tables, bars, histograms and clouds of points. All text is foreign and escaped here."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from toolscout.synth.report_facts import Points

_JOINERS = "\u200c\u200d"
"""Zero width, and yet part of how words are spelt (Persian, Hindi) and emoji are put together."""

_SHAPES = ("circle", "square", "up", "diamond", "down", "cross", "plus", "bar")
GROUPS = len(_SHAPES)
"""Colours and shapes that are told apart; what is beyond them is grey."""


def text(value: Any) -> str:
    """Foreign text, harmless in a page and without letters that cannot be seen or that turn the writing round."""
    plain = str(value if value is not None else "")
    seen = "".join(c if c.isprintable() or c in "\n\t" or c in _JOINERS else "\ufffd" for c in plain)
    return html.escape(seen, quote=True)


def foreign(value: Any, most: int = 0) -> str:
    """Foreign text as a block whose direction is its own; cut after ``most`` characters (0: not)."""
    plain = str(value if value is not None else "")
    cut = f"{plain[:most]} … ({len(plain):,} characters)" if most and len(plain) > most else plain
    return f"<span class=said dir=auto>{text(cut)}</span>"


def number(value: Any) -> str:
    """A number for reading; a dash for none."""
    if value is None:
        return "–"
    if isinstance(value, float) and not value.is_integer():
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return f"{value:,.0f}" if isinstance(value, int | float) and not isinstance(value, bool) else text(value)


def percent(part: float, whole: float) -> str:
    """A share; small ones keep a digit, so that what is there never reads as nothing."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.0f} %" if share >= 10 or share == 0 else "under 0.1 %" if share < 0.1 else f"{share:.1f} %"


def table(caption: str, head: Sequence[str], rows: Sequence[Sequence[str]], *, kind: str = "numbers") -> str:
    """A table of cells that are HTML already (see ``text``, ``number``); the first column names the row."""
    if not rows:
        return f"<p class=soft>{text(caption)}: none.</p>"
    top = "".join(f"<th scope=col>{text(h)}</th>" for h in head)
    body = "".join(
        f"<tr><th scope=row>{first}</th>{''.join(f'<td>{c}</td>' for c in rest)}</tr>" for first, *rest in rows
    )
    named = f"<caption>{text(caption)}</caption>"
    return (
        f"<div class=wide><table class={kind}>{named}<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def bar(value: float, most: float, kind: str = "good") -> str:
    """A bar beside a number that stands in the text: nothing to be read aloud."""
    return f"<i class='bar {kind}' aria-hidden=true style='width:{100 * value / (most or 1):.1f}%'></i>"


def counts(caption: str, values: Sequence[tuple[str, int]], head: str = "", kind: str = "good") -> str:
    """Named counts as a table with bars and shares."""
    most, whole = max((v for _, v in values), default=1), sum(v for _, v in values)
    rows = [[text(name), bar(v, most, kind), number(v), percent(v, whole)] for name, v in values]
    return table(caption, [head, "", "count", "share"], rows, kind="bars")


def ordered(found: Mapping[str, int], most: int = 20) -> list[tuple[str, int]]:
    """The largest counts first; what is beyond ``most`` is summed up."""
    rows = sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))
    rest = sum(count for _, count in rows[most:])
    return [*rows[:most], *([(f"{len(rows) - most} others", rest)] if rest else [])]


def histogram(title: str, unit: str, ranges: Sequence[tuple[str, int]]) -> str:
    """Upright bars over ranges, counts above them; all of it in the description, too."""
    if not ranges:
        return ""
    width, height, floor = 480, 210, 160
    step = (width - 8) / len(ranges)
    most = max(count for _, count in ranges) or 1
    rows = [f"<line class=grid x1=0 x2={width} y1={floor} y2={floor} />"]
    skip = 1 + max(len(label) for label, _ in ranges) * 7 // max(1, round(step))
    for n, (label, count) in enumerate(ranges):
        x, size = 4 + n * step, 125 * count / most
        rows.append(
            f"<rect class=good x={x + 1:.1f} y={floor - size:.1f} width={max(1, step - 2):.1f} height={size:.1f} rx=1>"
            f"<title>{text(label)} {text(unit)}: {count:,}</title></rect>"
        )
        if count and (len(f"{count:,}") * 6 < step or n % 2 == 0):
            x_middle = x + step / 2
            rows.append(f"<text class=n x={x_middle:.1f} y={floor - size - 5:.1f} text-anchor=middle>{count:,}</text>")
        if n % skip == 0 and (n + skip < len(ranges) or n == len(ranges) - 1):
            at, anchor = (x + step / 2, "middle") if n < len(ranges) - 1 else (x + step, "end")
            rows.append(f"<text class=n x={at:.1f} y={floor + 16} text-anchor={anchor}>{text(label)}</text>")
    rows.append(f"<text class=n x={width / 2} y={floor + 38} text-anchor=middle>{text(unit)}</text>")
    said = f"{title}, {unit}: " + ", ".join(f"{label}: {count}" for label, count in ranges)
    return f"<figure><figcaption>{text(title)}</figcaption>{_svg(width, height, title, said, rows)}</figure>"


def cloud(title: str, about: str, points: Points, groups: Sequence[int], labels: Sequence[str]) -> str:
    """Points [n, 2] by group (0 to GROUPS - 1 have a colour and a shape, others are grey), each with its label."""
    size, edge = 480.0, 12.0
    low, high = points.min(axis=0), points.max(axis=0)
    span = float(max((high - low).max(), 1e-9))
    places = edge + (points - (low + high) / 2 + span / 2) / span * (size - 2 * edge)
    order = np.argsort([-1 if g < 0 or g >= GROUPS else g for g in groups], kind="stable")  # grey lies below
    rows = [f"<rect class=frame x=0.5 y=0.5 width={size - 1:g} height={size - 1:g} rx=4 />"]
    for n in order:
        x, y = places[n]
        said = f"<title>{text(labels[n])}</title>"
        rows.append(f"<g transform='translate({x:.1f} {size - y:.1f})'>{said}{mark(groups[n])}</g>")
    told = f"{len(points)} instructions on a plane, coloured by category. {about}"
    drawn = _svg(int(size), int(size), title, told, rows)
    return f"<figure><figcaption>{text(title)}</figcaption>{drawn}<p class=soft>{text(about)}</p></figure>"


def mark(group: int) -> str:
    """The mark of a group, around 0 0."""
    if not 0 <= group < GROUPS:
        return "<circle class='g other' r=2.6 />"
    shape = {
        "circle": "<circle {} r=3.2 />",
        "square": "<rect {} x=-2.9 y=-2.9 width=5.8 height=5.8 />",
        "up": "<path {} d='M0-4L3.7 2.8H-3.7Z'/>",
        "down": "<path {} d='M0 4L3.7-2.8H-3.7Z'/>",
        "diamond": "<path {} d='M0-4.2L4.2 0L0 4.2L-4.2 0Z'/>",
        "cross": "<path {} d='M-1-4H1V-1H4V1H1V4H-1V1H-4V-1H-1Z' transform='rotate(45)'/>",
        "plus": "<path {} d='M-1-4H1V-1H4V1H1V4H-1V1H-4V-1H-1Z'/>",
        "bar": "<rect {} x=-4.2 y=-1.5 width=8.4 height=3 />",
    }[_SHAPES[group]]  # fmt: skip
    return shape.format(f"class='g g{group}'")


def legend(names: Sequence[tuple[str, int, int]]) -> str:
    """(name, group, count) with their marks."""
    items = (
        f"<li><svg viewBox='-6 -6 12 12' width=14 height=14 aria-hidden=true>{mark(g)}</svg>{text(name)} "
        f"<span class=soft>{count:,}</span></li>"
        for name, g, count in names
    )
    return f"<ul class=legend>{''.join(items)}</ul>"


def _svg(width: int, height: int, title: str, said: str, rows: Sequence[str]) -> str:
    label = text(f"{title}. {said}")
    return f"<svg viewBox='0 0 {width} {height}' role=img aria-label='{label}'>{''.join(rows)}</svg>"
