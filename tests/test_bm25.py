"""Fielded BM25 against a direct computation of its formula, and against the reference library where one can compare."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import search_pool

from toolscout.index.bm25 import Bm25Weights, Forward, Inverted
from toolscout.index.document import FIELDS, tool_words
from toolscout.index.words import hashes, words

DOCUMENTS = [
    {"name": "getForecast", "description": "Weather forecast for a city", "server": "weather"},
    {"name": "create_issue", "description": "Open an issue, then another issue", "parameters": "title body"},
    {"name": "天気", "description": "東京の天気"},
    {"name": "", "description": ""},
]


def by_hand(documents: list[dict[str, str]], query: str, w: Bm25Weights) -> list[float]:
    """The formula in the module's docstring, word by word."""
    counts = [{f: Counter(words(d.get(f, ""))) for f in FIELDS} for d in documents]
    average = {f: max(sum(c[f].total() for c in counts) / len(counts), 1e-9) for f in FIELDS}
    scores = []
    for document in counts:
        score = 0.0
        for word in set(words(query)):
            df = sum(any(c[f][word] for f in FIELDS) for c in counts)
            if not df:
                continue
            tf = 0.0
            for i, f in enumerate(FIELDS):
                tf += w.weights[i] * document[f][word] / (1 - w.b[i] + w.b[i] * document[f].total() / average[f])
            score += math.log(1 + (len(counts) - df + 0.5) / (df + 0.5)) * tf * (w.k1 + 1) / (tf + w.k1)
        scores.append(score)
    return scores


@pytest.mark.parametrize("query", ["weather forecast", "issues", "create an issue title", "東京", "nothing here", ""])
def test_scores_follow_the_formula(query: str) -> None:
    weights = Bm25Weights(k1=1.4, weights=(3.0, 1.0, 0.5, 2.0), b=(0.2, 0.7, 0.5, 0.1))
    found = Inverted.of(Forward.of(DOCUMENTS), weights).score(hashes(query))
    assert found.scores == pytest.approx(by_hand(DOCUMENTS, query, weights), rel=1e-5)


def test_ranks_as_bm25s_does_on_one_field() -> None:
    bm25s = pytest.importorskip("bm25s")
    texts = [t.description for t in search_pool.tools()]
    tokens = [list(words(t)) for t in texts]
    reference = bm25s.BM25(method="lucene", k1=1.5, b=0.75)
    reference.index(tokens, show_progress=False)
    weights = Bm25Weights(k1=1.5, weights=(0, 1, 0, 0), b=(0, 0.75, 0, 0))
    ours = Inverted.of(Forward.of([{"description": t} for t in texts]), weights)
    for query in ("list pull requests of a repository", "weather forecast city", "convert money currency", "天气预报"):
        expected = reference.get_scores(sorted(set(words(query))))
        # bm25s leaves the constant factor k1 + 1 out.
        assert ours.score(hashes(query)).scores == pytest.approx(expected * 2.5, rel=1e-4)


def test_unknown_words_weigh_as_rare_ones() -> None:
    found = Inverted.of(Forward.of(DOCUMENTS), Bm25Weights()).score(hashes("zebra forecast"))
    assert len(found.terms) == 2
    assert found.idf[0] == pytest.approx(found.idf[1])


def test_rows_can_be_taken_and_joined(tmp_path: Path) -> None:
    everything = Forward.of(DOCUMENTS)
    joined = Forward.join([Forward.of(DOCUMENTS[2:]), Forward.of(DOCUMENTS[:2])]).take(np.array([2, 3, 0, 1]))
    for name in ("indptr", "terms", "counts", "lengths"):
        assert np.array_equal(getattr(joined, name), getattr(everything, name))
    everything.save(tmp_path)
    loaded = Forward.load(tmp_path)
    assert np.array_equal(loaded.row(1), everything.row(1))
    assert loaded.terms.dtype == np.uint64


def test_saved_index_scores_alike(tmp_path: Path) -> None:
    pool = {s.server_id: s for s in search_pool.servers()}
    index = Inverted.of(Forward.of(tool_words(t, pool[t.server_id]) for t in search_pool.tools()), Bm25Weights())
    index.save(tmp_path)
    loaded = Inverted.load(tmp_path, index.size)
    query = hashes("open an issue in the repository")
    assert np.array_equal(index.score(query).scores, loaded.score(query).scores)


def test_no_documents() -> None:
    index = Inverted.of(Forward.of([]), Bm25Weights())
    assert index.score(hashes("anything")).scores.shape == (0,)


def test_stuffing_one_word_does_not_grow_without_bound() -> None:
    honest = {"name": "pay", "description": "pay an invoice"}
    stuffed = {"name": "x", "description": "invoice " * 3000}
    others = [{"description": f"something else {i}"} for i in range(20)]
    scores = Inverted.of(Forward.of([honest, stuffed, *others]), Bm25Weights()).score(hashes("pay an invoice")).scores
    assert scores[0] > scores[1]
