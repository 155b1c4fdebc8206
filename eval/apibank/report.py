"""Turns of dialogues for reading: a table, a plot, a page."""

from __future__ import annotations

from pathlib import Path

from toolscout.eval.apibank.measure import ApiBankRun
from toolscout.eval.charts import Series, figure, height_of, legend, plot_part, ranges
from toolscout.eval.plots import save_figure
from toolscout.eval.report import Table, _write_folder, made_with, share_text
from toolscout.records import JsonObject


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
    parts = [plot_part("Tools found, turn by turn", run.result, folder / "apibank.png", apibank_plot)]
    parts += [table.html() for table in apibank_tables(run.result)]
    notes = [*made_with(run.result), *run.warnings]
    return _write_folder(folder, "Tools of dialogues", notes, parts, run.result, run.pieces)


def apibank_plot(result: JsonObject, path: Path) -> str | None:
    """Recall@1 and @5 of each setting with 95 % intervals, into a PNG file; returned as SVG, too. None where matplotlib
    is missing."""
    panels = [(turns, [p for p in result["settings"] if p["turns"] == turns]) for turns in ("single", "multi")]
    panels = [(turns, parts) for turns, parts in panels if parts]
    drawn = figure(12, height_of(max((len(parts) for _, parts in panels), default=1), 2))
    if drawn is None:
        return None
    for axes, (turns, parts) in zip(drawn.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        series = [
            Series(label, [part[key] for part in parts], [part[f"{key}_95"] for part in parts])
            for key, label in (("recall@1", "first"), ("recall@5", "among five"))
        ]
        words = "one call" if turns == "single" else "several calls"
        title = f"Dialogues with {words}: gold tool found"
        names = [f"{part['collection']}, {part['form']}" for part in parts]
        ranges(axes, names, series, xlabel=f"% of {parts[0]['n']} turns, 95 % intervals", title=title)
    legend(drawn, axes)
    return save_figure(drawn, path)
