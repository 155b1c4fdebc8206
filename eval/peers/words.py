"""``bm25s``: the library of that name over the same plain text of each tool; ``bm25s-words``: over our own words."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from toolscout.eval.peers.base import RANK_DEPTH, PeerTask, RankedPeer, plain_text
from toolscout.records import Server, Tool


def ask_plain(task: PeerTask) -> RankedPeer:
    """Over name in words, title, description, parameter names, server's name and description."""
    return _ask(task, plain_text, "plain text")


def ask_index_words(task: PeerTask) -> RankedPeer:
    """Over the words that our own index keeps for each tool."""
    return _ask(task, _index_words, "the words of our own index")


def _index_words(tool: Tool, server: Server | None) -> str:
    from toolscout.index.document import tool_words

    return " ".join(tool_words(tool, server).values())


def _ask(task: PeerTask, text_of: Callable[[Tool, Server | None], str], over: str) -> RankedPeer:
    import bm25s

    peer = RankedPeer(f"bm25s {version('bm25s')} over {over}, English stop words")
    ids = list(task.tools)
    start = time.perf_counter()
    texts = [text_of(tool, task.server_of(tool)) for tool in task.tools.values()]
    retriever: Any = bm25s.BM25()
    retriever.index(bm25s.tokenize(texts, stopwords="en", show_progress=False), show_progress=False)
    peer.index_seconds = time.perf_counter() - start
    depth = min(RANK_DEPTH, len(ids))
    for row in task.rows:
        start = time.perf_counter()
        query = bm25s.tokenize([row.query], stopwords="en", show_progress=False)
        found, scores = retriever.retrieve(query, k=depth, show_progress=False)
        peer.ms.append((time.perf_counter() - start) * 1000)
        peer.ranked[row.id] = [ids[i] for i, value in zip(found[0], scores[0], strict=True) if value > 0]
    return peer
