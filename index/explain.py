"""Why a tool was found, in a few short phrases."""

from __future__ import annotations

from collections.abc import Collection

from toolscout.index.fusion import SearchParams
from toolscout.index.words import fold, hashes, split_identifier, surface_words

MAX_WORDS = 5


def explain(
    text: str, signals: dict[str, float], held: Collection[int], server: str, params: SearchParams
) -> list[str]:
    """Reasons, strongest first: ``name``, ``like an example``, ``words: ...``, ``server: ...``, ``meaning``.

    ``signals`` are the candidate's (see ``fusion``), ``held`` the hashes of the words that the tool has.
    """
    reasons = []
    if signals.get("name"):
        reasons.append("name")
    if signals.get("exemplar", 0.0) > 0.1:
        reasons.append("like an example")
    matched = list(dict.fromkeys(w.casefold() for w in surface_words(text) if set(hashes(w)) & set(held)))
    if matched:
        reasons.append("words: " + ", ".join(matched[:MAX_WORDS]))
    named = {fold(p) for p in split_identifier(server)} & {fold(w) for w in surface_words(text)}
    if any(len(n) > 2 for n in named):
        reasons.append(f"server: {server}")
    if signals["tool"] * params.signals["tool"] >= 0.3 or not reasons:
        reasons.append("meaning")
    return reasons
