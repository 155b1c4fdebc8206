"""The agent experiment for reading: tables, and a page with every trial that failed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from toolscout.eval.agent.plots import agent_plot
from toolscout.eval.agent.run import AgentRun
from toolscout.eval.charts import plot_part
from toolscout.eval.report import Table, _write_folder, share_text
from toolscout.records import JsonObject

FAILED_SHOWN = 200
_CALLS_SHOWN = 12
_NAMES = {"all": "all tools", "find": "find_tools + invoke", "bootstrap": "first call suggested"}


def agent_tables(result: JsonObject) -> list[Table]:
    """The tables of one result."""
    arms: Mapping[str, Any] = result["arms"]
    head = ["arm", "trials", "success", "95 %", "steps", "weighted", "turns", "prompt tokens", "completion", "s p50"]
    lines = [
        [
            _NAMES[name], str(arm["n"]), share_text(arm["success"]), _around(arm["interval"]), _number(arm["steps"]),
            _number(arm["weighted_steps"]), _number(arm["turns"]), _number(arm["tokens"]["prompt"]),
            _number(arm["tokens"]["completion"]), _number(arm["seconds"]["p50"]),
        ]
        for name, arm in arms.items()
    ]  # fmt: skip
    tables = [Table(f"Agent {result['model']}: {result['n']} tasks, {result['trials']} trials", head, lines)]
    splits = sorted({split for parts in result["by_split"].values() for split in parts})
    if len(splits) > 1:
        each = [[s, *(_success(result["by_split"][arm].get(s)) for arm in arms)] for s in splits]
        tables.append(Table("Success by servers or level", ["", *(_NAMES[arm] for arm in arms)], each))
    if result["against"]:
        first = _NAMES[next(iter(arms))]
        pairs = [[_NAMES[a], str(p["n"]), str(p["won"]), str(p["lost"])] for a, p in result["against"].items()]
        tables.append(Table(f"Against {first}, trial by trial", ["", "trials", "won", "lost"], pairs))
    kinds = [k for k in next(iter(arms.values()))["failures"] if any(arm["failures"][k] for arm in arms.values())]
    if kinds:
        counts = [[kind, *(str(arm["failures"][kind]) for arm in arms.values())] for kind in kinds]
        tables.append(Table("Failures", ["", *(_NAMES[arm] for arm in arms)], counts))
    begun = {name: count for arm in arms.values() for name, count in arm["bootstrap"].items()}
    if begun:
        tables.append(Table("The suggested first call", ["", "trials"], [[k, str(n)] for k, n in begun.items()]))
    return tables


def agent_report(run: AgentRun, folder: Path) -> Path:
    """Write ``report.html``, ``result.json``, ``rows.jsonl`` (every trial) and the plot; returns the page's path."""
    failed = [trial for trial in run.trials if not trial.passed]
    lines = [
        [
            f"{t.id}, trial {t.trial}\n{run.tasks[t.id].request}",
            _NAMES[t.arm],
            t.failure + (f"\n{t.detail}" if t.detail else ""),
            "\n".join(t.wrong),
            "\n".join(_call(made) for made in t.calls[-_CALLS_SHOWN:]) or "none",
            t.answer[-300:],
        ]
        for t in failed[:FAILED_SHOWN]
    ]
    parts = [
        plot_part("Arms", run.result, folder / "agent.png", partial(agent_plot, names=_NAMES)),
        *(table.html() for table in agent_tables(run.result)),
    ]
    if lines:
        head = ["task", "arm", "failure", "what does not hold", "last calls", "end of the answer"]
        shown = Table(f"Failed trials ({len(lines)} of {len(failed)})", head, lines)
        # Texts to read, unlike the numbers above, begin at the left.
        parts.append(f"<style>.trials td,.trials th{{text-align:left}}</style><div class=trials>{shown.html()}</div>")
    notes = [*run.warnings, f"Prices: {json.dumps(run.result['prices'])}"]
    return _write_folder(folder, "Agent", notes, parts, run.result, [asdict(trial) for trial in run.trials])


def _call(made: Mapping[str, Any]) -> str:
    return str(made["tool"]) if made["ok"] else f"{made['tool']} failed: {made['said'][:120]}"


def _success(part: Mapping[str, Any] | None) -> str:
    return "-" if part is None else f"{share_text(part['success'])} of {part['n']}"


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:,.1f}"


def _around(interval: Any) -> str:
    return f"{interval[0]:.2f} to {interval[1]:.2f}" if interval else "-"
