"""Gold calls as the answers that constrained decoding can write: order of members, form of values."""

from __future__ import annotations

import re
from typing import Any

from toolscout.index.words import fold
from toolscout.records import Call, JsonObject, Tool
from toolscout.schema import simplify_arguments

_MAX_STRING = 1000
_MAX_ITEMS = 24
"""As in ``server.calling.constrain``: longer values cannot be written."""


def writable(tool: Tool, arguments: JsonObject) -> JsonObject | None:
    """The arguments in the schema's order at every level; None if the tool's grammar could not write them.

    The grammar takes top-level members in any order, and nested ones in the schema's order only. Training on one
    order, that in which the prompt lists them, is what a small model learns fastest.
    """
    node = simplify_arguments(tool.input_schema)
    try:
        out = _ordered({**node, "required": []}, arguments)
    except _Unwritable:
        return None
    return out if isinstance(out, dict) else None


class _Unwritable(Exception):
    pass


def _ordered(node: JsonObject, value: Any) -> Any:
    if "enum" in node:
        for allowed in node["enum"]:
            if allowed == value and isinstance(allowed, bool) == isinstance(value, bool):
                return allowed
        raise _Unwritable
    if "anyOf" in node:
        for variant in node["anyOf"]:
            try:
                return _ordered(variant, value)
            except _Unwritable:
                continue
        raise _Unwritable
    kind = node.get("type")
    if kind is None:
        return value
    if kind == "object":
        return _object(node, value)
    if kind == "array":
        if not isinstance(value, list) or not node.get("minItems", 0) <= len(value) <= _MAX_ITEMS:
            raise _Unwritable
        return [_ordered(node["items"], item) for item in value]
    if kind == "string":
        if not isinstance(value, str) or not node.get("minLength", 0) <= len(value) <= _MAX_STRING:
            raise _Unwritable
        return value
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if not _is(kind, value):
        raise _Unwritable
    return value


def _object(node: JsonObject, value: Any) -> JsonObject:
    if not isinstance(value, dict) or any(name not in value for name in node["required"]):
        raise _Unwritable
    known = node["properties"]
    rest = node["additionalProperties"]
    out = {name: _ordered(inner, value[name]) for name, inner in known.items() if name in value}
    for name in value:
        if name not in known:
            if rest is False:
                raise _Unwritable
            out[name] = _ordered(rest, value[name])
    return out


def _is(kind: str, value: Any) -> bool:
    if kind == "boolean":
        return isinstance(value, bool)
    if kind == "null":
        return value is None
    if isinstance(value, bool):
        return False
    return isinstance(value, int) if kind == "integer" else isinstance(value, int | float)


_BEFORE = r"(?:,?\s+(?:for|in|at|on|to|from|of|with|by|about|near|into|named|called|titled|using|via|under))"
_OPEN_WORDS = """
is are was were be been being has have had do does did that which who it its and or but as than the a an of
for in at on to from with by about near into under over using via named called titled begin begins start
starts end ends written look looks lives stands reads says set goes comes live like between
"""
_OPEN = frozenset(_OPEN_WORDS.split())
"""Words after which a sentence is not over: nothing may be cut off behind them."""
_QUOTES = "\"'“”‘’`"


def without_value(call: Call, tool: Tool) -> tuple[str, str] | None:
    """(request without one required value, that parameter's name), or None where that can't be done well.

    Only what leaves a whole sentence is taken out: a value at the end of a clause together with the preposition
    before it ("What's the weather in Oslo?" -> "What's the weather?"), or a value after a noun with its article
    ("close the ticket 4711" -> "close the ticket"). No word of the value may remain, nor any other argument go.
    """
    node = simplify_arguments(tool.input_schema)
    arguments = call.gold[0].arguments or {}
    for name in node["required"]:
        value = arguments.get(name)
        spec = node["properties"].get(name, {})
        if isinstance(value, bool) or not isinstance(value, str | int) or "enum" in spec or "anyOf" in spec:
            continue
        text = str(value)
        if not 2 <= len(text) <= 80 or call.query.count(text) != 1:
            continue
        short = _cut(call.query, text)
        if short is not None and not _remains(short, text) and _others_stay(short, call.query, arguments, name):
            return short, name
    return None


def _cut(query: str, text: str) -> str | None:
    quoted = f"[{_QUOTES}]?{re.escape(text)}[{_QUOTES}]?"
    end = r"(?=\s*(?:[.?!,;:)–—]|$)|\s+(?:please|and|so|because|since|but|for me)\b)"
    patterns = (
        (rf"{_BEFORE}\s+(?:the\s+)?{quoted}{end}", ""),
        (rf"\b((?:the|my|our|this|that)\s+(?:[a-z]+\s+)?[a-z]+)\s+(?:#|no\.? |number |id |ID )?{quoted}{end}", r"\1"),
    )
    for pattern, put in patterns:
        short, found = re.subn(pattern, put, query)
        short = re.sub(r"\s+([.?!,;:])(?=\s|$)", r"\1", short).strip()
        if found == 1 and short != query and _whole(query, short):
            return short
    return None


def _whole(query: str, short: str) -> bool:
    """Whether the place of the cut still reads as a sentence: enough before it, and no word that wants another."""
    at = next((i for i, (a, b) in enumerate(zip(query, short, strict=False)) if a != b), len(short))
    sentence = re.split(r"[.?!:;]\s", short[:at])[-1].rstrip(" .?!,;:)–—")
    found = sentence.split()
    return len(found) >= 3 and found[-1].lower() not in _OPEN


def _remains(query: str, text: str) -> bool:
    left = fold(query)
    return any(len(w) > 2 and w[:5] in left for w in re.findall(r"\w+", fold(text)))


def _others_stay(short: str, query: str, arguments: JsonObject, name: str) -> bool:
    others = [str(v) for n, v in arguments.items() if n != name and not isinstance(v, dict | list)]
    return all((other in query) == (other in short) for other in others)
