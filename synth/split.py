"""Splits by hash, so that a row never moves when the data grows (ratios of MCP-Flow, arXiv 2510.24284).

Of thirteen servers one is unseen, of twelve tools of the seen servers one, of eleven requests for the seen tools one is
for testing. A server's and a tool's place hang on its id alone (which names its marketplace: each is split by itself,
and the ratios hold within each), a request's on its ``family`` (a made request, its generations and translations) or,
without one, on its words. A split that a file of tools states has the last word.

What is defined like an unseen tool would teach it under another name: its requests are held out of training. That is
the one move there is: out of training, when the twin arrives. No row ever moves between training and a test, or out of
a test.
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

_STRICTEST = (UNSEEN_SERVER, UNSEEN_TOOL, SEEN)


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
    """The place of every tool (``seen``, ``unseen_tool``, ``unseen_server``) and server (``seen``, ``unseen_server``),
    and ``twins``: tools held out of training with the unseen tool that each is defined like."""

    ratios: Ratios
    places: dict[str, str]
    twins: dict[str, str] = field(default_factory=dict)
    servers: dict[str, str] = field(default_factory=dict)

    def place(self, tool_id: str) -> str:
        """A tool's place. One that no file held is drawn by its id, and so stays where it is when its file arrives."""
        known = self.places.get(tool_id)
        if known is not None:
            return known
        server_id = self._server_of(tool_id)
        return _tool_place(tool_id, self.servers.get(server_id) or _server_place(server_id, self.ratios), self.ratios)

    def deciding(self, call: Call) -> str | None:
        """The gold tool that decides a call's place: the first of those with the strictest one. None without gold."""
        tools = [g.tool_id for g in call.gold]
        return min(tools, key=lambda t: _STRICTEST.index(self.place(t)), default=None)

    def of(self, call: Call) -> str:
        """A call's split: of several gold tools the strictest place decides (unseen server, unseen tool); a request for
        seen tools alone, or without gold, is drawn by its family or words, and held out where it would teach a twin."""
        decides = self.deciding(call)
        if decides is not None and (place := self.place(decides)) != SEEN:
            return place
        family = (call.model_extra or {}).get("family") or getattr(call, "family", "")
        if draw(self.ratios.salt, "sample", str(family) or same_text(call.query)) < 1 / (self.ratios.samples + 1):
            return SEEN
        return HELD_OUT if any(t in self.twins for t in call.relevant_ids()) else TRAIN

    def _server_of(self, tool_id: str) -> str:
        """Both parts of a tool id may hold slashes: its longest known head, or all but what follows the last one."""
        parts = tool_id.split("/")
        heads = ("/".join(parts[:n]) for n in range(len(parts) - 1, 0, -1))
        return next((head for head in heads if head in self.servers), tool_id.rpartition("/")[0])


def place_tools(tools: Iterable[Tool], stated: Mapping[str, str] | None = None, ratios: Ratios | None = None) -> Splits:
    """Where each tool stands. ``stated``: places that are given, by tool id; they say of a server, too, whether it is
    seen, so that what it adds later goes with it."""
    ratios, stated = ratios or Ratios(), stated or {}
    found = list(tools)
    said: dict[str, set[str]] = defaultdict(set)
    for tool in found:
        if tool.tool_id in stated:
            said[tool.server_id].add(stated[tool.tool_id])
    servers = {t.server_id: _stated_server(said[t.server_id]) or _server_place(t.server_id, ratios) for t in found}
    places = {t.tool_id: stated.get(t.tool_id) or _tool_place(t.tool_id, servers[t.server_id], ratios) for t in found}
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
    return Splits(ratios, places, twins, servers)


def _stated_server(said: set[str]) -> str | None:
    if not said:
        return None
    return UNSEEN_SERVER if UNSEEN_SERVER in said else SEEN


def _server_place(server_id: str, ratios: Ratios) -> str:
    return UNSEEN_SERVER if draw(ratios.salt, "server", server_id) < 1 / (ratios.servers + 1) else SEEN


def _tool_place(tool_id: str, server_place: str, ratios: Ratios) -> str:
    if server_place == UNSEEN_SERVER:
        return UNSEEN_SERVER
    return UNSEEN_TOOL if draw(ratios.salt, "tool", tool_id) < 1 / (ratios.tools + 1) else SEEN


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
    """Counts: servers, tools and calls by split, by marketplace too (a call counts where the tool that decides its
    place is from), rows with several gold calls, and what was held out."""
    of_server: dict[str, str] = {}
    for tool_id, place in splits.places.items():
        server = tools[tool_id].server_id
        unseen = UNSEEN_SERVER if place == UNSEEN_SERVER else SEEN
        of_server[server] = UNSEEN_SERVER if of_server.get(server) == UNSEEN_SERVER else unseen
    by_market: dict[str, dict[str, Counter[str]]] = defaultdict(
        lambda: {"servers": Counter(), "tools": Counter(), "calls": Counter()}
    )
    for server, place in of_server.items():
        by_market[_marketplace(server, servers)]["servers"][place] += 1
    for tool_id, place in splits.places.items():
        by_market[_marketplace(tools[tool_id].server_id, servers)]["tools"][place] += 1
    several, mixed = Counter[str](), 0
    unknown: set[str] = set()
    taught = {g.tool_id for call in rows.get(TRAIN, ()) for g in call.gold}
    for place, calls in rows.items():
        for call in calls:
            decides = splits.deciding(call)
            if decides is not None:
                home = tools[decides].server_id if decides in tools else decides
                by_market[_marketplace(home, servers)]["calls"][place] += 1
            unknown |= {g.tool_id for g in call.gold if g.tool_id not in tools}
            if len(call.gold) > 1:
                several[place] += 1
                mixed += len({splits.place(g.tool_id) for g in call.gold}) > 1
    return {
        "servers": dict(sorted(Counter(of_server.values()).items())),
        "tools": dict(sorted(Counter(splits.places.values()).items())),
        "calls": {place: len(rows[place]) for place in SPLITS},
        "by_marketplace": {
            name: {what: dict(sorted(count.items())) for what, count in counts.items()}
            for name, counts in sorted(by_market.items())
        },
        "several_steps": {place: several[place] for place in SPLITS},
        "several_steps_over_places": mixed,
        "seen_without_training": sum(any(g.tool_id not in taught for g in call.gold) for call in rows.get(SEEN, ())),
        "tools_held_out_as_twins": len(splits.twins),
        "tools_in_no_file": len(unknown),
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
