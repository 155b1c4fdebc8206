"""A chat completion that comes in pieces, put together again: so that the time of its first token is known."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

from toolscout.records import JsonObject

if TYPE_CHECKING:
    import httpx

ASKED: JsonObject = {"stream": True, "stream_options": {"include_usage": True}}
"""What a request for pieces says."""
FIRST = "first_token_seconds"


async def collected(response: httpx.Response, sent: float) -> JsonObject | None:
    """The answer as it would have come in one piece, and under :data:`FIRST` the seconds from ``sent`` (by
    ``time.perf_counter``) to the first piece with text. An error in the midst of it is returned as it is, under
    ``error``. None for what is no stream of a completion that was finished.

    :raises httpx.HTTPError: the connection broke.
    """
    text: list[str] = []
    probabilities: list[JsonObject] = []
    usage: JsonObject = {}
    first = reason = None
    async for line in response.aiter_lines():
        field, _, data = line.partition(":")
        if field != "data" or data.strip() == "[DONE]":
            continue
        try:
            piece = json.loads(data)
        except ValueError:
            return None
        if not isinstance(piece, dict):
            return None
        if piece.get("error"):
            return {"error": piece["error"]}
        try:
            usage = piece.get("usage") or usage
            for choice in piece.get("choices") or ():
                written = (choice.get("delta") or {}).get("content")
                if written:
                    first = time.perf_counter() - sent if first is None else first
                    text.append(written)
                probabilities += (choice.get("logprobs") or {}).get("content") or ()
                reason = choice.get("finish_reason") or reason
        except (AttributeError, TypeError):  # not the form of a completion
            return None
    if reason is None:
        return None
    choice = {"message": {"content": "".join(text)}, "finish_reason": reason, "logprobs": {"content": probabilities}}
    return {"choices": [choice], "usage": usage, FIRST: first}
