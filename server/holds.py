"""Tools that must not be answered or called now, whatever the open index says.

An index is a snapshot: a person may have blocked a tool in another process since, and a server may list another text
than the one that was approved. So the catalogue's verdicts are looked at with every call, and an upstream's listing is
held against what was approved before the first call over each connection.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from toolscout.errors import BadInput
from toolscout.index.rows import plain, reads_as, settled, tool_row
from toolscout.records import Review, Tool
from toolscout.server.upstreams.owner import OWNER

if TYPE_CHECKING:
    from toolscout.index.catalogue import Catalogue, Standing

_REMOTE_SECONDS = 0.25
"""A database behind a network is asked for its revision so often at most."""


class Holds:
    """Ids of held tools: by the catalogue as it is now, and by what their servers say of them now.

    ``catalogue`` opens it. The sets belong to one event loop; work is done in threads that no search waits in.
    """

    def __init__(self, catalogue: Callable[[], Catalogue]) -> None:
        self._open = catalogue
        self._catalogue: Catalogue | None = None
        self._judged: frozenset[str] = frozenset()
        self._differing: dict[tuple[str, str], frozenset[str]] = {}
        """By server and by the client whose process of it lists them."""
        self._revision = -1
        self._looked = float("-inf")
        self._there: dict[str, bool] = {}
        self.ids: frozenset[str] = frozenset()
        """Replaced by another set when anything changes, never changed itself."""

    async def look(self, tool_id: str | None = None) -> None:
        """Take in what has been judged since, in whatever process; with a tool also whether it is still there.

        Raises StorageError if the catalogue cannot say.
        """
        if self._catalogue is None:
            self._catalogue = await asyncio.to_thread(self._open)
        catalogue = self._catalogue
        if catalogue.is_local:
            revision = catalogue.revision
        else:
            revision = await self._remote_revision(catalogue)
        if revision != self._revision:
            self._there = {}
            # Read after the revision: what changes in between is looked at once more, not missed.
            self._judged = await asyncio.to_thread(catalogue.held)
            self._revision = revision
            self._unite()
        if tool_id is not None and tool_id not in self._there:
            there = (
                catalogue.has_tool(tool_id)
                if catalogue.is_local
                else await asyncio.to_thread(lambda: catalogue.has_tool(tool_id))
            )
            self._there[tool_id] = there

    async def _remote_revision(self, catalogue: Catalogue) -> int:
        now = time.monotonic()
        if self._revision >= 0 and now - self._looked < _REMOTE_SECONDS:
            return self._revision
        before, self._looked = self._looked, now  # noted before it is asked: of many calls at once one asks
        try:
            return await asyncio.to_thread(lambda: catalogue.revision)
        except BaseException:
            self._looked = before
            raise

    def gone(self, tool_id: str) -> bool:
        """Whether the catalogue has no such tool (any more), whatever an index says that was built before."""
        if tool_id not in self._there and self._catalogue is not None:
            self._there[tool_id] = self._catalogue.has_tool(tool_id)
        return not self._there.get(tool_id, True)

    async def compare(self, server_id: str, listed: Callable[[], Iterable[Tool]]) -> bool:
        """Hold what a server lists now against what was approved; whether the catalogue has something to learn of it.

        Approved tools that say something else are held from now on, and so are those that the catalogue does not have,
        until `recorded` or the next comparison. A server that the catalogue does not know has no tools to call.
        """

        def work() -> tuple[frozenset[str], bool]:
            catalogue = self._open()
            known = catalogue.standings(server_id)
            return held_against(catalogue, known, listed() if known or catalogue.get_server(server_id) else ())

        differing, news = await asyncio.to_thread(work)
        self._differing[server_id, OWNER.get()] = differing
        self._unite()
        return bool(news)

    def recorded(self, server_id: str) -> None:
        """The catalogue has the server's tools as they are: from now on its verdicts hold."""
        self._differing = {key: ids for key, ids in self._differing.items() if key[0] != server_id}
        self._revision = -1
        self._looked = float("-inf")

    def listed_otherwise(self, server_id: str) -> bool:
        """Whether the process of the client that calls lists what was not approved."""
        return bool(self._differing.get((server_id, OWNER.get())))

    def differs(self, tool_id: str) -> bool:
        """Whether its server lists another text than was approved, and the catalogue does not have that yet."""
        return any(tool_id in ids for ids in self._differing.values())

    def __contains__(self, tool_id: str) -> bool:
        return tool_id in self.ids

    def _unite(self) -> None:
        self.ids = self._judged.union(*self._differing.values())


def held_against(
    catalogue: Catalogue, known: Mapping[str, Standing], listed: Iterable[Tool]
) -> tuple[frozenset[str], bool]:
    """Ids of tools that are listed with another text than was approved, or that are not known; and whether there is
    anything that the catalogue lacks: those, or a tool that had changed and is again as it was approved."""
    differing, back = set(), False
    for tool in listed:
        row = _stored(tool)
        standing = known.get(row["tool_id"])
        if standing is not None and row["fingerprint"] != standing.accepted:
            stored = catalogue.get_tool(row["tool_id"])
            row = settled(row, tool_row(stored) if stored is not None else None)
        if standing is None or (
            standing.review is Review.APPROVED and not reads_as(row, standing.accepted, standing.title)
        ):
            differing.add(row["tool_id"])
        elif standing.review is Review.CHANGED and row["fingerprint"] == standing.accepted:
            back = True
    return frozenset(differing), back or bool(differing)


def _stored(tool: Tool) -> dict[str, Any]:
    """What the catalogue would store; no fingerprint where it would refuse the tool."""
    try:
        return tool_row(tool)
    except BadInput:
        return {"tool_id": plain(tool.tool_id), "fingerprint": "", "title": tool.title}
