"""Plots of a report, as PNG files and as SVG for its page; none without matplotlib (extra ``eval``)."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscout.errors import StorageError
from toolscout.records import JsonObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NO_PLOTS = "Plots need matplotlib: install toolscout[eval]."
_BLUE, _RED, _GREY = "#2563a8", "#c43c35", "#9a9a9a"


def refusal_plot(report: JsonObject, path: Path) -> str | None:
    """Draw the refusal curve and the reliability of ``probability`` (a `refusal.refusal_report`) into a PNG file.

    Returns it as SVG, too; None where matplotlib is missing. Raises StorageError if the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(11, 5.2), layout="constrained")
    curve, reliability = figure.subplots(1, 2)
    _curve(curve, report)
    _reliability(reliability, report["calibration"])
    return save_figure(figure, path)


def _curve(axes: Any, report: JsonObject) -> None:
    points = report["curve"]
    axes.step(
        [100 * p["wrong_refusals"] for p in points], [100 * p["false_offers"] for p in points],
        where="post", color=_BLUE, label=f"all thresholds (AUROC {report['auroc']:.3f})",
    )  # fmt: skip
    default = report["default"]
    if default is not None:
        x, y = 100 * default["wrong_refusals"], 100 * default["false_offers"]
        low_x, high_x = (100 * value for value in default["wrong_refusals_95"])
        low_y, high_y = (100 * value for value in default["false_offers_95"])
        axes.errorbar(
            [x], [y], xerr=[[max(0, x - low_x)], [max(0, high_x - x)]], yerr=[[max(0, y - low_y)], [max(0, high_y -
            y)]], fmt="o", color=_RED, capsize=3, zorder=3,
            label=f"default threshold {default['threshold']:.3f}: {x:.1f} % / {y:.1f} %, 95 % intervals",
        )  # fmt: skip
    axes.set(
        xlabel=f"wrong refusals, % of {report['answerable']} answerable requests (logarithmic above 10)",
        ylabel=f"false offers, % of {report['unanswerable']} unanswerable ones",
        title="Refusal curve", ylim=(-2, 102),
    )  # fmt: skip
    axes.set_xscale("symlog", linthresh=10)
    axes.set_xlim(-0.2, 100)
    ticks = [0, 1, 2, 3, 5, 10, 20, 50, 100]
    axes.set_xticks(ticks, [str(t) for t in ticks])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    _legend_below(axes)


def _reliability(axes: Any, calibration: JsonObject) -> None:
    axes.plot([0, 1], [0, 1], color=_GREY, linestyle="--", linewidth=1, label="calibrated")
    names = {"answerable": ("some tool serves it", _BLUE), "served": ("an offered tool serves it", _RED)}
    for key, (label, colour) in names.items():
        if key not in calibration:
            continue
        bins = [b for b in calibration[key]["bins"] if b["n"]]
        axes.plot(
            [b["mean"] for b in bins], [b["share"] for b in bins], marker="o", color=colour,
            label=f"{label} (ECE {calibration[key]['ece']:.3f})",
        )  # fmt: skip
    for b in calibration["answerable"]["bins"]:
        if b["n"]:
            axes.annotate(str(b["n"]), (b["mean"], -0.06), fontsize=7, ha="center", color=_GREY)
    axes.set(
        xlabel="probability given (below: number of requests)", ylabel="share of requests that came out so",
        title="Reliability of probability", xlim=(0, 1), ylim=(-0.1, 1.02),
    )  # fmt: skip
    axes.grid(alpha=0.3)
    _legend_below(axes)


def _legend_below(axes: Any) -> None:
    """Where no point can be."""
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), frameon=False, fontsize=8)


def ablation_plot(ablation: JsonObject, path: Path) -> str | None:
    """Draw what the variants of an ablation find (equivalent recall@1 and @5) into a PNG file; as `refusal_plot`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    variants = ablation["variants"]
    names = [f"{v['group']} {v['name']}".strip() for v in variants]
    figure = Figure(figsize=(9, 1.2 + 0.3 * len(names)), layout="constrained")
    axes = figure.subplots()
    places = range(len(names))
    five = [100 * (v["equivalent"]["recall@5"] or 0.0) for v in variants]
    one = [100 * (v["equivalent"]["recall@1"] or 0.0) for v in variants]
    axes.barh(places, five, color=_BLUE, alpha=0.45, label="recall@5")
    axes.barh(places, one, color=_BLUE, label="recall@1")
    axes.axvline(five[0], color=_BLUE, linewidth=0.8, alpha=0.6)
    axes.axvline(one[0], color=_BLUE, linewidth=0.8)
    for place, value, first in zip(places, five, one, strict=True):  # beside the axes, where no line is
        said = f"{first:.1f} / {value:.1f}"
        axes.annotate(said, (1.01, place), xycoords=("axes fraction", "data"), va="center", fontsize=7)
    axes.set_yticks(list(places), names, fontsize=8)
    axes.invert_yaxis()
    axes.set(xlabel=f"equivalent recall, % of {ablation['n']} requests; the lines: the whole search", xlim=(0, 100))
    axes.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False, fontsize=8)
    return save_figure(figure, path)


def save_figure(figure: Figure, path: Path) -> str:
    """Write a PNG file and return the same as SVG. Raises StorageError."""
    svg = io.StringIO()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            # Names of servers and splits are in all scripts; boxes for those that the font lacks are no remark's worth.
            warnings.filterwarnings("ignore", message="Glyph")
            figure.savefig(path, dpi=130, facecolor="white")
            figure.savefig(svg, format="svg", facecolor="white", metadata={"Date": None})
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}.", "Give a path that you may write to.") from None
    text = svg.getvalue()
    return text[text.index("<svg") :]
