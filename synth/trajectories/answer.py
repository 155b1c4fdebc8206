"""Answer: what the assistant finally says, written from the request and the responses."""

from __future__ import annotations

import re

from pydantic import BaseModel

from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.parsing import Unreadable, read_answer
from toolscout.synth.prompt_files import load_prompt
from toolscout.synth.trajectories.judged import transcript
from toolscout.synth.trajectories.run import Run

_LONGEST = 4000
_OF_THE_PROMPT = re.compile(r"\b(?:Calls and answers|Final answer|JSON object|as an AI)\b|^(?:Call|Answer) \w+: ", re.M)


class Said(BaseModel):
    """The answer's form."""

    answer: str


class Answer:
    """Adds the final answer to a run that went well."""

    name = "answer"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.prompt = load_prompt("trajectory_answer")

    def decides(self) -> JsonObject:
        """See `Step`."""
        return {
            "prompt": self.prompt.fingerprint,
            "model": self.bench.writer.model,
            "characters": self.bench.settings.response_characters,
            "max_tokens": self.bench.settings.max_tokens,
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        run = Run.of(item)
        messages = self.prompt.render(request=item.text, calls=transcript(run, self.bench))
        found = await self.bench.writer.write(messages, _read, schema=Said.model_json_schema())
        text = found.answer.strip()
        if len(text) > _LONGEST:
            return Outcome.drop("answer too long", f"{len(text)} characters", text[:_LONGEST])
        if _OF_THE_PROMPT.search(text):
            return Outcome.drop("answer speaks of the prompt", "", text)
        return Outcome([run.model_copy(update={"answer": text}).into(item)])


def _read(said: str) -> Said:
    found = read_answer(said, Said)
    if not found.answer.strip():
        raise Unreadable("answer: it is empty.")
    return found
