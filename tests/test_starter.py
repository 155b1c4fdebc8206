"""The starter set: three real servers, registered once, listed for real, removable for good."""

from __future__ import annotations

import json
import sys
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
    assert written["time"]["args"] == ["-m", "mcp_server_time"]
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
