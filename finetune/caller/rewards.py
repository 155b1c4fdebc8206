"""What an answer of the call generator is worth: verifiable rewards only, each between 0 and 1.

No judge and no model: the answer's form (``prompt.answer``), the tool's schema (``validation``), and the gold call
under the rules that the calls are measured with (``ast_match``). A right answer to a row of any kind earns every
reward in full, so that rows that want a call and rows that want an abstention weigh the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from toolscout.ast_match import argument_matches, names_match
from toolscout.errors import BadInput
from toolscout.prompt import NONE, labels
from toolscout.records import GoldCall, JsonObject, Tool
from toolscout.synth.call_rows import CallRow
from toolscout.validation import validate


@dataclass(frozen=True)
class Answer:
    """An answer of the right form: a candidate's name (or ``none``), its arguments, required values not stated."""

    name: str
    arguments: JsonObject = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    @property
    def abstains(self) -> bool:
        """Whether it says that no candidate serves."""
        return self.name == NONE


@dataclass(frozen=True)
class Target:
    """What is right for one row: the gold answer, and the candidates by the names they go by in the prompt."""

    right: Answer
    tools: Mapping[str, Tool]

    @property
    def gold(self) -> GoldCall:
        """The gold call as the AST rules take it, under its label."""
        return GoldCall(tool_id=self.right.name, arguments=self.right.arguments)


Reward = Callable[[Answer | None, Target], float]


def target_of(row: CallRow, tools: Mapping[str, Tool]) -> Target:
    """A row's target. Raises BadInput when ``tools`` lacks a candidate or the row's answer is none of this form."""
    absent = [tool_id for tool_id in row.tools if tool_id not in tools]
    if absent:
        raise BadInput(
            f"Row {row.id}: the tools files lack {absent[0]!r}.", "Give --tools the files that made the rows."
        )
    chosen = [tools[tool_id] for tool_id in row.tools]
    right = read_answer(row.answer)
    if right is None:
        raise BadInput(f"Row {row.id} has an answer of another form.", "Make the rows again with train caller-rows.")
    return Target(right, dict(zip(labels(chosen), chosen, strict=True)))


def read_answer(text: str) -> Answer | None:
    """One JSON object in the form of ``prompt.answer`` and nothing else; None for anything besides."""
    try:
        value = json.loads(text, object_pairs_hook=_no_repeats, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    if value["name"] == NONE:
        return Answer(NONE) if set(value) == {"name"} else None
    missing = value.get("missing", [])
    good = (
        {"name", "arguments"} <= set(value) <= {"name", "arguments", "missing"}
        and isinstance(value["arguments"], dict)
        and isinstance(missing, list)
        and all(isinstance(name, str) for name in missing)
        and ("missing" not in value or missing)
    )
    return Answer(value["name"], value["arguments"], tuple(missing)) if good else None


def valid_json(answer: Answer | None, target: Target) -> float:
    """1 for one JSON object of the answer's form, with nothing before or behind it."""
    return float(answer is not None)


def schema_valid(answer: Answer | None, target: Target) -> float:
    """1 for arguments that the named candidate's schema takes, but for those named as missing.

    An abstention has no arguments to check: 1 where it is right, else 0, or abstaining would be the cheap way out.
    """
    if answer is None:
        return 0.0
    if answer.abstains:
        return float(target.right.abstains)
    tool = target.tools.get(answer.name)
    return float(tool is not None and not validate(answer.arguments, _excused(tool.input_schema, answer.missing)))


def right_tool(answer: Answer | None, target: Target) -> float:
    """1 for the gold tool, or for ``none`` where no candidate serves."""
    return float(answer is not None and answer.name == target.right.name)


def right_names(answer: Answer | None, target: Target) -> float:
    """1 for the right set of parameter names, by the rule of the metric Param."""
    if answer is None or answer.name != target.right.name:
        return 0.0
    return float(answer.abstains or names_match(answer.arguments, target.gold, _schema(target)))


def right_values(answer: Answer | None, target: Target) -> float:
    """The share of right values among the parameters given or expected, each by the rule of the metric AST.

    A share and no verdict: nearly right answers of a group then differ from quite wrong ones.
    """
    if answer is None or answer.name != target.right.name:
        return 0.0
    names = set(answer.arguments) | set(target.right.arguments)
    if not names:
        return 1.0
    schema = _schema(target)
    right = [n for n, v in answer.arguments.items() if argument_matches(n, v, target.gold, schema)]
    return len(right) / len(names)


def right_abstention(answer: Answer | None, target: Target) -> float:
    """1 for saying ``none`` exactly where no candidate serves, and ``missing`` exactly what the request leaves out."""
    if answer is None or answer.abstains != target.right.abstains:
        return 0.0
    return float(sorted(answer.missing) == sorted(target.right.missing))


REWARDS: dict[str, Reward] = {
    "valid_json": valid_json,
    "schema_valid": schema_valid,
    "right_tool": right_tool,
    "right_names": right_names,
    "right_values": right_values,
    "right_abstention": right_abstention,
}


def score(text: str, target: Target) -> dict[str, float]:
    """Every reward of one answer, by name."""
    answer = read_answer(text)
    return {name: reward(answer, target) for name, reward in REWARDS.items()}


def weighted(rewards: Mapping[str, float], weights: Mapping[str, float]) -> float:
    """The sum that training maximises: 1 for a right answer when the weights sum to 1."""
    return sum(weights.get(name, 0.0) * value for name, value in rewards.items())


def all_right(rewards: Mapping[str, float]) -> bool:
    """Whether the answer is right in full: for a row with a call, the metric AST."""
    return all(value == 1.0 for name, value in rewards.items() if name != "schema_valid")


def _schema(target: Target) -> JsonObject:
    return _excused(target.tools[target.right.name].input_schema, target.right.missing)


def _excused(schema: JsonObject, missing: Sequence[str]) -> JsonObject:
    """The schema without asking for the parameters that are named as missing."""
    required = schema.get("required")
    if not missing or not isinstance(required, list):
        return schema
    return {**schema, "required": [name for name in required if name not in missing]}


def _no_repeats(pairs: Sequence[tuple[str, Any]]) -> JsonObject:
    out = dict(pairs)
    if len(out) < len(pairs):
        raise ValueError("a member twice")
    return out


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
