"""suggest_call's core: ready calls always validate, nothing is made up, and what lacks is said."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from odd_schemas import ODD

from toolscout.records import Call, GoldCall, Tool
from toolscout.server.backends import ContextOverflow, Generation, Token
from toolscout.server.backends.gguf import GgufBackend
from toolscout.server.calling.caller import ENABLE_MODEL, Caller, without_model
from toolscout.server.calling.choice import choice_probabilities, mean_probability
from toolscout.server.calling.grounding import Grounds, idle, invented, is_placeholder
from toolscout.server.calling.skeleton import extract, skeleton
from toolscout.server.calling.suggestion import Candidate
from toolscout.settings import Settings
from toolscout.validation import validate


def tool(name: str, required: Sequence[str] = (), **properties: Any) -> Tool:
    schema = {"type": "object", "properties": properties, "required": list(required)}
    return Tool(
        tool_id=f"acme/{name}", server_id="acme", name=name, description=name.replace("_", " "), input_schema=schema
    )


TEXT = {"type": "string"}
FORECAST = tool("get_weather_forecast", ["city"], city=TEXT, days={"type": "integer", "minimum": 1, "maximum": 7})
ISSUE = tool("read_issue", ["issue_id"], issue_id=TEXT, verbose={"type": "boolean"})
MAIL = tool("send_mail", ["to", "body"], to={"type": "string", "format": "email"}, body=TEXT)
NOW = tool("time_now")


def candidates(*tools: Tool) -> list[Candidate]:
    return [Candidate(t, 1.0 / (i + 1)) for i, t in enumerate(tools)]


class Scripted:
    """A model whose answers are written down: for what a real one cannot be made to do on command."""

    name = "scripted"
    chooses = True
    none_at = 0.9
    style = "full"
    budget = 0

    def __init__(self, *answers: str | Exception, prefills: bool = False) -> None:
        self.answers = list(answers)
        self.prefills = self.queues = prefills
        self.asked: list[dict[str, Any]] = []
        self.tokens: tuple[Token, ...] = ()

    async def generate(self, messages: Any, **options: Any) -> Generation:
        self.asked.append({"messages": list(messages), **options})
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return Generation(answer, self.tokens, complete=not answer.endswith("…"))

    async def prepare(self) -> None:
        pass

    async def close(self) -> None:
        pass


async def suggest(backend: Any, task: str, *tools: Tool, steps: int = 1, context: str = "") -> Any:
    return await Caller(Settings(), backend=backend).suggest(task, candidates(*tools), steps=steps, context=context)


# -- the flow, answer by answer


async def test_a_stated_call_is_ready() -> None:
    model = Scripted(
        '{"name": "get_weather_forecast"}',
        '{"name": "get_weather_forecast", "arguments": {"days": 3, "city": "Oslo"}}',
    )
    answer = await suggest(model, "Oslo weather for 3 days", FORECAST, NOW)
    (call,) = answer.calls
    assert call.ready and call.arguments == {"days": 3, "city": "Oslo"} and call.skeleton is None
    assert not answer.abstained and answer.schema_valid and answer.model == "scripted"
    assert model.asked[0]["messages"] == model.asked[1]["messages"], "both phases share their prompt"
    assert model.asked[0]["schema"]["properties"]["name"]["enum"] == ["get_weather_forecast", "time_now", "none"]


async def test_an_id_that_nobody_stated_is_missing_not_made_up() -> None:
    model = Scripted('{"name": "read_issue"}', '{"name": "read_issue", "arguments": {"issue_id": "ABC-1234567"}}')
    answer = await suggest(model, "Read me the issue about the login bug", ISSUE)
    (call,) = answer.calls
    assert call.arguments == {} and call.missing == ["issue_id"] and not call.ready
    assert call.skeleton == {"issue_id": "<issue_id: string>"}
    assert "issue_id" in answer.reason and not answer.abstained


async def test_an_id_in_the_context_counts_as_stated() -> None:
    model = Scripted('{"name": "read_issue"}', '{"name": "read_issue", "arguments": {"issue_id": "ABC-1234567"}}')
    answer = await suggest(model, "Read that issue", ISSUE, context="The newest issue is abc-1234567.")
    assert answer.calls[0].ready


async def test_an_optional_value_that_nobody_stated_is_left_out() -> None:
    search = tool("search", ["query"], query=TEXT, api_key=TEXT, author_email=TEXT, note=TEXT)
    given = {"query": "cats", "api_key": "sk-123456789abc", "author_email": "user@example.com", "note": ""}
    model = Scripted('{"name": "search"}', json.dumps({"name": "search", "arguments": given}))
    answer = await suggest(model, "Search cats", search)
    assert answer.calls[0].ready and answer.calls[0].arguments == {"query": "cats"}


async def test_an_invalid_call_is_repaired_with_the_error_in_view() -> None:
    model = Scripted(
        '{"name": "get_weather_forecast"}',
        '{"name": "get_weather_forecast", "arguments": {"city": "Oslo", "days": 30}}',
        '{"name": "get_weather_forecast", "arguments": {"city": "Oslo", "days": 7}}',
    )
    answer = await suggest(model, "Oslo weather for a month", FORECAST)
    assert answer.calls[0].ready and answer.calls[0].arguments["days"] == 7
    said = model.asked[2]["messages"][-1]["content"]
    assert "days" in said and "7" in said


async def test_a_bad_option_is_dropped_when_the_repair_fails_too() -> None:
    bad = '{"name": "get_weather_forecast", "arguments": {"city": "Oslo", "days": 30}}'
    answer = await suggest(Scripted('{"name": "get_weather_forecast"}', bad, bad), "Oslo weather", FORECAST)
    assert answer.calls[0].ready and answer.calls[0].arguments == {"city": "Oslo"}


async def test_what_never_validates_is_not_returned() -> None:
    strict = tool("set_level", ["level"], level={"type": "string", "pattern": "^L[0-9]$"})
    bad = '{"name": "set_level", "arguments": {"level": "high"}}'
    answer = await suggest(Scripted('{"name": "set_level"}', bad, bad), "Set the level high", strict)
    assert answer.abstained and answer.calls == [] and "acme/set_level fits, but" in answer.reason


@pytest.mark.parametrize("nonsense", ["I cannot help with that.", "[1, 2", '{"arguments": "none"}', ""])
async def test_nonsense_from_the_model_is_no_call(nonsense: str) -> None:
    answer = await suggest(Scripted('{"name": "get_weather_forecast"}', nonsense, nonsense), "Weather?", FORECAST)
    assert all(not c.ready and c.arguments == {} for c in answer.calls)
    answer = await suggest(Scripted(nonsense), "Weather?", FORECAST)
    assert answer.abstained and answer.calls == []


async def test_none_is_an_abstention_with_a_reason() -> None:
    answer = await suggest(Scripted('{"name": "none"}'), "Make my sister apologise", FORECAST, NOW)
    assert answer.abstained and answer.reason and answer.calls == []


@pytest.mark.parametrize(("sure", "abstained"), [(0.95, True), (0.6, False)])
async def test_none_is_believed_from_the_models_own_threshold_on(sure: float, abstained: bool) -> None:
    model = Scripted('none",', " {}}", prefills=True)
    model.tokens = (Token('none",', math.log(sure), (('none",', math.log(sure)), ("time", math.log(1 - sure)))),)
    answer = await suggest(model, "Make my sister apologise", NOW, ISSUE)
    assert answer.abstained is abstained
    assert [c.tool_id for c in answer.calls] == ([] if abstained else [NOW.tool_id])
    assert abstained or answer.calls[0].confidence < 0.5


async def test_no_candidates_is_an_abstention() -> None:
    answer = await Caller(Settings(), backend=Scripted()).suggest("x", [])
    assert answer.abstained and answer.reason


async def test_a_prompt_that_is_too_long_is_rendered_shorter() -> None:
    wordy = FORECAST.model_copy(update={"description": "rain and sun " * 4000})
    model = Scripted(
        ContextOverflow("too long", 0.3),
        '{"name": "get_weather_forecast"}',
        '{"name": "get_weather_forecast", "arguments": {"city": "Oslo"}}',
    )
    answer = await suggest(model, "Oslo weather " + "please " * 6000, wordy)
    lengths = [len(str(a["messages"])) for a in model.asked]
    assert answer.calls[0].ready and lengths[1] < lengths[0] / 2 and lengths[2] == lengths[1]


async def test_a_context_that_never_fits_is_a_clear_error() -> None:
    with pytest.raises(ContextOverflow):
        await suggest(Scripted(*[ContextOverflow("too long", 0.5)] * 6), "x", NOW)


async def test_left_out_required_values_are_asked_for_and_kept_only_if_the_task_supports_them() -> None:
    model = Scripted('send_mail",', " {}}", ' "ann@acme.test"}', ' "Invented words entirely"}', prefills=True)
    answer = await suggest(model, "Mail ann@acme.test", MAIL)
    (call,) = answer.calls
    assert call.arguments == {"to": "ann@acme.test"} and call.missing == ["body"] and not call.ready
    assert model.asked[2]["prefix"].endswith('"arguments": {"to":')
    assert model.asked[3]["prefix"].endswith('"arguments": {"to": "ann@acme.test", "body":')


async def test_what_the_model_declares_missing_is_given_only_if_it_shows_in_the_task() -> None:
    translate = tool("translate", ["text", "language"], text=TEXT, language={"enum": ["Python", "Rust"]})
    declared = ['translate",', ' {"text": "x"}, "missing": ["language"]}']
    stated = await suggest(Scripted(*declared, ' "Python"}', prefills=True), "Put x in Python", translate)
    assert stated.calls[0].ready and stated.calls[0].arguments["language"] == "Python"
    silent = await suggest(Scripted(*declared, ' "Rust"}', prefills=True), "Translate x", translate)
    assert silent.calls[0].missing == ["language"] and not silent.calls[0].ready


async def test_an_answer_that_broke_off_keeps_its_whole_members() -> None:
    model = Scripted('get_weather_forecast",', ' {"city": "Oslo", "days": 3, "x…', prefills=True)
    answer = await suggest(model, "Oslo weather, 3 days", FORECAST)
    assert answer.calls[0].ready and answer.calls[0].arguments == {"city": "Oslo", "days": 3}


# -- values without a trace in the request


@pytest.mark.parametrize(
    "value", ["sess_7b21", "a.txt", "/etc", "C:\\x", "me@b.c", "wlan1", "camelCase", "big one", ".env"]
)
def test_ids_are_told_by_how_they_are_written(value: str) -> None:
    assert Grounds('The "big one" is not an Issue').marks(value)


@pytest.mark.parametrize("value", ["chapters", "chapters.", "Cursor", "https://people", "one", "Issue"])
def test_plain_words_are_no_ids_by_themselves(value: str) -> None:
    assert not Grounds('The "big one" is not an Issue').marks(value)


SEARCH = tool(
    "search_pages",
    ["query"],
    query={"type": "string", "description": "What to look for in the pages of the wiki"},
    limit={"type": "integer", "default": 10},
    page={"type": "integer"},
    language={"type": "string", "description": "Two letters, e.g. en"},
    exact={"type": "boolean", "default": False},
    section=TEXT,
    radius={"type": "number"},
)


async def filled(task: str, tokens: tuple[Token, ...] = (), spec: Tool = SEARCH, **arguments: Any) -> Any:
    model = Scripted(json.dumps({"name": spec.name}), json.dumps({"name": spec.name, "arguments": arguments}))
    model.tokens = tokens
    answer = await suggest(model, task, spec)
    return answer.calls[0].arguments


@pytest.mark.parametrize(
    ("option", "kept"),
    [
        ({"limit": 10}, False),
        ({"limit": 25}, False),
        ({"page": 3}, True),
        ({"page": 7}, False),
        ({"exact": False}, False),
        ({"exact": True}, True),
        ({"language": "en"}, True),
        ({"language": "kl"}, False),
        ({"section": "cats"}, False),
        ({"section": "wild"}, True),
        ({"radius": 1500}, True),
    ],
)
async def test_an_option_needs_a_trace_in_the_request(option: dict[str, Any], kept: bool) -> None:
    task = "Look for cats, the wild ones, within 1.5 km, third page"
    assert await filled(task, query="cats", **option) == {"query": "cats"} | (option if kept else {})


@pytest.mark.parametrize(
    ("written", "given"),
    [
        (" cats", "cats"),
        ("wild cats  ", "wild cats"),
        ("\tcats\u00a0", "cats"),
        ("cats", "cats"),
        ("  cats\n  wild\n", "  cats\n  wild\n"),
        (" wild ones", " wild ones"),
    ],
)
async def test_blanks_around_a_text_are_cut_off_unless_they_may_be_meant(written: str, given: str) -> None:
    assert await filled('Look for cats, wild cats or " wild ones"', query=written) == {"query": given}


async def test_blanks_stay_where_the_schema_wants_them() -> None:
    spec = tool(
        "join",
        ["lead", "parts"],
        lead={"type": "string", "enum": [" - ", "* "]},
        parts={"type": "array", "items": {"type": "object", "properties": {"name": TEXT}}},
        code={"type": "string", "minLength": 4},
        glue=TEXT,
    )
    task = "Join alpha and beta with dashes, code one, glue ,"
    given = {"lead": " - ", "parts": [{"name": " alpha"}, {"name": "beta "}], "code": " one", "glue": ", "}
    bare = {"lead": " - ", "parts": [{"name": "alpha"}, {"name": "beta"}], "code": " one", "glue": ", "}
    assert await filled(task, spec=spec, **given) == bare


async def test_blanks_are_cut_off_what_was_asked_for_again() -> None:
    model = Scripted('get_weather_forecast",', ' {"days": 3}}', ' " Oslo"}', prefills=True)
    answer = await suggest(model, "Oslo weather for 3 days", FORECAST)
    assert answer.calls[0].ready and answer.calls[0].arguments == {"days": 3, "city": "Oslo"}


@pytest.mark.parametrize(
    "echo", ["string: What to look for", "What to look for in the pages", "query", "string (uri): the page"]
)
async def test_what_the_prompt_says_is_no_value(echo: str) -> None:
    assert await filled("Look something up", query=echo) == {}


@pytest.mark.parametrize(("sure", "kept"), [(0.3, False), (0.9, True)])
async def test_a_derived_text_stands_if_the_model_was_sure(sure: float, kept: bool) -> None:
    text = json.dumps({"name": SEARCH.name, "arguments": {"query": "AAPL"}})
    at = text.index("AAPL")
    tokens = (Token(text[:at], 0.0), Token("AA", math.log(sure)), Token(text[at + 2 :], 0.0))
    assert await filled("What is Apple worth?", tokens, query="AAPL") == ({"query": "AAPL"} if kept else {})


@pytest.mark.parametrize(
    ("issue", "sure", "kept"),
    [("login", 0.1, False), ("login", 0.9, True), ("ABC-12", 0.1, True), ("quoted", 0.1, True)],
)
async def test_a_plain_word_is_an_id_only_if_the_model_meant_it(issue: str, sure: float, kept: bool) -> None:
    text = f'{{"issue_id": "{issue}"}}'
    model = Scripted(' {}, "missing": ["issue_id"]}', f' "{issue}"}}', prefills=True)
    model.chooses = False
    model.tokens = (Token(' "', 0.0), Token(issue, math.log(sure)), Token('"}', 0.0))
    caller = Caller(Settings(), backend=model)
    answer = await caller.suggest('The login bug, ABC-12 or "quoted"', [Candidate(ISSUE, 1.0), Candidate(NOW, 0.5)])
    assert json.dumps(answer.calls[0].arguments) == (text if kept else "{}")


async def test_decodings_differ_in_what_is_asked_and_checked() -> None:
    written = ' {"issue_id": "made-up-1", "verbose": "yes"}}'
    asked: dict[str, list[dict[str, Any]]] = {}
    calls = {}
    for decoding in ("free", "constrained", "repair"):
        model = Scripted(written, ' "ABC-12"}', prefills=True)
        model.chooses = False
        caller = Caller(Settings(), backend=model, decoding=decoding)
        answer = await caller.suggest("Read ABC-12", [Candidate(ISSUE, 1.0), Candidate(NOW, 0.5)])
        asked[decoding], calls[decoding] = model.asked, answer.calls[0]
    assert asked["free"][0]["grammar"] == "" and len(asked["free"]) == len(asked["constrained"]) == 1
    assert "copied" in asked["repair"][0]["grammar"] and "copied" not in asked["constrained"][0]["grammar"]
    assert calls["free"].arguments == {"issue_id": "made-up-1", "verbose": "yes"} and not calls["free"].ready
    assert calls["repair"].arguments == {"issue_id": "ABC-12"} and calls["repair"].ready


async def test_by_json_schema_a_model_in_process_is_asked_as_an_endpoint_and_checked() -> None:
    whole = '{"name": "read_issue", "arguments": {"issue_id": "ABC-12", "verbose": "yes"}}'
    model = Scripted(whole, prefills=True)
    model.chooses = False
    answer = await Caller(Settings(), backend=model, decoding="schema").suggest("Read ABC-12", [Candidate(ISSUE, 1.0)])
    assert [(a["prefix"], a["grammar"]) for a in model.asked] == [("", "")]
    assert "issue_id" in model.asked[0]["schema"]["properties"]["arguments"]["properties"]
    assert answer.calls[0].arguments == {"issue_id": "ABC-12"} and answer.calls[0].ready


@pytest.mark.parametrize(
    "value", [float("inf"), 1e308, pytest.param(10**400, id="400 digits"), pytest.param(-(10**5000), id="5000 digits")]
)
def test_numbers_beyond_all_measure_are_in_no_request(value: float) -> None:
    grounds = Grounds("Set it to 5", "")
    assert not grounds.states(value) and not grounds.derives(value)
    assert grounds.states(5) and grounds.states(5.0)


# -- plans


async def test_a_plan_refers_to_earlier_calls_and_says_what_it_depends_on() -> None:
    lookup = tool("find_issue", ["text"], text=TEXT)
    count = tool("close_issue", ["number"], number={"type": "integer"})
    model = Scripted(
        '{"name": "find_issue"}',
        '{"name": "find_issue", "arguments": {"text": "login"}}',
        '{"name": "close_issue"}',
        '{"name": "close_issue", "arguments": {"number": "$1.number"}}',
        '{"name": "none"}',
    )
    answer = await suggest(model, "Find the login issue and close it", lookup, count, steps=5)
    first, second = answer.calls
    assert (first.id, first.depends_on) == ("1", []) and first.ready
    assert (second.id, second.depends_on, second.arguments) == ("2", ["1"], {"number": "$1.number"})
    assert second.ready and not answer.abstained and answer.reason is None
    assert '"id": "1"' in model.asked[2]["messages"][1]["content"]


async def test_a_reference_to_nothing_earlier_is_not_a_value() -> None:
    model = Scripted(
        '{"name": "read_issue"}', '{"name": "read_issue", "arguments": {"issue_id": "$4.id"}}', '{"name": "none"}'
    )
    answer = await suggest(model, "Read it", ISSUE, steps=3)
    assert answer.calls[0].missing == ["issue_id"] and answer.calls[0].depends_on == []


async def test_a_plan_that_repeats_itself_ends() -> None:
    call = ['{"name": "time_now"}', '{"name": "time_now", "arguments": {}}']
    answer = await suggest(Scripted(*call, *call), "What time is it?", NOW, steps=10)
    assert [c.tool_id for c in answer.calls] == ["acme/time_now"]


async def test_a_value_against_an_enforced_format_is_missing_not_offered() -> None:
    address = {"type": "string", "format": "uri"}
    page = tool("read_page", ["url"], url=address, author={"type": "string", "format": "email"})
    page.input_schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    model = Scripted(
        '{"name": "read_page"}',
        '{"name": "read_page", "arguments": {"url": "Instruments", "author": "Instruments"}}',
    )
    answer = await suggest(model, "Read the page Instruments", page)
    (call,) = answer.calls
    assert call.arguments == {} and call.missing == ["url"] and not call.ready


async def test_an_answer_to_a_question_about_what_is_missing_is_held_to_the_format_too() -> None:
    page = tool("read_page", ["url"], url={"type": "string", "format": "uri"})
    page.input_schema["$schema"] = "http://json-schema.org/draft-07/schema#"
    model = Scripted('read_page",', " {}}", ' "Instruments"}', prefills=True)
    answer = await suggest(model, "Read the page Instruments", page)
    assert all(call.arguments == {} and call.missing == ["url"] for call in answer.calls)


@pytest.mark.parametrize("budget", [0, 4000])
async def test_calls_of_other_tools_are_shown_to_untuned_models_only(budget: int) -> None:
    model = Scripted('{"name": "time_now"}', '{"name": "time_now", "arguments": {}}')
    model.budget = budget
    own = Call(id="1", query="Clock?", gold=[GoldCall(tool_id=NOW.tool_id, arguments={})])
    other = Call(id="2", query="Boil it", gold=[GoldCall(tool_id="kettle/boil", arguments={"celsius": 100})])
    await Caller(Settings(), backend=model).suggest("What time is it?", candidates(NOW), others=[own, other])
    system = model.asked[0]["messages"][0]["content"]
    assert "Clock?" in system and ("Boil it" in system) == (budget == 0)


# -- without a model


def test_without_a_model_the_best_tool_its_skeleton_and_how_to_enable_one() -> None:
    worked = Call(id="1", query="Oslo?", gold=[GoldCall(tool_id=FORECAST.tool_id, arguments={"city": "Oslo"})])
    given = [Candidate(NOW, 0.2), Candidate(FORECAST, 0.9, [worked])]
    answer = without_model("Weather in Lima", given)
    (call,) = answer.calls
    assert call.tool_id == FORECAST.tool_id and not call.ready and call.missing == ["city"]
    assert call.skeleton == {"city": "<city: string>"} and call.arguments == {}
    assert answer.reason == ENABLE_MODEL and answer.model is None and answer.alternatives == [NOW.tool_id]
    shaped = answer.to_answer({FORECAST.tool_id: FORECAST})
    assert shaped["exemplars"] == [{"request": "Oslo?", "arguments": {"city": "Oslo"}}]
    assert "city" in shaped["calls"][0]["signature"] and "model" not in shaped


async def test_no_model_installed_means_that_answer(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolscout.server.models.packaged_model", lambda: None)
    answer = await Caller(settings).suggest("Weather", candidates(FORECAST))
    assert answer.model is None and answer.calls[0].skeleton


@pytest.mark.parametrize(
    ("task", "properties", "found"),
    [
        ("in metric please", {"units": {"enum": ["metric", "imperial"]}}, {"units": "metric"}),
        ("metric or imperial", {"units": {"enum": ["metric", "imperial"]}}, {}),
        ("mail ann@acme.test now", {"email": TEXT}, {"email": "ann@acme.test"}),
        ("a@b.co and c@d.co", {"email": TEXT}, {}),
        ("read https://a.test/x?y=1.", {"url": TEXT}, {"url": "https://a.test/x?y=1"}),
        ('find "red shoes"', {"query": TEXT}, {"query": "red shoes"}),
        ('find "red" or "blue"', {"query": TEXT}, {}),
        ('find "red"', {"query": TEXT, "shop": TEXT}, {}),
        ("find red", {"query": TEXT}, {}),
        ('since "now"', {"when": {"type": "string", "format": "date"}}, {}),
    ],
)
def test_only_what_is_stated_beyond_doubt_is_read_off(task: str, properties: Any, found: Any) -> None:
    assert extract(task, {"type": "object", "properties": properties, "required": list(properties)}) == found


@pytest.mark.parametrize("name", ODD)
def test_any_schema_has_a_skeleton_and_an_honest_answer(name: str) -> None:
    skeleton(ODD[name])
    schema = ODD[name] if isinstance(ODD[name], dict) else {}
    odd = Tool(tool_id="s/t", server_id="s", name="t", input_schema=schema)
    for call in without_model("anything", [Candidate(odd, 1.0)]).calls:
        assert not call.ready or validate(call.arguments, schema) == []


# -- grounding


@pytest.mark.parametrize(
    ("name", "value", "said", "made_up"),
    [
        ("issue_id", "42", "issue 42", False),
        ("issue_id", "42", "the last issue", True),
        ("property_id", 8624316600, "the house listed as 8624316600", False),
        ("property_id", 8624316600, "the house", True),
        ("user_id", 3, "user three", False),
        ("days", 3, "a few days", False),
        ("repoUrl", "https://github.com/pallets/click", "pallets/click on github.com", False),
        ("url", "https://acme.test/", "open acme.test", False),
        ("url", "https://acme.test/login", "open acme.test", True),
        ("email", "ann@acme.test", "mail Ann at ACME", True),
        ("to", "ann@acme.test", "mail Ann", True),
        ("to", "Ann", "mail Ann", False),
        ("address", "0x9F3C1b7ae2", "wallet 0x9f3c1b7AE2", False),
        ("path", "src/main.py", "main.py in src", False),
        ("path", "/etc/passwd", "the config", True),
        ("phone", "+4917012345", "call +49 170 12345", False),
        ("country", "NO", "Norway", False),
        ("start", "2026-11-22", "tomorrow", False),
        ("api_key", "YOUR_API_KEY", "use my key", True),
        ("title", "<title>", "an issue", True),
        ("cover", "https://img.test/a.png", "a nice cover", True),
        ("token", "sk-abcdef0123456789", "", True),
        ("sort_key", "name", "by date", False),
        ("ids", ["7", "8"], "items 7 and 8", False),
        ("ids", ["7", "9"], "items 7 and 8", True),
        ("target", {"id": "zz9"}, "it", True),
        ("id", "$1.id", "", False),
        ("from", "20240815", "since 15 August 2024", False),
        ("after", "1740787200", "since March 2025", False),
        ("region", "eu-central-1", "our Frankfurt cluster", False),
        ("project_id", "acme%2Fbackend", "acme/backend", False),
        ("key", "ArrowDown", "one arrow down", False),
        ("value", '{ "amount": 42 }', "42 euros", False),
        ("order", "AX-2093-7781-Q", "my order", True),
    ],
)
def test_a_particular_thing_has_to_be_stated(name: str, value: Any, said: str, made_up: bool) -> None:
    assert invented(name, {"type": "string"}, value, Grounds(said)) is made_up


@pytest.mark.parametrize(
    ("value", "said", "asked_for"),
    [
        ("2024-01-01", "the last 5 commits of the repository", False),
        ("2024-01-01", "a look at the first one", False),
        ("2025-01-01", "what changed in 2025?", True),
        ("2026-12-15", "meetings on the 15th", True),
        ("2026-11-23T09:00:00Z", "tomorrow at nine", False),
        ("2026-11-23T09:00:00Z", "tomorrow at nine (today is 2026-11-22)", True),
        ("20240815", "since 15 August", True),
        ("20240101000000", "everything on foxes", False),
        ("01312025", "until January 31, 2025", True),
        ("04152017", "the match of last year", False),
        ("1740787200", "since March 2025", True),
        ("1740787200", "the newest activities", False),
    ],
)
def test_a_time_that_nobody_gave_is_left_out(value: str, said: str, asked_for: bool) -> None:
    assert idle({"type": "string"}, value, Grounds(said)) is not asked_for


def test_choices_and_defaults_of_the_schema_are_no_inventions() -> None:
    assert not invented("key_id", {"enum": ["k1", "k2"]}, "k2", Grounds(""))
    assert not invented("base_url", {"type": "string", "default": "https://api.test"}, "https://api.test", Grounds(""))


@pytest.mark.parametrize("value", ["", "  ", "<id>", "{{name}}", "your_token_here", "xxxx", "string", "N/A", "…"])
def test_placeholders_are_known(value: str) -> None:
    assert is_placeholder(value) and not is_placeholder("Oslo")


# -- probabilities


def test_probabilities_of_the_choice_are_scaled_over_the_options() -> None:
    tokens = [
        Token("get", math.log(0.3), (("The", math.log(0.4)), ("get", math.log(0.3)), ("no", math.log(0.1)))),
        Token("_all", math.log(0.5), (("_all", math.log(0.5)), ('_one",', math.log(0.25)))),
        Token('",', math.log(0.9), (('",', math.log(0.9)),)),
    ]
    odds = choice_probabilities(tokens, ["get_all", "get_one", "none"])
    assert odds == pytest.approx({"get_all": 0.5, "get_one": 0.25, "none": 0.25})


def test_probabilities_are_found_within_a_whole_answer() -> None:
    texts = ['{"', "name", '":', ' "a', '"}']
    tokens = [Token(t, math.log(0.5), ((t, math.log(0.5)),)) for t in texts]
    tokens[3] = Token(' "a', math.log(0.6), ((' "a', math.log(0.6)), (' "b', math.log(0.2)), (" {", math.log(0.2))))
    assert choice_probabilities(tokens, ["a", "b"]) == pytest.approx({"a": 0.75, "b": 0.25})
    tokens[3:] = [
        Token(' "', -0.1),
        Token("b", math.log(0.5), (("b", math.log(0.5)), ("a", math.log(0.5)))),
        Token('"', 0.0),
    ]
    assert choice_probabilities(tokens, ["a", "b"]) == pytest.approx({"a": 0.5, "b": 0.5})
    assert choice_probabilities([], ["a"]) == {} and choice_probabilities(tokens[:2], ["a"]) == {}
    assert mean_probability([Token("x", math.log(0.25)), Token("y", 0.0)]) == pytest.approx(0.5)


# -- what chooses when the model does not


class Choosing:
    """A chooser whose odds are written down."""

    none_at = 0.7

    def __init__(self, *odds: float) -> None:
        self.given = list(odds)
        self.asked: list[list[str]] = []

    def odds(self, task: str, tools: Sequence[Tool]) -> list[float]:
        self.asked.append([t.name for t in tools])
        return self.given


async def choose(model: Scripted, chooser: Choosing, rows: list[Candidate], steps: int = 1) -> Any:
    model.chooses = False
    caller = Caller(Settings(), backend=model, chooser=lambda: chooser)  # type: ignore[arg-type, return-value]
    return await caller.suggest("Oslo weather for 3 days", rows, steps=steps)


FILLED = '{"name": "get_weather_forecast", "arguments": {"days": 3, "city": "Oslo"}}'


async def test_the_chosen_tool_stands_alone_in_the_prompt() -> None:
    model, chooser = Scripted(FILLED), Choosing(0.1, 0.6, 0.3)
    answer = await choose(model, chooser, [Candidate(NOW), Candidate(FORECAST)])
    assert answer.calls[0].ready and answer.calls[0].arguments == {"days": 3, "city": "Oslo"}
    assert answer.alternatives == ["acme/time_now"] and chooser.asked == [["time_now", "get_weather_forecast"]]
    assert len(model.asked) == 1, "the model is not asked which"
    shown = model.asked[0]["messages"][0]["content"]
    assert "get_weather_forecast" in shown and "time_now" not in shown
    # Below the limit of refusal the tools share what none had.
    assert answer.calls[0].confidence == pytest.approx(0.5)


async def test_none_is_chosen_from_its_limit_on() -> None:
    for none, abstained in ((0.69, False), (0.7, True)):
        chooser = Choosing((1 - none) * 0.4, (1 - none) * 0.6, none)
        answer = await choose(Scripted(FILLED), chooser, [Candidate(NOW), Candidate(FORECAST)])
        assert answer.abstained == abstained and bool(answer.reason) == abstained
        assert answer.alternatives[0] == ("acme/get_weather_forecast" if abstained else "acme/time_now")


async def test_the_searchs_order_decides_where_it_has_ranked() -> None:
    chooser = Choosing()
    answer = await choose(Scripted(FILLED), chooser, [Candidate(NOW, 0.4), Candidate(FORECAST, 0.9)])
    assert answer.calls[0].tool_id == "acme/get_weather_forecast" and not chooser.asked


class Parting(Choosing):
    """Cosines by words that texts and names share."""

    def cosines(self, task: str, tools: Sequence[Tool]) -> tuple[list[float], float]:
        words = task.lower().rstrip(".").split()
        return [sum(part in words for part in t.name.split("_")) / len(words) * 2 for t in tools], 0.0


async def plan(model: Scripted, task: str, rows: list[Candidate], steps: int = 5) -> Any:
    model.chooses = False
    caller = Caller(Settings(), backend=model, chooser=lambda: Parting())  # type: ignore[arg-type, return-value]
    return await caller.suggest(task, rows, steps=steps)


async def test_a_plan_for_a_model_that_does_not_choose_follows_the_requests_parts() -> None:
    model = Scripted(FILLED, '{"name": "send_mail", "arguments": {"to": "ann@example.org", "body": "the forecast"}}')
    task = "Get the weather forecast for 3 days in Oslo, then send mail with the forecast to ann@example.org."
    answer = await plan(model, task, [Candidate(MAIL), Candidate(FORECAST), Candidate(NOW)])
    assert [(c.id, c.tool_id) for c in answer.calls] == [("1", "acme/get_weather_forecast"), ("2", "acme/send_mail")]
    first, second = (asked["messages"] for asked in model.asked)
    assert "Get the weather forecast for 3 days in Oslo" in first[-1]["content"].split("# Request")[1]
    assert "ann@example.org" not in first[-1]["content"].split("# Request")[1]
    assert all(task in asked[-1]["content"] for asked in (first, second)), "the whole request is what it stands in"
    assert "send_mail" not in first[0]["content"] and "send_mail" in second[0]["content"]


async def test_what_a_step_lacks_it_has_from_the_step_before() -> None:
    model = Scripted(FILLED, '{"name": "send_mail", "arguments": {"to": "ann@example.org"}, "missing": ["body"]}')
    task = "Get the weather forecast for 3 days in Oslo, then send mail to ann@example.org."
    answer = await plan(model, task, [Candidate(FORECAST), Candidate(MAIL)])
    mail = answer.calls[1]
    assert mail.arguments == {"to": "ann@example.org", "body": "$1.body"}
    assert mail.depends_on == ["1"] and not mail.missing and not mail.ready, "where the value stands is a guess"


async def test_a_list_in_the_request_takes_a_call_for_each_and_the_model_once() -> None:
    model = Scripted(FILLED)
    answer = await plan(
        model, "The weather forecast for 3 days in Oslo and Bergen", [Candidate(FORECAST), Candidate(NOW)]
    )
    assert [(c.id, c.arguments["city"], c.arguments["days"], c.ready) for c in answer.calls] == [
        ("1", "Oslo", 3, True),
        ("2", "Bergen", 3, True),
    ]
    assert len(model.asked) == 1
    few = await plan(
        Scripted(FILLED), "The weather forecast for 3 days in Oslo, Bergen and Wien", [Candidate(FORECAST)], 2
    )
    assert len(few.calls) == 2, "no more than were asked for"


async def test_a_clause_that_asks_again_is_another_call_which_leaves_out_what_stays() -> None:
    first = '{"name": "send_mail", "arguments": {"to": "ann@example.org", "body": "hello"}}'
    again = '{"name": "send_mail", "arguments": {"to": "bob@example.org"}, "missing": ["body"]}'
    task = "Send mail with 'hello' to ann@example.org; then send mail to bob@example.org."
    model = Scripted(first, again)
    answer = await plan(model, task, [Candidate(FORECAST), Candidate(MAIL)])
    assert [c.arguments for c in answer.calls] == [
        {"to": "ann@example.org", "body": "hello"},
        {"to": "bob@example.org", "body": "hello"},
    ]
    assert all(c.ready and not c.missing for c in answer.calls)
    assert "hello" not in model.asked[-1]["messages"][-1]["content"].split("# Request")[1]
    same = await plan(Scripted(first, first), task, [Candidate(FORECAST), Candidate(MAIL)])
    assert len(same.calls) == 1, "the same again is none"


async def test_a_first_step_that_lacks_something_says_so() -> None:
    model = Scripted('{"name": "send_mail", "arguments": {"to": "ann@example.org"}, "missing": ["body"]}')
    answer = await plan(model, "send mail to ann@example.org", [Candidate(FORECAST), Candidate(MAIL)])
    assert answer.calls[0].missing == ["body"] and "does not state: body" in answer.reason


async def test_a_plan_of_parts_that_no_tool_fits_abstains() -> None:
    answer = await plan(Scripted(), "sing a song, dance a while", [Candidate(FORECAST), Candidate(MAIL)])
    assert answer.abstained and "None of the candidate tools" in answer.reason


async def test_the_shipped_encoder_chooses_among_named_tools() -> None:
    model = Scripted(FILLED)
    model.chooses = False
    caller = Caller(Settings(), backend=model)
    rows = [Candidate(NOW), Candidate(MAIL), Candidate(FORECAST), Candidate(ISSUE)]
    answer = await caller.suggest("Will it rain in Oslo during the next 3 days?", rows)
    assert answer.calls[0].tool_id == "acme/get_weather_forecast"
    nothing = await caller.suggest("tell my grandmother that I love her cooking, she never uses a phone", rows)
    assert nothing.abstained and "None of the candidate tools" in nothing.reason


# -- a real model


@pytest.fixture(scope="module")
def smollm(smollm2: Path) -> Iterator[GgufBackend]:
    """The 135M model, cut short: an untuned model of that size rambles until it is stopped."""
    backend = GgufBackend(smollm2, name="smollm2-135m", threads=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("toolscout.server.calling.writing._LOCAL_ANSWER_TOKENS", 64)
        yield backend
    asyncio.run(backend.close())


SOME = ["ref", "enums", "array bounds", "formats", "number bounds", "map", "odd names", "anyOf of required"]


@pytest.mark.parametrize("name", SOME)
async def test_a_real_model_over_odd_schemas_gives_valid_calls_or_says_what_lacks(
    smollm: GgufBackend, name: str
) -> None:
    odd = Tool(tool_id="s/make", server_id="s", name="make", description="Make it.", input_schema=ODD[name])
    task = 'Make AB with 2, 3.5, metric, slow mode, on 2026-03-01, id 7, called "x".'
    answer = await Caller(Settings(), backend=smollm).suggest(task, [Candidate(odd, 1.0)])
    assert answer.model == "smollm2-135m" and (answer.calls or answer.reason)
    for call in answer.calls:
        assert 0 <= call.confidence <= 1
        if call.ready:
            assert validate(call.arguments, ODD[name]) == [] and not call.missing
        else:
            assert call.missing and call.skeleton is not None
            assert set(call.missing).isdisjoint(call.arguments)


async def test_a_real_model_plans_without_dangling_references(smollm: GgufBackend) -> None:
    answer = await Caller(Settings(), backend=smollm).suggest(
        "Get the weather forecast for Oslo, then mail it to ann@acme.test", candidates(FORECAST, MAIL, ISSUE), steps=3
    )
    for index, call in enumerate(answer.calls):
        assert call.id == str(index + 1) and set(call.depends_on) <= {str(i) for i in range(1, index + 1)}
        assert call.tool_id in {t.tool_id for t in (FORECAST, MAIL, ISSUE)}


async def test_concurrent_suggestions_share_one_model(smollm: GgufBackend) -> None:
    caller = Caller(Settings(), backend=smollm)
    tasks = ["Weather in Oslo", "Weather in Lima", "What time is it?"]
    answers = await asyncio.gather(*(caller.suggest(t, candidates(FORECAST, NOW)) for t in tasks))
    assert all(a.model == "smollm2-135m" for a in answers)
    again = await caller.suggest(tasks[0], candidates(FORECAST, NOW))
    first, second = answers[0].calls, again.calls
    assert [(c.tool_id, c.arguments) for c in first] == [(c.tool_id, c.arguments) for c in second], "greedy decoding"


def test_without_a_model_tools_that_tie_share_the_confidence() -> None:
    tools = [Tool(tool_id=f"s{n}/ping", server_id=f"s{n}", name="ping") for n in range(3)]
    assert without_model("ping", [Candidate(tool, 0.8) for tool in tools]).calls[0].confidence == pytest.approx(1 / 3)
    assert without_model("ping", [Candidate(tools[0], 0.8)]).calls[0].confidence == 1.0
    clear = [Candidate(tools[0], 1.2), Candidate(tools[1], 0.2)]
    assert without_model("ping", clear).calls[0].confidence > 0.99


def test_a_text_in_single_quotes_is_read_and_an_apostrophe_is_not() -> None:
    echo = Tool(
        tool_id="s/echo",
        server_id="s",
        name="echo",
        input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    )
    assert without_model("echo 'hello world'", [Candidate(echo)]).calls[0].arguments == {"text": "hello world"}
    assert without_model("echo Bob's and Ann's words", [Candidate(echo)]).calls[0].arguments == {}


@pytest.mark.parametrize(
    ("schema", "signature", "skeleton"),
    [
        (
            {"oneOf": [{"properties": {n: {"type": "string"}}, "required": [n]} for n in ("city", "zip")]},
            "city: str | zip: str",
            {"city": "<city: string>"},
        ),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "**: str", {}),
    ],
)
def test_a_choice_or_an_open_map_is_no_call_without_arguments(
    schema: dict[str, Any], signature: str, skeleton: dict[str, Any]
) -> None:
    tool = Tool(tool_id="w/look", server_id="w", name="look", description="Look.", input_schema=schema)
    call = without_model("look at it", [Candidate(tool, 1.0)]).to_answer({tool.tool_id: tool})["calls"][0]
    assert (call["ready"], call["signature"], call["skeleton"]) == (False, signature, skeleton)
