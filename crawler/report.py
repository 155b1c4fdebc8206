"""The crawl's report: counts by source, failure classes, seconds and megabytes a server; JSON, and HTML with charts."""

from __future__ import annotations

import html
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from toolscout.crawler.agent.costs import Costs
from toolscout.crawler.export import entities
from toolscout.crawler.records import now
from toolscout.crawler.state import State
from toolscout.files import replace_file, write_json
from toolscout.records import JsonObject

_EXAMPLES = 5
_CAUSES = 40


def report(state: State, known: Sequence[str] = ()) -> JsonObject:
    """The report as one JSON object.

    Args:
        known: server ids from elsewhere; how many of the crawled servers are not among them is counted.
    """
    sources = {
        row["source"]: row
        for row in state.rows(
            "SELECT l.source, count(*) AS listed, sum(e.verdict IN ('server', 'unknown')) AS candidates, "
            "count(r.server_id) AS tried, coalesce(sum(r.ok AND r.tools > 0), 0) AS with_tools, "
            "coalesce(sum(CASE WHEN r.ok THEN r.tools END), 0) AS tools, coalesce(sum(r.needs_key), 0) AS needs_key, "
            "coalesce(sum(e.gone IS NOT NULL), 0) AS gone "
            "FROM listed l JOIN entry e USING (server_id) LEFT JOIN result r USING (server_id) GROUP BY l.source"
        )
    }
    for row in sources.values():
        row["success"] = _share(row["with_tools"], row["tried"])
    registries = {}
    for row in state.rows(
        "SELECT e.registry, count(*) AS tried, sum(r.ok AND r.tools > 0) AS with_tools, sum(r.needs_key) AS needs_key, "
        "sum(r.needs_arguments) AS needs_arguments, sum(r.pinned IS NOT NULL AND r.ok) AS date_pinned, "
        "sum(r.noise > 0) AS noisy, sum(r.era = 'modern') AS modern "
        "FROM result r JOIN entry e USING (server_id) WHERE r.install_seconds IS NOT NULL GROUP BY e.registry"
    ):
        registry = row.pop("registry")
        registries[registry] = {k: v or 0 for k, v in row.items()} | {
            "success": _share(row["with_tools"] or 0, row["tried"]),
            "failures": _failures(state, registry),
            **_costs(state, registry),
        }
    kept = list(entities(state))
    tools = [row["tools"] for row in state.rows("SELECT tools FROM result WHERE ok AND tools > 0")]
    runs = state.rows("SELECT * FROM run ORDER BY id")
    seconds = sum(run["seconds"] for run in runs)
    deployed = state.rows("SELECT count(*) AS n, sum(ok AND tools > 0) AS ok FROM result WHERE run IS NOT NULL")[0]
    known_ids = set(known)
    return {
        "made": now(),
        "servers": len(tools),
        "entities": len(kept),
        "copies": sum(len(copies) for _, copies in kept),
        "new_servers": sum(s.server_id not in known_ids for s, _ in kept) if known_ids else None,
        "tools": sum(tools),
        "tools_per_server": _spread(tools),
        "verdicts": {r["verdict"]: r["n"] for r in state.rows("SELECT verdict, count(*) AS n FROM entry GROUP BY 1")},
        "sources": sources,
        "registries": registries,
        "causes": state.rows(
            "SELECT failure, cause, count(*) AS n FROM result WHERE NOT ok GROUP BY 1, 2 ORDER BY n DESC LIMIT ?",
            (_CAUSES,),
        ),
        "examples": _examples(state),
        "history": {
            "changed_servers": state.rows(
                "SELECT count(DISTINCT server_id) AS n FROM history WHERE changed NOT IN ('[]') OR added NOT IN ('[]') "
                "OR removed NOT IN ('[]')"
            )[0]["n"],
            "changed_tools": state.rows("SELECT count(*) AS n FROM tool WHERE changed_at IS NOT NULL")[0]["n"],
            "unavailable": state.rows("SELECT count(*) AS n FROM entry WHERE gone IS NOT NULL")[0]["n"],
        },
        "marketplaces": Costs(servers=state.costs()).summary(),
        "runs": runs,
        "seconds": round(seconds, 1),
        "tried_per_hour": round((deployed["n"] or 0) / seconds * 3600, 1) if seconds else None,
        "servers_with_tools_per_hour": round((deployed["ok"] or 0) / seconds * 3600, 1) if seconds else None,
        "problems": state.rows("SELECT source, count(*) AS n FROM problem GROUP BY 1"),
    }


def write_report(state: State, folder: Path, known: Sequence[str] = ()) -> JsonObject:
    """Write ``crawl.json`` and ``crawl.html`` into a folder; gives the report. Raises StorageError."""
    made = report(state, known)
    write_json(folder / "crawl.json", made)
    replace_file(folder / "crawl.html", _page(made))
    return made


def _failures(state: State, registry: str) -> dict[str, int]:
    rows = state.rows(
        "SELECT r.failure, count(*) AS n FROM result r JOIN entry e USING (server_id) "
        "WHERE NOT r.ok AND e.registry = ? GROUP BY 1 ORDER BY n DESC",
        (registry,),
    )
    return {row["failure"]: row["n"] for row in rows}


def _costs(state: State, registry: str) -> dict[str, Any]:
    rows = state.rows(
        "SELECT r.install_seconds AS install, r.run_seconds AS run, r.bytes, r.peak FROM result r "
        "JOIN entry e USING (server_id) WHERE e.registry = ? AND r.install_seconds IS NOT NULL",
        (registry,),
    )
    mib = 2**20
    return {
        "seconds": _spread([r["install"] + r["run"] for r in rows]),
        "install_seconds": _spread([r["install"] for r in rows]),
        "run_seconds": _spread([r["run"] for r in rows]),
        "installed_mb": _spread([r["bytes"] / mib for r in rows if r["bytes"]]),
        "memory_mb": _spread([r["peak"] / mib for r in rows if r["peak"]]),
    }


def _examples(state: State) -> dict[str, list[JsonObject]]:
    """Some failures of each class, with their evidence."""
    found: dict[str, list[JsonObject]] = {}
    rows = state.rows("SELECT server_id, failure, cause, evidence FROM result WHERE NOT ok ORDER BY failure, server_id")
    for row in rows:
        examples = found.setdefault(row.pop("failure"), [])
        if len(examples) < _EXAMPLES:
            examples.append({**row, "evidence": (row["evidence"] or "")[:400]})
    return found


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _spread(values: Sequence[float]) -> JsonObject | None:
    """Median, mean, 90th percentile and maximum."""
    if not values:
        return None
    ordered = sorted(values)
    return {
        "n": len(ordered),
        "median": round(statistics.median(ordered), 2),
        "mean": round(statistics.fmean(ordered), 2),
        "p90": round(ordered[min(int(len(ordered) * 0.9), len(ordered) - 1)], 2),
        "max": round(ordered[-1], 2),
    }


_STYLE = """
:root{--ink:#1c2430;--soft:#667085;--line:#d9dee7;--bar:#3d6fd6;--bad:#d0694a;--back:#fff}
@media (prefers-color-scheme:dark){
:root{--ink:#e7eaf0;--soft:#98a2b3;--line:#333b48;--bar:#6f9bf2;--bad:#e58a6e;--back:#14181f}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:2rem auto;max-width:60rem}
body{padding:0 1rem}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}
td,th{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:right;font-variant-numeric:tabular-nums}
td:first-child,th:first-child{text-align:left}th{color:var(--soft);font-weight:500}
.figures{display:flex;flex-wrap:wrap;gap:2rem}.figures b{display:block;font-size:1.6rem}.figures span{color:var(--soft)}
svg{width:100%;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .n{fill:var(--soft)}
.bar{fill:var(--bar)}.bad{fill:var(--bad)}pre{white-space:pre-wrap;font-size:12px;color:var(--soft);margin:.2rem 0 1rem}
.wide{overflow-x:auto}
"""


def _page(made: Mapping[str, Any]) -> str:
    figures = [
        (f"{made['servers']:,}", "servers with tools"),
        (f"{made['entities']:,}", "after merging copies"),
        (f"{made['tools']:,}", "tools"),
        (f"{made['servers_with_tools_per_hour'] or 0:,.0f}", "servers with tools an hour"),
    ]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Crawl report</title><style>{_STYLE}</style><h1>Crawl report</h1><p>{_text(made['made'])}</p>",
        "<div class=figures>"
        + "".join(f"<div><b>{_text(n)}</b><span>{_text(t)}</span></div>" for n, t in figures)
        + "</div>",
        "<h2>Servers with tools by source</h2>",
        _bars([(name, row["with_tools"]) for name, row in made["sources"].items()]),
        _table(
            ["source", "listed", "candidates", "tried", "with tools", "success", "tools", "need a key", "gone"],
            [
                [
                    *(name, r["listed"], r["candidates"], r["tried"], r["with_tools"], _percent(r["success"])),
                    *(r["tools"], r["needs_key"], r["gone"]),
                ]
                for name, r in made["sources"].items()
            ],
        ),
    ]
    for registry, row in made["registries"].items():
        title = _text(registry)
        parts.append(f"<h2>Why {title} packages gave no tools</h2>")
        parts.append(_bars([(k.replace("_", " "), v) for k, v in row["failures"].items()], kind="bad", of=row["tried"]))
    spreads = [
        [f"{registry}: {label}", *(row[key][n] for n in ("median", "mean", "p90", "max"))]
        for registry, row in made["registries"].items()
        for key, label in (
            ("seconds", "seconds"),
            ("install_seconds", "of them to install"),
            ("installed_mb", "MB installed"),
            ("memory_mb", "MB of memory"),
        )
        if row[key]
    ]
    parts += ["<h2>What one server takes</h2>", _table(["", "median", "mean", "90 %", "maximum"], spreads)]
    if made["marketplaces"]:
        parts += [
            "<h2>What reading a server's page took</h2>",
            _table(
                ["marketplace", "pages", "servers", "tokens in", "tokens out", "seconds", "price"],
                [
                    [
                        *(r["marketplace"], r["pages_read"], r["servers"], r["prompt_tokens_per_server"]),
                        *(r["completion_tokens_per_server"], r["seconds_per_server"], r["price_per_server"]),
                    ]
                    for r in made["marketplaces"]
                ],
            ),
        ]
    parts += ["<h2>Finer causes</h2>"]
    parts += [_table(["class", "cause", "packages"], [[c["failure"], c["cause"], c["n"]] for c in made["causes"]])]
    parts += ["<h2>Evidence</h2>"]
    for failure, examples in made["examples"].items():
        parts.append(f"<h3>{_text(failure.replace('_', ' '))}</h3>")
        parts += [
            f"<b>{_text(e['server_id'])}</b> {_text(e['cause'])}<pre>{_text(e['evidence'])}</pre>" for e in examples
        ]
    return "\n".join(parts) + "</html>\n"


def _bars(values: Sequence[tuple[str, int]], *, kind: str = "bar", of: int = 0) -> str:
    """Horizontal bars with their numbers, as SVG."""
    if not values:
        return "<p>None.</p>"
    most = max(value for _, value in values) or 1
    rows = []
    for number, (label, value) in enumerate(values):
        y, width = number * 24, 460 * value / most
        share = f" ({value / of:.0%})" if of else ""
        rows.append(
            f"<text x=165 y={y + 16} text-anchor=end>{_text(label)}</text>"
            f"<rect class={kind} x=175 y={y + 4} width={max(width, 1):.1f} height=16 rx=2 />"
            f"<text class=n x={185 + width:.1f} y={y + 16}>{value:,}{share}</text>"
        )
    described = _text(", ".join(f"{label} {value}" for label, value in values))
    return f"<svg viewBox='0 0 740 {len(values) * 24 + 4}' role=img aria-label='{described}'>{''.join(rows)}</svg>"


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{_text(h)}</th>" for h in header)
    body = "".join("<tr>" + "".join(f"<td>{_cell(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<div class=wide><table><tr>{head}</tr>{body}</table></div>"


def _cell(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int | float) else _text(value)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _text(value: Any) -> str:
    """Foreign text, harmless in a page."""
    return html.escape(str(value if value is not None else ""), quote=True)
