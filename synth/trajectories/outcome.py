"""Outcome: only runs whose calls all went well go on; the others are counted by root cause."""

from __future__ import annotations

from collections.abc import Sequence

from toolscout.records import JsonObject
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.trajectories.run import Run


class WentWell:
    """Drops runs with a failed call, by its cause."""

    name = "outcome"

    def decides(self) -> JsonObject:
        """See `Sweep`."""
        return {}

    def sweep(self, items: Sequence[Draft]) -> list[Outcome]:
        """See `Sweep`."""
        return [self._look(item) for item in items]

    def _look(self, item: Draft) -> Outcome:
        failed = Run.of(item).failure
        if failed is None:
            return Outcome([item])
        detail = f"{failed.tool_id}, {failed.rule}: {failed.evidence}"
        return Outcome.drop(failed.cause, detail, item.text)
