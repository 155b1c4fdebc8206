"""The engine: catalogue, search, caller and upstream pool behind the three tools, for the server and the command line.

Opening it costs nothing; each part is loaded when it is first needed, off the event loop, and only once.
"""

from __future__ import annotations

import asyncio
import logging
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from toolscout.errors import BadInput, NotFound, StorageError, ToolscoutError
from toolscout.records import JsonObject, Review, Server, ServerState, Tool
from toolscout.secret_store import known_values
from toolscout.server.box import join, open_box
from toolscout.server.config import ServersFile
from toolscout.server.contract import describe_catalogue
from toolscout.server.find import (
    ADVICE_DENIED,
    ADVICE_FAILING,
    ADVICE_PROBED,
    ADVICE_UNREVIEWED,
    LOOK,
    advice_filtered,
    advice_on,
    compact_answer,
    missed_servers,
    worded,
)
from toolscout.server.holds import Holds
from toolscout.server.launch import needs, runs
from toolscout.server.telling.journal import Journal
from toolscout.server.telling.telemetry import Telemetry, current_call, span
from toolscout.server.upstreams.relisting import Relisting
from toolscout.server.upstreams.said import short_reason
from toolscout.signature import compact_signature

if TYPE_CHECKING:
    from mcp_types import CallToolResult, InputRequiredResult

    from toolscout.index.catalogue import Catalogue, Change
    from toolscout.index.chooser import Chooser
    from toolscout.index.layers import LayeredIndex
    from toolscout.index.pack.search import PackIndex
    from toolscout.index.search import Answer, Floats, SearchIndex
    from toolscout.records import Call
    from toolscout.server.asking import Asking
    from toolscout.server.calling.caller import Caller
    from toolscout.server.client_identity import ClientIdentity
    from toolscout.server.config import UpstreamConfig
    from toolscout.server.install import Installer
    from toolscout.server.invoke import Invoker
    from toolscout.server.policy.file import Policy
    from toolscout.server.policy.governor import Governor
    from toolscout.server.upstreams.link import Relayed
    from toolscout.server.upstreams.pool import UpstreamPool
    from toolscout.server.upstreams.probe import Prober
    from toolscout.server.upstreams.upstream import UpstreamStatus
    from toolscout.settings import Settings

    CallResult = CallToolResult | InputRequiredResult

logger = logging.getLogger(__name__)

T = TypeVar("T")

# Of a server that is configured here; what was learnt elsewhere about installing it does not count then.
_CALLABLE = frozenset({ServerState.READY, ServerState.NEEDS_INSTALL, ServerState.UNAVAILABLE})
_LARGEST_SHOWN = 8
_NAME = re.compile(r"(?=.{1,24}$)\w+([-_.]\w+){0,2}")
"""A server's name of at most three words and 24 characters."""
_POINTER_CHECK_SECONDS = 1.0
_LOAD_SECONDS = 45.0
_LISTED_AT_ONCE = 4
_BATCH_SECONDS = 3.0
_LISTED = ("transport", "instructions", "protocol_version", "checked_at")  # what only the server itself can say
_RECORD_SECONDS = 2.0  # a database that another process holds: what differs is held meanwhile without it
_INSTALL_SECONDS = 300.0  # a first start downloads the package
_MEND_AGAIN_SECONDS = 5.0
_EXEMPLARS = 5  # worked calls in a prompt, as MCP-Flow shows
_MEND_SELDOM_SECONDS = 60.0
_SIMILAR = 5


class Engine:
    """Everything a running Toolscout needs. Use as an async context manager; it belongs to one event loop.

    With ``serving`` it also brings in, at its start, what the catalogue or the index lacks. ``searches``: how many of
    them go on at once; the rest wait, and calls pass them. ``terminal``: a person at a command line reads the answers.
    ``logins``: whether a person may be sent to the browser to log in at a server; while serving nobody would see it.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        serving: bool = False,
        searches: int = 2,
        terminal: bool = False,
        logins: bool = False,
    ) -> None:
        self._logins = logins
        self.settings = settings
        self.serving = serving
        self.terminal = terminal
        self._values = known_values(settings)
        self.servers = ServersFile(settings.servers_file)
        self.behind = ""
        """The sentence on what stands behind the search; empty while that is not known yet."""
        self.on_change: Callable[[], None] | None = None
        """Called on the event loop when `behind` has changed."""
        self.journal = Journal(self._open_catalogue)
        self.telemetry = Telemetry()
        self._work = ThreadPoolExecutor(searches, thread_name_prefix="engine")
        # Writing waits, for a minute at worst, when another process holds the catalogue: no search may wait behind it.
        self._writing = ThreadPoolExecutor(1, thread_name_prefix="engine-writes")
        self._lock = threading.RLock()
        self._catalogue: Catalogue | None = None
        self._index: SearchIndex | LayeredIndex | None = None
        self._own: SearchIndex | None = None
        self._box: PackIndex | None = None
        self._priors: Floats | None = None
        self._pointer: tuple[int, int] | None = None
        self._pack_pointer: tuple[int, int] | None = None
        self._pointer_checked = 0.0
        self._configured: Mapping[str, UpstreamConfig] | None = None
        self._unreadable = ""
        self._pool: UpstreamPool | None = None
        self._invoker: Invoker | None = None
        self._governor: Governor | None = None
        self._installer: Installer | None = None
        self._prober: Prober | None = None
        self._on_trial: dict[str, UpstreamConfig] = {}
        self._caller: Caller | None = None
        self._loading: asyncio.Task[None] | None = None
        self._mending: asyncio.Task[None] | None = None
        self._relisting = Relisting(self._relist)
        self._searchable = asyncio.Event()
        """Set when there is an index of the own servers, or nothing has come of a first try to make one."""
        self._holds = Holds(self._open_catalogue)
        self._strays: tuple[frozenset[str], SearchIndex | LayeredIndex | None, frozenset[str]] = (
            frozenset(),
            None,
            frozenset(),
        )

    async def __aenter__(self) -> Engine:
        if self.serving:
            from toolscout.server.telling.tracing_switch import make_tracing

            self.telemetry.tracing = make_tracing(self.settings)
        self._loading = asyncio.create_task(self._load())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop every upstream, write the call log, close files. Safe to call twice."""
        for task in (self._loading, self._mending):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        await self._relisting.close()
        if self._prober is not None:
            await self._prober.close()
        if self._installer is not None:
            await self._installer.close()
        if self._pool is not None:
            await self._pool.close()
        if self._caller is not None:
            await self._caller.close()
        if self._governor is not None:
            await asyncio.to_thread(self._governor.close)
        await asyncio.to_thread(self.journal.close)
        for threads in (self._work, self._writing):
            await asyncio.to_thread(threads.shutdown, wait=True, cancel_futures=True)
        for index in (self._own, self._box):
            if index is not None:
                index.close()
        if self._catalogue is not None:
            self._catalogue.close()
        await asyncio.to_thread(self.telemetry.close)

    # --- parts -----------------------------------------------------------------------------------------------------

    @property
    def catalogue(self) -> Catalogue:
        """The catalogue, opened at first use (its import alone takes a second on a small machine)."""
        return self._open_catalogue()

    def configured(self) -> Mapping[str, UpstreamConfig]:
        """The configured upstreams. While the file cannot be read, as in the middle of an edit, the last good ones."""
        try:
            self._configured = self.servers.load()
            self._unreadable = ""
        except BadInput as error:
            if str(error) != self._unreadable:
                logger.warning("%s The servers that were read before stay in use.", error)
                self._unreadable = str(error)
            if self._configured is None:
                raise
        return self._configured

    @property
    def pool(self) -> UpstreamPool:
        """The upstream pool; no process is started before the first call needs one."""
        if self._pool is None:
            from toolscout.server.upstreams.pool import UpstreamPool

            self._pool = UpstreamPool(
                self.settings, self._upstreams, on_tools_changed=self._tools_changed, compare=self._compare,
                telemetry=self.telemetry, logins=self._logins,
            )  # fmt: skip
        return self._pool

    @property
    def governor(self) -> Governor:
        """What holds calls to the policy, where there is one."""
        if self._governor is None:
            from toolscout.server.policy.governor import Governor

            self._governor = Governor(self.settings)
        return self._governor

    def _policy(self) -> Policy | None:
        """The policy as it is now; None where there is none, or none that can be read: then calls are refused."""
        from toolscout.server.policy.governor import PolicyRefusal

        try:
            return self.governor.current()
        except PolicyRefusal:
            return None

    def _denied(self, answer: Answer) -> bool:
        """Whether nothing is offered because the policy denies what would fit."""
        if not answer.no_match or self._policy() is None:
            return False
        from toolscout.server.policy.permitted import Denied

        return isinstance(answer, Denied)

    @property
    def invoker(self) -> Invoker:
        """Validation and dispatch of calls."""
        if self._invoker is None:
            from toolscout.server.install import Installer
            from toolscout.server.invoke import Invoker

            self._installer = Installer(
                add=self._install, count=self._count, configured=self.configured,
                values=self._values, sandbox=self.settings.sandbox,
            )  # fmt: skip
            self._invoker = Invoker(
                find_tool=self._tool_or_held, server_of=self._server, suggest_ids=self._similar,
                signature_of=self._signature, pool=self.pool,
                settings=self.settings, installer=self._installer, governor=self.governor,
                look_again=self._relisting.look_again if self._loading is not None else None, look=self._holds.look,
                waiting=self._waiting, terminal=self.terminal,
            )  # fmt: skip
        return self._invoker

    @property
    def prober(self) -> Prober:
        """What tries servers before they are offered, where the settings want that."""
        if self._prober is None:
            from toolscout.server.upstreams.pool import as_result
            from toolscout.server.upstreams.probe import Prober

            async def invoke(tool_id: str, arguments: dict[str, Any], seconds: float) -> CallResult:
                raw = await self.invoker.invoke_raw(tool_id, arguments, timeout_s=seconds)
                return as_result(tool_id.partition("/")[0], tool_id, raw)

            async def tools_of(server_id: str) -> list[Tool]:
                return await self._run(lambda: list(self.catalogue.tools(server_id, {Review.APPROVED})))

            async def example(tool_id: str) -> dict[str, Any] | None:
                found = await self._run(lambda: next(iter(self.catalogue.exemplars(tool_id)), None))
                golds = found.gold if found is not None else []
                return next((gold.arguments for gold in golds if gold.tool_id == tool_id), None)

            self._prober = Prober(self.settings, invoke, tools_of, example)
        return self._prober

    @property
    def caller(self) -> Caller:
        """The call generator; its model is loaded at the first suggestion."""
        if self._caller is None:
            from toolscout.server.calling.caller import Caller

            self._caller = Caller(self.settings, chooser=self._chooser)
        return self._caller

    def _chooser(self) -> Chooser:
        """What chooses among named tools for a small model: with the search's encoder, so that none is loaded twice."""
        from toolscout.index.chooser import Chooser
        from toolscout.index.encoder import make_encoder

        return Chooser(self._index.encoder if self._index is not None else make_encoder(self.settings))

    async def loaded(self) -> None:
        """Wait until the index is open, and on a first start until the starter set is in it."""
        if self._loading is None or _has_failed(self._loading):
            # What failed (a broken mcp.json, a full disk) may be mended by now: no restart is needed for that.
            self._loading = asyncio.create_task(self._load())
        await asyncio.shield(self._loading)

    async def index(self) -> SearchIndex | LayeredIndex:
        """The current search index; reopened when another process has replaced it.

        Raises:
            StorageError: there is no index, because nothing has been added yet or it is still being built.
        """
        try:
            await asyncio.wait_for(self.loaded(), _LOAD_SECONDS)
        except TimeoutError:
            raise StorageError("The search index is still being built.", "Try again in a minute.") from None
        now = time.monotonic()
        if now - self._pointer_checked >= _POINTER_CHECK_SECONDS:
            self._pointer_checked = now
            if (self._read_pointer(), self._read_pack_pointer()) != (self._pointer, self._pack_pointer):
                await self._reopen()
        if self._index is None:
            if await self._run(self._is_stale):
                raise StorageError("The catalog has not been indexed yet.", "Run: toolscout index build")
            raise StorageError("The catalog is empty.", "Add a server with `toolscout add` or `toolscout import`.")
        return self._index

    @property
    def is_loaded(self) -> bool:
        """Whether the index is open (or known to be absent)."""
        return self._loading is not None and self._loading.done() and not _has_failed(self._loading)

    @property
    def tool_count(self) -> int:
        """Tools in the index that is open."""
        return len(self._index) if self._index is not None else 0

    @property
    def index_made(self) -> float | None:
        """When the index that is open was built, in seconds since 1970; None where there is none."""
        return self._pointer[0] / 1e9 if self._pointer is not None and self._index is not None else None

    @property
    def index_servers(self) -> int:
        """Servers in the index that is open."""
        own = self._own.meta.servers if self._own is not None else 0
        return own + (self._box.storage.meta.servers if self._box is not None else 0)

    def upstreams(self) -> list[UpstreamStatus]:
        """The upstreams that were used so far; none before the first call."""
        return self._pool.status() if self._pool is not None else []

    def knows(self, tool_id: str) -> bool:
        """Whether ``tool_id`` is in the index that is open, and not held since."""
        return tool_id not in self._holds and self._tool(tool_id) is not None

    # --- the three tools ---------------------------------------------------------------------------------------------

    async def find_tools(
        self,
        query: str | None = None,
        requests: Sequence[dict[str, str]] = (),
        *,
        limit: int = 5,
        detail: str = "compact",
        exemplars: int = 0,
        servers: Sequence[str] | None = None,
        read_only: bool = False,
        ready_only: bool = False,
        widen: bool = False,
    ) -> dict[str, Any]:
        """``find_tools`` of the contract, as its structured answer.

        With ``widen`` a name in ``servers`` that no server has is left out, and told in the advice: models guess names,
        and some repeat a refused call until their turns are used up.

        Raises:
            BadInput: neither query nor requests, or (without ``widen``) a server that is not known.
        """
        started = time.perf_counter()
        missed = ""
        if widen and servers:
            servers, missed = await self._known_servers(servers)
        answer = await self.search(
            query, requests, limit=limit, exemplars=exemplars, servers=servers, read_only=read_only,
            ready_only=ready_only,
        )  # fmt: skip
        advice = None
        if answer.no_match and (read_only or ready_only or servers):
            given = {"servers": servers, "read_only": read_only, "ready_only": ready_only}
            advice = advice_filtered([name for name, value in given.items() if value], self.terminal)
        if self.settings.probe_offers:
            from toolscout.server.upstreams.probe import Withheld

            advice = ADVICE_PROBED if isinstance(answer, Withheld) else advice
        if self._denied(answer):
            advice = worded(ADVICE_DENIED, self.terminal)
        if answer.failing:
            advice = " ".join(self.failure(name, listed=False) for name in answer.failing)
        shaped = compact_answer(
            answer, state_of=self.state_of, detail=detail, advice=advice, missing=self.missing_values,
            failure=self.failure, terminal=self.terminal,
        )  # fmt: skip
        said = [missed, shaped.get("advice", "")]
        if answer.no_match or answer.doubtful or servers:
            said.append(await self._unreviewed(servers))
        if any(said):
            shaped["advice"] = " ".join(filter(None, said))
        text = query or "; ".join(f"{r.get('server', '')} {r['tool']}".strip() for r in requests)
        self.journal.note("find", text, shaped["tools"][0]["tool_id"] if shaped["tools"] else None,
                          "no_match" if answer.no_match else "ok", started)  # fmt: skip
        return shaped

    async def _unreviewed(self, servers: Sequence[str] | None) -> str:
        """That tools of configured servers, of all or of these, are not found because they wait for a review."""
        waiting = await self._run(self._open_catalogue().waiting)
        names = [name for name in self._enabled() if name in waiting and (not servers or name in servers)]
        commands = ", ".join(f"toolscout review {shlex.quote(name)}" for name in names[:_SIMILAR])
        return worded(ADVICE_UNREVIEWED, self.terminal).format(commands=commands) if names else ""

    def _failing(self, index: SearchIndex | LayeredIndex, answer: Answer, text: str) -> dict[str, str]:
        """Servers of the pack that a search found or names, and that are configured here and could not be listed, with
        their names here."""
        copies: Mapping[str, str] = getattr(index, "failing", {})
        if not copies:
            return {}
        configured, hits = self.configured(), {hit.server_id for hit in answer.hits}
        words = frozenset(re.findall(r"\w+", text.casefold()))
        named = {i for i, name in copies.items() if words.issuperset(re.findall(r"[^\W_]+", name.casefold()))}
        return {i: name for i, name in copies.items() if i in hits | named and name in configured}

    async def _known_servers(self, names: Sequence[str]) -> tuple[list[str], str]:
        """Those of the names that are servers', and what to say of the others."""
        index = await self.index()
        named = list(dict.fromkeys(names))
        known = await self._run(lambda: [name for name in named if index.knows_server(name)])
        missed = [name for name in named if name not in known]
        return known, missed_servers(missed[:_SIMILAR], some=bool(known)) if missed else ""

    async def search(
        self,
        query: str | None = None,
        requests: Sequence[dict[str, str]] = (),
        *,
        limit: int = 5,
        exemplars: int = 0,
        servers: Sequence[str] | None = None,
        read_only: bool = False,
        ready_only: bool = False,
        dynamic: bool = True,
    ) -> Answer:
        """The search behind `find_tools`, as records. With ``dynamic=False`` a clear first cuts nothing."""
        from toolscout.index.search import Filters, ToolRequest

        if not requests and not (query and query.strip()):
            raise BadInput("find_tools needs a query or requests.", "Say in plain words what you want to do.")
        index = await self.index()
        stray = await self._stray(index)
        wanted = [ToolRequest(server=r.get("server", ""), tool=r["tool"]) for r in requests]
        enabled = frozenset(self._enabled())
        ready = frozenset(name for name in enabled if not self.missing_values(name)) if ready_only else None
        priors = self._priors if index is self._index else None  # they are of the own servers

        async def look(without: frozenset[str] = frozenset(), most: int | None = None) -> Answer:
            answer = await offered(without, most)
            failing = self._failing(index, answer, query or " ".join(r["tool"] for r in requests))
            if failing:  # their copies in the pack are not offered beside them
                box = self._box
                answer = await offered(without | await self._run(lambda: _tools_of(box, failing)), most)
                answer.failing, answer.absent = list(failing.values()), ""
            return answer

        async def offered(without: frozenset[str], most: int | None) -> Answer:
            filters = Filters(
                servers=frozenset(servers) if servers else None,
                read_only=read_only,
                states=_CALLABLE if ready_only else None,
                among=ready,
                without=without | stray,
            )
            answer = await self._run(
                partial(
                    index.find, query, requests=wanted, limit=most or limit, filters=filters, exemplars=exemplars,
                    dynamic=dynamic and most is None, favour=enabled, priors=priors,
                )
            )  # fmt: skip
            if stray:
                answer.nearest = [hit for hit in answer.nearest if hit.tool_id not in stray]
                for hit in answer.hits:
                    hit.exemplars = [call for call in hit.exemplars if stray.isdisjoint(g.tool_id for g in call.gold)]
            return answer

        policy = self._policy()
        with span("search", attributes={"toolscout.index.tools": len(index)}):
            if policy is None:
                answer = await look()
            else:
                from toolscout.server.policy.permitted import permitted

                answer = await permitted(look, policy)
        _tell(results=len(answer.hits), no_match=answer.no_match)
        return await self.prober.sift(answer, enabled) if self.settings.probe_offers and answer.hits else answer

    async def suggest_call(
        self, task: str, tool_ids: Sequence[str] | None = None, *, context: str = "", steps: int = 1
    ) -> dict[str, Any]:
        """``suggest_call`` of the contract, as its structured answer.

        Raises:
            BadInput: no task.
            NotFound: a tool id that is not in the index.
            ModelError: the configured model cannot be reached or answered nonsense.
        """
        from toolscout.server.calling.steps import offered
        from toolscout.server.calling.suggestion import Candidate

        started = time.perf_counter()
        if not task.strip():
            raise BadInput("suggest_call needs a task.", "Say in plain words what you want to do.")
        if tool_ids:
            candidates = [Candidate(tool=await self._known(tool_id), score=1.0, exemplars=[]) for tool_id in tool_ids]
        else:
            # Of a task in several steps one tool may be clear and another needed all the same.
            limit = offered(steps)
            answer = await self.search(task, limit=limit, exemplars=_EXEMPLARS, dynamic=steps == 1)
            if answer.no_match:
                self.journal.note("suggest", task, None, "abstained", started)
                return {
                    "calls": [],
                    "alternatives": [hit.tool_id for hit in answer.nearest[:3]],
                    "abstained": True,
                    "reason": worded(ADVICE_DENIED, self.terminal)
                    if self._denied(answer)
                    else "No tool in the catalog serves this task; the alternatives are only the nearest ones.",
                }
            candidates = [
                Candidate(tool=hit.tool, score=hit.score, exemplars=hit.exemplars)
                for hit in answer.hits
                if not hit.tool.is_server
            ]
            if not candidates:
                first = answer.hits[0]
                state = self.state_of(first.server, first.server_id)
                how = advice_on(
                    first.server,
                    first.server_id,
                    state,
                    whole=True,
                    failure=self.failure(first.server_id),
                    terminal=self.terminal,
                )
                self.journal.note("suggest", task, None, "abstained", started)
                return {
                    "calls": [],
                    "alternatives": [hit.tool_id for hit in answer.hits[:3]],
                    "abstained": True,
                    "reason": f"A server would serve this, {first.server_id}. {how}",
                }
        index = await self.index()
        near = await self._run(partial(self._worked, index, task))
        suggestion = await self.caller.suggest(task, candidates, context=context, steps=steps, others=near)
        _tell(candidates=len(candidates), steps=steps, calls=len(suggestion.calls), abstained=suggestion.abstained)
        shaped = suggestion.to_answer({c.tool.tool_id: c.tool for c in candidates})
        for call in shaped["calls"]:
            server_id = next(c.tool.server_id for c in candidates if c.tool.tool_id == call["tool_id"])
            record = index.get_server(server_id)
            state = self.state_of(record, server_id)
            call["state"] = str(state)
            if how := advice_on(record, server_id, state, failure=self.failure(server_id), terminal=self.terminal):
                call["advice"] = how
        written = shaped["calls"][0]["tool_id"] if shaped["calls"] else None
        self.journal.note("suggest", task, written, "abstained" if shaped["abstained"] else "ok", started)
        return shaped

    async def invoke(self, tool_id: str, arguments: dict[str, Any] | str, **options: Any) -> CallResult:
        """`invoke_raw` with the result parsed, for callers in this process."""
        from toolscout.server.upstreams.pool import as_result

        return as_result(tool_id.partition("/")[0], tool_id, await self.invoke_raw(tool_id, arguments, **options))

    async def invoke_raw(
        self,
        tool_id: str,
        arguments: dict[str, Any] | str,
        *,
        timeout_s: float | None = None,
        dry_run: bool = False,
        asking: Asking | None = None,
        client: Callable[[], ClientIdentity] | None = None,
        **relayed: Unpack[Relayed],
    ) -> dict[str, Any]:
        """``invoke`` of the contract: the upstream's result as it came, or a tool error that says what to correct.

        With ``asking``, questions to a person come before: whether the server shall be installed, and where the policy
        wants it whether the call may be made. ``client`` says who calls, for the policy. Raises Refused where
        the client, by what it said with the call, lacks a capability that the upstream needs.
        """
        started = time.perf_counter()
        try:
            if self._index is None:
                await self.loaded()
            # Asked here for a tool of the index: to ask later, in the middle of the call, would hold up the event loop.
            there = self._index is not None and isinstance(tool_id, str) and bool(self._index.known([tool_id]))
            await self._holds.look(tool_id if there else None)
        except ToolscoutError as error:
            from toolscout.server.client_identity import OURSELVES

            self.governor.turned_away(tool_id, arguments, client or (lambda: OURSELVES), error.kind)
            self.journal.note("invoke", "", tool_id, "error", started)
            raise
        try:
            result = await self.invoker.invoke_raw(
                tool_id, arguments, timeout_s=timeout_s, dry_run=dry_run, asking=asking, client=client, **relayed
            )
        except ToolscoutError:
            self.journal.note("invoke", "", tool_id, "error", started)
            raise
        self.journal.note("invoke", "", tool_id, "error" if result.get("isError") else "ok", started)
        return result

    # --- servers -----------------------------------------------------------------------------------------------------

    async def refresh_server(
        self,
        name: str,
        *,
        accept_changes: bool = False,
        reindex: bool = True,
        trust: bool | None = None,
        patience: float = 0.0,
        fresh: bool = True,
        listed: tuple[Server, list[Tool]] | None = None,
    ) -> Change:
        """List a configured server's tools, put them into the catalogue, and bring the index up to date.

        A tool that is known and has changed is quarantined until it is reviewed, unless ``accept_changes``; a new one
        is, unless ``trust`` (by default only where nothing of the server is known yet, and by the setting
        ``trust_imports``). ``patience``: seconds that its start may take, where that is more than the settings allow;
        a first start that fetches a package or an image has five minutes. Without ``fresh`` the listing at hand will
        do, and with ``listed`` nobody is asked.

        Raises:
            UpstreamError, NotAllowed: the server cannot be started or needs a value that is not set.
        """
        from toolscout.server.upstreams.listing import fetches

        config = self._upstreams().get(name)
        if config is not None and fetches(config) and not await self._run(lambda: self.catalogue.has_listed(name)):
            patience = max(patience, _INSTALL_SECONDS)
        server, tools = listed or await self.pool.list_tools(name, fresh=fresh, patience=patience)
        known = await self._run(lambda: self.catalogue.get_server(name))
        if known is not None and known.sources and config is not None and runs(known, config.fields):
            # A catalogue says more of a server (licence, homepage, what it is for) than the server does itself.
            server = known.model_copy(update={field: getattr(server, field) for field in _LISTED})
        server.state = ServerState.READY
        if trust is None:
            trust = self.settings.trust_imports and not await self._run(lambda: self.catalogue.has_listed(name))
        put = partial(self.catalogue.put_server, server, tools, trust=trust, accept_changes=accept_changes)
        change: Change = await self._write(put)
        if self.settings.review_policy is not None:
            await self._write(partial(self._judge, name, self.settings.review_policy))
        self._holds.recorded(name)
        await self._holds.look()
        if reindex:
            await self.reindex()
        return change

    async def reindex(self, progress: Callable[[str, int, int], None] | None = None) -> None:
        """Bring the index up to date with the catalogue; only new texts are embedded.

        Cancelled, it stops after the texts at hand; what is embedded by then is kept for the next time.
        """
        from toolscout.index.build import build_index

        cancelled = threading.Event()

        def tick(what: str, done: int, total: int) -> None:
            if cancelled.is_set():
                raise asyncio.CancelledError
            if progress is not None:
                progress(what, done, total)

        try:
            await self._write(lambda: build_index(self.catalogue, self.settings, progress=tick))
        except asyncio.CancelledError:
            cancelled.set()  # the thread does not notice by itself, and closing waits for it
            raise
        await self._reopen()

    def state_of(self, server: Server | None, server_id: str) -> ServerState:
        """A server's state now: what the catalogue says, corrected by what is configured on this machine."""
        state = server.state if server is not None else ServerState.UNAVAILABLE
        if state not in _CALLABLE:
            return state
        config = self.configured().get(server_id)
        if config is not None:
            if config.disabled:
                return ServerState.UNAVAILABLE
            return ServerState.NEEDS_KEY if self.missing_values(server_id) else ServerState.READY
        if state is ServerState.UNAVAILABLE:
            return state
        unset = server is not None and any(name not in self._values for name in needs(server))
        return ServerState.NEEDS_KEY if unset else ServerState.NEEDS_INSTALL

    def missing_values(self, server_id: str) -> list[str]:
        """Names that a configured server refers to and that stand for nothing here."""
        config = self.configured().get(server_id)
        try:
            return config.missing(self._values) if config is not None else []
        except StorageError:
            return []  # the secrets cannot be read: its start says so

    def failure(self, name: str, *, listed: bool = True) -> str:
        """Say that a configured server does not work, why, and what the user does; nothing of one that may work.

        Args:
            listed: its tools are known, so that only a failed start speaks against it.
        """
        from toolscout.server.upstreams.folder import last_failure

        config = self.configured().get(name)
        if config is None or config.disabled:
            return ""
        found = last_failure(self.settings.home, config)
        if not listed and (missing := self.missing_values(name)):
            why, command = f"it lacks {', '.join(missing)}", f"toolscout secret set {' '.join(missing)}"
        elif found is not None:
            why, command = short_reason(name, found.why), found.command  # not its own words: agents read this
        elif not listed:
            why, command = "its tools were never listed", f"toolscout refresh {shlex.quote(name)}"
        else:
            return ""
        return worded(ADVICE_FAILING, self.terminal).format(name=name, why=why, command=command)

    async def _install(self, config: UpstreamConfig) -> None:
        """Start a server that a person has approved, bring in its tools through the guard, and configure it.

        Its entry is written last: until its tools have been compared with those that the catalogue had, nothing calls
        it, and a failure leaves nothing behind. What the catalogue did not have waits for a review like what differs.
        """
        name = config.name
        self._on_trial[name] = config
        listed = self._box is None or (tool := self._box.get_tool(name)) is None or not tool.is_server
        try:
            # Of a server that could not be listed beforehand nothing can be compared: the yes was for all of it.
            trust = False if listed else self.settings.trust_imports
            await self.refresh_server(name, trust=trust, patience=_INSTALL_SECONDS, reindex=False)
            await self._write(partial(self._approve_as_packed, name))
            await self._holds.look()  # what has just been approved is held no more
            await self.reindex()
            if name not in self.configured():  # another process on this home may have been quicker
                await self._run(partial(self.servers.add, config.confined(self.settings.sandbox), overwrite=False))
        except BaseException:
            self._on_trial.pop(name, None)
            await self.pool.stop(name)
            raise
        del self._on_trial[name]

    def _approve_as_packed(self, name: str) -> None:
        """Approve a new server's tools that are just as they were in the pack, where the guard has nothing against
        them now."""
        if self._box is None:
            return
        same = [t for t in self.catalogue.tools(name, {Review.PENDING}) if self._box.storage.is_as_listed(t)]
        if found := {tool.tool_id: Review.APPROVED for tool in same if not tool.findings}:
            self.catalogue.set_reviews(found, source="pack")

    async def _count(self, server_id: str) -> int:
        """How many tools of a server may be used."""
        own = await self._run(lambda: sum(1 for _ in self.catalogue.tools(server_id, {Review.APPROVED})))
        return own or (self._box.tools_of(server_id) if self._box is not None else 0)

    def _upstreams(self) -> Mapping[str, UpstreamConfig]:
        """The configured upstreams, and those that are being installed."""
        return {**self.configured(), **self._on_trial} if self._on_trial else self.configured()

    # --- inside ------------------------------------------------------------------------------------------------------

    async def _load(self) -> None:
        try:
            await self._reopen()
        except StorageError as error:
            logger.warning("%s Rebuilding it from the catalog.", error)
            await self.reindex()
        if self.settings.starter and self._own is None and not self.settings.servers_file.exists():
            from toolscout.server.starter import register_starter

            await self._list_all(await self._run(partial(register_starter, self.servers)))
        if self.serving:
            if self._mending is None or self._mending.done():
                self._mending = asyncio.create_task(self._keep_mending())
            await self._searchable.wait()  # a server that does not start holds up nobody who wants the others
        if self._index is None:
            self.behind = describe_catalogue(0, 0, [])

    async def _keep_mending(self) -> None:
        """Until it goes well: what keeps an index from being written (a full disk, a lock) passes."""
        wait = _MEND_AGAIN_SECONDS
        while True:
            try:
                if await self._mend():
                    return
            finally:
                self._searchable.set()
            await asyncio.sleep(wait)
            wait = min(_MEND_SELDOM_SECONDS, wait * 2)

    async def _mend(self) -> bool:
        """Bring in servers never listed and changes whose indexing was cut off. Whether that went well."""
        try:
            if unlisted := await self._run(self._unlisted):
                await self._list_all(unlisted)
            if await self._run(self._is_stale):
                await self.reindex()
        except ToolscoutError as error:
            logger.warning("The index could not be brought up to date: %s", error)
            return False
        return True

    def _worked(self, index: SearchIndex | LayeredIndex, task: str) -> list[Call]:
        """The nearest worked calls. An index can be older than a review: none of a tool that is held by now."""
        near = index.exemplars_near(task, _EXEMPLARS)
        golds = {gold.tool_id for call in near for gold in call.gold}
        kept = {tool_id: self.catalogue.get_tool(tool_id) for tool_id in golds}
        # What the catalogue does not have is of the pack, which holds approved tools alone.
        approved = {i for i, tool in kept.items() if tool is None or tool.review is Review.APPROVED} - self._holds.ids
        return [call for call in near if all(gold.tool_id in approved for gold in call.gold)]

    async def _compare(self, name: str, listed: list[JsonObject]) -> None:
        """An upstream has been connected to, or says that its tools changed: nothing is called that is not as approved.

        What differs is held at once, recorded before the call goes on where that is quick, and brought into the index
        afterwards. Raises StorageError if the catalogue cannot say what was approved.
        """
        from toolscout.server.upstreams.listing import tools_of

        if not await self._holds.compare(name, partial(tools_of, name, listed)):
            return
        if self._holds.listed_otherwise(name):
            self.pool.heed(name)  # another client's process may be of an older version, and list what was approved
        try:
            async with asyncio.timeout(_RECORD_SECONDS):
                await self.refresh_server(name, reindex=False, trust=False, fresh=False)
        except (ToolscoutError, TimeoutError) as error:
            kind = error.kind if isinstance(error, ToolscoutError) else "timeout"
            logger.warning("The changed tools of %s could not be recorded yet: %s", name, kind)
        self._tools_changed(name)

    def _judge(self, name: str, policy: Path) -> None:
        """What a person's policy file says of a server's tools; where it says nothing, or cannot be read, they wait."""
        from toolscout.index.guard.policy import read_policy, verdicts

        try:
            rules = read_policy(policy)
        except (BadInput, NotFound) as error:
            logger.warning("%s What has changed waits for a person.", error)
            return
        if found := verdicts(rules, self.catalogue.tools(name)):
            self.catalogue.set_reviews(found, source="policy")

    async def _stray(self, index: SearchIndex | LayeredIndex) -> frozenset[str]:
        """Tools of the index that have been held since it was built: mostly none."""
        try:
            await self._holds.look()
        except StorageError as error:
            logger.warning("%s Searched is with the reviews as they were known before.", error)
        held = self._holds.ids
        if self._strays[0] is not held or self._strays[1] is not index:
            self._strays = held, index, await self._run(lambda: index.known(held))
        return self._strays[2]

    def _tools_changed(self, name: str) -> None:
        """An upstream says that its tools changed: list them again, nothing new in them trusted."""
        if self._loading is not None:
            self._relisting.announce(name)

    async def _relist(self, name: str) -> None:
        """List a server that has announced changes. Nothing new in them is trusted, but for the first tools of one that
        had none when it was added."""
        await self.refresh_server(name, trust=False if name in self._on_trial else None)

    async def _waiting(self, name: str) -> int:
        """How many tools of a server, as it lists them now, wait for a review; 0 where it cannot be told quickly."""
        try:
            async with asyncio.timeout(_RECORD_SECONDS):
                change = await self.refresh_server(name, reindex=False, fresh=False)
        except (ToolscoutError, TimeoutError):
            return 0  # it is listed again, and held until then
        return sum(tool_id in self._holds for tool_id in change.waiting)

    def _is_stale(self) -> bool:
        """Whether the catalogue has changes that the index lacks: a process was killed between the two."""
        revision = self._open_catalogue().revision
        return revision != (self._own.revision if self._own is not None else 0)

    async def _reopen(self) -> None:
        before = self.behind
        await self._run(self._open_index)
        if self._own is not None:
            self._searchable.set()
        if self.behind != before and self.on_change is not None:
            self.on_change()

    def _unlisted(self) -> list[str]:
        """Configured servers of which no tool was ever listed: written into ``mcp.json`` by hand, or mounted, or they
        had none yet when they were listed."""
        known = self._own
        return [
            name
            for name in self._enabled()
            if known is None or known.get_server(name) is None or not self._open_catalogue().has_listed(name)
        ]

    def _enabled(self) -> list[str]:
        return [name for name, config in self.configured().items() if not config.disabled]

    async def _list_all(self, names: Sequence[str]) -> None:
        """List servers' tools, a few at a time, and index them; one that fails is left for `doctor` to explain."""
        places = asyncio.Semaphore(_LISTED_AT_ONCE)

        async def one(name: str) -> bool:
            async with places:
                try:
                    await self.refresh_server(name, reindex=False)
                except ToolscoutError as error:
                    # Not its text, which is the server's: `doctor` starts it and shows what it says.
                    logger.warning("The tools of %s could not be listed: %s", name, error.kind)
                    return False
            return True

        waiting = {asyncio.create_task(one(name)) for name in names}
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, timeout=_BATCH_SECONDS)
                listed = [task.result() for task in done]
                if any(listed):
                    await self.reindex()  # what has come: another may take minutes, or wait for a login
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    def _open_catalogue(self) -> Catalogue:
        with self._lock:
            if self._catalogue is None:
                from toolscout.index.catalogue import Catalogue

                self.settings.home.mkdir(parents=True, exist_ok=True)
                self._catalogue = Catalogue(self.settings.database_url)
            return self._catalogue

    def _read_pointer(self) -> tuple[int, int] | None:
        return _mark(self.settings.index_dir / "CURRENT")

    def _read_pack_pointer(self) -> tuple[int, int] | None:
        from toolscout.index.pack.current import CURRENT, packs_folder

        return _mark(packs_folder(self.settings) / CURRENT)

    def _open_index(self) -> None:
        from toolscout.index.encoder import make_encoder
        from toolscout.index.search import SearchIndex

        with self._lock:
            pointer, pack_pointer = self._read_pointer(), self._read_pack_pointer()
            encoder = make_encoder(self.settings)
            if self._index is not None and self._index.encoder.fingerprint == encoder.fingerprint:
                encoder = self._index.encoder  # its model is loaded: the next query need not wait for it again
            box = open_box(self.settings, encoder, self._box)
            # The old ones are not closed: a search may still be reading them. They go when the last reference does.
            if pointer is not None and pointer != self._pointer:
                self._own = SearchIndex.open(self.settings.index_dir, encoder)
                self._priors = self._read_priors(self._own)
            self._pointer, self._pack_pointer, self._box = pointer or self._pointer, pack_pointer, box
            self._index = self._own if box is None else join(self._own, box, self.configured())
            if self._index is not None:
                self.behind = describe_catalogue(len(self._index), self.index_servers, self._names(self._index))

    def _read_priors(self, index: SearchIndex) -> Floats | None:
        """How the health file, if there is one, favours the index's servers. One that is broken is left out."""
        if self.settings.health is None:
            return None
        from toolscout.index.health import read_health

        try:
            return index.server_priors(read_health(self.settings.health).priors())
        except ToolscoutError as error:
            logger.warning("%s Servers are ranked without it.", error)
            return None

    def _names(self, index: SearchIndex | LayeredIndex) -> list[str]:
        """Servers to name: all that are configured, by their names there; a few of the largest where those are few."""
        configured = [name for name in self.configured() if index.get_server(name) is not None]
        largest = [name for name in index.largest_servers(_LARGEST_SHOWN) if name not in configured]
        # Strangers' words in a text that every client's model reads: names alone, nothing that could be a sentence.
        short = [last for name in largest if _NAME.fullmatch(last := name.rsplit("/", 1)[-1])]
        return list(dict.fromkeys(configured + short[: max(0, _LARGEST_SHOWN - len(configured))]))

    def _tool(self, tool_id: str) -> Tool | None:
        return self._index.get_tool(tool_id) if self._index is not None else None

    def _tool_or_held(self, tool_id: str) -> Tool | None:
        """The tool; also one that is kept out of the search by review, so that its call is refused for that reason."""
        tool = self._tool(tool_id)
        copies: Mapping[str, str] = getattr(self._index, "failing", {})
        if tool is not None and copies.get(tool.server_id) in self.configured():
            raise NotFound(f"'{tool_id}' cannot be called. {self.failure(copies[tool.server_id], listed=False)}")
        held = tool_id in self._holds
        if tool is not None and not held:
            return self._packed(tool_id) if self._holds.gone(tool_id) else tool
        kept = self.catalogue.get_tool(tool_id)  # the index is older than the tool, or than what is held against it
        if kept is None or not held or kept.review is not Review.APPROVED:
            return kept
        # Approved, but its server is quarantined, or lists another text than that and it could not be recorded yet.
        review = Review.CHANGED if self._holds.differs(tool_id) else Review.PENDING
        return kept.model_copy(update={"review": review})

    def _packed(self, tool_id: str) -> Tool | None:
        """A tool of the pack, which the catalogue need not have. Of a server that is here only its own list counts."""
        tool = self._box.get_tool(tool_id) if self._box is not None else None
        if tool is None or tool.server_id in self.configured() or self.catalogue.get_server(tool.server_id) is not None:
            return None
        return tool

    def _server(self, server_id: str) -> Server | None:
        server = self._index.get_server(server_id) if self._index is not None else None
        if server is None:
            server = self.catalogue.get_server(server_id)
        if server is None:
            return None
        state = self.state_of(server, server_id)
        return server if state is server.state else server.model_copy(update={"state": state})

    def _similar(self, text: str) -> list[str]:
        near = self._index.similar_tool_ids(text, _SIMILAR) if self._index is not None else []
        policy = self._policy()
        return [
            tool_id
            for tool_id in near
            if tool_id not in self._holds
            and (policy is None or (tool := self._tool(tool_id)) is None or not policy.never(tool))
        ]

    def _signature(self, tool_id: str) -> str | None:
        tool = self._tool(tool_id)
        return None if tool is None else compact_signature(tool)

    async def _known(self, tool_id: str) -> Tool:
        await self.loaded()
        await self._holds.look()
        tool = self._tool(tool_id)
        if tool is None or tool_id in self._holds:
            if tool is not None and self._loading is not None and tool.server_id in self._enabled():
                self._relisting.look_again(tool.server_id)  # it may be as approved by now
            near = self._similar(tool_id)
            hint = f"Nearest: {', '.join(near)}." if near else worded(LOOK, self.terminal)
            raise NotFound(f"No tool has the id {tool_id!r}.", hint)
        return tool

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._work, work)

    async def _write(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writing, work)


def _tools_of(pack: PackIndex | None, servers: Iterable[str]) -> frozenset[str]:
    """Ids of all that the pack has of servers, themselves as a whole included."""
    listed = (pack.listed_tools(server) for server in servers) if pack is not None else ()
    return frozenset(servers).union(*({tool.tool_id for tool in tools} for tools in listed))


def _mark(path: Path) -> tuple[int, int] | None:
    """What tells one version of a file from the next; None where there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino


def _tell(**facts: Any) -> None:
    if (call := current_call()) is not None:
        call.facts.update({f"toolscout.{name}": value for name, value in facts.items()})


def _has_failed(task: asyncio.Task[None]) -> bool:
    return task.done() and not task.cancelled() and task.exception() is not None
