"""How sure a model was: from the probabilities of its tokens to those of its choice and its values."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from toolscout.server.backends.base import Token

_NAME = re.compile(r'"name"\s*:\s*"')


def choice_probabilities(tokens: Sequence[Token], options: Sequence[str]) -> dict[str, float]:
    """P(option) for each option, from greedy decoding of one of them with the alternatives seen at each token.

    At each token only the continuations that some option allows count; they are scaled to sum to 1. The mass of a
    path not taken is shared by the options it leads to. An option that was never among the alternatives gets 0.
    Empty where there are no probabilities, or where what was written is none of the options.
    """
    tokens, lead = _from_name(tokens)
    ends = {option: option + '"' for option in options}
    scores = dict.fromkeys(options, 0.0)
    written, path = "", 1.0
    for token in tokens:
        text = token.text[len(lead) :]
        if not text:
            lead = ""
            continue
        seen = {token.text: token.logprob, **dict(token.top)}
        mass: dict[str, float] = {}
        for other, logprob in seen.items():
            if other.startswith(lead) and len(other) > len(lead):
                mass[other[len(lead) :]] = math.exp(min(logprob, 0.0))
        lead = ""
        leads = {t: [o for o, end in ends.items() if _agree(end, written + t)] for t in mass}
        total = sum(p for t, p in mass.items() if leads[t])
        if not leads.get(text) or total <= 0:
            return {}
        for other, probability in mass.items():
            if other != text:
                for option in leads[other]:
                    scores[option] += path * probability / total / len(leads[other])
        path *= mass[text] / total
        written += text
        whole = [o for o, end in ends.items() if written.startswith(end)]
        if whole:
            scores[whole[0]] += path
            return scores
    return {}


def mean_probability(tokens: Sequence[Token]) -> float:
    """Geometric mean of the tokens' probabilities, 0 to 1: comparable between long and short arguments."""
    logs = [max(t.logprob, -20.0) for t in tokens if t.text]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def start_probability(tokens: Sequence[Token], text: str) -> float:
    """The model's own probability of the token with which ``text``, a JSON string, begins; 1 where it is not known."""
    at = "".join(t.text for t in tokens).find(text)
    if at < 0 or len(text) < 3:
        return 1.0
    end = 0
    for token in tokens:
        end += len(token.text)
        if end > at + 1:  # the first one behind the quote, or with it
            return math.exp(min(token.logprob, 0.0))
    return 1.0


def _agree(end: str, text: str) -> bool:
    return end.startswith(text) or text.startswith(end)


def _from_name(tokens: Sequence[Token]) -> tuple[Sequence[Token], str]:
    """The tokens from the value of ``"name"`` on, and what of the first one still belongs to what stands before."""
    text = ""
    for index, token in enumerate(tokens):
        match = _NAME.search(text + token.text)
        if match:
            return tokens[index:], (text + token.text)[len(text) : match.end()]
        text += token.text
    return tokens, ""
