"""One look at the words of a text says which patterns can match in it at all; only those are run.

Most texts of most tools hold no word that any rule needs. The words of a text are looked up one by one, so that what
this costs grows with the text alone, not with the number of patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache, reduce
from operator import or_

from toolscout.index.guard.needles import EDGE, folded, needles

_WORD = re.compile(r"\w+")
_ASCII = bytes(ord(chr(code).lower()) if _WORD.match(chr(code)) else ord(" ") for code in range(256))
_NO_WORD = re.compile(r"[^\w\s.,'()-]")
"""Characters of marks; none has one of those that are in every text."""
_NEEDLE = re.compile(rf"[\w{EDGE}]+")
_MEMO = 20_000
_MEMO_WORD = 24
"""Words kept with what they mean, and the longest of them: tools share their vocabulary."""
_KEY = 3
"""First characters of a needle by which it is found in a word."""
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
    """Needles of all watched patterns: of words, by their first characters or short, and of other characters."""

    def __init__(self) -> None:
        self._bits = 0
        self._words: dict[str, dict[str, Mask]] = {}
        self._short: dict[str, Mask] = {}
        self._short_ascii: dict[str, Mask] = {}
        self._marks: dict[str, Mask] = {}
        self._memo: dict[str, Mask] = {}

    def add(self, pattern: re.Pattern[str]) -> Mask:
        found, bits = needles(pattern), 0
        for part in dict.fromkeys(found or ()):
            bit = 1 << self._bits
            self._bits, bits = self._bits + 1, bits | bit
            for needle in part:
                table = self._table(needle)
                table[needle] = table.get(needle, 0) | bit
        self._short_ascii = {needle: mask for needle, mask in self._short.items() if needle.isascii()}
        self._memo.clear()
        return bits

    def _table(self, needle: str) -> dict[str, Mask]:
        if not _NEEDLE.fullmatch(needle):
            return self._marks
        return self._short if len(needle) < _KEY else self._words.setdefault(needle[:_KEY], {})

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
        marked, found = f"{EDGE}{word}{EDGE}", 0
        for place in range(len(word)):
            alike = self._words.get(marked[place : place + _KEY])
            if alike is not None:
                for needle, mask in alike.items():
                    if marked.startswith(needle, place):
                        found |= mask
        for needle, mask in (self._short_ascii if word.isascii() else self._short).items():
            if needle in marked:
                found |= mask
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


_TABLE = _Table()


def watched(pattern: str, flags: int = 0) -> Watched:
    """A pattern that the look at a text's words covers from now on."""
    regex = re.compile(pattern, flags)
    _seen_short.cache_clear()
    _seen_long.cache_clear()
    return Watched(regex, _TABLE.add(regex))


def together(*patterns: Watched) -> Mask:
    """The bits that are there in a text in which all of the patterns match."""
    return reduce(or_, (pattern.bits for pattern in patterns))


def seen(text: str) -> Mask:
    """What a text has of the needles of all watched patterns."""
    return _seen_short(text) if len(text) <= _SHORT else _seen_long(text)


_seen_short = lru_cache(maxsize=1024)(_TABLE.seen)
_seen_long = lru_cache(maxsize=8)(_TABLE.seen)
