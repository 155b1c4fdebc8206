"""Secrets inside a value: in JSON, in a connection string, in the words of a shell's line."""

from __future__ import annotations

import json
import re
from typing import Any

_PAIR = re.compile(
    r"""(?x) (?<![\w$.-]) ([A-Za-z][\w.-]*) \s?=\s? (?: "([^"]*)" | '([^']*)' | (.+?) )
        (?= [;,&\s]+ [A-Za-z][\w\s.-]* = | [;\s]*$ )"""
)
"""``name=value`` in a connection string: a value ends where the next name begins."""
_GIVEN = re.compile(
    r"""(?x) (?: (?<![\w$.-]) ([A-Za-z][\w.-]*) (?: = | :\s ) | (?<!\S) --? ([A-Za-z][\w-]*) [ =] )
        (?: (?i: bearer | basic | token ) \s+ )? (?: "([^"]*)" | '([^']*)' | ([^\s;&|"'$]+) )"""
)
"""``NAME=value``, ``Name: value`` and ``--name value`` in a shell's line."""


def parsed(text: str) -> Any:
    """The object or list that a text is in JSON; None for any other text."""
    if text.strip()[:1] not in ("{", "["):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, (dict, list)) else None


def pairs(text: str) -> list[tuple[str, str]]:
    """Names with their values, as they stand in a connection string (``Server=db;Password=x``)."""
    return [(m[1], m[2] or m[3] or m[4] or "") for m in _PAIR.finditer(text)] if "=" in text else []


def given(line: str) -> list[tuple[str, str]]:
    """Names with their values, as they stand in a shell's line, then the words without a name; longer ones first."""
    named = [(m[1] or m[2], m[3] or m[4] or m[5] or "") for m in _GIVEN.finditer(line)]
    words = [("", re.sub(r"^-{0,2}[\w.-]+=", "", word)) for word in re.split(r"""[\s"';|&()<>]+""", line)]
    return [pair for part in (named, words) for pair in sorted(part, key=lambda pair: -len(pair[1]))]


def written(value: str, depth: int) -> str:
    """A text as it stands inside of ``depth`` JSON strings."""
    for _ in range(depth):
        value = json.dumps(value, ensure_ascii=False)[1:-1]
    return value
