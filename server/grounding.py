"""Does the request state this value? A call must not carry an id, key or address that a model made up.

Enum values, booleans, dates, plain words and numbers may be derived from what the request says ("tomorrow", "a
dozen"). What points at one particular thing (an id, key, e-mail, URL, path, hash) has to stand in the request or
its context, give or take case, punctuation and white space.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any
from urllib.parse import unquote

from toolscout.records import JsonObject

_ID_NAME = re.compile(
    r"(?:^|[_\W])(?:ids?|uuids?|guids?|keys?|tokens?|secrets?|passwords?|e_?mails?|ur[il]s?|links?|hash(?:es)?|paths?"
    r"|phones?|accounts?|wallets?|address(?:es)?|usernames?|handles?|isbns?|dois?|sha\d*|iban|vin|files?"
    r"|filenames?|slugs?|endpoints?|webhooks?)$"
)
_NOT_AN_ID = re.compile(r"(?:address|mailing|street|shipping|delivery)_(?:line|type)|^(?:sort|order|group)_?key$")
_ID_FORMATS = frozenset(
    {"email", "uri", "url", "uri-reference", "uuid", "ipv4", "ipv6", "hostname", "iri", "idn-email"}
)
_ID_VALUE = re.compile(
    r"[^@\s]+@[^@\s]+\.\w+|[a-z][a-z0-9+.-]*://\S+|/\S+/\S*|[A-Za-z]:\\\S+|0x[0-9a-fA-F]{6,}|\d{6,}"
    r"|[0-9a-f]{8}-[0-9a-f]{4}-\S+|(?=(?:\D*\d){3})(?=\S*[A-Za-z])[A-Za-z0-9_-]{10,}",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"<[^>]*>|\{\{?[\w .-]*\}\}?|\[[A-Z_ ]+\]|\$\{\w+\}|your[_ -].*|x{3,}|\.\.\.|…|string|example(?:\.com)?|placeholder"
    r"|.*@example\.(?:com|org)|https?://(?:www\.)?example\.(?:com|org)\S*|n/?a|none|null|undefined|unknown|todo|tbd",
    re.IGNORECASE,
)
# Times in the forms that APIs want: what the request calls "15 August" becomes 20240815 or seconds since 1970.
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ][\d:.]+(Z|[+-][\d:]+)?)?|(19|20)\d{6}(\d{6})?|\d{4}(19|20)\d\d|1\d{9}(\d{3})?")
_REFERENCE = re.compile(r"\$[1-9]\d?(?:\.|\[|$)")
_NUMBERS = """zero none | one a an single once | two couple twice pair both | three thrice | four | five | six
seven week weekly | eight | nine | ten | eleven | twelve dozen year | thirteen | fourteen | fifteen | sixteen
seventeen | eighteen | nineteen | twenty"""
_NUMBER_WORDS = {
    word: number for number, words in enumerate(re.split(r"\||\n", _NUMBERS)) for word in words.split()
} | {"thirty": 30, "forty": 40, "fifty": 50, "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90, "hundred": 100}


class Grounds:
    """What the request and its context say, prepared for look-ups."""

    def __init__(self, *texts: str) -> None:
        text = " ".join(texts)
        self.text = _fold(text)
        self.squeezed = _squeeze(self.text)
        self.words = set(re.findall(r"\w+", self.text))
        numbers = re.findall(r"\d+(?:[.,]\d+)*", self.text)
        self.numbers = {n.replace(",", "").lstrip("0") or "0" for n in numbers} | {n.replace(",", ".") for n in numbers}
        self.numbers |= {str(_NUMBER_WORDS[w]) for w in self.words if w in _NUMBER_WORDS}

    def states(self, value: str | int | float) -> bool:
        """True if the value stands there: as it is, without scheme and punctuation, or with all its words."""
        if isinstance(value, int | float):
            return _digits(value) in self.numbers or _digits(value) in self.text
        folded = _fold(value).strip()
        squeezed = _squeeze(folded)
        if not squeezed:
            return bool(folded) and folded in self.text
        if folded in self.text:
            return True
        if len(squeezed) >= 3 and squeezed in self.squeezed:
            return True
        bare = unquote(re.sub(r"^[a-z][a-z0-9+.-]*://(www\.)?|/+$", "", folded))
        if bare and _squeeze(bare) in self.squeezed:
            return True
        if "@" in folded:
            return False
        words = re.findall(r"\w+", bare)
        return bool(words) and all(w in self.words for w in words)

    def shows(self, value: object) -> bool:
        """As :meth:`touches`, and a boolean never does: no word of the request is it."""
        return not isinstance(value, bool) and self.touches(value)

    def touches(self, value: object) -> bool:
        """A weaker test for free text and numbers: something of the value stands there."""
        if isinstance(value, bool) or value is None:
            return True
        if isinstance(value, int | float):
            return self.states(value)
        if isinstance(value, str):
            folded = _fold(value)
            words = [w for w in re.findall(r"\w+", folded) if len(w) > 2 or w.isdigit()]
            near = any(w in self.words or (len(w) > 4 and w[:5] in self.text) for w in words)
            return near or self.states(value)
        if isinstance(value, list):
            return any(self.touches(v) for v in value)
        return any(self.touches(v) for v in value.values()) if isinstance(value, dict) else False


def is_placeholder(value: object) -> bool:
    """True for what stands where a value should: ``<id>``, ``YOUR_API_KEY``, ``user@example.com``, nothing."""
    return isinstance(value, str) and (not value.strip() or _PLACEHOLDER.fullmatch(value.strip()) is not None)


def is_reference(value: object) -> bool:
    """True for ``"$1.path"``, a reference to an earlier call of a plan."""
    return isinstance(value, str) and _REFERENCE.match(value) is not None


def references(value: object) -> set[str]:
    """The ids that a value refers to, anywhere within it."""
    if isinstance(value, str):
        return {value[1:].split(".")[0].split("[")[0]} if is_reference(value) else set()
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*(references(v) for v in inner))


def invented(name: str, node: JsonObject, value: Any, grounds: Grounds) -> bool:
    """True if ``value`` of the parameter ``name`` points at one particular thing that the request does not name."""
    if is_reference(value) or value is None or isinstance(value, bool) or "enum" in node:
        return False
    if value == node.get("default") and value != "":
        return False
    if isinstance(value, list):
        inner = node.get("items", {})
        return any(invented(name, inner, v, grounds) for v in value)
    if isinstance(value, dict):
        inner = node.get("properties", {})
        return any(invented(str(k), inner.get(k, {}), v, grounds) for k, v in value.items())
    if is_placeholder(value):
        return not (value and grounds.states(value))
    if isinstance(value, int | float):
        return _is_id_name(name) and not grounds.states(value)
    if "anyOf" in node and any(value in v.get("enum", ()) for v in node["anyOf"]):
        return False
    if node.get("format") in _ID_FORMATS or _is_id_name(name):
        points = True
    else:
        points = _ID_VALUE.fullmatch(value.strip()) is not None and not _TIME.fullmatch(value)
    if name.lower() in ("key", "keys") and not re.search(r"\d|\S{16}", value):
        points = False  # of a keyboard, or of an entry
    return points and not grounds.states(value)


def _is_id_name(name: str) -> bool:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
    return _ID_NAME.search(spaced) is not None and _NOT_AN_ID.search(spaced) is None


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _squeeze(text: str) -> str:
    return re.sub(r"[\W_]+", "", text)


def _digits(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(value)
