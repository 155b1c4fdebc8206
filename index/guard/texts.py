"""Everything of a tool and its server that a model may come to read, piece by piece, with where it stands."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from toolscout.records import Server, Tool

MAX_PIECE = 60_000
"""Characters read of one piece; what stands behind them is a finding by itself (`stuffing.too_long`)."""

MAX_PIECES = 4_000
_MAX_LEVELS = 60

_PROSE = frozenset({"description", "title", "$comment", "summary", "label", "message"})
_VALUES = frozenset({"enum", "default", "const", "example", "examples", "pattern", "format", "enumNames"})
_NAMED = frozenset({"properties", "$defs", "definitions", "patternProperties", "dependentSchemas"})


@dataclass(frozen=True)
class Piece:
    """One text. ``kind`` is name, prose, parameter (prose of one parameter), key (a property's name) or value.

    ``parameter`` is the name of the property that it belongs to, if any.
    """

    where: str
    kind: str
    text: str
    parameter: str = ""


def tool_pieces(tool: Tool) -> Iterator[Piece]:
    """The pieces of a tool, what matters most first; at most ``MAX_PIECES``."""
    yield Piece("name", "name", tool.name)
    if tool.title:
        yield Piece("title", "prose", tool.title)
    if tool.description:
        yield Piece("description", "prose", tool.description)
    count = 0
    for root, value in (("input_schema", tool.input_schema), ("output_schema", tool.output_schema)):
        for piece in _schema(value, root, "", 0):
            count += 1
            if count > MAX_PIECES:
                return
            yield piece
    for key, value in (tool.annotations or {}).items():
        if isinstance(value, str) and value:
            yield Piece(f"annotations.{key}", "prose", value)


def server_pieces(server: Server) -> Iterator[Piece]:
    """The pieces of a server."""
    for where, kind in (("name", "name"), ("title", "prose"), ("description", "prose"), ("instructions", "prose")):
        text = getattr(server, where)
        if text:
            yield Piece(f"server.{where}", kind, text)


def _schema(value: Any, where: str, parameter: str, level: int) -> Iterator[Piece]:
    if level > _MAX_LEVELS:
        return
    if isinstance(value, list):
        for number, one in enumerate(value):
            yield from _schema(one, f"{where}.{number}", parameter, level + 1)
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        place = f"{where}.{key}"
        if key in _NAMED and isinstance(inner, dict):
            for name, one in inner.items():
                yield Piece(f"{place}.{name}", "key", str(name), str(name))
                yield from _schema(one, f"{place}.{name}", str(name), level + 1)
        elif key in _VALUES:
            yield from _values(inner, place, parameter, level)
        elif isinstance(inner, str):
            if inner and (key in _PROSE or " " in inner):
                yield Piece(place, "parameter" if parameter else "prose", inner, parameter)
        else:
            yield from _schema(inner, place, parameter, level + 1)


def _values(value: Any, where: str, parameter: str, level: int) -> Iterator[Piece]:
    if isinstance(value, str):
        if len(value) > 3:
            yield Piece(where, "value", value, parameter)
    elif level <= _MAX_LEVELS and isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from _values(inner, f"{where}.{key}", parameter, level + 1)
