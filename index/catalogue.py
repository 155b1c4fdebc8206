"""The catalogue: servers, tools, exemplars, cached vectors and the call log, in SQLite or PostgreSQL.

Several processes may use one catalogue at once. Every writing method is one transaction. This module imports neither
SQLAlchemy nor numpy: a serving process that only reads the revision and logs calls never pays for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

from toolscout.errors import BadInput, NotFound
from toolscout.index.database import Database
from toolscout.index.rows import plain
from toolscout.records import Call, Review, Server, ServerState, Tool, Trajectory

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from sqlalchemy import Connection

R = TypeVar("R")

LOG_KEPT = 100_000
"""Entries that the call log keeps; older ones are dropped."""

_BATCH = 500

_HELD = f"""SELECT tool_id FROM tool WHERE review <> '{Review.APPROVED}' UNION
SELECT tool_id FROM tool JOIN server ON server.server_id = tool.server_id WHERE state = '{ServerState.QUARANTINED}'"""
_THERE = "SELECT 1 FROM tool WHERE tool_id = :tool_id"
_STANDINGS = "SELECT tool_id, review, accepted, title FROM tool WHERE server_id = :server_id"
_WAITING = f"SELECT DISTINCT server_id FROM tool WHERE review IN ('{Review.PENDING}', '{Review.CHANGED}')"


@dataclass
class Change:
    """What putting a server's tools did, as lists of tool ids.

    ``changed`` holds every known tool of which anything was different; those whose fingerprint changed were approved
    before and are now under review (unless the change was accepted). ``waiting`` are those, new or known, that a person
    has to approve; ``accepted`` are known ones that do not say what was approved before and were approved unseen.
    """

    added: list[str] = field(default_factory=list)
    changed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)


@dataclass
class Merged:
    """What `Catalogue.unite` did: ids of the servers removed, numbers of tools removed and of exemplars moved."""

    removed: list[str] = field(default_factory=list)
    tools: int = 0
    exemplars: int = 0


@dataclass(frozen=True)
class ToolKey:
    """A searchable tool and what its content hangs on: the fingerprint and what is stored beside it."""

    tool_id: str
    server_id: str
    version: str


@dataclass(frozen=True)
class Standing:
    """The guard's verdict on a tool, the fingerprint that was approved last, and the title that the tool has here."""

    review: Review
    accepted: str | None
    title: str | None


@dataclass(frozen=True)
class CallLog:
    """One find, suggest or invoke: never with argument values. ``ms`` is its duration, ``at`` ISO 8601 in UTC."""

    kind: str
    query: str
    tool_id: str | None
    outcome: str
    ms: float
    at: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))


class Catalogue:
    """An open catalogue; safe to use from several threads.

    Args:
        url: ``sqlite:///FILE`` (made if it is not there) or ``postgresql+psycopg://USER@HOST/NAME``.
        guard: scan what enters (`toolscout.index.guard`). Only for measuring is it left out.

    Raises:
        StorageError: the database cannot be opened, was made by a newer Toolscout, or is no catalogue. Every method
            raises it too when the database fails.
    """

    def __init__(self, url: str, *, guard: bool = True) -> None:
        self._database = Database(url)
        self._guard = guard

    def close(self) -> None:
        """Close all connections; the catalogue cannot be used afterwards."""
        self._database.close()

    def __enter__(self) -> Catalogue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def revision(self) -> int:
        """Grows with every committed change to servers, tools, reviews and exemplars; not with vectors or the log."""
        with self._database.glance() as light:
            if light is not None:
                return int(light.execute("SELECT value FROM meta WHERE key = 'revision'").fetchone()[0])
        from toolscout.index import reading

        with self._database.reading() as connection:
            return reading.revision(connection)

    @property
    def is_local(self) -> bool:
        """Whether reading `revision` is a matter of microseconds (SQLite), not of a round trip."""
        return self._database.path is not None

    # --- servers -----------------------------------------------------------------------------------------------------

    def put_server(
        self,
        server: Server,
        tools: Sequence[Tool] | None = None,
        *,
        trust: bool = True,
        accept_changes: bool = False,
    ) -> Change:
        """Store a server as given (its sources united with the known ones) and, if ``tools`` is given, exactly these.

        New tools keep the review that their record carries, except that ``trust=False`` makes an approved one pending,
        and so does a finding of the scanner; a changed tool with one is not accepted by ``accept_changes`` either.
        The review of a known tool changes only here: approved becomes changed when the fingerprint or title is another
        one, and back when the accepted version returns or ``accept_changes`` is set. Pending and blocked tools stay so;
        so does the verdict on a tool that the server leaves out for a while.
        ``first_seen`` keeps the earliest moment known, ``changed_at`` is the last change of the fingerprint.

        Raises:
            BadInput: a tool of another server, an id that is too long, or a schema that cannot be stored.
        """
        from toolscout.index import writing

        for tool in tools or ():
            if tool.server_id != server.server_id:
                raise BadInput(f"{tool.tool_id} belongs to {tool.server_id}, not to {server.server_id}.")
        change = Change()
        with self._database.writing() as connection:
            written = writing.put_server(connection, server, merge=False, guard=self._guard)
            if tools is not None:
                written |= writing.put_tools(
                    connection, tools, change, trust=trust, accept_changes=accept_changes, guard=self._guard
                )
                kept = change.added + change.changed + change.unchanged
                change.removed = writing.remove_missing(connection, plain(server.server_id), kept)
            if written or change.removed:
                writing.bump(connection)
        return change

    def merge(
        self,
        servers: Iterable[Server] = (),
        tools: Iterable[Tool] = (),
        *,
        missing_servers: Iterable[Server] = (),
        trust: bool = True,
        accept_changes: bool = False,
    ) -> tuple[int, Change]:
        """Add to what is there, in one transaction, and remove nothing: the step of an import.

        Of a known server only the fields that its record sets are replaced, its state only by a newer ``checked_at``
        and never out of quarantine. ``missing_servers`` are added where nothing is known of them. Reviews go as in
        `put_server`.

        Returns:
            How many servers are new or changed, and what happened to the tools.
        """
        from toolscout.index import writing

        change = Change()
        with self._database.writing() as connection:
            touched = sum([writing.put_server(connection, s, merge=True, guard=self._guard) for s in servers])
            touched += writing.add_missing(connection, missing_servers)
            written = writing.put_tools(
                connection, tools, change, trust=trust, accept_changes=accept_changes, guard=self._guard
            )
            if touched or written:
                writing.bump(connection)
        return touched, change

    def get_server(self, server_id: str) -> Server | None:
        """One server, or None."""
        from toolscout.index import reading

        with self._database.reading() as connection:
            return reading.get_server(connection, plain(server_id))

    def servers(self, states: Collection[ServerState] | None = None) -> Iterator[Server]:
        """All servers (of these states) ordered by id, read in pages; changes made meanwhile may be seen."""
        from toolscout.index import reading

        wanted = None if states is None else [str(s) for s in states]
        return self._paged(lambda c, after: reading.server_page(c, after, wanted), lambda s: s.server_id)

    def remove_server(self, server_id: str) -> int:
        """Remove a server and its tools; returns how many tools. Raises NotFound if there is no such server."""
        from toolscout.index import writing

        with self._database.writing() as connection:
            tools = writing.remove_server(connection, plain(server_id))
            if tools is None:
                raise NotFound(f"There is no server {server_id} in the catalog.", "See `toolscout list`.")
            writing.bump(connection)
        return tools

    def unite(self, kept: str, gone: Sequence[str]) -> Merged:
        """Merge servers of identical tools, whatever these are called, into ``kept``, in one transaction.

        It takes over their sources, the facts it lacks, and their tools' exemplars. Left alone is a server that is not
        identical (any more) and one with a tool that is not approved: a copy displaces nothing that it imitates, and a
        verdict on a tool is not lost with its server.
        """
        from toolscout.index import writing

        merged = Merged()
        with self._database.writing() as connection:
            writing.unite(connection, plain(kept), [plain(g) for g in gone], merged)
            if merged.removed:
                writing.bump(connection)
        return merged

    def set_state(self, server_id: str, state: ServerState) -> None:
        """Set a server's state. Raises NotFound if there is no such server."""
        from toolscout.index import writing

        with self._database.writing() as connection:
            changed = writing.set_state(connection, plain(server_id), ServerState(state))
            if changed is None:
                raise NotFound(f"There is no server {server_id} in the catalog.", "See `toolscout list`.")
            if changed:
                writing.bump(connection)

    # --- tools -------------------------------------------------------------------------------------------------------

    def get_tool(self, tool_id: str) -> Tool | None:
        """One tool, or None."""
        from toolscout.index import reading

        with self._database.reading() as connection:
            return reading.get_tool(connection, plain(tool_id))

    def tools(self, server_id: str | None = None, reviews: Collection[Review] | None = None) -> Iterator[Tool]:
        """All tools (of this server, of these reviews) ordered by id, read in pages; memory is one page."""
        from toolscout.index import reading

        wanted = None if reviews is None else [str(r) for r in reviews]
        of = None if server_id is None else plain(server_id)
        return self._paged(lambda c, after: reading.tool_page(c, after, of, wanted), lambda t: t.tool_id)

    def held(self) -> frozenset[str]:
        """Ids of all tools that are not approved, or whose server is quarantined."""
        return frozenset(row[0] for row in self._look(_HELD, {}))

    def waiting(self) -> frozenset[str]:
        """Ids of servers with tools that wait for a review."""
        return frozenset(row[0] for row in self._look(_WAITING, {}))

    def has_tool(self, tool_id: str) -> bool:
        """Whether there is a tool of that id."""
        return bool(self._look(_THERE, {"tool_id": plain(tool_id)}))

    def standings(self, server_id: str) -> dict[str, Standing]:
        """By tool id how the guard stands to the tools of a server; empty for a server that is not known."""
        rows = self._look(_STANDINGS, {"server_id": plain(server_id)})
        return {tool_id: Standing(Review(review), accepted, title) for tool_id, review, accepted, title in rows}

    def _look(self, statement: str, values: Mapping[str, str]) -> list[Any]:
        """Rows of a statement that both databases understand; with SQLite it never waits for a writer."""
        with self._database.glance() as light:
            if light is not None:
                return light.execute(statement, values).fetchall()
        from sqlalchemy import text

        with self._database.reading() as connection:
            return list(connection.execute(text(statement), values))

    def has_listed(self, server_id: str) -> bool:
        """Whether the server has tools here, or had some that it left out since."""
        from toolscout.index import reviews

        with self._database.reading() as connection:
            return reviews.has_listed(connection, plain(server_id))

    def tool_keys(self) -> Iterator[ToolKey]:
        """Approved tools ordered by id, without schemas: enough to see what changed since the index was built."""
        from toolscout.index import reading

        return self._paged(reading.tool_key_page, lambda key: key.tool_id)

    def set_review(self, tool_ids: Iterable[str], review: Review) -> int:
        """The same verdict on several tools: see `set_reviews`."""
        return self.set_reviews(dict.fromkeys(tool_ids, review))

    def set_reviews(self, verdicts: Mapping[str, Review], *, source: str = "person") -> int:
        """Set the guard's verdicts by tool id, as one batch that `undo_reviews` takes back; all or nothing.

        Approval accepts the tool as it is now.

        Returns:
            How many tools had another review before.

        Raises:
            NotFound: one of the ids does not exist; nothing was changed.
        """
        from toolscout.index import reviews, writing

        with self._database.writing() as connection:
            changed, missing = reviews.judge(connection, {plain(t): v for t, v in verdicts.items()}, source)
            if missing:
                raise NotFound(f"There is no tool {', '.join(missing[:3])} in the catalog.", "See `toolscout list`.")
            if changed:
                writing.bump(connection)
        return changed

    def undo_reviews(self) -> tuple[list[str], list[str]]:
        """Take back the last batch of verdicts that still stands.

        Returns:
            Ids of the tools that are as they were before, and of those left alone: changed, gone or judged again since.
        """
        from toolscout.index import reviews, writing

        with self._database.writing() as connection:
            restored, left = reviews.undo(connection)
            if restored:
                writing.bump(connection)
        return restored, left

    def accepted_versions(self, tool_ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """By tool id what was accepted of tools that are not that any more: `toolscout.index.reviews.SHOWN`."""
        from toolscout.index import reviews

        with self._database.reading() as connection:
            found = reviews.pins(connection, [plain(tool_id) for tool_id in tool_ids])
        return {tool_id: pin["record"] for tool_id, pin in found.items() if pin["record"] is not None}

    def review_log(self, limit: int = 100) -> list[dict[str, Any]]:
        """The newest verdicts, newest first: at, source, tool_id, fingerprint, before, after, undone."""
        from toolscout.index import reviews

        with self._database.reading() as connection:
            return reviews.log(connection, limit)

    # --- exemplars and trajectories ----------------------------------------------------------------------------------

    def put_exemplars(self, calls: Iterable[Call], left_out: list[str] | None = None) -> int:
        """Add or replace exemplars by id, in batches of one transaction each; returns how many are new or changed.

        Those in whose request or arguments the scanner finds what would hold a tool back are not stored; their ids are
        added to ``left_out``.
        """
        from toolscout.index import writing

        count = 0
        for batch in batched(calls, _BATCH):
            with self._database.writing() as connection:
                changed = writing.put_exemplars(connection, batch, left_out, guard=self._guard)
                if changed:
                    writing.bump(connection)
            count += changed
        return count

    def exemplars(self, tool_id: str | None = None) -> Iterator[Call]:
        """All exemplars (whose gold calls hold this tool) ordered by id, read in pages."""
        from toolscout.index import reading

        of = None if tool_id is None else plain(tool_id)
        return self._paged(lambda c, after: reading.exemplar_page(c, after, of), lambda call: call.id)

    def exemplars_version(self) -> str:
        """Hash (hex) over all exemplars: the same text, the same exemplars."""
        from toolscout.index import reading

        digest = hashlib.blake2b(digest_size=16)
        for row in self._paged(reading.exemplar_key_page, lambda row: str(row[0])):
            digest.update(repr(row).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()

    def put_trajectories(self, trajectories: Iterable[Trajectory]) -> int:
        """Add or replace trajectories by id; returns how many were put."""
        from toolscout.index import writing

        count = 0
        for batch in batched(trajectories, _BATCH):
            with self._database.writing() as connection:
                count += writing.put_trajectories(connection, batch)
        return count

    def trajectories(self) -> Iterator[Trajectory]:
        """All trajectories ordered by id, read in pages."""
        from toolscout.index import reading

        return self._paged(reading.trajectory_page, lambda trajectory: trajectory.id)

    # --- vectors -----------------------------------------------------------------------------------------------------

    def get_vectors(self, encoder: str, hashes: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """The cached embeddings among ``hashes``, each float32 of shape [dim], bit for bit as they were put."""
        from toolscout.index import reading

        with self._database.reading() as connection:
            return reading.get_vectors(connection, encoder, hashes)

    def put_vectors(self, encoder: str, vectors: Mapping[str, NDArray[Any]]) -> None:
        """Cache embeddings by content hash, each of shape [dim]; kept as float32. A known hash keeps its vector."""
        from toolscout.index import writing

        with self._database.writing() as connection:
            writing.put_vectors(connection, encoder, vectors)

    def prune_vectors(self, encoder: str, keep: Collection[str]) -> int:
        """Remove an encoder's vectors whose hash is not in ``keep``; returns how many."""
        from toolscout.index import writing

        with self._database.writing() as connection:
            return writing.prune_vectors(connection, encoder, keep)

    # --- call log ----------------------------------------------------------------------------------------------------

    def log_call(self, entry: CallLog) -> None:
        """Note one call."""
        self.log_calls([entry])

    def log_calls(self, entries: Sequence[CallLog]) -> None:
        """Note several calls in one transaction; the newest `LOG_KEPT` entries are kept."""
        if not entries:
            return
        rows = [{k: plain(v) if isinstance(v, str) else v for k, v in asdict(e).items()} for e in entries]
        with self._database.light() as light:
            if light is not None:
                columns = "at, kind, query, tool_id, outcome, ms"
                light.execute("BEGIN IMMEDIATE")
                try:
                    light.executemany(
                        f"INSERT INTO call_log ({columns}) VALUES (:at, :kind, :query, :tool_id, :outcome, :ms)", rows
                    )
                    light.execute("DELETE FROM call_log WHERE id <= (SELECT max(id) FROM call_log) - ?", [LOG_KEPT])
                except BaseException:
                    light.execute("ROLLBACK")
                    raise
                light.execute("COMMIT")
                return
        from toolscout.index import writing

        with self._database.writing() as connection:
            writing.log_calls(connection, rows, LOG_KEPT)

    def call_log(self, limit: int = 100) -> list[CallLog]:
        """The newest entries, newest first."""
        from toolscout.index import reading

        with self._database.reading() as connection:
            found = reading.call_log(connection, limit)
        return [CallLog(**{k: v for k, v in row.items() if k != "id"}) for row in found]

    # --- numbers -----------------------------------------------------------------------------------------------------

    def stats(self) -> dict[str, Any]:
        """Counts of everything, the revision, and where it is kept; ``bytes`` with SQLite counts file and WAL."""
        from toolscout.index import reading

        with self._database.reading() as connection:
            found = reading.counts(connection)
        return found | {"database": self._database.describe()}

    # --- inside ------------------------------------------------------------------------------------------------------

    def _paged(self, page: Callable[[Connection, str], list[R]], key: Callable[[R], str]) -> Iterator[R]:
        # Each page is a transaction of its own: a slow reader neither holds the WAL back nor blocks a writer.
        after = ""
        while True:
            with self._database.reading() as connection:
                found = page(connection, after)
            if not found:
                return
            yield from found
            after = key(found[-1])


def batched(items: Iterable[R], size: int) -> Iterator[list[R]]:
    """The items in lists of ``size``; the last one may be shorter."""
    batch: list[R] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
