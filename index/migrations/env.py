"""alembic's entry: runs the migrations on the connection, and in the transaction, that the catalogue hands over."""

from __future__ import annotations

from alembic import context
from sqlmodel import SQLModel

import toolscout.index.tables  # noqa: F401 (fills the metadata)

connection = context.config.attributes.get("connection")
if connection is None:
    raise SystemExit("The migrations run when a catalog is opened; for a new one see index/migrations/README.md.")

context.configure(
    connection=connection,
    target_metadata=SQLModel.metadata,
    transactional_ddl=True,  # SQLite too: a killed migration leaves the old schema, whole
    render_as_batch=True,
)
with context.begin_transaction():
    context.run_migrations()
