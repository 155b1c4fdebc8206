"""Blanking known secrets out of texts: a value in the forms in which programs print it, and what a cut leaves of one.

No list of forms is whole: what a program turns round, compresses or encrypts is not known again.

The forms are worked out once for the secrets of an upstream, at the first text that they are looked for in.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from urllib.parse import quote, quote_plus, unquote, urlsplit

HIDDEN = "[hidden]"

_SHORTEST = 4
"""Shorter values are not blanked out: they would blank out half of any text."""

_SHORTEST_PART = 8
"""Encoded parts, and beginnings at a cut, that are shorter say too little to be worth the texts that they spoil."""

_SHORTEST_LINE = 16
_MOST_LINES = 500
_ASSIGNED = re.compile(r"(?i)(?:passw(?:or)?d|pwd|secret|token|key)\s*=\s*('[^']*'|\"[^\"]*\"|[^\s;&,]+)")
_HTML_QUOTES = (("&#34;", "&#39;"), ("&quot;", "&#39;"), ("&quot;", "&apos;"))
_HARMLESS = frozenset({"true", "false", "null", "none"})


class Hider:
    """Blanks out the secrets that it is made with."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets = tuple(secrets)

    def __bool__(self) -> bool:
        """Whether there is anything to hide."""
        return bool(self._forms)

    def hide(self, text: str) -> str:
        """``text`` with every known form of every secret blanked out."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, HIDDEN)
        return text

    def hide_cut(self, text: str, *, front: bool = True) -> str:
        """As `hide`, for what was cut out of a stream: also the end of a secret at the front of the text, where
        ``front`` says that it was cut there, and the beginning of one at its end, which may not have come yet."""
        text = self.hide(text)
        # Half a character at the cut is no part of any secret that could be compared.
        if front and (end := max((_overlap_front(text.lstrip("\ufffd"), form) for form in self._forms), default=0)):
            text = HIDDEN + text.lstrip("\ufffd")[end:]
        bare = text.rstrip("\ufffd\r\n ")
        beginnings = (_overlap_end(bare, form) for form in self._forms if len(form) > _SHORTEST_PART)
        if start := max(beginnings, default=0):
            text = bare[:-start] + HIDDEN
        return text

    @cached_property
    def _forms(self) -> tuple[str, ...]:
        """Longest first: what contains another has to go as a whole."""
        found: set[str] = set()
        for value in {base for secret in self._secrets for base in _parts(secret)}:
            found.update(_written(value))
            found.update(_encoded(value))
            for line in value.splitlines()[:_MOST_LINES] if "\n" in value else ():
                if len(line.strip()) >= _SHORTEST_LINE:
                    found.update(_written(line.strip()))
        return tuple(sorted((form for form in found if len(form) >= _SHORTEST), key=lambda form: (-len(form), form)))


def _parts(secret: str) -> Iterator[str]:
    """The secret itself, and what in it is one by itself: the password of a URL or a DSN, a key within JSON."""
    if len(secret.strip()) < _SHORTEST:
        return
    yield secret
    yield secret.strip()
    scheme, _, credential = secret.strip().partition(" ")
    if scheme.lower() in {"bearer", "basic", "token"} and len(credential) >= _SHORTEST:
        yield credential
        if scheme.lower() == "basic":
            yield from _basic(credential)
    inside = assigned(secret)
    if "://" in secret:
        inside += _of_url(secret.strip())
    for part in inside:
        if len(part) >= _SHORTEST and part.lower() not in _HARMLESS:
            yield part
            yield unquote(part)


def assigned(text: str) -> list[str]:
    """The values that stand in a DSN or in JSON under the name of a secret."""
    found = [match[1].strip("'\"") for match in _ASSIGNED.finditer(text)]
    return found + _of_json(text) if text.lstrip()[:1] in ("{", "[") else found


def _basic(credential: str) -> Iterator[str]:
    try:
        plain = base64.b64decode(credential, validate=True).decode()
    except (binascii.Error, ValueError):
        return
    yield plain
    if len(password := plain.partition(":")[2]) >= _SHORTEST:
        yield password


def _of_url(url: str) -> list[str]:
    from toolscout.server.clients.redact import url_secrets

    found = url_secrets(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        return found
    if parts.password:
        # As it goes into a header: user and password in one piece of base64.
        found.append(f"{unquote(parts.username or '')}:{unquote(parts.password)}")
    return found


def _of_json(text: str) -> list[str]:
    from toolscout.server.clients.redact import secret_name, secret_value

    try:
        waiting = [("", json.loads(text))]
    except (ValueError, RecursionError):
        return []
    found = []
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [(str(key), inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(name, inner) for inner in value]
        elif isinstance(value, str) and (secret_name(name) or secret_value(value)):
            found.append(value)
    return found


def _written(value: str) -> Iterator[str]:
    """As it stands in texts: plain, escaped as in JSON, Python, a shell and HTML, URL-encoded once and twice."""
    yield value
    escaped = json.dumps(value)[1:-1]
    yield escaped
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield json.dumps(escaped)[1:-1]  # a text with JSON in it, in JSON
    yield value.replace("/", "\\/")
    yield escaped.replace("/", "\\/")
    yield repr(value)[1:-1]
    yield repr(value.encode("utf-8", "surrogatepass"))[2:-1]
    if not value.isascii() or not value.isalnum():
        html = value.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        yield from (html, html.replace('"', "&quot;").replace("'", "&#x27;"), html.replace('"', "&#34;"))
        yield from (html.replace('"', quot).replace("'", apos) for quot, apos in _HTML_QUOTES)
        for number in ("&#{};", "&#x{:x};", "&#x{:X};"):
            yield re.sub("[&<>\"']", lambda found, number=number: number.format(ord(found[0])), value)  # type: ignore[misc]
        # Go writes some characters of JSON as numbers, .NET more of them.
        yield re.sub("[&<>]", lambda found: f"\\u{ord(found[0]):04x}", escaped)
        yield re.sub("[&<>'+`]", lambda found: f"\\u{ord(found[0]):04X}", escaped.replace('\\"', "\\u0022"))
        yield from (value.replace("'", "'\"'\"'"), value.replace("'", "'\\''"))  # in a shell's single quotes
        data = value.encode("utf-8", "surrogatepass")
        for encoded in (quote(data, safe=""), quote(data), quote_plus(data), quote_plus(data, safe="/")):
            yield encoded
            yield quote(encoded, safe="")
            yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)


def _encoded(value: str) -> Iterator[str]:
    """In hex, and in base64, by itself and as a part of something longer (``user:`` before it): then without the
    characters that are made of its neighbours, too."""
    data = value.encode("utf-8", "surrogatepass")
    yield data.hex()
    yield data.hex().upper()
    whole = base64.b64encode(data).decode()
    inner = []
    for before in range(3):
        text = base64.b64encode(b"\0" * before + data).decode().rstrip("=")
        touched = (before + len(data)) % 3 > 0
        inner.append(text[(0, 2, 3)[before] : -1 if touched else None])
    for form in (whole, *inner):
        if len(form) >= _SHORTEST_PART:
            yield form
            yield form.replace("+", "-").replace("/", "_")


def _overlap_front(text: str, form: str) -> int:
    """How many characters at the front of the text are the end, or all that is left of a middle, of ``form``."""
    if len(text) < _SHORTEST:
        return 0
    if len(text) < len(form) and text in form:
        return len(text)
    anchor = text[:_SHORTEST]
    at = form.find(anchor, max(1, len(form) - len(text)))
    while at >= 0:
        if text.startswith(form[at:]):
            return len(form) - at
        at = form.find(anchor, at + 1)
    return 0


def _overlap_end(text: str, form: str) -> int:
    """How many characters at the end of the text are the beginning of ``form``."""
    anchor = form[:_SHORTEST_PART]
    at = text.find(anchor, max(0, len(text) - len(form) + 1))
    while at >= 0:
        if form.startswith(text[at:]):
            return len(text) - at
        at = text.find(anchor, at + 1)
    return 0
