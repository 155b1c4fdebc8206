"""How calls of an upstream fail, and how to read the errors of the SDK's clients and transports."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from toolscout.errors import UpstreamError

_DEEPEST_DATA = 50
"""Levels of the data of an error; what is much deeper cannot be sent on."""
_UNREADABLE = "Failed to parse "
"""How the SDK's HTTP client begins what it makes of an answer that is none: its own words follow, not the server's."""


class Crashed(UpstreamError):
    """The upstream ended, or its connection broke. ``sent``: whether the call may have reached it."""

    kind = "upstream_crashed"

    def __init__(self, message: str, hint: str = "", *, sent: bool) -> None:
        super().__init__(message, hint)
        self.sent = sent


class Unauthorized(UpstreamError):
    """A remote upstream wants other credentials than it got."""

    kind = "upstream_unauthorized"

    def __init__(
        self, upstream: str, status: int, said: str = "", *, what: str = "", login: bool | None = None
    ) -> None:
        self.login = bool(login)
        refused = f"does not allow {what}" if what else "does not let us in"
        acts = (
            f"'toolscout login {upstream}' where it has a login in the browser, else a valid key in \"headers\" or "
            '"auth" of its entry in mcp.json.'
        )
        super().__init__(
            f"'{upstream}' {refused} (HTTP status {status}{f': {said}' if said else ''}).",
            hint="What it was given is missing, wrong, expired or not enough for this. "
            f"A person has to act: {f'it has a login in the browser, toolscout login {upstream}.' if login else acts}",
        )


class NeedsKey(UpstreamError):
    """An upstream says in its own words that it lacks a key or another value. ``names``: variables, where known."""

    kind = "upstream_needs_key"

    def __init__(self, message: str, upstream: str, said: str, known: Sequence[str]) -> None:
        self.names = [said] if said else list(known)
        name = shlex.quote(upstream)
        if not self.names:
            hint = f"It wants a key: toolscout set {name} --env NAME, with the variable that its documentation names."
        elif said and said not in known:
            hint = (
                f"It says that it needs {said}. If it shall have it: toolscout secret set {said}, then "
                f"toolscout set {name} --env {said}"
            )
        else:
            hint = f"Its value is missing or wrong: toolscout secret set {' '.join(self.names)}"
        super().__init__(message, hint)


class Refused(UpstreamError):
    """The upstream answered with a JSON-RPC error. ``code`` and ``data`` are its own."""

    kind = "upstream_refused"

    def __init__(self, message: str, code: int, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def seen(task: asyncio.Task[Any]) -> None:
    """Mark a task's exception as looked at: whoever waits gets it, and nobody may be waiting."""
    if not task.cancelled():
        task.exception()


def leaf(error: BaseException) -> BaseException:
    """The first error inside groups of errors."""
    while isinstance(error, BaseExceptionGroup) and error.exceptions:
        error = error.exceptions[0]
    return error


def reason(error: BaseException) -> str:
    """Its text, or its class where it has none."""
    inner = leaf(error)
    return str(inner) or type(inner).__name__


def closed(error: BaseException | None) -> bool:
    """Whether the connection was closed under a request."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import CONNECTION_CLOSED

    return error is not None and isinstance(inner := leaf(error), MCPError) and inner.error.code == CONNECTION_CLOSED


def too_large(error: Exception) -> bool:
    """How the HTTP transports say that an answer broke the limit."""
    return "answer larger than" in str(error) or "maximum event size" in str(error)


def unreadable(error: Exception) -> bool:
    """How the SDK's HTTP client says that an answer is no JSON-RPC message."""
    from mcp.shared.exceptions import MCPError
    from mcp_types import PARSE_ERROR

    return (
        isinstance(error, MCPError) and error.error.code == PARSE_ERROR and error.error.message.startswith(_UNREADABLE)
    )


def unreached(keeper: asyncio.Task[None] | None) -> bool:
    """Whether an HTTP connection broke before the request left: nobody was listening."""
    if keeper is None or not keeper.done() or keeper.cancelled() or (error := keeper.exception()) is None:
        return False
    return type(leaf(error)).__name__ in {"ConnectError", "ConnectTimeout", "PoolTimeout"}


def with_texts(value: object, change: Callable[[str], str], depth: int = 0, *, names: bool = True) -> object:
    """A JSON value with all of its texts changed, with ``names`` those of fields, too. Raises ValueError for one too
    deep."""
    if depth > _DEEPEST_DATA:
        raise ValueError("too deep")
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            change(name) if names else name: with_texts(held, change, depth + 1, names=names)
            for name, held in value.items()
        }
    return [with_texts(held, change, depth + 1, names=names) for held in value] if isinstance(value, list) else value
