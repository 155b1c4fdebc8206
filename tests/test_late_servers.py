"""Servers that have their tools late, that start late, and that say at each listing that their tools have changed."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from toolscout.errors import ToolscoutError, UpstreamError
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.server.upstreams.listing import fetches
from toolscout.settings import Settings

LATE = Path(__file__).parent / "upstreams" / "late.py"


def late(settings: Settings, name: str, *args: str, **more: Any) -> None:
    entry = {"command": sys.executable, "args": ["-I", "-S", str(LATE), *args], **more}
    ServersFile(settings.servers_file).add(UpstreamConfig.parse(name, entry))


async def said(engine: Engine, tool_id: str) -> str:
    result = await engine.invoke_raw(tool_id, {})
    return str(result["content"][0]["text"])


async def test_tools_that_come_after_the_handshake(settings: Settings) -> None:
    late(settings, "editor", "tools", "0.3")
    async with Engine(settings) as engine:
        change = await engine.refresh_server("editor")
        assert sorted(change.added + change.unchanged) == ["editor/cube", "editor/sphere"], "though one by one"
        assert await said(engine, "editor/sphere") == "placed"


async def test_tools_that_come_later_than_anybody_waits_for(settings: Settings) -> None:
    settings = settings.model_copy(update={"upstream_start_timeout": 2.0})
    late(settings, "editor", "tools", "2.5")
    async with Engine(settings) as engine:
        assert not (await engine.refresh_server("editor")).added
    async with Engine(settings, serving=True) as engine:  # it is started again, and heard
        await engine.loaded()
        deadline = time.monotonic() + 30
        while not engine.knows("editor/sphere"):
            assert time.monotonic() < deadline, "the tools were never found"
            await asyncio.sleep(0.1)
        assert await said(engine, "editor/cube") == "placed", "the first tools of a server need no review"


async def test_a_server_without_tools_is_waited_for_once(settings: Settings) -> None:
    settings = settings.model_copy(update={"upstream_start_timeout": 2.0})
    late(settings, "none", "none")
    async with Engine(settings) as engine:
        for longest in (30.0, 0.9):
            began = time.monotonic()
            assert not (await engine.refresh_server("none")).added
            assert time.monotonic() - began < longest


async def test_notices_that_only_echo_our_listing(settings: Settings, tmp_path: Path) -> None:
    log = tmp_path / "log"
    late(settings, "echo", "echo", env={"LATE_LOG": str(log)})
    async with Engine(settings) as engine:
        await engine.refresh_server("echo")
    async with Engine(settings, serving=True) as engine:
        await engine.loaded()
        for _ in range(3):
            assert await said(engine, "echo/cube") == "placed"
        await asyncio.sleep(6)
        settled = len(log.read_text().splitlines())
        await asyncio.sleep(3)
        assert len(log.read_text().splitlines()) == settled, "it is not listed for ever"
        assert await said(engine, "echo/cube") == "placed"


async def test_a_slow_start_says_what_gives_it_more_time(settings: Settings) -> None:
    settings = settings.model_copy(update={"upstream_start_timeout": 0.5})
    late(settings, "slow", "start", "1.5")
    late(settings, "patient", "start", "1.5", startTimeout=20_000)
    async with Engine(settings) as engine:
        with pytest.raises(UpstreamError, match=r"did not start within 0\.5 s") as caught:
            await engine.refresh_server("slow")
        assert "startTimeout" in caught.value.hint and "TOOLSCOUT_UPSTREAM_START_TIMEOUT" in caught.value.hint
        assert (await engine.refresh_server("patient")).added


async def test_one_slow_server_does_not_hold_up_the_others(settings: Settings) -> None:
    late(settings, "good", "start", "0")
    late(settings, "slow", "start", "25")
    async with Engine(settings, serving=True) as engine:
        began = time.monotonic()
        found = await engine.find_tools("place a cube in the scene")
        assert found["tools"][0]["tool_id"] == "good/cube"
        assert time.monotonic() - began < 20
        with pytest.raises(ToolscoutError):
            await engine.refresh_server("unknown")


async def test_a_description_that_differs_at_each_start_has_a_way_out(settings: Settings, tmp_path: Path) -> None:
    late(settings, "dated", "volatile")
    async with Engine(settings) as engine:
        await engine.refresh_server("dated")
    async with Engine(settings) as engine:
        refused = await said(engine, "dated/cube")
    assert "quarantined" in refused and "TOOLSCOUT_REVIEW_POLICY" in refused
    rules = tmp_path / "review.toml"
    rules.write_text('[[rule]]\naction = "approve"\nservers = ["dated"]\n')
    settings = settings.model_copy(update={"review_policy": rules})
    async with Engine(settings) as engine:
        await engine.refresh_server("dated")
    for _ in range(2):
        async with Engine(settings, serving=True) as engine:
            deadline = time.monotonic() + 30
            while await said(engine, "dated/cube") != "placed":  # on a busy machine it is recorded after the first call
                assert time.monotonic() < deadline
                await asyncio.sleep(0.2)


def test_what_is_fetched_at_its_first_start() -> None:
    for command, args in (("npx", ["-y", "x"]), ("uvx", ["x"]), ("docker", ["run", "-i", "org/x"])):
        assert fetches(UpstreamConfig.stdio("x", command, args))
    assert not fetches(UpstreamConfig.stdio("x", "node", ["x.js"]))
    assert not fetches(UpstreamConfig.remote("x", "https://example.com/mcp"))
