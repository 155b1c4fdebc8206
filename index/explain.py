"""Why a tool was found, in a few short phrases."""

from __future__ import annotations

from collections.abc import Collection

from toolscout.index.words import hashes, split_identifier, surface_words

MAX_WORDS = 5
MAX_TEXT = 2000
CLEAR_MEANING = 0.35
"""Cosine from which the meaning counts as a reason of its own."""


class Explainer:
    """Explains the candidates of one request."""

    def __init__(self, text: str) -> None:
        surface = dict.fromkeys(w.casefold() for w in surface_words(text[:MAX_TEXT]))
        self.words = [(word, set(hashes(word))) for word in surface]

    def reasons(self, signals: dict[str, float], held: Collection[int], server: str) -> list[str]:
        """Reasons, the clearest first: ``name``, ``like an example``, ``words: ...``, ``server: ...``, ``meaning``.

        ``signals`` are the candidate's (see ``fusion``), ``held`` the hashes of the words that the tool has.
        """
        reasons = []
        if signals.get("name"):
            reasons.append("name")
        if signals.get("exemplar", 0.0) > 0.1:
            reasons.append("like an example")
        matched = [word for word, keys in self.words if not keys.isdisjoint(held)]
        if matched:
            reasons.append("words: " + ", ".join(matched[:MAX_WORDS]))
        named = {part.casefold() for part in split_identifier(server)}
        if any(len(word) > 2 and word in named for word, _ in self.words):
            reasons.append(f"server: {server}")
        if signals["tool"] >= CLEAR_MEANING or not reasons:
            reasons.append("meaning")
        return reasons
