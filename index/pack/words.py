"""Words of a pack: hashed, the strongest ones of each tool, four bytes each.

A posting is one uint32: the row in the upper 24 bits, its BM25 impact in the lower eight. Of every row the `MOST`
words of the highest impact are kept (static pruning, Carmel et al., SIGIR 2001); the words themselves are not: 32 bits
of their hash are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.index.bm25 import Floats, Hashes, Inverted, WordScores

Array = npt.NDArray[Any]

MOST = 32
_LOW = np.uint64(0xFFFFFFFF)


def pack_words(inverted: Inverted, most: int = MOST) -> dict[str, Array]:
    """Arrays ``terms`` uint32, ``indptr`` int32, ``postings`` uint32, ``idf`` float32, ``scale`` float32 [1]."""
    of_term = np.repeat(np.arange(len(inverted.terms)), np.diff(inverted.indptr))
    order = np.lexsort((-inverted.impacts, inverted.rows))
    ordered = inverted.rows[order]
    first = np.searchsorted(ordered, ordered)
    kept = np.sort(order[np.arange(len(order)) - first < most])
    short = (inverted.terms & _LOW).astype(np.uint32)
    hashes, rows, impacts = short[of_term[kept]], inverted.rows[kept], inverted.impacts[kept]
    scale = max(float(impacts.max(initial=0.0)), 1e-6) / 255
    order = np.lexsort((rows, hashes))
    # Every word is known, though all of its postings may be gone: a word that no tool has tells of an unknown name.
    terms = np.unique(short)
    counts = np.bincount(np.searchsorted(terms, hashes), minlength=len(terms))
    codes = np.maximum(np.rint(impacts / scale), 1).astype(np.uint32)
    idf = np.zeros(len(terms), dtype=np.float32)
    np.maximum.at(idf, np.searchsorted(terms, short), inverted.idf)
    return {
        "terms": terms,
        "indptr": np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
        "postings": ((rows.astype(np.uint32) << 8) | codes)[order],
        "idf": idf,
        "scale": np.array([scale], dtype=np.float32),
    }


class PackedScores(WordScores):
    """A request's words against a pack, as `WordScores`; also which of them a row has."""

    def __init__(self, scores: Floats, terms: Hashes, idf: Floats, postings: Sequence[Array]) -> None:
        """``postings`` are those of each of ``terms``, empty for words that no row has."""
        super().__init__(scores, terms, idf)
        self._postings = postings

    def held(self, row: int) -> Hashes:
        """Those of the request's words that a row has."""
        low = np.uint32(row << 8)
        found = [len(p) > (at := int(np.searchsorted(p, low))) and int(p[at]) >> 8 == row for p in self._postings]
        return self.terms[np.array(found, dtype=np.bool_)]

    def holders(self, rows: npt.NDArray[np.int64]) -> tuple[Array, Array]:
        """Of each of ``terms``, how many of these rows have it, and how many of all."""
        these = np.zeros(len(self.scores), dtype=np.bool_)
        these[rows] = True
        counts = [int(np.count_nonzero(these[postings >> 8])) for postings in self._postings]
        return np.array(counts, dtype=np.int64), np.array([len(p) for p in self._postings], dtype=np.int64)


class PackedWords:
    """Words that `pack_words` packed, for ``size`` rows."""

    def __init__(self, size: int, terms: Array, indptr: Array, postings: Array, idf: Array, scale: Array) -> None:
        self.size, self._terms, self._indptr, self._all, self._idf = size, terms, indptr, postings, idf
        self._scale = np.float32(scale[0]) if len(scale) else np.float32(1)

    def knows(self, words: Sequence[int]) -> bool:
        """Whether any row had any of these words (64-bit hashes), kept or not."""
        wanted = (np.array(words, dtype=np.uint64) & _LOW).astype(np.uint32)
        places = np.minimum(np.searchsorted(self._terms, wanted), max(len(self._terms) - 1, 0))
        return bool(len(self._terms) and (self._terms[places] == wanted).any())

    def score(self, query_terms: Sequence[int]) -> PackedScores:
        """BM25 of every row for a query's word hashes (64 bits); a repeated word counts once."""
        terms = np.unique(np.array(query_terms, dtype=np.uint64))
        scores = np.zeros(self.size, dtype=np.float32)
        idf = np.full(len(terms), np.log1p(max(self.size - 0.5, 0.0) / 1.5), dtype=np.float32)
        postings: list[Array] = []
        for i, wanted in enumerate((terms & _LOW).astype(np.uint32)):
            place = int(np.searchsorted(self._terms, wanted))
            if place == len(self._terms) or self._terms[place] != wanted:
                postings.append(self._all[:0])
                continue
            idf[i] = self._idf[place]
            having = self._all[self._indptr[place] : self._indptr[place + 1]]
            scores[having >> 8] += (having & 255) * self._scale
            postings.append(having)
        return PackedScores(scores, terms, idf, postings)
