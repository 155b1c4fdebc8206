"""Installation from a call: the person behind it is asked, in either protocol era, and on a yes the server is added.

Era by era: a stateless client (2026-07-28) gets the question as an ``input_required`` result and calls again with the
answer; a client of the 2025 handshake is asked during the call. Nothing is remembered in between. The ``requestState``
that comes back with an answer says what was offered (`server.seal` and FastMCP hold it to this call and this client),
and the offer is made anew from the catalogue: if the two differ, the person is asked again. So nothing is installed but
what was shown.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from toolscout.errors import ToolscoutError, UpstreamError
from toolscout.records import JsonObject, Server, Tool
from toolscout.server.asking import Asking
from toolscout.server.config import UpstreamConfig
from toolscout.server.offer import KEY, Offer, accepted, approved_config, declined, make_offer

if TYPE_CHECKING:
    from toolscout.server.sandbox.policy import Default
    from toolscout.server.upstreams.link import Relayed

_PREFIX = "toolscout-install:"


class Installer:
    """Asks, checks answers, and installs each server once however many calls want it.

    ``add`` starts a server, lists it through the guard and writes its entry; ``count`` says how many tools of a server
    may be used; ``configured`` gives the servers that are configured now; ``values`` is what references stand for;
    ``sandbox`` is what holds for new ones.
    """

    def __init__(
        self,
        *,
        add: Callable[[UpstreamConfig], Coroutine[Any, Any, None]],
        count: Callable[[str], Awaitable[int]],
        configured: Callable[[], Mapping[str, UpstreamConfig]],
        values: Mapping[str, str],
        sandbox: Default = "off",
    ) -> None:
        self._add = add
        self._count = count
        self._configured = configured
        self._values = values
        self._sandbox = sandbox
        self._running: dict[str, asyncio.Task[None]] = {}

    async def offer(self, server: Server, tool: Tool) -> Offer | None:
        """What can be offered of a server that is not installed."""
        return make_offer(server, tool.name, await self._count(server.server_id), self._values, self._sandbox)

    async def ask(self, offer: Offer, tool: Tool, asking: Asking, relayed: Relayed) -> JsonObject | None:
        """Ask, and on a yes install. None when the server is installed and the call can go on; else the call's result.

        Raises CannotAsk, and ToolscoutError when it was approved and could not be installed.
        """
        if asking.during is not None:
            answer = await asking.during(offer.params())
        else:
            answer = answer_in(relayed)
            if answer is None:
                return _question(offer)
            if relayed.get("request_state") != _PREFIX + offer.digest:
                return _question(offer, "What would be installed is not what you were shown before.\n")
        if not accepted(answer):
            return refused(offer.server.server_id, tool.name, answer)
        await self._install(approved_config(offer, answer, self._configured()))
        return None

    async def settled(self, server_id: str) -> None:
        """Wait for an installation that is under way: its tools are not compared with the catalogue's yet."""
        if (running := self._running.get(server_id)) is not None:
            await asyncio.wait([running])

    async def close(self) -> None:
        """Break off what is being installed."""
        for task in list(self._running.values()):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _install(self, config: UpstreamConfig) -> None:
        running = self._running.get(config.name)
        if running is None:
            if config.name in self._configured():
                return  # another call has been answered first
            # A task of its own, in a clean context: a caller that gives up does not leave it half done.
            running = asyncio.create_task(self._add(config), context=contextvars.Context())
            self._running[config.name] = running
            running.add_done_callback(lambda task: self._ended(config.name, task))
        try:
            await asyncio.shield(running)
        except ToolscoutError as error:
            raise UpstreamError(
                f"'{config.name}' could not be installed, and nothing was changed: {error}", error.hint
            ) from None

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        self._running.pop(name, None)
        if not task.cancelled():
            task.exception()  # whoever waits gets it, and nobody may be waiting


def answer_in(relayed: Relayed) -> Any:
    """The answer to a question of ours that came with a call, None if there is none."""
    return (relayed.get("input_responses") or {}).get(KEY) if _is_ours(relayed) else None


def without_answer(relayed: Relayed) -> Relayed:
    """What is relayed to the upstream: our question and its answer are none of its business."""
    if not _is_ours(relayed):
        return relayed
    others = {k: v for k, v in (relayed.get("input_responses") or {}).items() if k != KEY}
    return {**relayed, "request_state": None, "input_responses": others or None}


def refused(server_id: str, tool_name: str, answer: object) -> JsonObject:
    """The call's result after a no, or after no answer."""
    return {"content": [{"type": "text", "text": declined(server_id, tool_name, answer)}], "isError": True}


def _is_ours(relayed: Relayed) -> bool:
    return (relayed.get("request_state") or "").startswith(_PREFIX)


def _question(offer: Offer, before: str = "") -> JsonObject:
    params = offer.params()
    params["message"] = before + params["message"]
    return {
        "resultType": "input_required",
        "inputRequests": {KEY: {"method": "elicitation/create", "params": params}},
        "requestState": _PREFIX + offer.digest,
    }
