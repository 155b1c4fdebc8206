"""smart-tool-select (PyPI): TF-IDF (`--mode lite`, its default) or the all-MiniLM-L6-v2 that it ships (`semantic`).

Its lowest score of 0.2 stays: what is below it is not selected. Tools are named by server and tool, as its registry
loader does with `prefix_tools`.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from importlib.metadata import version
from typing import Any

from protocol import Found, Search, Tool, remembered, serve, unique_names


def build(tools: list[Tool], mode: str, cache: str | None) -> tuple[str, Search]:
    from smart_tool_select import SmartToolSelector

    options: dict[str, Any] = {"mode": mode}
    if mode == "semantic":
        import torch
        from smart_tool_select.embedders import get_default_embedder

        torch.set_num_threads(1)
        options["embedder"] = Remembering(get_default_embedder(), cache)
    named = unique_names(tools)
    pool = [
        {"name": name, "description": tool["description"], "inputSchema": tool["input_schema"]}
        for name, tool in named.items()
    ]
    select = partial(SmartToolSelector, tools=pool, **options)
    select("warm up", top_k=50)

    def search(query: str, limit: int, offered: int) -> Found:
        found = select(query, top_k=limit)
        ranked = [named[one["name"]]["tool_id"] for one in found]
        return ranked, lambda: json.dumps(found[:offered])

    return f"smart-tool-select {version('smart-tool-select')}, mode {mode}", search


class Remembering:
    """Its own embedder, with the documents' vectors kept for later runs."""

    def __init__(self, embedder: Any, cache: str | None) -> None:
        self.embed = embedder.embed
        self.embed_batch = (
            remembered(embedder.embed_batch, cache, "smart-tool-select") if cache else embedder.embed_batch
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", choices=("lite", "semantic"), default="lite")
    parser.add_argument("--cache", help="folder that keeps the documents' vectors for later runs")
    given = parser.parse_args()
    serve(partial(build, mode=given.mode, cache=given.cache))
