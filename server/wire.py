"""Small helpers that make MCP results in wire form; the SDK drops ``resultType`` where an era does not know it."""

from __future__ import annotations

import json
from typing import Any

from toolscout.errors import ToolscoutError


def text_result(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """A ``tools/call`` result with one text block."""
    return {"content": [{"type": "text", "text": text}], "isError": is_error, "resultType": "complete"}


def json_result(value: dict[str, Any]) -> dict[str, Any]:
    """A structured result, with the same JSON as text for clients that read only content blocks."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return {**text_result(text), "structuredContent": value}


def error_result(error: ToolscoutError) -> dict[str, Any]:
    """An expected failure as a tool error that a model can act on."""
    return text_result(error.sentence(), is_error=True)
