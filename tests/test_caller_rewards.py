"""What the call generator's reinforcement learning rewards, and what it counts: no model is needed for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from toolscout.cli import execute
from toolscout.errors import BadInput
from toolscout.finetune.caller.rewards import REWARDS, Answer, read_answer, score, target_of, weighted
from toolscout.finetune.caller.rl_data import held_out, whole_lines
from toolscout.finetune.caller.rl_measure import Measured, comparison, summary
from toolscout.finetune.caller.rl_options import WEIGHTS, RlOptions, accumulation, rl_preset
from toolscout.prompt import answer
from toolscout.records import Tool
from toolscout.synth.call_rows import CallRow

WEATHER = Tool(
    tool_id="w/get_weather", server_id="w", name="get_weather", description="Weather of a city.",
    input_schema={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["c", "f"]}},
        "required": ["city"],
    },
)  # fmt: skip
PING = Tool(tool_id="p/ping", server_id="p", name="ping", description="Answers.", input_schema={"type": "object"})
TOOLS = {t.tool_id: t for t in (WEATHER, PING)}


def row(text: str, kind: str = "call", gold: str = "w/get_weather", **more: Any) -> CallRow:
    given: dict[str, Any] = {
        "id": "r", "group": 0, "kind": kind, "query": "q", "tools": list(TOOLS), "gold": gold,
        "messages": [{"role": "user", "content": "q"}], "answer": text,
    }  # fmt: skip
    return CallRow(**(given | more))


CALL = row(answer("get_weather", {"city": "New York", "days": 2}))
MISSING = row(answer("get_weather", {"days": 2}, ["city"]), "missing")
NONE = row(answer("none"), "none_foreign", "")


def earned(text: str, right: CallRow = CALL) -> tuple[float, ...]:
    """valid_json, schema_valid, right_tool, right_names, right_values, right_abstention."""
    found = score(text, target_of(right, TOOLS))
    assert list(found) == list(REWARDS)
    return tuple(round(v, 3) for v in found.values())


ALL, NOTHING = (1.0,) * 6, (0.0,) * 6


@pytest.mark.parametrize("right", [CALL, MISSING, NONE])
def test_the_right_answer_earns_everything(right: CallRow) -> None:
    assert earned(right.answer, right) == ALL
    assert weighted(score(right.answer, target_of(right, TOOLS)), WEIGHTS) == pytest.approx(1)


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "none", '"none"', "[]", '{"name": "get_weather"', '{"name": 3, "arguments": {}}',
        '{"name": "get_weather"}', '{"name": "get_weather", "arguments": []}', '{"name": "none", "arguments": {}}',
        '{"name": "get_weather", "arguments": {}, "missing": []}', '{"name": "get_weather", "arguments": {}, "why": 1}',
        '{"name": "get_weather", "arguments": {}, "missing": [1]}', CALL.answer + "}", CALL.answer + " Done.",
        '{"name": "get_weather", "arguments": {"days": NaN}}', '{"name": "none", "name": "none"}',
        "[" * 20000, '{"name": "get_weather", "arguments": {"city": "a", "city": "New York", "days": 2}}',
    ],
)  # fmt: skip
def test_what_has_not_the_form_earns_nothing(text: str) -> None:
    assert earned(text) == NOTHING and read_answer(text) is None


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("get_weather", {"city": "new-york", "days": 2}, ALL),
        ("get_weather", {"days": 2, "city": "New York"}, ALL),
        ("get_weather", {"city": "Oslo", "days": 2}, (1, 1, 1, 1, 0.5, 1)),
        ("get_weather", {"city": "New York", "days": "2"}, (1, 0, 1, 1, 0.5, 1)),
        ("get_weather", {"city": "New York"}, (1, 1, 1, 0, 0.5, 1)),
        ("get_weather", {"city": "New York", "days": 2, "unit": "c"}, (1, 1, 1, 0, 0.667, 1)),
        ("get_weather", {"city": "New York", "days": 2, "unit": "k"}, (1, 0, 1, 0, 0.667, 1)),
        ("get_weather", {}, (1, 0, 1, 0, 0, 1)),
        ("ping", {}, (1, 1, 0, 0, 0, 1)),
        ("fetch", {"city": "New York", "days": 2}, (1, 0, 0, 0, 0, 1)),
        ("none", {}, (1, 0, 0, 0, 0, 0)),
    ],
)
def test_answers_to_a_row_with_a_call(name: str, arguments: dict[str, Any], expected: tuple[float, ...]) -> None:
    assert earned(answer(name, arguments)) == expected


def test_naming_as_missing_what_is_there_pays_less_than_the_call() -> None:
    assert earned(answer("get_weather", {"days": 2}, ["city"])) == (1, 1, 1, 0, 0.5, 0)
    assert earned(answer("get_weather", {"city": "New York", "days": 2}, ["city"])) == (1, 1, 1, 1, 1, 0)


def test_a_missing_value_is_to_be_named_and_not_made_up() -> None:
    assert earned(answer("get_weather", {"city": "Oslo", "days": 2}), MISSING) == (1, 1, 1, 0, 0.5, 0)
    assert earned(answer("get_weather", {"days": 2}, ["unit"]), MISSING) == (1, 0, 1, 1, 1, 0)
    assert earned(answer("get_weather", {"days": 2}, ["city", "unit"]), MISSING) == (1, 1, 1, 1, 1, 0)
    assert earned(answer("none"), MISSING) == (1, 0, 0, 0, 0, 0)


def test_a_call_where_none_serves_earns_its_form_alone() -> None:
    assert earned(answer("ping"), NONE) == (1, 1, 0, 0, 0, 0)
    assert earned(answer("get_weather"), NONE) == (1, 0, 0, 0, 0, 0)


def test_candidates_of_one_name_are_told_apart() -> None:
    other = WEATHER.model_copy(update={"tool_id": "x/get_weather", "server_id": "x"})
    tools = {**TOOLS, other.tool_id: other}
    target = target_of(row(answer("x.get_weather", {"city": "A"}), tools=["w/get_weather", "x/get_weather"]), tools)
    assert list(target.tools) == ["w.get_weather", "x.get_weather"]
    assert score(answer("w.get_weather", {"city": "A"}), target)["right_tool"] == 0


def test_rows_that_do_not_fit_the_tools_are_refused() -> None:
    with pytest.raises(BadInput, match="lack"):
        target_of(CALL, {PING.tool_id: PING})
    with pytest.raises(BadInput, match="another form"):
        target_of(row("get_weather()"), TOOLS)
    assert read_answer(MISSING.answer) == Answer("get_weather", {"days": 2}, ("city",))


def test_settings_that_cannot_work_are_refused() -> None:
    for wrong in ({"weights": {"charm": 1.0}}, {"weights": {}}, {"loss": "ppo"}, {"group": 1}, {"held_out": 0.0}):
        with pytest.raises(BadInput):
            rl_preset("qwen3-4b", **wrong)
    with pytest.raises(BadInput, match="preset"):
        rl_preset("gpt-17")
    with pytest.raises(BadInput, match="vLLM"):
        rl_preset("smollm2-135m", vllm=True)
    assert accumulation(RlOptions(group=8, prompts=16, batch=8), 4) == 4
    with pytest.raises(BadInput, match="do not divide"):
        accumulation(RlOptions(group=6, prompts=2, batch=8), 1)


def test_a_tool_is_on_one_side_only() -> None:
    rows = [row(CALL.answer, gold=f"s/t{i}", query=str(j)) for i in range(200) for j in range(3)]
    sides = {r.gold: {held_out(o, 0.2) for o in rows if o.gold == r.gold} for r in rows}
    assert all(len(side) == 1 for side in sides.values())
    assert 20 <= sum(held_out(r, 0.2) for r in rows[::3]) <= 60
    assert len({held_out(row(NONE.answer, "none_foreign", "", query=str(i)), 0.5) for i in range(20)}) == 2


def test_before_and_after_are_compared_row_by_row() -> None:
    target = target_of(CALL, TOOLS)

    def measured(*texts: str) -> list[Measured]:
        return [Measured(str(i), "call", t, score(t, target)) for i, t in enumerate(texts)]

    right, wrong, worse = CALL.answer, answer("ping"), ""
    found = comparison(measured(right, wrong, wrong, right), measured(right, right, right, wrong))
    assert found == {"became_right": 2, "became_wrong": 1, "p_value": 1.0, "answers_changed": 3}
    assert comparison(measured(*[wrong] * 8), measured(*[right] * 8))["p_value"] == pytest.approx(2 / 2**8, abs=1e-4)
    assert comparison(measured(right), measured(right))["p_value"] == 1.0
    means = summary(measured(right, wrong, worse, right), RlOptions())
    assert means["calls"] == {"rows": 4, "tool": 0.5, "param": 0.5, "ast": 0.5}
    assert means["none"] == {"rows": 0, "right": None} and 0.5 < means["reward"] < 0.6


def test_a_line_cut_off_by_a_crash_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    assert whole_lines(file) == []
    file.write_text('{"id": "a"}\n{"id": "b", "te')
    assert whole_lines(file) == [{"id": "a"}] and file.read_text() == '{"id": "a"}\n'


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--group", "4"], "--group needs --rl"),
        (["--adapter", "a", "--rank", "8"], "keeps its rank"),
        (["--rl", "--adapter", "a"], "--rl needs"),
        (["--rl", "--adapter", "a", "--tools", "t", "--rank", "8"], "--rank cannot be used with --rl"),
        (["--rl", "--adapter", "a", "--tools", "t", "--weights", "right_tool"], "gives no weights"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    more: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["train", "caller", "--rows", "r", "--base", "b", "--out", str(tmp_path / "run"), *more]
    assert execute(given) == 2
    assert words in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run").exists()
