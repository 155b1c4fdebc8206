"""Hard negatives: tools that look like the right one and are not.

Three sources: the gold's siblings (other tools of its server), near misses by words (BM25), near misses by vectors (the
current encoder). Never the gold, a tool in ``relevant``, a held-out tool, or a near-duplicate of the gold: the pool
lists the same tool under many servers, and a copy of the right answer is no wrong one.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput
from toolscout.finetune.pairs import NOTHING, Pair, Pool, definition, same_text
from toolscout.index.bm25 import Bm25Weights, Forward, Inverted
from toolscout.index.document import tool_words
from toolscout.index.words import hashes

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

SOURCES = ("siblings", "words", "dense")

DEPTH = 20
"""Ranks of near misses that are taken; which of them a row shows is drawn, so that one false negative is not shown
again and again."""

OVERLAP = 0.8
"""Share of common words (Jaccard, name and description) from which a tool of another server counts as the same. Not
asked of siblings: ``delete_page`` may be described in the words of ``get_page`` and is the best negative there is."""

CLOSE = 0.95
"""Share of the gold's cosine from which a trained encoder's near miss is left out: it may well be right and only
unlabelled (NV-Retriever, Moreira et al., arXiv 2407.15831). Not asked of siblings, where a right answer is known."""

_SAID = 20
"""Characters of a description below which equal descriptions prove nothing."""

_BLOCK = 256


class Miner:
    """Finds the negatives of pairs in a pool. Deterministic.

    ``documents`` float32 [tools of ``pool.shown()``, dim] are the encoder's vectors of their full texts, L2-normalised;
    without them the source ``dense`` gives nothing. ``trained``: the encoder knows the requests, so that what it finds
    nearer than ``CLOSE`` is suspected to be right; an untrained one finds much nearer that is wrong.
    """

    def __init__(self, pool: Pool, documents: Floats | None = None, *, trained: bool = False) -> None:
        self.trained = trained
        self.pool = pool
        self.ids = pool.shown()
        if documents is not None and len(documents) != len(self.ids):
            raise BadInput(f"{len(documents)} vectors do not fit {len(self.ids)} tools.")
        self.documents = documents
        self.row_of = {tool_id: row for row, tool_id in enumerate(self.ids)}
        tools = [pool.tools[i] for i in self.ids]
        words = Forward.of(tool_words(t, pool.servers.get(t.server_id)) for t in tools)
        self.words = Inverted.of(words, Bm25Weights())
        self.siblings: dict[str, list[int]] = defaultdict(list)
        for row, tool in enumerate(tools):
            self.siblings[tool.server_id].append(row)
        self._said = lru_cache(maxsize=None)(self._words_of)
        self._kind = lru_cache(maxsize=None)(self._kind_of)
        self._definition = lru_cache(maxsize=None)(lambda tool_id: definition(pool.tools[tool_id]))

    def kind(self, tool_id: str) -> str:
        """A name that near-duplicates by description share: of two tools with one kind neither is a negative."""
        return self._kind(tool_id)

    def near_duplicate(self, gold: str, other: str) -> bool:
        """Whether a tool does what the gold does, as far as its words tell."""
        if gold == NOTHING:
            return False
        if gold == other or self.kind(gold) == self.kind(other) or self._definition(gold) == self._definition(other):
            return True
        if self.pool.tools[gold].server_id == self.pool.tools[other].server_id:
            return False
        left, right = self._said(gold), self._said(other)
        return bool(left and right) and len(left & right) >= OVERLAP * len(left | right)

    def mine(self, pairs: Sequence[Pair], queries: Floats | None = None) -> list[dict[str, list[str]]]:
        """For each pair, tool ids by source, hardest first.

        ``queries`` float32 [pairs, dim] are the encoder's vectors of the requests, for the source ``dense``.
        """
        found: list[dict[str, list[str]]] = []
        for start in range(0, len(pairs), _BLOCK):
            block = pairs[start : start + _BLOCK]
            near = None
            if queries is not None and self.documents is not None:
                near = queries[start : start + len(block)] @ self.documents.T
            for i, pair in enumerate(block):
                found.append(self._of_pair(pair, None if near is None else near[i]))
        return found

    def _of_pair(self, pair: Pair, near: Floats | None) -> dict[str, list[str]]:
        words = self.words.score(hashes(pair.query)).scores
        own = [] if pair.gold == NOTHING else self.siblings[self.pool.tools[pair.gold].server_id]
        siblings = np.array(own, dtype=np.int64)
        hardness = words if near is None else near
        ranked = {"siblings": siblings[np.argsort(-hardness[siblings], kind="stable")], "words": _top(words)}
        if near is not None:
            gold = self.row_of.get(pair.gold)
            limit = np.inf if gold is None or not self.trained else CLOSE * float(near[gold])
            ranked = {
                "siblings": ranked["siblings"],
                "words": ranked["words"][near[ranked["words"]] < limit],
                "dense": _top(np.where(near < limit, near, 0.0)),
            }
        return {source: self._allowed(pair, rows) for source, rows in ranked.items()}

    def _allowed(self, pair: Pair, rows: Rows) -> list[str]:
        kept: list[str] = []
        for row in rows:
            tool_id = self.ids[int(row)]
            if tool_id in pair.relevant or any(
                self.near_duplicate(good, tool_id) for good in (pair.gold, *pair.relevant) if good in self.pool.tools
            ):
                continue
            kept.append(tool_id)
            if len(kept) == DEPTH:
                break
        return kept

    def _words_of(self, tool_id: str) -> frozenset[int]:
        tool = self.pool.tools[tool_id]
        return frozenset(hashes(f"{tool.name} {tool.description}"))

    def _kind_of(self, tool_id: str) -> str:
        text = same_text(self.pool.tools[tool_id].description)
        return text if len(text) >= _SAID else f"id {tool_id}"


def _top(scores: Floats) -> Rows:
    """Rows with a score above 0, best first; some more than ``DEPTH``, since not all will be allowed."""
    size = min(4 * DEPTH, len(scores))
    rows = np.argpartition(-scores, size - 1)[:size]
    rows = rows[scores[rows] > 0]
    return rows[np.lexsort((rows, -scores[rows]))]


def draw_negatives(found: dict[str, list[str]], sources: Sequence[str], count: int, draw: random.Random) -> list[str]:
    """``count`` different negatives: a source is drawn, then one of its tools; fewer where all are spent.

    The harder half is drawn seven times in ten: far down a list the tools have no more than a word in common.
    """
    left = {source: list(found.get(source, ())) for source in sources}
    chosen: list[str] = []
    while len(chosen) < count:
        usable = [source for source in sources if left[source]]
        if not usable:
            break
        pile = left[draw.choice(usable)]
        tool_id = pile.pop(int(len(pile) * draw.random() ** 2))
        if tool_id not in chosen:
            chosen.append(tool_id)
    return chosen
