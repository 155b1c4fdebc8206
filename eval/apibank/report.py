"""Turns of dialogues for reading: a table, a plot, a page."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from toolscout.eval.apibank.measure import ApiBankRun
from toolscout.eval.plots import NO_PLOTS, save_figure
from toolscout.eval.report import Table, _write_folder, made_with, share_text
from toolscout.records import JsonObject

_COLOURS = {"user": "#9a9a9a", "turn": "#2563a8", "dialogue": "#3c8a4e", "requested": "#c43c35"}


def apibank_tables(result: JsonObject) -> list[Table]:
    """One table a kind of dialogue, and one of the turns in order."""
    sizes = {"full": result["pool"], "extended": result["extended"]}
    head = [
        "collection, searched with",
        "dialogues",
        "turns",
        "@1",
        "95 %",
        "@5",
        "95 %",
        "MRR",
        "whole @1",
        "whole @5",
    ]
    tables = []
    for turns in ("single", "multi"):
        parts = [part for part in result["settings"] if part["turns"] == turns]
        lines = []
        for part in parts:
            size = sizes.get(part["collection"])
            name = part["collection"] + (f" ({size:,} tools)" if size else "")
            one, five = part["recall@1_95"], part["recall@5_95"]
            lines.append([
                f"{name}, {part['form']}", str(part["dialogues"]), str(part["n"]), share_text(part["recall@1"]),
                f"{one[0]:.3f}-{one[1]:.3f}", share_text(part["recall@5"]), f"{five[0]:.3f}-{five[1]:.3f}",
                share_text(part["mrr"]), share_text(part["whole@1"]), share_text(part["whole@5"]),
            ])  # fmt: skip
        if lines:
            tables.append(Table(f"Dialogues with {'one call' if turns == 'single' else 'several calls'}", head, lines))
    by_turn = [
        [f"{part['collection']}, {part['form']}", str(one["turn"]), str(one["n"]), share_text(one["recall@1"]),
         share_text(one["recall@5"])]
        for part in result["settings"] if part["turns"] == "multi" and part["form"] in ("turn", "requested")
        for one in part["by_turn"]
    ]  # fmt: skip
    if by_turn:
        tables.append(Table("Call by call", ["collection, searched with", "call", "turns", "@1", "@5"], by_turn))
    return tables


def apibank_report(run: ApiBankRun, folder: Path) -> Path:
    """Write ``report.html``, ``result.json``, ``rows.jsonl`` and the plot; returns the page's path."""
    svg = apibank_plot(run.result, folder / "apibank.png")
    parts = [f"<h2>Tools found, turn by turn</h2>{svg or escape(NO_PLOTS)}"]
    parts += [table.html() for table in apibank_tables(run.result)]
    notes = [*made_with(run.result), *run.warnings]
    return _write_folder(folder, "Tools of dialogues", notes, parts, run.result, run.pieces)


def apibank_plot(result: JsonObject, path: Path) -> str | None:
    """Recall@1 and @5 of each setting as bars, into a PNG file; returned as SVG, too. None where matplotlib is
    missing."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(11, 4.2), layout="constrained")
    axes: Any = figure.subplots()
    groups = list(dict.fromkeys((part["turns"], part["collection"]) for part in result["settings"]))
    forms = list(dict.fromkeys(part["form"] for part in result["settings"]))
    found = {(part["turns"], part["collection"], part["form"]): part for part in result["settings"]}
    width = 0.8 / len(forms)
    for number, form in enumerate(forms):
        places = [place + (number - (len(forms) - 1) / 2) * width for place in range(len(groups))]
        parts = [found[(*group, form)] for group in groups]
        five = [100 * part["recall@5"] for part in parts]
        axes.bar(places, five, 0.92 * width, color=_COLOURS[form], alpha=0.4)
        bars = axes.bar(
            places, [100 * part["recall@1"] for part in parts], 0.92 * width, color=_COLOURS[form], label=form
        )
        axes.bar_label(bars, fmt="%.0f", fontsize=7, label_type="center", color="white")
        for place, value in zip(places, five, strict=True):
            axes.text(place, value + 1, f"{value:.0f}", fontsize=7, ha="center")
    axes.set_xticks(range(len(groups)), [f"{'one call' if t == 'single' else 'several'}\n{c}" for t, c in groups])
    axes.set(ylabel="% of turns (dark: first, light: among five)", ylim=(0, 106), title="Gold tool found")
    axes.legend(title="searched with", fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return save_figure(figure, path)
