"""Needles for reading: tables, a heat map of position by pool size, a page."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from toolscout.eval.charts import tell_ticks
from toolscout.eval.needle.measure import NeedleRun
from toolscout.eval.plots import NO_PLOTS, save_figure
from toolscout.eval.report import Table, _write_folder, made_with, share_text
from toolscout.records import JsonObject

_COLOURS = (("#2563a8", "#7aa9dd"), ("#c43c35", "#e0918c"))
"""Of each form: found first, found among five."""

_FORMS = {"plain": "the user's words", "structured": "structured requests"}


def needle_tables(result: JsonObject) -> list[Table]:
    """One table a form of request."""
    head = ["tools", "first", "95 %", "first five", "95 %", "MRR", "offered", "in a prompt"]
    return [
        Table(
            f"Needle by {_FORMS[form]}: {result['n']} needles, {len(result['positions'])} positions each",
            head,
            [
                [
                    f"{line['size']:,}", share_text(line["first"]), _around(line["first_95"]), share_text(line["five"]),
                    _around(line["five_95"]), share_text(line["mrr"]), share_text(line["offered"]),
                    share_text(line["in_prompt"]),
                ]
                for line in part["by_size"]
            ],
        )
        for form, part in result["forms"].items()
    ]  # fmt: skip


def needle_report(run: NeedleRun, folder: Path) -> Path:
    """Write ``report.html``, ``result.json``, ``rows.jsonl`` and the plots; returns the page's path."""
    result = run.result
    parts = []
    for name, title, draw in (
        ("needle", "Found by pool size", growth_plot),
        ("heat", "Position of the needle by pool size", heat_plot),
    ):
        svg = draw(result, folder / f"{name}.png")
        parts.append(f"<h2>{title}</h2>{svg or escape(NO_PLOTS)}")
    parts += [table.html() for table in needle_tables(result)]
    return _write_folder(folder, "Needle in a haystack", [*made_with(result), *run.warnings], parts, result, run.pieces)


def growth_plot(result: JsonObject, path: Path) -> str | None:
    """Shares over the pool's size into a PNG file; returned as SVG, too. None where matplotlib is missing."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError:
        return None
    figure = Figure(figsize=(7.5, 4.4), layout="constrained")
    axes: Any = figure.subplots()
    sizes = result["sizes"]
    for (form, part), colours in zip(result["forms"].items(), _COLOURS, strict=False):
        measures = (("first", "-", "first"), ("five", "--", "among five"))
        for (key, style, label), colour in zip(measures, colours, strict=True):
            shares = [100 * line[key] for line in part["by_size"]]
            axes.plot(sizes, shares, style, color=colour, marker="o", markersize=3, label=f"{_FORMS[form]}: {label}")
            around = [line[f"{key}_95"] for line in part["by_size"]]
            low, high = [100 * a[0] for a in around], [100 * a[1] for a in around]
            axes.fill_between(sizes, low, high, color=colour, alpha=0.15, linewidth=0)
    fits = [100 * line["in_prompt"] for line in next(iter(result["forms"].values()))["by_size"]]
    label = f"in the first {result['context']:,} tokens of all definitions"
    axes.plot(sizes, fits, ":", color="#777777", label=label)
    axes.set_xscale("log")
    axes.minorticks_off()
    axes.set(xlabel="tools in the pool", ylabel=f"% of {result['n']} needles", ylim=(-2, 104), title="Needle found")
    axes.grid(alpha=0.3)
    handles, _ = axes.get_legend_handles_labels()
    band = Patch(color="#777777", alpha=0.25, linewidth=0, label="bands: 95 % intervals")
    axes.legend(handles=[*handles, band], fontsize=8, loc="lower left")
    tell_ticks(figure, axes, {size: f"{size:,}" for size in sizes})
    return save_figure(figure, path)


def heat_plot(result: JsonObject, path: Path) -> str | None:
    """A heat map a form and measure: position of the needle by pool size; as `growth_plot`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    maps = [(form, key) for form in result["forms"] for key in ("first", "five")]
    panels = [(f"{_FORMS[form]}: {_LABELS[key]}", _grid(result, form, key)) for form, key in maps]
    panels.append((_LABELS["in_prompt"].format(f"{result['context']:,}"), _grid(result, maps[0][0], "in_prompt")))
    columns = 2 if len(panels) > 1 else 1
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(7.2 * columns, 3.4 * lines), layout="constrained")
    for axes, panel in zip(figure.subplots(lines, columns, squeeze=False).flat, [*panels, None, None], strict=False):
        if panel is None:
            axes.set_axis_off()
            continue
        title, grid = panel
        image = axes.imshow(grid, aspect="auto", origin="lower", vmin=0, vmax=100, cmap="viridis")
        sizes, at = result["sizes"], result["positions"]
        axes.set_xticks(range(len(sizes)), [f"{size:,}" for size in sizes], rotation=70, fontsize=7)
        axes.set_yticks(range(len(at)), [f"{100 * depth:.0f}" for depth in at], fontsize=7)
        axes.set(xlabel="tools in the pool", ylabel="position, % of the pool", title=title)
        figure.colorbar(image, ax=axes, label="% of needles")
    return save_figure(figure, path)


_LABELS = {"first": "first", "five": "among the first five", "in_prompt": "in the first {} tokens of all definitions"}


def _grid(result: JsonObject, form: str, key: str) -> list[list[float]]:
    """Per cent, [positions][sizes]."""
    cells = {(c["size"], c["position"]): 100 * c[key] for c in result["forms"][form]["cells"]}
    return [[cells[size, depth] for size in result["sizes"]] for depth in result["positions"]]


def _around(interval: Sequence[float]) -> str:
    return f"{interval[0]:.3f}-{interval[1]:.3f}"
