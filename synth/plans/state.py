"""What a plan is on its way: a draft of the chain whose ``arguments`` hold the plan's state, and the row it becomes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import Field

from toolscout.records import Call, GoldCall, JsonObject, Record, Tool, sha256_hex
from toolscout.synth.drafts import Draft, definition_mark
from toolscout.synth.plans.dag import PlanStep, depths, references

Scalar = str | int | float


class Slot(Record):
    """A place in a request for one of several values. ``type``: text, or a list of `toolscout.synth.plans.codes`."""

    type: str = "text"
    values: list[Scalar] = Field(default_factory=list)


class Filled(Record):
    """What stands in a slot: ``said`` in the request, ``value`` in arguments; ``type`` is the slot's."""

    said: str
    value: Any
    type: str = "text"


class Plan(Record):
    """``tools``: those that were dealt. ``need``: what the model had in mind for categories that it combined."""

    categories: list[str] = Field(default_factory=list)
    need: str = ""
    tools: list[str] = Field(default_factory=list)
    slots: dict[str, Slot] = Field(default_factory=dict)
    steps: list[PlanStep] = Field(default_factory=list)
    filled: dict[str, Filled] = Field(default_factory=dict)

    @classmethod
    def of(cls, draft: Draft) -> Plan:
        """The plan that a draft carries."""
        return cls.model_validate(draft.arguments or {})

    def on(self, draft: Draft, **update: Any) -> Draft:
        """The draft with this plan, and other fields updated."""
        return draft.model_copy(update={**update, "arguments": self.model_dump(mode="json", exclude_defaults=True)})

    @property
    def used(self) -> list[str]:
        """Ids of the tools that the steps call, each once."""
        return list(dict.fromkeys(step.tool_id for step in self.steps))


class PlanCall(Call):
    """A made plan: a row of the data contract with how it came about."""

    family: str = ""
    """The template whose fillings stand in one split."""
    categories: list[str] = Field(default_factory=list)
    scores: dict[str, float] = Field(default_factory=dict)


def hand(id_: str, tools: Iterable[str], known: Mapping[str, Tool], **about: Any) -> Draft:
    """Dealt tools as a draft; it changes when any of their definitions does."""
    dealt = list(tools)
    marks = sha256_hex("".join(definition_mark(known[t]) for t in dealt))[:12]
    return Plan(tools=dealt, **about).on(Draft(id=id_, tool_id=dealt[0], definition=marks, text=""))


def row(draft: Draft) -> PlanCall:
    """The draft as a row of the data contract."""
    plan = Plan.of(draft)
    gold = [GoldCall(id=s.id, tool_id=s.tool_id, arguments=s.arguments, depends_on=s.depends_on) for s in plan.steps]
    return PlanCall(
        id=draft.id,
        query=draft.text,
        gold=gold,
        lang=draft.lang,
        source="synth-plan",
        family=draft.parent or draft.id,
        categories=plan.categories,
        scores=draft.scores,
    )


def shape(plan: Plan) -> JsonObject:
    """What a report counts of a plan: ``calls``, ``depth`` (longest chain), ``references``, ``form``."""
    deep = max(depths(plan.steps).values(), default=0)
    form = "parallel" if deep == 1 else "chain" if deep == len(plan.steps) else "mixed"
    referring = sum(len(references(step.arguments)) for step in plan.steps)
    return {"calls": len(plan.steps), "depth": deep, "references": referring, "form": form}
