"""Plots of the experiments' pages: each is drawn, says what it shows, and takes foreign names as plain text."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import eval_results
import numpy as np
import pytest

from toolscout.eval.agent.plots import agent_plot
from toolscout.eval.agent.report import _NAMES
from toolscout.eval.calls.plots import _SOME, calls_plot, compare_plot, scaling_plot
from toolscout.eval.calls.scaling import curves
from toolscout.eval.charts import beside, plot_part, short
from toolscout.eval.execute.plots import execute_plot
from toolscout.eval.metrics import wilson
from toolscout.eval.needle.report import heat_plot
from toolscout.eval.plans.plots import plan_plot
from toolscout.eval.plots import NO_PLOTS
from toolscout.eval.retrieval.plots import recall_plot
from toolscout.eval.servers.plots import servers_plot
from toolscout.eval.strategies.report import strategy_plot

drawn = pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs the extra 'eval'")
arms_plot = partial(agent_plot, names=_NAMES)
FOREIGN_HEAD = eval_results.FOREIGN[:9]
nobody = {**eval_results.executed(0), "n": 0, "failures": {}, "calls": {"made": 0}}
shares = (0.01, 0.1, 0.11, 0.3, 0.95, 1.0)
growing = {"points": [{"share": share, **eval_results.calls(share)} for share in shares]}
sizes: dict[str, Any] = {
    "by": "candidates",
    "variants": {str(n): eval_results.calls(0.5 - n / 1000) for n in (1, 10, 100)},
}
modes = {"by": "decoding", "variants": {name: eval_results.calls() for name in ("free", "repair")}}


@drawn
@pytest.mark.parametrize(
    ("draw", "result", "said"),
    [
        (calls_plot, eval_results.calls(), ["all", "unseen_tool", "from smithery", "n=310", "Param", "47.0", "–"]),
        (compare_plot, sizes, ["100", "Tool", f"% of 310 requests{_SOME}, 95 % intervals"]),
        (compare_plot, modes, ["repair", "92.0", "AST"]),
        (plan_plot, eval_results.plans(), ["last calls", "edge F1", "n=29", "other arguments", "nothing", "33"]),
        (execute_plot, eval_results.executed(), ["market/server-5 (n=50)", "wrong outcome"]),
        (execute_plot, eval_results.executed(), ["Pass@K, 95 % intervals", "parameter_error", "K", "100.0"]),
        (execute_plot, nobody, ["No row was judged.", "No calls were made.", "No server was called."]),
        (arms_plot, eval_results.agent(), ["find_tools + invoke", "server-1", "n=71", "Steps", "5,250"]),
        (arms_plot, eval_results.agent(1), ["all tasks"]),
        (servers_plot, eval_results.servers(), ["search", "market/weather-7", "3,200", "quality of texts, %"]),
        (servers_plot, eval_results.servers(called=False), ["market/weather-7", "quality of texts, %"]),
        (recall_plot, eval_results.retrieval(), ["recall@10", "split-2", "n=98", "Recall, strict", "85.0"]),
        (recall_plot, eval_results.retrieval(1), ["all", "n=295"]),
        (recall_plot, eval_results.retrieval(0), ["n=0", "–"]),
    ],
)  # fmt: skip
def test_a_plot_says_what_it_shows(
    draw: Callable[[Any, Path], str | None], result: dict[str, Any], said: list[str], tmp_path: Path
) -> None:
    svg = draw(result, tmp_path / "new" / "plot.png")
    assert svg is not None and svg.startswith("<svg") and (tmp_path / "new" / "plot.png").stat().st_size > 5000
    for text in said:  # every text stands in a comment before its letters' paths
        assert f"<!-- {text} -->" in svg, text
    assert "<b>" not in svg


@drawn
def test_sizes_are_joined_in_their_order(tmp_path: Path) -> None:
    mixed = {**sizes, "variants": {size: sizes["variants"][size] for size in ("10", "1", "100")}}
    one, other = compare_plot(sizes, tmp_path / "1.png"), compare_plot(mixed, tmp_path / "2.png")
    assert (tmp_path / "1.png").read_bytes() == (tmp_path / "2.png").read_bytes() and one and other


@drawn
def test_a_scaling_plot_names_what_it_has_room_for(tmp_path: Path) -> None:
    svg = scaling_plot(curves(growing), tmp_path / "plot.png")
    assert svg is not None and "all (n=310)" in svg and "unseen_tool (n=103)" in svg
    ticks = [f"{share:g}" for share in shares if f"<!-- {share:g} -->" in svg]
    assert ticks == ["0.01", "0.1", "0.3", "1"], "0.11 and 0.95 stand too near to others"
    assert FOREIGN_HEAD not in svg, "a split without any AST has no curve"


@drawn
def test_the_needles_heat_map_says_what_has_to_fit(tmp_path: Path) -> None:
    cells = [{"size": 10, "position": 0.5, "first": 1.0, "five": 1.0, "in_prompt": 0.5}]
    result = {"sizes": [10], "positions": [0.5], "context": 128_000, "forms": {"plain": {"cells": cells}}}
    svg = heat_plot(result, tmp_path / "heat.png")
    assert svg is not None and "<!-- in the first 128,000 tokens of all definitions -->" in svg


@drawn
def test_servers_that_were_not_called_get_no_empty_column(tmp_path: Path) -> None:
    for called in (True, False):
        svg = servers_plot(eval_results.servers(called=called), tmp_path / "plot.png")
        assert svg is not None and ("right outcomes" in svg) is called


def test_servers_without_groups_need_no_plot(tmp_path: Path) -> None:
    said = servers_plot({"groups": []}, tmp_path / "plot.png")
    assert said is not None and "no groups" in said and not (tmp_path / "plot.png").exists()


@pytest.mark.parametrize("name", ["plans", "executed", "agent", "servers", "calls", "retrieval"])
def test_without_matplotlib_a_page_says_that_plots_are_missing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    draws = {
        "plans": plan_plot, "executed": execute_plot, "agent": arms_plot, "servers": servers_plot, "calls": calls_plot,
        "retrieval": recall_plot,
    }  # fmt: skip
    part = plot_part("Title <x>", getattr(eval_results, name)(), tmp_path / "plot.png", draws[name])
    assert NO_PLOTS in part and "Title &lt;x&gt;" in part and not (tmp_path / "plot.png").exists()


def test_long_names_keep_both_ends() -> None:
    assert short("a\nb") == "a b" and short(" ") == "none" and short("x" * 34) == "x" * 34
    cut = short("market/" + "long" * 20 + "/tool")
    assert len(cut) <= 34 and cut.startswith("market/") and cut.endswith("/tool")


@drawn
def test_a_legend_has_names_that_begin_with_an_underscore(tmp_path: Path) -> None:
    points = [
        {**point, "by_split": {"_seen": point["overall"] | {"n": 9}, "x": point["overall"] | {"n": 9}}}
        for point in growing["points"]
    ]
    svg = scaling_plot(curves({"points": points}), tmp_path / "plot.png")
    assert svg is not None and "_seen (n=9)" in svg


def test_a_row_found_in_part_does_not_count_as_none() -> None:
    low, high = wilson(0.5, 1)
    assert low > 0 and low + high == pytest.approx(1), "around a half"


@drawn
def test_strategies_that_are_equal_do_not_hide_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looked for is each one's colour on the paper, the legend aside."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.colors import to_rgb

    seen: list[Any] = []
    monkeypatch.setattr("toolscout.eval.strategies.report.save_figure", lambda figure, path: seen.append(figure) or "")
    equal = {"accuracy": 0.8, "tokens": {"counted": 900.0}}
    # in any order of --strategies
    pools = [{"size": n, "strategies": dict.fromkeys(("retrieved", "blank", "keyword"), equal)} for n in (10, 100, 500)]
    strategy_plot({"model": "m", "n": 9, "context": 0, "pools": pools}, tmp_path / "s.png")
    for axes in seen[0].axes:
        lines = {str(line.get_label()): line.get_color() for line in axes.get_lines()}
        colours = {name: colour for name, colour in lines.items() if not name.startswith("_")}  # no interval's ends
        axes.get_legend().remove()
        axes.set_title("")
        others = [other for other in seen[0].axes if other is not axes]
        for other in others:
            other.set_visible(False)
        canvas = FigureCanvasAgg(seen[0])
        canvas.draw()
        pixels = np.asarray(canvas.buffer_rgba())[..., :3].reshape(-1, 3).astype(int)
        assert set(colours) == {"blank", "keyword", "retrieved"}
        for name, colour in colours.items():
            apart = np.abs(pixels - [round(255 * part) for part in to_rgb(colour)]).max(axis=1)
            assert (apart < 8).sum() > 40, name
        for other in others:
            other.set_visible(True)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("places", [[1, 1.01, 100], [1, 5, 10], [3]])
def test_series_beside_each_other_stay_at_their_place(places: list[float], log: bool) -> None:
    at = [beside(places, number, 5, log=log) for number in range(5)]
    order = [found[place] for place in places for found in at]
    assert order == sorted(order) and len(set(order)) == len(order)
    assert [at[2][place] for place in places] == pytest.approx(places)
