"""Charts of the report, as SVG that follows the page's colours."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any


def text(value: Any) -> str:
    """Foreign text, harmless in a page."""
    return html.escape(str(value if value is not None else ""), quote=True)


def percent(part: float, whole: float) -> str:
    """A share; small ones keep a digit, so that what is there never reads as nothing."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.0f} %" if share >= 10 or share == 0 else "under 0.1 %" if share < 0.1 else f"{share:.1f} %"


def bars(values: Sequence[tuple[str, int]], *, kind: str = "bar", of: int = 0) -> str:
    """Horizontal bars with their numbers, and their shares of ``of``."""
    if not values:
        return "<p>None.</p>"
    most = max(value for _, value in values) or 1
    rows = []
    for number, (label, value) in enumerate(values):
        y, width = number * 24, 400 * value / most
        share = f" ({percent(value, of)})" if of else ""
        rows.append(
            f"<text x=205 y={y + 16} text-anchor=end>{text(label[:32])}</text>"
            f"<rect class={kind} x=215 y={y + 4} width={max(width, 1):.1f} height=16 rx=2 />"
            f"<text class=n x={223 + width:.1f} y={y + 16}>{value:,}{share}</text>"
        )
    described = ", ".join(f"{label} {value}" for label, value in values)
    return _svg(740, len(values) * 24 + 4, described, rows)


def histogram(title: str, unit: str, bins: Sequence[tuple[str, int]]) -> str:
    """Vertical bars: how many packages (share, in percent) in each range of a size, its ranges named below."""
    whole = sum(count for _, count in bins) or 1
    shares = [100 * count / whole for _, count in bins]
    top = _round(max(shares, default=1.0))
    width, height, left, floor = 470, 210, 30, 165
    step = (width - left - 6) / max(len(bins), 1)
    rows = [f"<text x={left} y=14 class=h>{text(title)}</text>"]
    for part in (0.0, 0.5, 1.0):
        y = floor - part * 135
        rows.append(f"<line class=grid x1={left} x2={width} y1={y:.1f} y2={y:.1f} />")
        rows.append(f"<text class=n x={left - 5} y={y + 4:.1f} text-anchor=end>{top * part:g}</text>")
    rows.append(f"<text class=n x={width} y=14 text-anchor=end>% of {whole:,}</text>")
    for number, ((label, count), share) in enumerate(zip(bins, shares, strict=True)):
        x, size = left + number * step, 135 * share / top
        rows.append(
            f"<rect class=bar x={x + 1.5:.1f} y={floor - size:.1f} width={step - 3:.1f} height={size:.1f} rx=1>"
            f"<title>{text(label)} {text(unit)}: {count:,} ({percent(count, whole)})</title></rect>"
            f"<text class='n t' x={x + step / 2:.1f} y={floor + 15} text-anchor=middle>{text(label)}</text>"
        )
    rows.append(f"<text class=n x={(left + width) / 2:.0f} y={floor + 35} text-anchor=middle>{text(unit)}</text>")
    described = f"{title}, {unit}: " + ", ".join(f"{label} {count}" for label, count in bins)
    return _svg(width, height, described, rows)


def line(points: Sequence[tuple[float, float]], *, across: str, up: str) -> str:
    """A line over labelled axes that both begin at zero.

    Args:
        points: x and y, in order of x.
        across: what x is.
        up: what y is.
    """
    if len(points) < 2:
        return "<p>Too little to draw.</p>"
    width, height, left, floor = 740, 250, 62, 205
    far, top = points[-1][0] or 1.0, _round(max(y for _, y in points))
    rows = [f"<text class=n x={left} y=14>{text(up)}</text>"]
    for part in (0.0, 0.25, 0.5, 0.75, 1.0):
        y, x = floor - part * 180, left + part * (width - left - 20)
        rows.append(f"<line class=grid x1={left} x2={width - 20} y1={y:.1f} y2={y:.1f} />")
        rows.append(f"<text class=n x={left - 6} y={y + 4:.1f} text-anchor=end>{top * part:,.0f}</text>")
        rows.append(f"<text class=n x={x:.1f} y={floor + 17} text-anchor=middle>{far * part:.2g}</text>")
    rows.append(f"<text class=n x={(left + width) / 2:.0f} y={floor + 38} text-anchor=middle>{text(across)}</text>")
    drawn = " ".join(f"{left + x / far * (width - left - 20):.1f},{floor - y / top * 180:.1f}" for x, y in points)
    rows.append(f"<polyline class=line points='{drawn}' />")
    return _svg(width, height, f"{up} by {across}, {points[-1][1]:,.0f} at the end", rows)


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A table; the first column is text, all others are numbers, or short words."""
    head = "".join(f"<th>{text(h)}</th>" for h in header)
    body = "".join("<tr>" + "".join(f"<td>{_cell(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><tr>{head}</tr>{body}</table></div>"


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else text(value)


def _round(value: float) -> float:
    """The next round number above."""
    step = 1.0
    while value > 10 * step:
        step *= 10
    return next((n * step for n in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if n * step >= value), 10 * step)


def _svg(width: int, height: int, described: str, rows: Sequence[str]) -> str:
    return f"<svg viewBox='0 0 {width} {height}' role=img aria-label='{text(described)}'>{''.join(rows)}</svg>"


def ordered(counts: Mapping[str, int], most: int = 12) -> list[tuple[str, int]]:
    """The largest counts first; what is beyond ``most`` is summed up."""
    rows = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    rest = sum(count for _, count in rows[most:])
    return [*rows[:most], *([(f"{len(rows) - most} others", rest)] if rest else [])]
