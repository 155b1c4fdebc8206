"""Texts that reach into other servers: they change how someone else's tools are called, or whom their data reaches."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from toolscout.index.guard.finding import Finding, Severity, quoted
from toolscout.index.guard.known import SERVICES, TOOLS
from toolscout.index.guard.rules import PATTERNS, sentences
from toolscout.index.guard.texts import Piece
from toolscout.index.names import squashed

_IDENTIFIER = re.compile(r"(?<![\w.])[a-z]+(?:_[a-z]+)+(?!\w)")
_CHANGE = re.compile(
    r"""\b(?:always|must|never|add|adds|append\w*|set|instead|bcc|recipient|expects?|chang\w+|broken|replac\w+|
    supersed\w+|should|deprecated|insecure|unsafe|rout\w+|redirect\w*|sent\sthrough|before|after|whenever|when\b.{0,60}\bcalled|not\ssafe|label|hidden)\b
    |必须|总是|当调用|必ず|常に|항상|immer|füge|toujours|ajoute|всегда|добавля\w*|siempre|añade\w*|sempre|adicione|aggiungi|
    zawsze|her\szaman|selalu|luôn|altijd|دائما|أضف|हमेशा""",
    re.I | re.X,
)
_FOREIGN = re.compile(
    r"""\b(?:other|another|different)\s(?:mcp\s)?servers?\b|\belsewhere\sin\sthis\ssession|\b(?:from|of|
    by)\sthe\s(\w+)\s(?:mcp\s)?server\b|\bthe\s(\w+)\sserver(?:'s)?\b|\bthe\s(\w+)\s(?:\w+\s)?tool\b|
    \b(?:autre|andere[nsr]?|otro|outro|altro|другого|іншого|innego|başka)\s(?:serveur|servers?|servidor|server|
    сервер\w*|serwer\w*|sunucu\w*)|他のサーバー|其他服务器|다른\s서버""",
    re.I | re.X,
)
_ALTER = re.compile(
    r"""\b(?:add(?:s|ed)?|append\w*|get\sa|gets?\s|hidden|must|need(?:s)?\sthe|set\sthese|set\s(?:the|to)|always|
    prefer\sours|rout\w+|list\s\S+@|also|instead|never|discard\w*|changed?|sent\sthrough|through\sthis|not\ssafe|bcc)\b
    |immer|füge|toujours|ajoute|всегда|добавля\w*|siempre|añade|必须|必ず""",
    re.I | re.X,
)
_PRODUCT = re.compile(
    r"""\b(?:drafts?|messages?|mails?|e-?mails?|posts?|invitations?|invites?|pull\srequests?|commits?|issues?|files?|
    pages?|payments?|tickets?|documents?)\s(?:that\s|which\s)?(?:\w+\s){0,3}?
    (?:are\s)?(?:made|makes?|created|opened|posted|sent|written|writes)\b""",
    re.I | re.X,
)
_LITERAL = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+|\+\d{9,}|(?<!\w)#[a-z][\w-]{3,}|https?://\S+")
_REACH = re.compile(
    r"\b(?:bcc|cc|recipients?|guests?|invitees|reviewer|collaborator|forward\w*|remote|channel\sis\salso|instead\sof\s(?:origin|the)|must\sgo\sto|in\seach\scall|the\sagent\sadds|assistant\s(?:fills|adds|sets))\b"
    r"|copie|copia|kopie|копи\w+|colaborador|密送|抄送",
    re.I,
)
_COMMAND = re.compile(
    r"\b(?:always|must|must\sgo|add|adds|fill|fills|set|sets|include|includes|copy|expects|append|each|every|whenever|when|also|is\salso|among\stheir|list\s)\b|immer|toujours|всегда|siempre|必须|añade|ajoute|füge",
    re.I,
)
_EXAMPLE = re.compile(
    r"\b(?:e\.\s?g\.|for\sexample|example:|(?<![.@\w-])examples?\b(?!\.)|such\sas|format|like\s)|(?:example|acme|company|domain|test)\.(?:com|org|net)\b",
    re.I,
)


def cross_references(piece: Piece, text: str, siblings: Collection[str], identity: str) -> Iterator[Finding]:
    """Sentences of a text that meddle with other servers' tools.

    Args:
        siblings: squashed names of the server's own tools: these it may well speak of.
        identity: what is known of the server itself, case folded; services named in it are its own.
    """
    if not (_IDENTIFIER.search(text) or _FOREIGN.search(text) or _LITERAL.search(text) or _PRODUCT.search(text)):
        return
    for start, end in sentences(text):
        sentence = text[start:end]
        message = _tool(sentence, siblings) or _server(sentence, identity) or _redirected(sentence)
        if message:
            yield Finding("cross_reference", Severity.WARN, piece.where, quoted(text, start, end), message)
            return


def _tool(sentence: str, siblings: Collection[str]) -> str:
    for match in _IDENTIFIER.finditer(sentence):
        name = match.group()
        if name in TOOLS and not _own(name, siblings) and _CHANGE.search(sentence):
            return f"changes how {name}, another server's tool, is used"
    return ""


def _own(name: str, siblings: Collection[str]) -> bool:
    """Whether a name is one of the server's own tools; marketplaces put prefixes before them."""
    plain = squashed(name)
    return plain in siblings or any(one.endswith(plain) for one in siblings)


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
    if literal and _REACH.search(sentence) and _COMMAND.search(sentence) and not _EXAMPLE.search(sentence):
        return f"directs data to {quoted(literal.group())[:60]}"
    if PATTERNS["mail_copy"].search(sentence.lower()) and literal and not _EXAMPLE.search(sentence):
        return "adds a hidden recipient"
    return ""
