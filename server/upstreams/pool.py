"""The upstream pool: all configured upstreams behind one ``call``, with a bounded number of idle processes."""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Unpack

from toolscout.errors import NotFound, UpstreamError
from toolscout.records import JsonObject, Server, Tool
from toolscout.server.config import UpstreamConfig
from toolscout.server.telling.telemetry import Telemetry
from toolscout.server.upstreams.owner import OWNER
from toolscout.server.upstreams.upstream import Admit, Upstream, UpstreamStatus
from toolscout.server.upstreams.watchdog import Watchdog
from toolscout.settings import Settings

if TYPE_CHECKING:
    from mcp_types import CallToolResult, InputRequiredResult

    from toolscout.server.upstreams.link import Relayed
    from toolscout.server.upstreams.process import UpstreamProcess

_SWEEP_SHARE = 0.25
"""The idle sweep runs this often per idle time."""


class UpstreamPool:
    """Upstreams by name: started on first use, shared by all callers, stopped when idle or when room is needed.

    ``load`` gives the present configuration, and is asked at each call: an upstream whose entry has changed is started
    anew as soon as nobody uses it. ``settings.max_upstreams`` counts processes that nobody uses; HTTP connections it
    does not. ``on_tools_changed(server_id)`` is called when an upstream says that its tools have changed;
    ``compare(server_id, tools)`` gets what it lists, in wire form, before the first call over each connection, again
    after each such change, and of a remote one after a while; what it raises the call raises. With ``logins`` a person
    may be sent to the browser to log in; else that raises LoginNeeded.
    """

    def __init__(
        self,
        settings: Settings,
        load: Callable[[], Mapping[str, UpstreamConfig]],
        *,
        on_tools_changed: Callable[[str], None] | None = None,
        compare: Callable[[str, list[JsonObject]], Awaitable[None]] | None = None,
        telemetry: Telemetry | None = None,
        logins: bool = False,
    ) -> None:
        self._logins = logins
        self._compare = compare
        self.marker = uuid.uuid4().hex
        self._settings = settings
        self._load = load
        self._told: Counter[str] = Counter()
        self._on_tools_changed = on_tools_changed or (lambda server_id: None)
        self._telemetry = telemetry or Telemetry()
        self._upstreams: dict[tuple[str, str], Upstream] = {}
        """By server and by the client whose state it holds (see ``OWNER``)."""
        self._spoke: dict[str, str] = {}
        """Whose upstream of a server changed last, by its own word or by its list: what it lists is what is new."""
        self._numbers = count(1)
        self._watchdog: Watchdog | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._closed = False

    async def call(
        self,
        server_id: str,
        tool_name: str,
        arguments: JsonObject,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        **relayed: Unpack[Relayed],
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool. Raises UpstreamError, NotFound (no such upstream) or NotAllowed (a secret is missing).

        A call is repeated by itself only when nothing of it had reached the upstream. Cancelling the caller's task
        cancels the call at the upstream.
        """
        raw = await self.call_raw(server_id, tool_name, arguments, timeout=timeout, **relayed)
        return as_result(server_id, tool_name, raw)

    async def call_raw(
        self,
        server_id: str,
        tool_name: str,
        arguments: JsonObject,
        *,
        timeout: float | None = None,  # noqa: ASYNC109
        admit: Admit | None = None,
        **relayed: Unpack[Relayed],
    ) -> JsonObject:
        """As :meth:`call`, but the result as it came over the wire: nothing is parsed twice.

        ``admit`` is asked when the upstream lives and has been compared, before anything is sent: what it raises the
        call raises.
        """
        return await self._upstream(server_id, OWNER.get()).call(
            tool_name, arguments, timeout=timeout, admit=admit, **relayed
        )

    async def list_tools(
        self, server_id: str, *, fresh: bool = False, patience: float = 0.0
    ) -> tuple[Server, list[Tool]]:
        """The upstream's server record and tools; ``fresh`` asks it even when the cached list should hold.

        ``patience``: seconds that it may take to start, where that is more than what the settings allow.
        """
        from toolscout.server.upstreams.listing import read_listing

        speaker = self._spoke.get(server_id, "")
        upstream = self._upstream(server_id, speaker if (server_id, speaker) in self._upstreams else "")
        upstream.patience = patience
        try:
            return await read_listing(upstream, fresh=fresh)
        finally:
            upstream.patience = 0.0

    def configured(self, server_id: str) -> bool:
        """Whether the present configuration has an upstream of that name."""
        return self.config(server_id) is not None

    def config(self, server_id: str) -> UpstreamConfig | None:
        """What the present configuration says of an upstream; one that lives may have been started by an older."""
        return self._load().get(server_id)

    def status(self) -> list[UpstreamStatus]:
        """All upstreams used so far, by name."""
        return [self._upstreams[key].status() for key in sorted(self._upstreams)]

    def life(self, server_id: str) -> tuple[int, str]:
        """Which start the process of an upstream comes from, and why the one before has ended; 0 for no process."""
        upstream = self._upstreams.get((server_id, OWNER.get())) or self._upstreams.get((server_id, ""))
        return (upstream.life, upstream.ended) if upstream is not None and upstream.is_process else (0, "")

    def told(self, server_id: str) -> int:
        """How often an upstream has said that its tools have changed."""
        return self._told[server_id]

    async def stop(self, server_id: str) -> None:
        """Stop one upstream now (its configuration has changed or gone). Nothing happens if it does not run."""
        gone = [self._upstreams.pop(key) for key in list(self._upstreams) if key[0] == server_id]
        await asyncio.gather(*(upstream.stop() for upstream in gone))

    async def close(self) -> None:
        """Stop everything; no process survives. The pool can't be used afterwards."""
        self._closed = True
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.wait([self._sweeper])
        await asyncio.gather(*(u.stop() for u in self._upstreams.values()), return_exceptions=True)
        if self._watchdog is not None:
            await asyncio.to_thread(self._watchdog.close)

    async def __aenter__(self) -> UpstreamPool:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    def _upstream(self, server_id: str, owner: str = "") -> Upstream:
        if self._closed:
            raise UpstreamError("Toolscout is shutting down.")
        upstream = self._upstreams.get((server_id, owner))
        if upstream is not None:
            return upstream
        if (config := self._load().get(server_id)) is not None and owner and config.shared:
            return self._upstream(server_id)
        if config is None:
            raise NotFound(f"No server named '{server_id}' is configured.", hint="Add it with 'toolscout add'.")
        upstream = self._upstreams[server_id, owner] = Upstream(
            server_id,
            self._settings,
            self._load,
            marker=lambda: f"{self.marker}/{next(self._numbers)}",
            before_process=self._guard,
            became_idle=self._make_room,
            on_process=self._on_process,
            on_end=self._on_end,
            on_tools_changed=partial(self._changed, owner),
            compare=partial(self._compared, owner) if self._compare is not None else None,
            telemetry=self._telemetry,
            logins=self._logins,
        )
        if self._sweeper is None:
            self._sweeper = asyncio.create_task(self._sweep())
        return upstream

    def _changed(self, owner: str, server_id: str) -> None:
        self._spoke[server_id] = owner
        self._told[server_id] += 1
        self._on_tools_changed(server_id)

    async def _compared(self, owner: str, server_id: str, tools: list[JsonObject]) -> None:
        assert self._compare is not None
        OWNER.set(owner)  # all who wait share one comparison, in a context of its own
        await self._compare(server_id, tools)

    def heed(self, server_id: str) -> None:
        """From now on what the calling client's upstream of a server lists is what is new, whatever others list."""
        self._spoke[server_id] = OWNER.get()

    # when they end

    def _make_room(self) -> None:
        """Stop what was not used the longest of the idle processes beyond the cap; those that hold a state go last."""
        idle = [u for u in self._upstreams.values() if u.idle and u.is_process and u.keep_alive != math.inf]
        beyond = len(idle) - max(1, self._settings.max_upstreams)
        if beyond > 0:
            for upstream in sorted(idle, key=lambda u: (u.stateful, u.last_used))[:beyond]:
                upstream.retire("it was stopped to make room for others")

    async def _sweep(self) -> None:
        """Stop what nobody has used for long enough, whose entry has changed, and what a person wants started anew."""
        while True:
            await asyncio.sleep(min(15.0, max(0.02, self._settings.upstream_idle * _SWEEP_SHARE)))
            now = time.monotonic()
            for key, upstream in list(self._upstreams.items()):
                if (why := upstream.stale()) or (why := upstream.unused(now)):
                    upstream.retire(why)
                elif key[1] and upstream.gone and now - upstream.last_used >= upstream.keep_alive:
                    del self._upstreams[key]  # its client may never come back

    # processes

    def _guard(self) -> None:
        """The watchdog has to be there before the first process that it shall watch."""
        if self._watchdog is None:
            self._watchdog = Watchdog(self.marker)

    def _on_process(self, process: UpstreamProcess) -> None:
        if self._watchdog is not None:
            self._watchdog.add(process.pid)

    def _on_end(self, process: UpstreamProcess) -> None:
        if self._watchdog is not None:
            self._watchdog.remove(process.pid)


def as_result(server_id: str, tool_name: str, raw: JsonObject) -> CallToolResult | InputRequiredResult:
    """A wire result as the SDK's model. Raises UpstreamError when it is none."""
    return _read(server_id, tool_name, raw)[1]


def checked(server_id: str, tool_name: str, raw: JsonObject) -> JsonObject:
    """A wire result as it may be passed on: as it came, but for blocks that no client could read. Raises UpstreamError
    when it is none."""
    return _read(server_id, tool_name, raw)[0]


def _read(server_id: str, tool_name: str, raw: JsonObject) -> tuple[JsonObject, CallToolResult | InputRequiredResult]:
    from mcp_types import CallToolResult, InputRequiredResult
    from pydantic import ValidationError

    from toolscout.server.upstreams.blocks import mended

    asks = raw.get("resultType") == "input_required"
    raw = complete(raw)
    model = InputRequiredResult if asks else CallToolResult
    try:
        try:
            return raw, model.model_validate(raw, by_name=False)
        except ValidationError:
            raw = raw if asks else mended(raw)
            return raw, model.model_validate(raw, by_name=False)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise UpstreamError(
            f"'{server_id}' answered '{tool_name}' with something that is no tool result ({where}: {first['msg']})."
        ) from None


def complete(raw: JsonObject) -> JsonObject:
    """A structured result always with ``content``: some servers leave the empty list out."""
    if "content" not in raw and "structuredContent" in raw:
        return {**raw, "content": []}
    return raw
