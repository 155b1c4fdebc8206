"""mcp-use[search] (PyPI): its `ToolSearchEngine`, vectors of "name: description" and a cosine in plain Python.

Its model, bge-small-en-v1.5, comes from a hub that may be out of reach: `--model FOLDER` names an ONNX export of
another one, run by the same fastembed. Tools are named by server and tool: by itself the engine keeps one tool of each
name. The engine's cache of queries is off.
"""

from __future__ import annotations

import argparse
from functools import partial
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from protocol import Found, Search, Tool, remembered, serve, unique_names


def build(tools: list[Tool], model: Path | None, cache: str | None) -> tuple[str, Search]:
    import asyncio

    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType
    from mcp_use.agents.managers.tools.search_tools import ToolSearchEngine

    engine = ToolSearchEngine(use_caching=False)
    name = "bge-small-en-v1.5"
    if model is not None:
        name = f"{model.name} in place of its bge-small-en-v1.5"
        TextEmbedding.add_custom_model(
            model="local/swapped",
            pooling=PoolingType.MEAN,
            normalization=True,
            sources=ModelSource(hf="local/swapped"),
            dim=384,
            model_file="onnx/model.onnx",
        )
        engine.model = TextEmbedding(model_name="local/swapped", specific_model_path=str(model), threads=1)
        embed = partial(_embed, engine.model)
        engine.embedding_function = remembered(embed, cache, f"mcp-use-{model.name}")
    named = unique_names(tools)
    pool: dict[str, list[SimpleNamespace]] = {}
    for shown, tool in named.items():
        one = SimpleNamespace(name=shown, description=tool["description"])
        pool.setdefault(tool["server"]["server_id"], []).append(one)
    asyncio.run(engine.index_tools(pool))
    if not engine.is_indexed:
        raise RuntimeError("the engine did not index the tools; its model may be out of reach")
    if model is not None:
        engine.embedding_function = embed

    def search(query: str, limit: int, offered: int) -> Found:
        found = engine.search(query, top_k=limit)
        ranked = [named[one.name]["tool_id"] for one, _, _ in found]
        return ranked, partial(engine._format_search_results, found[:offered])

    return f"mcp-use {version('mcp-use')}, ToolSearchEngine, {name}", search


def _embed(model: Any, texts: list[str]) -> list[Any]:
    """One by one: a batch is padded to its longest text, which on a CPU costs more than it gives."""
    return list(model.embed(texts, batch_size=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, help="folder with onnx/model.onnx and its tokenizer files")
    parser.add_argument("--cache", help="folder that keeps the documents' vectors for later runs")
    given = parser.parse_args()
    serve(partial(build, model=given.model, cache=given.cache))
