"""What one client of the HTTP face may take: bytes of a body, and time for its head, its body and its reading.

uvicorn bounds none of these by itself: a connection that sends a byte a minute, or reads none, stays for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

CONNECTIONS = 2000
"""Most connections at once; further ones get 503."""

HEAD_SECONDS = 15.0
STALL_SECONDS = 60.0
LINGER_SECONDS = 5.0
"""For the rest of a body that was answered before it had come; then the connection closes."""


class _Full(Exception):
    """The bodies that are held leave no room for another one."""


class BodyLimit:
    """ASGI middleware that reads a request's body before the application does: all of it, in time, or not at all.

    Larger than ``most`` bytes gets 413, announced or not; slower than ``seconds`` gets 408. All requests in progress
    together hold ``total`` bytes: what goes beyond gets 503. With ``authenticated`` no byte is read for a client that
    the middleware before this one has not authenticated: the application refuses it by its head alone.
    """

    def __init__(
        self, application: Application, most: int, seconds: float, total: int, authenticated: bool = False
    ) -> None:
        self._application, self._most, self._seconds = application, most, seconds
        self._room = max(total, most)
        self._authenticated = authenticated

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or (self._authenticated and not _is_authenticated(scope)):
            await self._application(scope, receive, send)
            return
        held: list[int] = []
        try:
            await self._limited(scope, receive, send, held)
        finally:
            self._room += sum(held)

    async def _limited(self, scope: MutableMapping[str, Any], receive: Receive, send: Send, held: list[int]) -> None:
        announced = dict(scope["headers"]).get(b"content-length", b"")
        if announced.isdigit() and (len(announced) > 18 or int(announced) > self._most):
            await _refuse(send, 413, self._too_large())
            return
        try:
            async with asyncio.timeout(self._seconds):
                first = await self._read(receive, held)
        except _Full:
            await _refuse(send, 503, "The server holds as many bytes of requests as it may. Try again in a moment.")
            return
        except TimeoutError:
            await _refuse(send, 408, f"The request's body did not arrive within {self._seconds:g} seconds.")
            return
        if first is None:
            await _refuse(send, 413, self._too_large())
            return
        waiting = [first]

        async def replayed() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._application(scope, replayed, send)

    async def _read(self, receive: Receive, held: list[int]) -> Message | None:
        """The body as one message, or the client's leaving; None where it is too large. Raises _Full."""
        parts: list[bytes] = []
        length = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return message
            parts.append(message.get("body", b""))
            length += len(parts[-1])
            if length > self._most:
                return None
            if len(parts[-1]) > self._room:
                raise _Full
            self._room -= len(parts[-1])
            held.append(len(parts[-1]))
            if not message.get("more_body"):
                return {"type": "http.request", "body": b"".join(parts), "more_body": False}

    def _too_large(self) -> str:
        return (
            f"The request is larger than {self._most:,} bytes. "
            "Send less, or raise TOOLSCOUT_MAX_REQUEST_BYTES where the server is started."
        )


def _is_authenticated(scope: MutableMapping[str, Any]) -> bool:
    return bool(getattr(scope.get("user"), "is_authenticated", False))


async def _refuse(send: Send, status: int, sentence: str) -> None:
    text = sentence.encode()
    headers = [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(text)).encode()),
        (b"connection", b"close"),  # the rest of the body is not read
        *([(b"retry-after", b"1")] if status == 503 else []),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": text})


class PatientProtocol(H11Protocol):
    """uvicorn's protocol, whose patience ends: with a head that does not come, with a reader that does not read, and
    with a body that goes on after its answer."""

    head_seconds = HEAD_SECONDS
    stall_seconds = STALL_SECONDS
    linger_seconds = LINGER_SECONDS
    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None
    _linger_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client is there: its first head is awaited."""
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client has gone."""
        super().connection_lost(exc)
        for timer in (self._head_timer, self._stall_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()

    def pause_writing(self) -> None:
        """The client does not read as fast as it is answered."""
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self.stall_seconds, self._abort)

    def resume_writing(self) -> None:
        """The client has read on."""
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()

    def on_response_complete(self) -> None:
        """The answer has been sent: perhaps (a refusal by Host, or without a token) before the body had come."""
        super().on_response_complete()
        if self._linger_timer is None and self.conn.their_state is h11.SEND_BODY:
            self._linger_timer = self.loop.call_later(self.linger_seconds, self._abort)

    def _watch(self) -> None:
        if self._linger_timer is not None and self.conn.their_state is not h11.SEND_BODY:
            self._linger_timer.cancel()
            self._linger_timer = None
        awaited = self.conn.their_state is h11.IDLE
        if awaited and self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._abort)
        elif not awaited and self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _abort(self) -> None:
        self.transport.abort()
