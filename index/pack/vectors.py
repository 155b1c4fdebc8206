"""Vectors of a pack: 256 of an encoder's dimensions, four bits each, stored as bit planes.

The first plane holds the signs. A query is compared with the signs of every row by AND and POPCNT, which takes a
millisecond for 50,000 rows, and the rows that come out best are scored from all four planes. What is kept of the
dimensions are the principal components of the pool, turned by a random rotation so that every one of them carries as
much (Gong and Lazebnik, CVPR 2011, without their iterations). Cost in recall: docs/NUMBERS.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]

KEPT = 256
BITS = 4
PROPOSED = 1000
"""Rows that the signs propose, at least; they are scored again from all bits."""

_CLIP = 2.5
"""Standard deviations of a row that its codes span; what lies beyond gets the outermost code."""

_QUERY_BITS = 4
_CHUNK = 16_384
_BYTES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little").astype(np.float32)


def train_rotation(vectors: Floats, seed: int = 0) -> Floats:
    """Learn the rotation float32 [dim, kept] of a pool's vectors float32 [n, dim]."""
    kept = min(KEPT, vectors.shape[1] // 64 * 64) or vectors.shape[1]
    moment = sum(
        (part.T @ part for part in np.array_split(vectors.astype(np.float64), max(1, len(vectors) // _CHUNK))),
        np.zeros((vectors.shape[1], vectors.shape[1])),
    )
    components = np.linalg.eigh(moment)[1][:, ::-1][:, :kept]
    turn = np.linalg.qr(np.random.default_rng(seed).standard_normal((kept, kept)))[0]
    whole_words = ((0, 0), (0, -kept % 64))  # of an encoder of few dimensions: columns of zeros
    return np.ascontiguousarray(np.pad(components @ turn, whole_words), dtype=np.float32)


def pack_vectors(vectors: Floats, rotation: Floats) -> dict[str, Array]:
    """Arrays ``planes`` uint64 [bits, words, n] and ``scales`` float32 [n] of vectors float32 [n, dim]."""
    kept = rotation.shape[1]
    planes = np.zeros((BITS, -(-kept // 64), len(vectors)), dtype=np.uint64)
    scales = np.zeros(len(vectors), dtype=np.float32)
    half = 1 << (BITS - 1)
    for start in range(0, len(vectors), _CHUNK):
        turned = vectors[start : start + _CHUNK] @ rotation
        step = np.maximum(turned.std(axis=1, keepdims=True) * _CLIP / half, 1e-9)
        codes = np.clip(np.floor(turned / step), -half, half - 1)
        middle = codes + 0.5
        # The scale that keeps a row's product with itself: what clipping takes from its length is given back.
        scales[start : start + _CHUNK] = (turned * middle).sum(axis=1) / (middle * middle).sum(axis=1)
        numbers = (codes + half).astype(np.uint8)
        for bit in range(BITS):
            packed = np.packbits((numbers >> (BITS - 1 - bit)) & 1, axis=1, bitorder="little")
            planes[bit, :, start : start + _CHUNK] = packed.view("<u8").T
    return {"planes": planes, "scales": scales}


@dataclass(frozen=True)
class PackedVectors:
    """Rows that `pack_vectors` packed. ``rotation`` is the one they were packed with."""

    planes: Words
    scales: Floats
    rotation: Floats

    def __len__(self) -> int:
        return len(self.scales)

    def scores(self, query: Floats, rows: Rows | None = None) -> Floats:
        """Inner products of a query float32 [dim] with all rows, or with the given ones."""
        turned = query @ self.rotation
        # A code stands for the middle of its step, and codes are stored without their sign.
        middle = np.float32((1 << (BITS - 1)) - 0.5) * turned.sum()
        # What a stored byte, eight dimensions' bits, adds to a product: looked up, not multiplied out.
        sums = (turned.reshape(-1, 8) @ _BYTES.T).ravel()
        places = np.arange(0, len(sums), 256)
        wanted = np.arange(len(self)) if rows is None else rows
        found = np.empty(len(wanted), dtype=np.float32)
        for start in range(0, len(wanted), _CHUNK):
            some = wanted[start : start + _CHUNK]
            products = np.zeros(len(some), dtype=np.float32)
            for bit in range(BITS):
                stored = np.ascontiguousarray(self.planes[bit][:, some].T).view(np.uint8)
                products += sums.take(stored + places).sum(axis=1) * np.float32(1 << (BITS - 1 - bit))
            found[start : start + _CHUNK] = (products - middle) * self.scales[some]
        return found

    def nearest(self, query: Floats, count: int, allowed: npt.NDArray[np.bool_] | None = None) -> Rows:
        """Up to ``count`` rows nearest to a query, of those ``allowed`` (bool [n]), in no order."""
        most = max(PROPOSED, count)
        if allowed is not None and (few := int(allowed.sum())) <= most:
            rows = np.flatnonzero(allowed)
            return rows if few <= count else rows[np.argpartition(-self.scores(query, rows), count)[:count]]
        near = self._signs(query @ self.rotation)
        if allowed is not None:
            near[~allowed] = -np.inf
        rows = np.argpartition(-near, most)[:most] if len(near) > most else np.arange(len(near))
        rows = np.sort(rows[near[rows] > -np.inf])
        if len(rows) <= count:
            return rows
        return rows[np.argpartition(-self.scores(query, rows), count)[:count]]

    def _signs(self, turned: Floats) -> Floats:
        """Inner products with the rows' signs alone, up to a constant: float32 [n]."""
        step = np.abs(turned).max() / (1 << (_QUERY_BITS - 1)) + 1e-9
        half = 1 << (_QUERY_BITS - 1)
        numbers = (np.clip(np.floor(turned / step), -half, half - 1) + half).astype(np.uint8)
        total = np.zeros(len(self), dtype=np.int32)
        signs = self.planes[0]
        for bit in range(_QUERY_BITS):
            plane = np.packbits((numbers >> (_QUERY_BITS - 1 - bit)) & 1, bitorder="little").view("<u8")
            weight = np.int32(1 << (_QUERY_BITS - 1 - bit))
            both = np.zeros(len(self), dtype=np.uint16)
            for word, query_word in zip(signs, plane, strict=True):
                both += np.bitwise_count(word & query_word)
            total += both * weight
        found: Floats = (2 * total - (2 * half - 1) * self._ones).astype(np.float32)
        return found

    @cached_property
    def _ones(self) -> npt.NDArray[np.int32]:
        """Count the set signs of each row: int32 [n]."""
        ones = np.zeros(len(self), dtype=np.int32)
        for word in self.planes[0]:
            ones += np.bitwise_count(word)
        return ones
