"""The rules for descriptions, requests of tools and marks, each by itself."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from toolscout.eval import language
from toolscout.eval.setup.confusion import Outcome, Pair, copy_kind, groups
from toolscout.eval.setup.requests import Request, first_sentence, own_requests
from toolscout.eval.setup.rules import LONGEST, RULES, examine
from toolscout.eval.setup.verdict import Parts, letter
from toolscout.index.catalogue import CallLog
from toolscout.records import Tool


def tool(name: str, description: str = "", properties: Any = None, required: Any = None, server: str = "s") -> Tool:
    schema: dict[str, Any] = {"type": "object", "properties": properties or {}}
    if required is not None:
        schema["required"] = required
    return Tool(tool_id=f"{server}/{name}", server_id=server, name=name, description=description, input_schema=schema)


def rules(*tools: Tool) -> list[tuple[str, str]]:
    return [(f.tool_id.rsplit("/", 1)[-1], f.rule) for f in examine(tools)]


GOOD = "Convert an amount of money from one currency to another at today's rate."


@pytest.mark.parametrize(
    ("name", "description", "expected"),
    [
        ("convert", GOOD, []),
        ("convert", "", ["no_description"]),
        ("convert", " -- \n", ["no_description"]),
        ("get_user", "Gets the user.", ["repeats_name"]),
        ("getUserInfo", "Get user info tool", ["repeats_name"]),
        ("query", "Runs SQL", ["short_description"]),
        ("weather", "查询城市天气预报", []),
        ("convert", GOOD + " More." * LONGEST, ["long_description"]),
    ],
)
def test_descriptions(name: str, description: str, expected: list[str]) -> None:
    assert [rule for _, rule in rules(tool(name, description))] == expected


STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("properties", "required", "text", "expected"),
    [
        ({"a": STRING}, ["a"], "", ["parameter_undescribed"]),
        ({"a": STRING}, ["a"], "\n\nArgs:\n    a: the amount", []),
        ({"a": STRING}, ["a"], " Needs `a`.", []),
        ({"a": {"description": "x"}}, ["a"], "", ["parameter_untyped"]),
        ({"a": {"description": "x", "enum": ["b"]}}, ["a"], "", []),
        ({"a": STRING | {"description": "The amount (required)"}}, None, "", ["required_missing"]),
        ({"a": STRING | {"description": "The amount (required)"}}, ["a"], "", []),
        ({"a": STRING | {"description": "Required unless b is given"}}, None, "", []),
        ({"a": STRING | {"description": "Not required"}}, None, "", []),
        ({"a": STRING | {"description": "Whether the field is required"}}, None, "", []),
        ({"a": STRING | {"description": "Required.", "default": "x"}}, None, "", []),
        ({"a": STRING}, None, "\nArgs:\n  a (str, required): the amount", ["required_missing"]),
        ("nonsense", ["a"], "", ["parameter_undescribed", "parameter_untyped"]),
    ],
)
def test_parameters(properties: Any, required: Any, text: str, expected: list[str]) -> None:
    assert [rule for _, rule in rules(tool("convert", GOOD + text, properties, required))] == expected


def test_the_share_of_bare_parameters_counts() -> None:
    half = examine([tool("convert", GOOD, {"a": STRING, "b": STRING | {"description": "unit"}}, [])])
    assert [(f.share, f.cost, f.detail) for f in half] == [
        (0.5, 0.5 * RULES["parameter_undescribed"].cost, "1 of 2: a")
    ]


def test_another_language_than_the_rest() -> None:
    rest = [tool(f"convert_{i}", GOOD) for i in range(4)]
    assert rules(*rest, tool("weather", "查询城市天气预报信息")) == [("weather", "other_language")]
    assert rules(*rest) == []
    german = [
        tool("a", "Rechnet einen Betrag von einer Währung in eine andere um und nennt den heutigen Kurs dazu."),
        tool("b", "Sucht alle offenen Rechnungen eines Kunden und zeigt sie nach dem Datum sortiert an."),
    ]
    assert [found for found in rules(*rest, *german) if found[1] == "other_language"] == [
        ("a", "other_language"),
        ("b", "other_language"),
    ]


def test_terse_english_is_not_foreign_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    language._rank.cache_clear()
    monkeypatch.setitem(sys.modules, "py3langid", None)
    rest = [tool(f"convert_{i}", GOOD) for i in range(4)]
    terse = [
        tool("a", "Create pivot table on worksheet using specified data range, rows, columns, values."),
        tool("b", "Unmerge previously merged cells across worksheet columns, keeping original values intact."),
    ]
    assert rules(*rest, *terse) == []


def test_no_language_is_foreign_where_none_is_common() -> None:
    assert (
        rules(tool("a", GOOD), tool("b", GOOD), tool("c", "查询城市天气预报信息"), tool("d", "查询城市天气预报信息"))
        == []
    )


# --- copies, requests, marks -----------------------------------------------------------------------------------------


def test_kinds_of_copies() -> None:
    one = tool("get_rate", GOOD, {"a": STRING})
    assert copy_kind(one, tool("get_rate", GOOD, {"a": STRING}, server="t"), 0.99) == "identical"
    assert copy_kind(one, tool("money_get_rate", GOOD, {"a": {"type": "number"}}), 0.99) == "copy"
    reworded = tool("getRate", GOOD.replace("today's", "the latest"), {"a": STRING})
    assert copy_kind(one, reworded, 0.95) == "near copy"
    assert copy_kind(one, reworded, 0.5) is None
    assert copy_kind(one, tool("set_rate", GOOD.replace("today's", "the latest"), {"a": STRING}), 0.95) is None
    assert copy_kind(one, tool("getRate", reworded.description, {"x": STRING, "y": STRING}), 0.95) is None
    assert copy_kind(tool("a"), tool("b"), 1.0) is None  # saying nothing is no likeness


def test_groups_are_of_three_and_more_that_hang_together() -> None:
    a, b, c, d, e = (tool(name, GOOD) for name in "abcde")
    pairs = [
        Pair(a, b, 1.0, 1.0, "identical", asked=4, right=4),
        Pair(b, c, 0.5, 0.5, None, asked=4, right=2),
        Pair(c, d, 0.5, 0.5, None, asked=4, right=3),
        Pair(d, e, 0.5, 0.5, None, asked=4, right=0),
    ]
    assert groups(pairs) == [["s/a", "s/b", "s/c"]]


def test_first_sentence_and_own_words() -> None:
    one = tool("get_userInfo", "Reads a user's profile. Then more.\n\nArgs:\n    id: which")
    assert first_sentence(one) == "Reads a user's profile."
    assert [(r.kind, r.text) for r in own_requests([one, tool("zap")])] == [
        ("words", "get user Info. Reads a user's profile"),
        ("sentence", "Reads a user's profile."),
        ("words", "zap"),
    ]


def test_a_logged_request_belongs_to_the_next_call_alone() -> None:
    def entry(kind: str, query: str, tool_id: str | None, minute: int, outcome: str = "ok") -> CallLog:
        return CallLog(kind, query, tool_id, outcome, 1.0, f"2026-11-01T10:{minute:02}:00.000+00:00")

    log = [
        entry("find", "first need", "s/b", 0),
        entry("invoke", "", "s/a", 1),
        entry("invoke", "", "s/b", 2),  # a second step
        entry("find", "second need", "s/a", 10),
        entry("invoke", "", "s/a", 30),  # too late
        entry("find", "third need", "s/a", 40),
        entry("invoke", "", "s/a", 41, "error"),
    ][::-1]
    logged = [(r.tool_id, r.text) for r in own_requests([tool("a"), tool("b")], (), log) if r.kind == "logged"]
    assert logged == [("s/a", "first need")]


def test_ranks_without_some_tools() -> None:
    outcome = Outcome(Request("s/c", "words", "x"), ["s/a", "s/b", "s/c"])
    assert (outcome.rank(), outcome.rank(frozenset({"s/a"})), outcome.before()) == (3, 2, ["s/a", "s/b"])
    assert Outcome(Request("s/z", "words", "x"), ["s/a"]).rank() is None


def test_formula_and_letters() -> None:
    assert Parts(1, 1, 1).score == pytest.approx(100)
    assert Parts(0.5, 0, 1).score == pytest.approx(50)
    assert [letter(s) for s in (100, 90, 89, 70, 60, 59)] == ["A", "A", "B", "C", "D", "E"]
