"""``suggest_call``: from a task and candidate tools to a call that validates, or an honest statement of what lacks.

Two phases:

1. which tool. A model behind an endpoint chooses itself: the answer's start, ``{"name": "…``, constrained to the
   candidates' names and ``none``, over the same prompt as what follows. For a small one in process the encoder
   chooses (``index.chooser``), or the search's order where there is one, and the prompt shows that tool alone;
2. its arguments, constrained by that one tool's schema.

A plan repeats both, the calls before in the prompt; for a model that does not choose the request is taken apart instead
(:mod:`toolscout.server.calling.steps`).

Then the values are checked: what names a thing that the request does not name is taken out, what is required and
absent is asked for once more, and the rest must validate against the tool's own schema.

``confidence`` is P(tool), scaled over the candidates and ``none``, times the geometric mean of the probabilities of
the argument tokens. Endpoints without log-probabilities get 0.5 for "not known".
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING

from toolscout.records import Call
from toolscout.schema import simplify_arguments
from toolscout.server.backends import Backend, make_backend
from toolscout.server.calling.plan import follow
from toolscout.server.calling.skeleton import extract, skeleton
from toolscout.server.calling.steps import Step, steps_of
from toolscout.server.calling.suggestion import Candidate, Decoding, SuggestedCall, Suggestion
from toolscout.server.calling.writing import Writing, schema_problems
from toolscout.settings import Settings
from toolscout.signature import compact_signature

if TYPE_CHECKING:
    from toolscout.index.chooser import Chooser

ENABLE_MODEL = (
    "No model is installed, so only what the task plainly states is filled in. "
    "Enable one with: pip install 'toolscout[local]', then toolscout model pull toolscout-smollm2-135m (small) "
    "or toolscout-qwen2.5-coder-0.5b (better); or with TOOLSCOUT_MODEL_URL=<OpenAI-compatible endpoint>."
)
_SEARCH_SCALE = 10.0
"""The search's scores are fitted as a softmax over ten times their value (`finetune/fit_search.py`)."""


class Caller:
    """Writes calls with the configured model, or without one says what is known. One per process; safe to share.

    :param backend: used instead of the configured one.
    :param chooser: makes what chooses for a model that does not; by default with the configured encoder.
    :param decoding: less than the whole of it, to measure what the rest is worth.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        backend: Backend | None = None,
        chooser: Callable[[], Chooser] | None = None,
        decoding: Decoding = "repair",
    ) -> None:
        self.settings = settings
        self.decoding = decoding
        self._make_chooser = chooser or self._own_chooser
        self._chooser: Chooser | None = None
        self._backend = backend
        self._looked = backend is not None
        self._turn = asyncio.Lock()

    @property
    def backend(self) -> Backend | None:
        """The model in use, None without one. Looked for at the first use; loaded at the first request."""
        if not self._looked:
            self._backend = make_backend(self.settings)
            self._looked = True
        return self._backend

    async def suggest(
        self,
        task: str,
        candidates: Sequence[Candidate],
        *,
        context: str = "",
        steps: int = 1,
        others: Sequence[Call] = (),
    ) -> Suggestion:
        """The call for ``task``, or with ``steps`` > 1 a plan of up to so many calls, each after those it needs.

        :param others: further worked calls; those of tools that are no candidates are shown to untuned models only.
        :raises ModelError: the model is unreachable, or answered nonsense twice.
        :raises NotFound: the configured model is not installed.
        """
        if not candidates:
            return Suggestion([], abstained=True, reason="There is no candidate tool to choose from.")
        if self.backend is None:
            self._looked = False  # one may be pulled while this process lives
            return without_model(task, candidates)
        await self.backend.prepare()
        run = Writing(self.backend, self.settings, task, list(candidates), context, self.decoding)
        run.show(others, foreign=not self.backend.budget and steps <= 1)
        parts: list[Step] | None = None
        if not self.backend.chooses:
            if steps <= 1:
                run.chosen = await asyncio.to_thread(self._choose, task, candidates)
            else:
                parts = await asyncio.to_thread(self._steps, task, candidates, steps)
        # One task at a time in process: another one's prompt between the phases would push this one's out of the
        # cache, and it would have to be read again.
        async with self._turn if self.backend.queues else nullcontext():
            return await run.suggest(max(steps, 1)) if parts is None else await follow(run, parts, steps)

    def _choose(self, task: str, candidates: Sequence[Candidate]) -> list[float]:
        """P(candidate) for each, then P(none of them)."""
        scores = [c.score for c in candidates]
        if len(set(scores)) > 1:
            # The search has ranked them, and has found that the request is for one of them.
            best = max(scores)
            weights = [math.exp(_SEARCH_SCALE * (s - best)) for s in scores]
            return [*(w / sum(weights) for w in weights), 0.0]
        odds = self.chooser.odds(task, [c.tool for c in candidates])
        if odds[-1] < self.chooser.none_at:
            rest = max(1 - odds[-1], 1e-9)
            odds = [*(p / rest for p in odds[:-1]), 0.0]
        return odds

    def _steps(self, task: str, candidates: Sequence[Candidate], most: int) -> list[Step]:
        return steps_of(task, [c.tool for c in candidates], self.chooser.cosines, most)

    @property
    def chooser(self) -> Chooser:
        """What chooses for a model that does not, made at the first use."""
        if self._chooser is None:
            self._chooser = self._make_chooser()
        return self._chooser

    def _own_chooser(self) -> Chooser:
        from toolscout.index.chooser import Chooser
        from toolscout.index.encoder import make_encoder

        return Chooser(make_encoder(self.settings))

    async def close(self) -> None:
        """Unload the model."""
        if self._backend is not None:
            await self._backend.close()


def without_model(task: str, candidates: Sequence[Candidate]) -> Suggestion:
    """The best candidate by search score, with a skeleton of its call."""
    ranked = sorted(candidates, key=lambda c: -c.score)
    tool = ranked[0].tool
    known = extract(task, tool.input_schema)
    node = simplify_arguments(tool.input_schema)
    missing = [n for n in node["required"] if n not in known]
    ready = not missing and not compact_signature(tool) and not schema_problems(known, tool.input_schema)
    call = SuggestedCall(
        tool_id=tool.tool_id,
        arguments=known,
        confidence=_lead(ranked),
        missing=missing,
        # A model would weigh the optional arguments too: only a tool without any is ready unread.
        ready=ready,
        skeleton=None if ready else skeleton(tool.input_schema, known),
    )
    return Suggestion(
        [call],
        alternatives=[c.tool.tool_id for c in ranked[1:4]],
        exemplars=ranked[0].exemplars,
        reason=ENABLE_MODEL,
    )


def _lead(ranked: Sequence[Candidate]) -> float:
    """How much of the candidates' plausibility the first one holds: 1 / n when n of them tie."""
    return 1 / sum(math.exp(_SEARCH_SCALE * (c.score - ranked[0].score)) for c in ranked)
