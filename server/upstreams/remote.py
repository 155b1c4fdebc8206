"""Upstreams over streamable HTTP and SSE: the SDK's transports, FastMCP's authentication, bounded answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher

from toolscout.errors import UpstreamError
from toolscout.records import Transport
from toolscout.server.config import UpstreamConfig
from toolscout.server.upstreams.answer import Answer
from toolscout.server.upstreams.environment import is_here
from toolscout.server.upstreams.exchange import note
from toolscout.server.upstreams.incoming import Incoming
from toolscout.server.upstreams.reading import WholeCharacters


class _BoundedStream(httpx2.AsyncByteStream):
    """A body that ends in an error above a limit, while it arrives; with limit 0, at once."""

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int) -> None:
        self._inner = inner
        self._limit = limit

    async def __aiter__(self) -> AsyncIterator[bytes]:
        total = 0
        async for chunk in self._inner:
            total += len(chunk)
            if total > self._limit:
                # StreamError is what the SDK turns into an error of this one request.
                size = f"larger than {self._limit} bytes" if self._limit else "compressed, which was not asked for"
                raise BodyTooLarge(f"answer {size}")
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


class BodyTooLarge(httpx2.StreamError):
    """A response body exceeds the limit."""


@asynccontextmanager
async def connect(
    config: UpstreamConfig, *, max_bytes: int, state: Path, logins: bool, on_answer: Callable[[Answer], None]
) -> AsyncIterator[JSONRPCDispatcher[Any]]:
    """A dispatcher over the upstream's URL. ``state`` is the folder where OAuth tokens are kept; with
    ``logins`` a person may be sent to a browser.

    ``on_answer`` is told of every HTTP answer.
    """
    auth = _auth(config, state, logins)
    headers = {"accept-encoding": "identity", **config.headers}
    incoming: Incoming | None = None
    refused = (0, "")

    # A hook, not a transport of our own: with one, the client would not look for the environment's proxies.
    async def answered(response: httpx2.Response) -> None:
        on_answer(note(response))  # the SDK's own errors do not say what came
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        if not response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            # A compressed body's size says nothing about what it becomes, and none was asked for.
            compressed = response.headers.get("content-encoding", "identity").lower() != "identity"
            response.stream = _BoundedStream(
                response.stream, 0 if compressed else max_bytes
            )  # event streams are bounded per event
        response.stream = WholeCharacters(response.stream)
        if incoming is not None and response.request.method == "POST" and response.status_code >= 400:
            nonlocal refused
            refused = response.status_code, response.request.url.path
            incoming.end()  # the SDK's client sends nothing more over SSE after this, and tells nobody

    def client(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = None,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(
            headers=headers,
            timeout=timeout or httpx2.Timeout(30.0, read=None),
            auth=auth,
            limits=httpx2.Limits(max_connections=None),
            event_hooks={"response": [answered]},
            # No proxy leads to this machine, whatever the environment says.
            mounts={f"all://{urlsplit(config.url).netloc}": None} if is_here(config.url) else None,
        )

    if config.transport is Transport.SSE:
        # The stream is silent while nobody calls: no read timeout, idle upstreams are closed by the pool.
        async with sse_client(
            config.url, headers=headers, sse_read_timeout=86400.0, httpx_client_factory=client, auth=auth
        ) as (read, write):
            incoming = Incoming(read)
            try:
                yield JSONRPCDispatcher(incoming, write)
            except Exception:
                if refused[0] < 400 or refused[0] in (401, 403):
                    raise
                raise UpstreamError(
                    f"it named {refused[1]} as the address for messages, where HTTP status {refused[0]} came back.",
                    hint="Behind a proxy that adds a path, the server has to know that path (often: root_path).",
                ) from None
        return
    async with (
        client(headers=headers, auth=auth) as http,
        streamable_http_client(config.url, http_client=http, max_sse_event_size=max_bytes) as (read, write),
    ):
        yield JSONRPCDispatcher(Incoming(read), write)


def _auth(config: UpstreamConfig, state: Path, logins: bool = False) -> httpx2.Auth | None:
    if not config.auth:
        return None
    if config.auth != "oauth":
        from fastmcp.client.auth import BearerAuth

        return BearerAuth(config.auth)
    from toolscout.server.upstreams.login import Login

    return Login(config.name, config.url, state, ask=logins)
