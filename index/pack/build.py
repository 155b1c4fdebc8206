"""Build a pack from an index generation: what was crawled, as facts and vectors, in one file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.index.bm25 import Bm25Weights, Forward, Inverted
from toolscout.index.document import DOCUMENT_VERSION, query_text
from toolscout.index.encoder import Encoder
from toolscout.index.names import id_hash, name_hash
from toolscout.index.pack.facts import pack_all, pack_server, pack_tool, publisher_of
from toolscout.index.pack.file import FORMAT, Manifest, write_pack
from toolscout.index.pack.lookalikes import look_alikes
from toolscout.index.pack.sources import PackSources
from toolscout.index.pack.vectors import pack_vectors, train_rotation
from toolscout.index.pack.words import pack_words
from toolscout.index.products import pack_products
from toolscout.index.storage import GenerationStorage
from toolscout.index.vectors import VectorStore
from toolscout.records import Server, ServerState

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]

_STATES = tuple(ServerState)
_MANY_DOWNLOADS = 7.0
"""Logarithm (base 10) of the downloads a month that count as the most."""

_OFFICIAL = 0.6
_CHUNK = 4096


@dataclass(frozen=True)
class _Entry:
    """A server of the pack, with our line of it.

    ``rows`` are of the generation's tools; a server that is known as a whole has none, but what it ``covers``.
    """

    server: Server
    line: str
    rows: Rows
    covers: tuple[str, ...] = ()


def build_pack(
    generation: GenerationStorage,
    encoder: Encoder,
    sources: PackSources,
    out: Path,
    *,
    date: str,
) -> Manifest:
    """Write a pack of a generation's servers and of the vendors' in ``sources``. Equal inputs give equal bytes.

    Args:
        date: the pack's own, ISO 8601.

    Raises:
        StorageError: the file cannot be written.
    """
    entries = _entries(generation, sources)
    order = np.concatenate([*(e.rows for e in entries), np.zeros(0, np.int64)]).astype(np.int64)
    covers = [(entry, phrase) for entry in entries for phrase in entry.covers]
    sizes = np.array([len(e.rows) + len(e.covers) for e in entries], dtype=np.int64)
    # Vendors stand last, so all tools of the generation come before all that vendors cover.
    tool_vectors = _floats(generation.tools, order)
    rotation = train_rotation(tool_vectors)
    cover_texts = [f"{entry.server.name}. {phrase}. {entry.line}" for entry, phrase in covers]
    tool_vectors = np.concatenate([tool_vectors, encoder.encode(cover_texts)])
    names = [generation.tool(int(row)).name for row in order] + [entry.server.name for entry, _ in covers]
    forward = Forward.join([generation.forward.take(order), _cover_words(covers)])
    arrays: dict[str, Array] = {
        "server.first": np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32),
        "tool.whole": np.repeat([0, 1], [len(order), len(covers)]).astype(np.uint8),
        "tool.read_only": np.concatenate(
            [generation.arrays["tool.read_only"][order], np.zeros(len(covers), np.uint8)]
        ).astype(np.uint8),
        "tool.fingerprints": _fingerprints(generation, order, len(covers)),
        "vector.rotation": rotation,
        **_prefixed("tool", pack_vectors(tool_vectors, rotation)),
        **_prefixed("word", pack_words(Inverted.of(forward, Bm25Weights()))),
        **_names(names),
        **_servers(generation, entries, encoder, rotation),
    }
    records = [
        [pack_server(e.server, e.line), [pack_tool(generation.tool(int(row))) for row in e.rows]] for e in entries
    ]
    arrays |= _prefixed("records", pack_all(records))
    publishers = [e.server.publisher or publisher_of(e.server) for e in entries]
    arrays |= _prefixed(
        "product",
        pack_products(
            [*sources.products, *(v.product for v in sources.vendors)], [e.server for e in entries], publishers
        ),
    )
    place = {generation.tool_id(int(row)): number for number, row in enumerate(order)}
    exemplars, kept = _exemplars(sources, place, encoder, rotation)
    arrays |= exemplars
    manifest = Manifest(
        format=FORMAT,
        date=date,
        encoder=encoder.fingerprint,
        document_version=DOCUMENT_VERSION,
        dim=encoder.dim,
        servers=len(entries),
        tools=len(order),
        vendors=sum(bool(e.covers) for e in entries),
        exemplars=kept,
        lines=sum(bool(e.line) for e in entries),
        crawled=max((e.server.checked_at or "" for e in entries), default="")[:10],
        sources=sources.hashes,
    )
    write_pack(out, arrays, manifest)
    return manifest


def _entries(generation: GenerationStorage, sources: PackSources) -> list[_Entry]:
    """Servers with tools by id, then vendors' servers that are not among them."""
    rows_of = np.argsort(generation.tool_servers, kind="stable")
    bounds = np.searchsorted(generation.tool_servers[rows_of], np.arange(generation.meta.servers + 1))
    found = []
    for number in range(generation.meta.servers):
        rows = rows_of[bounds[number] : bounds[number + 1]].astype(np.int64)
        if len(rows):
            server = generation.server(number)
            found.append(_Entry(sources.known(server), sources.lines.get(server.server_id, ""), rows))
    found.sort(key=lambda entry: entry.server.server_id)
    here = {_package(entry.server): place for place, entry in enumerate(found)}
    vendors = []
    for vendor in sources.vendors:
        place = here.get(_package(vendor.server)) if vendor.server.install.package else None
        if place is None:
            line = vendor.server.description
            vendors.append(_Entry(sources.known(vendor.server), line, np.zeros(0, np.int64), vendor.covers or (line,)))
        else:  # the vendor's own package, listed: what the vendor's entry says of it is added
            entry, told = found[place], vendor.server
            facts = {"official": told.official, "publisher": told.publisher}
            facts["homepage"] = entry.server.homepage or told.homepage
            server = entry.server.model_copy(update=facts)
            found[place] = replace(entry, server=server, line=entry.line or told.description)
    found += vendors
    for place, original in look_alikes([entry.server for entry in found], sources.downloads).items():
        server = found[place].server.model_copy(update={"looks_like": original})
        found[place] = replace(found[place], server=server)
    return found


def _package(server: Server) -> str:
    """What a server runs or calls, as the `installed` of `LayeredIndex` has it."""
    return f"{server.install.registry}:{server.install.package or server.install.url}"


def _floats(vectors: VectorStore, rows: Rows) -> Floats:
    found = np.empty((len(rows), vectors.codes.shape[1]), dtype=np.float32)
    for start in range(0, len(rows), _CHUNK):
        found[start : start + _CHUNK] = vectors.floats(rows[start : start + _CHUNK])
    return found


def _fingerprints(generation: GenerationStorage, order: Rows, others: int) -> Array:
    """The first 64 bits of each tool's fingerprint; 0 for what is no tool."""
    found = np.zeros(len(order) + others, dtype=np.uint64)
    for place, row in enumerate(order):
        tool = generation.tool(int(row))
        found[place] = int((tool.fingerprint or tool.computed_fingerprint())[:16], 16)
    return found


def _prefixed(prefix: str, arrays: dict[str, Array]) -> dict[str, Array]:
    return {f"{prefix}.{name}": values for name, values in arrays.items()}


def _cover_words(covers: Sequence[tuple[_Entry, str]]) -> Forward:
    return Forward.of(
        {"name": phrase, "description": entry.line, "server": f"{entry.server.name} {entry.server.server_id}"}
        for entry, phrase in covers
    )


def _names(names: Sequence[str]) -> dict[str, Array]:
    """Names' hashes, sorted, and the row of each."""
    hashes = np.array([name_hash(name) for name in names], dtype=np.uint64)
    order = np.argsort(hashes, kind="stable")
    return {"tool.names_sorted": hashes[order], "tool.name_order": order.astype(np.int32)}


def _servers(
    generation: GenerationStorage, entries: Sequence[_Entry], encoder: Encoder, rotation: Floats
) -> dict[str, Array]:
    places = {generation.server(i).server_id: i for i in range(generation.meta.servers)}
    vectors = np.zeros((len(entries), encoder.dim), dtype=np.float32)
    listed = [place for place, entry in enumerate(entries) if not entry.covers]
    rows = np.array([places[entries[place].server.server_id] for place in listed], dtype=np.int64)
    if len(rows):
        vectors[listed] = _floats(generation.servers, rows)
    whole = [place for place, entry in enumerate(entries) if entry.covers]
    if whole:
        vectors[whole] = encoder.encode([f"{entries[i].server.name}. {entries[i].line}" for i in whole])
    return {
        "server.ids": np.array([id_hash(e.server.server_id) for e in entries], dtype=np.uint64),
        "server.names": np.array([_called(e.server) for e in entries], dtype=np.uint64).reshape(-1, 3),
        "server.packages": np.array([id_hash(_package(e.server)) for e in entries], dtype=np.uint64),
        "server.states": np.array([_STATES.index(e.server.state) for e in entries], dtype=np.uint8),
        "server.looks_like": _originals(entries),
        "server.trust": np.array([_trust(e.server) for e in entries], dtype=np.float32),
        **_prefixed("server", pack_vectors(vectors, rotation)),
    }


def _originals(entries: Sequence[_Entry]) -> Array:
    """Row of the server whose package each one's looks like; -1 for none that is here."""
    rows = {_package(entry.server): row for row, entry in enumerate(entries)}
    return np.array([rows.get(entry.server.looks_like or "", -1) for entry in entries], dtype=np.int32)


def _called(server: Server) -> list[int]:
    tail = server.server_id.rsplit("/", 1)[-1]
    return [name_hash(name) for name in (server.server_id, tail, server.title or server.name or tail)]


def _trust(server: Server) -> float:
    """How much a server's publisher and use speak for it: 0 for nothing known, 1 for the most used official one."""
    used = min(math.log10(1 + (server.popularity or 0)) / _MANY_DOWNLOADS, 1.0)
    return max(used, _OFFICIAL + (1 - _OFFICIAL) * used) if server.official else used


def _exemplars(
    sources: PackSources, place: dict[str, int], encoder: Encoder, rotation: Floats
) -> tuple[dict[str, Array], int]:
    """Worked calls of the tools that are here."""
    kept = [e for e in sources.exemplars if e.tool_id in place]
    vectors = encoder.encode([query_text(e.query) for e in kept], kind="query")
    return {
        **_prefixed("calls", pack_all([[e.query, e.tool_id, e.arguments] for e in kept])),
        **_prefixed("exemplar", pack_vectors(vectors, rotation)),
        "exemplar.links": np.arange(len(kept), dtype=np.int32),
        "exemplar.rows": np.array([place[e.tool_id] for e in kept], dtype=np.int32),
    }, len(kept)
