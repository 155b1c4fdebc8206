"""Does a request name the tool or server that serves it? A person who needs one knows neither."""

from __future__ import annotations

import re

from toolscout.index.words import fold, split_identifier
from toolscout.records import Server, Tool

_GENERIC_WORDS = "mcp server servers api tool tools client service the a an my for of and by io com ai app dev"
_GENERIC = frozenset(_GENERIC_WORDS.split())
_WORD = re.compile(r"[^\W_]+")


def names_used(text: str, tool: Tool, server: Server | None) -> list[str]:
    """What the text says of the names of tool and server: identifiers as they are, names of several words in a row,
    and names of one word unless that is an ordinary word (the tool's own description then uses it in lower case)."""
    said = _flat(text)
    found: list[str] = []
    for name in _names(tool, server):
        parts = split_identifier(name) or [name]
        flat = " ".join(p.casefold() for p in parts if p.casefold() not in _GENERIC)
        identifier = re.search(r"[_-]|[a-z][A-Z]|\d", name) is not None and " " not in name
        if identifier and len(parts) > 1 and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
            found.append(name)
        elif name == tool.name:
            # "get weather" may be how anyone asks; four words in a row are not.
            if len(flat.split()) > 3 and f" {flat} " in said:
                found.append(name)
        elif len(flat) > 2 and f" {flat} " in said and (" " in flat or not _ordinary(flat, tool, server)):
            found.append(name)
    return found


def _names(tool: Tool, server: Server | None) -> list[str]:
    own = tool.server_id.rsplit("/", 1)[-1]
    names = [tool.name, own]
    if server is not None:
        names += [server.name, server.title or ""]
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))


def _ordinary(word: str, tool: Tool, server: Server | None) -> bool:
    texts = [tool.description, server.description if server else ""]
    return any(re.search(rf"(?<![\w/.-]){re.escape(word)}(?![\w/-]|\.\w)", text) for text in texts)


def _flat(text: str) -> str:
    return f" {' '.join(_WORD.findall(fold(text)))} "
