"""The plot of `eval agent`: what the arms reach and what it costs them, in all and by split."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toolscout.eval.charts import Series, figure, grouped_bars, height_of, legend, ranges, short
from toolscout.eval.plots import save_figure
from toolscout.records import JsonObject


def agent_plot(result: JsonObject, path: Path, names: Mapping[str, str]) -> str | None:
    """Success with 95 % intervals, steps and prompt tokens of each arm, of all tasks and of each split, into a PNG
    file; returned as SVG, too. ``names`` of the arms. None where matplotlib is missing. Raises StorageError if the
    file cannot be written."""
    arms: Mapping[str, Any] = result["arms"]
    splits = sorted({split for parts in result["by_split"].values() for split in parts})
    groups = [("all tasks", arms)]
    if len(splits) > 1:
        groups += [(split, {arm: result["by_split"][arm].get(split) for arm in arms}) for split in splits]
    drawn = figure(13, height_of(len(groups), len(arms)) + 0.4)
    if drawn is None:
        return None
    first, second, third = drawn.subplots(1, 3, width_ratios=(1.25, 1, 1), sharey=True)
    labels = [f"{short(name)}\nn={max((p['n'] for p in parts.values() if p), default=0)}" for name, parts in groups]
    ranges(first, labels, [
        Series(
            names[arm],
            [(parts[arm] or {}).get("success") for _, parts in groups],
            [(parts[arm] or {}).get("interval") for _, parts in groups],
        )
        for arm in arms
    ], xlabel="% of trials", title="Success, 95 % intervals")  # fmt: skip
    steps = {names[arm]: [(parts[arm] or {}).get("steps") for _, parts in groups] for arm in arms}
    grouped_bars(second, labels, steps, xlabel="tool calls a trial", title="Steps", form="{:.1f}")
    tokens = {
        names[arm]: [((parts[arm] or {}).get("tokens") or {}).get("prompt") for _, parts in groups] for arm in arms
    }
    grouped_bars(third, labels, tokens, xlabel="prompt tokens a trial", title="Tokens")
    legend(drawn, first)
    return save_figure(drawn, path)
