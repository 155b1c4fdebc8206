"""Writing statements of the catalogue, inside a write transaction that the caller holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, delete, func, insert, select, update

from toolscout.errors import BadInput
from toolscout.index.database import rows_of
from toolscout.index.guard.finding import held
from toolscout.index.reading import (
    CALL_LOG,
    EXEMPLAR,
    EXEMPLAR_TOOL,
    META,
    SERVER,
    TOOL,
    TRAJECTORY,
    VECTOR,
    entity_keys,
)
from toolscout.index.reviews import forget, pins, remember, remember_gone
from toolscout.index.rows import exemplar_row, plain, reads_as, server_row, settled, tool_row, trajectory_row
from toolscout.index.statements import chunks, inserting, now, upsert
from toolscout.jsonl import well_formed
from toolscout.records import Call, Review, Server, ServerState, Tool, Trajectory, canonical_json

if TYPE_CHECKING:
    from toolscout.index.catalogue import Change, Merged
    from toolscout.index.guard.entry import Examination


def bump(connection: Connection) -> None:
    """Count one committed change."""
    connection.execute(update(META).where(META.c.key == "revision").values(value=META.c.value + 1))


def put_server(connection: Connection, server: Server, *, merge: bool, guard: bool = True) -> bool:
    """Insert or update one server; True if anything but ``checked_at`` differs from what was stored.

    Sources are united. With ``merge`` only the fields that the record sets replace stored ones, and the state of a
    known server (what this installation learnt about it) is replaced only by a newer check, never out of quarantine.
    With ``guard`` texts that have changed are scanned.
    """
    row = server_row(server)
    found = rows_of(connection.execute(select(SERVER).where(SERVER.c.server_id == row["server_id"])))
    if not found:
        connection.execute(insert(SERVER), row)
        return True
    old = found[0]
    row["sources"] = united(old["sources"], row["sources"])
    if merge:
        given = server.model_fields_set
        checked = server.checked_at is not None and server.checked_at > (old["checked_at"] or "")
        if not checked or old["state"] == ServerState.QUARANTINED:
            given = given - {"state", "checked_at"}
        row = old | {k: v for k, v in row.items() if k == "sources" or (k in given and v is not None)}
    differs = {k for k, v in row.items() if v != old[k]}
    if differs:
        connection.execute(update(SERVER).where(SERVER.c.server_id == row["server_id"]).values(row))
    if guard and differs & {"name", "title", "description", "summary", "instructions", "install"}:
        _examine_tools_of(connection, Server.model_validate(row))
    return bool(differs - {"checked_at"})


def _examine_tools_of(connection: Connection, server: Server) -> None:
    """Scan a server's tools anew after its own texts have changed; if these are suspicious, approved ones wait."""
    from toolscout.index.guard.entry import Examination

    rows = rows_of(connection.execute(select(TOOL).where(TOOL.c.server_id == server.server_id)))
    tools = [Tool.model_validate(row) for row in rows]
    examination = Examination(tools, {server.server_id: server})
    for row, tool in zip(rows, tools, strict=True):
        found: list[dict[str, Any]] = well_formed(examination.findings(tool))
        found += [one for one in row["findings"] if one not in found and not _of_server(one)]
        values: dict[str, Any] = {"findings": found} if found != row["findings"] else {}
        if row["review"] == Review.APPROVED and held(f for f in found if _of_server(f)):
            values["review"] = str(Review.PENDING)
        if values:
            connection.execute(update(TOOL).where(TOOL.c.tool_id == row["tool_id"]).values(values))


def _of_server(finding: Mapping[str, Any]) -> bool:
    """Whether a finding is about the server's own texts, and not about one of its tools."""
    return str(finding.get("where", "")).startswith("server.")


def add_missing(connection: Connection, servers: Iterable[Server]) -> int:
    """Insert those servers that are not there; how many."""
    rows = {row["server_id"]: row for row in map(server_row, servers)}
    known: set[str] = set()
    for chunk in chunks(list(rows)):
        known.update(connection.execute(select(SERVER.c.server_id).where(SERVER.c.server_id.in_(chunk))).scalars())
    new = [row for key, row in rows.items() if key not in known]
    if new:
        connection.execute(insert(SERVER), new)
    return len(new)


def united(old: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sources of both lists, one per marketplace and id; of two, the newer wins."""
    by_place = {(s["marketplace"], s["id"]): s for s in old}
    for source in new:
        place = source["marketplace"], source["id"]
        by_place[place] = source if source.get("url") or place not in by_place else by_place[place]
    return list(by_place.values())


def put_tools(
    connection: Connection,
    tools: Iterable[Tool],
    change: Change,
    *,
    trust: bool,
    accept_changes: bool,
    guard: bool = True,
) -> bool:
    """Insert or update tools, noting in ``change`` what happened; True if anything was written.

    With ``guard`` new and changed tools are scanned: see `toolscout.index.guard`.

    Raises:
        BadInput: a tool has the id of another server's tool.
    """
    moment = now()
    written = False
    by_id: dict[str, dict[str, Any]] = {}
    given: dict[str, Tool] = {}
    for tool in tools:
        row = tool_row(tool)
        by_id.setdefault(row["tool_id"], row)  # a server that lists a name twice: callers reach the first
        given.setdefault(row["tool_id"], tool)
    _check_owners(connection, by_id.values())
    guards = _Guards(connection, given) if guard else None
    for chunk in chunks(list(by_id)):
        found = rows_of(connection.execute(select(TOOL).where(TOOL.c.tool_id.in_(chunk))))
        known = {row["tool_id"]: row for row in found}
        lost = [t for t in chunk if t not in known or known[t]["review"] == Review.CHANGED]
        pinned = pins(connection, lost)
        rows, outdated = [], []
        for tool_id in chunk:
            row, old, pin = by_id[tool_id], known.get(tool_id), pinned.get(tool_id)
            if old is not None and old["server_id"] != row["server_id"]:
                if not _own_id(row) or _own_id(old):
                    raise _foreign(tool_id, old["server_id"], row["server_id"])
                old = pin = None
            row = settled(row, old)
            if guards is not None and (old is None or any(old[k] != row[k] for k in ("fingerprint", "title"))):
                row["findings"] = guards.findings(tool_id, row["findings"])
            if old is None:
                new = _new_tool(row, moment, trust, accept_changes, pin)
                change.added.append(tool_id)
            else:
                new = _known_tool(row, old, moment, accept_changes, pin)
                if old["review"] == Review.APPROVED and not reads_as(new, old["fingerprint"], old["title"]):
                    outdated.append(old)
                differs = any(new[k] != old[k] for k in new if k not in ("review", "accepted"))
                (change.changed if differs else change.unchanged).append(tool_id)
            if new["review"] in (Review.PENDING, Review.CHANGED):
                change.waiting.append(tool_id)
            elif new["review"] == Review.APPROVED and _accepted_anew(new, old, pin):
                change.accepted.append(tool_id)
            if new != old:
                rows.append(new)
        if rows:
            remember(connection, outdated)
            upsert(connection, TOOL, rows)
            written = True
    return written


def _own_id(row: Mapping[str, Any]) -> bool:
    return bool(row["tool_id"] == f"{row['server_id']}/{row['name']}")


def _check_owners(connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Refuse tools whose ids begin with the id of another server that is known: calls and rules go by these ids."""
    for row in rows:
        parts = row["tool_id"].split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        if _own_id(row) or row["server_id"] in above:
            continue
        owner = connection.execute(select(SERVER.c.server_id).where(SERVER.c.server_id.in_(above))).scalars().first()
        if owner is not None:
            raise _foreign(row["tool_id"], owner, row["server_id"])


def _foreign(tool_id: str, owner: str, claimant: str) -> BadInput:
    return BadInput(
        f"The tool {tool_id} belongs to the server {owner}, not to {claimant}.",
        "Give it an id of its own server, SERVER/NAME.",
    )


def _new_tool(
    row: dict[str, Any], moment: str, trust: bool, accept_changes: bool, pin: dict[str, Any] | None
) -> dict[str, Any]:
    """``pin``: what is remembered of a tool of this name that the server had and left out for a while."""
    review, accepted = row["review"], None
    if review == Review.APPROVED and (not trust or held(row["findings"])):
        review = Review.PENDING
    if pin is not None and review != Review.BLOCKED:
        review, accepted = _returned(row, review, pin, accept_changes), pin["accepted"]
    if review == Review.APPROVED:
        accepted = row["fingerprint"]
    return row | {"review": str(review), "accepted": accepted, "first_seen": row["first_seen"] or moment}


def _returned(row: dict[str, Any], review: str, pin: dict[str, Any], accept_changes: bool) -> str:
    """The review of a tool that its server left out and lists again: as if it had been there all the while."""
    if pin["gone"] in (Review.BLOCKED, Review.PENDING):
        return str(pin["gone"])
    if reads_as(row, pin["accepted"], _title_of(pin, row["title"])):
        return str(Review.APPROVED)
    return review if accept_changes and review == Review.APPROVED else str(Review.CHANGED)


def _known_tool(
    row: dict[str, Any], old: dict[str, Any], moment: str, accept_changes: bool, pin: dict[str, Any] | None
) -> dict[str, Any]:
    """``pin``: what was accepted of a tool that is not that any more."""
    review, changed_at, findings = old["review"], old["changed_at"], row["findings"]
    if row["fingerprint"] != old["fingerprint"]:
        changed_at = moment
    elif row["title"] == old["title"]:  # it was not scanned again
        findings = findings or old["findings"]
    if review == Review.APPROVED and not reads_as(row, old["fingerprint"], old["title"]):
        review = Review.CHANGED
    # Listed twice, a change that the scanner objects to is no less unseen.
    acceptable = accept_changes and not held(findings)
    if review == Review.CHANGED and (acceptable or reads_as(row, old["accepted"], _title_of(pin, old["title"]))):
        # Meanwhile the server may have come to say of itself what nobody has looked at.
        review = Review.PENDING if held(f for f in findings if _of_server(f)) else Review.APPROVED
    accepted = row["fingerprint"] if review == Review.APPROVED else old["accepted"]
    seen = min(filter(None, (old["first_seen"], row["first_seen"])), default=moment)
    return row | {
        "review": str(review),
        "accepted": accepted,
        "first_seen": seen,
        "changed_at": changed_at,
        "findings": findings,
    }


def _title_of(pin: Mapping[str, Any] | None, unknown: str | None) -> str | None:
    """The title of the accepted version, or ``unknown`` where that was not kept."""
    return pin["record"]["title"] if pin is not None and pin["record"] is not None else unknown


def _accepted_anew(new: Mapping[str, Any], old: Mapping[str, Any] | None, pin: Mapping[str, Any] | None) -> bool:
    """Whether an approved tool says something else than what was approved before."""
    before = old or pin
    if before is None or before["accepted"] is None:
        return False
    title = _title_of(pin, old["title"] if old is not None else new["title"])
    return not reads_as(new, before["accepted"], title)


class _Guards:
    """The scanner over the tools of one call; loaded when the first tool needs it."""

    def __init__(self, connection: Connection, tools: dict[str, Tool]) -> None:
        self._connection, self._tools = connection, tools
        self._examination: Examination | None = None

    def _names_there(self, ids: list[str]) -> dict[str, list[str]]:
        """Names of the tools that the servers have already."""
        names: dict[str, list[str]] = {}
        for chunk in chunks(ids):
            wanted = select(TOOL.c.server_id, TOOL.c.name).where(TOOL.c.server_id.in_(chunk))
            for server_id, name in self._connection.execute(wanted):
                names.setdefault(server_id, []).append(name)
        return names

    def findings(self, tool_id: str, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """What the scanner finds of a tool, and what came with its record."""
        if self._examination is None:
            from toolscout.index.guard.entry import Examination

            ids = sorted({plain(tool.server_id) for tool in self._tools.values()})
            servers: dict[str, Server] = {}
            for chunk in chunks(ids):
                rows = rows_of(self._connection.execute(select(SERVER).where(SERVER.c.server_id.in_(chunk))))
                servers |= {row["server_id"]: Server.model_validate(row) for row in rows}
            self._examination = Examination(self._tools.values(), servers, self._names_there(ids))
        found: list[dict[str, Any]] = well_formed(self._examination.findings(self._tools[tool_id]))
        return found + [one for one in given if one not in found]


def remove_missing(connection: Connection, server_id: str, kept: Collection[str]) -> list[str]:
    """Remove a server's tools that are not in ``kept``; returns their ids."""
    there = connection.execute(select(TOOL.c.tool_id).where(TOOL.c.server_id == server_id)).scalars()
    gone = sorted(set(there) - set(kept))
    remember_gone(connection, gone)
    for chunk in chunks(gone):
        connection.execute(delete(TOOL).where(TOOL.c.tool_id.in_(chunk)))
    return gone


def remove_server(connection: Connection, server_id: str) -> int | None:
    """Remove a server with its tools; how many tools went, or None if there is no such server."""
    tools = connection.execute(select(func.count()).where(TOOL.c.server_id == server_id)).scalar_one()
    forget(connection, server_id)
    gone = connection.execute(delete(SERVER).where(SERVER.c.server_id == server_id)).rowcount
    return int(tools) if gone else None


def unite(connection: Connection, kept: str, gone: Sequence[str], merged: Merged) -> None:
    """Merge servers into one of identical tools; see `Catalogue.unite`.

    What is known of the others' tools outlives them, as if they had been left out for a while: a block stands when such
    a server comes back.
    """
    keys = entity_keys(connection, [kept, *gone])
    rows = rows_of(connection.execute(select(SERVER).where(SERVER.c.server_id.in_([kept, *gone]))))
    servers = {row["server_id"]: row for row in rows}
    merged.removed = [one for one in gone if one in servers and keys.get(one) == keys.get(kept) is not None]
    if kept not in servers or not merged.removed:
        merged.removed = []
        return
    row = dict(servers[kept])
    for other in (servers[one] for one in merged.removed):
        # A server without a source was found under its own id; that must not be lost with it.
        marketplace, _, place = other["server_id"].rpartition("/")
        found = other["sources"] or [{"marketplace": marketplace or "catalogue", "id": place, "url": None}]
        row["sources"] = united(found, row["sources"])
        for name in _FACTS:
            row[name] = row[name] or other[name]
        row["popularity"] = max(filter(None, (row["popularity"], other["popularity"])), default=row["popularity"])
    connection.execute(update(SERVER).where(SERVER.c.server_id == kept).values(row))
    merged.exemplars = _move_exemplars(connection, kept, merged.removed)
    for one in merged.removed:
        merged.tools += len(remove_missing(connection, one, ()))
        connection.execute(delete(SERVER).where(SERVER.c.server_id == one))


_FACTS = ("title", "description", "summary", "category", "version", "license", "homepage", "instructions")


def _move_exemplars(connection: Connection, kept: str, gone: Sequence[str]) -> int:
    """Point the exemplars of removed servers' tools to the kept server's tool that says and takes the same."""
    fields = select(TOOL.c.tool_id, TOOL.c.name, TOOL.c.description, TOOL.c.input_schema)
    by_name: dict[tuple[str, str], str] = {}
    by_text: dict[str, str] = {}
    for tool_id, name, text, schema in connection.execute(
        fields.where(TOOL.c.server_id == kept).order_by(TOOL.c.tool_id)
    ):
        said = canonical_json([text.strip(), schema])
        by_name[name, said] = tool_id
        by_text.setdefault(said, tool_id)
    heirs: dict[str, str] = {}
    for tool_id, name, text, schema in connection.execute(fields.where(TOOL.c.server_id.in_(gone))):
        said = canonical_json([text.strip(), schema])
        heirs[tool_id] = by_name.get((name, said)) or by_text[said]
    moved = 0
    for chunk in chunks(list(heirs)):
        of_tools = select(EXEMPLAR_TOOL.c.exemplar_id).where(EXEMPLAR_TOOL.c.tool_id.in_(chunk))
        calls = []
        for row in rows_of(connection.execute(select(EXEMPLAR).where(EXEMPLAR.c.id.in_(of_tools)))):
            row["gold"] = [gold | {"tool_id": heirs.get(gold["tool_id"], gold["tool_id"])} for gold in row["gold"]]
            for name in ("relevant", "candidates"):
                if row[name] is not None:
                    row[name] = list(dict.fromkeys(heirs.get(tool_id, tool_id) for tool_id in row[name]))
            calls.append(Call.model_validate(row))
        moved += put_exemplars(connection, calls, guard=False)
    return moved


def set_state(connection: Connection, server_id: str, state: ServerState) -> bool | None:
    """Set a server's state; whether that changed it, or None if there is no such server."""
    found = connection.execute(select(SERVER.c.state).where(SERVER.c.server_id == server_id)).scalar()
    if found is None or found == state:
        return None if found is None else False
    connection.execute(update(SERVER).where(SERVER.c.server_id == server_id).values(state=str(state)))
    return True


def put_exemplars(
    connection: Connection, calls: Iterable[Call], left_out: list[str] | None = None, *, guard: bool = True
) -> int:
    """Insert or update exemplars; how many are new or changed.

    With ``guard`` these are scanned, and the ids of suspicious ones go to ``left_out``: nobody reviews exemplars.
    """
    given = {plain(call.id): call for call in calls}
    by_id = {key: exemplar_row(call) for key, call in given.items()}
    known: dict[str, dict[str, Any]] = {}
    for chunk in chunks(list(by_id)):
        found = rows_of(connection.execute(select(EXEMPLAR).where(EXEMPLAR.c.id.in_(chunk))))
        known |= {row["id"]: row for row in found}
    rows = [row for key, row in by_id.items() if known.get(key) != row]
    if guard and rows:
        from toolscout.index.guard.scan import holds_back, scan_call

        suspicious = {row["id"] for row in rows if holds_back(scan_call(given[row["id"]]))}
        rows = [row for row in rows if row["id"] not in suspicious]
        if left_out is not None:
            left_out += sorted(suspicious)
    if not rows:
        return 0
    upsert(connection, EXEMPLAR, rows)
    ids = [row["id"] for row in rows]
    connection.execute(delete(EXEMPLAR_TOOL).where(EXEMPLAR_TOOL.c.exemplar_id.in_(ids)))
    links = [
        {"tool_id": tool_id, "exemplar_id": row["id"]}
        for row in rows
        for tool_id in dict.fromkeys(gold["tool_id"] for gold in row["gold"])
    ]
    if links:
        connection.execute(insert(EXEMPLAR_TOOL), links)
    return len(rows)


def put_trajectories(connection: Connection, trajectories: Iterable[Trajectory]) -> int:
    """Insert or update trajectories; how many were put."""
    rows = {row["id"]: row for row in map(trajectory_row, trajectories)}
    if rows:
        upsert(connection, TRAJECTORY, list(rows.values()))
    return len(rows)


def put_vectors(connection: Connection, encoder: str, vectors: Mapping[str, NDArray[Any]]) -> None:
    """Add vectors to the cache; one that is there already stays."""
    rows = []
    for key in sorted(vectors):  # one order for all processes: PostgreSQL cannot deadlock then
        vector = np.ascontiguousarray(vectors[key], dtype="<f4")
        if vector.ndim != 1 or not vector.size:
            raise BadInput(f"A vector of shape {vector.shape} cannot be cached; one dimension is expected.")
        rows.append({"encoder": encoder, "content_hash": key, "data": vector.tobytes()})
    for chunk in chunks(rows):
        connection.execute(inserting(connection, VECTOR).on_conflict_do_nothing(), chunk)


def prune_vectors(connection: Connection, encoder: str, keep: Collection[str]) -> int:
    """Remove an encoder's vectors whose hash is not in ``keep``; how many went."""
    kept = set(keep)
    there = connection.execute(select(VECTOR.c.content_hash).where(VECTOR.c.encoder == encoder)).scalars()
    gone = sorted(key for key in there if key not in kept)
    for chunk in chunks(gone):
        connection.execute(delete(VECTOR).where(VECTOR.c.encoder == encoder, VECTOR.c.content_hash.in_(chunk)))
    return len(gone)


def log_calls(connection: Connection, entries: Sequence[dict[str, Any]], keep: int) -> None:
    """Append log entries and drop all but the newest ``keep``."""
    connection.execute(insert(CALL_LOG), list(entries))
    newest = connection.execute(select(func.max(CALL_LOG.c.id))).scalar_one()
    connection.execute(delete(CALL_LOG).where(CALL_LOG.c.id <= newest - keep))
