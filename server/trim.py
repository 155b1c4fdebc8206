"""Results that are larger than a policy allows: cut where they can be cut, and always with a plain word about it.

Text is cut. What has no half (structured content, pictures, files) is left out whole: half of a JSON value is none.
"""

from __future__ import annotations

import json
from typing import Any

from toolscout.records import JsonObject

_ADVICE = "Ask for less: a filter, a page, a smaller range."


def within(result: JsonObject, limit: int) -> tuple[JsonObject, bool]:
    """A result of at most ``limit`` characters, and whether anything had to go.

    Text and the encoded data of pictures and files count together; structured content counts by itself, because it
    usually says the same as the text. What was cut is said in a text block at the end, which comes on top.
    """
    blocks, said = _blocks(result.get("content") or [], limit)
    structured = result.get("structuredContent")
    kept = dict(result)
    if structured is not None and (size := len(text := json.dumps(structured, ensure_ascii=False))) > limit:
        del kept["structuredContent"]
        said.append(f"the structured content ({size:,} characters of JSON) was left out")
        if not any(block.get("type") == "text" for block in blocks):
            blocks.append({"type": "text", "text": text[:limit]})
            said.append(f"its first {limit:,} characters are shown as text instead")
    if not said:
        return result, False
    note = f"[Toolscout cut this result to the policy's limit of {limit:,} characters: {'; '.join(said)}. {_ADVICE}]"
    kept["content"] = [*blocks, {"type": "text", "text": note}]
    return kept, True


def _blocks(blocks: list[Any], limit: int) -> tuple[list[JsonObject], list[str]]:
    left, shown, total = limit, 0, 0
    kept: list[JsonObject] = []
    dropped: list[str] = []
    for block in blocks:
        holder, field = _payload(block)
        payload = holder.get(field) if field else None
        if not field or not isinstance(payload, str):
            kept.append(block)
        elif field != "text":
            if len(payload) <= left:
                left -= len(payload)
                kept.append(block)
            else:
                mime = holder.get("mimeType") or block.get("type", "block")
                dropped.append(f"{mime} of {len(payload) * 3 // 4:,} bytes was left out")
        else:
            total += len(payload)
            part = payload[:left]
            left -= len(part)
            shown += len(part)
            if part == payload:
                kept.append(block)
            elif part:
                kept.append(_with(block, holder, part))
    said = dropped
    if shown < total:
        said.insert(0, f"{shown:,} of {total:,} characters of text are shown, {total - shown:,} are missing")
    return kept, said


def _with(block: JsonObject, holder: JsonObject, text: str) -> JsonObject:
    """The block with other text, whichever object of it holds that."""
    return {**block, "text": text} if holder is block else {**block, "resource": {**holder, "text": text}}


def _payload(block: JsonObject) -> tuple[JsonObject, str]:
    """What in a content block is large: the object that holds it, and the field; no field for a mere link."""
    resource = block.get("resource")
    for holder in (block, resource if isinstance(resource, dict) else {}):
        for field in ("text", "data", "blob"):
            if field in holder:
                return holder, field
    return block, ""
