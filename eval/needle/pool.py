"""Searching parts of one index as if each part were an index of its own.

The experiments over growing pools ask the same request over dozens of pools. Rebuilding an index for each would encode
and invert the same texts again and again; here one index of all tools is built, and a pool is a set of its rows.
Vectors, names and servers' texts do not depend on what else is in the pool. Words do: their rarity and the average
lengths of BM25 are of the whole pool. So the word scores are computed again over the pool's rows, by the formula and in
the order of `toolscout.index.bm25`, and the ranking itself is the product's own (`SearchIndex.rank`). A test builds the
small index as well and finds the same rows, scores and probabilities.

Above `vectors.FLAT_LIMIT` tools the product proposes candidates by compressed codes; a pool here is scored whole.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.eval.retrieval.measure import RANK_DEPTH, RetrievalFiles, _build_apart
from toolscout.eval.rows import Say, check_files, silent
from toolscout.index import fusion
from toolscout.index.bm25 import Bm25Weights, Forward, WordScores
from toolscout.index.search import Ask, Ranking, SearchIndex, ToolRequest
from toolscout.index.storage import GenerationStorage
from toolscout.index.words import has_words, hashes
from toolscout.settings import Settings

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


class PoolWords:
    """BM25 of a request over some rows of an index, with the word statistics of these rows alone."""

    def __init__(self, forward: Forward, weights: Bm25Weights | None = None) -> None:
        self._weights = weights or Bm25Weights()
        self._lengths = np.asarray(forward.lengths)
        order = np.argsort(forward.terms, kind="stable")
        self._terms = forward.terms[order]
        row_of = np.repeat(np.arange(len(forward), dtype=np.int64), np.diff(forward.indptr))
        self._row_of, self._counts = row_of[order], forward.counts[order]

    def having(self, words: Sequence[int]) -> Mask:
        """Which rows hold at least one of the words (hashes): bool [rows]."""
        found = np.zeros(len(self._lengths), dtype=np.bool_)
        for term in np.unique(np.array(words, dtype=np.uint64)):
            found[self._row_of[self._place(term)]] = True
        return found

    def score(self, words: Sequence[int], pool: Mask) -> WordScores:
        """As `Inverted.score` of an index that holds only the rows of ``pool``; zero outside of it."""
        terms = np.unique(np.array(words, dtype=np.uint64))
        scores = np.zeros(len(self._lengths), dtype=np.float32)
        size = int(pool.sum())
        if not len(terms) or not size:
            return WordScores(scores, terms, np.zeros(len(terms), dtype=np.float32))
        average = np.maximum(self._lengths[pool].sum(axis=0, dtype=np.int64) / size, 1e-9)
        b, k1 = np.array(self._weights.b), np.float32(self._weights.k1)
        idf = np.full(len(terms), np.log1p((size - 0.5) / 1.5), dtype=np.float32)
        parts = []
        for number, term in enumerate(terms):
            place = self._place(term)
            rows = self._row_of[place]
            inside = pool[rows]
            rows, counts = rows[inside], self._counts[place][inside]
            if not len(rows):
                continue
            idf[number] = np.log1p((size - len(rows) + 0.5) / (len(rows) + 0.5))
            norms = (np.array(self._weights.weights) / (1.0 - b + b * self._lengths[rows] / average)).astype(np.float32)
            tf = np.einsum("ij,ij->i", counts.astype(np.float32), norms)
            parts.append((rows, tf * (k1 + 1) / (tf + k1) * idf[number]))
        # Rare words first, as the index adds them up: the same sums to the last bit.
        for rows, impacts in sorted(parts, key=lambda part: len(part[0])):
            scores[rows] += impacts
        return WordScores(scores, terms, idf)

    def _place(self, term: np.uint64) -> slice:
        return slice(int(np.searchsorted(self._terms, term)), int(np.searchsorted(self._terms, term, "right")))


@dataclass(frozen=True)
class Found:
    """What a search over a pool came to: ``rows`` best first; whether it ``offers`` them, or says that nothing fits."""

    rows: list[int]
    offers: bool
    probability: float


class Haystack:
    """One index of all tools, searched pool by pool."""

    def __init__(self, index: SearchIndex, tool_ids: Sequence[str]) -> None:
        """``tool_ids`` are all that may be in a pool; ids that the index lacks are left out of ``tool_ids``."""
        self.index = index
        assert isinstance(index.storage, GenerationStorage)
        rows = index.storage.rows_of(tool_ids)
        self.row_of = {tool_id: int(row) for tool_id, row in zip(tool_ids, rows, strict=True) if row >= 0}
        self.id_of = {row: tool_id for tool_id, row in self.row_of.items()}
        self.words = PoolWords(index.storage.forward)

    def mask(self, tool_ids: Sequence[str]) -> Mask:
        """The pool of these tools: bool [rows of the index]."""
        return self.mask_rows(np.array([self.row_of[tool_id] for tool_id in tool_ids], dtype=np.int64))

    def mask_rows(self, rows: Rows) -> Mask:
        """The pool of these rows."""
        mask = np.zeros(len(self.index), dtype=np.bool_)
        mask[rows] = True
        return mask

    def asks(self, query: str | None, requests: Sequence[ToolRequest] = ()) -> list[Ask]:
        """The request, encoded once for all pools: plain, or structured ones. Empty if there is no word in it."""
        given = [(r.server, r.tool) for r in requests]
        asks = [self.index.ask("", *parts) for parts in given if has_words("".join(parts))]
        if query is not None and not given and has_words(query):
            asks.append(self.index.ask(query))
        return asks

    def rank(self, ask: Ask, pool: Mask, depth: int = RANK_DEPTH) -> Ranking:
        """The product's ranking of one request over a pool."""
        inside = Ask(ask.text, ask.tool_vector, ask.server_vector, self.words.score(hashes(ask.text), pool))
        return self.index.rank(inside, pool, depth)

    def find(self, asks: Sequence[Ask], pool: Mask, depth: int = RANK_DEPTH) -> Found:
        """The ``depth`` best rows for all requests together, in turns as `SearchIndex.find` shares them, abstention
        aside."""
        rankings = [self.rank(ask, pool, depth) for ask in asks]
        listed = [ranking.rows.tolist() for ranking in rankings]
        turns = [rows[i] for i in range(max(map(len, listed), default=0)) for rows in listed if i < len(rows)]
        offers = any(len(r.rows) and fusion.offers(r.shape, r.probability, self.index.params) for r in rankings)
        best = max((r.probability for r in rankings), default=0.0)
        return Found(list(dict.fromkeys(turns))[:depth], bool(offers), best)


@contextmanager
def open_haystack(
    files: RetrievalFiles, tool_ids: Sequence[str], settings: Settings, cache: Path | None, say: Say = silent
) -> Iterator[Haystack]:
    """Build one throw-away index of all tools and open it. ``cache`` keeps the embeddings for later runs.

    Raises NotFound for a missing file.
    """
    check_files(files.tools, files.servers)
    with tempfile.TemporaryDirectory(prefix="toolscout-eval-") as home:
        mine = settings.model_copy(update={"home": Path(home), "database": "", "starter": False})
        say(f"building one index of {len(tool_ids):,} tools")
        _build_apart(mine, files, cache)
        index = SearchIndex.open(mine.index_dir, settings=mine)
        try:
            yield Haystack(index, tool_ids)
        finally:
            index.close()
