"""One odd block in a tool's answer costs itself and not the answer: over a real pipe, and through ``invoke``."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult

from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.settings import Settings

ODD = Path(__file__).parent / "upstreams" / "odd.py"
GOOD = {"type": "text", "text": "good"}


@pytest.fixture
async def engine(settings: Settings) -> AsyncIterator[Engine]:
    ServersFile(settings.servers_file).add(UpstreamConfig.stdio("odd", sys.executable, ["-I", "-S", str(ODD)]))
    async with Engine(settings) as engine:
        await engine.refresh_server("odd")
        yield engine


async def answered(engine: Engine, result: dict[str, Any]) -> dict[str, Any]:
    line = '{"jsonrpc":"2.0","id":$ID,"result":' + json.dumps(result) + "}"
    got = await engine.invoke_raw("odd/say", {"lines": [line]})
    CallToolResult.model_validate(got, by_name=False)
    return got


@pytest.mark.parametrize(
    ("odd", "shown"),
    [
        ("just text", "just text"),
        ({"type": "text", "text": 42}, "42"),
        ({"type": "markdown", "text": "# x"}, "# x"),
        ({"type": "text", "text": "ranked", "annotations": {"priority": 5, "audience": ["all"]}}, "ranked"),
        ({"type": "text", "text": "noted", "_meta": []}, "noted"),
        ({"type": "chart", "points": [1, 2]}, '"points": [1, 2]'),
        ({"type": "image", "url": "https://example.com/a.png"}, "https://example.com/a.png"),
        ({"type": "text", "text": None}, "null"),
        ([1], "[1]"),
    ],
)
async def test_an_odd_block_beside_a_good_one(engine: Engine, odd: Any, shown: str) -> None:
    got = await answered(engine, {"content": [GOOD, odd], "structuredContent": {"a": 1}})
    assert got["content"][0] == GOOD and got["structuredContent"] == {"a": 1}
    assert got["content"][1]["type"] == "text" and shown in got["content"][1]["text"]


@pytest.mark.parametrize("beside", [{"isError": None}, {"_meta": []}, {"resultType": 3}, {"content": None}])
async def test_odd_fields_beside_the_blocks(engine: Engine, beside: dict[str, Any]) -> None:
    got = await answered(engine, {"content": [GOOD], "structuredContent": {"a": 1}, **beside})
    assert got["structuredContent"] == {"a": 1} and not got.get("isError")
    assert got["content"] == ([GOOD] if beside.get("content", ()) is not None else [])
