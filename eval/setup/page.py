"""The result of ``eval setup`` as one page to share: no network, no script, everything foreign escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from toolscout.eval.provenance import origin_lines, with_origin, write_result
from toolscout.eval.setup.text import clean, headline, names_of, never_says, pair_says, percent, short_id
from toolscout.eval.setup.verdict import CHANGES, LETTERS, WEIGHTS
from toolscout.files import replace_file
from toolscout.records import JsonObject

PAGE = "report.html"
RESULT = "result.json"

_ROWS = 30
"""Rows of a table that are shown at once, and, folded away, ten times as many; the JSON has all."""

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

STYLE = """
:root{--ink:#1c2430;--soft:#566173;--line:#d9dee7;--back:#fff;--box:#f5f7fa;--fill:#3d6fd6;
--A:#1f8a5b;--B:#5b8a1f;--C:#a67c00;--D:#c2660d;--E:#c4372f;color-scheme:light dark}
@media (prefers-color-scheme:dark){:root{--ink:#e7eaf0;--soft:#a9b4c5;--line:#333b48;--back:#14181f;--box:#1b212b;
--fill:#6f9bf2;--A:#5fcf9c;--B:#a3d15f;--C:#dcc14a;--D:#f5a45c;--E:#f08079}}
*{box-sizing:border-box}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--back);margin:2rem auto;max-width:72rem;
padding:0 1rem}
h1{font-size:1.6rem;margin:0 0 .6rem}h2{font-size:1.2rem;margin:2.4rem 0 .4rem}
.soft,caption,thead th{color:var(--soft)}caption{text-align:left}
.box{background:var(--box);border-left:4px solid var(--fill);padding:.6rem .9rem;
margin:1rem 0}
.figures{display:flex;flex-wrap:wrap;gap:1rem 2.5rem;padding:0;margin:1.2rem 0;list-style:none}
.figures b{display:block;font-size:1.8rem;line-height:1.2;font-variant-numeric:tabular-nums}
.figures span{color:var(--soft)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;margin:.4rem 0 1rem}
td,th{padding:.3rem .6rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top;font-weight:400;
overflow-wrap:anywhere}
thead th{white-space:nowrap}.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}
td{min-width:4rem}.pairs td:first-child{min-width:16rem}bdi{unicode-bidi:isolate}
.mark{font-weight:700;font-style:normal;white-space:nowrap}.A{color:var(--A)}.B{color:var(--B)}.C{color:var(--C)}.D{color:var(--D)}.E{color:var(--E)}
.bar{display:block;height:.7em;min-width:1px;border-radius:2px;background:var(--fill);margin-top:.35em}
.bar.two{background:var(--A)}.bars td:nth-child(3){width:45%}
ol li{margin:.5rem 0}summary{cursor:pointer;color:var(--soft)}footer{margin:3rem 0 1rem;color:var(--soft)}
"""


def setup_report(result: JsonObject, folder: Path) -> Path:
    """Write ``report.html`` and ``result.json``; returns the page's path."""
    replace_file(folder / PAGE, render(result))
    write_result(folder / RESULT, result)
    return folder / PAGE


def render(result: JsonObject) -> str:
    """The page, as HTML."""
    parts = [
        "<!doctype html><html lang=en><head><meta charset=utf-8>",
        f'<meta http-equiv=Content-Security-Policy content="{_POLICY}">',
        "<meta name=viewport content='width=device-width, initial-scale=1'>",
        f"<title>Tool setup report</title><style>{STYLE}</style></head><body><h1>Tool setup report</h1>",
        *_top(result),
    ]
    if result["n"]["searchable"]:
        parts += [
            *_changes(result),
            *_servers(result),
            *_context(result),
            *_confusable(result),
            *_described(result),
            *_lost(result),
        ]
    parts += [*_held(result), *_how(result), "</body></html>\n"]
    return "".join(parts)


def _text(value: object) -> str:
    """Foreign text: cleaned, escaped, and kept from turning the direction of what follows."""
    return f"<bdi>{escape(clean(value))}</bdi>"


def _top(result: JsonObject) -> Iterable[str]:
    n, whole, cost = result["n"], result["verdict"], result["context"]
    if whole is not None:
        figures = [
            (f"<i class='mark {whole['letter']}'>{whole['letter']}</i>", f"{whole['score']} of 100"),
            (str(n["servers"]), "servers"),
            (str(n["searchable"]), "tools" if n["searchable"] == n["tools"] else f"of {n['tools']} tools can be found"),
            (f"{cost['all_definitions']:,}", "tokens of all definitions"),
            (f"{cost['with_toolscout']:,}", "tokens with Toolscout"),
        ]
        yield "<ul class=figures>" + "".join(f"<li><b>{b}</b><span>{s}</span></li>" for b, s in figures) + "</ul>"
    for line in headline(result):
        yield f"<p class=box>{escape(line)}</p>"
    for note in result["notes"]:
        yield f"<p class=soft>{_text(note)}</p>"


def _changes(result: JsonObject) -> Iterable[str]:
    found = result["changes"]
    if not found:
        yield "<h2>What would help most</h2><p>Nothing that the rules see.</p>"
        return
    yield f"<h2>The {min(CHANGES, len(found))} changes that would help most</h2><ol>"
    for change in found[:CHANGES]:
        upto = "up to " if change["kind"] == "tell_apart" else ""
        saved = f", {change['tokens']:,} tokens less" if change["tokens"] else ""
        yield f"<li>{_text(change['text'])} <span class=soft>({upto}{change['points']:+.1f} points{saved})</span></li>"
    yield "</ol><p class=soft>Points of the mark above, each change counted alone. Descriptions are the servers' own: "
    yield "what is said of them is for those who maintain them.</p>"


def _servers(result: JsonObject) -> Iterable[str]:
    yield "<h2>Servers</h2>"
    rows = []
    for row in result["verdicts"]:
        mark = (
            "-"
            if row["letter"] is None
            else f"<span class='mark {row['letter']}'>{row['letter']} {row['score']}</span>"
        )
        held = f" <span class=soft>+ {row['held_back']} held back</span>" if row["held_back"] else ""
        rows.append(
            [
                _text(row["name"]),
                mark,
                f"{row['tools']}{held}",
                *(percent(row[key]) for key in WEIGHTS),
                str(row["confusable"]),
                str(row["badly_described"]),
            ]
        )
    head = ["server", "mark", "tools", *WEIGHTS, "confusable", "badly described"]
    yield _table(head, rows, numbers=head[2:], note="Worst first")


def _context(result: JsonObject) -> Iterable[str]:
    cost = result["context"]
    yield "<h2>Context</h2>"
    most = max(cost["all_definitions"], cost["with_toolscout"])
    rows = [
        [_text(r["name"]), str(r["tools"]), _bar(r["tokens"], most), f"{r['tokens']:,}", percent(r["share"]),
         f"{_text(r['largest']['tool_id'].removeprefix(r['server_id'] + '/'))} ({r['largest']['tokens']:,})"]
        for r in cost["by_server"]
    ]  # fmt: skip
    rows.append(["all of them", str(result["n"]["searchable"]), _bar(cost["all_definitions"], most),
                 f"{cost['all_definitions']:,}", "100 %", ""])  # fmt: skip
    answer = f"{cost['toolscout_tools']:,} + {cost['find_answer'] or 0:,} for an answer of five tools"
    rows.append(["with Toolscout", "3", _bar(cost["with_toolscout"], most, "two"), f"{cost['with_toolscout']:,}", "",
                 answer])  # fmt: skip
    yield _table(["server", "tools", "", "tokens", "share", "largest tool"], rows, numbers=["tools", "tokens", "share"],
                 note=f"Name, description and input schema of every tool, counted with {result['tokenizer']}",
                 kind="bars")  # fmt: skip


def _bar(value: int, most: int, kind: str = "") -> str:
    return f"<span class='bar {kind}' style='width:{100 * value / max(1, most):.1f}%'></span>"


def _confusable(result: JsonObject) -> Iterable[str]:
    names, found = names_of(result), result["confusable"]
    yield "<h2>Confusable tools</h2>"
    if not found["pairs"]:
        yield "<p>None: each tool comes first for its own words.</p>"
        return
    copies = sum(p["copy"] is not None for p in found["pairs"])
    across = sum(p["scope"] == "across" for p in found["pairs"])
    yield (
        f"<p>{len(found['pairs'])} pairs, {across} of them across servers; {copies} are copies of one another. "
        "'Told apart' is the share of the two tools' own requests that the right one of the two wins.</p>"
    )
    rows = []
    for pair in found["pairs"]:
        example = pair["example"]
        said = (
            f"{_text(example['request'])} <span class=soft>is of {_text(short_id(example['of'], names))}, and "
            f"{_text(short_id(example['first'], names))} comes first</span>"
            if example
            else ""
        )
        tools = "<br>".join(_text(short_id(t, names)) for t in pair["tools"])
        rows.append([tools, escape(pair_says(pair)), percent(pair["told_apart"]), f"{pair['cosine']:.2f}",
                     f"{pair['words']:.2f}", said])  # fmt: skip
    head = ["tools", "how", "told apart", "cosine", "words", "for example"]
    yield _table(head, rows, numbers=["told apart", "cosine", "words"], kind="pairs")
    if found["groups"]:
        yield "<h3>Groups</h3><ul>"
        for group in found["groups"][:_ROWS]:
            yield f"<li>{len(group)}: {', '.join(_text(short_id(t, names)) for t in group)}</li>"
        yield "</ul>"


def _described(result: JsonObject) -> Iterable[str]:
    names, found = names_of(result), result["descriptions"]["findings"]
    yield "<h2>Badly described tools</h2>"
    if not found:
        yield "<p>None: no rule is broken.</p>"
        return
    by_rule: dict[str, list[JsonObject]] = {}
    for finding in found:
        by_rule.setdefault(finding["rule"], []).append(finding)
    for mine in sorted(by_rule.values(), key=lambda some: -len(some)):
        says, instead = escape(mine[0]["says"]), escape(mine[0]["instead"])
        yield f"<p><b>{says}</b> Broken by {len(mine)}. Instead: {instead}</p>"
        rows = [[_text(short_id(f["tool_id"], names)), _text(f["detail"])] for f in mine]
        yield f"<details><summary>Which ones</summary>{_table(['tool', 'what was seen'], rows)}</details>"


def _lost(result: JsonObject) -> Iterable[str]:
    names, lost = names_of(result), result["not_found"]
    yield "<h2>Tools that are not found</h2>"
    if lost:
        yield "<p>Asked for with the words of their own name and first sentence, these are not among the first five "
        yield "or nothing is offered:</p>"
        rows = []
        for miss in lost:
            place = "beyond 20" if miss["rank"] is None else str(miss["rank"])
            place += " (nothing was offered)" if miss["refused"] else ""
            first = "<br>".join(_text(short_id(t, names)) for t in miss["first"])
            rows.append([_text(short_id(miss["tool_id"], names)), _text(miss["request"]), place, first])
        yield _table(["tool", "asked", "place", "before it"], rows)
    else:
        yield "<p>None: each is among the first five for the words of its own name and first sentence.</p>"
    yield f"<p>{escape(never_says(result))}</p>"
    never = result["never_reached"]["tools"]
    if never:
        items = ", ".join(_text(short_id(t, names)) for t in never[: 10 * _ROWS])
        yield f"<details><summary>Which ones</summary><p>{items}</p></details>"


def _held(result: JsonObject) -> Iterable[str]:
    held = result["held_back"]
    if not held:
        return
    names = names_of(result)
    yield "<h2>Held back</h2><p>The guard keeps these from being found until a person has looked: toolscout review.</p>"
    rows = [[_text(short_id(h["tool_id"], names)), h["review"], _text(", ".join(h["findings"]))] for h in held]
    yield _table(["tool", "review", "what was found"], rows)


def _how(result: JsonObject) -> Iterable[str]:
    asked = ", ".join(f"{n} {kind}" for kind, n in result["n"]["requests"].items()) or "none"
    weights = ", ".join(f"{100 * weight:g} % {name}" for name, weight in WEIGHTS.items())
    letters = ", ".join(f"{mark} from {least}" for least, mark in LETTERS)
    yield (
        "<footer><h2>How this was measured</h2>"
        f"<p>Each tool was asked for with requests of its own ({escape(asked)}) through the search of find_tools over "
        f"exactly these servers. Mark: {weights}; {letters}, else E. found: the right tool is first (1) or among the "
        "first five (0.5). distinct: how well the tool and the one most like it are told apart, 0 for a copy. "
        "described: what the rules leave. The marks judge how tools are described, not how well they work, and a "
        "tool's own words are kinder than people are. Your logged requests count, but are not on this page.</p>"
        "<p>Made by <code>toolscout eval setup</code>; result.json beside this page has every row.</p>"
    )
    of = with_origin(result).get("of", {})
    yield "".join(f"<p>{_text(line)}</p>" for line in origin_lines(of)) + "</footer>"


def _table(
    head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: Sequence[str] = (), note: str = "", kind: str = ""
) -> str:
    """Cells are HTML. Rows beyond the first are folded away, and beyond ten times as many left to the JSON."""
    caption = f"<caption>{escape(note)}</caption>" if note else ""
    top = "".join(f"<th{' class=n' if name in numbers else ''}>{escape(name)}</th>" for name in head)

    def body(some: Sequence[Sequence[str]]) -> str:
        lines = (
            "".join(f"<td{' class=n' if h in numbers else ''}>{c}</td>" for h, c in zip(head, row, strict=True))
            for row in some
        )
        inner = "".join(f"<tr>{line}</tr>" for line in lines)
        return f"<div class=wide><table class='{kind}'>{caption}<thead><tr>{top}</tr></thead>{inner}</table></div>"

    shown = body(rows[:_ROWS])
    more = rows[_ROWS : 10 * _ROWS]
    if more:
        shown += f"<details><summary>{len(more)} more</summary>{body(more)}</details>"
    if len(rows) > 10 * _ROWS:
        shown += f"<p class=soft>{len(rows) - 10 * _ROWS} more are in result.json.</p>"
    return shown
