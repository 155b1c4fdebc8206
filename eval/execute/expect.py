"""What a request's outcome must be, as data: checks over what the tools answered, tried without a model."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import ConfigDict, Field, field_validator, model_validator

from toolscout.causes import Cause
from toolscout.eval.plans.answers import AnswerCall
from toolscout.records import Call, Record
from toolscout.responses import Response
from toolscout.synth.trajectories.references import EXACT, look_up
from toolscout.synth.trajectories.run import StepRun

_KINDS = ("contains", "number", "path", "no_error")
_PATH = re.compile(r"\$((?:\.[^.\[\]\s]+|\[\d+\]|\['[^']*'\])*)")
_PART = re.compile(r"\.([^.\[\]\s]+)|\[(\d+)\]|\['([^']*)'\]")
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w)")


class Check(Record):
    """One thing that must hold; exactly one of ``contains``, ``number``, ``path`` and ``no_error`` is given.

    ``contains``: a text, or several that must all be there; case and spacing say nothing. ``number``: a number that is
    at most ``within`` away. ``path``: a JSON path (``$.items[0].name``) whose value ``equals`` what is given, or,
    without ``equals``, is there and not null. ``no_error``: no call ended in an error; an empty result is none.
    ``of``: whether the results of the last calls count (those that no other call needs) or of any.
    """

    model_config = ConfigDict(extra="forbid")

    contains: str | list[str] | None = None
    number: float | None = None
    within: float = Field(default=0.0, ge=0)
    path: str | None = None
    equals: Any = None
    no_error: Literal[True] | None = None
    of: Literal["last", "any"] = "last"

    @field_validator("path")
    @classmethod
    def _is_path(cls, value: str | None) -> str | None:
        if value is not None and _PATH.fullmatch(value) is None:
            raise ValueError("a path looks like $.items[0].name")
        return value

    @model_validator(mode="after")
    def _is_one(self) -> Check:
        given = [name for name in _KINDS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a check is exactly one of {', '.join(_KINDS)}")
        if "equals" in self.model_fields_set and self.path is None:
            raise ValueError("equals needs a path")
        if "within" in self.model_fields_set and self.number is None:
            raise ValueError("within needs a number")
        return self

    def holds(self, steps: Sequence[StepRun]) -> bool:
        """Whether it holds for calls as they went."""
        if self.no_error:
            return bool(steps) and not any(erred(step) or step.skipped for step in steps)
        responses = [s.response for s in self._looked_at(steps) if s.response is not None]
        if self.contains is not None:
            wanted = [self.contains] if isinstance(self.contains, str) else self.contains
            said = _folded("\n".join(map(_said, responses)))
            return all(_folded(text) in said for text in wanted)
        if self.number is not None:
            wanted_number = self.number
            return any(_near(n, wanted_number, self.within) for r in responses for n in _numbers(r))
        return any(self._at_path(response) for response in responses)

    def __str__(self) -> str:
        return json.dumps(self.model_dump(exclude_unset=True), ensure_ascii=False)

    def _looked_at(self, steps: Sequence[StepRun]) -> list[StepRun]:
        if self.of == "any":
            return list(steps)
        needed = {earlier for step in steps for earlier in step.depends_on}
        return [step for step in steps if step.id not in needed]

    def _at_path(self, response: Response) -> bool:
        assert self.path is not None
        way = tuple(name or quoted or int(index) for name, index, quoted in _PART.findall(self.path))
        found = list(_values(response, way))
        if "equals" not in self.model_fields_set:
            return bool(found)
        return any(same(value, self.equals) for value in found)


class ExecuteRow(Call):
    """A request of the data contract that may say what its outcome must be: one check, or several that all hold."""

    expect: list[Check] = Field(default_factory=list)

    @field_validator("expect", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: object) -> object:
        return [value] if isinstance(value, dict) else value

    def own_calls(self) -> list[AnswerCall]:
        """The gold calls, to be made; those without stated arguments have none."""
        return [AnswerCall.model_validate(gold.model_dump(exclude={"accept"}, exclude_none=True)) for gold in self.gold]


def erred(step: StepRun) -> bool:
    """Whether a call ended in an error. An empty result is for the row's checks, or the judge, to judge."""
    return bool(step.cause) and step.cause != Cause.EMPTY


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values: 1 is 1.0, but not true; floats may differ in their last digits."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, int | float) and isinstance(other, int | float):
        return _near(float(one), float(other), 0.0)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    return type(one) is type(other) and one == other


def _near(one: float, other: float, within: float) -> bool:
    return math.isclose(one, other, rel_tol=1e-9, abs_tol=within * (1 + 1e-9))


def _values(response: Response, way: tuple[str | int, ...]) -> Iterator[Any]:
    if not way:
        yield from (v for v in (response.structured, _parsed(response.text), response.text) if v is not None)
        return
    for path in (way, ("result", *way)):  # FastMCP servers wrap what is no object
        found = look_up(response, path)
        if found is not None and found[1] == EXACT:
            yield found[0]


def _numbers(response: Response) -> Iterator[float]:
    for match in _NUMBER.finditer(_said(response)):
        yield float(match.group().replace(",", ""))


def _said(response: Response) -> str:
    """The text, and the structured content where the text does not give it."""
    if response.structured is None or _parsed(response.text) is not None:
        return response.text
    return f"{response.text}\n{json.dumps(response.structured, ensure_ascii=False)}"


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
