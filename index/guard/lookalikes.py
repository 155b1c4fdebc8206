"""Names that would be taken for others: letters that look alike, misspelt services, names of Toolscout's own tools."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from toolscout.index.guard.finding import Finding, Severity, quoted
from toolscout.index.guard.known import CLIENT_TOOLS, HONEST_WORDS, OWN_TOOLS, SERVICES, TOOLS
from toolscout.index.guard.unveil import latin
from toolscout.index.guard.watch import watched
from toolscout.index.names import squashed
from toolscout.records import Server, Tool

_LEET = str.maketrans(
    {"0": "o", "1": "l", "3": "e", "4": "a", "5": "s", "7": "t", "8": "b", "|": "l", "i": "l", "j": "l"}
)
_PART = re.compile(r"[^\W_]+")
_QUALIFIED = re.compile(r"^(?:mcp__)?([a-z0-9-]{3,30})(?:__|\.|::)(\w+)$", re.I)
_BUILT_IN = watched(
    r"\b(?:replac\w+|instead\sof|overrid\w+|supersed\w+)\b.{0,30}\b(?:built-?in|native|default|client'?s)\b", re.I
)
_MAKER = re.compile(r"\b(?:by|from)\s(?:the\s)?([A-Z]\w+)")
"""Who a description says a server is by."""
_VENDORS = r"anthropic|openai|google|microsoft|github|apple|meta|amazon|aws|cursor|claude"
_CLAIM = watched(
    rf"\b(?<!be\s)(?<!been\s)(?<!not\s)(?<!template\s)(?<!templates\s)(?:verified|endorsed|certified|approved|audited|recommended|vetted|trusted)\s"
    rf"(?:and\s\w+\s)?by\s(?:the\s)?(?:{_VENDORS})\b"
    r"|\bthe\s(?:one|only|single)\s(?:true\s)?official\b"
    r"|\bidentical\sto\sthe\s(?:\w+\s)?(?:tools?|server)\sof\s(?:\w+'s)\b|\band\stakes\s(?:its|their)\splace\b",
    re.I,
)


def skeleton(name: str) -> str:
    """A name as the eye takes it: look-alike letters (Unicode's confusables), digits for letters, rn for m."""
    word = latin(unicodedata.normalize("NFKC", name)).casefold()
    # A capital I reads as a small L, so it has to be told apart before the case goes.
    return squashed(word).translate(_LEET).replace("rn", "m").replace("vv", "w").replace("cl", "d")


def one_typo(a: str, b: str) -> bool:
    """Whether one letter was left out, put in, changed, or swapped with its neighbour; the first one is the same."""
    if a == b or abs(len(a) - len(b)) > 1 or a[:1] != b[:1]:
        return False
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    rest_a, rest_b = a[start:], b[start:]
    if len(a) == len(b):
        swapped = rest_a[:2] == rest_b[1::-1] and rest_a[2:] == rest_b[2:]
        return rest_a[1:] == rest_b[1:] or swapped
    longer, shorter = (rest_a, rest_b) if len(a) > len(b) else (rest_b, rest_a)
    return longer[1:] == shorter


def swapped(a: str, b: str) -> bool:
    """Whether two neighbouring letters, not the first one, changed places."""
    where = [i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y]
    return len(a) == len(b) and len(where) == 2 and where[0] > 0 and where[1] == where[0] + 1 and sorted(a) == sorted(b)


_SHORT_SERVICES = sorted(name for name in SERVICES if len(name) == 5)
_TOOL_SKELETONS = {skeleton(name): name for name in TOOLS | OWN_TOOLS}
_CLIENT_TOOLS = frozenset(map(squashed, CLIENT_TOOLS))
_SERVICE_SKELETONS = {skeleton(name): name for name in SERVICES if len(name) >= 4}
_TYPO_SERVICES = sorted(name for name in SERVICES if len(name) >= 6)


def tool_names(tool: Tool, server: Server | None) -> Iterator[Finding]:
    """Suspicions about a tool's name."""
    name = tool.name
    if not name.isascii():
        folded = latin(unicodedata.normalize("NFKC", name))
        if folded.isascii() and folded != name:
            yield _found(
                "lookalike_name", Severity.BLOCK, "name", name, f"reads as {folded!r} but is written with other letters"
            )
            return
    plain = squashed(name)
    if name.casefold() in OWN_TOOLS or plain.startswith("toolscout"):
        yield _found("own_name", Severity.BLOCK, "name", name, "would be taken for Toolscout's own tool")
        return
    twin = _TOOL_SKELETONS.get(skeleton(name))
    if twin and squashed(twin) != plain and len(plain) >= 6:
        yield _found("lookalike_name", Severity.WARN, "name", name, f"looks like {twin!r}")
    if plain in _CLIENT_TOOLS and (found := _BUILT_IN.search(tool.description)):
        yield _found(
            "lookalike_name", Severity.WARN, "description", found.group(), "stands in for a tool of the client"
        )
    qualified = _QUALIFIED.match(name)
    if qualified and qualified.group(1).lower() in SERVICES and server is not None:
        service = qualified.group(1).lower()
        if service not in _identity(server):
            yield _found(
                "borrowed_prefix",
                Severity.WARN,
                "name",
                name,
                f"names {service}, which the server does not claim to be",
            )


def server_names(server: Server, *, where: str = "server.name") -> Iterator[Finding]:
    """Suspicions about a server's name, and about what it says it is."""
    own_id = server.server_id.rsplit("/", 1)[-1]
    makers = " ".join(match.group(1) for match in _MAKER.finditer(server.description))
    texts = ((server.name, where), (server.title or "", "server.title"), (own_id, "server.server_id"))
    for text, place in (*texts, (makers, "server.description")):
        for match in _PART.finditer(text):
            yield from _service(match.group(), place)
    for field in ("description", "summary", "instructions"):
        yield from claims(getattr(server, field) or "", f"server.{field}")


def claims(text: str, where: str) -> Iterator[Finding]:
    """Claims of authority that nobody but the authority could make."""
    if found := _CLAIM.search(text):
        yield _found(
            "false_authority", Severity.WARN, where, found.group(), "claims an approval that cannot be checked"
        )


def _service(word: str, where: str) -> Iterator[Finding]:
    if not word.isascii():
        folded = latin(unicodedata.normalize("NFKC", word))
        if folded.isascii() and folded != word and len(word) >= 3:
            yield _found(
                "lookalike_name", Severity.BLOCK, where, word, f"reads as {folded!r} but is written with other letters"
            )
        return
    plain = word.casefold()
    if plain in HONEST_WORDS | SERVICES or plain.rstrip("0123456789") in SERVICES:
        return
    twin = _SERVICE_SKELETONS.get(skeleton(word))
    if twin is None and plain.isalpha() and len(plain) >= 6:
        twin = next((name for name in _TYPO_SERVICES if one_typo(plain, name)), None)
        if twin and (plain == twin + "s" or twin == plain + "s"):
            twin = None
    elif twin is None and len(plain) >= 6:
        twin = next((name for name in _TYPO_SERVICES if one_typo(skeleton(plain), skeleton(name))), None)
    if twin is None and len(plain) == 5:
        twin = next((name for name in _SHORT_SERVICES if swapped(plain, name)), None)
    if twin is not None:
        yield _found("lookalike_name", Severity.WARN, where, word, f"looks like {twin!r}")


def _identity(server: Server) -> str:
    install = server.install
    parts = (
        server.server_id,
        server.name,
        server.title,
        server.description,
        server.homepage,
        install.package,
        install.url,
    )
    return " ".join(filter(None, parts)).casefold()


def _found(code: str, severity: Severity, where: str, evidence: str, message: str) -> Finding:
    return Finding(code, severity, where, quoted(evidence), message)
