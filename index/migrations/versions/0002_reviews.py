"""What was accepted of tools that have changed or gone, and the verdicts on tools.

Revision 0002, after 0001.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    ordered = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "pin",
        sa.Column("tool_id", ordered, primary_key=True),
        sa.Column("server_id", ordered, nullable=False),
        sa.Column("accepted", sa.Text()),
        sa.Column("record", sa.Text()),
        sa.Column("gone", sa.Text()),
    )
    op.create_index("ix_pin_server_id", "pin", ["server_id"])
    op.create_table(
        "review_log",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("batch", sa.Integer(), nullable=False),
        sa.Column("at", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("tool_id", sa.Text(), nullable=False),
        sa.Column("fingerprint", sa.Text(), nullable=False),
        sa.Column("before", sa.Text(), nullable=False),
        sa.Column("accepted_before", sa.Text()),
        sa.Column("after", sa.Text(), nullable=False),
        sa.Column("undone", sa.Integer(), nullable=False),
    )
    op.create_index("ix_review_log_batch", "review_log", ["batch"])


def downgrade() -> None:
    for name in ("review_log", "pin"):
        op.drop_table(name)
