"""toolpicker (PyPI): its `ToolPicker` as it is without a key: BM25 alone. Its vectors come from OpenAI.

Its `MCPSource` looks for doubles by counting every name among all of them, as does its `MergedSource`: time that grows
with the square of the tools. The names are unique here, so it gets them in parts, in the pool's order.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from protocol import Found, Search, Tool, serve, unique_names

PART = 500


class InParts:
    """Several of its sources as one; a source is whatever has ``tools()``."""

    def __init__(self, parts: list[Any]) -> None:
        self._parts = parts

    def tools(self) -> list[Any]:
        """The tools of all parts, in order."""
        return [tool for part in self._parts for tool in part.tools()]


def build(tools: list[Tool]) -> tuple[str, Search]:
    from toolpicker import MCPSource, ToolPicker, default_serialise

    named = unique_names(tools)
    shown = [
        {"name": name, "description": tool["description"], "inputSchema": tool["input_schema"]}
        for name, tool in named.items()
    ]
    picker = ToolPicker(InParts([MCPSource(shown[start : start + PART]) for start in range(0, len(shown), PART)]))

    def search(query: str, limit: int, offered: int) -> Found:
        found = picker.select(query, k=limit)
        ranked = [named[tool.id]["tool_id"] for tool in found]
        return ranked, lambda: json.dumps([default_serialise(tool) for tool in found[:offered]])

    return f"toolpicker {version('toolpicker')}, BM25 alone", search


if __name__ == "__main__":
    serve(build)
