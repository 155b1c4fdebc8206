"""Who makes a call: what is known of the client without believing it, and the name that it gives itself."""

from __future__ import annotations

import contextlib
import getpass
import ipaddress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from toolscout.records import JsonObject

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext

_LONGEST = 200
_SHARED = "bearer"
"""The principal of everybody who has the one token of ``TOOLSCOUT_AUTH_TOKEN``."""


@dataclass(frozen=True)
class ClientIdentity:
    """``via``: stdio, http, cli or toolscout (a call of its own). ``user``: who was authenticated, or over stdio and in
    a terminal the user of this machine. ``name`` is what the client calls itself, ``address`` where it calls from."""

    via: str
    user: str = ""
    name: str = ""
    address: str = ""

    @property
    def key(self) -> str:
        """What rate limits go by: the authenticated user where there is one of its own, else where it calls from.

        Never the name that it gives itself, which may be another with each call.
        """
        if self.via == "http" and self.user and self.user != _SHARED:
            return f"http|{self.user}"
        return "|".join((self.via, self.user, _place(self.address)))

    def as_json(self) -> JsonObject:
        """The fields that say something."""
        return {key: value for key, value in vars(self).items() if value}


def _place(address: str) -> str:
    """An address as a client cannot change it at will: of IPv6 the network of 64 bits, which a single machine gets."""
    with contextlib.suppress(ValueError):
        found = ipaddress.ip_address(address)
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is None:
            return str(ipaddress.ip_network((found.packed, 64), strict=False))
    return address


OURSELVES = ClientIdentity("toolscout")


def local_identity(via: str, name: str = "") -> ClientIdentity:
    """A client on this machine, which runs as the user does."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a container's user without a name
        user = ""
    return ClientIdentity(via, user, name)


def identity_of(ctx: ServerRequestContext[Any, Any]) -> ClientIdentity:
    """The client of a request."""
    params = ctx.session.client_params
    info = params.client_info if params is not None else None
    name = f"{info.name} {info.version}".strip()[:_LONGEST] if info is not None else ""
    if ctx.request is None:
        return local_identity("stdio", name)
    user = _user()
    peer = getattr(ctx.request, "client", None)
    return ClientIdentity("http", user[:_LONGEST], name, peer.host if peer is not None else "")


def own_user() -> str:
    """The authenticated user of the request at hand, where that is one of its own."""
    user = _user()
    return "" if user == _SHARED else user


def _user() -> str:
    from mcp.server.auth.middleware.auth_context import get_access_token

    token = get_access_token()
    return (token.subject or token.client_id) if token is not None else ""
