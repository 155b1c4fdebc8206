"""Nothing that an upstream sends ends a serving Toolscout, or reaches its client as JSON that cannot be parsed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from pydantic_core import from_json

from toolscout.records import Review, Server, Tool
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.server.upstreams.reading import WholeCharacters, read_json
from toolscout.settings import Settings

ODD = Path(__file__).parent / "upstreams" / "odd.py"
UPSTREAMS = ["pipe", "json", "event"]
HALF, DEEP = r"half \ud83d of it", "[" * 300 + "]" * 300


def result(inside: str) -> str:
    return '{"jsonrpc":"2.0","id":$ID,"result":{' + inside + "}}"


def said(text: str = "x") -> str:
    return '"content":[{"type":"text","text":"' + text + '"}]'


def structured(value: str) -> str:
    return result(said() + ',"structuredContent":' + value)


def error(inside: str) -> str:
    return '{"jsonrpc":"2.0","id":$ID,"error":{' + inside + "}}"


def progress(inside: str) -> str:
    return '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":$TOKEN,' + inside + "}}"


LINES = {
    "text": [result(said(HALF))],
    "low half": [result(said(r"\ude00 first"))],
    "name": [structured('{"' + HALF + '":1}')],
    "structured": [structured('{"a":["' + HALF + '"]}')],
    "meta": [result(said() + r',"_meta":{"\ud83d":"\ud83d"}')],
    "failed": [result(said(HALF) + ',"isError":true')],
    "block": [result(r'"content":[{"type":"image","data":"aa","mimeType":"\ud83d"}]')],
    "error": [error('"code":-32000,"message":"' + HALF + r'","data":{"\ud83d":"\ud83d"}')],
    "error of a large code": [error('"code":' + "9" * 400 + ',"message":"x"')],
    "floats": [structured('{"a":NaN,"b":-Infinity,"c":1e999}')],
    "long number": [structured('{"a":' + "9" * 5000 + "}")],
    "deep": [structured('{"a":' + DEEP + "}")],
    "too deep to read": [structured('{"a":' + "[" * 3000 + "]" * 3000 + "}")],
    "raw half": [result(said("cut \xed\xa0\xbd here"))],
    "control characters": [result(said("a\tb\x01"))],
    "progress": [
        progress('"progress":1,"message":"' + HALF + '"'),
        progress('"progress":NaN,"total":1e999'),
        result(said()),
    ],
    "notification": [r'{"jsonrpc":"2.0","method":"n/\ud83d","params":{"\ud83d":"\ud83d"}}', result(said())],
    "request": [r'{"jsonrpc":"2.0","id":"\ud83d","method":"\ud83d"}', result(said())],
}
WHOLE = {"text", "low half", "name", "structured", "meta", "failed", "raw half", "progress", "notification", "request"}
"""Those of which nothing but the half is lost."""


@pytest.fixture
async def odd(settings: Settings) -> AsyncIterator[Settings]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    web = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-I", "-S", str(ODD), str(port)]
    )
    try:
        await _listening(port)
        servers = ServersFile(settings.servers_file)
        servers.add(UpstreamConfig.stdio("pipe", sys.executable, ["-I", "-S", str(ODD)]))
        for name in ("json", "event"):
            servers.add(UpstreamConfig.remote(name, f"http://127.0.0.1:{port}/{name}"))
        async with Engine(settings) as engine:
            for name in UPSTREAMS:
                await engine.refresh_server(name)
        yield settings
    finally:
        web.kill()
        web.wait()


async def _listening(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("nobody listens")


@asynccontextmanager
async def serving(settings: Settings, face: str) -> AsyncIterator[Client[Any]]:
    env = {**os.environ, "TOOLSCOUT_HOME": str(settings.home), "TOOLSCOUT_STARTER": "0"}
    command = [sys.executable, "-m", "toolscout", "serve"]
    if face == "stdio":
        async with Client(StdioTransport(command[0], command[1:], env=env, keep_alive=False)) as client:
            yield client
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*command, "--http", f"127.0.0.1:{port}"], env=env)  # noqa: ASYNC220
    try:
        await _listening(port)
        async with Client(f"http://127.0.0.1:{port}/mcp") as client:
            yield client
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("face", ["stdio", "http"])
async def test_odd_answers_are_mended_and_all_goes_on(odd: Settings, face: str) -> None:
    async with serving(odd, face) as client:
        for what, lines in LINES.items():
            for name in UPSTREAMS:
                call = {"tool_id": f"{name}/say", "arguments": {"lines": lines}, "timeout_s": 20}
                # The client parses what comes: it would raise, or wait in vain.
                got = await asyncio.wait_for(client.call_tool_mcp("invoke", call, progress_handler=_hear), 30)
                if what in WHOLE:
                    assert got.is_error is (what == "failed"), (what, name, got)
                if what in ("text", "failed"):
                    assert got.content[0].text == "half \ufffd of it", (name, got)
                if what == "structured":
                    assert got.structured_content == {"a": ["half \ufffd of it"]}
                if what == "error":
                    assert got.is_error and "half \ufffd of it" in got.content[0].text
                assert "did not answer" not in str(got.content), (what, name)
        for name in UPSTREAMS:
            got = await client.call_tool_mcp("invoke", {"tool_id": f"{name}/fine"})
            assert got.content[0].text == "fine"


async def _hear(progress: float, total: float | None, message: str | None) -> None:
    assert message in (None, "half \ufffd of it")


class Pieces(httpx2.AsyncByteStream):
    """A body that comes in pieces of some bytes."""

    def __init__(self, data: bytes, size: int) -> None:
        self._pieces = [data[i : i + size] for i in range(0, len(data), size)]

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._pieces:
            yield piece


TEXTS = [r"\ud83d", r"a\ud83d\ude00b", r"\\ud83d", r"\\\ud83d", r"\ud83d\ud83d\ude00", r"\ude00\ud83d", r"\uD83D\uDE00"]
TEXTS += [r"\ud83dxx\n\u00e9\ud83d\u0041", r"\\", r"\ud83d\\", r"\ud83d\n\"", r"\u1234\ud83d"]


def test_halves_are_replaced_wherever_the_body_is_cut() -> None:
    async def mended(data: bytes, size: int) -> bytes:
        return b"".join([piece async for piece in WholeCharacters(Pieces(data, size))])

    for said in TEXTS:
        data = b'["%b"]' % said.encode()
        for size in (1, 2, 3, 5, 6, 7, 11, 12, 100):
            assert json.loads(asyncio.run(mended(data, size))) == read_json(data), (said, size)


def pairs() -> Iterator[tuple[bytes, Any]]:
    yield b'{"a": NaN, "b": 1e999, "c": "\\ud83d"}', {"a": None, "b": None, "c": "\ufffd"}
    yield b'["\\ud83d\\ude00", "caf\xe9", "a\tb"]', ["\U0001f600", "caf\ufffd", "a\tb"]
    yield b"\xef\xbb\xbf[1]", [1]
    yield b"[" + b"9" * 299 + b"e99]", [None]
    yield b"[" + b"9" * 210 + b".5E+99, -" + b"9" * 250 + b"e77]", [None, None]
    yield b"[" + b"9" * 199 + b"e99]", [float("9" * 199 + "e99")]


def test_reading_mends_what_not_every_reader_could_take() -> None:
    for data, value in pairs():
        assert read_json(data) == value
    assert json.dumps(read_json(b"[" * 500 + b"]" * 500)).count("[") == 190
    with pytest.raises(ValueError):
        read_json(b"{broken")


async def test_a_schema_too_deep_for_clients_is_shown_as_far_as_they_can_parse(settings: Settings) -> None:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(98):
        schema = {"type": "object", "properties": {"a": schema}}
    tool = Tool(
        tool_id="well/depth", server_id="well", name="depth", description="Measure a well.", input_schema=schema
    )
    async with Engine(settings) as engine:
        engine.catalogue.put_server(Server(server_id="well", name="well"), [tool])
        engine.catalogue.set_review(["well/depth"], Review.APPROVED)  # as a person has, who was shown it
        await engine.reindex()
        found = await engine.find_tools("measure a well", detail="full")
    assert found["tools"][0]["input_schema"]["properties"]["a"]["type"] == "object"
    assert from_json(json.dumps({"jsonrpc": "2.0", "id": 1, "result": {"structuredContent": found}}))
