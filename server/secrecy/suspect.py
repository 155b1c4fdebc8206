"""Secrets that nobody has named: what in a text or a value looks like one, or stands under the name of one.

Where it is doubtful it counts as a secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from toolscout.server.clients.redact import HARMLESS_VALUE, secret_name, secret_value
from toolscout.server.secrecy.hiding import HIDDEN

_PAIR = re.compile(r"""(?:(?<![\w.-])([\w.-]++)\\*+["']?\s*+[:=]|(?<![\w-])(--[\w-]++)\s)\s*+\\*+["']?(?=[^\s"'\\])""")
"""``name: value``, ``name=value``, ``"name": "value"`` (also within quoted JSON) and ``--name value`` in a text."""


_SCHEMES = frozenset({"bearer", "basic", "token", "apikey", "digest"})


def tells_secret(text: str) -> bool:
    """Whether a text gives a secret itself, or with the name that it stands under."""
    if secret_value(text) or any(secret_value(word) for word in text.split()):
        return True
    return any(secret_name(pair[1] or pair[2]) for pair in _PAIR.finditer(text))


def _inside(text: str) -> Any:
    """What a text says that is JSON; None for any other."""
    if text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def is_secret(name: str, value: Any) -> bool:
    """Whether a value, or one inside of it, stands under the name of a secret or looks like one."""
    waiting: list[tuple[str, Any]] = [(name, value)]
    while waiting:
        name, value = waiting.pop()
        if secret_name(name) and value not in (None, "", True, False):
            return True
        if isinstance(value, Mapping):
            if any(tells_secret(str(k)) for k in value):
                return True
            waiting.extend((str(k), v) for k, v in value.items())
        elif isinstance(value, list | tuple):
            waiting.extend((name, v) for v in value)
        elif isinstance(value, str):
            if tells_secret(value):
                return True
            waiting.append((name, _inside(value)))
    return False


def given(text: str) -> list[str]:
    """The values that a text gives under the names of secrets: all that stands there, and what ends at ``;``, ``&`` or
    ``,``, as either may be the secret."""
    found = []
    for pair in _PAIR.finditer(text):
        name, first = pair[1] or pair[2], pair.end()
        if not secret_name(name):
            continue
        closing = text.find(text[first - 1], first) if text[first - 1] in "\"'" else -1
        rest = _REST.match(text, first)
        value = text[first:closing] if closing >= 0 else rest[0] if rest is not None else ""
        found += [one for one in (value.strip("\\"), re.split("[;&,]", value)[0]) if may_be_secret(name, one)]
    return found


def may_be_secret(name: str, value: str) -> bool:
    """Whether a value under the name of a secret may be one: ``AUTH=none`` and ``--max-tokens 4096`` are settings."""
    if HARMLESS_VALUE.match(value.strip()) or value.strip().lower() in _SCHEMES:
        return False
    return not (name.lower().endswith("tokens") and value.strip().isdecimal() and len(value.strip()) < 7)


_REST = re.compile(r"""(?:(?i:bearer|basic|token|apikey|digest)\s+)?\S+""")


def hide_suspect(text: str) -> str:
    """``text`` with what looks like a secret, or stands under the name of one, blanked out."""
    if not is_secret("", text):
        return text
    text = re.sub(r"\S+", lambda word: HIDDEN if secret_value(word[0]) else word[0], text)
    if secret_value(text) or is_secret("", _inside(text)):
        return HIDDEN  # a key in several words, or JSON, which may hide a name in escapes
    kept, end = [], 0
    for pair in _PAIR.finditer(text):
        if not secret_name(pair[1] or pair[2]) or pair.end() < end:
            continue
        first = pair.end()
        kept.append(text[end:first])
        kept.append(HIDDEN)
        closing = text.find(text[first - 1], first) if text[first - 1] in "\"'" else -1
        rest = _REST.match(text, first)
        end = closing if closing >= 0 else rest.end() if rest is not None else len(text)
    return "".join([*kept, text[end:]])


def plain_name(text: str, longest: int) -> str:
    """What a client calls something, if that is a name: blanked out where it looks like a secret or gives one."""
    return HIDDEN if is_secret("", text) else text[:longest]
