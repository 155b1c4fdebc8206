"""Copies: requests that are nearly another template's request. Fillings of one template are meant to be alike."""

from __future__ import annotations

from collections.abc import Sequence

from toolscout.records import JsonObject
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.filters.duplicates import NearCopies, same_text


class Copies:
    """Of near copies from two templates, those of the first one stay; of equal requests, the first."""

    name = "duplicates"

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def decides(self) -> JsonObject:
        """See `Sweep`."""
        return {"from": self.threshold}

    def sweep(self, items: Sequence[Draft]) -> list[Outcome]:
        """See `Sweep`."""
        seen = NearCopies()
        own: set[str] = set()
        waiting: list[Draft] = []
        equal: set[str] = set()
        outcomes = []
        for item in items:
            if item.parent not in own:  # the fillings of a template come one after the other
                for kept in waiting:
                    seen.add(kept.id, kept.text)
                own, waiting = {item.parent}, []
            name, near = seen.nearest(item.text)
            if name and near >= self.threshold:
                outcomes.append(Outcome.drop("near copy", f"{near:.2f} of {name}", item.text))
            elif same_text(item.text) in equal:
                outcomes.append(Outcome.drop("same request", "", item.text))
            else:
                equal.add(same_text(item.text))
                waiting.append(item)
                outcomes.append(Outcome([item]))
        return outcomes
