"""What a build reads of a catalogue, where the tools are in no database: files or an index answer for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from toolscout.index.catalogue import ToolKey
from toolscout.records import Call, Server, Tool


class GrownCatalogue:
    """A subclass gives the rows that were there first; ``more`` are added one after the other. No exemplars, and no
    vectors are kept."""

    def __init__(self) -> None:
        self.more: list[tuple[Server, list[Tool]]] = []

    def first_servers(self) -> Iterator[Server]:
        raise NotImplementedError

    def first_keys(self) -> Iterator[ToolKey]:
        raise NotImplementedError

    def first_tools(self) -> Iterator[Tool]:
        """None where their rows are in the index already."""
        return iter(())

    @property
    def revision(self) -> int:
        return 1 + len(self.more)

    def servers(self) -> Iterator[Server]:
        yield from self.first_servers()
        yield from (server for server, _ in self.more)

    def tool_keys(self) -> Iterator[ToolKey]:
        yield from self.first_keys()
        yield from (ToolKey(t.tool_id, t.server_id, "") for _, tools in self.more for t in tools)

    def tools(self, server_id: str | None = None, reviews: object = None) -> Iterator[Tool]:
        if server_id is None:
            yield from self.first_tools()
        yield from (t for _, tools in self.more for t in tools if server_id in (None, t.server_id))

    def exemplars_version(self) -> str:
        return "00" * 16

    def exemplars(self) -> Iterator[Call]:
        return iter(())

    def get_vectors(self, encoder: str, hashes: Sequence[str]) -> dict[str, Any]:
        return {}

    def put_vectors(self, encoder: str, vectors: object) -> None:
        return None
