"""Where values of requests come from: what stands on a person's machine, and placeholders replaced by it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pydantic import Field

from toolscout.errors import BadInput
from toolscout.jsonl import parse_record
from toolscout.records import Record
from toolscout.synth.drafts import draw

_DEFAULT = Path(__file__).parent / "environment.json"
_SHOWN = 6


class Environment(Record):
    """Local candidates for slots. ``text`` says in a sentence whose environment it is."""

    text: str = ""
    files: list[str] = Field(default_factory=list)
    directories: list[str] = Field(default_factory=list)
    urls: list[str] = Field(default_factory=list)

    def shown(self, key: str) -> str:
        """A few candidates of each kind for a prompt, drawn by ``key`` so that prompts differ."""
        kinds = (("files", self.files), ("directories", self.directories), ("urls", self.urls))
        drawn = (
            f"{name}: {', '.join(sorted(found, key=lambda c: draw(key, c))[:_SHOWN])}" for name, found in kinds if found
        )
        return "; ".join(part for part in (self.text, *drawn) if part) or "nothing is known of it"


def read_environment(path: Path | None) -> Environment:
    """An environment file (JSON: text, files, directories, urls); without one, a made-up person's. Raises BadInput."""
    path = path or _DEFAULT
    try:
        value = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(
            f"The environment {path} cannot be read: {error}.", "It is a JSON object; see SYNTHESIS.md."
        ) from None
    if not isinstance(value, dict):
        raise BadInput(f"The environment {path} is no JSON object.", "Its members are text, files, directories, urls.")
    return parse_record(value, Environment, str(path))


_STEP = r"(?:path|to|your|my|the|some|full|absolute|folder|directory|dir|file|project|user(?:name)?)"
_ROOT = r"(?:/|[A-Za-z]:\\|\./|~/)?"
_NAME = r"(?:my|your|the|some|example|sample|test|input|output|image|document|file|data|filename|demo)"
_ENDING = r"(?:pdf|csv|txt|jpe?g|png|docx?|xlsx?|json|mp[34]|md|py|html?|zip|xml|svg|log)"
_HOST = r"(?:example|yourdomain|your-?site|your-?url|mysite|domain)"
_REST = r"[^\s\"'<>),]*"
_FILE_SLOT = r"file(?:[ _-]?(?:name|path))?|path[ _-]?to[ _-]?file|image|document"


def _slot(names: str) -> str:
    """A name in brackets of any kind."""
    return rf"[<\[{{]{{1,2}}\s*(?:{names})\s*[>\]}}]{{1,2}}"


_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(pattern, flags))
    for kind, pattern, flags in (
        ("url", rf"https?://(?:[\w-]+\.)*{_HOST}\.\w+{_REST}", re.IGNORECASE),
        ("url", rf"(?<![@\w.])(?:www\.)?(?:example|yourdomain)\.(?:com|org|net)(?:/{_REST})?", re.IGNORECASE),
        ("file", rf"{_ROOT}(?:{_STEP}[/\\])+[\w.-]*\w\.[A-Za-z]\w{{0,4}}\b", re.IGNORECASE),
        ("directory", rf"{_ROOT}{_STEP}[/\\](?:{_STEP}[/\\]?)+[\w.-]*", re.IGNORECASE),
        ("file", rf"(?<![\w/\\.@-]){_NAME}[_-]?(?:{_NAME}|name|\d)?\.{_ENDING}\b", re.IGNORECASE),
        ("file", _slot(_FILE_SLOT), re.IGNORECASE),
        ("directory", _slot(r"(?:dir(?:ectory)?|folder)(?:[ _-]?(?:name|path))?"), re.IGNORECASE),
        ("url", _slot(r"(?:ur[li]|link|website)(?:[ _-]?here)?"), re.IGNORECASE),
        ("other", r"<[a-z][\w -]{0,40}>|\{\{[^{}]{1,40}\}\}|\$\{\w+\}", 0),
        ("other", r"\[(?:your|insert|enter|the|some)\b[^\]]{0,40}\]|\[[A-Z][A-Z_ ]{2,}\]", 0),
        ("other", r"\b(?:YOUR|INSERT|ENTER)_[A-Z_]+\b|\b[xX]{4,}\b|_{3,}|\bTODO\b|\bTBD\b", 0),
        ("other", r"\b\w+@example\.(?:com|org|net)\b", 0),
    )
)
"""What stands where a value should, most particular first."""


@dataclass(frozen=True)
class Placeholder:
    """A place in a text that stands for a value. ``kind``: url, file, directory or other."""

    kind: str
    start: int
    end: int


def placeholders(text: str) -> list[Placeholder]:
    """Placeholders in the order of the text; of those that overlap, the first kind found counts."""
    found: list[Placeholder] = []
    for kind, pattern in _KINDS:
        for match in pattern.finditer(text):
            start, end = match.start(), match.start() + len(match.group().rstrip(".,;:"))
            if all(end <= p.start or start >= p.end for p in found):
                found.append(Placeholder(kind, start, end))
    return sorted(found, key=lambda p: p.start)


def replaced(text: str, environment: Environment, key: str) -> tuple[str, list[str]]:
    """The text with placeholders for files, directories and URLs replaced by local candidates, drawn by ``key``; and
    the placeholders for which there is none. One placeholder is replaced alike wherever it stands."""
    kinds: dict[str, Sequence[str]] = {
        "file": environment.files,
        "directory": environment.directories,
        "url": environment.urls,
    }
    left: list[str] = []
    parts, last = [], 0
    for place in placeholders(text):
        said = text[place.start : place.end]
        candidates = _fitting(said, kinds.get(place.kind, ()))
        if not candidates:
            left.append(said)
            continue
        parts += [text[last : place.start], min(candidates, key=lambda c: draw(key, said, c))]
        last = place.end
    return "".join([*parts, text[last:]]), left


def _fitting(said: str, candidates: Sequence[str]) -> Sequence[str]:
    """Candidates with the same ending, where the placeholder has one and any candidate has it too."""
    ending = PurePosixPath(said.replace("\\", "/")).suffix.lower()
    return [c for c in candidates if ending and c.lower().endswith(ending)] or candidates
