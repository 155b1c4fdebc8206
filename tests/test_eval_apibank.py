"""``toolscout eval apibank``: dialogues taken apart, domains, the numbers, and the whole command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_eval_needle import independent
from typer.testing import CliRunner

from toolscout.errors import BadInput
from toolscout.eval.apibank.dialogue import asked, dialogue_of, dialogues, utterances
from toolscout.eval.apibank.domains import GROUPS, domains
from toolscout.eval.apibank.measure import summary
from toolscout.eval.cli import app
from toolscout.records import Call, GoldCall, Tool

TALK = """User: Please add a meeting for tomorrow at nine.
AI: Who are you?
User: I am foo,
my password is bar.
API: GetUserToken{"username": "foo"} -> {"token": "z9"}
AI: You are logged in."""


def turn(row_id: str, gold: str, query: str = "find it") -> Call:
    return Call(id=row_id, query=query, gold=[GoldCall(tool_id=gold)])


def tool(tool_id: str, description: str = "") -> Tool:
    server, name = tool_id.split("/")
    return Tool(tool_id=tool_id, server_id=server, name=name, description=description, input_schema={"type": "object"})


# --- dialogues -------------------------------------------------------------------------------------------------------


def test_what_is_asked_at_a_turn() -> None:
    assert [speaker for speaker, _ in utterances(TALK)] == ["User", "AI", "User", "API", "AI"]
    assert asked(TALK, "user") == "I am foo,\nmy password is bar."
    assert asked(TALK, "dialogue") == TALK
    # nothing was said since the call: the second call serves the same request
    assert asked(TALK, "turn") == "I am foo,\nmy password is bar."
    assert asked(TALK + "\nUser: At ten, then.\nUser: Thanks.", "turn") == "At ten, then.\nThanks."
    before = TALK.split("API:")[0]
    assert asked(before, "turn") == "Please add a meeting for tomorrow at nine.\nI am foo,\nmy password is bar."
    for form in ("user", "turn", "dialogue"):
        assert asked("Add a meeting", form) == "Add a meeting"


def test_rows_of_one_dialogue_go_together_in_order() -> None:
    rows = [turn("b_10", "s/x"), turn("a-level-2_3", "s/x"), turn("b_2", "s/x"), turn("lonely", "s/x")]
    assert [[row.id for row in talk] for talk in dialogues(rows)] == [["a-level-2_3"], ["b_2", "b_10"], ["lonely"]]
    assert dialogue_of(rows[1]) == "a-level-2" and dialogue_of(rows[3]) == "lonely"


# --- domains ---------------------------------------------------------------------------------------------------------


def test_every_tool_has_one_domain() -> None:
    names = [name for group in GROUPS.values() for name in group.split()]
    assert len(names) == len(set(names)) == 121
    tools = {t.tool_id: t for t in (tool("apibank/PlayMusic"), tool("apibank/Unheard"), tool("maps/PlayMusic"))}
    assert domains(tools) == {"apibank/PlayMusic": "leisure", "apibank/Unheard": "other", "maps/PlayMusic": "maps"}
    assert domains(tools, {"maps/PlayMusic": "fun"})["maps/PlayMusic"] == "fun"
    with pytest.raises(BadInput, match="not a text"):
        domains(tools, {"maps/PlayMusic": 3})


# --- numbers ---------------------------------------------------------------------------------------------------------

TALKS = [[turn("a_1", "s/a"), turn("a_2", "s/b")], [turn("b_1", "s/a"), turn("b_2", "s/c"), turn("b_3", "s/b")]]
RANKED = {
    "a_1": ["s/a", "s/b"], "a_2": ["s/c", "s/b"], "b_1": ["s/a"], "b_2": ["s/c", "s/a"],
    "b_3": ["s/a", "s/c", "s/d", "s/e", "s/f", "s/b"],
}  # fmt: skip


def test_shares_by_hand() -> None:
    found = summary(TALKS, {name: {"full user": ids} for name, ids in RANKED.items()}, "full user")
    assert (found["dialogues"], found["n"]) == (2, 5)
    assert (found["recall@1"], found["recall@5"]) == (0.6, 0.8)
    assert found["mrr"] == pytest.approx((1 + 1 / 2 + 1 + 1 + 1 / 6) / 5, abs=1e-4)
    assert (found["whole@1"], found["whole@5"]) == (0.0, 0.5)
    assert [(t["turn"], t["n"], t["recall@1"], t["recall@5"]) for t in found["by_turn"]] == [
        (1, 2, 1.0, 1.0), (2, 2, 0.5, 1.0), (3, 1, 0.0, 0.0),
    ]  # fmt: skip


def test_shares_against_an_independent_library() -> None:
    found = summary(TALKS, {name: {"full user": ids} for name, ids in RANKED.items()}, "full user")
    judged = {row.id: {row.gold[0].tool_id: 1} for talk in TALKS for row in talk}
    run = {name: {t: 10.0 - place for place, t in enumerate(ids)} for name, ids in RANKED.items()}
    theirs = independent(judged, run)
    assert (found["recall@1"], found["recall@5"], found["mrr"]) == pytest.approx(theirs, abs=1e-4)


# --- the command -----------------------------------------------------------------------------------------------------

OWN = [
    tool("apibank/PlayMusic", "Play a song by its title."), tool("apibank/IdentifySong", "Name a recorded song."),
    tool("apibank/AddAlarm", "Set an alarm for a time."), tool("apibank/DeleteAlarm", "Remove an alarm."),
    tool("apibank/QueryStock", "Price of a stock on a date."),
]  # fmt: skip
EXTRA = [tool("clock/add_alarm", "Set an alarm for a time of the day."), tool("maps/route", "Way between two places.")]
ROWS = [
    turn("one_1", "apibank/QueryStock", "User: What was the price of the stock ACME on May 3rd?"),
    turn("two_1", "apibank/AddAlarm", "User: Set an alarm for 7 am tomorrow"),
    turn("two_4", "apibank/PlayMusic", "User: Set an alarm\nAPI: AddAlarm{} -> 1\nUser: Play the song <b>Yesterday"),
    turn("far_1", "else/where", "User: hello"),
]  # fmt: skip


def lines(path: Path, records: list[Any]) -> str:
    path.write_text("".join(record.to_json() + "\n" for record in records), "utf-8")
    return str(path)


def test_the_command(tmp_path: Path) -> None:
    out, report = tmp_path / "out.json", tmp_path / "report"
    arguments = ["apibank", "--tools", lines(tmp_path / "tools.jsonl", OWN), "--calls"]
    arguments += [lines(tmp_path / "calls.jsonl", ROWS), "--json", str(out), "--report", str(report)]
    ran = CliRunner().invoke(app, [*arguments, "--extra-tools", lines(tmp_path / "extra.jsonl", EXTRA)])
    assert ran.exit_code == 0, ran.output
    result = json.loads(out.read_text("utf-8"))
    assert (result["n"], result["dialogues"], result["pool"], result["extended"]) == (3, 2, 5, 7)
    assert result["domains"] == {"calendar": 2, "finance": 1, "leisure": 2}
    assert "1 dialogues left out" in result["warnings"][0]
    part = {(p["turns"], p["collection"], p["form"]): p for p in result["settings"]}
    assert len(part) == 2 * 3 * 3
    assert part["single", "domain", "turn"]["recall@1"] == 1.0, "the only tool of its domain"
    assert part["multi", "full", "turn"]["whole@5"] == 1.0 and part["multi", "full", "turn"]["n"] == 2
    assert part["multi", "domain", "turn"]["recall@1"] >= part["multi", "full", "turn"]["recall@1"]
    pieces = [json.loads(line) for line in (report / "rows.jsonl").read_text("utf-8").splitlines()]
    ranked = {piece["id"]: piece["ranked"] for piece in pieces}
    assert set(ranked["two_1"]["domain user"]) == {"apibank/AddAlarm", "apibank/DeleteAlarm"}
    assert set(ranked["two_1"]["full user"]) == {t.tool_id for t in OWN}
    assert "clock/add_alarm" in ranked["two_1"]["extended user"]
    page = (report / "report.html").read_text("utf-8")
    assert "<svg" in page and "<b>" not in page and (report / "apibank.png").is_file()

    other = CliRunner().invoke(app, arguments)
    assert isinstance(other.exception, BadInput), "a work file of other tools is not gone on with"
    again = CliRunner().invoke(app, [*arguments, "--extra-tools", str(tmp_path / "extra.jsonl")])
    assert "3 of 3 turns were done before" in again.output
    assert json.loads(out.read_text("utf-8"))["settings"] == result["settings"]


def test_files_that_do_not_fit(tmp_path: Path) -> None:
    arguments = ["apibank", "--tools", lines(tmp_path / "tools.jsonl", OWN), "--calls"]
    arguments += [lines(tmp_path / "calls.jsonl", ROWS[-1:])]
    ran = CliRunner().invoke(app, arguments)
    assert isinstance(ran.exception, BadInput) and "No dialogue" in str(ran.exception)
    (tmp_path / "domains.json").write_text("[1]", "utf-8")
    ran = CliRunner().invoke(app, [*arguments, "--domains", str(tmp_path / "domains.json")])
    assert isinstance(ran.exception, BadInput) and "no JSON object" in str(ran.exception)
