"""What came back from a call, in the form in which it is recorded: text, structured content, and how much was cut."""

from __future__ import annotations

import json
from typing import Any

from toolscout.jsonl import well_formed
from toolscout.records import Record

TIMEOUT = "timeout"
CONNECTION = "connection"
PROTOCOL = "protocol"
INTERRUPTED = "interrupted"


class Response(Record):
    """One answer of ``invoke``. ``size`` is in bytes, as it came; ``cut`` marks one that is not recorded whole.

    ``lost`` says why no answer came at all: ``timeout``, ``connection``, ``protocol``, or ``interrupted`` for a call
    that was under way when an earlier run was killed. ``text`` then says it in words.
    """

    text: str = ""
    structured: Any = None
    is_error: bool = False
    size: int = 0
    cut: bool = False
    lost: str = ""

    def within(self, limit: int) -> Response:
        """The same with at most so many characters of text, and structured content only if it is no longer.

        Half of a JSON value is none, so a longer one is left out; the text usually says the same.
        """
        text = shortened(self.text, limit)
        whole = self.structured is None or len(_json(self.structured)) <= limit
        if text == self.text and whole:
            return self
        return self.model_copy(
            update={"text": text, "structured": self.structured if whole else None, "cut": True},
        )

    def shown(self, limit: int) -> str:
        """As a model reads it: the text, or the structured content where there is no text."""
        if self.text.strip() or self.structured is None:
            return shortened(self.text, limit)
        return shortened(_json(self.structured), limit)


def response_of(result: Any) -> Response:
    """A tool result of MCP (``CallToolResult``) as a response."""
    text = "\n".join(_block(block) for block in result.content or ())
    structured = well_formed(getattr(result, "structured_content", None))
    size = len(text.encode("utf-8", "replace")) + (
        len(_json(structured).encode("utf-8", "replace")) if structured else 0
    )
    return Response(text=well_formed(text), structured=structured, is_error=bool(result.is_error), size=size)


def shortened(text: str, limit: int) -> str:
    """The text, cut with a mark that says how much is missing. Of one that carries a mark already, that is kept."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}\n[cut here: {limit:,} of {len(text):,} characters]"


def _block(block: Any) -> str:
    text = getattr(block, "text", None)
    if isinstance(text, str):
        return text
    resource = getattr(block, "resource", None)
    if resource is not None and isinstance(getattr(resource, "text", None), str):
        return str(resource.text)
    data = getattr(block, "data", None) or getattr(resource, "blob", None) or ""
    mime = getattr(block, "mime_type", None) or getattr(resource, "mime_type", None) or getattr(block, "type", "block")
    uri = getattr(block, "uri", None) or getattr(resource, "uri", None)
    return f"[{mime}{f' at {uri}' if uri else ''}{f', {len(data) * 3 // 4:,} bytes' if data else ''}]"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
