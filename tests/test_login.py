"""Logging in at a remote server: a real OAuth server on loopback, a browser that says yes, and nobody at one."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from toolscout.commands.logging_in import log_in
from toolscout.errors import StorageError
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.upstreams.login import LoginNeeded
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings

BROWSER = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=20)"


class _Handler(BaseHTTPRequestHandler):
    server: Any

    def answer(self, status: int, body: object = None, **headers: str) -> None:
        data = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        base = f"http://127.0.0.1:{self.server.server_port}"
        parts = urlsplit(self.path)
        if parts.path.startswith("/.well-known/oauth-protected-resource"):
            self.answer(200, {"resource": f"{base}/mcp", "authorization_servers": [base]})
        elif parts.path.startswith("/.well-known/oauth-authorization-server"):
            paths = {f"{what}_endpoint": f"{base}/{at}" for what, at in
                     (("authorization", "authorize"), ("token", "token"), ("registration", "register"))}  # fmt: skip
            how = {"response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}
            self.answer(200, {"issuer": base, **paths, **how})
        elif parts.path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(parts.query).items()}
            back = urlencode({"code": "c0de", "state": asked["state"]})
            self.answer(302, location=f"{asked['redirect_uri']}?{back}")
        else:
            self.answer(404)

    def do_POST(self) -> None:
        said = self.rfile.read(int(self.headers.get("content-length") or 0)).decode()
        if self.path == "/register":
            self.answer(201, {**json.loads(said), "client_id": "us"})
        elif self.path == "/token":
            if parse_qs(said)["grant_type"] != ["authorization_code"]:
                self.answer(400, {"error": "invalid_grant"})
                return
            self.answer(200, {"access_token": self.server.token, "token_type": "Bearer", "expires_in": 3600,
                              "refresh_token": "again"})  # fmt: skip
        elif self.headers.get("authorization") != f"Bearer {self.server.token}":
            where = f"http://127.0.0.1:{self.server.server_port}/.well-known/oauth-protected-resource/mcp"
            self.answer(401, {"error": "invalid_token"}, www_authenticate=f'Bearer resource_metadata="{where}"')
        else:
            message = json.loads(said)
            result: dict[str, Any] = {
                "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                               "serverInfo": {"name": "o", "version": "1"}},
                "tools/list": {"tools": [{"name": "go", "inputSchema": {"type": "object"}}]},
                "tools/call": {"content": [{"type": "text", "text": "called"}]},
            }.get(message["method"], {})  # fmt: skip
            body = {"jsonrpc": "2.0", "id": message["id"], "result": result} if "id" in message else None
            self.answer(200 if body else 202, body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def guarded(settings: Settings) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.token = "t0ken"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    server.url = f"http://127.0.0.1:{server.server_port}/mcp"
    yield server
    server.shutdown()
    server.server_close()


def run(settings: Settings, tmp_path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "browser.py").write_text(BROWSER)
    browser = f"{sys.executable} {tmp_path / 'browser.py'} %s &"  # with & nobody waits for it
    env = {**os.environ, "TOOLSCOUT_HOME": str(settings.home), "TOOLSCOUT_STARTER": "0", "BROWSER": browser}
    command = [sys.executable, "-m", "toolscout", *args]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL)


async def test_a_login_with_the_browser_and_what_follows(settings: Settings, tmp_path: Path, guarded: Any) -> None:
    added = await asyncio.to_thread(run, settings, tmp_path, "add", "acct", "--url", guarded.url, "--yes")
    assert "toolscout login acct" in added.stdout, "the way is named"
    done = await asyncio.to_thread(run, settings, tmp_path, "login", "acct")
    assert (done.returncode, done.stdout.strip()) == (0, "acct: 1 tools"), done
    address = next(line for line in done.stderr.splitlines() if "/authorize?" in line)
    assert address.startswith("http://127.0.0.1:") and "state=" in address and "code_challenge=" in address
    servers = ServersFile(settings.servers_file)
    assert servers.load()["acct"].auth == "oauth"
    async with UpstreamPool(settings, servers.load) as pool:
        result = await pool.call("acct", "go", {})
        assert result.content[0].text == "called"  # type: ignore[union-attr]
        guarded.token = "another"  # revoked
        began = time.monotonic()
        with pytest.raises(LoginNeeded, match="'acct' wants a login") as caught:
            await pool.call("acct", "go", {})
        assert "toolscout login acct" in caught.value.hint
        assert time.monotonic() - began < 30, "nobody is waited for"


async def test_added_with_a_login_at_once(settings: Settings, tmp_path: Path, guarded: Any) -> None:
    done = await asyncio.to_thread(run, settings, tmp_path, "add", "acct", "--url", guarded.url, "--oauth", "--yes")
    assert done.stdout.strip() == "acct: 1 tools", done
    local = await asyncio.to_thread(run, settings, tmp_path, "add", "x", "--oauth", "--yes", "--", "x")
    assert local.returncode == 2 and "--oauth is for --url" in local.stderr


async def test_nobody_is_sent_to_a_browser_while_serving(
    settings: Settings, guarded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = UpstreamConfig.remote("acct", guarded.url, auth="oauth")
    async with UpstreamPool(settings, lambda: {"acct": config}) as pool:
        with pytest.raises(LoginNeeded):
            await asyncio.wait_for(pool.list_tools("acct"), 30)
        assert pool.status()[0].failures == 0, "a person has to act: no back-off stands in the way"


def test_a_login_where_there_is_none(settings: Settings, tmp_path: Path) -> None:
    servers = ServersFile(settings.servers_file)
    servers.add(UpstreamConfig.remote("keyed", "https://example.com/mcp", auth="${KEY}"))
    servers.add(UpstreamConfig.stdio("local", "x"))
    for name, why in (("keyed", "it has a key"), ("local", "it runs here"), ("none", "No server named")):
        done = run(settings, tmp_path, "login", name)
        assert done.returncode in (2, 3) and why in done.stderr


def test_a_change_beside_a_login_is_not_lost(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    servers = ServersFile(settings.servers_file)
    servers.add(UpstreamConfig.remote("acct", "https://a.example/mcp"))
    load = ServersFile.load

    def loaded(self: ServersFile) -> dict[str, UpstreamConfig]:
        found = load(self)
        ServersFile(settings.servers_file).add(UpstreamConfig.remote("acct", "https://b.example/mcp"))
        return found

    monkeypatch.setattr(ServersFile, "load", loaded)
    with pytest.raises(StorageError, match="changed meanwhile"):
        log_in(["acct"], settings)
    assert servers.entry("acct")["url"] == "https://b.example/mcp"
