"""The scanner: a tool and its server in, findings out. Deterministic, offline, under a millisecond for most tools."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from toolscout.index.guard.cross_references import Siblings, cross_references, reaches_out
from toolscout.index.guard.excuses import Subject, weighed
from toolscout.index.guard.exfiltration import asks, parameters
from toolscout.index.guard.finding import Finding, Severity, quoted
from toolscout.index.guard.hidden_text import encoded_text, hidden_text, may_hide
from toolscout.index.guard.learned import UNREAD, judges, reader
from toolscout.index.guard.lookalikes import claims, server_names, tool_names
from toolscout.index.guard.rules import instructions
from toolscout.index.guard.stuffing import LEAST_STUFFED, stuffing
from toolscout.index.guard.texts import MAX_PIECE, Piece, call_pieces, server_pieces, tool_pieces
from toolscout.index.guard.unveil import may_encode, plain, tag_text
from toolscout.index.guard.watch import Mask, seen
from toolscout.records import Call, Server, Tool

MAX_FINDINGS = 12
"""Findings kept of one tool, the gravest first: a person reads them."""

_WORDY_VALUE = 4
"""Words of a value, but one, from which on it may be a sentence."""

_SHORT = 256
"""Characters of a text up to which what it says is remembered: names and phrases come again from tool to tool."""

_WORDY_WORDS = (
    "override conceal secret_read exfiltration_url priority cross_reference unasked_action side_copy "
    "chat_marker stuffing commanding"
)
_WORDY = frozenset(_WORDY_WORDS.split())
"""Doubts about words, which a server's own text needs two of to hold back all of its tools."""
_ORDERS = frozenset({"override", "conceal", "secret_read", "exfiltration_url", "cross_reference"})
"""Doubts of which one is enough in a server's instructions: they speak to the model, a description to people."""
_JOINED = frozenset({"override", "conceal", "cross_reference", "priority"})
"""Doubts about words that are joined by other signs than spaces."""
_INSTRUCTIONS = "server.instructions"
_CERTAIN = frozenset({"sets aside what the model was told", "tells the model to give a false or trimmed account"})

UNLIKELY = -5.0
"""Log-odds of the learned reader below which a rule's doubt about words (not of names or signs) is only shown."""
EVEN = -1.0
"""The same for the only doubt about a server's own text, which would hold back all of its tools."""

_TELLING = 60
"""Characters of the shortest sentence in which the learned reader may contradict a rule."""

_ORDER = {Severity.BLOCK: 0, Severity.WARN: 1, Severity.INFO: 2}


def scan_tool(tool: Tool, server: Server | None = None, *, siblings: Collection[str] = ()) -> list[Finding]:
    """Everything suspicious of one tool, the gravest first.

    Args:
        server: the tool's server, for what it claims to be. Its own texts are scanned by `scan_server`.
        siblings: names of the server's tools, which the tool may speak of freely.
    """
    pieces = list(tool_pieces(tool))
    server_text = f"{server.name} {server.title or ''} {server.description}" if server is not None else ""
    identity = f"{server_text} {tool.server_id}".casefold()
    own = Siblings([*siblings, tool.name, *(piece.text for piece in pieces if piece.kind == "key")])
    there, said = 0, list[Finding]()
    for piece in pieces:
        reading = _reading(piece)
        there |= reading.there
        if reading.speaks:
            said += _findings(piece, reading, Subject(tool.name, own, identity, piece.parameter))
    found = list(tool_names(tool, server))
    found += claims(tool.description, "description")
    if asks(there):
        about = f"{tool.name} {tool.title or ''} {tool.description} {server_text} {tool.server_id}"
        found += parameters(pieces, about)
    return _kept(found + said)


def scan_server(server: Server, names: Collection[str] = ()) -> list[Finding]:
    """Everything suspicious of a server's own texts, which stand beside all of its tools."""
    own = Siblings(names)
    identity = f"{server.server_id} {server.name} {server.title or ''} {server.description}".casefold()
    found = list(server_names(server))
    for piece in server_pieces(server):
        # A catalogue's own pages about a server list much.
        found += _findings(
            piece, _reading(piece), Subject("", own, identity), stuffed=piece.where != "server.description"
        )
    return [replace(f, severity=Severity.INFO) if _of_one_text(f, found) else f for f in _kept(found)]


def scan_call(call: Call) -> list[Finding]:
    """Everything suspicious of a worked call, which stands beside its tool as an example."""
    subject = Subject("", Siblings([gold.tool_id.rpartition("/")[2] for gold in call.gold]), "")
    found: list[Finding] = []
    for piece in call_pieces(call):
        reading = _reading(piece)
        if reading.speaks:
            found += _findings(piece, reading, subject)
    return _kept(found)


def _of_one_text(finding: Finding, found: Sequence[Finding]) -> bool:
    """Whether a server's text raises this doubt alone: too little to hold back tools that are scanned themselves."""
    if finding.severity is Severity.INFO or finding.code not in _WORDY:
        return False
    alone = len({f.code for f in found if f.severity is not Severity.INFO}) < 2
    if alone and finding.where != _INSTRUCTIONS and _doubted(finding, EVEN):
        return True
    if finding.severity is not Severity.WARN:
        return False
    if finding.message in _CERTAIN or (finding.where == _INSTRUCTIONS and finding.code in _ORDERS):
        return False
    return alone


def holds_back(findings: Iterable[Finding]) -> bool:
    """Whether a tool with these findings waits for a person's review."""
    return any(f.severity is not Severity.INFO for f in findings)


class _Reading(NamedTuple):
    """What one text says by itself, wherever it stands.

    ``there``: what it has of the words that patterns need (`watch.seen`); ``reaches_out``: it may speak of the tools of
    other servers.
    """

    there: Mask
    poison: tuple[Finding, ...] = ()
    reaches_out: bool = False
    stuffing: tuple[Finding, ...] = ()

    @property
    def speaks(self) -> bool:
        return bool(self.poison or self.reaches_out or self.stuffing)


def _reading(piece: Piece) -> _Reading:
    return (_read_short if len(piece.text) <= _SHORT else _read)(piece.kind, piece.text)


def _findings(piece: Piece, said: _Reading, subject: Subject, *, stuffed: bool = True) -> list[Finding]:
    """Findings of one piece; ``stuffed``: also those of texts that are written for the ranking."""
    found = [_seconded(weighed(replace(finding, where=piece.where), subject)) for finding in said.poison]
    if said.reaches_out:
        found += cross_references(piece, plain(piece.text[:MAX_PIECE]), subject.own, subject.identity)
    if stuffed:
        found += [replace(finding, where=piece.where) for finding in said.stuffing]
    return found


def _seconded(finding: Finding) -> Finding:
    """A rule's finding, ``info`` where the learned reader is as good as sure that nobody is commanded."""
    if finding.severity is Severity.INFO or finding.code not in _WORDY or finding.where == _INSTRUCTIONS:
        return finding  # instructions speak to the model: there the reader vetoes nothing
    if not _doubted(finding, UNLIKELY):
        return finding
    return replace(finding, severity=Severity.INFO)


def _doubted(finding: Finding, least: float) -> bool:
    """Whether the learned reader gives the finding's sentence less, where that is long enough to say something."""
    if len(finding.said) < _TELLING:
        return False
    return UNREAD < reader().judge(finding.said).score < least


def _read(kind: str, whole: str) -> _Reading:
    if kind == "unread":
        return _Reading(0, (Finding("too_long", Severity.WARN, "", quoted(whole), "not all of it was read"),))
    piece = Piece("", kind, whole[:MAX_PIECE])
    if kind == "order":
        # Words of an address or an option, torn from their signs: what speaks of keys, files and actions is honest
        # there, and the learned reader, which knows sentences, is not asked.
        said_so = (f for f in instructions(piece, plain(piece.text)) if f.code in _JOINED)
        return _Reading(0, tuple(replace(finding, said="") for finding in said_so))
    there = seen(piece.text)
    found = list(hidden_text(piece)) if may_hide(piece.text) else []
    if len(whole) > MAX_PIECE and kind in ("name", "key", "value"):  # of longer prose `stuffing` says it
        found.append(Finding("too_long", Severity.WARN, "", quoted(whole, 0, 60), "not all of it was read"))
    if may_encode(piece.text):
        for finding, said in encoded_text(piece):
            found.append(finding)
            found += instructions(piece, said)
    text = plain(piece.text)
    if judges(kind, text):
        found += _commanding(text)
    if not piece.text.isascii() and (said := tag_text(piece.text)):
        found += instructions(piece, said)
    if kind in ("name", "key"):
        if len(text) > 15:
            found += instructions(piece, text.replace("_", " ").replace("-", " "))
        return _Reading(there, tuple(found))
    found += instructions(piece, text)
    if kind == "value":
        if text.count("_") + text.count("-") >= _WORDY_VALUE and " " not in text:  # a sentence written as an identifier
            found += instructions(piece, text.replace("_", " ").replace("-", " "))
        return _Reading(there, tuple(found))
    stuffed = tuple(stuffing(Piece("", kind, whole))) if len(whole) >= LEAST_STUFFED else ()
    return _Reading(there, tuple(found), reaches_out(text), stuffed)


def _commanding(text: str) -> Iterator[Finding]:
    """What the learned reader finds of a text, if it is as sure as it has to be."""
    learned = reader()
    verdict = learned.judge(text)
    if verdict.score >= learned.weights.least:
        evidence = quoted(text, verdict.start, verdict.end)
        yield Finding("commanding", Severity.WARN, "", evidence, "sounds like texts that command a model")


_read_short = lru_cache(maxsize=8192)(_read)


def _kept(found: Sequence[Finding]) -> list[Finding]:
    """One finding of each kind and place, the gravest first."""
    seen: dict[tuple[str, str], Finding] = {}
    for finding in found:
        key = (finding.code, finding.where)
        if key not in seen or _ORDER[finding.severity] < _ORDER[seen[key].severity]:
            seen[key] = finding
    return sorted(seen.values(), key=lambda f: _ORDER[f.severity])[:MAX_FINDINGS]
