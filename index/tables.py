"""The catalogue's tables: DESIGN's records, the vector cache, the call log and one counter.

Kept apart from `toolscout.records`: a row holds what the records do not (the accepted fingerprint, blobs), and
importing SQLModel takes a second on a small machine, which the records must not cost.

JSON is kept as text, ASCII-escaped, in both databases: PostgreSQL's ``jsonb`` refuses U+0000 and reorders keys, and
neither would give back the schema that the upstream sent.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import Column, Dialect, ForeignKey, Index, LargeBinary, Text
from sqlalchemy.types import TypeDecorator
from sqlmodel import Field, SQLModel


class JsonText(TypeDecorator[Any]):
    """A JSON value as ASCII text; SQL NULL for None."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Value to text."""
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Text to value."""
        return None if value is None else json.loads(value)


def _ordered() -> Text:
    """Text compared by code point in both databases, so that order and paging are alike."""
    text: Text = Text().with_variant(Text(collation="C"), "postgresql")
    return text


def _key() -> Any:
    return Field(sa_column=Column(_ordered(), primary_key=True))


def _json(nullable: bool = False) -> Any:
    return Field(sa_column=Column(JsonText, nullable=nullable))


def _text(nullable: bool = True) -> Any:
    return Field(sa_column=Column(Text, nullable=nullable))


class ServerRow(SQLModel, table=True):
    """One server; columns are the fields of `toolscout.records.Server`, without what a pack alone says of one."""

    __tablename__ = "server"

    server_id: str = _key()
    state: str = Field(sa_column=Column(Text, nullable=False, index=True))
    name: str = _text(nullable=False)
    title: str | None = _text()
    description: str = _text(nullable=False)
    summary: str | None = _text()
    category: str | None = _text()
    sources: list[Any] = _json()
    transport: str = _text(nullable=False)
    install: dict[str, Any] = _json()
    version: str | None = _text()
    license: str | None = _text()
    homepage: str | None = _text()
    popularity: float | None = None
    instructions: str | None = _text()
    protocol_version: str | None = _text()
    checked_at: str | None = _text()


class ToolRow(SQLModel, table=True):
    """One tool. The small columns come first: SQLite then reads them without touching the pages of the schemas."""

    __tablename__ = "tool"
    __table_args__ = (Index("ix_tool_server_id_review", "server_id", "review"),)

    tool_id: str = _key()
    server_id: str = Field(
        sa_column=Column(_ordered(), ForeignKey("server.server_id", ondelete="CASCADE"), nullable=False)
    )
    review: str = _text(nullable=False)
    fingerprint: str = _text(nullable=False)
    accepted: str | None = _text()
    """Fingerprint at the last approval: a tool that goes back to it is approved again."""
    first_seen: str | None = _text()
    changed_at: str | None = _text()
    name: str = _text(nullable=False)
    title: str | None = _text()
    description: str = _text(nullable=False)
    annotations: dict[str, Any] | None = _json(nullable=True)
    findings: list[Any] = _json()
    input_schema: dict[str, Any] = _json()
    output_schema: dict[str, Any] | None = _json(nullable=True)


class ExemplarRow(SQLModel, table=True):
    """One worked request with its gold calls; columns are the fields of `toolscout.records.Call`."""

    __tablename__ = "exemplar"

    id: str = _key()
    query: str = _text(nullable=False)
    gold: list[Any] = _json()
    relevant: list[Any] | None = _json(nullable=True)
    candidates: list[Any] | None = _json(nullable=True)
    split: str | None = _text()
    lang: str | None = _text()
    source: str = _text(nullable=False)


class ExemplarToolRow(SQLModel, table=True):
    """Which exemplars show which tool. The tool may come later than its exemplars, so it is no foreign key."""

    __tablename__ = "exemplar_tool"

    tool_id: str = _key()
    exemplar_id: str = Field(
        sa_column=Column(_ordered(), ForeignKey("exemplar.id", ondelete="CASCADE"), primary_key=True, index=True)
    )


class TrajectoryRow(SQLModel, table=True):
    """One recorded run; columns are the fields of `toolscout.records.Trajectory`."""

    __tablename__ = "trajectory"

    id: str = _key()
    messages: list[Any] = _json()
    tools: list[Any] = _json()
    calls: list[Any] = _json()
    outcome: str = _text(nullable=False)
    source: str = _text(nullable=False)


class VectorRow(SQLModel, table=True):
    """One embedding by encoder fingerprint and content hash: little-endian float32, so a cached vector is exact."""

    __tablename__ = "vector"

    encoder: str = _key()
    content_hash: str = _key()
    data: bytes = Field(sa_column=Column(LargeBinary, nullable=False))


class CallLogRow(SQLModel, table=True):
    """One find, suggest or invoke. Never holds argument values."""

    __tablename__ = "call_log"

    id: int | None = Field(default=None, primary_key=True)
    at: str = _text(nullable=False)
    kind: str = _text(nullable=False)
    query: str = _text(nullable=False)
    tool_id: str | None = _text()
    outcome: str = _text(nullable=False)
    ms: float


class PinRow(SQLModel, table=True):
    """What was accepted of a tool that has changed since or that its server no longer lists; it outlives the tool, so
    that leaving a tool out once and listing it again, changed, is seen as a change."""

    __tablename__ = "pin"

    tool_id: str = _key()
    server_id: str = Field(sa_column=Column(_ordered(), nullable=False, index=True))
    accepted: str | None = _text()
    record: dict[str, Any] | None = _json(nullable=True)
    """The accepted version's fields, as `toolscout.index.reviews.SHOWN` names them."""
    gone: str | None = _text()
    """The review that the tool had when its server left it out; NULL while it is listed."""


class ReviewLogRow(SQLModel, table=True):
    """One verdict on one tool; those that were given together share ``batch``."""

    __tablename__ = "review_log"

    id: int | None = Field(default=None, primary_key=True)
    batch: int = Field(index=True)
    at: str = _text(nullable=False)
    source: str = _text(nullable=False)
    tool_id: str = _text(nullable=False)
    fingerprint: str = _text(nullable=False)
    before: str = _text(nullable=False)
    accepted_before: str | None = _text()
    after: str = _text(nullable=False)
    undone: int = 0


class MetaRow(SQLModel, table=True):
    """Named counters; ``revision`` grows with every committed change of what can be found."""

    __tablename__ = "meta"

    key: str = _key()
    value: int
