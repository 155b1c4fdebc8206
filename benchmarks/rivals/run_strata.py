"""strata-mcp (PyPI): its `UniversalToolSearcher`, BM25+ over weighted fields, one index over all servers.

Strata itself searches the servers that the model names one by one, and builds each index anew at every question; one
index over all is what its searcher offers for several servers, and is built once here.
"""

from __future__ import annotations

import json
from importlib.metadata import version

from protocol import Found, Search, Tool, by_server, serve


def build(tools: list[Tool]) -> tuple[str, Search]:
    from strata.utils.shared_search import UniversalToolSearcher

    ids: dict[tuple[str, str], str] = {}
    pool: dict[str, list[Tool]] = {}
    for server_id, own in by_server(tools).items():
        # it splits "category::tool" at the first "::"
        category = server_id.replace("::", "_")
        for tool in own:
            ids.setdefault((category, tool["name"]), tool["tool_id"])
            # as its client lists the tools of an MCP server: the search reads no parameters from this form
            shown = {key: tool[key] for key in ("name", "title", "description")}
            pool.setdefault(category, []).append({**shown, "inputSchema": tool["input_schema"]})
    searcher = UniversalToolSearcher(pool)

    def search(query: str, limit: int, offered: int) -> Found:
        found = searcher.search(query, max_results=limit)
        ranked = [ids[one["category_name"], one["name"]] for one in found]
        return ranked, lambda: json.dumps(found[:offered], separators=(",", ":"))

    return f"strata-mcp {version('strata-mcp')}, UniversalToolSearcher over all servers", search


if __name__ == "__main__":
    serve(build)
