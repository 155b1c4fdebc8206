"""Search over a snapshot: a request in, the tools that serve it out, or the word that none does.

    index = SearchIndex.open(settings.index_dir, settings=settings)
    answer = index.find("convert 20 euros to yen")
    answer.hits[0].tool_id

Every signal of a candidate (``fusion``) is computed exactly; up to ``vectors.FLAT_LIMIT`` tools all of them are
candidates, beyond that the nearest by vectors, words, names and exemplars. An open index is immutable and may be used
from several threads; when ``snapshot.current`` names another generation, open that one.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput, StorageError
from toolscout.index import fusion, snapshot
from toolscout.index.bm25 import WordScores, best_rows
from toolscout.index.document import query_text, server_name
from toolscout.index.encoder import Encoder, make_encoder
from toolscout.index.explain import Explainer
from toolscout.index.names import id_hash, mentions, name_hash, similarity, trigram_signature
from toolscout.index.storage import GenerationStorage, Storage
from toolscout.index.words import has_words, hashes
from toolscout.records import Call, Server, ServerState, Tool

if TYPE_CHECKING:
    from toolscout.index.products import Mention
    from toolscout.settings import Settings

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

_NO_ROWS: Rows = np.zeros(0, dtype=np.int64)

MAX_LIMIT = 50
MAX_REQUESTS = 16
CANDIDATES = 300
"""Candidates a signal proposes in a large pool."""

COVERED = 3
"""Over how many of the best tools the coverage of the request's words is taken."""

NEAREST = 3

_REPEATS = 4
"""So many times as many places are looked at where several rows may stand for one server."""

_ALIKE = 64
"""Ids that are compared with one that is not known, of each kind."""

STATES = tuple(ServerState)


@dataclass(frozen=True)
class ToolRequest:
    """A structured request: what kind of server, what kind of operation (MCP-Zero, arXiv 2506.01056)."""

    server: str = ""
    tool: str = ""


@dataclass(frozen=True)
class Filters:
    """Which tools may be answered at all; applied before ranking, so that an answer is never under-filled.

    ``servers`` are ids, or names as people say them; ``states`` are values of ``ServerState``; ``among`` are ids again,
    of which any may be unknown; ``without`` are ids of tools that shall not be answered, known or not.
    """

    servers: frozenset[str] | None = None
    read_only: bool = False
    states: frozenset[str] | None = None
    among: frozenset[str] | None = None
    without: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        return self != Filters()


@dataclass
class Hit:
    """One tool of an answer. ``tool`` and ``server`` are read from the snapshot when they are first asked for."""

    tool_id: str
    server_id: str
    score: float
    why: list[str]
    exemplars: list[Call]
    requests: list[int]
    """Which of several requests it serves: 1 is the first structured one, 0 the query. Empty where there was one."""
    _index: SearchIndex = field(repr=False, compare=False)
    _row: int = field(repr=False, compare=False)

    @cached_property
    def tool(self) -> Tool:
        """The tool's record."""
        return self._index._tool(self._row)

    @cached_property
    def server(self) -> Server:
        """Its server's record."""
        return self._index._server(int(self._index.tool_servers[self._row]))


@dataclass
class Answer:
    """``hits`` best first, empty when nothing fits (``no_match``); then ``nearest`` is what came closest, to say so.

    ``probability`` is the calibrated chance that one of the first five tools serves the request; of several requests,
    the highest. A request without a letter or digit matches nothing. ``doubtful``: the hits likelier do not fit than
    fit.
    """

    hits: list[Hit]
    no_match: bool
    probability: float
    nearest: list[Hit]
    took_ms: float
    doubtful: bool = False
    unserved: list[int] = field(default_factory=list)
    """Those of several requests that no hit serves, numbered as in `Hit.requests`; the query is none of them, as it
    may say the same in other words."""
    absent: str = ""
    """A product that the request names and that no installed server is of."""
    failing: list[str] = field(default_factory=list)
    """Configured servers that would have been among the hits, could their tools be listed."""
    strange: str = ""
    """A word that no tool knows, where a product's name would stand."""


@dataclass
class Ask:
    """One request, encoded."""

    text: str
    tool_vector: Floats
    server_vector: Floats
    words: WordScores
    number: int = 0
    """1 for the first structured request, 0 for the query."""
    exemplars: dict[int, Floats] = field(default_factory=dict, repr=False, compare=False)
    """Its cosines with all exemplars of an index, by that index's identity: they are looked at twice."""
    mentions: dict[int, list[Mention]] = field(default_factory=dict, repr=False, compare=False)
    """Products that it names, by the identity of the pack's index that knows them."""


@dataclass
class Ranking:
    """The best candidates of one request: ``rows`` and ``scores`` descending, each signal of them, ``shape``."""

    ask: Ask
    rows: Rows
    scores: Floats
    signals: dict[str, Floats]
    shape: dict[str, float]
    probability: float


class SearchIndex:
    """One generation of the index, open for questions. Use ``SearchIndex.open``."""

    def __init__(self, storage: Storage, encoder: Encoder, params: fusion.SearchParams) -> None:
        self.storage, self.encoder, self.params = storage, encoder, params
        self.meta = storage.meta
        self.tool_servers = storage.tool_servers
        self._arrays = storage.arrays

    @classmethod
    def open(
        cls,
        index_dir: Path,
        encoder: Encoder | None = None,
        settings: Settings | None = None,
        *,
        params: fusion.SearchParams | None = None,
    ) -> SearchIndex:
        """Open the current generation. Cheap: arrays are mapped, the encoder loads at the first query.

        ``params`` are those in the encoder's folder if none are given.

        Raises StorageError if there is no index, it is damaged, or it was built with another encoder.
        """
        if encoder is None:
            if settings is None:
                from toolscout.settings import load_settings

                settings = load_settings()
            encoder = make_encoder(settings)
        params = params or fusion.params_for(encoder)
        for attempt in range(5):
            name = snapshot.current(index_dir)
            if name is None:
                raise StorageError(f"There is no search index in {index_dir}.", snapshot.REBUILD)
            try:
                meta = snapshot.read_meta(index_dir / name)
                if meta.encoder != encoder.fingerprint:
                    raise StorageError("The search index was built with another encoder.", snapshot.REBUILD)
                return cls(GenerationStorage(index_dir / name, meta), encoder, params)
            except FileNotFoundError as error:
                # Two builds may have gone by between reading CURRENT and mapping: then there is a newer one.
                if attempt == 4 or snapshot.current(index_dir) == name:
                    raise StorageError(f"The search index is incomplete: {error}.", snapshot.REBUILD) from None
            except (OSError, ValueError) as error:
                raise StorageError(f"The search index cannot be read: {error}.", snapshot.REBUILD) from None
        raise AssertionError("unreachable")

    @property
    def generation(self) -> str:
        """Name of the generation."""
        return self.meta.generation

    @property
    def revision(self) -> int:
        """The catalogue's revision when the build began."""
        return self.meta.revision

    def __len__(self) -> int:
        return self.meta.tools

    def largest_servers(self, count: int) -> list[str]:
        """Ids of the servers with the most tools, most first."""
        sizes = np.bincount(self.tool_servers, minlength=self.meta.servers)
        return [self._server(int(row)).server_id for row in np.argsort(-sizes, kind="stable")[:count]]

    def close(self) -> None:
        """Let the files go. Hits of this index cannot be read any more afterwards."""
        self.storage.close()

    def rows_of(self, tool_ids: Collection[str]) -> Rows:
        """Rows of tool ids, in order; those that are not here are left out."""
        rows = self.storage.rows_of(list(tool_ids))
        return rows[rows >= 0]

    # --- lookups -----------------------------------------------------------------------------------------------------

    def get_tool(self, tool_id: str) -> Tool | None:
        """A tool by its id, or None."""
        row = self._row(tool_id)
        return None if row < 0 else self._tool(row)

    def known(self, tool_ids: Collection[str]) -> frozenset[str]:
        """Those of the ids that are in this index."""
        ids = list(tool_ids)
        rows = self.storage.rows_of(ids)
        return frozenset(tool_id for tool_id, row in zip(ids, rows, strict=True) if row >= 0)

    def get_server(self, server_id: str) -> Server | None:
        """A server by its id, or None."""
        row = self.server_row(server_id)
        return self._server(row) if row >= 0 else None

    def server_row(self, server_id: str) -> int:
        """The server's row in `tool_servers`; -1 if it is not here."""
        found = np.flatnonzero(self._arrays["server.ids"] == np.uint64(id_hash(server_id)))
        return int(found[0]) if len(found) else -1

    def similar_tool_ids(self, text: str, k: int = 5) -> list[str]:
        """Ids that are written most alike, best first: for "did you mean".

        A bare tool name counts as well, and a server's id (or its last part) means that server's tools.
        """
        if not len(self) or not text.strip():
            return []
        wanted = text[:300].casefold()

        def likeness(tool_id: str) -> float:
            other = tool_id.casefold()
            server = other.rpartition("/")[0]
            if wanted in (server, server.rsplit("/", 1)[-1]):
                return 1.0
            whole = difflib.SequenceMatcher(None, wanted, other).ratio()
            name = difflib.SequenceMatcher(None, wanted.rsplit("/", 1)[-1], other.rsplit("/", 1)[-1]).ratio()
            return 0.5 * whole + 0.5 * name

        of_server = np.flatnonzero(self._called(text[:300])[self.tool_servers]) if self.meta.servers else _NO_ROWS
        near = dict.fromkeys([*of_server[:_ALIKE].tolist(), *self._spelled_alike(text[:300]).tolist()])
        ids = dict.fromkeys(self.storage.tool_id(int(i)) for i in near)
        ranked = sorted(((likeness(i), i) for i in ids), key=lambda pair: (-pair[0], pair[1]))
        return [i for score, i in ranked[:k] if score >= 0.4]

    def _spelled_alike(self, text: str) -> Rows:
        """Rows whose name is the last part of a text, and those whose id has the most letters in common with it."""
        alike = similarity(self._arrays["tool.trigrams"], trigram_signature(text))
        same = np.flatnonzero(self._arrays["tool.names"] == np.uint64(name_hash(text.rsplit("/", 1)[-1])))
        some = np.argpartition(-alike, min(_ALIKE, len(alike) - 1))[:_ALIKE]
        return np.concatenate([same[:_ALIKE], some])

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
        """Tools that serve the query, or the structured requests, or both; best first.

        Several requests share ``limit`` evenly, each gets one tool at least. With ``dynamic`` the answer is shorter
        when one tool stands clear of the rest, and up to twice ``limit`` long when scores are tied. ``exemplars`` is
        how many worked calls each hit brings along. ``abstain=False`` offers the best even if nothing seems to fit, and
        so do ``filters`` that name servers.
        Tools of the servers ``favour`` (ids, those that can be called at once) win over others about as good; so do,
        in proportion, those of servers with better ``priors`` (`server_priors`).

        Raises BadInput for an empty query, a limit out of range, or a filter that names nothing.
        """
        started = time.perf_counter()
        asks = self.asks(query, requests, limit)
        several = len(requests) + (query is not None) > 1
        allowed = self.allowed(filters)
        # Who names the servers has chosen already; a refusal would only hide what they have.
        abstain = abstain and not (filters and filters.servers)
        depth = max(2 * limit, NEAREST)
        favoured = self.favoured(favour, priors)
        rankings = [self.rank(ask, allowed, depth, favoured) for ask in asks]
        best = max((r.probability for r in rankings), default=0.0)
        fitting = [
            r for r in rankings if len(r.rows) and (not abstain or fusion.offers(r.shape, r.probability, self.params))
        ]
        if not fitting:
            nearest = _share([(r, min(len(r.rows), NEAREST)) for r in rankings], NEAREST)
            return Answer([], True, best, self.hits(nearest, exemplars, several), milliseconds_since(started))
        share = -(-limit // len(fitting))
        counts = [(r, fusion.cut(r.scores, share, self.params) if dynamic else share) for r in fitting]
        most = max(limit, len(fitting)) * (2 if dynamic else 1)
        hits = self.hits(_share(counts, most), exemplars, several)
        unsure = all(fusion.doubtful(r.shape, r.probability) for r in fitting)
        unserved: list[int] = []
        if several:
            served = {number for hit in hits for number in hit.requests}
            unserved = [number for number in range(1, len(requests) + 1) if number not in served]
        return Answer(hits, False, best, [], milliseconds_since(started), doubtful=unsure, unserved=unserved)

    def warm(self) -> None:
        """Load the encoder and touch the arrays, so that the first query is as fast as the next."""
        if len(self):
            self.find("warm up", dynamic=False, abstain=False)

    def ask(self, text: str, server: str = "", tool: str = "") -> Ask:
        """Encode a plain query, or a structured request if ``server`` or ``tool`` is given."""
        if server or tool:
            text = f"{server}. {tool}".strip(" .")
            texts = [text, server or tool]
        else:
            texts = [text]
        text, *texts = map(query_text, [text, *texts])
        vectors = self.encoder.encode(texts, kind="query")
        return Ask(text, vectors[0], vectors[-1], self.storage.words.score(hashes(text)))

    def rank(
        self,
        ask: Ask,
        allowed: npt.NDArray[np.bool_] | None,
        depth: int,
        favoured: Floats | None = None,
    ) -> Ranking:
        """The ``depth`` best candidates of one request among the rows that are ``allowed`` (None: all); tools of the
        servers ``favoured`` (float32 [servers], 1 for wholly) win over others about as good."""
        rows = self._candidates(ask, allowed)
        signals = self.signals(ask, rows)
        scores = fusion.fuse(signals, self.params)
        if favoured is not None:
            scores = scores + fusion.FAVOUR * favoured[self.tool_servers if rows is None else self.tool_servers[rows]]
        scores = self._in_their_place(scores, rows)
        top = self._best(scores, rows, depth)
        kept = {name: values[top] for name, values in signals.items()}
        best = top if rows is None else rows[top]
        scores = scores[top]
        if not len(best):
            return Ranking(ask, best, scores, kept, dict.fromkeys(fusion.SHAPE, 0.0), 0.0)
        first = {name: float(values[0]) for name, values in kept.items()}
        pool = len(self) if allowed is None else int(allowed.sum())
        coverage = self._coverage(ask, best[:COVERED])
        features = fusion.shape(first, coverage, pool, self._nothing(ask))
        return Ranking(ask, best, scores, kept, features, fusion.probability(features, self.params))

    def _in_their_place(self, scores: Floats, rows: Rows | None) -> Floats:
        """The scores, with those lowered that must not stand above certain others."""
        return scores

    def _best(self, scores: Floats, rows: Rows | None, depth: int) -> Rows:
        """Places of the ``depth`` best, best first; of the rows that stand for one server as a whole, one."""
        whole = self.storage.whole
        if whole is None:
            return _best(scores, depth)
        top = _best(scores, _REPEATS * depth)
        among = top if rows is None else rows[top]
        named = np.where(whole[among], -1 - self.tool_servers[among], among)
        first = np.sort(np.unique(named, return_index=True)[1])
        return top[first][:depth]

    def favoured(self, favour: frozenset[str], priors: Floats | None) -> Floats | None:
        """How much each server is favoured, float32 [servers]; None where none is."""
        favoured = self._of_servers(favour).astype(np.float32) if favour else None
        if priors is None:
            return favoured
        return priors if favoured is None else favoured + priors

    def asked_here(self, ask: Ask) -> Ask:
        """A request that another index of the same encoder has encoded, with this one's words."""
        return replace(ask, words=self.storage.words.score(hashes(ask.text)))

    def asks(self, query: str | None, requests: Sequence[ToolRequest], limit: int) -> list[Ask]:
        """Encode a query and structured requests; those without a word are left out.

        Raises BadInput for an empty query, or too many of anything.
        """
        if not 1 <= limit <= MAX_LIMIT:
            raise BadInput(f"limit is {limit}, but must be from 1 to {MAX_LIMIT}.")
        if len(requests) > MAX_REQUESTS:
            raise BadInput(f"{len(requests)} requests at once are too many: at most {MAX_REQUESTS}.")
        # Requests first: who wrote them has put the need into a tool's words already, and they find more than a query.
        given = [(n, ("", r.server, r.tool)) for n, r in enumerate(requests, start=1)]
        given += [(0, (query or "", "", ""))] if query is not None or not requests else []
        if any(not "".join(parts).strip() for _, parts in given):
            raise BadInput("The query is empty.", "Say what the tool should do, such as 'convert a PDF file to text'.")
        return [replace(self.ask(*parts), number=n) for n, parts in given if has_words("".join(parts))]

    # --- inside ------------------------------------------------------------------------------------------------------

    def allowed(self, filters: Filters | None) -> npt.NDArray[np.bool_] | None:
        """Which rows the filters let through; None for all."""
        if not filters:
            return None
        servers = np.ones(self.meta.servers, dtype=np.bool_)
        if filters.servers is not None:
            servers &= self._named(filters.servers)
        if filters.states is not None:
            unknown = [s for s in filters.states if s not in set(STATES)]
            if unknown:
                raise BadInput(f"There is no state {unknown[0]!r}.", f"States are {', '.join(STATES)}.")
            codes = [i for i, s in enumerate(STATES) if s in filters.states]
            servers &= np.isin(self._arrays["server.states"], codes)
        if filters.among is not None:
            servers &= self._of_servers(filters.among)
        allowed: npt.NDArray[np.bool_] = servers[self.tool_servers]
        if filters.read_only:
            allowed &= self._arrays["tool.read_only"] == 1
        rows = [row for row in map(self._row, filters.without) if row >= 0]
        allowed[rows] = False
        return allowed

    def server_priors(self, known: Mapping[str, float]) -> Floats:
        """How servers shall be favoured, float32 [servers], from what is known of some (`health.HealthFile.priors`)."""
        by_hash = {id_hash(server_id): prior for server_id, prior in known.items()}
        ids = self._arrays["server.ids"]
        return np.array([by_hash.get(int(h), 0.0) for h in ids], dtype=np.float32)

    def _of_servers(self, server_ids: frozenset[str]) -> npt.NDArray[np.bool_]:
        """Which servers have one of these ids; ids that are not here count for nothing."""
        ids = np.array([id_hash(server_id) for server_id in server_ids], dtype=np.uint64)
        return np.isin(self._arrays["server.ids"], ids)

    def _named(self, names: frozenset[str]) -> npt.NDArray[np.bool_]:
        """Servers of these ids or names: bool [servers]. An exact id wins over servers of that name."""
        found = np.zeros(self.meta.servers, dtype=np.bool_)
        for name in sorted(names):
            called = self._called(name)
            if not called.any():
                close = self._close_servers(name)
                hint = f"Did you mean {', '.join(close)}?" if close else "See `toolscout list`."
                raise BadInput(f"There is no server {name!r}.", hint)
            found |= called
        return found

    def _called(self, name: str) -> npt.NDArray[np.bool_]:
        exact: npt.NDArray[np.bool_] = self._arrays["server.ids"] == np.uint64(id_hash(name))
        return exact if exact.any() else (self._arrays["server.names"] == np.uint64(name_hash(name))).any(axis=1)

    def knows_server(self, name: str) -> bool:
        """Whether a server has this id or name, so that a filter can name it."""
        return bool(self._called(name).any())

    def _close_servers(self, name: str) -> list[str]:
        ids: dict[str, str] = {}
        for server_id in self.storage.server_ids():
            ids.setdefault(server_id.casefold(), server_id)
            ids.setdefault(server_id.rsplit("/", 1)[-1].casefold(), server_id)
        close = difflib.get_close_matches(name.casefold(), list(ids), n=3, cutoff=0.6)
        return list(dict.fromkeys(ids[c] for c in close))

    def _candidates(self, ask: Ask, allowed: npt.NDArray[np.bool_] | None) -> Rows | None:
        """Rows to score; None for all rows."""
        near = self.storage.nearest(ask.tool_vector, CANDIDATES, allowed)
        if near is None or (allowed is not None and len(near) == int(allowed.sum())):
            return near
        parts = [near, ask.words.top(CANDIDATES), self._mentioned(ask.text)]
        if len(self.storage.exemplars):
            close = best_rows(self._exemplar_scores(ask), CANDIDATES)
            parts.append(self._arrays["exemplar.rows"][np.isin(self._arrays["exemplar.links"], close)])
        rows = np.unique(np.concatenate(parts).astype(np.int64))
        rows = rows[rows >= 0]
        return rows if allowed is None else rows[allowed[rows]]

    def signals(self, ask: Ask, rows: Rows | None) -> dict[str, Floats]:
        """Each of ``fusion.SIGNALS`` (those that are all zero may be missing) for some rows, or for all, and the
        ``server``'s cosine, which only abstention looks at by itself."""
        tool = self.storage.tools.scores(ask.tool_vector, rows)
        servers = self.tool_servers if rows is None else self.tool_servers[rows]
        if rows is None:
            server = (
                self.storage.servers.scores(ask.server_vector)[servers] if self.meta.servers else np.zeros_like(tool)
            )
        else:
            different, places = np.unique(servers, return_inverse=True)
            server = self.storage.servers.scores(ask.server_vector, different.astype(np.int64))[places]
        words = ask.words.at(rows)
        most = max(float(words.max(initial=0.0)), 1e-6)
        signals = {"tool": tool, "server": server, "words": words / np.float32(most)}
        if len(self.storage.exemplars):
            best = self.exemplar_cosines(ask)
            signals["exemplar"] = np.maximum((best if rows is None else best[rows]) - fusion.REQUESTS_ALIKE - tool, 0)
        mentioned = self._mentioned(ask.text)
        if len(mentioned):
            everything = np.arange(len(self)) if rows is None else rows
            signals["name"] = np.isin(everything, mentioned).astype(np.float32)
        return signals

    def _exemplar_scores(self, ask: Ask) -> Floats:
        if id(self) not in ask.exemplars:
            ask.exemplars[id(self)] = self.storage.exemplars.scores(ask.tool_vector)
        return ask.exemplars[id(self)]

    def exemplar_cosines(self, ask: Ask) -> Floats:
        """Of each row the cosine of its nearest exemplar; -1 where it has none."""
        best = np.full(len(self), -1.0, dtype=np.float32)
        shown = self._arrays["exemplar.rows"]
        linked = self._exemplar_scores(ask)[self._arrays["exemplar.links"]]
        np.maximum.at(best, shown[shown >= 0], linked[shown >= 0])
        return best

    def _mentioned(self, text: str) -> Rows:
        """Rows whose name or id the text spells."""
        runs = mentions(text)
        stripped = text.strip()
        if len(stripped) <= 200 and stripped not in runs:
            runs.append(stripped)
        wanted = np.array([name_hash(r) for r in runs], dtype=np.uint64)
        named = self._arrays["tool.names_sorted"]
        ends = zip(np.searchsorted(named, wanted), np.searchsorted(named, wanted, "right"), strict=True)
        rows = np.concatenate([_NO_ROWS, *(self._arrays["tool.name_order"][a:b] for a, b in ends if a < b)])
        ids = self.storage.rows_of(runs)
        return np.concatenate([rows, ids[ids >= 0]])

    def _coverage(self, ask: Ask, rows: Rows) -> float:
        """Share (by idf) of the request's words that the rows hold, the best of them."""
        total = float(ask.words.idf.sum())
        if not total:
            return 0.0
        terms = ask.words.terms
        held = (np.fromiter(self.storage.held(ask.words, int(row)), np.uint64) for row in rows)
        return max(float(ask.words.idf[np.isin(terms, words)].sum()) for words in held) / total

    def _nothing(self, ask: Ask) -> float:
        """Cosine of the request with the document that stands for no tool; 0 if the encoder has none."""
        return float(self._nothing_vector @ ask.tool_vector) if len(self._nothing_vector) else 0.0

    @cached_property
    def _nothing_vector(self) -> Floats:
        text = getattr(getattr(self.encoder, "card", None), "nothing", "")
        return self.encoder.encode([text])[0] if text else np.zeros(0, dtype=np.float32)

    def hits(self, places: Sequence[Place], exemplars: int, several: bool) -> list[Hit]:
        """Hits of places in rankings, explained; with ``several`` requests each says which it serves."""
        texts = dict.fromkeys(place.ranking.ask.text for place in places)
        explainers = {text: Explainer(text) for text in texts}
        return [self._hit(place, exemplars, explainers[place.ranking.ask.text], several) for place in places]

    def _hit(self, found: Place, exemplars: int, explainer: Explainer, several: bool) -> Hit:
        ranking, place = found.ranking, found.place
        row = int(ranking.rows[place])
        server = self._server(int(self.tool_servers[row]))
        name = server_name(server, server.server_id)
        signals = {name: float(values[place]) for name, values in ranking.signals.items()}
        return Hit(
            tool_id=self.storage.tool_id(row),
            server_id=server.server_id,
            score=round(float(ranking.scores[place]), 4),
            why=explainer.reasons(signals, self.storage.held(ranking.ask.words, row), name),
            exemplars=self._exemplars_of(row, ranking.ask, exemplars),
            requests=sorted(found.requests) if several else [],
            _index=self,
            _row=row,
        )

    def _exemplars_of(self, row: int, ask: Ask, count: int) -> list[Call]:
        """Up to ``count`` exemplars of a tool, those nearest to the request first."""
        if count < 1 or not len(self.storage.exemplars):
            return []
        mine = self._arrays["exemplar.links"][self._arrays["exemplar.rows"] == row].astype(np.int64)
        order = np.argsort(-self.storage.exemplars.scores(ask.tool_vector, mine), kind="stable")[:count]
        return [self.storage.exemplar(int(i)) for i in mine[order]]

    def exemplars_near(self, text: str, count: int) -> list[Call]:
        """Up to ``count`` exemplars whose requests are nearest to a text, whichever of the tools they call."""
        if count < 1 or not len(self.storage.exemplars):
            return []
        shown = np.unique(self._arrays["exemplar.links"][self._arrays["exemplar.rows"] >= 0]).astype(np.int64)
        scores = self.storage.exemplars.scores(self.ask(text).tool_vector, shown)
        order = np.argsort(-scores, kind="stable")[:count]
        return [self.storage.exemplar(int(i)) for i in shown[order]]

    def _row(self, tool_id: str) -> int:
        return int(self.storage.rows_of([tool_id])[0])

    def _tool(self, row: int) -> Tool:
        return self.storage.tool(row)

    def _server(self, row: int) -> Server:
        return self.storage.server(row)


def _best(scores: Floats, count: int) -> Rows:
    """Places of the ``count`` highest scores, best first."""
    top = np.argpartition(-scores, count)[:count] if len(scores) > count else np.arange(len(scores))
    return top[np.argsort(-scores[top], kind="stable")]


@dataclass
class Place:
    """A place in a ranking, and the numbers of all requests in whose answer its tool is."""

    ranking: Ranking
    place: int
    requests: set[int]


def _share(counts: Sequence[tuple[Ranking, int]], most: int) -> list[Place]:
    """Places of the rankings in turn, each ranking's first ``count`` ones, every tool once, ``most`` in all."""
    taken: dict[int, Place] = {}
    for place in range(max((count for _, count in counts), default=0)):
        for ranking, count in counts:
            if place < min(count, len(ranking.rows)):
                row = int(ranking.rows[place])
                taken.setdefault(row, Place(ranking, place, set())).requests.add(ranking.ask.number)
    return list(taken.values())[:most]


def milliseconds_since(started: float) -> float:
    """Milliseconds since a reading of ``time.perf_counter``."""
    return round(1000 * (time.perf_counter() - started), 3)
