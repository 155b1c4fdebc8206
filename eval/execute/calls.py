"""Where the calls of each trial come from: the gold, given answers, or suggest_call of the Toolscout under test."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import Field

from toolscout.errors import BadInput, ModelError
from toolscout.eval.calls.measure import PLAN_STEPS
from toolscout.eval.execute.expect import ExecuteRow
from toolscout.eval.plans.answers import AnswerCall, Reply
from toolscout.eval.rows import Say
from toolscout.eval.work_file import earlier, open_work
from toolscout.jsonl import read_records
from toolscout.records import JsonObject, Record, canonical_json, sha256_hex
from toolscout.synth.trajectories.caller import Caller

T = TypeVar("T")


class Made(Record):
    """The calls of one trial. ``asked`` marks what was asked for; ``reason`` says why there are none."""

    id: str
    trial: int = 1
    asked: str = ""
    calls: list[AnswerCall] = Field(default_factory=list)
    reason: str = ""
    model: str = ""


class Source(Protocol):
    """Gives the calls of a row's trial, counted from 1."""

    async def calls(self, row: ExecuteRow, trial: int) -> Made:
        """The calls, none where nothing was suggested."""
        ...

    def header(self) -> JsonObject:
        """What decides the calls: a work folder of other ones is not gone on with."""
        ...


@dataclass(frozen=True)
class FromGold:
    """The gold calls: an upper bound, and a look at which servers work."""

    async def calls(self, row: ExecuteRow, trial: int) -> Made:
        """See `Source`."""
        return Made(id=row.id, trial=trial, calls=row.own_calls())

    def header(self) -> JsonObject:
        """See `Source`."""
        return {"calls": "gold"}


@dataclass(frozen=True)
class FromAnswers:
    """Calls made elsewhere. ``replies`` has, for each row, one answer for all trials or one for each."""

    replies: Mapping[str, Sequence[Reply]]
    mark: str

    @classmethod
    def read(cls, path: Path, rows: Sequence[ExecuteRow], trials: int) -> FromAnswers:
        """The answers of a file, ``{id, calls: [{id, tool_id, arguments, depends_on}]}`` a line; several lines of one
        row are its trials in order.

        Raises BadInput for a line that is no answer, answers to none of the rows, or too few for the trials.
        """
        replies: dict[str, list[Reply]] = {}
        for reply in read_records(path, Reply):
            replies.setdefault(reply.id, []).append(reply)
        if not any(row.id in replies for row in rows):
            raise BadInput(
                f"{path} answers none of the rows of the calls files.",
                "Each line is {id, calls: [{id, tool_id, arguments, depends_on}]}.",
            )
        for row in rows:
            if 1 < len(replies.get(row.id, ())) < trials:
                raise BadInput(
                    f"{path} has {len(replies[row.id])} answers for the row {row.id!r}, but there are {trials} trials.",
                    "Give one line for all trials, or one for each; or fewer --trials.",
                )
        return cls(replies, sha256_hex(canonical_json([[r.model_dump() for r in found] for found in replies.values()])))

    async def calls(self, row: ExecuteRow, trial: int) -> Made:
        """See `Source`."""
        found = self.replies.get(row.id)
        if not found:
            return Made(id=row.id, trial=trial, reason="The answers file has no line for this row.")
        reply = found[trial - 1] if len(found) > 1 else found[0]
        return Made(id=row.id, trial=trial, calls=reply.calls)

    def header(self) -> JsonObject:
        """See `Source`."""
        return {"calls": "answers", "answers": self.mark[:16]}


@dataclass
class FromModel:
    """suggest_call of the Toolscout that also makes the calls. ``once``: its model decodes greedily in its own process,
    so that its first answer is that of every trial."""

    caller: Caller
    about: JsonObject
    once: bool = False
    _known: dict[str, Made] = field(default_factory=dict)

    async def calls(self, row: ExecuteRow, trial: int) -> Made:
        """See `Source`. Raises ModelError when nothing can be suggested, UpstreamError without a connection."""
        if self.once and row.id in self._known:
            return self._known[row.id].model_copy(update={"trial": trial})
        await self.caller.ready()
        # That there are several calls is told, how many is not.
        steps = PLAN_STEPS if len(row.gold) > 1 else 1
        response = await self.caller.suggest(row.query, steps=steps, tool_ids=(row.candidates or ())[:20])
        answer = response.structured
        if response.is_error or not isinstance(answer, dict):
            raise ModelError(f"suggest_call failed: {response.text[:300]}")
        if not answer.get("model") and not answer.get("abstained"):
            raise ModelError(
                "No model answered: the Toolscout has none.",
                "Name one with --model (see `toolscout model list`), or an endpoint with --model-url; or use --gold.",
            )
        found = [] if answer.get("abstained") else answer.get("calls") or []
        made = Made(
            id=row.id,
            trial=trial,
            calls=[AnswerCall.model_validate({n: c.get(n) for n in AnswerCall.model_fields}) for c in found],
            reason=str(answer.get("reason") or ""),
            model=str(answer.get("model") or ""),
        )
        self._known[row.id] = made
        return made

    def header(self) -> JsonObject:
        """See `Source`."""
        return {"calls": "model", **self.about}


async def together(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; the first failure stops the rest, which go on at the next run."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def gather(
    rows: Sequence[ExecuteRow], source: Source, trials: int, work: Path, at_once: int, say: Say
) -> dict[tuple[str, int], Made]:
    """The calls of every trial, by row and trial; those that ``work`` has are not asked for again.

    Raises BadInput for a ``work`` file of another run.
    """
    header = source.header()
    done = _resume(work, header)
    gate, finished = asyncio.Semaphore(at_once), 0
    with open_work(work, header) as sink:

        async def one(row: ExecuteRow) -> None:
            nonlocal finished
            mark = sha256_hex(json.dumps([row.query, row.candidates, [g.to_json() for g in row.gold]]))[:16]
            async with gate:
                for trial in range(1, trials + 1):
                    kept = done.get((row.id, trial))
                    if kept is not None and kept.asked == mark:
                        continue
                    made = (await source.calls(row, trial)).model_copy(update={"asked": mark})
                    done[row.id, trial] = made
                    sink.write(made.to_json() + "\n")
                    sink.flush()
            finished += 1
            if isinstance(source, FromModel) and (finished in (1, 5) or finished % 10 == 0):
                say(f"calls for {finished} of {len(rows)} rows")

        await together(one(row) for row in rows)
    wanted = {(row.id, trial) for row in rows for trial in range(1, trials + 1)}
    return {place: made for place, made in done.items() if place in wanted}


def _resume(work: Path, header: JsonObject) -> dict[tuple[str, int], Made]:
    """Calls of an earlier run; of two for one trial the later. What a crash cut off is dropped."""
    lines = earlier(work, header, "another run (other calls, model or answers)")
    made = [Made.model_validate(line) for line in lines if "id" in line]
    return {(one.id, one.trial): one for one in made}
