"""A run: a row's calls on their way through the steps, with what came back, and the record that it becomes.

The chain hands drafts on. A draft carries the arguments of one call; here it carries the whole run in their place, as
JSON, so that the steps' files, marks and resuming are the chain's own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from toolscout.prompt import labels
from toolscout.records import Call, JsonObject, Record, Tool, Trajectory, sha256_hex
from toolscout.responses import Response
from toolscout.synth.drafts import PLAIN, Draft, definition_mark
from toolscout.synth.trajectories.references import references

SUCCESS = "success"
SOURCE = "synth"


class StepRun(Record):
    """One call of a row: as it was written, as it was sent, what came back, and why it failed, if it did.

    ``found`` says of each reference how its value was found; ``skipped`` that the call was never made, since one before
    it had failed.
    """

    id: str
    tool_id: str
    arguments: JsonObject = Field(default_factory=dict)
    depends_on: list[str] = Field(default_factory=list)
    level: int = 0
    sent: JsonObject | None = None
    found: dict[str, str] = Field(default_factory=dict)
    response: Response | None = None
    seconds: float = 0.0
    cause: str = ""
    rule: str = ""
    evidence: str = ""
    skipped: bool = False


class Run(Record):
    """The steps of a row, in the order in which they are executed, and the final answer."""

    steps: list[StepRun] = Field(default_factory=list)
    answer: str = ""

    @classmethod
    def of(cls, draft: Draft) -> Run:
        """The run that a draft carries."""
        return cls.model_validate(draft.arguments or {})

    def into(self, draft: Draft, **scores: float) -> Draft:
        """The draft with this run in it."""
        carried: JsonObject = json.loads(self.to_json())
        return draft.model_copy(update={"arguments": carried, "scores": {**draft.scores, **scores}})

    @property
    def failure(self) -> StepRun | None:
        """The call that the run failed at."""
        return next((s for s in self.steps if s.cause), None)

    def tools(self) -> list[str]:
        """The tools called, each once."""
        return list(dict.fromkeys(s.tool_id for s in self.steps))


class SynthTrajectory(Trajectory):
    """A recorded run with the row that it was made from, its language and its scores."""

    call: str = ""
    lang: str = ""
    scores: dict[str, float] = Field(default_factory=dict)


def draft_of_row(call: Call, tools: Mapping[str, Tool]) -> Draft:
    """A row with its gold calls as a draft; steps without ids are numbered from 1."""
    steps = [
        StepRun(id=g.id or str(n), tool_id=g.tool_id, arguments=g.arguments or {}, depends_on=g.depends_on)
        for n, g in enumerate(call.gold, 1)
    ]
    ids = [s.id for s in steps]
    for step in steps:
        referred = (r.step for r in references(step.arguments, ids))
        step.depends_on = list(dict.fromkeys((*step.depends_on, *referred)))
    known = [definition_mark(tools[t]) if t in tools else "" for t in (s.tool_id for s in steps)]
    draft = Draft(
        id=call.id,
        tool_id=steps[0].tool_id if steps else "",
        definition=sha256_hex("".join(known))[:12],
        text=call.query,
        lang=call.lang or PLAIN,
    )
    return Run(steps=steps).into(draft)


def in_order(steps: Sequence[StepRun]) -> list[StepRun] | None:
    """The steps by level (all that a step depends on lies below it), as they were written within one; None for a
    cycle."""
    levels: dict[str, int] = {}
    waiting = list(steps)
    while waiting:
        free = [s for s in waiting if all(d in levels for d in s.depends_on)]
        if not free:
            return None
        found = {s.id: 1 + max((levels[d] for d in s.depends_on), default=-1) for s in free}
        levels |= found
        waiting = [s for s in waiting if s.id not in levels]
    placed = [s.model_copy(update={"level": levels[s.id]}) for s in steps]
    return sorted(placed, key=lambda s: s.level)


def trajectory(draft: Draft, tools: Mapping[str, Tool], limit: int) -> SynthTrajectory:
    """The record: messages in OpenAI's chat form, calls of one level side by side in one message."""
    run = Run.of(draft)
    used = run.tools()
    names = dict(zip(used, (label.replace(".", "_")[:64] for label in labels([tools[t] for t in used])), strict=True))
    made = [s for s in run.steps if s.sent is not None and s.response is not None]
    messages: list[JsonObject] = [{"role": "user", "content": draft.text}]
    for level in dict.fromkeys(s.level for s in made):
        beside = [s for s in made if s.level == level]
        messages.append({"role": "assistant", "content": None, "tool_calls": [_asked(s, names) for s in beside]})
        messages += [
            {"role": "tool", "tool_call_id": _id(s), "name": names[s.tool_id], "content": _content(s, limit)}
            for s in beside
        ]
    if run.answer:
        messages.append({"role": "assistant", "content": run.answer})
    failure = run.failure
    return SynthTrajectory(
        id=f"{draft.id}/run",
        messages=messages,
        tools=used,
        calls=[_call(s, names) for s in run.steps],
        outcome=failure.cause if failure else SUCCESS,
        source=SOURCE,
        call=draft.id,
        lang=draft.lang,
        scores=draft.scores,
    )


def _asked(step: StepRun, names: Mapping[str, str]) -> JsonObject:
    sent = json.dumps(step.sent, ensure_ascii=False)
    return {"id": _id(step), "type": "function", "function": {"name": names[step.tool_id], "arguments": sent}}


def _content(step: StepRun, limit: int) -> str:
    return step.response.shown(limit) if step.response is not None else ""


def _id(step: StepRun) -> str:
    return f"call_{step.id}"


def _call(step: StepRun, names: Mapping[str, str]) -> JsonObject:
    out: dict[str, Any] = {
        "id": step.id,
        "tool_id": step.tool_id,
        "name": names[step.tool_id],
        "arguments": step.arguments if step.sent is None else step.sent,
        "depends_on": step.depends_on,
    }
    if step.found:
        out |= {"as_written": step.arguments, "references": step.found}
    if step.response is not None:
        came = step.response
        out["response"] = {"text": came.text, "isError": came.is_error, "bytes": came.size, "cut": came.cut}
        if came.structured is not None:
            out["response"]["structuredContent"] = came.structured
        out["seconds"] = round(step.seconds, 3)
    if step.cause:
        out |= {"cause": step.cause, "rule": step.rule, "evidence": step.evidence}
    if step.skipped:
        out["skipped"] = True
    return out
