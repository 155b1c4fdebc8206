"""A call that tells of its progress has its time anew with each report; one that the caller has bounded has not."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult

from toolscout.errors import UpstreamError
from toolscout.server.config import UpstreamConfig
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings

ABOUT = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "r", "version": "1"}}
STEPS = """
import json, sys, time

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        send(id=message["id"], result=%s)
    elif message.get("method") == "tools/call":
        token = message["params"]["_meta"].get("progressToken") if "_meta" in message["params"] else None
        for step in range(6):
            time.sleep(0.3)
            if message["params"]["name"] == "tells" and token is not None:
                send(method="notifications/progress", params={"progressToken": token, "progress": step})
        send(id=message["id"], result={"content": [{"type": "text", "text": "done"}]})
    elif "id" in message:
        send(id=message["id"], error={"code": -32601, "message": "unknown"})
"""


class _Web(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if "id" not in message:
            self.send_response(202)
            self.send_header("content-length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if message["method"] == "initialize":
            self.event(id=message["id"], result=ABOUT)
        elif message["method"] == "tools/call":
            token = message["params"].get("_meta", {}).get("progressToken")
            for step in range(6):
                time.sleep(0.3)
                if message["params"]["name"] == "tells" and token is not None:
                    self.event(method="notifications/progress", params={"progressToken": token, "progress": step})
            self.event(id=message["id"], result={"content": [{"type": "text", "text": "done"}]})
        else:
            self.event(id=message["id"], error={"code": -32601, "message": "unknown"})

    def event(self, **message: Any) -> None:
        self.wfile.write(f"data: {json.dumps({'jsonrpc': '2.0', **message})}\n\n".encode())
        self.wfile.flush()

    def do_GET(self) -> None:
        self.send_error(405)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:
            return  # whoever asked waits no more

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def configs(tmp_path: Path) -> Iterator[dict[str, UpstreamConfig]]:
    (tmp_path / "steps.py").write_text(STEPS % ABOUT)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Web)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {
        "pipe": UpstreamConfig.stdio("pipe", sys.executable, ["-I", "-S", str(tmp_path / "steps.py")]),
        "web": UpstreamConfig.remote("web", f"http://127.0.0.1:{server.server_port}/mcp"),
    }
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", ["pipe", "web"])
async def test_progress_extends_the_time(settings: Settings, configs: dict[str, UpstreamConfig], name: str) -> None:
    heard: list[float] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    settings = settings.model_copy(update={"upstream_call_timeout": 1.0})
    async with UpstreamPool(settings, lambda: configs) as pool:
        result = await pool.call(name, "tells", {}, on_progress=hear)
        assert isinstance(result, CallToolResult) and result.content[0].text == "done"  # type: ignore[union-attr]
        assert heard == [0, 1, 2, 3, 4, 5]
        assert await pool.call(name, "tells", {}), "whether the client wants to hear of it or not"
        with pytest.raises(UpstreamError, match="did not answer 'silent' within 1 s"):
            await pool.call(name, "silent", {})
        await asyncio.sleep(1.5)
        with pytest.raises(UpstreamError, match=r"did not answer 'tells' within 0\.9 s"):
            await pool.call(name, "tells", {}, timeout=0.9)
