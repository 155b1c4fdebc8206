"""Words of a pack: they rank as BM25 does, the strongest of each tool are kept, and no word is kept as such."""

from __future__ import annotations

import numpy as np
import pytest
import search_pool
from pack_fixture import Built

from toolscout.index.bm25 import Bm25Weights, Forward, Inverted
from toolscout.index.pack.search import PackIndex
from toolscout.index.pack.words import MOST, PackedWords, pack_words
from toolscout.index.words import hashes

DOCUMENTS = [
    {"name": "create_issue", "description": "Open a new issue in a repository.", "server": "GitHub"},
    {"name": "list_issues", "description": "List the issues of a repository by state.", "server": "GitHub"},
    {"name": "get_forecast", "description": "Weather forecast: temperature, rain and wind.", "server": "Weather"},
    {"name": "issue", "description": "Issue issue issue.", "server": "Tracker"},
    {"name": "maps_weather", "description": "查询指定城市的天气预报", "server": "地图服务"},
    {"name": "", "description": "", "server": ""},
]


def both(documents: list[dict[str, str]], most: int = MOST) -> tuple[Inverted, PackedWords]:
    inverted = Inverted.of(Forward.of(documents), Bm25Weights())
    return inverted, PackedWords(len(documents), **pack_words(inverted, most))


@pytest.mark.parametrize("query", ["open issue", "repository issues by state", "rain", "天气", "issue weather GitHub"])
def test_scores_are_those_of_bm25(query: str) -> None:
    inverted, packed = both(DOCUMENTS)
    exact, near = inverted.score(hashes(query)).scores, packed.score(hashes(query)).scores
    assert near.dtype == np.float32 and near.shape == exact.shape
    assert np.abs(exact - near).max() <= 0.02 * exact.max()
    assert np.array_equal(np.argsort(-exact, kind="stable"), np.argsort(-near, kind="stable"))
    assert ((near > 0) == (exact > 0)).all(), "what has a word scores, however little"


def test_a_great_many_words_rank_as_bm25_does() -> None:
    random = np.random.default_rng(3)
    words = [f"word{n}" for n in range(300)]
    likely = 1 / (1 + np.arange(300))
    documents = [{"description": " ".join(random.choice(words, size=15, p=likely / likely.sum()))} for _ in range(500)]
    inverted, packed = both(documents)
    for _ in range(20):
        query = hashes(" ".join(random.choice(words, size=4, replace=False)))
        exact, near = inverted.score(query).scores, packed.score(query).scores
        assert np.abs(exact - near).max() < 0.02 * max(exact.max(), 1)
        best = near.argmax()
        assert exact[best] >= exact.max() - 0.02 * exact.max()


def test_a_repeated_word_counts_once() -> None:
    _, packed = both(DOCUMENTS)
    assert np.array_equal(packed.score(hashes("issue issue issue")).scores, packed.score(hashes("issue")).scores)


def test_the_strongest_words_of_a_tool_are_kept() -> None:
    documents = [{"name": "rare", "description": " ".join(f"common{n}" for n in range(20))}] + [
        {"description": " ".join(f"common{n}" for n in range(20))} for _ in range(30)
    ]
    inverted, packed = both(documents, most=5)
    kept = packed.score([int(word) for word in inverted.terms])
    for row in range(len(documents)):
        having = {
            int(term): float(inverted.impacts[a:b][inverted.rows[a:b] == row][0])
            for term, a, b in zip(inverted.terms, inverted.indptr, inverted.indptr[1:], strict=False)
            if row in inverted.rows[a:b]
        }
        held = {int(word) for word in kept.held(row)}
        assert len(held) == 5 and held <= set(having)
        assert min(having[w] for w in held) >= max(having[w] for w in set(having) - held) - 1e-6
    assert packed.score(hashes("rare")).scores[0] > 0, "its own word is the strongest"


def test_a_word_whose_tools_were_all_pruned_is_known_still() -> None:
    documents = [{"name": f"alpha{n} beta{n}", "description": "filler"} for n in range(9)]
    inverted, packed = both(documents, most=2)
    assert not packed.score(hashes("filler")).scores.any()
    assert packed.knows(hashes("filler")) and packed.knows(hashes("alpha3"))
    assert not packed.knows(hashes("omega")) and not packed.knows([])
    filler = packed.score(hashes("filler"))
    assert filler.idf[0] == pytest.approx(inverted.score(hashes("filler")).idf[0])


def test_held_are_those_of_the_words_asked_for_that_a_tool_has() -> None:
    _, packed = both(DOCUMENTS)
    asked = packed.score(hashes("issue forecast zebra"))
    assert {int(w) for w in asked.held(0)} == set(hashes("issue"))
    assert {int(w) for w in asked.held(2)} == set(hashes("forecast"))
    assert len(asked.held(4)) == len(asked.held(5)) == 0


def test_a_word_that_no_tool_has_weighs_as_in_bm25() -> None:
    inverted, packed = both(DOCUMENTS)
    exact, near = inverted.score(hashes("issue zebra")), packed.score(hashes("issue zebra"))
    assert np.array_equal(exact.terms, near.terms)
    assert np.allclose(exact.idf, near.idf, rtol=1e-4)
    assert not packed.score(hashes("zebra")).scores.any()


def test_no_words_score_nothing() -> None:
    _, packed = both(DOCUMENTS)
    asked = packed.score([])
    assert not asked.scores.any() and len(asked.held(0)) == 0 and len(asked.top(5)) == 0


def test_a_pack_without_a_word_works() -> None:
    for documents in ([], [{"name": ""}]):
        _, packed = both(documents)
        assert packed.score(hashes("issue")).scores.tolist() == [0.0] * len(documents)
        assert not packed.knows(hashes("issue"))


def test_no_tool_of_a_pack_has_more_words_than_the_limit(built_pack: Built) -> None:
    index = PackIndex.open_pack(built_pack.path, built_pack.encoder)
    postings = index.storage.arrays["word.postings"]
    assert np.bincount(postings >> 8).max() <= MOST


def test_in_a_real_pack_words_rank_as_in_the_index_that_it_was_built_from(built_pack: Built) -> None:
    index = PackIndex.open_pack(built_pack.path, built_pack.encoder)
    ids = [tool.tool_id for tool in search_pool.tools()]
    here, there = index.storage.rows_of(ids), built_pack.generation.rows_of(ids)
    for query in ("merge pull request", "currency rate", "git branch", "天气预报"):
        near = index.storage.words.score(hashes(query)).scores[here]
        exact = built_pack.generation.words.score(hashes(query)).at(None)[there]
        assert ids[int(near.argmax())] == ids[int(exact.argmax())] and np.corrcoef(near, exact)[0, 1] > 0.95
