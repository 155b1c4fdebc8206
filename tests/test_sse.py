"""Remote servers of the older transport (SSE): found where nothing says so, lost, and behind a path of a proxy."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, InputRequiredResult

from toolscout.errors import UpstreamError
from toolscout.records import Transport
from toolscout.server.clients.importing import plan_import, read_sources
from toolscout.server.clients.known import Machine
from toolscout.server.config import UpstreamConfig
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings


def text(result: CallToolResult | InputRequiredResult) -> str:
    assert isinstance(result, CallToolResult)
    return "".join(getattr(block, "text", "") for block in result.content)


class _Events(BaseHTTPRequestHandler):
    """A server of SSE behind /app, that names its address for messages as ``server.messages`` says."""

    server: Any

    def do_GET(self) -> None:
        if not self.path.startswith("/app/"):
            self.send_error(404)
            return
        self.server.streams.append(stream := queue.Queue())
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        self.wfile.write(f"event: endpoint\ndata: {self.server.messages}\n\n".encode())
        while (event := stream.get()) is not None:
            self.wfile.write(f"event: message\ndata: {json.dumps(event)}\n\n".encode())

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.path == "/app/events":
            self.server.posts += 1
            self.send_error(405)
            return
        known = self.path == "/app/messages" and not self.server.forgets
        if not known:
            self.server.forgets = message["method"] != "tools/call" and self.path != "/app/messages"
        self.send_response(202 if known else 404)
        self.send_header("content-length", "0")
        self.end_headers()
        if known and "id" in message:
            about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}
            result = about if message["method"] == "initialize" else {"content": [{"type": "text", "text": "called"}]}
            self.server.streams[-1].put({"jsonrpc": "2.0", "id": message["id"], "result": result})

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def events() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Events)
    server.daemon_threads = True
    server.messages, server.forgets, server.streams, server.posts = "/app/messages", False, [], 0  # type: ignore[attr-defined]
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    for stream in server.streams:  # type: ignore[attr-defined]
        stream.put(None)
    server.shutdown()
    server.server_close()


async def test_messages_over_sse_that_go_nowhere(settings: Settings, events: Any) -> None:
    events.messages = "/messages"  # behind a proxy that adds /app, of which the server does not know
    config = UpstreamConfig.remote("sse", f"http://127.0.0.1:{events.server_port}/app/sse")
    async with UpstreamPool(settings, lambda: {"sse": config}) as pool:
        with pytest.raises(
            UpstreamError, match="named /messages as the address for messages, where HTTP status 404"
        ) as e:
            await asyncio.wait_for(pool.call("sse", "go", {}), 20)
    assert "root_path" in e.value.hint


async def test_a_session_lost_under_sse(settings: Settings, events: Any) -> None:
    config = UpstreamConfig.remote("sse", f"http://127.0.0.1:{events.server_port}/app/sse")
    async with UpstreamPool(settings, lambda: {"sse": config}) as pool:
        assert text(await pool.call("sse", "go", {})) == "called"
        events.forgets = True
        assert text(await asyncio.wait_for(pool.call("sse", "go", {}), 20)) == "called"
        assert len(events.streams) == 2


async def test_an_address_that_does_not_say_that_it_is_sse(settings: Settings, events: Any) -> None:
    config = UpstreamConfig.remote("sse", f"http://127.0.0.1:{events.server_port}/app/events")
    assert config.transport is Transport.HTTP and config.guessed
    async with UpstreamPool(settings, lambda: {"sse": config}) as pool:
        assert text(await pool.call("sse", "go", {})) == "called"
        assert pool.status()[0].transport is Transport.SSE
        posts = events.posts
        events.forgets = True
        assert text(await pool.call("sse", "go", {})) == "called"
        assert events.posts == posts, "the transport is known by now"


async def test_an_imported_address_without_a_transport_is_tried_as_both(
    settings: Settings, events: Any, tmp_path: Path
) -> None:
    file = tmp_path / "client.json"
    file.write_text(json.dumps({"mcpServers": {"sse": {"url": f"http://127.0.0.1:{events.server_port}/app/events"}}}))
    plan = plan_import(read_sources([str(file)], Machine(home=tmp_path)), {}, {})
    config = UpstreamConfig.parse("sse", plan.items[0].config)
    async with UpstreamPool(settings, lambda: {"sse": config}) as pool:
        assert text(await pool.call("sse", "go", {})) == "called"


async def test_an_address_that_is_neither(settings: Settings, events: Any) -> None:
    base = f"http://127.0.0.1:{events.server_port}"
    configs = {
        "nothing": UpstreamConfig.remote("nothing", f"{base}/nothing"),
        "told": UpstreamConfig.remote("told", f"{base}/app/events", Transport.HTTP),
    }
    async with UpstreamPool(settings, lambda: configs) as pool:
        for name, status in (("nothing", 404), ("told", 405)):
            with pytest.raises(UpstreamError, match=f"HTTP status {status}"):
                await asyncio.wait_for(pool.call(name, "go", {}), 20)
