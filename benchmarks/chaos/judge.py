"""What may come back from a call: the right answer or a typed error, and nothing of anybody else's."""

from __future__ import annotations

import json
import re
from typing import Any

from toolscout.causes import OWN

NONCE = re.compile(r"\bn-[0-9a-z-]+")
_BARE = re.compile(
    r"Traceback \(most recent call last\)|^Toolscout failed inside|^\w*(?:Error|Exception)\b"
    r"|^Internal (?:server )?error",
    re.MULTILINE,
)
_STDERR = re.compile(r"\nIts stderr ends with:.*", re.DOTALL)
"""What an upstream has said itself, shown for what it is."""
_LEFT_ALONE = re.compile(r"left alone for another ([\d.]+) s")
_STATED = (
    ("unknown_tool", re.compile(r"^No tool has the id ")),
    ("database", re.compile(r"^The catalog's database reports: ")),
    ("index", re.compile(r"^The search index|^The index |^The catalog (?:is|has)")),
    ("audit", re.compile(r"^The audit log .* cannot be written")),
    ("policy", re.compile(r"^The policy|^Too many calls|^Refused by")),
    ("model", re.compile(r"model|endpoint", re.IGNORECASE)),
)
_PROTOCOL = frozenset({-32700, -32600, -32601, -32602, -32000, -32001, -32021})
"""JSON-RPC codes that say something; -32603, internal error, does not."""


def judged(operation: str, nonce: str, result: Any) -> tuple[str, str]:
    """Outcome and its kind: ``ok``, ``error`` (typed), ``wrong`` (another's answer) or ``untyped``.

    ``result``: FastMCP's CallToolResult. ``kind`` says for an error which rule names it, else what is wrong.
    """
    texts = [getattr(block, "text", "") for block in result.content]
    everything = json.dumps([texts, result.structured_content], ensure_ascii=False, default=str)
    others = set(NONCE.findall(everything)) - {nonce}
    if others:
        return "wrong", f"holds {sorted(others)[:3]} instead of {nonce}"
    text = "\n".join(texts)
    if result.is_error:
        return _error(text, operation)
    if operation == "invoke" and nonce not in everything:
        return "wrong", f"a success without {nonce}: {everything[:200]}"
    if operation == "find" and "tools" not in (result.structured_content or {}):
        return "wrong", f"no tools in it: {everything[:200]}"
    if operation == "suggest" and "calls" not in (result.structured_content or {}):
        return "wrong", f"no calls in it: {everything[:200]}"
    return "ok", ""


def _error(text: str, operation: str) -> tuple[str, str]:
    if not text.strip():
        return "untyped", "an error without a word"
    rule = next((rule.name for rule in OWN if rule.pattern.search(text)), None)
    stated = _STATED if operation == "suggest" else _STATED[:-1]  # only there is a model asked
    rule = rule or next((name for name, pattern in stated if pattern.search(text)), None)
    if rule is None:
        return "untyped", text[:300]
    if _BARE.search(_STDERR.sub("", text)):
        return "untyped", text[:300]
    return "error", rule


def raised(code: int | None, message: str) -> tuple[str, str]:
    """The same for a JSON-RPC error."""
    if code in _PROTOCOL and message.strip() and not _BARE.search(message):
        return "error", f"rpc {code}"
    return "untyped", f"code {code}: {message[:300]}"


def left_alone(text: str) -> float:
    """For how many seconds more a server is left alone, as its error says."""
    found = _LEFT_ALONE.search(text)
    return float(found[1]) if found else 0.0
