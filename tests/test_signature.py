"""Compact signatures and summary lines."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.records import Tool
from toolscout.signature import MAX_SIGNATURE, MAX_SUMMARY, compact_signature, parameters, summary_line


def props(required: list[str] | None = None, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required or []}


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        (props(), ""),
        ({}, ""),
        (props(["city"], city={"type": "string"}), "city: str"),
        (props(days={"type": "integer", "default": 7}), "days: int = 7"),
        (props(units={"enum": ["metric", "imperial"]}), 'units?: "metric"|"imperial"'),
        (props(["b"], a={"type": "number"}, b={"type": "boolean"}), "b: bool, a?: float"),
        (props(a={"type": ["string", "null"]}), "a?: str"),
        (props(a={"type": ["string", "integer"]}), "a?: str|int"),
        (props(a={"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}), "a?: str"),
        (props(a={"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]}), "a?: str|int[]"),
        (props(a={"type": "array", "items": {"enum": ["x", "y"]}}), 'a?: ("x"|"y")[]'),
        (props(a={"type": "array"}), "a?: any[]"),
        (props(a={"type": "string", "format": "date"}), "a?: str<date>"),
        (props(a={"const": 3}), "a?: 3"),
        (props(a={}), "a?: any"),
        (props(a=True), "a?: any"),
        (props(a={"properties": {"x": {"type": "integer"}}, "required": ["x"]}), "a?: {x: int}"),
        (props(["gone"], a={"type": "string"}), "gone: any, a?: str"),
        (props(**{"two words": {"type": "string"}}), '"two words"?: str'),
        ({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "integer"}}}, "a?: int"),
        ({"allOf": [props(["a"], a={"type": "string"}), props(b={"type": "integer"})]}, "a: str, b?: int"),
        ({"$ref": "#/$defs/In", "$defs": {"In": props(["q"], q={"type": "string"})}}, "q: str"),
        (props(a={"$ref": "https://example.org/a.json"}), "a?: any"),
        (props(a={"$ref": "#/nowhere"}), "a?: any"),
        (
            {"oneOf": [props(["city"], city={"type": "string"}), props(["zip"], zip={"type": "integer"})]},
            "city: str | zip: int",
        ),
        ({"anyOf": [props(["a"], a={"type": "string"}), props(["a"], a={"type": "string"})]}, "a: str"),
        (
            {"anyOf": [props(["a", "b"], a={}, b={}), {"$ref": "#/$defs/C"}], "$defs": {"C": props(c={})}},
            "(a: any, b: any) | (c?: any)",
        ),
        (
            {**props(a={"type": "string"}, b={}), "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
            "a?: str, b?: any, (a: str) | (b: any)",
        ),
        ({"oneOf": "a", "anyOf": [3, None, {}]}, ""),
        ({**props(a={"type": "string"}), "anyOf": [{"required": ["a"]}]}, "a: str"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "**: str"),
        ({"type": "object", "additionalProperties": True}, "**: any"),
        ({**props(["a"], a={}), "additionalProperties": {"type": "integer"}}, "a: any, **: int"),
        ({**props(a={}), "additionalProperties": True}, "a?: any"),
        ({"type": "object", "patternProperties": {"^x": {"type": "number"}}}, "**: float"),
        (["no", "schema"], ""),
        (None, ""),
        ({"properties": ["a"], "required": "a"}, ""),
        ({"type": "string"}, ""),
    ],
)
def test_signature(schema: object, line: str) -> None:
    assert compact_signature(schema) == line


def test_odd_names_are_quoted_within_objects_too() -> None:
    node = {"type": "object", "properties": {"a\nb": {"type": "integer"}, "c: d": {}, "\u2028": {}}}
    line = compact_signature({"properties": {"x": node, "y\u2028": {}}})
    assert line == r'x?: {"a\nb"?: int, "c: d"?: any, "\u2028"?: any}, "y\u2028"?: any'


def test_recursive_reference_ends() -> None:
    node = props(value={"type": "string"}, next={"$ref": "#/$defs/Node"})
    schema = {"$ref": "#/$defs/Node", "$defs": {"Node": node}}
    assert compact_signature(schema).startswith("value?: str, next?: {value?: str, next?:")
    loop = {"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}
    assert compact_signature(loop) == ""
    assert compact_signature(props(a={"$ref": "#/properties/a"})) == "a?: any"


def test_long_signature_keeps_required_parameters_and_counts_the_rest() -> None:
    many = {f"parameter_number_{i}": {"type": "string"} for i in range(40)}
    line = compact_signature(props(["needed"], **many, needed={"type": "integer"}))
    assert len(line) <= MAX_SIGNATURE
    assert line.startswith("needed: int, parameter_number_0?: str")
    shown = line.count("parameter_number_")
    assert line.endswith(f"... +{40 - shown} more")


def test_long_enumeration_says_that_it_goes_on() -> None:
    line = compact_signature(props(a={"enum": [f"value-{i}" for i in range(50)]}))
    assert line.startswith('a?: "value-0"|"value-1"')
    assert line.endswith("|...")


def test_parameters_carry_descriptions_and_required() -> None:
    found = parameters(props(["b"], a={"description": "first"}, b={"description": 5}))
    assert [(p.name, p.required, p.description) for p in found] == [("b", True, ""), ("a", False, "first")]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
schema_words = st.sampled_from(
    ["type", "properties", "required", "items", "anyOf", "oneOf", "allOf", "$ref", "$defs", "enum", "const", "default"]
)
schema_like = st.recursive(
    json_values | st.sampled_from(["object", "array", "string", "#", "#/properties/a", "#/$defs/a", "#/allOf/0"]),
    lambda inner: (
        st.dictionaries(schema_words | st.sampled_from(["a", "b"]), inner, max_size=5) | st.lists(inner, max_size=3)
    ),
    max_leaves=25,
)


@given(schema_like)
def test_any_schema_gives_one_short_line(schema: object) -> None:
    line = compact_signature(schema)
    assert len(line) <= MAX_SIGNATURE
    assert "\n" not in line


@pytest.mark.parametrize(
    ("description", "line"),
    [
        ("Get the weather. Then more.", "Get the weather."),
        ("Get   the\n weather", "Get the weather"),
        ("## Get the weather\u200b of a city", "Get the weather of a city"),
        ("", "get forecast"),
        ("Convert e.g. euros to yen. Done.", "Convert e.g. euros to yen."),
        ("查询天气。然后返回结果，包括温度。", "查询天气。然后返回结果，包括温度。"),
    ],
)
def test_summary(description: str, line: str) -> None:
    assert summary_line(Tool(tool_id="s/t", server_id="s", name="get_forecast", description=description)) == line


@given(st.text(max_size=400), st.text(max_size=20))
def test_summary_is_one_short_line(description: str, title: str) -> None:
    line = summary_line(Tool(tool_id="s/t", server_id="s", name="t", description=description, title=title))
    assert 0 < len(line) <= MAX_SUMMARY
    assert line.isprintable()
