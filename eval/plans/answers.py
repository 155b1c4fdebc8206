"""Plans that were made elsewhere: one JSON object a row, ``{id, calls: [{id, tool_id, arguments, depends_on}]}``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, field_validator

from toolscout.errors import BadInput
from toolscout.jsonl import read_records
from toolscout.records import GoldCall, JsonObject, Record


class AnswerCall(GoldCall):
    """A call as somebody made it. Ids may be numbers; without one, calls are counted from 1."""

    arguments: JsonObject = Field(default_factory=dict)

    @field_validator("id", mode="before")
    @classmethod
    def _id_is_text(cls, value: Any) -> Any:
        return _text(value)

    @field_validator("depends_on", mode="before")
    @classmethod
    def _ids_are_texts(cls, value: Any) -> Any:
        return [_text(v) for v in value] if isinstance(value, list) else value


class Reply(Record):
    """The plan for one row; no calls where none was made."""

    id: str
    calls: list[AnswerCall]


def read_answers(path: Path) -> dict[str, list[GoldCall]]:
    """Calls by row id.

    Raises BadInput for a line that is no answer, naming it, for an id that occurs twice, and for an empty file.
    """
    found: dict[str, list[GoldCall]] = {}
    for answer in read_records(path, Reply):
        if answer.id in found:
            raise BadInput(f"{path} answers the row {answer.id!r} twice.", "Leave one line for each row.")
        found[answer.id] = list(answer.calls)
    if not found:
        raise BadInput(f"{path} holds no answers.", "Each line is {id, calls: [{id, tool_id, arguments, depends_on}]}.")
    return found


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value
