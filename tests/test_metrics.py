"""Ranking and abstention metrics against hand-computed values and independent formulae."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.eval.metrics import (
    Judged,
    auroc,
    mean,
    mean_scores,
    ndcg_at,
    percentile,
    ranking_scores,
    recall_at,
    reciprocal_rank,
    share,
    spread,
)


def judged(ranked: str, gold: str, relevant: str = "") -> Judged:
    return Judged(list(ranked), frozenset(gold), frozenset(gold + relevant))


def test_one_gold_tool_at_rank_three() -> None:
    scores = ranking_scores(judged("xygz", "g").strict_gains(), 1)
    assert scores == {"recall@1": 0.0, "recall@5": 1.0, "recall@10": 1.0, "mrr": 1 / 3, "ndcg@10": 0.5}


def test_recall_over_several_gold_tools_is_the_share_found() -> None:
    gains = judged("axbyyyzc", "abcd").strict_gains()
    assert recall_at(gains, 4, 1) == 0.25
    assert recall_at(gains, 4, 5) == 0.5
    assert recall_at(gains, 4, 10) == 0.75


def test_ndcg_of_several_gold_tools_by_hand() -> None:
    # found at ranks 1 and 3, two wanted: (1 + 1/2) / (1 + 1/log2 3)
    assert ndcg_at(judged("axb", "ab").strict_gains(), 2, 10) == pytest.approx(1.5 / (1 + 1 / math.log2(3)))
    assert ndcg_at(judged("ab", "ab").strict_gains(), 2, 10) == pytest.approx(1.0)


def test_ndcg_ideal_is_cut_at_k_and_ranks_beyond_k_do_not_count() -> None:
    assert ndcg_at([1, 1], 5, 2) == pytest.approx(1.0)
    assert ndcg_at([0, 0, 1], 1, 2) == 0.0


def test_equivalent_tool_counts_as_the_gold_one() -> None:
    row = judged("xeg", "g", "e")
    assert ranking_scores(row.strict_gains(), 1)["mrr"] == 1 / 3
    assert ranking_scores(row.equivalent_gains(), 1)["mrr"] == 1 / 2
    assert recall_at(row.equivalent_gains(), 1, 5) == 1.0


def test_equivalent_tools_beyond_the_number_of_gold_tools_add_nothing() -> None:
    row = judged("efgh", "gh", "ef")
    assert row.equivalent_gains() == [1, 1, 0, 0]
    assert recall_at(row.equivalent_gains(), 2, 10) == 1.0


def test_a_tool_ranked_twice_counts_once() -> None:
    assert judged("gg", "gh").strict_gains() == [1, 0]


def test_nothing_found() -> None:
    assert reciprocal_rank([0, 0]) == 0.0
    assert set(ranking_scores([], 1).values()) == {0.0}


@given(
    st.permutations(list("abcdefghijkl")),
    st.sets(st.sampled_from("abcdefgh"), min_size=1),
    st.sets(st.sampled_from("abcdefghijkl")),
)
def test_equivalent_is_never_below_strict(ranked: list[str], gold: set[str], relevant: set[str]) -> None:
    row = Judged(ranked, frozenset(gold), frozenset(gold | relevant))
    strict = ranking_scores(row.strict_gains(), len(gold))
    equivalent = ranking_scores(row.equivalent_gains(), len(gold))
    assert all(equivalent[key] >= strict[key] - 1e-12 for key in strict)
    assert all(0 <= value <= 1 + 1e-12 for value in equivalent.values())


@given(st.lists(st.integers(0, 6), min_size=1, max_size=30), st.lists(st.integers(0, 6), min_size=1, max_size=30))
def test_auroc_is_the_share_of_pairs_in_right_order(positives: list[int], negatives: list[int]) -> None:
    pairs = [1.0 if p > n else 0.5 if p == n else 0.0 for p in positives for n in negatives]
    assert auroc(positives, negatives) == pytest.approx(sum(pairs) / len(pairs))


def test_auroc_needs_both_sides() -> None:
    assert auroc([], [0.1]) is None
    assert auroc([0.1], []) is None


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.sampled_from([0, 5, 50, 95, 100]))
def test_percentile_interpolates_as_numpy_does(values: list[float], q: int) -> None:
    assert percentile(values, q) == pytest.approx(float(np.percentile(values, q)), rel=1e-9, abs=1e-6)


def test_means_of_nothing_are_none() -> None:
    assert mean([]) is None
    assert share([]) is None
    assert spread([]) == {"p50": None, "p95": None}
    assert set(mean_scores([]).values()) == {None}


def test_share_and_mean_scores() -> None:
    assert share([True, False, False, True]) == 0.5
    rows = [ranking_scores([1], 1), ranking_scores([0, 1], 1)]
    assert mean_scores(rows)["recall@1"] == 0.5
    assert mean_scores(rows)["mrr"] == 0.75


@given(
    st.permutations(list("abcdefghijklmnopqrst")),
    st.sets(st.sampled_from("abcdefghijklmnopqrstuvwxyz"), min_size=1, max_size=15),
    st.sets(st.sampled_from("abcdefghijklmnopqrst"), max_size=4),
)
def test_several_gold_tools_score_as_trec_eval_has_it(ranked: list[str], gold: set[str], relevant: set[str]) -> None:
    import pytrec_eval

    def theirs(wanted: set[str]) -> list[float]:
        evaluator = pytrec_eval.RelevanceEvaluator(
            {"q": dict.fromkeys(wanted, 1)}, {"recall.1,5,10", "recip_rank", "ndcg_cut.10"}
        )
        found = evaluator.evaluate({"q": {tool: -float(rank) for rank, tool in enumerate(ranked)}})["q"]
        return [found[name] for name in ("recall_1", "recall_5", "recall_10", "recip_rank", "ndcg_cut_10")]

    row = Judged(ranked, frozenset(gold), frozenset(gold | relevant))
    assert list(ranking_scores(row.strict_gains(), len(gold)).values()) == pytest.approx(theirs(gold))
    # equivalent: as if the first relevant tools, as many as are gold, were the gold ones; the rest is never ranked
    hits = [tool for tool in ranked if tool in gold | relevant][: len(gold)]
    stand_ins = {*hits, *(f"lacking {n}" for n in range(len(gold) - len(hits)))}
    assert list(ranking_scores(row.equivalent_gains(), len(gold)).values()) == pytest.approx(theirs(stand_ins))


def test_the_comparison_with_other_libraries_notices_a_difference(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    import metrics_agreement

    # what else is installed differs from machine to machine
    monkeypatch.setattr(metrics_agreement, "LIBRARIES", {"pytrec_eval": metrics_agreement.by_trec})
    assert metrics_agreement.main(["--rows", "60"]) == 0
    said = capsys.readouterr().out
    assert "several gold, equivalent" in said and "0 differ" in said

    def wrong(gains: list[int], wanted: int) -> dict[str, float]:
        return {**ranking_scores(gains, wanted), "ndcg@10": ndcg_at(gains, wanted, 5)}

    monkeypatch.setattr(metrics_agreement, "ranking_scores", wrong)
    assert metrics_agreement.main(["--rows", "60"]) == 1
    monkeypatch.delitem(sys.modules, "metrics_agreement")
