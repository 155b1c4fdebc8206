"""A live connection to one upstream: the SDK's client session over pipes or HTTP, with the shortest path for calls."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypedDict

import mcp_types as types
from mcp.client.session import ClientSession
from mcp.client.subscriptions import SubscriptionLost, ToolsListChanged, listen
from mcp.shared.dispatcher import CallOptions, Dispatcher, ProgressFnT
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

import toolscout
from toolscout.records import JsonObject, Transport
from toolscout.server.config import UpstreamConfig
from toolscout.server.sandbox.policy import Policy
from toolscout.server.telling.tracecontext import valid_carrier
from toolscout.server.upstreams.answer import Answer
from toolscout.server.upstreams.environment import safe_environment
from toolscout.server.upstreams.exchange import exchange
from toolscout.server.upstreams.folder import work_folder
from toolscout.server.upstreams.pipe import PipeDispatcher
from toolscout.server.upstreams.process import UpstreamProcess

logger = logging.getLogger(__name__)

CLIENT = types.Implementation(name="toolscout", title="Toolscout", version=toolscout.__version__)
_PROBE_SECONDS = 5.0
"""How long a server may take to answer the modern probe before the older handshake is tried."""
_LONGEST_SECONDS = 3600.0
"""So long may a call take that goes on telling of progress."""
_MAX_PAGES = 200
_OUR_META = {types.PROTOCOL_VERSION_META_KEY, types.CLIENT_INFO_META_KEY, "progressToken"}


class Relayed(TypedDict, total=False):
    """What is relayed with a call: ``await on_progress(progress, total, message)`` back; ``meta`` on, without protocol
    version and progress token; input responses and request state as they came."""

    on_progress: ProgressFnT | None
    meta: Mapping[str, Any] | None
    input_responses: Mapping[str, Any] | None
    request_state: str | None


class Link:
    """One entered connection. ``closed`` is set when the upstream has gone."""

    def __init__(self, session: ClientSession, dispatcher: Dispatcher[Any], process: UpstreamProcess | None) -> None:
        self.session = session
        self.process = process
        self.closed = asyncio.Event()
        self.retired = ""
        """Why Toolscout ends it, as a clause; empty while it does not."""
        self._under_way = 0
        self.own_refusals: set[tuple[int, ...]] = set()
        """Forms of refusals that look like a lost session, and are none: a new session got them, too."""
        self._dispatcher = dispatcher
        self._modern = session.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._headers: dict[str, dict[tuple[str, ...], str]] = {}
        self._meta: JsonObject = {}
        if self._modern:
            self._meta = {
                types.PROTOCOL_VERSION_META_KEY: session.protocol_version,
                types.CLIENT_INFO_META_KEY: CLIENT.model_dump(by_alias=True, mode="json", exclude_none=True),
                types.CLIENT_CAPABILITIES_META_KEY: {},
            }

    @property
    def era(self) -> str:
        """``modern`` (stateless, 2026-07-28) or ``legacy`` (the 2025 handshake)."""
        return "modern" if self._modern else "legacy"

    @property
    def tells_of_changes(self) -> bool:
        """Whether the upstream says when its tools change."""
        declared = self.session.server_capabilities
        return bool(declared is not None and declared.tools is not None and declared.tools.list_changed)

    async def call(
        self,
        tool: str,
        arguments: JsonObject,
        *,
        timeout: float,  # noqa: ASYNC109
        patient: bool = False,
        on_progress: ProgressFnT | None = None,
        meta: Mapping[str, Any] | None = None,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
    ) -> JsonObject:
        """``tools/call``; the result in wire form, without the upstream's own identity stamp.

        Raises TimeoutError after ``timeout`` seconds; with ``patient`` each report of progress begins them anew.
        """
        params: JsonObject = {"name": tool, "arguments": arguments}
        if input_responses is not None:
            params["inputResponses"] = {k: _plain(v) for k, v in input_responses.items()}
        if request_state is not None:
            params["requestState"] = request_state
        async with asyncio.timeout(timeout) as limit:
            if patient:
                on_progress = _extending(limit, timeout, on_progress)
            try:
                result = await self._request("tools/call", params, on_progress, meta)
            except MCPError as error:
                if error.error.code != types.HEADER_MISMATCH or self.process is not None:
                    raise
                await self.list_tools()  # brings the parameter headers that the server asks for
                result = await self._request("tools/call", params, on_progress, meta)
        result_meta = result.get("_meta")
        if isinstance(result_meta, dict) and types.SERVER_INFO_META_KEY in result_meta:
            del result_meta[types.SERVER_INFO_META_KEY]
            if not result_meta:
                del result["_meta"]
        return result

    async def _request(
        self,
        method: str,
        params: JsonObject,
        on_progress: ProgressFnT | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> JsonObject:
        # The caller's capabilities count, not ours: an upstream may ask for input that only the caller can give.
        merged = {**self._meta, **{k: v for k, v in meta.items() if k not in _OUR_META}} if meta else dict(self._meta)
        if not self._modern:
            merged.pop(types.CLIENT_CAPABILITIES_META_KEY, None)
        if merged:
            params["_meta"] = merged
        options: CallOptions = {}
        if on_progress is not None:
            options["on_progress"] = on_progress
        if self.process is not None:
            return await self._dispatcher.send_raw_request(method, params, options)
        options["headers"] = self._http_headers(method, params)
        self._under_way += 1
        try:
            with exchange():
                return await self._dispatcher.send_raw_request(method, params, options)
        finally:
            self._under_way -= 1

    def _http_headers(self, method: str, params: JsonObject) -> dict[str, str]:
        headers = {MCP_PROTOCOL_VERSION_HEADER: str(self.session.protocol_version)}
        if self._modern:
            headers[MCP_METHOD_HEADER] = method
            if isinstance(name := params.get("name"), str):
                headers[MCP_NAME_HEADER] = encode_header_value(name)
                if (mapping := self._headers.get(name)) is not None:
                    headers.update(mcp_param_headers(mapping, params.get("arguments") or {}))
        headers.update(valid_carrier(params.get("_meta")))
        return headers

    async def ping(self, seconds: float) -> None:
        """Ask for a sign of life. Raises MCPError where it is refused, TimeoutError where none comes."""
        async with asyncio.timeout(seconds):
            await self._request("ping", {})

    async def quiet(self, seconds: float) -> None:
        """Wait until every request over HTTP is answered, ``seconds`` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._under_way:  # noqa: ASYNC110  (two seconds at most, after a session was lost)
                    await asyncio.sleep(0.02)

    async def list_tools(self) -> list[JsonObject]:
        """All pages of ``tools/list``, each tool in wire form."""
        tools: list[JsonObject] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(_MAX_PAGES):
            page = await self._request("tools/list", {"cursor": cursor} if cursor is not None else {})
            items = page.get("tools")
            tools += [tool for tool in items if isinstance(tool, dict)] if isinstance(items, list) else []
            following = page.get("nextCursor")
            if not isinstance(following, str) or following in seen:
                break  # the end, or a server that goes round in circles
            seen.add(following)
            cursor = following
        if self._modern and self.process is None:
            tools = [tool for tool in tools if _headers_are_sound(tool)]
            self._headers = {
                str(tool.get("name")): x_mcp_header_map(schema)
                for tool in tools
                if isinstance(schema := tool.get("inputSchema"), dict)
            }
        return tools


def _extending(limit: asyncio.Timeout, seconds: float, on_progress: ProgressFnT | None) -> ProgressFnT:
    """What hears of progress, and gives the call its time anew, an hour in all at most."""
    loop = asyncio.get_running_loop()
    latest = loop.time() + max(seconds, _LONGEST_SECONDS)

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # it has ended meanwhile
            limit.reschedule(min(loop.time() + seconds, latest))
        if on_progress is not None:
            await on_progress(progress, total, message)

    return progressed


def _headers_are_sound(tool: JsonObject) -> bool:
    """Whether a tool can be called over HTTP: one that asks for impossible parameter headers must be left out."""
    trouble = find_invalid_x_mcp_header(tool.get("inputSchema"))
    if trouble is not None:
        logger.warning("the tool %.100r is left out: %s", tool.get("name"), trouble)
    return trouble is None


@asynccontextmanager
async def open_link(
    config: UpstreamConfig,
    *,
    policy: Policy | None,
    max_bytes: int,
    state: Path,
    pass_env: Sequence[str],
    logins: bool,
    marker: str,
    legacy: bool,
    on_process: Callable[[UpstreamProcess], None],
    on_answer: Callable[[Answer], None],
    on_tools_changed: Callable[[], None],
) -> AsyncIterator[Link]:
    """Start or reach the upstream and agree on a protocol version. ``config`` holds resolved values; with a ``policy``
    a process runs in a sandbox. ``pass_env``: what of our environment passes beside the rule. ``logins``: whether a
    person may be sent to the browser to log in.

    Leaving the context ends the process and everything it has started. Enter and leave it in the same task.
    """

    async def on_message(message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            on_tools_changed()

    if config.transport is Transport.STDIO:
        pipe = PipeDispatcher(max_bytes)
        async with _process(config, policy, state, pass_env, marker, pipe) as process:
            process.noise = pipe.noise
            pipe.attach(process.write, lambda: process.writable, process.wait_writable)
            on_process(process)
            async with ClientSession(dispatcher=pipe, client_info=CLIENT, message_handler=on_message) as session:
                await negotiate(session, legacy=legacy)
                link = Link(session, pipe, process)
                link.closed = pipe.closed
                async with _watching(session, on_tools_changed):
                    yield link
        return

    from toolscout.server.upstreams.remote import connect

    async with (
        connect(config, max_bytes=max_bytes, state=state, logins=logins, on_answer=on_answer) as dispatcher,
        ClientSession(dispatcher=dispatcher, client_info=CLIENT, message_handler=on_message) as session,
    ):
        await negotiate(session, legacy=legacy or config.transport is Transport.SSE)
        link = Link(session, dispatcher, None)
        try:
            async with _watching(session, on_tools_changed):
                yield link
        finally:
            link.closed.set()


@asynccontextmanager
async def _process(
    config: UpstreamConfig,
    policy: Policy | None,
    home: Path,
    pass_env: Sequence[str],
    marker: str,
    pipe: PipeDispatcher,
) -> AsyncIterator[UpstreamProcess]:
    """The upstream's process, in a sandbox where there is a policy; it has ended when the context is left."""
    async with AsyncExitStack() as stack:
        if policy is None:
            process = await UpstreamProcess.start(
                config.command,
                config.args,
                {**safe_environment(passed=pass_env), **config.env},
                str(Path(config.cwd).expanduser() if config.cwd else work_folder(home, config.name)),  # noqa: ASYNC240
                marker=marker,
                on_stdout=pipe.feed,
                on_closed=pipe.close,
            )
        else:
            from toolscout.server.sandbox.enter import sandboxed

            box = await stack.enter_async_context(sandboxed(config, policy, home=home, marker=marker))
            process = await UpstreamProcess.start_in(box, marker=marker, on_stdout=pipe.feed, on_closed=pipe.close)
        try:
            yield process
        finally:
            await process.stop()


async def negotiate(session: ClientSession, *, legacy: bool) -> None:
    """Agree on a protocol era: probe for the stateless one, else do the 2025 handshake.

    The probe's failure is only evidence against the modern era when the server names no modern version it shares
    with us; a handshake refused as too old (the server answered the probe late) leads back to the probe.
    """
    version = LATEST_MODERN_VERSION
    if not legacy and await _probe(session, version):
        return
    try:
        await session.initialize()
    except MCPError as error:
        shared = _shared_versions(error)
        if not shared or not await _probe(session, shared[-1]):
            raise


async def _probe(session: ClientSession, version: str) -> bool:
    for _ in range(2):
        try:
            async with asyncio.timeout(_PROBE_SECONDS):
                raw = await session.send_discover(version)
        except TimeoutError:
            return False
        except MCPError as error:
            if lost(error):
                raise
            supported = _supported(error)
            shared = _shared_versions(error)
            if shared:  # the same version, too: a server may refuse once what it says it speaks
                version = shared[-1]
                continue
            if supported and not any(v in HANDSHAKE_PROTOCOL_VERSIONS for v in supported):
                raise  # a modern server that shares no version with us
            return False
        try:
            result = types.DiscoverResult.model_validate(raw)
        except ValidationError:
            return False
        if not any(v in MODERN_PROTOCOL_VERSIONS for v in result.supported_versions):
            return False
        session.adopt(result)
        return True
    return False


def lost(error: MCPError) -> bool:
    """Whether a transport says that the connection is gone.

    The code alone does not: servers of the 2025 era answer -32000 to what they do not know, the probe among it.
    """
    return error.error.code == types.CONNECTION_CLOSED and error.error.message.startswith(
        ("Connection closed", "SSE stream")
    )


def _supported(error: MCPError) -> list[str]:
    if error.error.code != types.UNSUPPORTED_PROTOCOL_VERSION or not isinstance(error.error.data, dict):
        return []
    supported = error.error.data.get("supported")
    return [v for v in supported if isinstance(v, str)] if isinstance(supported, list) else []


def _shared_versions(error: MCPError) -> list[str]:
    supported = _supported(error)
    return [v for v in MODERN_PROTOCOL_VERSIONS if v in supported]


@asynccontextmanager
async def _watching(session: ClientSession, on_tools_changed: Callable[[], None]) -> AsyncIterator[None]:
    """On the modern era, change notices come only by subscription; hold one where the server offers it."""
    capabilities = session.server_capabilities
    offers = capabilities is not None and capabilities.tools is not None and capabilities.tools.list_changed
    if session.protocol_version not in MODERN_PROTOCOL_VERSIONS or not offers:
        yield
        return

    async def watch() -> None:
        try:
            async with listen(session, tools_list_changed=True) as subscription:
                async for event in subscription:
                    if isinstance(event, ToolsListChanged):
                        on_tools_changed()
        except (MCPError, SubscriptionLost, RuntimeError, TimeoutError):
            return  # without notices the list is read again when somebody asks for it

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def _plain(value: Any) -> Any:
    return value.model_dump(by_alias=True, mode="json", exclude_none=True) if hasattr(value, "model_dump") else value
