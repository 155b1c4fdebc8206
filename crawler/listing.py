"""Ask a fresh server for its tools, in both protocol eras, and take the answer as it comes.

Not the SDK's client session: that validates, and one tool whose schema is wrong would lose the whole list. A crawler
records what is there.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, field
from typing import Any

import toolscout
from toolscout.crawler.bridge import ENDPOINT
from toolscout.crawler.failures import DeployError, Failure
from toolscout.crawler.process import Running
from toolscout.records import JsonObject

LEGACY_VERSION = "2025-11-25"
OLDER_VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
"""Offered in turn where a server refuses the newest instead of naming its own."""
MODERN_VERSION = "2026-07-28"
_META = "io.modelcontextprotocol/"
_MAX_PAGES = 300
_MAX_TOOLS = 10_000
_LATE_TOOLS = 1.0
"""Seconds after which a list that was empty is asked for again: some servers register tools after the handshake."""
_METHOD_NOT_FOUND = -32601
_NOISE_KEPT = 4096


class RpcError(Exception):
    """The server answered with an error."""

    def __init__(self, error: Any) -> None:
        error = error if isinstance(error, dict) else {"message": str(error)}
        self.code = error.get("code")
        self.data = error.get("data")
        super().__init__(str(error.get("message") or error)[:500])


@dataclass
class Listing:
    """What a server said of itself. ``tools`` are in wire form."""

    protocol_version: str = ""
    era: str = "legacy"
    server_info: JsonObject = field(default_factory=dict)
    instructions: str | None = None
    capabilities: JsonObject = field(default_factory=dict)
    tools: list[JsonObject] = field(default_factory=list)
    pages: int = 0
    noise: int = 0
    """Lines on stdout that were no messages."""
    odd: int = 0
    """Entries of the list that were no tools: not an object, or without a name."""


async def read_listing(running: Running) -> Listing:
    """Talk to a server until its tools are listed. The caller bounds the time.

    Raises:
        Gone: it closed its output, or printed an end of its own.
        DeployError: it talks, but not the protocol.
    """
    peer = _Peer(running)
    try:
        return await _list(peer)
    finally:
        running.noise += running.unfinished[:_NOISE_KEPT]
        await peer.close()


class Gone(Exception):
    """The server closed its output before it had answered."""


async def _list(peer: _Peer) -> Listing:
    listing = Listing()
    meta: JsonObject = {}
    try:
        answer = await _initialize(peer)
        listing.protocol_version = str(answer.get("protocolVersion") or "")
        listing.server_info = _object(answer.get("serverInfo"))
        await peer.tell("notifications/initialized")
    except RpcError as refused:
        meta = {
            f"{_META}protocolVersion": MODERN_VERSION,
            f"{_META}clientInfo": _client(),
            f"{_META}clientCapabilities": {},
        }
        try:
            answer = await peer.ask("server/discover", {"_meta": meta})
        except RpcError as error:
            raise DeployError(
                Failure.PROTOCOL, "refuses_both_eras", f"initialize: {refused}\nserver/discover: {error}"
            ) from None
        listing.era = "modern"
        listing.protocol_version = MODERN_VERSION
        listing.server_info = _object(answer.get("serverInfo")) or _object(
            _object(answer.get("_meta")).get(f"{_META}serverInfo")
        )
    if isinstance(answer.get("instructions"), str):
        listing.instructions = answer["instructions"]
    listing.capabilities = _object(answer.get("capabilities"))
    await _pages(peer, listing, meta)
    if not listing.tools and "tools" in listing.capabilities:
        await asyncio.sleep(_LATE_TOOLS)
        await _pages(peer, listing, meta)
    listing.noise = peer.noise_lines
    return listing


async def _initialize(peer: _Peer) -> JsonObject:
    """The answer to initialize. Raises RpcError as the newest version was refused."""
    first: RpcError | None = None
    for version in (LEGACY_VERSION, *OLDER_VERSIONS):
        try:
            return await peer.ask(
                "initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": _client()}
            )
        except RpcError as error:
            first = first or error
            if re.search(r"protocol.?version|version .*(?:not |un)supported", str(error), re.I) is None:
                break
    assert first is not None
    raise first


async def _pages(peer: _Peer, listing: Listing, meta: JsonObject) -> None:
    """All pages of the list; a cursor that comes again ends it."""
    cursor: str | None = None
    seen: set[str] = set()
    listing.tools.clear()
    while listing.pages < _MAX_PAGES and len(listing.tools) < _MAX_TOOLS:
        params: JsonObject = {"cursor": cursor} if cursor is not None else {}
        if meta:
            params["_meta"] = meta
        try:
            page = await peer.ask("tools/list", params)
        except RpcError as error:
            if error.code == _METHOD_NOT_FOUND and not listing.tools:
                return  # a server of prompts and resources
            raise DeployError(Failure.PROTOCOL, "list_fails", f"tools/list: {error} (code {error.code})") from None
        listing.pages += 1
        items = page.get("tools")
        if not isinstance(items, list):
            raise DeployError(Failure.PROTOCOL, "no_list", f"tools/list answered {json.dumps(page)[:300]}")
        for item in items:
            if isinstance(item, dict) and isinstance(item.get("name"), str) and item["name"]:
                listing.tools.append(item)
            else:
                listing.odd += 1
        cursor = page.get("nextCursor") if isinstance(page.get("nextCursor"), str) else None
        if not cursor or cursor in seen:
            return
        seen.add(cursor)


class _Peer:
    """JSON-RPC over the pipes of one process."""

    def __init__(self, running: Running) -> None:
        self.noise_lines = 0
        self._running = running
        self._next = 0
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ended = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._read())

    async def ask(self, method: str, params: JsonObject) -> JsonObject:
        """A request's result. Raises RpcError, Gone, DeployError."""
        self._next += 1
        number = self._next
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        await self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        await asyncio.wait([future, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise Gone
        result = future.result()
        if not isinstance(result, dict):
            raise DeployError(Failure.PROTOCOL, "no_object", f"{method} answered {json.dumps(result)[:300]}")
        return result

    async def tell(self, method: str) -> None:
        """A notification."""
        await self._send({"jsonrpc": "2.0", "method": method})

    async def close(self) -> None:
        """Stop reading."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for future in self._waiting.values():
            if future.done() and not future.cancelled():
                future.exception()

    async def _send(self, message: JsonObject) -> None:
        # A server that does not listen any more says why on stderr: its end is noticed by the reader.
        await self._running.write(json.dumps(message).encode() + b"\n")

    async def _read(self) -> None:
        try:
            async for line in self._running.lines():
                for message in self._messages(line):
                    await self._take(message)
        finally:
            if not self._ended.done():
                self._ended.set_result(None)

    def _messages(self, line: bytes) -> list[JsonObject]:
        """The messages of a line; anything that is not JSON with "jsonrpc" in it is noise."""
        if not line.strip():
            return []
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        items = found if isinstance(found, list) else [found]
        messages = [item for item in items if isinstance(item, dict) and "jsonrpc" in item]
        if not messages:
            self.noise_lines += 1
            if len(self._running.noise) < _NOISE_KEPT:
                self._running.noise += line[:1000] + b"\n"
        return messages

    async def _take(self, message: JsonObject) -> None:
        number = message.get("id")
        if "method" in message:
            if message["method"] == ENDPOINT:
                self._running.endpoint = _object(message.get("params"))
            if number is not None:
                await self._answer(number, str(message["method"]))
            return
        future = self._waiting.pop(number, None) if isinstance(number, int) else None
        if future is None and isinstance(number, str) and number.isdigit():
            future = self._waiting.pop(int(number), None)  # an id that came back as text
        if future is None or future.done():
            return
        self._running.answered = True
        if "error" in message:
            future.set_exception(RpcError(message["error"]))
        else:
            future.set_result(message.get("result"))

    async def _answer(self, number: Any, method: str) -> None:
        """What a server may ask of its client: we are alive, and offer nothing."""
        reply: JsonObject = {"jsonrpc": "2.0", "id": number}
        if method == "ping":
            reply["result"] = {}
        elif method == "roots/list":
            reply["result"] = {"roots": []}
        else:
            reply["error"] = {"code": _METHOD_NOT_FOUND, "message": "Not offered"}
        await self._send(reply)


def _client() -> JsonObject:
    return {"name": "toolscout", "version": toolscout.__version__}


def _object(value: Any) -> JsonObject:
    return value if isinstance(value, dict) else {}
