"""Lines on the standard input of a server that runs in this process, whole: transport, SDK, engine."""

from __future__ import annotations

import asyncio
import json
import os
import select
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing.frames import lines
from toolscout.records import Server, Tool
from toolscout.server.engine import Engine
from toolscout.server.gate import Handover, write_all
from toolscout.server.stdio import _serve
from toolscout.settings import Settings

SHARE = 10
cases = st.lists(lines, min_size=1, max_size=5)
_PATIENCE = 50.0
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}


class Conversation:
    """A client on two descriptors of a server. ``send`` and ``receive`` move bytes, ``receive`` one line."""

    def __init__(self, send: Callable[[bytes], None], receive: Callable[[], bytes]) -> None:
        self._send, self._receive = send, receive
        self._number = 0

    def request(self, method: str, params: Any = None) -> dict[str, Any]:
        """Send a request of our own; every line up to its answer is JSON-RPC. The answer."""
        self._number += 1
        ident = f"own-{self._number}"
        message = {"jsonrpc": "2.0", "id": ident, "method": method, **({} if params is None else {"params": params})}
        self._send(json.dumps(message).encode() + b"\n")
        while True:
            line = self._receive()
            assert line.endswith(b"\n"), f"the server has gone: {line!r}"
            answer = json.loads(line)
            assert isinstance(answer, dict) and answer["jsonrpc"] == "2.0", line[:500]
            assert "method" in answer or ("result" in answer) != ("error" in answer), line[:500]
            if isinstance(error := answer.get("error"), dict):
                assert isinstance(error["code"], int) and isinstance(error["message"], str), line[:500]
            if answer.get("id") == ident and "method" not in answer:
                return answer

    def check(self, received: list[bytes]) -> None:
        """Odd lines, and the server still answers."""
        for line in received:
            self._send(line.rstrip(b"\n") + b"\n")
        assert self.request("ping").get("result") == {}


async def _fill(settings: Settings) -> None:
    tools = [Tool(tool_id=f"s/{n}", server_id="s", name=n, description=f"{n} a file") for n in ("read", "write")]
    async with Engine(settings) as engine:
        engine.catalogue.put_server(Server(server_id="s"), tools)
        await engine.reindex()


@contextmanager
def home() -> Iterator[Settings]:
    """Settings over a new home with two tools of a server that nobody can start."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(home=Path(folder), starter=False)
        asyncio.run(_fill(settings))
        yield settings


class LineReader:
    """Lines from a descriptor, with patience but not for ever."""

    def __init__(self, fd: int) -> None:
        self._fd, self._buffer = fd, b""

    def __call__(self) -> bytes:
        """The next line; what is left when the other side has closed. Raises TimeoutError."""
        while b"\n" not in self._buffer:
            if not select.select([self._fd], [], [], _PATIENCE)[0]:
                raise TimeoutError("no answer")
            chunk = os.read(self._fd, 65536)
            if not chunk:
                return self._buffer
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line + b"\n"


@contextmanager
def checking() -> Iterator[Callable[[list[bytes]], None]]:
    """The check of a case against one server that lives for all of them."""
    to_server, from_server = os.pipe(), os.pipe()
    ended: list[BaseException | None] = []

    def serve(settings: Settings) -> None:
        try:
            asyncio.run(_serve(settings, Handover(), "", to_server[0], from_server[1]))
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    with home() as settings:
        thread = threading.Thread(target=serve, args=(settings,), daemon=True)
        thread.start()
        client = Conversation(lambda data: write_all(to_server[1], data), LineReader(from_server[0]))
        client.request("initialize", HELLO)
        yield client.check
        os.close(to_server[1])
        thread.join(_PATIENCE)
        os.close(from_server[0])
        assert ended == [None], ended
