"""The parts of plans by themselves: graphs, schemas beside references, fillings, code dictionaries."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synth_plans_player import FLIGHTS, HOLD

from toolscout.records import JsonObject, Tool
from toolscout.synth.plans.codes import codes_of, in_form, told_type
from toolscout.synth.plans.dag import PlanStep, before, depths, flaws, in_order, misfits, references
from toolscout.synth.plans.fillings import combinations, filled_steps, filled_text
from toolscout.synth.plans.rules import states
from toolscout.synth.plans.state import Filled


def step(id_: str, arguments: JsonObject | None = None, after: tuple[str, ...] = (), tool: str = "t") -> PlanStep:
    return PlanStep(id=id_, tool_id=tool, arguments=arguments or {}, depends_on=list(after))


@given(st.lists(st.integers(0, 6), min_size=2, max_size=9), st.randoms())
def test_any_graph_without_a_cycle_comes_into_order(needs: list[int], random: object) -> None:
    steps = [
        step(str(n + 1), {"x": [{"y": f"${needs[n]}.a[0].b"}]} if 0 < needs[n] <= n else {}) for n in range(len(needs))
    ]
    mixed = list(steps)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    made = in_order(mixed)
    assert [s.id for s in made] == [str(n) for n in range(1, len(steps) + 1)]
    for at, one in enumerate(made):
        assert one.depends_on == before(one) and all(int(i) <= at for i in one.depends_on)
    assert sorted(depths(made).values()) == sorted(depths(steps).values())


def test_a_cycle_and_what_waits_for_it_have_no_depth() -> None:
    steps = [
        step("1", {"a": "$2.x"}),
        step("2", after=("1",)),
        step("3", {"a": "$2.x"}),
        step("4"),
        step("5", after=("5",)),
    ]
    assert depths(steps) == {"4": 1}
    tools = {"t": Tool(tool_id="t", server_id="s", name="t")}
    assert [f.reason for f in flaws(steps, tools)] == ["cycle"] and "1, 2, 3, 5" in flaws(steps, tools)[0].detail


def test_money_is_no_reference() -> None:
    tools = {"t": Tool(tool_id="t", server_id="s", name="t")}
    said = {"a": "costs $1.50 or $2", "b": "$12.99", "c": "US$ 3.4 million"}
    assert not references(said) and not flaws([step("1", said), step("2")], tools)
    assert references({"a": ["$2.items[0].metadata.name"]}) == {"$.a[0]": ("2", "items[0].metadata.name")}


def test_schemas_beside_references() -> None:
    node = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "integer"}}},
    }
    tool = Tool(tool_id="t", server_id="s", name="t", input_schema={**node, "required": ["n", "tags"]})
    assert not misfits(step("2", {"n": "$1.count", "tags": [1, "$1.more"]}), tool)
    assert len(misfits(step("2", {"n": "$1.count", "tags": ["one", "$1.more"]}), tool)) == 1
    assert "tags" in misfits(step("2", {"n": "$1.count"}), tool)[0], "what is missing is missing"
    assert "no such argument" in misfits(step("2", {"n": 1, "tags": [], "m": "$1.x"}), tool)[0]
    free = tool.model_copy(update={"input_schema": {**tool.input_schema, "additionalProperties": True}})
    assert not misfits(step("2", {"n": 1, "tags": [], "m": "$1.x"}), free)


def test_combinations_use_every_value_and_never_say_one_thing_twice() -> None:
    places = [Filled(said=name, value=name) for name in ("Oslo", "Quito", "Turin")]
    counts = [Filled(said=str(n), value=n) for n in (2, 3)]
    made = combinations({"from": places, "to": places, "n": counts, "m": counts}, 3, "key")
    assert made == combinations({"from": places, "to": places, "n": counts, "m": counts}, 3, "key")
    assert all(one["from"] != one["to"] for one in made) and len(made) >= 1
    assert {f["a"].said for f in combinations({"a": places}, 9)} == {"Oslo", "Quito", "Turin"}
    assert combinations({}, 3) == [{}], "a request without slots is one request"
    assert combinations({"from": places[:1], "to": places[:1]}, 3) == []


def test_values_take_the_form_that_the_schema_wants() -> None:
    schema = {
        "type": "object",
        "properties": {
            "n": {"type": "integer"}, "x": {"type": "number"}, "text": {"type": "string"},
            "lang": {"enum": ["de", "en"]}, "many": {"type": "array", "items": {"type": "integer"}},
        },
    }  # fmt: skip
    tool = Tool(tool_id="t", server_id="s", name="t", input_schema=schema)
    filled = {
        "n": Filled(said="5", value="5"),
        "x": Filled(said="2.5", value=2.5),
        "c": Filled(said="German", value="DE", type="language"),
    }
    arguments = {"n": "{n}", "x": "{x}", "text": "{x}", "lang": "{c}", "many": ["{n}", 7]}
    (made,) = filled_steps([step("1", arguments)], filled, {"t": tool})
    assert made.arguments == {"n": 5, "x": 2.5, "text": "2.5", "lang": "de", "many": [5, 7]}
    (inside,) = filled_steps([step("1", {"text": "A note in {c}"})], filled, {"t": tool})
    assert inside.arguments == {"text": "A note in German"}, "within a text stands the name"
    assert filled_text("{n} of {other}", filled) == "5 of {other}"


def test_a_request_states_a_value_whatever_its_case_and_commas() -> None:
    assert states("Send 1,250,000 yen to ÅSA lind.", "1250000") and states("to Åsa  Lind.", "Åsa Lind")
    assert not states("Send 12500 yen", "1250") and not states("to Tokyo", "Narita International Airport")
    assert states("is it C++?", "C++") and not states("a plan", "++")


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        ("airport", "Narita International Airport", "NRT"), ("airport", "nrt", "NRT"), ("airport_icao", "NRT", "RJAA"),
        ("country", "Switzerland", "CH"), ("country_alpha3", "UK", "GBR"), ("country", "south korea", "KR"),
        ("currency", "Swiss franc", "CHF"), ("currency", "EUR", "EUR"),
        ("language", "German", "de"), ("language_alpha3", "Greek", "ell"), ("ticker", "Microsoft", "MSFT"),
    ],
)  # fmt: skip
def test_dictionaries_find_codes_by_names(kind: str, name: str, code: str) -> None:
    codes = codes_of(kind)
    assert codes is not None
    entry = codes.find(name)
    assert entry is not None and entry.code == code and entry.name != code
    assert codes.find("No such thing at all") is None
    drawn = codes.draw(6, "key")
    assert drawn == codes.draw(6, "key") != codes.draw(6, "other")
    assert all(codes.find(e.name) == e for e in codes.drawn), "a name that is drawn means one code"


def test_a_name_of_several_is_a_name_of_none() -> None:
    airports = codes_of("airport")
    assert airports is not None and airports.find("London") is None, "which of its airports?"


@pytest.mark.parametrize(
    ("name", "node", "kind"),
    [
        ("origin", {"type": "string", "description": "IATA code of the airport"}, "airport"),
        ("airline", {"type": "string", "description": "IATA code of the airline"}, ""),
        ("station", {"type": "string", "description": "ICAO identifier"}, "airport_icao"),
        ("country", {"type": "string", "description": "ISO 3166-1 alpha-2"}, "country"),
        ("country", {"type": "string", "description": "three-letter country code"}, "country_alpha3"),
        ("country_code", {"type": "string"}, "country"),
        ("base", {"type": "string", "description": "ISO 4217 code"}, "currency"),
        ("lang", {"type": "string", "description": "ISO 639-1 code"}, "language"),
        ("ticker", {"type": "string"}, "ticker"),
        ("country_code", {"type": "integer"}, ""),
        ("currency_code", {"type": "string", "enum": ["EUR"]}, ""),
        ("city", {"type": "string", "description": "name of the city"}, ""),
    ],
)
def test_which_codes_a_parameter_asks_for(name: str, node: JsonObject, kind: str) -> None:
    assert told_type(name, node) == kind


def test_codes_in_the_case_of_the_choices() -> None:
    assert in_form("DE", {"enum": ["de", "fr"]}) == "de" and in_form("DE", {"type": "string"}) == "DE"


def test_tools_of_the_player_are_what_they_seem() -> None:
    assert not misfits(step("1", {"origin": "HEL", "destination": "NRT", "date": "2026-03-14"}), FLIGHTS)
    assert misfits(step("1", {"passenger": "Ida"}), HOLD)
