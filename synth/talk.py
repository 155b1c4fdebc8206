"""Texts that are no request of a person: they speak of tool and prompt, copy them, or ask for what they should give.

Small models write them often; a judge that is as small lets them pass. The rules read text alone and cost nothing.
"""

from __future__ import annotations

import re

from toolscout.records import Tool
from toolscout.signature import parameters

RULES = 2
"""Counts the rules' changes: it is part of what decides a step's result."""

_TOOL = re.compile(
    r"\b(?:this|provided|given|available|specified|following) tool\b|\busing the (?:\w+ ){0,3}tool\b"
    r"|\bthe tool (?:will|should|can|must|is|has)\b|\bthe (?:tool|function)'s\b"
    r"|\b(?:required|optional|necessary|input) (?:parameter|argument)s?\b|\bargs:|\breturns:"
    r"|\b[a-z]+_[a-z_]+\(\w*=|\bMCP\b.{0,20}\b(?:protocol|tool)\b",
    re.IGNORECASE,
)
_REPLY = re.compile(r"^(?:sure|okay|certainly|of course|here is|here's|i can help|as an ai)\b", re.IGNORECASE)
_ASKS = re.compile(
    r"\b(?:provide|specify|enter|supply|input|tell me|give me|could you share)\s+(?:me\s+)?(?:with\s+)?"
    r"(?:the|a|an|your)\s+(.{3,60})",
    re.IGNORECASE,
)


def talk(text: str, tool: Tool, run: int) -> tuple[str, str]:
    """(reason, detail) why a text speaks as the prompt or the assistant does; two empty strings if it does not.

    :param run: words in a row that are no chance.
    """
    # a tool about tools is asked for in these words
    if (match := _TOOL.search(text)) and match[0].casefold() not in tool.description.casefold():
        return "speaks of the tool", match[0]
    if match := _REPLY.match(text):
        return "speaks as the assistant", match[0]
    if (match := _ASKS.search(text)) and not re.search(r"\d|[\"'“‘«`]", text):
        said = set(re.findall(r"[^\W\d_]{3,}", match[1].casefold()))
        for parameter in parameters(tool.input_schema):
            words = [
                w for w in re.split(r"[\W\d_]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", parameter.name).casefold()) if w
            ]
            if parameter.required and words and all(w in said for w in words):
                return "asks for what it should give", parameter.name
    if shown := copied(text, tool.description, length=run):
        return "copies the description", shown
    return "", ""


def copied(text: str, *sources: str, length: int) -> str:
    """A run of so many words that the text shares with a source, if it has one that nobody writes by chance."""
    words = _words(text)
    runs = {" ".join(words[n : n + length]) for n in range(len(words) - length + 1)}
    for source in sources:
        theirs = _words(source)
        for n in range(len(theirs) - length + 1):
            if (run := " ".join(theirs[n : n + length])) in runs:
                return run
    return ""


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())
