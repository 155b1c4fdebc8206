"""Large pools: compressed codes against the exact order, words that are skipped, streaming, growth of a pool."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import search_pool

from toolscout.eval.retrieval.derived import DerivedEncoder, Moves
from toolscout.eval.retrieval.growth import MARK, Growth
from toolscout.index import compressed
from toolscout.index.bm25 import Bm25Weights, Forward, Inverted, LazyScores
from toolscout.index.compressed import read_codes, write_codes
from toolscout.index.document import tool_text, tool_words
from toolscout.index.table import Table
from toolscout.index.vectors import VectorStore
from toolscout.index.words import hash64, hashes
from toolscout.records import Server

DIM = 64


def clustered(size: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.float32]]:
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(99).standard_normal((60, DIM))
    rows = centres[random.integers(0, 60, size)] + 0.7 * random.standard_normal((size, DIM))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def shares(folder: Path, store: VectorStore, queries: np.ndarray[Any, Any]) -> float:
    """Share of the exact ten best that are proposed."""
    codes = read_codes(folder, DIM)
    assert codes is not None
    found = [codes.nearest(q, 50, store) for q in queries]
    assert all(len(set(f.tolist())) == 50 and f.min() >= 0 and f.max() < len(store) for f in found)
    exact = [np.argsort(-store.scores(q))[:10] for q in queries]
    return float(np.mean([np.isin(e, f).mean() for e, f in zip(exact, found, strict=True)]))


def test_codes_propose_nearly_all_of_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "PROPOSED", 200)
    store = VectorStore.of(clustered(9000))
    write_codes(tmp_path, store)
    assert shares(tmp_path, store, clustered(100, seed=1)) > 0.95
    monkeypatch.setattr(compressed, "PROPOSED", 9000)
    assert shares(tmp_path, store, clustered(20, seed=1)) == 1.0


def test_codes_follow_rows_that_move_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "PROPOSED", 200)
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    before = clustered(6000)
    write_codes(a, VectorStore.of(before))
    old = np.random.default_rng(3).permutation(6000)[:5000]
    rows = np.concatenate([before[old], clustered(600, seed=2)])
    old = np.concatenate([old, np.full(600, -1)])
    mixed = np.random.default_rng(4).permutation(5600)
    store = VectorStore.of(rows[mixed])
    write_codes(b, store, a, old[mixed])
    first, second = read_codes(a, DIM), read_codes(b, DIM)
    assert first is not None and second is not None
    assert second.trained == first.trained == 6000
    kept = old[mixed] >= 0
    assert np.array_equal(second.codes[kept], first.codes[old[mixed][kept]])
    assert shares(b, store, clustered(100, seed=1)) > 0.95


def test_centroids_are_learned_again_when_the_pool_has_doubled(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.mkdir()
    b.mkdir()
    rows = clustered(4000)
    write_codes(a, VectorStore.of(rows[:1500]))
    write_codes(b, VectorStore.of(rows), a, np.where(np.arange(4000) < 1500, np.arange(4000), -1))
    again = read_codes(b, DIM)
    assert again is not None and again.trained == 4000


def test_a_handful_of_rows_can_be_compressed(tmp_path: Path) -> None:
    store = VectorStore.of(clustered(7))
    write_codes(tmp_path, store)
    codes = read_codes(tmp_path, DIM)
    assert codes is not None
    assert sorted(codes.nearest(store.floats(np.arange(1))[0], 50, store)) == list(range(7))


def test_without_a_gpu_none_is_used(tmp_path: Path) -> None:
    import faiss

    if getattr(faiss, "get_num_gpus", int)():
        pytest.skip("there is a GPU")
    assert compressed.gpus() == 0


def test_a_gpus_proposals_are_scored_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The GPU's way with FAISS's own flat index in the GPU's place: all of it but the device."""
    import faiss

    class Settings:
        useFloat16 = False

    store = VectorStore.of(clustered(5000))
    write_codes(tmp_path, store)
    monkeypatch.setattr(compressed, "gpus", lambda: 1)
    monkeypatch.setattr(faiss, "StandardGpuResources", object, raising=False)
    monkeypatch.setattr(faiss, "GpuIndexFlatConfig", Settings, raising=False)
    monkeypatch.setattr(faiss, "GpuIndexFlatIP", lambda _, dim, settings: faiss.IndexFlatIP(dim), raising=False)
    assert shares(tmp_path, store, clustered(50, seed=1)) == 1.0


def many(count: int) -> Forward:
    """Rows of few, unevenly frequent words."""
    random = np.random.default_rng(5)
    vocabulary = [f"word{i}" for i in range(300)]
    weights = 1.0 / np.arange(1, 301)
    picked = random.choice(300, (count, 12), p=weights / weights.sum())
    return Forward.of({"description": " ".join(vocabulary[i] for i in row)} for row in picked)


def test_skipping_frequent_words_changes_nothing() -> None:
    index = Inverted.of(many(4000), Bm25Weights())
    skipped = 0
    for words in itertools.combinations([0, 1, 2, 5, 40, 120, 250], 3):
        query = hashes(" ".join(f"word{i}" for i in words))
        lazy, full = index.score(query), index.score(query)
        assert isinstance(lazy, LazyScores)
        for k in (5, 40):
            top = lazy.top(k)
            expected = np.sort(full.scores)[::-1][:k]
            assert np.sort(full.scores[top])[::-1] == pytest.approx(expected[expected > 0], rel=1e-5)
        some = np.array([0, 17, 1999, 3999])
        assert lazy.at(some) == pytest.approx(full.scores[some], rel=1e-5)
        skipped += lazy.words_left
        assert lazy.scores == pytest.approx(full.scores, rel=1e-5)
    assert skipped


def test_inverting_in_place_gives_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = many(500)
    whole = Inverted.of(forward, Bm25Weights())
    monkeypatch.setattr("toolscout.index.bm25._CHUNK", 64)
    Inverted.build(forward, Bm25Weights(), tmp_path)
    mapped = Inverted.load(tmp_path, 500)
    for name in ("terms", "indptr", "rows", "impacts", "idf", "most"):
        assert np.array_equal(getattr(mapped, name), getattr(whole, name)), name


def test_nothing_can_be_inverted_too(tmp_path: Path) -> None:
    Inverted.build(Forward.of([]), Bm25Weights(), tmp_path)
    assert len(Inverted.load(tmp_path, 0).score(hashes("anything")).top(3)) == 0


def test_a_table_grows_to_the_same_array(tmp_path: Path) -> None:
    rows = np.arange(30, dtype=np.int16).reshape(10, 3)
    offsets = np.array([0, 2, 2, 5])
    with Table(tmp_path) as table:
        for part in (rows[:0], rows[:4], rows[4:]):
            table.append("rows", part)
        table.append_offsets("ends", offsets)
        table.append_offsets("ends", np.array([0]))
        table.append_offsets("ends", offsets)
        with pytest.raises(TypeError):
            table.append("rows", rows.astype(np.int32))
    assert np.array_equal(np.load(tmp_path / "rows.npy", mmap_mode="r"), rows)
    assert np.load(tmp_path / "ends.npy").tolist() == [0, 2, 2, 5, 7, 7, 10]


def growth() -> Growth:
    return Growth(search_pool.servers(), search_pool.tools(), seed=7)


def test_grown_pools_hold_the_smaller_ones_and_repeat() -> None:
    real = len(search_pool.tools())
    large = [c.tool for _, copies in growth().first(5 * real) for c in copies]
    small = [c.tool for _, copies in growth().first(2 * real + 3) for c in copies]
    assert large[: len(small)] == small
    assert len({t.tool_id for t in large}) == len(large) == 5 * real
    other = [
        c.tool for _, copies in Growth(search_pool.servers(), search_pool.tools(), 8).first(2 * real) for c in copies
    ]
    assert other[:real] == small[:real]
    assert other != small[: 2 * real]


def test_copies_differ_from_their_originals_but_keep_some_of_them() -> None:
    grown = growth()
    words = {tool.tool_id: set(hashes(tool_words(tool, None)["description"])) for tool in grown.tools}
    kept, same = [], 0
    for server, copies in itertools.islice(grown.round(1), 50):
        assert MARK in server.server_id
        for copy in copies:
            assert not copy.real
            assert copy.tool.server_id == server.server_id
            origin = grown.tools[copy.origin]
            assert set(copy.tool.input_schema.get("properties", {})) <= set(origin.input_schema.get("properties", {}))
            assert set(copy.tool.input_schema.get("required", [])) <= set(copy.tool.input_schema.get("properties", {}))
            same += tool_text(copy.tool, server) == tool_text(origin, server)
            mine = set(hashes(copy.tool.description))
            kept.append(len(mine & words[origin.tool_id]) / max(1, len(words[origin.tool_id])))
    assert same == 0
    assert 0.3 < np.mean(kept) < 0.9


def test_moves_keep_the_distances_they_were_learned_from() -> None:
    originals = clustered(300)
    copies = 0.6 * originals + 0.4 * clustered(300, seed=6)
    copies /= np.linalg.norm(copies, axis=1, keepdims=True)
    moves = Moves.of(originals, copies)
    others = clustered(200, seed=8)
    moved = moves.apply(others, np.array([hash64(str(i)) for i in range(200)], dtype=np.uint64))
    assert np.linalg.norm(moved, axis=1) == pytest.approx(1, abs=1e-4)
    learned, applied = np.vecdot(originals, copies), np.vecdot(others, moved)
    assert np.quantile(applied, [0.1, 0.5, 0.9]) == pytest.approx(np.quantile(learned, [0.1, 0.5, 0.9]), abs=0.03)
    assert len(np.unique(moved, axis=0)) == 200


def test_derived_encoder_encodes_what_it_does_not_know() -> None:
    class Inner:
        fingerprint, dim = "inner", DIM

        def encode(self, texts: list[str], *, kind: str = "document") -> Any:
            return clustered(len(texts), seed=len(texts[0]))

    originals = clustered(2)
    known = np.array([hash64("real"), hash64("copy")], dtype=np.uint64)
    copies = clustered(9) + 0.3 * clustered(9, seed=1)
    moves = Moves.of(clustered(9), copies / np.linalg.norm(copies, axis=1, keepdims=True))
    encoder = DerivedEncoder(Inner(), originals, known, np.array([0, 1]), known[:1], moves)
    vectors = encoder.encode(["copy", "new", "real"])
    assert np.array_equal(vectors[2], originals[0])
    assert np.array_equal(vectors[1], clustered(1, seed=3)[0])
    assert 0.8 < float(vectors[0] @ originals[1]) < 0.999
    assert encoder.derived == 2
    assert np.array_equal(encoder.encode(["copy"], kind="query"), clustered(1, seed=4))


def test_servers_without_a_record_are_made_of_their_id() -> None:
    grown = Growth([], search_pool.tools()[:3], seed=1)
    assert all(isinstance(s, Server) and s.name for s in grown.servers)
