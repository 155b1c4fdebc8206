"""What ``invoke`` costs: overhead over a direct client, many calls at once, many upstreams in turn.

    python benchmarks/invoke.py [--calls 400] [--turns 2000] [--json FILE] [--tool ID] [--front COMMAND ...]

Without ``--front`` the pool and the invoker are measured in this process, and what a policy on calls adds. With
``--front`` a server is started with that command (stdio), and its tool ``invoke`` is called with ``tool_id`` and
``arguments``; it must know an upstream whose ``echo`` tool is ``--tool`` (default ``bench/echo``), started with the
command that ``--print-upstream`` prints.

Overhead is paired: one direct call, one through Toolscout, alternating, so that a busy machine hurts both alike.
Times are medians over all pairs, in milliseconds. Direct is FastMCP's client on the same upstream program.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from toolscout.records import Server, ServerState, Tool
from toolscout.server.client_identity import OURSELVES
from toolscout.server.config import UpstreamConfig
from toolscout.server.invoke import Invoker
from toolscout.server.policy.governor import Governor
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.server.upstreams.watchdog import marked_processes
from toolscout.settings import Settings

UPSTREAM = """
import asyncio
import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
async def list_tools(context, params):
    return types.ListToolsResult(tools=[types.Tool(name="echo", input_schema=SCHEMA)])
async def call_tool(context, params):
    return types.CallToolResult(content=[types.TextContent(type="text", text=params.arguments["text"])])
async def main():
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())
server = Server("bench", on_list_tools=list_tools, on_call_tool=call_tool)
asyncio.run(main())
"""

TINY = """
import json, sys
def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n")
    sys.stdout.flush()
INFO = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "tiny", "version": "0"}}
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message.get("method")
    if id is None:
        continue
    if method == "initialize":
        send({"id": id, "result": INFO})
    elif method == "tools/call":
        send({"id": id, "result": {"content": [{"type": "text", "text": message["params"]["arguments"]["text"]}]}})
    else:
        send({"id": id, "error": {"code": -32601, "message": "no"}})
"""
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}

POLICY = (
    """
[[rules]]
action = "deny"
arguments = { path = "re:/[.]ssh/" }
"""
    + "".join(f'[[rules]]\naction = "deny"\nserver = "s{n}-*"\ntool = "delete_*"\n' for n in range(20))
    + """
[rates]
client = "1000000/s"
upstream = "1000000/s"
[responses]
max_chars = 10000
"""
)
"""Twenty-one rules, of which none fits, and limits that are not reached."""

Call = Callable[[str], Awaitable[Any]]


async def main() -> None:
    """Run the measurements that the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=400, help="pairs of the overhead measurement")
    parser.add_argument("--turns", type=int, default=2000, help="calls over 50 upstreams in turn")
    parser.add_argument("--json", type=Path, help="write the result to this file")
    parser.add_argument("--front", nargs=argparse.REMAINDER, help="command of a front server (last option)")
    parser.add_argument("--tool", default="bench/echo", help="tool id of the echo tool behind the front")
    parser.add_argument("--print-upstream", action="store_true", help="print the upstream's command as JSON and stop")
    options = parser.parse_args()
    if options.print_upstream:
        print(json.dumps({"command": sys.executable, "args": ["-c", UPSTREAM]}))
        return
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        if options.front:
            result["front"] = await measure_front(options.front, options.tool, options.calls)
        else:
            settings = Settings(home=Path(folder), starter=False)
            result["overhead"] = await measure_overhead(settings, options.calls)
            result["policy"] = await measure_policy(settings)
            result["telemetry"] = measure_telemetry(settings)
            result["concurrent"] = await measure_concurrent(settings)
            result["turns"] = await measure_turns(settings.model_copy(update={"max_upstreams": 10}), options.turns)
    text = json.dumps(result, indent=2)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


async def measure_overhead(settings: Settings, calls: int) -> dict[str, Any]:
    """Pool and invoker against FastMCP's client, each on a process of its own of the same upstream program."""
    async with AsyncExitStack() as stack:
        direct = await stack.enter_async_context(direct_client(["-c", UPSTREAM]))
        pool = await stack.enter_async_context(pool_of(settings, {"bench": ["-c", UPSTREAM]}))
        invoker = invoker_of(pool, settings, ["bench"])

        async def through_pool(text: str) -> Any:
            return await pool.call("bench", "echo", {"text": text})

        async def through_invoker(text: str) -> Any:
            return await invoker.invoke("bench/echo", {"text": text})

        async def straight(text: str) -> Any:
            return await direct.call_tool_mcp("echo", {"text": text})

        return {
            "pool": await paired(straight, through_pool, calls),
            "invoke": await paired(straight, through_invoker, calls),
        }


async def measure_front(command: list[str], tool_id: str, calls: int) -> dict[str, Any]:
    """The whole server: client -> front -> upstream, against client -> upstream; then 200 calls at once."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    async with AsyncExitStack() as stack:
        direct = await stack.enter_async_context(direct_client(["-c", UPSTREAM]))
        transport = StdioTransport(command[0], command[1:], env=dict(os.environ), keep_alive=False)
        front = await stack.enter_async_context(Client(transport, mode="auto"))

        async def straight(text: str) -> Any:
            return await direct.call_tool_mcp("echo", {"text": text})

        async def through_front(text: str) -> Any:
            result = await front.call_tool_mcp("invoke", {"tool_id": tool_id, "arguments": {"text": text}})
            assert not result.is_error, result.content
            return result

        return {"overhead": await paired(straight, through_front, calls), "concurrent": await burst(through_front)}


async def measure_policy(settings: Settings, calls: int = 2000) -> dict[str, float]:
    """What a policy adds to a call in this process, in microseconds: the median of all its steps, without the call."""
    tool = Tool(tool_id="bench/echo", server_id="bench", name="echo", input_schema=SCHEMA)
    arguments = {"text": "some words of ordinary length", "path": "/home/somebody/notes.txt"}
    result = {"content": [{"type": "text", "text": "x" * 2000}]}

    async def steps(governor: Governor) -> None:
        passage = governor.passage(tool.tool_id, lambda: OURSELVES)
        if passage is not None:
            passage.decide(tool, arguments)
            await passage.admit(None, {}, lambda: tool)
            passage.forward({})
            passage.finish(result)
            passage.close()

    measured = {}
    for name, text in {"none": "", "rules": POLICY, "rules_and_audit": f"{POLICY}[audit]\n"}.items():
        home = settings.home / name
        home.mkdir()
        if text:
            (home / "policy.toml").write_text(text, encoding="utf-8")
        governor = Governor(settings.model_copy(update={"home": home}))
        times = []
        for _ in range(calls):
            started = time.perf_counter()
            await steps(governor)
            times.append((time.perf_counter() - started) * 1e6)
        measured[f"{name}_us"] = round(statistics.median(times), 1)
    return measured


def measure_telemetry(settings: Settings, calls: int = 5000) -> dict[str, float]:
    """What counting, tracing and logging add to one `invoke`, in microseconds: medians, without the call itself."""
    import logging

    from toolscout.server.engine import Engine
    from toolscout.server.telling.logs import JsonLines, StderrHandler
    from toolscout.server.telling.metrics import Metrics
    from toolscout.server.telling.telemetry import Telemetry, span

    kinds = {"off": Telemetry(), "metrics": Telemetry(), "json_logs": Telemetry()}
    kinds["metrics"].metrics = Metrics(Engine(settings))
    with contextlib.suppress(ImportError):
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

        from toolscout.server.telling.tracing import Tracing

        kinds["traces"] = Telemetry()
        kinds["traces"].tracing = Tracing(InMemorySpanExporter())
    logger = logging.getLogger("toolscout")
    handler = StderrHandler(os.open(os.devnull, os.O_WRONLY))
    handler.setFormatter(JsonLines())
    context = SimpleNamespace(params={}, request=None, request_id=1, protocol_version="2026-07-28")
    measured = {}
    for name, telemetry in kinds.items():
        if name == "json_logs":
            logger.addHandler(handler)
            logger.setLevel(logging.INFO)
        times = []
        for _ in range(calls):
            started = time.perf_counter()
            with telemetry.tool_call("invoke", context) as call:
                call.server, call.target = "bench", "echo"
                with span("tools/call echo", client=True):
                    call.outgoing()
                telemetry.upstream_call("bench", "", 0.001)
            times.append((time.perf_counter() - started) * 1e6)
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
        telemetry.close()
        measured[f"{name}_us"] = round(statistics.median(times), 1)
    return measured


async def measure_concurrent(settings: Settings) -> dict[str, Any]:
    """200 calls at once on one upstream."""
    async with pool_of(settings, {"bench": ["-c", UPSTREAM]}) as pool:
        invoker = invoker_of(pool, settings, ["bench"])

        async def call(text: str) -> Any:
            return await invoker.invoke("bench/echo", {"text": text})

        await call("warm")
        return await burst(call)


async def measure_turns(settings: Settings, turns: int) -> dict[str, Any]:
    """Upstreams in turn, more of them than may live; memory and left-over processes."""
    names = [f"s{i}" for i in range(50)]
    errors = 0
    highest = 0
    async with pool_of(settings, {name: ["-I", "-S", "-c", TINY] for name in names}) as pool:
        invoker = invoker_of(pool, settings, names)
        rss: list[float] = []
        started = time.perf_counter()
        for turn in range(turns):
            result = await invoker.invoke(f"{names[turn % 50]}/echo", {"text": str(turn)})
            errors += bool(result.is_error) or result.content[0].text != str(turn)  # type: ignore[union-attr]
            if turn % 50 == 49:
                rss.append(memory_mb())
                highest = max(highest, sum(s.state == "live" for s in pool.status()))
        seconds = time.perf_counter() - started
        starts = sum(s.starts for s in pool.status())
        marker = pool.marker
    return {
        "calls": turns,
        "upstreams": 50,
        "cap": settings.max_upstreams,
        "most_live": highest,
        "errors": errors,
        "starts": starts,
        "seconds": round(seconds, 1),
        "rss_mb_start": rss[0],
        "rss_mb_middle": rss[len(rss) // 2],
        "rss_mb_end": rss[-1],
        "orphans": len(marked_processes(marker)),
    }


async def paired(direct: Call, through: Call, calls: int) -> dict[str, Any]:
    """Alternating calls; medians, and the median of the differences of neighbours."""
    for i in range(50):
        await direct(str(i))
        await through(str(i))
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(calls):
        for which in ((0, 1), (1, 0))[i % 2]:  # who goes first alternates too
            started = time.perf_counter()
            await (direct, through)[which](str(i))
            times[which].append((time.perf_counter() - started) * 1000)
    difference = [b - a for a, b in zip(*times, strict=True)]
    return {
        "calls": calls,
        "direct_ms": spread(times[0]),
        "through_ms": spread(times[1]),
        "overhead_ms_median": round(statistics.median(difference), 3),
    }


async def burst(call: Call, size: int = 200) -> dict[str, Any]:
    """Many calls at once, five times."""
    errors = 0
    times = []
    for _ in range(5):
        started = time.perf_counter()
        results = await asyncio.gather(*(call(str(i)) for i in range(size)), return_exceptions=True)
        times.append((time.perf_counter() - started) * 1000)
        for i, result in enumerate(results):
            wrong = isinstance(result, BaseException) or result.is_error or result.content[0].text != str(i)
            errors += wrong
    return {"at_once": size, "rounds": 5, "errors": errors, "round_ms_median": round(statistics.median(times), 1)}


def direct_client(args: list[str]) -> Any:
    """FastMCP's client on an upstream process."""
    from fastmcp import Client
    from fastmcp.client.transports import StdioTransport

    return Client(StdioTransport(sys.executable, args, keep_alive=False), mode="auto")


def pool_of(settings: Settings, upstreams: dict[str, list[str]]) -> UpstreamPool:
    """A pool over Python programs."""
    configs = {name: UpstreamConfig.stdio(name, sys.executable, args) for name, args in upstreams.items()}
    return UpstreamPool(settings, lambda: configs)


def invoker_of(pool: UpstreamPool, settings: Settings, names: list[str]) -> Invoker:
    """An invoker that knows one ``echo`` tool per upstream."""
    tools = {}
    for name in names:
        tool = Tool(tool_id=f"{name}/echo", server_id=name, name="echo", input_schema=SCHEMA)
        tool.fingerprint = tool.computed_fingerprint()
        tools[tool.tool_id] = tool
    servers = {name: Server(server_id=name, state=ServerState.READY) for name in names}
    return Invoker(
        tools.get, servers.get, lambda wrong: [], lambda tool_id: None, pool, settings, governor=Governor(settings)
    )


def spread(values: list[float]) -> dict[str, float]:
    """Median and 95th percentile."""
    ordered = sorted(values)
    return {"p50": round(statistics.median(ordered), 3), "p95": round(ordered[int(len(ordered) * 0.95)], 3)}


def memory_mb() -> float:
    """Resident memory of this process now (Linux), or its highest so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return round(pages * resource.getpagesize() / 1e6, 1)
    except OSError:
        return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3, 1)


if __name__ == "__main__":
    asyncio.run(main())
