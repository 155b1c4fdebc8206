"""One search over two layers: a person's own servers, and the pack of all that could be installed.

The own servers are judged first and as the small pool that they are; then the pack. One fitted decision joins the two:
an installed tool that serves the request stands first, whatever twins the pack holds; the pack leads where the request
names a product that is not installed, or where nothing installed serves it. The pack is also the yardstick that a small
pool lacks: an installed tool that is far from the request, beside one of the pack that is near, is likely no fit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput
from toolscout.index import fusion
from toolscout.index.encoder import Encoder
from toolscout.index.encoder_params import read_encoder_params
from toolscout.index.names import id_hash
from toolscout.index.pack.search import PackIndex
from toolscout.index.search import (
    Answer,
    Ask,
    Filters,
    Hit,
    Place,
    Ranking,
    SearchIndex,
    ToolRequest,
    milliseconds_since,
)
from toolscout.index.words import hashes
from toolscout.records import Call, Server, Tool

Floats = npt.NDArray[np.float32]
Mask = npt.NDArray[np.bool_]

PARAMS_FILE = "layers.json"

_MAKERS_AMONG = 40
"""Best rows of the pack among which the maker's own server is looked for."""

SURE = 0.8
"""Probability that the own layer leads from which on nothing of the pack is offered beside it."""

JOIN = ("own", "lead", "named_here", "named_elsewhere", "word_here", "word_elsewhere")
"""Features of the decision whether the own layer leads; see `join_features`."""

BOX = ("tool", "server", "coverage", "nothing", "chance", "words", "length", "named", "strange", "strange_name", "kind")
"""Features of the probability that the pack serves a request; see `box_features`. ``absent`` is weighed apart from
them."""


@dataclass(frozen=True)
class LayerParams:
    """Fitted numbers of the join: two logistic regressions, and the probabilities from which each layer is offered."""

    join: dict[str, float] = field(default_factory=lambda: {"own": 1.0, "lead": 8.0})
    join_bias: float = 0.0
    join_at: float = 0.5
    box: dict[str, float] = field(default_factory=dict)
    box_bias: float = 0.0
    box_at: float = 0.3
    kind: list[float] = field(default_factory=list)
    """Weights over a request's vector, with the constant last: log odds that software serves such a request at all."""

    fitted: str = "not fitted"


def layer_params(encoder: Encoder) -> LayerParams:
    """Read the parameters of the encoder's folder; unfitted ones where it has none.

    Raises StorageError if they cannot be read.
    """
    return read_encoder_params(encoder, PARAMS_FILE, LayerParams) or LayerParams()


@dataclass(frozen=True)
class Named:
    """Products that a request names: how many of installed servers, of servers in the pack alone, and of none.

    Those whose name is an ordinary word, too, count as ``word_``.
    """

    here: int = 0
    elsewhere: int = 0
    nowhere: int = 0
    word_here: int = 0
    word_elsewhere: int = 0
    first: str = ""
    """The first one that is named for sure and not installed."""
    strange: str = ""
    """A word that no tool in either layer has, where a product's name would stand."""


@dataclass
class Judged:
    """One request in both layers."""

    own: Ranking | None
    box: Ranking
    named: Named
    own_leads: float
    box_serves: float


def join_features(own: Ranking, box: Ranking, named: Named) -> dict[str, float]:
    """What decides whether the own layer leads: its own log odds, how far it is ahead, which products are named."""
    mine = _cosine(own)
    return {
        "own": fusion.log_odds(own.probability),
        "lead": mine - _cosine(box),
        "named_here": float(named.here > 0),
        "named_elsewhere": float((named.elsewhere + named.nowhere > 0 or named.strange != "") and not named.here),
        "word_here": float(named.word_here > 0 and not named.here),
        "word_elsewhere": float(named.word_elsewhere > 0 and not named.here + named.word_here),
    }


def box_features(box: Ranking, named: Named, strange: tuple[int, int], kind: Sequence[float]) -> dict[str, float]:
    """What decides whether the pack serves a request: the shape of its ranking, and which products are named.

    Args:
        strange: how many words no tool in the pack has, and how many of them stand where a name would
            (`PackStorage.unknown_words`).
        kind: `LayerParams.kind`.
    """
    words, known = box.ask.words, named.here + named.elsewhere
    return {
        **{name: box.shape.get(name, 0.0) for name in ("tool", "server", "coverage", "nothing")},
        "chance": box.probability,
        "words": float(words.scores.max(initial=0.0)) / max(float(words.idf.sum()), 1e-6),
        "length": math.log1p(len(words.terms)),
        "named": float(known > 0),
        "absent": float(named.nowhere > 0 and not known),
        "strange": float(strange[0]),
        "strange_name": float(strange[1]),
        "kind": float(box.ask.tool_vector @ np.asarray(kind[:-1]) + kind[-1]) if kind else 0.0,
    }


def _cosine(ranking: Ranking) -> float:
    return float(ranking.signals["tool"][0]) if len(ranking.rows) else 0.0


class LayeredIndex:
    """Both layers, open for questions; the same questions as `SearchIndex` takes.

    Args:
        own: the index of the person's own servers; None while there is none.
        box: the pack.
        installed: ids and packages (``registry:package``) of own servers: the pack's copies of them are hidden.
        failing: servers of the pack that are here, too, and could not be listed, with their names here.
    """

    def __init__(
        self,
        own: SearchIndex | None,
        box: PackIndex,
        params: LayerParams,
        installed: Collection[str] = (),
        failing: Mapping[str, str] | None = None,
    ) -> None:
        self.own, self.box, self.params = own, box, params
        self.encoder = box.encoder
        self.meta = own.meta if own is not None else box.meta
        self.failing = dict(failing or {})
        self.visible = self._without(installed)
        self._here = self._own_products()

    def __len__(self) -> int:
        return (len(self.own) if self.own is not None else 0) + self.box.storage.pack.manifest.tools

    @property
    def revision(self) -> int:
        """The catalogue's revision when the own index was built."""
        return self.own.revision if self.own is not None else 0

    def at_home(self, products: frozenset[int]) -> None:
        """Say which products are installed, where there is no own index to tell."""
        self._here = products

    # --- lookups: the own layer first --------------------------------------------------------------------------------

    def get_tool(self, tool_id: str) -> Tool | None:
        """A tool by its id, or None."""
        return next((tool for layer in self._layers() if (tool := layer.get_tool(tool_id)) is not None), None)

    def get_server(self, server_id: str) -> Server | None:
        """A server by its id, or None."""
        return next((found for layer in self._layers() if (found := layer.get_server(server_id)) is not None), None)

    def known(self, tool_ids: Collection[str]) -> frozenset[str]:
        """Those of the ids that are in either layer."""
        return frozenset().union(*(layer.known(tool_ids) for layer in self._layers()))

    def knows_server(self, name: str) -> bool:
        """Whether a server has this id or name."""
        return any(layer.knows_server(name) for layer in self._layers())

    def similar_tool_ids(self, text: str, k: int = 5) -> list[str]:
        """Ids of own tools that are written most alike, best first; of the pack's where the server is one of its."""
        found = self.own.similar_tool_ids(text, k) if self.own is not None else []
        return found or self.box.similar_tool_ids(text, k)

    def exemplars_near(self, text: str, count: int) -> list[Call]:
        """Up to ``count`` exemplars nearest to a text, own ones first."""
        found = self.own.exemplars_near(text, count) if self.own is not None else []
        return (found + self.box.exemplars_near(text, count))[:count]

    def largest_servers(self, count: int) -> list[str]:
        """Ids of own servers with the most tools, most first."""
        return self.own.largest_servers(count) if self.own is not None else []

    def close(self) -> None:
        """Let the files go."""
        for layer in self._layers():
            layer.close()

    def warm(self) -> None:
        """Load the encoder, and touch what a search reads."""
        self.find("warm up", dynamic=False, abstain=False)

    # --- finding -----------------------------------------------------------------------------------------------------

    def find(
        self,
        query: str | None = None,
        *,
        requests: Sequence[ToolRequest] = (),
        limit: int = 5,
        filters: Filters | None = None,
        exemplars: int = 0,
        dynamic: bool = True,
        abstain: bool = True,
        favour: frozenset[str] = frozenset(),
        priors: Floats | None = None,
    ) -> Answer:
        """Search both layers: as `SearchIndex.find`, whose arguments they are. ``favour`` and ``priors`` are of own
        servers."""
        filters = filters or Filters()
        own_filters, box_filters = self._shared(filters)
        if box_filters is None:
            assert self.own is not None
            return self.own.find(
                query, requests=requests, limit=limit, filters=own_filters, exemplars=exemplars, dynamic=dynamic,
                abstain=abstain, favour=favour, priors=priors,
            )  # fmt: skip
        started = time.perf_counter()
        asks = self.box.asks(query, requests, limit)
        own_mask = self.own.allowed(own_filters) if self.own is not None and own_filters is not None else None
        box_mask = self.visible if (mask := self.box.allowed(box_filters)) is None else mask & self.visible
        depth = max(2 * limit, 3)
        favoured = self.own.favoured(favour, priors) if self.own is not None else None
        abstain = abstain and not filters.servers
        judged = []
        for ask in asks:
            own = None
            if self.own is not None and own_filters is not None and len(self.own):
                own = self.own.rank(self.own.asked_here(ask), own_mask, depth, favoured)
            judged.append(self.judge(ask, own if own is not None and len(own.rows) else None,
                                     self.box.rank(ask, box_mask, max(depth, _MAKERS_AMONG))))  # fmt: skip
        return self._answer(judged, limit, exemplars, dynamic, abstain, len(requests), query is not None, started)

    def judge(self, ask: Ask, own: Ranking | None, box: Ranking) -> Judged:
        """Decide between the layers for one request."""
        named = self.named(ask)
        leads = 0.0
        if own is not None:
            leads = fusion.logistic(self.params.join_bias, self.params.join, join_features(own, box, named))
        serves = box.probability
        if self.params.box:
            features = box_features(box, named, self.box.storage.unknown_words(ask.text), self.params.kind)
            serves = fusion.logistic(self.params.box_bias, self.params.box, features)
        if named.elsewhere or named.here:  # who names a product that is there is shown it, whatever else is asked
            serves = max(serves, self.params.box_at)
        if box.shape.get("name"):
            serves = max(serves, 0.99)
        return Judged(own, box, named, leads, serves)

    def named(self, ask: Ask) -> Named:
        """Products that a request names, by where their servers are."""
        products = self.box.storage.products
        counts = dict.fromkeys(("here", "elsewhere", "nowhere", "word_here", "word_elsewhere"), 0)
        first = ""
        for mention in self.box.mentioned(ask):
            if mention.product in self._here:
                place = "here"
            else:
                place = "elsewhere" if len(products.servers(mention.product)) else "nowhere"
                if mention.sure:
                    first = first or products.name(mention.product)
            if mention.sure:
                counts[place] += 1
            elif place != "nowhere":
                counts[f"word_{place}"] += 1
        return Named(**counts, first=first, strange=self._strange(ask.text))

    def _strange(self, text: str) -> str:
        """The first word that is known to neither layer and stands where a product's name would."""
        for name in self.box.storage.strange_names(text):
            if self.own is None or not self.own.storage.words.score(hashes(name)).scores.any():
                return name
        return ""

    # --- inside ------------------------------------------------------------------------------------------------------

    def _layers(self) -> list[SearchIndex]:
        return [self.box] if self.own is None else [self.own, self.box]

    def _without(self, installed: Collection[str]) -> Mask:
        """Rows of the pack whose server is not installed, nor looks like one that is."""
        known = np.array([id_hash(text) for text in installed], dtype=np.uint64)
        arrays = self.box.storage.arrays
        hidden = np.isin(arrays["server.ids"], known) | np.isin(arrays["server.packages"], known)
        likes = self.box.storage.looks_like
        hidden |= (likes >= 0) & hidden[likes]
        visible: Mask = ~hidden[self.box.tool_servers]
        return visible

    def _own_products(self) -> frozenset[int]:
        """Products of the own servers."""
        products = self.box.storage.products
        own = range(self.own.meta.servers) if self.own is not None else ()
        servers = [self.own.storage.server(row) for row in own] if self.own is not None else []
        servers += [server for name in self.failing if (server := self.box.get_server(name)) is not None]
        return frozenset(product for server in servers for product in products.of_server(server))

    def _shared(self, filters: Filters) -> tuple[Filters | None, Filters | None]:
        """The filters of each layer; None for a layer that they leave out."""
        ready = filters.states is not None or filters.among is not None
        if filters.servers is None:
            return filters, None if ready and self.own is not None else filters
        mine = frozenset(n for n in filters.servers if self.own is not None and self.own.knows_server(n))
        others = frozenset(n for n in filters.servers - mine if self.box.knows_server(n))
        unknown = sorted(filters.servers - mine - others)
        if unknown:
            raise BadInput(f"There is no server {unknown[0]!r}.", "See `toolscout list`, or search without it.")
        own = replace(filters, servers=mine) if mine else None
        return own, replace(filters, servers=others) if others and not ready else None if mine else filters

    def _answer(
        self,
        judged: Sequence[Judged],
        limit: int,
        exemplars: int,
        dynamic: bool,
        abstain: bool,
        requests: int,
        with_query: bool,
        started: float,
    ) -> Answer:
        several = requests + with_query > 1
        share = max(1, -(-limit // max(1, len(judged))))
        chosen: list[list[tuple[SearchIndex, Place]]] = []
        doubtful = []
        for one in judged:
            places = self._places(one, share, dynamic, abstain)
            if places:
                chosen.append(places)
                doubtful.append(max(one.own_leads, one.box_serves) < fusion.DOUBT)
        best = max((max(one.own_leads, one.box_serves) for one in judged), default=0.0)
        absent = next((one.named.first for one in judged if one.named.first and not one.named.here), "")
        if not chosen:
            strange = next((one.named.strange for one in judged if one.named.strange), "")
            nearest = [hit for one in judged for hit in self._hits(self._nearest(one), exemplars, several)][:3]
            return Answer([], True, best, nearest, milliseconds_since(started), absent=absent, strange=strange)
        hits = self._hits(_in_turns(chosen, max(limit, len(chosen)) * (2 if dynamic else 1)), exemplars, several)
        served = {number for hit in hits for number in hit.requests}
        unserved = [n for n in range(1, requests + 1) if n not in served] if several else []
        return Answer(hits, False, best, [], milliseconds_since(started), all(doubtful), unserved, absent)

    def _places(self, one: Judged, share: int, dynamic: bool, abstain: bool) -> list[tuple[SearchIndex, Place]]:
        """What one request is offered, best first."""

        def first(index: SearchIndex, ranking: Ranking, most: int) -> list[tuple[SearchIndex, Place]]:
            count = fusion.cut(ranking.scores, most, index.params) if dynamic else most
            return [(index, Place(ranking, n, {ranking.ask.number})) for n in range(min(count, len(ranking.rows)))]

        spelled = one.own is not None and bool(one.own.shape.get("name"))
        own_leads = one.own is not None and (spelled or one.own_leads >= self.params.join_at)
        box_serves = one.box_serves >= self.params.box_at or bool(one.box.shape.get("name"))
        if not abstain and not own_leads and not box_serves:
            box_serves = len(one.box.rows) > 0
            own_leads = not box_serves
        found: list[tuple[SearchIndex, Place]] = []
        if own_leads and one.own is not None and self.own is not None:
            found = first(self.own, one.own, share)
        if box_serves and len(found) < share and not (found and (spelled or one.own_leads >= SURE)):
            offered = first(self.box, one.box, share - len(found))
            found += offered + self._makers(one.box, len(offered))
        return found

    def _makers(self, ranking: Ranking, count: int) -> list[tuple[SearchIndex, Place]]:
        """The best that makers themselves publish for products that are named for sure and not installed, where none
        of it is among the first ``count``: many small servers for one product shall not hide its own."""
        products = self.box.storage.products
        named = [m.product for m in self.box.mentioned(ranking.ask) if m.sure and m.product not in self._here]
        if not named:
            return []
        servers = self.box.tool_servers[ranking.rows]
        theirs = np.flatnonzero(np.isin(servers, np.concatenate([products.servers(product) for product in named])))
        place = next((int(n) for n in theirs if self.box.storage.server(int(servers[n])).official), -1)
        return [(self.box, Place(ranking, place, {ranking.ask.number}))] if place >= count else []

    def _nearest(self, one: Judged) -> list[tuple[SearchIndex, Place]]:
        own = [(self.own, one.own)] if self.own is not None and one.own is not None else []
        return [
            (index, Place(r, n, {r.ask.number}))
            for index, r in [*own, (self.box, one.box)]
            for n in range(min(2, len(r.rows)))
        ]

    @staticmethod
    def _hits(places: Sequence[tuple[SearchIndex, Place]], exemplars: int, several: bool) -> list[Hit]:
        return [hit for index, place in places for hit in index.hits([place], exemplars, several)]


def _in_turns(chosen: Sequence[Sequence[tuple[SearchIndex, Place]]], most: int) -> list[tuple[SearchIndex, Place]]:
    """The first of each request, then the second of each, ...: every tool once, ``most`` in all."""
    taken: dict[tuple[int, int], tuple[SearchIndex, Place]] = {}
    for turn in range(max(map(len, chosen))):
        for places in chosen:
            if turn < len(places):
                index, place = places[turn]
                key = id(index), int(place.ranking.rows[place.place])
                taken.setdefault(key, (index, place))[1].requests.update(place.requests)
    return list(taken.values())[:most]
