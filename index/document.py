"""What is said about a tool and a server: the texts that words and vectors are made of.

A tool's dense text and a server's dense text are encoded apart and combined at query time (MCP-Zero, arXiv
2506.01056): a request may match the kind of server, the kind of operation, or both.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from toolscout.index.words import split_identifier
from toolscout.records import Server, Tool
from toolscout.signature import Parameter, parameters

MAX_DESCRIPTION = 700
"""Characters of a description that go into a dense text: about 160 of the encoder's 256 tokens."""

MAX_PARAMETER_TEXT = 300
MAX_PARAMETERS = 24
_VALUES = 6
MAX_WORDS_TEXT = 4000
"""Characters of any one field that go into the words: a stuffed description must not crowd out the rest."""

DOCUMENT_VERSION = 2
"""Part of the index's identity: raise it when a text below changes, so that old indexes are rebuilt."""

FIELDS = ("name", "description", "parameters", "server")
"""Fields of the word index, in the order of ``bm25``'s field weights."""

_ADDRESS = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_LINK = re.compile(r"\[[^\[\]]*\]\s*\(?https?://[^\s)]*\)?|(?:https?://|www\.)[^\s)]+", re.IGNORECASE)
"""Markdown links with their text, and bare addresses. In descriptions they point to documentation: "[See the docs
here](...)" says nothing of the tool and takes a third of a short text."""

_SPACE = re.compile(r"\s+")
_SECTION = re.compile(
    r"\b(?:Args|Arguments|Parameters|Params|Returns?|Raises|Examples?|Notes?|Usage)\s*:", re.IGNORECASE
)


def name_words(name: str) -> str:
    """An identifier as words: ``get_userInfo`` -> ``get user Info``."""
    return " ".join(split_identifier(name)) or name


def squeeze(text: str, limit: int) -> str:
    """Whitespace collapsed, cut at a word boundary to at most ``limit`` characters."""
    text = _SPACE.sub(" ", text[: 4 * limit]).strip()
    if len(text) <= limit:
        return text
    cut = text[:limit]
    space = cut.rfind(" ")
    return cut[:space] if space > limit // 2 else cut


def lead(description: str) -> str:
    """A description without its docstring sections (``Args:``, ``Returns:`` ...), which repeat the parameters."""
    match = _SECTION.search(description)
    return description[: match.start()] if match and match.start() > 20 else description


def server_name(server: Server | None, server_id: str) -> str:
    """A name to show and search: title, name, else the last part of the id."""
    if server is not None and (server.title or server.name):
        return server.title or server.name
    return server_id.rsplit("/", 1)[-1]


def query_text(text: str) -> str:
    """A request as it is searched: every web address is announced as a URL, since only its kind tells the tool."""
    return _ADDRESS.sub(lambda match: "URL " + match.group(), text)


def tool_text(tool: Tool, server: Server | None) -> str:
    """The dense text of a tool: server, name in words, title, description, parameters with their allowed values."""
    names = ", ".join(_with_values(p) for p in parameters(tool.input_schema)[:MAX_PARAMETERS])
    parts = [
        squeeze(name_words(server_name(server, tool.server_id)), 60),
        squeeze(name_words(tool.name), 100),
        squeeze(tool.title or "", 100),
        squeeze(_LINK.sub("", lead(tool.description)), MAX_DESCRIPTION),
        squeeze(names, MAX_PARAMETER_TEXT),
    ]
    return ". ".join(p.rstrip(". ") for p in parts if p)


def server_text(server: Server) -> str:
    """The dense text of a server: name, description or summary, category."""
    parts = [
        squeeze(name_words(server_name(server, server.server_id)), 100),
        squeeze(server.description or server.summary or server.instructions or "", MAX_DESCRIPTION),
        squeeze(server.category or "", 60),
    ]
    return ". ".join(p.rstrip(". ") for p in parts if p)


def tool_words(tool: Tool, server: Server | None) -> dict[str, str]:
    """The text of each of ``FIELDS``, for the word index."""
    found = parameters(tool.input_schema)
    parts = [tool.server_id.rsplit("/", 1)[-1]]
    if server is not None:
        parts += [server.name, server.title or "", squeeze(server.description or server.summary or "", 400)]
    return {
        "name": f"{tool.name} {tool.title or ''}",
        "description": tool.description[:MAX_WORDS_TEXT],
        "parameters": " ".join(_parameter_words(p) for p in found[:MAX_PARAMETERS])[:MAX_WORDS_TEXT],
        "server": " ".join(dict.fromkeys(p for p in parts if p)),
    }


def _with_values(parameter: Parameter) -> str:
    """A parameter's name in words, and the first of its allowed values: they often say what a tool can do."""
    values = [squeeze(name_words(v), 24) for v in _enum_words(parameter.schema)[:_VALUES]]
    return " ".join([name_words(parameter.name), *values])


def _parameter_words(parameter: Parameter) -> str:
    return f"{parameter.name} {squeeze(parameter.description, 160)} {' '.join(_enum_words(parameter.schema))}"


def _enum_words(schema: Mapping[str, Any]) -> list[str]:
    values = schema.get("enum")
    return [v for v in values[:12] if isinstance(v, str)] if isinstance(values, list) else []
