"""The AST metric: BFCL's rules, and where ours go further on purpose."""

from __future__ import annotations

from typing import Any

import pytest

from toolscout.ast_match import MadeCall, Match, match_calls, standardise, values_match
from toolscout.records import GoldCall

RIGHT, NAMES, TOOL, WRONG = (
    Match(True, True, True),
    Match(True, True, False),
    Match(True, False, False),
    Match(False, False, False),
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "radius": {"type": "number"},
        "metric": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "box": {"type": "object", "properties": {"w": {"type": "integer"}, "h": {"type": "number"}}},
        "points": {"type": "array", "items": {"type": "number"}},
        "place": {"$ref": "#/$defs/Place"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
    },
    "required": ["city"],
    "$defs": {"Place": {"type": "object", "properties": {"lat": {"type": "number"}, "id": {"type": "integer"}}}},
}


def verdict(made: dict[str, Any], right: dict[str, Any], accept: dict[str, list[Any]] | None = None) -> Match:
    gold = GoldCall(tool_id="s/t", arguments=right, accept=accept)
    return match_calls([MadeCall("s/t", made)], [gold], {"s/t": SCHEMA})


@pytest.mark.parametrize(
    ("made", "right", "expected"),
    [
        ({"city": "New York"}, {"city": "New York"}, RIGHT),
        ({"city": "new-york."}, {"city": "New York"}, RIGHT),
        ({"city": "it's"}, {"city": 'it"s'}, RIGHT),
        ({"city": "Newark"}, {"city": "New York"}, NAMES),
        ({"city": "A\tB"}, {"city": "A B"}, NAMES),
        ({}, {"city": "X"}, TOOL),
        ({"city": "X"}, {"city": "X", "days": 2}, TOOL),
        ({"city": "X", "days": 2}, {"city": "X"}, TOOL),
        ({"city": "X", "invented": 1}, {"city": "X"}, TOOL),
        ({"city": "X", "days": 2.0}, {"city": "X", "days": 2}, NAMES),
        ({"city": "X", "days": "2"}, {"city": "X", "days": 2}, NAMES),
        ({"city": "X", "days": True}, {"city": "X", "days": 1}, NAMES),
        ({"city": "X", "days": None}, {"city": "X", "days": 1}, NAMES),
        ({"city": "X", "radius": 5}, {"city": "X", "radius": 5.0}, RIGHT),
        ({"city": "X", "radius": 5.0}, {"city": "X", "radius": 5}, RIGHT),
        ({"city": "X", "radius": 5.1}, {"city": "X", "radius": 5}, NAMES),
        ({"city": "X", "metric": True}, {"city": "X", "metric": True}, RIGHT),
        ({"city": "X", "metric": 1}, {"city": "X", "metric": True}, NAMES),
        ({"city": "X", "metric": False}, {"city": "X", "metric": True}, NAMES),
        ({"city": "X", "tags": ["A b", "c"]}, {"city": "X", "tags": ["a-B", "C"]}, RIGHT),
        ({"city": "X", "tags": ["c", "a"]}, {"city": "X", "tags": ["a", "c"]}, NAMES),
        ({"city": "X", "tags": ["a"]}, {"city": "X", "tags": ["a", "c"]}, NAMES),
        ({"city": "X", "tags": "a"}, {"city": "X", "tags": ["a"]}, NAMES),
        ({"city": "X", "box": {"h": 2, "w": 1}}, {"city": "X", "box": {"w": 1, "h": 2.0}}, RIGHT),
        ({"city": "X", "box": {"w": 1.0, "h": 2}}, {"city": "X", "box": {"w": 1, "h": 2}}, NAMES),
        ({"city": "X", "box": {"w": 1}}, {"city": "X", "box": {"w": 1, "h": 2}}, NAMES),
        ({"city": "X", "box": {"w": 1, "h": 2, "d": 3}}, {"city": "X", "box": {"w": 1, "h": 2}}, NAMES),
        ({"city": "X", "points": [1, 2]}, {"city": "X", "points": [1.0, 2.0]}, RIGHT),
        ({"city": "X", "place": {"lat": 1, "id": 2}}, {"city": "X", "place": {"lat": 1.0, "id": 2}}, RIGHT),
        ({"city": "X", "place": {"lat": 1, "id": 2.0}}, {"city": "X", "place": {"lat": 1, "id": 2}}, NAMES),
        ({"city": "X", "maybe": 3.0}, {"city": "X", "maybe": 3}, NAMES),
        ({"city": "X", "maybe": None}, {"city": "X", "maybe": None}, RIGHT),
    ],
)
def test_values_of_one_call(made: dict[str, Any], right: dict[str, Any], expected: Match) -> None:
    assert verdict(made, right) == expected


@pytest.mark.parametrize(
    ("made", "accept", "expected"),
    [
        ({"city": "NYC"}, {"city": ["NYC"]}, RIGHT),
        ({"city": "New York"}, {"city": ["NYC"]}, RIGHT),  # the gold value need not be repeated
        ({"city": "New York"}, {"days": ["", 1]}, RIGHT),
        ({"city": "New York", "days": 1}, {"days": ["", 1]}, RIGHT),
        ({"city": "New York", "days": 2}, {"days": ["", 1]}, NAMES),
        ({"city": "New York"}, {"days": [1]}, TOOL),
        ({}, {"city": ["New York", ""]}, TOOL),  # required by the schema, whatever the list says
        ({"city": "New York", "tags": []}, {"tags": [["a"], ""]}, RIGHT),  # an empty list is as good as none
        ({"city": "New York", "unknown": 1}, {"unknown": ["", 1]}, TOOL),  # the schema has no such argument
    ],
)
def test_accepted_values(made: dict[str, Any], accept: dict[str, list[Any]], expected: Match) -> None:
    assert verdict(made, {"city": "New York"}, accept) == expected


def test_objects_in_accept_may_list_alternatives_per_key() -> None:
    right = {"city": "X", "box": {"w": 1, "h": 2}}
    accept = {"box": [{"w": [1, 3], "h": [2, ""]}]}
    assert verdict({"city": "X", "box": {"w": 3}}, right, accept) == RIGHT
    assert verdict({"city": "X", "box": {"h": 2}}, right, accept) == NAMES
    assert verdict({"city": "X", "box": {"w": 4, "h": 2}}, right, accept) == NAMES


def test_objects_in_accept_may_be_plain() -> None:
    right = {"city": "X", "place": {"tags": ["b", "a"]}}
    accept = {"place": [{"tags": ["a", "b"]}]}
    assert verdict({"city": "X", "place": {"tags": ["a", "b"]}}, right, accept) == RIGHT
    assert verdict({"city": "X", "place": {"tags": "a"}}, right, accept) == NAMES


def test_lists_of_objects_with_alternatives() -> None:
    right = {"city": "X", "tags": [{"k": "a"}, {"k": "b"}]}
    accept = {"tags": [[{"k": ["a", "A1"]}, {"k": ["b"]}]]}
    assert verdict({"city": "X", "tags": [{"k": "a1"}, {"k": "B"}]}, right, accept) == RIGHT
    assert verdict({"city": "X", "tags": [{"k": "b"}, {"k": "a"}]}, right, accept) == NAMES


def calls(*made: tuple[str, dict[str, Any]]) -> list[MadeCall]:
    return [MadeCall(f"s/{name}", arguments) for name, arguments in made]


def gold(*wanted: tuple[str, dict[str, Any]]) -> list[GoldCall]:
    return [GoldCall(tool_id=f"s/{name}", arguments=arguments) for name, arguments in wanted]


def test_several_calls_match_in_any_order() -> None:
    wanted = gold(("a", {"x": 1}), ("b", {"x": 2}), ("a", {"x": 3}))
    assert match_calls(calls(("a", {"x": 3}), ("a", {"x": 1}), ("b", {"x": 2})), wanted, {}) == RIGHT
    assert match_calls(calls(("a", {"x": 1}), ("a", {"x": 1}), ("b", {"x": 2})), wanted, {}) == NAMES
    assert match_calls(calls(("a", {"x": 1}), ("b", {"x": 2}), ("b", {"x": 2})), wanted, {}) == WRONG
    assert match_calls(calls(("a", {"x": 1}), ("b", {"x": 2})), wanted, {}) == WRONG
    assert (
        match_calls([*calls(("a", {"x": 1}), ("b", {"x": 2}), ("a", {"x": 3})), MadeCall("s/a", {})], wanted, {})
        == WRONG
    )


def test_matching_does_not_depend_on_which_gold_call_is_tried_first() -> None:
    wanted = [
        GoldCall(tool_id="s/a", arguments={"x": 1}, accept={"x": [2]}),
        GoldCall(tool_id="s/a", arguments={"x": 1}),
    ]
    assert match_calls(calls(("a", {"x": 1}), ("a", {"x": 2})), wanted, {}) == RIGHT


def test_no_call_at_all() -> None:
    assert match_calls([], gold(("a", {})), {}) == WRONG


def test_a_tool_without_arguments() -> None:
    assert match_calls(calls(("a", {})), gold(("a", {})), {"s/a": {}}) == RIGHT


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": None, "required": None},
        {"properties": {"x": True}, "required": "x"},
        {"$ref": "#"},
        {"properties": {"x": {"$ref": "#/properties/x"}}},
        {"properties": {"x": {"$ref": "#/no/where"}}},
        {"anyOf": [{"properties": {"x": {"type": ["integer", "null"]}}}, 3]},
    ],
)
def test_odd_schemas_are_survived(schema: dict[str, Any]) -> None:
    assert match_calls(calls(("a", {"x": 1})), gold(("a", {"x": 1})), {"s/a": schema}) == RIGHT


def test_standard_form_of_strings() -> None:
    assert standardise("April 1, 2024") == standardise("april 1,2024") == "april12024"
    assert standardise("a.b/c-d_e*f^g") == "abcdefg"


def test_without_a_schema_equal_numbers_are_equal() -> None:
    assert values_match(2.0, 2)
    assert not values_match(2.5, 2)
