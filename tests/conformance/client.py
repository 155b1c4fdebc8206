"""Toolscout's side towards upstreams, as the conformance suite drives clients: ``python client.py URL``.

Lists the suite's server through the pool and calls each of its tools once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from toolscout.records import JsonObject
from toolscout.server.config import UpstreamConfig
from toolscout.server.upstreams.errors import Refused
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings

SAMPLES: dict[str, Any] = {"string": "text", "number": 5, "integer": 3, "boolean": True, "array": [], "object": {}}


def sample(schema: JsonObject) -> JsonObject:
    """Arguments that a schema's plain properties allow."""
    properties = schema.get("properties") or {}
    return {name: SAMPLES.get(str(one.get("type")), "text") for name, one in properties.items()}


def wanted() -> list[tuple[str, JsonObject]]:
    """The calls that a scenario asks for by itself."""
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    calls = context.get("toolCalls") or []
    return [(call["name"], call.get("arguments") or {}) for call in calls]


async def answered(pool: UpstreamPool, name: str, arguments: JsonObject) -> None:
    result = await pool.call_raw("suite", name, arguments)
    while result.get("resultType") == "input_required":
        accepted = {"action": "accept", "content": {"confirmed": True}}
        answers = dict.fromkeys(result.get("inputRequests") or {}, accepted)
        state = result.get("requestState")
        result = await pool.call_raw("suite", name, arguments, input_responses=answers or None, request_state=state)


async def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        configs = {"suite": UpstreamConfig.remote("suite", sys.argv[1])}
        async with UpstreamPool(Settings(home=Path(home), starter=False), lambda: configs) as pool:
            _, tools = await pool.list_tools("suite")
            calls = wanted() or [(tool.name, sample(tool.input_schema)) for tool in tools]
            for name, arguments in calls:
                # Some scenarios look only at what is sent, and refuse the call.
                with contextlib.suppress(Refused):
                    await answered(pool, name, arguments)


asyncio.run(main())
