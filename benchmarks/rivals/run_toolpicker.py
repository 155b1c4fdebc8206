"""toolpicker (PyPI): its `ToolPicker` as it is without a key: BM25 alone. Its vectors come from OpenAI."""

from __future__ import annotations

import json
from importlib.metadata import version

from protocol import Found, Search, Tool, serve, unique_names


def build(tools: list[Tool]) -> tuple[str, Search]:
    from toolpicker import MCPSource, ToolPicker, default_serialise

    named = unique_names(tools)
    shown = [
        {"name": name, "description": tool["description"], "inputSchema": tool["input_schema"]}
        for name, tool in named.items()
    ]
    picker = ToolPicker(MCPSource(shown))

    def search(query: str, limit: int, offered: int) -> Found:
        found = picker.select(query, k=limit)
        ranked = [named[tool.id]["tool_id"] for tool in found]
        return ranked, lambda: json.dumps([default_serialise(tool) for tool in found[:offered]])

    return f"toolpicker {version('toolpicker')}, BM25 alone", search


if __name__ == "__main__":
    serve(build)
