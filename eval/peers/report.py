"""The peers beside us: one table, and one plot of recall with the latency next to it."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolscout.errors import StorageError
from toolscout.eval.metrics import RANKING_KEYS
from toolscout.records import JsonObject

US = "toolscout"
PLOT = "peers"
NO_PLOT = "No plot of the peers: it needs matplotlib, which comes with toolscout[eval]."

_SHADES = {"recall@1": "#1f4e79", "recall@5": "#4f8fc4", "recall@10": "#a9cbe8"}
_LATENCY = "#c8553d"


def everyone(result: JsonObject) -> dict[str, JsonObject]:
    """Us and the peers that answered, the best equivalent recall@5 first; structured requests are rows of their own."""
    found: dict[str, JsonObject] = {US: result}
    forms = result.get("structured", {}).get("forms", {})
    found |= {f"{US}, {form}": forms[form] for form in ("structured", "both") if form in forms}
    for name, part in result.get("peers", {}).items():
        if "failed" not in part:
            found[name] = part
            if "structured" in part:
                found[f"{name}, structured"] = part["structured"]
    return dict(sorted(found.items(), key=lambda item: -(item[1]["equivalent"]["recall@5"] or 0.0)))


def failures(result: JsonObject) -> list[str]:
    """What to say of the peers that did not answer."""
    return [part["failed"] for part in result.get("peers", {}).values() if "failed" in part]


def abouts(result: JsonObject) -> list[str]:
    """What was run under each name."""
    return [f"{name}: {part['about']}" for name, part in result.get("peers", {}).items() if "failed" not in part]


def peers_table(result: JsonObject) -> tuple[str, list[str], list[list[str]]]:
    """Title, head and rows: two rows each, strict and equivalent."""
    head = ["", "", "@1", "@5", "@10", "MRR", "nDCG", "ms", "p95", "tok."]
    rows: list[list[str]] = []
    for name, part in everyone(result).items():
        cost = [_number(part["latency_ms"]["p50"]), _number(part["latency_ms"]["p95"])]
        cost.append(_number((part.get("answer_tokens") or {}).get("p50"), 0))
        rows.append([name, "strict", *_shares(part["strict"]), *cost])
        rows.append(["", "equiv.", *_shares(part["equivalent"]), "", "", ""])
    return "Peers, same tools and requests (nDCG@10; ms p50 and p95; tokens of five tools, p50)", head, rows


def _shares(part: Mapping[str, float | None]) -> list[str]:
    return ["-" if part[key] is None else f"{part[key]:.3f}" for key in RANKING_KEYS]


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def write_plot(result: JsonObject, folder: Path) -> str | None:
    """Write ``peers.png`` and ``peers.svg`` into the folder; returns the SVG for a page, None without matplotlib.

    Bars: equivalent recall@1, @5 and @10; beside them the latency, p50 to p95, on a logarithmic scale. Raises
    StorageError if the folder cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None
    parts = everyone(result)
    figure = Figure(figsize=(10.5, 1.3 + 0.5 * len(parts)), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(2.2, 1), sharey=True)
    _draw_recall(left, parts)
    _draw_latency(right, parts)
    left.set_yticks(range(len(parts)), list(parts))
    left.set_ylim(len(parts) - 0.5, -0.5)
    for label in left.get_yticklabels():
        if label.get_text().startswith(US):
            label.set_fontweight("bold")
    figure.suptitle(f"{result['n']:,} requests over {result['pool']:,} tools", fontsize=11)
    svg = io.StringIO()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(folder / f"{PLOT}.png", dpi=150, facecolor="white")
        figure.savefig(svg, format="svg", facecolor="white", metadata={"Date": None})
        (folder / f"{PLOT}.svg").write_text(svg.getvalue(), "utf-8")
    except OSError as error:
        raise StorageError(f"{folder} cannot be written: {error}.", "Give a path that you may write to.") from None
    found = re.search(r"<svg.*</svg>", svg.getvalue(), re.DOTALL)
    return found.group() if found else None


def _draw_recall(axes: Any, parts: Mapping[str, JsonObject]) -> None:
    height = 0.26
    for number, (key, colour) in enumerate(_SHADES.items()):
        values = [part["equivalent"][key] or 0.0 for part in parts.values()]
        places = [row + (number - 1) * height for row in range(len(values))]
        axes.barh(places, values, height=height * 0.92, color=colour, label=key)
        for place, value in zip(places, values, strict=True):
            axes.text(value + 0.008, place, f"{value:.2f}", va="center", fontsize=7)
    axes.set_xlim(0, 1.07)
    axes.set_xlabel("recall, any equivalent tool counts")
    axes.legend(ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize=8)
    _plain(axes)


def _draw_latency(axes: Any, parts: Mapping[str, JsonObject]) -> None:
    for row, part in enumerate(parts.values()):
        low, high = part["latency_ms"]["p50"], part["latency_ms"]["p95"]
        if low is None or high is None:
            continue
        low, high = max(low, 0.01), max(high, 0.01)
        axes.plot([low, high], [row, row], color=_LATENCY, linewidth=3, alpha=0.45, solid_capstyle="round")
        axes.plot([low], [row], "o", color=_LATENCY, markersize=5)
        text = " / ".join(f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}" for ms in (low, high))
        # beside the axes, where no other mark can be
        axes.annotate(text, (1.02, row), xycoords=("axes fraction", "data"), va="center", fontsize=7)
    axes.set_xscale("log")
    axes.set_xlabel("search, ms (p50 to p95)")
    _plain(axes)


def _plain(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(axis="x", alpha=0.25)
    axes.set_axisbelow(True)
