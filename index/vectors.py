"""Vectors of a snapshot: int8 rows with one scale each, memory-mapped.

Up to ``FLAT_LIMIT`` rows a query is scored against every row by a blocked product (0.7 ms for 11,000 rows of 384 on one
core: near FAISS's flat index, without 40 MB and 0.3 s for importing it). Beyond, ``compressed`` proposes rows and these
are scored here. int8 rows are a quarter of float32 and change a cosine by about 0.001.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int8]
Rows = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint64]

FLAT_LIMIT = 20_000
"""Rows up to which every row is scored; above, compressed codes propose candidates. There they take half the time, and
below not enough less to be worth the 40 MB of FAISS (`benchmarks/index_types.py`)."""

_BLOCK = 512


@dataclass(frozen=True)
class VectorStore:
    """``codes`` int8 [n, dim], ``scales`` float32 [n]: row i is codes[i] * scales[i]."""

    codes: Codes
    scales: Floats

    def __len__(self) -> int:
        return len(self.codes)

    @staticmethod
    def of(vectors: Floats) -> VectorStore:
        """Quantise float32 [n, dim] rows."""
        scales = (np.maximum(np.abs(vectors).max(axis=1, initial=0.0), 1e-12) / 127.0).astype(np.float32)
        codes = np.rint(vectors / scales[:, None]).astype(np.int8)
        return VectorStore(codes, scales)

    def take(self, rows: Rows) -> VectorStore:
        """The given rows, in that order."""
        return VectorStore(self.codes[rows], self.scales[rows])

    @staticmethod
    def join(parts: Sequence[VectorStore]) -> VectorStore:
        """All parts' rows, one part after the other."""
        return VectorStore(np.concatenate([p.codes for p in parts]), np.concatenate([p.scales for p in parts]))

    def floats(self, rows: Rows) -> Floats:
        """The given rows as float32 [len(rows), dim]."""
        values: Floats = self.codes[rows].astype(np.float32) * self.scales[rows][:, None]
        return values

    def scores(self, query: Floats, rows: Rows | None = None) -> Floats:
        """Inner products of a query float32 [dim] with all rows, or with the given ones."""
        size = len(self) if rows is None else len(rows)
        scores = np.empty(size, dtype=np.float32)
        block = np.empty((min(_BLOCK, size), len(query)), dtype=np.float32)
        for start in range(0, size, _BLOCK):
            end = min(start + _BLOCK, size)
            part = self.codes[start:end] if rows is None else self.codes[rows[start:end]]
            block[: end - start] = part
            # vecdot stays on this thread; a matrix product would wake BLAS's pool, which spins when cores are busy.
            np.vecdot(block[: end - start], query, out=scores[start:end])
        scores *= self.scales if rows is None else self.scales[rows]
        return scores


def rows_of(ids: Ids, wanted: Ids) -> Rows:
    """Rows of ``wanted`` in ``ids`` (unsorted), -1 where absent."""
    order = np.argsort(ids)
    return lookup(ids[order], order, wanted)


def lookup(ordered: Ids, order: Rows, wanted: Ids) -> Rows:
    """As ``rows_of``, with ``ordered = ids[order]`` sorted already."""
    if not len(ordered):
        return np.full(len(wanted), -1, dtype=np.int64)
    places = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[places] == wanted, order[places], -1).astype(np.int64)
