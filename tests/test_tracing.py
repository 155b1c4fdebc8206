"""Traces as a real OTLP collector gets them: from a served Toolscout, over stdio and HTTP, with real upstreams."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from otlp_collector import collecting
from serving import environment, listening

from toolscout.errors import BadInput
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.telling.tracecontext import valid_carrier
from toolscout.server.telling.tracing_switch import make_tracing, wanted
from toolscout.settings import Settings

UPSTREAMS = Path(__file__).parent / "upstreams"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"
OTHER = f"00-{'a' * 32}-{'b' * 16}-01"
PLANTED = "planted-value-4711"
SERVER, CLIENT, INTERNAL, ERROR = 2, 3, 1, 2


def with_tiny(settings: Settings) -> Settings:
    tiny = UpstreamConfig.stdio("tiny", sys.executable, ["-I", "-S", str(UPSTREAMS / "tiny.py")])
    ServersFile(settings.servers_file).add(tiny)
    return settings


async def called(client: Client[Any], tool: str, arguments: dict[str, Any], **meta: str) -> str:
    result = await client.call_tool_mcp(tool, arguments, meta=dict(meta))
    return str(result.content[0].text)


async def test_spans_of_all_tools_reach_a_collector_and_no_value_is_in_them(settings: Settings) -> None:
    with_tiny(settings)
    with collecting() as collector:
        env = environment(settings.home) | {
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_BSP_SCHEDULE_DELAY": "100",
            "API_KEY": PLANTED,
        }
        front = StdioTransport(sys.executable, ["-m", "toolscout", "serve"], env=env, keep_alive=False)
        async with Client(front, mode="auto") as client:
            told = await called(client, "invoke", {"tool_id": "tiny/meta"}, traceparent=TRACEPARENT, baggage="user=x")
            await called(client, "find_tools", {"query": f"echo {PLANTED}"})
            await called(client, "suggest_call", {"task": f"echo {PLANTED}"})
            await called(client, "invoke", {"tool_id": "tiny/echo", "arguments": {"text": PLANTED}})
            await called(client, "invoke", {"tool_id": "tiny/fail"})
            # The upstream puts the value into the text of its protocol error.
            await called(client, "invoke", {"tool_id": "tiny/crash", "arguments": {"why": PLANTED}})
            await called(client, "invoke", {"tool_id": f"tiny/{PLANTED}"})
            await called(client, f"a_tool_{PLANTED}", {})
        spans = collector.wait(lambda spans: sum(s["kind"] == SERVER for s in spans) == 8)

    assert PLANTED.encode() not in collector.raw
    assert collector.paths == {"/v1/traces"} and {s["service"] for s in spans} == {"toolscout"}
    assert all(not s["events"] and not s["said"] for s in spans)

    # The client's span is the parent of ours, and ours of what the upstream gets; its baggage goes no further.
    first = next(s for s in spans if s["trace"] == TRACE and s["kind"] == SERVER)
    assert (first["name"], first["parent"]) == ("tools/call invoke", PARENT)
    attributes = first["attributes"]
    assert attributes["mcp.method.name"] == "tools/call" and attributes["gen_ai.tool.name"] == "invoke"
    assert attributes["gen_ai.operation.name"] == "execute_tool" and attributes["network.transport"] == "pipe"
    assert attributes["toolscout.upstream"] == "tiny" and attributes["toolscout.upstream.tool"] == "meta"
    below = [s for s in spans if s["parent"] == first["id"]]
    upstream = next(s for s in below if s["kind"] == CLIENT)
    assert upstream["name"] == "tools/call meta" and upstream["attributes"]["mcp.protocol.version"] == "2025-06-18"
    assert f"00-{TRACE}-{upstream['id']}-01" in told and "baggage" not in told
    assert collector.named("tools/call find_tools")["attributes"]["toolscout.no_match"] in (True, False)
    assert len({s["trace"] for s in spans if s["name"] == "search"}) == 2  # of find_tools and of suggest_call

    failed = {s["attributes"].get("toolscout.error") for s in spans if s["kind"] == SERVER and s["status"] == ERROR}
    assert failed == {"tool_error", "upstream_crashed", "not_found", "unknown_tool"}
    assert collector.named("tools/call unknown")["attributes"]["gen_ai.tool.name"] == "unknown"
    crashed = next(s for s in spans if s["name"] == "tools/call crash")
    assert crashed["status"] == ERROR and crashed["attributes"]["error.type"]


@pytest.mark.parametrize("traces", [True, False])
async def test_over_http_the_trace_goes_on_to_a_remote_upstream(settings: Settings, traces: bool) -> None:
    with collecting() as collector, listening([sys.executable, str(UPSTREAMS / "web.py")], "{port}") as upstream:
        web = UpstreamConfig.remote("web", f"{upstream}/a/mcp", headers={"Authorization": "Bearer letmein"})
        ServersFile(settings.servers_file).add(web)
        env = environment(settings.home)
        if traces:
            env |= {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
        command = [sys.executable, "-m", "toolscout", "serve", "--http"]
        with listening(command, "127.0.0.1:{port}", env) as url:
            from fastmcp.client.transports import StreamableHttpTransport

            transport = StreamableHttpTransport(f"{url}/mcp", headers={"traceparent": OTHER})
            async with Client(transport, mode="auto") as client:
                both = await called(client, "invoke", {"tool_id": "web/headers"}, traceparent=TRACEPARENT)
                header = await called(client, "invoke", {"tool_id": "web/headers"})
            if not traces:
                # Without spans of our own the client's trace is handed on as it came.
                assert TRACEPARENT in both and OTHER in header
                assert collector.spans == []
                return
            spans = collector.wait(lambda spans: sum(s["kind"] == SERVER for s in spans) == 2)
    served = {s["trace"]: s for s in spans if s["kind"] == SERVER}
    assert served[TRACE]["parent"] == PARENT and served[TRACE]["links"] == ["b" * 16]
    assert served["a" * 32]["parent"] == "b" * 16 and served["a" * 32]["attributes"]["network.transport"] == "tcp"
    starts = [s for s in spans if s["name"] == "upstream start"]
    assert all(s["parent"] == served[TRACE]["id"] for s in starts)
    for trace, answer in ((TRACE, both), ("a" * 32, header)):
        span = next(s for s in spans if s["name"] == "tools/call headers" and s["trace"] == trace)
        assert f"00-{trace}-{span['id']}-01" in answer
        assert span["attributes"]["server.address"] == "127.0.0.1" and span["attributes"]["server.port"] > 0


async def test_a_collector_that_is_away_costs_neither_answers_nor_the_exit(settings: Settings) -> None:
    with_tiny(settings)
    env = environment(settings.home) | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
    front = StdioTransport(sys.executable, ["-m", "toolscout", "serve"], env=env, keep_alive=False)
    async with Client(front, mode="auto") as client:
        assert "hello" in await called(client, "invoke", {"tool_id": "tiny/echo", "arguments": {"text": "hello"}})


def test_what_switches_traces_on() -> None:
    settings = Settings(_env_file=None)
    assert not wanted(settings, {})
    assert wanted(settings, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"})
    assert wanted(settings, {"OTEL_TRACES_EXPORTER": "console"})
    assert not wanted(settings, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "true"})
    assert not wanted(settings, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_TRACES_EXPORTER": "none"})
    settings.traces = False
    assert not wanted(settings, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x"})


def test_a_protocol_that_is_not_served_is_said(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    assert make_tracing(settings) is None  # the variables may be meant for others
    settings.traces = True
    with pytest.raises(BadInput, match="grpc is not served"):
        make_tracing(settings)


def test_nothing_of_the_sdk_is_imported_while_traces_are_off() -> None:
    code = (
        "import sys, asyncio, toolscout.server.app, toolscout.server.web.http, toolscout.server.engine\n"
        "from toolscout.server.telling.tracing_switch import make_tracing\n"
        "from toolscout.settings import Settings\n"
        "assert make_tracing(Settings()) is None\n"
        "print([m for m in sys.modules if m.startswith('opentelemetry.sdk') or m == 'prometheus_client'])"
    )
    env = {k: v for k, v in os.environ.items() if not k.startswith("OTEL_")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "parent",
    ["", "00-" + "0" * 32 + f"-{PARENT}-01", f"00-{TRACE}-{'0' * 16}-01", f"ff-{TRACE}-{PARENT}-01",
     f"{TRACEPARENT}\r\nx: y", TRACEPARENT.upper(), 7, None],
)  # fmt: skip
def test_a_malformed_trace_context_is_no_trace(parent: object) -> None:
    assert valid_carrier({"traceparent": parent, "tracestate": "a=b"}) == {}


@pytest.mark.parametrize(
    ("state", "good"),
    [
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", True),
        ("fw529a3039@dt=FfAB,  ,a/b*c=x y", True),
        ("", False),
        (" , ", False),
        ("Vendor=1", False),
        ("a=", False),
        ("a=b=c", False),
        ("a=1,a=2", False),
        ("see https://elsewhere.example", False),
        (",".join(f"k{n}=1" for n in range(33)), False),
        ("a=" + "b" * 600, False),
    ],
)
def test_tracestate_has_a_grammar(state: str, good: bool) -> None:
    assert ("tracestate" in valid_carrier({"traceparent": TRACEPARENT, "tracestate": state})) is good


def test_a_malformed_tracestate_costs_only_itself() -> None:
    assert valid_carrier({"traceparent": TRACEPARENT, "tracestate": "a=b\n"}) == {"traceparent": TRACEPARENT}
    assert valid_carrier({"traceparent": TRACEPARENT, "tracestate": "a=b"})["tracestate"] == "a=b"
