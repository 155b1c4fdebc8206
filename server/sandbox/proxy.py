"""The way out of a sandbox that may reach some hosts only: an HTTP proxy on a socket that nobody else sees.

The sandbox has no network at all; this proxy in Toolscout's own process is the one thing that it can talk to. It serves
``CONNECT`` and plain ``http://`` requests, resolves names itself, and refuses what is not on the list.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import re
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from toolscout.server.sandbox.policy import split_host

_USUAL_PORTS = (80, 443)
_HEAD_SECONDS = 30.0
_CONNECT_SECONDS = 20.0
_AT_ONCE = 128


class Refused(Exception):
    """What is asked for is not allowed, or is no request that a proxy serves."""


def allows(allowed: tuple[str, ...], host: str, port: int) -> bool:
    """Whether a host and port are on the list. ``*.x`` is every name below ``x``; without a port 80 and 443 count."""
    host = host.lower().rstrip(".")
    for entry in allowed:
        name, wanted = split_host(entry)
        ports = _USUAL_PORTS if wanted is None else (wanted,)
        below = name.startswith("*.") and host.endswith(name[1:]) and host != name[1:]
        if port in ports and (host == name or below):
            return True
    return False


@asynccontextmanager
async def proxy(allowed: tuple[str, ...], uid: int) -> AsyncIterator[Path]:
    """Serve the list for as long as the context lasts; the path of the socket, which ``uid`` may use."""
    folder = Path(tempfile.mkdtemp(prefix="toolscout-proxy-"))
    path = folder / "socket"
    gate = asyncio.Semaphore(_AT_ONCE)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            async with gate:
                await _serve(reader, writer, allowed)
        except (OSError, asyncio.CancelledError):
            pass  # an end like any other; a cancelled one is the sandbox's own
        finally:
            tasks.discard(task)
            writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        os.chmod(path, 0o600)  # noqa: PTH101
        os.chown(path, uid, -1)
        yield path
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        shutil.rmtree(folder, ignore_errors=True)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, allowed: tuple[str, ...]) -> None:
    try:
        async with asyncio.timeout(_HEAD_SECONDS):
            head = await reader.readuntil(b"\r\n\r\n")
        host, port, first = _asked(head)
        if not allows(allowed, host, port):
            raise Refused(f"{host}:{port} is not among the hosts that this server's sandbox may reach")
        async with asyncio.timeout(_CONNECT_SECONDS):
            address = await _address(host, port, allowed)
            far_reader, far_writer = await asyncio.open_connection(address, port)
    except Refused as error:
        writer.write(_answer("403 Forbidden", str(error)))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError):
        writer.write(_answer("408 Request Timeout", "no request, or no answer in time"))
    except OSError as error:
        writer.write(_answer("502 Bad Gateway", error.strerror or str(error)))
    else:
        try:
            if first is None:
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            else:
                far_writer.write(first)
            await asyncio.gather(_carry(reader, far_writer), _carry(far_reader, writer))
        finally:
            far_writer.close()
        return
    with contextlib.suppress(OSError):
        await writer.drain()


def _asked(head: bytes) -> tuple[str, int, bytes | None]:
    """Host, port, and what is sent on (None for a tunnel). Raises Refused."""
    line, _, rest = head.partition(b"\r\n")
    words = line.decode("latin-1").split(" ")
    if len(words) != 3:
        raise Refused("this is no HTTP request")
    method, target, version = words
    if method == "CONNECT":
        parts = _parsed(f"//{target}")
        if parts[0] is None or parts[1] is None:
            raise Refused("CONNECT wants HOST:PORT")
        return parts[0], parts[1], None
    if not target.lower().startswith("http://"):
        raise Refused("only CONNECT and http:// addresses are served")
    host, port = _parsed(target)
    if host is None:
        raise Refused("the address names no host")
    path = re.sub(r"^http://[^/?#]*", "", target, flags=re.IGNORECASE)
    path = path if path.startswith("/") else f"/{path}"
    # One request a connection: a second one might be for another host.
    kept = [h for h in rest.split(b"\r\n") if h and not re.match(rb"(proxy-)?connection:|host:|proxy-auth", h, re.I)]
    netloc = host if port in (None, 80) else f"{host}:{port}"
    lines = [f"{method} {path} {version}".encode("latin-1"), f"Host: {netloc}".encode("latin-1"), *kept]
    return host, port or 80, b"\r\n".join([*lines, b"Connection: close", b"", b""])


def _parsed(address: str) -> tuple[str | None, int | None]:
    try:
        parts = urlsplit(address)
        return parts.hostname, parts.port
    except ValueError:
        raise Refused("the address cannot be read") from None


async def _address(host: str, port: int, allowed: tuple[str, ...]) -> str:
    """Where a name leads. A name on the list never leads into this machine unless the list says ``localhost``.

    Raises Refused, or OSError for a name that does not exist.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except ValueError:  # an empty or endless label, a NUL: UnicodeError of the encoding that names have
        raise OSError(f"{host[:80]!r} is no name of a host") from None
    addresses = [str(entry[4][0]) for entry in found]
    literal = _literal(host)
    for address in addresses:
        ip = ipaddress.ip_address(address.partition("%")[0])
        ip = getattr(ip, "ipv4_mapped", None) or ip
        own = ip.is_loopback or ip.is_link_local or ip.is_unspecified or ip.is_multicast
        if not own or literal or host.lower().rstrip(".") == "localhost":
            return address
    raise Refused(f"{host} leads to this machine itself ({addresses[0]})")


def _literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    with contextlib.suppress(OSError, RuntimeError):
        if writer.can_write_eof():
            writer.write_eof()


def _answer(status: str, text: str) -> bytes:
    body = f"{text}\n".encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    return head.encode() + body
