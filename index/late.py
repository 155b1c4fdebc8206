"""Late interaction: a request against the tokens of a few tools, to put the best of a ranking in a better order.

A tool's score is the mean over the request's tokens of the best cosine with one of the tool's tokens (Khattab and
Zaharia, ColBERT, arXiv 2004.12832). The encoder gives token vectors with the very pass that gives the text's one
vector, so a request costs nothing more to encode. 3 kB a tool lie on disk, mapped; only the rows asked for are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toolscout.index.snapshot import Blobs

Floats = npt.NDArray[np.float32]
Codes = npt.NDArray[np.int8]
Rows = npt.NDArray[np.int64]

_BLOCK = 128
"""Tokens in one matrix product. Larger ones wake BLAS's thread pool, which spins when the cores are busy."""


def quantise(tokens: Floats) -> Codes:
    """L2-normalised token vectors float32 [tokens, dim] as int8: one step is 1/127."""
    codes: Codes = np.rint(tokens * 127.0).astype(np.int8)
    return codes


@dataclass(frozen=True)
class TokenStore:
    """Token vectors of all tools: ``blobs`` row i holds int8 [tokens of tool i, dim]."""

    blobs: Blobs
    dim: int

    def __len__(self) -> int:
        return len(self.blobs) if self.dim else 0

    def similarities(self, query: Floats, rows: Rows) -> Floats:
        """Best cosine of each of the request's tokens, float32 [tokens, dim], with a token of each row: float32
        [rows, tokens]. A row without tokens gets -1."""
        starts, ends = self.blobs.offsets[rows], self.blobs.offsets[rows + 1]
        lengths = ((ends - starts) // self.dim).astype(np.int64)
        best = np.full((len(rows), len(query)), -1.0, dtype=np.float32)
        some = np.flatnonzero(lengths)
        if not len(some) or not len(query):
            return best
        data = np.concatenate([self.blobs.data[starts[i] : ends[i]] for i in some])
        codes = data.view(np.int8).reshape(-1, self.dim)
        cosines = np.empty((len(codes), len(query)), dtype=np.float32)
        columns = np.ascontiguousarray(query.T)
        for start in range(0, len(codes), _BLOCK):
            np.matmul(codes[start : start + _BLOCK].astype(np.float32), columns, out=cosines[start : start + _BLOCK])
        firsts = np.concatenate([[0], np.cumsum(lengths[some])[:-1]])
        best[some] = np.maximum.reduceat(cosines, firsts, axis=0) / np.float32(127.0)
        return best

    def scores(self, query: Floats, rows: Rows) -> Floats:
        """Late interaction of the request with the given rows: float32 [rows], -1 to 1."""
        best = self.similarities(query, rows)
        return best.mean(axis=1, dtype=np.float32) if best.size else np.zeros(len(rows), dtype=np.float32)


def pack(codes: Sequence[Codes]) -> Blobs:
    """Token codes of texts, one after the other."""
    offsets = np.concatenate([[0], np.cumsum([c.size for c in codes])]).astype(np.int64)
    parts = [c.reshape(-1).view(np.uint8) for c in codes]
    return Blobs(np.concatenate(parts) if parts else np.zeros(0, dtype=np.uint8), offsets)
