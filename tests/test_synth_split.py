"""Splits that do not move, contamination, near copies, filters over rows from elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synth_endpoint import SERVERS, TOOLS, WEATHER

from toolscout.cli import execute
from toolscout.commands.synth_bench import ungrounded
from toolscout.jsonl import read_records, write_records
from toolscout.records import Call, GoldCall, Tool
from toolscout.synth.contamination import contamination
from toolscout.synth.drafts import Draft, OpenCall
from toolscout.synth.filters.duplicates import NearCopies, jaccard, shingles
from toolscout.synth.split import (
    HELD_OUT,
    SEEN,
    TRAIN,
    UNSEEN_SERVER,
    UNSEEN_TOOL,
    Ratios,
    place_tools,
    split_calls,
    split_report,
    twin_servers,
)


def pool(servers: int, each: int, market: str = "m") -> list[Tool]:
    names = [(f"{market}/s{s}", f"t{t}") for s in range(servers) for t in range(each)]
    return [Tool(tool_id=f"{s}/{t}", server_id=s, name=t, description=f"Does {s} {t}.") for s, t in names]


def asked(tools: list[Tool], each: int = 1) -> list[Call]:
    return [
        Call(id=f"{t.tool_id}#{n}", query=f"Please do {n} for {t.tool_id}", gold=[GoldCall(tool_id=t.tool_id)])
        for t in tools
        for n in range(each)
    ]


def test_ratios_hold_in_every_marketplace() -> None:
    tools = [*pool(650, 6, "one"), *pool(650, 6, "two")]
    splits = place_tools(tools)
    rows = split_calls(asked(tools, 2), splits)
    report = split_report(splits, rows, {t.tool_id: t for t in tools}, {})
    for market in ("one", "two"):
        counts = report["by_marketplace"][market]
        assert counts["servers"][UNSEEN_SERVER] == pytest.approx(650 / 13, rel=0.3)
        assert counts["tools"][UNSEEN_TOOL] == pytest.approx(3600 / 12, rel=0.2)
        in_train = counts["calls"][TRAIN] + counts["calls"][SEEN]
        assert counts["calls"][SEEN] == pytest.approx(in_train / 11, rel=0.2)
    assert sum(report["calls"].values()) == len(tools) * 2


def test_nothing_moves_when_the_data_grows() -> None:
    tools = pool(40, 5)
    few, more = place_tools(tools[:100]), place_tools([*pool(30, 5, "new"), *reversed(tools)])
    assert all(more.places[t] == place for t, place in few.places.items())
    before = {c.id: name for name, rows in split_calls(asked(tools[:100]), few).items() for c in rows}
    after = {c.id: name for name, rows in split_calls(asked(tools), more).items() for c in rows}
    assert all(after[i] == name for i, name in before.items())
    assert place_tools(tools, ratios=Ratios(salt="2")).places != place_tools(tools).places


def test_a_twin_of_an_unseen_tool_is_held_out_and_stated_places_win() -> None:
    one, two = TOOLS[1], TOOLS[1].model_copy(update={"tool_id": "z/a/b", "server_id": "z/a"})
    shared = {t.tool_id: SEEN for t in TOOLS}
    splits = place_tools([*TOOLS, two], {**shared, "z/a/b": UNSEEN_SERVER})
    assert splits.twins == {one.tool_id: "z/a/b"}
    rows = split_calls(asked([*TOOLS, two]), splits)
    assert [c.gold[0].tool_id for c in rows[HELD_OUT]] == [one.tool_id]
    assert [c.split for c in rows[UNSEEN_SERVER]] == [UNSEEN_SERVER]
    assert twin_servers(splits, {t.tool_id: t for t in [*TOOLS, two]}) == [("z/a", one.server_id)]


def test_contamination_is_found_and_named() -> None:
    train = [
        Call(id="t1", query="What is the WEATHER in Oslo?", gold=[GoldCall(tool_id=WEATHER.tool_id)]),
        Call(id="t2", query="Book me a room in the harbour hotel of Bergen for Tuesday night, please."),
        Call(id="t3", query="Shred the third note.", gold=[GoldCall(tool_id=TOOLS[4].tool_id)]),
    ]
    twin = TOOLS[4].model_copy(update={"tool_id": "z/a/b"})
    test = [
        Call(id="e1", query="what is the weather in oslo"),
        Call(id="e2", query="Book me a room in the harbour hotel of Bergen for Tuesday night!"),
        Call(id="e3", query="Destroy my letter.", gold=[GoldCall(tool_id="z/a/b")], split=UNSEEN_TOOL),
        Call(id="e4", query="Anything on at the opera?"),
    ]
    report, found = contamination(train, test, {t.tool_id: t for t in [*TOOLS, twin]})
    assert found == {0, 1}
    assert report["same_request"]["examples"] == [["e1", "t1"]]
    assert [pair[:2] for pair in report["near_request"]["examples"]] == [["e2", "t2"]]
    assert report["unseen_tool_shown"]["examples"] == [["e3", TOOLS[4].tool_id]]


def test_near_requests_count_test_rows() -> None:
    text = "Book me a room in the harbour hotel of Bergen for Tuesday night"
    test = [Call(id=f"e{n}", query=f"{text} {n}") for n in range(3)]
    report, found = contamination([Call(id="t", query=text), Call(id="u", query="Shred it.")], test, {})
    assert (report["near_request"]["rows"], report["near_request"]["pairs"], found) == (3, 3, {0})


def test_near_copies_in_any_script() -> None:
    seen = NearCopies()
    seen.add("a", "Wie wird das Wetter morgen in Oslo und in Bergen, und brauche ich einen Schirm?")
    seen.add("b", "明天奥斯陆和卑尔根的天气怎么样,我需要带伞吗?")
    near = seen.nearest("wie wird das wetter morgen in Oslo und Bergen und brauche ich einen Schirm")
    assert near[0] == "a" and near[1] > 0.8
    assert seen.nearest("明天奥斯陆和卑尔根的天气怎么样,我需要带伞么?")[0] == "b"
    assert seen.nearest("Archive every note that I wrote last week")[1] == 0


@given(st.text(max_size=80), st.text(max_size=80))
def test_similarity_is_a_similarity(one: str, other: str) -> None:
    left, right = shingles(one), shingles(other)
    assert 0 <= jaccard(left, right) == jaccard(right, left) <= 1 == jaccard(left, left)
    seen = NearCopies()
    seen.add("one", one)
    assert seen.nearest(one) == ("one", 1.0)


@pytest.mark.parametrize(
    ("text", "arguments", "names"),
    [
        ("Forecast for Oslo, three days", {"city": "Oslo", "days": 3}, []),
        ("Forecast for Oslo", {"city": "Bergen"}, ["city"]),
        ("Forecast for Oslo", {"city": "Oslo", "days": 5}, ["days"]),
        ("Forecast for Oslo", {"city": "string: the city"}, ["city"]),
    ],
)
def test_values_that_the_request_does_not_give(text: str, arguments: dict[str, Any], names: list[str]) -> None:
    assert ungrounded(WEATHER, text, arguments) == names


FIRMS = Tool(
    tool_id="m/office/check",
    server_id="m/office",
    name="check",
    input_schema={
        "type": "object",
        "properties": {
            "region": {"type": "string", "description": "Such as EU or US"},
            "size": {"type": "integer"},
            "minutes": {"type": "integer"},
            "law": {"type": "string", "enum": ["labour", "tax"]},
        },
        "required": ["region"],
    },
)


@pytest.mark.parametrize(
    ("text", "arguments", "names"),
    [
        ("Check a company against the rules of labour", {"region": "EU"}, []),
        ("Check a company in the EU", {"region": "EU", "size": 100}, ["size"]),
        ("Check a company of a hundred in the EU within an hour", {"region": "EU", "size": 100, "minutes": 60}, []),
        ("Check a company in the EU for a client", {"region": "EU", "minutes": 60}, ["minutes"]),
        ("Check one company in the EU, two hours at most", {"region": "EU", "size": 1, "minutes": 120}, []),
        ("Check a company in the EU for what it owes", {"region": "EU", "law": "tax"}, []),
    ],
)  # fmt: skip
def test_an_article_is_no_number_in_any_unit(text: str, arguments: dict[str, Any], names: list[str]) -> None:
    assert ungrounded(FIRMS, text, arguments) == names


def test_an_example_of_a_description_is_no_reason_to_mean_it() -> None:
    optional = FIRMS.model_copy(update={"input_schema": {**FIRMS.input_schema, "required": []}})
    assert ungrounded(optional, "Check the company", {"region": "EU"}) == ["region"]
    assert ungrounded(FIRMS, "Check the company", {"region": "EU"}) == [], "a required one has to have a value"


# -- the command line


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_records(tmp_path / "tools.jsonl", TOOLS)
    write_records(tmp_path / "servers.jsonl", SERVERS.values())
    return tmp_path


def row(name: str, query: str, city: str, **more: Any) -> Call:
    gold = [GoldCall(tool_id=WEATHER.tool_id, arguments={"city": city, **more})]
    return Call(id=name, query=query, gold=gold, source="elsewhere")


def test_filters_over_rows_from_elsewhere_without_a_model(files: Path, capsys: Any) -> None:
    rows = [
        row("good", "Do I need an umbrella in Oslo?", "Oslo"),
        row("copy", "do I need an umbrella in Oslo", "Oslo"),
        row("wrong", "Is it dry in Quito over the next days?", "Quito", days="many"),
        row("made up", "Is it dry over there?", "Quito"),
        row("description", "Returns the meteorological outlook for a municipality: Turin.", "Turin"),
        Call(id="none", query="Nothing fits this."),
    ]
    more = OpenCall.model_validate({**rows[0].model_dump(), "level": "plain"})  # a field that only this file has
    write_records(files / "calls.jsonl", [more, *rows[1:]])
    words = ["synth", "filter", "--calls", str(files / "calls.jsonl"), "--tools", str(files / "tools.jsonl")]
    assert execute([*words, "--out", str(files / "out")]) == 2, "the judge needs a model"
    capsys.readouterr()
    free = [*words, "--filters", "schema,grounded,resembles,duplicates", "--json"]
    assert execute([*free, "--out", str(files / "out")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {s["step"]: s["dropped"] for s in report["steps"]} == {
        "schema": {"does not fit the schema": 1},
        "grounded": {"value not in the instruction": 1},
        "resembles": {"resembles the description": 1},
        "duplicates": {"near copy": 1},
    }
    assert [c.to_json() for c in read_records(files / "out/kept.jsonl", OpenCall)] == [more.to_json()]
    assert execute([*free, "--out", str(files / "out"), "--resembles", "1", "--ungrounded", "1"]) == 0
    assert len(list(read_records(files / "out/kept.jsonl", Call))) == 3, "thresholds can be changed in place"


def test_rows_that_no_filter_can_read_are_told_of(files: Path, capsys: Any) -> None:
    words = ["--calls", str(files / "calls.jsonl"), "--tools", str(files / "tools.jsonl"), "--out", str(files / "out")]
    write_records(files / "calls.jsonl", [Call(id="none", query="Nothing fits this.")])
    assert execute(["synth", "filter", *words, "--filters", "schema"]) == 0
    assert "left out, not one gold call of these tools with arguments: 1" in capsys.readouterr().err
    (files / "calls.jsonl").write_text("")
    for command in (["filter", "--filters", "schema"], ["split"]):
        assert execute(["synth", *command, *words]) == 2
        assert "The calls files hold no rows." in capsys.readouterr().err


def test_split_on_the_command_line(files: Path, capsys: Any) -> None:
    tools = pool(60, 4)
    write_records(files / "tools.jsonl", tools)
    rows = asked(tools, 3)
    write_records(files / "calls.jsonl", rows)
    words = ["synth", "split", "--tools", str(files / "tools.jsonl"), "--out", str(files / "out"), "--json"]
    words += ["--calls", str(files / "calls.jsonl"), "--near", "1"]
    assert execute(words) == 0
    first = json.loads(capsys.readouterr().out)
    assert sum(first["calls"].values()) == len(rows) and first["contamination"]["same_request"]["rows"] == 0
    place = {c.id: c.split for name in first["calls"] for c in read_records(files / f"out/{name}.jsonl", Call)}
    assert len(place) == len(rows)
    taught = next(c for c in rows if place[c.id] == TRAIN)
    write_records(files / "dev.jsonl", [Call(id="dev", query=taught.query.upper())])
    assert execute([*words, "--against", str(files / "dev.jsonl")]) == 0
    second = json.loads(capsys.readouterr().out)
    held = {c.id for c in read_records(files / "out/held_out.jsonl", Call)}
    assert held == {taught.id} and second["contamination"]["removed_from_train"] == 1
    assert second["contamination"]["same_request"]["examples"] == [["dev", taught.id]]


def test_rows_of_two_runs_with_equal_ids(files: Path, capsys: Any) -> None:
    one, two = row("0a-1", "Do I need an umbrella in Oslo?", "Oslo"), row("0a-1", "Is it dry in Quito?", "Quito")
    named = row("0a-1~2", "How hot is Dakar today, roughly?", "Dakar")
    for name, rows in (("one", [one]), ("two", [two, named])):
        write_records(files / f"{name}.jsonl", rows)
    given = ["--calls", str(files / "one.jsonl"), str(files / "two.jsonl"), "--tools", str(files / "tools.jsonl")]
    out = ["--out", str(files / "out"), "--json"]
    assert execute(["synth", "filter", *given, *out, "--filters", "schema,grounded,duplicates"]) == 0
    assert json.loads(capsys.readouterr().out)["kept"]["calls"] == 3
    kept = list(read_records(files / "out/kept.jsonl", Call))
    assert [(c.id, c.query) for c in kept] == [(c.id, c.query) for c in (one, two, named)], "as they came"

    write_records(files / "dev.jsonl", [Call(id="dev", query=one.query)])
    more = ["--against", str(files / "dev.jsonl"), "--ratio-servers", "1e9", "--ratio-tools", "1e9"]
    assert execute(["synth", "split", *given, *out, *more, "--ratio-samples", "1e9"]) == 0
    assert json.loads(capsys.readouterr().out)["contamination"]["removed_from_train"] == 1
    held = list(read_records(files / "out/held_out.jsonl", Call))
    assert [c.query for c in held] == [one.query], "the other row of that id is innocent"


def test_what_was_made_of_one_instruction_stands_in_one_split() -> None:
    draft = Draft(id="0123456789-3", tool_id=WEATHER.tool_id, text="plain")
    ids = ["0123456789-3", "0123456789-3-e2", "0123456789-3-e2-de", "0123456789-3-de"]
    made = [draft.model_copy(update={"id": id_, "text": f"in other words {n}"}).call() for n, id_ in enumerate(ids)]
    assert {call.family for call in made} == {"0123456789-3"}
    splits = place_tools([WEATHER], {WEATHER.tool_id: "seen"})
    read = [OpenCall.model_validate_json(call.to_json()) for call in made]
    assert len({splits.of(call) for call in made} | {splits.of(call) for call in read}) == 1
    drawn = {splits.of(made[0].model_copy(update={"family": str(n)})) for n in range(200)}
    assert drawn == {"train", "seen"}
