"""Splits by hash, so that a row never moves when the data grows (ratios of MCP-Flow, arXiv 2510.24284).

Of thirteen servers one is unseen, of twelve tools of the seen servers one, of eleven requests for the seen tools one is
for testing. A server's and a tool's place hang on its id alone (which names its marketplace: the ratios hold within
each), a request's on its words. A file of tools that states a tool's split has the last word.

What is defined like an unseen tool would teach it under another name: its requests are held out of training.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from toolscout.records import Call, JsonObject, Server, Tool, entity_key
from toolscout.synth.drafts import draw
from toolscout.synth.filters.duplicates import same_text

TRAIN, SEEN, UNSEEN_TOOL, UNSEEN_SERVER, HELD_OUT = "train", "seen", "unseen_tool", "unseen_server", "held_out"
SPLITS = (TRAIN, SEEN, UNSEEN_TOOL, UNSEEN_SERVER, HELD_OUT)
"""``train``; three for testing: seen tools, unseen tools of seen servers, unseen servers; and what is in neither."""


@dataclass(frozen=True)
class Ratios:
    """So many for training to one for testing."""

    servers: float = 12
    tools: float = 11
    samples: float = 10
    salt: str = ""
    """Another salt gives another drawing."""


@dataclass
class Splits:
    """The place of every tool (``seen``, ``unseen_tool``, ``unseen_server``), and ``twins``: tools held out of training
    with the unseen tool that each is defined like."""

    ratios: Ratios
    places: dict[str, str]
    twins: dict[str, str] = field(default_factory=dict)

    def of(self, call: Call) -> str:
        """A call's split, that of its first tool in the order unseen server, unseen tool, held out; without gold by its
        words alone."""
        tools = [g.tool_id for g in call.gold]
        places = {self.places.get(t, SEEN) for t in tools}
        for place in (UNSEEN_SERVER, UNSEEN_TOOL):
            if place in places:
                return place
        if any(t in self.twins for t in [*tools, *(call.relevant or ())]):
            return HELD_OUT
        tested = draw(self.ratios.salt, "sample", same_text(call.query)) < 1 / (self.ratios.samples + 1)
        return SEEN if tested else TRAIN


def place_tools(tools: Iterable[Tool], stated: Mapping[str, str] | None = None, ratios: Ratios | None = None) -> Splits:
    """Where each tool stands. ``stated``: places that are given, by tool id."""
    ratios, stated = ratios or Ratios(), stated or {}
    found = list(tools)
    places = {t.tool_id: stated.get(t.tool_id) or _place(t, ratios) for t in found}
    hidden: dict[str, str] = {}
    for tool in found:
        if places[tool.tool_id] != SEEN:
            for mark in definition_marks(tool):
                hidden.setdefault(mark, tool.tool_id)
    twins = {}
    for tool in found:
        if places[tool.tool_id] == SEEN:
            twin = next((hidden[m] for m in definition_marks(tool) if m in hidden), None)
            if twin is not None:
                twins[tool.tool_id] = twin
    return Splits(ratios, places, twins)


def _place(tool: Tool, ratios: Ratios) -> str:
    if draw(ratios.salt, "server", tool.server_id) < 1 / (ratios.servers + 1):
        return UNSEEN_SERVER
    if draw(ratios.salt, "tool", tool.tool_id) < 1 / (ratios.tools + 1):
        return UNSEEN_TOOL
    return SEEN


def definition_marks(tool: Tool) -> tuple[str, ...]:
    """What makes two tools the same: the whole definition, or name and description (beside an empty one, a name says
    too little)."""
    said = same_text(tool.description)
    return (tool.computed_fingerprint(), f"{same_text(tool.name)}\n{said}") if said else (tool.computed_fingerprint(),)


def split_calls(calls: Iterable[Call], splits: Splits) -> dict[str, list[Call]]:
    """The calls by split, each with its ``split`` set, in their order."""
    rows: dict[str, list[Call]] = {name: [] for name in SPLITS}
    for call in calls:
        place = splits.of(call)
        rows[place].append(call.model_copy(update={"split": place}))
    return rows


def split_report(
    splits: Splits, rows: Mapping[str, Sequence[Call]], tools: Mapping[str, Tool], servers: Mapping[str, Server]
) -> JsonObject:
    """Counts: servers, tools and calls by split, by marketplace too, and what was held out."""
    of_server: dict[str, str] = {}
    for tool_id, place in splits.places.items():
        server = tools[tool_id].server_id
        unseen = UNSEEN_SERVER if place == UNSEEN_SERVER else SEEN
        of_server[server] = UNSEEN_SERVER if of_server.get(server) == UNSEEN_SERVER else unseen
    market = {s: _marketplace(s, servers) for s in of_server}
    by_market: dict[str, JsonObject] = {
        name: {"servers": Counter(), "tools": Counter(), "calls": Counter()} for name in sorted(set(market.values()))
    }
    for server, place in of_server.items():
        by_market[market[server]]["servers"][place] += 1
    for tool_id, place in splits.places.items():
        by_market[market[tools[tool_id].server_id]]["tools"][place] += 1
    for place, calls in rows.items():
        for call in calls:
            if call.gold and call.gold[0].tool_id in tools:
                by_market[market[tools[call.gold[0].tool_id].server_id]]["calls"][place] += 1
    return {
        "servers": dict(sorted(Counter(of_server.values()).items())),
        "tools": dict(sorted(Counter(splits.places.values()).items())),
        "calls": {place: len(rows[place]) for place in SPLITS},
        "by_marketplace": {
            name: {what: dict(sorted(count.items())) for what, count in counts.items()}
            for name, counts in by_market.items()
        },
        "tools_held_out_as_twins": len(splits.twins),
    }


def twin_servers(splits: Splits, tools: Mapping[str, Tool]) -> list[tuple[str, str]]:
    """(unseen server, seen server) with identical sets of tool descriptions: one entity under two names."""
    members: dict[str, list[Tool]] = defaultdict(list)
    for tool in tools.values():
        members[tool.server_id].append(tool)
    seen: dict[str, str] = {}
    unseen: list[tuple[str, str]] = []
    for server, own in members.items():
        key = entity_key(own)
        if key is None:
            continue
        if any(splits.places.get(t.tool_id) == UNSEEN_SERVER for t in own):
            unseen.append((key, server))
        else:
            seen.setdefault(key, server)
    return [(server, seen[key]) for key, server in unseen if key in seen]


def _marketplace(server_id: str, servers: Mapping[str, Server]) -> str:
    server = servers.get(server_id)
    if server is not None and server.sources:
        return server.sources[0].marketplace
    head, slash, _ = server_id.partition("/")
    return head if slash else "none"
