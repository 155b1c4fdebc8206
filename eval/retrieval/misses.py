"""The rows to read: requests whose first relevant tool is not among the first five, with all that explains why."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from toolscout.eval.retrieval.copies import are_copies
from toolscout.eval.rows import split_of
from toolscout.records import Call, Tool
from toolscout.signature import summary_line

if TYPE_CHECKING:
    from toolscout.index.search import SearchIndex

SHOWN = 5
RANKED_AGAIN = 1000
"""Depth of the ranking from which the signals are read; a tool beyond it is shown without."""

ALIKE = 0.8


def misses_markdown(
    index: SearchIndex,
    ranked: Iterable[tuple[Call, Sequence[str]]],
    title: str,
    pool_of: Mapping[str, str] | None = None,
) -> tuple[str, int]:
    """A Markdown page of the missed rows, and how many there are.

    Each has the request, its gold tools and the best-ranked relevant one with their signals, and the tools offered
    instead, with theirs. *copy*: by the rule of ``eval.retrieval.copies`` the same tool as a relevant one. *near*: its
    description is at least `ALIKE` like a relevant one's (difflib's ratio over words). ``pool_of`` names the file a
    tool came from.
    """
    parts, count = [], 0
    rows = list(ranked)
    for call, ids in rows:
        relevant = call.relevant_ids()
        rank = next((place for place, tool_id in enumerate(ids, start=1) if tool_id in relevant), None)
        if not call.gold or (rank is not None and rank <= SHOWN):
            continue
        count += 1
        parts.append(_row(index, call, ids, rank, count, pool_of or {}))
    answerable = sum(bool(call.gold) for call, _ in rows)
    head = (
        f"# {title}\n\n{count} of {answerable} requests have no relevant tool among the first {SHOWN}. "
        "Text of tools and requests is data.\n"
    )
    return head + "\n".join(parts), count


def _row(
    index: SearchIndex, call: Call, ids: Sequence[str], rank: int | None, number: int, pool_of: Mapping[str, str]
) -> str:
    gold = [g.tool_id for g in call.gold]
    relevant = [tool for tool in map(index.get_tool, sorted(call.relevant_ids())) if tool is not None]
    best = ids[rank - 1] if rank else None
    shown = [*dict.fromkeys([*gold, *([best] if best else [])])]
    signals = _signals(index, call.query, [*shown, *ids[:SHOWN]])
    lines = [
        f"\n## {number}. {call.id}",
        f"- request: {_line(call.query)}",
        f"- split {split_of(call)}, language {call.lang or 'unknown'}, {len(relevant)} relevant in the pool, "
        + (f"the first at rank {rank}" if rank else f"none among the first {len(ids)}"),
    ]
    for tool_id in shown:
        tool = index.get_tool(tool_id)
        kind = "gold" if tool_id in gold else "relevant"
        lines.append(
            f"- {kind}: " + (_tool(tool, signals.get(tool_id), pool_of) if tool else f"`{tool_id}`, not in the pool")
        )
    for place, tool_id in enumerate(ids[:SHOWN], start=1):
        tool = index.get_tool(tool_id)
        if tool is not None:
            lines.append(f"  {place}. {_tool(tool, signals.get(tool_id), pool_of)}{_alike(tool, relevant)}")
    return "\n".join(lines) + "\n"


def _tool(tool: Tool, signals: str | None, pool_of: Mapping[str, str]) -> str:
    pool = f" [{pool_of[tool.tool_id]}]" if tool.tool_id in pool_of else ""
    return f"`{_line(tool.tool_id)}`{pool}: {_line(summary_line(tool))} ({signals or 'far off'})"


def _alike(tool: Tool, relevant: Sequence[Tool]) -> str:
    if any(are_copies(tool, other) for other in relevant):
        return " **copy**"
    words = tool.description.casefold().split()
    if words and any(_ratio(words, other.description.casefold().split()) >= ALIKE for other in relevant):
        return " **near**"
    return ""


def _ratio(one: Sequence[str], other: Sequence[str]) -> float:
    return difflib.SequenceMatcher(None, one[:200], other[:200], autojunk=False).ratio()


def _signals(index: SearchIndex, query: str, tool_ids: Sequence[str]) -> dict[str, str]:
    """Score and signals of tools as text, as far as the ranking reaches."""
    from toolscout.index.words import has_words

    if not has_words(query) or not tool_ids:
        return {}
    rows = dict(zip(index.storage.rows_of(tool_ids).tolist(), tool_ids, strict=True))
    ranking = index.rank(index.ask(query), None, min(RANKED_AGAIN, len(index)))
    texts = {}
    for place, row in enumerate(ranking.rows.tolist()):
        if row in rows:
            values = [f"{name} {values[place]:.2f}" for name, values in ranking.signals.items() if values[place]]
            texts[rows[row]] = f"score {ranking.scores[place]:.2f}: " + ", ".join(values)
    return texts


def _line(text: str) -> str:
    return " ".join(text.split())[:400].replace("`", "'")
