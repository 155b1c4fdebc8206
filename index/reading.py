"""Reading statements of the catalogue, on a connection that the caller holds."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Table, func, select

from toolscout.index.catalogue import ToolKey
from toolscout.index.database import rows_of
from toolscout.index.tables import (
    CallLogRow,
    ExemplarRow,
    ExemplarToolRow,
    MetaRow,
    ServerRow,
    ToolRow,
    TrajectoryRow,
    VectorRow,
)
from toolscout.records import Call, Review, Server, Tool, Trajectory, canonical_json, sha256_hex

Vector = NDArray[np.float32]
Where = list[ColumnElement[bool]]

PAGE = 500
KEY_PAGE = 20_000


def table(model: Any) -> Table:
    """The SQLAlchemy table behind a SQLModel class."""
    found: Table = model.__table__
    return found


SERVER, TOOL, EXEMPLAR, EXEMPLAR_TOOL = map(table, (ServerRow, ToolRow, ExemplarRow, ExemplarToolRow))
TRAJECTORY, VECTOR, CALL_LOG, META = map(table, (TrajectoryRow, VectorRow, CallLogRow, MetaRow))


def revision(connection: Connection) -> int:
    """The revision counter."""
    return int(connection.execute(select(META.c.value).where(META.c.key == "revision")).scalar_one())


def get_server(connection: Connection, server_id: str) -> Server | None:
    """One server by id."""
    found = rows_of(connection.execute(select(SERVER).where(SERVER.c.server_id == server_id)))
    return Server.model_validate(found[0]) if found else None


def get_tool(connection: Connection, tool_id: str) -> Tool | None:
    """One tool by id."""
    found = rows_of(connection.execute(select(TOOL).where(TOOL.c.tool_id == tool_id)))
    return Tool.model_validate(found[0]) if found else None


def server_page(connection: Connection, after: str, states: Collection[str] | None) -> list[Server]:
    """The next servers by id."""
    where: Where = [] if states is None else [SERVER.c.state.in_(states)]
    return [Server.model_validate(row) for row in _page(connection, SERVER, SERVER.c.server_id, after, where)]


def tool_page(connection: Connection, after: str, server_id: str | None, reviews: Collection[str] | None) -> list[Tool]:
    """The next tools by id."""
    where: Where = [] if reviews is None else [TOOL.c.review.in_(reviews)]
    if server_id is not None:
        where.append(TOOL.c.server_id == server_id)
    return [Tool.model_validate(row) for row in _page(connection, TOOL, TOOL.c.tool_id, after, where)]


def tool_key_page(connection: Connection, after: str) -> list[ToolKey]:
    """The next approved tools by id, in short."""
    columns = (TOOL.c.tool_id, TOOL.c.server_id, TOOL.c.fingerprint, TOOL.c.title, TOOL.c.changed_at)
    query = select(*columns).where(TOOL.c.review == str(Review.APPROVED), TOOL.c.tool_id > after)
    found = connection.execute(query.order_by(TOOL.c.tool_id).limit(KEY_PAGE))
    return [
        ToolKey(tool_id, server, f"{mark}\0{title or ''}\0{moment or ''}")
        for tool_id, server, mark, title, moment in found
    ]


def exemplar_key_page(connection: Connection, after: str) -> list[tuple[Any, ...]]:
    """The next exemplars by id: id, query and gold calls."""
    query = select(EXEMPLAR.c.id, EXEMPLAR.c.query, EXEMPLAR.c.gold).where(EXEMPLAR.c.id > after)
    return [tuple(row) for row in connection.execute(query.order_by(EXEMPLAR.c.id).limit(KEY_PAGE))]


def exemplar_page(connection: Connection, after: str, tool_id: str | None) -> list[Call]:
    """The next exemplars by id."""
    where: Where = []
    if tool_id is not None:
        of_tool = select(EXEMPLAR_TOOL.c.exemplar_id).where(EXEMPLAR_TOOL.c.tool_id == tool_id)
        where.append(EXEMPLAR.c.id.in_(of_tool))
    return [Call.model_validate(row) for row in _page(connection, EXEMPLAR, EXEMPLAR.c.id, after, where)]


def trajectory_page(connection: Connection, after: str) -> list[Trajectory]:
    """The next trajectories by id."""
    found = _page(connection, TRAJECTORY, TRAJECTORY.c.id, after, [])
    return [Trajectory.model_validate(row) for row in found]


def get_vectors(connection: Connection, encoder: str, hashes: Sequence[str]) -> dict[str, Vector]:
    """The cached vectors among ``hashes``."""
    found: dict[str, Vector] = {}
    for start in range(0, len(hashes), PAGE):
        chunk = hashes[start : start + PAGE]
        where = (VECTOR.c.encoder == encoder) & VECTOR.c.content_hash.in_(chunk)
        for key, data in connection.execute(select(VECTOR.c.content_hash, VECTOR.c.data).where(where)):
            found[key] = np.frombuffer(data, dtype="<f4").astype(np.float32, copy=False)
    return found


def call_log(connection: Connection, limit: int) -> list[dict[str, Any]]:
    """The newest log entries, newest first."""
    return rows_of(connection.execute(select(CALL_LOG).order_by(CALL_LOG.c.id.desc()).limit(limit)))


def entity_keys(connection: Connection, server_ids: Sequence[str]) -> dict[str, str]:
    """What a server's tools say and take, whatever they are called, as a hash by server id: equal ones are one entity.

    Stricter than `toolscout.records.entity_key`, as one of the servers goes: schemas count, too. Servers that say
    nothing of their tools, and those with a tool that is not approved, have none.
    """
    said: dict[str, set[str]] = {}
    speaking: set[str] = set()
    barred: set[str] = set()
    fields = (TOOL.c.server_id, TOOL.c.review, TOOL.c.description, TOOL.c.input_schema, TOOL.c.output_schema)
    for row in connection.execute(select(*fields).where(TOOL.c.server_id.in_(server_ids))):
        text = row.description.strip()
        if text:
            speaking.add(row.server_id)
        if row.review != Review.APPROVED:
            barred.add(row.server_id)
        said.setdefault(row.server_id, set()).add(canonical_json([text, row.input_schema, row.output_schema]))
    return {one: sha256_hex("\n".join(sorted(said[one]))) for one in said if one in speaking - barred}


def counts(connection: Connection) -> dict[str, Any]:
    """Numbers of everything."""

    def total(of: Table) -> int:
        return int(connection.execute(select(func.count()).select_from(of)).scalar_one())

    def by(column: ColumnElement[Any]) -> dict[str, int]:
        found = connection.execute(select(column, func.count()).group_by(column).order_by(column))
        return {str(key): int(n) for key, n in found}

    reviews = by(TOOL.c.review)
    return {
        "revision": revision(connection),
        "servers": {"total": total(SERVER), "by_state": by(SERVER.c.state)},
        "tools": {
            "total": total(TOOL),
            "by_review": reviews,
            "waiting": sum(reviews.get(str(review), 0) for review in (Review.PENDING, Review.CHANGED)),
        },
        "exemplars": {
            "total": total(EXEMPLAR),
            "tools": int(connection.execute(select(func.count(EXEMPLAR_TOOL.c.tool_id.distinct()))).scalar_one()),
        },
        "trajectories": {"total": total(TRAJECTORY)},
        "vectors": {"total": total(VECTOR), "by_encoder": by(VECTOR.c.encoder)},
        "call_log": {"total": total(CALL_LOG), "by_kind": by(CALL_LOG.c.kind)},
    }


def _page(connection: Connection, of: Table, key: ColumnElement[str], after: str, where: Where) -> list[dict[str, Any]]:
    query = select(of).where(key > after, *where).order_by(key).limit(PAGE)
    return rows_of(connection.execute(query))
