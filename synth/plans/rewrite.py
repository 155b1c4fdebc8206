"""Rewrite: a filled template as a person types it (query rewrite of MCPToolBench++, arXiv 2508.07575, section 2)."""

from __future__ import annotations

from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.environment import placeholders
from toolscout.synth.making.fill import Revised
from toolscout.synth.making.generate import rules, tidy, trouble
from toolscout.synth.parsing import read_answer
from toolscout.synth.plans.state import Plan
from toolscout.synth.prompt_files import load_prompt


class Rewrite:
    """From a filled template to a request. What names a tool or server, or holds a placeholder, is dropped."""

    name = "rewrite"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.prompt = load_prompt("plan_rewrite")

    def decides(self) -> JsonObject:
        """See `Step`."""
        s = self.bench.settings
        return {
            "prompt": self.prompt.fingerprint,
            "model": self.bench.writer.model,
            "temperature": s.temperature,
            "rules": rules(self.bench),
            "max_tokens": s.max_tokens,
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        plan = Plan.of(item)
        values = "; ".join(f.said for f in plan.filled.values())
        found = await self.bench.writer.write(
            self.prompt.render(request=item.text, values=values or "none"),
            lambda said: read_answer(said, Revised),
            temperature=self.bench.settings.temperature,
            schema=Revised.model_json_schema(),
        )
        text = tidy(found.instruction)
        for tool_id in plan.used:
            why, detail = trouble(text, tool_id, self.bench)
            if why:
                return Outcome.drop(why, detail, text)
        if left := placeholders(text):
            return Outcome.drop("placeholder", text[left[0].start : left[0].end], text)
        return Outcome([item.model_copy(update={"text": text})])
