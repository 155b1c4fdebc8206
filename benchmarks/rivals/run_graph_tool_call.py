"""graph-tool-call (PyPI): its `ToolGraph`, BM25 fused with a graph of tools, without vectors or a model.

Dependencies between tools are looked for within each server, as `ingest_mcp_tools` is meant to be called.
"""

from __future__ import annotations

from importlib.metadata import version

from protocol import Found, Search, Tool, by_server, serve, unique_names


def build(tools: list[Tool]) -> tuple[str, Search]:
    from graph_tool_call import ToolGraph

    graph = ToolGraph()
    named = unique_names(tools)
    name_of = {tool["tool_id"]: name for name, tool in named.items()}
    for server_id, own in by_server(tools).items():
        shown = [
            {
                "name": name_of[tool["tool_id"]],
                "description": tool["description"],
                "inputSchema": tool["input_schema"] or {"type": "object"},
            }
            for tool in own
        ]
        graph.ingest_mcp_tools(shown, server_name=server_id)

    def search(query: str, limit: int, offered: int) -> Found:
        found = graph.retrieve(query, top_k=limit)
        return [named[tool.name]["tool_id"] for tool in found], lambda: None

    return f"graph-tool-call {version('graph-tool-call')}, ToolGraph, mode basic", search


if __name__ == "__main__":
    serve(build)
