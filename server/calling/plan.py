"""The calls of a plan that was made of a request's parts, for models that write calls and do not plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from toolscout.records import Tool
from toolscout.schema import simplify_arguments
from toolscout.server.calling.repeats import asked_again, spread
from toolscout.server.calling.steps import Step
from toolscout.server.calling.suggestion import SuggestedCall, Suggestion
from toolscout.server.calling.writing import Choice, Writing


async def follow(run: Writing, steps: Sequence[Step], most: int) -> Suggestion:
    """The calls of a plan that was made: each as if it alone were asked for, by a model tuned on such requests.

    What the request does not state a step has from the one before, if there is one.
    """
    tools = run.tools
    calls: list[SuggestedCall] = []
    reason = None
    for step in steps:
        tool = tools[step.tool]
        run.tools = [tool]
        found, problem = await _of_one(run, tool, step, most - len(calls))
        reason = problem or reason
        for call in found:
            calls.append(_from_before(replace(call, id=str(len(calls) + 1)), calls))
    if not calls and reason is None:
        reason = "None of the candidate tools does what is asked."
    return run.suggestion(calls, [tool.tool_id for tool in tools], reason)


async def _of_one(run: Writing, tool: Tool, step: Step, most: int) -> tuple[list[SuggestedCall], str | None]:
    """The calls of one tool: mostly one, several where the request asks for the same with other values."""
    node = simplify_arguments(tool.input_schema)
    calls: list[SuggestedCall] = []
    reason, part, at = None, step.text, 0
    while len(calls) < most:
        run.part = part
        call, problem = await run.fill(tool, Choice(tool, 0.5, False, []), str(len(calls) + 1))
        if call is None:
            reason = problem
            break
        if calls:
            call = _like_first(run, call, calls[0], tool)
            if call is None or any(call.arguments == c.arguments for c in calls):
                break
        values = spread(call.arguments, node, step.said) if call.ready else [call.arguments]
        several = [v for v in values if not run.problems(v, tool.input_schema, [])]
        calls += [replace(call, arguments=v) for v in several or [call.arguments]]
        following = asked_again([c.arguments for c in calls], step.clauses, at + 1)
        if following is None:
            break
        at, part = following, " ".join(step.clauses[following:])
    return calls[:most], reason


def _like_first(run: Writing, call: SuggestedCall, first: SuggestedCall, tool: Tool) -> SuggestedCall | None:
    """A further call of one tool: what its clause leaves out is as in the first. None if something still lacks."""
    arguments = {**{n: first.arguments[n] for n in call.missing if n in first.arguments}, **call.arguments}
    missing = [name for name in call.missing if name not in arguments]
    if missing or run.problems(arguments, tool.input_schema, []):
        return None
    return replace(call, arguments=arguments, missing=[], ready=True, skeleton=None)


def _from_before(call: SuggestedCall, calls: Sequence[SuggestedCall]) -> SuggestedCall:
    """The call with a reference to the call before for each value that it lacks. The reference's path is the
    parameter's name, a guess, as few tools declare what they return: so the call is not ready."""
    if not call.missing or not calls:
        return call
    before = calls[-1].id
    brought = {name: f"${before}.{name}" for name in call.missing}
    return replace(call, arguments={**call.arguments, **brought}, missing=[], depends_on=[before], skeleton=None)
