"""Argument checks: right calls pass, wrong ones are explained so that one retry suffices, no schema crashes it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolscout.errors import InvalidArguments
from toolscout.records import Tool
from toolscout.validation import (
    bounded_schema,
    explain,
    misformed,
    nearest,
    schema_trouble,
    unwrap_envelope,
    validate,
)

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "City name. More."},
        "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3},
        "units": {"enum": ["metric", "imperial"]},
        "where": {"$ref": "#/$defs/Point"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "when": {"anyOf": [{"type": "string"}, {"type": "object", "properties": {"at": {"type": "integer"}}}]},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {
        "Point": {
            "type": "object",
            "properties": {"lat": {"type": "number"}, "lon": {"type": "number"}},
            "required": ["lat", "lon"],
            "additionalProperties": False,
        }
    },
}


def lines(arguments: dict[str, Any], schema: dict[str, Any] = WEATHER) -> list[str]:
    return [problem.line() for problem in validate(arguments, schema)]


def test_valid_arguments_have_no_problems() -> None:
    assert lines({"city": "Oslo"}) == []
    full = {
        "city": "Oslo",
        "days": 7,
        "units": "metric",
        "where": {"lat": 1, "lon": 2.5},
        "tags": [],
        "when": {"at": 1},
    }
    assert lines(full) == []
    assert lines({}, {}) == [] and lines({"any": object}, {}) == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({}, "$.city: required, but missing. (string; City name. More)"),
        ({"town": "Oslo", "citi": "Oslo"}, "$.city: required, but missing. You sent 'citi': rename it to 'city'."),
        ({"city": "Oslo", "day": 3}, "$.day: there is no such argument. Did you mean 'days'?"),
        (
            {"city": "O", "zzz": 3},
            "$.zzz: there is no such argument. Known here: city, days, units, where, tags, when.",
        ),
        ({"city": 5}, '$.city: 5 is an integer, not string. Send it in quotes: "5".'),
        ({"city": "Oslo", "days": "3"}, '$.days: "3" is a string, not integer. Send 3 without quotes.'),
        ({"city": "Oslo", "days": "three"}, '$.days: "three" is a string, not integer.'),
        ({"city": "Oslo", "days": 2.5}, "$.days: 2.5 is a number, not integer. Send a whole number."),
        ({"city": "Oslo", "days": 9}, "$.days: 9 is greater than the maximum of 7."),
        ({"city": "O", "units": "Metrics"}, '"Metrics" is not one of "metric", "imperial". Did you mean "metric"?'),
        ({"city": "Oslo", "tags": "a"}, '$.tags: "a" is a string, not array. Send a list: ["a"].'),
        ({"city": "Oslo", "tags": '["a"]'}, "Send it as JSON, not as text that holds JSON."),
        ({"city": "Oslo", "tags": ["a", 1]}, '$.tags[1]: 1 is an integer, not string. Send it in quotes: "1".'),
        ({"city": "Oslo", "where": {"lat": 1, "long": 2}}, "$.where.lon: required, but missing. You sent 'long'"),
        (
            {"city": "Oslo", "where": {"lat": 1, "lon": 2, "z": 1}},
            "$.where.z: there is no such argument. Known here: lat",
        ),
        ({"city": "Oslo", "when": {"at": "5"}}, '$.when.at: "5" is a string, not integer. Send 5 without quotes.'),
        ({"city": "Oslo", "days": None}, "$.days: null is null, not integer. Leave it out if there is no value."),
        ({"city": ["Oslo"]}, 'Send the value itself, not a list: "Oslo".'),
    ],
)
def test_what_is_wrong_and_how_to_repair_it(arguments: dict[str, Any], expected: str) -> None:
    assert expected in "\n".join(lines(arguments))


def test_booleans_and_numbers_as_text() -> None:
    schema = {"properties": {"b": {"type": "boolean"}, "n": {"type": "number"}, "e": {"enum": [1, 2]}}}
    assert lines({"b": "True", "n": "1.5", "e": "2"}, schema) == [
        '$.b: "True" is a string, not boolean. Send true without quotes.',
        '$.n: "1.5" is a string, not number. Send 1.5 without quotes.',
        '$.e: "2" is not one of 1, 2. Send 2 without quotes.',
    ]


def test_an_open_schema_still_catches_a_name_written_differently_but_nothing_more() -> None:
    schema = {"type": "object", "properties": {"file_name": {"type": "string"}, "n": {"type": "integer"}}}
    assert lines({"fileName": "x"}, schema) == ["$.fileName: there is no such argument. It is called 'file_name'."]
    assert lines({"file_name": "x", "fileName": "y"}, schema) == []
    assert lines({"filenames": "x", "whatever": 1}, schema) == []


def test_at_most_eight_problems() -> None:
    schema = {"properties": {f"p{i}": {"type": "integer"} for i in range(50)}}
    assert len(lines({f"p{i}": "x" for i in range(50)}, schema)) == 8


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "object", "properties": {"a": {"type": "str"}, "b": {"type": "integer"}}}, {"a": "x"}, {"b": "x"}),
        ({"properties": {"a": {"$ref": "#/nope"}, "b": {"type": "integer"}}}, {"a": {"x": 1}}, {"b": "x"}),
        ({"properties": {"a": {"type": "integer", "required": True}}}, {"a": 1}, {"a": "x"}),
        ({"properties": {"a": {"pattern": "(?<!x", "type": "string"}}}, {"a": "y"}, {"a": 1}),
        ({"$schema": "http://foo/bar", "properties": {"a": {"type": "integer"}}}, {"a": 1}, {"a": "x"}),
        ({"properties": {"a": {"minimum": 3, "exclusiveMinimum": True}}}, {"a": 4}, {"a": 3}),
        ({"properties": {"a": {"$ref": "https://example.com/s.json"}, "b": {"type": "integer"}}}, {"a": 1}, {"b": "x"}),
    ],
)
def test_broken_schemas_are_checked_as_far_as_they_go(
    schema: dict[str, Any], good: dict[str, Any], bad: dict[str, Any]
) -> None:
    assert lines(good, schema) == []
    assert lines(bad, schema) != []


def test_trouble_with_a_schema_is_said() -> None:
    assert schema_trouble(WEATHER) is None and schema_trouble({}) is None
    assert "broken" in (schema_trouble({"properties": {"a": {"type": "str"}}}) or "")
    remote = schema_trouble({"properties": {"a": {"$ref": "http://192.0.2.1/x.json"}}})
    assert remote is not None and "not followed" in remote


@pytest.mark.parametrize(
    "schema",
    [
        {"type": 5},
        {"properties": []},
        {"properties": {"a": None}},
        {"required": "a"},
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"enum": 1},
        {"allOf": {}},
        {"properties": {"a": {"pattern": "(a+)+$"}}},
        {"type": "object", "properties": {"a": {"$dynamicRef": "#x"}}},
        {"$id": "http://[", "type": "object"},
        {"type": "object", "properties": {"": {}, "a.b": {"type": "integer"}, "\u00fc": {}}},
        {"type": "object", "if": {}, "then": 3},
    ],
)
def test_no_schema_crashes_it(schema: dict[str, Any]) -> None:
    arguments = {"a": "a" * 40 + "!", "a.b": 1, "\ud800": None}
    assert isinstance(validate(arguments, schema), list)
    schema_trouble(schema)
    bounded_schema(schema)


def test_deep_schemas_and_odd_arguments() -> None:
    deep: dict[str, Any] = {}
    for _ in range(3000):
        deep = {"properties": {"a": deep}}
    assert validate({"a": 1}, deep) == [] and schema_trouble(deep) is not None
    assert len(bounded_schema(deep)) < 5000
    assert lines({"days": float("nan")}, {"properties": {"days": {"type": "string"}}})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=4) | st.sampled_from(["object", "string", "#"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["type", "properties", "required", "$ref", "anyOf", "items", "enum", "pattern", "a", "b"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None)
@given(schema=st.dictionaries(st.sampled_from(["type", "properties", "required", "anyOf", "$ref"]), JSON), value=JSON)
def test_anything_goes_in_and_a_list_comes_out(schema: dict[str, Any], value: Any) -> None:
    problems = validate({"a": value, "b": 1}, schema)
    assert all(p.path.startswith("$") and p.message for p in problems)
    tool = Tool(tool_id="s/t", server_id="s", name="t", input_schema=schema)
    assert explain(problems, tool)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(min_size=1, max_size=8), st.integers() | st.text(max_size=5), max_size=4))
def test_what_the_schema_allows_passes(arguments: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "properties": {n: {"type": "integer" if isinstance(v, int) else "string"} for n, v in arguments.items()},
        "required": list(arguments),
        "additionalProperties": False,
    }
    assert validate(arguments, schema) == []
    for name in arguments:
        assert validate({n: v for n, v in arguments.items() if n != name}, schema) != []


# envelopes


@pytest.mark.parametrize(
    "sent",
    [
        {"city": "Oslo"},
        '{"city": "Oslo"}',
        ' ```json\n{"city": "Oslo"}\n``` ',
        {"tool": "w/get", "arguments": {"city": "Oslo"}},
        {"name": "get", "arguments": '{"city": "Oslo"}'},
        {"tool_id": "w/get", "arguments": {"city": "Oslo"}},
        {"type": "function", "id": "call_1", "name": "get", "arguments": {"city": "Oslo"}},
        {"arguments": {"city": "Oslo"}},
        {"arguments": '{"city": "Oslo"}'},
        {"params": {"arguments": {"city": "Oslo"}}},
        '{"tool": "get", "args": {"city": "Oslo"}}',
        {"server": "w", "tool": "get", "input": {"city": "Oslo"}},
    ],
)
def test_envelopes_are_opened(sent: object) -> None:
    assert unwrap_envelope("w/get", sent, WEATHER) == {"city": "Oslo"}


@pytest.mark.parametrize(
    "sent", [None, "", {}, "{}", {"arguments": None}, {"arguments": {}}, {"tool": "get", "args": {}}]
)
def test_nothing_is_an_empty_object(sent: object) -> None:
    assert unwrap_envelope("w/get", sent, WEATHER) == {}


@pytest.mark.parametrize(
    ("sent", "schema"),
    [
        ({"arguments": {"x": 1}}, {"properties": {"arguments": {"type": "object"}}}),
        ({"name": "get", "arguments": {}}, {"properties": {"name": {}, "arguments": {}}}),
        ({"name": "get", "input": "text"}, {"properties": {"name": {}, "input": {}}}),
        ({"input": "plain text"}, {}),
        ({"tool": "another", "arguments": {"x": 1}}, {}),
        ({"arguments": {"x": 1}, "city": "Oslo"}, {}),
        ({"name": "get"}, {}),
        ({"input": {"a": 1}}, {"properties": {"input": {"type": "object"}}}),
    ],
)
def test_what_is_no_envelope_stays(sent: dict[str, Any], schema: dict[str, Any]) -> None:
    assert unwrap_envelope("w/get", sent, schema) == sent


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        ("{not json", "not valid JSON"),
        ("[1]", "a list"),
        ([1], "a list"),
        (5, "an integer"),
        ('"x"', "a string"),
        (True, "a boolean"),
    ],
)
def test_what_is_no_object_is_refused(sent: object, reason: str) -> None:
    with pytest.raises(InvalidArguments, match=reason):
        unwrap_envelope("w/get", sent, WEATHER)


@settings(max_examples=200, deadline=None)
@given(JSON)
def test_unwrapping_gives_an_object_or_a_clear_refusal(sent: object) -> None:
    try:
        assert isinstance(unwrap_envelope("w/get", sent), dict)
    except InvalidArguments as error:
        assert error.sentence()


# texts


def test_the_explanation_carries_all_that_a_retry_needs() -> None:
    tool = Tool(tool_id="w/get_forecast", server_id="w", name="get_forecast", input_schema=WEATHER)
    text = explain(validate({"day": 3}, WEATHER), tool)
    assert "does not" not in text and "w/get_forecast (2 problems)" in text
    assert "$.city: required" in text and "Did you mean 'days'?" in text
    assert "get_forecast(city: str" in text
    assert json.loads(text.partition("Input schema: ")[2].partition("\n")[0]) == WEATHER


def test_a_huge_schema_is_shown_in_part_with_what_matters() -> None:
    properties = {f"option_{i}": {"type": "string", "description": "d" * 100} for i in range(300)}
    schema = {"type": "object", "properties": {**properties, "needed": {"type": "integer"}}, "required": ["needed"]}
    shown = bounded_schema(schema, ["$.option_7"])
    assert len(shown) < 4500
    assert '"needed":{"type":"integer"}' in shown and '"option_7"' in shown and "and 299 optional properties" in shown


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("fileName", "file_name"),
        ("FILE-NAME", "file_name"),
        ("flie_name", "file_name"),
        ("file", "file_name"),
        ("limt", "limit"),
        ("max_limit", "limit"),
        ("qqqq", None),
        ("", None),
    ],
)
def test_nearest(name: str, expected: str | None) -> None:
    assert nearest(name, ["limit", "file_name", "offset"]) == expected


def test_nearest_among_texts_that_are_no_names_is_the_same_but_for_case() -> None:
    assert nearest("x" * 50_000, ["y" * 49_000, "x" * 49_999]) is None
    assert nearest("A" * 70, ["b", "a" * 70]) == "a" * 70
    many = [f"field_{i:04}_of_the_record_that_is_asked_for" for i in range(20_000)]
    assert nearest("FIELD_19000_of_the_record", many) is None
    assert nearest("Field-0002-of-the-record-that-is-asked-for", many) == many[2]
    assert nearest("CITY_NAME", ["cityName", *many, "city-name"]) == "cityName"


def test_many_unknown_names_beside_many_known_ones_are_told_of_in_time() -> None:
    known = {f"property_{i:03}_of_the_thing_that_this_tool_is_asked_to_make": {"type": "string"} for i in range(300)}
    schema = {"type": "object", "properties": known, "additionalProperties": False}
    problems = validate(
        {f"properly_{i:03}_of_the_ting_that_this_tool_is_told_to_make": "" for i in range(3000)}, schema
    )
    assert len(problems) == 8 and all("Did you mean" in p.hint for p in problems)


def test_formats_are_kept_to_where_the_draft_enforces_them() -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "url": {"type": "string", "format": "uri"},
            "who": {"type": "array", "items": {"type": "string", "format": "email"}},
        },
    }
    assert misformed({"url": "Instruments", "who": ["ann"]}, schema) == ["url", "who"]
    assert misformed({"url": "https://example.com/x", "who": ["ann@example.com"]}, schema) == []
    assert misformed({"url": 5}, schema) == [], "a wrong type is validate's"
    later = {**schema, "$schema": "https://json-schema.org/draft/2020-12/schema"}
    undated = {k: v for k, v in schema.items() if k != "$schema"}
    assert misformed({"url": "Instruments"}, later) == misformed({"url": "Instruments"}, undated) == []
    assert validate({"url": "Instruments"}, schema) == [], "what others send is not held to it"
    assert misformed({"url": "x"}, {**schema, "allOf": 5}) == []


@pytest.mark.parametrize("word", ["oneOf", "anyOf"])
@pytest.mark.parametrize("tag", [{"const": "box"}, {"enum": ["box"]}])
def test_of_alternatives_the_meant_one_is_explained(word: str, tag: dict[str, Any]) -> None:
    circle = {"properties": {"kind": {"const": "circle"}, "r": {"type": "number"}}, "required": ["kind", "r"]}
    box = {
        "properties": {"kind": tag, "w": {"type": "number"}, "h": {"type": "number"}},
        "required": ["kind", "w", "h"],
    }
    schema = {"properties": {
        "shape": {word: [{"type": "object", **circle}, {"type": "object", **box}]},
        "page": {word: [{"type": "integer"}, {"type": "null"}]},
    }}  # fmt: skip

    def said(**arguments: Any) -> list[str]:
        return [problem.line() for problem in validate(arguments, schema)]

    assert said(shape={"kind": "box", "w": "5"}) == [
        "$.shape.h: required, but missing. (number)",
        '$.shape.w: "5" is a string, not number. Send 5 without quotes.',
    ], "of the member whose tag it is, though another has as few errors"
    assert said(page="5") == ['$.page: "5" is a string, not integer or null. Send 5 without quotes.']
    (line,) = said(shape='{"kind": "box", "w": 1, "h": 2}')
    assert line.endswith("is a string, not object. Send it as JSON, not as text that holds JSON.")
