"""Contamination: what training shows of what testing asks.

Equal and nearly equal requests, the same calls in other words, the same tools together in one plan, unseen tools under
other names or among the candidates of a training row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from toolscout.records import Call, JsonObject, Tool, canonical_json
from toolscout.synth.filters.duplicates import NearCopies, same_text
from toolscout.synth.split import definition_marks

_SHOWN = 20


def contamination(
    train: Sequence[Call],
    test: Sequence[Call],
    tools: Mapping[str, Tool],
    near_from: float = 0.8,
    places: Mapping[str, str] | None = None,
) -> tuple[JsonObject, set[int]]:
    """(report, places in ``train`` of the rows that ask what a test row asks, or nearly so). Ids need not be unique:
    those of two runs of synthesis may be equal.

    A test row counts as *seen under another name* when its split calls its tool unseen and training shows a tool of the
    same definition. Of a row with several gold calls only the unseen tools count, by ``places`` (tool id -> place); all
    of them where none is known to be unseen. Ids in the report are pairs (test row, training row); ``rows`` counts the
    test rows (of ``unseen_tool_listed``, the training rows).
    """
    exact: dict[str, list[int]] = {}
    for place, call in enumerate(train):
        exact.setdefault(same_text(call.query), []).append(place)
    near = NearCopies()
    for place, call in enumerate(test):
        near.add(str(place), call.query)
    same = [(place, other) for place, call in enumerate(test) for other in exact.get(same_text(call.query), ())]
    equal = set(same)
    close: list[tuple[int, int, float]] = []
    for other, call in enumerate(train):
        alike = ((int(name), similarity) for name, similarity in near.near(call.query, near_from))
        close += [(place, other, round(similarity, 3)) for place, similarity in alike if (place, other) not in equal]
    shown = _definitions({g.tool_id for call in train for g in call.gold}, tools)
    renamed = []
    for call in test:
        if (call.split or "").startswith("unseen"):
            marks = _definitions(_unseen(call, places or {}), tools)
            if found := sorted(marks.keys() & shown.keys()):
                renamed.append((call.id, shown[found[0]]))
    report = {
        "train": len(train),
        "test": len(test),
        "test_of_several_steps": sum(len(call.gold) > 1 for call in test),
        "near_from": near_from,
        "same_request": _counted([(test[a].id, train[b].id) for a, b in same], len({a for a, _ in same})),
        "near_request": _counted([(test[a].id, train[b].id, s) for a, b, s in close], len({a for a, _, _ in close})),
        "same_calls": _counted(_common(train, test, _calls)),
        "same_tools_together": _counted(_common(train, test, _combination)),
        "unseen_tool_shown": _counted(renamed),
        "unseen_tool_listed": _counted(listed := _listed(train, places or {}), len({name for name, _ in listed})),
    }
    return report, {other for _, other in same} | {other for _, other, _ in close}


def _unseen(call: Call, places: Mapping[str, str]) -> list[str]:
    tools = [g.tool_id for g in call.gold]
    return [t for t in tools if places.get(t, "").startswith("unseen")] or tools


def _calls(call: Call) -> str | None:
    """The gold calls with their arguments, whatever the words; None where they say too little to be a coincidence."""
    if not any(g.arguments for g in call.gold):
        return None
    return canonical_json(sorted(canonical_json([g.tool_id, g.arguments]) for g in call.gold))


def _combination(call: Call) -> str | None:
    """The tools of a row with several gold calls."""
    return canonical_json(sorted(g.tool_id for g in call.gold)) if len(call.gold) > 1 else None


def _common(train: Sequence[Call], test: Sequence[Call], key: Callable[[Call], str | None]) -> list[tuple[object, ...]]:
    """(test row, first training row) with the same key."""
    first: dict[str, str] = {}
    for call in train:
        if (found := key(call)) is not None:
            first.setdefault(found, call.id)
    asked = ((call.id, key(call)) for call in test)
    return [(name, first[found]) for name, found in asked if found is not None and found in first]


def _listed(train: Sequence[Call], places: Mapping[str, str]) -> list[tuple[object, ...]]:
    """(training row, unseen tool) where a row names one as equivalent or candidate: a trainer must pass it by."""
    rows = ((call.id, t) for call in train for t in [*(call.relevant or ()), *(call.candidates or ())])
    return list(dict.fromkeys((name, t) for name, t in rows if places.get(t, "").startswith("unseen")))


def _definitions(tool_ids: Iterable[str], tools: Mapping[str, Tool]) -> dict[str, str]:
    """Definition -> one tool that has it."""
    return {mark: t for t in sorted(set(tool_ids)) if t in tools for mark in definition_marks(tools[t])}


def _counted(pairs: Sequence[tuple[object, ...]], rows: int | None = None) -> JsonObject:
    """``rows`` of which the pairs are; each pair's own by default."""
    return {
        "rows": len(pairs) if rows is None else rows,
        "pairs": len(pairs),
        "examples": [list(p) for p in pairs[:_SHOWN]],
    }
