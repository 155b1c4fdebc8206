"""Strategies for reading: a table a pool, a plot, a page."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from toolscout.eval.charts import beside, spans, tell_ticks
from toolscout.eval.metrics import wilson
from toolscout.eval.plots import NO_PLOTS, save_figure
from toolscout.eval.report import Table, _write_folder, made_with, share_text
from toolscout.eval.strategies.measure import ANSWER_TOKENS, StrategiesRun
from toolscout.records import JsonObject

_LINES: Mapping[str, JsonObject] = {
    "blank": {"color": "#ababab", "marker": "s", "linewidth": 5, "markersize": 11},
    "keyword": {"color": "#e09a1f", "marker": "D", "linewidth": 3, "markersize": 7.5},
    "retrieved": {"color": "#2563a8", "marker": "o", "linewidth": 1.3, "markersize": 4},
}
"""Drawn in this order, each line thinner than the one before: where strategies are equal all of them are seen."""


def strategy_tables(result: JsonObject) -> list[Table]:
    """One table a size of the pool."""
    head = [
        "", "accuracy", "95 %", "of those that fit", "gold in prompt", "and it fits", "does not fit", "tools",
        "tokens, counted", "tokens, prompt", "tokens, completion",
    ]  # fmt: skip
    who = result["model"] or "no model"
    return [
        Table(
            f"{pool['size']:,} tools, {result['n']} requests, {who}",
            head,
            [_line(name, part) for name, part in pool["strategies"].items()],
        )
        for pool in result["pools"]
    ]


def strategy_report(run: StrategiesRun, folder: Path) -> Path:
    """Write ``report.html``, ``result.json``, ``rows.jsonl`` and the plot; returns the page's path."""
    svg = strategy_plot(run.result, folder / "strategies.png")
    parts = [f"<h2>Accuracy and cost by size of the pool</h2>{svg or escape(NO_PLOTS)}"]
    parts += [table.html() for table in strategy_tables(run.result)]
    notes = [*made_with(run.result), *run.warnings]
    return _write_folder(folder, "Strategies", notes, parts, run.result, run.pieces)


def strategy_plot(result: JsonObject, path: Path) -> str | None:
    """Accuracy (without a model: the gold tool is in a prompt that fits) and tokens over the pool's size, into a PNG
    file; returned as SVG, too. None where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator
    except ImportError:
        return None
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    panels: Any = figure.subplots(1, 2)
    left, right = panels
    key, label = (
        ("accuracy", "right tool chosen") if result["model"] else ("reachable", "right tool in a prompt that fits")
    )
    sizes = [pool["size"] for pool in result["pools"]]
    log = len(sizes) > 1
    for name in (name for name in _LINES if name in result["pools"][0]["strategies"]):
        parts = [pool["strategies"][name] for pool in result["pools"]]
        at_x = beside(sizes, list(_LINES).index(name), len(_LINES), log=log)
        known = [(at_x[size], part[key]) for size, part in zip(sizes, parts, strict=True) if part[key] is not None]
        places, shares = [x for x, _ in known], [100 * share for _, share in known]
        around = [wilson(round(share * result["n"]), result["n"]) for _, share in known]
        left.plot(places, shares, label=name, **_LINES[name])
        colour = _LINES[name]["color"]
        left.errorbar(places, shares, yerr=spans(shares, around), fmt="none", capsize=2, elinewidth=1, ecolor=colour)
        right.plot(sizes, [part["tokens"]["counted"] for part in parts], label=name, **_LINES[name])
    if result["context"]:
        room = result["context"] - (ANSWER_TOKENS if result["model"] else 0)
        left_over = f"context of {result['context']:,}" + (", less the answer" if result["model"] else "")
        right.axhline(room, color="#c43c35", linestyle=":", label=left_over)
    for axes in (left, right):
        if log:
            axes.set_xscale("log")
        axes.minorticks_off()
        axes.set_xlabel("tools in the pool")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    right.set_yscale("log")
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.yaxis.set_major_formatter("{x:,.0f}")
    right.yaxis.set_minor_formatter("")
    left.set(ylabel=f"% of {result['n']} requests, 95 % intervals", ylim=(-2, 104), title=label)
    right.set(ylabel="tokens", title="tokens of the prompt")
    for axes in (left, right):
        tell_ticks(figure, axes, {size: f"{size:,}" for size in sizes})
    return save_figure(figure, path)


def _line(name: str, part: JsonObject) -> list[str]:
    around = part["accuracy_95"]
    tokens = part["tokens"]
    return [
        name, share_text(part["accuracy"]), f"{around[0]:.3f}-{around[1]:.3f}" if around else "-",
        share_text(part["accuracy_of_fitting"]), share_text(part["gold_in_prompt"]), share_text(part["reachable"]),
        share_text(part["does_not_fit"]),
        _number(part["tools"]), _number(tokens["counted"]), _number(tokens["prompt"]), _number(tokens["completion"]),
    ]  # fmt: skip


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.1f}"
