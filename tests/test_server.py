"""The three tools as a client meets them: a real server process over stdio, real upstream processes behind it."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from toolscout.errors import BadInput
from toolscout.index.build import build_index
from toolscout.index.catalogue import Catalogue
from toolscout.records import Install, Server, ServerState, Tool
from toolscout.server.app import App, for_the_older_era
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.contract import FIND_OUTPUT, SUGGEST_OUTPUT
from toolscout.server.engine import Engine
from toolscout.settings import Settings
from toolscout.validation import validate

TINY = Path(__file__).parent / "upstreams" / "tiny.py"
WEATHER = Tool(
    tool_id="weather/get_forecast",
    server_id="weather",
    name="get_forecast",
    description="Get the weather forecast of a city for some days.",
    input_schema={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}},
        "required": ["city"],
    },
)


@pytest.fixture
async def ready(settings: Settings) -> Settings:
    """A home with one configured upstream and one catalogue server that is not installed."""
    ServersFile(settings.servers_file).add(UpstreamConfig.stdio("tiny", sys.executable, [str(TINY)]))
    weather = Server(
        server_id="weather",
        name="Weather",
        description="Weather forecasts.",
        install=Install(registry="pypi", package="some-weather-server", command="some-weather-server"),
        state=ServerState.NEEDS_INSTALL,
    )
    with Catalogue(settings.database_url) as catalogue:
        catalogue.put_server(weather, [WEATHER])
    async with Engine(settings) as engine:
        await engine.refresh_server("tiny")
    return settings


@asynccontextmanager
async def connected(settings: Settings, mode: str = "auto") -> AsyncIterator[Client[Any]]:
    env = {**os.environ, "TOOLSCOUT_HOME": str(settings.home), "TOOLSCOUT_STARTER": "0"}
    transport = StdioTransport(sys.executable, ["-m", "toolscout", "serve"], env=env, keep_alive=False)
    async with Client(transport, mode=mode) as client:
        yield client


def text(result: Any) -> str:
    return str(result.content[0].text)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_find_and_invoke_over_stdio(ready: Settings, mode: str) -> None:
    async with connected(ready, mode) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert set(tools) == {"find_tools", "suggest_call", "invoke"}
        assert all(tool.title and tool.annotations for tool in tools.values())
        assert all(tool.meta["anthropic/alwaysLoad"] for tool in tools.values()), "else Claude Code hides them"

        found = await client.call_tool_mcp("find_tools", {"query": "weather forecast for a city"})
        answer = found.structured_content
        assert validate(answer, FIND_OUTPUT) == [] and json.loads(text(found)) == answer
        assert answer["tools"][0]["tool_id"] == "weather/get_forecast"
        assert answer["tools"][0]["state"] == "needs_install"
        assert answer["tools"][0]["signature"] == "city: str, days: int = 3"
        assert "input_schema" not in answer["tools"][0]

        called = await client.call_tool_mcp("invoke", {"tool_id": "tiny/echo", "arguments": {"text": "hello"}})
        assert not called.is_error and text(called) == "hello"


async def test_full_detail_has_the_schema(ready: Settings) -> None:
    async with connected(ready) as client:
        found = await client.call_tool_mcp("find_tools", {"query": "weather forecast", "detail": "full"})
        assert found.structured_content["tools"][0]["input_schema"] == WEATHER.input_schema


async def test_structured_requests_and_filters(ready: Settings) -> None:
    async with connected(ready) as client:
        asked = {"requests": [{"server": "weather", "tool": "forecast"}], "ready_only": True}
        found = await client.call_tool_mcp("find_tools", asked)
        assert all(tool["state"] == "ready" for tool in found.structured_content["tools"])
        only = await client.call_tool_mcp("find_tools", {"query": "echo a text", "servers": ["tiny"]})
        assert {tool["tool_id"].split("/")[0] for tool in only.structured_content["tools"]} <= {"tiny"}
        none = await client.call_tool_mcp("find_tools", {"query": "weather forecast", "read_only": True})
        assert none.structured_content["no_match"] and "filters (read_only)" in none.structured_content["advice"]


async def test_a_server_that_is_not_here_does_not_end_the_search(ready: Settings) -> None:
    async with connected(ready) as client:

        async def found(servers: list[str]) -> Any:
            asked = {"query": "echo a text", "servers": servers}
            answer = (await client.call_tool_mcp("find_tools", asked)).structured_content
            assert validate(answer, FIND_OUTPUT) == []
            return answer

        everywhere = await found(["Harbour"])
        assert everywhere["tools"] and "'Harbour'; all servers were searched." in everywhere["advice"]
        some = await found(["tinny", "weather"])
        assert "'tinny'; the others were searched." in some["advice"] and "tiny," not in some["advice"]
        assert {tool["tool_id"].split("/")[0] for tool in some["tools"]} <= {"weather"}
    async with Engine(ready) as engine:
        with pytest.raises(BadInput, match="There is no server 'Harbour'"):
            await engine.find_tools("echo a text", servers=["Harbour"])


async def test_of_several_requests_each_tool_says_which_it_serves(
    ready: Settings,
) -> None:
    async with connected(ready) as client:
        asked = [{"tool": "weather forecast for a city"}, {"tool": "book a table at a restaurant"}]
        found = await client.call_tool_mcp("find_tools", {"requests": asked})
        answer = found.structured_content
        assert validate(answer, FIND_OUTPUT) == []
        assert answer["tools"][0]["tool_id"] == "weather/get_forecast" and answer["tools"][0]["requests"] == [1]
        assert answer["unserved"] == [2] and "request 2" in answer["advice"]
        alone = await client.call_tool_mcp("find_tools", {"requests": asked[:1]})
        assert "requests" not in alone.structured_content["tools"][0]


async def test_a_tool_that_is_not_installed_says_how_to_get_it(ready: Settings) -> None:
    async with connected(ready) as client:
        wanted = {"tool_id": "weather/get_forecast", "arguments": {"city": "Rome"}}
        called = await client.call_tool_mcp("invoke", wanted)
        assert called.is_error and "some-weather-server" in text(called) and "toolscout add" in text(called)


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("find_tools", {}, "needs a query"),
        ("find_tools", {"query": "x", "limit": 0}, "limit"),
        ("find_tools", {"query": "x", "colour": "red"}, "colour"),
        ("suggest_call", {}, "task"),
        ("suggest_call", {"task": "x", "tool_ids": ["tiny/ecko"]}, "tiny/echo"),
        ("invoke", {}, "tool_id"),
        ("invoke", {"tool_id": "tiny/ecko"}, "tiny/echo"),
        ("invoke", {"tool_id": "tiny/echo", "text": "x"}, "go inside 'arguments'"),
        ("invoke", {"tool_id": "tiny/echo", "argumens": {"text": "x"}}, "Did you mean 'arguments'?"),
        ("invoke", {"tool_id": "tiny/echo", "arguments": [1]}, "is a list"),
        ("tiny/echo", {"text": "x"}, "call invoke with"),
        ("nothing", {}, "only find_tools, suggest_call, invoke"),
    ],
)
async def test_bad_input_is_one_clear_tool_error(
    ready: Settings, name: str, arguments: dict[str, Any], said: str
) -> None:
    async with Engine(ready) as engine:
        await engine.loaded()
        async with Client(App(engine).fastmcp, mode="auto") as client:
            result = await client.call_tool_mcp(name, arguments)
    assert result.is_error and said in text(result)


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        ({"arguments": '{"text": "hi"}'}, "hi"),
        ({"args": {"text": "hi"}}, "hi"),
        ({"parameters": '{"text": "hi"}', "timeout_s": 5}, "hi"),
        ({"arguments": {"tool_id": "tiny/echo", "arguments": {"text": "hi"}}}, "hi"),
        ({"arguments": None}, ""),
        ({}, ""),
    ],
)
async def test_envelopes_that_models_send(ready: Settings, sent: dict[str, Any], answer: str) -> None:
    async with Engine(ready) as engine:
        await engine.loaded()
        async with Client(App(engine).fastmcp, mode="auto") as client:
            result = await client.call_tool_mcp("invoke", {"tool_id": "tiny/echo", **sent})
    assert not result.is_error and text(result) == answer


@pytest.mark.parametrize(
    ("name", "sent"),
    [
        ("find_tools", {"query": "echo text back", "requests": [], "servers": [], "detail": None}),
        ("find_tools", {"query": "", "requests": [{"tool": "echo text back"}], "limit": None}),
        ("find_tools", {"query": "echo text back", "servers": ["", None]}),
        ("suggest_call", {"task": "echo hi", "tool_ids": [], "context": None}),
        ("invoke", {"tool_id": "tiny/echo", "arguments": {"text": "hi"}, "timeout_s": None, "dry_run": None}),
    ],
)
async def test_optional_arguments_that_say_nothing_are_as_if_left_out(
    ready: Settings, name: str, sent: dict[str, Any]
) -> None:
    async with Engine(ready) as engine:
        await engine.loaded()
        async with Client(App(engine).fastmcp, mode="auto") as client:
            result = await client.call_tool_mcp(name, sent)
            told = {key: value for key, value in sent.items() if value not in (None, "", [], ["", None])}
            assert not result.is_error and text(result) == text(await client.call_tool_mcp(name, told))


async def test_required_arguments_and_switches_that_say_nothing_are_refused(ready: Settings) -> None:
    async with Engine(ready) as engine:
        await engine.loaded()
        async with Client(App(engine).fastmcp, mode="auto") as client:
            call = {"tool_id": "tiny/echo", "arguments": {"text": "hi"}}
            for name, sent in (
                ("suggest_call", {"task": ""}), ("invoke", {"tool_id": None}),
                ("invoke", {**call, "dry_run": ""}), ("invoke", {**call, "dry_run": []}),
                ("invoke", {"tool_id": "tiny/echo", "arguments": []}),
                ("find_tools", {"query": "echo", "read_only": ""}), ("find_tools", {"requests": [{"tool": None}]}),
            ):  # fmt: skip
                assert (await client.call_tool_mcp(name, sent)).is_error


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_broken_upstreams_leave_the_server_serving(ready: Settings, mode: str) -> None:
    """Through the whole server, over stdio: one clear tool error each, and the next call works."""
    troubles: list[tuple[str, dict[str, Any], float, str]] = [
        ("hang", {}, 0.3, "did not answer 'hang' within 0.3 s"),
        ("crash", {}, 20, "exited with status 3"),
        ("bad", {}, 20, "no tool result (content"),
        ("big", {"bytes": 50_000_000}, 60, "more than 10,000,000 bytes"),
    ]
    async with connected(ready, mode) as client:
        for name, arguments, seconds, said in troubles:
            call = {"tool_id": f"tiny/{name}", "arguments": arguments, "timeout_s": seconds}
            failed = await client.call_tool_mcp("invoke", call)
            assert failed.is_error and said in text(failed), name
            alive = await client.call_tool_mcp("invoke", {"tool_id": "tiny/echo", "arguments": {"text": name}})
            assert not alive.is_error and text(alive) == name
        for name, arguments, said in (("flood", {"bytes": 20_000_000}, "flooded"), ("noise", {}, "after the noise")):
            fine = await client.call_tool_mcp("invoke", {"tool_id": f"tiny/{name}", "arguments": arguments})
            assert not fine.is_error and text(fine) == said


@pytest.mark.parametrize(
    ("start", "said"), [("hang", "did not start within 4 s"), ("crash", "no such module: frobnicate")]
)
async def test_an_upstream_that_no_longer_starts_is_a_tool_error(
    ready: Settings, start: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ServersFile(ready.servers_file).add(UpstreamConfig.stdio("good", sys.executable, [str(TINY)]))
    async with Engine(ready) as engine:
        await engine.refresh_server("good")
    broken = UpstreamConfig.stdio("tiny", sys.executable, [str(TINY), "--start", start])
    ServersFile(ready.servers_file).add(broken)
    monkeypatch.setenv("TOOLSCOUT_UPSTREAM_START_TIMEOUT", "4")
    async with connected(ready) as client:
        failed = await client.call_tool_mcp("invoke", {"tool_id": "tiny/echo", "arguments": {"text": "x"}})
        assert failed.is_error and said in text(failed)
        alive = await client.call_tool_mcp("invoke", {"tool_id": "good/echo", "arguments": {"text": "on"}})
        assert not alive.is_error and text(alive) == "on"


async def test_progress_is_relayed_and_a_cancelled_call_leaves_the_server_serving(ready: Settings) -> None:
    seen: list[float] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append(progress)

    async with connected(ready) as client:
        await client.call_tool_mcp("invoke", {"tool_id": "tiny/progress"}, progress_handler=on_progress)
        assert seen
        hanging = asyncio.create_task(client.call_tool_mcp("invoke", {"tool_id": "tiny/hang"}))
        await asyncio.sleep(0.5)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        called = await client.call_tool_mcp("invoke", {"tool_id": "tiny/echo", "arguments": {"text": "on"}})
        assert text(called) == "on"


async def test_a_suggestion_keeps_to_its_schema(ready: Settings) -> None:
    async with Engine(ready) as engine:
        answer = await engine.suggest_call("weather forecast for Rome", ["weather/get_forecast"])
    assert validate(answer, SUGGEST_OUTPUT) == []
    for call in answer["calls"]:
        assert not call["ready"] or validate(call["arguments"], WEATHER.input_schema) == []


async def test_the_index_is_reopened_when_another_process_replaced_it(ready: Settings) -> None:
    async with Engine(ready) as engine:
        await engine.loaded()
        before = engine.tool_count
        with Catalogue(ready.database_url) as catalogue:
            extra = Tool(tool_id="extra/paint", server_id="extra", name="paint", description="Paint a fence green.")
            catalogue.put_server(Server(server_id="extra"), [extra])
            build_index(catalogue, ready)
        await asyncio.sleep(1.1)
        answer = await engine.find_tools("paint a fence green")
        assert engine.tool_count == before + 1
        assert answer["tools"][0]["tool_id"] == "extra/paint"


async def test_quarantined_tools_are_in_no_answer_and_cannot_be_called(ready: Settings) -> None:
    from toolscout.records import Review

    async with Engine(ready) as engine:
        engine.catalogue.set_review(["tiny/echo"], Review.BLOCKED)
        await engine.reindex()
        found = await engine.find_tools("echo", servers=["tiny"])
        assert "tiny/echo" not in {tool["tool_id"] for tool in found["tools"] + found.get("nearest", [])}
        result = await engine.invoke_raw("tiny/echo", {"text": "x"})
        assert result["isError"]


async def test_calls_are_logged_without_argument_values(ready: Settings) -> None:
    async with Engine(ready) as engine:
        await engine.find_tools("weather forecast")
        await engine.invoke_raw("tiny/echo", {"text": "sesame-open-77"})
    with Catalogue(ready.database_url) as catalogue:
        log = catalogue.call_log(10)
    assert {(entry.kind, entry.outcome) for entry in log} == {("find", "ok"), ("invoke", "ok")}
    assert "sesame-open-77" not in repr(log)


async def test_the_call_log_keeps_no_secret_out_of_a_query_and_no_tool_that_is_none(ready: Settings) -> None:
    key, password = "sk-live-Ab12Cd34Ef56Gh78Ij90", "hunter2-hunter2"
    async with Engine(ready) as engine:
        await engine.find_tools(f"weather forecast with {key} password={password} for Rome")
        await engine.suggest_call(f"weather forecast for Rome, my key is {key}", ["weather/get_forecast"])
        for tool_id in (f"tiny/{key}", f"password={password}", "tiny/echo", "tiny/no-such"):
            await engine.invoke_raw(tool_id, {"text": "x"})
    with Catalogue(ready.database_url) as catalogue:
        log = catalogue.call_log(10)
    assert key not in repr(log) and password not in repr(log)
    assert "weather forecast with [hidden] password=[hidden] for Rome" in {entry.query for entry in log}
    assert [entry.tool_id for entry in log if entry.kind == "invoke"] == [None, "tiny/echo", None, None]


async def test_a_server_written_into_the_file_by_hand_is_listed_by_the_next_start(settings: Settings) -> None:
    entry = {"mcpServers": {"by-hand": {"command": sys.executable, "args": [str(TINY)]}}}
    settings.servers_file.write_text(json.dumps(entry))
    async with connected(settings) as client:
        called = await client.call_tool_mcp("invoke", {"tool_id": "by-hand/echo", "arguments": {"text": "hi"}})
        assert text(called) == "hi"


async def test_changes_whose_indexing_was_cut_off_are_found_after_the_next_start(ready: Settings) -> None:
    with Catalogue(ready.database_url) as catalogue:
        extra = Tool(tool_id="extra/paint", server_id="extra", name="paint", description="Paint a fence green.")
        catalogue.put_server(Server(server_id="extra"), [extra])
    async with Engine(ready, serving=True) as engine:
        await engine.loaded()
        for _ in range(100):
            if engine.knows("extra/paint"):
                break
            await asyncio.sleep(0.1)
        answer = await engine.find_tools("paint a fence green")
    assert answer["tools"][0]["tool_id"] == "extra/paint"


async def test_a_broken_index_is_rebuilt_from_the_catalogue(ready: Settings) -> None:
    current = (ready.index_dir / "CURRENT").read_text().strip()
    for file in (ready.index_dir / current).iterdir():
        file.write_bytes(b"garbage")
    async with Engine(ready) as engine:
        answer = await engine.find_tools("weather forecast for a city")
    assert answer["tools"][0]["tool_id"] == "weather/get_forecast"


LOWLEVEL = Path(__file__).parent / "upstreams" / "lowlevel.py"


@pytest.fixture
async def modern(settings: Settings) -> Settings:
    """A home with one upstream of the stateless era, built on the SDK's own server."""
    ServersFile(settings.servers_file).add(UpstreamConfig.stdio("low", sys.executable, [str(LOWLEVEL)]))
    async with Engine(settings) as engine:
        await engine.refresh_server("low")
    return settings


async def test_a_question_to_the_user_passes_through_and_back(modern: Settings) -> None:
    asked: list[str] = []

    async def answer(message: str, response_type: Any, params: Any, context: Any) -> Any:
        asked.append(message)
        return {"color": "blue"}

    async with Engine(modern) as engine, Client(App(engine).fastmcp, mode="auto", elicitation_handler=answer) as client:
        result = await client.call_tool_mcp("invoke", {"tool_id": "low/ask", "arguments": {}})
    assert asked == ["The MCP server 'low' asks this, not Toolscout:\nWhich colour?"] and text(result) == "blue state-1"


async def test_an_older_client_is_told_why_a_question_cannot_be_asked(modern: Settings) -> None:
    async with Engine(modern) as engine, Client(App(engine).fastmcp, mode="legacy") as client:
        result = await client.call_tool_mcp("invoke", {"tool_id": "low/ask", "arguments": {}})
    assert result.is_error and "2026-07-28" in text(result)


async def test_tools_that_an_upstream_adds_by_itself_wait_for_review(modern: Settings) -> None:
    from toolscout.records import Review

    async with Engine(modern) as engine:
        await engine.loaded()
        await engine.invoke_raw("low/grow", {})
        for _ in range(100):
            added = engine.catalogue.get_tool("low/new_tool")
            if added is not None:
                break
            await asyncio.sleep(0.1)
        assert added is not None and added.review is Review.PENDING
        refused = await engine.invoke_raw("low/new_tool", {})
        assert refused["isError"]


@pytest.mark.parametrize("value", [[1, 2], "x", 3])
def test_structured_content_that_the_older_era_cannot_carry_goes_as_text(value: object) -> None:
    bare = for_the_older_era({"content": [], "structuredContent": value, "isError": False})
    assert "structuredContent" not in bare and json.loads(bare["content"][0]["text"]) == value
    told = {"content": [{"type": "text", "text": "said"}], "structuredContent": value}
    assert for_the_older_era(told) == {"content": told["content"]}
    plain = {"content": [], "structuredContent": {"a": 1}}
    assert for_the_older_era(plain) is plain


async def test_of_near_equals_the_one_that_can_be_called_wins(settings: Settings) -> None:
    ServersFile(settings.servers_file).add(UpstreamConfig.stdio("mine", sys.executable, [str(TINY)]))
    with Catalogue(settings.database_url) as catalogue:
        for server_id in ("aaa", "mine", "zzz"):
            twin = WEATHER.model_copy(update={"tool_id": f"{server_id}/get_forecast", "server_id": server_id})
            catalogue.put_server(Server(server_id=server_id, name="Weather"), [twin])
    async with Engine(settings) as engine:
        await engine.reindex()
        found = await engine.find_tools("weather forecast of a city")
        suggested = await engine.suggest_call("weather forecast for Rome", ["zzz/get_forecast"])
    assert found["tools"][0]["tool_id"] == "mine/get_forecast"
    assert suggested["calls"][0]["state"] == "needs_install"
    assert validate(suggested, SUGGEST_OUTPUT) == []


async def test_a_half_written_configuration_keeps_the_servers_that_were_read_before(ready: Settings) -> None:
    async with Engine(ready) as engine:
        assert not (await engine.invoke_raw("tiny/echo", {"text": "x"})).get("isError")
        whole = ready.servers_file.read_text()
        ready.servers_file.write_text(whole[: len(whole) // 2])
        assert not (await engine.invoke_raw("tiny/echo", {"text": "x"})).get("isError")
        assert (await engine.find_tools("echo"))["tools"]
