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
_MEMO = 30_000

LEAST_SORTS = 3
"""Sorts of words that a sentence in ASCII needs to be judged."""
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
    found: list[str] = []
    for token in raw_tokens(text):
        found += words_of(token)
        if len(found) >= _MAX_TOKENS:
            break
    return found


def raw_tokens(text: str) -> list[str]:
    """The tokens of a text as they are written."""
    special = "/" in text or "@" in text or "\\" in text or _DOTTED.search(text)
    return (_TOKEN if special else _PLAIN).findall(text)


def words_of(token: str) -> tuple[str, ...]:
    """The words of one token."""
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


def word_features(word: str) -> list[int]:
    """Buckets of a word by itself: the word and its parts of four and five letters."""
    found = [crc32(_bytes(word), _OF_WORDS) & _MASK]
    if len(word) == 1 or (word.isascii() and (len(word) < 4 or word[0] == "<")):
        return found
    marked = f"^{word[:60]}$"
    if marked.isascii():
        data = marked.encode()
        for size in (4, 5):
            found += [crc32(data[i : i + size], _OF_PARTS) & _MASK for i in range(len(data) - size + 1)]
        return found
    for size in (4, 5):
        found += [crc32(_bytes(marked[i : i + size]), _OF_PARTS) & _MASK for i in range(len(marked) - size + 1)]
    return found


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


_OF_WORDS, _OF_PARTS = crc32(b"w"), crc32(b"c")
"""Checksums to go on from: a bucket is that of a letter for its sort, and what follows."""


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


_Token = tuple[tuple[tuple[bytes, int, int], ...], int, int, int]
"""A token's words, each with the checksums that its pairs with the next word and the one after go on from; the sum of
the weights of the words by themselves, the number of these, and their sorts."""
_AFTER_START = crc32(b"<s> ")


class _Part:
    """A sentence while its text is judged; what its weights add up to is looked up once, if at all."""

    __slots__ = ("count", "mask", "start", "tokens", "total")

    def __init__(self, tokens: list[_Token], mask: int, start: int) -> None:
        self.tokens, self.mask, self.start = tokens, mask, start
        self.total = self.count = 0


_NO_PART = _Part([], 0, 0)


class Reader:
    """Scores texts with some weights; words and pairs of words are remembered."""

    def __init__(self, given: Weights) -> None:
        self.weights = given
        self._of = memoryview(given.of).cast("b")
        self._tokens: dict[str, _Token] = {}
        self._met: dict[int, float] = {}

    def judge(self, text: str) -> Verdict:
        """The worst of a text's sentences, or of two that follow each other (whose features are counted together).

        What is in ASCII and has fewer than ``LEAST_SORTS`` is passed over: most honest sentences, and few others.
        """
        worst, before = Verdict(UNREAD, 0, 0), _NO_PART
        ascii_text = text.isascii()
        wide = not ascii_text and _WIDE.search(text) is not None
        for start, end in sentences(text):
            sentence = text[start:end]
            part = self._part(sentence, start)
            if part is None:
                continue
            if wide:
                part.mask |= wide_sorts(sentence)
            if not ascii_text or part.mask.bit_count() >= LEAST_SORTS:
                score = self._score(*self._sum(part), part.mask)
                if score > worst.score:
                    worst = Verdict(score, start, end)
            both = part.mask | before.mask
            if before.tokens and (not ascii_text or both.bit_count() >= LEAST_SORTS):
                (total, count), (more, others) = self._sum(part), self._sum(before)
                score = self._score(total + more, count + others, both)
                if score > worst.score:
                    worst = Verdict(score, before.start, end)
            before = part
        return worst

    def _score(self, total: int, count: int, mask: int) -> float:
        met = self._met.get(mask)
        if met is None:
            if len(self._met) >= _MEMO:
                self._met.clear()
            met = self._met[mask] = SORT_VALUE * sum(self._of[bucket] for bucket in meetings(mask))
        return self.weights.bias + self.weights.scale * (total / sqrt(count) + met)

    def _part(self, sentence: str, start: int) -> _Part | None:
        """The words of a sentence and their sorts, before anything is added up; none of one too short."""
        known, found, mask, number = self._tokens, list[_Token](), 0, 0
        for token in raw_tokens(sentence):
            one = known.get(token)
            if one is None:
                one = self._learn(token)
            found.append(one)
            mask |= one[3]
            number += len(one[0])
            if number >= _MAX_TOKENS:
                break
        return _Part(found, mask, start) if number >= LEAST_WORDS else None

    def _sum(self, part: _Part) -> tuple[int, int]:
        """Sum of the weights of a sentence's words and pairs of words, and their number."""
        if part.count:
            return part.total, part.count
        total = count = number = last_apart = 0
        of, after_last, after_other = self._of, _AFTER_START, 0
        for words, weight, features, _ in part.tokens:
            total += weight
            count += features
            for data, beside, apart in words:
                total += of[crc32(data, after_last) & _MASK]
                if number:
                    if number > 1:
                        total += of[crc32(data, after_other) & _MASK]
                    after_other = last_apart
                last_apart, after_last = apart, beside
                number += 1
        total += of[crc32(b"</s>", after_last) & _MASK]
        part.total, part.count = total, count + 2 * number - 1
        return part.total, part.count

    def _learn(self, token: str) -> _Token:
        words = words_of(token)
        buckets = [bucket for word in words for bucket in word_features(word)]
        mask = 0
        for word in words:
            mask |= sorts(word)
        marked = tuple((_bytes(word), crc32(_bytes(f"{word} ")), crc32(_bytes(f"*{word} "))) for word in words)
        found = (marked, sum(self._of[bucket] for bucket in buckets), len(buckets), mask)
        if len(token) <= _MEMO_TOKEN:
            if len(self._tokens) >= _MEMO:
                self._tokens.clear()
            self._tokens[token] = found
        return found


def judges(kind: str, text: str) -> bool:
    """Whether a piece of this kind is read: whatever is long enough to command something."""
    if kind == "unread" or len(text) < 12:
        return False
    return len(text) >= 30 or (kind in ("prose", "parameter") and not text.isascii())


@lru_cache(maxsize=1)
def reader() -> Reader:
    """The reader with the shipped weights."""
    return Reader(weights())
