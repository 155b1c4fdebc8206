"""Contamination: what training shows of what testing asks: equal and nearly equal requests, tools under other names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from toolscout.records import Call, JsonObject, Tool
from toolscout.synth.filters.duplicates import NearCopies, same_text
from toolscout.synth.split import definition_marks

_SHOWN = 20


def contamination(
    train: Sequence[Call], test: Sequence[Call], tools: Mapping[str, Tool], near_from: float = 0.8
) -> tuple[JsonObject, set[str]]:
    """(report, ids of the training rows that ask what a test row asks, or nearly so).

    A test row counts as *seen under another name* when its split calls its tool unseen and training shows a tool of the
    same definition. Ids in the report are pairs (test row, training row).
    """
    exact: dict[str, list[str]] = {}
    for call in train:
        exact.setdefault(same_text(call.query), []).append(call.id)
    near = NearCopies()
    for call in test:
        near.add(call.id, call.query)
    same = [(call.id, other) for call in test for other in exact.get(same_text(call.query), ())]
    equal = {other for _, other in same}
    close: list[tuple[str, str, float]] = []
    for call in train:
        if call.id in equal:
            continue
        name, similarity = near.nearest(call.query)
        if name and similarity >= near_from:
            close.append((name, call.id, round(similarity, 3)))
    shown = _definitions({g.tool_id for call in train for g in call.gold}, tools)
    renamed = []
    for call in test:
        if (call.split or "").startswith("unseen"):
            marks = _definitions((g.tool_id for g in call.gold), tools)
            if found := sorted(marks.keys() & shown.keys()):
                renamed.append((call.id, shown[found[0]]))
    report = {
        "train": len(train),
        "test": len(test),
        "near_from": near_from,
        "same_request": _counted(same),
        "near_request": _counted(close),
        "unseen_tool_shown": _counted(renamed),
    }
    return report, equal | {other for _, other, _ in close}


def _definitions(tool_ids: Iterable[str], tools: Mapping[str, Tool]) -> dict[str, str]:
    """Definition -> one tool that has it."""
    return {mark: t for t in sorted(set(tool_ids)) if t in tools for mark in definition_marks(tools[t])}


def _counted(pairs: Sequence[tuple[object, ...]]) -> JsonObject:
    return {
        "rows": len({pair[0] for pair in pairs}),
        "pairs": len(pairs),
        "examples": [list(p) for p in pairs[:_SHOWN]],
    }
