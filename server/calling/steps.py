"""A plan without a model that can plan: the request is taken apart, and the encoder finds the tool of each part.

Models tuned on single calls write the first call of several and stop. Most people name the steps one after the
other, in sentences and clauses, and a clause is enough for the encoder; the whole request says which of two like
tools is meant.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from toolscout.records import Tool

_WHOLE = 0.3
_LEAST = 0.3
"""How much the whole request counts beside a part, and the sum from which a part is a step: chosen on the first 40 of
the 80 requests of ``pairs/plans_dev`` (node F1 .78 there; .55 for the best three tools of the whole request)."""
_SHORTEST = 6
"""Bytes of a part that can be a step."""
_MOST_PARTS = 30
"""Each costs an encoding, some 2 ms."""

_KEPT = (
    r'"[^"\n]*"', r"“[^”\n]*”", r"„[^“”\n]*[“”]", r"«[^»\n]*»", r"「[^」\n]*」", r"`[^`]*`", r"(?<!\w)'[^'\n]*'(?!\w)",
    r"\([^()\n]*\)", r"\[[^\[\]\n]*\]", r"\{[^{}\n]*\}",
)  # fmt: skip
"""What stands in quotes or brackets is one value, whatever is in it."""
_LINKS = (
    "and then|and also|and|then|after that|as well as|plus|und dann|und|dann|et puis|et|puis|y luego|y|luego|e poi|e"
)
_BREAKS = re.compile(
    rf"(?P<kept>{'|'.join(_KEPT)})|(?<=[.!?])\s+|[。！？；，、]\s*|[,;:]\s+(?:(?:{_LINKS})\s+)?|\s+(?:{_LINKS})\s+|\n+",
    re.IGNORECASE,
)

Cosines = Callable[[str, Sequence[Tool]], tuple[list[float], float]]
"""Of a text with each tool; what else it says is not used here (`Chooser.cosines`)."""


@dataclass(frozen=True)
class Step:
    """Parts of a request, and the index of their tool among the candidates."""

    tool: int
    text: str
    clauses: tuple[str, ...] = ()
    """The same one by one, with those that follow and are for no tool by themselves."""
    said: str = ""
    """The stretches of the request that these come from, as they stand there."""


def parts(task: str) -> list[str]:
    """The clauses of a request, in its order; a request of one clause is one part."""
    return [part for part, _ in _parts_at(task)]


def _parts_at(task: str) -> list[tuple[str, int]]:
    found, start = [], 0
    for match in _BREAKS.finditer(task):
        if match["kept"] is None:
            found.append((task[start : match.start()], start))
            start = match.end()
    found.append((task[start:], start))
    long = [(part.strip(), at) for part, at in found if len(part.strip().encode()) >= _SHORTEST]
    return long or [(task, 0)]


def offered(steps: int) -> int:
    """How many tools a search offers for a plan of up to so many calls.

    Over 11,363 tools .66 of the tools that the 80 requests of ``pairs/plans_dev`` need are among the first twelve and
    .48 among the first five; searching each part of a request as well brought nothing beyond the same number of tools.
    """
    return 5 if steps <= 1 else 12


def steps_of(task: str, tools: Sequence[Tool], cosines: Cosines, most: int) -> list[Step]:
    """One step for each tool that a part of the request is for, in the request's order, at most ``most``.

    A tool is one step: two parts for one tool are mostly one call, said at length. Where they are several is seen when
    the first one is written (`toolscout.server.calling.repeats`).
    """
    whole, _ = cosines(task, tools)
    own: dict[int, list[str]] = {}
    clauses: dict[int, list[str]] = {}
    runs: list[tuple[int, int]] = []
    for part, at in _parts_at(task)[:_MOST_PARTS]:
        near, _ = cosines(part, tools)
        scores = [score + _WHOLE * all_ for score, all_ in zip(near, whole, strict=True)]
        best = max(range(len(tools)), key=scores.__getitem__)
        if best in own or (scores[best] >= _LEAST and len(own) < most):
            own.setdefault(best, []).append(part)
            runs.append((best, at))
        if runs:
            clauses.setdefault(runs[-1][0], []).append(part)
    said: dict[int, list[str]] = {}
    ends = [start for _, start in runs[1:]] + [len(task)]
    for (tool, start), end in zip(runs, ends, strict=False):  # without a run there is one end, of nothing
        said.setdefault(tool, []).append(task[start:end])
    return [Step(tool, " ".join(own[tool]), tuple(clauses[tool]), "".join(said[tool])) for tool in own]
