"""A light MCP client over HTTP/1.1 for load: one kept connection, one call at a time, both protocol eras."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

MODERN, LEGACY = "2026-07-28", "2025-11-25"
_META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "load", "version": "1"},
}


@dataclass
class Work:
    """What one client does until ``until`` (`time.time`): ``calls`` are (label, tool, arguments, weight)."""

    url: str
    era: str
    calls: list[tuple[str, str, dict[str, Any], float]]
    from_: float
    until: float
    pause: float = 0.0
    timeout: float = 60.0
    token: str = ""


@dataclass
class Done:
    """What came of it. ``times`` holds seconds by label, of calls that began after the warm-up and were answered."""

    era: str = ""
    calls: int = 0
    times: dict[str, list[float]] = field(default_factory=dict)
    errors: dict[str, int] = field(default_factory=dict)

    def failed(self, kind: str) -> None:
        """Count an error."""
        self.errors[kind] = self.errors.get(kind, 0) + 1


class Connection:
    """One kept HTTP connection to an MCP endpoint."""

    def __init__(self, work: Work) -> None:
        parts = urlsplit(work.url)
        self._host, self._port, self._path = parts.hostname or "", parts.port or 80, parts.path
        self._modern = work.era == "modern"
        self._token = work.token
        self._id = 0
        self._session = ""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Connect, and shake hands in the older era."""
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=1 << 24)
        if not self._modern:
            hello = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "load", "version": "1"}}
            await self.request("initialize", hello)
            await self._send({"jsonrpc": "2.0", "method": "notifications/initialized"}, "", "")
            await self._answer()

    def close(self) -> None:
        """Drop the connection."""
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    async def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """``tools/call``; the JSON-RPC answer."""
        return await self.request("tools/call", {"name": tool, "arguments": arguments}, tool)

    async def request(self, method: str, params: dict[str, Any], name: str = "") -> dict[str, Any]:
        """A request and its answer. Raises OSError, EOFError or ValueError where either fails."""
        if self._writer is None:
            await self.open()
        self._id += 1
        if self._modern:
            params = {**params, "_meta": _META}
        await self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}, method, name)
        status, body = await self._answer()
        if status != 200:
            raise ValueError(f"HTTP {status}")
        message: dict[str, Any] = json.loads(body)
        if message.get("id") != self._id:
            raise ValueError("answer to another request")
        return message

    async def _send(self, message: dict[str, Any], method: str, name: str) -> None:
        assert self._writer is not None
        body = json.dumps(message).encode()
        head = [
            f"POST {self._path} HTTP/1.1",
            f"host: {self._host}:{self._port}",
            "accept: application/json, text/event-stream",
            "content-type: application/json",
            f"mcp-protocol-version: {MODERN if self._modern else LEGACY}",
            f"content-length: {len(body)}",
        ]
        if self._modern and method:
            head += [f"mcp-method: {method}", *([f"mcp-name: {name}"] if name else [])]
        if self._session:
            head.append(f"mcp-session-id: {self._session}")
        if self._token:
            head.append(f"authorization: Bearer {self._token}")
        self._writer.write("\r\n".join(head).encode() + b"\r\n\r\n" + body)
        await self._writer.drain()

    async def _answer(self) -> tuple[int, bytes]:
        reader = self._reader
        assert reader is not None
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        status = int(head[0].split()[1])
        headers = {k.strip().lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        self._session = headers.get("mcp-session-id", self._session)
        if "content-length" in headers:
            body = await reader.readexactly(int(headers["content-length"]))
        elif headers.get("transfer-encoding") == "chunked":
            body = b""
            while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readuntil(b"\r\n")
        else:
            body = b""
        if headers.get("connection") == "close":
            self.close()
        if headers.get("content-type", "").startswith("text/event-stream"):
            # The last event that is an answer: progress may come before it.
            data = [line[5:].strip() for line in body.split(b"\n") if line.startswith(b"data:")]
            body = next((d.rstrip(b"\r") for d in reversed(data) if b'"id"' in d), b"{}")
        return status, body


async def client(work: Work, seed: int) -> Done:
    """One client's calls, one after another."""
    done, rng, connection = Done(work.era), random.Random(seed), Connection(work)
    weights = [weight for *_, weight in work.calls]
    await asyncio.sleep(rng.random() * min(2.0, max(0.0, work.from_ - time.time())))  # not all in one instant
    while time.time() < work.until:
        label, tool, arguments, _ = rng.choices(work.calls, weights)[0]
        started, counted = time.perf_counter(), time.time() >= work.from_
        trouble = ""
        try:
            async with asyncio.timeout(work.timeout):
                answer = await connection.call(tool, arguments)
            if "error" in answer:
                trouble = f"JSON-RPC {answer['error'].get('code')}"
            elif answer.get("result", {}).get("isError"):
                trouble = f"tool error: {answer['result']['content'][0].get('text', '')[:60]}"
        except (OSError, EOFError, ValueError, TimeoutError, KeyError, IndexError) as error:
            connection.close()
            trouble = type(error).__name__ if not isinstance(error, ValueError) else str(error)[:60]
            await asyncio.sleep(0.1)
        if counted:
            if trouble:
                done.failed(trouble)
            else:
                done.calls += 1
                done.times.setdefault(label, []).append(time.perf_counter() - started)
        if work.pause:
            await asyncio.sleep(rng.expovariate(1 / work.pause))
    connection.close()
    return done


def drive(work: Work, clients: int, seed: int, mixed: bool) -> list[Done]:
    """So many clients in this process; with ``mixed`` every other one speaks the older era."""

    async def all_of_them() -> list[Done]:
        eras = [("legacy" if n % 2 else "modern") if mixed else work.era for n in range(clients)]
        works = [Work(**{**vars(work), "era": era}) for era in eras]
        return await asyncio.gather(*(client(w, seed * 100_003 + n) for n, w in enumerate(works)))

    from toolscout.server.limits import raise_file_limit

    raise_file_limit()
    return asyncio.run(all_of_them())
