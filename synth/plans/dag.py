"""Gold as a graph of calls: references to earlier results, order, and everything that can be wrong with its shape."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from toolscout.records import JsonObject, Record, Tool
from toolscout.schema import simplify_arguments
from toolscout.validation import asking_less, validate

LEAST, MOST = 2, 10
"""Calls of a plan."""

REFERENCE = re.compile(r"\$([1-9]\d?)\.([A-Za-z_][A-Za-z0-9_.\[\]-]{0,79})")
"""``$1.path``, in the form that serving's grammar can write."""
_BARE = re.compile(r"\$([1-9]\d?)(?:\[.*)?")
_INSIDE = re.compile(r"\$[1-9]\d?\.[A-Za-z_]")


class PlanStep(Record):
    """One call. ``depends_on`` has the ids of the calls that come before it."""

    id: str
    tool_id: str
    arguments: JsonObject = Field(default_factory=dict)
    depends_on: list[str] = Field(default_factory=list)


@dataclass(frozen=True)
class Flaw:
    """``reason`` is what reports count; ``detail`` says which."""

    reason: str
    detail: str = ""

    def line(self) -> str:
        """As one line for the model that made it."""
        return f"{self.reason}: {self.detail}" if self.detail else self.reason


def texts(value: Any, path: str = "$") -> Iterator[tuple[str, str]]:
    """(JSON path, text) of every string in a value, members' names left out."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from texts(inner, f"{path}.{name}")
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from texts(inner, f"{path}[{at}]")


def changed(value: Any, change: Any) -> Any:
    """The value with ``change(text)`` in place of every string."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {name: changed(inner, change) for name, inner in value.items()}
    return [changed(inner, change) for inner in value] if isinstance(value, list) else value


def references(arguments: JsonObject) -> dict[str, tuple[str, str]]:
    """JSON path -> (step's id, path in its result) of every reference."""
    found = ((path, REFERENCE.fullmatch(text)) for path, text in texts(arguments))
    return {path: (match[1], match[2]) for path, match in found if match}


def before(step: PlanStep) -> list[str]:
    """Ids of the steps that a step needs, by its references and by what it states."""
    return list(dict.fromkeys([*(i for i, _ in references(step.arguments).values()), *step.depends_on]))


def depths(steps: Sequence[PlanStep]) -> dict[str, int]:
    """Step's id -> length of the longest chain that ends there, from 1 on; steps on a cycle, and after one, are absent.

    References to no step count for nothing.
    """
    known = {step.id for step in steps}
    found: dict[str, int] = {}
    for _ in steps:
        for step in steps:
            needed = [i for i in before(step) if i in known]
            if step.id not in found and all(i in found for i in needed):
                found[step.id] = 1 + max((found[i] for i in needed), default=0)
    return found


def in_order(steps: Sequence[PlanStep]) -> list[PlanStep]:
    """The steps so that each stands after those it needs, numbered from 1 on, references and ``depends_on`` alike.

    The steps have no `flaws`.
    """
    left, order = list(steps), list[PlanStep]()
    while left:
        done = {step.id for step in order}
        order.append(next(step for step in left if set(before(step)) <= done))
        left.remove(order[-1])
    number = {step.id: str(at) for at, step in enumerate(order, 1)}

    def renamed(text: str) -> str:
        match = REFERENCE.fullmatch(text)
        return f"${number[match[1]]}.{match[2]}" if match else text

    return [
        PlanStep(
            id=number[step.id],
            tool_id=step.tool_id,
            arguments=changed(step.arguments, renamed),
            depends_on=sorted((number[i] for i in before(step)), key=int),
        )
        for step in order
    ]


def with_paths(steps: Sequence[PlanStep], tools: Mapping[str, Tool]) -> list[PlanStep]:
    """The steps with a path for each reference to a whole result (``$1``), where there is no choice: the only member
    that the tool declares, or ``result`` where it declares nothing and is the guess that every path would be."""
    called = {step.id: step.tool_id for step in steps}

    def pathed(text: str) -> str:
        match = _BARE.fullmatch(text)
        if not match or "[" in text or (tool := tools.get(called.get(match[1], ""))) is None:
            return text
        declared = list((tool.output_schema or {}).get("properties") or {"result": {}})
        return f"{text}.{declared[0]}" if len(declared) == 1 and REFERENCE.fullmatch(f"{text}.{declared[0]}") else text

    return [step.model_copy(update={"arguments": changed(step.arguments, pathed)}) for step in steps]


def flaws(steps: Sequence[PlanStep], tools: Mapping[str, Tool]) -> list[Flaw]:
    """What is wrong with the shape, whatever the values. ``tools``: those that a step may call."""
    found: list[Flaw] = []
    if len(steps) < LEAST:
        found.append(Flaw("too few calls", f"{len(steps)}"))
    if len(steps) > MOST:
        found.append(Flaw("too many calls", f"{len(steps)}"))
    by_id: dict[str, PlanStep] = {}
    for step in steps:
        if step.id in by_id:
            found.append(Flaw("two steps of one id", step.id))
        by_id[step.id] = step
        if step.tool_id not in tools:
            found.append(Flaw("no such tool", step.tool_id))
    for step in steps:
        for path, text in texts(step.arguments):
            if REFERENCE.fullmatch(text):
                continue
            if _BARE.fullmatch(text):
                found.append(Flaw("reference without a path", f"step {step.id}, {path}: {text}"))
            elif _INSIDE.search(text):
                found.append(Flaw("reference inside a text", f"step {step.id}, {path}"))
        for needed in before(step):
            if needed not in by_id:
                found.append(Flaw("reference to no step", f"step {step.id} needs {needed}"))
        for other, way in references(step.arguments).values():
            if other in by_id and (said := _no_result(by_id[other], way, tools)):
                found.append(Flaw("reference to no result", f"step {step.id}: {said}"))
    if looped := [step.id for step in steps if step.id not in depths(steps)]:
        found.append(Flaw("cycle", f"steps {', '.join(looped)} wait for each other"))
    return found


def _no_result(step: PlanStep, way: str, tools: Mapping[str, Tool]) -> str:
    """What a reference asks that the tool declares not to give; empty where it gives it, or declares nothing."""
    tool = tools.get(step.tool_id)
    schema = tool.output_schema if tool else None
    if not schema or not isinstance(schema.get("properties"), dict) or schema.get("additionalProperties"):
        return ""
    first = re.split(r"[.\[]", way)[0]
    declared = list(schema["properties"])
    return "" if first in declared else f"{step.tool_id} gives {', '.join(declared)}, not {first}"


def misfits(step: PlanStep, tool: Tool) -> list[str]:
    """What the tool's schema says against a step's arguments. What references will hold is not known: they are set
    aside. Names that the schema does not have are wrong even where it says nothing of further ones."""
    referring = references(step.arguments)
    whole = {name for name in step.arguments if f"$.{name}" in referring}
    schema, key = asking_less(tool.input_schema, whole), (not whole and tool.fingerprint) or None
    plain = {name: value for name, value in step.arguments.items() if name not in whole}
    found = [p.line() for p in validate(plain, schema, key=key) if p.path not in referring]
    properties = simplify_arguments(tool.input_schema)["properties"]
    if properties and not tool.input_schema.get("additionalProperties"):
        found += [f"$.{name}: there is no such argument." for name in step.arguments if name not in properties]
    return list(dict.fromkeys(found))
