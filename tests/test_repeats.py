"""One tool, several calls: lists in a request are spread, clauses that ask again are found."""

from __future__ import annotations

from typing import Any

import pytest

from toolscout.server.calling.repeats import MOST, asked_again, spread

CITY = {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["metric", "us"]}}}


@pytest.mark.parametrize(
    ("arguments", "task", "found"),
    [
        ({"city": "Oslo"}, "the weather in Oslo and Bergen", [{"city": "Oslo"}, {"city": "Bergen"}]),
        ({"city": "Bergen"}, "the weather in Oslo, Bergen, and New York City", ["Bergen", "Oslo", "New York City"]),
        ({"city": "Oslo,Bergen"}, "the weather in Oslo and Bergen", ["Oslo", "Bergen"]),
        ({"city": "Oslo Bergen"}, "the weather in Oslo and Bergen", ["Oslo", "Bergen"]),
        ({"city": "Wien"}, "Wetter in Wien und Graz bitte", ["Wien", "Graz"]),
        ({"city": "北京"}, "北京的天气", ["北京"]),
        ({"days": 5}, "the factorials of 5, 7 and 9", [{"days": 5}, {"days": 7}, {"days": 9}]),
        ({"days": 5.0}, "the roots of 5 and 2.5", [{"days": 5.0}, {"days": 2.5}]),
        ({"city": "A-17"}, "close A-17 and B-2", ["A-17", "B-2"]),
        ({"city": "red"}, "paint 'red' and 'blue'", ["red", "blue"]),
        ({"unit": "us"}, "in metric and us units", [{"unit": "us"}, {"unit": "metric"}]),
    ],
)
def test_a_listed_value_gives_a_call_for_each(arguments: Any, task: str, found: list[Any]) -> None:
    wanted = [one if isinstance(one, dict) else {"city": one} for one in found]
    assert spread(arguments, CITY, task) == wanted


@pytest.mark.parametrize(
    ("arguments", "task"),
    [
        ({"city": "Oslo", "days": 3}, "the weather in Oslo for 3 days"),
        ({"city": "Oslo", "to": "Bergen"}, "the way between Oslo and Bergen"),
        ({"city": "Oslo", "to": "Bergen"}, "the distance of Oslo and Bergen"),
        ({"city": "Oslo", "more": ["Bergen"]}, "Oslo and Bergen"),
        ({"days": 2018}, "sales between 2018 and 2020"),
        ({"days": 10}, "on March 10, 2022 in Oslo"),
        ({"city": "cats and dogs"}, "find cats and dogs"),
        ({"city": "cats"}, "find cats and feed them"),
        ({"city": "GBP"}, "rates of GBP/USD and GBP/EUR"),
        ({"cities": "Oslo"}, "the weather in Oslo and Bergen"),
        ({"unit": "us"}, "the weather, in us and old units"),
        ({"days": True}, "True and False"),
        ({"city": ""}, ""),
        ({}, "Oslo and Bergen"),
    ],
)
def test_what_is_no_list_of_its_own_stays_one_call(arguments: Any, task: str) -> None:
    assert spread(arguments, CITY, task) == [arguments]


def test_a_parameter_that_may_take_a_list_keeps_it() -> None:
    takes = {"properties": {"city": {"type": "string", "description": "One city, or several, comma-separated."}}}
    assert spread({"city": "Oslo,Bergen"}, takes, "the weather in Oslo and Bergen") == [{"city": "Oslo,Bergen"}]


def test_two_lists_give_every_pair_up_to_the_bound() -> None:
    found = spread({"city": "Lakers", "days": 2018}, CITY, "wins of the Lakers and Bulls in 2018 and 2020")
    assert found == [{"city": city, "days": year} for city in ("Lakers", "Bulls") for year in (2018, 2020)]
    many = ", ".join(str(n) for n in range(40))
    assert len(spread({"days": 0}, CITY, f"square {many} and 41")) == MOST


@pytest.mark.parametrize(
    ("calls", "clauses", "found"),
    [
        ([{"n": 5}], ["the factorial of 5", "the factorial of 7", "the factorial of 9?"], 1),
        ([{"n": 5}, {"n": 7}], ["the factorial of 5", "the factorial of 7", "the factorial of 9?"], 2),
        ([{"f": "x^2", "at": 5}], ["derive x^2 at the value 5", "where it is named 'x'", "y^3 at the value 3"], 2),
        ([{"place": "Oslo", "year": 2019}], ["convicts in Oslo in 2019", "ones in Texas in 2018"], 1),
        ([{"place": "Oslo"}], ["the weather in Oslo", "mail it to Bob"], None),
        ([{"place": "Oslo", "days": 3}], ["the weather in Oslo for 3 days", "as a table of 2 columns"], None),
        ([{"n": 5}], ["the factorial of 5"], None),
        ([{"title": "wholly of the model"}], ["open an issue", "about the login of 5 users"], None),
    ],
)  # fmt: skip
def test_a_clause_that_asks_for_the_same_again(calls: list[Any], clauses: list[str], found: int | None) -> None:
    assert asked_again(calls, clauses, 1 + sum(1 for _ in calls[1:])) == found
