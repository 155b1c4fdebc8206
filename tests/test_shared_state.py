"""What one client does at an upstream is not another's: two real clients of one server over HTTP."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastmcp import Client
from here import over_http

from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.settings import Settings

BROWSER = """
import json, sys

page = "nothing"
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params") or {}
    if "id" not in message:
        continue
    if method == "initialize":
        about = {"name": "b", "version": "1"}
        can = {"tools": {}}
        outcome = {"result": {"protocolVersion": "2025-06-18", "capabilities": can, "serverInfo": about}}
    elif method == "tools/list":
        outcome = {"result": {"tools": [{"name": n, "inputSchema": {"type": "object"}} for n in ("open", "look")]}}
    elif method == "tools/call":
        page = params["arguments"].get("url", page)
        outcome = {"result": {"content": [{"type": "text", "text": page}]}}
    else:
        outcome = {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **outcome}), flush=True)
"""


async def prepared(settings: Settings, tmp_path: Path, **entry: Any) -> Settings:
    (tmp_path / "browser.py").write_text(BROWSER)
    command = {"command": sys.executable, "args": ["-I", "-S", str(tmp_path / "browser.py")]}
    ServersFile(settings.servers_file).add(UpstreamConfig.parse("browser", {**command, **entry}))
    async with Engine(settings) as engine:
        await engine.refresh_server("browser")
    return settings


async def at(client: Client[Any], tool: str, **arguments: str) -> str:
    result = await client.call_tool_mcp("invoke", {"tool_id": f"browser/{tool}", "arguments": arguments})
    return str(result.content[0].text)  # type: ignore[union-attr]


async def seen(url: str, modes: tuple[str, str]) -> tuple[str, str]:
    """What each of two clients sees after one has opened a page."""
    async with Client(f"{url}/mcp", mode=modes[0]) as a, Client(f"{url}/mcp", mode=modes[1]) as b:
        await at(a, "open", url="https://a.example/private")
        await asyncio.sleep(0.2)
        return await at(a, "look"), await at(b, "look")


@pytest.mark.parametrize("modes", [("auto", "auto"), ("legacy", "legacy"), ("auto", "legacy")])
async def test_two_clients_share_no_page(settings: Settings, tmp_path: Path, modes: tuple[str, str]) -> None:
    async with over_http(await prepared(settings, tmp_path)) as url:
        assert await seen(url, modes) == ("https://a.example/private", "nothing")


async def test_what_is_said_to_be_shared_is(settings: Settings, tmp_path: Path) -> None:
    async with over_http(await prepared(settings, tmp_path, shared=True)) as url:
        assert await seen(url, ("auto", "legacy")) == ("https://a.example/private",) * 2
    ServersFile(settings.servers_file).remove("browser")
    await prepared(settings, tmp_path)
    async with over_http(settings.model_copy(update={"share_upstreams": True})) as url:
        assert await seen(url, ("auto", "legacy")) == ("https://a.example/private",) * 2


async def test_a_key_of_ones_own_choice_is_none(settings: Settings, tmp_path: Path) -> None:
    headers = {"accept": "application/json, text/event-stream", "mcp-session-id": "guessed"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with over_http(settings) as url, httpx.AsyncClient() as http:
        given = await http.post(f"{url}/mcp", json=body, headers=headers)
        assert len(given.headers["mcp-session-id"]) == 24 and "HttpOnly" in given.headers["set-cookie"]
        again = await http.post(f"{url}/mcp", json=body, headers=headers)  # with the cookie
        assert "set-cookie" not in again.headers
