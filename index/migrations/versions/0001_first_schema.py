"""First schema: servers, tools, exemplars, trajectories, vectors, call log, counters.

Revision 0001, after nothing.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    ordered = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "server",
        sa.Column("server_id", ordered, primary_key=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("title", sa.Text()),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("summary", sa.Text()),
        sa.Column("category", sa.Text()),
        sa.Column("sources", sa.Text(), nullable=False),
        sa.Column("transport", sa.Text(), nullable=False),
        sa.Column("install", sa.Text(), nullable=False),
        sa.Column("version", sa.Text()),
        sa.Column("license", sa.Text()),
        sa.Column("homepage", sa.Text()),
        sa.Column("popularity", sa.Float()),
        sa.Column("instructions", sa.Text()),
        sa.Column("protocol_version", sa.Text()),
        sa.Column("checked_at", sa.Text()),
    )
    op.create_index("ix_server_state", "server", ["state"])
    op.create_table(
        "tool",
        sa.Column("tool_id", ordered, primary_key=True),
        sa.Column("server_id", ordered, sa.ForeignKey("server.server_id", ondelete="CASCADE"), nullable=False),
        sa.Column("review", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("accepted", sa.Text()),
        sa.Column("first_seen", sa.Text()),
        sa.Column("changed_at", sa.Text()),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("title", sa.Text()),
        sa.Column("description", sa.Text(), nullable=False),
        sa.Column("annotations", sa.Text()),
        sa.Column("findings", sa.Text(), nullable=False),
        sa.Column("input_schema", sa.Text(), nullable=False),
        sa.Column("output_schema", sa.Text()),
    )
    op.create_index("ix_tool_server_id_review", "tool", ["server_id", "review"])
    op.create_table(
        "exemplar",
        sa.Column("id", ordered, primary_key=True),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("gold", sa.Text(), nullable=False),
        sa.Column("relevant", sa.Text()),
        sa.Column("candidates", sa.Text()),
        sa.Column("split", sa.Text()),
        sa.Column("lang", sa.Text()),
        sa.Column("source", sa.Text(), nullable=False),
    )
    op.create_table(
        "exemplar_tool",
        sa.Column("tool_id", ordered, primary_key=True),
        sa.Column("exemplar_id", ordered, sa.ForeignKey("exemplar.id", ondelete="CASCADE"), primary_key=True),
    )
    op.create_index("ix_exemplar_tool_exemplar_id", "exemplar_tool", ["exemplar_id"])
    op.create_table(
        "trajectory",
        sa.Column("id", ordered, primary_key=True),
        sa.Column("messages", sa.Text(), nullable=False),
        sa.Column("tools", sa.Text(), nullable=False),
        sa.Column("calls", sa.Text(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
    )
    op.create_table(
        "vector",
        sa.Column("encoder", ordered, primary_key=True),
        sa.Column("content_hash", ordered, primary_key=True),
        sa.Column("data", sa.LargeBinary(), nullable=False),
    )
    op.create_table(
        "call_log",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("tool_id", sa.Text()),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("ms", sa.Float(), nullable=False),
    )
    meta = op.create_table("meta", sa.Column("key", ordered, primary_key=True), sa.Column("value", sa.Integer(), nullable=False))
    op.bulk_insert(meta, [{"key": "revision", "value": 0}])


def downgrade() -> None:
    for name in ("meta", "call_log", "vector", "trajectory", "exemplar_tool", "exemplar", "tool", "server"):
        op.drop_table(name)
