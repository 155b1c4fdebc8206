"""ratel-ai (PyPI): its `ToolRegistry`, BM25 in Rust, its default. Ids are `<server>__<tool>`, as it names MCP tools."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from protocol import Found, Search, Tool, serve, unique_names


def build(tools: list[Tool]) -> tuple[str, Search]:
    import ratel_ai

    registry = ratel_ai.ToolRegistry()
    named = unique_names(tools)
    asyncio.run(
        _register(
            registry,
            [
                ratel_ai.Tool(name, tool["name"], tool["description"], tool["input_schema"])
                for name, tool in named.items()
            ],
        )
    )

    def search(query: str, limit: int, offered: int) -> Found:
        found = registry.search(query, limit)
        return [named[hit.tool_id]["tool_id"] for hit in found], lambda: None

    return f"ratel-ai {version('ratel-ai')}, ToolRegistry, BM25", search


async def _register(registry, tools):  # type: ignore[no-untyped-def]
    await registry.register(tools)


if __name__ == "__main__":
    serve(build)
