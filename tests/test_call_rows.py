"""Training rows of the call generator: right, writable, as serving asks, and nothing of dev in them."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from gbnf import accepts
from typer.testing import CliRunner

from toolscout.cli import app
from toolscout.jsonl import read_records, write_records
from toolscout.prompt import render
from toolscout.records import Call, GoldCall, Tool
from toolscout.server.calling.constrain import arguments_grammar, choice_grammar
from toolscout.synth.answers import without_value, writable
from toolscout.synth.call_rows import CallRow, CallRowOptions, build_call_rows
from toolscout.synth.tool_pool import ToolPool

NOUNS = ["weather", "invoice", "ticket", "robot", "recipe", "melody", "harbour", "glacier", "parcel", "poem"]
NOUNS += ["turbine", "orchard"]
VERBS = {"get": "Look up", "delete": "Remove", "list": "Enumerate"}
CITIES = ["Oslo", "Lima", "Kyoto", "Dakar", "Quito", "Perth"]


def make(server: str, verb: str, noun: str) -> Tool:
    return Tool(
        tool_id=f"{server}/{verb}_{noun}",
        server_id=server,
        name=f"{verb}_{noun}",
        description=f"{VERBS[verb]} one {noun} of the {noun} service.",
        input_schema={
            "type": "object",
            "properties": {
                "limit": {"type": "integer", "minimum": 1, "maximum": 50},
                "place": {"type": "string", "description": "Where"},
                "unit": {"enum": ["metric", "imperial"]},
            },
            "required": ["place"],
        },
    )


TOOLS = [make(f"acme/{noun}", verb, noun) for noun in NOUNS for verb in VERBS]
CALLS = [
    Call(
        id=f"{tool.tool_id}#{i}",
        query=f"{tool.name.replace('_', ' ')} number {n}{i} in {CITIES[(n + i) % 6]}",
        # not in the schema's order, on purpose
        gold=[GoldCall(tool_id=tool.tool_id, arguments={"place": CITIES[(n + i) % 6], "limit": 5})],
    )
    for n, tool in enumerate(TOOLS)
    for i in range(2)
]
STRANGERS = [Call(id=f"u{i}", query=f"Good morning, dear number {i}") for i in range(10)]
BY_ID = {tool.tool_id: tool for tool in TOOLS}


@pytest.fixture(scope="module")
def pool() -> ToolPool:
    return ToolPool(TOOLS)


@pytest.fixture(scope="module")
def rows(pool: ToolPool) -> list[CallRow]:
    found, left = build_call_rows(CALLS, pool, STRANGERS, CallRowOptions(missing=0.2, exemplars=0.3))
    assert not left
    return found


def test_each_epoch_shows_every_call_once(pool: ToolPool, rows: list[CallRow]) -> None:
    assert Counter(r.call for r in rows if r.kind == "call") == Counter(c.id for c in CALLS)
    two, _ = build_call_rows(CALLS, pool, (), CallRowOptions(epochs=2))
    assert set(Counter(r.call for r in two if r.kind == "call").values()) == {2}


def test_candidates_hold_the_gold_or_for_none_rows_nothing_like_it(pool: ToolPool, rows: list[CallRow]) -> None:
    golds = {c.id: c.gold[0].tool_id for c in CALLS}
    for row in rows:
        assert len(set(row.tools)) == len(row.tools) <= 20
        if row.kind in ("call", "missing"):
            assert row.gold in row.tools
        else:
            assert row.gold == "" and row.answer == '{"name": "none"}'
        if row.kind == "none_absent":
            assert not any(pool.same(golds[row.call], t) for t in row.tools)
    assert {r.kind for r in rows} == {"call", "missing", "none_foreign", "none_absent"}
    assert len({r.tools.index(r.gold) for r in rows if r.gold}) > 3, "the gold's place says nothing"


def test_rows_are_what_serving_renders(rows: list[CallRow]) -> None:
    calls = {c.id: c for c in CALLS}
    for row in rows:
        shown = [calls[e] for e in row.exemplars]
        candidates = [BY_ID[t] for t in row.tools]
        assert row.messages == render(row.query, candidates, shown, style=row.style, budget=row.budget)
        assert row.call not in row.exemplars or row.kind != "call"
    assert any(r.exemplars for r in rows) and any("# Examples" in r.messages[0]["content"] for r in rows)


def test_answers_are_what_constrained_decoding_writes(rows: list[CallRow]) -> None:
    from toolscout.prompt import NONE, labels

    for row in rows:
        names = labels([BY_ID[t] for t in row.tools])
        start, rest = row.answer[: len('{"name": "')], row.answer[len('{"name": "') :]
        chosen = json.loads(row.answer)["name"]
        assert start == '{"name": "' and accepts(choice_grammar([*names, NONE]), rest[: len(chosen) + 2])
        if row.gold:
            prefix = f'{{"name": {json.dumps(chosen)}, "arguments":'
            assert row.answer.startswith(prefix)
            assert accepts(arguments_grammar(BY_ID[row.gold].input_schema), row.answer[len(prefix) :])
            assert chosen == names[row.tools.index(row.gold)]


def test_arguments_stand_in_the_order_the_prompt_lists_them(rows: list[CallRow]) -> None:
    whole = [json.loads(r.answer)["arguments"] for r in rows if r.kind == "call"]
    assert all(list(arguments) == ["limit", "place"] for arguments in whole)


def test_rows_of_a_group_share_the_system_message(rows: list[CallRow]) -> None:
    assert all(len({r.messages[0]["content"] for r in rows if r.group == g}) == 1 for g in {r.group for r in rows})


def test_the_seed_decides(pool: ToolPool, rows: list[CallRow]) -> None:
    options = CallRowOptions(missing=0.2, exemplars=0.3)
    assert build_call_rows(CALLS, pool, STRANGERS, options)[0] == rows
    other = build_call_rows(CALLS, pool, STRANGERS, CallRowOptions(missing=0.2, exemplars=0.3, seed=1))[0]
    assert [r.tools for r in other] != [r.tools for r in rows]


def test_no_two_candidates_do_the_same() -> None:
    copies = [t.model_copy(update={"tool_id": f"copy/{t.name}", "server_id": "copy"}) for t in TOOLS]
    pool = ToolPool([*TOOLS, *copies])
    assert pool.same("acme/weather/get_weather", "copy/get_weather")
    assert not pool.same("acme/weather/get_weather", "acme/weather/delete_weather")
    rows, _ = build_call_rows(CALLS, pool, (), CallRowOptions(hard=1.0))
    assert all(len({t.rsplit("/", 1)[-1] for t in row.tools}) == len(row.tools) for row in rows)


def test_what_cannot_be_used_is_counted(pool: ToolPool) -> None:
    odd = [
        Call(id="a", query="no gold"),
        Call(id="b", query="x", gold=[GoldCall(tool_id="not/there", arguments={})]),
        Call(id="c", query="x", gold=[GoldCall(tool_id=TOOLS[0].tool_id, arguments={"invented": 1})]),
    ]
    _, left = build_call_rows([*CALLS, *odd], pool)
    assert sum(left.values()) == 3 and len(left) == 3


@pytest.mark.parametrize(
    ("schema", "value", "written"),
    [
        ({"type": "integer"}, 5.0, 5),
        ({"type": "integer"}, "5", None),
        ({"enum": ["a", 1]}, 1, 1),
        ({"enum": ["a"]}, "b", None),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, "x", "x"),
        ({"type": "array", "items": {"type": "string"}}, ["a"] * 30, None),
        ({"type": "object", "properties": {"a": {}, "b": {}}, "required": ["b"]}, {"b": 1, "a": 2}, {"a": 2, "b": 1}),
        ({"type": "object", "properties": {"b": {}}, "required": ["b"]}, {}, None),
        ({"type": "string"}, "x" * 1001, None),
    ],
)
def test_values_as_the_grammar_can_write_them(schema: dict[str, Any], value: Any, written: Any) -> None:
    tool = Tool(tool_id="s/t", server_id="s", name="t", input_schema={"type": "object", "properties": {"v": schema}})
    found = writable(tool, {"v": value})
    assert found == (None if written is None else {"v": written})
    if found is not None:
        text = f" {json.dumps(found, ensure_ascii=False)}}}"
        assert json.dumps(found) == json.dumps({"v": written}) and accepts(arguments_grammar(tool.input_schema), text)


@pytest.mark.parametrize(
    ("query", "value", "short"),
    [
        ("What's the weather in Oslo?", "Oslo", "What's the weather?"),
        ("Close the ticket 4711 please", "4711", "Close the ticket please"),
        ("Make a new board called 'Spring plans'.", "Spring plans", "Make a new board."),
        ("The definition is in x.sql", "x.sql", None),
        ("Oslo?", "Oslo", None),
        ("Compare Oslo and Lima", "Oslo", None),
        ("The weather in Oslo, is Oslo warm?", "Oslo", None),
    ],
)
def test_a_value_is_taken_out_only_where_a_sentence_stays(query: str, value: str, short: str | None) -> None:
    call = Call(id="1", query=query, gold=[GoldCall(tool_id=TOOLS[0].tool_id, arguments={"place": value})])
    assert without_value(call, TOOLS[0]) == (None if short is None else (short, "place"))


def write_files(folder: Path, dev_query: str) -> list[str]:
    write_records(folder / "calls.jsonl", CALLS)
    lines = [json.loads(t.to_json()) | {"split": "unseen_tool" if "turbine" in t.tool_id else "seen"} for t in TOOLS]
    with gzip.open(folder / "tools.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    hidden = GoldCall(tool_id="acme/orchard/get_orchard", arguments={"place": "Rome"})
    write_records(folder / "dev.jsonl", [Call(id="d", query=dev_query, gold=[hidden], split="unseen_server")])
    names = {"--calls": "calls.jsonl", "--tools": "tools.jsonl.gz", "--dev": "dev.jsonl", "--out": "rows.jsonl.gz"}
    return ["train", "caller-rows", *(w for n, f in names.items() for w in (n, str(folder / f)))]


def test_rows_that_leak_are_refused(tmp_path: Path, home: Path) -> None:
    leak = CliRunner().invoke(app, write_files(tmp_path, CALLS[0].query.upper() + "!"))
    assert leak.exit_code != 0 and not (tmp_path / "rows.jsonl.gz").exists()


def test_no_unseen_tool_is_shown(tmp_path: Path, home: Path) -> None:
    arguments = write_files(tmp_path, "Apples from Rome, please")
    # of an unseen tool no call may stand among the training calls: without them it goes through
    kept = [c for c in CALLS if "orchard" not in c.id]
    write_records(tmp_path / "calls.jsonl", kept)
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert done.exit_code == 0, done.output
    rows = list(read_records(tmp_path / "rows.jsonl.gz", CallRow))
    shown = {t for row in rows for t in row.tools}
    assert shown and not any("turbine" in t or t == "acme/orchard/get_orchard" for t in shown)
    assert not any("turbine" in row.query or "turbine" in row.messages[0]["content"] for row in rows)
