"""A learned second reader: how much a sentence sounds like one that commands a model, by its words and their parts.

Word rules find what their author thought of. This is a logistic regression over hashed words, neighbouring words and
parts of words (the "hashing trick" of Weinberger et al. 2009), and over which sorts of words (`vocabulary`) meet,
fitted on poisoned tools against sentences of honest ones by ``finetune/fit_guard.py``. A score is a sum over words, so
that one look-up a word is all that it costs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from math import sqrt
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from toolscout.index.guard.rules import sentences
from toolscout.index.guard.vocabulary import ALL, sorts, wide_sorts

BITS = 16
"""Weights are 2 to this power."""
WEIGHTS = Path(__file__).with_name("learned.npz")

BUCKETS = 1 << BITS
_MASK = BUCKETS - 1
SORT_VALUE = 0.25
"""What one meeting of sorts counts, where a word counts one through the root of their number."""
_TOKEN = re.compile(
    r"https?://\S+|[\w.+-]+@[\w-]+\.[\w.]+|\b(?:[a-zA-Z0-9-]+\.)+(?:example|invalid|test|com|net|org|io|dev|app|ai)\b|(?:~|\$HOME|%\w+%|/(?:home|etc|root|users|var))[/\\][^\s,;)\"'`]*|\w+|[?!:{}<>]"
)
_PLAIN = re.compile(r"\w+|[?!:{}<>]")
_DOTTED = re.compile(r"[\w-]\.[a-zA-Z0-9-]")
"""Without a slash, an at sign or such a dot, the one pattern finds what the other does."""
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WIDE = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
"""Scripts whose words are short or not parted."""
_MAX_TOKENS = 4_000
_MEMO_TOKEN = 40
_MEMO, _MEMO_PAIRS = 30_000, 100_000

LEAST_WORDS = 3
"""Words of the shortest sentence that is judged."""


class Weights(NamedTuple):
    """``of``: one signed byte a bucket, to be multiplied by ``scale``; ``least``: log-odds from which it is held."""

    of: bytes
    scale: float
    bias: float
    least: float


@lru_cache(maxsize=1)
def weights() -> Weights:
    """The shipped weights."""
    import numpy as np

    with np.load(WEIGHTS) as kept:
        of = kept["of"].astype(np.int8).tobytes()
        return Weights(of, float(kept["scale"]), float(kept["bias"]), float(kept["least"]))


def tokens(text: str) -> list[str]:
    """The words of a text, folded; addresses, mail addresses, paths and numbers are each one word of their own."""
    special = "/" in text or "@" in text or "\\" in text or _DOTTED.search(text)
    found: list[str] = []
    for token in (_TOKEN if special else _PLAIN).findall(text):
        known = _normal(token) if len(token) <= _MEMO_TOKEN else _words_of(token)
        found += known
        if len(found) >= _MAX_TOKENS:
            break
    return found


def _words_of(token: str) -> tuple[str, ...]:
    if token.isalpha() and token.isascii() and (token.islower() or token[1:].islower() or token.isupper()):
        return (token.casefold(),)
    if token.startswith("http") and "://" in token:
        return ("<url>",)
    if "@" in token:
        return ("<mail>",)
    if token[0] in "~$%/":
        return ("<path>",)
    if "." in token:
        return ("<url>",)
    if token.isdigit():
        return ("0",)
    if not token.isascii() and _WIDE.search(token):
        return tuple(token)  # sign by sign: no spaces say where words end
    if token.isalpha() and (token.islower() or token[1:].islower() or token.isupper()):
        return (token.casefold(),)
    if len(token) == 1:
        return (token,)
    return ("<id>", *(w for part in token.split("_") for w in _CAMEL.sub(" ", part).casefold().split()))


_normal = lru_cache(maxsize=30_000)(_words_of)


def word_features(word: str) -> list[int]:
    """Buckets of a word by itself: the word and its parts of four and five letters."""
    found = [crc32(b"w" + word.encode("utf-8", "surrogatepass")) & _MASK]
    if word.isascii() and (len(word) < 4 or word[0] == "<"):
        return found
    marked = f"^{word[:60]}$"
    if len(word) == 1:
        return found
    found += [
        crc32(b"c" + marked[i : i + size].encode("utf-8", "surrogatepass")) & _MASK
        for size in (4, 5)
        for i in range(len(marked) - size + 1)
    ]
    return found


def pair_features(first: str, second: str, gap: str) -> int:
    """The bucket of two words: neighbours (``gap`` empty), or with another one between them."""
    return crc32(f"{gap}{first} {second}".encode("utf-8", "surrogatepass")) & _MASK


def sorts_of(text: str, words: list[str]) -> int:
    """The sorts of words in a sentence, a bit each."""
    found = 0
    for word in words:
        found |= sorts(word)
    return found if text.isascii() or not _WIDE.search(text) else found | wide_sorts(text)


@lru_cache(maxsize=8192)
def meetings(mask: int) -> tuple[int, ...]:
    """Buckets, behind those of words, of each sort that is met, and of each two and three that meet."""
    there = [i for i in range(_SORTS) if mask >> i & 1]
    found = [BUCKETS + i for i in there]
    for at, i in enumerate(there):
        for after, j in enumerate(there[at + 1 :], at + 1):
            found.append(BUCKETS + (i + 1) * _SORTS + j)
            found += [BUCKETS + ((i + 1) * _SORTS + j + 1) * _SORTS + k for k in there[after + 1 :]]
    return tuple(found)


_SORTS = len(ALL)
SIZE = BUCKETS + _SORTS * (_SORTS + 1) * (_SORTS + 1)
"""Weights in all."""


def pairs(words: list[str]) -> list[tuple[str, str, str]]:
    """Words of a sentence that stand side by side, its ends included, and those with one between them."""
    marked = ["<s>", *words, "</s>"]
    beside = [(a, b, "") for a, b in zip(marked, [*words, "</s>"], strict=False)]
    return beside + [(a, b, "*") for a, b in zip(words, words[2:], strict=False)]


UNREAD = -99.0
"""The score of a text with no sentence long enough to be judged."""


class Verdict(NamedTuple):
    """The most suspicious place of a text: its log-odds, where it starts and ends."""

    score: float
    start: int
    end: int


class Reader:
    """Scores texts with some weights; words and pairs of words are remembered."""

    def __init__(self, given: Weights) -> None:
        self.weights = given
        self._of = memoryview(given.of).cast("b")
        self._words: dict[str, tuple[int, int, int]] = {}
        self._pairs: dict[tuple[str, str, str], int] = {}
        self._met: dict[int, float] = {}

    def judge(self, text: str) -> Verdict:
        """The worst of a text's sentences, or of two that follow each other (whose features are counted together)."""
        worst, before = Verdict(UNREAD, 0, 0), (0, 0, 0, 0)
        wide = not text.isascii() and _WIDE.search(text) is not None
        for start, end in sentences(text):
            sentence = text[start:end]
            total, count, mask = self._sum(tokens(sentence))
            if not count:
                continue
            if wide:
                mask |= wide_sorts(sentence)
            score = self._score(total, count, mask)
            if score > worst.score:
                worst = Verdict(score, start, end)
            if before[1]:
                score = self._score(total + before[0], count + before[1], mask | before[2])
                if score > worst.score:
                    worst = Verdict(score, before[3], end)
            before = (total, count, mask, start)
        return worst

    def _score(self, total: int, count: int, mask: int) -> float:
        met = self._met.get(mask)
        if met is None:
            if len(self._met) >= _MEMO:
                self._met.clear()
            met = self._met[mask] = SORT_VALUE * sum(self._of[bucket] for bucket in meetings(mask))
        return self.weights.bias + self.weights.scale * (total / sqrt(count) + met)

    def _sum(self, words: list[str]) -> tuple[int, int, int]:
        """Sum of the weights of a sentence's features, their number, and its sorts; 0 of one too short."""
        if len(words) < LEAST_WORDS:
            return 0, 0, 0
        total = count = mask = 0
        known = self._words
        for word in words:
            one = known.get(word)
            if one is None:
                one = self._learn(word)
            total += one[0]
            count += one[1]
            mask |= one[2]
        beside = self._pairs
        of = self._of
        both = pairs(words)
        for pair in both:
            weight = beside.get(pair)
            if weight is None:
                weight = of[pair_features(*pair)]
                if len(beside) >= _MEMO_PAIRS:
                    beside.clear()
                beside[pair] = weight
            total += weight
        return total, count + len(both), mask

    def _learn(self, word: str) -> tuple[int, int, int]:
        buckets = word_features(word)
        found = (sum(self._of[bucket] for bucket in buckets), len(buckets), sorts(word))
        if len(self._words) >= _MEMO:
            self._words.clear()
        self._words[word] = found
        return found


def judges(kind: str, text: str) -> bool:
    """Whether a piece of this kind is read: names and values only when they are long enough to be sentences."""
    return kind != "unread" and len(text) >= (12 if kind in ("prose", "parameter") else 24)


@lru_cache(maxsize=1)
def reader() -> Reader:
    """The reader with the shipped weights."""
    return Reader(weights())
