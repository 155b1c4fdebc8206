"""What training may not see: the requests it is measured with, and the tools that measuring calls unseen."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from toolscout.errors import BadInput
from toolscout.finetune.pairs import Pool, definition, same_text
from toolscout.records import Call, Tool

_HINT = "Take these rows out of the training files, or give the files of another split."


def unseen_gold(dev: Iterable[Call]) -> set[str]:
    """Gold tools of the dev rows whose split says that their tool or server is unseen."""
    return {g.tool_id for call in dev if (call.split or "").startswith("unseen") for g in call.gold}


def alike(pool: Pool, tool_ids: Iterable[str]) -> set[str]:
    """The tools, and all that have the definition of one of them, or its name and description: unseen by name can be
    seen by definition."""
    wanted = set(tool_ids)
    marks = {mark for t in wanted if t in pool.tools for mark in _marks(pool.tools[t])}
    return wanted | {t.tool_id for t in pool.tools.values() if not marks.isdisjoint(_marks(t))}


def _marks(tool: Tool) -> tuple[str, ...]:
    """What makes two tools the same tool."""
    said = same_text(tool.description)
    # Beside an empty description a name says too little.
    return (definition(tool), f"{same_text(tool.name)}\n{said}") if said else (definition(tool),)


def check_leakage(train: Sequence[Call], dev: Sequence[Call]) -> None:
    """Raises BadInput when a training file holds a dev request, or a gold tool of an unseen dev split.

    Requests are compared without case, accents, punctuation and spacing.
    """
    asked = {same_text(call.query) for call in dev} - {""}
    repeated = [call.id for call in train if same_text(call.query) in asked]
    if repeated:
        raise BadInput(f"{len(repeated)} training rows ask what a dev row asks, the first is {repeated[0]!r}.", _HINT)
    hidden = unseen_gold(dev)
    shown = [(call.id, t) for call in train for t in sorted(call.relevant_ids() & hidden)]
    if shown:
        row, tool = shown[0]
        raise BadInput(
            f"{len(shown)} training rows show a tool that dev calls unseen, the first is {row!r} with {tool!r}.", _HINT
        )


def hold_out(pool: Pool, dev: Iterable[Call]) -> Pool:
    """The pool with the dev rows' unseen tools held out, and every tool of the pool that is defined like one of them
    or like a tool that is held out already."""
    return pool.without(alike(pool, unseen_gold(dev) | pool.held_out))
