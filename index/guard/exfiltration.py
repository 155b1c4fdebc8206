"""Parameters that ask for what the tool has no use for: the conversation, the model's instructions, secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import reduce
from itertools import islice
from operator import or_

from toolscout.index.guard.concepts import CONCEPTS, lowered
from toolscout.index.guard.finding import Finding, Severity, quoted
from toolscout.index.guard.texts import MAX_PIECE, Piece
from toolscout.index.guard.watch import Mask, Watched, seen, together, watched

_CONTEXT_NAME = watched(
    r"""^_*+(?:(?:full|whole|entire|complete|raw|all)_*+)?(?:chat|conversation|dialog(?:ue)?|session)_?(?:history|
    transcript|log|messages)_*$|
    ^_*+(?:full_)?(?:conversation|transcript)_*$|^_*+(?:system|initial|original|hidden)_?(?:prompt|instructions)_*$|
    ^_*+(?:chain_of_thought|reasoning_trace|model_memory|user_memory|llm_context|available_tools|tool_list)_*$""",
    re.I | re.X,
)
_SWITCH_NAME = re.compile(r"^(?:include|with|has|show|return|get|fetch|enable|is)(?:_|(?=[A-Z]))")
_SWITCH = re.compile(r"\b(?:whether|if\strue|when\s(?:true|false)|default(?:s\sto)?:?\s(?:true|false))\b", re.I)
_COPIED = re.compile(r"\b(?:verbatim|word for word|so far|paste|copy|copied)\b", re.I)
_WHOLE_CONTEXT = watched(
    r"""\b(?:full|complete|entire|whole|all|raw|unabridged|verbatim|word\sfor\sword|unshortened|copied\sexactly|
    everything)\b(?:(?!\.\s).){0,80}?\b(?:conversation|chat|dialogue?|messages|transcript|prompt|instructions|
    session)\b|
    \b(?:conversation|chat|dialogue?|messages|transcript|prompt|instructions|session|opened|
    attached)\b(?:(?!\.\s).){0,60}?\b(?:verbatim|word\sfor\sword|unshortened|in\sfull|so\sfar|exactly|
    before\sth(?:is|e)\s(?:call|one))\b|
    \beverything\sthe\suser\b|\byour\s(?:\w+\s)?(?:instructions|system\sprompt|chain\sof\sthought|reasoning\sso\sfar|
    memory)\b|\bwhat\syou\s(?:remember|know)\b|\b(?:of\sall\s)?the\sother\stools\b|\btools\savailable\sto\syou\b|
    \bmessages\s(?:exchanged\s)?before\b|\bprevious\smessages\sof\sthe\sconversation|\bcontents?\sof\s(?:any|every|
    all)\s(?:\w+\s)?files?\b|\bcontext\swindow\b|\bwho\sthe\s(?:person|user)\sis\b|
    \b(?:seriali[sz]e|transcribe|quote|transcribe)\s(?:\w+\s){0,3}?(?:dialogue?|conversation|exchange|chat|person)|
    \b(?:latest|last|recent|newest)\s(?:\w+\s)?(?:e-?mails|messages|photos|documents)\s(?:that\s)?(?:the\s)?(?:user|person)|
    \bservers\s(?:that\s)?you\sare\sconnected\b|\btranscribe\slo\shablado|\bconversación\scompleta|\bbisherige[ns]?\sgespräch|\bthe\slast\s(?:document|file|text)\sthe\suser|\bthe\suser\sworked\son""",
    re.I | re.X,
)
_CHAT = watched(
    r"\b(?:chats?|llm|gpt|claude|gemini|completions?|conversations?|conversational|dialog\w*|transcripts?|prompts?|messages?|agents?|models?|thread|memory|memories|reasoning|"
    r"think\w*|assistant|openai|anthropic|mistral|ollama|meeting|slack|channels?|discord|telegram|whatsapp|inbox|e-?mails?|tickets?|crm|support|twilio|sms)\b",
    re.I,
)
_SECRETS: tuple[tuple[Watched, Watched], ...] = (
    (
        watched(r"\bssh[\s_]?(?:private[\s_])?key|\bprivate[\s_]ssh", re.I),
        watched(r"ssh|server|host|remote|deploy|git|key|connect|login|vps|machine|cert|sign|crypt", re.I),
    ),
    (
        watched(r"\bprivate[\s_]?key|\bseed[\s_]?phrase|\bmnemonic|\brecovery[\s_]phrase|wallet'?s?\sseed", re.I),
        watched(
            r"wallet|chain|token|eth|sol|crypto|bitcoin|btc|sign|contract|nft|swap|defi|account|address|transfer|mnemonic|key|cert|auth|jwt|ssh|coin|stake|server|deploy|mint|web3|finance",
            re.I,
        ),
    ),
    (
        watched(r"\bpasswords?\b|\bpassphrase", re.I),
        watched(
            r"pass|auth|log[\s_-]?(?:in|on)|sign|account|connect|user|mail|smtp|imap|data\s?base|sql|db|server|host|admin|ftp|ssh|wifi|wi-fi|network|encrypt|decrypt|protect|pdf|zip|archive|meeting|zoom|vpn|"
            r"secur|hash|crack|pentest|credential|register|session|api|proxy|router|url|cluster|lock|crypt|share|room",
            re.I,
        ),
    ),
    (
        watched(r"\bclipboard\b", re.I),
        watched(r"clip|paste|copy|screen|desktop|keyboard|window|mouse|automation|android|device|selection", re.I),
    ),
    (
        watched(r"\b(?:dump\sof\s)?(?:all\s)?environment\svariables|\benv\s?vars?\b|\bprintenv\b", re.I),
        watched(
            r"env|deploy|process|run|exec|container|docker|server|build|config|lambda|function|pod|cluster|project|app|service|command|script|job|pipeline|workflow|launch|start|install|debug|sandbox|code|mcp",
            re.I,
        ),
    ),
    (
        watched(
            r"\bhome\sdirectory\b|\bbrowser\shistory\b|\bshell\shistory\b|\bsaved\spasswords\b|\bkey\s?chain\b", re.I
        ),
        watched(
            r"file|director|folder|path|browser|shell|terminal|history|key\s?chain|secret|backup|disk|drive|login|vault|password|credential",
            re.I,
        ),
    ),
    (
        watched(
            r"\b(?:credit\s|debit\s)?card\snumbers?\b|\bpersonal\sdetails\b|\bsocial\ssecurity\snumber|\bdate\sof\sbirth\sand\saddress",
            re.I,
        ),
        watched(
            r"pay|card|order|purchase|checkout|book|invoice|customer|contact|profile|bank|billing|subscri|shop|store|charge|refund|kyc|insur|patient|member|employee|person|donat|account|fraud|finance|tax|identity",
            re.I,
        ),
    ),
    (
        watched(
            r"\b(?:session|browser|user'?s)\scookies?\b|\ball\s(?:of\s)?(?:the\s|your\s)?(?:api\s?)?keys\b|\bapi\skeys\sknown\b",
            re.I,
        ),
        watched(r"cookie|browser|http|request|scrap|crawl|session|login|auth|api|key|secret|vault|web|page|url", re.I),
    ),
)

_ASKED = (
    together(_CONTEXT_NAME),
    together(_WHOLE_CONTEXT),
    together(CONCEPTS["context"], CONCEPTS["whole"]),
    *(together(secret) for secret, _ in _SECRETS),
)
"""One of these is in every parameter that asks for what it should not."""


def is_switch(name: str, text: str) -> bool:
    """Whether a parameter says yes or no by its name and description: it holds no text then."""
    return bool(_SWITCH_NAME.search(name) and _SWITCH.search(text) and not _COPIED.search(text))


def asks(there: Mask) -> bool:
    """Whether parameters with so much of the needles may ask for what they should not; ``False`` is certain."""
    return any(there & needed == needed for needed in _ASKED)


def parameters(pieces: list[Piece], about: str) -> Iterator[Finding]:
    """Findings over the parameters of one tool.

    Args:
        pieces: the tool's pieces.
        about: what the tool says of itself (name, title, description, the server's name and description): a secret that
            belongs to its subject is needed, one that does not is not.
    """
    wheres: dict[str, str] = {}
    described: dict[str, list[str]] = {}
    for piece in pieces:
        name = piece.parameter
        if name and piece.kind in ("parameter", "key") and piece.where.startswith("input_schema"):
            texts = described.setdefault(name, [])
            if piece.kind == "parameter":
                wheres[name] = piece.where
                texts.append(piece.text)
            else:
                wheres.setdefault(name, piece.where)
    subject: _Subject | None = None
    for name, texts in described.items():
        if not asks(reduce(or_, map(seen, texts), seen(name))):
            continue
        subject = subject or _Subject(about, list(described))
        text = " ".join(texts).strip()
        words = name.replace("_", " ").replace("-", " ").strip()
        whole = f"{words}: {text}"[:MAX_PIECE]
        if message := _context(name, text[:MAX_PIECE], subject) or _secret(name, whole, subject):
            yield Finding("exfiltration_parameter", Severity.WARN, wheres[name], quoted(whole), message)


class _Subject:
    """What a tool is about: its own words, and the names of its parameters. Each is read once for a pattern, however
    many parameters ask."""

    def __init__(self, about: str, names: list[str]) -> None:
        self._about, self._names = about[:MAX_PIECE].replace("_", " "), names
        self._found: dict[Watched, tuple[bool, list[str]]] = {}

    def speaks_of(self, pattern: Watched, but: str) -> bool:
        """Whether the pattern is in the tool's words or in the name of a parameter other than ``but``."""
        if pattern not in self._found:
            named = (n for n in self._names if pattern.search(n.replace("_", " ")))
            self._found[pattern] = (pattern.search(self._about) is not None, list(islice(named, 2)))
        told, named_two = self._found[pattern]
        return told or any(name != but for name in named_two)


def _context(name: str, text: str, subject: _Subject) -> str:
    message = "asks for the conversation or the model's instructions"
    if is_switch(name, text):
        return ""
    if _CONTEXT_NAME.search(name) and not subject.speaks_of(_CHAT, name):
        return message
    if not text:
        return ""
    low = lowered(text)
    if CONCEPTS["context"].search(low) and CONCEPTS["whole"].search(low) and not subject.speaks_of(_CHAT, name):
        return message
    if (found := _WHOLE_CONTEXT.search(text)) and (
        not subject.speaks_of(_CHAT, name) or re.search(r"\byour?\b|everything the user", found.group(), re.I)
    ):
        return message
    return ""


def _secret(name: str, whole: str, subject: _Subject) -> str:
    for secret, related in _SECRETS:
        if (found := secret.search(whole)) and not subject.speaks_of(related, name):
            return f"asks for {found.group().lower()!r}, which has nothing to do with what the tool does"
    return ""
