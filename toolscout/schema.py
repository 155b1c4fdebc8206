"""Any JSON Schema that a tool may bring, reduced to a small closed form that prompts and grammars can rely on.

Real tools carry ``$ref`` cycles, draft-04 keywords, list-valued types, schemas without a type and plain mistakes.
:func:`simplify` never raises. What it cannot express (``pattern`` across branches, ``not``, ``if``) it leaves
out: the final validation against the original schema still checks that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from toolscout.records import JsonObject, canonical_json

MAX_DEPTH = 8
MAX_NODES = 4000

_TYPES = {
    **{name: name for name in ("string", "integer", "number", "boolean", "array", "object", "null")},
    **dict.fromkeys(("str", "text", "date", "datetime", "uuid", "uri", "url", "email", "char", "file"), "string"),
    **dict.fromkeys(("int", "int32", "int64", "long"), "integer"),
    **dict.fromkeys(("float", "double", "decimal", "numeric"), "number"),
    **dict.fromkeys(("bool",), "boolean"),
    **dict.fromkeys(("list", "tuple", "set"), "array"),
    **dict.fromkeys(("dict", "map", "record", "json"), "object"),
    **dict.fromkeys(("none", "nil"), "null"),
}
_KEYWORDS = {
    "string": ("minLength", "maxLength", "format", "pattern"),
    "integer": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "contains"),
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties"),
}
_NOTES = ("description", "default")


def simplify(schema: object) -> JsonObject:
    """The closed form of a schema: one of

    ``{}`` (any value) · ``{"enum": [...]}`` · ``{"anyOf": [...]}`` · ``{"type": "boolean" | "null"}`` ·
    ``{"type": "string", minLength?, maxLength?, format?, pattern?}`` ·
    ``{"type": "integer" | "number", minimum?, maximum?}`` ·
    ``{"type": "array", "items": node, minItems?, maxItems?}`` ·
    ``{"type": "object", "properties": {name: node}, "required": [...], "additionalProperties": False | node}``,

    each with ``description`` and ``default`` where the schema gave them. References are inlined, recursive ones
    to a bounded depth.
    """
    schema = _encodable(schema)
    return _Simplifier(schema).node(schema, 0, ())


def simplify_arguments(schema: object) -> JsonObject:
    """As :func:`simplify`, for a tool's ``input_schema``: always an object node, since MCP arguments are an object."""
    node = simplify(schema)
    if node.get("type") == "object":
        return node
    variants = [v for v in node.get("anyOf", ()) if v.get("type") == "object"]
    if not variants:
        return {"type": "object", "properties": {}, "required": [], "additionalProperties": {}}
    properties: JsonObject = {}
    for variant in variants:
        for name, value in variant["properties"].items():
            properties[name] = value if name not in properties else _one_of([properties[name], value])
    required = [n for n in variants[0]["required"] if all(n in v["required"] for v in variants)]
    rest = next((v["additionalProperties"] for v in variants if v["additionalProperties"] is not False), False)
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": rest}


def pointer(root: object, reference: str) -> object:
    """What a JSON pointer (``#/$defs/city``) names; None for all else. Other documents are never fetched."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    here = root
    for step in unquote(reference[1:]).split("/")[1:]:
        step = step.replace("~1", "/").replace("~0", "~")
        if isinstance(here, Mapping) and step in here:
            here = here[step]
        elif isinstance(here, list) and len(step) < 10 and step.isdecimal() and int(step) < len(here):
            here = here[int(step)]
        else:
            return None
    return here


def _encodable(schema: object) -> object:
    """The schema with lone surrogates replaced: crawled text has them, and no model input can."""
    try:
        text = json.dumps(schema, ensure_ascii=False)
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode("utf-8", "replace"))
    except (TypeError, ValueError, RecursionError):
        return {}
    return schema


class _Simplifier:
    def __init__(self, root: object) -> None:
        self.root = root
        self.nodes = 0

    def node(self, schema: object, depth: int, refs: tuple[str, ...]) -> JsonObject:
        self.nodes += 1
        if isinstance(schema, str):  # seen in the wild: {"city": "string"}
            schema = {"type": schema}
        if not isinstance(schema, dict) or not schema or depth > MAX_DEPTH or self.nodes > MAX_NODES:
            return {}
        schema, refs = self.flatten(schema, refs, 0)
        notes = {k: schema[k] for k in _NOTES if k in schema and (k != "description" or isinstance(schema[k], str))}
        return {**self.shape(schema, depth, refs), **notes}

    def flatten(self, schema: JsonObject, refs: tuple[str, ...], hops: int) -> tuple[JsonObject, tuple[str, ...]]:
        """``$ref`` replaced by what it points to and ``allOf`` merged, at this level."""
        ref = schema.get("$ref", schema.get("$dynamicRef"))
        if isinstance(ref, str):
            rest = {k: v for k, v in schema.items() if k not in ("$ref", "$dynamicRef")}
            target = self.resolve(ref)
            if refs.count(ref) >= 2 or hops > 20 or not isinstance(target, dict):
                return rest, refs
            flat, refs = self.flatten(target, (*refs, ref), hops + 1)
            return _merge(flat, rest), refs
        parts = schema.get("allOf")
        if isinstance(parts, list):
            merged = {k: v for k, v in schema.items() if k != "allOf"}
            for part in parts:
                if isinstance(part, dict) and hops <= 20:
                    flat, refs = self.flatten(part, refs, hops + 1)
                    merged = _merge(flat, merged)
            return merged, refs
        return schema, refs

    def resolve(self, ref: str) -> object:
        if ref == "#" or not ref.startswith("#") or "/" in ref:
            return pointer(self.root, ref)
        for name in ("$defs", "definitions"):  # an $anchor: looked up among the definitions only
            for value in _dict(_dict(self.root).get(name)).values():
                if isinstance(value, dict) and ref[1:] in (value.get("$anchor"), value.get("$dynamicAnchor")):
                    return value
        return None

    def shape(self, schema: JsonObject, depth: int, refs: tuple[str, ...]) -> JsonObject:
        if "const" in schema:
            return {"enum": [schema["const"]]}
        types = _types(schema)
        values = schema.get("enum")
        if isinstance(values, list) and values:
            fitting = [v for v in values if not types or any(_is(v, t) for t in types)]
            return {"enum": _distinct(fitting or values)}
        for key in ("anyOf", "oneOf"):
            variants = schema.get(key)
            if isinstance(variants, list) and any(isinstance(v, dict) and v for v in variants):
                return self.union(schema, key, variants, types, depth, refs)
        if not types:
            types = _guess(schema)
        if not types:
            return {}
        return _one_of([self.typed(schema, t, depth, refs) for t in types])

    def union(
        self, schema: JsonObject, key: str, variants: list[Any], types: list[str], depth: int, refs: tuple[str, ...]
    ) -> JsonObject:
        base = {k: v for k, v in schema.items() if k not in (key, *_NOTES)}
        carried = {k for kind in _KEYWORDS.values() for k in kind}
        shapes = []
        for variant in variants:
            if not isinstance(variant, dict):
                continue
            flat, inner = self.flatten(variant, refs, 0)
            if any(k in base for k in (*carried, "type", "enum")):
                flat = _merge(base, flat)
            # A variant that only adds `required` leaves the object as it is: the other properties stay writable.
            if "type" not in flat and types:
                flat = {**flat, "type": types}
            shapes.append(self.node(flat, depth + 1, inner))
        return _one_of(shapes)

    def typed(self, schema: JsonObject, kind: str, depth: int, refs: tuple[str, ...]) -> JsonObject:
        if kind == "object":
            return self.object(schema, depth, refs)
        if kind == "array":
            return self.array(schema, depth, refs)
        node: JsonObject = {"type": kind}
        if kind == "string":
            for key in ("minLength", "maxLength"):
                if (size := _size(schema.get(key))) is not None:
                    node[key] = size
            for key in ("format", "pattern"):
                if isinstance(schema.get(key), str):
                    node[key] = schema[key]
            _drop_empty_range(node, "minLength", "maxLength")
        if kind in ("integer", "number"):
            node.update(_bounds(schema, whole=kind == "integer"))
        return node

    def object(self, schema: JsonObject, depth: int, refs: tuple[str, ...]) -> JsonObject:
        raw = _dict(schema.get("properties"))
        listed = schema.get("required")
        required = [r for r in listed if isinstance(r, str)] if isinstance(listed, list) else []
        # draft-03: `required: true` on the property itself
        required += [n for n, v in raw.items() if isinstance(v, dict) and v.get("required") is True]
        properties = {str(n): self.node(v, depth + 1, refs) for n, v in raw.items()}
        for name in required:  # required, but not described
            properties.setdefault(name, {})
        rest = schema.get("additionalProperties")
        if not isinstance(rest, dict):
            patterns = [v for v in _dict(schema.get("patternProperties")).values() if isinstance(v, dict)]
            # Undeclared names are legal by default, yet inviting them only invites invention.
            rest = patterns[0] if patterns else ({} if not properties and rest is not False else False)
        return {
            "type": "object",
            "properties": properties,
            "required": list(dict.fromkeys(required)),
            "additionalProperties": self.node(rest, depth + 1, refs) if rest is not False else False,
        }

    def array(self, schema: JsonObject, depth: int, refs: tuple[str, ...]) -> JsonObject:
        items = schema.get("items")
        several = schema.get("prefixItems") if isinstance(schema.get("prefixItems"), list) else items
        if isinstance(several, list):
            shapes = [self.node(i, depth + 1, refs) for i in several]
            node: JsonObject = {"type": "array", "items": _one_of(shapes) if shapes else {}}
        else:
            node = {"type": "array", "items": self.node(items, depth + 1, refs)}
        for key in ("minItems", "maxItems"):
            if (size := _size(schema.get(key))) is not None:
                node[key] = size
        _drop_empty_range(node, "minItems", "maxItems")
        return node


def _merge(first: JsonObject, second: JsonObject) -> JsonObject:
    """Both schemas at once; where they cannot be combined the second wins."""
    out = {**first, **second}
    if isinstance(first.get("properties"), dict) and isinstance(second.get("properties"), dict):
        both: JsonObject = dict(first["properties"])
        for name, value in second["properties"].items():
            old = both.get(name)
            both[name] = {**old, **value} if isinstance(old, dict) and isinstance(value, dict) else value
        out["properties"] = both
    if isinstance(first.get("required"), list) and isinstance(second.get("required"), list):
        out["required"] = [*first["required"], *second["required"]]
    if isinstance(first.get("enum"), list) and isinstance(second.get("enum"), list):
        out["enum"] = [v for v in first["enum"] if v in second["enum"]] or second["enum"]
    if "type" in first and "type" in second:
        left, right = _types(first), _types(second)
        common = [t for t in left if t in right]
        out["type"] = common or second["type"]
    return out


def _one_of(shapes: list[JsonObject]) -> JsonObject:
    flat: list[JsonObject] = []
    for shape in shapes:
        flat += shape.get("anyOf", [shape])
    if any(not {k for k in s if k not in _NOTES} for s in flat):
        return {}
    distinct: dict[str, JsonObject] = {}
    for shape in flat:
        distinct.setdefault(canonical_json({k: v for k, v in shape.items() if k not in _NOTES}), shape)
    flat = list(distinct.values())
    return flat[0] if len(flat) == 1 else ({"anyOf": flat} if flat else {})


def _types(schema: JsonObject) -> list[str]:
    raw = schema.get("type")
    names = raw if isinstance(raw, list) else [raw]
    known = [_TYPES[n.strip().lower()] for n in names if isinstance(n, str) and n.strip().lower() in _TYPES]
    if schema.get("nullable") is True and known and "null" not in known:
        known.append("null")
    return list(dict.fromkeys(known))


def _guess(schema: JsonObject) -> list[str]:
    if schema.get("type") is not None:
        return []  # a type nobody knows ("any"): leave it open
    return next((["number" if k == "integer" else k] for k in ("object", "array", "string", "integer")
                 if any(w in schema for w in _KEYWORDS[k])), [])  # fmt: skip


def _bounds(schema: JsonObject, *, whole: bool) -> JsonObject:
    """Inclusive bounds; draft-04's boolean ``exclusiveMinimum`` included. Exclusive ones on reals stay inclusive."""
    out: JsonObject = {}
    for key, exclusive, step in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        value, strict = schema.get(key), schema.get(exclusive)
        if _number(strict):
            value, strict = strict, True
        if _number(value) and abs(value) < 1e15:  # type: ignore[arg-type]
            bound: Any = value
            if whole:
                up = step > 0
                rounded = -int(-bound // 1) if up else int(bound // 1)
                bound = rounded + step if strict is True and rounded == bound else rounded
            out[key] = bound
    if "minimum" in out and "maximum" in out and out["minimum"] > out["maximum"]:
        return {}
    return out


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == value


def _size(value: object) -> int | None:
    return int(value) if _number(value) and 0 <= value < 1e9 else None  # type: ignore[operator, call-overload]


def _drop_empty_range(node: JsonObject, low: str, high: str) -> None:
    """Bounds that no value can meet are a mistake of the schema, not a wish."""
    if high in node and node[high] < node.get(low, 0):
        del node[high]
        node.pop(low, None)


def _dict(value: object) -> JsonObject:
    return value if isinstance(value, dict) else {}


def _distinct(values: list[Any]) -> list[Any]:
    return list({canonical_json(v): v for v in values}.values())


def _is(value: object, kind: str) -> bool:
    if kind == "integer":
        return _number(value) and value % 1 == 0  # type: ignore[operator]
    if kind == "number":
        return _number(value)
    python = {"string": str, "boolean": bool, "array": list, "object": dict, "null": type(None)}[kind]
    return isinstance(value, python)
