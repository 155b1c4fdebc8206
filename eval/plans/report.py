"""Plans for reading: tables, and a page with the plans that went wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from toolscout.eval.charts import plot_part
from toolscout.eval.plans.graph import Plan, lines
from toolscout.eval.plans.measure import PlansRun
from toolscout.eval.plans.plots import plan_plot
from toolscout.eval.report import Table, _write_folder, share_text
from toolscout.records import JsonObject

SHOWN_OF_A_KIND = 5
"""Plans shown of each kind of problem: a few to read, not the most frequent kind alone."""

_MATCHES = {
    "graph": "graph",
    "graph_paths": "graph, paths",
    "last": "last calls",
    "last_paths": "last calls, paths",
    "tools": "tools",
}
_PARTS = {
    "node_precision": "node P",
    "node_recall": "node R",
    "node_f1": "node F1",
    "edge_precision": "edge P",
    "edge_recall": "edge R",
    "edge_f1": "edge F1",
}
_SHAPES = {"schema_valid": "schema valid", "acyclic": "acyclic", "references": "references", "answered": "answered"}


def plan_tables(result: JsonObject) -> list[Table]:
    """The tables of one result."""
    who = result["answers"] or result["model"] or "the default model"
    everything = {"all": result["overall"]}
    tables = [_table(f"Plans of {who}: AST-DAG accuracy, 95 % intervals", everything, _MATCHES, intervals=True)]
    tables.append(_table("Calls and edges", everything, _PARTS, intervals=True))
    tables.append(_table("Shape of the plans", everything, _SHAPES, intervals=True))
    columns = {**_MATCHES, "node_f1": "node F1", "edge_f1": "edge F1", "schema_valid": "schema valid"}
    for title, key in (("split", "by_split"), ("number of gold calls", "by_steps"), ("language", "by_lang")):
        if len(result[key]) > 1:
            tables.append(_table(f"By {title}", result[key], columns))
    wrong = [[name, str(count)] for name, count in result["problems"].items() if count]
    if wrong:
        tables.append(Table("What is wrong first in a plan", ["", "rows"], wrong))
    seconds, tokens = result["seconds"], result["tokens"]
    if seconds["p50"] is not None:
        cost = [["seconds a request, p50 / p95", f"{seconds['p50']:.1f} / {seconds['p95']:.1f}"]]
        cost += [[f"{kind} tokens a request", f"{n:,.1f}"] for kind, n in tokens.items() if n is not None]
        tables.append(Table("Cost", ["", "value"], cost))
    return tables


def plan_report(run: PlansRun, folder: Path) -> Path:
    """Write ``report.html``, ``result.json``, ``rows.jsonl`` and the plot; returns the page's path.

    The rows can be given to ``--answers`` again.
    """
    rows = [
        {"query": row.query, **asdict(given), **asdict(verdict)}
        for row, given, verdict in zip(run.rows, run.given, run.verdicts, strict=True)
    ]
    tables = [table.html() for table in plan_tables(run.result)]
    parts = [plot_part("Plans by length", run.result, folder / "plans.png", plan_plot), *tables]
    failures = _failures(run)
    if failures.rows:
        # Texts to read, unlike the numbers above, begin at the left.
        style = "<style>.plans td,.plans th{text-align:left}</style>"
        parts.append(f"{style}<div class=plans>{failures.html()}</div>")
    return _write_folder(folder, "Plans", run.warnings, parts, run.result, rows)


def _failures(run: PlansRun) -> Table:
    shown: dict[str, list[list[str]]] = {}
    for row, given, verdict in zip(run.rows, run.given, run.verdicts, strict=True):
        kind = verdict.problem or ("other paths" if verdict.graph_paths is False else "")
        if not kind:
            continue
        made = "\n".join(lines(Plan(given.plan()))) or given.reason or "none"
        why = kind + (f": {verdict.detail}" if verdict.detail else "")
        if verdict.last and verdict.problem:
            why += "; the last calls are right"
        shown.setdefault(kind, []).append([f"{row.id}\n{row.query}", "\n".join(lines(Plan(row.gold))), made, why])
    few = [line for kind in sorted(shown) for line in shown[kind][:SHOWN_OF_A_KIND]]
    title = f"Plans to read: at most {SHOWN_OF_A_KIND} of each kind of problem"
    return Table(title, ["request", "gold", "made", "wrong"], few)


def _table(title: str, parts: Mapping[str, Any], columns: Mapping[str, str], *, intervals: bool = False) -> Table:
    def cell(part: JsonObject, key: str) -> str:
        text, around = share_text(part[key]), part["intervals"][key]
        return f"{text} [{around[0]:.3f}, {around[1]:.3f}]" if intervals and around else text

    lines_ = [[name, str(part["n"]), *(cell(part, key) for key in columns)] for name, part in parts.items()]
    return Table(title, ["", "n", *columns.values()], lines_)
