"""Categories of tools: who is in them, what a model is told of them, and decks to deal tools from."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from toolscout.index.document import lead, squeeze
from toolscout.records import Server, Tool
from toolscout.synth.drafts import Subject, draw

NONE = "none"
"""Of tools whose server states no category."""

_TOLD = 8
"""Tools that a summary names."""


def by_category(subjects: Iterable[Subject]) -> dict[str, list[Tool]]:
    """The tools of each category, categories by name."""
    found: dict[str, list[Tool]] = defaultdict(list)
    for subject in subjects:
        found[(subject.server.category if subject.server else None) or NONE].append(subject.tool)
    return dict(sorted(found.items()))


def summary(name: str, tools: Sequence[Tool], servers: Mapping[str, Server], *key: object) -> str:
    """A category in one line: how much is in it, and a few of its tools drawn by ``key``."""
    drawn = sorted(tools, key=lambda t: draw(*key, t.tool_id))[:_TOLD]
    said = "; ".join(f"{t.name}: {squeeze(lead(t.description), 80)}" for t in drawn)
    count = len({t.server_id for t in tools})
    return f"{name}: {len(tools)} tools of {count} servers, such as {said}"


class Deck:
    """Tools to deal from without replacement; when all are dealt, they are shuffled again.

    ``near`` keeps the tools of a server together, so that hands are of one server or few.
    """

    def __init__(self, tools: Iterable[Tool], same: Callable[[str, str], bool], near: bool, *key: object) -> None:
        self.tools = list(tools)
        self.same, self.near, self.key = same, near, key
        self.round = -1
        self.left: list[str] = []

    def deal(self, size: int, least: int, beside: Sequence[str] = ()) -> list[str]:
        """So many tools no two of which do the same, nor the same as those ``beside``; fewer when the deck runs out,
        none when not even ``least`` can be dealt."""
        for _ in range(2):
            dealt: list[str] = []
            rest: list[str] = []
            for tool in self.left:
                free = len(dealt) < size and not any(self.same(tool, other) for other in (*beside, *dealt))
                (dealt if free else rest).append(tool)
            if len(dealt) >= least:
                self.left = rest
                return dealt
            self.round += 1
            self.left = self._shuffled()
        return []

    def _shuffled(self) -> list[str]:
        def place(tool: Tool) -> tuple[float, float]:
            server = draw(*self.key, self.round, "server", tool.server_id) if self.near else 0.0
            return server, draw(*self.key, self.round, tool.tool_id)

        return [tool.tool_id for tool in sorted(self.tools, key=place)]
