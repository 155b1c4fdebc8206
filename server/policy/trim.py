"""Results that are larger than a policy allows: cut where they can be cut, and always with a plain word about it.

Text is cut. What has no half (structured content, pictures, files) is left out whole: half of a JSON value is none.
"""

from __future__ import annotations

import json
from typing import Any

from toolscout.records import JsonObject

_LARGE = ("text", "data", "blob")
_CUT = ("text", "resource")
"""Types of blocks whose text can be cut."""

_SMALL = 1_000
"""Characters of a block beside what is large (type, mime type, annotations) that are not counted, as long as those of
all blocks together are no more than the limit."""

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
    # Beside the contract's fields a server may add some of its own, for programs: none of them can be cut.
    for name in sorted(set(result) - {"content", "structuredContent", "isError", "resultType"}):
        if (size := len(json.dumps(result[name], ensure_ascii=False))) > limit:
            del kept[name]
            said.append(f"{name} ({size:,} characters of JSON) was left out")
    if not said:
        return result, False
    note = f"[Toolscout cut this result to the policy's limit of {limit:,} characters: {'; '.join(said)}. {_ADVICE}]"
    kept["content"] = [*blocks, {"type": "text", "text": note}]
    return kept, True


def question_fits(result: JsonObject, limit: int) -> bool:
    """Whether what a server asks in return, with its form, is as small as an answer has to be."""
    asked = {name: value for name, value in result.items() if name != "requestState"}
    return len(json.dumps(asked, ensure_ascii=False)) <= limit + _SMALL


def _blocks(blocks: list[Any], limit: int) -> tuple[list[JsonObject], list[str]]:
    left, shown, total = limit, 0, 0
    frames, further = max(limit, _SMALL), 0
    kept: list[JsonObject] = []
    dropped: list[str] = []
    for block in blocks:
        holder = _holder(block)
        large, rest = _sizes(block)
        size, text = large + (rest if rest > _SMALL else 0), holder.get("text")
        frames -= min(rest, _SMALL)
        if frames < 0:  # a hundred thousand empty blocks are much, too
            further += 1
            continue
        if block.get("type") in _CUT and isinstance(text, str) and len(text) == size:
            part = text[:left]
            total += size
            shown += len(part)
            left -= len(part)
            if len(part) == size:
                kept.append(block)
            elif part:
                kept.append(_with(block, holder, part))
        elif size <= left:
            left -= size
            kept.append(block)
        else:
            mime = holder.get("mimeType") or block.get("type", "block")
            dropped.append(f"{mime} of {size * 3 // 4:,} bytes was left out")
    said = dropped
    if further:
        said.append(f"{further:,} further blocks were left out")
    if shown < total:
        said.insert(0, f"{shown:,} of {total:,} characters of text are shown, {total - shown:,} are missing")
    return kept, said


def _sizes(block: JsonObject) -> tuple[int, int]:
    """Characters of all that can be large in a block, whatever its type should have, as it all would be sent; and of
    the rest."""
    found = [
        value
        for holder in (block, block.get("resource"))
        if isinstance(holder, dict)
        for field in _LARGE
        if isinstance(value := holder.get(field), str)
    ]
    rest = len(json.dumps(block, ensure_ascii=False)) - sum(len(json.dumps(v, ensure_ascii=False)) for v in found)
    return sum(map(len, found)), rest


def _with(block: JsonObject, holder: JsonObject, text: str) -> JsonObject:
    """The block with other text, whichever object of it holds that."""
    return {**block, "text": text} if holder is block else {**block, "resource": {**holder, "text": text}}


def _holder(block: JsonObject) -> JsonObject:
    """The object in a content block that holds what is large: of an embedded resource that itself."""
    resource = block.get("resource")
    return resource if block.get("type") == "resource" and isinstance(resource, dict) else block


class Messages:
    """Progress messages of one call: together no more than ``limit`` characters; what comes after is a number alone."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def cut(self, message: str | None) -> str | None:
        """The message, what is left of it, or None."""
        if not message:
            return message
        part = message[: self._left]
        self._left -= len(part)
        return part or None
