"""A server's summary, put together from its own words: for server-level search (MCP-Zero, arXiv 2506.01056) where no
model writes one.

At most `LIMIT` characters: what it says of itself (one or two sentences of description or instructions), then how many
tools there are and what they do, by the words of their names. No text in which the guard finds anything is used, and
no sentence that tells its reader what to do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolscout.crawler.enrich.text import clean, directs, first_clean, names_in_words, sentences
from toolscout.index.document import lead, name_words, server_name, squeeze
from toolscout.records import Server, Tool

LIMIT = 400
"""Characters of a summary."""

SUMMARY_VERSION = 1

_OWN = 240
"""Characters of the server's own sentences: the rest is for what the tools do."""

_THIN = 4
"""Words beyond the usual ones under which a description says next to nothing."""

_FEW = 3
"""Tools up to which their descriptions are told as well."""

_NAME = 60
_SHORT = 100
_USUAL_WORDS = "a an and the of for to with in on by is it its this that mcp server model context protocol"
_USUAL = frozenset(_USUAL_WORDS.split())
_WORD = re.compile(r"[^\W_]+")
_VERB_WORDS = (
    "add analyze append apply archive assign attach book browse build calculate call cancel change check clear click "
    "close commit compare complete configure connect convert copy count create deactivate delete deploy describe "
    "disable download edit enable estimate evaluate execute explain export extract fetch fill find generate get "
    "import index insert inspect install invite invoke like list load lock log lookup make manage mark merge modify "
    "monitor move navigate open parse patch pause ping play post preview publish pull push put query quote read "
    "refresh register release remove rename render reorder replace reply report request reset resolve restart restore "
    "resume retrieve retry run save scan schedule scrape search select send set share show sign start stop submit "
    "subscribe summarize sync tag test track transfer transform translate trigger unarchive undo unsubscribe update "
    "upload upsert validate verify view wait watch write"
)
_VERBS = frozenset(_VERB_WORDS.split())


def extract(server: Server, tools: Sequence[Tool]) -> str | None:
    """The summary; None only for a server without tools that says nothing of itself."""
    names = [tool.name for tool in tools]
    own = _own(server, names)
    thin = len(_telling(" ".join(own), server)) < _THIN
    parts = own
    if thin or len(tools) <= _FEW:
        parts = [*own, *_of_tools(server, tools, names)]
    said = _joined(parts, _OWN if len(tools) > _FEW else LIMIT - 60)
    done = _done(tools, LIMIT - len(said) - 1)
    # Names that repeat themselves look stuffed in a long row: fewer of them, then none.
    for text in (f"{said} {done}", f"{said} {_done(tools, _SHORT)}", f"{said} {_count(tools)}", done):
        if text.strip() and clean(text, server, names):
            return text.strip()
    return _count(tools) or None


def _own(server: Server, names: Sequence[str]) -> list[str]:
    """What the server says of itself: its description, and its instructions where that says next to nothing."""
    found = first_clean([server.description], server, names)[:2]
    if len(_telling(" ".join(found), server)) >= _THIN:
        return found
    return found[:1] + first_clean([server.instructions or ""], server, names)[:1]


def _telling(text: str, server: Server) -> set[str]:
    """The words of a text that neither every server's text has nor its own name."""
    name = name_words(server_name(server, server.server_id))
    known = _USUAL | {word.casefold() for word in _WORD.findall(name)}
    return {word.casefold() for word in _WORD.findall(text)} - known


def _of_tools(server: Server, tools: Sequence[Tool], names: Sequence[str]) -> list[str]:
    """The first sentences of the first tools' descriptions."""
    found = []
    for tool in tools[:_FEW]:
        if tool.description and clean(tool.description, server, names):
            first = sentences(lead(tool.description))[:1]
            found += [squeeze(sentence, 140) for sentence in first if not directs(sentence)]
    return found


def _joined(parts: Sequence[str], room: int) -> str:
    """Sentences in a row, as many as there is room for; the first one is cut if need be."""
    said = ""
    for part in dict.fromkeys(parts):
        sentence = part if part[-1] in ".!?。！？" else f"{part}."
        if said and len(said) + 1 + len(sentence) > room:
            break
        if len(sentence) > room:
            sentence = squeeze(sentence, room - 1).rstrip(" ,;:.") + "…"
        said = f"{said} {sentence}".strip()
    return said


def _done(tools: Sequence[Tool], room: int) -> str:
    """How many tools there are and what they do: ``3 tools: create, list issue; search code.``"""
    if not tools:
        return ""
    shown: dict[str, tuple[str, list[str]]] = {}
    for words in names_in_words(tools):
        low = [word.casefold() for word in words]
        verb = low[0] if low[0] in _VERBS else low[-1] if low[-1] in _VERBS and len(low) > 1 else ""
        things = low if not verb else low[1:] if verb == low[0] else low[:-1]
        thing = " ".join(things)
        if len(thing) > _NAME or len(verb) > _NAME:
            continue
        _, done = shown.setdefault(_singular(thing), (thing, []))
        if verb and verb not in done:
            done.append(verb)
    text = _count(tools)[:-1]
    begun = False
    for thing, done in shown.values():
        piece = f"{', '.join(done[:5])} {thing}".strip()
        joint = "; " if begun else ": "
        if len(text) + len(joint) + len(piece) + 1 > room:
            continue
        text, begun = text + joint + piece, True
    return f"{text}."


def _count(tools: Sequence[Tool]) -> str:
    return "" if not tools else "1 tool." if len(tools) == 1 else f"{len(tools)} tools."


def _singular(text: str) -> str:
    """Things that differ by a plural's ``s`` alone are one."""
    return text[:-1] if len(text) > 4 and text.endswith("s") and not text.endswith(("ss", "us", "is", "ies")) else text
