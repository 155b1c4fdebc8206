"""What comes from a remote server, between the SDK's transport and its dispatcher."""

from __future__ import annotations

import contextvars
import json
from types import TracebackType
from typing import TYPE_CHECKING, Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from toolscout.server.upstreams.reading import passable

if TYPE_CHECKING:
    from mcp.client._transport import ReadStream


class Incoming:
    """The SDK's ``ReadStream`` over another, with nothing in it that could not be passed on, and an end of our own."""

    def __init__(self, inner: ReadStream[SessionMessage | Exception]) -> None:
        self._inner = inner
        self._scope = anyio.CancelScope()
        self.ended = False

    @property
    def last_context(self) -> contextvars.Context | None:
        """The sender's context, as the SDK's own streams have it."""
        return getattr(self._inner, "last_context", None)

    def end(self) -> None:
        """Let the connection end: whoever waits for an answer is told that none comes."""
        self.ended = True
        self._scope.cancel()

    async def receive(self) -> SessionMessage | Exception:
        """The next message. Raises EndOfStream."""
        with anyio.CancelScope() as self._scope:
            if not self.ended:
                return _passable(await self._inner.receive())
        raise anyio.EndOfStream

    async def aclose(self) -> None:
        """Close it."""
        await self._inner.aclose()

    def __aiter__(self) -> Incoming:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Incoming:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def _passable(item: SessionMessage | Exception) -> SessionMessage | Exception:
    match item.message if isinstance(item, SessionMessage) else None:
        case JSONRPCResponse() as message:
            message.result = _finite(message.result)
        case JSONRPCError() as message:
            message.error.data = _finite(message.error.data)
        case JSONRPCNotification() | JSONRPCRequest() as message:
            message.params = _finite(message.params)
    return item


def _finite(value: Any) -> Any:
    try:
        json.dumps(value, allow_nan=False)  # in C: cheaper than a look at every value
    except ValueError:
        return passable(value)
    return value
