"""Requests with their tools as training pairs, in the very texts that the index encodes.

A document's text is always made by ``index.document``: a view is the same function over a record with a part left out,
so that training and serving cannot drift.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput
from toolscout.index.document import lead, query_text, server_text, tool_text
from toolscout.index.words import fold, has_words
from toolscout.jsonl import parse_record, read_objects, read_records
from toolscout.records import Call, Review, Server, ServerState, Tool

VIEWS = ("full", "no_description", "no_parameters", "no_server", "server")
"""``full`` and ``server`` are what the index encodes; the others leave a part of ``full`` out."""

_WITHOUT: dict[str, dict[str, Any]] = {
    "full": {},
    "no_description": {"description": "", "title": None},
    "no_parameters": {"input_schema": {}},
    "no_server": {"server_id": ""},
}

NOTHING = "(nothing)"
"""Stands in for a tool where no tool serves the request."""

NOTHING_TEXT = "Nothing. No tool can serve this request."
"""The document that such requests are trained towards: how near a request is to it tells the search to abstain."""

_SELF_QUERY = 200
_SELF_QUERY_MIN = 20


@dataclass(frozen=True)
class Pool:
    """Tools and servers by id. ``held_out`` tools are for measuring: no training row shows their texts."""

    tools: dict[str, Tool]
    servers: dict[str, Server] = field(default_factory=dict)
    held_out: frozenset[str] = frozenset()

    def shown(self) -> list[str]:
        """Ids of the tools that training may show."""
        return [t.tool_id for t in self.tools.values() if self.may_show(t.tool_id)]

    def may_show(self, tool_id: str) -> bool:
        """Whether training may show this tool: approved, its server not quarantined, and not held out."""
        if tool_id == NOTHING:
            return True
        tool = self.tools.get(tool_id)
        if tool is None or tool.review is not Review.APPROVED or tool_id in self.held_out:
            return False
        server = self.servers.get(tool.server_id)
        return server is None or server.state is not ServerState.QUARANTINED

    def without(self, tool_ids: Collection[str]) -> Pool:
        """The same pool with these tools held out as well."""
        return Pool(self.tools, self.servers, self.held_out | frozenset(tool_ids))

    def text(self, tool_id: str, view: str = "full") -> str:
        """One view of a tool as text, by ``index.document``; of ``NOTHING``, its text."""
        if tool_id == NOTHING:
            return NOTHING_TEXT
        tool = self.tools[tool_id]
        server = self.servers.get(tool.server_id)
        if view == "server":
            return server_text(server or Server(server_id=tool.server_id))
        if view not in _WITHOUT:
            raise BadInput(f"There is no document view {view!r}.", f"Views are {', '.join(VIEWS)}.")
        changes = _WITHOUT[view]
        return tool_text(tool.model_copy(update=changes) if changes else tool, None if view == "no_server" else server)


@dataclass(frozen=True)
class Pair:
    """One request and one tool that serves it; ``relevant`` are all that do, so none of them is a negative."""

    id: str
    query: str
    gold: str
    relevant: frozenset[str]
    view: str = ""
    """A view of its own (for requests made of the description); else one is drawn."""


def read_pool(tools: Sequence[Path], servers: Sequence[Path] = ()) -> Pool:
    """Read the files; of two records with one id the first counts. Tools whose ``split`` says unseen are held out."""
    found: dict[str, Tool] = {}
    held = set()
    for path in tools:
        for number, row in read_objects(path):
            tool = parse_record(row, Tool, f"{path}:{number}")
            if tool.tool_id not in found:
                found[tool.tool_id] = tool
                if str(row.get("split") or "").startswith("unseen"):
                    held.add(tool.tool_id)
    if not found:
        raise BadInput("The tools files hold no tools.", "Give at least one file of tools with --tools.")
    known: dict[str, Server] = {}
    for path in servers:
        for server in read_records(path, Server):
            known.setdefault(server.server_id, server)
    return Pool(found, known, frozenset(held))


def read_calls(paths: Sequence[Path]) -> list[Call]:
    """All rows of the files, in order."""
    return [call for path in paths for call in read_records(path, Call)]


def read_kept_apart(paths: Sequence[Path]) -> list[Call]:
    """Rows that runs of one training kept apart for fitting: what several runs kept counts once."""
    return list({call.id: call for call in read_calls(paths)}.values())


def make_pairs(calls: Iterable[Call], pool: Pool, *, max_gold: int = 1) -> tuple[list[Pair], Counter[str]]:
    """One pair for each gold tool; beside them, how many were left out and why.

    Left out are requests without gold or words, those with more than ``max_gold`` different tools (each fits only a
    part of them), and tools that the pool lacks or that may not be shown.
    """
    pairs: list[Pair] = []
    left: Counter[str] = Counter()
    for call in calls:
        golds = list(dict.fromkeys(g.tool_id for g in call.gold))
        if not golds or not has_words(call.query):
            left["without gold or words"] += 1
        elif len(golds) > max_gold:
            left["with several tools"] += 1
        else:
            for i, gold in enumerate(golds):
                if gold not in pool.tools:
                    left["tool not in the pool"] += 1
                elif not pool.may_show(gold):
                    left["tool held out or not approved"] += 1
                else:
                    name = call.id if len(golds) == 1 else f"{call.id}#{i}"
                    pairs.append(Pair(name, query_text(call.query), gold, frozenset(call.relevant_ids())))
    return pairs, left


def nothing_pairs(calls: Iterable[Call]) -> list[Pair]:
    """A pair of each request that no tool serves (``gold`` empty) with ``NOTHING``."""
    return [
        Pair(call.id, query_text(call.query), NOTHING, frozenset([NOTHING]), "full")
        for call in calls
        if not call.gold and has_words(call.query)
    ]


def split_off(calls: Sequence[Call], share: float, seed: int) -> tuple[list[Call], list[Call]]:
    """(kept, split off): about ``share`` of the calls go, by a hash of their tools, so that all requests for a tool
    stay together and nothing moves when the files grow. Calls without gold go by a hash of the request, three times
    as many: what they teach an encoder is soon learnt, and the search's abstention is fitted to those split off."""
    kept: list[Call] = []
    gone: list[Call] = []
    for call in calls:
        key = min(g.tool_id for g in call.gold) if call.gold else same_text(call.query)
        mark = int.from_bytes(hashlib.sha256(f"{seed} {key}".encode()).digest()[:4], "big") / 2**32
        (gone if mark < (share if call.gold else 3 * share) else kept).append(call)
    return kept, gone


def description_pairs(pool: Pool, skip: Collection[str] = ()) -> list[Pair]:
    """Pairs for tools that no request names: a description's first sentence asks for the tool without description."""
    pairs = []
    for tool_id in pool.shown():
        text = lead(pool.tools[tool_id].description).strip().split("\n")[0].split(". ")[0][:_SELF_QUERY]
        if tool_id not in skip and len(text) >= _SELF_QUERY_MIN and has_words(text):
            pairs.append(Pair(f"self:{tool_id}", query_text(text), tool_id, frozenset([tool_id]), "no_description"))
    return pairs


def definition(tool: Tool) -> str:
    """A tool's fingerprint computed from what the record holds: equal ones cannot be told apart."""
    return tool.computed_fingerprint()


def same_text(text: str) -> str:
    """A text without case, accents, punctuation and spacing: equal ones are the same request or description."""
    return " ".join("".join(c if c.isalnum() else " " for c in fold(text)).split())
