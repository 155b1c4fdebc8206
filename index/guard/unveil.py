"""Texts as a model would understand them: folded to plain letters, and what is encoded in them decoded."""

from __future__ import annotations

import base64
import binascii
import codecs
import html
import re
import unicodedata
from collections.abc import Callable, Iterator
from functools import lru_cache
from string import ascii_letters, ascii_uppercase, digits, hexdigits
from urllib.parse import unquote

from toolscout.index.guard.watch import watched

INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff]"
)
"""Characters that show nothing (or change the order of what is shown)."""

_LEAST_ENCODED = 24

_WORD = re.compile(r"\w+")
_MEETING = re.compile(r"[a-zA-Z0-9_][^\W\x00-\x7f]|[^\W\x00-\x7f][a-zA-Z0-9_]")
_HTML = re.compile(r"(?:&#x?[0-9a-fA-F]{2,6};){4,}")
_PERCENT = re.compile(r"(?<![\w/:.?&=%+-])(?:[\w.~-]?%[0-9a-fA-F]{2}){6,}[\w.~%-]*")
_ESCAPES = re.compile(r"(?:\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}){4,}")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,}={0,2}")
_BASE32 = re.compile(r"(?<![A-Za-z0-9])[A-Z2-7]{32,}={0,6}")
_HEX = re.compile(r"(?<![0-9a-zA-Z])(?:[0-9a-f]{2}[ :]?){16,}(?![0-9a-zA-Z])", re.I)
_BITS = re.compile(r"(?:[01]{8}[ ,]?){6,}")
_ROT13 = watched(
    r"\b(?:vtaber|cerivbhf|vafgehpgvbaf?|flfgrz|cebzcg|cnffjbeq|frperg|gb gur hfre|ernq|fraq|svyr|rirel)\b"
)
_REVERSED = watched(r"\b(?:erongi|suoiverp|snoitcurtsni|metsys|tpmorp|drowssap|terces|resu eht|daer|dnes|llet)\b")
_SPACED = re.compile(r"(?<![^\W_])(?:[^\W\d_][.\-_*·]){3,}[^\W\d_](?![^\W_])")
_LEET = str.maketrans("0134578@$", "oieastbas")
_LEET_WORD = re.compile(r"(?<![\w.-])(?=[a-z]*[0134578][a-z0134578]*[a-z])[a-z0134578@$]{2,}(?![\w-])", re.I)
_GIVEAWAY = re.compile(
    r"\b(?:ignore|disregard|forget|previous|instructions?|rules|system|prompt|passwords?|secrets?|keys?|users?|read|send|"
    r"files?|every|always|never|tell|tools?|conversation)\b"
)
_READABLE = re.compile(r"(?:(?<![^\W\d_])[^\W\d_]{2,30}+[ ,.:;'/-]{1,9}+){3}")


@lru_cache(maxsize=1)
def _latin() -> dict[str, str]:
    """Each character that looks like an ASCII letter or digit (Unicode's confusables), to that one."""
    from confusable_homoglyphs import confusables

    found: dict[str, str] = {}
    for character, twins in confusables.confusables_data.items():
        if len(character) == 1 and not character.isascii():
            for twin in twins:
                if len(twin["c"]) == 1 and twin["c"].isascii() and twin["c"].isalnum():
                    found.setdefault(character, twin["c"])
    return found


def latin(word: str) -> str:
    """A word with every letter that looks like an ASCII one replaced by it."""
    if word.isascii():
        return word
    table = _latin()
    return "".join(table.get(c, c) for c in unicodedata.normalize("NFKC", word))


def mixed(word: str) -> bool:
    """Whether a word mixes ASCII letters with others that only look like them, and reads as ASCII."""
    if word.isascii() or len(word) < 3 or not re.search("[a-zA-Z]", word):
        return False
    foreign = [c for c in word if ord(c) > 0x2AF and c.isalpha() and "LATIN" not in unicodedata.name(c, "")]
    return bool(foreign) and latin(word).isascii()


def plain(text: str) -> str:
    """What a text says: compatibility forms (NFKC) and look-alike letters folded, invisible characters gone."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", INVISIBLE.sub("", text))
    if not _MEETING.search(text):  # no word of ASCII letters and others
        return text
    return _WORD.sub(lambda m: latin(m.group()) if mixed(m.group()) else m.group(), text)


def tag_text(text: str) -> str:
    """What is written in Unicode's tag characters or in variation selectors."""
    found = []
    for c in text:
        code = ord(c)
        if 0xE0020 <= code <= 0xE007E:
            found.append(chr(code - 0xE0000))
        elif 0xE0100 <= code <= 0xE01EF:
            found.append(chr(code - 0xE0100 + 16))
        elif 0xFE00 <= code <= 0xFE0F:
            found.append(chr(code - 0xFE00))
    return "".join(found)


def may_encode(text: str) -> bool:
    """Whether words may be encoded in a text; ``False`` is certain."""
    if len(text) < _LEAST_ENCODED:
        return False
    data = text.encode("ascii", "replace")
    return (
        _count(data, _CODE) >= 2  # each way of encoding needs so many of these, but for base64 and words turned around
        or _DECODERS[0][3](data)
        or "·" in text
        or _ROT13.possible(text)
        or _REVERSED.possible(text)
    )


def decoded(text: str) -> Iterator[tuple[str, str, int, int]]:
    """Each encoded run that holds readable words: (encoding, what it says, start, end)."""
    data = text.encode("ascii", "replace")  # for the cheap looks: encoded runs are ASCII
    for name, pattern, decode, possible in _DECODERS:
        if not possible(data):
            continue
        for match in pattern.finditer(text):
            said = decode(match.group())
            if said and _READABLE.search(said + " "):
                yield name, said, match.start(), match.end()
    if _count(data, b".-_*") + text.count("·") >= 6 and len({m.group() for m in _SPACED.finditer(text)}) >= 2:
        yield "spaced letters", _SPACED.sub(lambda m: re.sub(r"[.\-_*·]", "", m.group()), text), 0, len(text)
    leet = _count(data, b"013457") and _count(data, b"0134578") >= 3
    if leet and len({m.lower() for m in _LEET_WORD.findall(text)}) >= 3:
        said = _LEET_WORD.sub(lambda m: m.group().lower().translate(_LEET), text)
        if len(set(_GIVEAWAY.findall(said)) - set(_GIVEAWAY.findall(text.lower()))) >= 2:  # not 1d, 5m, 3mo
            yield "digits for letters", said, 0, len(text)
    if _ROT13.possible(text) and len({m.group() for m in _ROT13.finditer(text.lower())}) >= 2:
        yield "rot13", codecs.decode(text, "rot13"), 0, len(text)
    if _REVERSED.possible(text) and len({m.group() for m in _REVERSED.finditer(text.lower())}) >= 2:
        yield "reversed", text[::-1], 0, len(text)


_CODE = b"0123456789&%\\.-_*"


def _text(data: bytes) -> str:
    try:
        said = data.decode("utf-8")
    except UnicodeDecodeError:
        return ""
    return said if said.isprintable() or all(c.isprintable() or c in "\n\r\t" for c in said) else ""


def _base64(run: str) -> str:
    run = run.rstrip("=").replace("-", "+").replace("_", "/")
    if run.isalpha() and (run.islower() or run.isupper()):
        return ""
    try:
        return _text(base64.b64decode(run[: len(run) - (len(run) % 4 == 1)] + "=" * (-len(run) % 4)))
    except (binascii.Error, ValueError):
        return ""


def _base32(run: str) -> str:
    run = run.rstrip("=")
    try:
        return _text(base64.b32decode(run + "=" * (-len(run) % 8)))
    except (binascii.Error, ValueError):
        return ""


def _hex(run: str) -> str:
    return _text(bytes.fromhex(re.sub("[ :]", "", run)))


def _bits(run: str) -> str:
    return _text(bytes(int(b, 2) for b in re.findall("[01]{8}", run)))


def _escapes(run: str) -> str:
    return "".join(chr(int(c[2:], 16)) for c in re.findall(r"\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}", run))


def _count(data: bytes, characters: bytes) -> int:
    return len(data) - len(data.translate(None, characters))


def _has_run(characters: str, length: int) -> Callable[[bytes], bool]:
    """Whether a text has so many characters in a row that are among some."""
    table = bytes(ord("x") if chr(code) in characters else ord(".") for code in range(256))
    run = b"x" * length
    return lambda data: run in data.translate(table)


_Decoder = tuple[str, re.Pattern[str], Callable[[str], str], Callable[[bytes], bool]]

_DECODERS: tuple[_Decoder, ...] = (
    ("base64", _BASE64, _base64, _has_run(ascii_letters + digits + "+/_-", 24)),
    ("base32", _BASE32, _base32, _has_run(ascii_uppercase + "234567", 32)),
    ("hexadecimal", _HEX, _hex, _has_run(hexdigits + " :", 32)),
    ("binary", _BITS, _bits, _has_run("01 ,", 48)),
    ("HTML entities", _HTML, html.unescape, lambda data: data.count(b"&#") >= 4),
    ("percent encoding", _PERCENT, unquote, lambda data: data.count(b"%") >= 6),
    ("escapes", _ESCAPES, _escapes, lambda data: data.count(b"\\") >= 4),
)
"""Name, what a run looks like, what it says, and a cheap look at whether a text can have such a run at all."""
