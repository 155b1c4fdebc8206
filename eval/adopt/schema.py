"""Function descriptions of other benchmarks as tools with JSON Schemas."""

from __future__ import annotations

from typing import Any

from toolscout.errors import BadInput
from toolscout.records import JsonObject, Tool, canonical_json

_TYPES = {"dict": "object", "float": "number", "tuple": "array", "list": "array", "bool": "boolean", "int": "integer"}
_KNOWN = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


def json_schema(described: Any) -> JsonObject:
    """JSON Schema of a described parameter: Python's type names become JSON's, ``any`` states no type."""
    if not isinstance(described, dict):
        return {}
    schema: JsonObject = {}
    for key, value in described.items():
        if key == "type":
            if kind := _kind(value):
                schema[key] = kind
        elif key in ("properties", "patternProperties") and isinstance(value, dict):
            schema[key] = {name: json_schema(part) for name, part in value.items()}
        elif key in ("items", "additionalProperties") and isinstance(value, dict):
            schema[key] = json_schema(value)
        elif key == "required" and isinstance(value, bool):
            pass  # Draft 3's form says nothing that JSON Schema reads at this place.
        elif value is not None:
            schema[key] = value
    return schema


def _kind(value: Any) -> str | list[str] | None:
    if isinstance(value, list):
        kinds = [_kind(v) for v in value]
        return [k for k in kinds if isinstance(k, str)] if all(kinds) else None
    name = _TYPES.get(value, value) if isinstance(value, str) else None
    return name if name in _KNOWN else None


class Tools:
    """Tools by their descriptions: equal functions are one, another of the same name has a server of its own."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._seen: dict[str, list[str]] = {}
        self.tools: list[Tool] = []

    def add(self, function: Any, place: str) -> Tool:
        """The tool of a function description ``{name, description, parameters}``. Raises BadInput without a name."""
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            raise BadInput(f"{place} has a function without a name.", "Give the benchmark's own file, unchanged.")
        described = function.get("parameters", function.get("arguments"))
        schema = json_schema(described if isinstance(described, dict) else {})
        schema["type"] = "object"
        text = function.get("description")
        text = text if isinstance(text, str) else ""
        same = self._seen.setdefault(name, [])
        key = canonical_json([text, schema])
        number = same.index(key) if key in same else len(same)
        server = self._source if number == 0 else f"{self._source}-{number + 1}"
        tool = Tool(tool_id=f"{server}/{name}", server_id=server, name=name, description=text, input_schema=schema)
        if number == len(same):
            same.append(key)
            self.tools.append(tool)
        return tool
