"""A call without a model: what the tool needs, and the few values that can be read off the request safely."""

from __future__ import annotations

import re
from typing import Any

from toolscout.records import JsonObject
from toolscout.schema import simplify_arguments

_EMAIL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_URL = re.compile(r"https?://[^\s<>\"'“”«»)\]]+[^\s<>\"'“”«».,;:!?)\]]")
_QUOTED = re.compile(
    r"\"([^\"\n]{1,200})\"|“([^”\n]{1,200})”|«\s*([^»\n]{1,200}?)\s*»|「([^」\n]{1,200})」"
    r"|(?<!\w)'([^'\n]{1,200})'(?!\w)|‘([^’\n]{1,200})’(?!\w)"
)


def skeleton(schema: object, known: JsonObject | None = None) -> JsonObject:
    """Required arguments with placeholders like ``"<city: string>"``, and ``known`` values in their places.

    For a reader, not for the tool: a placeholder is never a value. Of a schema that is a choice, its first alternative.
    """
    node = simplify_arguments(schema)
    if not node["required"] and isinstance(schema, dict):
        options = schema.get("oneOf") or schema.get("anyOf")
        if isinstance(options, list) and options:
            rest = {name: value for name, value in schema.items() if name not in ("oneOf", "anyOf", "allOf")}
            node = simplify_arguments({**rest, "allOf": options[:1]})
    out: JsonObject = {n: _placeholder(n, node["properties"].get(n, {}), 3) for n in node["required"]}
    return {**out, **(known or {})}


def extract(task: str, schema: object) -> JsonObject:
    """Required values that the request states beyond doubt.

    Only these: the one enum value that occurs as a word; the one e-mail or URL for the one parameter that takes it;
    the one quoted text for the one required parameter left, if it is a plain string.
    """
    node = simplify_arguments(schema)
    required = {n: node["properties"].get(n, {}) for n in node["required"]}
    found: JsonObject = {}
    for name, value in required.items():
        words = [w for w in value.get("enum", ()) if isinstance(w, str) and len(w) > 2 and _occurs(w, task)]
        if len(words) == 1:
            found[name] = words[0]
    for kinds, pattern in ((("email",), _EMAIL), (("uri", "url"), _URL)):
        texts = list(dict.fromkeys(pattern.findall(task)))
        takers = [n for n, v in required.items() if _is_text(v) and (v.get("format") in kinds or n.lower() in kinds)]
        if len(texts) == 1 and len(takers) == 1:
            found[takers[0]] = texts[0]
    rest = [n for n in required if n not in found]
    quoted = [next(g for g in groups if g) for groups in _QUOTED.findall(task)]
    if len(rest) == 1 and len(quoted) == 1:
        value = required[rest[0]]
        if _is_text(value) and not {"format", "pattern"} & set(value) and len(quoted[0]) <= value.get("maxLength", 200):
            found[rest[0]] = quoted[0]
    return found


def _placeholder(name: str, node: JsonObject, depth: int) -> Any:
    kind = node.get("type")
    if kind == "object" and node["properties"] and depth:
        return {n: _placeholder(n, node["properties"].get(n, {}), depth - 1) for n in node["required"]}
    if kind == "array" and depth:
        return [_placeholder(name, node["items"], depth - 1)]
    return f"<{name}: {_kind(node)}>"


def _kind(node: JsonObject) -> str:
    if "enum" in node:
        shown = " | ".join(str(v) for v in node["enum"][:8])
        return shown + (" | …" if len(node["enum"]) > 8 else "")
    if "anyOf" in node:
        return " | ".join(dict.fromkeys(_kind(v) for v in node["anyOf"]))
    return str(node.get("format") or node.get("type") or "any value")


def _is_text(node: JsonObject) -> bool:
    return node.get("type") == "string"


def _occurs(word: str, text: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, re.IGNORECASE) is not None
