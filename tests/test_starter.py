"""The starter set: three real servers, registered once, listed for real, removable for good."""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from toolscout.server import starter
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.settings import Settings


def test_entries_are_ordinary_and_marked(home: Path) -> None:
    servers = ServersFile(home / "mcp.json")
    assert starter.register_starter(servers) == ["time", "git", "fetch"]
    written = json.loads(servers.path.read_text())["mcpServers"]
    assert written["time"]["command"] == sys.executable
    assert written["time"]["args"] == ["-P", "-m", "mcp_server_time"]
    assert all(entry["starter"] is True for entry in written.values())
    assert all(starter.is_starter(config) for config in servers.load().values())


def test_what_cannot_run_here_and_taken_names_are_left_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = starter.Starter("nothing", "no-such-package", "no_such_module_anywhere", "")
    no_program = starter.Starter("tool", "mcp-server-time", "mcp_server_time", "", needs="no-such-program-anywhere")
    assert absent.missing() == "the package no-such-package is not installed"
    assert no_program.missing() == "the program no-such-program-anywhere is not on the PATH"
    monkeypatch.setattr(starter, "STARTERS", (*starter.STARTERS, absent, no_program))
    servers = ServersFile(home / "mcp.json")
    mine = UpstreamConfig.stdio("git", "my-own-git-server")
    servers.add(mine)
    assert starter.register_starter(servers) == ["time", "fetch"]
    assert servers.load()["git"].command == "my-own-git-server"


def test_with_nothing_to_register_the_file_is_there_all_the_same(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starter, "STARTERS", ())
    servers = ServersFile(home / "mcp.json")
    assert starter.register_starter(servers) == []
    assert servers.path.exists()


async def test_the_first_start_lists_the_real_servers_and_a_removed_one_stays_away(home: Path) -> None:
    settings = Settings(home=home)
    async with Engine(settings) as engine:
        await engine.loaded()
        tools = {tool.tool_id: tool for tool in engine.catalogue.tools()}
        assert {"time/get_current_time", "time/convert_time", "git/git_log", "git/git_status", "fetch/fetch"} <= set(
            tools
        )
        assert tools["git/git_log"].input_schema["required"] == ["repo_path"]
        assert engine.tool_count == len(tools)
        answer = await engine.find_tools("convert a time from one timezone to another")
        assert answer["tools"][0]["tool_id"] == "time/convert_time"
        assert answer["tools"][0]["state"] == "ready"
        result = await engine.invoke("time/get_current_time", {"timezone": "Asia/Tokyo"})
        assert not result.is_error
        assert json.loads(result.content[0].text)["timezone"] == "Asia/Tokyo"
        engine.servers.remove("git")
    async with Engine(settings) as engine:
        await engine.loaded()
        assert set(engine.servers.load()) == {"time", "fetch"}


@pytest.mark.skipif(sys.platform == "win32", reason="the stand-ins for Node are shell scripts")
async def test_fetch_runs_no_node_and_installs_nothing(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its HTML reader would run "npm install" on the first page: from the network, into the Python environment.
    programs, ran = tmp_path / "bin", tmp_path / "ran"
    programs.mkdir()
    for name in ("node", "npm"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> "{ran}"\necho v20.0.0\n[ "$1" != install ]\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=os.pathsep)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as web:
        threading.Thread(target=web.serve_forever, daemon=True).start()
        settings = Settings(home=home)
        starter.register_starter(ServersFile(settings.servers_file), extra_args={"fetch": ["--allow-private-ips"]})
        async with Engine(settings) as engine:
            await engine.refresh_server("fetch")
            result = await engine.invoke("fetch/fetch", {"url": f"http://127.0.0.1:{web.server_port}/herons"})
        web.shutdown()
    assert "Grey herons nest beside the lock." in result.content[0].text
    assert not result.is_error
    assert not ran.exists()


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = self.path == "/herons"
        self.send_response(200 if found else 404)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        if found:
            self.wfile.write(b"<html><body><article><p>Grey herons nest beside the lock.</p></article></body></html>")

    def log_message(self, *args: object) -> None:
        pass
