"""Build the search index from the catalogue, or bring it up to date: the same call, the same result.

What did not change is copied from the previous generation; of the rest, vectors come from the catalogue's cache by
content hash, and only texts that were never seen are encoded. A build may be killed at any moment: the index that was
current stays so, and what was encoded is not encoded again.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import StorageError
from toolscout.index import snapshot
from toolscout.index.bm25 import Bm25Weights, Forward, Inverted
from toolscout.index.compressed import write_codes
from toolscout.index.document import DOCUMENT_VERSION, server_text, tool_text, tool_words
from toolscout.index.encoder import Encoder, make_encoder
from toolscout.index.names import id_hash, name_hash, trigram_signature
from toolscout.index.snapshot import Arrays, Blobs, Draft, Meta
from toolscout.index.table import Table
from toolscout.index.vectors import (
    FLAT_LIMIT,
    VectorStore,
    lookup,
    rows_of,
)
from toolscout.index.words import hash64
from toolscout.records import Call, Review, Server, ServerState, Tool

if TYPE_CHECKING:
    from toolscout.index.catalogue import Catalogue, ToolKey
    from toolscout.settings import Settings

Rows = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]
Ids = npt.NDArray[np.uint64]
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""

BUILD_THREADS = 2
STATES = tuple(ServerState)
_ENCODE_BATCH = 256
_LOCK_SECONDS = 1800
_RELOAD_SHARE = 0.2
_RELOAD_MOST = 20_000
_CHUNK = 8192


def build_index(
    catalogue: Catalogue,
    settings: Settings,
    *,
    encoder: Encoder | None = None,
    progress: Progress | None = None,
) -> Meta:
    """Make the index in ``settings.index_dir`` agree with the catalogue; returns what the current generation says.

    Nothing is written when nothing changed. One build at a time: a second one waits for the first. Only approved
    tools of servers that are not quarantined go in.

    Raises:
        StorageError: the index cannot be written, or another build has been running for half an hour.
    """
    from filelock import FileLock, Timeout

    encoder = encoder or make_encoder(settings, threads=BUILD_THREADS)
    index_dir = settings.index_dir
    try:
        index_dir.mkdir(parents=True, exist_ok=True)
        with FileLock(index_dir / "build.lock", timeout=_LOCK_SECONDS):
            return _Build(catalogue, index_dir, encoder, progress or (lambda what, done, total: None)).run()
    except Timeout:
        raise StorageError("Another process is building the index.", "Wait for it to end.") from None
    except OSError as error:
        raise StorageError(f"The index cannot be written: {error}.", f"Check {index_dir} and the free space.") from None


@dataclass(frozen=True)
class _Previous:
    """The generation that a build starts from."""

    meta: Meta
    folder: Path
    arrays: Arrays


def _previous(index_dir: Path, encoder: Encoder) -> _Previous | None:
    """The current generation if its parts can be used again: same format, same texts, same encoder."""
    name = snapshot.current(index_dir)
    if name is None:
        return None
    try:
        meta = snapshot.read_meta(index_dir / name)
    except (StorageError, OSError):
        return None
    if (meta.document_version, meta.encoder) != (DOCUMENT_VERSION, encoder.fingerprint):
        return None
    return _Previous(meta, index_dir / name, Arrays(index_dir / name))


class _Build:
    """One build, under the lock."""

    def __init__(self, catalogue: Catalogue, index_dir: Path, encoder: Encoder, progress: Progress) -> None:
        self.catalogue, self.index_dir, self.encoder, self.progress = catalogue, index_dir, encoder, progress
        self.previous = _previous(index_dir, encoder)
        self.embedded = 0
        self.started = time.monotonic()

    def run(self) -> Meta:
        revision = self.catalogue.revision
        if self.previous and self.previous.meta.revision == revision:
            return self.previous.meta
        servers = {s.server_id: s for s in self.catalogue.servers() if s.state != ServerState.QUARANTINED}
        keys = [k for k in self.catalogue.tool_keys() if k.server_id in servers]
        exemplars_version = self.catalogue.exemplars_version()
        draft = Draft(self.index_dir)
        try:
            order = {server_id: i for i, server_id in enumerate(servers)}
            self._servers(draft, list(servers.values()))
            ids = self._tools(draft, keys, servers, order)
            exemplars = self._exemplars(draft, exemplars_version, ids)
            return draft.publish(
                document_version=DOCUMENT_VERSION,
                encoder=self.encoder.fingerprint,
                dim=self.encoder.dim,
                revision=revision,
                tools=len(keys),
                servers=len(servers),
                exemplars=exemplars,
                embedded=self.embedded,
                seconds=round(time.monotonic() - self.started, 3),
            )
        except BaseException:
            draft.discard()
            raise

    # --- servers -----------------------------------------------------------------------------------------------------

    def _servers(self, draft: Draft, servers: Sequence[Server]) -> None:
        texts = [server_text(s) for s in servers]
        keys = np.array([hash64(t) for t in texts], dtype=np.uint64)
        vectors = self._vectors("server", keys, lambda fresh: [texts[i] for i in fresh])
        draft.blobs("server.records", Blobs.of(s.to_json() for s in servers))
        draft.arrays(
            {
                "server.ids": np.array([id_hash(s.server_id) for s in servers], dtype=np.uint64),
                "server.names": np.array([_names(s) for s in servers], dtype=np.uint64).reshape(-1, 4),
                "server.keys": keys,
                "server.states": np.array([STATES.index(s.state) for s in servers], dtype=np.uint8),
                "server.codes": vectors.codes,
                "server.scales": vectors.scales,
            }
        )

    # --- tools -------------------------------------------------------------------------------------------------------

    def _tools(
        self, draft: Draft, keys: Sequence[ToolKey], servers: Mapping[str, Server], order: Mapping[str, int]
    ) -> Ids:
        said = {server_id: _said(server) for server_id, server in servers.items()}
        ids = np.array([id_hash(k.tool_id) for k in keys], dtype=np.uint64)
        content = np.array([hash64(f"{k.tool_id}\0{k.version}\0{said[k.server_id]}") for k in keys], dtype=np.uint64)
        old = rows_of(self.previous.arrays["tool.keys"], content) if self.previous else np.full(len(keys), -1)
        names = self._tool_rows(draft, keys, servers, content, old)
        Inverted.build(Forward.load(draft.folder), Bm25Weights(), draft.folder)
        draft.blobs("tool.id_texts", Blobs.of(k.tool_id for k in keys))
        id_order, name_order = np.argsort(ids, kind="stable"), np.argsort(names, kind="stable")
        draft.arrays(
            {
                "tool.ids": ids,
                "tool.id_order": id_order,
                "tool.ids_sorted": ids[id_order],
                "tool.keys": content,
                "tool.names_sorted": names[name_order],
                "tool.name_order": name_order,
                "tool.servers": np.array([order[k.server_id] for k in keys], dtype=np.int32),
            }
        )
        if len(keys) > FLAT_LIMIT:
            self.progress("large index", 0, 1)
            written = Arrays(draft.folder)
            previous = self.previous.folder if self.previous else None
            write_codes(draft.folder, VectorStore(written["tool.codes"], written["tool.scales"]), previous, old)
        return ids

    def _tool_rows(
        self, draft: Draft, keys: Sequence[ToolKey], servers: Mapping[str, Server], content: Ids, old: Rows
    ) -> Ids:
        """Write what a tool has a row of, chunk by chunk: kept rows (``old`` >= 0) copied, the fresh ones made.

        Only a chunk's records, texts and vectors are in memory at a time. Returns the name hashes.
        """
        total = int((old < 0).sum())
        loaded = self._load(keys, np.flatnonzero(old < 0))
        before = _ToolRows.of(self.previous) if self.previous else None
        names = [np.zeros(0, np.uint64)]
        done = 0
        with Table(draft.folder) as table:
            for start in range(0, max(len(keys), 1), _CHUNK):
                part = old[start : start + _CHUNK]
                tools = list(itertools.islice(loaded, int((part < 0).sum())))
                texts = [tool_text(t, servers[t.server_id]) for t in tools]
                vectors = self._encode("tool", texts, "document", done, total) if texts else self._none()
                rows = _ToolRows.made(tools, servers, VectorStore.of(vectors))
                done += len(tools)
                if before is not None:
                    rows = before.splice(rows, part)
                rows.append_to(table)
                names.append(rows.names)
        return np.concatenate(names)

    def _load(self, keys: Sequence[ToolKey], fresh: Rows) -> Iterator[Tool]:
        """The fresh tools' records, in the order of ``fresh``. A tool that went meanwhile cannot be left out any more:
        it is kept as it is named, and the next build, which sees the later revision, drops it."""
        wanted = {keys[i].tool_id: n for n, i in enumerate(fresh)}
        source: Iterable[Tool]
        if len(fresh) > min(_RELOAD_SHARE * len(keys), _RELOAD_MOST):
            source = self.catalogue.tools(reviews=[Review.APPROVED])
        else:
            server_ids = dict.fromkeys(keys[i].server_id for i in fresh)
            some = (t for s in server_ids for t in self.catalogue.tools(server_id=s, reviews=[Review.APPROVED]))
            source = sorted((t for t in some if t.tool_id in wanted), key=lambda t: wanted[t.tool_id])

        def named(n: int) -> Tool:
            key = keys[fresh[n]]
            name = key.tool_id.removeprefix(key.server_id + "/") or key.tool_id
            return Tool(tool_id=key.tool_id, server_id=key.server_id, name=name)

        given = 0
        for tool in source:
            place = wanted.get(tool.tool_id, -1)
            if place < given:
                continue
            yield from map(named, range(given, place))
            yield tool
            given = place + 1
        yield from map(named, range(given, len(fresh)))

    # --- exemplars ---------------------------------------------------------------------------------------------------

    def _exemplars(self, draft: Draft, version: str, ids: Ids) -> int:
        """Exemplars, their vectors, and which tool rows they show. Returns how many."""
        previous = self.previous
        stamp = np.frombuffer(bytes.fromhex(version), dtype=np.uint8)
        if previous and np.array_equal(previous.arrays["exemplar.version"], stamp):
            arrays = previous.arrays
            records = arrays.blobs("exemplar.records")
            keys = arrays["exemplar.keys"]
            vectors = VectorStore(arrays["exemplar.codes"], arrays["exemplar.scales"])
            links, golds = arrays["exemplar.links"], arrays["exemplar.golds"]
        else:
            calls: list[Call] = [c for c in self.catalogue.exemplars() if c.gold]
            keys = np.array([hash64(c.query) for c in calls], dtype=np.uint64)
            records = Blobs.of(c.to_json() for c in calls)
            vectors = self._vectors("exemplar", keys, lambda fresh: [calls[i].query for i in fresh], kind="query")
            pairs = [(i, id_hash(g)) for i, c in enumerate(calls) for g in dict.fromkeys(g.tool_id for g in c.gold)]
            links = np.array([i for i, _ in pairs], dtype=np.int32)
            golds = np.array([g for _, g in pairs], dtype=np.uint64)
        order = np.argsort(ids)
        rows = lookup(ids[order], order, golds)
        # An exemplar that calls a tool which may not be found (quarantined, gone) is not shown with its other tools.
        rows = np.where(np.isin(links, links[rows < 0]), -1, rows)
        draft.blobs("exemplar.records", records)
        draft.arrays(
            {
                "exemplar.version": stamp,
                "exemplar.keys": keys,
                "exemplar.codes": vectors.codes,
                "exemplar.scales": vectors.scales,
                "exemplar.links": links,
                "exemplar.golds": golds,
                "exemplar.rows": rows.astype(np.int32),
            }
        )
        return len(records)

    # --- vectors -----------------------------------------------------------------------------------------------------

    def _vectors(
        self, what: str, keys: Ids, texts_of: Callable[[Rows], list[str]], *, kind: Any = "document"
    ) -> VectorStore:
        """Rows of vectors for content keys: from the previous generation, the catalogue's cache, or the encoder."""
        old = rows_of(self.previous.arrays[f"{what}.keys"], keys) if self.previous else np.full(len(keys), -1)
        fresh = np.flatnonzero(old < 0)
        new = VectorStore.of(self._encode(what, texts_of(fresh), kind, 0, len(fresh)) if len(fresh) else self._none())
        if not self.previous:
            return new
        arrays = self.previous.arrays
        before = VectorStore(arrays[f"{what}.codes"], arrays[f"{what}.scales"]).take(old[old >= 0])
        return VectorStore.join([before, new]).take(_places(old))

    def _none(self) -> Floats:
        return np.zeros((0, self.encoder.dim), dtype=np.float32)

    def _encode(self, what: str, texts: list[str], kind: Any, done: int, total: int) -> Floats:
        """Vectors of texts, float32 [n, dim]; each different text is encoded once, ever. For the progress, they come
        after ``done`` others and there are ``total`` in all."""
        name = self.encoder.fingerprint
        hashes = [hashlib.sha256(f"{kind}\0{t}".encode("utf-8", "surrogatepass")).hexdigest() for t in texts]
        cached = self.catalogue.get_vectors(name, list(dict.fromkeys(hashes)))
        missing = {h: t for h, t in zip(hashes, texts, strict=True) if h not in cached}
        todo = sorted(missing.items(), key=lambda item: len(item[1]))
        known = len(texts) - len(todo)
        for start in range(0, len(todo), _ENCODE_BATCH):
            self.progress(f"{what} vectors", done + known + start, total)
            batch = todo[start : start + _ENCODE_BATCH]
            vectors = self.encoder.encode([t for _, t in batch], kind=kind)
            some = {h: v for (h, _), v in zip(batch, vectors, strict=True)}
            self.catalogue.put_vectors(name, some)
            cached.update(some)
        if todo:
            self.progress(f"{what} vectors", done + len(texts), total)
        self.embedded += len(todo)
        return np.stack([cached[h] for h in hashes])


@dataclass(frozen=True)
class _ToolRows:
    """All that some tools have a row of; a previous generation's rows, mapped, are such rows too."""

    forward: Forward
    records: Blobs
    names: Ids
    read_only: npt.NDArray[np.uint8]
    trigrams: npt.NDArray[np.uint64]
    vectors: VectorStore

    @staticmethod
    def of(previous: _Previous) -> _ToolRows:
        """The rows of a generation."""
        arrays = previous.arrays
        return _ToolRows(
            Forward.load(previous.folder),
            arrays.blobs("tool.records"),
            arrays["tool.names"],
            arrays["tool.read_only"],
            arrays["tool.trigrams"],
            VectorStore(arrays["tool.codes"], arrays["tool.scales"]),
        )

    @staticmethod
    def made(tools: Sequence[Tool], servers: Mapping[str, Server], vectors: VectorStore) -> _ToolRows:
        """Rows of new tools."""
        return _ToolRows(
            Forward.of(tool_words(t, servers[t.server_id]) for t in tools),
            Blobs.of(t.to_json() for t in tools),
            np.array([name_hash(t.name) for t in tools], dtype=np.uint64),
            np.array([t.read_only for t in tools], dtype=np.uint8),
            _trigrams(tools),
            vectors,
        )

    def splice(self, new: _ToolRows, old: Rows) -> _ToolRows:
        """Row i is this one's row ``old[i]``, or the next of ``new`` where ``old[i]`` is -1."""
        kept, place = old[old >= 0], _places(old)

        def both(mine: npt.NDArray[Any], its: npt.NDArray[Any]) -> npt.NDArray[Any]:
            return np.concatenate([mine[kept], its])[place]

        return _ToolRows(
            Forward.join([self.forward.take(kept), new.forward]).take(place),
            Blobs.splice(self.records, new.records, old),
            both(self.names, new.names),
            both(self.read_only, new.read_only),
            both(self.trigrams, new.trigrams),
            VectorStore.join([self.vectors.take(kept), new.vectors]).take(place),
        )

    def append_to(self, table: Table) -> None:
        """Add the rows to a draft's arrays."""
        self.forward.append_to(table)
        table.append("tool.records.data", self.records.data)
        table.append_offsets("tool.records.offsets", self.records.offsets)
        table.append("tool.names", self.names)
        table.append("tool.read_only", self.read_only)
        table.append("tool.trigrams", self.trigrams)
        table.append("tool.codes", self.vectors.codes)
        table.append("tool.scales", self.vectors.scales)


def _said(server: Server) -> str:
    """All of a server that its tools' texts hold: when it changes, they do."""
    return "\0".join([server.name, server.title or "", server.description, server.summary or ""])


def _places(old: Rows) -> Rows:
    """Where each row is in [all kept rows, all fresh rows], if ``old`` is -1 for fresh ones."""
    kept = old >= 0
    place = np.empty(len(old), dtype=np.int64)
    place[kept] = np.arange(kept.sum())
    place[~kept] = kept.sum() + np.arange((~kept).sum())
    return place


def _trigrams(tools: Sequence[Tool]) -> npt.NDArray[np.uint64]:
    if not tools:
        return np.zeros((0, 4), dtype=np.uint64)
    return np.stack([trigram_signature(t.tool_id) for t in tools])


def _names(server: Server) -> list[int]:
    """Hashes of what a person may call a server: id, last part of the id, name, title."""
    tail = server.server_id.rsplit("/", 1)[-1]
    return [name_hash(n) for n in (server.server_id, tail, server.name or tail, server.title or tail)]
