"""Verdicts on trials: by the row's checks, by a model where there are none, and how far the two agree."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from toolscout.errors import ModelError
from toolscout.eval.execute.expect import ExecuteRow, erred
from toolscout.records import JsonObject
from toolscout.synth.answer_store import AnswerStore
from toolscout.synth.bench import Bench
from toolscout.synth.chat import ChatEndpoint
from toolscout.synth.drafts import Draft
from toolscout.synth.settings import SynthSettings
from toolscout.synth.trajectories.judged import JudgeResponse
from toolscout.synth.trajectories.run import Run, StepRun
from toolscout.synth.writer import REFUSED, NoAnswer, Purse, Writer

NO_CALLS = "no calls"
NOT_MADE = "not made"
WRONG = "wrong outcome"
"""Kinds of failure beside the root causes of calls: nothing to call, calls that must not or cannot be made, and calls
that went well with a result that is not what was asked for."""


@dataclass
class Trial:
    """One attempt at a row. ``rule`` and ``model`` are the two verdicts, None where there is none; ``failure`` is the
    kind of the first thing that went wrong, ``why`` says it in words; ``unjudged`` is why the judge, though asked, gave
    no verdict."""

    id: str
    trial: int
    split: str
    steps: list[StepRun] = field(default_factory=list)
    failure: str = ""
    why: str = ""
    rule: bool | None = None
    model: bool | None = None
    score: float | None = None
    unjudged: str = ""

    @property
    def passed(self) -> bool | None:
        """The verdict: the rule's where the row has checks, else the model's; None without either."""
        return self.rule if self.rule is not None else self.model

    @property
    def answered(self) -> bool:
        """Whether there were calls at all, to make or not."""
        return self.failure != NO_CALLS


def judge_by_rules(row: ExecuteRow, trial: Trial) -> None:
    """Fill in ``rule`` of a row with checks, and what failed. A call that ended in an error fails a trial anyhow."""
    broken = next((step for step in trial.steps if erred(step)), None)
    if broken is not None:
        trial.failure, trial.why = broken.cause, f"{broken.tool_id}, {broken.rule}: {broken.evidence}"
    if not row.expect:
        return
    lacking = next((check for check in row.expect if not check.holds(trial.steps)), None)
    trial.rule = not trial.failure and lacking is None
    if not trial.failure and lacking is not None:
        trial.failure, trial.why = WRONG, f"{lacking} does not hold"


class ModelJudge:
    """Asks a model whether the tools' answers serve the request. Its prompt and scale are those of synthesised
    trajectories (MCP-Flow, arXiv 2510.24284, 3.3); from ``threshold`` of 10 on a trial passes.
    """

    def __init__(self, bench: Bench) -> None:
        self._judge = JudgeResponse(bench)
        self.threshold = self._judge.below
        self._answered = 0
        self._refusal = ""

    async def look(self, row: ExecuteRow, trial: Trial) -> None:
        """Fill in ``model`` and ``score``, or ``unjudged``: a content filter refuses one question and takes the others.
        Trials whose calls failed are failures and cost no question.

        Raises ModelError, NotAllowed: the judge cannot be asked.
        """
        if trial.failure and trial.failure != WRONG:
            trial.model = False
            return
        draft = Run(steps=trial.steps).into(Draft(id=row.id, tool_id="", text=row.query))
        try:
            outcome = await self._judge.work(draft)
        except NoAnswer as none:
            trial.unjudged = none.reason
            if none.reason == REFUSED:
                self._refusal = none.detail
            return
        self._answered += 1
        trial.model = bool(outcome.made)
        if outcome.made:
            trial.score = outcome.made[0].scores["judge_response"]
        else:
            detail = outcome.dropped[0].detail
            trial.score = float(detail.partition(":")[0])
            if trial.rule is None:
                trial.failure, trial.why = WRONG, f"judged {detail}"

    def check(self) -> None:
        """After all trials: a judge that takes no question at all must not pass for one without a verdict.

        Raises ModelError if questions were refused and none was answered.
        """
        if self._refusal and not self._answered:
            raise ModelError(f"The judge cannot be asked: {self._refusal}", "See to the endpoint of --judge-url.")


@asynccontextmanager
async def open_judge(url: str, model: str, settings: SynthSettings, folder: Path) -> AsyncIterator[Bench]:
    """A bench with the model behind an OpenAI-compatible endpoint as the judge. Its answers are kept in ``folder``, so
    that none is asked for twice. Its key is ``TOOLSCOUT_SYNTH_SECOND_KEY``.

    Raises BadInput for what is no address.
    """
    endpoint = ChatEndpoint(
        url, model=model, key=settings.second_key, timeout=settings.timeout, retries=settings.retries,
        longest_pause=settings.longest_pause, connections=settings.concurrency,
    )  # fmt: skip
    store = AnswerStore(folder / "answers.db")
    gate = asyncio.Semaphore(settings.concurrency)
    try:
        writer = Writer(
            endpoint, store, Purse(), max_tokens=settings.max_tokens, repairs=settings.repairs, gate=gate
        )  # fmt: skip
        yield Bench({}, {}, settings, first=writer)
    finally:
        await endpoint.close()
        store.close()


def agreement(trials: Sequence[Trial]) -> JsonObject | None:
    """How far checks and model agree, over the trials that the model was asked about and that have checks: the share,
    and Cohen's kappa (1960), null where both always say the same. None without such trials.
    """
    both = [t for t in trials if t.rule is not None and t.score is not None]
    if not both:
        return None
    counts = {
        name: sum((t.rule, t.model) == pair for t in both)
        for name, pair in (
            ("both_pass", (True, True)),
            ("only_rule", (True, False)),
            ("only_model", (False, True)),
            ("both_fail", (False, False)),
        )
    }
    n = len(both)
    observed = (counts["both_pass"] + counts["both_fail"]) / n
    rule = (counts["both_pass"] + counts["only_rule"]) / n
    model = (counts["both_pass"] + counts["only_model"]) / n
    chance = rule * model + (1 - rule) * (1 - model)
    kappa = None if chance == 1 else round((observed - chance) / (1 - chance), 4)
    return {"n": n, "rows": len({t.id for t in both}), "share": round(observed, 4), "kappa": kappa, **counts}
