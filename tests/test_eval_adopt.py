"""``toolscout eval adopt``: rows in the forms of BFCL and ACEBench, written for these tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from toolscout.ast_match import MadeCall, match_calls
from toolscout.errors import BadInput
from toolscout.eval.adopt.read import adopt
from toolscout.eval.adopt.schema import json_schema
from toolscout.eval.cli import app
from toolscout.eval.rows import read_calls, read_tools

TIDE = {
    "name": "tide.height",
    "description": "Height of the tide.",
    "parameters": {
        "type": "dict",
        "properties": {
            "port": {"type": "string"},
            "at": {"type": "tuple", "items": {"type": "float"}},
            "unit": {"type": "string", "default": "m"},
            "options": {"type": "dict", "properties": {"datum": {"type": "any"}}},
        },
        "required": ["port"],
    },
}


def bfcl(row_id: str, said: str = "Tide at Brest?", functions: list[Any] | None = None, **other: Any) -> dict[str, Any]:
    turn = [{"role": "user", "content": said}]
    return {"id": row_id, "question": [turn], "function": [TIDE] if functions is None else functions, **other}


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_types_become_json_schemas() -> None:
    schema = json_schema(TIDE["parameters"])
    assert schema["type"] == "object"
    assert schema["properties"]["at"] == {"type": "array", "items": {"type": "number"}}
    assert schema["properties"]["unit"]["default"] == "m"
    assert schema["properties"]["options"]["properties"]["datum"] == {}


def test_bfcl_row_and_what_it_accepts(tmp_path: Path) -> None:
    questions = lines(tmp_path / "q.json", bfcl("simple_0"), bfcl("irrelevance_0"))
    values = {"port": ["Brest", "brest"], "unit": ["", "m"], "options": [{"datum": ["low"], "grid": ["", 1]}]}
    answers = lines(tmp_path / "a.json", {"id": "simple_0", "ground_truth": [{"tide.height": values}]})
    found = adopt("bfcl", [questions], [answers])
    simple, none = found.calls
    assert [t.tool_id for t in found.tools] == ["bfcl/tide.height"]
    assert simple.gold[0].arguments == {"port": "Brest", "options": {"datum": "low"}}
    assert simple.candidates == none.candidates == ["bfcl/tide.height"]
    assert none.gold == []
    schema = {"bfcl/tide.height": found.tools[0].input_schema}

    def right(arguments: dict[str, Any]) -> bool:
        return match_calls([MadeCall("bfcl/tide.height", arguments)], simple.gold, schema).ast

    assert right({"port": "Brest", "options": {"datum": "low"}})
    assert right({"port": "brest", "unit": "m", "options": {"datum": "low", "grid": 1}})
    assert not right({"port": "Calais", "options": {"datum": "low"}})
    assert not right({"port": "Brest", "unit": "ft", "options": {"datum": "low"}})


def test_parallel_calls_keep_their_order(tmp_path: Path) -> None:
    questions = lines(tmp_path / "q.json", bfcl("parallel_0", "Tides at Brest and Calais?"))
    truth = [{"tide.height": {"port": ["Brest"]}}, {"tide.height": {"port": ["Calais"]}}]
    answers = lines(tmp_path / "a.json", {"id": "parallel_0", "ground_truth": truth})
    (row,) = adopt("bfcl", [questions], [answers]).calls
    assert [g.arguments for g in row.gold] == [{"port": "Brest"}, {"port": "Calais"}]


def test_another_function_of_one_name_is_another_tool(tmp_path: Path) -> None:
    other = {**TIDE, "description": "Something else."}
    rows = [bfcl("irrelevance_0"), bfcl("irrelevance_1", functions=[other]), bfcl("irrelevance_2")]
    found = adopt("bfcl", [lines(tmp_path / "q.json", *rows)], [])
    assert [c.candidates for c in found.calls] == [["bfcl/tide.height"], ["bfcl-2/tide.height"], ["bfcl/tide.height"]]


def test_rows_that_cannot_be_checked_are_counted(tmp_path: Path) -> None:
    turns = bfcl("multi_turn_0")
    turns["question"] *= 2
    rows = [
        turns,
        bfcl("live_relevance_0"),
        bfcl("simple_java_0"),
        bfcl("irrelevance_0", functions=[]),
        bfcl("simple_1"),
    ]
    answers = lines(tmp_path / "a.json", {"id": "simple_1", "ground_truth": [{"unheard": {"port": ["x"]}}]})
    found = adopt("bfcl", [lines(tmp_path / "q.json", *rows)], [answers])
    assert found.calls == []
    assert found.left_out == {
        "several turns": 1,
        "no answer for the row": 1,
        "values are source text of another language": 1,
        "no functions": 1,
        "answer names no function of the row": 1,
    }


def test_acebench_rows(tmp_path: Path) -> None:
    def row(row_id: str, question: str) -> dict[str, Any]:
        return {"id": row_id, "question": question, "function": [TIDE], "time": "", "profile": ""}

    questions = lines(
        tmp_path / "data_normal.json",
        row("normal_single_turn_single_function_0", "user: Tide at Brest?\n"),
        row("normal_single_turn_parallel_function_0", "user: Tides at Brest and Calais?\n"),
        row("special_irrelevant_0", "user: Sing.\n"),
        row("special_incomplete_0", "user: Tide?\n"),
        row("normal_multi_turn_user_adjust_0_1", "user: Tide?\nsystem: Where?\nuser: Brest.\n"),
    )
    answers = lines(
        tmp_path / "a.json",
        {"id": "normal_single_turn_single_function_0", "ground_truth": {"tide.height": {"port": "Brest"}}},
        {
            "id": "normal_single_turn_parallel_function_0",
            "ground_truth": {"tide.height_1": {"port": "Brest"}, "tide.height_2": {"port": "Calais"}},
        },
        {"id": "special_irrelevant_0", "ground_truth": "This cannot be done with these functions."},
        {"id": "special_incomplete_0", "ground_truth": {"tide.height": ["port"]}},
    )
    found = adopt("acebench", [questions], [answers])
    single, parallel, irrelevant = found.calls
    assert single.query == "Tide at Brest?"
    assert single.gold[0].arguments == {"port": "Brest"}
    assert [(g.tool_id, g.arguments) for g in parallel.gold] == [
        ("acebench/tide.height", {"port": "Brest"}),
        ("acebench/tide.height", {"port": "Calais"}),
    ]
    assert irrelevant.gold == []
    assert found.left_out == {"answer is no call": 1, "several turns": 1}


def test_command_writes_what_other_commands_read(tmp_path: Path) -> None:
    questions = lines(tmp_path / "q.json", bfcl("simple_0"), bfcl("irrelevance_0"))
    answers = lines(tmp_path / "a.json", {"id": "simple_0", "ground_truth": [{"tide.height": {"port": ["Brest"]}}]})
    out = tmp_path / "out"
    made = CliRunner().invoke(
        app, ["adopt", "bfcl", "--questions", str(questions), "--answers", str(answers), "--out", str(out)]
    )
    assert made.exit_code == 0, made.output
    assert list(read_tools([out / "tools.jsonl"])) == ["bfcl/tide.height"]
    assert {c.id for c in read_calls([out / "calls.jsonl"])} == {"simple_0", "irrelevance_0"}


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"line 1, has no id and question"):
        adopt("bfcl", [lines(tmp_path / "q.json", {"other": 1})], [])
    with pytest.raises(BadInput, match="repeats the id simple_0"):
        adopt("bfcl", [lines(tmp_path / "r.json", bfcl("simple_0"), bfcl("simple_0"))], [])
    with pytest.raises(BadInput, match="has no id and ground_truth"):
        adopt("bfcl", [lines(tmp_path / "s.json", bfcl("simple_0"))], [lines(tmp_path / "a.json", {"id": "simple_0"})])
