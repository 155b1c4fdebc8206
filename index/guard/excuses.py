"""What a suspicion weighs once it is known whose text it is: a vault speaks of secrets, a server of its own tools.

Word rules read a text alone. Some of what they find is a server's own business, which shows only beside the name of the
tool and those of its siblings; it is shown then (``info``), and does not hold the tool back. No excuse is made for what
is meant for other servers, or is the user's own and has nothing to do with the tool.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from toolscout.index.guard.concepts import CONCEPTS, lowered
from toolscout.index.guard.cross_references import Siblings
from toolscout.index.guard.exfiltration import is_switch
from toolscout.index.guard.finding import Finding, Severity
from toolscout.index.guard.rules import PATTERNS

_PART = re.compile(r"(?<=[.!?;])\s+|\n\s*\n")
_WORDS = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_IDENTIFIER = re.compile(r"(?<![\w-])[a-zA-Z][\w-]*(?:[_-]\w|[a-z][A-Z])\w*")
_ANY_TOOL = re.compile(
    r"\b(?:any|all|every|each|no)\s(?:other\s)?(?:tools?|servers?)\b(?!\shere)|\bother\s(?:mcp\s)?servers?\b", re.I
)
_HERE = re.compile(
    r"""\bany(?:thing)?\s(?:other\stools?|else)\s(?:here|in\sthis\s(?:server|set|suite))\b|\bother\stools?\s(?:here|of\sthis\sserver)\b|
    \b(?:every|all|each)\sother\s(?:\w+\s)?tools?\s(?:needs?|takes?|requires?|defaults?|depends?|uses?)\b|
    \beverything\selse\s(?:takes|needs|requires|depends)\b""",
    re.I | re.X,
)
_OTHER_NAMED = re.compile(r"\bother\s([\w.-]+)\s(?:mcp\s)?tools?\b", re.I)
_TOLD = re.compile(r"reads|includ\w+|provided|puts|first|contents?|required?s?|adds|opens|prints", re.I)
"""Words for what a tool does by itself; any other way to hand a file over is an order."""
_MODEL = re.compile(r"\b(?:assistants?|agents?|llms?|models?|you|caller|client|here|before|value|as\sthe)\b|[`<]", re.I)
_WEAK_FILES = re.compile(r"(?<![\w~/])\.env\b|\b(?:dot)?env\sfile\b|known_hosts|\.ssh/config", re.I)
_GRAVE = re.compile(
    r"\b(?:user|person|owner|customer|developer|browser|people)(?:'s|s')|\b(?:saved|stored\sin|home|notes|browser|other|keychain|every|everything|"
    r"their|machine|find|finds|found)\b",
    re.I,
)
_KEYS_NAMES_WORDS = (
    "login logon signin auth authenticate authentication authorize oauth configure configuration "
    "setup connect connection credential credentials secret secrets vault"
)
_KEYS_NAMES = frozenset(_KEYS_NAMES_WORDS.split())
_TALK_WORDS = (
    "chat conversation conversations message messages transcript transcripts prompt prompts memory meeting meetings"
)
_TALK = frozenset(_TALK_WORDS.split())
_YOURS = re.compile(
    r"\byour?\b|\bthe\suser(?:'s)?\b|\bso\sfar\b|\bverbatim\b|\bword\sfor\sword\b|\bhere\b|\b(?:entire|whole)\b", re.I
)
_RELEVANT = re.compile(
    r"\brelevant\s(?:information|context|details|parts|background)\b|\b(?:e\.g\.|such\sas|like)[^.]{0,30}\bhistory\b",
    re.I,
)
_WARNING = re.compile(
    r"\b(?:do\snot|don't|never|avoid)\s(?:\w+\s){0,2}?(?:includ|pass|send|put|past|shar|provid|enter|submit|upload)\w*\b[^.]{0,80}"
    r"\b(?:keys?|passwords?|credentials?|secrets?|tokens?)\b",
    re.I,
)
_BY_ITSELF = re.compile(
    r"\b(?:is|are)\s(?:read|loaded|taken|stored|kept)\s(?:\w+\s)?(?:from|in|by)\s(?:the\sserver|your\senvironment|the\senvironment)\b",
    re.I,
)
_PATH = re.compile(r"(?:~|\$home|%\w+%)[/\\]\.?(?:config[/\\])?([\w-]+)", re.I)
_UNLESS = re.compile(r"\b(?:expos|list|call)\w*\b[^.]{0,80}\bunless\s(?:the\s|your\s)?(?:user|person|customer)", re.I)
_TECHNICAL = re.compile(
    r"""\b(?:raw|internal|intermediate|full|plain|bare)?\s?(?:html|json|xml|ya?ml|markdown|markup|svg|csv|latex|base64|ids?|uuids?|guids?|hash(?:es)?|
    payloads?|schemas?|code\sblocks?|stack\straces?|source\scode|widgets?|placeholders?|cursors?|page\stokens?|(?:internal|technical|database)\s
    (?:names?|fields?|ids?|identifiers?|details))\b""",
    re.I | re.X,
)
_DISPLAYED = re.compile(
    r"""\b(?:not|n't|never|without|avoid|no\sneed\sto)\s(?:be\s|to\s|need\s|to\sbe\s|needs\s|also\s|directly\s|ever\s){0,3}
    (?:show\w*|display\w*|expos\w*|print\w*|output\w*|return\w*|list\w*|repeat\w*|dump\w*|echo\w*)""",
    re.I | re.X,
)
_WORSE = re.compile(
    r"""\b(?:secret\w*|silent\w*|quiet\w*|hidden|hide\w*|unnotic\w*|send|sends|sent|upload\w*|forward\w*|post|posts|copy|copies|(?:second|extra|other|this|that|the|tool)\scalls?|steps?|transfer\w*|
    fees?|charges?|deletes?d?|changes?|mention\w*|tell|tells|inform\w*|instructions?|even\sif|whatever|asked)\b""",
    re.I | re.X,
)
_UNTOUCHED = re.compile(
    r"\b(?:is|are)\s(?:left\s(?:untouched|alone|as\s(?:it|they))|(?:never|not)\s(?:read|opened|touched|sent|changed|written|stored|uploaded))\b|"
    r"\b(?:never|does\snot|doesn't)\s(?:read|open|touch|change|write|store|send|upload)s?\b",
    re.I,
)
_INSPECTS = re.compile(
    r"\b(?:detects?|scans?|flags?|audits?|lints?|finds?|reports?)\b[^.]{0,80}"
    r"\b(?:risky|malicious|suspicious|poison\w*|injection\w*|attacks?|leaked|vulnerab\w+|dangerous|unsafe)\b",
    re.I,
)
_ORDERED = re.compile(r"\b(?:you|your|must|assistant|agents?|models?|llms?|before|first|always|also|user's)\b", re.I)
_SETTINGS_WORDS = "config configuration configure settings profile hook hooks setup install client"
_SETTINGS = frozenset(_SETTINGS_WORDS.split())
_DANGERS = frozenset(["firewall", "antivirus", "cron", "crontab", "sudo", "cronjob"])


@dataclass(frozen=True)
class Subject:
    """Whose text it is: the tool's name (empty for a server's own text), its siblings, what is known of the server, and
    the name of the parameter that it describes, if any."""

    name: str
    own: Siblings
    identity: str
    parameter: str = ""


def weighed(finding: Finding, subject: Subject) -> Finding:
    """The finding, ``info`` where it is the server's own business."""
    excuse = _EXCUSES.get(finding.code)
    if excuse is None or not finding.said or finding.severity is Severity.INFO or not excuse(finding, subject):
        return finding
    return replace(finding, severity=Severity.INFO)


def _own_order(finding: Finding, subject: Subject) -> bool:
    """In which order a server's own tools are called is its own business."""
    said = finding.said
    if PATTERNS["every_turn"].regex.search(lowered(said)) or CONCEPTS["no_matter"].regex.search(lowered(said)):
        return False
    if _HERE.search(said):
        return True
    named = _OTHER_NAMED.search(said)
    if named and len(named.group(1)) > 2 and named.group(1).casefold() in set(_WORDS.findall(subject.identity)):
        return True
    if _ANY_TOOL.search(said):
        return False
    others = [word for word in _IDENTIFIER.findall(said) if word.casefold() != subject.name.casefold()]
    return bool(others) and all(subject.own.include(word) for word in others)


def _own_secret(finding: Finding, subject: Subject) -> bool:
    """A tool that is about a secret speaks of it, and a server of its own folder and its own settings."""
    said, words = finding.said, name_words(subject.name)
    if _INSPECTS.search(said) and not _ORDERED.search(said):
        return True
    if "file of secrets" in finding.message:
        parts = [part for part in _PART.split(said) if CONCEPTS["secret_file"].regex.search(lowered(part))]
        if parts and all(_UNTOUCHED.search(part) and not _MODEL.search(part) for part in parts):
            return True
        strong = [
            m for m in CONCEPTS["secret_file"].regex.finditer(lowered(said)) if not _WEAK_FILES.match(said, m.start())
        ]
        rest = lowered(_WEAK_FILES.sub("", said))
        handed = CONCEPTS["hand_over"].regex.finditer(rest)
        return not strong and not _MODEL.search(rest) and all(_TOLD.fullmatch(m.group()) for m in handed)
    if "private files" in finding.message:
        folders = [m.group(1).casefold() for m in _PATH.finditer(said)]
        return bool(folders) and all(folder in set(_WORDS.findall(subject.identity)) for folder in folders)
    if "conversation" in finding.message:
        if is_switch(subject.parameter, said):
            return True
        spoken = {w for m in CONCEPTS["context"].regex.finditer(lowered(said)) for w in _WORDS.findall(m.group())}
        return bool(_RELEVANT.search(said)) or (
            bool(_stems(spoken) & _stems(words & _TALK)) and not _YOURS.search(said)
        )
    rest = _WARNING.sub("", " ".join(part for part in _PART.split(said) if not _BY_ITSELF.search(part)))
    if not CONCEPTS["secret_thing"].regex.search(lowered(rest)):
        return True  # all that is said of secrets is that they are not wanted, or read by the server itself
    if _GRAVE.search(said):
        return False
    spoken = {w for m in CONCEPTS["secret_thing"].regex.finditer(lowered(said)) for w in _WORDS.findall(m.group())}
    return bool(_stems(spoken) & _stems(words | name_words(subject.parameter)) or words & _KEYS_NAMES)


def _own_danger(finding: Finding, subject: Subject) -> bool:
    """A firewall's tool works on firewalls, one for settings on settings."""
    words = name_words(subject.name)
    if _MODEL.search(finding.said):
        return False
    if "starts with the machine" in finding.message:
        return bool(words & _SETTINGS)
    return "something dangerous" in finding.message and any(w in lowered(finding.said) for w in words & _DANGERS)


def _with_consent(finding: Finding, subject: Subject) -> bool:
    """What is shown when the user asks for it is not kept from them."""
    return _UNLESS.search(finding.said) is not None or _how_it_looks(finding.said)


def _how_it_looks(said: str) -> bool:
    """Whether all that is not shown is technical: raw markup, internal ids."""
    parts = [part for part in _PART.split(said) if _DISPLAYED.search(part)]
    return bool(parts) and all(_TECHNICAL.search(part) for part in parts) and not _WORSE.search(said)


_EXCUSES: dict[str, Callable[[Finding, Subject], bool]] = {
    "priority": _own_order,
    "secret_read": _own_secret,
    "unasked_action": _own_danger,
    "conceal": _with_consent,
}


def name_words(name: str) -> set[str]:
    """The words of an identifier, in small letters."""
    return {word.casefold() for word in _WORDS.findall(_CAMEL.sub(" ", name))}


def _stems(words: set[str]) -> set[str]:
    return {word.rstrip("s") for word in words if len(word) > 2} - {"your", "the", "full", "all", "before", "complete"}
