"""Other searches over the same tools and requests, measured in the same run and scored the same way.

* ``fastmcp``: the BM25 search transform of FastMCP, as its users have it: in front of a server with all the tools.
* ``bm25s``: the library of that name over the same plain text of each tool (name in words, title, description,
  parameter names, server).
* ``bm25s-words``: bm25s over the words that our own index keeps for each tool.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput
from toolscout.eval.metrics import Judged, spread
from toolscout.eval.rows import Say, silent
from toolscout.jsonl import read_records
from toolscout.records import Call, JsonObject, Server, Tool

RANK_DEPTH = 50
OFFERED = 5
MCP_SAMPLE = 50
"""Requests that also go through an MCP client, for the latency that an agent would see."""


class RankedPeer:
    """What a peer answered: rankings by row id and times in milliseconds."""

    def __init__(self) -> None:
        self.ranked: dict[str, list[str]] = {}
        self.ms: list[float] = []
        self.index_seconds = 0.0
        self.extra: JsonObject = {}


def measure_peers(
    names: Sequence[str],
    tools: Mapping[str, Tool],
    servers: Mapping[str, Server],
    calls: Sequence[Call],
    count_tokens: Callable[[str], int],
    say: Say = silent,
) -> JsonObject:
    """``{peer: {n, strict, equivalent, latency_ms, index_seconds, ...}}`` for the peers named.

    Raises BadInput for a peer that is unknown or whose package is missing.
    """
    from toolscout.eval.retrieval import readings

    check_peers(names)
    rows = [row for row in calls if row.gold]
    results: JsonObject = {}
    for name in names:
        say(f"asking {name}")
        try:
            peer = PEERS[name](tools, servers, rows, count_tokens)
        except ImportError as error:
            raise BadInput(f"The peer {name} needs a package: {error}.", "Install toolscout[eval].") from None
        judged = []
        for row in rows:
            gold = frozenset(g.tool_id for g in row.gold)
            judged.append(Judged(peer.ranked[row.id], gold, gold | frozenset(row.relevant or ())))
        results[name] = {
            "n": len(rows),
            **readings(judged),
            "latency_ms": spread(peer.ms),
            "index_seconds": round(peer.index_seconds, 2),
            **peer.extra,
        }
    return results


def check_peers(names: Sequence[str]) -> None:
    """Raises BadInput for a peer that does not exist."""
    for name in names:
        if name not in PEERS:
            raise BadInput(f"There is no peer called {name!r}.", f"Peers are {', '.join(PEERS)}.")


def read_servers(paths: Sequence[Path]) -> dict[str, Server]:
    """Servers by id."""
    return {server.server_id: server for path in paths for server in read_records(path, Server)}


def _fastmcp(
    tools: Mapping[str, Tool], servers: Mapping[str, Server], rows: Sequence[Call], count_tokens: Callable[[str], int]
) -> RankedPeer:
    return asyncio.run(_ask_fastmcp(tools, rows, count_tokens))


async def _ask_fastmcp(
    tools: Mapping[str, Tool], rows: Sequence[Call], count_tokens: Callable[[str], int]
) -> RankedPeer:
    """Rankings and ``latency_ms`` from the transform's own search, tools in hand; a sample through an MCP client."""
    from fastmcp import Client, FastMCP
    from fastmcp.server.transforms.search import BM25SearchTransform
    from fastmcp.tools.base import Tool as FastTool

    logging.getLogger("mcp").setLevel(logging.ERROR)
    by_name = _mcp_names(tools)
    listed = [
        FastTool(
            name=name,
            description=tools[tool_id].description,
            parameters=tools[tool_id].input_schema or {"type": "object", "properties": {}},
        )
        for name, tool_id in by_name.items()
    ]
    peer = RankedPeer()
    deep = BM25SearchTransform(max_results=RANK_DEPTH)
    start = time.perf_counter()
    await deep._search(listed, "warm up")
    peer.index_seconds = time.perf_counter() - start
    for row in rows:
        start = time.perf_counter()
        found = await deep._search(listed, row.query)
        peer.ms.append((time.perf_counter() - start) * 1000)
        peer.ranked[row.id] = [by_name[tool.name] for tool in found]

    server = FastMCP("peer")
    for tool in listed:
        server.add_tool(tool)
    server.add_transform(BM25SearchTransform(max_results=OFFERED))
    ms, tokens = [], []
    async with Client(server) as client:
        await client.call_tool("search_tools", {"query": "warm up"})
        for row in rows[:MCP_SAMPLE]:
            start = time.perf_counter()
            answer = await client.call_tool("search_tools", {"query": row.query})
            ms.append((time.perf_counter() - start) * 1000)
            tokens.append(float(sum(count_tokens(getattr(block, "text", "")) for block in answer.content)))
    peer.extra = {"mcp_latency_ms": spread(ms), "answer_tokens": spread(tokens, 1)}
    return peer


def _mcp_names(tools: Mapping[str, Tool]) -> dict[str, str]:
    """Tool ids by a name that MCP allows. The server's words stay in the name, as FastMCP's own mounting has it."""
    names: dict[str, str] = {}
    for tool_id in tools:
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", tool_id)[-120:]
        name, number = plain, 2
        while name in names:
            name, number = f"{plain}_{number}", number + 1
        names[name] = tool_id
    return names


def plain_text(tool: Tool, server: Server | None) -> str:
    """Everything that a plain search would look at, in words."""
    from toolscout.index.words import split_identifier

    properties = tool.input_schema.get("properties")
    names = list(properties) if isinstance(properties, dict) else []
    parts = [" ".join(split_identifier(tool.name)), tool.title or "", tool.description]
    parts += [" ".join(split_identifier(str(name))) for name in names]
    parts += [server.name, server.description] if server is not None else [tool.server_id]
    return " ".join(part for part in parts if part)


def _index_words(tool: Tool, server: Server | None) -> str:
    from toolscout.index.document import tool_words

    return " ".join(tool_words(tool, server).values())


def _bm25s(text_of: Callable[[Tool, Server | None], str]) -> Callable[..., RankedPeer]:
    def ask(
        tools: Mapping[str, Tool],
        servers: Mapping[str, Server],
        rows: Sequence[Call],
        count_tokens: Callable[[str], int],
    ) -> RankedPeer:
        import bm25s

        peer = RankedPeer()
        ids = list(tools)
        start = time.perf_counter()
        texts = [text_of(tool, servers.get(tool.server_id)) for tool in tools.values()]
        retriever: Any = bm25s.BM25()
        retriever.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
        peer.index_seconds = time.perf_counter() - start
        depth = min(RANK_DEPTH, len(ids))
        for row in rows:
            start = time.perf_counter()
            query = bm25s.tokenize([row.query], stopwords="en", show_progress=False)
            found, scores = retriever.retrieve(query, k=depth, show_progress=False)
            peer.ms.append((time.perf_counter() - start) * 1000)
            peer.ranked[row.id] = [ids[i] for i, value in zip(found[0], scores[0], strict=True) if value > 0]
        return peer

    return ask


PEERS: dict[str, Callable[..., RankedPeer]] = {
    "fastmcp": _fastmcp,
    "bm25s": _bm25s(plain_text),
    "bm25s-words": _bm25s(_index_words),
}
