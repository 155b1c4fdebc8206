"""Vectors of a pack: four bits a dimension come near the exact scores, and signs propose what exact search finds."""

from __future__ import annotations

import numpy as np
import pytest
import search_pool
from pack_fixture import Built

from toolscout.index.document import query_text
from toolscout.index.pack.search import PackIndex
from toolscout.index.pack.vectors import KEPT, PROPOSED, PackedVectors, pack_vectors, train_rotation

DIM = 384


def pool(count: int, seed: int = 1) -> np.ndarray:
    """Unit vectors in clusters, whose dimensions carry differently much, as an encoder's are."""
    random = np.random.default_rng(seed)
    shape = np.exp(-np.arange(DIM) / 80)
    centers = random.standard_normal((40, DIM)) * shape
    vectors = centers[random.integers(0, 40, count)] + 0.7 * random.standard_normal((count, DIM)) * shape
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def packed(vectors: np.ndarray, rotation: np.ndarray | None = None) -> PackedVectors:
    rotation = train_rotation(vectors) if rotation is None else rotation
    return PackedVectors(**pack_vectors(vectors, rotation), rotation=rotation)


def test_the_rotation_keeps_products_and_every_part_carries_about_as_much() -> None:
    vectors = pool(3000)
    rotation = train_rotation(vectors)
    assert rotation.shape == (DIM, KEPT) and rotation.dtype == np.float32
    assert np.allclose(rotation.T @ rotation, np.eye(KEPT), atol=1e-4)
    parts = (vectors @ rotation).std(axis=0)
    assert parts.max() < 4 * parts.min()
    assert np.array_equal(rotation, train_rotation(vectors)), "the same pool gives the same rotation"


def test_scores_are_near_the_exact_ones() -> None:
    vectors = pool(3000)
    found = packed(vectors)
    for query in pool(20, seed=2):
        exact, near = vectors @ query, found.scores(query)
        assert near.dtype == np.float32 and len(near) == len(found) == 3000
        assert np.abs(exact - near).mean() < 0.02 and np.abs(exact - near).max() < 0.12
        assert np.corrcoef(exact, near)[0, 1] > 0.98


def test_scores_of_some_rows_are_those_of_all() -> None:
    vectors = pool(20_000)
    found, query = packed(vectors), pool(1, seed=3)[0]
    rows = np.array([19_999, 0, 7, 7, 16_384])
    assert np.allclose(found.scores(query, rows), found.scores(query)[rows])
    assert len(found.scores(query, np.zeros(0, np.int64))) == 0


def test_what_exact_search_finds_is_found_for_most() -> None:
    vectors = pool(20_000)
    found, shares = packed(vectors), []
    for query in pool(30, seed=4):
        best = set(np.argsort(-(vectors @ query))[:10].tolist())
        shares.append(len(best & set(found.nearest(query, 100).tolist())) / 10)
    assert np.mean(shares) > 0.95


def test_only_what_is_allowed_is_nearest() -> None:
    vectors = pool(5000)
    found, query = packed(vectors), pool(1, seed=5)[0]
    allowed = np.zeros(5000, dtype=np.bool_)
    allowed[np.argsort(vectors @ query)[:2000]] = True  # the worst ones
    rows = found.nearest(query, 50, allowed)
    assert len(rows) == 50 and allowed[rows].all() and len(set(rows.tolist())) == 50
    few = np.zeros(5000, dtype=np.bool_)
    few[[3, 4999]] = True
    assert found.nearest(query, 50, few).tolist() == [3, 4999]
    assert len(found.nearest(query, 50, np.zeros(5000, dtype=np.bool_))) == 0
    assert few.sum() == 2 and allowed.sum() == 2000, "masks are left as they were"


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_a_handful_of_rows_works(count: int) -> None:
    vectors = pool(10)[:count]
    found, query = packed(vectors, train_rotation(pool(300))), pool(1, seed=6)[0]
    assert len(found) == count and found.scores(query).shape == (count,)
    assert sorted(found.nearest(query, 3).tolist()) == sorted(np.argsort(-found.scores(query))[:3].tolist())
    rotation = train_rotation(vectors)
    assert rotation.shape == (DIM, KEPT) and np.isfinite(rotation).all(), "even of next to nothing"
    assert np.allclose(packed(vectors).scores(query), vectors @ query, atol=0.15) or count == 0


def test_about_as_many_rows_as_the_signs_propose_works() -> None:
    query = pool(1, seed=7)[0]
    for count in (PROPOSED - 1, PROPOSED, PROPOSED + 1):
        vectors = pool(count)
        assert len(packed(vectors).nearest(query, 10)) == 10
        assert len(packed(vectors).nearest(query, count)) == count
        assert len(packed(vectors).nearest(query, 2 * count)) == count


def test_a_vector_of_nothing_scores_nothing() -> None:
    vectors = np.concatenate([np.zeros((1, DIM), np.float32), pool(100)])
    found = packed(vectors)
    assert found.scores(pool(1, seed=8)[0])[0] == 0.0
    assert np.isfinite(found.scores(np.zeros(DIM, np.float32))).all()
    assert len(found.nearest(np.zeros(DIM, np.float32), 5)) == 5


@pytest.mark.parametrize("dim", [16, 48, 64, 100, 256, 1024])
def test_encoders_of_other_sizes_can_be_packed(dim: int) -> None:
    random = np.random.default_rng(9)
    vectors = random.standard_normal((200, dim)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    found = packed(vectors)
    own = [found.scores(vectors[row]).argmax() == row for row in range(50)]
    assert np.mean(own) > 0.95
    assert all(row in found.nearest(vectors[row], 5) for row in range(50))


def test_in_a_real_pack_tools_score_as_in_the_index_that_it_was_built_from(built_pack: Built) -> None:
    index = PackIndex.open_pack(built_pack.path, built_pack.encoder)
    generation = built_pack.generation
    ids = [tool.tool_id for tool in search_pool.tools()]
    here, there = index.storage.rows_of(ids), generation.rows_of(ids)
    assert (here >= 0).all() and (there >= 0).all()
    texts = [query_text(text) for text in ("convert euros to yen", "open an issue", "開く")]
    for vector in built_pack.encoder.encode(texts, kind="query"):
        near, exact = index.storage.tools.scores(vector, here), generation.tools.scores(vector, there)
        assert np.abs(near - exact).max() < 0.1 and near.argmax() == exact.argmax()
