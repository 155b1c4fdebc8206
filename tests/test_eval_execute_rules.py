"""What executing is judged by: checks, Pass@K, agreement. No process is started."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from toolscout.causes import cause_of
from toolscout.errors import BadInput, ModelError
from toolscout.eval.execute.calls import FromAnswers
from toolscout.eval.execute.expect import Check, ExecuteRow, same
from toolscout.eval.execute.judge import ModelJudge, Trial, agreement, judge_by_rules
from toolscout.eval.execute.measure import read_rows
from toolscout.eval.execute.score import pass_at, score
from toolscout.responses import Response
from toolscout.synth.bench import Bench
from toolscout.synth.settings import synth_settings
from toolscout.synth.trajectories.run import StepRun
from toolscout.synth.writer import IN_VAIN, REFUSED, NoAnswer


def step(response: Response | None = None, id: str = "1", after: tuple[str, ...] = (), **more: Any) -> StepRun:
    made = StepRun(id=id, tool_id="s/t", depends_on=list(after), response=response, **more)
    if response is not None and (verdict := cause_of(response)) is not None:
        made.cause, made.rule, made.evidence = verdict.cause, verdict.rule, verdict.evidence
    return made


def text(said: str, **more: Any) -> Response:
    return Response(text=said, **more)


@pytest.mark.parametrize(
    ("check", "response", "holds"),
    [
        ({"contains": "Red  fox"}, text("a RED\nfox."), True),
        ({"contains": ["red", "hen"]}, text("a red fox"), False),
        ({"contains": "fox"}, text("", structured={"animal": "fox"}), True),
        ({"contains": "fox"}, text("see below", structured={"animal": "fox"}), True),
        ({"number": 1204}, text("1,204 tons"), True),
        ({"number": 120}, text("1204 tons"), False),
        ({"number": 4}, text("v4 of A4, 4.5"), False),
        ({"number": 20, "within": 0.5}, text("It is 20.4 °C."), True),
        ({"number": 20, "within": 0.3}, text("It is 20.4 °C."), False),
        ({"number": 0.3}, text("", structured={"x": 0.1 + 0.2}), True),
        ({"number": -3}, text("-3 degrees"), True),
        ({"path": "$.a[0].b", "equals": 1}, text('{"a": [{"b": 1.0}]}'), True),
        ({"path": "$.a[0].b", "equals": True}, text('{"a": [{"b": 1}]}'), False),
        ({"path": "$.A", "equals": 1}, text('{"a": 1}'), False),
        ({"path": "$['a b'].c", "equals": ["x"]}, text('{"a b": {"c": ["x"]}}'), True),
        ({"path": "$.a"}, text('{"a": null}'), False),
        ({"path": "$.a"}, text('{"a": false}'), True),
        ({"path": "$", "equals": [1, 2]}, text("[1, 2]"), True),
        ({"path": "$.n", "equals": 5}, text("", structured={"result": {"n": 5}}), True),
        ({"path": "$.books", "equals": []}, text('{"books": []}'), True),
        ({"no_error": True}, text("No results found"), True),
        ({"no_error": True}, text("Error: 404", is_error=True), False),
        ({"no_error": True}, text('{"success": false, "why": "quota"}'), False),
    ],
)
def test_checks(check: dict[str, Any], response: Response, holds: bool) -> None:
    assert Check.model_validate(check).holds([step(response)]) is holds


def test_the_last_calls_count_unless_any_does() -> None:
    steps = [step(text("7 eggs"), "1"), step(text("boiled"), "2", ("1",)), step(text("salted"), "3")]
    assert not Check(number=7).holds(steps) and Check(number=7, of="any").holds(steps)
    assert Check(contains=["boiled", "salted"]).holds(steps)
    assert not Check(no_error=True).holds([]) and not Check(no_error=True).holds([step(skipped=True)])


@pytest.mark.parametrize(
    "check",
    [
        {}, {"contains": "a", "number": 1}, {"equals": 1}, {"within": 1, "contains": "a"}, {"path": "a.b"},
        {"path": "$.a", "equal": 1}, {"number": 1, "within": -1}, {"no_error": False}, {"contains": "a", "of": "first"},
    ],
)  # fmt: skip
def test_what_is_no_check(check: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ValidationError):
        Check.model_validate(check)
    path = tmp_path / "c.jsonl"
    path.write_text(json.dumps({"id": "r", "query": "q", "expect": check}))
    with pytest.raises(BadInput, match=r"c.jsonl:1: not an execute row: expect"):
        read_rows([path])


def test_equality_of_json() -> None:
    assert same({"a": [1, 2.0]}, {"a": [1.0, 2]}) and not same([1], [1, 1]) and not same("1", 1) and same(None, None)
    assert not same({"a": 1}, {"a": 1, "b": 2}) and not same(0, False)


def test_a_failed_call_fails_whatever_the_checks_say() -> None:
    row = ExecuteRow(id="r", query="q", expect=[Check(contains="404")])
    trial = Trial("r", 1, "all", [step(text("Error: 404 not found", is_error=True))])
    judge_by_rules(row, trial)
    assert trial.passed is False and trial.failure == "api_error" and "not_found" in trial.why
    empty = Trial("r", 1, "all", [step(text("[]"))])
    judge_by_rules(row.model_copy(update={"expect": [Check(path="$", equals=[])]}), empty)
    assert empty.passed is True and empty.steps[0].cause == "empty_result"


@given(
    st.integers(1, 7).flatmap(lambda n: st.tuples(st.lists(st.booleans(), min_size=n, max_size=n), st.integers(1, n)))
)
def test_pass_at_k_is_the_share_of_draws_that_hold_a_success(drawn: tuple[list[bool], int]) -> None:
    passed, k = drawn
    draws = list(combinations(passed, k))
    assert pass_at(len(passed), sum(passed), k) == pytest.approx(sum(map(any, draws)) / len(draws))


def test_rows_without_a_verdict_are_left_out_of_pass_at_k() -> None:
    trials = [Trial("a", n, "x", rule=n == 2) for n in (1, 2)] + [Trial("b", n, "x") for n in (1, 2)]
    found = score(trials, 2, lambda tool_id: tool_id)
    assert (
        found["n"] == 1 and found["pass"] == {"pass@1": 0.5, "pass@2": 1.0} and found["any_of"] == {"1": 0.0, "2": 1.0}
    )
    assert found["judged"] == {"by_rules": 1, "by_model": 0, "not": 1} and found["agreement"] is None
    assert found["intervals"]["pass@1"] == [0.0546, 0.9454] and found["calls"]["success_rate"] is None


def test_kappa() -> None:
    def trials(*pairs: tuple[bool, bool]) -> list[Trial]:
        return [Trial(str(n), 1, "x", rule=rule, model=model, score=5.0) for n, (rule, model) in enumerate(pairs)]

    # The textbook case: 20 and 15 agreed, 5 and 10 not, of 50: kappa 0.4.
    cases = [(True, True)] * 20 + [(True, False)] * 5 + [(False, True)] * 10 + [(False, False)] * 15
    found = agreement(trials(*cases))
    assert found is not None and (found["share"], found["kappa"], found["n"]) == (0.7, 0.4, 50)
    always = agreement(trials((True, True), (True, True)))
    assert always is not None and always["share"] == 1 and always["kappa"] is None
    assert agreement([Trial("a", 1, "x", rule=True), Trial("b", 1, "x", model=True, score=9.0)]) is None


def test_answers_that_do_not_fit(tmp_path: Path) -> None:
    path, rows = tmp_path / "a.jsonl", [ExecuteRow(id="r", query="q")]
    path.write_text('{"id": "x", "calls": []}\n')
    with pytest.raises(BadInput, match="answers none of the rows"):
        FromAnswers.read(path, rows, 1)
    path.write_text('{"id": "r", "calls": []}\n' * 2)
    with pytest.raises(BadInput, match="2 answers for the row 'r', but there are 3 trials"):
        FromAnswers.read(path, rows, 3)
    assert len(FromAnswers.read(path, rows, 2).replies["r"]) == 2


@pytest.mark.parametrize("why", [IN_VAIN, REFUSED])
async def test_a_question_without_an_answer_leaves_its_trial_unjudged(why: str) -> None:
    """A content filter that refuses one question must not end the others; a judge that takes none must."""

    async def write(messages: Any, read: Any, **_: Any) -> Any:
        if "poison" in json.dumps(messages):
            raise NoAnswer(why, "so it said.")
        return read('{"score": 9}')

    def judge() -> ModelJudge:
        return ModelJudge(Bench({}, {}, synth_settings(), first=cast(Any, SimpleNamespace(write=write))))

    one, refused, answered = judge(), Trial("a", 1, ""), Trial("b", 1, "")
    await one.look(ExecuteRow(id="a", query="poison"), refused)
    assert (refused.passed, refused.unjudged) == (None, why)
    if why == REFUSED:
        with pytest.raises(ModelError, match="cannot be asked: so it said"):
            one.check()
    await one.look(ExecuteRow(id="b", query="q"), answered)
    one.check()
    assert answered.passed and not answered.unjudged
    found = score([refused, answered], 1, lambda tool_id: tool_id)
    assert found["unjudged"] == {why: 1} and found["judged"] == {"by_rules": 0, "by_model": 1, "not": 1}
