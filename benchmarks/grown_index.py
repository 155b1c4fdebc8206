"""A large index grown from a smaller one, row by row, where building it from texts would take hours on a small machine.

A copied row takes part of its words (15 to 60 %, drawn for each) from another row, its vector is moved as really
encoded copies were (`toolscout.eval.retrieval.derived`), and its record is its original's. Everything behind the rows
(writing them chunk by chunk, inverting the words, compressing the vectors, publishing) is the build's own code.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from grown_catalogue import GrownCatalogue
from grown_pool import Calibration

from toolscout.eval.retrieval.derived import Moves
from toolscout.eval.retrieval.growth import MARK, SHARES
from toolscout.index import snapshot
from toolscout.index.bm25 import Bm25Weights, Forward, Inverted
from toolscout.index.build import _said, _ToolRows
from toolscout.index.catalogue import ToolKey
from toolscout.index.compressed import write_codes
from toolscout.index.names import id_hash
from toolscout.index.snapshot import Arrays, Blobs, Draft, Meta
from toolscout.index.table import Table
from toolscout.index.vectors import VectorStore
from toolscout.index.words import hash64
from toolscout.records import Server

_CHUNK = 8192
_MIX = np.uint64(0x9E3779B97F4A7C15)


def grow_index(source: Path, target: Path, size: int, calibration: Calibration, seed: int = 0) -> Meta:
    """Write an index of ``size`` tools to the index folder ``target``: the rows of the generation in ``source``, then
    round after round of copies of them. Row i comes from row ``i % tools`` of the source."""
    meta, arrays = snapshot.read_meta(source), Arrays(source)
    draft = Draft(target)
    rounds = -(-size // meta.tools)
    owners = arrays["tool.servers"].astype(np.int64)
    servers = [json.loads(arrays.blobs("server.records").text(i)) for i in range(meta.servers)]
    said = [_said(Server.model_validate(server)) for server in servers]
    _write_servers(draft, arrays, servers, rounds, calibration.moves)
    texts = arrays.blobs("tool.id_texts")
    tool_ids = [texts.text(i) for i in range(meta.tools)]
    dice = np.random.default_rng(seed)
    rows = _ToolRows.of(_Generation(meta, source, arrays))  # type: ignore[arg-type]
    ids, content, names, written_ids = [], [], [], []
    with Table(draft.folder) as table:
        for start in range(0, size, _CHUNK):
            places = np.arange(start, min(start + _CHUNK, size))
            origins, numbers = places % meta.tools, (places // meta.tools).astype(np.uint64)
            part = _taken(rows, origins)
            copied = numbers > 0
            mixed = (part.names ^ (numbers * _MIX)).astype(np.uint64)
            vectors = part.vectors.floats(np.arange(len(places)))
            vectors[copied] = calibration.moves.apply(vectors[copied], _keys(arrays, origins, numbers)[copied])
            part = replace(
                part,
                forward=_mixed(part.forward, rows.forward, copied, dice),
                names=np.where(copied, mixed, part.names),
                vectors=VectorStore.of(vectors),
            )
            part.append_to(table)
            names.append(part.names)
            for origin, number in zip(origins.tolist(), numbers.tolist(), strict=True):
                tool_id, owner = tool_ids[origin], int(owners[origin])
                if number:
                    name = tool_id.removeprefix(servers[owner]["server_id"])
                    tool_id = f"{servers[owner]['server_id']}{MARK}{number}{name}"
                written_ids.append(tool_id)
                ids.append(id_hash(tool_id))
                content.append(hash64(f"{tool_id}\0\0{said[owner]}"))
    all_ids, all_names = np.array(ids, dtype=np.uint64), np.concatenate(names)
    id_order, name_order = np.argsort(all_ids, kind="stable"), np.argsort(all_names, kind="stable")
    every = np.arange(size)
    draft.blobs("tool.id_texts", Blobs.of(written_ids))
    draft.arrays(
        {
            "tool.ids": all_ids,
            "tool.id_order": id_order,
            "tool.ids_sorted": all_ids[id_order],
            "tool.keys": np.array(content, dtype=np.uint64),
            "tool.names_sorted": all_names[name_order],
            "tool.name_order": name_order,
            "tool.servers": (owners[every % meta.tools] + every // meta.tools * meta.servers).astype(np.int32),
        }
    )
    for name in ("version", "keys", "codes", "scales", "links", "golds", "rows", "records.data", "records.offsets"):
        draft.arrays({f"exemplar.{name}": arrays[f"exemplar.{name}"]})
    Inverted.build(Forward.load(draft.folder), Bm25Weights(), draft.folder)
    written = Arrays(draft.folder)
    write_codes(draft.folder, VectorStore(written["tool.codes"], written["tool.scales"]))
    facts = {
        "tools": size,
        "servers": meta.servers * rounds,
        "exemplars": meta.exemplars,
        "embedded": 0,
        "seconds": 0.0,
    }
    kept = {"document_version": meta.document_version, "encoder": meta.encoder, "dim": meta.dim, "revision": 1}
    return draft.publish(**kept, **facts)


@dataclass(frozen=True)
class _Generation:
    """What ``_ToolRows.of`` reads."""

    meta: Meta
    folder: Path
    arrays: Arrays


def _taken(rows: _ToolRows, places: Any) -> _ToolRows:
    """Some rows, through the build's own splicing, with nothing new."""

    def none_of(value: Any) -> Any:
        if isinstance(value, Blobs):
            return Blobs(np.zeros(0, dtype=np.uint8), np.zeros(1, dtype=np.int64))
        return value.take(places[:0]) if isinstance(value, Forward | VectorStore) else value[:0]

    empty = _ToolRows(**{f.name: none_of(getattr(rows, f.name)) for f in fields(rows)})
    return rows.splice(empty, places)


def _keys(arrays: Arrays, origins: Any, numbers: Any) -> Any:
    return (arrays["tool.keys"][origins] + numbers) * _MIX


def _mixed(forward: Forward, source: Forward, copied: Any, dice: np.random.Generator) -> Forward:
    """Rows with a share of their words taken from other rows of ``source``; a word stays once in a row."""
    sizes = np.diff(forward.indptr)
    row_of = np.repeat(np.arange(len(forward)), sizes)
    shares = np.where(copied, dice.uniform(*SHARES, len(forward)), 0.0)
    donors = dice.integers(0, len(source), len(forward))
    taken = np.flatnonzero(dice.random(len(row_of)) < shares[row_of])
    first, last = source.indptr[donors[row_of[taken]]], source.indptr[donors[row_of[taken]] + 1]
    taken, first, last = taken[last > first], first[last > first], last[last > first]
    places = first + (dice.random(len(first)) * (last - first)).astype(np.int64)
    terms, counts = forward.terms.copy(), forward.counts.copy()
    terms[taken], counts[taken] = source.terms[places], source.counts[places]
    # Row before word in one number: sorted five times faster than as two; the bits that are lost join no two words.
    order = np.argsort((row_of.astype(np.uint64) << np.uint64(48)) | (terms >> np.uint64(16)))
    again = (terms[order][1:] == terms[order][:-1]) & (row_of[order][1:] == row_of[order][:-1])
    kept = order[np.concatenate([[True], ~again])] if len(order) else order
    ends = np.cumsum(np.bincount(row_of[kept], minlength=len(forward)))
    return Forward(np.concatenate([[0], ends]).astype(np.int64), terms[kept], counts[kept], forward.lengths)


def _write_servers(draft: Draft, arrays: Arrays, servers: Sequence[Any], rounds: int, moves: Moves) -> None:
    def named(number: int) -> Iterator[str]:
        for server in servers:
            changed = {"server_id": f"{server['server_id']}{MARK}{number}"} if number else {}
            yield json.dumps({**server, **changed})

    store = VectorStore(arrays["server.codes"], arrays["server.scales"])
    vectors = store.floats(np.arange(len(store)))
    keys = arrays["server.keys"]
    numbers = np.arange(rounds, dtype=np.uint64)[:, None]
    all_keys = np.where(numbers > 0, (keys + numbers) * _MIX, keys)
    coded = [store] + [VectorStore.of(moves.apply(vectors, all_keys[n])) for n in range(1, rounds)]
    joined = VectorStore.join(coded)
    records = [text for n in range(rounds) for text in named(n)]
    draft.blobs("server.records", Blobs.of(records))
    draft.arrays(
        {
            "server.ids": np.array([id_hash(json.loads(r)["server_id"]) for r in records], dtype=np.uint64),
            "server.names": np.concatenate([arrays["server.names"] ^ mixed for mixed in (numbers * _MIX)[:, 0]]),
            "server.keys": all_keys.reshape(-1),
            "server.states": np.tile(arrays["server.states"], rounds),
            "server.codes": joined.codes,
            "server.scales": joined.scales,
        }
    )


class IndexCatalogue(GrownCatalogue):
    """Answered from a generation: for adding a server to it."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def first_servers(self) -> Iterator[Server]:
        records = Arrays(self.folder).blobs("server.records")
        yield from (Server.model_validate_json(records[i]) for i in range(len(records)))

    def first_keys(self) -> Iterator[ToolKey]:
        arrays = Arrays(self.folder)
        servers = [str(json.loads(s)["server_id"]) for s in map(arrays.blobs("server.records").text, _upto(arrays))]
        texts, owners = arrays.blobs("tool.id_texts"), arrays["tool.servers"].tolist()
        yield from (ToolKey(texts.text(i), servers[owner], "") for i, owner in enumerate(owners))


def _upto(arrays: Arrays) -> range:
    return range(len(arrays.blobs("server.records")))
