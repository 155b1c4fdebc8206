"""What the scanner says of a tool."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import StrEnum

from toolscout.records import JsonObject

EVIDENCE = 120
"""Longest evidence quoted, in characters: enough to judge, too little to carry an attack on."""


class Severity(StrEnum):
    """``info`` is only shown; ``warn`` and ``block`` keep a tool out of everything until a person approves it."""

    INFO = "info"
    WARN = "warn"
    BLOCK = "block"


@dataclass(frozen=True)
class Finding:
    """One suspicion. ``where`` is a path such as ``input_schema.properties.note.description``."""

    code: str
    severity: Severity
    where: str
    evidence: str
    message: str
    said: str = field(default="", compare=False, repr=False)
    """The whole sentence, for `excuses`; it is not kept."""

    def to_json(self) -> JsonObject:
        """As it is kept in a tool's record."""
        kept = asdict(self) | {"severity": self.severity.value}
        return {name: value for name, value in kept.items() if name != "said"}


def held(findings: Iterable[JsonObject]) -> bool:
    """Whether findings, as they are kept in a record, keep a tool from being used before a person has looked."""
    return any(f.get("severity") in (Severity.WARN, Severity.BLOCK) for f in findings)


def quoted(text: str, start: int = 0, end: int | None = None) -> str:
    """A piece of a text that can be printed anywhere: one line, and every character that hides is written out."""
    end = len(text) if end is None else end
    spare = max(0, EVIDENCE - (end - start)) // 2
    piece = " ".join(text[max(0, start - spare) : end + spare].split(" "))
    shown = visible(piece)
    return shown if len(shown) <= EVIDENCE else shown[: EVIDENCE - 1] + "…"


def visible(text: str) -> str:
    """A text with every character that hides or moves others written out; a break or a tab becomes a space."""
    return "".join(c if c.isprintable() and not _invisible(c) else _written(c) for c in text)


def _invisible(c: str) -> bool:
    return c in "\u2800\u3164\u115f\u1160\uffa0" or 0xFE00 <= ord(c) <= 0xFE0F or 0xE0100 <= ord(c) <= 0xE01EF


def _written(c: str) -> str:
    return " " if c in "\n\t\r" else f"<U+{ord(c):04X}>"
