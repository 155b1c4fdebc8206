"""``toolscout eval plan``: given answers, the planner over candidates and over the search, resuming, the report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from toolscout.errors import BadInput, ModelError
from toolscout.eval.calls.measure import Pool
from toolscout.eval.cli import app
from toolscout.eval.plans.measure import measure_plans, score_answers
from toolscout.eval.plans.report import plan_report
from toolscout.eval.plans.run import Planning, searching
from toolscout.eval.plans.score import METRICS, Overlap, Verdict, rates
from toolscout.eval.rows import read_tools, silent
from toolscout.server.backends import ContextOverflow
from toolscout.server.calling.suggestion import Candidate, SuggestedCall, Suggestion
from toolscout.settings import Settings

TOOLS = [Path(__file__).parent / "data" / "eval" / "tools.jsonl"]
KEYS = {
    "n", "model", "answers", "overall", "by_split", "by_steps", "by_lang", "problems", "seconds", "tokens",
}  # fmt: skip
BALANCE = {"id": "1", "tool_id": "ledger/account_balance", "arguments": {"account": "Travel"}}
INVOICE = {
    "id": "2",
    "tool_id": "ledger/create_invoice",
    "arguments": {"customer": "Orchard", "amount": "$1.balance"},
    "depends_on": ["1"],
}
HEAT = {"id": "3", "tool_id": "kettle/boil_water", "arguments": {"celsius": 80}}
ROWS: list[dict[str, Any]] = [
    {"id": "p1", "query": "Bill Orchard what is in Travel", "gold": [BALANCE, INVOICE], "split": "two", "lang": "en"},
    {
        "id": "p2",
        "query": "Bill it <script>, and heat",
        "gold": [BALANCE, INVOICE, HEAT],
        "split": "more",
        "lang": "en",
    },
    {"id": "p3", "query": "Wasser auf 80 Grad", "gold": [HEAT], "split": "one", "lang": "de"},
]
for row in ROWS:
    row["candidates"] = [g["tool_id"] for g in row["gold"]] + ["kettle/descale"]


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


@pytest.fixture
def calls(tmp_path: Path) -> list[Path]:
    return [write(tmp_path / "calls.jsonl", ROWS)]


def answer(row: dict[str, Any], *made: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "calls": list(made)}


def test_gold_scores_one_against_itself(calls: list[Path], tmp_path: Path) -> None:
    answers = write(tmp_path / "gold.jsonl", [answer(row, *row["gold"]) for row in ROWS])
    run = score_answers(TOOLS, calls, answers)
    result = run.result
    assert set(result) == KEYS and result["n"] == 3 and run.warnings == []
    assert (result["model"], result["answers"]) == (None, "gold.jsonl")
    assert set(result["overall"]) == {"n", "intervals", *METRICS}
    assert {result["overall"][name] for name in METRICS} == {1.0}
    assert result["overall"]["intervals"]["graph"] == [1.0, 1.0]
    assert {k: v["n"] for k, v in result["by_steps"].items()} == {"1": 1, "2": 1, "3": 1}
    assert set(result["by_split"]) == {"one", "two", "more"} and result["by_lang"]["en"]["n"] == 2
    assert result["by_split"]["one"]["edge_f1"] is None, "no edge in the gold, none in the plan"
    assert result["by_split"]["one"]["intervals"]["graph"] is None, "one row has no interval"
    assert set(result["problems"].values()) == {0}
    json.dumps(result, allow_nan=False)


def test_every_number_of_a_mixed_lot(calls: list[Path], tmp_path: Path) -> None:
    wrong = {**INVOICE, "arguments": {"customer": 5, "amount": "$7.balance"}, "depends_on": []}
    answers = write(
        tmp_path / "a.jsonl",
        [answer(ROWS[0], BALANCE, wrong), answer(ROWS[1], HEAT, BALANCE), answer(ROWS[2])],
    )
    run = score_answers(TOOLS, calls, answers)
    overall = {name: run.result["overall"][name] for name in METRICS}
    assert overall == {
        "graph": 0.0, "graph_paths": 0.0, "last": 0.0, "last_paths": 0.0, "tools": round(1 / 3, 4),
        "node_precision": 1.0, "node_recall": round(4 / 6, 4), "node_f1": 0.8,
        "edge_precision": None, "edge_recall": 0.0, "edge_f1": 0.0,
        "schema_valid": 0.5, "acyclic": 1.0, "references": 0.5, "answered": round(2 / 3, 4),
    }  # fmt: skip
    assert [v.problem for v in run.verdicts] == ["reference to no call", "other tools", "no plan"]
    assert run.result["problems"]["no plan"] == 1
    assert run.verdicts[1].detail == "lacks ledger/create_invoice"


def test_rows_without_an_answer_and_answers_without_a_row_are_told(calls: list[Path], tmp_path: Path) -> None:
    answers = write(tmp_path / "a.jsonl", [answer(ROWS[0], *ROWS[0]["gold"]), {"id": "zz", "calls": []}])
    said: list[str] = []
    run = score_answers(TOOLS, calls, answers, say=said.append)
    assert run.result["overall"]["graph"] == round(1 / 3, 4) and said == run.warnings
    assert said == [
        "1 answers are to no row of the calls files, e.g. 'zz'.",
        "2 rows have no answer and count as rows without a plan, e.g. 'p2'.",
    ]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "holds no answers"),
        ([{"id": "zz", "calls": []}], "None of the answers"),
        ([{"id": "p1", "calls": []}] * 2, "'p1' twice"),
        ([{"id": "p1"}], "a.jsonl:1: not a reply: calls"),
        ([{"id": "p1", "calls": [{"tool_id": "a/b", "arguments": "{}"}]}], "a.jsonl:1: .*arguments"),
        ([{"id": "p1", "calls": [{"arguments": {}}]}], "a.jsonl:1: .*tool_id"),
    ],
)
def test_files_that_are_no_answers_are_refused(calls: list[Path], tmp_path: Path, lines: list[Any], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        score_answers(TOOLS, calls, write(tmp_path / "a.jsonl", lines))


def test_ids_may_be_numbers(calls: list[Path], tmp_path: Path) -> None:
    made = [{**BALANCE, "id": 1}, {**INVOICE, "id": 2, "depends_on": [1]}]
    run = score_answers(TOOLS, calls, write(tmp_path / "a.jsonl", [answer(ROWS[0], *made)]))
    assert run.verdicts[0].graph_paths is True


def test_gold_that_cannot_be_compared_with_is_left_out_and_told(tmp_path: Path) -> None:
    loop = [{**BALANCE, "depends_on": ["2"]}, INVOICE]
    unmet = [{"tool_id": "kettle/boil_water", "arguments": {"litres": 1}}]  # celsius is required
    bare = [{"tool_id": "kettle/boil_water"}]  # the tool alone is known
    rows = [
        *ROWS,
        {"id": "loop", "query": "q", "gold": loop},
        {"id": "none", "query": "q", "gold": []},
        {"id": "far", "query": "q", "gold": [{"tool_id": "moon/fly"}]},
        {"id": "unmet", "query": "q", "gold": unmet},
        {"id": "bare", "query": "q", "gold": bare},
    ]
    calls = [write(tmp_path / "calls.jsonl", rows)]
    answers = write(
        tmp_path / "a.jsonl", [{"id": r["id"], "calls": [{"arguments": {}, **g} for g in r["gold"]]} for r in rows]
    )
    run = score_answers(TOOLS, calls, answers)
    assert [v.id for v in run.verdicts] == ["p1", "p2", "p3", "unmet", "bare"]
    assert [w.split(":")[0][:40] for w in run.warnings] == [
        "1 rows left out", "1 rows left out", "1 rows left out", "1 rows have gold calls that break their ",
    ]  # fmt: skip
    assert run.verdicts[-1].graph is None and run.verdicts[-1].tools and run.verdicts[-1].problem == ""
    assert run.result["overall"]["graph"] == 0.75, "of the four rows that state their arguments"
    with pytest.raises(BadInput, match="No row has a gold plan"):
        score_answers(TOOLS, [write(tmp_path / "only.jsonl", [rows[3]])], answers)


def test_intervals_hold_the_numbers_and_narrow_with_rows() -> None:
    def lot(n: int) -> list[Verdict]:
        return [Verdict(str(i), "s", "l", 2, True, graph=i % 4 == 0, nodes=Overlap(1, 2, 1 + i % 3)) for i in range(n)]

    few, many = rates(lot(40)), rates(lot(4000))
    for name in ("graph", "node_precision", "node_recall", "node_f1"):
        low, high = few["intervals"][name]
        assert low <= few[name] <= high
    low, high = many["intervals"]["graph"]
    # The normal approximation, 0.25 +- 1.96 sqrt(0.25 * 0.75 / 4000), as the independent reckoning
    assert (low, high) == (pytest.approx(0.2366, abs=0.003), pytest.approx(0.2634, abs=0.003))
    assert few["intervals"]["edge_f1"] is None and few["edge_f1"] is None
    assert rates(lot(40)) == few


class Planner:
    """Answers each request with calls written down before."""

    def __init__(self, script: dict[str, list[dict[str, Any]]], after: int | None = None) -> None:
        self.script, self.after = script, after
        self.asked: list[tuple[str, list[str], int]] = []

    async def suggest(self, task: str, candidates: Sequence[Candidate], *, steps: int = 1) -> Suggestion:
        if len(self.asked) == self.after:
            raise ModelError("The endpoint went away.")
        self.asked.append((task, [c.tool.tool_id for c in candidates], steps))
        made = [
            SuggestedCall(c["tool_id"], c["arguments"], 0.9, id=c["id"], depends_on=c.get("depends_on", []))
            for c in self.script[task]
        ]
        return Suggestion(made, model="scripted", abstained=not made, prompt_tokens=50, completion_tokens=7)


def right() -> dict[str, list[dict[str, Any]]]:
    return {row["query"]: row["gold"] for row in ROWS}


def test_the_planner_is_asked_over_the_candidates_with_steps(calls: list[Path]) -> None:
    planner = Planner(right())
    run = measure_plans(TOOLS, calls, caller=planner)
    assert {run.result["overall"][name] for name in METRICS} == {1.0}
    assert run.result["model"] == "scripted" and run.result["tokens"] == {"prompt": 50.0, "completion": 7.0}
    assert [steps for _, _, steps in planner.asked] == [10, 10, 1]
    assert set(planner.asked[0][1]) == set(ROWS[0]["candidates"])


def test_rows_without_candidates_are_asked_over_the_search(tmp_path: Path) -> None:
    rows = [{k: v for k, v in row.items() if k != "candidates"} for row in ROWS[:1]]
    rows[0]["query"] = "Create an invoice for the customer Orchard over the balance of the account Travel"
    rows.append({**ROWS[2], "id": "own"})
    planner = Planner({rows[0]["query"]: rows[0]["gold"], rows[1]["query"]: rows[1]["gold"]})
    said: list[str] = []
    run = measure_plans(TOOLS, [write(tmp_path / "calls.jsonl", rows)], caller=planner, say=said.append)
    offered = {task: ids for task, ids, _ in planner.asked}
    assert {"ledger/create_invoice", "ledger/account_balance"} <= set(offered[rows[0]["query"]])
    assert set(offered[rows[1]["query"]]) == set(rows[1]["candidates"])
    assert run.result["overall"]["graph"] == 1.0 and any("building the index" in line for line in said)


def test_an_interrupted_run_goes_on_where_it_stopped(calls: list[Path], tmp_path: Path) -> None:
    work = tmp_path / "deep" / "work.jsonl"
    whole = measure_plans(TOOLS, calls, caller=Planner(right()))
    with pytest.raises(ModelError, match="went away"):
        measure_plans(TOOLS, calls, work=work, caller=Planner(right(), after=2))
    with work.open("a", encoding="utf-8") as stream:
        stream.write('{"id": "p3", "cal')  # the machine lost power in the middle of a line
    said: list[str] = []
    rest = Planner(right())
    run = measure_plans(TOOLS, calls, work=work, caller=rest, say=said.append)
    assert [task for task, _, _ in rest.asked] == [ROWS[2]["query"]] and "2 of 3 rows were done before" in said
    assert run.verdicts == whole.verdicts and run.result["overall"] == whole.result["overall"]
    nothing = Planner({})
    assert measure_plans(TOOLS, calls, work=work, caller=nothing).result == run.result and nothing.asked == []


def test_a_row_that_was_changed_is_asked_again_and_another_run_is_refused(calls: list[Path], tmp_path: Path) -> None:
    work = tmp_path / "work.jsonl"
    measure_plans(TOOLS, calls, work=work, caller=Planner(right()))
    other = write(tmp_path / "other.jsonl", [{**ROWS[0], "query": "Other words"}, *ROWS[1:]])
    planner = Planner({**right(), "Other words": []})
    run = measure_plans(TOOLS, [other], work=work, caller=planner)
    assert [task for task, _, _ in planner.asked] == ["Other words"] and run.verdicts[0].problem == "no plan"
    with pytest.raises(BadInput, match="another run"):
        measure_plans(TOOLS, calls, work=work, seed=5, caller=Planner(right()))


def test_a_work_file_of_other_weights_or_of_another_search_is_refused(
    calls: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Product(Planner):
        def __init__(self, settings: Settings) -> None:
            super().__init__(right())

        async def close(self) -> None:
            return None

    monkeypatch.setattr("toolscout.server.calling.caller.Caller", Product)
    weights, work = tmp_path / "adapter.gguf", tmp_path / "work.jsonl"
    weights.write_bytes(b"GGUF one")
    same = Settings(model=str(weights))
    asked = partial(measure_plans, TOOLS, calls, work=work)
    asked(settings=same)
    asked(settings=same)
    remote = {"encoder": "openai:x", "encoder_url": "http://127.0.0.1:1/v1"}
    for changed in ({"model_chooses": False}, {"model_temperature": 0.5}, {"model_context": 512}, remote):
        with pytest.raises(BadInput, match="other model or weights, encoder"):
            asked(settings=same.model_copy(update=changed))
    with pytest.raises(BadInput, match="another run"):
        asked(settings=same, found=7)
    weights.write_bytes(b"GGUF two")
    with pytest.raises(BadInput, match="another run"):
        asked(settings=same)


@pytest.mark.parametrize(("found", "one", "several"), [(None, 5, 12), (7, 7, 7), (2, 2, 2)])
def test_as_many_tools_are_searched_as_asked_for(
    found: int | None, one: int, several: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Index:
        def find(self, query: str, **how: Any) -> Any:
            limits.append(how["limit"])
            return SimpleNamespace(no_match=True)

        def close(self) -> None:
            return None

    limits: list[int] = []
    monkeypatch.setattr("toolscout.eval.retrieval.measure._build_apart", lambda *_: None)
    monkeypatch.setattr("toolscout.index.search.SearchIndex.open", lambda *_, **__: Index())
    planning = Planning(Pool(read_tools(TOOLS)), TOOLS, Settings(), found)
    with searching(planning, silent) as search:
        assert search("q", 1) == search("q", 10) == []
    assert limits == [one, several]


def test_a_missing_model_is_said_in_one_sentence(calls: list[Path]) -> None:
    class Nobody(Planner):
        async def suggest(self, task: str, candidates: Sequence[Candidate], *, steps: int = 1) -> Suggestion:
            return Suggestion([], abstained=True, reason="No model is installed.")

    with pytest.raises(ModelError) as error:
        measure_plans(TOOLS, calls, caller=Nobody({}))
    assert ".." not in error.value.sentence()


def test_a_prompt_too_long_for_the_model_is_a_row_without_a_plan(calls: list[Path]) -> None:
    class Overflows(Planner):
        async def suggest(self, task: str, candidates: Sequence[Candidate], *, steps: int = 1) -> Suggestion:
            if task == ROWS[0]["query"]:
                raise ContextOverflow("The prompt has 9000 tokens, the context 4096.", 0.45)
            return await super().suggest(task, candidates, steps=steps)

    run = measure_plans(TOOLS, calls, caller=Overflows(right()))
    assert "9000 tokens" in (run.given[0].reason or "") and run.verdicts[0].problem == "no plan"
    assert run.result["overall"]["answered"] == round(2 / 3, 4)


def test_the_report_shows_what_went_wrong_and_its_rows_can_be_scored_again(calls: list[Path], tmp_path: Path) -> None:
    script = right()
    script[ROWS[1]["query"]] = [{**HEAT, "arguments": {"celsius": 9012, "<b>": 1}}]
    run = measure_plans(TOOLS, calls, caller=Planner(script))
    page = plan_report(run, tmp_path / "report").read_text("utf-8")
    assert "<h2>Plans by length</h2>" in page
    assert (
        "9012" in page
        and "other tools: lacks ledger/account_balance; lacks ledger/create_invoice" in page
        and "&lt;script&gt;" in page
    )
    assert "<b>" not in page and "<script" not in page
    again = score_answers(TOOLS, calls, tmp_path / "report" / "rows.jsonl")
    assert again.verdicts == run.verdicts
    assert json.loads((tmp_path / "report" / "result.json").read_text("utf-8")) == run.result


def test_the_command(calls: list[Path], tmp_path: Path) -> None:
    answers = write(tmp_path / "gold.jsonl", [answer(row, *row["gold"]) for row in ROWS])
    out = tmp_path / "out.json"
    asked = ["plan", "--tools", str(TOOLS[0]), "--calls", str(calls[0]), "--answers", str(answers)]
    ran = CliRunner().invoke(app, [*asked, "--json", str(out), "--report", str(tmp_path / "report")])
    assert ran.exit_code == 0, (ran.output, ran.exception)
    assert "1.000 [1.000, 1.000]" in ran.output and "By number of gold calls" in ran.output
    assert json.loads(out.read_text("utf-8"))["overall"]["graph"] == 1.0 and (tmp_path / "report/report.html").exists()
    limited = CliRunner().invoke(app, [*asked, "--limit", "2", "--json", str(out), "--quiet"])
    assert limited.exit_code == 0 and json.loads(out.read_text("utf-8"))["n"] == 2
    both = CliRunner().invoke(app, [*asked, "--model", "smollm2-135m"])
    assert isinstance(both.exception, BadInput) and "no model is asked" in str(both.exception)
