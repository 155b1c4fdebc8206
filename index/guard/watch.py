"""One look at the words of a text says which patterns can match in it at all; only those are run.

Most texts of most tools hold no word that any rule needs. The words of a text are looked up one by one, so that what
this costs grows with the text alone, not with the number of patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache

from toolscout.index.guard.needles import EDGE, folded, needles

_WORD = re.compile(r"\w+")
_ASCII = bytes(ord(chr(code).lower()) if _WORD.match(chr(code)) else ord(" ") for code in range(256))
_NO_WORD = re.compile(r"[^\w\s.,'()-]")
"""Characters of marks; none has one of those that are in every text."""
_NEEDLE = re.compile(rf"[\w{EDGE}]+")
_MEMO = 20_000
_MEMO_WORD = 24
"""Words kept with what they mean, and the longest of them: tools share their vocabulary."""
_SHORT = 256
"""Characters of a text up to which it is remembered: the same names and phrases come again from tool to tool."""

Mask = int
"""Which of the needles of which watched patterns are there: a pattern can match where all of its bits are."""


class Watched:
    """A pattern that is run only where a word is that it needs."""

    def __init__(self, pattern: re.Pattern[str], bits: Mask) -> None:
        self.regex, self.bits = pattern, bits

    @property
    def pattern(self) -> str:
        """The pattern's source."""
        return self.regex.pattern

    def possible(self, text: str) -> bool:
        """Whether the pattern might match in the text; ``False`` is certain."""
        return seen(text) & self.bits == self.bits

    def search(self, text: str) -> re.Match[str] | None:
        """As ``re.Pattern.search``."""
        return self.regex.search(text) if self.possible(text) else None

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """As ``re.Pattern.finditer``."""
        return self.regex.finditer(text) if self.possible(text) else iter(())


class _Table:
    """Needles of all watched patterns."""

    def __init__(self) -> None:
        self._bits = 0
        self._words: dict[str, Mask] = {}
        self._marks: dict[str, Mask] = {}
        self._finder: re.Pattern[str] | None = None
        self._memo: dict[str, Mask] = {}

    def add(self, pattern: re.Pattern[str]) -> Mask:
        found, bits = needles(pattern), 0
        for part in dict.fromkeys(found or ()):
            bit = 1 << self._bits
            self._bits, bits = self._bits + 1, bits | bit
            for needle in part:
                table = self._words if _NEEDLE.fullmatch(needle) else self._marks
                table[needle] = table.get(needle, 0) | bit
        self._finder = None
        return bits

    def seen(self, text: str) -> Mask:
        found, memo = 0, self._memo
        for word in _words(text):
            known = memo.get(word)
            found |= self._learn(word) if known is None else known
        if _NO_WORD.search(text):
            for mark, mask in self._marks.items():
                if mark in text:
                    found |= mask
        return found

    def _learn(self, word: str) -> Mask:
        if self._finder is None:
            self._finder = re.compile(f"(?=({_either(self._words)}))")
            self._memo.clear()
        found = 0
        for longest in self._finder.findall(f"{EDGE}{word}{EDGE}"):
            # The shorter needles that it begins with are there as well.
            for end in range(1, len(longest) + 1):
                found |= self._words.get(longest[:end], 0)
        if len(word) <= _MEMO_WORD:
            if len(self._memo) >= _MEMO:
                self._memo.clear()
            self._memo[word] = found
        return found


def _words(text: str) -> set[str]:
    """The words of a text, folded."""
    if text.isascii():
        return set(text.encode().translate(_ASCII).decode().split())
    return set(_WORD.findall(folded(text)))


def _either(needles: Iterable[str]) -> str:
    """A pattern for the longest of some needles that begins at one place: a tree, so that each letter is read once."""
    tails: dict[str, list[str]] = {}
    for needle in needles:
        tails.setdefault(needle[:1], []).append(needle[1:])
    ends = tails.pop("", None) is not None
    branches = "|".join(re.escape(first) + _either(tail) for first, tail in sorted(tails.items()))
    return f"(?:{branches}){'?' if ends else ''}" if branches else ""


_TABLE = _Table()


def watched(pattern: str, flags: int = 0) -> Watched:
    """A pattern that the look at a text's words covers from now on."""
    regex = re.compile(pattern, flags)
    _seen_short.cache_clear()
    _seen_long.cache_clear()
    return Watched(regex, _TABLE.add(regex))


def any_possible(there: Mask, patterns: Iterable[Watched]) -> bool:
    """Whether one of the patterns might match in a text that has so much of the needles."""
    return any(there & pattern.bits == pattern.bits for pattern in patterns)


def seen(text: str) -> Mask:
    """What a text has of the needles of all watched patterns."""
    return _seen_short(text) if len(text) <= _SHORT else _seen_long(text)


_seen_short = lru_cache(maxsize=4096)(_TABLE.seen)
_seen_long = lru_cache(maxsize=8)(_TABLE.seen)
