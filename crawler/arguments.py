"""What of a configured command line or address may be kept: what is plainly nobody's secret.

Whoever configured it knows what it holds, we do not: a value is kept only where its form says that it is harmless.
All else leaves a placeholder in what is recorded and a dummy in what is run, so nothing of it is stored or given to
foreign code.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from toolscout.crawler import dummies

_PIECE = r"[A-Za-z]{1,20}\d{0,2}"
_FLAG = re.compile(rf"-[A-Za-z]|-(?!p(?!ort|ath|ro|ackage))[a-z]{{2,12}}|--{_PIECE}(?:[-_.]{_PIECE}){{0,6}}")
"""Of those with one dash no ``-p`` with something glued to it, which is how a password is given to some programs."""
_HARMLESS = re.compile(
    r"\d{1,6}(?:\.\d{1,3})?|v?\d{1,4}\.\d{1,4}\.\d{1,4}"  # numbers, versions
    r"|[a-z]{1,12}(?:[-_,][a-z]{1,12}){0,2}"  # words
    r"|@[a-z][a-z-]{0,30}/[a-z][a-z.-]{0,40}"  # packages
)
_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "none", "null", "auto", "stdio", "sse", "http"})
_OWN = re.compile(
    r"user|login|account|owner|\borgs?\b|organi[sz]ation|project|tenant|team|host|\bserver|\bur[il]|endpoint|domain|dsn|"
    r"connection|database|\bdb\b|path|\bdir|folder|file|root|vault|workspace|bucket|e-?mail|header|config|\bids?\b|name",
    re.I,
)
"""Flags whose values are somebody's own, though no secrets."""
_ALSO_SECRET = re.compile(r"\bpat\b|\bpin\b|\bdsn\b|header|jwt|\bsid\b", re.I)
_HEADER = re.compile(r"((?:proxy-)?authorization|cookie|(?:x-)?(?:[a-z]{1,16}-){0,2}(?:key|token|secret)):\s*\S", re.I)
_SCHEME = re.compile(r":\s*(Bearer|Basic|Token)\s", re.I)
_DATABASE = re.compile(
    r"(?:postgres|mysql|mariadb|mongodb|redis|mssql|sqlserver|bolt|neo4j|amqp|clickhouse|jdbc)", re.I
)
_LOCAL = re.compile(r"~|\.{0,2}/|[A-Za-z]:[\\/]")
_KEY_FORMS = re.compile(
    r"(?:sk|pk|rk|gh[a-z]|github_pat|glpat|xox[a-z]|xapp|hf|npm|pypi|AKIA|AIza|ntn|secret|lin|eyJ|pat|figd|gsk|tvly)[-_.]?"
    r"[A-Za-z0-9_-]{12,}"
)
_UUID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}", re.I)
_BEFORE_TOKENS = frozenset({"s", "key", "keys", "token", "tokens", "secret", "apikey", "api-key"})


@dataclass(frozen=True)
class Recordable:
    """A command line's arguments: ``run`` with dummies, ``shown`` with placeholders, word for word the same else."""

    run: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    secret: bool = False
    """Whether a placeholder stands for what looks like a secret."""


def recordable(words: Sequence[str]) -> Recordable:
    """What may be kept of the arguments of somebody's command line."""
    run: list[str] = []
    shown: list[str] = []
    secret = False
    flag = ""
    for word in words:
        name, sign, value = word.partition("=")
        if sign and (_plain_flag(name) or re.fullmatch(r"[A-Za-z]{1,20}", name)):
            dummy, placeholder, hidden = _value(name, value)
            run.append(f"{name}={dummy}")
            shown.append(f"{name}={placeholder}")
            flag = ""
        elif _plain_flag(word):
            run.append(word)
            shown.append(word)
            flag, hidden = word, False
        else:
            dummy, placeholder, hidden = _value(flag, word)
            run.append(dummy)
            shown.append(placeholder)
            flag = ""
        secret = secret or hidden
    return Recordable(tuple(run), tuple(shown), secret)


def recordable_url(url: str) -> tuple[str, bool]:
    """An address without user, query, fragment and what looks like a token in its path, and whether a secret was there.

    A placeholder stands where a part of the path was. Empty where it is no address of the web.
    """
    try:
        parts = urlsplit(url.strip())
        port = parts.port
    except ValueError:
        return "", False
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return "", False
    kept: list[str] = []
    segments = parts.path.split("/")
    for before, segment in zip(["", *segments], segments, strict=False):
        hidden = bool(segment) and (before.lower() in _BEFORE_TOKENS or token_like(segment))
        kept.append("<token>" if hidden else segment)
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    clean = f"{parts.scheme}://{host}{f':{port}' if port else ''}{'/'.join(kept)}"
    return clean, "<token>" in kept or parts.username is not None or dummies.is_secret(parts.query)


def token_like(text: str) -> bool:
    """Whether a part of a path or name is more likely made by a machine than chosen by a person."""
    if len(text) > 64 or _UUID.search(text) or _KEY_FORMS.search(text):
        return True
    return not all(_wordy(piece) for piece in re.split(r"[-_.~@+,:]|%[0-9A-Fa-f]{2}", text) if piece)


def _wordy(piece: str) -> bool:
    if len(piece) <= 5 or piece.isdigit():
        return len(piece) <= 6
    match = re.fullmatch(r"([A-Z]{1,8}|[A-Z]{0,4}[a-z]{1,24}(?:[A-Z]{1,4}[a-z]{0,24}){0,4})(\d{0,4})", piece)
    if match is None:
        return False
    letters = match[1].lower()
    if letters != match[1] and sum(c.isupper() for c in match[1]) * 2 > len(letters) and match[2]:
        return False
    vowels = sum(c in "aeiouy" for c in letters)
    return vowels * 6 >= len(letters) and re.search(r"[^aeiouy]{7}", letters) is None


def _plain_flag(word: str) -> bool:
    return _FLAG.fullmatch(word) is not None and not (len(word) > 12 and token_like(word.lstrip("-")))


def _value(flag: str, value: str) -> tuple[str, str, bool]:
    """Dummy, placeholder, and whether a secret was taken for one: of a flag's value, or of a word on its own."""
    name = re.sub(r"(?<=[a-z])(?=[A-Z])|[-_.]", " ", flag.lstrip("-"))
    secret = dummies.is_secret(name) or _ALSO_SECRET.search(name) is not None
    if value in _WORDS or not value:
        return value, value, False
    if _HARMLESS.fullmatch(value) and not secret and not (name and _OWN.search(name)):
        return value, value, False
    if header := _HEADER.match(value):
        scheme = _SCHEME.search(value)
        start = f"{header[1]}: {scheme[1] if scheme else ''}".rstrip() + " "
        return f"{start}{dummies.value_for('TOKEN')}", f"{start}<key>", True
    if "://" in value and _DATABASE.match(value):
        return (*dummies.argument("connection string"), True)
    if secret and not _LOCAL.match(value):
        return dummies.value_for(f"{flag.lstrip('-')}_KEY"), "<key>", True
    if value.startswith(("http://", "https://")):
        return (*dummies.argument("url"), recordable_url(value)[1])
    if name:
        return (*dummies.argument(name), False)
    if _LOCAL.match(value) or re.search(r"path|dir|folder", value, re.I):
        return (*dummies.argument("file" if re.search(r"\.\w{1,5}$", value) else "directory"), False)
    if _KEY_FORMS.search(value) or (len(value) >= 16 and token_like(value)):
        return (*dummies.argument("key token"), True)
    return (*dummies.argument(""), False)
