"""What a crawl found, on its way out: one entity kept once, files in the contract, and into the catalogue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscout.crawler import coordinates
from toolscout.crawler.standing import first_of
from toolscout.crawler.state import State
from toolscout.crawler.tidy import tidied
from toolscout.index.guard.entry import examined
from toolscout.jsonl import write_records
from toolscout.records import JsonObject, Server, ServerState, Source, Tool

if TYPE_CHECKING:
    from toolscout.index.catalogue import Catalogue

Facts = Mapping[str, JsonObject]
"""What enrichment knows of servers, by id: fields of their records (see `toolscout.crawler.enrich.enricher`)."""

Incumbent = Callable[[str], bool]


@dataclass
class Export:
    """What went out. ``merged`` counts servers that are copies of another one."""

    servers: int = 0
    tools: int = 0
    merged: int = 0
    unavailable: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The numbers as one JSON object."""
        return asdict(self)


def entities(state: State, incumbent: Incumbent = lambda _: False) -> Iterator[tuple[Server, list[str]]]:
    """One server for each entity, in order of ids, with the ids of its copies.

    MCP-Flow's rule (arXiv 2510.24284): servers with identical sets of tool descriptions are one. Those whose
    descriptions are all empty have no entity key: nothing says that they are alike. Which one stands for its copies:
    `toolscout.crawler.standing`.

    Args:
        incumbent: whether a server id is in use elsewhere already; such a one stays in its place.
    """
    groups: dict[str, list[Server]] = {}
    for server, entity in state.servers():
        groups.setdefault(entity or f"alone:{server.server_id}", []).append(server)
    dates = {
        row["server_id"]: row["published"]
        for row in state.rows("SELECT server_id, published FROM entry WHERE published IS NOT NULL")
    }
    kept = []
    for group in groups.values():
        first, *copies = first_of([tidied(server) for server in group], incumbent, dates)
        sources: dict[tuple[str, str], Source] = {}
        for server in group:
            for source in server.sources:
                sources.setdefault((source.marketplace, source.id), source)
        kept.append((first.model_copy(update={"sources": list(sources.values())}), [c.server_id for c in copies]))
    yield from sorted(kept, key=lambda pair: pair[0].server_id)


def pairs(state: State) -> Iterator[tuple[Server, list[Tool]]]:
    """One server for each entity with its tools, as enrichment reads them."""
    for server, _ in entities(state):
        yield server, state.tools(server.server_id)


def _enriched(
    state: State, facts: Facts | None, incumbent: Incumbent = lambda _: False
) -> Iterator[tuple[Server, list[str]]]:
    known = facts or {}
    for server, copies in entities(state, incumbent):
        # Enrichment may have had another one stand for the copies: what it says of their tools holds for all.
        found = next((known[i] for i in (server.server_id, *copies) if i in known), {})
        yield server.model_copy(update=found), copies


def export_files(state: State, folder: Path, facts: Facts | None = None) -> Export:
    """Write ``servers.jsonl.gz`` and ``tools.jsonl.gz`` (DESIGN's contract) into a folder, each atomically, and
    ``packages.txt``: what another needs to make the crawl again.

    Equal states give equal bytes. The tools are scanned: suspicious ones are marked, and no training shows them.
    Raises StorageError.
    """
    done = Export()
    kept = list(_enriched(state, facts))
    done.merged = sum(len(copies) for _, copies in kept)
    done.unavailable = sum(server.state is ServerState.UNAVAILABLE for server, _ in kept)
    done.servers = write_records(folder / "servers.jsonl.gz", (server for server, _ in kept))
    examined_tools = (t for server, _ in kept for t in examined(server, state.tools(server.server_id)))
    done.tools = write_records(folder / "tools.jsonl.gz", examined_tools)
    coordinates.write(state, folder / "packages.txt")
    return done


def into_catalogue(state: State, catalogue: Catalogue, *, trust: bool = True, facts: Facts | None = None) -> Export:
    """Bring the catalogue up to date with the crawl: exactly the tools that each server lists now.

    A tool whose fingerprint changed goes under review there, as for every source. What the user runs keeps its state;
    of copies, one that the catalogue has already is kept, and others stored earlier give way to it.
    """
    done = Export()
    for server, copies in _enriched(state, facts, lambda server_id: catalogue.get_server(server_id) is not None):
        tools: list[Tool] = state.tools(server.server_id)
        known = catalogue.get_server(server.server_id)
        if known is not None and known.state in (ServerState.READY, ServerState.QUARANTINED):
            server = server.model_copy(update={"state": known.state})
        catalogue.put_server(server, tools, trust=trust)
        for copy in copies:
            stale = catalogue.get_server(copy)
            if stale is not None and stale.state not in (ServerState.READY, ServerState.QUARANTINED):
                catalogue.unite(server.server_id, [copy])
        done.servers += 1
        done.tools += len(tools)
        done.merged += len(copies)
        done.unavailable += server.state is ServerState.UNAVAILABLE
    return done
