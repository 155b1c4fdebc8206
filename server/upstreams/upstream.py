"""The life of one configured upstream: started on first use, shared, restarted after a crash, stopped when idle."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import json
import re
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import urlsplit

from toolscout.errors import BadInput, NotAllowed, NotFound, ToolscoutError, UpstreamError
from toolscout.records import JsonObject, Transport
from toolscout.secret_store import known_values, open_store
from toolscout.server.config import UpstreamConfig
from toolscout.server.sandbox.hint import start_hint
from toolscout.server.secrecy.hiding import Hider
from toolscout.server.secrecy.secrets import MissingSecret, Resolver, bare_names
from toolscout.server.telling.telemetry import Telemetry, current_call, span
from toolscout.server.upstreams.answer import Answer
from toolscout.server.upstreams.comparison import Compare, Comparison, Listing
from toolscout.server.upstreams.environment import proxy_for
from toolscout.server.upstreams.errors import (
    Crashed,
    NeedsKey,
    Refused,
    Unauthorized,
    closed,
    leaf,
    reason,
    seen,
    too_large,
    unreached,
    unreadable,
    with_texts,
)
from toolscout.server.upstreams.folder import forget_failure, log_file, note_failure, restart_file, stamp
from toolscout.server.upstreams.log import ServerLog
from toolscout.server.upstreams.notices import Notices
from toolscout.server.upstreams.said import gist, missing_value, older_sdk
from toolscout.server.upstreams.stateful import STATEFUL_TIMES, keeps_state
from toolscout.settings import Settings

if TYPE_CHECKING:
    from mcp.shared.exceptions import MCPError

    from toolscout.server.upstreams.link import Link, Relayed
    from toolscout.server.upstreams.process import UpstreamProcess

_LONGEST_BACKOFF = 60.0
_NO_SUCH_METHOD = frozenset({400, 404, 405, 406, 415, 501})
"""Statuses of an address that takes no POST, as those of SSE do."""
_OLDER_SECONDS = 10.0
_OTHERS_SECONDS = 2.0
"""So long are other calls over a session that is given up waited for: its end cuts them off."""
_LIVES = count(1)
_ERROR_CHARACTERS = 2000
_TERMINAL_HINT = (
    "Try its command in a terminal. If it runs there, it may want a variable of your shell: toolscout set {name} "
    "--env VARIABLE, or TOOLSCOUT_PASS_ENV (docs/UPSTREAMS.md says which ones it gets)."
)
_NO_VARIABLE = re.compile(
    r"ModuleNotFoundError|ImportError|Cannot find (?:module|package)|ENOTFOUND|EAI_AGAIN|dns error"
)
"""What a server says that no variable would help."""

Admit = Callable[[], Awaitable[None]]
"""Says whether a call may be made, by raising where it may not."""


@dataclass(frozen=True)
class UpstreamStatus:
    """What is known of one upstream now. Times in seconds; ``state`` is stopped, starting, live or backing_off."""

    server_id: str
    state: str
    transport: Transport
    pid: int | None = None
    era: str | None = None
    protocol_version: str | None = None
    in_flight: int = 0
    calls: int = 0
    failed_calls: int = 0
    starts: int = 0
    failures: int = 0
    retry_in: float | None = None
    idle: float | None = None
    uptime: float | None = None
    last_error: str | None = None
    stderr: str = field(default="", repr=False)


class Upstream:
    """One upstream and at most one live process or connection of it.

    The connection lives in a task of its own (the *keeper*), because the SDK's sessions must be entered and left in
    one task; calls come from any task. ``before_process`` is called before a process starts; ``became_idle`` tells the
    pool that this one could be stopped.
    """

    def __init__(
        self,
        server_id: str,
        settings: Settings,
        load: Callable[[], Mapping[str, UpstreamConfig]],
        *,
        marker: Callable[[], str],
        before_process: Callable[[], None],
        became_idle: Callable[[], None],
        on_process: Callable[[UpstreamProcess], None],
        on_end: Callable[[UpstreamProcess], None],
        on_tools_changed: Callable[[str], None],
        compare: Compare | None,
        telemetry: Telemetry,
        logins: bool = False,
    ) -> None:
        self._logins = logins
        self.server_id = server_id
        self.link: Link | None = None
        self.in_flight = 0
        self.last_used = time.monotonic()
        self.patience = 0.0
        """Seconds that the next start may take, where that is more than the settings allow."""
        self.life = 0
        """Which start the connection comes from, counted over all upstreams; 0 before the first."""
        self.ended = ""
        """Why the last one has ended, as a clause; empty where none has."""
        self.stateful = False
        self._settings = settings
        self._load = load
        self._marker = marker
        self._before_process = before_process
        self._became_idle = became_idle
        self._on_process = on_process
        self._on_end = on_end
        self._on_tools_changed = on_tools_changed
        self._telemetry = telemetry
        self._turn = asyncio.Semaphore(settings.upstream_concurrency)
        self._starting: asyncio.Task[Link] | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._process: UpstreamProcess | None = None
        self._answer = Answer()
        self._hider = Hider()
        self._transport = Transport.STDIO
        self._timeout: float | None = None
        self._start_timeout: float | None = None
        self._address = ("", 0)
        self._configured: UpstreamConfig | None = None
        self._restart_file = restart_file(settings.home, server_id)
        self._restart = stamp(self._restart_file)
        self._proxy = ""
        self._legacy = self._serves_events = False
        self._started_at = 0.0
        self._finished = False
        self._answered = False
        self._counted: Link | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._calls = self._failed_calls = self._starts = 0
        self._last_error: str | None = None
        self._tools: list[JsonObject] | None = None
        self._listing: asyncio.Task[list[JsonObject]] | None = None
        self._notices = Notices()
        self._listing_told = self._tools_told = -1
        self._comparison = Comparison(server_id, self._list_to_compare, compare)

    # calling

    async def call(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        timeout: float | None,  # noqa: ASYNC109
        admit: Admit | None = None,
        **relayed: Unpack[Relayed],
    ) -> JsonObject:
        """One ``tools/call``; the result in wire form. Raises UpstreamError, NotFound or NotAllowed.

        ``timeout``: seconds in all. Without it the configured time holds, which each report of progress begins anew.
        ``admit``: asked before anything is sent, when the tools are known to be compared.
        """
        self.in_flight += 1
        self._calls += 1
        began, outcome = time.perf_counter(), ""
        try:
            link = await self._enter_compared(admit, timeout)
            seconds = timeout or self._timeout or self._settings.upstream_call_timeout
            waited = self._turn.locked()
            if waited:
                await self._wait_turn(seconds)
            else:
                await self._turn.acquire()
            try:
                if waited:
                    link = await self._enter_compared(admit, timeout)  # much may have been said meanwhile
                for attempt in (0, 1):
                    try:
                        result = await self._over(link, tool, arguments, seconds, timeout is None, relayed)
                        self._answered = True
                        self._failures = 0
                        outcome = "tool_error" if result.get("isError") else ""
                        return result
                    except Exception as error:
                        failure = await self._explain(error, link, f"'{tool}'", seconds, again=bool(attempt))
                        if attempt or not isinstance(failure, Crashed) or failure.sent:
                            raise failure from None
                        link = await self._enter_compared(admit, timeout)  # nothing of the call had reached it
                raise AssertionError("unreachable")
            finally:
                self._turn.release()
        except BaseException as error:
            outcome = str(getattr(error, "kind", "cancelled"))
            self._failed_calls += isinstance(error, Exception)
            raise
        finally:
            self._leave()
            self._telemetry.upstream_call(self.server_id, outcome, time.perf_counter() - began)

    async def _over(
        self,
        link: Link,
        tool: str,
        arguments: JsonObject,
        seconds: float,
        patient: bool,
        relayed: Relayed,
    ) -> JsonObject:
        """The call over one connection, in a span of its own; the trace goes on at the upstream."""
        call = partial(link.call, tool, arguments, timeout=seconds, patient=patient)
        current = current_call()
        if current is None:
            return await call(**relayed)
        if current.telemetry.tracing is None:
            return await call(**traced(relayed, current.carrier))
        with current.span(f"tools/call {tool}", client=True, attributes=self._span_attributes(link, tool)) as opened:
            result = await call(**traced(relayed, current.outgoing()))
            if result.get("isError"):
                opened.set_attribute("error.type", "tool_error")
            return result

    def _span_attributes(self, link: Link, tool: str) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool,
            "mcp.protocol.version": str(link.session.protocol_version),
            "network.transport": "pipe" if link.process is not None else "tcp",
            "toolscout.upstream": self.server_id,
        }
        if link.process is None:
            attributes["network.protocol.name"] = "http"
            attributes["server.address"], attributes["server.port"] = self._address
        return attributes

    async def list_tools(self, *, fresh: bool = False) -> list[JsonObject]:
        """The upstream's tools in wire form; cached while it lives and says nothing of changes."""
        self.in_flight += 1
        try:
            link = await self._enter()
            if self._tools is not None and not fresh:
                return self._tools
            # One that began before the last change is not joined: it may hold what was before.
            if self._listing is None or self._listing.done() or self._listing_told != self._notices.told:
                self._listing_told = self._notices.told
                self._listing = asyncio.create_task(self._list(link), context=contextvars.Context())
                self._listing.add_done_callback(seen)
            return await asyncio.shield(self._listing)
        finally:
            self._leave()

    async def _list(self, link: Link) -> list[JsonObject]:
        seconds = self._start_timeout or self._settings.upstream_start_timeout
        for attempt in (0, 1):
            try:
                async with asyncio.timeout(seconds):
                    told = self._notices.told
                    tools = await self._notices.listed(link.list_tools)
                    if not tools and link.tells_of_changes and await self._notices.late(seconds, link.closed):
                        told = self._notices.told
                        tools = await self._notices.listed(link.list_tools)
                    tools = [self._without_secrets(tool) for tool in tools]
                self._answered = True
                if link is self.link and told == self._notices.told:
                    self._tools, self._tools_told = tools, told
                return tools
            except Exception as error:
                failure = await self._explain(error, link, "tools/list", seconds, again=bool(attempt))
                if attempt or not isinstance(failure, Crashed):
                    raise failure from None
                link = await self._enter()  # listing has no effects: it may always be repeated
        raise AssertionError("unreachable")

    async def _enter_compared(self, admit: Admit | None, timeout: float | None) -> Link:  # noqa: ASYNC109
        """The live connection, compared, and the call admitted. Raises what stands against it."""
        try:
            link = await self._comparison.enter(self._enter, self._notices, timeout)
        except UpstreamError as error:
            if error.kind == "upstream_unsettled":
                self._failed(error)
            raise
        if admit is not None:
            await admit()
        return link

    async def _list_to_compare(self, fresh: bool) -> Listing:
        tools = await self.list_tools(fresh=fresh)
        return Listing(tools, self.link, self._tools_told, lambda: self._tools is tools)

    def describe(self) -> tuple[UpstreamConfig | None, Link | None]:
        """Configuration and live connection, for the listing's server record."""
        return self._load().get(self.server_id), self.link

    def _leave(self) -> None:
        self.in_flight -= 1
        self.last_used = time.monotonic()
        if not self.in_flight:
            self._became_idle()

    async def _wait_turn(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._turn.acquire()
        except TimeoutError:
            raise UpstreamError(
                f"'{self.server_id}' is busy: the call waited {seconds:g} s for its turn.",
                hint="Try again later.",
                kind="upstream_busy",
            ) from None

    # living

    async def _enter(self) -> Link:
        """The live connection, started if there is none. Many callers share one start."""
        link = self.link
        if link is not None and not link.closed.is_set():
            if not (why := self.stale(but=1)):
                return link
            self.retire(why)
        if self._finished:
            raise self._stopped_error()
        if self._starting is None:
            remaining = self._retry_at - time.monotonic()
            if remaining > 0 and not self._changed():
                raise UpstreamError(
                    f"'{self.server_id}' failed {self._failures} times in a row and is left alone for another"
                    f" {remaining:.1f} s. Last: {self._last_error}",
                    hint=f"It will be started again by the first call after that ({_clock(remaining)}).",
                    kind="upstream_backing_off",
                )
            # A clean context: the first caller's request must not cling to a connection that all share.
            self._starting = asyncio.create_task(self._start(), context=contextvars.Context())
            self._starting.add_done_callback(self._started)
        starting = self._starting
        try:
            with span("upstream start", attributes={"toolscout.upstream": self.server_id}):
                return await asyncio.shield(starting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if starting.cancelled() and task is not None and not task.cancelling():
                raise self._stopped_error() from None  # the start was called off, not this caller
            raise

    def _stopped_error(self) -> UpstreamError:
        return UpstreamError(f"'{self.server_id}' was stopped meanwhile.", hint="Call again if it is still wanted.")

    def _started(self, task: asyncio.Task[Link]) -> None:
        self._starting = None
        seen(task)
        error = None if task.cancelled() else task.exception()
        if not task.cancelled() and error is None:
            forget_failure(self._settings.home, self.server_id)
        elif isinstance(error, ToolscoutError) and not isinstance(error, MissingSecret) and self._configured:
            note_failure(self._settings.home, self._configured, error)
        if not self.in_flight:
            self._became_idle()

    async def _start(self) -> Link:
        if self._keeper is not None:
            await asyncio.wait([self._keeper])  # the old one has to be gone first
        configured = self._load().get(self.server_id)
        if configured is None:
            raise NotFound(f"No server named '{self.server_id}' is configured.", hint="Add it with 'toolscout add'.")
        if configured.disabled:
            raise NotAllowed(f"The server '{self.server_id}' is switched off in the configuration.")
        self._configured, self._restart = configured, stamp(self._restart_file)
        self.stateful = keeps_state(configured)
        resolver = Resolver(known_values(self._settings), open_store(self._settings).find)
        config = configured.resolved(resolver)
        self._hider, self._transport, self._timeout = Hider(resolver.secrets), config.transport, config.timeout
        self._start_timeout = config.start_timeout
        self._address = _address(config)
        self._proxy = proxy_for(config.url) if config.url else ""
        if self.is_process:
            self._before_process()
        return await self._connect(config)

    async def _connect(self, config: UpstreamConfig) -> Link:
        limit = max(config.start_timeout or self._settings.upstream_start_timeout, self.patience)
        if (config.auth == "oauth" and self._logins) or self._installs(config):
            limit = max(limit, 300.0)
        began = time.monotonic()
        older = replace(config, transport=Transport.SSE)
        tries = [(config, legacy) for legacy in dict.fromkeys((self._legacy, True))]
        if self._serves_events and config.guessed:
            tries = [(older, True)]
        failure: Exception | None = None
        while tries:
            config, legacy = tries.pop(0)
            ready: asyncio.Future[Link] = asyncio.get_running_loop().create_future()
            self._stop = asyncio.Event()
            self._process = None
            self._answer = Answer()
            self._notices.begin()
            self._starts += 1
            keeper = self._keeper = asyncio.create_task(self._keep(config, legacy, ready))
            keeper.add_done_callback(seen)
            both: list[asyncio.Future[Any]] = [ready, keeper]
            try:
                done, _ = await asyncio.wait(both, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                keeper.cancel()
                await asyncio.wait([keeper])
                raise
            if ready in done and ready.exception() is None:
                link = ready.result()
                self.link, self._legacy = link, link.era == "legacy"
                self._serves_events = config.transport is Transport.SSE
                self._transport = config.transport
                self._started_at, self._answered, self._tools = time.monotonic(), False, None
                self.life = next(_LIVES)
                keeper.add_done_callback(partial(self._ended, link))
                self._telemetry.upstream_started(self.server_id, "", time.monotonic() - began)
                return link
            if not done:
                self._stop.set()
                keeper.cancel()
                await asyncio.wait([keeper])
                failure = failure or self._too_slow(limit)
                break
            await asyncio.wait([keeper])
            error = ready.exception() if ready.done() else keeper.exception() if not keeper.cancelled() else None
            failure = failure or self._start_failure(error)
            if config.guessed and config.transport is Transport.HTTP and self._answer.status in _NO_SUCH_METHOD:
                # Nothing takes a POST there. The protocol's older transport is found by a GET; else the first error is.
                tries, limit = [(older, True)], min(limit, _OLDER_SECONDS)
            elif not self._left(error) or time.monotonic() - began > limit:
                break
            else:
                failure = None if tries else failure
            # Some servers of the older era leave when their first message is not the handshake: once more, with it.
        assert failure is not None
        if not isinstance(failure, ToolscoutError):
            failure = UpstreamError(str(failure))
        self._failed(failure)
        self._telemetry.upstream_started(self.server_id, failure.kind, time.monotonic() - began)
        raise failure

    def _too_slow(self, limit: float) -> UpstreamError:
        return UpstreamError(
            f"'{self.server_id}' did not start within {limit:g} s.{self._said()}",
            hint='If it only needs longer (a first download, say), give it more: "startTimeout" in its entry in'
            f" mcp.json, in milliseconds, or for all TOOLSCOUT_UPSTREAM_START_TIMEOUT={4 * limit:g} (seconds).",
            kind="upstream_start_timeout",
        )

    def _installs(self, config: UpstreamConfig) -> bool:
        if config.policy(self._settings.sandbox) is None:
            return False
        from toolscout.server.sandbox.package import missing

        return missing(config, self._settings.home)

    async def _keep(self, config: UpstreamConfig, legacy: bool, ready: asyncio.Future[Link]) -> None:
        """Hold the connection from its start to its end, in this one task."""
        from toolscout.server.upstreams.link import open_link

        link: Link | None = None
        try:
            async with open_link(
                config,
                policy=config.policy(self._settings.sandbox),
                max_bytes=self._settings.max_result_bytes,
                state=self._settings.home,
                pass_env=self._settings.pass_env,
                logins=self._logins,
                marker=self._marker(),
                legacy=legacy,
                on_process=self._spawned,
                on_answer=self._answered_with,
                on_tools_changed=self._tools_changed,
            ) as link:
                ready.set_result(link)
                gone = asyncio.create_task(link.closed.wait())
                stop = asyncio.create_task(self._stop.wait())
                try:
                    await asyncio.wait([gone, stop], return_when=asyncio.FIRST_COMPLETED)
                finally:
                    gone.cancel()
                    stop.cancel()
        except Exception as error:
            if ready.done():
                raise
            ready.set_exception(error)
        finally:
            if self._process is not None:
                self._on_end(self._process)
                how = "Toolscout stopped it" if self._stop.is_set() else f"it {self._how()}"
                self._log.note(f"ended: {link.retired if link is not None and link.retired else how}")

    def _answered_with(self, answer: Answer) -> None:
        self._answer = answer

    def _spawned(self, process: UpstreamProcess) -> None:
        self._process = process
        self._on_process(process)
        self._log = ServerLog(log_file(self._settings.home, self.server_id), self._hider)
        self._log.note(f"started: process {process.pid}")
        process.stderr.follow(self._log.add)

    def _ended(self, link: Link, _: asyncio.Task[None]) -> None:
        """The keeper has finished: note why."""
        wanted = self._stop.is_set()
        if self.link is link:
            self.link = None
        if not wanted:
            self.ended = f"it {self._how()}"
            self._telemetry.upstream_crashed(self.server_id)
        if not wanted and not self._answered and self._counted is not link:
            self._counted = link
            self._failed(UpstreamError(f"'{self.server_id}' {self._how()}.{self._said()}"))

    def _failed(self, error: Exception) -> None:
        """Count a failure. The first restart is free, then the wait doubles."""
        self._last_error = str(error)
        if isinstance(error, (NotFound, NotAllowed, Unauthorized, NeedsKey)):
            return  # a person has to act: waiting would not help, and would get in the way
        self._failures += 1
        if self._failures > 1:
            self._retry_at = time.monotonic() + min(_LONGEST_BACKOFF, 2.0 ** (self._failures - 2))

    def _tools_changed(self) -> None:
        if self._notices.hear():
            self._tools = None
            self._on_tools_changed(self.server_id)

    async def stop(self) -> None:
        """End the process or connection for good; returns when it is gone."""
        self._finished = True
        self._stop.set()
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        self.link = None
        if self._keeper is not None and not self._keeper.done():
            self._stop.set()
            await asyncio.wait([self._keeper])

    @property
    def idle(self) -> bool:
        """Live, and nobody uses it."""
        return self.link is not None and not self.in_flight and not self._stop.is_set() and self._starting is None

    @property
    def gone(self) -> bool:
        """Nothing of it lives, and nobody waits for it."""
        keeper = self._keeper
        return not self.in_flight and self._starting is None and (keeper is None or keeper.done())

    @property
    def is_process(self) -> bool:
        """Whether it runs on this machine, as far as is known."""
        return self._transport is Transport.STDIO

    @property
    def keep_alive(self) -> float:
        """Seconds that it may idle."""
        if self._configured is not None and self._configured.keep_alive is not None:
            return self._configured.keep_alive
        return self._settings.upstream_idle * (STATEFUL_TIMES if self.stateful else 1)

    def unused(self, now: float) -> str:
        """Why it may be stopped, where it idles for long enough."""
        if not self.idle or now - self.last_used < self.keep_alive:
            return ""
        return f"it was stopped after {self.keep_alive:g} s without a call"

    def stale(self, but: int = 0) -> str:
        """Why it has to be started anew: a person wants it, or its entry has changed, which waits while more calls than
        ``but`` use it. Empty where it has not."""
        if self.link is None:
            return ""
        if stamp(self._restart_file) != self._restart:
            return "it was restarted by hand"
        return "its entry in mcp.json has changed" if self.in_flight <= but and self._changed() else ""

    def _changed(self) -> bool:
        """Whether its entry, or the wish for a restart, is another than at the last start."""
        try:
            now = self._load().get(self.server_id)
        except BadInput:
            return False  # somebody is editing the file
        if now == self._configured:
            self._configured = now  # the same object compares faster
        return now is not self._configured or stamp(self._restart_file) != self._restart

    def retire(self, why: str) -> None:
        """Begin to stop it; from now on a call waits for its end and starts it anew. ``why`` as a clause."""
        if self.link is not None:
            self.link.retired = why
        self._counted = self.link  # how its calls end now is no failure of its own
        self.link, self.ended = None, why
        self._stop.set()

    # explaining

    async def _explain(self, error: Exception, link: Link, what: str, seconds: float, *, again: bool) -> Exception:
        """Any failure of a request as an error that says what happened and what can be done."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        from toolscout.server.upstreams.exchange import HttpRefused
        from toolscout.server.upstreams.link import lost
        from toolscout.server.upstreams.pipe import NotSent, TooLarge, Unreadable

        if isinstance(error, ToolscoutError):
            return error
        if isinstance(error, TimeoutError):  # ours: a server may say it with a code, too, and mean something else
            return UpstreamError(
                f"'{self.server_id}' did not answer {what} within {seconds:g} s; it was told to stop.{self._said()}",
                hint="Allow more time, or ask for less at once.",
                kind="upstream_timeout",
            )
        if isinstance(error, TooLarge) or (link.process is None and too_large(error)):
            return UpstreamError(
                f"'{self.server_id}' answered {what} with more than {self._settings.max_result_bytes:,} bytes;"
                " the answer was dropped.",
                hint="Ask for less (a filter, a page, a smaller range), or raise TOOLSCOUT_MAX_RESULT_BYTES.",
                kind="upstream_too_large",
            )
        if isinstance(error, NotSent):
            await self._gone(link)
            return Crashed(f"'{self.server_id}' {self._how()} before the call.{self._said()}", sent=False)
        if isinstance(error, MCPError):
            if (
                not isinstance(error, HttpRefused)
                and error.error.code == CONNECTION_CLOSED
                and (link.closed.is_set() or (link.process is None and lost(error)))
            ):
                cause = await self._gone(link)
                if isinstance(due := self._broken(), ToolscoutError):
                    return due  # such as a login, which came before the call
                if link.process is not None and self._counted is not link:
                    self._counted = link  # once for the process, not for every call it had
                    self._failed(UpstreamError(f"'{self.server_id}' {self._how()} during {what}."))
                how = f"was stopped, as {link.retired}," if link.retired else self._how()
                return Crashed(
                    f"'{self.server_id}' {how}{f' ({cause})' if cause else ''} before it answered {what}."
                    f"{self._said()}",
                    hint="The call may have been carried out: check before you repeat it.",
                    sent=not unreached(self._keeper),
                )
            if isinstance(error, Unreadable) or (link.process is None and unreadable(error)):
                return UpstreamError(
                    f"'{self.server_id}' broke the protocol at {what}: its answer is no JSON-RPC message.",
                    kind="upstream_protocol",
                )
            if link.process is None and (failure := await self._turned_away(error, link, what, again)) is not None:
                return failure
            return Refused(
                f"'{self.server_id}' refused {what}: {self._clean(error.error.message)} (code {error.error.code}).",
                error.error.code,
                self._clean_data(error.error.data),
            )
        return UpstreamError(
            f"'{self.server_id}' broke the protocol at {what}: {self._clean(str(error))}", kind="upstream_protocol"
        )

    async def _turned_away(self, error: MCPError, link: Link, what: str, again: bool) -> Exception | None:
        """A remote server's refusal that is not the tool's: it knows our session no more, or our key."""
        from toolscout.server.upstreams.exchange import HttpRefused
        from toolscout.server.upstreams.session_loss import Loss, look

        loss = await look(link, error, again=again)
        refused = error if isinstance(error, HttpRefused) else None
        said = self._clean(error.error.message)
        told = f"{said}, HTTP status {refused.status}" if refused is not None else f"{said}, code {error.error.code}"
        if loss is Loss.NONE:
            if refused is None:
                return None
            if refused.status in (401, 403):
                if refused.status == 401:
                    await self._gone(link)  # the next connection has what a person gives it meanwhile
                return Unauthorized(
                    self.server_id, refused.status, self._clean(refused.why), what=what, login=refused.has_login
                )
            return Refused(
                f"'{self.server_id}' refused {what}: {told}.", error.error.code, self._clean_data(error.error.data)
            )
        await link.quiet(_OTHERS_SECONDS)
        await self._gone(link)
        if loss is Loss.UNCALLED:
            return Crashed(
                f"'{self.server_id}' does not know the session that it has given out ({told}), nor a new one.",
                hint="The call was not carried out. Several instances behind one address have to share sessions.",
                sent=False,
            )
        return Crashed(
            f"'{self.server_id}' answers everything alike ({told}), so the session was given up: a new one is made by "
            f"the next call. Whether {what} was carried out cannot be told.",
            hint="Check before you repeat the call.",
            sent=True,
        )

    async def _gone(self, link: Link) -> str:
        """Wait a moment for the end of a connection that has broken; what broke it, if that is known."""
        if link.process is not None:
            if self.link is link:
                self.link = None
            await link.process.wait_exit(1.0)
            return ""
        if self.link is not link and (self.link is not None or self._starting is not None):
            return ""  # another call that was on it is making a new one, or has
        self.link = None
        keeper = self._keeper
        self._stop.set()
        if keeper is not None:
            await asyncio.wait([keeper], timeout=2.0)
            if (error := self._broken()) is not None:
                return self._clean(reason(error))
        return ""

    def _broken(self) -> BaseException | None:
        """What broke the last connection."""
        keeper = self._keeper
        if keeper is None or not keeper.done() or keeper.cancelled() or (error := keeper.exception()) is None:
            return None
        return leaf(error)

    def _start_failure(self, error: BaseException | None) -> Exception:
        error = leaf(error) if error is not None else None
        if isinstance(error, ToolscoutError):
            return (
                UpstreamError(f"'{self.server_id}': {error}", hint=error.hint, kind="upstream_start_failed")
                if isinstance(error, UpstreamError)
                else error
            )
        if self._process is not None and self._left(error):
            message = f"'{self.server_id}' {self._process.describe_exit()} while starting.{self._said()}"
            assert self._configured is not None
            words = self._process.stderr.text(lines=60, characters=8000, hider=self._hider)
            if (name := missing_value(words)) is not None:
                return NeedsKey(message, self.server_id, name, bare_names(self._configured.references()))
            policy = self._configured.policy(self._settings.sandbox) if self._process.sandboxed else None
            hint = older_sdk(words)
            if policy is not None and not hint:
                hint = start_hint(self._configured, policy, words)
            if not hint and not _NO_VARIABLE.search(words):
                hint = _TERMINAL_HINT.format(name=shlex.quote(self.server_id))
            return UpstreamError(message, hint=hint, kind="upstream_start_failed")
        if (status := self._answer.status) in (401, 403):
            said = self._clean(self._answer.why(reason(error) if error else ""))
            return Unauthorized(self.server_id, status, said, login=self._answer.has_login)
        why = self._clean(reason(error)) if error is not None else "it ended"
        if status >= 400:
            why += f" (HTTP status {status})"
        hint = ""
        if self._process is None:
            hint = "Check its URL, its headers and the network."
            if self._proxy:
                hint += f" It was asked through the proxy that {self._proxy} names; NO_PROXY excepts hosts."
        return UpstreamError(
            f"'{self.server_id}' could not be started: {why}.{self._said()}", hint=hint, kind="upstream_start_failed"
        )

    def _left(self, error: BaseException | None) -> bool:
        """Whether a start failed because the process went away."""
        return self._process is not None and closed(error)

    def _how(self) -> str:
        return self._process.describe_exit() if self._process is not None else "lost its connection"

    def _said(self) -> str:
        """The end of its stderr, and of what it printed on stdout without being asked, for an error message."""
        if self._process is None:
            return ""
        parts = []
        if text := self._process.stderr.text(lines=60, characters=8000, hider=self._hider):
            parts.append(f"\nIts stderr ends with:\n{(told := gist(text))}")
            if len(told.splitlines()) < len(text.splitlines()):
                parts.append(f"\n(all of it: toolscout logs {shlex.quote(self.server_id)})")
        if noise := self._process.noise.text(lines=3, characters=300, hider=self._hider):
            parts.append(f"\nOn stdout it printed what is no protocol message:\n{noise}")
        return "".join(parts)

    def _clean(self, text: str) -> str:
        # Before anything is cut off: half of a secret would not be recognised any more.
        return self._hider.hide(text)[:_ERROR_CHARACTERS]

    def _without_secrets(self, tool: JsonObject) -> JsonObject:
        """A listed tool as it may be kept: a server may say what it was given. Names stay, for they are called by."""
        if not self._hider:
            return tool
        try:
            if self._hider.hide(text := json.dumps(tool, ensure_ascii=False)) == text:
                return tool
            said = {name: value for name, value in tool.items() if name != "name"}
            return {**tool, **dict(with_texts(said, self._hider.hide, names=False))}  # type: ignore[call-overload]
        except (RecursionError, TypeError, ValueError):
            return {"name": tool.get("name"), "inputSchema": {"type": "object"}}

    def hide(self, text: str) -> str:
        """A text of the server's without the secrets that it was given."""
        return self._hider.hide(text)

    def _clean_data(self, data: object) -> object:
        """What an error carries for programs, without secrets; None where it is larger than an error's text may be."""
        try:
            fits = len(json.dumps(data, ensure_ascii=False)) <= _ERROR_CHARACTERS
            return with_texts(data, self._hider.hide) if fits else None
        except (RecursionError, TypeError, ValueError):
            return None

    def status(self) -> UpstreamStatus:
        """A snapshot for lists and metrics."""
        now = time.monotonic()
        live = self.link is not None and not self.link.closed.is_set()
        retry = self._retry_at - now
        state = "live" if live else "starting" if self._starting else "backing_off" if retry > 0 else "stopped"
        return UpstreamStatus(
            server_id=self.server_id,
            state=state,
            transport=self._transport,
            pid=self._process.pid if live and self._process else None,
            era=self.link.era if live and self.link else None,
            protocol_version=self.link.session.protocol_version if live and self.link else None,
            in_flight=self.in_flight,
            calls=self._calls,
            failed_calls=self._failed_calls,
            starts=self._starts,
            failures=self._failures,
            retry_in=retry if retry > 0 and not live else None,
            idle=now - self.last_used if live and not self.in_flight else None,
            uptime=now - self._started_at if live else None,
            last_error=self._last_error,
            stderr=self._process.stderr.text(hider=self._hider) if self._process else "",
        )


def traced(relayed: Relayed, carrier: Mapping[str, str]) -> Relayed:
    """What is relayed, with the trace context in its ``_meta``."""
    return {**relayed, "meta": {**(relayed.get("meta") or {}), **carrier}} if carrier else relayed


def _address(config: UpstreamConfig) -> tuple[str, int]:
    """Host and port of a remote upstream: no path, which may hold a key."""
    if not config.url:
        return "", 0
    parts = urlsplit(config.url)
    with contextlib.suppress(ValueError):
        return parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    return parts.hostname or "", 0


def _clock(seconds: float) -> str:
    with contextlib.suppress(ValueError, OSError):
        return time.strftime("%H:%M:%S", time.localtime(time.time() + seconds))
    return "soon"
