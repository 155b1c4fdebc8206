"""Fielded BM25 over flat, memory-mapped arrays.

Robertson, Zaragoza and Taylor's BM25F (CIKM 2004): counts of a word in the fields of a document are length-normalised
and weighted field by field, summed, and only then saturated:

    tf(w, d)    = sum over fields f of weight_f * count_f(w, d) / (1 - b_f + b_f * length_f(d) / average length_f)
    score(q, d) = sum over words w of q of idf(w) * tf(w, d) * (k1 + 1) / (tf(w, d) + k1)

Two forms are stored. The forward form (a row's words and raw counts) is what an incremental build copies; the inverted
form (a word's rows and ready impacts) is what a query reads. Words are 64-bit hashes; a collision among a million
different words has a chance of 3 in 100 million.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.index.document import FIELDS
from toolscout.index.words import hashes

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[np.int32]
Hashes = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]
Counts = npt.NDArray[np.uint8]
Lengths = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class Bm25Weights:
    """Parameters of the formula above; weights and length normalisation in the order of ``document.FIELDS``."""

    k1: float = 1.2
    weights: tuple[float, ...] = (2.0, 1.0, 0.5, 1.0)
    b: tuple[float, ...] = (0.3, 0.7, 0.7, 0.3)


def _mapped(path: Path) -> npt.NDArray[Any]:
    """A file's array, memory-mapped; as a plain array, whose slices are cheaper than a memmap's."""
    return np.asarray(np.load(path, mmap_mode="r"))


@dataclass(frozen=True)
class Forward:
    """Rows' words: ``indptr`` int64 [rows + 1], ``terms`` uint64 [nnz], ``counts`` uint8 [nnz, fields], ``lengths``
    uint16 [rows, fields] (words of a field, not different ones)."""

    indptr: Ints
    terms: Hashes
    counts: Counts
    lengths: Lengths

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def row(self, i: int) -> Hashes:
        """The different words of row ``i``."""
        return self.terms[self.indptr[i] : self.indptr[i + 1]]

    def take(self, rows: Ints) -> Forward:
        """The given rows, in that order."""
        sizes = (self.indptr[1:] - self.indptr[:-1])[rows]
        indptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        where = np.repeat(self.indptr[:-1][rows] - indptr[:-1], sizes) + np.arange(indptr[-1])
        return Forward(indptr, self.terms[where], self.counts[where], self.lengths[rows])

    @staticmethod
    def join(parts: Sequence[Forward]) -> Forward:
        """All parts' rows, one part after the other."""
        sizes = np.concatenate([p.indptr[1:] - p.indptr[:-1] for p in parts])
        return Forward(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate([p.terms for p in parts]),
            np.concatenate([p.counts for p in parts]),
            np.concatenate([p.lengths for p in parts]),
        )

    @staticmethod
    def of(documents: Iterable[Mapping[str, str]]) -> Forward:
        """Count the words of documents given as field -> text."""
        terms: list[Hashes] = []
        counts: list[Counts] = []
        lengths: list[list[int]] = []
        for document in documents:
            found = [hashes(document.get(name, "")) for name in FIELDS]
            lengths.append([min(len(f), 65535) for f in found])
            everything = np.array([h for f in found for h in f], dtype=np.uint64)
            places = np.repeat(np.arange(len(FIELDS)), [len(f) for f in found])
            different, inverse = np.unique(everything, return_inverse=True)
            table = np.zeros((len(different), len(FIELDS)), dtype=np.int64)
            np.add.at(table, (inverse, places), 1)
            terms.append(different)
            counts.append(np.minimum(table, 255).astype(np.uint8))
        sizes = [len(t) for t in terms]
        return Forward(
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate([*terms, np.zeros(0, np.uint64)]),
            np.concatenate([*counts, np.zeros((0, len(FIELDS)), np.uint8)]),
            np.array(lengths, dtype=np.uint16).reshape(-1, len(FIELDS)),
        )

    def save(self, folder: Path) -> None:
        """Write the arrays as ``forward.*.npy``."""
        for name in ("indptr", "terms", "counts", "lengths"):
            np.save(folder / f"forward.{name}.npy", getattr(self, name))

    @staticmethod
    def load(folder: Path) -> Forward:
        """Memory-map what ``save`` wrote."""
        parts = [_mapped(folder / f"forward.{n}.npy") for n in ("indptr", "terms", "counts", "lengths")]
        return Forward(*parts)


@dataclass(frozen=True)
class WordScores:
    """A query's words against the index: BM25 ``scores`` float32 [rows]; ``terms`` are the query's different words,
    ``idf`` theirs (words that no row has get the idf of a word that one row has)."""

    scores: Floats
    terms: Hashes = field(default_factory=lambda: np.zeros(0, np.uint64))
    idf: Floats = field(default_factory=lambda: np.zeros(0, np.float32))


@dataclass(frozen=True)
class Inverted:
    """Words' rows: ``terms`` uint64 [words] sorted, ``indptr`` int64 [words + 1], ``rows`` int32 [nnz], ``impacts``
    float32 [nnz] (idf included), ``idf`` float32 [words]."""

    size: int
    terms: Hashes
    indptr: Ints
    rows: Rows
    impacts: Floats
    idf: Floats

    @staticmethod
    def of(forward: Forward, weights: Bm25Weights) -> Inverted:
        """Invert the forward form and compute every impact."""
        size = len(forward)
        average = np.maximum(forward.lengths.astype(np.float64).mean(axis=0) if size else np.ones(len(FIELDS)), 1e-9)
        b = np.array(weights.b)
        norms = np.array(weights.weights) / (1.0 - b + b * forward.lengths / average)
        row_of = np.repeat(np.arange(size, dtype=np.int32), np.diff(forward.indptr))
        tf = np.zeros(len(forward.terms), dtype=np.float32)
        for f in range(len(FIELDS)):
            tf += forward.counts[:, f] * norms[:, f].astype(np.float32)[row_of]
        order = np.argsort(forward.terms, kind="stable")
        ordered = forward.terms[order]
        starts = (
            np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(ordered) else np.zeros(0, int)
        )
        indptr = np.concatenate([starts, [len(ordered)]]).astype(np.int64)
        frequency = np.diff(indptr)
        idf = np.log1p((size - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
        tf = tf[order]
        impacts = (tf * (weights.k1 + 1.0) / (tf + weights.k1) * np.repeat(idf, frequency)).astype(np.float32)
        return Inverted(size, ordered[starts], indptr, row_of[order], impacts, idf)

    def score(self, query_terms: Sequence[int]) -> WordScores:
        """BM25 of every row for a query's word hashes; a repeated word counts once."""
        scores = np.zeros(self.size, dtype=np.float32)
        terms = np.unique(np.array(query_terms, dtype=np.uint64))
        if not len(terms) or not self.size:
            return WordScores(scores, terms, np.zeros(len(terms), np.float32))
        unknown = np.float32(np.log1p((self.size - 0.5) / 1.5))
        idf = np.full(len(terms), unknown, dtype=np.float32)
        if len(self.terms):
            places = np.searchsorted(self.terms, terms)
            for i, (term, place) in enumerate(zip(terms, places, strict=True)):
                if place == len(self.terms) or self.terms[place] != term:
                    continue
                start, end = self.indptr[place], self.indptr[place + 1]
                scores[self.rows[start:end]] += self.impacts[start:end]
                idf[i] = self.idf[place]
        return WordScores(scores, terms, idf)

    def save(self, folder: Path) -> None:
        """Write the arrays as ``inverted.*.npy``."""
        for name in ("terms", "indptr", "rows", "impacts", "idf"):
            np.save(folder / f"inverted.{name}.npy", getattr(self, name))

    @staticmethod
    def load(folder: Path, size: int) -> Inverted:
        """Memory-map what ``save`` wrote."""
        names = ("terms", "indptr", "rows", "impacts", "idf")
        return Inverted(size, *(_mapped(folder / f"inverted.{n}.npy") for n in names))
