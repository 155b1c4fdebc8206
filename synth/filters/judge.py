"""Judge: a model's scores of instruction and call (MCP-Flow, arXiv 2510.24284, 3.3: dropped below 6 of 10)."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, Field

from toolscout.prompt import dumps
from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.parsing import read_answer
from toolscout.synth.prompt_files import load_prompt

Score = Annotated[float, Field(ge=0, le=10)]


_FAULTS = 300
"""Characters that a model is asked to keep to; of a wordier one they are cut, since what counts are the scores."""


def _cut(value: object) -> object:
    return value[:_FAULTS] if isinstance(value, str) else value


class Verdict(BaseModel):
    """The answer's form. The faults come first: a score that is written before them is written without them."""

    faults: Annotated[str, BeforeValidator(_cut), Field(max_length=_FAULTS)] = ""
    instruction: Score
    call: Score


class Judge:
    """Drops what either score is too low for."""

    name = "judge"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.prompt = load_prompt("judge")

    def decides(self) -> JsonObject:
        """See `Step`."""
        s = self.bench.settings
        return {
            "prompt": self.prompt.fingerprint,
            "model": self.bench.judge.model,
            "below": s.judge_below,
            "max_tokens": s.max_tokens,
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        name = self.bench.tools[item.tool_id].name
        messages = self.prompt.render(
            tool=self.bench.shown(item.tool_id),
            instruction=item.text,
            call=dumps({"name": name, "arguments": item.arguments or {}}),
        )
        verdict = await self.bench.judge.write(
            messages, lambda said: read_answer(said, Verdict), schema=Verdict.model_json_schema()
        )
        for what, score in (("instruction", verdict.instruction), ("call", verdict.call)):
            if score < self.bench.settings.judge_below:
                return Outcome.drop(f"{what} judged too low", f"{score:g}: {verdict.faults}", item.text)
        scores = {**item.scores, "judge_instruction": verdict.instruction, "judge_call": verdict.call}
        return Outcome([item.model_copy(update={"scores": scores})])
