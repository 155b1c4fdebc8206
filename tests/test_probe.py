"""Servers are tried before their tools are offered: with whom, with what, what counts, and for how long."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, TextContent

from toolscout.errors import UpstreamError
from toolscout.index.search import Answer, Hit
from toolscout.records import JsonObject, Tool
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.server.upstreams.probe import FILE, Prober, Withheld, probe_arguments, probe_counts, read_probes
from toolscout.settings import Settings
from toolscout.validation import validate

SERVER = """
import json, sys

READS = {"readOnlyHint": True}
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL = {"name": "get_forecast", "description": sys.argv[1], "inputSchema": SCHEMA, "annotations": READS}

for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answers = {
        "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                       "serverInfo": {"name": "weather", "version": "1"}},
        "tools/list": {"tools": [TOOL]},
        "tools/call": {"content": [{"type": "text", "text": sys.argv[2]}], "isError": "401" in sys.argv[2]},
    }
    found = answers.get(asked["method"])
    told = {"result": found} if found else {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}), flush=True)
"""
FITS = "Get the weather forecast for a city."


async def test_a_server_that_refuses_is_not_offered(settings: Settings, tmp_path: Path) -> None:
    """Two real servers that say the same of themselves; one lacks its key."""
    script = tmp_path / "weather.py"
    script.write_text(SERVER)
    file = ServersFile(settings.servers_file)
    for name, said in (("good", "Sunny, 20 degrees."), ("bad", "HTTP 401: the api key is missing")):
        file.add(UpstreamConfig.stdio(name, sys.executable, ["-I", "-S", str(script), FITS, said]))
    # As long as a busy machine may take.
    settings = settings.model_copy(update={"upstream_start_timeout": 300.0, "probe_timeout": 300.0})
    async with Engine(settings) as engine:
        for name in ("good", "bad"):
            await engine.refresh_server(name, reindex=name == "bad")
        found = await engine.find_tools(FITS)
        assert {t["tool_id"] for t in found["tools"]} == {"good/get_forecast", "bad/get_forecast"}
        assert not (settings.home / FILE).exists(), "off by default"
    async with Engine(settings.model_copy(update={"probe_offers": True})) as engine:
        found = await engine.find_tools(FITS)
        assert [t["tool_id"] for t in found["tools"]] == ["good/get_forecast"]
        alone = await engine.find_tools(FITS, servers=["bad"])
        assert alone["no_match"] and "did not answer when they were tried" in alone["advice"]
        assert alone["nearest"][0]["tool_id"] == "bad/get_forecast"
        assert {entry.kind for entry in engine.catalogue.call_log()} <= {"find"}, "probes are no calls of anybody's"
    counts = probe_counts(settings.home / FILE)
    assert counts == {
        "tried": 2, "good": 1, "bad": 1, "unsure": 0, "by_cause": {"api_error": 1}, "offered": 1, "withheld": 2,
    }  # fmt: skip


# -- the prober by itself, over upstreams that the test plays


def tool(server: str, name: str = "get_item", *, required: Sequence[str] = (), **annotations: Any) -> Tool:
    schema = {"type": "object", "properties": {n: {"type": "string"} for n in required}, "required": list(required)}
    return Tool(
        tool_id=f"{server}/{name}", server_id=server, name=name, description="Gets.", input_schema=schema,
        annotations=annotations or None,
    )  # fmt: skip


class Found:
    """The part of an index that a hit reads its tool from."""

    def __init__(self, tools: Sequence[Tool]) -> None:
        self.tools = tools

    def _tool(self, row: int) -> Tool:
        return self.tools[row]


class Scene:
    """A prober with what it asked for; ``says`` has each server's answer, or the error that it raises."""

    def __init__(self, settings: Settings, tools: Sequence[Tool], **says: str | Exception) -> None:
        self.tools, self.says, self.now = tools, says, 1000.0
        self.called: Counter[str] = Counter()
        self.prober = Prober(settings, self.invoke, self.tools_of, self.example, clock=lambda: self.now)

    async def invoke(self, tool_id: str, arguments: JsonObject, seconds: float) -> CallToolResult:
        self.called[tool_id] += 1
        said = self.says.get(tool_id.partition("/")[0], "fine, 3 items")
        if isinstance(said, Exception):
            raise said
        return CallToolResult(content=[TextContent(type="text", text=said)], is_error=said.startswith("Error"))

    async def tools_of(self, server_id: str) -> list[Tool]:
        return [t for t in self.tools if t.server_id == server_id]

    async def example(self, tool_id: str) -> JsonObject | None:
        return None

    async def offered(self, *ids: str, configured: str = "abcdefgh") -> list[str]:
        hits = [
            Hit(t.tool_id, t.server_id, 1.0, [], [], [], Found(self.tools), row)  # type: ignore[arg-type]
            for row, t in enumerate(self.tools)
            if t.tool_id in ids
        ]
        answer = await self.prober.sift(Answer(hits, False, 0.9, [], 1.0), frozenset(configured))
        assert isinstance(answer, Withheld) == (not answer.hits)
        return [hit.tool_id for hit in answer.hits]


@pytest.mark.parametrize(
    ("said", "offered"),
    [
        ("fine, 3 items", True),
        ("No results found", True),
        ("Error: HTTP 401 Unauthorized", False),
        ("Error: getaddrinfo ENOTFOUND api", False),
        ("Error: 503 service unavailable, code 503", False),
        ("Error: item 'test' not found", True),
        ("Error: validation error, city must be a city", True),
        ("Error: KeyError: 'test'", True),
        (UpstreamError("'a' could not be started: no such file."), False),
        (UpstreamError("'a' did not answer 'get_item' within 5 s."), False),
        (ValueError("odd"), True),
    ],
)
async def test_what_counts_against_a_server(settings: Settings, said: str | Exception, offered: bool) -> None:
    scene = Scene(settings, [tool("a"), tool("b")], a=said)
    assert ("a/get_item" in await scene.offered("a/get_item", "b/get_item")) is offered


async def test_only_what_reads_is_called_and_only_where_it_is_configured(settings: Settings) -> None:
    down = dict.fromkeys("abcd", "Error: HTTP 401")
    tools = [
        tool("a", "delete_item"), tool("a", "list_items", required=("x",)), tool("a", "get_item"),
        tool("b", "delete_item"), tool("c"), tool("d", "get_item", readOnlyHint=False),
    ]  # fmt: skip
    scene = Scene(settings, tools, **down)
    ids = ["a/delete_item", "b/delete_item", "c/get_item", "d/get_item"]
    assert await scene.offered(*ids, configured="abd") == ids[1:], "a is known by its tool that takes least"
    assert scene.called == {"a/get_item": 1}


async def test_verdicts_have_an_age(settings: Settings) -> None:
    settings = settings.model_copy(update={"probe_age": 10_000.0})
    scene = Scene(settings, [tool("a"), tool("b")], a="Error: HTTP 401")
    for _ in range(2):
        assert await scene.offered("a/get_item", "b/get_item") == ["b/get_item"]
    assert scene.called == {"a/get_item": 1, "b/get_item": 1}
    scene.says["a"] = "fine"
    scene.now += 3601
    assert await scene.offered("a/get_item", "b/get_item") == ["a/get_item", "b/get_item"], "it has recovered"
    assert scene.called == {"a/get_item": 2, "b/get_item": 1}
    # another process goes on from the file; a changed tool is tried anew
    other = Scene(settings, [tool("a"), tool("b", required=("x",))])
    other.now = scene.now
    assert await other.offered("a/get_item", "b/get_item") == ["a/get_item", "b/get_item"]
    assert other.called == {"b/get_item": 1}
    other.now += 10_001
    await other.offered("a/get_item")
    assert other.called["a/get_item"] == 1


async def test_nobody_waits_longer_than_the_limit(settings: Settings) -> None:
    import asyncio

    slow = asyncio.Event()
    scene = Scene(settings.model_copy(update={"probe_timeout": 0.01}), [tool("a")], a="Error: HTTP 401")
    answer = scene.invoke

    async def invoke(*given: Any) -> CallToolResult:
        await slow.wait()
        return await answer(*given)

    scene.prober._invoke = invoke
    assert await scene.offered("a/get_item") == await scene.offered("a/get_item") == ["a/get_item"]
    (task,) = scene.prober._under_way.values()
    slow.set()
    await task
    assert await scene.offered("a/get_item") == [], "it counts next time"
    assert scene.called == {"a/get_item": 1}
    await scene.prober.close()


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "object", "properties": {"q": {"type": "string", "minLength": 9}}, "required": ["q"]},
        {"properties": {"n": {"type": "integer", "minimum": 5, "maximum": 6}, "m": {"type": "number"}},
         "required": ["n", "m"], "type": "object"},
        {"type": "object", "required": ["d", "e", "b"], "properties": {
            "d": {"type": "string", "format": "date"}, "e": {"enum": ["x", "y"]}, "b": {"type": ["boolean", "null"]}}},
        {"type": "object", "required": ["l", "o"], "properties": {
            "l": {"type": "array", "minItems": 2, "items": {"type": "string"}},
            "o": {"type": "object", "properties": {"k": {"$ref": "#/$defs/K"}}, "required": ["k"]}},
         "$defs": {"K": {"type": "string", "default": "z"}}},
    ],
)  # fmt: skip
def test_arguments_that_are_made_validate(schema: JsonObject) -> None:
    made = probe_arguments(Tool(tool_id="a/t", server_id="a", name="t", input_schema=schema))
    assert made is not None and not validate(made, schema)


def test_arguments_of_an_example_come_first_if_they_fit() -> None:
    one = tool("a", required=("city",))
    assert probe_arguments(one, {"city": "Oslo"}) == {"city": "Oslo"}
    assert probe_arguments(one, {"town": "Oslo"}) == {"city": "test"}
    picky = {"type": "object", "properties": {"id": {"type": "string", "pattern": "^[0-9]{8}$"}}, "required": ["id"]}
    assert probe_arguments(Tool(tool_id="a/t", server_id="a", name="t", input_schema=picky)) is None


def test_a_broken_file_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / FILE
    assert probe_counts(path) is None
    path.write_text("{")
    assert read_probes(path).probes == {} and probe_counts(path) is not None
