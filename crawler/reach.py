"""Which part of the network a host is in: what foreign answers lead to must not be this machine or its neighbours."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from enum import IntEnum

_LOCAL_NAMES = (".localhost", ".local", ".internal", ".lan", ".home.arpa")


class Reach(IntEnum):
    """Parts of the network, the most private first."""

    LINK = 0
    """Link-local addresses, a cloud's metadata service among them."""
    MACHINE = 1
    NETWORK = 2
    WORLD = 3


def by_name(host: str) -> Reach:
    """What an address, or a name alone, says."""
    host = host.strip("[]").rstrip(".").lower()
    try:
        return _by_address(host)
    except ValueError:
        pass
    if host == "localhost" or host.endswith(".localhost"):
        return Reach.MACHINE
    return Reach.NETWORK if "." not in host or host.endswith(_LOCAL_NAMES) else Reach.WORLD


async def by_lookup(host: str) -> Reach:
    """The most private of a name and all its addresses. A name that cannot be looked up counts as it reads: behind a
    proxy there may be no name service at all."""
    said = by_name(host)
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return said
    return min([said, *(_by_address(str(address[0])) for *_, address in found)])


def _by_address(text: str) -> Reach:
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        address = address.ipv4_mapped or address.sixtofour or address
    if address.is_link_local:
        return Reach.LINK
    if address.is_loopback or address.is_unspecified:
        return Reach.MACHINE
    return Reach.WORLD if address.is_global else Reach.NETWORK
