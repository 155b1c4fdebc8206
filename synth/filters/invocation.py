"""Invocation: instructions from which no model finds the tool (MCP-Flow, arXiv 2510.24284, 3.3).

A model is shown the instruction and three tools, the gold and two random ones, as serving shows them, and a second
model where the first one misses the gold. If both do, the instruction does not tell what is wanted. Where only one
model is given, it is asked again beside other random tools. Only the name is asked for: answers cost more than prompts.
"""

from __future__ import annotations

from collections.abc import Sequence

from toolscout.prompt import NONE, labels, render
from toolscout.records import JsonObject, Tool
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft, draw
from toolscout.synth.parsing import Unreadable, read_object
from toolscout.synth.writer import NoAnswer, Writer

_TRIES = 200


class Invocation:
    """Drops what both askings get wrong."""

    name = "invocation"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    def decides(self) -> JsonObject:
        """See `Step`."""
        s = self.bench.settings
        return {
            "models": [self.bench.writer.model, self.bench.judge.model],
            "distractors": s.distractors,
            "seed": s.seed,
            "rules": 2,
            "max_tokens": s.max_tokens,
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        silent: NoAnswer | None = None
        for turn, writer in enumerate((self.bench.writer, self.bench.judge)):
            try:
                found = await self._finds(item, writer, turn)
            except NoAnswer as none:
                silent, found = none if none.passing else silent, False
            if found:
                scores = {**item.scores, "invocation": 1.0 - turn / 2}
                return Outcome([item.model_copy(update={"scores": scores})])
        if silent is not None:
            raise silent  # it was not asked, so it did not miss
        return Outcome.drop("no model finds the tool", "", item.text)

    def remarks(self, items: Sequence[Draft]) -> list[str]:
        """What a reader of the scores has to know: whom the files gave too few tools to choose among."""
        wanted = self.bench.settings.distractors
        fewer = sum(len(self._candidates(item, 0)) <= wanted for item in items)
        if not fewer:
            return []
        return [
            f"The filter invocation showed {fewer} of {len(items)} instructions fewer than {wanted} other tools: too "
            "few of the given ones do something else. Give more files by --tools."
        ]

    async def _finds(self, item: Draft, writer: Writer, turn: int) -> bool:
        candidates = self._candidates(item, turn)
        names = labels(candidates)
        gold = names[[t.tool_id for t in candidates].index(item.tool_id)]

        def read(text: str) -> str:
            name = str(read_object(text).get("name"))
            if name not in (*names, NONE):
                raise Unreadable(f"name: it has to be one of {', '.join([*names, NONE])}.")
            return name

        form: JsonObject = {
            "type": "object",
            "properties": {"name": {"enum": [*names, NONE]}},
            "required": ["name"],
            "additionalProperties": False,
        }
        return await writer.write(render(item.text, candidates), read, schema=form) == gold

    def _candidates(self, item: Draft, turn: int) -> list[Tool]:
        """The gold and random tools that do not the same, in drawn order; always the same for the same draft."""
        pool = self.bench.pool
        seed = (self.bench.settings.seed, "distractor", item.id, turn)
        chosen = [item.tool_id]
        for n in range(_TRIES):
            if len(chosen) > self.bench.settings.distractors:
                break
            other = pool.ids[int(draw(*seed, n) * len(pool.ids))]
            if not any(pool.same(other, c) for c in chosen):
                chosen.append(other)
        chosen.sort(key=lambda t: draw(*seed, "order", t))
        return [self.bench.tools[t] for t in chosen]
