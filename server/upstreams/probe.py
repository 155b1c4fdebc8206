"""Probes: before a server's tools are offered, one of its reading tools is called once, to see that it answers.

RAG-MCP's validation of candidates (arXiv 2505.03275, step 2), off unless ``probe_offers`` is set. Called are only tools
that read (`toolscout.index.acts`), of servers that are configured here, with arguments of a worked example, else made
from the schema. Such arguments may be wrong, so only what is no fault of theirs counts against a server: no start, no
answer, a refused key, an API that is down. A search waits for its probes at most ``probe_timeout``; one that takes
longer goes on by itself and counts next time. Verdicts are kept in ``probes.json`` of the home: good ones for
``probe_age``, others for an hour at most, since servers recover.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError

from toolscout.causes import Cause, cause_of
from toolscout.errors import StorageError, ToolscoutError
from toolscout.files import replace_file
from toolscout.index.acts import act_of
from toolscout.index.search import Answer
from toolscout.records import JsonObject, Record, Tool, sha256_hex
from toolscout.responses import Response, response_of
from toolscout.schema import simplify_arguments
from toolscout.validation import validate

if TYPE_CHECKING:
    from toolscout.settings import Settings

logger = logging.getLogger(__name__)

FILE = "probes.json"
_BAD_SECONDS = 3600.0
_AT_ONCE = 4

_TELLING = frozenset(
    {
        *("unauthorized", "quota", "http_timeout", "network", "server_error"),
        *("timeout", "start_timeout", "no_start", "crashed", "left_alone", "no_tool_result"),
        *("no_answer_in_time", "connection_lost", "protocol_error", "needs_key", "unavailable"),
    }
)
"""Rules of `toolscout.causes` that say that the server is at fault, whatever it was asked."""

_FORMATS: dict[str, str] = {
    "date": "2025-01-31", "date-time": "2025-01-31T12:00:00Z", "time": "12:00:00Z", "email": "someone@example.com",
    "uri": "https://example.com/", "url": "https://example.com/", "hostname": "example.com", "ipv4": "192.0.2.1",
    "uuid": "00000000-0000-4000-8000-000000000000",
}  # fmt: skip


class Probe(Record):
    """One tool as it was tried. ``mark`` is of its definition, ``at`` in seconds since 1970; ``unsure``: it answered
    with an error that our arguments may be to blame for, or nothing could be tried."""

    mark: str
    at: float
    outcome: Literal["good", "bad", "unsure"]
    cause: str = ""
    rule: str = ""
    seconds: float = 0.0


@dataclass
class Withheld(Answer):
    """An answer from which every tool was left out, because the servers did not answer."""


class Probes(Record):
    """The file: what was tried, by tool id, and how many tools were offered and withheld since it is there."""

    offered: int = 0
    withheld: int = 0
    probes: dict[str, Probe] = Field(default_factory=dict)


Invoke = Callable[[str, JsonObject, float], Awaitable[Any]]
"""``await invoke(tool_id, arguments, timeout)``: a result of MCP. Raises ToolscoutError."""

ToolsOf = Callable[[str], Awaitable[Sequence[Tool]]]
"""``await tools_of(server_id)``: its approved tools."""

Example = Callable[[str], Awaitable[JsonObject | None]]
"""``await example(tool_id)``: arguments of a worked example of a tool, if there is one."""


class Prober:
    """Tries servers before they are offered. Belongs to one event loop."""

    def __init__(
        self,
        settings: Settings,
        invoke: Invoke,
        tools_of: ToolsOf,
        example: Example,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        self.path = settings.home / FILE
        self._invoke, self._tools_of, self._example, self._clock = invoke, tools_of, example, clock
        self._known = read_probes(self.path)
        self._under_way: dict[str, asyncio.Task[Probe]] = {}
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def sift(self, answer: Answer, callable_now: frozenset[str]) -> Answer:
        """The answer without tools of servers that do not answer; `Withheld` if none is left.

        :param callable_now: ids of the servers that are configured: no other one is started for a probe.
        """
        chosen = {
            server_id: tool
            for server_id in dict.fromkeys(hit.server_id for hit in answer.hits)
            if server_id in callable_now
            and (tool := await self._tool_for(server_id, [h.tool for h in answer.hits if h.server_id == server_id]))
        }
        tasks = {server_id: self._start(tool) for server_id, tool in chosen.items() if self._verdict(tool) is None}
        if tasks:
            await asyncio.wait(tasks.values(), timeout=self.settings.probe_timeout)
        bad = {
            server_id
            for server_id, tool in chosen.items()
            if (verdict := self._verdict(tool)) is not None and verdict.outcome == "bad"
        }
        kept = [hit for hit in answer.hits if hit.server_id not in bad]
        self._known.offered += len(kept)
        self._known.withheld += len(answer.hits) - len(kept)
        if tasks or bad:
            await self._save()
        if len(kept) == len(answer.hits):
            return answer
        if kept:
            served = {number for hit in kept for number in hit.requests if number}
            lost = {number for hit in answer.hits for number in hit.requests if number} - served
            return replace(answer, hits=kept, unserved=sorted({*answer.unserved, *lost}))
        return Withheld([], True, answer.probability, answer.hits[:3], answer.took_ms)

    async def close(self) -> None:
        """Stop what is under way."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _tool_for(self, server_id: str, hits: Sequence[Tool]) -> Tool | None:
        """What is called of a server: a hit that reads, else the reading tool that takes least; None if none reads."""
        reading = [tool for tool in hits if not act_of(tool).writes]
        if not reading:
            reading = [tool for tool in await self._tools_of(server_id) if not act_of(tool).writes]
            reading.sort(key=lambda t: (len(simplify_arguments(t.input_schema)["required"]), t.tool_id))
        return reading[0] if reading else None

    def _verdict(self, tool: Tool) -> Probe | None:
        """What is known of a tool, if it is not too old and the tool is still the same."""
        probe = self._known.probes.get(tool.tool_id)
        if probe is None or probe.mark != _mark(tool):
            return None
        age = self.settings.probe_age if probe.outcome == "good" else min(self.settings.probe_age, _BAD_SECONDS)
        return probe if 0 <= self._clock() - probe.at < age else None

    def _start(self, tool: Tool) -> asyncio.Task[Probe]:
        """The probe of a tool, one at a time however many searches wait for it."""
        task = self._under_way.get(tool.tool_id)
        if task is None:
            task = self._under_way[tool.tool_id] = asyncio.create_task(self._try(tool))
            task.add_done_callback(lambda _: self._under_way.pop(tool.tool_id, None))
        return task

    async def _try(self, tool: Tool) -> Probe:
        async with self._places:
            started = time.perf_counter()
            arguments = probe_arguments(tool, await self._example(tool.tool_id))
            probe = Probe(mark=_mark(tool), at=self._clock(), outcome="unsure")
            if arguments is not None:
                response = await self._called(tool, arguments)
                probe = _judged(probe, response, arguments)
            probe.seconds = round(time.perf_counter() - started, 3)
        self._known.probes[tool.tool_id] = probe
        if probe.outcome == "bad":
            logger.warning(
                "%s is not offered: a probe of it ended in %s (%s).", tool.server_id, probe.cause, probe.rule
            )
        return probe

    async def _called(self, tool: Tool, arguments: JsonObject) -> Response:
        try:
            return response_of(await self._invoke(tool.tool_id, arguments, self.settings.probe_timeout))
        except ToolscoutError as error:
            return Response(text=error.sentence(), is_error=True)
        except Exception as error:
            return Response(text=f"{type(error).__name__}: {error}", is_error=True)

    async def _save(self) -> None:
        text = self._known.to_json() + "\n"
        try:
            await asyncio.to_thread(replace_file, self.path, text)
        except StorageError as error:
            logger.warning("%s Probes are not kept.", error)


def read_probes(path: Path) -> Probes:
    """What was tried before; nothing if there is no file, or none that can be read."""
    try:
        return Probes.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return Probes()


def probe_counts(path: Path) -> JsonObject | None:
    """For reports: tools tried by outcome and cause, and how many were offered and withheld; None without a file."""
    if not path.is_file():
        return None
    found = read_probes(path)
    outcomes = [probe.outcome for probe in found.probes.values()]
    causes = [probe.cause for probe in found.probes.values() if probe.outcome == "bad"]
    return {
        "tried": len(outcomes),
        **{kind: outcomes.count(kind) for kind in ("good", "bad", "unsure")},
        "by_cause": {cause: causes.count(cause) for cause in sorted(set(causes))},
        "offered": found.offered,
        "withheld": found.withheld,
    }


def probe_arguments(tool: Tool, example: JsonObject | None = None) -> JsonObject | None:
    """Arguments to try a tool with: the worked example's if they validate, else the least that the schema allows; None
    where none can be made."""
    if example is not None and not validate(example, tool.input_schema):
        return example
    schema = simplify_arguments(tool.input_schema)
    made = {name: _value(schema["properties"].get(name, {})) for name in schema["required"]}
    return None if validate(made, tool.input_schema) else made


def _value(node: Mapping[str, Any], depth: int = 3) -> Any:
    for key in ("default", "const"):
        if node.get(key) is not None:
            return node[key]
    for key in ("enum", "examples"):
        if isinstance(node.get(key), list) and node[key]:
            return node[key][0]
    if node.get("anyOf"):
        return _value(node["anyOf"][0], depth)
    kind = node.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind in ("integer", "number"):
        low = node.get("minimum", node.get("exclusiveMinimum", 0))
        return max(1, int(low) + 1) if isinstance(low, int | float) else 1
    if kind == "boolean":
        return False
    if kind == "array":
        items = node.get("items")
        return [_value(items if isinstance(items, dict) else {}, depth - 1)] * int(node.get("minItems") or 0)
    if kind == "object":
        inner = node.get("properties") or {}
        return {name: _value(inner.get(name, {}), depth - 1) for name in node.get("required") or ()} if depth else {}
    text = _FORMATS.get(str(node.get("format")), "test")
    return text.ljust(int(node.get("minLength") or 0), "x")


def _judged(probe: Probe, response: Response, arguments: JsonObject) -> Probe:
    verdict = cause_of(response, arguments)
    if verdict is None or verdict.cause is Cause.EMPTY:
        return probe.model_copy(update={"outcome": "good"})
    outcome = "bad" if verdict.rule in _TELLING and verdict.cause is not Cause.PARAMETER else "unsure"
    return probe.model_copy(update={"outcome": outcome, "cause": verdict.cause.value, "rule": verdict.rule})


def _mark(tool: Tool) -> str:
    return sha256_hex(json.dumps([tool.fingerprint or tool.computed_fingerprint()]))[:12]
