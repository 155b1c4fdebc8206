"""The pool against real servers made with the SDK and with FastMCP, of both eras, over all three transports."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CallToolResult, InputRequiredResult

from toolscout.errors import UpstreamError
from toolscout.records import Transport
from toolscout.server.config import UpstreamConfig
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.server.upstreams.watchdog import marked_processes
from toolscout.settings import Settings

UPSTREAMS = Path(__file__).parent / "upstreams"
REMOTE = ["http", "json", "sse"]


def text(result: CallToolResult | InputRequiredResult) -> str:
    assert isinstance(result, CallToolResult)
    return "".join(getattr(block, "text", "") for block in result.content)


class Web:
    """The web server's process."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen([sys.executable, str(UPSTREAMS / "web.py"), str(self.port)])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.05)
        raise AssertionError("the web server did not start")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    web = Web()
    web.start()
    yield web
    web.stop()


@pytest.fixture
async def pool(settings: Settings, web: Web, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[UpstreamPool]:
    monkeypatch.setenv("WEB_TOKEN", "letmein")
    base = f"http://127.0.0.1:{web.port}"
    headers = {"Authorization": "Bearer ${WEB_TOKEN}", "X-Mine": "yes"}
    configs = {
        "low": UpstreamConfig.stdio("low", sys.executable, [str(UPSTREAMS / "lowlevel.py")]),
        "time": UpstreamConfig.stdio("time", sys.executable, ["-m", "mcp_server_time", "--local-timezone", "UTC"]),
        "http": UpstreamConfig.remote("http", f"{base}/a/mcp", headers=headers),
        "json": UpstreamConfig.remote("json", f"{base}/b/json", headers={"X-Mine": "yes"}, auth="${WEB_TOKEN}"),
        "sse": UpstreamConfig.remote("sse", f"{base}/c/sse", headers=headers),
        "stranger": UpstreamConfig.remote("stranger", f"{base}/a/mcp"),
        "nobody": UpstreamConfig.remote("nobody", "http://127.0.0.1:9/mcp"),
    }
    changes = {"upstream_start_timeout": 30.0, "max_result_bytes": 3_000_000}
    pool = UpstreamPool(settings.model_copy(update=changes), lambda: configs)
    yield pool
    await pool.close()
    assert marked_processes(pool.marker) == []


async def test_a_modern_stdio_server(pool: UpstreamPool) -> None:
    assert text(await pool.call("low", "echo", {"text": "hi"})) == "hi"
    status = pool.status()[0]
    assert (status.era, status.protocol_version) == ("modern", "2026-07-28")
    server, tools = await pool.list_tools("low")
    assert (server.name, server.version, server.instructions) == ("lowlevel", "9", "low")
    assert [t.name for t in tools] == ["echo", "ask", "progress", "meta", "grow"]

    seen: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    await pool.call("low", "progress", {}, on_progress=on_progress)
    assert seen == [(0.5, 1.0, "half")]

    await pool.call("low", "grow", {})
    deadline = time.monotonic() + 10
    while len((await pool.list_tools("low"))[1]) == 5:
        assert time.monotonic() < deadline, "the change notice did not arrive"
        await asyncio.sleep(0.02)


async def test_input_required_passes_in_both_directions(pool: UpstreamPool) -> None:
    meta = {CLIENT_CAPABILITIES_META_KEY: {"elicitation": {"form": {}}}}
    asked = await pool.call("low", "ask", {}, meta=meta)
    assert isinstance(asked, InputRequiredResult)
    assert asked.request_state == "state-1" and asked.input_requests is not None
    assert asked.input_requests["q"].params.message == "Which colour?"  # type: ignore[union-attr]
    answer = {"q": {"action": "accept", "content": {"color": "blue"}}}
    done = await pool.call("low", "ask", {}, meta=meta, input_responses=answer, request_state=asked.request_state)
    assert text(done) == "blue state-1"


async def test_the_callers_capabilities_reach_the_upstream(pool: UpstreamPool) -> None:
    meta = {CLIENT_CAPABILITIES_META_KEY: {"elicitation": {}}, "com.example/trace": "t"}
    result = await pool.call("low", "meta", {}, meta=meta)
    seen = json.loads(text(result))
    assert seen["com.example/trace"] == "t"
    assert seen[CLIENT_CAPABILITIES_META_KEY] == {"elicitation": {}}
    assert seen["io.modelcontextprotocol/clientInfo"]["name"] == "toolscout"


async def test_a_published_server(pool: UpstreamPool) -> None:
    result = await pool.call("time", "get_current_time", {"timezone": "Asia/Tokyo"})
    assert "Asia/Tokyo" in text(result)
    server, tools = await pool.list_tools("time")
    assert {"get_current_time", "convert_time"} <= {t.name for t in tools}
    assert server.install.args == ["-m", "mcp_server_time", "--local-timezone", "UTC"]


@pytest.mark.parametrize("name", REMOTE)
async def test_remote_upstreams(pool: UpstreamPool, name: str) -> None:
    results = await asyncio.gather(*(pool.call(name, "echo", {"text": str(i)}) for i in range(20)))
    assert [text(r) for r in results] == [str(i) for i in range(20)]
    seen = json.loads(text(await pool.call(name, "headers", {})))
    assert (seen["authorization"], seen["x-mine"]) == ("Bearer letmein", "yes")
    failed = await pool.call(name, "fails", {})
    assert isinstance(failed, CallToolResult) and failed.is_error and "no luck" in text(failed)
    server, tools = await pool.list_tools(name)
    assert (server.server_id, server.name, server.version) == (name, "web", "2.0")
    assert server.transport is (Transport.SSE if name == "sse" else Transport.HTTP)
    assert server.install.url and "letmein" not in server.to_json()
    assert {t.name for t in tools} == {"echo", "headers", "big", "steps", "fails"}
    assert pool.status()[0].era == ("legacy" if name == "sse" else "modern")


@pytest.mark.parametrize("name", ["http", "sse"])
async def test_remote_progress(pool: UpstreamPool, name: str) -> None:
    seen: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(message)

    assert text(await pool.call(name, "steps", {}, on_progress=on_progress)) == "done"
    assert seen == ["step 1", "step 2"]


@pytest.mark.parametrize("name", ["http", "json"])
async def test_remote_answers_are_bounded_but_not_below_the_setting(pool: UpstreamPool, name: str) -> None:
    assert len(text(await pool.call(name, "big", {"bytes": 1_400_000}))) == 1_400_000
    with pytest.raises(UpstreamError, match="with more than 3,000,000 bytes"):
        await pool.call(name, "big", {"bytes": 8_000_000})
    assert text(await pool.call(name, "echo", {"text": "fine"})) == "fine"


async def test_a_refused_and_an_absent_server(pool: UpstreamPool) -> None:
    with pytest.raises(UpstreamError, match=r"'stranger' does not let us in \(HTTP status 401\)"):
        await pool.call("stranger", "echo", {})
    with pytest.raises(UpstreamError, match="'nobody' could not be started"):
        await pool.call("nobody", "echo", {})


async def test_a_remote_upstream_is_reached_through_the_environments_proxy(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append((await reader.readline()).decode())
        writer.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(proxy, "127.0.0.1", 0) as server:
        address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for name in ("HTTP_PROXY", "http_proxy"):
            monkeypatch.setenv(name, address)
        for name in ("NO_PROXY", "no_proxy"):
            monkeypatch.delenv(name, raising=False)
        config = UpstreamConfig.remote("far", "http://upstream.invalid/mcp")
        async with UpstreamPool(settings, lambda: {"far": config}) as pool:
            with pytest.raises(UpstreamError, match="HTTP status 403"):
                await pool.call("far", "echo", {})
    assert asked[0].startswith("POST http://upstream.invalid/mcp ")


async def test_oauth_is_fastmcps_and_its_tokens_outlive_us(settings: Settings) -> None:
    from fastmcp.client.auth import OAuth
    from mcp.shared.auth import OAuthToken

    from toolscout.server.upstreams.remote import _auth

    config = UpstreamConfig.remote("x", "https://host.example/mcp?a=b", auth="oauth")
    first, second = _auth(config, settings.home), _auth(config, settings.home)
    assert isinstance(first, OAuth) and isinstance(second, OAuth)
    await first.token_storage_adapter.set_tokens(OAuthToken(access_token="at", token_type="Bearer", expires_in=60))
    tokens = await second.token_storage_adapter.get_tokens()
    assert tokens is not None and tokens.access_token == "at"
    assert (settings.home / "oauth").stat().st_mode & 0o777 == 0o700


async def test_a_remote_server_that_restarts(settings: Settings) -> None:
    web = Web()
    web.start()
    configs = {
        name: UpstreamConfig.remote(name, f"http://127.0.0.1:{web.port}{path}", auth="letmein")
        for name, path in (("http", "/a/mcp"), ("sse", "/c/sse"))
    }
    try:
        async with UpstreamPool(settings, lambda: configs) as pool:
            for name in configs:
                assert text(await pool.call(name, "echo", {"text": "1"})) == "1"
            web.stop()
            for name in configs:
                with pytest.raises(UpstreamError):
                    await pool.call(name, "echo", {"text": "2"}, timeout=3)
            web.start()
            for name in configs:
                assert text(await pool.call(name, "echo", {"text": "3"})) == "3"
    finally:
        web.stop()
