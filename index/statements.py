"""What the catalogue's writing statements share: batches, inserts that replace, the moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

T = TypeVar("T")

_CHUNK = 500


def now() -> str:
    """This moment, ISO 8601 in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def upsert(connection: Connection, table: Table, rows: list[dict[str, Any]]) -> None:
    """Insert rows, replacing those with the same primary key."""
    statement = inserting(connection, table)
    keys = [column.name for column in table.primary_key]
    replaced = {name: statement.excluded[name] for name in rows[0] if name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=replaced), rows)


def chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """The items in parts that one statement can carry."""
    for start in range(0, len(items), _CHUNK):
        yield items[start : start + _CHUNK]


def inserting(connection: Connection, table: Table) -> Any:
    """An insert that can say what to do on conflict."""
    return (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(table)
