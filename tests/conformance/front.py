"""Toolscout over HTTP as the conformance suite can call it: its fixture tools by their own names.

    python front.py PORT

The suite calls fixed tool names; Toolscout has three tools of its own and reaches all others through ``invoke``. The
only thing this test-only face does is to write a call of a fixture tool as the call of ``invoke`` it would be. What
answers is Toolscout, untouched: ``tools/list`` shows its three tools.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.server.web.http import make_http_app
from toolscout.settings import Settings, load_settings

UPSTREAM = Path(__file__).with_name("upstream.py")
FIXTURE = "fixture"
HEADER = b"mcp-name"


class ThroughInvoke:
    """Rewrites ``tools/call`` of a test tool; the header that repeats its name follows where it did repeat it."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        name, body = rewritten(body)
        headers = [
            (key, b"invoke" if name and key == HEADER and value.strip() == name.encode() else value)
            for key, value in scope["headers"]
            if key != b"content-length"
        ]
        sent = False

        async def once() -> Message:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        headers.append((b"content-length", str(len(body)).encode()))
        await self.app({**scope, "headers": headers}, once, send)


def rewritten(body: bytes) -> tuple[str, bytes]:
    """The fixture tool's name ("" if it is no call of one) and the body to pass on."""
    try:
        message: Any = json.loads(body)
    except ValueError:
        return "", body
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(params, dict) or message.get("method") != "tools/call":
        return "", body
    name = str(params.get("name"))
    if not name.startswith("test_"):
        return "", body
    arguments = {"tool_id": f"{FIXTURE}/{name}", "arguments": params.get("arguments") or {}}
    message["params"] = {**params, "name": "invoke", "arguments": arguments}
    return name, json.dumps(message).encode()


async def prepare(settings: Settings) -> None:
    """Configure the fixture upstream, and take its tools into the catalogue as trusted."""
    ServersFile(settings.servers_file).add(UpstreamConfig.stdio(FIXTURE, sys.executable, [str(UPSTREAM)]))
    async with Engine(settings) as engine:
        await engine.refresh_server(FIXTURE, trust=True)


def main() -> None:
    settings = load_settings()
    asyncio.run(prepare(settings))
    app = make_http_app(Engine(settings, serving=True), settings, "127.0.0.1")
    uvicorn.run(ThroughInvoke(app), host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")


if __name__ == "__main__":
    main()
