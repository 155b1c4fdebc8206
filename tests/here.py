"""Toolscout inside the test's own process: with a FastMCP client at once, or behind a real uvicorn on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvicorn
from fastmcp import Client
from mcp_types import ElicitResult

from toolscout.server.app import App
from toolscout.server.engine import Engine
from toolscout.server.web.http import bounds, make_http_app
from toolscout.settings import Settings

Handler = Callable[..., Awaitable[Any]]


@asynccontextmanager
async def client_of(
    settings: Settings, handler: Handler | None = None, mode: str = "auto"
) -> AsyncIterator[Client[Any]]:
    """A client of a Toolscout with these settings."""
    async with (
        Engine(settings) as engine,
        Client(App(engine).fastmcp, mode=mode, elicitation_handler=handler) as client,
    ):
        yield client


@asynccontextmanager
async def over_http(settings: Settings) -> AsyncIterator[str]:
    """A Toolscout on a free loopback port; yields its base URL."""
    application = make_http_app(Engine(settings), settings, "127.0.0.1")
    config = uvicorn.Config(
        application, host="127.0.0.1", port=0, log_level="warning", lifespan="on", **bounds(settings)
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.02)
            assert not task.done()
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


class Person:
    """Answers questions, the last answer over and over, and remembers them."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[Any] = []

    async def __call__(self, message: str, response_type: Any, params: Any, context: Any) -> Any:
        return self._answer(params)

    async def sdk(self, context: Any, params: Any) -> ElicitResult:
        """As the SDK's own client calls it."""
        return ElicitResult(action="accept", content=self._answer(params))

    def _answer(self, params: Any) -> Any:
        self.asked.append(params)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
