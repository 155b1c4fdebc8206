"""The crawl's report: counts by source, failure classes, seconds and megabytes a server; JSON, and HTML with charts."""

from __future__ import annotations

import re
import statistics
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from toolscout.crawler.agent.costs import Costs
from toolscout.crawler.export import Facts, entities
from toolscout.crawler.records import now
from toolscout.crawler.report_page import page
from toolscout.crawler.state import State
from toolscout.files import replace_file, write_json
from toolscout.index.guard.entry import examined
from toolscout.records import JsonObject, Review, Server

_EXAMPLES = 5
_CAUSES = 40
_SCANNED = 150
"""Servers whose tools are scanned for the report: all of them would take longer than the rest of it."""
_POINTS = 120
_SECONDS = (1, 2, 3, 5, 8, 12, 20, 40)
_MEBIBYTES = (2, 5, 10, 20, 50, 100, 200, 500)
_TOOLS = (2, 3, 5, 8, 12, 20, 40, 80)
_INSTALLATION = re.compile(r"(?:/[\w.@+-]+)*/installs(?:/[\w.-]*\d[\w.-]*)?(?=/)")
_FOLDERS = re.compile(r"(?:/[\w.@+-]+)+/(?=(?:cache|bytecode|trash|config)/)")


def report(state: State, known: Sequence[str] = (), facts: Facts | None = None) -> JsonObject:
    """The report as one JSON object.

    Args:
        known: server ids from elsewhere; how many of the crawled servers are not among them, nor any of their copies,
            is counted.
        facts: what enrichment knows of servers, by id; without it only stated categories are counted.
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
    traits = state.rows(
        "SELECT coalesce(sum(needs_key), 0) AS needs_key, coalesce(sum(needs_arguments), 0) AS needs_arguments, "
        "coalesce(sum(pinned IS NOT NULL), 0) AS date_pinned, coalesce(sum(noise > 0), 0) AS noisy, "
        "coalesce(sum(odd > 0), 0) AS odd, coalesce(sum(era = 'modern'), 0) AS modern, "
        "coalesce(sum(era = 'legacy'), 0) AS legacy FROM result WHERE ok AND tools > 0"
    )[0]
    by_run = {
        row["run"]: row
        for row in state.rows("SELECT run, count(*) AS tried, sum(ok AND tools > 0) AS ok FROM result GROUP BY run")
    }
    for run in runs:
        done = by_run.get(run["id"], {"tried": 0, "ok": 0})
        run["tried"], run["with_tools"] = done["tried"], done["ok"] or 0
        run["rate"] = round(run["with_tools"] / run["seconds"] * 3600, 1) if run["seconds"] else None
    return {
        "made": now(),
        "servers": len(tools),
        "entities": len(kept),
        "copies": sum(len(copies) for _, copies in kept),
        "new_servers": sum(known_ids.isdisjoint([s.server_id, *copies]) for s, copies in kept) if known_ids else None,
        "known": len(known_ids) if known_ids else None,
        "tried": sum(row["tried"] for row in registries.values()),
        "waiting": dict(Counter(str(todo.server.install.registry) for todo in state.todo())),
        "timeline": _timeline(state),
        "traits": traits,
        "tools_histogram": _bins(tools, _TOOLS, whole=True),
        "categories": _categories(kept, facts or {}),
        "licences": dict(Counter(s.license or "none stated" for s, _ in kept)),
        "findings": _findings(state, [s for s, _ in kept]),
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
        "problems": [
            row | {"texts": [_neutral(r["text"]) for r in state.rows(_PROBLEMS, (row["source"], _EXAMPLES))]}
            for row in state.rows("SELECT source, count(*) AS n FROM problem GROUP BY 1 ORDER BY n DESC")
        ],
    }


_PROBLEMS = "SELECT DISTINCT text FROM problem WHERE source = ? ORDER BY length(text), text LIMIT ?"


def write_report(state: State, folder: Path, known: Sequence[str] = (), facts: Facts | None = None) -> JsonObject:
    """Write ``crawl.json`` and ``crawl.html`` into a folder; gives the report. Raises StorageError."""
    made = report(state, known, facts)
    write_json(folder / "crawl.json", made)
    replace_file(folder / "crawl.html", page(made))
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
        "histograms": {
            "seconds": _bins([r["install"] + r["run"] for r in rows], _SECONDS),
            "installed_mb": _bins([r["bytes"] / mib for r in rows if r["bytes"]], _MEBIBYTES),
            "memory_mb": _bins([r["peak"] / mib for r in rows if r["peak"]], _MEBIBYTES),
        },
    }


def _bins(values: Sequence[float], edges: Sequence[int], *, whole: bool = False) -> list[tuple[str, int]]:
    """How many values are in each range: below the first edge, between each two, from the last on."""
    if not values:
        return []
    labels = [f"< {edges[0]}", *(_range(a, b - whole) for a, b in pairwise(edges)), f"≥ {edges[-1]}"]
    counts = Counter(sum(value >= edge for edge in edges) for value in values)
    return [(label, counts[number]) for number, label in enumerate(labels)]


def _range(first: int, last: int) -> str:
    return f"{first}–{last}" if last > first else str(first)


def _timeline(state: State) -> list[JsonObject]:
    """How many servers had tools by when: hours since the first deployment."""
    rows = state.rows("SELECT checked_at, ok AND tools > 0 AS good FROM result WHERE run IS NOT NULL ORDER BY 1")
    if not rows:
        return []
    begin = datetime.fromisoformat(rows[0]["checked_at"])
    points, good, every = [], 0, max(len(rows) // _POINTS, 1)
    for number, row in enumerate(rows, 1):
        good += row["good"] or 0
        if number % every == 0 or number == len(rows):
            hours = (datetime.fromisoformat(row["checked_at"]) - begin).total_seconds() / 3600
            points.append({"hours": round(hours, 4), "tried": number, "with_tools": good})
    return points


def _categories(kept: Sequence[tuple[Server, list[str]]], facts: Facts) -> dict[str, int]:
    found = Counter(str(facts.get(s.server_id, {}).get("category") or s.category or "") for s, _ in kept)
    found.pop("", None)
    return dict(found)


def _findings(state: State, servers: Sequence[Server]) -> JsonObject:
    """What the scanner says of a fair sample of the servers."""
    sample = sorted(servers, key=lambda server: _lot(server.server_id))[:_SCANNED]
    tools = [tool for server in sample for tool in examined(server, state.tools(server.server_id))]
    codes = Counter(code for tool in tools for code in {str(f["code"]) for f in tool.findings})
    return {
        "servers": len(sample),
        "tools": len(tools),
        "with_findings": sum(bool(tool.findings) for tool in tools),
        "pending": sum(tool.review is Review.PENDING for tool in tools),
        "codes": dict(codes),
    }


def _lot(server_id: str) -> int:
    """A draw that names have no say in, the same every time."""
    return zlib.crc32(server_id.encode())


def _neutral(said: str) -> str:
    """Text without this machine's folders."""
    text = _INSTALLATION.sub("<installation>", said)
    for folder in (sys.prefix, str(Path.home())):
        if len(folder) > 1:
            text = text.replace(f"{folder}/", "<here>/")
    return _FOLDERS.sub("<work>/", text)


def _examples(state: State) -> dict[str, list[JsonObject]]:
    """Some failures of each class, with their evidence: a fair sample, whatever they are called."""
    found: dict[str, list[JsonObject]] = {}
    rows = state.rows("SELECT server_id, failure, cause, evidence FROM result WHERE NOT ok")
    rows.sort(key=lambda row: (row["failure"], _lot(row["server_id"])))
    for row in rows:
        examples = found.setdefault(row.pop("failure"), [])
        if len(examples) < _EXAMPLES:
            examples.append({**row, "evidence": _neutral(row["evidence"] or "")[:400]})
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
