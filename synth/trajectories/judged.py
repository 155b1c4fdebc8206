"""The judges of a run: whether the tools' responses serve the request, and whether the answer keeps to them.

The first is the filter for trajectories of MCP-Flow (arXiv 2510.24284, 3.3: a judge on the tool response); the second
is ours, since an answer that says more than the responses would teach making things up.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from toolscout.prompt import dumps
from toolscout.records import JsonObject
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.parsing import read_answer
from toolscout.synth.prompt_files import load_prompt
from toolscout.synth.trajectories.run import Run


class Scored(BaseModel):
    """The answer's form."""

    score: Annotated[float, Field(ge=0, le=10)]
    why: str = ""


class JudgeResponse:
    """Drops runs whose responses do not serve the request."""

    name = "response"
    prompt_name = "trajectory_response"
    reason = "response judged too low"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.prompt = load_prompt(self.prompt_name)

    @property
    def below(self) -> float:
        """The threshold."""
        return self.bench.settings.response_below

    def decides(self) -> JsonObject:
        """See `Step`."""
        return {
            "prompt": self.prompt.fingerprint,
            "model": self.bench.judge.model,
            "below": self.below,
            "characters": self.bench.settings.response_characters,
            "max_tokens": self.bench.settings.max_tokens,
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        run = Run.of(item)
        messages = self.prompt.render(request=item.text, calls=transcript(run, self.bench), **self._more(run))
        scored = await self.bench.judge.write(
            messages, lambda said: read_answer(said, Scored), schema=Scored.model_json_schema()
        )
        if scored.score < self.below:
            return Outcome.drop(self.reason, f"{scored.score:g}: {scored.why}", item.text)
        return Outcome([item.model_copy(update={"scores": {**item.scores, f"judge_{self.name}": scored.score}})])

    def _more(self, run: Run) -> dict[str, str]:
        return {}


class JudgeAnswer(JudgeResponse):
    """Drops runs whose final answer does not keep to the responses."""

    name = "faithful"
    prompt_name = "trajectory_faithful"
    reason = "answer judged too low"

    @property
    def below(self) -> float:
        """The threshold."""
        return self.bench.settings.answer_below

    def _more(self, run: Run) -> dict[str, str]:
        return {"answer": run.answer}


def transcript(run: Run, bench: Bench) -> str:
    """The calls of a run with their responses, as prompts show them; together within ``response_characters``."""
    limit = max(200, bench.settings.response_characters // max(1, len(run.steps)))
    lines = []
    for step in run.steps:
        if step.response is None:
            continue
        name = bench.tools[step.tool_id].name
        lines.append(f"Call {step.id}: {dumps({'name': name, 'arguments': step.sent or {}})}")
        lines.append(f"Answer {step.id}: {step.response.shown(limit)}")
    return "\n".join(lines)
