"""Brings the memory of an older Toolscout up to date, in one transaction; nothing is deployed again for it."""

from __future__ import annotations

import sqlite3

_TO_2 = (
    "ALTER TABLE source RENAME TO source_1",
    "ALTER TABLE listed RENAME TO listed_1",
    "CREATE TABLE source (key TEXT PRIMARY KEY, name TEXT NOT NULL, setup TEXT, cursor TEXT, started TEXT, since TEXT, "
    "finished TEXT, listing INTEGER NOT NULL DEFAULT 0)",
    "CREATE TABLE mention (key TEXT NOT NULL, server_id TEXT NOT NULL, listing INTEGER NOT NULL, marker TEXT, "
    "deployed TEXT, PRIMARY KEY (key, server_id)) WITHOUT ROWID",
    # How these listings were set up (which file of names, which address) was not noted: they are nobody's to go on
    # with, and what they list stays until a listing of the same source has it.
    "INSERT INTO source (key, name) SELECT name || ':earlier', name FROM "
    "(SELECT name FROM source_1 UNION SELECT source FROM listed_1)",
    # The one marker of an entry is that of its source, where it has one alone.
    "INSERT INTO mention SELECT l.source || ':earlier', l.server_id, 0, "
    "CASE WHEN o.n = 1 THEN e.marker END, CASE WHEN o.n = 1 AND e.marker IS NOT NULL THEN r.marker END "
    "FROM listed_1 l JOIN (SELECT server_id, count(*) AS n FROM listed_1 GROUP BY server_id) o USING (server_id) "
    "LEFT JOIN entry e USING (server_id) LEFT JOIN result r USING (server_id)",
    "DROP TABLE listed_1",
    "DROP TABLE source_1",
    "CREATE TABLE kept (url TEXT PRIMARY KEY, body BLOB NOT NULL, content_type TEXT, etag TEXT, "
    "fetched_at REAL NOT NULL)",
    "INSERT INTO kept SELECT * FROM page WHERE url LIKE 'toolscout-kept:%'",
    "DELETE FROM page WHERE url LIKE 'toolscout-kept:%'",
    "PRAGMA user_version = 2",
)


def upgrade(db: sqlite3.Connection, version: int) -> None:
    """From a file's schema version to today's. ``version`` 0 is a new, empty file."""
    if version != 1:
        return
    db.execute("BEGIN IMMEDIATE")
    try:
        for statement in _TO_2:
            db.execute(statement)
    except BaseException:
        db.execute("ROLLBACK")
        raise
    db.execute("COMMIT")
