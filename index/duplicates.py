"""One entity, one entry: servers whose sets of tool descriptions are identical are kept once, with all their sources.

MCP-Flow's rule (arXiv 2510.24284), as `toolscout.records.entity_key` states it. Marketplaces list the same server under
many names; unmerged, its copies fill an answer with one tool five times over.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from typing import Any

from toolscout.index.catalogue import Catalogue
from toolscout.records import Server, ServerState


@dataclass
class Duplicates:
    """One entity: the server that is kept and those that were merged into it."""

    kept: str
    removed: list[str]


@dataclass
class DuplicateReport:
    """What deduplication did (or would do)."""

    groups: list[Duplicates] = field(default_factory=list)
    servers_removed: int = 0
    tools_removed: int = 0
    exemplars_moved: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The report as one JSON object."""
        return asdict(self)


def deduplicate(catalogue: Catalogue, *, protect: Collection[str] = (), dry_run: bool = False) -> DuplicateReport:
    """Merge duplicate servers: the kept one takes over the others' sources, missing facts and exemplars.

    Kept is the one nearest to use (by state), then the better known one (popularity, number of sources), then the first
    by id.
    Servers that are ready or in ``protect`` (configured by the user: two accounts at one service are no duplicates) are
    never removed, and quarantined ones take no part: a copy must not displace what it imitates, nor inherit its
    sources. Each group is one transaction that checks again what it merges.

    Args:
        protect: server ids that stay whatever they equal.
        dry_run: report only.
    """
    groups: dict[str, list[Server]] = {}
    for server, key in catalogue.entities():
        if server.state is not ServerState.QUARANTINED:
            # Most groups have one member, and only a few fields of it are needed.
            groups.setdefault(key, []).append(server.model_copy(update={"description": "", "instructions": None}))
    report = DuplicateReport()
    for group in groups.values():
        group.sort(key=lambda server: _rank(server, protect))
        kept = group[0]
        gone = [s.server_id for s in group[1:] if s.state is not ServerState.READY and s.server_id not in protect]
        if not gone:
            continue
        merged = catalogue.unite(kept.server_id, gone, dry_run=dry_run)
        if merged.removed:
            report.groups.append(Duplicates(kept.server_id, merged.removed))
            report.servers_removed += len(merged.removed)
            report.tools_removed += merged.tools
            report.exemplars_moved += merged.exemplars
    return report


_NEAREST_TO_USE = (ServerState.READY, ServerState.NEEDS_KEY, ServerState.NEEDS_INSTALL, ServerState.UNAVAILABLE)


def _rank(server: Server, protect: Collection[str]) -> tuple[bool, int, float, int, str]:
    return (
        server.server_id not in protect,
        _NEAREST_TO_USE.index(server.state),
        -(server.popularity or 0.0),
        -len(server.sources),
        server.server_id,
    )
