"""Which strings a text must hold for a pattern to match in it: read off the pattern, so that none can be forgotten.

A pattern of a hundred alternatives costs a hundred times as much as looking whether one of its words is there at all,
and in an honest text hardly ever is. For each alternative one string that all of its matches hold is taken; a pattern
with an alternative that has none must be run on every text. The idea is that of the trigram index behind Google Code
Search (Cox 2012, "Regular Expression Matching with a Trigram Index"), with words in place of trigrams.
"""

from __future__ import annotations

import importlib
import re
import unicodedata
from collections.abc import Iterable
from itertools import product
from typing import Any

_parser = importlib.import_module("re._parser")  # no public name since sre_parse is deprecated
_PART = re.compile(r"[\w\x00]+")

EDGE = "\0"
"""In a needle: where a word begins or ends."""

_COMMON_WORDS = (
    "the a an and or of to in for on with is are be this that it as by from at if not you your can will all any use "
    "used when which no user users tool tools name data file files server model agent set get add list search"
)
_COMMON = frozenset(_COMMON_WORDS.split())
"""Words that descriptions are full of: needles that say little."""

_MAX_CLASS = 4
"""Characters of a set up to which it is written out as so many strings."""
_MAX_RUNS = 8

Needles = frozenset[str]
Pair = tuple[Needles, Needles]

# Turkish i's are taken for i; the iota subscript, which is no letter, must not become one.
_ODD = str.maketrans({"\u0130": "i", "\u0131": "i", "\u0345": " "})


def folded(text: str) -> str:
    """A text without case, as far as ``re.IGNORECASE`` goes: what a pattern takes for the same letter is the same.

    Character by character, so that a part of a text stays a part of it and words end where they ended.
    """
    return text.lower() if text.isascii() else text.translate(_ODD).casefold()


def needles(pattern: re.Pattern[str]) -> Pair | None:
    """Two sets of folded strings: of each set one is in every folded text that the pattern matches in.

    Each string is a run of word characters (``\\w``), with an ``EDGE`` where its word has to begin or end; or, where an
    alternative has no such run, of other characters. ``None`` if there are none such.
    """
    return _of_sequence(_parser.parse(pattern.pattern, pattern.flags), False, False)


def _parts(needle: str) -> list[str]:
    """The runs of word characters of a needle, or, if it has none, its other characters."""
    runs = [run for run in _PART.findall(needle) if run.strip(EDGE)]
    mark = needle.replace(EDGE, "").strip()
    return runs or [mark] * (mark.strip(".,'()-") != "")


def _worth(found: Needles) -> tuple[float, int]:
    """How seldom a set of needles is met by chance: by its shortest one, then by their number."""
    return min(map(_length, found)), -len(found)


def _length(needle: str) -> float:
    # A Chinese or Korean character says as much as several Latin letters, an edge as much as half a one.
    word = needle.strip(EDGE)
    if _PART.fullmatch(word) is None:
        return 1
    says = sum(3 if unicodedata.category(c) == "Lo" else 1 for c in word if c.isalnum())
    return (says + needle.count(EDGE) / 2) / (2 if word in _COMMON else 1)


def _of_sequence(items: Iterable[tuple[Any, Any]], begins: bool, ends: bool) -> Pair | None:
    """Needles of what must be met one after the other: the best of those that any part has.

    ``begins`` and ``ends``: a word cannot go on before the first part, or after the last one.
    """
    found: set[Needles] = set()
    runs, edge = {""}, begins  # every way in which the letters read last may be written; whether a word begins here
    parts = [(str(operation), argument) for operation, argument in items]

    def ended(closed: bool) -> None:
        nonlocal runs
        if "" not in runs:
            said = [_parts(run + EDGE * (closed and _word(run[-1]))) for run in map(folded, runs)]
            if len({len(one) for one in said}) == 1:
                found.update(map(frozenset, zip(*said, strict=True)))
            elif all(said):
                found.add(frozenset(max(one, key=_length) for one in said))
        runs = {""}

    for place, (operation, argument) in enumerate(parts):
        if _is_edge(operation, argument):
            ended(closed=True)
            edge = True
            continue
        letters = _letters(operation, argument)
        if letters and len(runs) * len(letters) <= _MAX_RUNS:
            runs = {a + b if a or not (edge and _word(b)) else EDGE + b for a, b in product(runs, letters)}
        elif operation in ("AT", "ASSERT", "ASSERT_NOT"):  # takes no room between two letters
            continue
        else:
            ended(closed=False)
            after = all(_is_edge(*part) for part in parts[place + 1 : place + 2]) and (place + 1 < len(parts) or ends)
            found.update(_of_part(operation, argument, edge, after) or ())
        edge = False
    ended(closed=ends)
    best = sorted(found, key=lambda one: (*_worth(one), sorted(one)), reverse=True)
    return (best[0], best[1 % len(best)]) if best else None


def _word(letter: str) -> bool:
    return _PART.fullmatch(letter) is not None


def _is_edge(operation: str, argument: Any) -> bool:
    """Whether no word goes on over a part: ``\\b`` beside a letter, ``(?<!\\w)``, ``(?!\\w)``, ``\\s`` or ``\\s+``."""
    if operation == "AT":
        return str(argument) == "AT_BOUNDARY"
    if operation.endswith("_REPEAT") and argument[0] > 0 and len(argument[2]) == 1:
        inside, inner = argument[2][0]
        return str(inside) == "IN" and _is_edge("IN", inner)
    if operation == "IN":
        return [str(of) for _, of in argument] == ["CATEGORY_SPACE"]
    if operation != "ASSERT_NOT" or len(argument[1]) != 1:
        return False
    kind, inside = argument[1][0]
    return str(kind) == "IN" and any(str(of) == "CATEGORY_WORD" for _, of in inside) and str(inside[0][0]) != "NEGATE"


def _letters(operation: str, argument: Any) -> list[str]:
    """The characters that one place may hold, when they are few."""
    if operation == "LITERAL":
        return [chr(argument)]
    if operation == "IN" and len(argument) <= _MAX_CLASS and all(str(kind) == "LITERAL" for kind, _ in argument):
        return [chr(code) for _, code in argument]
    return []


def _of_part(operation: str, argument: Any, begins: bool, ends: bool) -> Pair | None:
    if operation == "BRANCH":
        parts = [_of_sequence(branch, begins, ends) for branch in argument[1]]
        pairs = [part for part in parts if part is not None]
        first, second = (frozenset[str]().union(*(pair[i] for pair in pairs)) for i in (0, 1))
        return (first, second) if len(pairs) == len(parts) else None
    if operation == "SUBPATTERN":
        return _of_sequence(argument[3], begins, ends)
    if operation == "ATOMIC_GROUP":
        return _of_sequence(argument, begins, ends)
    if operation.endswith("_REPEAT") and argument[0] > 0:
        once = argument[1] == 1
        return _of_sequence(argument[2], begins and once, ends and once)
    return None
