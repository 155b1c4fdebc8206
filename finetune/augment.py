"""Requests as they are also typed: key words alone, no capitals, a slip of the fingers."""

from __future__ import annotations

import random

from toolscout.errors import BadInput
from toolscout.index.words import STOP, fold, split_identifier

KINDS = ("keywords", "lower", "typo")

_SHORT = 3


def augment(query: str, kind: str, draw: random.Random) -> str:
    """The request in another form; as it is where the form says nothing (too few words, no spaces between them)."""
    if kind == "lower":
        return fold(query).rstrip(" .?!") or query
    if kind == "keywords":
        kept = [w for w in query.split() if fold(w.strip(".,;:?!()\"'")) not in STOP]
        return " ".join(kept) if len(kept) >= _SHORT else query
    if kind == "typo":
        return _slip(query, draw)
    raise BadInput(f"There is no query augmentation {kind!r}.", f"They are {', '.join(KINDS)}.")


def _slip(query: str, draw: random.Random) -> str:
    """Two neighbouring letters of one plain word change places."""
    words = query.split(" ")
    plain = [
        i for i, w in enumerate(words) if len(w) > _SHORT and w.isascii() and w.isalpha() and split_identifier(w) == [w]
    ]
    if not plain:
        return query
    i = draw.choice(plain)
    word = words[i]
    at = draw.randrange(1, len(word) - 1)
    words[i] = word[:at] + word[at + 1] + word[at] + word[at + 2 :]
    return " ".join(words)
