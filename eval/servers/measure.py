"""Functionally similar servers compared (MCP-Flow, arXiv 2510.24284, B.1). docs/EVALUATION.md defines each number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolscout.eval.rows import Say, silent
from toolscout.eval.servers.facts import Evidence, facts, healths
from toolscout.eval.servers.groups import COSINE, OVERLAP, Likeness, groups, likenesses
from toolscout.eval.setup.measure import THREADS, Remembering
from toolscout.eval.setup.source import Installed
from toolscout.eval.tokens import TokenCounter
from toolscout.index.document import server_name, tool_text
from toolscout.index.encoder import make_encoder
from toolscout.index.health import Health
from toolscout.records import JsonObject, Tool
from toolscout.settings import Settings

HIGHER = ("right", "success_rate", "health", "quality", "tools", "parameters", "popularity")
LOWER = ("seconds", "tokens")
"""What servers of a group are compared by: the higher the better, the lower the better."""


def measure_servers(
    installed: Installed,
    evidence: Mapping[str, Evidence],
    counter: TokenCounter,
    *,
    settings: Settings,
    given: Mapping[str, Sequence[str]] | None = None,
    cosine: float = COSINE,
    overlap: float = OVERLAP,
    say: Say = silent,
) -> tuple[JsonObject, dict[str, Health], float | None]:
    """(the result, the health of every server that was called, their mean).

    :param given: groups by name; without them they are found by the encoder.
    """
    tools = installed.searchable
    by_server: dict[str, list[Tool]] = {}
    for tool in tools:
        by_server.setdefault(tool.server_id, []).append(tool)
    pairs: list[Likeness] = []
    if given is None:
        say(f"comparing {len(tools)} tools of {len(by_server)} servers")
        encoder = Remembering(make_encoder(settings, threads=THREADS), installed.vectors)
        texts = [tool_text(tool, installed.servers.get(tool.server_id)) for tool in tools]
        pairs = likenesses(tools, encoder.encode(texts), cosine=cosine, overlap=overlap)
        named = {_common_name(group, pairs): group for group in groups(pairs)}
    else:
        named = {name: list(group) for name, group in given.items()}
    health, mean_health = healths(evidence)
    made = [
        _group(name, group, installed, by_server, evidence, health, counter, pairs) for name, group in named.items()
    ]
    grouped = {server_id for group in named.values() for server_id in group}
    result = {
        "n": {"servers": len(by_server), "tools": len(tools), "groups": len(made), "grouped": len(grouped)},
        "tokenizer": counter.name,
        "groups_from": "file" if given is not None else "encoder",
        "threshold": {"cosine": cosine, "overlap": overlap} if given is None else None,
        "calls": sum(e.made for e in evidence.values()),
        "health_mean": mean_health,
        "groups": made,
        "notes": installed.notes,
    }
    return result, health, mean_health


def _group(
    name: str,
    group: Sequence[str],
    installed: Installed,
    by_server: Mapping[str, list[Tool]],
    evidence: Mapping[str, Evidence],
    health: Mapping[str, Health],
    counter: TokenCounter,
    pairs: Sequence[Likeness],
) -> JsonObject:
    rows = []
    for server_id in group:
        server = installed.servers.get(server_id)
        known = facts(server, by_server.get(server_id, []), evidence.get(server_id), health.get(server_id), counter)
        rows.append({"server_id": server_id, "name": server_name(server, server_id), **known})
    rows.sort(key=_order)
    within = [p.to_dict() for p in pairs if p.one in group and p.other in group]
    return {"name": name, "servers": rows, "best": best(rows), "pairs": within}


def best(rows: Sequence[JsonObject]) -> JsonObject:
    """For each thing that servers are compared by, the ids of those that are best at it; none where fewer than two are
    known, or all are alike."""
    found: JsonObject = {}
    for key in (*HIGHER, *LOWER):
        known = [(value_of(row, key), str(row["server_id"])) for row in rows]
        values = [value for value, _ in known if value is not None]
        top = (min if key in LOWER else max)(values, default=None)
        tell = len(values) > 1 and len(set(values)) > 1
        found[key] = [server_id for value, server_id in known if tell and value == top]
    return found


def value_of(row: JsonObject, key: str) -> float | None:
    """A server's value of what servers are compared by."""
    value: float | None = row["quality"]["score"] if key == "quality" else row[key]
    return value


def _order(row: JsonObject) -> tuple[float, float, float, str]:
    """Healthiest first; those never called after those that were, by their texts and by how well they are known."""
    health, described = row["health"], row["quality"]["score"]
    return (
        -health if health is not None else 1.0, -(described or 0.0), -(row["popularity"] or 0.0), str(row["server_id"])
    )  # fmt: skip


def _common_name(group: Sequence[str], pairs: Sequence[Likeness]) -> str:
    """A group by what it does: the tool that most of its pairs share, and the group's first server to tell it apart."""
    counts: dict[str, int] = {}
    for pair in pairs:
        if pair.one in group and pair.other in group:
            for one, other, _ in pair.tools:
                for tool_id in (one, other):
                    name = tool_id.rsplit("/", 1)[-1]
                    counts[name] = counts.get(name, 0) + 1
    common = min(counts, key=lambda name: (-counts[name], name))
    return f"{common} ({group[0]} and {len(group) - 1} more)"
