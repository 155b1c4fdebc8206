"""Execute: a row's calls one after the other through ``invoke``, each at most once, with what came back.

A failed call ends its row: what depends on it cannot be made, and what does not would burden a server for a row that
is lost. Rows run side by side, but on one server only so many calls at once.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from typing import Any

from pydantic import BaseModel

from toolscout.causes import Cause, cause_of
from toolscout.index.acts import act_of
from toolscout.prompt import dumps
from toolscout.records import JsonObject, Tool
from toolscout.responses import INTERRUPTED, Response
from toolscout.schema import simplify_arguments
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.parsing import Unreadable, read_answer
from toolscout.synth.prompt_files import load_prompt
from toolscout.synth.trajectories.caller import Caller
from toolscout.synth.trajectories.executions import Executions, execution_key
from toolscout.synth.trajectories.references import READ, Reference, fitted, look_up, put_in, references, stands_in
from toolscout.synth.trajectories.run import Run, StepRun
from toolscout.synth.writer import IN_VAIN, NoAnswer

_UNANSWERED = "It was under way when an earlier run was stopped; it may have been carried out and is not made again."


class Value(BaseModel):
    """The form of a value that a model reads out of a result."""

    value: Any = None


class NoValue(Exception):
    """A reference that gives no value; ``reference`` is its text."""

    def __init__(self, reference: str) -> None:
        super().__init__(reference)
        self.reference = reference


class Execute:
    """From planned calls to executed ones. Failures are recorded with their cause; dropped, until a later run, is only
    where the model that reads results did not answer in time."""

    name = "execute"

    def __init__(self, bench: Bench, caller: Caller, executions: Executions) -> None:
        self.bench, self.caller, self.executions = bench, caller, executions
        self.prompt = load_prompt("trajectory_read")
        self._turns: defaultdict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(bench.settings.calls_a_server)
        )

    def decides(self) -> JsonObject:
        """See `Step`. A line that is made anew does not call anew: what was executed is in the store."""
        return {
            "prompt": self.prompt.fingerprint,
            "model": self.bench.first.model if self.bench.first else None,
            "characters": self.bench.settings.response_characters,
            "rules": 1,
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        run = Run.of(item)
        came: dict[str, Response] = {}
        failed = False
        for step in run.steps:
            if failed:
                step.skipped = True
                continue
            response = await self._step(item, step, came)
            failed = bool(step.cause)
            if response is not None:
                came[step.id] = response
                step.response = response.within(self.bench.settings.response_characters)
        return Outcome([run.into(item)])

    async def _step(self, item: Draft, step: StepRun, came: dict[str, Response]) -> Response | None:
        tool = self.bench.tools[step.tool_id]
        try:
            step.sent = await self._resolved(item, step, tool, came)
        except NoValue as none:
            step.cause, step.rule, step.evidence = Cause.REFERENCE, "no_value", none.reference
            return None
        writes = act_of(tool).writes
        response, step.seconds = await self._once(item, step, tool, writes)
        verdict = cause_of(response, step.sent, writes=writes)
        if verdict is not None:
            step.cause, step.rule, step.evidence = verdict.cause, verdict.rule, verdict.evidence
        return response

    async def _once(self, item: Draft, step: StepRun, tool: Tool, writes: bool) -> tuple[Response, float]:
        """The call's response and its seconds: from the store if it was made before, else now."""
        sent = step.sent or {}
        key = execution_key(item.id, step.id, tool, sent)
        was_sent, response, seconds = self.executions.state(key)
        if response is not None:
            return response, seconds
        if was_sent and writes:
            # Nobody knows whether it was carried out. Reading again does no harm; writing again may.
            response = Response(text=_UNANSWERED, is_error=True, lost=INTERRUPTED)
            self.executions.done(key, response, 0.0, Cause.SESSION)
            return response, 0.0
        async with self._turns[tool.server_id]:
            await self.caller.ready()
            self.executions.send(key, item.id, step.id, tool.tool_id, sent)
            started = time.perf_counter()
            response = await self.caller.call(tool.tool_id, sent)
            seconds = time.perf_counter() - started
        response = response.within(self.bench.settings.response_stored)
        verdict = cause_of(response, sent, writes=writes)
        self.executions.done(key, response, seconds, verdict.cause if verdict else "")
        return response, seconds

    async def _resolved(self, item: Draft, step: StepRun, tool: Tool, came: dict[str, Response]) -> JsonObject:
        """The arguments with every reference replaced. Raises NoValue."""
        steps = list(came)
        wanted = list(references(step.arguments, steps))
        if not wanted:
            return step.arguments
        nodes: JsonObject = simplify_arguments(tool.input_schema)["properties"]
        values: dict[str, Any] = {}
        for reference in wanted:
            if reference.text in values:
                continue
            found = look_up(came[reference.step], reference.path)
            if found is None:
                found = await self._read(item, step, reference, tool, came[reference.step]), READ
            values[reference.text], step.found[reference.text] = found

        def given(reference: Reference, name: str) -> Any:
            value = values[reference.text]
            # Inside a list or an object the parameter's own schema says nothing of the value.
            return fitted(value, nodes.get(name, {})) if step.arguments.get(name) == reference.text else value

        return put_in(step.arguments, given, steps)

    async def _read(self, item: Draft, step: StepRun, reference: Reference, tool: Tool, response: Response) -> Any:
        """A value that a model reads out of a result in prose, and that must stand there. Raises NoValue."""
        if self.bench.first is None:
            raise NoValue(reference.text)
        text = response.shown(self.bench.settings.response_characters)
        parameter = next((n for n, v in step.arguments.items() if any(references(v, [reference.step]))), "")

        def read(said: str) -> Any:
            value = read_answer(said, Value).value
            if value is not None and not stands_in(value, text):
                raise Unreadable("value: it does not stand in the result. Copy it, or give null.")
            return value

        messages = self.prompt.render(
            request=item.text,
            result=text,
            tool=self.bench.shown(tool.tool_id),
            parameter=f"{parameter}: {dumps(step.arguments.get(parameter))}",
            path=reference.text,
        )
        try:
            value = await self.bench.first.write(messages, read)
        except NoAnswer as none:
            if none.reason == IN_VAIN:
                raise  # a later run asks again, and makes no call twice for it
            raise NoValue(reference.text) from None
        if value is None:
            raise NoValue(reference.text)
        return value
