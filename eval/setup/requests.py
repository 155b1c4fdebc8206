"""Each tool's own requests: what somebody would say who wants this tool and no other.

Its name in words with the first sentence of its description (``words``), that sentence alone (``sentence``), worked
examples of the catalogue that call it and nothing else (``exemplar``), and logged requests that were followed by a call
of it (``logged``).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from toolscout.index.catalogue import CallLog
from toolscout.index.document import lead, name_words
from toolscout.index.words import has_words
from toolscout.records import Call, Tool
from toolscout.signature import summary_line

MOST_OF_A_KIND = 5
"""Exemplars and logged requests of one tool that are asked."""

FOLLOWS = timedelta(minutes=5)
"""A call this soon after a search was what the search was for."""

_LONGEST = 300


@dataclass(frozen=True)
class Request:
    """One request of one tool. ``kind`` is words, sentence, exemplar or logged; the last two are a person's own words
    and are never shown."""

    tool_id: str
    kind: str
    text: str

    @property
    def shown(self) -> str | None:
        """The text where it may be shown."""
        return self.text if self.kind in ("words", "sentence") else None


def first_sentence(tool: Tool) -> str:
    """The first sentence of a description, docstring sections aside; empty if it says nothing."""
    text = lead(tool.description).strip()
    if not has_words(text):
        return ""
    return summary_line(tool.model_copy(update={"description": text, "title": None}), _LONGEST)


def own_requests(tools: Iterable[Tool], exemplars: Iterable[Call] = (), log: Sequence[CallLog] = ()) -> list[Request]:
    """The requests of all tools, ``words`` first for each."""
    more: dict[str, list[Request]] = defaultdict(list)
    for request in (*_shown_by(exemplars), *_logged(log)):
        if sum(r.kind == request.kind for r in more[request.tool_id]) < MOST_OF_A_KIND:
            more[request.tool_id].append(request)
    found: list[Request] = []
    for tool in tools:
        name, sentence = name_words(tool.name), first_sentence(tool)
        found.append(Request(tool.tool_id, "words", f"{name}. {sentence}".rstrip(". ") if sentence else name))
        if sentence:
            found.append(Request(tool.tool_id, "sentence", sentence))
        found += more[tool.tool_id]
    return [request for request in found if has_words(request.text)]


def reached(log: Sequence[CallLog]) -> dict[str, int]:
    """How often each tool came first in a search or suggestion, or was invoked."""
    counts: dict[str, int] = defaultdict(int)
    for entry in log:
        if entry.tool_id is not None:
            counts[entry.tool_id] += 1
    return dict(counts)


def _shown_by(exemplars: Iterable[Call]) -> list[Request]:
    return [Request(call.gold[0].tool_id, "exemplar", call.query) for call in exemplars if len(call.gold) == 1]


def _logged(log: Sequence[CallLog]) -> list[Request]:
    """Requests by what was invoked after them. The answer of the search itself proves nothing, so it is not used."""
    found: dict[tuple[str, str], Request] = {}
    asked: CallLog | None = None
    for entry in reversed(log):
        if entry.kind in ("find", "suggest"):
            asked = entry
        elif entry.kind == "invoke" and entry.tool_id and entry.outcome == "ok" and asked is not None:
            if _moment(entry.at) - _moment(asked.at) <= FOLLOWS:
                found.setdefault((entry.tool_id, asked.query), Request(entry.tool_id, "logged", asked.query))
            asked = None  # a second call is of a second step, which this request does not name
    return list(found.values())[::-1]


_EPOCH = "1970-01-01T00:00:00+00:00"


def _moment(at: str) -> datetime:
    return datetime.fromisoformat(at if re.search(r"[+-]\d\d:\d\d$|Z$", at) else _EPOCH)
