"""Vectors of a snapshot: int8 rows with one scale each, memory-mapped; exact while small, FAISS when large.

Up to ``FLAT_LIMIT`` rows a query is scored against every row by a blocked product (0.7 ms for 11,000 rows of 384 on one
core: near FAISS's flat index, without 40 MB and 0.3 s for importing it). Beyond, FAISS's IVF index
proposes rows and these are scored exactly. int8 rows are a quarter of float32 and change a cosine by about 0.001.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int8]
Rows = npt.NDArray[np.int64]
Ids = npt.NDArray[np.uint64]

FLAT_LIMIT = 50_000
"""Rows up to which every row is scored; above, FAISS's IVF index proposes candidates."""

ANN_FILE = "vectors.faiss"
_BLOCK = 512
_PROBES = 32
_TRAIN_A_LIST = 64


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


def build_ann(folder: Path, store: VectorStore, ids: Ids) -> None:
    """Train and write an IVF index over a store; ``ids`` are the rows' lasting 64-bit names."""
    import faiss

    size, dim = store.codes.shape
    lists = int(4 * size**0.5)
    index = faiss.IndexIVFScalarQuantizer(
        faiss.IndexFlatIP(dim), dim, lists, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    sample = np.random.default_rng(0).choice(size, min(size, _TRAIN_A_LIST * lists), replace=False)
    index.train(store.floats(np.sort(sample)))
    _add(index, store, ids, np.arange(size))
    faiss.write_index(index, str(folder / ANN_FILE))


def update_ann(previous: Path, folder: Path, store: VectorStore, ids: Ids, old_ids: Ids) -> None:
    """Write ``previous``'s index with the rows that went taken out and the new ones added; lists stay as trained.

    A row whose text changed must come with a new id (``ids`` are hashes of id and content).
    """
    import faiss

    index = faiss.read_index(str(previous / ANN_FILE))
    gone = np.setdiff1d(old_ids, ids)
    if len(gone):
        index.remove_ids(faiss.IDSelectorBatch(gone.view(np.int64)))
    _add(index, store, ids, np.flatnonzero(~np.isin(ids, old_ids)))
    faiss.write_index(index, str(folder / ANN_FILE))


def _add(index: Any, store: VectorStore, ids: Ids, rows: Rows) -> None:
    for start in range(0, len(rows), 16_384):
        some = rows[start : start + 16_384]
        index.add_with_ids(store.floats(some), np.ascontiguousarray(ids[some]).view(np.int64))


class AnnIndex:
    """A written IVF index, memory-mapped: proposes the ids nearest to a query."""

    def __init__(self, folder: Path) -> None:
        import faiss

        self._index = faiss.read_index(str(folder / ANN_FILE), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        parameters: Any = faiss.SearchParametersIVF  # its stub does not know its own arguments
        self._params = parameters(nprobe=_PROBES)

    def nearest(self, query: Floats, k: int) -> Ids:
        """Up to ``k`` ids, nearest first."""
        _, found = self._index.search(query[None, :], k, params=self._params)
        ids: Ids = found[0][found[0] != -1].view(np.uint64)
        return ids


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
