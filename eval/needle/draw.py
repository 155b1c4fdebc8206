"""Drawing haystacks: which tools stand beside a needle, in which order, and where the needle is.

Everything hangs on the seed, the row's id and the place, and not on the order of the files. For one row and one place
a larger pool holds the smaller one, so that a curve over sizes shows growth and not luck; another place is another
draw.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput
from toolscout.eval.rows import definition, draw
from toolscout.records import Call, Tool, canonical_json, sha256_hex

Places = npt.NDArray[np.int64]

PAPER_SIZES = (
    1, 2, 3, 5, 10, 20, 30, 50, 70, 100, 200, 300, 500, 700, 1000, 1500, 2000, 2797, 3500, 4500, 5500, 6500, 7500, 8500,
    9800, 11100,
)  # fmt: skip
"""26 sizes from 1 to 11,100, as many and as far as RAG-MCP's stress test (arXiv 2505.03275, 4.1), closer together where
it saw most change; 2,797 is MCP-Zero's whole collection (arXiv 2506.01056)."""


@dataclass(frozen=True)
class Drawn:
    """One haystack: places in `Draws.tool_ids`, in the pool's order, and the needle's position in it (0 is first)."""

    tools: Places
    position: int


class Draws:
    """The tools that haystacks are drawn from."""

    def __init__(self, tools: Mapping[str, Tool], seed: int) -> None:
        self.seed = seed
        self.tool_ids = sorted(tools)
        self.place_of = {tool_id: place for place, tool_id in enumerate(self.tool_ids)}
        self._definition = {tool_id: sha256_hex(canonical_json(definition(tool))) for tool_id, tool in tools.items()}
        self._alike: dict[str, list[str]] = {}
        for tool_id, key in self._definition.items():
            self._alike.setdefault(key, []).append(tool_id)
        texts = (f"{tool_id} {self._definition[tool_id]}" for tool_id in self.tool_ids)
        self.fingerprint = sha256_hex("\n".join(texts))
        """Changes with any tool."""

    def barred(self, row: Call) -> set[str]:
        """Tools that never stand beside the row's needle: those that would do its job, by ``relevant`` or because their
        definition is that of one that would."""
        relevant = [tool_id for tool_id in row.relevant_ids() if tool_id in self.place_of]
        return {twin for tool_id in relevant for twin in self._alike[self._definition[tool_id]]}

    def room(self, row: Call) -> int:
        """The largest pool that the row's needle can stand in."""
        return len(self.tool_ids) - len(self.barred(row)) + 1

    def order(self, row: Call, place: str) -> Places:
        """All tools that may stand beside the needle, in the order in which they come in as the pool grows."""
        dice = np.random.default_rng(draw(self.seed, f"needle\n{row.id}\n{place}"))
        kept = np.ones(len(self.tool_ids), dtype=np.bool_)
        kept[[self.place_of[tool_id] for tool_id in self.barred(row)]] = False
        shuffled: Places = dice.permutation(len(self.tool_ids)).astype(np.int64)
        return shuffled[kept[shuffled]]

    def haystack(self, row: Call, needle: str, order: Places, size: int, depth: float) -> Drawn:
        """The pool of ``size`` tools with the needle at ``depth`` (0 first, 1 last) of it."""
        position = round(depth * (size - 1))
        others = order[: size - 1]
        tools = np.concatenate([others[:position], [self.place_of[needle]], others[position:]]).astype(np.int64)
        return Drawn(tools, position)


def needle_rows(rows: Sequence[Call], tools: Mapping[str, Tool]) -> tuple[list[Call], list[str]]:
    """Rows with exactly one gold tool that the pool holds, and what to say about the others. Raises BadInput if there
    are none."""
    kept, several, missing = [], 0, 0
    for row in rows:
        gold = {g.tool_id for g in row.gold}
        if len(gold) > 1:
            several += 1
        elif gold and not gold <= tools.keys():
            missing += 1
        elif gold:
            kept.append(row)
    if not kept:
        raise BadInput(
            "No row has exactly one gold tool that is in the tools files.",
            "Check that --tools and --calls belong together.",
        )
    said = []
    if several:
        said.append(f"{several} rows left out: they want several tools, and a needle is one.")
    if missing:
        said.append(f"{missing} rows left out: their gold tool is not in the tools files.")
    return kept, said


def limited(rows: list[Call], limit: int | None, seed: int) -> list[Call]:
    """At most ``limit`` rows, drawn by a hash of seed and id: the same ones at every run, in the rows' order."""
    if limit is None or limit >= len(rows):
        return rows
    kept = {row.id for row in sorted(rows, key=lambda row: draw(seed, row.id))[:limit]}
    return [row for row in rows if row.id in kept]


def parse_sizes(text: str, room: int) -> tuple[list[int], list[str]]:
    """Pool sizes from ``--sizes``: numbers and ``all`` with commas between, or ``paper`` (`PAPER_SIZES` and all).

    ``room`` is the largest pool that every row can have. Larger numbers are left out, which is told. Raises BadInput.
    """
    sizes: set[int] = set()
    for word in (part.strip() for part in text.split(",")):
        if word == "paper":
            sizes |= {*PAPER_SIZES, room}
        elif word == "all":
            sizes.add(room)
        elif word.isdecimal() and int(word) > 0:
            sizes.add(int(word))
        else:
            raise BadInput(f"--sizes has {word!r}.", "Give numbers from 1, 'all' or 'paper', commas between.")
    too_large = sorted(size for size in sizes if size > room)
    kept = sorted(sizes - set(too_large))
    if not kept:
        raise BadInput(f"All sizes are above {room:,}, the most that every row can have.", "Give smaller --sizes.")
    if not too_large:
        return kept, []
    left = ", ".join(map(str, too_large))
    return kept, [f"sizes left out, larger than the {room:,} tools that every row's pool can have: {left}."]
