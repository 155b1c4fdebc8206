"""Executed calls for reading: tables, and a page with trials that failed, all of others' texts escaped."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolscout.eval.charts import plot_part
from toolscout.eval.execute.judge import Trial
from toolscout.eval.execute.measure import ExecuteRun, report_row
from toolscout.eval.execute.plots import execute_plot
from toolscout.eval.report import Table, _write_folder, share_text
from toolscout.prompt import dumps
from toolscout.records import JsonObject

SHOWN_OF_A_KIND = 5
SERVERS_SHOWN = 200


def execute_tables(result: JsonObject) -> list[Table]:
    """The tables of one result."""
    who = result["model"] or {"gold": "the gold", "answers": "the answers"}.get(result["calls_from"], "suggest_call")
    tables = [_passes(f"Pass@K of {who}: {result['n']} judged rows of {result['rows']}", result)]
    if len(result["by_split"]) > 1:
        tables.append(_splits(result["by_split"], result["trials"]))
    made = result["calls"]
    rows = [
        ["calls made", f"{made['made']:,}"],
        ["success rate of calls", share_text(made["success_rate"])],
        ["calls skipped after a failed one", f"{made['skipped']:,}"],
        ["share of trials with calls", share_text(result["answered"])],
        ["seconds a call, p50 / p95", _seconds(made["seconds"])],
    ]
    tables.append(Table("Calls", ["", "value"], rows))
    if made["by_cause"]:
        causes = [
            [name, str(n), share_text(n / sum(made["by_cause"].values()))] for name, n in made["by_cause"].items()
        ]
        tables.append(Table("Root causes of failed calls", ["", "calls", "share"], causes))
    if result["failures"]:
        tables.append(
            Table(
                "What went wrong first in a trial", ["", "trials"], [[k, str(n)] for k, n in result["failures"].items()]
            )
        )
    if result["unjudged"]:
        unjudged = [[why, str(n)] for why, n in result["unjudged"].items()]
        tables.append(Table("Trials without the judge's verdict", ["", "trials"], unjudged))
    tables.append(_servers(result["by_server"]))
    if (agreed := result["agreement"]) is not None:
        tables.append(_agreement(agreed, result["judge"] or ""))
    if result.get("probes"):
        tables.append(
            Table("Probes", ["", "value"], [[k.replace("_", " "), dumps(v)] for k, v in result["probes"].items()])
        )
    return tables


def execute_report(run: ExecuteRun, folder: Path) -> Path:
    """Write ``report.html``, ``result.json``, ``rows.jsonl`` (a line a trial) and the plot; returns the page's path.

    The rows can be given to ``--answers`` again.
    """
    tables = [table.html() for table in execute_tables(run.result)]
    parts = [plot_part("Pass@K and calls", run.result, folder / "execution.png", execute_plot), *tables]
    failures = _failures(run)
    if failures.rows:
        style = "<style>.trials td,.trials th{text-align:left}</style>"
        parts.append(f"{style}<div class=trials>{failures.html()}</div>")
    rows = [report_row(run, trial) for trial in run.trials]
    return _write_folder(folder, "Execution", run.warnings, parts, run.result, rows)


def _passes(title: str, result: JsonObject) -> Table:
    lines = []
    for k in range(1, int(result["trials"]) + 1):
        around = result["intervals"][f"pass@{k}"]
        shown = share_text(result["pass"][f"pass@{k}"])
        text = f"{shown} [{around[0]:.3f}, {around[1]:.3f}]" if around else shown
        lines.append([str(k), text, share_text(result["any_of"][str(k)])])
    return Table(title, ["K", "Pass@K, 95 % interval", "any of the first K"], lines)


def _splits(parts: Mapping[str, Any], trials: int) -> Table:
    ks = sorted({1, trials})
    lines = [[name, str(p["n"]), *(share_text(p["pass"][f"pass@{k}"]) for k in ks)] for name, p in parts.items()]
    return Table("By split", ["", "n", *(f"Pass@{k}" for k in ks)], lines)


def _servers(parts: Mapping[str, Any]) -> Table:
    def causes(part: JsonObject) -> str:
        return ", ".join(f"{n} {cause}" for cause, n in part["by_cause"].items()) or "-"

    worst = sorted(parts.items(), key=lambda item: (item[1]["success_rate"] or 0.0, item[0]))
    lines = [
        [name, str(p["made"]), share_text(p["success_rate"]), _seconds(p["seconds"]), causes(p)]
        for name, p in worst[:SERVERS_SHOWN]
    ]
    title = "By server, worst first" + (f" (the first {SERVERS_SHOWN})" if len(worst) > SERVERS_SHOWN else "")
    return Table(title, ["", "calls", "success", "seconds p50 / p95", "root causes"], lines)


def _agreement(agreed: JsonObject, judge: str) -> Table:
    lines = [
        ["trials (rows)", f"{agreed['n']} ({agreed['rows']})"],
        ["agree", share_text(agreed["share"])],
        ["Cohen's kappa", share_text(agreed["kappa"])],
        ["both pass / only the checks / only the judge / both fail",
         " / ".join(str(agreed[k]) for k in ("both_pass", "only_rule", "only_model", "both_fail"))],
    ]  # fmt: skip
    return Table(f"Agreement of the checks and the judge {judge}".strip(), ["", "value"], lines)


def _failures(run: ExecuteRun) -> Table:
    shown: dict[str, list[list[str]]] = {}
    for trial in run.trials:
        lines = shown.setdefault(trial.failure, [])
        row = run.rows[trial.id]
        if (
            trial.failure
            and len(lines) < SHOWN_OF_A_KIND
            and not any(line[0].startswith(f"{row.id}\n") for line in lines)
        ):
            lines.append([f"{row.id}\n{row.query}", _called(trial), _came(trial), f"{trial.failure}: {trial.why}"])
    few = [line for kind in sorted(shown) for line in shown[kind]]
    title = f"Trials to read: at most {SHOWN_OF_A_KIND} rows of each kind of failure"
    return Table(title, ["request", "called", "came back", "wrong"], few)


def _called(trial: Trial) -> str:
    return (
        "\n".join(f"{s.tool_id} {dumps(s.arguments if s.sent is None else s.sent)}" for s in trial.steps) or "nothing"
    )


def _came(trial: Trial) -> str:
    return "\n".join(step.response.shown(300) for step in trial.steps if step.response is not None) or "-"


def _seconds(spread: JsonObject) -> str:
    return "-" if spread["p50"] is None else f"{spread['p50']:.2f} / {spread['p95']:.2f}"
