"""Who lists what: one row for each listing (`Source.key`) and server, with the listing's marker for it.

A marker means something to the listing that gave it alone: a serial number of one index says nothing about the version
that a registry states. So each is compared with its own earlier one.
"""

from __future__ import annotations

import sqlite3

from toolscout.crawler.sources.base import Found

SCHEMA = """
CREATE TABLE IF NOT EXISTS source (
  key TEXT PRIMARY KEY, name TEXT NOT NULL, setup TEXT, cursor TEXT, started TEXT, since TEXT, finished TEXT,
  listing INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS mention (
  key TEXT NOT NULL, server_id TEXT NOT NULL, listing INTEGER NOT NULL, marker TEXT, deployed TEXT,
  PRIMARY KEY (key, server_id)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS mention_server ON mention (server_id);
CREATE VIEW IF NOT EXISTS listed AS
  SELECT DISTINCT source.name AS source, mention.server_id FROM mention JOIN source USING (key);
"""
"""``deployed`` is the marker that the deployed state belongs to: NULL before there was one to compare, '' where a
first marker already states another version."""

CHANGED = (
    "EXISTS (SELECT 1 FROM mention m WHERE m.server_id = e.server_id AND m.marker IS NOT NULL "
    "AND m.deployed IS NOT NULL AND m.marker <> m.deployed)"
)
"""Condition on an entry ``e``: one of its listings says that it changed since its deployment."""


def earlier(name: str) -> str:
    """Key of what a version of Toolscout listed that told listings apart by their sources' names alone."""
    return f"{name}:earlier"


def put(db: sqlite3.Connection, key: str, name: str, listing: int, found: Found) -> None:
    """Note that a listing has a server.

    A marker that is seen for the first time is taken for that of the deployed state, unless the listing states another
    version than the one deployed.
    """
    server_id = found.server.server_id
    row = db.execute(
        "SELECT marker, deployed FROM mention WHERE server_id = ? AND key IN (?, ?) ORDER BY key = ? DESC",
        (server_id, key, earlier(name), key),
    ).fetchone()
    marker, deployed = found.marker or (row["marker"] if row else None), row["deployed"] if row else None
    result = db.execute("SELECT version FROM result WHERE server_id = ?", (server_id,)).fetchone()
    if found.tools is not None or (result is not None and found.marker and found.marker == result["version"]):
        deployed = marker
    elif result is not None and found.marker and deployed is None:
        stated = found.server.install.version or found.server.version
        deployed = "" if stated and result["version"] and stated != result["version"] else found.marker
    db.execute("DELETE FROM mention WHERE key = ? AND server_id = ?", (earlier(name), server_id))
    db.execute("INSERT OR REPLACE INTO mention VALUES (?, ?, ?, ?, ?)", (key, server_id, listing, marker, deployed))


def withdraw(db: sqlite3.Connection, key: str, name: str, server_id: str) -> None:
    """A listing says that a server is no longer in it."""
    db.execute("DELETE FROM mention WHERE server_id = ? AND key IN (?, ?)", (server_id, key, earlier(name)))


def deployed(db: sqlite3.Connection, server_id: str) -> None:
    """A server has been deployed: its state is that of all its listings as they are now."""
    db.execute("UPDATE mention SET deployed = marker WHERE server_id = ?", (server_id,))
