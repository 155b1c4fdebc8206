"""A server's own words, made ready: what it is about, what its tools do, and whether a text may be passed on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from toolscout.index.document import name_words, server_name, squeeze
from toolscout.index.guard.finding import Severity
from toolscout.index.guard.scan import scan_server
from toolscout.index.words import split_identifier
from toolscout.records import Server, Tool

TEXT_VERSION = 1
"""Raise it when `about` or `operations` changes: the weights of `category` were fitted to these texts."""

_ABOUT = 600
_OPERATIONS = 700
_MOST_NAMES = 200

_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_IMAGE = re.compile(r"!\[[^\]]*\]\([^)]*\)")
_LINK = re.compile(r"\[([^\[\]]*)\]\([^)]*\)")
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_TAG = re.compile(r"<[^<>]{1,200}>")
_MARKS = re.compile(r"[*~`#>|]{1,}(?=\s|\w)|(?<=[\w.!?:])[*~`]+|^[\s\-*•·]+", re.MULTILINE)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[^a-z\s])|(?<=[。！？])|\n+")
_DIRECTIVE = re.compile(
    r"\b(?:always|never|must|should|do\s+not|don['’]t|important|remember\s+to|make\s+sure|prefer|"
    r"before\s+(?:using|calling)|call\s+this|use\s+this|you\s+are|you\s+have)\b|必须|务必|请勿",
    re.IGNORECASE,
)


def about(server: Server) -> str:
    """Name and description (else instructions) of a server, as the category is told from."""
    parts = [
        squeeze(name_words(server_name(server, server.server_id)), 100),
        squeeze(server.description or server.instructions or "", _ABOUT),
    ]
    return ". ".join(part for part in parts if part)


def operations(tools: Sequence[Tool]) -> str:
    """The names of a server's tools as words, commas between them."""
    return squeeze(", ".join(" ".join(words) for words in names_in_words(tools)), _OPERATIONS)


def names_in_words(tools: Sequence[Tool]) -> list[list[str]]:
    """Each tool's name as words. What all of them begin with is left out: most often the server's name."""
    names = [split_identifier(tool.name) or [tool.name] for tool in tools[:_MOST_NAMES]]
    if len(names) < 2:
        return names
    shared = 0
    while all(len(n) > shared + 1 for n in names) and len({n[shared].casefold() for n in names}) == 1:
        shared += 1
    return [n[shared:] for n in names]


def sentences(text: str) -> list[str]:
    """The sentences of a text without Markdown, code, images and addresses."""
    text = _TAG.sub(" ", _LINK.sub(r"\1", _IMAGE.sub(" ", _CODE.sub("\n", text[:20_000]))))
    text = _MARKS.sub("", _ADDRESS.sub("", text))
    found = (" ".join(part.split()).strip(" -–—:•") for part in _SENTENCE.split(text))
    return [part for part in found if any(c.isalpha() for c in part)]


def directs(sentence: str) -> bool:
    """Whether a sentence tells its reader what to do: such sentences are for a model, not of the server."""
    return _DIRECTIVE.search(sentence) is not None


def clean(text: str, server: Server, names: Collection[str] = ()) -> bool:
    """Whether the guard finds nothing at all in a text of this server; ``names`` are those of its tools.

    It is read as instructions are, the strictest reading that there is for a server's texts. What the learned reader
    alone only notes (`learned`) does not count: it would cost honest summaries.
    """
    posed = Server(server_id=server.server_id, name=server.name, title=server.title, instructions=text)
    found = [finding for finding in scan_server(posed, names) if finding.where == "server.instructions"]
    return all(finding.code == "commanding" and finding.severity == Severity.INFO for finding in found)


def first_clean(texts: Iterable[str], server: Server, names: Collection[str]) -> list[str]:
    """The sentences of the first of these texts that has any, the guard finds nothing in, and directs no one."""
    for text in texts:
        if not text.strip() or not clean(text, server, names):
            continue
        found = [sentence for sentence in sentences(text) if not directs(sentence)]
        if found:
            return found
    return []
