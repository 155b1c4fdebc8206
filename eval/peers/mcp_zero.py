"""``mcp-zero``: the hierarchical matching of MCP-Zero (arXiv 2506.01056) with our encoder in place of theirs.

First servers: the cosine of the request's server part with the server's description or, if higher, its summary; the
best five go on. Then their tools: the cosine of the request's tool part with the tool's description. A tool's score is
``(s_server * s_tool) * max(s_server, s_tool)``. Five servers and texts of descriptions alone are as in the authors'
code. There a model writes both parts of the request; a plain request stands for both here, and where rows have
structured requests they are asked as well.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from toolscout.eval.peers.base import OFFERED, RANK_DEPTH, PeerTask, RankedPeer, StructuredRequest, server_words
from toolscout.eval.peers.dense import remembering, top
from toolscout.records import Tool

TOP_SERVERS = 5

Vectors = npt.NDArray[np.float32]


class Matcher:
    """Vectors of servers (description and summary) and tools, and the two-level search over them."""

    def __init__(self, task: PeerTask) -> None:
        from toolscout.index.encoder import make_encoder

        self.encoder = make_encoder(task.settings)
        documents = remembering(self.encoder, task.cache)
        self.tool_ids = list(task.tools)
        tools = list(task.tools.values())
        first = {tool.server_id: tool for tool in reversed(tools)}
        server_ids = list(first)
        described = [server_words(first[s], task.servers.get(s)) for s in server_ids]
        summarised = [task.servers[i].summary if i in task.servers else None for i in server_ids]
        self._descriptions = documents.encode(described)
        self._summaries = documents.encode([s or d for s, d in zip(summarised, described, strict=True)])
        self._tools = documents.encode([tool.description or tool.name for tool in tools])
        position = {server_id: i for i, server_id in enumerate(server_ids)}
        self._server_of = np.asarray([position[tool.server_id] for tool in tools])

    def rank(self, requests: Sequence[StructuredRequest]) -> list[str]:
        """Tool ids, best first; of several requests in turns."""
        rankings = [self._rank_one(server, tool) for server, tool in requests]
        turns = [r[i] for i in range(max(map(len, rankings), default=0)) for r in rankings if i < len(r)]
        return list(dict.fromkeys(turns))[:RANK_DEPTH]

    def _rank_one(self, server: str, tool: str) -> list[str]:
        server = server or tool
        wanted_server = self.encoder.encode([server], kind="query")[0]
        wanted_tool = wanted_server if tool == server else self.encoder.encode([tool], kind="query")[0]
        by_server = np.maximum(self._descriptions @ wanted_server, self._summaries @ wanted_server)
        routed = top(by_server, TOP_SERVERS)
        inside = np.flatnonzero(np.isin(self._server_of, routed))
        s_server, s_tool = by_server[self._server_of[inside]], self._tools[inside] @ wanted_tool
        score = (s_server * s_tool) * np.maximum(s_server, s_tool)
        return [self.tool_ids[inside[i]] for i in top(score, RANK_DEPTH)]


def ask(task: PeerTask) -> RankedPeer:
    """Every request as it is, for both levels; and the structured requests where there are any."""
    start = time.perf_counter()
    matcher = Matcher(task)
    card = getattr(matcher.encoder, "card", None)
    name = task.settings.encoder if card is None else card.name
    peer = RankedPeer(f"MCP-Zero's matching, five servers, encoder {name}")
    peer.index_seconds = time.perf_counter() - start
    matcher.rank([("warm up", "warm up")])
    for row in task.rows:
        start = time.perf_counter()
        ranked = matcher.rank([(row.query, row.query)])
        peer.ms.append((time.perf_counter() - start) * 1000)
        peer.ranked[row.id] = ranked
        answer = [_shown(task.tools[tool_id], task) for tool_id in ranked[:OFFERED]]
        peer.answer_tokens.append(float(task.count_tokens(json.dumps(answer, ensure_ascii=False))))
    for row in task.rows:
        if row.id in task.structured:
            start = time.perf_counter()
            peer.structured[row.id] = matcher.rank(task.structured[row.id])
            peer.structured_ms.append((time.perf_counter() - start) * 1000)
    return peer


def _shown(tool: Tool, task: PeerTask) -> dict[str, object]:
    """A tool as the authors' matcher hands it on."""
    server = task.server_of(tool)
    return {
        "server_name": server.name if server is not None and server.name else tool.server_id,
        "tool_name": tool.name,
        "tool_description": tool.description,
        "parameters": tool.input_schema,
    }
