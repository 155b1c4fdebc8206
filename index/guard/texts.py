"""Everything of a tool, its server and its worked calls that a model may come to read, piece by piece, with where it
stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

from toolscout.records import Call, Server, Tool

MAX_PIECE = 60_000
"""Characters read of one piece; what stands behind them is a finding by itself (`stuffing.too_long`)."""

MAX_PIECES = 4_000
"""Pieces read of one tool's schemas."""

MAX_TOOL = 240_000
"""Characters read of one tool, seven times what the longest of 31,000 real ones has."""

MAX_INSTALL = 500
"""Variables, and words of a command line, that are read of one server; a sandbox's own line has some 200."""

LEAST_ORDER = 5
"""Words from which on a part of an address, an option or a variable's name may be an order to a model."""

_JOINTS = re.compile(r"[-_./=,+:]+")
_MAX_LEVELS = 120
"""Nested objects and lists that are followed into: 60 properties in one another."""

_PROSE = frozenset({"description", "title", "$comment", "summary", "label", "message"})
_VALUES = frozenset({"enum", "default", "const", "example", "examples", "pattern", "format", "enumNames"})
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})
_TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_LONGEST_KEYWORD = len("unevaluatedProperties")


class Piece(NamedTuple):
    """One text. ``kind`` is name, prose, parameter (prose of one parameter), key (a property's name), value or order
    (words that were joined, read for orders alone); or it is unread, and the text says which part of
    the tool was not read.

    ``parameter`` is the name of the property that it belongs to, if any.
    """

    where: str
    kind: str
    text: str
    parameter: str = ""


def tool_pieces(tool: Tool) -> Iterator[Piece]:
    """The pieces of a tool, what matters most first. What is beyond the limits is not left out in silence: an unread
    piece says so."""
    yield from _bounded(_tool_pieces(tool), "a tool")


def call_pieces(call: Call) -> Iterator[Piece]:
    """The pieces of a worked call: the request, and what stands in the arguments. Limits as of a tool."""
    yield from _bounded(_call_pieces(call), "a call")


def _bounded(pieces: Iterable[Piece], what: str) -> Iterator[Piece]:
    room = MAX_TOOL
    for piece in pieces:
        room -= len(piece.text)
        if room < 0:
            yield Piece(piece.where, "unread", f"{what} of more than {MAX_TOOL:,} characters")
            return
        yield piece


def _tool_pieces(tool: Tool) -> Iterator[Piece]:
    yield Piece("name", "name", tool.name)
    if tool.title:
        yield Piece("title", "prose", tool.title)
    if tool.description:
        yield Piece("description", "prose", tool.description)
    pieces: list[Piece] = []
    for root in ("input_schema", "output_schema", "annotations"):
        _schema(pieces, getattr(tool, root), root, "", 0)
    yield from pieces[:MAX_PIECES]
    if len(pieces) > MAX_PIECES:
        yield Piece(pieces[MAX_PIECES].where, "unread", f"schemas of more than {MAX_PIECES:,} texts")


def _call_pieces(call: Call) -> Iterator[Piece]:
    yield Piece("query", "prose", call.query)
    pieces: list[Piece] = []
    for gold in call.gold:
        _argument(pieces, gold.arguments, "arguments")
    yield from pieces[:MAX_PIECES]
    if len(pieces) > MAX_PIECES:
        yield Piece(pieces[MAX_PIECES].where, "unread", f"arguments of more than {MAX_PIECES:,} texts")


def _argument(pieces: list[Piece], value: Any, where: str) -> None:
    if isinstance(value, str):
        if len(value) > 3:
            pieces.append(Piece(where, "prose", value))
    elif len(pieces) <= MAX_PIECES and isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            if isinstance(key, str):
                pieces.append(Piece(where, "key", key))
            _argument(pieces, inner, f"{where}.{key}")


def server_pieces(server: Server) -> Iterator[Piece]:
    """The pieces of a server: what it says of itself, and how a catalogue says that it is run."""
    yield Piece("server.server_id", "name", server.server_id)
    yield from _spelled("server.server_id", server.server_id)
    for where, kind in (
        ("name", "name"),
        ("title", "prose"),
        ("description", "prose"),
        ("summary", "prose"),
        ("instructions", "prose"),
    ):
        text = getattr(server, where)
        if text:
            yield Piece(f"server.{where}", kind, text)
    install = server.install
    for number, variable in enumerate(install.env[:MAX_INSTALL]):
        yield from _spelled(f"server.install.env.{number}.name", variable.name)
        yield Piece(f"server.install.env.{number}.name", "name", variable.name)
        if variable.description:
            yield Piece(f"server.install.env.{number}.description", "prose", variable.description)
    for number, word in enumerate([install.command, install.url, *install.args][: MAX_INSTALL + 2]):
        # One without a space is an address, an option or a key's placeholder: nothing is said to anybody, unless it is
        # a sentence whose words are joined by other signs.
        if word and (len(word.split()) > 1 or not word.isascii()):
            yield Piece(f"server.install.{number}", "value", word)
        if word:
            yield from _spelled(f"server.install.{number}", word)
    for where in ("package", "version"):
        yield from _spelled(f"server.install.{where}", getattr(install, where) or "")
    if max(len(install.env), len(install.args)) > MAX_INSTALL:
        yield Piece("server.install", "unread", f"more than {MAX_INSTALL} variables or arguments")


def _spelled(where: str, text: str) -> Iterator[Piece]:
    """A text that may be a sentence without spaces, its words apart: as an order, and for nothing else."""
    words = _JOINTS.sub(" ", unquote(text)).split()
    if len(words) >= LEAST_ORDER:
        yield Piece(where, "order", " ".join(words))


def _schema(pieces: list[Piece], value: Any, where: str, parameter: str, level: int, keyword: str = "") -> None:
    """Collect every text under a schema, names of keys that JSON Schema does not know included.

    Args:
        keyword: the key that ``value`` stands under; inside a value of `_VALUES` it stays that one.
    """
    if len(pieces) > MAX_PIECES:
        return
    if isinstance(value, str):
        if value and (keyword in _PROSE or (" " in value and keyword not in _VALUES)):
            pieces.append(Piece(where, "parameter" if parameter else "prose", value, parameter))
        elif len(value) > 3 and value not in _TYPES:
            pieces.append(Piece(where, "value", value, parameter))
        return
    if not isinstance(value, dict | list):
        return
    if level > _MAX_LEVELS:
        pieces.append(Piece(where, "unread", f"a schema of more than {_MAX_LEVELS} levels"))
        return
    if isinstance(value, list):
        for number, one in enumerate(value):
            _schema(pieces, one, f"{where}.{number}", parameter, level + 1, keyword)
        return
    for key, inner in value.items():
        place = f"{where}.{key}"
        if keyword in _NAMED:
            pieces.append(Piece(place, "key", key, key))
            _schema(pieces, inner, place, key, level + 1)
        else:
            if len(key) > _LONGEST_KEYWORD or " " in key:
                pieces.append(Piece(place, "key", key, parameter))
            _schema(pieces, inner, place, parameter, level + 1, keyword if keyword in _VALUES else key)
