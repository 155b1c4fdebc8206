"""Compared servers for reading: a table for each group, and a page; all of others' texts escaped."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from toolscout.eval.charts import plot_part
from toolscout.eval.report import Table, _write_folder, made_with, share_text
from toolscout.eval.servers.measure import HIGHER, LOWER, value_of
from toolscout.eval.servers.plots import servers_plot
from toolscout.records import JsonObject

_HEADS = {
    "right": "right", "success_rate": "success", "health": "health", "quality": "texts", "tools": "tools",
    "parameters": "parameters", "popularity": "popularity", "seconds": "seconds", "tokens": "tokens",
}  # fmt: skip
_SHARES = frozenset({"right", "success_rate", "health", "quality"})
SHOWN = 30


def servers_tables(result: JsonObject, shown: int | None = SHOWN) -> list[Table]:
    """A table for each group, of the first ``shown``; the best of a column has a star."""
    n, groups = result["n"], result["groups"]
    head = [
        ["servers / tools", f"{n['servers']:,} / {n['tools']:,}"],
        ["groups / servers in them", f"{n['groups']:,} / {n['grouped']:,}"],
        ["calls behind success, health and seconds", f"{result['calls']:,}"],
    ]
    tables = [Table("Servers that do the same", ["", "value"], head)]
    tables += [_group(group) for group in groups[:shown]]
    if shown is not None and len(groups) > shown:
        tables.append(Table(f"{len(groups) - shown} more groups are in --json and --report", ["", ""], []))
    return tables


def servers_report(result: JsonObject, folder: Path) -> Path:
    """Write ``report.html``, ``result.json``, ``rows.jsonl`` (a line a server), the plot; returns the page's path."""
    parts = [plot_part("The largest groups", result, folder / "servers.png", servers_plot)]
    for group, table in zip([None, *result["groups"]], servers_tables(result, None), strict=True):
        parts.append(table.html())
        if group is not None and group["pairs"]:
            parts.append(_pairs(group["pairs"]).html().replace("h2>", "h3>"))
    rows = [{"group": group["name"], **row} for group in result["groups"] for row in group["servers"]]
    said = (
        "A star marks the best of a column. Right: judged requests that came out right. Success: calls that went well. "
        "Texts: how well tools and parameters are described."
    )
    notes = [*made_with(result), *result["notes"], *([said] if result["groups"] else [])]
    return _write_folder(folder, "Servers", notes, parts, result, rows)


def _group(group: JsonObject) -> Table:
    def cell(row: JsonObject, key: str) -> str:
        value = value_of(row, key)
        if value is None:
            return "-"
        text = share_text(value) if key in _SHARES else f"{value:.2f}" if key == "seconds" else f"{value:,.0f}"
        return f"{text} *" if row["server_id"] in group["best"][key] else text

    keys = [key for key in _HEADS if key in (*HIGHER, *LOWER)]
    lines = [[row["server_id"], str(row["calls"]), *(cell(row, key) for key in keys)] for row in group["servers"]]
    return Table(group["name"], ["", "calls", *(_HEADS[key] for key in keys)], lines)


def _pairs(pairs: Sequence[JsonObject]) -> Table:
    lines = [
        [" / ".join(p["servers"]), f"{p['overlap']:.2f}", "\n".join(f"{a} ~ {b} {c:.2f}" for a, b, c in p["tools"][:8])]
        for p in pairs[:SHOWN]
    ]
    return Table("Tools in common", ["servers", "overlap", "nearest tools"], lines)
