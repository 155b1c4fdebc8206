"""Code dictionaries: names that people say and codes that tools want, from packages that others keep up to date.

They come with the extra ``synth``. A package that is not installed leaves its lists empty; nothing else changes.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

from toolscout.records import JsonObject
from toolscout.synth.drafts import draw
from toolscout.synth.filters.duplicates import same_text

Row = tuple[str, str, tuple[str, ...], bool]
"""Name, code, other names, and whether it is well known enough to be drawn."""


@dataclass(frozen=True)
class Entry:
    """``name`` stands in the request, ``code`` in the argument."""

    name: str
    code: str


@dataclass
class Codes:
    """One list. Names that mean several codes are in it for none of them."""

    by_name: dict[str, Entry] = field(default_factory=dict)
    drawn: list[Entry] = field(default_factory=list)

    def find(self, said: object) -> Entry | None:
        """The entry of a name, another name, or a code."""
        return self.by_name.get(same_text(str(said)))

    def draw(self, count: int, *key: object) -> list[Entry]:
        """So many well-known entries, always the same for the same key."""
        return sorted(self.drawn, key=lambda e: draw(*key, e.code))[:count]


@dataclass(frozen=True)
class _Kind:
    package: str
    about: str
    told: re.Pattern[str]
    """What a parameter's name or description says when it wants such codes."""
    rows: Callable[[Any], Iterable[Row]]


def available() -> dict[str, Codes]:
    """The lists whose packages are installed, by slot type."""
    return {name: codes for name in KINDS if (codes := codes_of(name)) is not None}


def absent() -> dict[str, list[str]]:
    """Packages that are not installed, with the slot types that need them."""
    gone: dict[str, list[str]] = {}
    for name, kind in KINDS.items():
        if find_spec(kind.package) is None:
            gone.setdefault(kind.package, []).append(name)
    return gone


def editions() -> dict[str, str]:
    """Installed packages with their versions: another edition may hold other codes."""
    found = sorted({kind.package for kind in KINDS.values()} - absent().keys())
    return {package: version(package) for package in found}


@cache
def codes_of(name: str) -> Codes | None:
    """The list of a slot type; None if its package is not installed or the type is none."""
    kind = KINDS.get(name)
    if kind is None:
        return None
    try:
        package = importlib.import_module(kind.package)
    except ImportError:
        return None
    rows = sorted(kind.rows(package), key=lambda r: r[1])
    key = cache(same_text)  # most names are looked at more than once
    names = Counter(key(row[0]) for row in rows)
    others = Counter(other for row in rows for other in {key(o) for o in row[2]})
    codes = Codes()
    for said, code, more, known in rows:
        entry = Entry(said, code)
        if names[key(said)] == 1:
            codes.by_name[key(said)] = entry
            if known:
                codes.drawn.append(entry)
        for other in map(key, more):
            if others[other] == 1 and not names[other]:
                codes.by_name[other] = entry
    for said, code, _, _ in rows:  # a code is what it is, unless the word is somebody's name
        codes.by_name.setdefault(key(code), Entry(said, code))
    return codes


def told_type(name: str, node: Mapping[str, Any]) -> str:
    """The slot type that a parameter asks for by its name and description; empty if none, or if it has a choice."""
    if "enum" in node or node.get("type", "string") != "string":
        return ""
    said = f"{re.sub(r'[_-]+', ' ', name)}. {node.get('description', '')}"
    return next((kind for kind, about in KINDS.items() if about.told.search(said)), "")


def in_form(code: str, node: JsonObject) -> str:
    """The code in the case in which the parameter's choices have it."""
    for allowed in node.get("enum", ()):
        if isinstance(allowed, str) and allowed.casefold() == code.casefold():
            return allowed
    return code


# -- the lists


def _airports(code: str) -> Callable[[Any], Iterable[Row]]:
    def rows(package: Any) -> Iterable[Row]:
        for place in package.load("IATA").values():
            if not place[code] or not place["name"].strip():
                continue
            said = place["name"] if "airport" in place["name"].lower() else f"{place['name']} Airport"
            others = (place["name"], place["city"], f"{place['city']} Airport", place["iata"], place["icao"])
            yield said, place[code], others, "International" in said

    return rows


_ALSO = {"GB": ("UK", "Great Britain"), "RU": ("Russia",), "TR": ("Turkey",), "US": ("America",)}
"""Names of countries that everybody says and ISO 3166 does not."""

_NO_MONEY = frozenset(["BOV", "CHE", "CHW", "CLF", "COU", "MXV", "USN", "UYI", "UYW"])
"""Units of account: codes of ISO 4217 that nobody pays with."""


def _countries(code: str) -> Callable[[Any], Iterable[Row]]:
    def rows(package: Any) -> Iterable[Row]:
        short = Counter(c.name.split(",")[0] for c in package.countries)
        for country in package.countries:
            plain = country.name.split(",")[0]
            said = getattr(country, "common_name", plain if short[plain] == 1 else country.name)
            official = getattr(country, "official_name", said)
            others = (country.name, official, country.alpha_2, country.alpha_3, *_ALSO.get(country.alpha_2, ()))
            yield said, getattr(country, code), others, "," not in said

    return rows


def _currencies(package: Any) -> Iterable[Row]:
    shared = {"XAF", "XCD", "XOF", "XPF"}
    for currency in package.currencies:
        code = currency.alpha_3
        money = (code[0] != "X" or code in shared) and code not in _NO_MONEY
        yield currency.name, code, (), money and "(" not in currency.name


def _languages(code: str) -> Callable[[Any], Iterable[Row]]:
    def rows(package: Any) -> Iterable[Row]:
        for language in package.languages:
            if not hasattr(language, code) or language.type != "L":
                continue
            said = re.sub(r"^Modern |,.*|\s*\(.*", "", language.name).strip()
            yield said, getattr(language, code), (language.name,), hasattr(language, "alpha_2")

    return rows


def _tickers(package: Any) -> Iterable[Row]:
    stocks = package.PyTickerSymbols()
    seen = set()
    for index in ("S&P 100", "NASDAQ 100", "S&P 500"):
        for stock in stocks.get_stocks_by_index(index):
            said = re.sub(r"\s*\((?:The|Class \w)\)$", "", stock["name"]).strip()
            if stock["symbol"] and stock["symbol"] not in seen and said:
                seen.add(stock["symbol"])
                bare = re.sub(r",? (?:Inc|Incorporated|Corp|Corporation|Company|Co|plc|Ltd)\.?$", "", said)
                yield said, stock["symbol"], (bare, bare.removeprefix("The "), stock["name"]), index != "S&P 500"


def _told(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE)


KINDS: dict[str, _Kind] = {
    "airport_icao": _Kind("airportsdata", "ICAO code of an airport", _told(r"\bICAO\b"), _airports("icao")),
    "airport": _Kind(
        "airportsdata", "IATA code of an airport", _told(r"\bIATA\b(?!.*airline)|\bairport code"), _airports("iata")
    ),
    "country_alpha3": _Kind(
        "pycountry",
        "ISO 3166 alpha-3 code of a country",
        _told(r"(?:countr|3166).{0,40}(?:alpha-?3|\b(?:three|3)[- ]letter)|(?:three|3)[- ]letter.{0,20}countr"),
        _countries("alpha_3"),
    ),
    "country": _Kind(
        "pycountry",
        "ISO 3166 alpha-2 code of a country",
        _told(r"ISO[- ]?3166|\bcountry ?code|(?:two|2)[- ]letter.{0,20}countr"),
        _countries("alpha_2"),
    ),
    "currency": _Kind("pycountry", "ISO 4217 code of a currency", _told(r"ISO[- ]?4217|\bcurrency ?code"), _currencies),
    "language_alpha3": _Kind(
        "pycountry", "ISO 639-3 code of a language", _told(r"ISO[- ]?639-[23]"), _languages("alpha_3")
    ),
    "language": _Kind(
        "pycountry",
        "ISO 639-1 code of a language",
        _told(r"ISO[- ]?639|\blanguage ?code|(?:two|2)[- ]letter.{0,20}language"),
        _languages("alpha_2"),
    ),
    "ticker": _Kind(
        "pytickersymbols",
        "ticker of a large company listed in the USA",
        _told(r"\btickers?\b|\bstock ?symbol"),
        _tickers,
    ),
}
"""Slot types, the more particular ones first."""


def offered(lists: Mapping[str, Codes]) -> str:
    """The slot types as a prompt names them."""
    return "; ".join(f"{name} ({KINDS[name].about})" for name in lists)
