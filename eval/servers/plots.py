"""The plot of `eval servers`: the servers of the largest groups side by side."""

from __future__ import annotations

from pathlib import Path

from toolscout.eval.charts import Series, bars, figure, legend, named, ranges, short
from toolscout.eval.metrics import wilson
from toolscout.eval.plots import save_figure
from toolscout.records import JsonObject

GROUPS = 4
SERVERS = 8
"""Groups drawn, the largest, and servers of each, in the order of the tables."""


def servers_plot(result: JsonObject, path: Path) -> str | None:
    """Success of calls, quality of texts and tokens of all definitions, a row of panels for each group, into a PNG
    file; returned as SVG, too. None where matplotlib is missing. Raises StorageError if the file cannot be written."""
    groups = sorted(result["groups"], key=lambda group: -len(group["servers"]))[:GROUPS]
    if not groups:
        return "<p>There are no groups of servers that do the same.</p>"
    called = any(row["calls"] for group in groups for row in group["servers"])
    heights = [0.95 + 0.3 * min(SERVERS, len(group["servers"])) for group in groups]
    drawn = figure(11, sum(heights))
    if drawn is None:
        return None
    parts = drawn.subfigures(len(groups), 1, height_ratios=heights, squeeze=False)[:, 0]
    legend_of = None
    for part, group in zip(parts, groups, strict=True):
        rows = group["servers"][:SERVERS]
        left_out = len(group["servers"]) - len(rows)
        title = short(group["name"], 80) + (f", {left_out} more are in the table" if left_out else "")
        part.suptitle(title, fontsize=10, parse_math=False)
        *first, quality, tokens = part.subplots(1, 3 if called else 2)
        names = [short(row["server_id"]) for row in rows]
        around = [
            wilson(round((row["success_rate"] or 0) * row["calls"]), row["calls"]) if row["calls"] else None
            for row in rows
        ]
        if called:
            shares = [Series("calls that went well", [row["success_rate"] for row in rows], around)]
            if any(row["outcomes"] for row in rows):
                known = [
                    wilson(row["right"] * row["outcomes"], row["outcomes"]) if row["outcomes"] else None for row in rows
                ]
                shares.append(Series("right outcomes", [row["right"] for row in rows], known))
            ranges(first[0], names, shares, xlabel="%, with 95 % intervals")
            legend_of = legend_of or first[0] if len(shares) > 1 else legend_of
            if not any(row["calls"] for row in rows):
                first[0].text(
                    0.5, 0.5, "not called", transform=first[0].transAxes, ha="center", va="center", fontsize=9
                )
        ranges(
            quality, names, [Series("texts", [row["quality"]["score"] for row in rows])], xlabel="quality of texts, %"
        )
        bars(tokens, {str(at): row["tokens"] for at, row in enumerate(rows)}, xlabel="tokens of all definitions")
        for axes in (quality, tokens) if called else (tokens,):
            named(axes, [""] * len(rows))
    if legend_of is not None:
        legend(drawn, legend_of)
    return save_figure(drawn, path)
