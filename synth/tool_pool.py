"""Tools that candidates are drawn from: siblings, near misses by words, and which tools do the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np

from toolscout.index.bm25 import Bm25Weights, Forward, Inverted
from toolscout.index.document import tool_words
from toolscout.index.words import fold, hashes, words
from toolscout.records import Server, Tool, canonical_json

_SAID = 20
"""Characters of a description below which equal descriptions prove nothing."""
_OVERLAP = 0.8
"""Share of common words (Jaccard, name and description) from which two servers' tools count as the same."""
_SAME_NAME = 0.6
"""The same for the words of the names alone: ``create_issue`` of two servers serves one request alike."""
_DEPTH = 40


class ToolPool:
    """Tools that rows may show. Deterministic; ``tools`` holds no tool that measuring calls unseen."""

    def __init__(self, tools: Iterable[Tool], servers: Mapping[str, Server] | None = None) -> None:
        self.tools = {tool.tool_id: tool for tool in tools}
        self.ids = list(self.tools)
        self._row = {tool_id: row for row, tool_id in enumerate(self.ids)}
        servers = servers or {}
        texts = (tool_words(t, servers.get(t.server_id)) for t in self.tools.values())
        self._words = Inverted.of(Forward.of(texts), Bm25Weights())
        self._siblings: dict[str, list[str]] = defaultdict(list)
        for tool in self.tools.values():
            self._siblings[tool.server_id].append(tool.tool_id)
        self._kind = lru_cache(maxsize=None)(self._kind_of)
        self._said = lru_cache(maxsize=None)(self._words_of)
        self._named = lru_cache(maxsize=None)(self._name_of)

    def siblings(self, tool_id: str) -> list[str]:
        """The other tools of its server."""
        return [t for t in self._siblings[self.tools[tool_id].server_id] if t != tool_id]

    def scores(self, query: str) -> dict[str, float]:
        """BM25 of the tools nearest to a request, best first."""
        scores = self._words.score(hashes(query)).scores
        size = min(_DEPTH, len(scores))
        rows = np.argpartition(-scores, size - 1)[:size]
        rows = rows[np.lexsort((rows, -scores[rows]))]
        return {self.ids[int(r)]: float(scores[r]) for r in rows if scores[r] > 0}

    def same(self, one: str, other: str) -> bool:
        """Whether two tools do the same as far as their words tell, so that neither is wrong for the other's request.

        Siblings are only the same by definition: ``delete_page`` may be described in the words of ``get_page``.
        """
        if one == other or self._kind(one) == self._kind(other):
            return True
        if self.tools[one].server_id == self.tools[other].server_id:
            return False
        return _jaccard(self._said(one), self._said(other)) >= _OVERLAP or (
            _jaccard(self._named(one), self._named(other)) >= _SAME_NAME
        )

    def _kind_of(self, tool_id: str) -> str:
        tool = self.tools[tool_id]
        text = " ".join(fold(tool.description).split())
        if len(text) >= _SAID:
            return text
        return canonical_json([tool.name, tool.description, tool.input_schema])

    def _words_of(self, tool_id: str) -> frozenset[str]:
        tool = self.tools[tool_id]
        return frozenset(words(f"{tool.name} {tool.description}"))

    def _name_of(self, tool_id: str) -> frozenset[str]:
        """Words of the name without those of the server's name, which many tools carry as a prefix."""
        tool = self.tools[tool_id]
        own = frozenset(words(tool.name))
        return (own - frozenset(words(tool.server_id))) or own


def _jaccard(left: frozenset[str], right: frozenset[str]) -> float:
    return len(left & right) / len(left | right) if left and right else 0.0
