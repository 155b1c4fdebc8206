"""A tool's input schema as one short line that a model reads like a function signature.

    city: str, days: int = 7, units?: "metric"|"imperial"

Required parameters come first; ``?`` marks an optional one without a default, ``|`` between whole parameters a choice,
``**`` names of the caller's choice. Any JSON value is taken for a schema
and gives some line: crawled schemas are broken in every way, and a broken one must not break an answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from toolscout.records import Tool
from toolscout.schema import pointer

MAX_SIGNATURE = 240
MAX_SUMMARY = 120
_MAX_TYPE = 60
_MAX_DEFAULT = 24
_MAX_MEMBERS = 4
_MAX_DEPTH = 3
_MAX_HOPS = 32

_TYPES = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "object": "object", "null": "null"}
_FORMATS = frozenset({"date", "date-time", "time", "email", "uri", "uuid", "ipv4", "ipv6", "byte", "binary"})
_PLAIN_NAME = re.compile(r"[^\s\"',:;=|?(){}\[\]<>]+")


@dataclass(frozen=True)
class Parameter:
    """One parameter of a tool: its schema with ``$ref`` and ``allOf`` resolved, and whether it is required."""

    name: str
    schema: Mapping[str, Any]
    required: bool

    @property
    def description(self) -> str:
        """The schema's description, or nothing."""
        text = self.schema.get("description")
        return text if isinstance(text, str) else ""


def parameters(schema: object) -> list[Parameter]:
    """Parameters of an input schema, required ones first, otherwise in the schema's order."""
    root = schema if isinstance(schema, Mapping) else {}
    return _members(resolve(root, root), root)


def resolve(schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema with its local ``$ref`` followed and its ``allOf`` parts merged, one level deep.

    An unresolvable or circular reference gives what stands beside it; what is no schema gives an empty one.
    """
    merged: dict[str, Any] = {}
    queue = [schema]
    for _ in range(_MAX_HOPS):
        if not queue:
            break
        part = queue.pop(0)
        if not isinstance(part, Mapping):
            continue
        for key, value in part.items():
            if key == "properties" and isinstance(value, Mapping) and isinstance(merged.get(key), dict):
                merged[key] = {**value, **merged[key]}
            elif key == "required" and isinstance(value, list) and isinstance(merged.get(key), list):
                merged[key] = merged[key] + value
            elif key not in ("$ref", "allOf"):
                merged.setdefault(key, value)
        if isinstance(part.get("$ref"), str):
            queue.append(pointer(root, part["$ref"]))
        if isinstance(part.get("allOf"), list):
            queue += part["allOf"]
    return merged


def compact_signature(tool_or_schema: Tool | Mapping[str, Any] | object, limit: int = MAX_SIGNATURE) -> str:
    """One line for the parameters; empty for none. Longer than ``limit`` characters ends in ``... +N more``."""
    schema = tool_or_schema.input_schema if isinstance(tool_or_schema, Tool) else tool_or_schema
    root = schema if isinstance(schema, Mapping) else {}
    resolved = resolve(root, root)
    for key in ("oneOf", "anyOf"):
        if isinstance(only := resolved.get(key), list) and len(only) == 1:  # no choice at all
            resolved = resolve({**resolved, key: [], "allOf": only}, root)
    parts = [_parameter(p, root) for p in _members(resolved, root)]
    parts += filter(None, [*(_choice(resolved.get(key), resolved, root) for key in ("oneOf", "anyOf"))])
    parts += filter(None, [_others(resolved, root)])
    line = ", ".join(parts)
    if len(line) <= limit:
        return line
    room = limit - len(", ... +999 more")
    kept: list[str] = []
    for part in parts:
        if kept and len(", ".join([*kept, part])) > room:
            break
        kept.append(part if len(part) <= room else part[: max(0, room - 3)] + "...")
    left = len(parts) - len(kept)
    return ", ".join(kept) + (f", ... +{left} more" if left else "")


def summary_line(tool: Tool, limit: int = MAX_SUMMARY) -> str:
    """What the tool does in one line: the description's first sentence, else its title, else its name in words."""
    text = _one_line(tool.description) or _one_line(tool.title or "") or _one_line(re.sub(r"[_\-.]+", " ", tool.name))
    sentence = re.match(r".{12,}?[.!?。！？](?=\s|$|[^\x00-\x7f])", text)
    if sentence and not sentence.group().endswith((" e.g.", " i.e.", "(e.g.", "(i.e.")):
        text = sentence.group()
    if len(text) <= limit:
        return text
    cut = text[: limit - 3]
    space = cut.rfind(" ")
    return (cut[:space] if space > limit // 2 else cut).rstrip(" ,;:") + "..."


def _one_line(text: str) -> str:
    text = "".join(c if c.isprintable() else " " for c in text)
    return re.sub(r"\s+", " ", text).strip(" #*_=-")


def _members(resolved: Mapping[str, Any], root: Mapping[str, Any]) -> list[Parameter]:
    properties = resolved.get("properties")
    properties = properties if isinstance(properties, Mapping) else {}
    required = resolved.get("required")
    names = [r for r in required if isinstance(r, str)] if isinstance(required, list) else []
    found = [Parameter(str(n), resolve(s, root), n in names) for n, s in properties.items()]
    found += [Parameter(n, {}, True) for n in dict.fromkeys(names) if n not in properties]
    return sorted(found, key=lambda p: not p.required)


def _choice(options: object, resolved: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """Alternatives of the whole schema: ``city: str | zip: int``; what they share stands before them."""
    if not isinstance(options, list):
        return ""
    own = resolved.get("properties")
    own = own if isinstance(own, Mapping) else {}
    shown, wide = [], bool(own)
    for option in options:
        part = resolve(option, root)
        members = [m if m.schema or m.name not in own else Parameter(m.name, own[m.name], m.required)
                   for m in _members(part, root)]  # fmt: skip
        wide = wide or len(members) > 1
        if members:
            shown.append(", ".join(_parameter(m, root) for m in members))
    different = list(dict.fromkeys(shown))
    if not wide or len(different) < 2:
        return " | ".join(different)
    return " | ".join(f"({line})" for line in different)


def _others(resolved: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    """What a schema says of parameters with names of the caller's choice: ``**: str``."""
    named = resolved.get("properties")
    for key in ("additionalProperties", "patternProperties"):
        others = resolved.get(key)
        if isinstance(others, Mapping) and others:
            node = next(iter(others.values())) if key == "patternProperties" else others
            return f"**: {_type(node, root, 0, ())}"
        if others is True and not named and key == "additionalProperties":
            return "**: any"
    return ""


def _parameter(parameter: Parameter, root: Mapping[str, Any]) -> str:
    name = _name(parameter.name)
    type_text = _type(parameter.schema, root, 0, ())
    default = parameter.schema.get("default")
    if parameter.required:
        return f"{name}: {type_text}"
    if default is None:
        return f"{name}?: {type_text}"
    value = _literal(default)
    return f"{name}: {type_text} = {value}" if len(value) <= _MAX_DEFAULT else f"{name}?: {type_text}"


def _name(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else json.dumps(name, ensure_ascii=not name.isprintable())


def _literal(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return "..."


def _type(schema: object, root: Mapping[str, Any], depth: int, seen: tuple[str, ...]) -> str:
    text = _type_text(schema, root, depth, seen)
    if len(text) <= _MAX_TYPE:
        return text
    return "object" if text.startswith("{") else text[: _MAX_TYPE - 3] + "..."


def _type_text(schema: object, root: Mapping[str, Any], depth: int, seen: tuple[str, ...]) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference in seen:
            return "object"
        seen = (*seen, reference)
    schema = resolve(schema, root)
    if "const" in schema:
        return _short(_literal(schema["const"]))
    values = schema.get("enum")
    if isinstance(values, list) and values:
        return _union((_short(_literal(v)) for v in values if v is not None), open_end=True)
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list) and options:
            if depth >= _MAX_DEPTH:
                return "any"
            return _union(_type(o, root, depth + 1, seen) for o in options)
    kind = schema.get("type")
    if isinstance(kind, list):
        return _union(_single(k, schema, root, depth, seen) for k in kind)
    if not isinstance(kind, str):
        kind = "object" if isinstance(schema.get("properties"), Mapping) else "array" if "items" in schema else ""
    return _single(kind, schema, root, depth, seen)


def _single(kind: object, schema: Mapping[str, Any], root: Mapping[str, Any], depth: int, seen: tuple[str, ...]) -> str:
    if kind == "array":
        if depth >= _MAX_DEPTH:
            return "any[]"
        items = _type(schema.get("items"), root, depth + 1, seen)
        return f"({items})[]" if "|" in items and not items.startswith("{") else f"{items}[]"
    if kind == "object":
        return _object(schema, root, depth, seen)
    if kind == "string":
        form = schema.get("format")
        return f"str<{form}>" if isinstance(form, str) and form in _FORMATS else "str"
    return _TYPES.get(kind, "any") if isinstance(kind, str) else "any"


def _object(schema: Mapping[str, Any], root: Mapping[str, Any], depth: int, seen: tuple[str, ...]) -> str:
    members = _members(schema, root)
    if not members or depth >= _MAX_DEPTH - 1:
        return "object"
    raw = schema.get("properties")
    raw = raw if isinstance(raw, Mapping) else {}
    parts = [
        f"{_name(m.name)}{'' if m.required else '?'}: {_type(raw.get(m.name, {}), root, depth + 1, seen)}"
        for m in members[:_MAX_MEMBERS]
    ]
    return "{" + ", ".join(parts) + (", ..." if len(members) > _MAX_MEMBERS else "") + "}"


def _short(text: str) -> str:
    return text if len(text) <= _MAX_DEFAULT else text[: _MAX_DEFAULT - 4] + '..."'


def _union(parts: Iterator[str], *, open_end: bool = False) -> str:
    """Different parts joined by ``|``, without null (``?`` says it already), cut to what fits one type."""
    different = list(dict.fromkeys(p for p in parts if p != "null"))
    if not different:
        return "null"
    kept = [different[0]]
    for part in different[1:]:
        if open_end and len("|".join([*kept, part])) > _MAX_TYPE - 4:
            return "|".join(kept) + "|..."
        kept.append(part)
    return "|".join(kept)
