"""Compares our ranking metrics and AUROC with other people's implementations, on random rankings.

    pip install ranx pytrec-eval-terrier scikit-learn      # any of them: what is missing is left out and named
    python benchmarks/metrics_agreement.py [--rows 2000] [--seed 0] [--json out.json]

Rankings of 1 to 50 of 200 tools, with one gold tool or two to six, some of them never ranked, and up to five equivalent
ones. *strict* is compared as it is. For the *equivalent* reading nobody else has several gold tools: there the others
are asked about the first relevant tools of the ranking, as many as there are gold ones, chosen here by code of its own.
With one gold tool recall and MRR are also compared with the others' success and reciprocal rank over all relevant
tools. MRR is compared over all 50 ranks, which is what ours means. Exits with 1 if a row of any metric differs by more
than 1e-6 (the others compute in single precision in places), with 2 if none of the libraries is here.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from toolscout.eval.metrics import RANKING_KEYS, Judged, auroc, ranking_scores

Scores = list[dict[str, float]]
NEAR = 1e-6
INSTALL = "pip install ranx pytrec-eval-terrier scikit-learn"


def random_rows(count: int, several: bool, seed: int) -> list[Judged]:
    """Random rankings with what was wanted."""
    chance = random.Random(f"{seed} {several}")
    tools = [f"t{n}" for n in range(200)]
    rows = []
    for _ in range(count):
        ranked = chance.sample(tools, chance.randint(1, 50))
        # half of the gold is drawn from the top, where it matters; the rest may be anywhere, or not ranked at all
        places = ranked[:12] if chance.random() < 0.5 else tools
        gold = chance.sample(places, min(len(places), chance.randint(2, 6) if several else 1))
        relevant = chance.sample(tools, chance.randint(0, 5))
        rows.append(Judged(ranked, frozenset(gold), frozenset([*gold, *relevant])))
    return rows


def ours(rows: Sequence[Judged], reading: str) -> Scores:
    """The product's own evaluation."""
    gains = [row.strict_gains() if reading == "strict" else row.equivalent_gains() for row in rows]
    return [ranking_scores(found, len(row.gold)) for found, row in zip(gains, rows, strict=True)]


def wanted_of(row: Judged, reading: str) -> list[str]:
    """What another library is told to be relevant; an equivalent tool that is not ranked stands for each one missed."""
    if reading == "strict":
        return sorted(row.gold)
    hits = [tool for tool in row.ranked if tool in row.relevant or tool in row.gold][: len(row.gold)]
    return hits + [f"missed {n}" for n in range(len(row.gold) - len(hits))]


def as_run(rows: Sequence[Judged]) -> dict[str, dict[str, float]]:
    """Rankings as falling scores."""
    return {str(at): {tool: float(-rank) for rank, tool in enumerate(row.ranked)} for at, row in enumerate(rows)}


def by_trec(rows: Sequence[Judged], wanted: Sequence[Sequence[str]]) -> Scores:
    """pytrec_eval, NIST's trec_eval."""
    import pytrec_eval

    names = {"recall@1": "recall_1", "recall@5": "recall_5", "recall@10": "recall_10", "mrr": "recip_rank"}
    names["ndcg@10"] = "ndcg_cut_10"
    judged = {str(at): dict.fromkeys(tools, 1) for at, tools in enumerate(wanted)}
    evaluator = pytrec_eval.RelevanceEvaluator(judged, {"recall.1,5,10", "recip_rank", "ndcg_cut.10"})
    found = evaluator.evaluate(as_run(rows))
    return [{ours_: found[str(at)][theirs] for ours_, theirs in names.items()} for at in range(len(rows))]


def by_ranx(rows: Sequence[Judged], wanted: Sequence[Sequence[str]]) -> Scores:
    """ranx."""
    from ranx import Qrels, Run, evaluate

    qrels = Qrels({str(at): dict.fromkeys(tools, 1) for at, tools in enumerate(wanted)})
    run = Run(as_run(rows))
    evaluate(qrels, run, list(RANKING_KEYS))  # it keeps each query's scores in the run
    found = {key: run.scores[key] for key in RANKING_KEYS}
    return [{key: float(found[key][str(at)]) for key in RANKING_KEYS} for at in range(len(rows))]


LIBRARIES: dict[str, Callable[[Sequence[Judged], Sequence[Sequence[str]]], Scores]] = {
    "pytrec_eval": by_trec,
    "ranx": by_ranx,
}


def compare(count: int, seed: int) -> list[dict[str, Any]]:
    """A line for each library, kind of rows and metric: both means and the largest difference of a row."""
    lines: list[dict[str, Any]] = []

    def add(library: str, kind: str, metric: str, mine: Sequence[float], theirs: Sequence[float]) -> None:
        apart = max(abs(a - b) for a, b in zip(mine, theirs, strict=True))
        means = (sum(mine) / len(mine), sum(theirs) / len(theirs))
        lines.append(
            {"library": library, "rows": kind, "metric": metric, "ours": means[0], "theirs": means[1], "apart": apart}
        )

    for library, ask in LIBRARIES.items():
        if importlib.util.find_spec(library) is None:
            continue
        for several in (False, True):
            rows = random_rows(count, several, seed)
            for reading in ("strict", "equivalent"):
                mine, theirs = ours(rows, reading), ask(rows, [wanted_of(row, reading) for row in rows])
                kind = f"{'several' if several else 'one'} gold, {reading}"
                for key in RANKING_KEYS:
                    add(library, kind, key, [row[key] for row in mine], [row[key] for row in theirs])
        # one gold tool: any relevant one does, without our way of choosing which
        rows = random_rows(count, False, seed)
        mine, found = ours(rows, "equivalent"), ask(rows, [sorted(row.relevant | row.gold) for row in rows])
        hits = [[float(found_["recall@5"] > 0) for found_ in found], [found_["mrr"] for found_ in found]]
        add(library, "one gold, all relevant", "success@5", [row["recall@5"] for row in mine], hits[0])
        add(library, "one gold, all relevant", "mrr", [row["mrr"] for row in mine], hits[1])
    if importlib.util.find_spec("sklearn") is not None:
        from sklearn.metrics import roc_auc_score

        chance = random.Random(seed)
        for ties, digits in (("ties", 1), ("hardly any ties", 12)):
            pairs = []
            for _ in range(50):
                sides = [
                    [round(chance.gauss(mean, 1), digits) for _ in range(chance.randint(1, 200))] for mean in (0.7, 0)
                ]
                labels = [1] * len(sides[0]) + [0] * len(sides[1])
                pairs.append((auroc(*sides) or 0.0, float(roc_auc_score(labels, sides[0] + sides[1]))))
            add("sklearn", f"50 samples, {ties}", "auroc", [a for a, _ in pairs], [b for _, b in pairs])
    return lines


def main(argv: Sequence[str] | None = None) -> int:
    """Command line of this script."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=2000, help="random rankings of each kind")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the comparison to this file")
    args = parser.parse_args(argv)
    missing = [name for name in (*LIBRARIES, "sklearn") if importlib.util.find_spec(name) is None]
    if missing:
        print(f"Not installed, so not compared: {', '.join(missing)}. {INSTALL}", file=sys.stderr)
    lines = compare(args.rows, args.seed)
    if not lines:
        return 2
    for line in lines:
        means = f"ours {line['ours']:.6f} theirs {line['theirs']:.6f}"
        print(f"{line['library']:12} {line['rows']:28} {line['metric']:10} {means}  a row at most {line['apart']:.0e}")
    if args.json is not None:
        args.json.write_text(json.dumps({"n": args.rows, "seed": args.seed, "comparisons": lines}, indent=1), "utf-8")
    apart = [line for line in lines if line["apart"] > NEAR]
    print(f"{len(lines)} comparisons, {len(apart)} differ.")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
