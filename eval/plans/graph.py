"""A plan as a graph: its calls are the nodes, its edges lead from a call to each call that needs it.

A call needs what its ``depends_on`` names and what its arguments refer to (``"$id.path"``, at any depth, also within a
longer text). Both count alike: a reference without the ``depends_on`` that it implies is as good as one with it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

from toolscout.records import GoldCall, JsonObject

_PATH = r"(?:\.[^\d\s.\[\]$][^\s.\[\]$]*|\[[^\]\s]*\])(?:\.[^\s.\[\]$]+|\[[^\]\s]*\])*"
"""``.items[0].name``, ``[0].id``. No digit right after the first dot: ``$1.50`` is a price."""
_WITHIN = r"(?:\.[A-Za-z_][\w-]*|\[\w+\])+"
_NUMBERED = r"[1-9]\d?"
_NAMED = r"[A-Za-z_][\w-]*"
_BRACKETS = re.compile(r"""\[['"]?([^\]'"]*)['"]?\]""")

Mark = Callable[[int | None, str], str]
"""What to write for a reference, by the place of the call it leads to and the path in that call's result. For a
reference to no call the place is None and the path begins with the id."""


class Plan:
    """Calls with ids and edges. A call without an id has its number, counted from 1, as planners count.

    An id that two calls have leads to neither of them.
    """

    def __init__(self, calls: Sequence[GoldCall]) -> None:
        self.calls = list(calls)
        self.ids = _ids(self.calls)
        counted = Counter(self.ids)
        self._place = {id_: at for at, id_ in enumerate(self.ids) if counted[id_] == 1}
        known = "|".join(re.escape(id_) for id_ in sorted(counted, key=len, reverse=True)) or r"(?!)"
        # Where calls have names, a name that no call has is a wrong reference; where they have numbers, it is a text.
        others = rf"{_NUMBERED}|{_NAMED}" if any(not id_.isdecimal() for id_ in counted) else _NUMBERED
        self._whole = re.compile(rf"\$({known})({_PATH})?|\$({others})({_PATH})")
        self._within = re.compile(rf"(?<![\w$])\$({known})({_WITHIN})")
        self.dangling: list[str] = []
        """Ids that a call needs and that are no call's, or several calls'; and its own."""
        self.parents: list[frozenset[int]] = [self._needs(at) for at in range(len(self.calls))]

    def __len__(self) -> int:
        return len(self.calls)

    @cached_property
    def edges(self) -> list[tuple[int, int]]:
        """(needed, needing), as places in ``calls``."""
        return [(parent, at) for at, parents in enumerate(self.parents) for parent in sorted(parents)]

    @cached_property
    def children(self) -> list[frozenset[int]]:
        """The calls that need each call."""
        found: list[set[int]] = [set() for _ in self.calls]
        for parent, child in self.edges:
            found[parent].add(child)
        return [frozenset(f) for f in found]

    @cached_property
    def order(self) -> list[int]:
        """Places so that each call comes after those it needs; calls on a cycle, and after one, are left out."""
        placed: dict[int, None] = {}
        for _ in self.calls:
            ready = [at for at, needs in enumerate(self.parents) if at not in placed and needs <= placed.keys()]
            if not ready:
                break
            placed |= dict.fromkeys(ready)
        return list(placed)

    @property
    def acyclic(self) -> bool:
        """Whether the calls can be made in some order."""
        return len(self.order) == len(self.calls)

    @property
    def last(self) -> list[int]:
        """The last execution nodes: calls that no other one needs."""
        return [at for at, children in enumerate(self.children) if not children]

    def marked(self, value: Any, mark: Mark) -> Any:
        """The value with ``mark(place, path)`` in place of every reference in it."""
        if isinstance(value, str):
            return self._marked_text(value, mark)
        if isinstance(value, dict):
            return {name: self.marked(inner, mark) for name, inner in value.items()}
        return [self.marked(inner, mark) for inner in value] if isinstance(value, list) else value

    def references(self, value: Any) -> list[tuple[int | None, str]]:
        """(place or None, path) of every reference in a value."""
        found: list[tuple[int | None, str]] = []

        def note(place: int | None, path: str) -> str:
            found.append((place, path))
            return ""

        self.marked(value, note)
        return found

    def refers(self, value: Any) -> bool:
        """Whether there is a reference anywhere in a value."""
        return bool(self.references(value))

    def _marked_text(self, text: str, mark: Mark) -> str:
        if "$" not in text:
            return text
        whole = self._whole.fullmatch(text)
        if whole is not None:
            return self._mark(whole[1] or whole[3], whole[2] or whole[4] or "", mark)
        return self._within.sub(lambda m: self._mark(m[1], m[2], mark), text)

    def _mark(self, id_: str, path: str, mark: Mark) -> str:
        place = self._place.get(id_)
        return mark(place, _plain(path) if place is not None else id_ + path)

    def _needs(self, at: int) -> frozenset[int]:
        call, needed = self.calls[at], set[int]()
        for id_ in call.depends_on:
            place = self._place.get(id_)
            if place is None or place == at:
                self.dangling.append(id_)
            if place is not None:
                needed.add(place)
        for place, path in self.references(call.arguments or {}):
            if place is None or place == at:
                self.dangling.append(f"${path if place is None else self.ids[at]}")
            if place is not None:
                needed.add(place)
        return frozenset(needed)


def texts(value: Any, steps: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """(way to it, text) of every string in a value, names of members left out."""
    if isinstance(value, str):
        yield steps, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from texts(inner, (*steps, name))
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from texts(inner, (*steps, at))


def lines(plan: Plan) -> list[str]:
    """A plan for reading: a line for each call."""
    from toolscout.prompt import dumps

    shown = []
    for at, call in enumerate(plan.calls):
        after = ", ".join(plan.ids[p] for p in sorted(plan.parents[at]))
        arguments: JsonObject | None = call.arguments
        written = "" if arguments is None else f" {dumps(arguments)}"
        shown.append(f"{plan.ids[at]}. {call.tool_id}{written}{f' (after {after})' if after else ''}")
    return shown


def _ids(calls: Sequence[GoldCall]) -> list[str]:
    taken = {call.id for call in calls if call.id}
    ids = []
    for number, call in enumerate(calls, start=1):
        id_ = call.id or str(number)
        while not call.id and id_ in taken:
            id_ += "'"
        taken.add(id_)
        ids.append(id_)
    return ids


def _plain(path: str) -> str:
    """One way of writing a path: ``.items[0]['name']`` is ``items.0.name``."""
    return _BRACKETS.sub(r".\1", path).strip(".")
