"""Rules: what a plan must hold before a model is asked about it. Costs nothing, and is done anew for every plan."""

from __future__ import annotations

import re

from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.filters.duplicates import same_text
from toolscout.synth.plans.dag import flaws, misfits
from toolscout.synth.plans.state import Plan


class Rules:
    """Drops plans of a wrong shape, with calls that do not fit their tools, or with values that the request lacks."""

    name = "rules"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def decides(self) -> JsonObject:
        """See `Step`."""
        return {"ungrounded_above": self.bench.settings.ungrounded_above}

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        plan, tools = Plan.of(item), self.bench.tools
        wrong = flaws(plan.steps, tools)
        if wrong:
            return Outcome.drop(wrong[0].reason, "; ".join(f.line() for f in wrong[:3]), item.text)
        for step in plan.steps:
            if found := misfits(step, tools[step.tool_id]):
                return Outcome.drop("does not fit the schema", f"step {step.id}, {found[0]}", item.text)
        if lost := [f.said for f in plan.filled.values() if not states(item.text, f.said)]:
            return Outcome.drop("value lost", "; ".join(lost), item.text)
        if self.bench.ungrounded is not None:
            # A code stands in the request by its name.
            codes = [f.value for f in plan.filled.values() if f.type != "text"]
            ground = "\n".join([item.text, *map(str, codes)])
            named = [
                f"step {step.id}: {name}"
                for step in plan.steps
                for name in self.bench.ungrounded(tools[step.tool_id], ground, step.arguments)
            ]
            if len(named) > self.bench.settings.ungrounded_above:
                return Outcome.drop("value not in the request", ", ".join(named), item.text)
        return Outcome([item])


def states(text: str, value: str) -> bool:
    """Whether a request holds a value, whatever its case, spacing and the commas of its numbers."""

    def plain(said: str) -> str:
        return f" {same_text(re.sub(r'(?<=[0-9]),(?=[0-9]{3})', '', said))} "

    wanted = plain(value)
    return wanted in plain(text) if wanted.strip() else value in text
