"""What a client of the HTTP face may take, tried with raw sockets against a running server."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from here import over_http

from toolscout.server.engine import Engine
from toolscout.server.web.http import make_http_app
from toolscout.server.web.limits import PatientProtocol
from toolscout.settings import Settings

HEAD = (
    b"POST /mcp HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
    b"accept: application/json, text/event-stream\r\n"
)
_PATIENCE = 30


async def talk(url: str, *parts: bytes) -> bytes:
    """What the server says to these bytes until it closes the connection."""
    where = urlsplit(url)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), _PATIENCE)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("announced", [True, False])
async def test_a_large_body_is_refused_with_a_sentence(settings: Settings, announced: bool) -> None:
    settings.max_request_bytes = 1024
    if announced:
        parts = [HEAD + b"content-length: 99999999\r\n\r\n"]
    else:
        parts = [HEAD + b"transfer-encoding: chunked\r\n\r\n", *[b"200\r\n" + b"x" * 512 + b"\r\n"] * 3]
    async with over_http(settings) as url, httpx.AsyncClient() as http:
        answer = await talk(url, *parts)
        assert answer.startswith(b"HTTP/1.1 413 ") and b"larger than 1,024 bytes" in answer
        assert b"TOOLSCOUT_MAX_REQUEST_BYTES" in answer
        assert (await http.get(f"{url}/health")).status_code in (200, 503)  # it still answers


async def test_a_body_that_does_not_come_is_not_awaited_for_ever(settings: Settings) -> None:
    settings.request_timeout = 0.3
    async with over_http(settings) as url:
        answer = await talk(url, HEAD + b"content-length: 100\r\n\r\n{")
        assert answer.startswith(b"HTTP/1.1 408 ") and b"within 0.3 seconds" in answer


@pytest.mark.parametrize("given", ["", "Basic abc", "Bearer wrong"])
@pytest.mark.parametrize("jwt", [False, True])
async def test_no_byte_of_a_body_is_awaited_from_who_may_not_come_in(
    settings: Settings, given: str, jwt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else strangers could fill the memory; the refusal is the one that a request with its body gets."""
    monkeypatch.setattr(PatientProtocol, "linger_seconds", 0.3)
    if jwt:
        settings.auth_jwks, settings.auth_issuer = "http://127.0.0.1:9/keys", "https://login.example.com"
        settings.auth_audience, settings.public_url = "toolscout", "https://tools.example.com"
    else:
        settings.auth_token = "right"
    head = HEAD + (f"authorization: {given}\r\n".encode() if given else b"")
    async with over_http(settings) as url:
        started = time.monotonic()
        answer = await talk(url, head + b"content-length: 1000000\r\n\r\n" + b"{" * 1000)
        assert time.monotonic() - started < settings.request_timeout / 2
        whole = await talk(url, head + b"connection: close\r\ncontent-length: 2\r\n\r\n{}")
    assert answer.startswith(b"HTTP/1.1 401 ")
    challenges = [_header(said, b"www-authenticate") for said in (answer, whole)]
    assert challenges[0] == challenges[1] and challenges[0].startswith(b"Bearer")
    assert (b"resource_metadata=" in challenges[0]) is jwt
    assert (b"invalid_token" in challenges[0]) is given.startswith("Bearer")


def _header(answer: bytes, name: bytes) -> bytes:
    lines = answer.partition(b"\r\n\r\n")[0].split(b"\r\n")
    return next((line.partition(b": ")[2] for line in lines if line.lower().startswith(name + b":")), b"")


@pytest.mark.parametrize("token", ["", "right"])
async def test_all_bodies_together_are_bounded(settings: Settings, token: str) -> None:
    settings.max_request_bytes, settings.max_buffered_bytes, settings.auth_token = 100_000, 150_000, token
    head = HEAD + (f"authorization: Bearer {token}\r\n".encode() if token else b"") + b"connection: close\r\n"
    body = json.dumps({"jsonrpc": "2.0", "id": "i" * 90_000, "method": "ping"}).encode()
    request = head + f"content-length: {len(body)}\r\n\r\n".encode() + body
    async with over_http(settings) as url:
        where = urlsplit(url)
        _, writer = await asyncio.open_connection(where.hostname, where.port)
        writer.write(request[:-10])
        await writer.drain()
        async with asyncio.timeout(_PATIENCE):
            while not (answer := await talk(url, request)).startswith(b"HTTP/1.1 503 "):
                pass  # the first one's bytes were still on their way
        assert b"as many bytes of requests" in answer and _header(answer, b"retry-after") == b"1"
        assert not (await talk(url, head + b"content-length: 2\r\n\r\n{}")).startswith(b"HTTP/1.1 503 ")
        writer.close()  # and what it held is free again
        async with asyncio.timeout(_PATIENCE):
            while (await talk(url, request)).startswith(b"HTTP/1.1 503 "):
                pass
        for _ in range(3):  # so is what was answered
            assert not (await talk(url, request)).startswith(b"HTTP/1.1 503 ")


async def test_a_body_that_goes_on_after_its_refusal_is_not_awaited_for_ever(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PatientProtocol, "linger_seconds", 0.3)
    async with over_http(settings) as url:
        where = urlsplit(url)
        reader, writer = await asyncio.open_connection(where.hostname, where.port)

        async def drip() -> None:
            while True:
                writer.write(b"1\r\nx\r\n")
                await writer.drain()
                await asyncio.sleep(0.02)

        writer.write(HEAD.replace(b"127.0.0.1", b"elsewhere.example") + b"transfer-encoding: chunked\r\n\r\n")
        dripping = asyncio.create_task(drip())
        try:
            answer = await asyncio.wait_for(_all_of(reader), _PATIENCE)
        finally:
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)
            writer.close()
        assert answer.startswith(b"HTTP/1.1 4") and b"200 OK" not in answer


async def _all_of(reader: asyncio.StreamReader) -> bytes:
    """What came before the connection was closed or aborted."""
    found = b""
    try:
        while part := await reader.read(4096):
            found += part
    except ConnectionError:
        pass
    return found


@pytest.mark.parametrize("sent", [b"", b"POST /mcp HTTP/1.1\r\nhost: x\r\n"])
async def test_a_head_that_does_not_come_is_not_awaited_for_ever(
    settings: Settings, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PatientProtocol, "head_seconds", 0.3)
    async with over_http(settings) as url:
        assert await talk(url, sent) == b""


async def test_a_second_head_that_does_not_come_either(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "head_seconds", 2.0)
    request = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
    async with over_http(settings) as url:
        answer = await talk(url, request, request, b"GET /hea")
        assert answer.count(b"HTTP/1.1 ") == 2


async def test_who_does_not_read_is_let_go(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers wait in the kernel, then in the transport up to its mark, and then the connection is cut."""
    monkeypatch.setattr(PatientProtocol, "stall_seconds", 0.5)
    settings.max_request_bytes = 10**6
    body = json.dumps({"jsonrpc": "2.0", "id": "i" * 500_000, "method": "ping"}).encode()
    request = HEAD + f"content-length: {len(body)}\r\n\r\n".encode() + body
    async with over_http(settings) as url, httpx.AsyncClient() as http:
        where = urlsplit(url)
        _, writer = await asyncio.open_connection(where.hostname, where.port, limit=1024)
        writer.transport.pause_reading()
        try:
            async with asyncio.timeout(_PATIENCE):
                while True:
                    writer.write(request)
                    await writer.drain()
                    await asyncio.sleep(0)
        except ConnectionError:
            pass
        assert (await http.get(f"{url}/health")).status_code in (200, 503)  # it still answers


async def test_refusals_point_to_the_metadata_of_the_resource(settings: Settings) -> None:
    """RFC 9728: a client without a token learns where to get one."""
    settings.auth_jwks = "https://login.example.com/keys"
    settings.auth_audience = "toolscout"
    settings.auth_issuer = "https://login.example.com"
    settings.public_url = "https://tools.example.com"
    transport = httpx.ASGITransport(make_http_app(Engine(settings), settings, "0.0.0.0"))
    async with httpx.AsyncClient(transport=transport, base_url="https://tools.example.com") as http:
        refused = await http.post("/mcp", json={})
        assert refused.status_code == 401
        challenge = refused.headers["www-authenticate"]
        metadata = challenge.partition('resource_metadata="')[2].partition('"')[0]
        assert metadata.startswith("https://tools.example.com/.well-known/oauth-protected-resource"), challenge
        told = (await http.get(metadata)).json()
        assert told["resource"] == "https://tools.example.com/mcp"
        assert [u.rstrip("/") for u in told["authorization_servers"]] == ["https://login.example.com"]
        assert (await http.post("/mcp", json={}, headers={"host": "evil.example"})).status_code == 421


def test_a_real_server_refuses_beyond_loopback_and_ends_well(home: Path) -> None:
    environ = {**os.environ, "TOOLSCOUT_HOME": str(home), "TOOLSCOUT_STARTER": "0"}
    command = [sys.executable, "-m", "toolscout", "serve", "--http"]
    refused = subprocess.run([*command, "0.0.0.0:0"], env=environ, capture_output=True, text=True, timeout=120)
    assert refused.returncode == 7 and "without authentication" in refused.stderr
    port = 20_000 + os.getpid() % 20_000
    with subprocess.Popen([*command, f"127.0.0.1:{port}"], env=environ) as server:
        try:
            deadline = time.monotonic() + 120
            while True:
                try:
                    if httpx.get(f"http://127.0.0.1:{port}/health").status_code == 200:
                        break
                except httpx.TransportError:
                    assert server.poll() is None and time.monotonic() < deadline
                time.sleep(0.1)
            # An unfinished request does not hold it up.
            held = asyncio.run(_hold(port, server))
            assert held in (0, -signal.SIGTERM)
        finally:
            server.kill()


async def _hold(port: int, server: subprocess.Popen[bytes]) -> int:
    _, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(HEAD + b"content-length: 100\r\n\r\n{")
    await writer.drain()
    server.send_signal(signal.SIGTERM)
    code = await asyncio.to_thread(server.wait, 60)
    writer.close()
    return code
