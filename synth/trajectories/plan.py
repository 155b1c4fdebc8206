"""Plan: which rows can be executed at all, and in which order their calls go. Rules only."""

from __future__ import annotations

from toolscout.index.acts import act_of
from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.trajectories.run import Run, in_order

MAY_WRITE = "may write"


class Plan:
    """Drops rows that cannot or must not be executed; orders the calls of the others.

    The bench holds only tools that the guard has approved, of servers that are not quarantined.
    """

    name = "plan"

    def __init__(self, bench: Bench, *, writes: bool) -> None:
        self.bench, self.writes = bench, writes

    def decides(self) -> JsonObject:
        """See `Step`. What a tool is said to do belongs to its definition, which the draft carries."""
        return {"writes": self.writes, "rules": 1}

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        steps = Run.of(item).steps
        ids = [s.id for s in steps]
        if len(set(ids)) < len(ids):
            return Outcome.drop("two steps with one id", ", ".join(ids), item.text)
        unknown = [s.tool_id for s in steps if s.tool_id not in self.bench.tools]
        if unknown:
            return Outcome.drop("tool unknown or not approved", ", ".join(unknown), item.text)
        for step in steps:
            gone = [d for d in step.depends_on if d not in ids]
            if gone:
                return Outcome.drop("depends on no step", f"{step.id} on {', '.join(gone)}", item.text)
        ordered = in_order(steps)
        if ordered is None:
            return Outcome.drop("cycle", ", ".join(ids), item.text)
        for step in steps:
            act = act_of(self.bench.tools[step.tool_id])
            if act.writes and not self.writes:
                return Outcome.drop(MAY_WRITE, f"{step.tool_id}: {act.why}", item.text)
        return Outcome([Run(steps=ordered).into(item)])
