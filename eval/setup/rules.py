"""Rules for descriptions that a search and a model can work with, each with what to write instead."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from toolscout.errors import BadInput
from toolscout.index.words import words
from toolscout.records import JsonObject, Tool
from toolscout.signature import Parameter, parameters

SHORTEST = 4
"""Words (stop words aside, an unspaced script's characters counting) that a description needs."""

LONGEST = 1500
"""Characters of a description; the encoder reads 700 of them, and a compact answer shows the first sentence."""

_ENGLISH = frozenset(
    ["the", "of", "and", "to", "for", "with", "from", "by", "or", "is", "are", "this", "that", "your", "which", "be"]
)
"""Words that are rare in other languages, most of them no words there at all."""

_FEWEST_WORDS = 8
_MOST_NAMED = 4


@dataclass(frozen=True)
class Rule:
    """A rule: its statement, what to write instead, and what breaking it costs of a tool's description (0 to 1)."""

    says: str
    instead: str
    cost: float


RULES: dict[str, Rule] = {
    "no_description": Rule(
        "A tool has a description.",
        "One sentence: verb, object, what comes back ('List the open pull requests of a repository, newest first').",
        1.0,
    ),
    "repeats_name": Rule(
        "A description says more than the name does.",
        "Say what it does to what, what it gives back, and when to use it rather than its neighbours.",
        0.7,
    ),
    "short_description": Rule(
        f"A description has at least {SHORTEST} words that carry meaning.",
        "Name the product, the object and the result.",
        0.5,
    ),
    "parameter_undescribed": Rule(
        "Every parameter is described, in the schema or in the tool's description.",
        "For each: what it means, its format or unit, and an example value.",
        0.4,
    ),
    "parameter_untyped": Rule(
        "Every parameter has a type (or an enum, a const, alternatives or a reference).",
        'Add "type"; where only some values are allowed, an "enum".',
        0.3,
    ),
    "required_missing": Rule(
        "What the text calls required stands in the schema's 'required' list.",
        'Add the list: "required": [...]; clients and models read it, not the prose.',
        0.2,
    ),
    "long_description": Rule(
        f"A description has at most {LONGEST:,} characters.",
        "Keep what decides whether to use the tool; move formats to the parameters and manuals to the documentation.",
        0.2,
    ),
    "other_language": Rule(
        "Descriptions are in one language, that of most of them.",
        "Write it in the language of the rest: requests in that language do not reach this tool by its words.",
        0.3,
    ),
}


@dataclass(frozen=True)
class Finding:
    """A rule that a tool breaks. ``detail`` says where; ``share`` (0 to 1) how much of the rule's cost counts."""

    tool_id: str
    server_id: str
    rule: str
    detail: str
    share: float = 1.0

    @property
    def cost(self) -> float:
        """What it costs of the tool's description, 0 to 1."""
        return RULES[self.rule].cost * self.share

    def to_dict(self) -> JsonObject:
        """As one JSON object, with the rule in words and what to write instead."""
        rule = RULES[self.rule]
        return asdict(self) | {"share": round(self.share, 3), "says": rule.says, "instead": rule.instead}


def examine(tools: Sequence[Tool]) -> list[Finding]:
    """What the rules find, by tool."""
    foreign = _foreign(tools)
    found: list[Finding] = []
    for tool in tools:
        found += _description(tool)
        found += _parameters(tool)
        if tool.tool_id in foreign:
            found.append(_finding(tool, "other_language", foreign[tool.tool_id]))
    return found


def _finding(tool: Tool, rule: str, detail: str, share: float = 1.0) -> Finding:
    return Finding(tool.tool_id, tool.server_id, rule, detail, share)


def _description(tool: Tool) -> Iterable[Finding]:
    text = tool.description.strip()
    said = list(words(text))
    if not said:
        yield _finding(tool, "no_description", "no description")
        return
    beyond = set(said) - set(words(f"{tool.name} {tool.title or ''}")) - _EMPTY
    if not beyond:
        yield _finding(tool, "repeats_name", f"says only {text[:120]!r}")
    elif len(said) < SHORTEST:
        yield _finding(tool, "short_description", f"says only {text[:120]!r}")
    if len(text) > LONGEST:
        yield _finding(tool, "long_description", f"{len(text):,} characters")


_EMPTY = frozenset(words("tool function method command endpoint api call execute run perform operation mcp"))
"""Words that say nothing beyond a name."""

_TYPED = ("type", "enum", "const", "anyOf", "oneOf", "$ref", "allOf")


def _parameters(tool: Tool) -> Iterable[Finding]:
    found = parameters(tool.input_schema)
    if not found:
        return
    bare = [p for p in found if not p.description.strip() and not _in_text(p.name, tool.description)]
    if bare:
        yield _finding(tool, "parameter_undescribed", _named(bare, len(found)), len(bare) / len(found))
    untyped = [p for p in found if not any(key in p.schema for key in _TYPED)]
    if untyped:
        yield _finding(tool, "parameter_untyped", _named(untyped, len(found)), len(untyped) / len(found))
    demanded = [p for p in found if not p.required and "default" not in p.schema and _demanded(p, tool.description)]
    if demanded:
        yield _finding(tool, "required_missing", _named(demanded, len(found)), len(demanded) / len(found))


def _named(some: Sequence[Parameter], whole: int) -> str:
    names = ", ".join(p.name for p in some[:_MOST_NAMED])
    more = f" and {len(some) - _MOST_NAMED} more" if len(some) > _MOST_NAMED else ""
    return f"{len(some)} of {whole}: {names}{more}"


def _in_text(name: str, description: str) -> bool:
    """Whether a description explains a parameter: its name before a colon, a dash or a bracket, or in backticks."""
    quoted = re.escape(name)
    return bool(re.search(rf"(?<!\w){quoted}[`'\"*]*\s*(?::|\(|=|[-–—]\s)|`{quoted}`", description))


_MUST = re.compile(
    r"\b(?:required|mandatory|must be (?:given|provided|specified|set))\b|必填|必须|必需|必須", re.IGNORECASE
)
_BUT = re.compile(
    r"\b(?:not|isn't|if|whether|when|unless|only|optional\w*|either|one of|at least|for|as|by)\b[^.;\n]{0,40}$"
    r"|^[^.;\n]{0,12}\b(?:if|when|unless|for|only|by|to|in|with|and optional)\b|\boptional\b",
    re.IGNORECASE,
)


def _demanded(parameter: Parameter, description: str) -> bool:
    """Whether the text calls a parameter required, without an 'if'."""
    said = [parameter.description]
    said += re.findall(rf"(?m)^\W*{re.escape(parameter.name)}\b[`'\"*]*\s*(?:\(|:|[-–—])[^\n]*", description)
    for text in said:
        if _BUT.search(text) and re.search(r"optional", text, re.IGNORECASE):
            continue
        for match in _MUST.finditer(text):
            before, after = text[: match.start()], text[match.end() :]
            if not _BUT.search(before[-60:]) and not _BUT.search(after[:40]):
                return True
    return False


# --- languages -------------------------------------------------------------------------------------------------------

_SCRIPTS = ("HIRAGANA", "KATAKANA", "HANGUL", "CJK", "CYRILLIC", "ARABIC", "HEBREW", "GREEK", "DEVANAGARI", "THAI")
_NAMES = {"CJK": "Chinese", "HIRAGANA": "Japanese", "KATAKANA": "Japanese", "HANGUL": "Korean"}


def language(text: str) -> str | None:
    """A description's language as far as it is plain: a script's, or the code of one in Latin script (of these, without
    py3langid, only English); None if it cannot be told."""
    letters = [c for c in text[:2000] if c.isalpha()]
    if not letters:
        return None
    found = Counter(_script(c) for c in letters)
    for script in _SCRIPTS:
        if found[script] >= max(2, 0.2 * len(letters)):
            return _NAMES.get(script, script.title())
    plain = re.findall(r"[^\W\d_]+", text[:500].casefold())
    if len(plain) < _FEWEST_WORDS:
        return None
    if sum(word in _ENGLISH for word in plain) >= 0.12 * len(plain):
        return "en"  # told without loading the package, which takes longer than all the rest of the rules
    try:
        from toolscout.eval.language import check_language, guess_language

        check_language()
    except BadInput:
        return None  # terse English has few of those words, so that it must not pass for another language
    return guess_language(text[:500], "latin")


def _script(char: str) -> str:
    if char < "\u0250":
        return "LATIN"
    return unicodedata.name(char, "").split(" ", 1)[0]


def _foreign(tools: Sequence[Tool]) -> dict[str, str]:
    """Tools whose description is in another language than most, with what was seen. Latin scripts are only held
    against each other where at least two tools of one server agree, since the guess errs on single short texts."""
    told = {t.tool_id: code for t in tools if (code := language(t.description)) is not None}
    if len(told) < 3:
        return {}
    common, count = Counter(told.values()).most_common(1)[0]
    if 2 * count <= len(told):
        return {}
    agreeing = Counter((t.server_id, told[t.tool_id]) for t in tools if t.tool_id in told)
    return {
        t.tool_id: f"{told[t.tool_id]}, the rest {common}"
        for t in tools
        if told.get(t.tool_id, common) != common
        and (not told[t.tool_id].islower() or agreeing[t.server_id, told[t.tool_id]] > 1)
    }
