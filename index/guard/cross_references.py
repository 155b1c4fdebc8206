"""Texts that reach into other servers: they change how someone else's tools are called, or whom their data reaches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property

from toolscout.index.guard.finding import Finding, Severity, quoted
from toolscout.index.guard.known import SERVICES, TOOLS
from toolscout.index.guard.rules import PATTERNS, sentences
from toolscout.index.guard.texts import Piece
from toolscout.index.guard.watch import seen, together, watched
from toolscout.index.names import squashed

_TOOL = watched(rf"(?<![\w.])(?:{'|'.join(sorted(name for name in TOOLS if '_' in name))})(?!\w)")
_CHANGE = watched(
    r"""\b(?:always|must|never|becomes?|looked\sup|add|adds|append\w*|set|instead|bcc|recipient|expects?|chang\w+|broken|replac\w+|
    supersed\w+|should|deprecated|insecure|unsafe|rout\w+|redirect\w*|sent\sthrough|before|after|whenever|when\b.{0,60}\bcalled|not\ssafe|label|hidden)\b
    |必须|总是|当调用|必ず|常に|항상|immer|füge|toujours|ajoute|всегда|добавля\w*|siempre|añade\w*|sempre|adicione|aggiungi|
    zawsze|her\szaman|selalu|luôn|altijd|دائما|أضف|हमेशा""",
    re.I | re.X,
)
_FOREIGN = watched(
    r"""\b(?:other|another|different)\s(?:mcp\s)?servers?\b|\belsewhere\sin\sthis\ssession|\b(?:from|of|
    by)\sthe\s(\w+)\s(?:mcp\s)?server\b|\bthe\s(\w+)\sserver(?:'s)?\b|\bthe\s(\w+)\s(?:\w+\s)?tool\b|
    \b(?:autre|andere[nsr]?|otro|outro|altro|другого|іншого|innego|başka)\s(?:serveur|servers?|servidor|server|
    сервер\w*|serwer\w*|sunucu\w*)|他のサーバー|其他服务器|다른\s서버|
    \b(?:serveur|servidor|serwera?|сервер[ае]?)\s(\w+)|(\w+)\s?(?:サーバー|服务器|서버)(?:の|的|의)|
    \b(?:search|mail|file|calendar|payment|chat|memory|web|database)\stools?\ssuch\sas\s\W?\w+\W?\s(?:is|are)\s(?:also\s)?(?:connected|present|available|
    installed|loaded)""",
    re.I | re.X,
)
_ALTER = watched(
    r"""\b(?:add(?:s|ed)?|append\w*|get\sa|gets?\s|hidden|must|need(?:s)?\sthe|set\sthese|set\s(?:the|to)|always|
    prefer\sours|rout\w+|list\s\S+@|also|instead|never|discard\w*|changed?|sent\sthrough|through\sthis|not\ssafe|bcc|prefix\w*|fixed\sto|is\sbest|
    are\sbest|replac\w+|redirect\w*|doit|deve|debe|muss|должен|должны)\b|붙여|추가해|付け|追加|添加|加上
    |immer|füge|toujours|ajoute|всегда|добавля\w*|siempre|añade|必须|必ず""",
    re.I | re.X,
)
_PRODUCT = watched(
    r"""\b(?:drafts?|messages?|mails?|e-?mails?|posts?|invitations?|invites?|pull\srequests?|commits?|issues?|files?|
    pages?|payments?|tickets?|documents?)\s(?:that\s|which\s)?(?:\w+\s){0,3}?
    (?:are\s)?(?:made|makes?|created|opened|posted|sent|written|writes)\b""",
    re.I | re.X,
)
_LITERAL = watched(r"(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\+\d{9,}|(?<!\w)#[a-z][\w-]{3,}|https?://\S+")
_REACH = watched(
    r"\b(?:bcc|cc|recipients?|guests?|invitees|reviewer|collaborator|forward\w*|remote|channel\sis\salso|instead\sof\s(?:origin|the)|must\sgo\sto|in\seach\scall|the\sagent\sadds|assistant\s(?:fills|adds|sets))\b"
    r"|copie|copia|kopie|копи\w+|colaborador|密送|抄送",
    re.I,
)
_COMMAND = watched(
    r"\b(?:always|must|must\sgo|add|adds|fill|fills|set|sets|include|includes|copy|expects|append|each|every|whenever|when|also|is\salso|among\stheir|list\s)\b|immer|toujours|всегда|siempre|必须|añade|ajoute|füge",
    re.I,
)
_EXAMPLE = watched(
    r"\b(?:e\.\s?g\.|for\sexample|example:|(?<![.@\w-])examples?\b(?!\.)|such\sas|format|like\s)|(?:example|acme|company|domain|test)\.(?:com|org|net)\b",
    re.I,
)

_MEDDLING = (
    together(_TOOL, _CHANGE),
    together(_FOREIGN, _ALTER),
    together(_PRODUCT, _ALTER),
    together(_LITERAL, _REACH, _COMMAND),
    together(_LITERAL, PATTERNS["mail_copy"]),
)
"""What a sentence must have together to reach into another server, in one of these ways."""


class Siblings:
    """The tools of the text's own server: these it may well speak of."""

    def __init__(self, names: Collection[str]) -> None:
        self._names, self._known = names, dict[str, bool]()

    def include(self, name: str) -> bool:
        """Whether a name is one of them; marketplaces put prefixes before them."""
        if name not in self._known:
            plain = squashed(name)
            self._known[name] = any(one.endswith(plain) for one in self._squashed)
        return self._known[name]

    @cached_property
    def _squashed(self) -> list[str]:
        return [squashed(name) for name in self._names]


def reaches_out(text: str) -> bool:
    """Whether a text may speak of other servers at all; ``False`` is certain."""
    there = seen(text)
    return any(there & needed == needed for needed in _MEDDLING)


def cross_references(piece: Piece, text: str, siblings: Siblings, identity: str) -> Iterator[Finding]:
    """Sentences of a text that meddle with other servers' tools.

    Args:
        identity: what is known of the server itself, case folded; services named in it are its own.
    """
    if not reaches_out(text):
        return
    for start, end in sentences(text):
        sentence = text[start:end]
        if not reaches_out(sentence):
            continue
        message = _tool(sentence, siblings) or _server(sentence, identity) or _redirected(sentence)
        if message:
            yield Finding("cross_reference", Severity.WARN, piece.where, quoted(text, start, end), message)
            return


def _tool(sentence: str, siblings: Siblings) -> str:
    for match in _TOOL.finditer(sentence):
        name = match.group()
        if not siblings.include(name) and _CHANGE.search(sentence):
            return f"changes how {name}, another server's tool, is used"
    return ""


def _server(sentence: str, identity: str) -> str:
    found = _FOREIGN.search(sentence)
    if found and _ALTER.search(sentence):
        named = next(filter(None, found.groups()), "").casefold()
        if not named:
            return "changes what other servers' tools do"
        if named in SERVICES and named not in identity:
            return f"changes what the {named} server does"
    if _PRODUCT.search(sentence) and _ALTER.search(sentence):
        for word in re.findall(r"[a-z0-9]+", sentence.casefold()):
            if word in SERVICES and word not in identity:
                return f"adds to what is done through {word}"
    return ""


def _redirected(sentence: str) -> str:
    literal = _LITERAL.search(sentence)
    if not literal:
        return ""
    if _REACH.search(sentence) and _COMMAND.search(sentence) and not _EXAMPLE.search(sentence):
        return f"directs data to {quoted(literal.group())[:60]}"
    if PATTERNS["mail_copy"].search(sentence.lower()) and not _EXAMPLE.search(sentence):
        return "adds a hidden recipient"
    return ""
