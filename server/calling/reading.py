"""A model's text read as a call: what it means where it is not quite the JSON that was asked for."""

from __future__ import annotations

import json
from collections.abc import Sequence

from toolscout.prompt import NONE
from toolscout.records import JsonObject
from toolscout.server.calling import constrain


def name_in(text: str, options: Sequence[str]) -> str:
    """The option an unconstrained answer names; ``none`` if it names nothing that exists."""
    answer = constrain.parse_answer(text) or {}
    name = str(answer.get("name", answer.get("tool", "")))
    if name in options:
        return name
    folded = {o.casefold(): o for o in options}
    if name.casefold() in folded:
        return folded[name.casefold()]
    named = [o for o in options if o != NONE and o in text]
    return named[0] if len(named) == 1 else NONE


def read_call(text: str, label: str) -> JsonObject | None:
    """``{"name", "arguments", "missing"?}`` from a model's text; None if there is no such object."""
    answer = constrain.parse_answer(text)
    if not isinstance(answer, dict):
        return None
    arguments = answer.get("arguments", answer.get("parameters"))
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return None
    if not isinstance(arguments, dict):
        return None
    missing = answer.get("missing")
    out: JsonObject = {"name": label, "arguments": arguments}
    if isinstance(missing, list) and missing:
        out["missing"] = [str(m) for m in missing]
    return out


def closed(text: str) -> str:
    """JSON that broke off, cut back to the last whole member of its arguments and closed."""
    start = max(text.find("{"), 0)
    for end in range(len(text), start, -1):
        if text[end - 1] not in '"}]0123456789el':
            continue
        for tail in ("}", "}}"):
            try:
                json.loads(text[start:end] + tail)
            except (ValueError, RecursionError):
                continue
            return text[start:end] + tail
    return text
