"""Four bits for four dimensions: the nearest rows of a large pool, proposed from codes a thirty-second of their size.

Product quantisation (Jegou, Douze and Schmid, PAMI 2011): a vector is cut into pieces of four numbers, and each piece
is named by the nearest of 16 centroids. A query's products with all centroids are looked up for 32 rows at once in
vector registers (Andre, Kermarrec and Le Scouarnec's fast scan, VLDB 2015), so that every row of a million is looked
at, and the best are scored again from their full codes. Looking at all rows beats inverted lists here: a request is
far from the tools that serve it, and these lie in many lists.
"""

from __future__ import annotations

import threading
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.index.table import Table
from toolscout.index.vectors import Floats, Rows, VectorStore

Packed = npt.NDArray[np.uint8]

CODES_FILE = "compressed.codes.npy"
PROPOSED = 2000
"""Rows that the compressed codes propose; they are scored again from the full ones."""

_PIECE = 4
_TRAIN_ROWS = 30_000
_CHUNK = 16_384
_RETRAIN = 2.0
"""The centroids are learned again when the pool is this many times as large as when they were."""


def write_codes(folder: Path, store: VectorStore, previous: Path | None = None, old: Rows | None = None) -> None:
    """Write the codes of a store's rows, and what they mean, to a generation's folder.

    ``previous`` is the folder of a generation that may have codes; ``old`` says which of its rows each row is, -1 for
    none. Its codes are copied, and its centroids used for the other rows, until the pool has doubled.
    """
    size, dim = store.codes.shape
    before = read_codes(previous, dim) if previous is not None and old is not None else None
    if before is not None and size < _RETRAIN * before.trained:
        quantiser, trained = before.quantiser(), before.trained
    else:
        before, old = None, None
        quantiser, trained = _train(store), size
    with Table(folder) as table:
        for start in range(0, size, _CHUNK):
            rows = np.arange(start, min(start + _CHUNK, size))
            if before is None or old is None:
                codes = quantiser.compute_codes(store.floats(rows))
            else:
                known = old[rows]
                codes = before.codes[np.maximum(known, 0)]
                fresh = rows[known < 0]
                if len(fresh):
                    codes[known < 0] = quantiser.compute_codes(store.floats(fresh))
            table.append(CODES_FILE.removesuffix(".npy"), codes)
    np.save(folder / "compressed.centroids.npy", _centroids(quantiser))
    np.save(folder / "compressed.trained.npy", np.array([trained], dtype=np.int64))


def _train(store: VectorStore) -> Any:
    size, dim = store.codes.shape
    quantiser = _quantiser(dim)
    quantiser.cp.min_points_per_centroid = 1
    rows = np.random.default_rng(0).choice(size, min(size, _TRAIN_ROWS), replace=False)
    # Of a pool smaller than the 16 centroids, rows are taken more than once.
    quantiser.train(store.floats(np.resize(np.sort(rows), max(len(rows), 64))))
    return quantiser


def _quantiser(dim: int) -> Any:
    import faiss

    piece = next(p for p in (_PIECE, 2, 1) if dim % p == 0)
    return faiss.ProductQuantizer(dim, dim // piece, 4)


def _centroids(quantiser: Any) -> Floats:
    import faiss

    values: Floats = faiss.vector_to_array(quantiser.centroids)
    return values


class Compressed:
    """Codes of a generation: uint8 [n, pieces / 2], memory-mapped until they are first searched."""

    def __init__(self, codes: Packed, centroids: Floats, dim: int, trained: int) -> None:
        self.codes, self.centroids, self.dim, self.trained = codes, centroids, dim, trained
        self._lock = threading.Lock()
        self._index: Any = None

    def quantiser(self) -> Any:
        """The quantiser that made the codes."""
        import faiss

        quantiser = _quantiser(self.dim)
        faiss.copy_array_to_vector(np.ascontiguousarray(self.centroids), quantiser.centroids)
        return quantiser

    def nearest(self, query: Floats, k: int, store: VectorStore) -> Rows:
        """Up to ``k`` rows nearest to a query float32 [dim], in no order; ``store`` holds the same rows' full codes."""
        with self._lock:
            if self._index is None:
                self._index = on_gpu(store) if gpus() else self._fast_scan()
        most = min(max(PROPOSED, k), len(self.codes))
        with self._lock if gpus() else nullcontext():  # a GPU's scratch memory is for one search at a time
            rows = self._index.search(query[None, :], most)[1][0]
        rows = np.sort(rows[rows >= 0])
        if len(rows) <= k:
            return rows
        best: Rows = rows[np.argpartition(store.scores(query, rows), -k)[-k:]]
        return best

    def _fast_scan(self) -> Any:
        import faiss

        quantiser = self.quantiser()
        plain = faiss.IndexPQ(self.dim, quantiser.M, 4, faiss.METRIC_INNER_PRODUCT)
        plain.pq, plain.is_trained, plain.ntotal = quantiser, True, len(self.codes)
        faiss.copy_array_to_vector(np.ascontiguousarray(self.codes).ravel(), plain.codes)
        scan: Any = faiss.IndexPQFastScan  # its stub knows one of its three forms
        return scan(plain)


def gpus() -> int:
    """How many GPUs FAISS can use: 0 without one, and without FAISS's GPU build."""
    import faiss

    return int(faiss.get_num_gpus()) if hasattr(faiss, "StandardGpuResources") else 0


def on_gpu(store: VectorStore) -> Any:
    """All rows in half precision on the first GPU, which then looks at them exactly instead of at compressed codes:
    what is proposed is at least as good, and is scored again in the same way."""
    import faiss

    settings = faiss.GpuIndexFlatConfig()
    settings.useFloat16 = True
    index = faiss.GpuIndexFlatIP(faiss.StandardGpuResources(), store.codes.shape[1], settings)
    for start in range(0, len(store), _CHUNK):
        index.add(store.floats(np.arange(start, min(start + _CHUNK, len(store)))))
    return index


def read_codes(folder: Path, dim: int) -> Compressed | None:
    """A generation's codes, memory-mapped; None if it was small enough to need none."""
    if not (folder / CODES_FILE).is_file():
        return None
    codes = np.load(folder / CODES_FILE, mmap_mode="r").view(np.ndarray)
    trained = int(np.load(folder / "compressed.trained.npy")[0])
    return Compressed(codes, np.load(folder / "compressed.centroids.npy"), dim, trained)
