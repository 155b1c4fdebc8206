"""Any schema becomes a grammar that admits every order of members and forces nothing to be invented."""

from __future__ import annotations

import itertools
import json
from typing import Any

import jsonschema_rs
import pytest
from gbnf import accepts
from odd_schemas import ODD

from toolscout.prompt import dumps
from toolscout.schema import simplify, simplify_arguments
from toolscout.server.calling.constrain import (
    arguments_grammar,
    call_schema,
    choice_grammar,
    choice_schema,
    parse_answer,
    value_grammar,
)
from toolscout.server.calling.grounding import names_one_thing

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "units": {"enum": ["metric", "imperial"]},
        "spot": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}, "name": {"type": "string"}},
            "required": ["lat", "lon"],
        },
    },
    "required": ["city", "units"],
}


def takes(schema: Any, value: object, **options: bool) -> bool:
    return accepts(arguments_grammar(schema, **options), " " + dumps(value) + "}")


def test_members_come_in_any_order_and_none_is_demanded() -> None:
    full = {"city": "Paris", "days": 3, "units": "metric", "spot": {"lat": 1.5, "lon": -2}}
    for names in itertools.permutations(full):
        assert takes(WEATHER, {n: full[n] for n in names})
    for size in range(len(full)):
        for names in itertools.combinations(full, size):
            assert takes(WEATHER, {n: full[n] for n in names}), names


@pytest.mark.parametrize(
    "wrong",
    [
        {"town": "Paris"},
        {"city": 5},
        {"days": 8},
        {"days": "3"},
        {"units": "kelvin"},
        {"spot": {"lat": 1.5}},
        {"spot": {"lon": 1, "name": "x"}},
        {"spot": {"lat": 1, "lon": 2, "height": 3}},
        {"spot": []},
        {"city": None},
    ],
)
def test_what_the_schema_forbids_cannot_be_written(wrong: dict[str, Any]) -> None:
    assert not takes(WEATHER, wrong)


def test_missing_names_only_required_arguments() -> None:
    grammar = arguments_grammar(WEATHER)
    assert accepts(grammar, ' {}, "missing": ["city", "units"]}')
    assert not accepts(grammar, ' {}, "missing": ["days"]}')
    assert not accepts(grammar, ' {}, "missing": []}')
    assert not accepts(arguments_grammar({"properties": {"a": {"type": "string"}}}), ' {}, "missing": ["a"]}')


@pytest.mark.parametrize("present", [s for n in range(5) for s in itertools.combinations("abcd", n)])
def test_nested_objects_demand_exactly_what_is_required(present: tuple[str, ...]) -> None:
    value = {"o": dict.fromkeys(present, 1)}
    assert takes(ODD["nested required"], value) == ({"b", "d"} <= set(present))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ref", {"p": {"x": 1}}),
        ("recursive", {"tree": {"v": "a", "kids": [{"v": "b", "kids": []}]}}),
        ("types in a list", {"a": None}),
        ("types in a list", {"a": 3}),
        ("python types", {"a": "x", "b": 1}),
        ("property as text", {"city": "Oslo"}),
        ("escaped ref", {"a": True}),
        ("allOf", {"b": 2, "a": "x"}),
        ("anyOf of objects", {"name": "x"}),
        ("anyOf of required", {"b": "x"}),
        ("optional the pydantic way", {"days": None}),
        ("oneOf const", {"mode": "slow"}),
        ("enums", {"mixed": None, "quotes": "new\nline"}),
        ("enums", {"mixed": {"y": 1}, "quotes": 'say "hi"'}),
        ("enums", {"wrong type": 2, "none": "free"}),
        ("array bounds", {"a": ["x", "y"], "none": []}),
        ("string bounds", {"code": "AB", "crossed": "anything", "bad": "anything"}),
        ("formats", {"date": "2026-02-28", "uuid": "123e4567-e89b-12d3-a456-426614174000", "klingon": "nuqneH"}),
        ("formats", {"date-time": "2026-02-28T10:00:00Z", "time": "10:00:00", "email": "a@b.c"}),
        ("number bounds", {"small": -2, "natural": 0, "real": 0.25, "half": 1, "crossed": -40}),
        ("map", {"tags": {"a": 1, "b": 2}}),
        ("pattern properties", {"x-a": "b"}),
        ("odd names", {'a"b': "x", "naïve-键 x": True, "": ""}),
        ("bare object", {"anything": [1, {"goes": None}]}),
        ("draft-04 bounds", {"n": 3}),
    ],
)
def test_odd_schemas_admit_what_they_mean(name: str, value: object) -> None:
    assert takes(ODD[name], value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("draft-04 bounds", {"n": 0}),
        ("array bounds", {"a": ["x"]}),
        ("array bounds", {"a": ["x", "y", "z", "w"]}),
        ("string bounds", {"code": "ABCD"}),
        ("formats", {"date": "2026-13-01"}),
        ("formats", {"uuid": "123"}),
        ("number bounds", {"small": 3}),
        ("number bounds", {"natural": -1}),
        ("number bounds", {"half": 0}),
        ("closed and empty", {"a": 1}),
        ("map", {"tags": {"a": "x"}}),
    ],
)
def test_odd_schemas_refuse_what_they_forbid(name: str, value: object) -> None:
    assert not takes(ODD[name], value)


@pytest.mark.parametrize("name", ODD)
def test_every_schema_has_a_grammar_a_portable_schema_and_an_object_form(name: str) -> None:
    schema = ODD[name]
    assert simplify_arguments(schema)["type"] == "object"
    assert arguments_grammar(schema).startswith("root ::= ")
    portable = call_schema("tool", schema)
    jsonschema_rs.validator_for(json.loads(json.dumps(portable)))
    text = json.dumps(portable)
    assert "$ref" not in text and "pattern" not in text.replace("patternProperties", "")
    assert portable["properties"]["arguments"]["required"] == []


def test_references_stand_where_the_schema_would_not_take_a_string() -> None:
    assert takes(WEATHER, {"days": "$1.forecast.days"}, references=True)
    assert not takes(WEATHER, {"days": "$1.forecast.days"})
    assert not takes(WEATHER, {"days": "later"}, references=True)
    assert not takes(WEATHER, {"units": "$1.units"}, references=True), "an enum is chosen, not referred to"


def test_one_value_ends_the_object() -> None:
    assert accepts(value_grammar(WEATHER, "days"), " 3}")
    assert not accepts(value_grammar(WEATHER, "days"), " 9}")
    assert accepts(value_grammar(WEATHER, "unheard of"), ' {"a": [1]}}')


def test_choice_is_one_of_the_labels() -> None:
    grammar = choice_grammar(["get", "get_all", "none"])
    assert accepts(grammar, 'get",') and accepts(grammar, 'get_all"}') and accepts(grammar, 'none"}')
    assert not accepts(grammar, 'get_a",') and not accepts(grammar, "get")
    assert choice_schema(["a", "none"])["properties"]["name"]["enum"] == ["a", "none"]


def test_recursion_and_size_stay_bounded() -> None:
    everything = {"type": "object", "properties": {}, "$defs": {}}
    for i in range(12):  # each definition refers to all: 12^depth nodes if nothing stops it
        everything["$defs"][f"d{i}"] = {
            "type": "object",
            "properties": {f"p{j}": {"$ref": f"#/$defs/d{j}"} for j in range(12)},
        }
        everything["properties"][f"p{i}"] = {"$ref": f"#/$defs/d{i}"}
    assert len(arguments_grammar(everything)) < 1_000_000
    assert len(json.dumps(simplify(ODD["recursive root"]))) < 10_000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        ('Sure:\n```json\n{"a": {"b": 2}}\n``` done', {"a": {"b": 2}}),
        ('<tool_call>\n{"a": 1}\n</tool_call>', {"a": 1}),
        ('{broken {"a": 1}', {"a": 1}),
        ("[1, 2]", None),
        ("", None),
        ("{" * 5000, None),
    ],
)
def test_an_answer_is_found_in_whatever_stands_around_it(text: str, value: object) -> None:
    assert parse_answer(text) == value


# -- text that is copied out of the request

CARD = {
    "type": "object",
    "properties": {
        "session_id": {"type": "string"},
        "link": {"type": "string", "format": "uri"},
        "file_paths": {"type": "array", "items": {"type": "string"}},
        "note": {"type": "string"},
        "due_id": {"type": "string", "format": "date"},
    },
}
REQUEST = 'Call +14155550134 about sess_7b21, see figma.com\nor C:\\temp\\a.txt and the "big" one'


def copies(value: object, text: str = REQUEST, **options: Any) -> bool:
    return accepts(arguments_grammar(CARD, copying="ids", text=text, **options), " " + dumps(value) + "}")


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        ({"session_id": "sess_7b21"}, True),
        ({"session_id": "+14155550134"}, True),
        ({"session_id": "sess_7b21, see figma.com\nor"}, True),
        ({"session_id": '"big"'}, True),
        ({"session_id": "7b21"}, False),
        ({"session_id": "14155550134"}, False),
        ({"session_id": "my_session"}, False),
        ({"session_id": "about "}, False),
        ({"link": "figma.com"}, True),
        ({"link": "https://figma.com"}, True),
        ({"link": "https://example.com"}, False),
        ({"file_paths": ["C:\\temp\\a.txt", "a.txt"]}, True),
        ({"file_paths": ["b.txt"]}, False),
        ({"note": "whatever it likes"}, True),
        ({"due_id": "2026-01-31"}, True),
    ],
)
def test_ids_are_whole_words_of_the_request(value: dict[str, Any], taken: bool) -> None:
    assert copies(value) is taken


def test_only_what_names_one_thing_is_copied_unless_all_is() -> None:
    assert copies({"note": "new words"})
    every = arguments_grammar(CARD, copying="all", text=REQUEST)
    assert accepts(every, ' {"note": "the \\"big\\" one"}}') and not accepts(every, ' {"note": "new words"}}')


@pytest.mark.parametrize(
    ("name", "one"),
    [("fileKey1", True), ("file_key_2", True), ("sha1", True), ("address1", False), ("line1", False), ("key12", False)],
)
def test_a_numbered_name_names_what_it_does_without_its_number(name: str, one: bool) -> None:
    assert names_one_thing(name, {"type": "string"}) is one


@pytest.mark.parametrize("text", ["", "   ", "word " * 2000])
def test_without_words_to_copy_any_string_is_taken(text: str) -> None:
    assert copies({"session_id": "anything"}, text)


def test_dense_scripts_are_copied_by_the_character() -> None:
    assert copies({"session_id": "五粮液"}, "看看五粮液的股价") and not copies(
        {"session_id": "茅台"}, "看看五粮液的股价"
    )


def test_the_end_of_a_sentence_is_no_part_of_an_id() -> None:
    text = "Open report.pdf. Then v1.2, and stop."
    assert copies({"session_id": "report.pdf"}, text) and not copies({"session_id": "report.pdf."}, text)
    assert copies({"session_id": "v1.2"}, text) and not copies({"session_id": "v1.2,"}, text)
    assert copies({"session_id": "stop"}, text) and not copies({"session_id": "stop."}, text)


def test_a_reference_stands_beside_what_is_copied() -> None:
    assert copies({"session_id": "$1.session.id"}, references=True) and not copies({"session_id": "$1.session.id"})


def test_one_value_is_copied_as_well() -> None:
    grammar = value_grammar(CARD, "session_id", copying="ids", text=REQUEST)
    assert accepts(grammar, ' "sess_7b21"}') and not accepts(grammar, ' "sess"}')


@pytest.mark.parametrize("name", sorted(ODD))
def test_every_odd_schema_gives_a_grammar_with_copying(name: str) -> None:
    for copying in ("ids", "all"):
        grammar = arguments_grammar(ODD[name], copying=copying, text=REQUEST)
        defined = {line.split(" ::= ")[0] for line in grammar.splitlines()}
        assert "copied" in defined and accepts(grammar, " {}}")
