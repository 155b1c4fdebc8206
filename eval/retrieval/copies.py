"""Copies of a tool: the same tool published again, by another marketplace or under a prefixed name.

Judgements of ``relevant`` end at the pool that was judged. Where pools are joined, the added ones hold further copies
of judged tools, and a copy that comes first would count as a miss. `with_copies` adds them, by a rule that looks at the
records alone and never at a ranking.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from toolscout.records import Call, Tool


def are_copies(one: Tool, other: Tool) -> bool:
    """The rule: the same description (case and spacing aside, not empty), the same argument names, and the same name or
    one that ends with the other, since collections put the server's name in front (``redis_get_index`` copies
    ``get_index``; ``browser_fill`` does not copy ``puppeteer_fill``)."""
    return _key(one) is not None and _key(one) == _key(other) and _same_name(one.name, other.name)


def with_copies(calls: Sequence[Call], tools: Mapping[str, Tool]) -> tuple[list[Call], int]:
    """The rows with every copy of a relevant tool added to ``relevant``, and how many rows got any. Gold stays as it
    is.

    O(tools + relevant tools times their copies).
    """
    by_key: dict[tuple[str, tuple[str, ...]], list[Tool]] = defaultdict(list)
    for tool in tools.values():
        key = _key(tool)
        if key is not None:
            by_key[key].append(tool)
    extended, rows = 0, []
    for call in calls:
        known = call.relevant_ids()
        more = _copies([tools[t] for t in sorted(known) if t in tools], by_key) - known
        if more:
            extended += 1
            call = call.model_copy(update={"relevant": [*sorted(known), *sorted(more)]})
        rows.append(call)
    return rows, extended


def _copies(relevant: Iterable[Tool], by_key: Mapping[tuple[str, tuple[str, ...]], Sequence[Tool]]) -> set[str]:
    found = set()
    for tool in relevant:
        key = _key(tool)
        if key is not None:
            found |= {other.tool_id for other in by_key[key] if _same_name(tool.name, other.name)}
    return found


def _key(tool: Tool) -> tuple[str, tuple[str, ...]] | None:
    """Folded description and argument names; None for a tool that says nothing about itself."""
    description = " ".join(tool.description.casefold().split())
    properties = tool.input_schema.get("properties")
    names = sorted(map(str, properties)) if isinstance(properties, dict) else []
    return (description, tuple(names)) if description else None


_SHORTEST_TAIL = 4


def _same_name(one: str, other: str) -> bool:
    """Names equal in letters and digits, or one the whole end of the other after a break in it."""
    short, long = sorted((_parts(one), _parts(other)), key=len)
    if "".join(short) == "".join(long):
        return True
    tail = "".join(short)
    return len(tail) >= _SHORTEST_TAIL and any("".join(long[i:]) == tail for i in range(len(long)))


def _parts(name: str) -> list[str]:
    from toolscout.index.words import split_identifier

    return [part.casefold() for part in split_identifier(name)]
