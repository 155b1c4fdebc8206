"""Duplicates: near copies of an instruction kept before, found by MinHash and proved by their Jaccard similarity.

MinHash (Broder 1997) over character 5-grams, which need no words and so work in every language; bands of the signature
find candidates, whose true similarity then decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from toolscout.index.words import fold, hash64
from toolscout.records import JsonObject
from toolscout.synth.chain import Outcome
from toolscout.synth.drafts import Draft

_LETTERS = 5
_HASHES, _ROWS = 128, 4
"""32 bands of 4: a pair of similarity 0.8 meets in a band with a probability of 1 - 5e-8, one of 0.5 with 0.87."""


def same_text(text: str) -> str:
    """A text without case, accents, punctuation and spacing: equal ones are the same request."""
    return " ".join("".join(c if c.isalnum() else " " for c in fold(text)).split())


def shingles(text: str) -> frozenset[str]:
    """Character 5-grams of the text's letters and digits; of a shorter one, itself."""
    plain = same_text(text)
    return frozenset(plain[i : i + _LETTERS] for i in range(max(1, len(plain) - _LETTERS + 1)))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Share of common shingles, 0 to 1."""
    return len(one & other) / len(one | other) if one or other else 1.0


class NearCopies:
    """Texts seen so far. Deterministic."""

    def __init__(self) -> None:
        draws = np.random.default_rng(20251028)
        self._times = draws.integers(1 << 32, 1 << 63, _HASHES, dtype=np.uint64) | np.uint64(1)
        self._plus = draws.integers(0, 1 << 63, _HASHES, dtype=np.uint64)
        self._bands: dict[tuple[int, bytes], list[int]] = {}
        self._names: list[str] = []
        self._sets: list[frozenset[str]] = []

    def add(self, name: str, text: str) -> None:
        """Remember a text under a name."""
        found = shingles(text)
        for band in self._bands_of(found):
            self._bands.setdefault(band, []).append(len(self._names))
        self._names.append(name)
        self._sets.append(found)

    def nearest(self, text: str) -> tuple[str, float]:
        """(name, similarity 0 to 1) of the most similar text seen; ("", 0) if none is near."""
        found = shingles(text)
        candidates = {i for band in self._bands_of(found) for i in self._bands.get(band, ())}
        best = max(((jaccard(found, self._sets[i]), -i) for i in candidates), default=None)
        return ("", 0.0) if best is None else (self._names[-best[1]], best[0])

    def near(self, text: str, least: float) -> list[tuple[str, float]]:
        """(name, similarity) of all texts seen that are as similar as ``least``, in their order."""
        found = shingles(text)
        candidates = {i for band in self._bands_of(found) for i in self._bands.get(band, ())}
        alike = ((i, jaccard(found, self._sets[i])) for i in sorted(candidates))
        return [(self._names[i], similarity) for i, similarity in alike if similarity >= least]

    def _bands_of(self, found: Iterable[str]) -> list[tuple[int, bytes]]:
        values = np.array([hash64(s) for s in found], dtype=np.uint64)
        mixed = values[:, None] * self._times + self._plus  # modulo 2**64; the high bits are the well mixed ones
        signature: npt.NDArray[np.uint64] = (mixed >> np.uint64(24)).min(axis=0)
        return [(at, signature[at : at + _ROWS].tobytes()) for at in range(0, _HASHES, _ROWS)]


class Duplicates:
    """Of near copies the first one stays."""

    name = "duplicates"

    def __init__(self, threshold: float) -> None:
        self.threshold = threshold

    def decides(self) -> JsonObject:
        """See `Sweep`."""
        return {"from": self.threshold}

    def sweep(self, items: Sequence[Draft]) -> list[Outcome]:
        """See `Sweep`."""
        seen = NearCopies()
        outcomes = []
        for item in items:
            name, near = seen.nearest(item.text)
            if name and near >= self.threshold:
                outcomes.append(Outcome.drop("near copy", f"{near:.2f} of {name}", item.text))
                continue
            seen.add(item.id, item.text)
            outcomes.append(Outcome([item]))
        return outcomes
