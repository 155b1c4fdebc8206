"""``toolscout eval strategies``: prompts of each strategy, answers of an endpoint, and the whole command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from chat_endpoint import Body, ChatEndpoint, Reply, refused, said
from typer.testing import CliRunner

from toolscout.errors import BadInput
from toolscout.eval.cli import app
from toolscout.eval.rows import read_calls, read_tools
from toolscout.eval.strategies.measure import chosen_tool, summary
from toolscout.prompt import labels, render
from toolscout.records import Tool

Endpoint = ChatEndpoint
SMALL = Path(__file__).parents[1] / "eval" / "data" / "small"
TOOLS, SERVERS = SMALL / "tools.jsonl", SMALL / "servers.jsonl"


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    rows = [call for call in read_calls([SMALL / "calls.jsonl"]) if len(call.gold) == 1 and call.lang in (None, "en")]
    (tmp_path / "calls.jsonl").write_text("".join(call.to_json() + "\n" for call in rows[:4]), "utf-8")
    found = ["strategies", "--tools", str(TOOLS), "--servers", str(SERVERS), "--calls", str(tmp_path / "calls.jsonl")]
    return [*found, "--json", str(tmp_path / "out.json")]


def offered(body: Body) -> list[dict[str, Any]]:
    """The tools of a prompt, as the model reads them."""
    text = body["messages"][0]["content"]
    lines = text.split("<tools>\n", 1)[1].split("\n</tools>")[0].splitlines() if "<tools>\n" in text else []
    return [json.loads(line) for line in lines if line]


def first_one(body: Body) -> Reply:
    """A model that takes the first tool it is shown, and refuses more than twenty."""
    tools = offered(body)
    if len(tools) > 20:
        return refused("This model's maximum context length is 4096 tokens, the messages have 5000.")
    name = tools[0]["name"] if tools else "none"
    return said(
        f"Sure:\n```json\n{json.dumps({'name': name, 'arguments': {}})}\n```", prompt_tokens=7, completion_tokens=3
    )


def test_a_model_is_given_the_tools_of_each_strategy(
    arguments: list[str], serve: Callable[..., ChatEndpoint], tmp_path: Path
) -> None:
    endpoint = serve(first_one)
    report = tmp_path / "report"
    ran = CliRunner().invoke(
        app, [*arguments, "--model-url", endpoint.url, "--sizes", "8,all", "--found", "3", "--report", str(report)]
    )
    assert ran.exit_code == 0, ran.output
    result = json.loads((tmp_path / "out.json").read_text("utf-8"))
    small, everything = (pool["strategies"] for pool in result["pools"])
    assert result["model"] and result["n"] == 4
    assert small["retrieved"]["tools"] == 3.0 and small["blank"]["tools"] == 8.0
    assert small["blank"]["gold_in_prompt"] == everything["blank"]["gold_in_prompt"] == 1.0
    # the first one shown is the search's best one, and among eight that is mostly the right one
    assert small["retrieved"]["accuracy"] >= 0.5 > small["blank"]["accuracy"]
    assert everything["blank"]["does_not_fit"] == 1.0 and everything["blank"]["accuracy"] == 0.0
    assert everything["blank"]["accuracy_of_fitting"] is None and everything["blank"]["tokens"]["prompt"] is None
    assert small["blank"]["tokens"]["prompt"] == 7.0 and small["blank"]["tokens"]["completion"] == 3.0
    assert small["keyword"]["tools"] <= small["blank"]["tools"]
    assert everything["retrieved"]["tokens"]["counted"] < everything["blank"]["tokens"]["counted"]
    page = (report / "report.html").read_text("utf-8")
    assert "<svg" in page and (report / "strategies.png").is_file()
    pieces = [json.loads(line) for line in (report / "rows.jsonl").read_text("utf-8").splitlines()]
    for piece in pieces:
        assert piece.get("right", False) == (piece.get("chosen") == _gold(piece["id"]))

    before = len(endpoint.asked)
    again = CliRunner().invoke(app, [*arguments, "--model-url", endpoint.url, "--sizes", "8,all", "--found", "3"])
    assert again.exit_code == 0 and "24 of 24 prompts were done before" in again.output
    assert len(endpoint.asked) == before, "nothing is asked twice"


def test_answers_of_other_weights_are_not_gone_on_with(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Local:
        name, context = "local", 0

        async def prepare(self) -> None:
            return None

        async def close(self) -> None:
            return None

        async def generate(self, messages: Any, **_: Any) -> Any:
            return SimpleNamespace(text="none", prompt_tokens=1, completion_tokens=1)

    monkeypatch.setattr("toolscout.server.backends.make_backend", lambda settings: Local())
    weights = tmp_path / "adapter.gguf"
    weights.write_bytes(b"GGUF one")
    line = [*arguments, "--sizes", "2", "--strategies", "blank", "--model", str(weights)]
    assert [CliRunner().invoke(app, line).exit_code for _ in range(2)] == [0, 0]
    hot = CliRunner().invoke(app, [*line, "--set", "model_temperature=0.5"])
    assert isinstance(hot.exception, BadInput) and "another run" in str(hot.exception)
    weights.write_bytes(b"GGUF two")
    other = CliRunner().invoke(app, line)
    assert isinstance(other.exception, BadInput) and "another run" in str(other.exception)


def _gold(row_id: str) -> str:
    return next(call.gold[0].tool_id for call in read_calls([SMALL / "calls.jsonl"]) if call.id == row_id)


def test_prompts_alone(arguments: list[str], tmp_path: Path) -> None:
    options = ["--tokens-only", "--context", "1500", "--sizes", "2,all", "--report", str(tmp_path / "report")]
    ran = CliRunner().invoke(app, [*arguments, *options])
    assert ran.exit_code == 0, ran.output
    result = json.loads((tmp_path / "out.json").read_text("utf-8"))
    assert result["tokenizer"] in (tmp_path / "report" / "report.html").read_text("utf-8"), "tokens of which tokenizer"
    two, everything = (pool["strategies"] for pool in result["pools"])
    assert result["model"] is None and result["context"] == 1500
    assert two["blank"]["accuracy"] is None and two["blank"]["does_not_fit"] == 0.0
    assert everything["blank"]["does_not_fit"] == 1.0 and everything["retrieved"]["does_not_fit"] == 0.0
    assert everything["blank"]["tokens"]["counted"] > 3 * everything["retrieved"]["tokens"]["counted"]
    # the count by lines is that of the whole prompt, but for rounding
    tools = list(read_tools([TOOLS]).values())
    rows = read_calls([tmp_path / "calls.jsonl"])
    whole = sum(len(m["content"]) / 4 for row in rows for m in render(row.query, tools, budget=1 << 40)) / len(rows)
    assert everything["blank"]["tokens"]["counted"] == pytest.approx(whole, rel=0.03)


def test_wrong_options(arguments: list[str]) -> None:
    ran = CliRunner().invoke(app, [*arguments, "--tokens-only", "--strategies", "blank,all"])
    assert isinstance(ran.exception, BadInput) and "'all'" in str(ran.exception)


def test_which_tool_an_answer_names() -> None:
    given = [
        Tool(tool_id=f"{server}/{name}", server_id=server, name=name, input_schema={"type": "object"})
        for server, name in (("a", "send"), ("b", "send"), ("b", "list"))
    ]
    assert labels(given) == ["a.send", "b.send", "list"]
    for text, tool_id in (
        ('{"name": "b.send", "arguments": {}}', "b/send"),
        ('I take <tool_call>{"name": "list"}</tool_call>', "b/list"),
        ('{"function": {"name": "list", "arguments": {}}}', "b/list"),
        ('{"tool": "a.send", "arguments": {"x": {"name": "list"}}}', "a/send"),
        ('{"name": "send"}', None),
        ('{"name": "none"}', None),
        ("list", None),
        ('{"name": 3}', None),
    ):
        assert chosen_tool(text, given) == tool_id, text


def test_shares_by_hand() -> None:
    base = {"gold": True, "tools": 4, "counted": 100, "fits": True}
    answered = {"prompt": 90, "completion": 10, "seconds": 1.0}
    pieces = [
        {**base, **answered, "right": True}, {**base, **answered, "right": False, "prompt": 70},
        {**base, "fits": False}, {**base, "fits": False, "gold": False, "counted": 300},
    ]  # fmt: skip
    found = summary(pieces)
    assert (found["accuracy"], found["accuracy_of_fitting"], found["does_not_fit"]) == (0.25, 0.5, 0.5)
    assert (found["gold_in_prompt"], found["reachable"], found["tools"]) == (0.75, 0.5, 4.0)
    assert found["tokens"] == {"counted": 150.0, "prompt": 80.0, "completion": 10.0}
    # no prompt fitted at all: wrong in every one, and no mean of what was never answered
    none = summary(pieces[2:])
    assert none["accuracy"] == 0.0 and none["accuracy_of_fitting"] is None and none["seconds"] is None
    alone = summary([{**base, "fits": None}], model=False)
    assert alone["accuracy"] is alone["does_not_fit"] is None and alone["reachable"] == 1.0
