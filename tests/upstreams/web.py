"""A FastMCP server over streamable HTTP (/mcp), streamable HTTP with JSON answers (/json) and SSE (/sse/).

python web.py PORT     every path wants ``Authorization: Bearer letmein``
"""

import json
import sys

import uvicorn
from fastmcp import Context, FastMCP
from fastmcp.server.dependencies import get_http_headers
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount


def make():
    server = FastMCP("web", version="2.0")

    @server.tool
    def echo(text: str) -> str:
        return text

    @server.tool
    def headers() -> str:
        return json.dumps(get_http_headers(include_all=True))

    @server.tool
    def big(bytes: int) -> str:
        return "x" * bytes

    @server.tool
    async def steps(ctx: Context) -> str:
        for step in (1, 2):
            await ctx.report_progress(step, 2, f"step {step}")
        return "done"

    @server.tool
    async def fails() -> str:
        raise ValueError("no luck")

    return server


class Guard:
    def __init__(self, app):
        self.app = app

    async def __call__(self, scope, receive, send):
        if scope["type"] == "http" and dict(scope["headers"]).get(b"authorization") != b"Bearer letmein":
            await PlainTextResponse("who are you?", status_code=401)(scope, receive, send)
            return
        await self.app(scope, receive, send)


apps = {
    "/a": make().http_app(path="/mcp"),
    "/b": make().http_app(path="/json", json_response=True),
    "/c": make().http_app(path="/sse", transport="sse"),
}


class Lifespans:
    """All apps' lifespans, one inside the other."""

    def __init__(self, app):
        self.app = app

    async def __aenter__(self):
        from contextlib import AsyncExitStack

        self.stack = AsyncExitStack()
        for app in apps.values():
            await self.stack.enter_async_context(app.lifespan(app))

    async def __aexit__(self, *exc):
        await self.stack.aclose()


app = Guard(Starlette(routes=[Mount(path, app) for path, app in apps.items()], lifespan=Lifespans))
uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", timeout_graceful_shutdown=1)
