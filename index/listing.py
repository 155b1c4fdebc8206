"""What the catalogue holds, in short rows: enough to see what changed since the last build without reading schemas."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select

from toolscout.index.reading import EXEMPLAR, TOOL
from toolscout.records import Review

if TYPE_CHECKING:
    from toolscout.index.catalogue import Catalogue

_PAGE = 20_000


@dataclass(frozen=True)
class ToolKey:
    """A searchable tool and what its content hangs on: the fingerprint and what is stored beside it."""

    tool_id: str
    server_id: str
    version: str


def tool_keys(catalogue: Catalogue) -> Iterator[ToolKey]:
    """Approved tools ordered by id."""
    columns = (TOOL.c.tool_id, TOOL.c.server_id, TOOL.c.fingerprint, TOOL.c.title, TOOL.c.changed_at)
    after = ""
    while True:
        query = select(*columns).where(TOOL.c.review == str(Review.APPROVED), TOOL.c.tool_id > after)
        with catalogue._database.reading() as connection:
            found = connection.execute(query.order_by(TOOL.c.tool_id).limit(_PAGE)).all()
        for tool_id, server_id, fingerprint, title, changed in found:
            yield ToolKey(tool_id, server_id, f"{fingerprint}\0{title or ''}\0{changed or ''}")
        if len(found) < _PAGE:
            return
        after = found[-1][0]


def exemplars_version(catalogue: Catalogue) -> str:
    """Hash (hex) over all exemplars: the same text, the same exemplars."""
    digest = hashlib.blake2b(digest_size=16)
    after = ""
    while True:
        query = select(EXEMPLAR.c.id, EXEMPLAR.c.query, EXEMPLAR.c.gold).where(EXEMPLAR.c.id > after)
        with catalogue._database.reading() as connection:
            found = connection.execute(query.order_by(EXEMPLAR.c.id).limit(_PAGE)).all()
        for row in found:
            digest.update(repr(tuple(row)).encode("utf-8", "surrogatepass"))
        if len(found) < _PAGE:
            return digest.hexdigest()
        after = found[-1][0]
