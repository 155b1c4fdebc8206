"""``eval calls`` side by side, with exemplars, over random tools; ``eval scaling``."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from toolscout.errors import BadInput, ModelError, NotFound
from toolscout.eval.calls import scaling
from toolscout.eval.calls.compare import compare_calls, lost_and_won, variants_of
from toolscout.eval.calls.exemplars import Exemplars
from toolscout.eval.calls.measure import measure_calls
from toolscout.eval.calls.memory import Remembering
from toolscout.eval.calls.plots import compare_plot, scaling_plot
from toolscout.eval.calls.random import check_constraints, random_calls
from toolscout.eval.cli import app
from toolscout.eval.rows import read_calls, read_tools
from toolscout.records import Call, GoldCall
from toolscout.server.backends import Generation
from toolscout.server.calling.suggestion import Candidate, SuggestedCall, Suggestion

DATA = Path(__file__).parent / "data" / "eval"
TOOLS, CALLS = [DATA / "tools.jsonl"], [DATA / "calls.jsonl"]
PLOTS = importlib.util.find_spec("matplotlib") is not None


class Letters:
    """An encoder of texts by their letters: enough to be near or far."""

    def encode(self, texts: Sequence[str], *, kind: str = "document") -> Any:
        counts = np.array([[text.lower().count(chr(97 + i)) for i in range(26)] for text in texts], dtype=np.float32)
        return counts / np.maximum(np.linalg.norm(counts, axis=1, keepdims=True), 1e-9)


class Answers:
    """Calls the first candidate with arguments as told, or what is told to happen; keeps what it was given."""

    def __init__(self, arguments: dict[str, Any] | None = None, error: Exception | None = None) -> None:
        self.arguments, self.error = arguments or {}, error
        self.seen: list[list[Candidate]] = []

    async def suggest(self, task: str, candidates: Sequence[Candidate], *, steps: int = 1) -> Suggestion:
        self.seen.append(list(candidates))
        if self.error is not None:
            raise self.error
        call = SuggestedCall(candidates[0].tool.tool_id, self.arguments, 0.9)
        return Suggestion([call], model="told", prompt_tokens=100, cached_tokens=40, first_token_seconds=0.25)


def exemplar(number: int, query: str, tool_id: str, **arguments: Any) -> Call:
    return Call(id=f"x{number}", query=query, gold=[GoldCall(tool_id=tool_id, arguments=arguments)])


def test_the_nearest_exemplars_of_the_candidates_are_shown_and_never_the_row_itself() -> None:
    tools = read_tools(TOOLS)
    row = next(r for r in read_calls(CALLS) if r.id == "c1")
    own = [exemplar(i, f"Heat water to {w} degrees", "kettle/boil_water", celsius=i) for i, w in enumerate("abcdefg")]
    others = [
        exemplar(20, row.query.upper(), "kettle/boil_water", celsius=80),
        exemplar(21, "Heat the kettle water to 80 degrees!", "atlas/route"),
        Call(id=row.id, query="Heat it", gold=[GoldCall(tool_id="kettle/boil_water", arguments={"celsius": 1})]),
        Call(id="none", query="Nothing fits this", gold=[]),
    ]
    found = Exemplars([*own, *others], Letters()).nearest(row, [tools["kettle/boil_water"], tools["scribe/new_note"]])
    assert list(found) == ["kettle/boil_water"] and len(found["kettle/boil_water"]) == 5
    assert {c.id for c in found["kettle/boil_water"]} < {c.id for c in own}
    assert Exemplars(own, Letters()).nearest(row, [tools["scribe/new_note"]]) == {}
    whole = Exemplars([*own, *others], Letters(), any_tool=True)
    shown = whole.nearest(row, [tools["scribe/new_note"], tools["kettle/boil_water"]])
    assert list(shown) == ["scribe/new_note"] and "x21" in {c.id for c in shown["scribe/new_note"]}
    assert whole.fingerprint != Exemplars([*own, *others], Letters()).fingerprint
    with pytest.raises(BadInput, match="no request with one gold call"):
        Exemplars([others[-1]], Letters())


def test_exemplars_reach_the_caller_and_mark_the_work_file(tmp_path: Path) -> None:
    given = Exemplars([exemplar(1, "Boil some water", "kettle/boil_water", celsius=100)], Letters())
    caller = Answers()
    work = tmp_path / "work.jsonl"
    run = measure_calls(TOOLS, CALLS, candidates=3, caller=caller, exemplars=given, work=work)
    shown = {e.id for asked in caller.seen for c in asked for e in c.exemplars}
    assert shown == {"x1"} and run.result["n"] == 7
    with pytest.raises(BadInput, match="another run"):
        measure_calls(TOOLS, CALLS, candidates=3, caller=Answers(), work=work)


def test_cost_is_told_to_the_first_token_and_of_the_cache() -> None:
    run = measure_calls(TOOLS, CALLS, candidates=3, caller=Answers())
    assert run.result["first_token_seconds"] == {"p50": 0.25, "p95": 0.25}
    assert run.result["tokens"] == {"prompt": 100.0, "cached": 40.0, "completion": 0.0}


def test_what_is_compared() -> None:
    sizes = variants_of("candidates", candidates=10, sizes=[1, 20])
    assert [(v.name, v.candidates, v.decoding) for v in sizes] == [("1", 1, "repair"), ("20", 20, "repair")]
    assert [v.decoding for v in variants_of("decoding", candidates=10)] == ["free", "constrained", "schema", "repair"]
    shown = Exemplars([exemplar(1, "Boil", "kettle/boil_water")], Letters())
    assert [v.exemplars for v in variants_of("exemplars", candidates=10, exemplars=shown)] == [None, shown]
    with pytest.raises(BadInput, match="needs exemplars"):
        variants_of("exemplars", candidates=10)
    with pytest.raises(BadInput, match="nothing that can be compared"):
        variants_of("colours", candidates=10)


def test_won_and_lost_rows_are_counted_one_by_one() -> None:
    right = measure_calls(TOOLS, CALLS, candidates=3, caller=Answers())
    wrong = measure_calls(TOOLS, CALLS, candidates=3, caller=Answers())
    for outcome, value in zip([o for o in right.outcomes if o.ast is not None], [1, 1, 0, 0, 0, 1], strict=True):
        outcome.ast = bool(value)
    for outcome, value in zip([o for o in wrong.outcomes if o.ast is not None], [0, 1, 1, 1, 0, 1], strict=True):
        outcome.ast = bool(value)
    assert lost_and_won(right, wrong) == {"won": 2, "lost": 1}


async def test_a_remembered_answer_counts_the_seconds_it_took() -> None:
    class Slow:
        name, asked = "slow", 0

        async def generate(self, messages: Any, **options: Any) -> Generation:
            self.asked += 1
            return Generation(f"{self.asked} {options['prefix']}")

    slow = Slow()
    memory = Remembering(slow)  # type: ignore[arg-type]
    first = await memory.generate([{"role": "user", "content": "a"}], prefix="p")
    again = await memory.generate([{"role": "user", "content": "a"}], prefix="p")
    other = await memory.generate([{"role": "user", "content": "a"}], prefix="q")
    assert (first.text, again.text, other.text, slow.asked) == ("1 p", "1 p", "2 q", 2)
    assert memory.name == "slow" and memory.spared > 0


def test_random_tools_tell_valid_calls_from_every_other_end(tmp_path: Path) -> None:
    tools = list(read_tools(TOOLS).values())
    rows = read_calls(CALLS)
    work = tmp_path / "deep" / "work.jsonl"
    found = random_calls(tools, rows, 5, caller=Answers({"no": "such"}), work=work)
    assert found["n"] == 5 and found["offered"] == 5 and found["incomplete"] == found["refused"] == 0
    assert found["schema_valid"] == round(1 - len(found["invalid"]) / 5, 4)
    assert found["constraints"]["failed"] == [] and found["constraints"]["tools"] == len(tools)
    crashed = random_calls(tools, rows, 7, caller=Answers(error=RuntimeError("boom")), work=work)
    assert crashed["n"] == 7 and len(crashed["crashed"]) == 2, "five were done before"
    with pytest.raises(BadInput, match="another run"):
        random_calls(tools, rows, 5, caller=Answers({"no": "such"}), work=work, seed=5)
    with pytest.raises(ModelError):
        random_calls(tools, rows, 2, caller=Answers(error=ModelError("gone")))


def test_no_schema_of_the_pool_breaks_a_constraint() -> None:
    made = check_constraints(list(read_tools(TOOLS).values()))
    assert made["failed"] == [] and made["ms"]["p50"] > 0 and made["characters"]["p50"] > 50


def result(n: int = 7, ast: float = 0.5, candidates: int = 10) -> dict[str, Any]:
    rates = {"tool": 0.9, "param": 0.7, "ast": ast, "schema_valid": 1.0}
    return {
        "n": n,
        "model": "m",
        "candidates": candidates,
        "overall": rates,
        "by_split": {"seen": {"n": n, **rates}, "unseen_tool": {"n": n, **rates, "ast": None}},
        "abstention": {"right_refusal_rate": None, "false_refusal_rate": 0.0},
        "seconds": {"p50": 1.0, "p95": 2.0},
    }


@pytest.mark.skipif(not PLOTS, reason="needs the extra 'eval'")
def test_plots_of_comparisons_and_of_scaling(tmp_path: Path) -> None:
    sizes = {"by": "candidates", "variants": {"1": result(), "10": result(ast=0.4)}}
    modes = {"by": "decoding", "variants": {"free": result(), "repair": result(ast=0.7)}}
    for number, comparison in enumerate((sizes, modes)):
        path = tmp_path / f"{number}.png"
        svg = compare_plot(comparison, path)
        assert svg is not None and svg.startswith("<svg") and path.stat().st_size > 5000
    points = {"points": [{"share": share, **result(ast=share)} for share in (0.1, 0.3, 1.0)]}
    assert scaling_plot(scaling.curves(points), tmp_path / "scaling.png")


def test_scaling_by_the_command_line(tmp_path: Path) -> None:
    for name, ast in (("tenth", 0.2), ("whole", 0.6)):
        (tmp_path / f"{name}.json").write_text(json.dumps(result(ast=ast)), "utf-8")
    out = tmp_path / "out.json"
    runs = [f"1={tmp_path / 'whole.json'}", f"0.1={tmp_path / 'tenth.json'}"]
    ran = CliRunner().invoke(
        app, ["scaling", "--runs", *runs, "--json", str(out), "--report", str(tmp_path / "report")]
    )
    assert ran.exit_code == 0, (ran.output, ran.exception)
    points = json.loads(out.read_text("utf-8"))["points"]
    assert [(p["share"], p["overall"]["ast"]) for p in points] == [(0.1, 0.2), (1.0, 0.6)]
    assert set(points[0]) == {"share", "n", "model", "candidates", "overall", "by_split", "intervals"}
    page = (tmp_path / "report" / "report.html").read_text("utf-8")
    assert "By share of the training data" in page and "AST by share" in page
    assert len((tmp_path / "report" / "rows.jsonl").read_text("utf-8").splitlines()) == 2


def test_scaling_keeps_the_intervals_that_a_result_has(tmp_path: Path) -> None:
    around = {"overall": {"ast": [0.4, 0.6]}, "by_split": {"seen": {"ast": [0.3, 0.7]}}, "by_lang": {}}
    (tmp_path / "old.json").write_text(json.dumps(result()), "utf-8")
    (tmp_path / "new.json").write_text(json.dumps({**result(), "intervals": around}), "utf-8")
    found = scaling.curves(scaling.scaling([f"0.1={tmp_path / 'old.json'}", f"1={tmp_path / 'new.json'}"]))
    assert [rates["intervals"] for _, rates in found["all"]] == [{}, {"ast": [0.4, 0.6]}]
    assert [rates["intervals"] for _, rates in found["seen"]] == [None, {"ast": [0.3, 0.7]}]
    assert all(rates["n"] == 7 for points in found.values() for _, rates in points)


def test_rows_with_candidates_of_their_own_are_told_of_and_sized(tmp_path: Path) -> None:
    asked: dict[int, int] = {}

    class Counts(Answers):
        async def suggest(self, task: str, candidates: Any, *, steps: int = 1) -> Any:
            asked[size] = max(asked.get(size, 0), len(candidates))
            return await super().suggest(task, candidates, steps=steps)

    answerable = next(row for row in read_calls(CALLS) if row.gold)
    own = [row for row in read_calls(CALLS) if row.candidates]
    own.append(answerable.model_copy(update={"candidates": ["scribe/new_note"]}))
    calls_file = tmp_path / "own.jsonl"
    calls_file.write_text("".join(row.to_json() + "\n" for row in own), "utf-8")
    assert [bool(row.gold) for row in own] == [False, True]
    for size in (1, 4):
        run = measure_calls(TOOLS, [calls_file], candidates=size, caller=Counts(), sized=True)
        assert run.warnings == [
            f"2 rows bring candidates of their own, which were drawn down or filled up to {size}; "
            "the 1 of them without gold were not filled up, as the pool may serve them."
        ]
    assert asked == {1: 1, 4: 4}


def test_only_a_comparison_of_candidates_changes_the_candidates_of_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    sized: list[bool] = []

    def measured(*_: Any, **options: Any) -> Any:
        sized.append(options["sized"])
        raise ModelError("enough")

    monkeypatch.setattr("toolscout.eval.calls.compare.measure_calls", measured)
    for aspect in ("candidates", "decoding"):
        with pytest.raises(ModelError, match="enough"):
            compare_calls(TOOLS, CALLS, aspect, variants_of(aspect, candidates=3))
    assert sized == [True, False]


@pytest.mark.parametrize("run", [
    "whole.json", "much=whole.json", "-1=whole.json", "nan=whole.json", "inf=whole.json", "1=absent.json",
    "1=broken.json", "1=refusals.json", "1=odd.json",
])  # fmt: skip
def test_scaling_of_what_is_no_result_is_one_sentence(tmp_path: Path, run: str) -> None:
    (tmp_path / "whole.json").write_text(json.dumps(result()), "utf-8")
    (tmp_path / "broken.json").write_text('{"n": 3}', "utf-8")
    (tmp_path / "odd.json").write_text(json.dumps({**result(), "of": "x"}), "utf-8")
    (tmp_path / "refusals.json").write_text(json.dumps({**result(), "n": 0}), "utf-8")
    share, equals, name = run.rpartition("=")
    with pytest.raises(NotFound if name == "absent.json" else BadInput):
        scaling.scaling([f"{share}{equals}{tmp_path / name}"])


def test_scaling_refuses_results_that_cannot_be_compared(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps(result()), "utf-8")
    (tmp_path / "b.json").write_text(json.dumps(result(candidates=5)), "utf-8")
    with pytest.raises(BadInput, match="differ in rows or candidates"):
        scaling.scaling([f"0.1={tmp_path / 'a.json'}", f"1={tmp_path / 'b.json'}"])
    for share in ("0", "1"):
        with pytest.raises(BadInput, match=f"The share {share} is given twice"):
            scaling.scaling([f"{share}={tmp_path / 'a.json'}", f"{share}.0={tmp_path / 'a.json'}"])


@pytest.mark.parametrize(("one", "word"), [
    ({"rows": "b"}, "rows"), ({"rows": "a", "seed": 1}, "seeds"),
    ({"rows": "a", "without_gold": "random"}, "candidates"),
])  # fmt: skip
def test_scaling_refuses_results_of_other_rows_that_are_as_many(tmp_path: Path, one: Any, word: str) -> None:
    for name, of in (("old", {}), ("a", {"rows": "a"}), ("same", {"rows": "a", "weights": ["x"]}), ("b", one)):
        (tmp_path / f"{name}.json").write_text(json.dumps({**result(), "of": {"run": of}}), "utf-8")
    runs = [f"{share}={tmp_path / name}.json" for share, name in ((0, "old"), (0.1, "a"), (1, "same"))]
    assert len(scaling.scaling(runs)["points"]) == 3, "an older result says nothing of itself"
    with pytest.raises(BadInput, match=f"their {word} are not the same"):
        scaling.scaling([*runs, f"2={tmp_path / 'b.json'}"])


@pytest.mark.parametrize(
    "options", [["--decoding", "guess"], ["--compare", "colours"], ["--sizes", "x"], ["--compare", "exemplars"]]
)
def test_options_that_say_nothing_are_refused_before_anything_is_asked(options: list[str]) -> None:
    files = ["--tools", *map(str, TOOLS), "--calls", *map(str, CALLS)]
    ran = CliRunner().invoke(app, ["calls", *files, *options])
    assert isinstance(ran.exception, BadInput)


def test_without_a_model_nothing_is_compared() -> None:
    with pytest.raises(ModelError, match="No model answered") as error:
        compare_calls(TOOLS, CALLS, "candidates", variants_of("candidates", candidates=3, sizes=[2]))
    assert ".." not in error.value.sentence()
