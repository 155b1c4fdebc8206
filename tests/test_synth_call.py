"""What the call step takes out of a model's arguments."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from toolscout.commands.synth_bench import ungrounded
from toolscout.records import JsonObject, Tool
from toolscout.synth.making.call import MakeCall

CITY: JsonObject = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "account_id": {"type": "string"},
        "days": {"type": "integer"},
    },
    "required": ["city"],
}


@pytest.mark.parametrize(
    ("schema", "given", "kept"),
    [
        (CITY, {"city": "Oslo", "type": "object", "required": ["city"]}, {"city": "Oslo"}),
        (CITY, {"city": "Oslo", "account_id": "acc_99182"}, {"city": "Oslo"}),
        (CITY, {"city": "Oslo", "days": 3}, {"city": "Oslo", "days": 3}),
        ({"type": "object", "properties": {}}, {"type": "object", "properties": {}}, {}),
        ({"type": "object", "properties": {}, "additionalProperties": {}}, {"any": 3}, {"any": 3}),
        ({"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}}, {"id": "acc_99182"}, None),
    ],
)
def test_names_the_schema_lacks_and_made_up_optional_values_are_taken_out(
    schema: JsonObject, given: JsonObject, kept: JsonObject | None
) -> None:
    tool = Tool(tool_id="s/weather", server_id="s", name="weather", description="Weather.", input_schema=schema)
    step = MakeCall(cast(Any, SimpleNamespace(ungrounded=ungrounded)))
    assert step.without_made_up(tool, "the weather in Oslo for 3 days", given) == (given if kept is None else kept)
