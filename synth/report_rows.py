"""Rows as the report looks at them: drafts of a step's file, calls of the data contract, trajectories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolscout.jsonl import read_objects
from toolscout.records import JsonObject
from toolscout.synth.drafts import Draft

NO_CATEGORY = "none"


@dataclass(frozen=True)
class Row:
    """One instruction with its calls (none yet in an early step) and what is known of it."""

    id: str
    text: str
    calls: tuple[tuple[str, JsonObject | None], ...] = ()
    """(tool id, arguments), in their order."""
    level: str = "0"
    directions: tuple[str, ...] = ()
    lang: str = ""
    category: str = NO_CATEGORY
    scores: Mapping[str, float] = field(default_factory=dict)

    @property
    def tool_id(self) -> str:
        """The first call's tool; empty without one."""
        return self.calls[0][0] if self.calls else ""

    @property
    def arguments(self) -> int:
        """How many arguments all calls have together."""
        return sum(len(given or {}) for _, given in self.calls)


def row_of_draft(draft: Draft, category: str = NO_CATEGORY) -> Row:
    """A draft on its way."""
    return Row(
        id=draft.id,
        text=draft.text,
        calls=((draft.tool_id, draft.arguments),),
        level=str(draft.level),
        directions=tuple(draft.directions),
        lang=draft.lang,
        category=category,
        scores=draft.scores,
    )


def row_of_object(found: Mapping[str, Any], categories: Mapping[str, str]) -> Row | None:
    """A row of any of the files: what it lacks is left empty; None without an instruction.

    :param categories: a server's category, by its id.
    """
    text = _instruction(found)
    if not text.strip():
        return None
    calls = _calls(found)
    scores = found.get("scores")
    return Row(
        id=str(found.get("id", "")),
        text=text,
        calls=calls,
        level=str(found.get("level", "0")),
        directions=tuple(map(str, found.get("directions") or ())),
        lang=str(found.get("lang") or ""),
        category=category_of(calls[0][0], categories) if calls else NO_CATEGORY,
        scores={str(k): float(v) for k, v in scores.items() if _is_number(v)} if isinstance(scores, dict) else {},
    )


def category_of(tool_id: str, categories: Mapping[str, str]) -> str:
    """The category of a tool's server, whose id is a head of the tool's."""
    head = tool_id
    while "/" in head:
        head = head.rpartition("/")[0]
        if head in categories:
            return categories[head]
    return NO_CATEGORY


def rows_of_file(path: Path, categories: Mapping[str, str] | None = None) -> list[Row]:
    """The rows of a file that have an instruction. Raises NotFound and BadInput as `read_objects`."""
    made = (row_of_object(found, categories or {}) for _, found in read_objects(path))
    return [row for row in made if row is not None]


def _instruction(found: Mapping[str, Any]) -> str:
    for name in ("query", "text", "instruction"):
        if isinstance(found.get(name), str):
            return str(found[name])
    for message in found.get("messages") or ():
        if isinstance(message, dict) and message.get("role") == "user":
            return str(message.get("content") or "")
    return ""


def _calls(found: Mapping[str, Any]) -> tuple[tuple[str, JsonObject | None], ...]:
    steps = found.get("gold") or found.get("calls") or _carried(found) or [found]
    made = []
    for step in steps if isinstance(steps, list) else []:
        if isinstance(step, dict) and isinstance(step.get("tool_id"), str):
            given = step.get("arguments")
            made.append((step["tool_id"], given if isinstance(given, dict) else None))
    return tuple(one for one in made if one[0])


def _carried(found: Mapping[str, Any]) -> list[Any] | None:
    """The calls of a plan or a run on its way, which stand in its draft's arguments."""
    given = found.get("arguments")
    steps = given.get("steps") if isinstance(given, dict) else None
    carried = isinstance(steps, list) and all(isinstance(s, dict) and isinstance(s.get("tool_id"), str) for s in steps)
    return steps if carried else None


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
