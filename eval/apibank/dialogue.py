"""A dialogue with calls, as rows: which rows belong together, and what is asked at a turn.

A row's ``query`` is the dialogue up to its call, a speaker a line::

    User: Can you add a meeting for tomorrow at nine?
    AI: Which user are you?
    User: I am foo, my password is bar.
    API: GetUserToken{"username": "foo", "password": "bar"} -> {"token": "z9"}
    AI: You are logged in.

Its id is ``DIALOGUE_NUMBER``: rows that differ in the number alone are the calls of one dialogue, in that order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from toolscout.eval.rows import grouped
from toolscout.records import Call

_TURN = re.compile(r"^(.+)_(\d+)$", re.DOTALL)
_LINE = re.compile(r"^(User|AI|API):[ \t]*", re.MULTILINE)

FORMS = ("user", "turn", "dialogue")
"""What of the dialogue is searched with: the user's last words; all of the user's words since the call before; all."""


def dialogues(rows: Sequence[Call]) -> list[list[Call]]:
    """Rows by dialogue, each in order. A row whose id ends in no number is a dialogue of its own."""

    def number(row: Call) -> int:
        match = _TURN.match(row.id)
        return int(match[2]) if match else 0

    return [sorted(group, key=number) for group in grouped(rows, dialogue_of).values()]


def dialogue_of(row: Call) -> str:
    """The dialogue that a row's id names."""
    match = _TURN.match(row.id)
    return match[1] if match else row.id


def asked(query: str, form: str) -> str:
    """What is searched with. A query that is no dialogue is asked as it is."""
    said = utterances(query)
    if form == "dialogue" or not any(speaker == "User" for speaker, _ in said):
        return query
    user = [text for speaker, text in said if speaker == "User"]
    if form == "user":
        return user[-1]
    since: list[str] = []
    for speaker, text in said:
        if speaker == "API":
            since = []
        elif speaker == "User":
            since.append(text)
    # Two calls that serve one request: nothing was said between them, so the same is asked again.
    return "\n".join(since) or user[-1]


def utterances(query: str) -> list[tuple[str, str]]:
    """Speaker and words, in order; a line without a speaker goes on with the one before."""
    marks = list(_LINE.finditer(query))
    ends = [*(mark.start() for mark in marks[1:]), len(query)] if marks else []
    return [(mark[1], query[mark.end() : end].strip()) for mark, end in zip(marks, ends, strict=True)]
