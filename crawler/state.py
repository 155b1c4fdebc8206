"""The crawl's memory: one SQLite file in the work folder. Whatever is committed survives a kill at any point.

Every finished step is one transaction: a batch of a listing with its cursor, or one deployment with its tools.
"""

from __future__ import annotations

import json
import sqlite3
import time
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from toolscout.crawler import mentions
from toolscout.crawler.agent.costs import ServerCost
from toolscout.crawler.deploy import Outcome
from toolscout.crawler.failures import Failure
from toolscout.crawler.failures import Verdict as Failed
from toolscout.crawler.fetch import Page
from toolscout.crawler.records import now, server_record, tool_records
from toolscout.crawler.sources.base import Batch, Found, Verdict
from toolscout.crawler.sources.marketplaces_kept import KEPT
from toolscout.crawler.unite import same_sources, united
from toolscout.crawler.upgrade import upgrade
from toolscout.errors import StorageError
from toolscout.records import JsonObject, Server, ServerState, Tool, entity_key

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (
  server_id TEXT PRIMARY KEY, registry TEXT NOT NULL, package TEXT, record TEXT NOT NULL, args TEXT NOT NULL,
  verdict TEXT NOT NULL, reason TEXT NOT NULL, published TEXT, stated INTEGER NOT NULL DEFAULT 0,
  first_listed TEXT NOT NULL, last_listed TEXT NOT NULL, gone TEXT);
CREATE TABLE IF NOT EXISTS result (
  server_id TEXT PRIMARY KEY, version TEXT, ok INTEGER NOT NULL, failure TEXT, cause TEXT, evidence TEXT,
  install_seconds REAL, run_seconds REAL, starts INTEGER, bytes INTEGER, peak INTEGER, needs_key INTEGER,
  needs_arguments INTEGER, pinned TEXT, era TEXT, noise INTEGER, odd INTEGER, pages INTEGER, record TEXT, entity TEXT,
  tools INTEGER NOT NULL DEFAULT 0, checked_at TEXT NOT NULL, run INTEGER);
CREATE INDEX IF NOT EXISTS result_entity ON result (entity);
CREATE TABLE IF NOT EXISTS tool (
  server_id TEXT NOT NULL, name TEXT NOT NULL, position INTEGER NOT NULL, fingerprint TEXT NOT NULL,
  record BLOB NOT NULL, first_seen TEXT NOT NULL, changed_at TEXT, PRIMARY KEY (server_id, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS history (
  server_id TEXT NOT NULL, version TEXT, checked_at TEXT NOT NULL, ok INTEGER NOT NULL, failure TEXT, tools INTEGER,
  added TEXT, changed TEXT, removed TEXT);
CREATE INDEX IF NOT EXISTS history_server ON history (server_id);
CREATE TABLE IF NOT EXISTS page (
  url TEXT PRIMARY KEY, body BLOB NOT NULL, content_type TEXT, etag TEXT, fetched_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS kept (
  url TEXT PRIMARY KEY, body BLOB NOT NULL, content_type TEXT, etag TEXT, fetched_at REAL NOT NULL);
CREATE TABLE IF NOT EXISTS run (
  id INTEGER PRIMARY KEY, started TEXT NOT NULL, ended TEXT, seconds REAL NOT NULL DEFAULT 0, workers INTEGER,
  sandbox TEXT);
CREATE TABLE IF NOT EXISTS cost (
  marketplace TEXT NOT NULL, url TEXT NOT NULL, server_id TEXT NOT NULL, seconds REAL NOT NULL,
  prompt_tokens REAL NOT NULL, completion_tokens REAL NOT NULL, price REAL NOT NULL, pages REAL NOT NULL);
CREATE TABLE IF NOT EXISTS problem (source TEXT NOT NULL, text TEXT NOT NULL, at TEXT NOT NULL);
"""
_VERSION = 2
_PAGES_KEPT = 20_000


@dataclass(frozen=True)
class Todo:
    """One entry that waits for its deployment."""

    server: Server
    args: tuple[str, ...]
    published: str | None


class State:
    """An open work folder's memory. Use from one thread."""

    def __init__(self, work: Path) -> None:
        try:
            work.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(work / "crawl.db", isolation_level=None, timeout=30)
            (work / "crawl.db").chmod(0o600)
            self._db.row_factory = sqlite3.Row
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > _VERSION:
                raise StorageError(f"{work} was made by a newer Toolscout.", "Update, or name another work folder.")
            upgrade(self._db, version)
            self._db.executescript(mentions.SCHEMA + _SCHEMA)
            self._db.execute(f"PRAGMA user_version={_VERSION}")
        except (OSError, sqlite3.DatabaseError) as error:
            raise StorageError(f"The crawl's state in {work} cannot be opened: {error}.") from None

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> State:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- runs --------------------------------------------------------------------------------------------------------

    def begin_run(self, workers: int, sandbox: str) -> int:
        """Note the start of a run; its number."""
        found = self._db.execute(
            "INSERT INTO run (started, workers, sandbox) VALUES (?, ?, ?)", (now(), workers, sandbox)
        )
        return int(found.lastrowid or 0)

    def tick_run(self, run: int, seconds: float) -> None:
        """Note how long a run has lasted so far: a killed one cannot say it at its end."""
        self._db.execute("UPDATE run SET seconds = ?, ended = ? WHERE id = ?", (seconds, now(), run))

    # --- listings ----------------------------------------------------------------------------------------------------

    def begin_listing(
        self, key: str, *, since: str | None, fresh: bool, name: str = "", setup: JsonObject | None = None
    ) -> tuple[str | None, str | None]:
        """Go on with an unfinished listing, or begin one. Gives its cursor and its ``since``.

        Args:
            key: which listing (`Source.key`).
            since: only what changed after this; ``last`` means since the last finished listing began.
            fresh: begin from the start, whatever was left unfinished.
            name: the source's name; the key by default.
            setup: how the source was made. What was left unfinished with another set-up is begun anew.
        """
        row = self._db.execute("SELECT * FROM source WHERE key = ?", (key,)).fetchone()
        made = None if setup is None else json.dumps(setup, sort_keys=True)
        if row is not None and row["started"] and not fresh and row["setup"] == made:
            return row["cursor"], row["since"]
        if since == "last":
            since = row["finished"] if row is not None else None
        self._db.execute(
            "INSERT INTO source (key, name, setup, started, since, listing) VALUES (?, ?, ?, ?, ?, 1) "
            "ON CONFLICT (key) DO UPDATE SET cursor = NULL, setup = excluded.setup, started = excluded.started, "
            "since = excluded.since, listing = listing + 1",
            (key, name or key, made, now(), since),
        )
        return None, since

    def setups(self) -> list[tuple[str, JsonObject | None]]:
        """All listings that were ever begun: the source's name, and how it was made, where that is known."""
        rows = self._db.execute("SELECT name, setup FROM source ORDER BY rowid")
        return [(row["name"], json.loads(row["setup"]) if row["setup"] else None) for row in rows]

    def put_batch(self, key: str, batch: Batch) -> int:
        """Store a batch of a listing and its cursor, in one transaction; how many entries are new."""
        moment, new = now(), 0
        with self._transaction():
            row = self._db.execute("SELECT name, listing FROM source WHERE key = ?", (key,)).fetchone()
            name, listing = (row["name"], row["listing"]) if row else (key, 0)
            for found in batch.found:
                new += self._put_entry(found, moment)
                mentions.put(self._db, key, name, listing, found)
            for server_id in batch.vanished:
                mentions.withdraw(self._db, key, name, server_id)
                self._db.execute(
                    "UPDATE entry SET gone = ? WHERE server_id = ? AND gone IS NULL AND server_id NOT IN "
                    "(SELECT server_id FROM mention)",
                    (moment, server_id),
                )
            for text in batch.problems:
                self._db.execute("INSERT INTO problem VALUES (?, ?, ?)", (name, text[:500], moment))
            self._db.execute("UPDATE source SET cursor = ? WHERE key = ?", (batch.cursor, key))
        return new

    def put_costs(self, costs: Collection[ServerCost]) -> None:
        """Store what reading pages of marketplaces cost."""
        if costs:
            with self._transaction():
                self._db.executemany("INSERT INTO cost VALUES (?, ?, ?, ?, ?, ?, ?, ?)", [astuple(c) for c in costs])

    def failures(self, servers: Collection[str]) -> dict[str, Failed]:
        """Why servers, of those asked about, gave no tools at their last deployment."""
        found = {}
        for server_id in servers:
            row = self._db.execute("SELECT * FROM result WHERE server_id = ?", (server_id,)).fetchone()
            if row is not None and row["failure"] is not None:
                found[server_id] = Failed(Failure(row["failure"]), row["cause"] or "", row["evidence"] or "")
        return found

    def costs(self) -> list[ServerCost]:
        """What was stored of them, of all runs."""
        return [ServerCost(**row) for row in self.rows("SELECT * FROM cost ORDER BY rowid")]

    def end_listing(self, key: str, *, complete: bool) -> int:
        """A listing has reached its end. What a complete one lacks has vanished; how many are newly gone."""
        with self._transaction():
            row = self._db.execute("SELECT * FROM source WHERE key = ?", (key,)).fetchone()
            gone = 0
            if complete and not row["since"]:
                self._db.execute("DELETE FROM mention WHERE key = ? AND listing < ?", (key, row["listing"]))
                gone = self._db.execute(
                    "UPDATE entry SET gone = ? WHERE gone IS NULL AND server_id NOT IN (SELECT server_id FROM mention)",
                    (now(),),
                ).rowcount
            self._db.execute(
                "UPDATE source SET finished = started, started = NULL, cursor = NULL WHERE key = ?", (key,)
            )
        return gone

    def left_out(self, key: str) -> dict[str, int]:
        """How many of a listing's entries are not deployed for what they are, by the reason, most first."""
        rows = self._db.execute(
            "SELECT e.reason, count(*) AS many FROM mention m JOIN entry e USING (server_id) WHERE m.key = ? "
            "AND e.verdict NOT IN ('server', 'unknown') GROUP BY e.reason ORDER BY many DESC, e.reason",
            (key,),
        )
        return {row["reason"]: row["many"] for row in rows}

    def _put_entry(self, found: Found, moment: str) -> bool:
        server, verdict, reason, args = found.server, str(found.verdict), found.reason, json.dumps(found.args)
        row = self._db.execute("SELECT * FROM entry WHERE server_id = ?", (server.server_id,)).fetchone()
        if row is not None:
            old = Server.model_validate_json(row["record"])
            if not found.args and not same_sources(old, server):
                args = row["args"]
            if row["verdict"] == Verdict.SERVER and verdict != Verdict.SERVER:
                verdict, reason = row["verdict"], row["reason"]  # another source knew better than a name can tell
            server = united(old, server)
        values = (
            server.install.registry, server.install.package, server.to_json(), args, verdict, reason, found.published,
            found.tools is not None, moment, server.server_id,
        )  # fmt: skip
        if row is None:
            self._db.execute(
                "INSERT INTO entry (registry, package, record, args, verdict, reason, published, stated, "
                "last_listed, first_listed, server_id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*values[:-1], moment, values[-1]),
            )
        else:
            self._db.execute(
                "UPDATE entry SET registry = ?, package = ?, record = ?, args = ?, verdict = ?, reason = ?, "
                "published = coalesce(?, published), stated = ?, last_listed = ?, gone = NULL WHERE server_id = ?",
                values,
            )
        if found.tools is not None:
            self._put_stated(server, found, moment)
        return row is None

    def _put_stated(self, server: Server, found: Found, moment: str) -> None:
        tools = tool_records(server.server_id, found.tools or (), moment)
        server = server.model_copy(update={"checked_at": moment})
        self._put_tools(server, tools, server.version, moment, None, None)

    # --- deployments -------------------------------------------------------------------------------------------------

    def todo(
        self,
        *,
        retry: Collection[str] = (),
        registries: Collection[str] | None = None,
        sources: Collection[str] | None = None,
        named: Collection[str] = (),
        first: Sequence[str] = (),
    ) -> list[Todo]:
        """What is to be deployed: what never was, and what one of its listings says has changed since.

        In an order of its own that no listing has a say in: wherever a crawl stops, what it has done is a fair sample.

        Args:
            retry: failure classes that are tried again.
            registries: only packages of these.
            sources: only what one of these listings (`Source.key`) has.
            named: servers that are tried again whatever became of them, unless they gave tools.
            first: servers that come before all others, in this order.
        """
        marks = ",".join("?" * len(retry))
        rows = self._db.execute(
            "SELECT e.* FROM entry e LEFT JOIN result r USING (server_id) WHERE e.gone IS NULL AND NOT e.stated "
            "AND e.package IS NOT NULL AND e.verdict IN ('server', 'unknown') AND (r.server_id IS NULL "
            f"OR {mentions.CHANGED} OR (NOT r.ok AND (r.failure IN ({marks}) "
            "OR e.server_id IN (SELECT value FROM json_each(?))))) ORDER BY e.server_id",
            (*retry, json.dumps(list(named))),
        ).fetchall()
        listed = None
        if sources is not None:
            holes = ",".join("?" * len(sources))
            found = self._db.execute(f"SELECT server_id FROM mention WHERE key IN ({holes})", tuple(sources))
            listed = {row["server_id"] for row in found}
        place = {server_id: number for number, server_id in reversed(list(enumerate(first)))}
        rows.sort(key=lambda row: (place.get(row["server_id"], len(first)), zlib.crc32(row["server_id"].encode())))
        return [
            Todo(Server.model_validate_json(row["record"]), tuple(json.loads(row["args"])), row["published"])
            for row in rows
            if (registries is None or row["registry"] in registries) and (listed is None or row["server_id"] in listed)
        ]

    def put_outcome(self, todo: Todo, outcome: Outcome, run: int) -> int:
        """Store a deployment with its tools, in one transaction; how many tools."""
        moment = now()
        if outcome.verdict is not None or outcome.listing is None:
            with self._transaction():
                self._put_failure(todo, outcome, run, moment)
                mentions.deployed(self._db, todo.server.server_id)
            return 0
        server = server_record(todo.server, outcome, moment)
        tools = tool_records(server.server_id, outcome.listing.tools, moment)
        with self._transaction():
            self._put_tools(server, tools, server.version, moment, outcome, run)
            mentions.deployed(self._db, server.server_id)
        return len(tools)

    def _put_failure(self, todo: Todo, outcome: Outcome, run: int, moment: str) -> None:
        verdict = outcome.verdict
        server_id = todo.server.server_id
        version = outcome.installed.metadata.version if outcome.installed else None
        row = self._db.execute("SELECT ok FROM result WHERE server_id = ?", (server_id,)).fetchone()
        # Tools that an earlier version listed stay: a broken release does not make a server vanish.
        kept = row is not None and row["ok"]
        numbers = _numbers(outcome)
        failed = (str(verdict.failure), verdict.cause, verdict.evidence) if verdict else ("protocol_error", "", "")
        if kept:
            self._db.execute(
                "UPDATE result SET failure = ?, cause = ?, evidence = ?, run = ? WHERE server_id = ?",
                (*failed, run, server_id),
            )
        else:
            self._insert_result(server_id, {
                "version": version, "ok": 0, "failure": failed[0], "cause": failed[1],
                "evidence": failed[2], "checked_at": moment, "run": run, **numbers,
            })  # fmt: skip
        self._db.execute(
            "INSERT INTO history VALUES (?, ?, ?, 0, ?, NULL, NULL, NULL, NULL)",
            (server_id, version, moment, str(verdict.failure) if verdict else None),
        )

    def _put_tools(
        self,
        server: Server,
        tools: list[Tool],
        version: str | None,
        moment: str,
        outcome: Outcome | None,
        run: int | None,
    ) -> None:
        """Replace a server's tools, noting in the history what changed."""
        server_id = server.server_id
        known = {
            row["name"]: row
            for row in self._db.execute(
                "SELECT name, fingerprint, first_seen, changed_at FROM tool WHERE server_id = ?", (server_id,)
            )
        }
        changed = []
        for tool in tools:
            old = known.get(tool.name)
            if old is None:
                continue
            tool.first_seen, tool.changed_at = old["first_seen"], old["changed_at"]
            if old["fingerprint"] != tool.fingerprint:
                tool.changed_at = moment
                changed.append(tool.name)
        names = {tool.name for tool in tools}
        added, removed = sorted(names - known.keys()), sorted(known.keys() - names)
        before = self._db.execute("SELECT version FROM result WHERE server_id = ? AND ok", (server_id,)).fetchone()
        self._db.execute("DELETE FROM tool WHERE server_id = ?", (server_id,))
        self._db.executemany(
            "INSERT INTO tool VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (server_id, t.name, n, t.fingerprint, _packed(t.to_json()), t.first_seen, t.changed_at)
                for n, t in enumerate(tools)
            ],
        )
        self._insert_result(server_id, {
            "version": version, "ok": 1, "record": server.to_json(), "entity": entity_key(tools),
            "tools": len(tools), "checked_at": moment, "run": run, **(_numbers(outcome) if outcome else {}),
        })  # fmt: skip
        if before is None or changed or added or removed or before["version"] != version:
            first = before is None
            self._db.execute(
                "INSERT INTO history VALUES (?, ?, ?, 1, NULL, ?, ?, ?, ?)",
                (
                    *(server_id, version, moment, len(tools)),
                    *(None if first else json.dumps(part) for part in (added, changed, removed)),
                ),
            )

    def _insert_result(self, server_id: str, values: dict[str, Any]) -> None:
        values = {"server_id": server_id, **values}
        self._db.execute(
            f"INSERT OR REPLACE INTO result ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})",
            tuple(values.values()),
        )

    # --- what came out -----------------------------------------------------------------------------------------------

    def servers(self) -> Iterator[tuple[Server, str | None]]:
        """Servers with tools, each with its entity key; those that have vanished as ``unavailable``."""
        rows = self._db.execute(
            "SELECT r.record, r.entity, e.gone, e.record AS listed FROM result r JOIN entry e USING (server_id) "
            "WHERE r.ok AND r.tools > 0 ORDER BY r.server_id"
        ).fetchall()
        for row in rows:
            server = Server.model_validate_json(row["record"])
            server.sources = united(server, Server.model_validate_json(row["listed"])).sources
            if row["gone"]:
                server.state = ServerState.UNAVAILABLE
            yield server, row["entity"]

    def tools(self, server_id: str) -> list[Tool]:
        """A server's tools as last listed, in its own order."""
        rows = self._db.execute("SELECT * FROM tool WHERE server_id = ? ORDER BY position", (server_id,))
        return [Tool.model_validate_json(_unpacked(row["record"])) for row in rows]

    def history(self, server_id: str) -> list[JsonObject]:
        """What each check of a server found, oldest first."""
        rows = self._db.execute("SELECT * FROM history WHERE server_id = ? ORDER BY rowid", (server_id,))
        found = []
        for row in rows:
            entry = {k: row[k] for k in row.keys() if row[k] is not None}  # noqa: SIM118
            found.append({k: json.loads(v) if k in ("added", "changed", "removed") else v for k, v in entry.items()})
        return found

    def rows(self, query: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
        """Rows of a reading query (for the report)."""
        return [dict(row) for row in self._db.execute(query, parameters)]

    # --- pages (a `toolscout.crawler.fetch.PageCache`) ---------------------------------------------------------------

    def get_page(self, url: str) -> Page | None:
        """The kept page, however old."""
        row = self._db.execute(f"SELECT * FROM {_table(url)} WHERE url = ?", (url,)).fetchone()
        if row is None:
            return None
        return Page(url, zlib.decompress(row["body"]), row["content_type"], row["etag"], row["fetched_at"])

    def put_page(self, page: Page) -> None:
        """Keep a page in place of an older one. The oldest go when there are too many; entries of marketplaces stay."""
        self._db.execute(
            f"INSERT OR REPLACE INTO {_table(page.url)} VALUES (?, ?, ?, ?, ?)",
            (page.url, zlib.compress(page.body, 3), page.content_type, page.etag, page.fetched_at or time.time()),
        )
        if int(page.fetched_at) % 97 == 0:
            self._db.execute(
                "DELETE FROM page WHERE url NOT IN (SELECT url FROM page ORDER BY fetched_at DESC LIMIT ?)",
                (_PAGES_KEPT,),
            )

    def _transaction(self) -> _Transaction:
        return _Transaction(self._db)


class _Transaction:
    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def __exit__(self, kind: object, *_: object) -> None:
        self._db.execute("ROLLBACK" if kind is not None else "COMMIT")


def _table(url: str) -> str:
    """What was read of an entry costs a browser, and maybe a model, to read again: pages must not push it out."""
    return "kept" if url.startswith(KEPT) else "page"


def _numbers(outcome: Outcome) -> dict[str, Any]:
    listing, installed = outcome.listing, outcome.installed
    return {
        "install_seconds": round(outcome.install_seconds, 3),
        "run_seconds": round(outcome.run_seconds, 3),
        "starts": outcome.starts,
        "bytes": installed.size if installed else None,
        "pinned": installed.pinned if installed else None,
        "peak": outcome.peak,
        "needs_key": int(outcome.needs_key),
        "needs_arguments": int(outcome.needs_arguments),
        "era": listing.era if listing else None,
        "noise": listing.noise if listing else None,
        "odd": listing.odd if listing else None,
        "pages": listing.pages if listing else None,
    }


def _packed(text: str) -> bytes:
    return zlib.compress(text.encode("utf-8", "surrogatepass"), 6)


def _unpacked(data: bytes) -> str:
    return zlib.decompress(data).decode("utf-8", "surrogatepass")
