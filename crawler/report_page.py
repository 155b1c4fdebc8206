"""The crawl's report as a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolscout.crawler.charts import bars, histogram, line, ordered, percent, table, text

_STYLE = """
:root{--ink:#1c2430;--soft:#5c677a;--line:#d9dee7;--bar:#3d6fd6;--bad:#d0694a;--back:#fff;color-scheme:light dark}
@media (prefers-color-scheme:dark){
:root{--ink:#e7eaf0;--soft:#a3aebf;--line:#333b48;--bar:#6f9bf2;--bad:#e58a6e;--back:#14181f}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:2rem auto;max-width:62rem}
body{padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:0}h2{font-size:1.15rem;margin:2.5rem 0 .5rem}h3{font-size:1rem;margin:1.5rem 0 .3rem}
table{border-collapse:collapse;width:100%}td,th{padding:.3rem .6rem;border-bottom:1px solid var(--line)}
td,th{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td:first-child,th:first-child{text-align:left}th{color:var(--soft);font-weight:500}
.words td:nth-child(2),.words th:nth-child(2){text-align:left;white-space:normal;overflow-wrap:anywhere}
.figures{display:flex;flex-wrap:wrap;gap:1rem 2.5rem;margin:1rem 0}
.figures b{display:block;font-size:1.7rem;line-height:1.2}
.figures span,.soft{color:var(--soft)}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(420px,100%),1fr));gap:1rem}
.pair td:first-child{white-space:normal}
svg{width:100%;height:auto;display:block}svg text{fill:var(--ink);font:12px system-ui,sans-serif}
svg .n{fill:var(--soft)}svg .t{font-size:10px}svg .h{font-weight:600}
.bar{fill:var(--bar)}.bad{fill:var(--bad)}.grid{stroke:var(--line)}.line{fill:none;stroke:var(--bar);stroke-width:2}
pre{white-space:pre-wrap;overflow-wrap:anywhere;font-size:12px;color:var(--soft);margin:.2rem 0 1rem}
details{margin:.4rem 0}summary{cursor:pointer}.wide{overflow-x:auto}
"""


def page(made: Mapping[str, Any]) -> str:
    """The report, as one page without anything from elsewhere."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>Crawl report</title><style>{_STYLE}</style><h1>Crawl report</h1>",
        f"<p class=soft>{text(made['made'])}</p>",
        *_headline(made),
        *_sources(made),
        *_time(made),
        *_failures(made),
        *_costs(made),
        *_found(made),
        *_marketplaces(made),
        *_problems(made),
        *_evidence(made),
    ]
    return "\n".join(parts) + "</html>\n"


def _figures(values: list[tuple[str, str]]) -> str:
    return (
        "<div class=figures>"
        + "".join(f"<div><b>{text(n)}</b><span>{text(t)}</span></div>" for n, t in values)
        + "</div>"
    )


def _headline(made: Mapping[str, Any]) -> Iterator[str]:
    figures = [
        (f"{made['servers']:,}", "servers with tools"),
        (f"{made['entities']:,}", f"of them different ({made['copies']:,} copies)"),
        (f"{made['tools']:,}", "tools"),
    ]
    for registry, row in made["registries"].items():
        figures.append(
            (percent(row["with_tools"], row["tried"]), f"of {row['tried']:,} {registry} packages gave tools")
        )
    if made["new_servers"] is not None:
        figures.append((f"{made['new_servers']:,}", f"new against {made['known']:,} known servers"))
    if made["servers_with_tools_per_hour"]:
        figures.append((f"{made['servers_with_tools_per_hour']:,.0f}", "servers with tools an hour"))
    figures.append((f"{sum(made['waiting'].values()):,}", "packages still wait"))
    yield _figures(figures)


def _sources(made: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Sources</h2>"
    if not made["sources"]:
        yield "<p>Nothing was listed.</p>"
        return
    yield table(
        [
            "source",
            "listed",
            "may be servers",
            "tried",
            "with tools",
            "of those tried",
            "tools",
            "need a key",
            "vanished",
        ],
        [
            [
                *(name, r["listed"], r["candidates"], r["tried"], r["with_tools"]),
                *(percent(r["with_tools"], r["tried"]) if r["tried"] else "", r["tools"], r["needs_key"], r["gone"]),
            ]
            for name, r in made["sources"].items()
        ],
    )
    yield "<h3>What names and entries were taken for</h3>"
    yield bars(ordered(made["verdicts"]), of=sum(made["verdicts"].values()))
    yield "<p class=soft>Only servers, and what may be one (unknown), are deployed.</p>"
    if made["waiting"]:
        waiting = ", ".join(f"{text(registry)} {count:,}" for registry, count in made["waiting"].items())
        yield f"<p>Still waiting to be deployed: {waiting}.</p>"


def _time(made: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Over time</h2>"
    points = [(p["hours"], p["with_tools"]) for p in made["timeline"]]
    yield line(points, across="hours since the first deployment", up="servers with tools")
    yield table(
        ["run, began (UTC)", "lasted", "workers", "sandbox", "tried", "with tools", "share", "with tools an hour"],
        [
            [
                *(str(r["started"]).replace("T", " ").rstrip("Z"), _duration(r["seconds"]), r["workers"], r["sandbox"]),
                *(r["tried"], r["with_tools"], percent(r["with_tools"], r["tried"]) if r["tried"] else ""),
                f"{r['rate']:,.0f}" if r["rate"] is not None else "",
            ]
            for r in made["runs"]
        ],
    )
    yield "<p class=soft>What a later run tried again counts for that run.</p>"


def _failures(made: Mapping[str, Any]) -> Iterator[str]:
    registries = {name: row for name, row in made["registries"].items() if row["failures"]}
    yield "<h2>Why packages gave no tools</h2>"
    if not registries:
        yield "<p>All of them did.</p>"
        return
    totals: dict[str, int] = {}
    for row in registries.values():
        for failure, count in row["failures"].items():
            totals[failure] = totals.get(failure, 0) + count
    yield bars([(k.replace("_", " "), n) for k, n in ordered(totals, 20)], kind="bad", of=made["tried"])
    rows = []
    for failure, _ in ordered(totals, 50):
        line_: list[Any] = [failure.replace("_", " ")]
        for row in registries.values():
            count = row["failures"].get(failure, 0)
            line_ += [count, percent(count, row["tried"])]
        rows.append(line_)
    heads = [head for name in registries for head in (f"{name}, packages", f"{name}, of those tried")]
    yield table(["class", *heads], rows)
    yield "<h3>Finer causes</h3><div class=words>"
    causes = [
        [c["failure"].replace("_", " "), c["cause"], c["n"], percent(c["n"], made["tried"])] for c in made["causes"]
    ]
    yield table(["class", "cause", "packages", "of all tried"], causes) + "</div>"


def _costs(made: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>What one package takes</h2>"
    charts = [
        histogram(f"{registry}: {title}", unit, row["histograms"][key])
        for key, title, unit in (
            ("seconds", "time of a package", "seconds, installing included"),
            ("installed_mb", "size on disk", "MiB installed"),
            ("memory_mb", "memory", "MiB at its peak"),
        )
        for registry, row in made["registries"].items()
        if row["histograms"][key]
    ]
    yield f"<div class=pair>{''.join(charts)}</div>"
    spreads = [
        [f"{registry}: {label}", unit, *(row[key][n] for n in ("n", "median", "mean", "p90", "max"))]
        for registry, row in made["registries"].items()
        for key, label, unit in (
            ("seconds", "from start to listing", "s"),
            ("install_seconds", "of it installing", "s"),
            ("run_seconds", "of it running", "s"),
            ("installed_mb", "installed", "MiB"),
            ("memory_mb", "memory", "MiB"),
        )
        if row[key]
    ]
    yield table(["", "unit", "packages", "median", "mean", "90 % are below", "maximum"], spreads)


def _found(made: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>What was found</h2><div class=pair>"
    yield histogram("Tools of a server", "tools", made["tools_histogram"])
    yield "<div>" + table(["servers with tools", "", "share"], _traits(made)) + "</div></div>"
    for title, key in (("Categories", "categories"), ("Licences", "licences")):
        if made[key]:
            yield f"<h3>{title}</h3>" + bars(ordered(made[key]), of=sum(made[key].values()))
    seen = made["findings"]
    yield "<h3>What the scanner says</h3>"
    if seen["servers"]:
        yield (
            f"<p>In a sample of {seen['servers']:,} servers with {seen['tools']:,} tools, {seen['with_findings']:,} "
            f"tools ({percent(seen['with_findings'], seen['tools'])}) have findings; {seen['pending']:,} "
            f"({percent(seen['pending'], seen['tools'])}) are held back until a person has looked.</p>"
        )
        yield bars([(k.replace("_", " "), n) for k, n in ordered(seen["codes"])], kind="bad", of=seen["tools"])
    history = made["history"]
    yield "<h3>Since it was first seen</h3>"
    yield (
        f"<p>{history['changed_servers']:,} servers changed their tools, {history['changed_tools']:,} tools changed "
        f"what they say, {history['unavailable']:,} entries vanished from their listings.</p>"
    )


def _traits(made: Mapping[str, Any]) -> list[list[Any]]:
    names = {
        "needs_key": "needed a dummy key",
        "needs_arguments": "needed a dummy argument",
        "date_pinned": "run with dependencies of their release date",
        "noisy": "print what is no message",
        "odd": "state schemas that are no objects",
        "modern": "speak the stateless revision (2026-07-28)",
        "legacy": "speak the handshake of 2025",
    }
    return [[label, made["traits"][key], percent(made["traits"][key], made["servers"])] for key, label in names.items()]


def _marketplaces(made: Mapping[str, Any]) -> Iterator[str]:
    if not made["marketplaces"]:
        return
    yield "<h2>What reading a server's page took</h2>"
    heads = [
        "marketplace",
        "pages read",
        "servers",
        "tokens in, each",
        "tokens out, each",
        "seconds, each",
        "price, each",
    ]
    rows = [
        [
            *(r["marketplace"], r["pages_read"], r["servers"], r["prompt_tokens_per_server"]),
            *(r["completion_tokens_per_server"], r["seconds_per_server"], r["price_per_server"]),
        ]
        for r in made["marketplaces"]
    ]
    yield table(heads, rows)


def _problems(made: Mapping[str, Any]) -> Iterator[str]:
    if made["problems"]:
        yield "<h2>Entries that could not be read</h2>"
        yield table(["source", "entries"], [[p["source"], p["n"]] for p in made["problems"]])
        for problem in made["problems"]:
            said = "".join(f"<li>{text(t)}</li>" for t in problem["texts"])
            yield f"<details><summary>{text(problem['source'])}: some of them</summary><ul>{said}</ul></details>"


def _evidence(made: Mapping[str, Any]) -> Iterator[str]:
    yield "<h2>Evidence</h2><p class=soft>Some packages of each class, drawn without regard to their names.</p>"
    for failure, examples in made["examples"].items():
        yield f"<details><summary>{text(failure.replace('_', ' '))}</summary>"
        for e in examples:
            yield f"<b>{text(e['server_id'])}</b> {text(e['cause'])}<pre>{text(e['evidence'])}</pre>"
        yield "</details>"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {rest:02} s"
