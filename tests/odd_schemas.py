"""Input schemas as tools in the wild bring them: every trap once."""

from __future__ import annotations

from typing import Any

ODD: dict[str, Any] = {
    "empty": {},
    "true": True,
    "none": None,
    "text": "object",
    "list": [],
    "bare object": {"type": "object"},
    "properties null": {"type": "object", "properties": None, "required": None},
    "properties list": {"type": "object", "properties": ["a"]},
    "property as text": {"type": "object", "properties": {"city": "string"}},
    "property true": {"type": "object", "properties": {"x": True, "y": False}, "required": ["x"]},
    "draft-03 required": {"properties": {"q": {"type": "string", "required": True}}},
    "draft-04 bounds": {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True, "maximum": 3}},
        "required": ["n"],
    },
    "required not declared": {"type": "object", "properties": {}, "required": ["ghost"]},
    "types in a list": {"type": ["object", "null"], "properties": {"a": {"type": ["string", "integer", "null"]}}},
    "python types": {"type": "dict", "properties": {"a": {"type": "str"}, "b": {"type": "Integer"}}},
    "unknown type": {"type": "object", "properties": {"a": {"type": "any"}, "b": {"type": 7}}},
    "ref": {
        "type": "object",
        "properties": {"p": {"$ref": "#/$defs/Point"}},
        "required": ["p"],
        "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]}},
    },
    "recursive": {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/Node"}},
        "$defs": {
            "Node": {
                "type": "object",
                "properties": {"v": {"type": "string"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/Node"}}},
                "required": ["v"],
            }
        },
    },
    "recursive root": {"type": "object", "properties": {"child": {"$ref": "#"}, "name": {"type": "string"}}},
    "ref to itself": {"$ref": "#"},
    "refs in a ring": {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "dangling ref": {"type": "object", "properties": {"a": {"$ref": "#/nowhere"}, "b": {"$ref": "http://x.test/y"}}},
    "escaped ref": {
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/a~1b%20c"}},
        "definitions": {"a/b c": {"type": "boolean"}},
    },
    "allOf": {
        "allOf": [
            {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]},
            {"properties": {"b": {"type": "integer"}}, "required": ["b"]},
        ]
    },
    "anyOf of objects": {
        "anyOf": [
            {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]},
            {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        ]
    },
    "anyOf of required": {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "anyOf": [{"required": ["a"]}, {"required": ["b"]}],
    },
    "optional the pydantic way": {
        "type": "object",
        "properties": {"days": {"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None}},
    },
    "oneOf const": {
        "type": "object",
        "properties": {"mode": {"oneOf": [{"const": "fast", "title": "F"}, {"const": "slow"}]}},
        "required": ["mode"],
    },
    "enums": {
        "type": "object",
        "properties": {
            "mixed": {"enum": [1, "two", None, True, 2.5, ["x"], {"y": 1}]},
            "none": {"type": "string", "enum": []},
            "quotes": {"enum": ['say "hi"', "back\\slash", "new\nline", "Größe", "日本", "\ud800"]},
            "wrong type": {"type": "string", "enum": [1, 2]},
        },
    },
    "array of list items": {"type": "object", "properties": {"xy": {"type": "array", "items": [{"type": "number"}]}}},
    "array bounds": {
        "type": "object",
        "properties": {
            "a": {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 3},
            "none": {"type": "array", "maxItems": 0},
            "many": {"type": "array", "items": {"type": "integer"}, "minItems": 1000},
            "crossed": {"type": "array", "minItems": 5, "maxItems": 1},
        },
    },
    "string bounds": {
        "type": "object",
        "properties": {
            "code": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^[A-Z]+$"},
            "crossed": {"type": "string", "minLength": 5, "maxLength": 1},
            "huge": {"type": "string", "minLength": 99999, "maxLength": 10**9},
            "float": {"type": "string", "maxLength": 4.0},
            "bad": {"type": "string", "maxLength": "ten", "pattern": "([unclosed"},
        },
    },
    "formats": {
        "type": "object",
        "properties": {
            f: {"type": "string", "format": f} for f in ("date", "time", "date-time", "uuid", "email", "uri", "klingon")
        },
    },
    "number bounds": {
        "type": "object",
        "properties": {
            "small": {"type": "integer", "minimum": -2, "maximum": 2},
            "natural": {"type": "integer", "minimum": 0},
            "real": {"type": "number", "minimum": 0, "maximum": 1},
            "crossed": {"type": "integer", "minimum": 9, "maximum": 1},
            "half": {"type": "integer", "minimum": 0.5, "maximum": 2.5},
            "endless": {"type": "number", "maximum": 1e308},
        },
    },
    "map": {"type": "object", "properties": {"tags": {"type": "object", "additionalProperties": {"type": "integer"}}}},
    "pattern properties": {"type": "object", "patternProperties": {"^x-": {"type": "string"}}},
    "closed and empty": {"type": "object", "properties": {}, "additionalProperties": False},
    "nested required": {
        "type": "object",
        "properties": {
            "o": {
                "type": "object",
                "properties": {k: {"type": "integer"} for k in "abcd"},
                "required": ["b", "d"],
            }
        },
        "required": ["o"],
    },
    "array at the root": {"type": "array", "items": {"type": "string"}},
    "if then": {"type": "object", "properties": {"a": {"type": "string"}}, "if": {}, "then": {"required": ["a"]}},
    "odd names": {
        "type": "object",
        "properties": {"": {"type": "string"}, 'a"b': {"type": "string"}, "naïve-键 x": {"type": "boolean"}},
        "required": ['a"b'],
    },
    "deep": {"type": "object", "properties": {"a": {}}},
}
_level: dict[str, Any] = {"type": "string"}
for _ in range(60):
    _level = {"type": "object", "properties": {"d": _level}, "required": ["d"]}
ODD["deep"] = _level
ODD["wide"] = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(300)}}
