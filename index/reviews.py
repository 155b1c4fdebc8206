"""Statements of the review: verdicts on tools, undoing them, and what was accepted before a tool changed or went.

All of them want a transaction that the caller holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from toolscout.index.database import rows_of
from toolscout.index.reading import TOOL, table
from toolscout.index.statements import chunks, now, upsert
from toolscout.index.tables import PinRow, ReviewLogRow
from toolscout.records import Review

PIN, LOG = table(PinRow), table(ReviewLogRow)

SHOWN = ("name", "title", "description", "input_schema", "output_schema", "annotations")
"""Fields of a tool that a model may come to read: what an accepted version is kept for."""


def judge(connection: Connection, verdicts: Mapping[str, Review], source: str) -> tuple[int, list[str]]:
    """Set the reviews of tools and note it as one batch; how many it changed, and the ids that do not exist.

    Approval accepts the tool as it is now. ``source`` says who judged: person or policy.
    """
    missing: list[str] = []
    notes: list[dict[str, Any]] = []
    moment, batch = now(), _last_batch(connection) + 1
    for chunk in chunks(list(verdicts)):
        columns = (TOOL.c.tool_id, TOOL.c.review, TOOL.c.fingerprint, TOOL.c.accepted)
        there = {row.tool_id: row for row in connection.execute(select(*columns).where(TOOL.c.tool_id.in_(chunk)))}
        missing += [tool_id for tool_id in chunk if tool_id not in there]
        for tool_id, old in there.items():
            verdict = Review(verdicts[tool_id])
            if old.review == verdict:
                continue
            values: dict[str, Any] = {"review": str(verdict)}
            if verdict is Review.APPROVED:
                values["accepted"] = old.fingerprint
            connection.execute(update(TOOL).where(TOOL.c.tool_id == tool_id).values(values))
            note = {"batch": batch, "at": moment, "source": source, "tool_id": tool_id, "undone": 0}
            note |= {"fingerprint": old.fingerprint, "before": old.review, "after": str(verdict)}
            notes.append(note | {"accepted_before": old.accepted})
    if notes:
        connection.execute(insert(LOG), notes)
    return len(notes), missing


def undo(connection: Connection) -> tuple[list[str], list[str]]:
    """Take back the last batch of verdicts that still stands: ids restored, and ids that are left alone because the
    tool has changed, gone or been judged again since."""
    batch = connection.execute(select(func.max(LOG.c.batch)).where(LOG.c.undone == 0)).scalar()
    restored: list[str] = []
    left: list[str] = []
    if batch is None:
        return restored, left
    for note in rows_of(connection.execute(select(LOG).where(LOG.c.batch == batch).order_by(LOG.c.tool_id))):
        same = (
            (TOOL.c.tool_id == note["tool_id"])
            & (TOOL.c.fingerprint == note["fingerprint"])
            & (TOOL.c.review == note["after"])
        )
        values = {"review": note["before"], "accepted": note["accepted_before"]}
        done = connection.execute(update(TOOL).where(same).values(values)).rowcount
        (restored if done else left).append(note["tool_id"])
    connection.execute(update(LOG).where(LOG.c.batch == batch).values(undone=1))
    return restored, left


def log(connection: Connection, limit: int) -> list[dict[str, Any]]:
    """The newest verdicts, newest first."""
    return rows_of(connection.execute(select(LOG).order_by(LOG.c.id.desc()).limit(limit)))


def pins(connection: Connection, tool_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The pins among these tools, by tool id."""
    found: dict[str, dict[str, Any]] = {}
    for chunk in chunks(list(tool_ids)):
        rows = rows_of(connection.execute(select(PIN).where(PIN.c.tool_id.in_(chunk))))
        found |= {row["tool_id"]: row for row in rows}
    return found


def has_listed(connection: Connection, server_id: str) -> bool:
    """Whether tools of a server are or were there: what it adds now is a change of it."""
    return any(
        connection.execute(select(of.c.tool_id).where(of.c.server_id == server_id).limit(1)).first() is not None
        for of in (TOOL, PIN)
    )


def remember(connection: Connection, rows: Iterable[dict[str, Any]]) -> None:
    """Keep what was accepted of approved tools that are about to change."""
    kept = [
        {
            "tool_id": row["tool_id"],
            "server_id": row["server_id"],
            "accepted": row["fingerprint"],
            "record": {name: row[name] for name in SHOWN},
            "gone": None,
        }
        for row in rows
    ]
    for chunk in chunks(kept):
        upsert(connection, PIN, list(chunk))


def remember_gone(connection: Connection, tool_ids: Sequence[str]) -> None:
    """Keep what was accepted, and which verdict stood, of tools that are about to be removed."""
    for chunk in chunks(list(tool_ids)):
        rows = rows_of(connection.execute(select(TOOL).where(TOOL.c.tool_id.in_(chunk))))
        remember(connection, [row for row in rows if row["review"] == Review.APPROVED])
        known = pins(connection, [row["tool_id"] for row in rows])
        ends = []
        for row in rows:
            pin = known.get(row["tool_id"], {"record": None})
            ends.append(
                {
                    "tool_id": row["tool_id"],
                    "server_id": row["server_id"],
                    "accepted": row["accepted"],
                    "record": pin["record"],
                    "gone": row["review"],
                }
            )
        if ends:
            upsert(connection, PIN, ends)


def forget(connection: Connection, server_id: str) -> None:
    """Drop what is kept of a server that a person removes."""
    connection.execute(delete(PIN).where(PIN.c.server_id == server_id))


def _last_batch(connection: Connection) -> int:
    return int(connection.execute(select(func.max(LOG.c.batch))).scalar() or 0)
