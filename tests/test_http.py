"""The HTTP face, served by a real uvicorn on loopback."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx
import pytest
from fastmcp import Client
from fastmcp.client.transports import StreamableHttpTransport
from here import over_http

from toolscout.errors import BadInput, NotAllowed
from toolscout.records import Server, Tool
from toolscout.server.engine import Engine
from toolscout.server.web.auth import is_loopback
from toolscout.server.web.http import make_http_app, parse_address, run_http
from toolscout.settings import Settings

ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
HEADERS = {"accept": "application/json, text/event-stream", "content-type": "application/json"}


async def test_both_eras_list_the_three_tools(settings: Settings) -> None:
    async with over_http(settings) as url:
        for mode in ("auto", "legacy"):
            async with Client(f"{url}/mcp", mode=mode) as client:
                assert [tool.name for tool in await client.list_tools()] == ["find_tools", "suggest_call", "invoke"]
                result = await client.call_tool_mcp("find_tools", {"query": "anything"})
                assert result.is_error and "catalog is empty" in result.content[0].text


async def test_health_and_metrics(settings: Settings) -> None:
    async with over_http(settings) as url, httpx.AsyncClient() as http:
        async with Client(f"{url}/mcp", mode="auto") as client:
            await client.call_tool_mcp("invoke", {"tool_id": "no/such"})
        health = await http.get(f"{url}/health")
        assert health.status_code == 200 and health.json()["status"] == "ok"
        metrics = (await http.get(f"{url}/metrics")).text
        assert 'toolscout_calls_total{outcome="error",tool="invoke"} 1.0' in metrics


async def test_a_foreign_host_or_origin_is_refused(settings: Settings) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": ENVELOPE}}
    headers = {**HEADERS, "mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}
    async with over_http(settings) as url, httpx.AsyncClient() as http:
        good = await http.post(f"{url}/mcp", json=body, headers=headers)
        assert good.status_code == 200, good.text
        for foreign in ({"host": "evil.example"}, {"origin": "https://evil.example"}):
            refused = await http.post(f"{url}/mcp", json=body, headers={**headers, **foreign})
            assert refused.status_code in (403, 421), (foreign, refused.status_code)


async def test_a_bearer_token_is_required_when_one_is_set(settings: Settings) -> None:
    settings.auth_token = "right-token"
    async with over_http(settings) as url, httpx.AsyncClient() as http:
        assert (await http.post(f"{url}/mcp", json={}, headers=HEADERS)).status_code == 401
        wrong = {**HEADERS, "authorization": "Bearer wrong-token"}
        assert (await http.post(f"{url}/mcp", json={}, headers=wrong)).status_code == 401
        assert (await http.get(f"{url}/metrics")).status_code == 401
        assert (await http.get(f"{url}/metrics", headers={"authorization": "Bearer right-token"})).status_code == 200
        assert (await http.get(f"{url}/health")).status_code == 200
        transport = StreamableHttpTransport(f"{url}/mcp", auth="right-token")
        async with Client(transport, mode="auto") as client:
            assert len(await client.list_tools()) == 3


async def test_a_health_check_on_loopback_passes_whatever_hosts_are_allowed(settings: Settings) -> None:
    settings.allowed_hosts = ["tools.example.com"]
    settings.auth_token = "right-token"
    engine = Engine(settings)
    transport = httpx.ASGITransport(make_http_app(engine, settings, "0.0.0.0"))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as http:
        assert (await http.get("/health")).status_code == 200
        assert (await http.get("/health", headers={"host": "tools.example.com"})).status_code == 200
        assert (await http.get("/health", headers={"host": "evil.example"})).status_code == 421
    await engine.close()


async def test_health_tries_again_what_failed(settings: Settings) -> None:
    async with Engine(settings) as first:
        first.catalogue.put_server(Server(server_id="a"), [Tool(tool_id="a/b", server_id="a", name="b")])
        await first.reindex()
    settings.servers_file.write_text('{"mcpServers": ')
    engine = Engine(settings)
    transport = httpx.ASGITransport(make_http_app(engine, settings, "127.0.0.1"))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as http:
        assert (await http.get("/health")).status_code == 503
        settings.servers_file.write_text("{}")
        assert (await http.get("/health")).status_code == 200
    await engine.close()


def test_beyond_loopback_needs_authentication(settings: Settings) -> None:
    with pytest.raises(NotAllowed, match="without authentication"):
        make_http_app(Engine(settings), settings, "0.0.0.0")
    settings.auth_token = "t"
    assert make_http_app(Engine(settings), settings, "0.0.0.0")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:80", ("127.0.0.1", 80)),
        (":80", ("127.0.0.1", 80)),
        ("80", ("127.0.0.1", 80)),
        ("[::1]:80", ("::1", 80)),
    ],
)
def test_addresses(address: str, expected: tuple[str, int]) -> None:
    assert parse_address(address) == expected


@pytest.mark.parametrize("address", ["", "localhost", "localhost:http", "localhost:70000", "a:-1"])
def test_bad_addresses(address: str) -> None:
    with pytest.raises(BadInput, match="not HOST:PORT"):
        parse_address(address)


def test_loopback_is_recognised() -> None:
    assert is_loopback("localhost") and is_loopback("127.0.0.2") and is_loopback("::1")
    assert not is_loopback("0.0.0.0") and not is_loopback("example.org") and not is_loopback("192.168.0.1")


def test_a_taken_port_is_said_before_anything_is_loaded(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(BadInput, match="Nothing can listen"):
            run_http(f"127.0.0.1:{taken.getsockname()[1]}")
