"""The prompts of synthesis: files in ``prompts/``, each with its source named and a section for each message."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from string import Template

from toolscout.records import sha256_hex

FOLDER = Path(__file__).parent / "prompts"

_SECTION = re.compile(r"^# (.+)$", re.MULTILINE)
_ROLES = {"System": "system", "User": "user", "Assistant": "assistant"}
_DIRECTION = "Direction: "


@dataclass(frozen=True)
class Prompt:
    """One prompt. ``fingerprint`` is of the whole file: a changed prompt makes its step's lines anew.

    ``turns`` are (role, template) in order; ``directions`` are further texts by name.
    """

    name: str
    source: str
    fingerprint: str
    turns: tuple[tuple[str, str], ...]
    directions: dict[str, str]

    def render(self, **values: object) -> list[dict[str, str]]:
        """Chat messages with every ``$name`` filled in. What is filled in is never read for names again.

        Raises KeyError for a name without a value: a fault of the caller.
        """
        return [{"role": role, "content": Template(text).substitute(values)} for role, text in self.turns]


@cache
def load_prompt(name: str) -> Prompt:
    """The prompt of ``prompts/<name>.md``."""
    text = (FOLDER / f"{name}.md").read_text("utf-8")
    head, _, body = text.removeprefix("---\n").partition("\n---\n")
    source = next((line.removeprefix("source: ") for line in head.splitlines() if line.startswith("source: ")), "")
    parts = _SECTION.split(body)
    turns: list[tuple[str, str]] = []
    directions: dict[str, str] = {}
    for title, content in zip(parts[1::2], parts[2::2], strict=True):
        if title in _ROLES:
            turns.append((_ROLES[title], content.strip()))
        else:
            directions[title.removeprefix(_DIRECTION)] = content.strip()
    return Prompt(name, source, sha256_hex(text)[:16], tuple(turns), directions)
