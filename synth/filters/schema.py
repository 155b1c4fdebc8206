"""Schema: arguments that the tool's input schema does not allow."""

from __future__ import annotations

from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.validation import validate


class FitsSchema:
    """Drops what the tool would refuse."""

    name = "schema"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def decides(self) -> JsonObject:
        """See `Step`."""
        return {}

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        tool = self.bench.tools[item.tool_id]
        problems = validate(item.arguments or {}, tool.input_schema, key=tool.fingerprint or None)
        if problems:
            return Outcome.drop("does not fit the schema", problems[0].line(), item.text)
        return Outcome([item])
