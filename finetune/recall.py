"""Recall of the encoder alone: every request against every tool's full text, no words, no fusion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput
from toolscout.records import Call

Floats = npt.NDArray[np.float32]

RANKS = (1, 5, 10, 50)


def dense_recall(
    calls: Sequence[Call], queries: Floats, tool_ids: Sequence[str], documents: Floats
) -> dict[str, dict[str, float]]:
    """``{"strict": {"recall@1": ...}, "equivalent": ..., "equivalent SPLIT": ...}`` over the rows with gold.

    Strict counts the share of gold tools found, equivalent whether any tool in ``relevant`` is. Vectors are float32
    [n, dim], L2-normalised. Raises BadInput when no row has gold.
    """
    row_of = {tool_id: row for row, tool_id in enumerate(tool_ids)}
    depth = min(max(RANKS), len(tool_ids))
    scores: dict[str, list[list[float]]] = {"strict": [], "equivalent": []}
    for call, query in zip(calls, queries, strict=True):
        if not call.gold:
            continue
        near = documents @ query
        top = np.argpartition(-near, depth - 1)[:depth]
        top = top[np.lexsort((top, -near[top]))]
        gold = {row_of.get(g.tool_id, -1) for g in call.gold}
        relevant = {row_of.get(t, -1) for t in call.relevant_ids()}
        firsts = [set(top[:k].tolist()) for k in RANKS]
        scores["strict"].append([len(gold & first) / len(gold) for first in firsts])
        found = [float(bool(relevant & first)) for first in firsts]
        scores["equivalent"].append(found)
        if call.split:
            scores.setdefault(f"equivalent {call.split}", []).append(found)
    if not scores["strict"]:
        raise BadInput("No row of these calls has a gold tool.", "Give calls with gold to measure recall.")
    return {
        name: {f"recall@{k}": round(float(v), 4) for k, v in zip(RANKS, np.mean(rows, axis=0), strict=True)}
        for name, rows in scores.items()
    }
