"""Fill slots: every required parameter gets a realistic value in the instruction, and no placeholder stays.

Slot-fill revision of MCP-Flow (arXiv 2510.24284, 3.2): the model puts in what is missing, from the environment where
that offers it; what it still leaves as a placeholder for a file, directory or URL is replaced by a local candidate.
"""

from __future__ import annotations

from pydantic import BaseModel

from toolscout.records import JsonObject, canonical_json, sha256_hex
from toolscout.signature import parameters
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.environment import placeholders, replaced
from toolscout.synth.filters.duplicates import shingles
from toolscout.synth.making.generate import rules, tidy, trouble
from toolscout.synth.parsing import read_answer
from toolscout.synth.prompt_files import load_prompt


class Revised(BaseModel):
    """The answer's form, of all steps that rewrite an instruction."""

    instruction: str


class Fill:
    """From an instruction to one with all its values. What lacks nothing passes without a model."""

    name = "fill"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.prompt = load_prompt("fill")

    def decides(self) -> JsonObject:
        """See `Step`."""
        return {
            "prompt": self.prompt.fingerprint,
            "model": self.bench.writer.model,
            "environment": sha256_hex(canonical_json(self.bench.environment.model_dump()))[:16],
            "rules": rules(self.bench),
            "shared": self.bench.settings.fill_shared_from,
            "max_tokens": self.bench.settings.max_tokens,
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        required = [p.name for p in parameters(self.bench.tools[item.tool_id].input_schema) if p.required]
        text = item.text
        if required or placeholders(text):
            messages = self.prompt.render(
                tool=self.bench.shown(item.tool_id),
                required=", ".join(required) or "none",
                environment=self.bench.environment.shown(item.id),
                instruction=text,
            )
            revised = await self.bench.writer.write(
                messages, lambda said: read_answer(said, Revised), schema=Revised.model_json_schema()
            )
            text = tidy(revised.instruction)
            before = shingles(item.text)
            # weak models echo the prompt
            if len(before & shingles(text)) < self.bench.settings.fill_shared_from * len(before):
                return Outcome.drop("another instruction", item.text, text)
        found = len(placeholders(text))
        text, left = replaced(text, self.bench.environment, item.id)
        if left:
            return Outcome.drop("placeholder", ", ".join(left), text)
        why, detail = trouble(text, item.tool_id, self.bench)
        if why:
            return Outcome.drop(why, detail, text)
        return Outcome([item.model_copy(update={"text": text, "replaced": found or None})])
