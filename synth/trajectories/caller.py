"""Speaks to a running Toolscout over MCP and has it ``invoke``; only the protocol is shared, no code of the server."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscout.errors import BadInput, UpstreamError
from toolscout.records import JsonObject
from toolscout.responses import CONNECTION, PROTOCOL, TIMEOUT, Response, response_of

if TYPE_CHECKING:
    from fastmcp import Client

_CONNECT_SECONDS = 120.0
_SPARE_SECONDS = 60.0
"""Beyond a call's own time: a server has to be started before its first call."""
_DEATHS = 3
_REQUEST_TIMEOUT = -32001


@dataclass(frozen=True)
class Target:
    """Where ``invoke`` is reached: a home folder that ``toolscout serve`` is started over, or the URL of a running one.

    ``token`` is the bearer token of a URL; ``log`` the file that takes the stderr of a server that is started, ``env``
    what its environment has beside ours.
    """

    home: Path | None = None
    url: str = ""
    token: str = ""
    log: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict)

    def client(self) -> Client[Any]:
        """A client, not connected yet."""
        from fastmcp import Client
        from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

        if self.url:
            remote = StreamableHttpTransport(self.url, auth=self.token or None)
            return Client(remote, init_timeout=_CONNECT_SECONDS, mode="auto")
        # Offers to install something go to a person; nobody is there. So what is not installed is not found, either.
        ours = {"TOOLSCOUT_HOME": str(self.home), "TOOLSCOUT_INSTALL_OFFERS": "0", "TOOLSCOUT_PACK": "off"}
        env = {**os.environ, **self.env, **ours}
        local = StdioTransport(
            sys.executable, ["-m", "toolscout", "serve"], env=env, keep_alive=False, log_file=self.log
        )
        return Client(local, init_timeout=_CONNECT_SECONDS, mode="auto")

    @property
    def name(self) -> str:
        """For messages."""
        return self.url or f"toolscout serve over {self.home}"


class Caller:
    """One connection, shared by all calls; made anew when it breaks. ``seconds`` is what one call may take."""

    def __init__(self, target: Target, seconds: float) -> None:
        self.target, self.seconds = target, seconds
        self._client: Client[Any] | None = None
        self._opened = AsyncExitStack()
        self._lock = asyncio.Lock()
        self._deaths = 0

    async def __aenter__(self) -> Caller:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._leave()

    async def ready(self) -> None:
        """Connect, if there is no connection. Raises UpstreamError."""
        async with self._lock:
            if self._client is not None:
                return
            if self._deaths >= _DEATHS:
                raise UpstreamError(
                    f"{self.target.name} broke the connection {_DEATHS} times in a row.",
                    "See what it logs; the same command goes on with what is left.",
                )
            client = self.target.client()
            try:
                await self._opened.enter_async_context(client)
                tools = await client.list_tools()
            except Exception as error:
                await self._leave()
                raise UpstreamError(f"{self.target.name} cannot be reached: {_said(error)}.") from None
            if not any(tool.name == "invoke" for tool in tools):
                await self._leave()
                raise BadInput(f"{self.target.name} has no invoke: it is no Toolscout.")
            self._client = client

    async def call(self, tool_id: str, arguments: JsonObject) -> Response:
        """Have a tool called; whatever goes wrong on the way is a response that says so."""
        return await self._ask("invoke", {"tool_id": tool_id, "arguments": arguments, "timeout_s": self.seconds})

    async def suggest(self, task: str, *, steps: int = 1, tool_ids: Sequence[str] = ()) -> Response:
        """What ``suggest_call`` answers (its JSON is the structured content); failures as in `call`."""
        asked: JsonObject = {"task": task, "steps": steps}
        return await self._ask("suggest_call", asked | ({"tool_ids": list(tool_ids)} if tool_ids else {}))

    async def _ask(self, name: str, asked: JsonObject) -> Response:
        from mcp.shared.exceptions import MCPError

        client = self._client
        assert client is not None, "ready() comes first"
        try:
            result = await client.call_tool_mcp(name, asked, timeout=self.seconds + _SPARE_SECONDS)
        except TimeoutError as error:
            return _lost(TIMEOUT, error)
        except MCPError as error:
            if error.error.code == _REQUEST_TIMEOUT:
                return _lost(TIMEOUT, error)
            if await self._alive(client):
                return _lost(PROTOCOL, error)
            return await self._dead(client, error)
        except Exception as error:
            return await self._dead(client, error)
        self._deaths = 0
        return response_of(result)

    async def _alive(self, client: Client[Any]) -> bool:
        try:
            async with asyncio.timeout(_SPARE_SECONDS):
                await client.list_tools()
        except Exception:
            return False
        return True

    async def _dead(self, client: Client[Any], error: Exception) -> Response:
        async with self._lock:
            if self._client is client:  # once for the connection, not for every call on it
                self._client = None
                self._deaths += 1
                await self._leave()
        return _lost(CONNECTION, error)

    async def _leave(self) -> None:
        opened, self._opened = self._opened, AsyncExitStack()
        try:
            async with asyncio.timeout(_SPARE_SECONDS):
                await opened.aclose()
        except Exception:
            return  # it is gone one way or the other


def _lost(how: str, error: BaseException) -> Response:
    return Response(text=_said(error), is_error=True, lost=how)


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:300].rstrip(".") or type(error).__name__
