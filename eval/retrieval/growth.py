"""Synthetic growth of a pool: perturbed copies of real servers and tools, near their originals but distinct from them.

A copy takes words from a donor, another tool drawn at random: some words of its name are exchanged or put in another
order, a share of the words of its description (15 to 60 %, drawn for each tool) is replaced by the donor's, and each
parameter is dropped with a chance of one in four. Everything hangs on the seed, the tool's id and the number of the
copy alone, so a larger pool holds every smaller one, and two runs give the same.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toolscout.eval.rows import draw
from toolscout.index.words import split_identifier
from toolscout.records import JsonObject, Server, Tool

SHARES = (0.15, 0.6)
"""Least and greatest share of a description's words that are replaced."""

DROP = 0.25
"""Chance of a parameter to be dropped."""

MARK = "~"
"""Stands before the number of the copy in the id of a copied server; no real id of the pools holds it."""


@dataclass(frozen=True)
class Copy:
    """A tool of a grown pool. ``origin`` is the row, in the real tools, of the tool it was made from (or is)."""

    tool: Tool
    origin: int
    real: bool


class Growth:
    """Servers and tools without end: the real ones first, as given, then round after round of copies of all of them.

    Tools whose server is not among ``servers`` get one made of their id, as an import does.
    """

    def __init__(self, servers: Iterable[Server], tools: Sequence[Tool], seed: int = 0) -> None:
        self.tools, self.seed = tools, seed
        known = {server.server_id: server for server in servers}
        self._rows: dict[str, list[int]] = defaultdict(list)
        for row, tool in enumerate(tools):
            self._rows[tool.server_id].append(row)
        self.servers = [known.get(i) or Server(server_id=i, name=i.rsplit("/", 1)[-1]) for i in self._rows]

    def __iter__(self) -> Iterator[tuple[Server, list[Copy]]]:
        """Each server with its tools."""
        yield from self.real()
        number = 0
        while self.tools:
            number += 1
            yield from self.round(number)

    def real(self) -> Iterator[tuple[Server, list[Copy]]]:
        """The real servers and their tools."""
        for server in self.servers:
            yield server, [Copy(self.tools[row], row, True) for row in self._rows[server.server_id]]

    def round(self, number: int) -> Iterator[tuple[Server, list[Copy]]]:
        """One copy of every server, in an order of this round's own; rounds count from 1."""
        for server in sorted(self.servers, key=lambda s: draw(self.seed, f"{number}:{s.server_id}")):
            yield self._copy(server, number)

    def first(self, size: int) -> Iterator[tuple[Server, list[Copy]]]:
        """The first ``size`` tools: the last server may be cut short. Fewer than the real tools is possible too."""
        left = size
        for server, copies in self:
            if left <= 0:
                return
            yield server, copies[:left]
            left -= len(copies)

    def _copy(self, server: Server, number: int) -> tuple[Server, list[Copy]]:
        dice = random.Random(draw(self.seed, f"{number}:{server.server_id}:server"))
        donor = dice.choice(self.servers)
        server_id = f"{server.server_id}{MARK}{number}"
        share = dice.uniform(*SHARES)
        words = _exchanged(split_identifier(server.name), split_identifier(donor.name), dice)
        text = server.description or server.summary or ""
        given = donor.description or donor.summary or ""
        made = Server(
            server_id=server_id,
            name="-".join(words) or server.name,
            description=_mixed(text, given, share, dice),
            category=server.category,
            state=server.state,
        )
        taken: set[str] = set()
        copies = [
            Copy(self._tool(self.tools[row], server_id, number, taken), row, False)
            for row in self._rows[server.server_id]
        ]
        return made, copies

    def _tool(self, tool: Tool, server_id: str, number: int, taken: set[str]) -> Tool:
        dice = random.Random(draw(self.seed, f"{number}:{tool.tool_id}"))
        donor = dice.choice(self.tools)
        name = _renamed(tool.name, donor.name, dice)
        while name in taken:
            name += str(len(taken))
        taken.add(name)
        return Tool(
            tool_id=f"{server_id}/{name}",
            server_id=server_id,
            name=name,
            description=_mixed(tool.description, donor.description, dice.uniform(*SHARES), dice),
            input_schema=_thinned(tool.input_schema, dice),
            annotations=tool.annotations,
        )


def _renamed(name: str, other: str, dice: random.Random) -> str:
    """A name with words exchanged or moved, joined as the name was."""
    words = split_identifier(name)
    if not words:
        return name
    changed = _exchanged(words, split_identifier(other), dice)
    for mark in ("_", "-", "."):
        if mark in name:
            return mark.join(changed)
    return changed[0] + "".join(word[:1].upper() + word[1:] for word in changed[1:])


def _exchanged(words: list[str], others: list[str], dice: random.Random) -> list[str]:
    """Some of the words (one at least, half at most) replaced by others; one time in three all are shuffled as well."""
    words = list(words)
    if not words or not others:
        return words
    for place in dice.sample(range(len(words)), dice.randint(1, max(1, len(words) // 2))):
        words[place] = dice.choice(others).lower()
    if dice.random() < 1 / 3:
        dice.shuffle(words)
    return words


def _mixed(text: str, other: str, share: float, dice: random.Random) -> str:
    """A share of the text's words replaced by words of the other."""
    words, others = text.split(), other.split()
    if not words or not others:
        return text
    for place in dice.sample(range(len(words)), round(share * len(words))):
        words[place] = dice.choice(others)
    return " ".join(words)


def _thinned(schema: JsonObject, dice: random.Random) -> JsonObject:
    """The schema without some of its properties."""
    properties = schema.get("properties")
    if not isinstance(properties, dict):
        return schema
    kept: dict[str, Any] = {name: value for name, value in properties.items() if dice.random() >= DROP}
    required = schema.get("required")
    thinned = {**schema, "properties": kept}
    if isinstance(required, list):
        thinned["required"] = [name for name in required if name in kept]
    return thinned
