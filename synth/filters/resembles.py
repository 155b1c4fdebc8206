"""Resembles: instructions that repeat their tool's description (MCP-Flow, arXiv 2510.24284, 3.3: cosine above 0.8)."""

from __future__ import annotations

import asyncio
from functools import lru_cache

from toolscout.index.document import MAX_DESCRIPTION, lead, squeeze
from toolscout.index.encoder import Encoder, Vectors
from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft

_CACHED = 4096


class Resembles:
    """Drops by the cosine of instruction and description, both encoded as documents. No description, no verdict."""

    name = "resembles"

    def __init__(self, bench: Bench, encoder: Encoder) -> None:
        self.bench, self.encoder = bench, encoder
        self._described = lru_cache(maxsize=_CACHED)(self._description)

    def decides(self) -> JsonObject:
        """See `Step`."""
        return {"encoder": self.encoder.fingerprint, "above": self.bench.settings.resembles_above}

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        return await asyncio.to_thread(self._judged, item)

    def _judged(self, item: Draft) -> Outcome:
        description = self._described(item.tool_id)
        if description is None:
            return Outcome([item])
        near = round(float(self.encoder.encode([item.text])[0] @ description), 4)
        if near > self.bench.settings.resembles_above:
            return Outcome.drop("resembles the description", f"{near:.3f}", item.text)
        return Outcome([item.model_copy(update={"scores": {**item.scores, "resembles": near}})])

    def _description(self, tool_id: str) -> Vectors | None:
        text = squeeze(lead(self.bench.tools[tool_id].description), MAX_DESCRIPTION)
        return self.encoder.encode([text])[0] if text else None
