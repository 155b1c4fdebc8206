"""Which servers do the same: those of which most tools have a near neighbour, by the encoder, in the other's tools."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput, NotFound
from toolscout.records import JsonObject, Tool

Floats = npt.NDArray[np.float32]

COSINE = 0.75
"""Cosine of two tools' texts from which they count as answering the same requests."""

OVERLAP = 0.5
"""Share of the smaller server's tools that must have a partner in the other one."""

_BLOCK = 2048


@dataclass
class Likeness:
    """Two servers, ``one`` < ``other`` by id; ``tools`` are each other's nearest: ``(tool, tool, cosine)``."""

    one: str
    other: str
    overlap: float
    tools: list[tuple[str, str, float]] = field(default_factory=list)

    @property
    def cosine(self) -> float:
        """Mean over the tools."""
        return sum(c for _, _, c in self.tools) / len(self.tools)

    def to_dict(self) -> JsonObject:
        """As one JSON object."""
        return {
            "servers": [self.one, self.other],
            "overlap": round(self.overlap, 3),
            "cosine": round(self.cosine, 3),
            "tools": [[a, b, round(c, 3)] for a, b, c in self.tools],
        }


def likenesses(
    tools: Sequence[Tool], vectors: Floats, *, cosine: float = COSINE, overlap: float = OVERLAP
) -> list[Likeness]:
    """Pairs of servers that are alike, most alike first.

    A tool's partner in another server is the one of its tools that is nearest, if it is near enough and the tool is in
    turn the nearest to it: one tool that resembles everything makes no servers alike.

    :param vectors: of the tools' texts, float32 [n, dim], L2-normalised, in the order of ``tools``.
    """
    sizes: defaultdict[str, int] = defaultdict(int)
    for tool in tools:
        sizes[tool.server_id] += 1
    nearest: dict[tuple[int, str], tuple[float, int]] = {}
    for start in range(0, len(tools), _BLOCK):
        near = vectors[start : start + _BLOCK] @ vectors.T
        for i, j in zip(*np.nonzero(near >= cosine), strict=True):
            row, other = start + int(i), int(j)
            if tools[row].server_id != tools[other].server_id:
                key, value = (row, tools[other].server_id), (float(near[i, j]), -other)
                nearest[key] = max(nearest.get(key, value), value)
    pairs: defaultdict[tuple[str, str], list[tuple[str, str, float]]] = defaultdict(list)
    for (row, server_id), (likeness, negated) in nearest.items():
        own, partner = tools[row], tools[-negated]
        if own.server_id < server_id and -nearest.get((-negated, own.server_id), (0.0, 1))[1] == row:
            pairs[own.server_id, server_id].append((own.tool_id, partner.tool_id, likeness))
    found = [
        Likeness(a, b, len(common) / min(sizes[a], sizes[b]), sorted(common, key=lambda c: (-c[2], c[0])))
        for (a, b), common in pairs.items()
    ]
    alike = [pair for pair in found if pair.overlap >= overlap]
    return sorted(alike, key=lambda p: (-p.overlap * p.cosine, p.one, p.other))


def groups(pairs: Sequence[Likeness]) -> list[list[str]]:
    """Servers that are all alike, two by two (complete linkage, best pairs first), the largest groups first.

    With less, a chain of resemblances would put servers together that share nothing.
    """
    linked = {(p.one, p.other) for p in pairs}
    group_of: dict[str, set[str]] = {}
    for pair in pairs:
        one, other = group_of.setdefault(pair.one, {pair.one}), group_of.setdefault(pair.other, {pair.other})
        if one is not other and all((min(a, b), max(a, b)) in linked for a, b in product(one, other)):
            one |= other
            for server_id in other:
                group_of[server_id] = one
    whole = {id(members): members for members in group_of.values() if len(members) > 1}
    return sorted((sorted(members) for members in whole.values()), key=lambda g: (-len(g), g))


def read_groups(path: Path, known: Mapping[str, object]) -> dict[str, list[str]]:
    """Groups that somebody made: one JSON object, ``{"name": ["server id", ...]}``.

    Raises NotFound, BadInput for a file that is none, a group of less than two servers, or a server that is not known.
    """
    import json

    form = 'It holds one JSON object: {"name": ["server id", "server id"]}.'
    try:
        found = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise NotFound(f"There is no file {path}.", "Check the path.") from None
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read: {error}.", form) from None
    if not isinstance(found, dict) or not found:
        raise BadInput(f"{path} holds no groups.", form)
    for name, ids in found.items():
        if not isinstance(ids, list) or len(set(map(str, ids))) < 2:
            raise BadInput(f"The group {name!r} in {path} is not a list of two servers or more.", form)
        unknown = [i for i in ids if i not in known]
        if unknown:
            raise BadInput(f"The group {name!r} in {path} names a server that is not here: {unknown[0]!r}.")
    return {str(name): list(dict.fromkeys(ids)) for name, ids in found.items()}
