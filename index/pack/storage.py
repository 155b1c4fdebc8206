"""A pack as something to search: `toolscout.index.storage.Storage` over its arrays."""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import StorageError
from toolscout.index.bm25 import WordScores
from toolscout.index.names import id_hash
from toolscout.index.pack.facts import PackedRecords, read_server, read_tool
from toolscout.index.pack.file import HINT, PackFile
from toolscout.index.pack.vectors import PackedVectors
from toolscout.index.pack.words import PackedScores, PackedWords
from toolscout.index.products import Products
from toolscout.index.snapshot import Meta
from toolscout.index.words import hashes
from toolscout.records import Call, GoldCall, Server, Tool

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

CACHED = 64
_TEXT = 2000
_WORD = re.compile(r"[^\W\d_][^\W_]*")
_LEAST_LETTERS = 4
_GLUE_BEFORE = frozenset("_-./@\\:'\"#")
_GLUE_AFTER = frozenset("_/@\\:=")
_BEFORE_NAMES = frozenset(
    {"in", "on", "from", "to", "into", "with", "at", "of", "our", "my", "the", "via", "using", "through", "for"}
    | {"inside", "within"}
)
"""Words that a name stands behind."""
_BEFORE_PRODUCTS = _BEFORE_NAMES - {"for", "of", "at", "the"}
"""Those that a product's name stands behind more often than a person's or a place's."""


class PackStorage:
    """The pool of a pack. Records are unpacked as they are asked for, a server with all its tools at once."""

    def __init__(self, pack: PackFile) -> None:
        self.pack, arrays = pack, pack.arrays
        manifest = pack.manifest
        self.arrays: Mapping[str, Array] = arrays
        self._first: npt.NDArray[np.int32] = arrays["server.first"]
        rows = len(arrays["tool.read_only"])
        self.tool_servers = np.repeat(np.arange(manifest.servers, dtype=np.int32), np.diff(self._first))
        self.meta = Meta(
            generation=pack.path.name, format=manifest.format, document_version=manifest.document_version,
            encoder=manifest.encoder, dim=manifest.dim, revision=0, tools=rows, servers=manifest.servers,
            exemplars=manifest.exemplars, embedded=0, seconds=0.0, files={},
        )  # fmt: skip
        rotation = arrays["vector.rotation"]
        self.tools = PackedVectors(arrays["tool.planes"], arrays["tool.scales"], rotation)
        self.servers = PackedVectors(arrays["server.planes"], arrays["server.scales"], rotation)
        self.exemplars = PackedVectors(arrays["exemplar.planes"], arrays["exemplar.scales"], rotation)
        self.words = PackedWords(rows, *(arrays[f"word.{n}"] for n in ("terms", "indptr", "postings", "idf", "scale")))
        self.whole: Mask | None = arrays["tool.whole"].astype(np.bool_)
        self.products = Products.of(arrays)
        self.trust: Floats = arrays["server.trust"]
        none = np.full(manifest.servers, -1, dtype=np.int32)
        self.looks_like: npt.NDArray[np.int32] = arrays.get("server.looks_like", none)
        """Row of the server whose package each one's looks like; -1 for none that is here."""
        self._records = PackedRecords(*(arrays[f"records.{n}"] for n in ("data", "offsets", "dictionary")))
        self._calls = PackedRecords(*(arrays[f"calls.{n}"] for n in ("data", "offsets", "dictionary")))
        self._ids_order = np.argsort(arrays["server.ids"], kind="stable")
        self._entry = lru_cache(maxsize=CACHED)(self._read)

    @classmethod
    def of(cls, pack: PackFile) -> PackStorage:
        """That of an open pack. Raises StorageError where arrays are missing or do not fit together."""
        try:
            storage = cls(pack)
            storage._check()
        except (KeyError, ValueError, TypeError, IndexError) as error:
            raise StorageError(f"The built-in catalog {pack.path.name} is damaged: {error}.", HINT) from None
        return storage

    def _check(self) -> None:
        """Raise ValueError where arrays do not fit together. What they hold is not looked at."""
        manifest, arrays = self.pack.manifest, self.arrays
        rows, servers, calls = self.meta.tools, manifest.servers, manifest.exemplars
        per_row = ("tool.whole", "tool.fingerprints", "tool.names_sorted", "tool.name_order", "tool.scales")
        per_server = ("server.ids", "server.names", "server.packages", "server.states", "server.trust", "server.scales")
        wanted = dict.fromkeys(per_row, rows) | dict.fromkeys(per_server, servers)
        if len(self.looks_like) != servers or (self.looks_like >= servers).any():
            raise ValueError("the array server.looks_like is wrong")
        wanted |= dict.fromkeys(("exemplar.scales", "exemplar.rows", "exemplar.links"), calls)
        wanted |= {"server.first": servers + 1, "records.offsets": servers + 1, "calls.offsets": calls + 1}
        wanted |= {"word.indptr": len(arrays["word.terms"]) + 1}
        if wrong := [name for name, size in wanted.items() if len(arrays[name]) != size]:
            raise ValueError(f"the array {wrong[0]} has a wrong size")
        planes = [len(vectors) == vectors.planes.shape[-1] for vectors in (self.tools, self.servers, self.exemplars)]
        first = len(self.tool_servers) == rows >= manifest.tools
        if not (first and all(planes) and self.tools.rotation.shape[0] == manifest.dim):
            raise ValueError("its arrays do not fit together")

    def held(self, words: WordScores, row: int) -> Collection[int]:
        """See `Storage.held`."""
        assert isinstance(words, PackedScores)
        held: list[int] = words.held(row).tolist()
        return held

    def nearest(self, query: Floats, count: int, allowed: Mask | None) -> Rows | None:
        """See `Storage.nearest`."""
        return self.tools.nearest(query, count, allowed)

    def tool_id(self, row: int) -> str:
        """See `Storage.tool_id`; of a row that stands for a server, that server's id."""
        return self.tool(row).tool_id

    def tool(self, row: int) -> Tool:
        """See `Storage.tool`."""
        number = int(self.tool_servers[row])
        server, tools = self._entry(number)
        place = row - int(self._first[number])
        if self.whole is not None and self.whole[row]:
            return Tool(
                tool_id=server.server_id, server_id=server.server_id, name=server.server_id.rsplit("/", 1)[-1],
                title=server.name, description=server.description,
            )  # fmt: skip
        return read_tool(server, tools[place])

    def server(self, row: int) -> Server:
        """See `Storage.server`."""
        return self._entry(row)[0]

    def is_as_listed(self, tool: Tool) -> bool:
        """Whether a tool is just as it was when the pack was built, and the guard had nothing against it."""
        row = self._row_of(tool.tool_id)
        marks = self.arrays["tool.fingerprints"]
        return row >= 0 and int(marks[row]) == int((tool.fingerprint or tool.computed_fingerprint())[:16], 16) != 0

    def exemplar(self, number: int) -> Call:
        """See `Storage.exemplar`."""
        query, tool_id, arguments = self._calls[number]
        return Call(id=f"pack-{number}", query=query, gold=[GoldCall(tool_id=tool_id, arguments=arguments)])

    def rows_of(self, tool_ids: Sequence[str]) -> Rows:
        """See `Storage.rows_of`."""
        return np.array([self._row_of(tool_id) for tool_id in tool_ids], dtype=np.int64)

    def server_row(self, server_id: str) -> int:
        """A server's row; -1 if it is not here."""
        ids = self.arrays["server.ids"]
        wanted = np.uint64(id_hash(server_id))
        place = int(np.searchsorted(ids, wanted, sorter=self._ids_order))
        row = int(self._ids_order[place]) if place < len(ids) else -1
        return row if row >= 0 and ids[row] == wanted else -1

    def server_ids(self) -> list[str]:
        """See `Storage.server_ids`."""
        return [self.server(i).server_id for i in range(self.meta.servers)]

    def unknown_words(self, text: str) -> tuple[int, int]:
        """Count the words of a text that no tool of the pack has; and those of them that stand where a name would.

        Parts of paths, addresses and identifiers do not count.
        """
        words = list(self._strange(text))
        return len(words), sum(
            (word[0].isupper() and start > 0) or before in _BEFORE_NAMES for word, start, before in words
        )

    def strange_names(self, text: str) -> list[str]:
        """Words of a text that no tool of the pack has and that stand where a product's name would."""
        return [word for word, _, before in self._strange(text) if before in _BEFORE_PRODUCTS]

    def _strange(self, text: str) -> Iterator[tuple[str, int, str]]:
        before = ""
        for match in _WORD.finditer(text[:_TEXT]):
            word, start, end = match.group(), match.start(), match.end()
            glued = text[max(start - 1, 0) : start] in _GLUE_BEFORE or text[end : end + 1] in _GLUE_AFTER
            keys = hashes(word) if len(word) >= _LEAST_LETTERS and not glued else []
            if keys and not self.words.knows(keys[:1]):
                yield word, start, before
            before = word.casefold()

    def close(self) -> None:
        """See `Storage.close`."""
        self._entry.cache_clear()

    def _row_of(self, tool_id: str) -> int:
        if (number := self.server_row(tool_id)) >= 0 and self.whole is not None:
            first = int(self._first[number])
            return first if first < len(self.whole) and self.whole[first] else -1
        end = len(tool_id)
        while (end := tool_id.rfind("/", 0, end)) > 0:  # ids and names may both have slashes
            if (number := self.server_row(tool_id[:end])) >= 0:
                names = [tool[0] for tool in self._entry(number)[1]]
                name = tool_id[end + 1 :]
                return int(self._first[number]) + names.index(name) if name in names else -1
        return -1

    def _read(self, number: int) -> tuple[Server, list[Any]]:
        try:
            told, tools = self._records[number]
            return read_server(told), tools
        except (ValueError, TypeError, zlib.error) as error:
            raise StorageError(f"The built-in catalog {self.pack.path.name} is damaged: {error}.", HINT) from None
