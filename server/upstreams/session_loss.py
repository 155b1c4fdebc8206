"""Whether a remote server has forgotten the session that we have with it, however it says so.

Servers that were restarted say it with 404, 400, 401, 410 or 500, with an error in a 200, with many codes and words.
So no form is looked for: the server is asked for a sign of life over the same session. One that refuses even that, and
in the same way, refuses the session and not the call. Some answer a ping over any session: where a refusal looks like
a lost one, a new session is tried whatever a ping would say; what is refused over that as well is the call's own.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from mcp.shared.exceptions import MCPError
from mcp_types import METHOD_NOT_FOUND

from toolscout.server.upstreams.exchange import HttpRefused
from toolscout.server.upstreams.link import Link, lost

_PING_SECONDS = 5.0
_NOT_NOW = frozenset({408, 425, 429, 502, 503, 504})
"""Statuses of a server that is busy or away, which a new session would not bring back."""
_SAYS_SO = re.compile(r"session|initiali[sz]", re.IGNORECASE)


class Loss(Enum):
    """What became of the session, and of the call that was refused."""

    NONE = auto()
    """The session holds: the call itself was refused."""
    UNCALLED = auto()
    """The session is lost, and the call cannot have been carried out."""
    UNSURE = auto()
    """The session is lost; whether the call was carried out before cannot be told."""


async def look(link: Link, error: MCPError, *, again: bool) -> Loss:
    """Find out why a call was refused with ``error`` over a connection.

    ``again``: it was refused before, and this connection was made for it.
    """
    status = error.status if isinstance(error, HttpRefused) else 200
    rejected = 400 <= status < 500
    if link.process is not None or status in _NOT_NOW:
        return Loss.NONE
    if link.era != "legacy":
        # There is no session; but the key may be another one by now, and a new connection has it.
        return Loss.UNCALLED if status == 401 else Loss.NONE
    if _looks_lost(error, status):
        if again:
            link.own_refusals.add(_form(error))
        elif status < 500 and _form(error) not in link.own_refusals:  # a fault may have come after the deed
            return Loss.UNCALLED
    if status < 400 and error.error.code == METHOD_NOT_FOUND:
        return Loss.NONE  # what servers without a ping say to it, too
    try:
        await link.ping(_PING_SECONDS)
        return Loss.NONE
    except MCPError as refused:
        if not lost(refused) and _form(refused) != _form(error):  # over SSE a refusal ends the connection by itself
            return Loss.NONE
    except TimeoutError:
        return Loss.NONE
    return Loss.UNCALLED if rejected or _SAYS_SO.search(error.error.message) else Loss.UNSURE


def _form(error: MCPError) -> tuple[int, ...]:
    if isinstance(error, HttpRefused):
        return (error.status,)
    return (200, error.error.code)


def _looks_lost(error: MCPError, status: int) -> bool:
    if status == 404:  # the SDK's own words for it are of a session, too
        return isinstance(error, HttpRefused) and error.in_session
    return _SAYS_SO.search(error.error.message) is not None
