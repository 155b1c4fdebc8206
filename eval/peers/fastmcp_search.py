"""``fastmcp`` and ``fastmcp-regex``: the search transforms of FastMCP, as its users have them: in front of a server
with all the tools.

The regex search wants a pattern, which a model writes. Here a rule does: first pairs of neighbouring content words,
either way round (``create.*issue|issue.*create|...``); where that finds fewer than five tools, a second search for any
one of the words. The second one's finds follow the first's. Both count for the latency.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from toolscout.eval.metrics import spread
from toolscout.eval.peers.base import OFFERED, RANK_DEPTH, PeerTask, RankedPeer, mcp_names

MCP_SAMPLE = 50
"""Requests that also go through an MCP client, for the latency that an agent would see and the size of an answer."""

PATTERN_LIMIT = 1000
"""Characters of a pattern that the regex search takes."""

_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        """a about after all also am an and any are as at be been before but by can could did do does for from get give
        had has have how i if in into is it its just let like make may me my need of off on one or our out over please
        she should show so some tell than that the their them then there these they this those to up us use using want
        was we were what when where which who why will with would you your""",
    )
)


def ask_bm25(task: PeerTask) -> RankedPeer:
    """FastMCP's BM25 search transform."""
    return asyncio.run(_ask_bm25(task))


def ask_regex(task: PeerTask) -> RankedPeer:
    """FastMCP's regex search transform, patterns written by this module's rule."""
    return asyncio.run(_ask_regex(task))


def patterns(query: str) -> list[str]:
    """The patterns that are searched for a request, narrow one first; none without a content word."""
    words = re.findall(r"[^\W_]{2,}", query.lower())
    content = list(dict.fromkeys(word for word in words if word not in _STOP_WORDS))
    pairs = [text for a, b in pairwise(content) for text in (f"{a}.*{b}", f"{b}.*{a}")]
    return [pattern for pattern in (_alternation(pairs), _alternation(content)) if pattern]


def _alternation(parts: Sequence[str]) -> str:
    pattern = ""
    for part in parts:
        longer = f"{pattern}|{part}" if pattern else part
        if len(longer) > PATTERN_LIMIT - len("(?i)"):
            break
        pattern = longer
    return pattern


async def _ask_bm25(task: PeerTask) -> RankedPeer:
    """Rankings and ``latency_ms`` from the transform's own search, tools in hand; a sample through an MCP client."""
    from fastmcp.server.transforms.search import BM25SearchTransform

    deep, offering = BM25SearchTransform(max_results=RANK_DEPTH), BM25SearchTransform(max_results=OFFERED)
    peer = RankedPeer(f"fastmcp {version('fastmcp')}, BM25SearchTransform")
    by_name, listed = _tools(task)
    start = time.perf_counter()
    await deep._search(listed, "warm up")
    peer.index_seconds = time.perf_counter() - start
    for row in task.rows:
        start = time.perf_counter()
        found = await deep._search(listed, row.query)
        peer.ms.append((time.perf_counter() - start) * 1000)
        peer.ranked[row.id] = [by_name[tool.name] for tool in found]
    await _through_client(task, peer, listed, offering, lambda query: {"query": query})
    return peer


async def _ask_regex(task: PeerTask) -> RankedPeer:
    from fastmcp.server.transforms.search import RegexSearchTransform

    deep, offering = RegexSearchTransform(max_results=RANK_DEPTH), RegexSearchTransform(max_results=OFFERED)
    peer = RankedPeer(f"fastmcp {version('fastmcp')}, RegexSearchTransform, patterns by rule")
    by_name, listed = _tools(task)
    await deep._search(listed, "warm.*up")
    for row in task.rows:
        start = time.perf_counter()
        names: list[str] = []
        for pattern in patterns(row.query):
            if len(names) < OFFERED:
                names += [tool.name for tool in await deep._search(listed, pattern)]
        peer.ms.append((time.perf_counter() - start) * 1000)
        peer.ranked[row.id] = [by_name[name] for name in dict.fromkeys(names)][:RANK_DEPTH]
    await _through_client(task, peer, listed, offering, lambda query: {"pattern": (patterns(query) or ["-"])[-1]})
    return peer


def _tools(task: PeerTask) -> tuple[dict[str, str], list[Any]]:
    """Tool ids by name, and the tools in FastMCP's form."""
    from fastmcp.tools.base import Tool as FastTool

    by_name = mcp_names(task.tools)
    listed = [
        FastTool(
            name=name,
            description=task.tools[tool_id].description,
            parameters=task.tools[tool_id].input_schema or {"type": "object", "properties": {}},
        )
        for name, tool_id in by_name.items()
    ]
    return by_name, listed


async def _through_client(
    task: PeerTask, peer: RankedPeer, listed: Sequence[Any], transform: Any, arguments: Callable[[str], dict[str, str]]
) -> None:
    from fastmcp import Client, FastMCP

    logging.getLogger("mcp").setLevel(logging.ERROR)
    server = FastMCP("peer")
    for tool in listed:
        server.add_tool(tool)
    server.add_transform(transform)
    ms = []
    async with Client(server) as client:
        await client.call_tool("search_tools", arguments("warm up"))
        for row in task.rows[:MCP_SAMPLE]:
            start = time.perf_counter()
            answer = await client.call_tool("search_tools", arguments(row.query))
            ms.append((time.perf_counter() - start) * 1000)
            text = "".join(getattr(block, "text", "") for block in answer.content)
            peer.answer_tokens.append(float(task.count_tokens(text)))
    peer.extra["mcp_latency_ms"] = spread(ms)
