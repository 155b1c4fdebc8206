"""Vectors of perturbed texts without encoding them: the original's vector, moved as a really encoded copy's was.

Encoding a million texts takes a small machine hours. ``Moves`` is learned from copies that were encoded: each gives the
cosine c with its original b and the unit direction u, at a right angle to b, in which it lies:

    copy = c * b + sqrt(1 - c * c) * u

Another original is moved by a known copy's c and u (u turned to a right angle with that original). So the distances
are those of real perturbations, and the directions lie where real differences between tools lie. Which move a text
gets hangs on the text's hash alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toolscout.eval.wrapped_encoder import WrappedEncoder
from toolscout.index.encoder import Encoder, Kind, Vectors
from toolscout.index.words import hash64

Ids = npt.NDArray[np.uint64]
Rows = npt.NDArray[np.int64]

_MIX = np.uint64(0x9E3779B97F4A7C15)
"""Fibonacci hashing's factor: other bits of a text's hash than those that other parts use."""


@dataclass(frozen=True)
class Moves:
    """Cosines float32 [m] and directions float32 [m, dim] of really encoded copies."""

    cosines: Vectors
    directions: Vectors

    @staticmethod
    def of(originals: Vectors, copies: Vectors) -> Moves:
        """Learn from pairs of unit rows [m, dim]; pairs that are the same vector say nothing and are left out."""
        cosines = np.vecdot(originals, copies)
        rest = copies - cosines[:, None] * originals
        sizes = np.linalg.norm(rest, axis=1)
        kept = sizes > 1e-3
        return Moves(cosines[kept].astype(np.float32), (rest[kept] / sizes[kept, None]).astype(np.float32))

    def __len__(self) -> int:
        return len(self.cosines)

    def apply(self, originals: Vectors, keys: Ids) -> Vectors:
        """Each original [n, dim], moved as its key (a text's hash) says."""
        which = ((keys * _MIX) >> np.uint64(33)) % np.uint64(len(self))
        directions = self.directions[which]
        directions = directions - np.vecdot(directions, originals)[:, None] * originals
        directions /= np.maximum(np.linalg.norm(directions, axis=1, keepdims=True), 1e-6)
        cosines = self.cosines[which][:, None]
        moved: Vectors = (cosines * originals + np.sqrt(1 - np.minimum(cosines, 1) ** 2) * directions).astype(
            np.float32
        )
        return moved


class DerivedEncoder(WrappedEncoder):
    """An encoder that knows for many texts (by ``hash64``) what they were made from, and derives their vectors.

    ``known`` maps a text's hash to its original's row in ``originals`` [n, dim]; ``exact`` are hashes of texts that are
    their original. Every other text, and every query, goes to the encoder that is wrapped.
    """

    def __init__(self, encoder: Encoder, originals: Vectors, known: Ids, rows: Rows, exact: Ids, moves: Moves) -> None:
        super().__init__(encoder)
        self._originals, self._moves = originals, moves
        order = np.argsort(known)
        self._known, self._rows = known[order], rows[order]
        self._exact = np.sort(exact)
        self.derived = 0

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Vectors:
        """Vectors of the texts: float32 [n, dim], rows L2-normalised."""
        if kind == "query" or not texts:
            return self._encoder.encode(texts, kind=kind)
        keys = np.array([hash64(text) for text in texts], dtype=np.uint64)
        places = np.minimum(np.searchsorted(self._known, keys), len(self._known) - 1)
        found = self._known[places] == keys
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        originals = self._originals[self._rows[places[found]]]
        moved = self._moves.apply(originals, keys[found])
        vectors[found] = np.where(np.isin(keys[found], self._exact)[:, None], originals, moved)
        self.derived += int(found.sum())
        others = np.flatnonzero(~found)
        if len(others):
            vectors[others] = self._encoder.encode([texts[i] for i in others.tolist()], kind=kind)
        return vectors
