"""What a search reads: the arrays and records of one pool of tools, wherever they lie.

`SearchIndex` ranks over any `Storage`: a generation that was built from the catalogue (`GenerationStorage`), or the
pack that comes with Toolscout (`toolscout.index.pack.storage`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from toolscout.index.bm25 import Forward, Inverted, WordScores
from toolscout.index.compressed import read_codes
from toolscout.index.names import id_hash
from toolscout.index.snapshot import Arrays, Meta
from toolscout.index.vectors import FLAT_LIMIT, VectorStore, lookup
from toolscout.records import Call, Server, Tool

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]


class Vectors(Protocol):
    """Rows of vectors."""

    def __len__(self) -> int: ...

    def scores(self, query: Floats, rows: Rows | None = None) -> Floats:
        """Inner products of a query float32 [dim] with all rows, or with the given ones."""


class WordIndex(Protocol):
    """Words of rows."""

    def score(self, query_terms: Sequence[int]) -> WordScores:
        """Score every row for a query's word hashes."""


class ByName(Protocol):
    """Arrays by name."""

    def __getitem__(self, name: str, /) -> Array: ...


class Storage(Protocol):
    """One pool: what `SearchIndex` needs of it.

    ``arrays`` are ``server.ids`` uint64 [servers], ``server.names`` uint64 [servers, n], ``server.states`` int
    [servers], ``tool.read_only`` [tools], ``tool.names_sorted`` uint64 and ``tool.name_order`` [tools],
    ``exemplar.rows`` (of tools, -1: none) and ``exemplar.links`` (of exemplars), both [links].
    """

    @property
    def meta(self) -> Meta:
        """What the pool is, and how large."""

    @property
    def arrays(self) -> ByName:
        """Arrays by name."""

    @property
    def tool_servers(self) -> npt.NDArray[np.int32]:
        """Row of the server of each tool row."""

    @property
    def tools(self) -> Vectors:
        """Vectors of the tools."""

    @property
    def servers(self) -> Vectors:
        """Vectors of the servers."""

    @property
    def exemplars(self) -> Vectors:
        """Vectors of the exemplars."""

    @property
    def words(self) -> WordIndex:
        """Words of the tools."""

    @property
    def whole(self) -> Mask | None:
        """Rows that stand for a server as a whole, whose tools are not known; None: there are none."""

    def held(self, words: WordScores, row: int) -> Collection[int]:
        """Hashes of the request's words that a row has; others of the row may be among them."""

    def nearest(self, query: Floats, count: int, allowed: Mask | None) -> Rows | None:
        """Candidates by their vectors; None where the pool is small enough to score every row."""

    def tool_id(self, row: int) -> str:
        """A tool's id."""

    def tool(self, row: int) -> Tool:
        """A tool's record."""

    def server(self, row: int) -> Server:
        """A server's record."""

    def exemplar(self, number: int) -> Call:
        """A worked call."""

    def rows_of(self, tool_ids: Sequence[str]) -> Rows:
        """Rows of tool ids; -1 for those that are not here."""

    def server_ids(self) -> list[str]:
        """All servers' ids, in order."""

    def close(self) -> None:
        """Let the files go."""


class GenerationStorage:
    """A generation of the index that `build_index` built."""

    whole = None

    def __init__(self, folder: Path, meta: Meta) -> None:
        self.meta, self.folder = meta, folder
        arrays = self.arrays = Arrays(folder)
        self._records = arrays.blobs("tool.records")
        self._id_texts = arrays.blobs("tool.id_texts")
        self._server_records = arrays.blobs("server.records")
        self._exemplar_records = arrays.blobs("exemplar.records")
        self.tools = VectorStore(arrays["tool.codes"], arrays["tool.scales"])
        self.servers = VectorStore(arrays["server.codes"], arrays["server.scales"])
        self.exemplars = VectorStore(arrays["exemplar.codes"], arrays["exemplar.scales"])
        self.tool_servers: npt.NDArray[np.int32] = arrays["tool.servers"]
        self.words = Inverted.load(folder, meta.tools)
        self.forward = Forward.load(folder)
        arrays.load_all(_MAPPED)
        self.compressed = read_codes(folder, meta.dim)

    def held(self, words: WordScores, row: int) -> Collection[int]:
        """See `Storage.held`."""
        return set(self.forward.row(row).tolist())

    def nearest(self, query: Floats, count: int, allowed: Mask | None) -> Rows | None:
        """See `Storage.nearest`. A filtered pool is always scored whole: it must not come up short."""
        if allowed is not None:
            return np.flatnonzero(allowed)
        if self.compressed is None or self.meta.tools <= FLAT_LIMIT:
            return None
        return self.compressed.nearest(query, count, self.tools)

    def tool_id(self, row: int) -> str:
        """See `Storage.tool_id`."""
        return self._id_texts.text(row)

    def tool(self, row: int) -> Tool:
        """See `Storage.tool`."""
        return Tool.model_validate(self._records.json(row))

    def server(self, row: int) -> Server:
        """See `Storage.server`."""
        return Server.model_validate(self._server_records.json(row))

    def exemplar(self, number: int) -> Call:
        """See `Storage.exemplar`."""
        return Call.model_validate(self._exemplar_records.json(number))

    def rows_of(self, tool_ids: Sequence[str]) -> Rows:
        """See `Storage.rows_of`."""
        wanted = np.array([id_hash(tool_id) for tool_id in tool_ids], dtype=np.uint64)
        return lookup(self.arrays["tool.ids_sorted"], self.arrays["tool.id_order"], wanted)

    def server_ids(self) -> list[str]:
        """See `Storage.server_ids`."""
        return [str(self._server_records.json(i)["server_id"]) for i in range(self.meta.servers)]

    def close(self) -> None:
        """See `Storage.close`. Records cannot be read any more afterwards."""
        self.arrays = Arrays(self.folder)


_MAPPED = (
    "server.ids",
    "server.names",
    "server.states",
    "tool.ids_sorted",
    "tool.id_order",
    "tool.name_order",
    "tool.names",
    "tool.names_sorted",
    "tool.read_only",
    "tool.trigrams",
    "exemplar.links",
    "exemplar.rows",
)
