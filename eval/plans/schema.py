"""Whether a plan's calls fit their tools' schemas, as far as that can be known before any of them was made."""

from __future__ import annotations

from collections.abc import Mapping

from toolscout.eval.plans.graph import Plan, texts
from toolscout.records import GoldCall, JsonObject, Tool
from toolscout.validation import Problem, asking_less, refuse_document


def misfits(plan: Plan, tools: Mapping[str, Tool]) -> list[str]:
    """A line for each call that does not validate: the JSON Schema's own verdict, nothing added to it.

    What a reference will hold is not known: the argument that it is, or the value within one, is set aside. A schema
    that is itself broken asks nothing.
    """
    found = []
    for at, call in enumerate(plan.calls):
        tool = tools.get(call.tool_id)
        said = "no such tool" if tool is None else _misfit(plan, call, tool.input_schema)
        if said:
            found.append(f"{plan.ids[at]}. {call.tool_id}: {said}")
    return found


def _misfit(plan: Plan, call: GoldCall, schema: JsonObject) -> str:
    import jsonschema_rs

    arguments = call.arguments or {}
    whole = {name for name, value in arguments.items() if isinstance(value, str) and plan.refers(value)}
    if whole:
        arguments = {name: value for name, value in arguments.items() if name not in whole}
        schema = asking_less(schema, whole)
    try:
        validator = jsonschema_rs.validator_for(schema, retriever=refuse_document)
    except (jsonschema_rs.ValidationError, ValueError):
        return ""
    if validator.is_valid(arguments):
        return ""
    inside = [steps for steps, text in texts(arguments) if plan.refers(text)]
    for error in validator.iter_errors(arguments):
        way = tuple(error.instance_path)
        if not any(steps[: len(way)] == way for steps in inside if way):
            return Problem("$" + "".join(f"[{s!r}]" for s in way), error.message).line()
    return ""
