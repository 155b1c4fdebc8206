"""The plot of `eval execute`: Pass@K, what went wrong first, and how well the servers' calls went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from toolscout.eval.charts import Series, bars, figure, over, ranges, short
from toolscout.eval.metrics import wilson
from toolscout.eval.plots import save_figure
from toolscout.records import JsonObject

SERVERS = 20
"""Most servers drawn: those that were called most."""


def execute_plot(result: JsonObject, path: Path) -> str | None:
    """Pass@K with 95 % intervals, trials by failure, success of calls by server, into a PNG file; returned as SVG, too.

    A server's interval is Wilson's over its calls, as if they were independent of each other. None where matplotlib is
    missing. Raises StorageError if the file cannot be written.
    """
    servers = sorted(result["by_server"].items(), key=lambda item: (-item[1]["made"], item[0]))
    servers = [(name, part) for name, part in servers if part["made"]][:SERVERS]
    failures = {short(kind): count for kind, count in result["failures"].items()}
    drawn = figure(11, 3.9 + 1.2 + 0.3 * max(1, len(servers)))
    if drawn is None:
        return None
    above, below = drawn.subfigures(2, 1, height_ratios=(3.9, 1.2 + 0.3 * max(1, len(servers))))
    left, right = above.subplots(1, 2, width_ratios=(1, 1.2))
    _passes(left, result)
    if failures:
        bars(right, failures, xlabel="trials", title="What went wrong first")
    else:
        _empty(right, "No trial failed." if result["calls"]["made"] else "No calls were made.")
    axes = below.subplots()
    if servers:
        names = [f"{short(name or 'unknown')} (n={part['made']})" for name, part in servers]
        around = [wilson(part["went_well"], part["made"]) for _, part in servers]
        series = Series("success", [part["success_rate"] for _, part in servers], around)
        ranges(
            axes,
            names,
            [series],
            xlabel="% of calls that went well, 95 % intervals",
            title="Success of calls by server",
        )
    else:
        _empty(axes, "No server was called.")
    return save_figure(drawn, path)


def _passes(axes: Any, result: JsonObject) -> None:
    if not result["n"]:
        _empty(axes, "No row was judged.")
        return
    keys = list(result["pass"])
    ks = [key.removeprefix("pass@") for key in keys]
    passes = Series("Pass@K", list(result["pass"].values()), [result["intervals"][key] for key in keys])
    over(axes, ks, [passes], ylabel=f"% of {result['n']} rows", title="Pass@K, 95 % intervals")
    axes.set_xlabel("K")


def _empty(axes: Any, said: str) -> None:
    axes.set_axis_off()
    axes.text(0.5, 0.5, said, ha="center", va="center", fontsize=9)
