"""Grounded: calls with values that the instruction does not give: a model trained on them learns to make values up."""

from __future__ import annotations

from toolscout.records import JsonObject
from toolscout.synth.bench import Bench, Ungrounded
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft


class Grounded:
    """Drops calls with more such values than allowed."""

    name = "grounded"

    def __init__(self, bench: Bench, ungrounded: Ungrounded) -> None:
        self.bench, self.ungrounded = bench, ungrounded

    def decides(self) -> JsonObject:
        """See `Step`."""
        return {"above": self.bench.settings.ungrounded_above}

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        names = self.ungrounded(self.bench.tools[item.tool_id], item.text, item.arguments or {})
        if len(names) > self.bench.settings.ungrounded_above:
            return Outcome.drop("value not in the instruction", ", ".join(names), item.text)
        return Outcome([item])
