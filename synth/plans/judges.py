"""Judges: does anybody have this task, and are these the calls for it (MCPToolBench++, arXiv 2508.07575, section 2)."""

from __future__ import annotations

from pydantic import BaseModel

from toolscout.prompt import dumps
from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.filters.judge import Score
from toolscout.synth.parsing import read_answer
from toolscout.synth.plans.state import Plan
from toolscout.synth.prompt_files import load_prompt


class Verdict(BaseModel):
    """The answer's form."""

    score: Score
    why: str = ""


class _Judge:
    name = ""
    prompt_name = ""
    reason = ""

    def __init__(self, bench: Bench, below: float) -> None:
        self.bench, self.below = bench, below
        self.prompt = load_prompt(self.prompt_name)

    def decides(self) -> JsonObject:
        """See `Step`."""
        return {
            "prompt": self.prompt.fingerprint,
            "model": self.bench.judge.model,
            "below": self.below,
            "max_tokens": self.bench.settings.max_tokens,
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        verdict = await self.bench.judge.write(
            self.messages(item), lambda said: read_answer(said, Verdict), schema=Verdict.model_json_schema()
        )
        if verdict.score < self.below:
            return Outcome.drop(self.reason, f"{verdict.score:g}: {verdict.why}", item.text)
        return Outcome([item.model_copy(update={"scores": {**item.scores, self.name: verdict.score}})])

    def messages(self, item: Draft) -> list[dict[str, str]]:
        raise NotImplementedError


class Reasonable(_Judge):
    """Drops requests that nobody would make, by the request alone."""

    name, prompt_name, reason = "reasonable", "plan_reasonable", "not reasonable"

    def messages(self, item: Draft) -> list[dict[str, str]]:
        """The request."""
        return self.prompt.render(request=item.text)


class Semantic(_Judge):
    """Drops plans that are not what the request asks for: a call too many or too few, a wrong value or reference."""

    name, prompt_name, reason = "semantic", "plan_semantic", "calls do not serve the request"

    def messages(self, item: Draft) -> list[dict[str, str]]:
        """The request, its tools and its calls; names stand beside the codes that they mean."""
        plan = Plan.of(item)
        steps = [
            {"id": s.id, "tool": self.bench.tools[s.tool_id].name, "arguments": s.arguments, "after": s.depends_on}
            for s in plan.steps
        ]
        codes = [f"{f.value} is {f.said}" for f in plan.filled.values() if f.type != "text"]
        return self.prompt.render(
            tools="\n".join(self.bench.shown(t) for t in plan.used),
            request=item.text,
            calls="\n".join(dumps(step) for step in steps),
            codes="; ".join(codes) or "none",
        )
