"""Search over a pack: as over any index, with an eye on who publishes a server and which product a request names."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.index import fusion
from toolscout.index.encoder import Encoder
from toolscout.index.meanings import MeaningParams, meaning_params, means_product
from toolscout.index.names import id_hash, name_hash, squashed
from toolscout.index.pack.file import PackFile
from toolscout.index.pack.storage import PackStorage
from toolscout.index.products import Mention
from toolscout.index.search import Ask, Floats, Ranking, Rows, SearchIndex
from toolscout.records import Server, Tool

NAMED = 1.0
UNSURE = 0.1
"""How much of the weight a product gets that a request names for sure, and one whose name is likely a word there."""

_ALIKE = 64
_SHORTEST = 4
"""Characters of a name that is looked for inside ids."""

_NAMED_ROWS = 200
"""Tools of the named products that are candidates."""


@dataclass(frozen=True)
class Priors:
    """Score that a tool gains for its server: of a product that the request names, and for its publisher and use."""

    product: float = 0.6
    trust: float = 0.25


class PackIndex(SearchIndex):
    """An open pack. Use ``PackIndex.open_pack``."""

    storage: PackStorage
    priors = Priors()

    @classmethod
    def open_pack(cls, path: Path, encoder: Encoder) -> PackIndex:
        """Open a pack for an encoder.

        Raises StorageError if it cannot be read, or was made with another encoder.
        """
        pack = PackFile.open(path).for_encoder(encoder.fingerprint)
        return cls(PackStorage.of(pack), encoder, fusion.params_for(encoder))

    def tools_of(self, server_id: str) -> int:
        """How many tools of a server are known; 0 where it is known as a whole."""
        row = self.server_row(server_id)
        if row < 0:
            return 0
        rows = self.tool_servers == row
        return int(rows.sum() if self.storage.whole is None else (rows & ~self.storage.whole).sum())

    def listed_tools(self, server_id: str) -> list[Tool]:
        """A server's tools; none where it is known as a whole."""
        row = self.server_row(server_id)
        rows = np.flatnonzero(self.tool_servers == row) if row >= 0 else ()
        return [tool for tool in map(self.storage.tool, map(int, rows)) if not tool.is_server]

    def server_of(self, package: str) -> Server | None:
        """The server of a package, written ``registry:name``, or None."""
        rows = np.flatnonzero(self._arrays["server.packages"] == np.uint64(id_hash(package)))
        return self._server(int(rows[0])) if len(rows) else None

    def servers_called(self, text: str, count: int = 8) -> list[Server]:
        """Servers that a person may mean by a name: those of its maker first, then the most used; look-alikes last, and
        never without the original. No id is a name. Where none is called so, those whose id has it in it."""
        products = self.storage.products
        rows = set(np.flatnonzero(self._called(text)).tolist())
        if "/" in text:
            text = ""
        for mention in products.mentioned(text):
            rows.update(products.servers(mention.product).tolist())
        if not rows and len(wanted := squashed(text)) >= _SHORTEST:
            tails = (server_id.rsplit("/", 1)[-1] for server_id in self.storage.server_ids())
            rows = {row for row, tail in enumerate(tails) if wanted in squashed(tail)}
        likes = self.storage.looks_like
        rows.update(int(likes[row]) for row in tuple(rows) if likes[row] >= 0)
        best = sorted(rows, key=lambda row: (-float(self.storage.trust[row]), row))
        found = [self.storage.server(row) for row in best]
        return sorted(found, key=lambda server: (bool(server.looks_like), not server.official))[:count]

    def names_like(self, text: str, count: int = 3) -> list[str]:
        """Names of products with servers, and ids of servers, that are written much like a text."""
        products = self.storage.products
        names = {
            products.name(n).casefold(): products.name(n) for n in range(len(products)) if len(products.servers(n))
        }
        close = [names[one] for one in difflib.get_close_matches(text.casefold(), list(names), n=count, cutoff=0.75)]
        return (close or self._close_servers(text))[:count]

    def mentioned(self, ask: Ask) -> Sequence[Mention]:
        """Products that a request names; where a name is an ordinary word, too, the rest of the request decides."""
        # Asked for several times a request: by the ranking, the candidates and the decision between the layers.
        if id(self) not in ask.mentions:
            ask.mentions[id(self)] = [self._weighed(ask, m) for m in self.storage.products.mentioned(ask.text)]
        return ask.mentions[id(self)]

    def _weighed(self, ask: Ask, mention: Mention) -> Mention:
        if self._meanings is None or not self.storage.products.words[mention.product]:
            return mention
        return replace(mention, sure=means_product(ask, self.storage, mention, self._meanings))

    @cached_property
    def _meanings(self) -> MeaningParams | None:
        return meaning_params(self.encoder)

    def rank(
        self, ask: Ask, allowed: npt.NDArray[np.bool_] | None, depth: int, favoured: Floats | None = None
    ) -> Ranking:
        """As `SearchIndex.rank`, with `Priors`; of the rows that stand for one server the best is kept."""
        bias = self.priors.trust * self.storage.trust
        for mention in self.mentioned(ask):
            servers = self.storage.products.servers(mention.product)
            bias[servers] += np.float32(self.priors.product * (NAMED if mention.sure else UNSURE))
        bias /= np.float32(fusion.FAVOUR)
        return super().rank(ask, allowed, depth, bias if favoured is None else bias + favoured)

    def _in_their_place(self, scores: Floats, rows: Rows | None) -> Floats:
        """The scores, those of a look-alike's tools below the best of the original's."""
        servers = self.tool_servers if rows is None else self.tool_servers[rows]
        alike = self.storage.looks_like[servers]
        if not (alike >= 0).any():
            return scores
        scores = scores.copy()
        for server in np.unique(servers[alike >= 0]):
            originals = scores[servers == self.storage.looks_like[server]]
            if len(originals):
                below = np.nextafter(originals.max(), -np.inf, dtype=scores.dtype)
                scores[servers == server] = np.minimum(scores[servers == server], below)
        return scores

    def _spelled_alike(self, text: str) -> Rows:
        """Tools of the server that an id begins with, and those of just that name: a pack has no letters of names."""
        end, rows = len(text), [self._rows_named(text.rsplit("/", 1)[-1])]
        while (end := text.rfind("/", 0, end)) > 0:
            if (server := self.server_row(text[:end])) >= 0:
                rows.append(np.flatnonzero(self.tool_servers == server))
                break
        return np.concatenate(rows)[: 2 * _ALIKE]

    def _rows_named(self, name: str) -> Rows:
        named, wanted = self._arrays["tool.names_sorted"], np.uint64(name_hash(name))
        first, last = np.searchsorted(named, wanted, "left"), np.searchsorted(named, wanted, "right")
        found: Rows = self._arrays["tool.name_order"][first : min(last, first + _ALIKE)].astype(np.int64)
        return found

    def _candidates(self, ask: Ask, allowed: npt.NDArray[np.bool_] | None) -> Rows | None:
        rows = super()._candidates(ask, allowed)
        named = [self.storage.products.servers(mention.product) for mention in self.mentioned(ask)]
        if rows is None or not any(map(len, named)):
            return rows
        servers = np.zeros(self.meta.servers, dtype=np.bool_)
        servers[np.concatenate(named)] = True
        theirs = servers[self.tool_servers]
        if allowed is not None:
            theirs &= allowed
        near = self.storage.tools.nearest(ask.tool_vector, _NAMED_ROWS, theirs)
        return np.union1d(rows, near)
