"""Readable results: tables for the terminal, and a folder with one HTML page and the rows behind it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscout.eval.calls.plots import calls_plot, scaling_plot
from toolscout.eval.calls.rates import KEYS as CALL_KEYS
from toolscout.eval.calls.scaling import curves
from toolscout.eval.charts import plot_part
from toolscout.eval.metrics import RANKING_KEYS
from toolscout.eval.peers.report import NO_PLOT, abouts, failures, peers_table, write_plot
from toolscout.eval.plots import NO_PLOTS, ablation_plot, refusal_plot
from toolscout.eval.provenance import origin_lines, plain, with_origin, write_result
from toolscout.eval.retrieval.extra_tables import (
    Parts,
    ablation_tables,
    language_tables,
    length_tables,
    refusal_tables,
    structured_tables,
)
from toolscout.eval.retrieval.plots import recall_plot
from toolscout.files import replace_file
from toolscout.records import JsonObject

if TYPE_CHECKING:
    from rich.console import RenderableType

    from toolscout.eval.calls.measure import CallsRun
    from toolscout.eval.retrieval.measure import Asked, RetrievalRun

MISSES_SHOWN = 200


class Table:
    """A titled table of texts, shown in the terminal or as HTML."""

    def __init__(self, title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        self.title = title
        self.head = head
        self.rows = list(rows)

    def rich(self) -> RenderableType:
        """For the terminal."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = RichTable(title=self.title, title_justify="left", box=box.SIMPLE_HEAD, title_style="bold")
        for number, name in enumerate(self.head):
            table.add_column(name, justify="left" if number == 0 else "right", no_wrap=number == 0)
        for row in self.rows:
            table.add_row(*(Text(cell) for cell in row))
        return table

    def html(self) -> str:
        """For the report."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.head)
        body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in self.rows)
        title = escape(self.title)
        return f"<h2>{title}</h2><div class=scroll><table><tr>{head}</tr>{body}</table></div>"


def share_text(value: Any) -> str:
    """A fraction for reading; a dash where there is none."""
    return "-" if value is None else f"{value:.3f}"


def _number(value: Any, unit: str = "") -> str:
    return "-" if value is None else f"{value:,.1f}{unit}"


def retrieval_tables(result: JsonObject) -> list[Table]:
    """The tables of one retrieval result."""
    head = ["", "n", "reading", "@1", "@5", "@10", "MRR", "nDCG@10"]

    def lines(name: str, part: Mapping[str, Any]) -> list[list[str]]:
        return [
            [name if reading == "strict" else "", str(part["n"]) if reading == "strict" else "", reading]
            + [share_text(part[reading][key]) for key in RANKING_KEYS]
            for reading in ("strict", "equivalent")
        ]

    def grouped(title: str, parts: Mapping[str, Any]) -> Table:
        return Table(title, head, [line for name, part in parts.items() for line in lines(name, part)])

    tables = [grouped(f"Retrieval over {result['pool']:,} tools", {"all": result})]
    if len(result["by_split"]) > 1:
        tables.append(grouped("By split", result["by_split"]))
    if len(result["by_lang"]) > 1:
        tables.append(grouped("By language", result["by_lang"]))
    abstention = result["abstention"]
    latency, tokens = result["latency_ms"], result["answer_tokens"]
    tables.append(
        _facts(
            "Abstention and cost",
            {
                "AUROC, answerable against not": share_text(abstention["auroc"]),
                "false offers, share of unanswerable": share_text(abstention["false_offer_rate"]),
                "false refusals, share of answerable": share_text(abstention["false_refusal_rate"]),
                "threshold": share_text(abstention["threshold"]),
                "latency, ms, p50 / p95": f"{_number(latency['p50'])} / {_number(latency['p95'])}",
                "answer, tokens, p50 / p95": f"{_number(tokens['p50'])} / {_number(tokens['p95'])}",
                "index built, s": _number(result["index_seconds"]),
                "resident memory, MiB": _number(result["rss_mb"]),
            },
        )
    )
    tables += extra_tables(result)
    if "peers" in result:
        tables.append(Table(*peers_table(result)))
    return tables


def extra_tables(result: JsonObject) -> list[Table]:
    """The tables of what was measured beyond the contract, as far as the result has it."""
    makers: dict[str, Callable[[JsonObject], list[Parts]]] = {
        "refusal": refusal_tables,
        "dynamic_k": length_tables,
        "by_language": language_tables,
        "structured": structured_tables,
        "ablation": ablation_tables,
    }
    return [Table(*parts) for key, make in makers.items() if result.get(key) for parts in make(result[key])]


def calls_tables(result: JsonObject) -> list[Table]:
    """The tables of one calls result."""
    parts = {"all": {"n": result["n"], **result["overall"]}, **result["by_split"]}
    markets = result.get("by_marketplace", {})
    if len(markets) > 1:
        parts |= {f"from {name}": part for name, part in markets.items()}
    crossed = result.get("by_marketplace_split", {})
    more = {
        "By marketplace and split": {
            f"from {market}, {split}": part for market, splits in crossed.items() for split, part in splits.items()
        }
        if len(markets) > 1 and len(result["by_split"]) > 1
        else {},
        "By language": result.get("by_lang", {}) if len(result.get("by_lang", {})) > 1 else {},
    }
    seconds, tokens, abstention = result["seconds"], result["tokens"], result["abstention"]
    first = result.get("first_token_seconds") or {"p50": None, "p95": None}
    title = f"Calls of {result['model'] or 'the default model'}, {result['candidates']} candidates"
    return [
        *([_rates(title, parts)] if result["n"] else []),
        *(_rates(name, groups) for name, groups in more.items() if groups),
        _facts(
            "Abstention and cost" if result["n"] else f"{title}: abstention and cost",
            {
                "requests that no candidate serves": f"{abstention.get('unanswerable', 0):,}",
                "right refusals, share of unanswerable": share_text(abstention["right_refusal_rate"]),
                "false refusals, share of answerable": share_text(abstention["false_refusal_rate"]),
                "seconds a request, p50 / p95": f"{_number(seconds['p50'])} / {_number(seconds['p95'])}",
                "of them to the first token": f"{_number(first['p50'])} / {_number(first['p95'])}",
                "prompt tokens a request": _number(tokens["prompt"]),
                "of them cached": _number(tokens.get("cached")),
                "completion tokens a request": _number(tokens["completion"]),
            },
        ),
    ]


def _rates(title: str, parts: Mapping[str, Any]) -> Table:
    lines = [[name, str(part["n"]), *(share_text(part[key]) for key in CALL_KEYS)] for name, part in parts.items()]
    return Table(title, ["", "n", *CALL_KEYS], lines)


def compare_table(comparison: JsonObject) -> Table:
    """The variants of a comparison, a line each."""
    lines = []
    for name, r in comparison["variants"].items():
        rates = [share_text(r["overall"][key]) for key in CALL_KEYS]
        refusals, seconds = r["abstention"]["right_refusal_rate"], r["seconds"]["p50"]
        lines.append([name, str(r["n"]), *rates, share_text(refusals), _number(seconds)])
    return Table(f"By {comparison['by']}", ["", "n", *CALL_KEYS, "right refusals", "seconds p50"], lines)


def scaling_table(result: JsonObject) -> Table:
    """The points of a scaling curve: AST of all rows and of each split."""
    splits = list(dict.fromkeys(name for p in result["points"] for name in p["by_split"]))
    lines = []
    for point in result["points"]:
        rates = [share_text(point["overall"][key]) for key in CALL_KEYS]
        each = [share_text(point["by_split"].get(name, {}).get("ast")) for name in splits]
        lines.append([f"{point['share']:g}", str(point["n"]), *rates, *each])
    return Table("By share of the training data", ["share", "n", *CALL_KEYS, *(f"ast, {n}" for n in splits)], lines)


def random_table(found: JsonObject) -> Table:
    """What came of random tools asked with random requests."""
    made = found["constraints"]
    return _facts(
        f"{found['n']} random tools, random requests",
        {
            "whole calls offered": str(found["offered"]),
            "of them valid": share_text(found["schema_valid"]),
            "calls that name what is missing": str(found["incomplete"]),
            "no valid arguments came out": str(found["refused"]),
            "crashes": str(len(found["crashed"])),
            "constraints made, failed": f"{made['tools']:,}, {len(made['failed'])}",
            "ms to make one, p50 / p95": f"{_number(made['ms']['p50'])} / {_number(made['ms']['p95'])}",
        },
    )


def _facts(title: str, facts: Mapping[str, str]) -> Table:
    return Table(title, ["", "value"], [[name, value] for name, value in facts.items()])


def retrieval_report(run: RetrievalRun, folder: Path) -> Path:
    """Write ``report.html``, ``result.json``, ``rows.jsonl`` and the plots; returns the page's path."""
    rows: list[dict[str, Any]] = [
        {
            "id": asked.row.id, "query": asked.row.query, "gold": [g.tool_id for g in asked.row.gold],
            "rank": _rank(asked), "probability": round(asked.probability, 4), "no_match": asked.no_match,
            "ms": round(asked.ms, 3), "answer_tokens": asked.answer_tokens, "top": asked.ranked[:10],
        }
        for asked in run.asked
    ]  # fmt: skip
    misses = Table(
        f"Gold tool not among the first five (at most {MISSES_SHOWN} shown)",
        ["request", "gold", "rank", "first three"],
        [
            [row["query"], ", ".join(row["gold"]), str(row["rank"] or "-"), ", ".join(row["top"][:3])]
            for row in rows
            if row["gold"] and not (row["rank"] and row["rank"] <= 5)
        ][:MISSES_SHOWN],
    )
    offers = Table(
        f"Nothing fits, yet tools were offered (at most {MISSES_SHOWN} shown)",
        ["request", "probability", "first three"],
        [
            [row["query"], f"{row['probability']:.2f}", ", ".join(row["top"][:3])]
            for row in rows
            if not row["gold"] and not row["no_match"]
        ][:MISSES_SHOWN],
    )
    result = {**run.result, **run.details}
    parts = [plot_part("Recall by split", result, folder / "recall.png", recall_plot)]
    parts += [table.html() for table in retrieval_tables(result)]
    parts += plots(result, folder)
    if run.misses:
        replace_file(folder / "misses.md", run.misses)
    parts += [table.html() for table in (misses, offers) if table.rows]
    notes = [f"{name}: {plain(value)}" for name, value in run.notes.items()] + run.warnings
    if "peers" in run.result:
        notes += failures(run.result)
        plot = write_plot(run.result, folder)
        about = "".join(f"<p>{escape(line)}</p>" for line in abouts(run.result))
        parts.append(f"<h2>Peers</h2>{plot or escape(NO_PLOT)}{about}")
    return _write_folder(folder, "Retrieval", notes, parts, result, rows)


def calls_report(
    run: CallsRun, folder: Path, extra: Sequence[Table] = (), result: JsonObject | None = None, plot: str | None = None
) -> Path:
    """Write ``report.html``, ``result.json``, ``rows.jsonl`` and the plot; returns the page's path.

    ``plot`` is that of a comparison, drawn before.
    """
    rows = [{"query": run.rows[outcome.id].query, **asdict(outcome)} for outcome in run.outcomes]
    wrong = Table(
        f"Wrong calls (at most {MISSES_SHOWN} shown)",
        ["request", "gold", "made", "right up to"],
        [
            [
                run.rows[o.id].query,
                "\n".join(f"{g.tool_id} {_compact(g.arguments)}" for g in run.rows[o.id].gold),
                "\n".join(f"{c['tool_id']} {_compact(c['arguments'])}" for c in o.calls) or f"none: {o.reason or ''}",
                "param" if o.param else "tool" if o.tool else "nothing",
            ]
            for o in run.outcomes
            if o.gold and not (o.tool if o.ast is None else o.ast)
        ][:MISSES_SHOWN],
    )
    parts = []
    if run.result["n"]:
        parts.append(plot_part("By split and marketplace", run.result, folder / "calls.png", calls_plot))
    parts += [table.html() for table in calls_tables(run.result)]
    parts += [table.html() for table in extra]
    if plot:
        parts.append(plot)
    if wrong.rows:
        parts.append(wrong.html())
    return _write_folder(folder, "Calls", run.warnings, parts, result or run.result, rows)


def scaling_report(result: JsonObject, folder: Path) -> Path:
    """Write ``report.html``, ``result.json``, ``rows.jsonl`` (a line a point) and the plot; returns the page's path."""

    def draw(found: JsonObject, path: Path) -> str | None:
        return scaling_plot(curves(found), path)

    parts = [plot_part("AST by share of the training data", result, folder / "scaling.png", draw)]
    parts.append(scaling_table(result).html())
    return _write_folder(folder, "Scaling", [], parts, result, result["points"])


def _rank(asked: Asked) -> int | None:
    gold = {g.tool_id for g in asked.row.gold}
    return next((rank for rank, tool_id in enumerate(asked.ranked, start=1) if tool_id in gold), None)


def plots(result: JsonObject, folder: Path) -> list[str]:
    """Write the plots that the result has numbers for as PNG files; returns them as parts of the page."""
    parts = []
    for key, draw, title in (
        ("refusal", refusal_plot, "Refusal and calibration"),
        ("ablation", ablation_plot, "What each part is worth"),
    ):
        if result.get(key):
            svg = draw(result[key], folder / f"{key}.png")
            parts.append(f"<h2>{title}</h2>{svg or escape(NO_PLOTS)}")
    return parts


_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;color:#222;background:#fff}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#161616}}
h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:13px}td,th{padding:.3rem .6rem;text-align:right;border-bottom:1px solid #8884;
vertical-align:top;white-space:pre-wrap;overflow-wrap:anywhere;max-width:28rem}td:first-child,th:first-child{text-align:left}
p,.of{opacity:.8}.of{overflow-wrap:anywhere}svg{max-width:100%;height:auto}svg text{fill:currentColor}
"""


def made_with(result: JsonObject) -> list[str]:
    """What numbers hang on, for the page: encoder and tokenizer, as far as the result names them."""
    return [f"{key}: {plain(str(result[key]))}" for key in ("tokenizer", "encoder") if result.get(key)]


def _write_folder(
    folder: Path, title: str, notes: Sequence[str], parts: Sequence[str], result: JsonObject, rows: Sequence[JsonObject]
) -> Path:
    page = folder / "report.html"
    note = "".join(f"<p>{escape(line)}</p>" for line in notes)
    about = "".join(f"<li>{escape(line)}</li>" for line in origin_lines(with_origin(result).get("of", {})))
    of = f"<h2>What this is of</h2><ul class=of>{about}</ul>" if about else ""
    body = "".join(parts)
    replace_file(
        page,
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>Toolscout: {escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{escape(title)}</h1>{note}{body}{of}</html>\n",
    )
    write_result(folder / "result.json", result)
    replace_file(folder / "rows.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return page


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
