"""Bytes at both ends of a pipe: the gate in front of the server, and the reader of an upstream's output."""

# ruff: noqa: E501  (tables of odd values)

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from hypothesis import strategies as st
from mcp.shared.exceptions import MCPError

from fuzzing.values import as_json, json_objects, json_values, mangled, nested_text, numbers, scalars, texts
from toolscout.server.gate import Gate
from toolscout.server.upstreams.pipe import PipeDispatcher

METHODS = [
    "initialize", "tools/list", "tools/call", "ping", "server/discover", "notifications/initialized", "resources/list",
    "notifications/cancelled", "notifications/progress", "logging/setLevel", "completion/complete", "prompts/get",
    "sampling/createMessage", "notifications/message", "notifications/tools/list_changed", "", "\x00", "\ud800", "rpc.x",
]  # fmt: skip
VERSIONS = ["2024-11-05", "2025-11-25", "2026-07-28", "1999-01-01", "", 7]
TOOLS = ["find_tools", "suggest_call", "invoke", "no_such_tool", "", "\x00"]
_META = "io.modelcontextprotocol/"

ids = st.one_of(st.integers(0, 5), st.sampled_from(["a", "1", "\ud800", ""]), numbers, scalars)
_call = st.fixed_dictionaries(
    {"name": st.one_of(st.sampled_from(TOOLS), scalars)},
    optional={
        "arguments": st.one_of(
            st.fixed_dictionaries(
                {},
                optional={
                    **dict.fromkeys(("query", "task", "tool_id", "context"), st.one_of(texts, json_values)),
                    **dict.fromkeys(("limit", "k", "steps", "confirm"), st.one_of(numbers, json_values)),
                    **dict.fromkeys(("arguments", "tool_ids", "candidates"), json_values),
                },
            ),
            json_values,
        ),
        "_meta": json_values,
    },
)
_hello = st.fixed_dictionaries(
    {},
    optional={
        "protocolVersion": st.sampled_from(VERSIONS),
        "capabilities": st.one_of(st.just({}), json_values),
        "clientInfo": st.one_of(st.just({"name": "f", "version": "1"}), json_values),
    },
)
_modern = st.fixed_dictionaries(
    {
        "_meta": st.fixed_dictionaries(
            {},
            optional={
                f"{_META}protocolVersion": st.sampled_from(VERSIONS),
                f"{_META}clientCapabilities": st.one_of(st.just({}), json_values),
                "progressToken": scalars,
            },
        )
    }
)
_cancelled = st.fixed_dictionaries({}, optional={"requestId": ids, "reason": scalars, "progressToken": ids,
                                                 "progress": numbers, "total": scalars, "message": scalars})  # fmt: skip
params = st.one_of(_call, _hello, _modern, _cancelled, json_objects, json_values)
_error = st.fixed_dictionaries({}, optional={"code": scalars, "message": scalars, "data": json_values})
messages = st.fixed_dictionaries(
    {"jsonrpc": st.sampled_from(["2.0", "2.0", "2.0", "1.0", 2, None])},
    optional={
        "id": ids,
        "method": st.one_of(st.sampled_from(METHODS), st.sampled_from(METHODS[:4]), scalars),
        "params": params,
        "result": json_values,
        "error": st.one_of(_error, scalars),
        "extra": json_values,
    },
)
_deep = st.builds(
    nested_text, st.sampled_from([50, 500, 5_000, 100_000]), st.sampled_from(["[", '{"a":', "[{}, "]), st.sampled_from(["]", "}", ""])
).map(str.encode)  # fmt: skip
_whole = st.one_of(messages, messages, st.lists(messages, max_size=3), json_values)
lines = st.one_of(
    st.builds(as_json, _whole),
    st.builds(as_json, _whole, ascii_only=st.booleans()).flatmap(mangled),
    st.binary(max_size=30),
    _deep,
    st.builds(lambda core, size: b'{"jsonrpc":"2.0","id":1,"result":{"t":"' + core * size + b'"}}',
              st.sampled_from([b"x", b"\\", b'"', b"{", b"\xff"]), st.integers(0, 5000)),
)  # fmt: skip

SHARE = 25
cases = st.tuples(st.lists(lines, min_size=1, max_size=4), st.integers(1, 40))

_ANSWERS = {
    "initialize": {"2025-11-25": {"protocolVersion": "2025-11-25"}},
    "tools/list": {"2025-11-25": {"tools": []}, "2026-07-28": {"tools": []}},
    "server/discover": {"2026-07-28": {}},
}
_LIMIT = 4096


def check(case: tuple[list[bytes], int]) -> None:
    """The lines through a gate, and in portions through the reader of an upstream with calls waiting."""
    received, portion = case
    gate = Gate(_ANSWERS)
    for line in b"\n".join(received).split(b"\n"):
        response, forward = gate.answer(line)
        if response is None:
            assert forward
            continue
        assert response.endswith(b"\n") and response.count(b"\n") == 1
        answer, asked = json.loads(response), json.loads(line)
        assert answer["id"] == asked["id"] and "result" in answer
    asyncio.run(_upstream(b"\n".join(received) + b"\n", portion))


async def _upstream(data: bytes, portion: int) -> None:
    """Whatever came, a call made afterwards gets its answer, and nobody waits when the upstream has gone."""
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    sent: list[bytes] = []

    def write(message: bytes) -> bool:
        sent.append(message)
        return True

    pipe = PipeDispatcher(_LIMIT)
    pipe.attach(write, lambda: True, asyncio.Event().wait)

    async def on_request(context: Any, method: str, given: Any) -> dict[str, Any]:
        return {"echo": given}

    async def on_notify(context: Any, method: str, given: Any) -> None:
        return None

    async def progressed(progress: float, total: float | None, message: str | None) -> None:
        return None

    running = asyncio.create_task(pipe.run(on_request, on_notify))
    await asyncio.sleep(0)
    waiting = [asyncio.create_task(pipe.send_raw_request("x", {}, {"on_progress": progressed})) for _ in range(2)]
    await asyncio.sleep(0)
    step = max(portion, len(data) // 50)
    for start in range(0, len(data), step):
        pipe.feed(data[start : start + step])
    await asyncio.sleep(0)
    last = asyncio.create_task(pipe.send_raw_request("y", {}))
    await asyncio.sleep(0)
    ident = json.loads(sent[-1])["id"]
    pipe.feed(as_json({"jsonrpc": "2.0", "id": ident, "result": {"right": ident}}) + b"\n")
    assert await asyncio.wait_for(last, 30) == {"right": ident}
    pipe.close()
    for task in waiting:
        with contextlib.suppress(MCPError):
            assert isinstance(await asyncio.wait_for(task, 30), dict)
    await asyncio.wait_for(running, 30)
    for message in sent:
        assert message.endswith(b"\n") and json.loads(message)["jsonrpc"] == "2.0"
    assert not problems, problems
