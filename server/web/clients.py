"""A key for each client over HTTP, by which it is told from others: what one does at an upstream is not another's.

Answers do not depend on it, so that any worker can serve any request: it only says whose upstream a call goes to. It is
given out as the session id of the 2025 handshake, and as a cookie for clients of the stateless era that keep those.
"""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_COOKIE = "toolscout-client"
_KEY = re.compile(r"[A-Za-z0-9_-]{24}")
_STATE = "toolscout_client"


class ClientKeys:
    """ASGI middleware: notes the key that a request brings, and gives one to who brings none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        brought = _brought(scope)
        scope.setdefault("state", {})[_STATE] = brought

        async def giving(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] < 400:
                key = secrets.token_urlsafe(18)
                # Both: which one a client sends again shows with its next request.
                message.setdefault("headers", []).append(
                    (b"set-cookie", f"{_COOKIE}={key}; Path=/; HttpOnly; SameSite=Strict".encode())
                )
                if not any(name == b"mcp-method" for name, _ in scope["headers"]):
                    message["headers"].append((b"mcp-session-id", key.encode()))
            await send(message)

        await self._app(scope, receive, send if brought else giving)


def owner_of(request: Request | None) -> str:
    """Whose upstreams a request's calls go to: its user's and, of that, the client's; empty where neither is known."""
    if request is None:
        return ""
    from toolscout.server.client_identity import own_user

    key = request.scope.get("state", {}).get(_STATE, "")
    return "|".join(part for part in (own_user(), key) if part)


def _brought(scope: Any) -> str:
    found = {bytes(name): bytes(value).decode("latin-1") for name, value in scope["headers"]}
    session = found.get(b"mcp-session-id", "")
    if _KEY.fullmatch(session):
        return session
    for part in found.get(b"cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == _COOKIE and _KEY.fullmatch(value):
            return value
    return ""
