"""Compared sets of requests for reading: a table, plots, and a page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from toolscout.eval.charts import COLOURS, Series, bars, figure, legend, named, plot_part, ranges, short
from toolscout.eval.diversity.measure import DiversityRun
from toolscout.eval.plots import save_figure
from toolscout.eval.report import Table, _write_folder, made_with
from toolscout.records import JsonObject

_MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")


def diversity_tables(result: JsonObject) -> list[Table]:
    """The sets, a line each."""
    head = [
        "", "requests", "drawn", "mean cosine distance", "95 %", "near copies", "words p5 / p50 / p95", "tools",
        "servers", "tools of all", "servers of all",
    ]  # fmt: skip
    return [Table("How various requests are", head, [_cells(part) for part in result["sets"]])]


def _cells(part: JsonObject) -> list[str]:
    distance, around, words = part["mean_cosine_distance"], part["distance_95"], part["words"]
    return [
        part["name"],
        f"{part['requests']:,}",
        f"{part['sampled']:,}",
        "-" if distance is None else f"{distance:.4f}",
        f"{around[0]:.4f} to {around[1]:.4f}" if around else "-",
        f"{100 * part['near_copies']:.1f} %",
        " / ".join(f"{words[key]:g}" for key in ("p5", "p50", "p95")),
        *(f"{count:,}" for count in (part["tools"], part["servers"], part["all"]["tools"], part["all"]["servers"])),
    ]


def diversity_report(run: DiversityRun, folder: Path) -> Path:
    """Write ``report.html``, ``result.json``, ``rows.jsonl`` (every drawn request) and the plots; returns the page's
    path."""

    def draw_planes(_: JsonObject, path: Path) -> str | None:
        return planes_plot(run, path)

    parts = [plot_part("Distance, near copies and tools", run.result, folder / "diversity.png", diversity_plot)]
    parts.append(plot_part("Requests on a plane", run.result, folder / "planes.png", draw_planes))
    parts += [table.html() for table in diversity_tables(run.result)]
    notes = [
        *made_with(run.result),
        *run.warnings,
        "Mean cosine distance: 0, all alike; 1, no two have anything in common. Compare figures of one encoder only.",
        *(f"{plane.name}: {plane.why_not or plane.about}" for plane in run.planes),
    ]
    return _write_folder(folder, "Diversity", notes, parts, run.result, run.rows)


def diversity_plot(result: JsonObject, path: Path) -> str | None:
    """Distance with its interval, near copies, words and tools of each set into a PNG file; returned as SVG, too.
    None where matplotlib is missing. Raises StorageError if the file cannot be written."""
    sets = result["sets"]
    drawn = figure(12, 1.4 + 0.32 * len(sets))
    if drawn is None:
        return None
    first, *others = drawn.subplots(1, 4, width_ratios=(1.6, 1, 1, 1))
    names = [short(part["name"]) for part in sets]
    values = [part["mean_cosine_distance"] for part in sets]
    around = [part["distance_95"] for part in sets]
    ranges(
        first, names, [Series("distance", values, around)], xlabel="1: nothing in common; 95 % intervals", percent=False
    )
    first.set_title("Mean cosine distance")
    first.locator_params(axis="x", nbins=4)
    known = [end for ends in around for end in ends or ()]
    if known:  # sets differ by little of the whole range
        first.set_xlim(min(known) - 0.02, max(known) + 0.02)
    measures = {
        "near copies, %": [100 * part["near_copies"] for part in sets],
        "words, median": [part["words"]["p50"] for part in sets],
        "distinct tools": [part["tools"] for part in sets],
    }
    for axes, (label, numbers) in zip(others, measures.items(), strict=True):
        bars(axes, {str(at): number for at, number in enumerate(numbers)}, xlabel=label, form="{:,.4g}")
        named(axes, [""] * len(sets))
    return save_figure(drawn, path)


def planes_plot(run: DiversityRun, path: Path) -> str | None:
    """The drawn requests of all sets on one plane, by each method that could be used; as `diversity_plot`."""
    shown = [plane for plane in run.planes if plane.points is not None]
    if not shown:
        return "<p>There are too few requests for a plot.</p>"
    drawn = figure(5.2 * len(shown) + 0.4, 5.4)
    if drawn is None:
        return None
    panels: Sequence[Any] = drawn.subplots(1, len(shown), squeeze=False)[0]
    for axes, plane in zip(panels, shown, strict=True):
        start = 0
        for number, (name, sample) in enumerate(run.samples.items()):
            points: Any = plane.points
            own = points[start : start + len(sample.rows)]
            start += len(sample.rows)
            axes.scatter(
                own[:, 0], own[:, 1], s=9, alpha=0.5, linewidths=0, rasterized=True,
                color=COLOURS[number % len(COLOURS)], marker=_MARKS[number % len(_MARKS)],
                label=f"{short(name)} ({len(sample.rows):,})",
            )  # fmt: skip
        axes.set(xticks=[], yticks=[], title=plane.name)
    legend(drawn, panels[0])
    return save_figure(drawn, path)
