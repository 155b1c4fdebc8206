"""Tell whether a product's name that is an ordinary word, too, means the product where a request has it.

"open linear issues" means Linear, "run a linear regression" does not. A logistic regression decides by how the name is
written and what stands beside it, by what the product's tools in the pack say of the request's other words, and by the
request's vector: what is asked of a program is worded unlike what is said of a thing. ``finetune/fit_meanings.py`` fits
it; the numbers belong to an encoder and are kept in its folder.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from toolscout.index import fusion
from toolscout.index.acts import VERBS
from toolscout.index.encoder_params import read_encoder_params
from toolscout.index.pack.words import PackedScores
from toolscout.index.words import STOP, fold, hashes

if TYPE_CHECKING:
    from toolscout.index.encoder import Encoder
    from toolscout.index.pack.storage import PackStorage
    from toolscout.index.products import Mention
    from toolscout.index.search import Ask

_NO_ROWS = np.zeros(0, dtype=np.int64)

PARAMS_FILE = "meanings.json"

_LAST = re.compile(r"([^\W_][\w+#]*)(\W*)$")
_FIRST = re.compile(r"(\W*)([^\W_][\w+#]*)")
_SENTENCE = re.compile(r"[.!?:]\s|\n")
_CLAUSE = re.compile(r"[,;]\s|[.!?:](?:\s|$)|\n")
_HEAD = re.compile(r"[.:]\s")

_NEAR = 80
_RARE = 6.0
"""How rare the other words count where there are none."""

_AT_WORDS = "in on from to via into using at through inside within with dans en sur auf bei im em na nel"
_OBJECT_WORDS = (
    "a an the my our me your it us them him her his their this that these those up off out into down away over"
)
_GLUE_WORDS = "than then not all does between about by per after before until"
_AT = frozenset(_AT_WORDS.split())
_MINE = frozenset(("my", "our", "your"))
_OBJECTS = frozenset(_OBJECT_WORDS.split())
"""What stands behind a verb: "sketch a cat", "make it short", "zoom into the picture"."""
_GLUE = STOP | _AT | _OBJECTS | frozenset(_GLUE_WORDS.split())


@dataclass(frozen=True)
class MeaningParams:
    """Fitted numbers. ``direction`` weighs the request's vector; from the probability ``at`` on it is the product."""

    weights: dict[str, float] = field(default_factory=dict)
    direction: list[float] = field(default_factory=list)
    bias: float = 0.0
    at: float = 0.5
    fitted: str = "not fitted"


def meaning_params(encoder: Encoder) -> MeaningParams | None:
    """Read the parameters of the encoder's folder, or None. Raises StorageError if they cannot be read."""
    return read_encoder_params(encoder, PARAMS_FILE, MeaningParams)


def features(text: str, place: tuple[int, int], known: Known) -> dict[str, float]:
    """How a name is written at a place of a text, what stands beside it, and what the product's tools say to it."""
    start, end = place
    before, name, after = text[:start], text[start:end], text[end:]
    last, first = _LAST.search(before[-_NEAR:]), _FIRST.match(after[:_NEAR])
    opens = last is None or bool(_SENTENCE.search(last[2]))
    left = "" if opens or last is None or _CLAUSE.search(last[2]) else fold(last[1])
    right = "" if first is None or _CLAUSE.search(first[1]) else fold(first[2])
    noun = bool(right) and right not in _GLUE
    capital = name[0].isupper() and not text.isupper()
    capital_within, plain_beside_capital = capital and not opens, not capital and text[:1].isupper()
    opening = _FIRST.match(before)
    told = {
        "capital": capital_within,
        "lower_in_cased": plain_beside_capital,
        "at_end": left in _AT and not right,
        "to": left == "to",
        "my_noun": left in _MINE and noun,
        "the_noun": left == "the" and noun,
        "first_verb": opening is not None and fold(opening[2]) in VERBS,
        "other_end": bool(left) and left not in _AT | _MINE | _OBJECTS and not right,
        "object": right in _OBJECTS,
        "of": right == "of",
        "their_noun": noun and known.has(right),
        "head": opens and bool(_HEAD.match(after)),
    }
    length = known.features["words"]
    return {
        **{key: float(value) for key, value in told.items()},
        "capital_long": capital_within * length,
        "lower_in_cased_long": plain_beside_capital * length,
        **known.features,
    }


class Known:
    """What the pack knows of a product, as to the words of a request.

    covered     share (by idf) of the other words that its tools have
    share       the same, each word counted by the share of all tools having it that are of the product
    name_tools  how many of its tools have the name among their words
    words       how many other words there are; ``rare``: their idf, which is low for what is asked of programs
    tool        cosine of the request with its nearest tool
    """

    def __init__(self, ask: Ask, storage: PackStorage, product: int) -> None:
        words = ask.words
        assert isinstance(words, PackedScores)
        first = storage.arrays["server.first"]
        servers = storage.products.servers(product).tolist()
        rows = np.concatenate([_NO_ROWS, *(np.arange(first[s], first[s + 1]) for s in servers)])
        theirs, all_of_it = words.holders(rows)
        rest = ~np.isin(words.terms, np.array(hashes(storage.products.name(product)), dtype=np.uint64))
        idf = words.idf * rest
        total, count = max(float(idf.sum()), 1e-6), int(rest.sum())
        self._held = set(words.terms[theirs > 0].tolist())
        self.features = {
            "covered": float(idf[theirs > 0].sum()) / total,
            "share": float((idf * theirs / np.maximum(all_of_it, 1)).sum()) / total,
            "name_tools": math.log1p(int(theirs[~rest].sum())),
            "words": math.log1p(count),
            "rare": total / count if count else _RARE,
            "tool": float(storage.tools.scores(ask.tool_vector, rows).max(initial=0.0)),
        }

    def has(self, word: str) -> bool:
        """Whether a tool of the product has this word of the request."""
        return not self._held.isdisjoint(hashes(word))


def means_product(ask: Ask, storage: PackStorage, mention: Mention, params: MeaningParams) -> bool:
    """Whether a name that may be an ordinary word means the product anywhere in a request."""
    known = Known(ask, storage, mention.product)
    bias = params.bias + float(ask.tool_vector @ np.array(params.direction, dtype=np.float32))
    chances = (fusion.logistic(bias, params.weights, features(ask.text, at, known)) for at in mention.places)
    return max(chances, default=0.0) >= params.at
