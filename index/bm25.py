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

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.index.document import FIELDS
from toolscout.index.table import Table
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
        with Table(folder) as table:
            self.append_to(table)

    def append_to(self, table: Table) -> None:
        """Add the rows to the arrays ``forward.*`` of a table."""
        table.append_offsets("forward.indptr", self.indptr)
        for name in ("terms", "counts", "lengths"):
            table.append(f"forward.{name}", getattr(self, name))

    @staticmethod
    def load(folder: Path) -> Forward:
        """Memory-map what ``save`` wrote."""
        parts = [_mapped(folder / f"forward.{n}.npy") for n in ("indptr", "terms", "counts", "lengths")]
        return Forward(*parts)


class WordScores:
    """A query's words against the index: ``terms`` are its different words, ``idf`` theirs (words that no row has get
    the idf of a word that one row has), ``scores`` the BM25 of every row, float32 [rows]."""

    def __init__(self, scores: Floats, terms: Hashes, idf: Floats) -> None:
        self._scores: Floats | None = scores
        self.terms, self.idf = terms, idf

    @property
    def scores(self) -> Floats:
        """BM25 of every row."""
        assert self._scores is not None
        return self._scores

    def at(self, rows: Ints | None) -> Floats:
        """BM25 of some rows (ascending), or of all: float32 [len(rows)]."""
        return self.scores if rows is None else self.scores[rows]

    def top(self, k: int) -> Ints:
        """Rows of the ``k`` highest scores above zero, in no order."""
        return best_rows(self.scores, k)


class LazyScores(WordScores):
    """Scores that are computed as far as they are asked for: see ``top``."""

    def __init__(self, index: Inverted, terms: Hashes, idf: Floats, places: Ints) -> None:
        """``places`` are the known words' places in the index."""
        self.terms, self.idf = terms, idf
        self._index = index
        self._scores = None
        # Rare words first: they narrow down the most, and cost the least.
        sizes = index.indptr[places + 1] - index.indptr[places]
        order = np.argsort(sizes, kind="stable")
        self._places, self._sizes = places[order], sizes[order]
        self._partial = np.zeros(0, dtype=np.float32)
        self._added = 0

    @property
    def scores(self) -> Floats:
        """BM25 of every row; computed when first asked for."""
        if self._scores is None:
            self._add(len(self._places))
            self._scores = self._partial
        return self._scores

    @property
    def words_left(self) -> int:
        """Words whose rows were not visited so far."""
        return len(self._places) - self._added

    def _add(self, upto: int) -> None:
        """Take the words before ``upto`` into the partial scores of all rows."""
        if not len(self._partial):
            self._partial = np.zeros(self._index.size, dtype=np.float32)
        for place in self._places[self._added : upto]:
            rows, impacts = self._index.postings(place)
            self._partial[rows] += impacts
        self._added = max(self._added, upto)

    def top(self, k: int) -> Ints:
        """As for all scores, without visiting every row of frequent words.

        Turtle and Flood's MaxScore (Information Processing & Management 31, 1995): once ``k`` rows have more than all
        words left could add, no row without one of the words so far can come among the best. From there on the words
        left are looked up for the rows that still can, and these get fewer with each word.
        """
        if self._scores is not None:
            return best_rows(self._scores, k)
        left = np.append(np.cumsum(self._index.most[self._places][::-1])[::-1], 0.0)
        frequent = self._sizes > self._index.size // _WORTH_LOOKING
        for i in range(len(self._places)):
            self._add(i + 1)
            if frequent[i + 1 : i + 2].any() and np.count_nonzero(self._partial >= left[i + 1]) >= k:
                break
        floor = self._kth(self._partial[self._partial >= max(left[self._added], _TINY)], k)
        rows = np.flatnonzero(self._partial >= max(floor - left[self._added], _TINY))
        scores = self._partial[rows]
        for i in range(self._added, len(self._places)):
            if self._added == i and _LOOKUP * len(rows) > self._sizes[i]:
                self._add(i + 1)
                scores = self._partial[rows]
            else:
                scores = scores + self._index.impacts_at(self._places[i], rows)
            kept = scores >= self._kth(scores, k) - left[i + 1]
            rows, scores = rows[kept], scores[kept]
        return rows[best_rows(scores, k)]

    @staticmethod
    def _kth(scores: Floats, k: int) -> float:
        """The ``k``-th highest; 0 if there are fewer."""
        return float(np.partition(scores, -k)[-k]) if len(scores) >= k else 0.0

    def at(self, rows: Ints | None) -> Floats:
        """As for all scores; of words that were not needed for ``top``, only these rows are looked up."""
        if rows is None or self._scores is not None or not self._added:
            return super().at(rows)
        scores: Floats = self._partial[rows]
        for place in self._places[self._added :]:
            scores += self._index.impacts_at(place, rows)
        return scores


def best_rows(scores: Floats, k: int) -> Ints:
    """Places of the ``k`` highest scores above zero, in no order."""
    places = np.flatnonzero(scores > 0)
    if len(places) > k:
        places = places[np.argpartition(scores[places], -k)[-k:]]
    return places


@dataclass(frozen=True)
class Inverted:
    """Words' rows: ``terms`` uint64 [words] sorted, ``indptr`` int64 [words + 1], ``rows`` int32 [nnz] ascending in
    each word, ``impacts`` float32 [nnz] (idf included), ``idf`` and ``most`` (greatest impact) float32 [words]."""

    size: int
    terms: Hashes
    indptr: Ints
    rows: Rows
    impacts: Floats
    idf: Floats
    most: Floats

    @staticmethod
    def of(forward: Forward, weights: Bm25Weights) -> Inverted:
        """Invert the forward form and compute every impact."""
        return _invert(forward, weights, lambda name, size, dtype: np.empty(size, dtype=dtype))

    @staticmethod
    def build(forward: Forward, weights: Bm25Weights, folder: Path) -> None:
        """As ``of`` and ``save``, with the large arrays written in place: memory does not grow with the rows."""

        def mapped(name: str, size: int, dtype: type) -> npt.NDArray[Any]:
            if not size:  # a file of nothing cannot be mapped
                return np.empty(0, dtype=dtype)
            return np.lib.format.open_memmap(folder / f"inverted.{name}.npy", "w+", dtype, (size,))

        done = _invert(forward, weights, mapped)
        for name in _PARTS:
            values = getattr(done, name)
            if isinstance(values, np.memmap):
                values.flush()
            else:
                np.save(folder / f"inverted.{name}.npy", values)

    def postings(self, place: int) -> tuple[Rows, Floats]:
        """Rows (ascending) and impacts of the word at a place."""
        start, end = self.indptr[place], self.indptr[place + 1]
        return self.rows[start:end], self.impacts[start:end]

    def impacts_at(self, place: int, rows: Ints) -> Floats:
        """Impact of the word at a place on each of some rows (ascending)."""
        having, impacts = self.postings(place)
        # Of the same type on both sides, or numpy converts all of the word's rows first.
        found = np.minimum(np.searchsorted(having, rows.astype(having.dtype)), len(having) - 1)
        return np.where(having[found] == rows, impacts[found], np.float32(0))

    def score(self, query_terms: Sequence[int]) -> WordScores:
        """BM25 of every row for a query's word hashes; a repeated word counts once."""
        terms = np.unique(np.array(query_terms, dtype=np.uint64))
        if not len(terms) or not self.size:
            return WordScores(np.zeros(self.size, dtype=np.float32), terms, np.zeros(len(terms), np.float32))
        idf = np.full(len(terms), np.log1p((self.size - 0.5) / 1.5), dtype=np.float32)
        if not len(self.terms):
            return WordScores(np.zeros(self.size, dtype=np.float32), terms, idf)
        places = np.minimum(np.searchsorted(self.terms, terms), len(self.terms) - 1)
        known = self.terms[places] == terms
        idf[known] = self.idf[places[known]]
        return LazyScores(self, terms, idf, places[known])

    def save(self, folder: Path) -> None:
        """Write the arrays as ``inverted.*.npy``."""
        for name in _PARTS:
            np.save(folder / f"inverted.{name}.npy", getattr(self, name))

    @staticmethod
    def load(folder: Path, size: int) -> Inverted:
        """Memory-map what ``save`` wrote."""
        return Inverted(size, *(_mapped(folder / f"inverted.{n}.npy") for n in _PARTS))


_PARTS = ("terms", "indptr", "rows", "impacts", "idf", "most")
_CHUNK = 16_384
_TINY = 1e-9
_WORTH_LOOKING = 32
"""Words that fewer than one in so many rows have are cheaper to add than it is to see whether they still matter."""

_LOOKUP = 4
"""Looking up a row in a word's rows costs so many times what adding one of them does."""


def _chunks(forward: Forward) -> Iterator[tuple[int, int, int, int]]:
    """Row ranges, each with the range of its words: ``first, last, start, end``."""
    for first in range(0, len(forward), _CHUNK):
        last = min(first + _CHUNK, len(forward))
        yield first, last, int(forward.indptr[first]), int(forward.indptr[last])


def _invert(forward: Forward, weights: Bm25Weights, make: Callable[[str, int, type], npt.NDArray[Any]]) -> Inverted:
    """A counting sort by word, a chunk of rows at a time: first how often each word occurs, then each posting to its
    place. ``make`` gives the large arrays."""
    size = len(forward)
    total = np.zeros(len(FIELDS), dtype=np.int64)
    vocabulary, frequency = np.zeros(0, np.uint64), np.zeros(0, np.int64)
    for first, last, start, end in _chunks(forward):
        total += forward.lengths[first:last].sum(axis=0, dtype=np.int64)
        words, counts = np.unique(forward.terms[start:end], return_counts=True)
        together, where = np.unique(np.concatenate([vocabulary, words]), return_inverse=True)
        summed = np.zeros(len(together), dtype=np.int64)
        summed[where[: len(vocabulary)]] = frequency
        summed[where[len(vocabulary) :]] += counts
        vocabulary, frequency = together, summed
    average = np.maximum(total / size if size else np.ones(len(FIELDS)), 1e-9)
    indptr = np.concatenate([[0], np.cumsum(frequency)]).astype(np.int64)
    idf = np.log1p((size - frequency + 0.5) / (frequency + 0.5)).astype(np.float32)
    rows, impacts = make("rows", int(indptr[-1]), np.int32), make("impacts", int(indptr[-1]), np.float32)
    most = np.zeros(len(vocabulary), dtype=np.float32)
    following = indptr[:-1].copy()
    b, k1 = np.array(weights.b), np.float32(weights.k1)
    for first, last, start, end in _chunks(forward):
        if start == end:
            continue
        norms = (np.array(weights.weights) / (1.0 - b + b * forward.lengths[first:last] / average)).astype(np.float32)
        row_of = np.repeat(np.arange(last - first), np.diff(forward.indptr[first : last + 1]))
        tf = np.einsum("ij,ij->i", forward.counts[start:end].astype(np.float32), norms[row_of])
        order = np.argsort(forward.terms[start:end], kind="stable")
        ordered = forward.terms[start:end][order]
        starts = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        sizes = np.diff(np.append(starts, len(ordered)))
        places = np.searchsorted(vocabulary, ordered[starts])
        target = np.arange(len(ordered)) + np.repeat(following[places] - starts, sizes)
        tf = tf[order]
        impact = tf * (k1 + 1) / (tf + k1) * np.repeat(idf[places], sizes)
        rows[target] = row_of[order] + first
        impacts[target] = impact
        most[places] = np.maximum(most[places], np.maximum.reduceat(impact, starts))
        following[places] += sizes
    return Inverted(size, vocabulary, indptr, rows, impacts, idf, most)
