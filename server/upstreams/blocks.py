"""Results of tools with something in them that the protocol does not know: it costs itself, not the whole answer."""

from __future__ import annotations

import json
from typing import Any

from toolscout.records import JsonObject

_SHOWN = 20_000
"""Characters of a block of an unknown kind that are passed on as text."""
_BESIDE = ("annotations", "_meta", "icons", "size", "title", "description")
"""What a block can do without."""


def mended(result: JsonObject) -> JsonObject:
    """The result with every block a valid one: what is not is passed on as text."""
    kept = dict(result)
    for name, kind in (("isError", bool), ("_meta", dict), ("resultType", str)):
        if name in kept and not isinstance(kept[name], kind):
            del kept[name]
    if kept.get("content", ()) is None:
        kept["content"] = []
    if isinstance(kept.get("content"), list):
        kept["content"] = [_block(block) for block in kept["content"] if block is not None]
    return kept


def _block(block: Any) -> JsonObject:
    if isinstance(block, dict):
        bare = {name: value for name, value in block.items() if name not in _BESIDE}
        for shown in (block, bare, {**bare, "type": "text"}):
            if _valid(shown):
                return shown
        text = block.get("text")
        if isinstance(text, (int, float)):
            return {"type": "text", "text": str(text)}
    if isinstance(block, str):
        return {"type": "text", "text": block}
    text = json.dumps(block, ensure_ascii=False)[:_SHOWN]
    return {"type": "text", "text": f"[Content of a kind that MCP does not know: {text}]"}


def _valid(block: JsonObject) -> bool:
    from mcp_types import CallToolResult
    from pydantic import ValidationError

    try:
        CallToolResult.model_validate({"content": [block]}, by_name=False)
    except ValidationError:
        return False
    return True
