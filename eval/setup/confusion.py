"""Which tools cannot be told apart: by who comes first when one of them is asked for, and by what their records say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import combinations

import numpy as np
import numpy.typing as npt

from toolscout.eval.retrieval.copies import are_copies
from toolscout.eval.rows import definition
from toolscout.eval.setup.requests import Request
from toolscout.index.names import squashed
from toolscout.index.words import hashes
from toolscout.records import JsonObject, Tool, canonical_json

Floats = npt.NDArray[np.float32]

LOOKS = 5
"""A tool that is not among so many is not found; only these are told to come before it."""

NEAR = 0.85
"""Cosine of two tools' texts from which they may be near copies, the same likeness of their descriptions, and half the
same names of arguments."""

_COMPARED = 600


@dataclass
class Outcome:
    """What came of a request: ``ranked`` best first, ``refused``: nothing would have been offered."""

    request: Request
    ranked: list[str]
    refused: bool = False

    def rank(self, without: frozenset[str] = frozenset()) -> int | None:
        """Place of the request's own tool from 1, tools ``without`` not counted; None if it is not there."""
        place = 0
        for tool_id in self.ranked:
            if tool_id in without:
                continue
            place += 1
            if tool_id == self.request.tool_id:
                return place
        return None

    def before(self) -> list[str]:
        """Tools that come before the own one, at most `LOOKS`."""
        place = self.rank()
        return self.ranked[: LOOKS if place is None else min(place - 1, LOOKS)]


@dataclass
class Pair:
    """Two tools, ``one`` < ``other`` by id. ``asked`` counts the own requests of both, ``right`` those for which the
    own tool comes before the other."""

    one: Tool
    other: Tool
    cosine: float
    words: float
    copy: str | None
    asked: int = 0
    right: int = 0
    lost: list[Request] = field(default_factory=list)

    @property
    def told_apart(self) -> float:
        """Share of their requests that get the right one of the two."""
        return self.right / self.asked if self.asked else 1.0

    @property
    def ids(self) -> tuple[str, str]:
        """Both ids."""
        return self.one.tool_id, self.other.tool_id

    def to_dict(self) -> JsonObject:
        """As one JSON object; of requests only those made of the tools' own texts are shown."""
        shown = next((r for r in self.lost if r.shown), None)
        example = None
        if shown is not None:
            winner = self.ids[1] if shown.tool_id == self.ids[0] else self.ids[0]
            example = {"request": shown.shown, "of": shown.tool_id, "first": winner}
        return {
            "tools": list(self.ids),
            "scope": "within" if self.one.server_id == self.other.server_id else "across",
            "copy": self.copy,
            "cosine": round(self.cosine, 3),
            "words": round(self.words, 3),
            "told_apart": round(self.told_apart, 3),
            "requests": self.asked,
            "example": example,
        }


def confusable(tools: Sequence[Tool], vectors: Floats, outcomes: Iterable[Outcome]) -> list[Pair]:
    """Pairs that are copies of one another or of which one comes first for the other's request; worst first.

    :param vectors: of the tools' texts, float32 [n, dim], L2-normalised, in the order of ``tools``.
    """
    row = {tool.tool_id: i for i, tool in enumerate(tools)}
    by_tool: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        by_tool[outcome.request.tool_id].append(outcome)
    cosines = vectors @ vectors.T
    wanted = {
        tuple(sorted((row[tool_id], row[other])))
        for tool_id, found in by_tool.items()
        for outcome in found
        for other in outcome.before()
    }
    close = np.argwhere(np.triu(cosines >= NEAR, 1))
    wanted |= {(int(a), int(b)) for a, b in close} | _same_texts(tools)
    bags = [frozenset(hashes(f"{t.name} {t.description}")) for t in tools]
    pairs = []
    for a, b in sorted(wanted):
        copy = copy_kind(tools[a], tools[b], float(cosines[a, b]))
        words = len(bags[a] & bags[b]) / max(1, len(bags[a] | bags[b]))
        pair = Pair(tools[a], tools[b], float(cosines[a, b]), words, copy)
        for mine, its in ((pair.one, pair.other), (pair.other, pair.one)):
            for outcome in by_tool[mine.tool_id]:
                pair.asked += 1
                if _ahead(outcome, mine.tool_id, its.tool_id):
                    pair.right += 1
                else:
                    pair.lost.append(outcome.request)
        if copy or pair.lost:
            pairs.append(pair)
    order = {"identical": 0, "copy": 1, "near copy": 2, None: 3}
    return sorted(pairs, key=lambda p: (order[p.copy], p.told_apart, -p.cosine, p.ids))


def copy_kind(one: Tool, other: Tool, cosine: float) -> str | None:
    """``identical``: name, description and schema are equal. ``copy``: description and argument names are equal, one
    name ends with the other (`eval/retrieval/copies.py`). ``near copy``: the same name, texts and descriptions at least
    `NEAR` alike, at least half of the argument names in common. None: neither."""
    if canonical_json(definition(one)) == canonical_json(definition(other)):
        return "identical"
    if are_copies(one, other):
        return "copy"
    if cosine < NEAR or squashed(one.name) != squashed(other.name) or not (one.description and other.description):
        return None
    left, right = _arguments(one), _arguments(other)
    if left | right and 2 * len(left & right) < len(left | right):
        return None
    first, second = (" ".join(t.description.casefold().split())[:_COMPARED] for t in (one, other))
    return "near copy" if SequenceMatcher(None, first, second, autojunk=False).ratio() >= NEAR else None


def groups(pairs: Iterable[Pair]) -> list[list[str]]:
    """Three tools and more that hang together by pairs that are copies or told apart no better than by chance."""
    near: dict[str, set[str]] = defaultdict(set)
    for pair in pairs:
        if pair.copy or pair.told_apart <= 0.5:
            one, other = pair.ids
            near[one].add(other)
            near[other].add(one)
    found, seen = [], set()
    for start in sorted(near):
        if start in seen:
            continue
        members, waiting = {start}, [start]
        while waiting:
            waiting += (fresh := near[waiting.pop()] - members)
            members |= fresh
        seen |= members
        if len(members) > 2:
            found.append(sorted(members))
    return sorted(found, key=lambda group: (-len(group), group))


def _ahead(outcome: Outcome, mine: str, other: str) -> bool:
    places: Mapping[str, int] = {tool_id: i for i, tool_id in enumerate(outcome.ranked)}
    end = len(outcome.ranked)
    return places.get(mine, end) < places.get(other, end + 1)


def _same_texts(tools: Sequence[Tool]) -> set[tuple[int, int]]:
    """Pairs of tools of one description, which the cosine may miss because server names are in the texts."""
    by_text: dict[str, list[int]] = defaultdict(list)
    for i, tool in enumerate(tools):
        by_text[" ".join(tool.description.casefold().split())].append(i)
    return {pair for text, rows in by_text.items() if text for pair in combinations(rows, 2)}


def _arguments(tool: Tool) -> set[str]:
    properties = tool.input_schema.get("properties")
    return set(map(str, properties)) if isinstance(properties, dict) else set()
