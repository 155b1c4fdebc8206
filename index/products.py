"""Products that a request names: which ones, and whether a server of theirs is at hand.

A request that names a product wants that product: a tool of another one is no substitute. Names come from a lexicon of
products, services and programs (`index/pack/products.tsv`), and each is linked to the servers whose id, name, package
or publisher has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.index.snapshot import Blobs
from toolscout.index.words import fold, hash64, split_identifier
from toolscout.records import Server

Array = npt.NDArray[Any]

_TOKEN = re.compile(r"\w[\w+#]*|[^\W_]", re.UNICODE)
_ADDRESS = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_STOP = re.compile(r"[.,;:!?]\s|\n")
"""What ends a name between two of its words."""

_LONGEST = 4
_SHORT = 2
_LONG = 6
"""Letters of a name in several words from which on it is also recognized written as one."""

_TEXT = 2000
_GENERIC = frozenset(
    {"mcp", "server", "servers", "tool", "tools", "api", "client", "js", "ts", "py", "node", "python", "the", "for"}
    | {"of", "and", "ai", "agent", "official", "app", "cli", "io", "dev", "model", "context", "protocol", "local"}
    | {"remote", "simple", "my", "service"}
)
"""Words of a package's name that say nothing of the product."""


@dataclass(frozen=True)
class Product:
    """A line of the lexicon. ``word``: the name is an ordinary word, too, such as Notion or Box."""

    name: str
    aliases: tuple[str, ...] = ()
    word: bool = False


@dataclass(frozen=True)
class Mention:
    """A product in a request. ``sure``: it cannot be an ordinary word there. ``places``: where it is named."""

    product: int
    sure: bool
    places: tuple[tuple[int, int], ...] = field(default=(), compare=False)


def read_products(path: Path) -> list[Product]:
    """Read a lexicon: a line a product, name, aliases between bars, and ``word`` or ``name``, between tabs."""
    found = []
    for line in path.read_text("utf-8").splitlines():
        name, aliases, kind = [*line.split("\t"), "", ""][:3]
        if name:
            found.append(Product(name, tuple(a for a in aliases.split("|") if a), kind == "word"))
    return found


def pack_products(
    products: Sequence[Product], servers: Sequence[Server], publishers: Sequence[str]
) -> dict[str, Array]:
    """Arrays of a lexicon and of the servers (in the pack's order) that each product has; `Products` reads them."""
    hashes, owners, exact = _aliases(products)
    lexicon = Products(
        Blobs.of(p.name for p in products), hashes, owners, exact, np.array([p.word for p in products], dtype=np.uint8)
    )
    having: list[list[int]] = [[] for _ in products]
    for row, (server, publisher) in enumerate(zip(servers, publishers, strict=True)):
        for product in lexicon.of_server(server, publisher):
            having[product].append(row)
    return {
        "names.data": lexicon.names.data,
        "names.offsets": lexicon.names.offsets,
        "hashes": hashes,
        "owners": owners,
        "exact": exact,
        "words": lexicon.words,
        "indptr": np.concatenate([[0], np.cumsum([len(h) for h in having])]).astype(np.int32),
        "servers": np.array([row for rows in having for row in rows], dtype=np.int32),
    }


def _aliases(products: Sequence[Product]) -> tuple[Array, Array, Array]:
    """Sorted hashes of all names and aliases, the product of each, and 1 where only this very spelling counts."""
    known: dict[int, tuple[int, int]] = {}
    for number, product in enumerate(products):
        for text in (product.name, *product.aliases):
            key = _key(text)
            squashed = key.replace(" ", "")
            if key:
                known.setdefault(hash64(key), (number, int(len(squashed) <= _SHORT)))
            if " " in key and len(squashed) >= _LONG:  # "homeassistant" for Home Assistant
                known.setdefault(hash64(squashed), (number, 0))
    hashes = np.array(sorted(known), dtype=np.uint64)
    owners = np.array([known[int(h)][0] for h in hashes], dtype=np.int32)
    return hashes, owners, np.array([known[int(h)][1] for h in hashes], dtype=np.uint8)


class Products:
    """A lexicon of a pack, with the servers of each product."""

    def __init__(
        self,
        names: Blobs,
        hashes: Array,
        owners: Array,
        exact: Array,
        words: Array,
        indptr: Array | None = None,
        servers: Array | None = None,
    ) -> None:
        self.names, self._hashes, self._owners, self._exact, self.words = names, hashes, owners, exact, words
        self._indptr, self._servers = indptr, servers

    @staticmethod
    def of(arrays: Mapping[str, Array], prefix: str = "product.") -> Products:
        """Those of a pack's arrays."""
        parts = {name.removeprefix(prefix): values for name, values in arrays.items() if name.startswith(prefix)}
        names = Blobs(parts.pop("names.data"), parts.pop("names.offsets"))
        return Products(names, **parts)

    def __len__(self) -> int:
        return len(self.names)

    def name(self, product: int) -> str:
        """A product's name."""
        return self.names.text(product)

    def servers(self, product: int) -> Array:
        """Rows of the pack's servers that a product has."""
        if self._indptr is None or self._servers is None:
            return np.zeros(0, dtype=np.int32)
        return self._servers[self._indptr[product] : self._indptr[product + 1]]

    def mentioned(self, text: str) -> list[Mention]:
        """Products that a request names, in its order; a longer name hides the shorter ones within it."""
        tokens = list(_TOKEN.finditer(_ADDRESS.sub(lambda a: " " * len(a[0]), text[:_TEXT])))
        found: dict[int, bool] = {}
        places: dict[int, list[tuple[int, int]]] = {}
        place = 0
        while place < len(tokens):
            for size in range(min(_LONGEST, len(tokens) - place), 0, -1):
                first, last = tokens[place], tokens[place + size - 1]
                written = first.string[first.start() : last.end()]
                apart = any(
                    _STOP.search(written, a.end() - first.start(), b.start() - first.start())
                    for a, b in pairwise(tokens[place : place + size])
                )
                product = None if apart else self._called(written)
                if product is not None:
                    sure = not self.words[product] or (written[0].isupper() and first.start() > 0)
                    found[product] = found.get(product, False) or bool(sure)
                    places.setdefault(product, []).append((first.start(), last.end()))
                    place += size - 1
                    break
            place += 1
        return [Mention(product, sure, tuple(places[product])) for product, sure in found.items()]

    def of_server(self, server: Server, publisher: str = "") -> set[int]:
        """Products that a server is for, as its id, name, package and publisher say."""
        found: set[int] = set()
        for text in {
            server.server_id.rsplit("/", 1)[-1],
            server.name,
            server.title or "",
            server.install.package or "",
        }:
            for pieces in _readings(text):
                parts = [part for part in pieces if part.casefold() not in _GENERIC]
                for start, size, product in self._runs(parts):
                    whole = size == len(parts) or (start == 0 and len(parts) - size < _SHORT)
                    if whole or not self.words[product]:
                        found.add(product)
        theirs = self._called(publisher) if publisher else None
        return found if theirs is None else found | {theirs}

    def _runs(self, parts: Sequence[str]) -> Iterator[tuple[int, int, int]]:
        for start in range(len(parts)):
            for size in range(min(_LONGEST, len(parts) - start), 0, -1):
                product = self._called(" ".join(parts[start : start + size]), any_case=True)
                if product is not None:
                    yield start, size, product
                    break

    def _called(self, text: str, *, any_case: bool = False) -> int | None:
        """The product of this name."""
        wanted = np.uint64(hash64(_key(text)))
        place = int(np.searchsorted(self._hashes, wanted))
        if place == len(self._hashes) or self._hashes[place] != wanted:
            return None
        product = int(self._owners[place])
        if self._exact[place] and (any_case or not text.isupper()):
            return None
        return product


def _key(text: str) -> str:
    """A name without case and punctuation, its words apart."""
    return " ".join(re.findall(r"[^\W_]+|[+#]+", fold(text)))


def _readings(text: str) -> list[list[str]]:
    """A name's words, capitals within them left alone (``GitHub``) and taken for the beginnings of words."""
    pieces = [piece for piece in re.split(r"[\W_]+", text) if piece]
    split = [part for piece in pieces for part in ([piece] if piece.islower() else split_identifier(piece))]
    return [pieces] if split == pieces else [pieces, split]
