"""Answers of models, read strictly and mended where that leaves no doubt; placeholders; names."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field
from synth_endpoint import SERVERS, TOOLS, WEATHER

from toolscout.records import Server, Tool
from toolscout.synth.environment import Environment, placeholders, read_environment, replaced
from toolscout.synth.naming import names_used
from toolscout.synth.parsing import Unreadable, read_answer, read_object
from toolscout.synth.prompt_files import FOLDER, load_prompt


class Texts(BaseModel):
    instructions: list[str]


class Scored(BaseModel):
    score: float = Field(ge=0, le=10)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"instructions": ["a", "b"]}', ["a", "b"]),
        ('Sure! Here you are:\n```json\n{"instructions": ["a"]}\n```\nAnything else?', ["a"]),
        ('{"instructions": ["a", "b",],}', ["a", "b"]),
        ('["a", "b"]', ["a", "b"]),
        ('<think>{"instructions": ["no"]}</think>{"instructions": ["yes"]}', ["yes"]),
        ('{"instructions": ["one, ]", "it\'s", "tw', ["one, ]", "it's"]),
        ("{“instructions”: [“a”]}", ["a"]),
        ('{"instructions": ["line\nbreak", "None, True"],}', ["line\nbreak", "None, True"]),
        ('{"plan": 1} then {"instructions": ["a"]}', ["a"]),
        ('A set {x, y} and [z]: {"instructions": ["a"]}', ["a"]),
    ],
)
def test_slips_that_leave_no_doubt_are_mended(text: str, expected: list[str]) -> None:
    assert read_answer(text, Texts).instructions == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "no JSON object"),
        ("1. What is it?\n2. Who?", "no JSON object"),
        ('{"instructions": "one"}', "instructions: Input should be a valid list"),
        ('{"instructions": [{"text": "one"}]}', "instructions.0: Input should be a valid string"),
        ('{"questions": ["one"]}', "instructions: Field required"),
        ('{"instructions": ["brok', "no JSON object"),
        ('{"call": {"instructions": ["a"]}, "next": {"b": ', "no JSON object"),
        ('{"call": {"instructions": ["a"]}, "next": "b', "no JSON object"),
    ],
)
def test_all_else_is_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(Unreadable, match=problem):
        read_answer(text, Texts)


def test_numbers_have_bounds_and_are_numbers() -> None:
    assert read_answer('{"score": "7"}', Scored).score == 7
    for text in ('{"score": 11}', '{"score": NaN}', '{"score": "7/10"}'):
        with pytest.raises(Unreadable):
            read_answer(text, Scored)


@given(st.text(max_size=200))
def test_no_text_breaks_the_reader(text: str) -> None:
    for wrapped in (text, '{"instructions": [' + text, "[" * 50 + text):
        with contextlib.suppress(Unreadable):
            assert isinstance(read_answer(wrapped, Texts), Texts)
        with contextlib.suppress(Unreadable):
            assert isinstance(read_object(wrapped), dict)


# -- placeholders


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("Summarise /path/to/file.pdf and your_file.csv", ["file", "file"]),
        ("Read C:\\path\\to\\document.docx", ["file"]),
        ("Open https://example.com/page?x=1.", ["url"]),
        ("List <directory> for [CITY]", ["directory", "other"]),
        ("Mail bob@example.com with YOUR_API_KEY", ["other", "other"]),
        ("Copy {{file}} to /path/to/folder", ["file", "directory"]),
        ("Is 5 < 7 and 8 > 3? See notes/meeting.md at https://www.nasa.gov, file report-2024.pdf", []),
        ("Wie ist das Wetter in [Köln]?", []),
    ],
)
def test_placeholders_are_seen_and_values_are_not(text: str, kinds: list[str]) -> None:
    assert [p.kind for p in placeholders(text)] == kinds


def test_placeholders_are_replaced_by_local_candidates_of_their_kind() -> None:
    local = Environment(files=["a.pdf", "b.csv", "c.csv"], urls=["https://a.org/x"], directories=["/srv/d"])
    text, left = replaced("Join your_file.csv, /path/to/doc.pdf, <url> and [CITY] into /path/to/folder.", local, "k")
    assert left == ["[CITY]"]
    assert text in {f"Join {name}, a.pdf, https://a.org/x and [CITY] into /srv/d." for name in ("b.csv", "c.csv")}
    assert replaced("Join your_file.csv", local, "k") == replaced("Join your_file.csv", local, "k")
    assert replaced("Open <url>", Environment(), "k") == ("Open <url>", ["<url>"])


def test_what_ships_as_environment_holds_no_placeholder() -> None:
    local = read_environment(None)
    for value in [*local.files, *local.directories, *local.urls]:
        assert placeholders(f"Take {value} please") == []


# -- names


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Use get_forecast for Oslo", ["get_forecast"]),
        ("Ask Skywatch about Oslo", ["skywatch"]),
        ("get forecast figures for Oslo", []),
        ("What will the sky be like in Oslo?", []),
    ],
)
def test_names_of_tool_and_server(text: str, found: list[str]) -> None:
    assert names_used(text, WEATHER, SERVERS[WEATHER.server_id]) == found


def test_an_ordinary_word_is_no_name() -> None:
    tool = Tool(tool_id="x/weather/now", server_id="x/weather", name="now", description="Current weather of a city.")
    assert names_used("How is the weather now?", tool, Server(server_id="x/weather", name="Weather")) == []
    other = tool.model_copy(update={"description": "Current conditions. Weather is a brand."})
    assert names_used("How is the weather?", other, None) == ["weather"]


# -- prompts


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.md")), ids=lambda p: p.stem)
def test_every_prompt_names_its_source_and_asks_for_json(path) -> None:  # type: ignore[no-untyped-def]
    prompt = load_prompt(path.stem)
    assert prompt.source and prompt.turns[0][0] == "system" and prompt.turns[-1][0] == "user"
    assert "one JSON object" in prompt.turns[-1][1]


def test_what_is_filled_in_is_not_read_for_names() -> None:
    hostile = "$count ${tool} costs $5"
    last = load_prompt("generate").render(tool=hostile, server="s", count=3)[-1]["content"]
    assert hostile in last


def test_tools_of_the_tests_are_distinct() -> None:
    assert len({t.computed_fingerprint() for t in TOOLS}) == len(TOOLS)
