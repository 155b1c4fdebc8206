"""Search under a policy: tools whose every call is denied are not offered, and others take their places.

Nor are they named where nothing fits, among what came nearest.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from toolscout.index.search import MAX_LIMIT, Answer

if TYPE_CHECKING:
    from toolscout.server.policy.file import Policy

_ROUNDS = 4

Search = Callable[[frozenset[str], int | None], Awaitable[Answer]]
"""``search(without, limit)``: without these tools; with a limit that many, else as it was asked."""


@dataclass
class Denied(Answer):
    """An answer from which tools that would have fitted were left out, and nothing else fits."""


async def permitted(search: Search, policy: Policy) -> Answer:
    """The answer without tools that the policy never lets be called."""
    without: frozenset[str] = frozenset()
    answer = await search(without, None)
    for _ in range(_ROUNDS):
        if not _denied(answer, policy):
            break
        # A look at many at once: of a server that is denied as a whole all tools lie close together.
        without |= _denied(await search(without, MAX_LIMIT), policy) | _denied(answer, policy)
        answer = await search(without, None)
    if denied := _denied(answer, policy):
        answer = replace(answer, hits=[hit for hit in answer.hits if hit.tool_id not in denied])
    nearest = [hit for hit in answer.nearest if not policy.never(hit.tool)]
    if without and not answer.hits:
        return Denied([], True, answer.probability, nearest, answer.took_ms)
    return replace(answer, nearest=nearest)


def _denied(answer: Answer, policy: Policy) -> frozenset[str]:
    return frozenset(hit.tool_id for hit in answer.hits if policy.never(hit.tool))
