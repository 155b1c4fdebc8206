"""Plans for models that do not plan: the request's parts, and the tool of each."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from toolscout.records import Tool
from toolscout.server.calling.steps import parts, steps_of


@pytest.mark.parametrize(
    ("task", "found"),
    [
        ("show the status", ["show the status"]),
        ("Show the status, then the log.", ["Show the status", "the log."]),
        ("read the file and send it to Ann", ["read the file", "send it to Ann"]),
        ('Send "red, green and blue" to Ann; wait 5 s', ['Send "red, green and blue" to Ann', "wait 5 s"]),
        ("Compute median([412, 388, 530]) and post it", ["Compute median([412, 388, 530])", "post it"]),
        ("Take the train at 5:30, then tell me v1.2.3", ["Take the train at 5:30", "tell me v1.2.3"]),
        ("查一下天气，然后发邮件给小李。", ["查一下天气", "然后发邮件给小李"]),
        ("Such das Paket und dann starte es.", ["Such das Paket", "starte es."]),
        ('an open "quote and something more', ['an open "quote', "something more"]),
        ("a, b", ["a, b"]),
        ("", [""]),
    ],
)
def test_parts(task: str, found: list[str]) -> None:
    assert parts(task) == found


def tools(*names: str) -> list[Tool]:
    return [Tool(tool_id=f"s/{name}", server_id="s", name=name, description=name, input_schema={}) for name in names]


def shared_words(text: str, offered: Sequence[Tool]) -> tuple[list[float], float]:
    """Stands in for the encoder: the share of the text's words that are the tool's name."""
    words = text.lower().replace(".", "").replace(",", "").split()
    return [words.count(tool.name) / max(1, len(words)) * 2 for tool in offered], 0.0


def test_each_tool_is_a_step_in_the_requests_order() -> None:
    steps = steps_of(
        "weather please, then mail it. And mail again to Bob", tools("mail", "weather", "map"), shared_words, 9
    )
    assert [(step.tool, step.text) for step in steps] == [(1, "weather please"), (0, "mail it. And mail again to Bob")]


def test_parts_that_no_tool_fits_are_no_steps_and_steps_are_bounded() -> None:
    offered = tools("mail", "weather", "map")
    assert steps_of("nothing of this kind at all, whatever it takes", offered, shared_words, 9) == []
    assert len(steps_of("weather please, then mail it. Show the map", offered, shared_words, 2)) == 2


def test_what_follows_a_step_and_is_for_no_tool_belongs_to_it() -> None:
    request = "weather in Oslo, Rome and Madrid. Then mail it, weather again"
    first, second = steps_of(request, tools("mail", "weather"), shared_words, 9)
    assert (first.tool, first.text) == (1, "weather in Oslo Madrid. weather again")
    assert first.clauses == ("weather in Oslo", "Madrid.", "weather again")
    assert first.said == "weather in Oslo, Rome and Madrid. weather again"
    assert (second.text, second.said) == ("Then mail it", "Then mail it, ")
