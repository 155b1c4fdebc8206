"""Text to words for BM25: identifiers split, Unicode folded, light English stemming, CJK by characters.

``getUserHTTPInfo2`` gives ``get user http info 2`` and the whole identifier. Runs of Chinese, Japanese, Korean
and Thai give their characters and their pairs of neighbours, since they are written without spaces between words (or,
in Korean, with endings stuck to them). Words are kept as 64-bit hashes: no vocabulary has to be held in memory.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

MAX_CHARACTERS = 20_000
"""Text beyond this is not read: no real description or request is longer, only a mistake or an attack is."""

MAX_WORD = 64
"""Longer unbroken runs (base64, hashes) are cut: they match nothing."""

_STOP_WORDS = (
    "a an and any are as at be been but by can could did do does for from had has have how i if in into is it its "
    "just me my need of on or our please should so some that the their them then there these they this to us want "
    "was we were what when where which who will with would you your s t m re ve ll d"
)
STOP = frozenset(_STOP_WORDS.split())
"""Words that say nothing about which tool is meant. ``not``, ``all``, ``new`` and the like do, and stay."""

_UNSPACED = (
    "\u3005\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\u1100-\u11ff"  # CJK
    "\u0e01-\u0e4e\u0e81-\u0ecd\u1000-\u1049\u1780-\u17d3"  # Thai, Lao, Burmese, Khmer
    "\U00020000-\U0002fa1f"
)
_CHINESE_STOP = frozenset("的了我你他她它们這这那个個是在把帮幫请請和与與吗嗎呢吧要想给給一")
_HIRAGANA = re.compile("[\u3040-\u309f]{2}")
_KANA_OR_HANGUL = re.compile("[\u3040-\u30ff\uac00-\ud7af\u1100-\u11ff]")
_MIXED = re.compile("[\u3040-\u309f][^\u3040-\u309f]|[^\u3040-\u309f][\u3040-\u309f]")
_MARKS = "\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0dff"  # not in \w, but part of words
_LETTER = f"(?:[^\\W_{_UNSPACED}]|[{_MARKS}])"
_TOKEN = re.compile(f"[{_UNSPACED}]+|{_LETTER}+(?:[_\\-./]+{_LETTER}+)*")
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
_PART = re.compile(rf"[A-Z]+(?![^\W\d_A-Z])|[A-Z]?(?:[^\W\d_A-Z]|[{_MARKS}])+|\d+|[A-Z]")
_SPLIT = re.compile(r"[_\-./]+")
_ACCENTED = re.compile("[\u0080-\u052f\u1e00-\u1fff]+")


def plain(text: str) -> str:
    """NFKC without the accents of Latin, Greek and Cyrillic letters, case kept: ``Résumé`` -> ``Resume``."""
    text = unicodedata.normalize("NFKC", text)
    return text if text.isascii() else _ACCENTED.sub(_bare, text)


def _bare(match: re.Match[str]) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", match.group()) if not unicodedata.combining(c))


def fold(text: str) -> str:
    """``plain`` and case folded: ``Résumé`` -> ``resume``."""
    return plain(text).casefold()


def split_identifier(text: str) -> list[str]:
    """Parts of an identifier as written, not folded: ``getHTTPUser_v2`` -> ``get HTTP User v 2``."""
    return [part for piece in _SPLIT.split(text) for part in _PART.findall(piece)]


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """A light English stem: plural, ``-ing``, ``-ed`` and ``-ies`` are taken off; short words stay as they are."""
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(("sses", "shes", "ches", "xes", "zes")):
        return word[:-2]
    if word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ing", "ed"):
        base = word[: -len(ending)]
        if word.endswith(ending) and len(base) >= 3 and any(c in "aeiouy" for c in base):
            if base[-1] == base[-2] and base[-1] not in "lsz":
                return base[:-1]
            return base
    if word.endswith("e") and len(word) > 4:
        return word[:-1]
    return word


def _runs(text: str) -> Iterator[str]:
    for match in _TOKEN.finditer(plain(text[:MAX_CHARACTERS])):
        yield match.group()


def _unspaced(run: str) -> list[str]:
    """Characters and pairs of an unspaced run that may carry meaning.

    Left out are Hangul and kana on their own, pairs across kana and kanji (a word and its ending), kana pairs beside
    kanji (endings), and what holds a Chinese function word.
    """
    singles = [c for c in run if c not in _CHINESE_STOP and not _KANA_OR_HANGUL.match(c)]
    pairs = [run[i : i + 2] for i in range(len(run) - 1)]
    kept = [p for p in pairs if not (_MIXED.match(p) or (singles and _HIRAGANA.match(p)) or set(p) & _CHINESE_STOP)]
    return (singles + kept) or [run[:MAX_WORD]]


def words(text: str) -> Iterator[str]:
    """The words of a text in order, folded and stemmed, stop words left out; identifiers also whole."""
    for run in _runs(text):
        yield from _run_words(run)


def _run_words(run: str) -> Iterator[str]:
    if _IS_UNSPACED.match(run):
        yield from _unspaced(run)
        return
    run = run[: 2 * MAX_WORD]
    parts = split_identifier(run) or [run]
    for part in parts:
        word = part[:MAX_WORD].casefold()
        if word and word not in STOP:
            yield stem(word)
    if len(parts) > 1:
        whole = _SPLIT.sub("", run.casefold())
        if len(whole) <= MAX_WORD:
            yield whole


def has_words(text: str) -> bool:
    """Whether there is any letter or digit in what is read of a text."""
    return any(char.isalnum() for char in text[:MAX_CHARACTERS])


def surface_words(text: str) -> list[str]:
    """Words as they are written, without stop words, unspaced scripts in pairs: for explaining a match."""
    found: list[str] = []
    for run in _runs(text):
        parts = [p for p in _unspaced(run) if len(p) > 1] if _IS_UNSPACED.match(run) else split_identifier(run)
        found += [part for part in parts if part.casefold() not in STOP]
    return found


def hash64(text: str) -> int:
    """A text's 64-bit name in the index: BLAKE2b, so alike in every process and release."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little")


_word_hash = lru_cache(maxsize=65536)(hash64)


_SHORT = 32


@lru_cache(maxsize=32768)
def _short_hashes(run: str) -> tuple[int, ...]:
    return tuple(map(_word_hash, _run_words(run)))


def hashes(text: str) -> list[int]:
    """64-bit hashes of ``words(text)``."""
    found: list[int] = []
    for run in _runs(text):
        # Most of any text is runs seen before: a pool's words are hashed three times faster.
        found += _short_hashes(run) if len(run) <= _SHORT else map(_word_hash, _run_words(run))
    return found
