"""Fit the search's few parameters to requests with known answers, and write them into the encoder's folder.

    python -m toolscout.finetune.fit_search HOME FIT.jsonl.gz --choose DEV.jsonl.gz --alike ANSWERABLE.jsonl \
        --everyday EVERYDAY.jsonl --installations INSTALLATIONS.json --out ENCODER_FOLDER/search.json

Steps 1 and 2 learn from the first files: requests that the encoder was not trained on (``fit.jsonl.gz`` of its run).
Steps 3 and 4 choose on the others.

1. Signal weights: listwise softmax likelihood of the relevant tools among the nearest ones of every signal, which are
   the negatives; gradient ascent. ``exemplar`` gets the weight of ``tool``, so that exemplars are further views of
   their tool (max-sim); ``name`` is given, since requests that spell a tool's identifier are rare in any file.
2. Abstention: two logistic regressions whose probabilities are multiplied. Whether any tool could serve the request
   is learnt from the file's answerable and unanswerable requests (``fusion.KIND``, for encoders that know a document
   for no tool). Whether this pool has one is learnt from each answerable request over small pools, with the servers
   of its tools and without, and over the whole: most installations have a few dozen tools, not ten thousand. Beside
   each request stand two terse ones, its tool's name and a few of its own words: agents and people ask like that, files
   of requests do not, and the short ones in them are mostly those that nothing serves.
3. Threshold: the probability that leaves at most ``--false-offers`` of the unanswerable requests an offer, unless more
   than ``--false-refusals`` of the answerable ones would fall under it. Over small pools, the probability under which
   ``--small-refusals`` of the answerable ones of step 2 fall, terse ones included.
4. Dynamic k: ``drop`` so that at most ``--lost`` of the first ``limit`` tools' hits are lost, ``tie`` so that answers
   are longer than ``limit`` in at most ``--longer`` of the requests.

Every step is deterministic. Reported beside the fit: five-fold cross-validated recall on what it learnt from.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.finetune.augment import augment
from toolscout.finetune.pairs import read_kept_apart
from toolscout.index import fusion
from toolscout.index.bm25 import Bm25Weights, Forward, Inverted, WordScores
from toolscout.index.document import name_words
from toolscout.index.search import Ask, Ranking, SearchIndex
from toolscout.index.storage import GenerationStorage
from toolscout.index.words import has_words, hashes
from toolscout.jsonl import read_objects, read_records
from toolscout.records import Call
from toolscout.settings import Settings

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FITTED = ("tool", "words")
NAME = 0.5
SCALE = 10.0
"""Fitted weights are divided by this: the softmax wants about 10 a unit of cosine, a score of 0 to 2 reads better."""

POOLS = (3, 10, 40, 160)
"""Servers in the small pools of step 2."""

_NEAR = 150
_LIMIT = 5


@dataclass
class Case:
    """One request: its candidates' signals [n, fitted], which of them are relevant, and what ranked it."""

    call: Call
    ask: Ask
    relevant: Rows
    signals: Floats
    labels: Mask


@dataclass
class Asked:
    """One request over one pool: what abstention looks at, whether a tool there serves it, and whether one of the first
    ``_LIMIT`` does."""

    call: Call
    shape: dict[str, float]
    answerable: bool
    hit: bool


def read_cases(index: SearchIndex, calls: Sequence[Call]) -> list[Case]:
    """Signals of the nearest tools of each request, and of its relevant ones."""
    cases = []
    for call in calls:
        if not has_words(call.query):
            continue
        ask = index.ask(call.query)
        signals = index.signals(ask, None)
        relevant = index.rows_of(sorted(call.relevant_ids()))
        if call.gold and not len(relevant):
            continue  # for a tool of another pool: not unanswerable, only not answerable here
        near = [np.argpartition(-s, min(_NEAR, len(index) - 1))[:_NEAR] for n, s in signals.items() if n in FITTED]
        rows = np.unique(np.concatenate([*near, relevant])).astype(np.int64)
        table = np.stack([signals[n][rows] for n in FITTED], axis=1).astype(np.float64)
        cases.append(Case(call, ask, relevant, table, np.isin(rows, relevant)))
    return cases


def terse(index: SearchIndex, cases: Sequence[Case]) -> list[Case]:
    """The requests again, twice: by the bare name of their gold tool, and by three to six of their own words."""
    calls = []
    for case in cases:
        tool = index.get_tool(case.call.gold[0].tool_id)
        draw = random.Random(case.call.id)
        words = augment(case.call.query, "keywords", draw).split()
        for query in (name_words(tool.name) if tool else "", " ".join(words[: draw.randint(3, 6)])):
            if has_words(query):
                calls.append(case.call.model_copy(update={"query": query}))
    return read_cases(index, calls)


def fit_signals(cases: Sequence[Case], steps: int = 300, rate: float = 0.3) -> Floats:
    """Weights [fitted] that maximise the softmax likelihood of the relevant tools (Adam, full batch); none negative."""
    weights = np.full(len(FITTED), 3.0)
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, steps + 1):
        gradient = np.zeros_like(weights)
        for case in cases:
            scores = case.signals @ weights
            chance = np.exp(scores - scores.max())
            chance /= chance.sum()
            wanted = chance * case.labels
            gradient += case.signals.T @ (chance - wanted / max(wanted.sum(), 1e-12))
        gradient /= len(cases)
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.99 * square + 0.01 * gradient**2
        weights -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
        weights = np.maximum(weights, 0.0)
    return weights


def places(cases: Sequence[Case], weights: Floats) -> Rows:
    """Rank (from 0) of each request's best relevant tool."""
    found = []
    for case in cases:
        scores = case.signals @ weights
        found.append(int((scores > scores[case.labels].max()).sum()))
    return np.array(found)


def cross_validate(cases: Sequence[Case], folds: int = 5) -> Rows:
    """Ranks with weights fitted on the other folds."""
    order = np.random.default_rng(0).permutation(len(cases)) % folds
    ranks = np.empty(len(cases), dtype=np.int64)
    for fold in range(folds):
        weights = fit_signals([c for c, f in zip(cases, order, strict=True) if f != fold])
        held = np.flatnonzero(order == fold)
        ranks[held] = places([cases[int(i)] for i in held], weights)
    return ranks


def small_pools(index: SearchIndex, case: Case, random: np.random.Generator) -> list[tuple[dict[str, float], bool]]:
    """Shapes of a request over a few random servers, with those of its tools and without."""
    servers = index.tool_servers
    own = np.unique(servers[case.relevant])
    others = np.setdiff1d(np.arange(index.meta.servers), own)
    found = []
    for size in POOLS:
        drawn = random.choice(others, min(size, len(others)), replace=False)
        for answerable in (True, False):
            kept = np.concatenate([drawn, random.choice(own, 1)]) if answerable else drawn
            allowed = np.isin(servers, kept)
            if answerable and not allowed[case.relevant].any():
                continue
            found.append((index.rank(in_pool(index, case.ask, allowed), allowed, 10).shape, answerable))
    return found


def installed(index: SearchIndex, calls: Sequence[Call], installations: Mapping[str, Sequence[str]]) -> list[Asked]:
    """Requests over the servers of their installation, which ``split`` names."""
    found = []
    for call in calls:
        rows = [index.server_row(server_id) for server_id in installations[call.split or ""]]
        allowed = np.isin(index.tool_servers, [row for row in rows if row >= 0])
        relevant = index.rows_of(call.relevant_ids())
        if not has_words(call.query) or not allowed.any() or (call.gold and not allowed[relevant].any()):
            continue  # its tools wait for review, or are of another pool
        ranking = index.rank(in_pool(index, index.ask(call.query), allowed), allowed, 10)
        found.append(Asked(call, ranking.shape, bool(call.gold), _is_hit(ranking, relevant)))
    return found


def _is_hit(ranking: Ranking, relevant: Rows) -> bool:
    return bool(np.isin(ranking.rows[:_LIMIT], relevant).any())


def platt(chance: Floats, label: Mask, steps: int = 50) -> tuple[float, float]:
    """Slope and shift of the log odds that make these probabilities calibrated (Platt 1999, with his smoothed targets;
    Newton's method, steps halved until they help). The slope is never below 0.05: a higher probability stays one."""
    odds = np.array([fusion.log_odds(float(p)) for p in chance])
    good, bad = int(label.sum()), int((~label).sum())
    target = np.where(label, (good + 1) / (good + 2), 1 / (bad + 2))
    table = np.stack([odds, np.ones_like(odds)], axis=1)

    def loss(weights: Floats) -> float:
        scores = table @ weights
        return float((np.logaddexp(0, scores) - target * scores).mean())

    found = np.zeros(2)
    for _ in range(steps):
        p = 0.5 * (1 + np.tanh(0.5 * (table @ found)))
        curve = table.T @ (table * (p * (1 - p))[:, None]) + 1e-6 * np.eye(2)
        step = np.linalg.solve(curve, table.T @ (p - target))
        while loss(found - step) > loss(found) and np.abs(step).max() > 1e-9:
            step = step / 2
        found = found - step
    return max(0.05, float(found[0])), float(found[1])


def calibration_error(chance: Floats, label: Mask, bins: int = 10) -> float:
    """Expected calibration error over bins of equal counts."""
    order = np.argsort(chance, kind="stable")
    parts = [part for part in np.array_split(order, bins) if len(part)]
    return float(sum(len(p) * abs(chance[p].mean() - label[p].mean()) for p in parts) / len(order))


def in_pool(index: SearchIndex, ask: Ask, allowed: Mask) -> Ask:
    """The request with its words weighed as in an index of these rows alone."""
    rows = np.flatnonzero(allowed)
    part = Inverted.of(_forward(index).take(rows), Bm25Weights()).score(hashes(ask.text))
    scores = np.zeros(len(index), dtype=np.float32)
    scores[rows] = part.scores
    return replace(ask, words=WordScores(scores, part.terms, part.idf))


def _forward(index: SearchIndex) -> Forward:
    assert isinstance(index.storage, GenerationStorage), "a pack keeps no counts to fit on"
    return index.storage.forward


def fit_abstention(
    features: Floats, labels: Mask, weights: Floats, names: Sequence[str] = fusion.SHAPE, steps: int = 3000
) -> tuple[Floats, float]:
    """Logistic regression [names] and its constant, by gradient descent on standardised features with a little L2.

    No weight but the pool's may be negative, and ``nothing``'s only that: a request that is closer or better covered is
    never less likely served, one that is nearer to nothing never more.
    """
    sign = np.array([{"pool": 0, "nothing": -1}.get(name, 1) for name in names])
    centre, scale = features.mean(axis=0), features.std(axis=0) + 1e-9
    x = (features - centre) / scale
    share = weights / weights.sum()
    w, bias = np.zeros(x.shape[1]), 0.0
    for _ in range(steps):
        error = share * (1 / (1 + np.exp(-(x @ w + bias))) - labels)
        w -= 1.0 * (x.T @ error + 1e-3 * w)
        w = np.where(w * sign < 0, 0.0, w)
        bias -= 1.0 * float(error.sum())
    w = w / scale
    return w, bias - float(centre @ w)


def auroc(scores: Floats, labels: Mask) -> float:
    """Chance that an answerable request scores above an unanswerable one."""
    good, bad = scores[labels], scores[~labels]
    if not len(good) or not len(bad):
        return 0.5
    return float(((good[:, None] > bad[None, :]) + 0.5 * (good[:, None] == bad[None, :])).mean())


def fit(
    index: SearchIndex,
    learn: Sequence[Call],
    choose: Sequence[Call],
    alike: Sequence[Call] = (),
    everyday: Sequence[Call] = (),
    installations: Mapping[str, Sequence[str]] | None = None,
    kinds: Mapping[str, str] | None = None,
    *,
    false_refusals: float,
    false_offers: float,
    small_refusals: float,
    lost: float,
    longer: float,
    fitted: str,
) -> tuple[fusion.SearchParams, dict[str, object]]:
    """All parameters, and a report on them. Weights are learnt from ``learn``, limits chosen on ``choose``; ``alike``
    are requests for some tool, whichever, that sound as if they were none; ``everyday`` are requests over small
    ``installations`` (name -> server ids), on which the limits over small pools are chosen; ``kinds`` are what the
    report groups them by (call id -> kind)."""
    cases = read_cases(index, learn)
    answerable = [c for c in cases if len(c.relevant)]
    weights = fit_signals(answerable)
    # A signal that is never there keeps its first weight.
    given = np.array([any(c.signals[:, i].any() for c in answerable) for i in range(len(FITTED))])
    weights = np.where(given, weights, 0.0)
    signals = {n: round(float(w) / SCALE, 4) for n, w in zip(FITTED, weights, strict=True)}
    signals |= {"exemplar": signals["tool"], "name": NAME}
    index.params = replace(index.params, signals=signals)

    rng = np.random.default_rng(0)

    def asked_of(some: Sequence[Case]) -> list[Asked]:
        ranked = [(c, index.rank(c.ask, None, 10)) for c in some]
        return [Asked(c.call, r.shape, bool(len(c.relevant)), _is_hit(r, c.relevant)) for c, r in ranked]

    def shapes_of(some: Sequence[Asked]) -> list[tuple[dict[str, float], bool]]:
        return [(a.shape, a.answerable) for a in some]

    learnt, short = asked_of(cases), terse(index, answerable)
    shapes = shapes_of([*learnt, *asked_of(short)])
    small = [pair for c in [*answerable, *short] for pair in small_pools(index, c, rng)]
    knows_nothing = any(shape["nothing"] for shape, _ in shapes)
    whole = [(shape, label) for shape, label in shapes if label or not knows_nothing]
    balance = np.concatenate([_balanced(whole), _balanced(small)])
    shape_weights, bias = fit_abstention(*_table(whole + small, fusion.SHAPE), balance)
    # Where the pool lacks the tool, the request is still one for a tool.
    meant = shapes + [(shape, True) for shape, label in small if label]
    meant += [(shape, True) for shape, _ in shapes_of(asked_of(read_cases(index, alike)))]
    kind_weights, kind_bias = fit_abstention(*_table(meant, fusion.KIND), _balanced(meant), fusion.KIND)

    def named(names: Sequence[str], values: Floats) -> dict[str, float]:
        return {name: round(float(value), 4) for name, value in zip(names, values, strict=True)}

    fitted_shape = fusion.SearchParams(
        signals=signals,
        shape=named(fusion.SHAPE, shape_weights),
        bias=round(bias, 4),
        kind=named(fusion.KIND, kind_weights) if knows_nothing else {},
        kind_bias=round(kind_bias, 4) if knows_nothing else 0.0,
        fitted=fitted,
    )

    def chances_of(some: Sequence[Asked], params: fusion.SearchParams) -> Floats:
        return np.array([fusion.probability(a.shape, params) for a in some], dtype=np.float64)

    # Before anything is chosen, so that limits are probabilities that mean something.
    day = installed(index, everyday, installations or {})
    calibration: dict[str, float] = {}
    for prefix, some in (("", learnt), ("small_", day)):
        if some:
            slope, shift = platt(chances_of(some, fitted_shape), np.array([a.hit for a in some], dtype=np.bool_))
            calibration |= {f"{prefix}slope": round(slope, 4), f"{prefix}shift": round(shift, 4)}
    fitted_shape = replace(fitted_shape, calibration=calibration)

    def chances(shapes: Sequence[tuple[dict[str, float], bool]]) -> tuple[Floats, Mask]:
        found = np.array([fusion.probability(shape, fitted_shape) for shape, _ in shapes], dtype=np.float64)
        return found, np.array([label for _, label in shapes], dtype=np.bool_)

    chosen = cases if choose is learn else read_cases(index, choose)
    wanted = [c for c in chosen if len(c.relevant)]
    chosen_asked = asked_of(chosen)
    chosen_shapes = shapes_of(chosen_asked)
    chosen_short = shapes_of(asked_of(terse(index, wanted)))
    chance, label = chances(chosen_shapes)
    threshold = float(np.quantile(chance[label], false_refusals, method="lower"))
    if not label.all():
        # No higher than the offers ask for: who asks more tersely than the file does is refused first.
        threshold = min(threshold, float(np.quantile(chance[~label], 1 - false_offers, method="higher")))

    few = shapes_of(day) or small
    chance_few, label_few = chances(few)
    small_threshold = float(np.quantile(chance_few[label_few], small_refusals, method="lower"))
    if not day:
        small_threshold = min(threshold, small_threshold)

    ranked = [(index.rank(c.ask, None, 2 * _LIMIT), c) for c in wanted]
    gaps = [
        float(r.scores[0] - s)
        for r, c in ranked
        for row, s in zip(r.rows[:5], r.scores, strict=False)
        if row in c.relevant
    ]
    last = [float(r.scores[_LIMIT - 1] - r.scores[_LIMIT]) for r, _ in ranked if len(r.scores) > _LIMIT]
    params = replace(
        fitted_shape,
        threshold=_floor(threshold),
        small_threshold=_floor(small_threshold),
        drop=round(float(np.quantile(gaps, 1 - lost)), 4),
        tie=round(float(np.quantile(last, longer)), 4),
    )
    index.params = params
    lengths = [fusion.cut(r.scores, _LIMIT, params) for r, _ in ranked]
    held = [bool(np.isin(r.rows[:k], c.relevant).any()) for (r, c), k in zip(ranked, lengths, strict=True)]

    def recall(ranks: Rows) -> dict[str, float]:
        return {f"@{k}": round(float((ranks < k).mean()), 4) for k in (1, 5, 10, 50)}

    def abstention(shapes: Sequence[tuple[dict[str, float], bool]]) -> dict[str, float]:
        chance, label = chances(shapes)
        offered = np.array([fusion.offers(shape, p, params) for (shape, _), p in zip(shapes, chance, strict=True)])
        return {
            "auroc": round(auroc(chance, label), 4),
            "false_refusals": round(float((~offered[label]).mean()), 4),
            "false_offers": round(float(offered[~label].mean()), 4) if not label.all() else 0.0,
        }

    report: dict[str, object] = {
        "learnt_from": {"answerable": len(answerable), "unanswerable": len(cases) - len(answerable)},
        "chosen_on": {"answerable": len(wanted), "unanswerable": len(chosen) - len(wanted)},
        "recall_learnt": recall(places(answerable, weights)),
        "recall_cross_validated": recall(cross_validate(answerable)),
        "recall_chosen": recall(places(wanted, weights)),
        "recall_alone": {n: recall(places(wanted, np.eye(len(FITTED))[i])) for i, n in enumerate(FITTED) if given[i]},
        "abstention_learnt": abstention(shapes),
        "abstention_small_pools": abstention(small),
        "abstention_chosen": abstention(chosen_shapes),
        "abstention_everyday": abstention(few) | _by_kind(day, kinds or {}, params) if day else {},
        "calibration_error": {
            name: round(calibration_error(chances_of(some, params), np.array([a.hit for a in some])), 4)
            for name, some in (("learnt", learnt), ("chosen", chosen_asked), ("everyday", day))
            if some
        },
        "terse_false_refusals": abstention(chosen_short)["false_refusals"],
        "dynamic_k": {"mean_length": round(float(np.mean(lengths)), 2), "recall": round(float(np.mean(held)), 4)},
    }
    return params, report


def _by_kind(some: Sequence[Asked], kinds: Mapping[str, str], params: fusion.SearchParams) -> dict[str, object]:
    """Of each kind of request (call id -> kind): how many, and the shares refused and offered with a warning."""
    rows: dict[str, list[tuple[bool, bool]]] = {}
    for asked in some:
        chance = fusion.probability(asked.shape, params)
        offered = fusion.offers(asked.shape, chance, params)
        kind = kinds.get(asked.call.id, "served" if asked.answerable else "not served")
        rows.setdefault(kind, []).append((not offered, offered and fusion.doubtful(asked.shape, chance)))
    found: dict[str, object] = {}
    for kind, said in rows.items():
        refused, warned = np.mean(said, axis=0)
        found[kind] = {"n": len(said), "refused": round(float(refused), 4), "warned": round(float(warned), 4)}
    return {"by_kind": found}


def _floor(limit: float) -> float:
    """Four digits, never more than the limit: the request that it was taken from is offered tools."""
    return float(np.floor(limit * 1e4) / 1e4)


def _table(shapes: Sequence[tuple[dict[str, float], bool]], names: Sequence[str]) -> tuple[Floats, Mask]:
    """Features [requests, names] and labels."""
    table = np.array([[shape[n] for n in names] for shape, _ in shapes]).reshape(-1, len(names))
    return table, np.array([label for _, label in shapes], dtype=np.bool_)


def _balanced(shapes: Sequence[tuple[dict[str, float], bool]]) -> Floats:
    """Weights with which both kinds of request count alike, and all together 1."""
    labels = np.array([label for _, label in shapes], dtype=np.bool_)
    counts = np.maximum([(~labels).sum(), labels.sum()], 1)
    return np.asarray(0.5 / counts[labels.astype(int)], dtype=np.float64)


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of this script."""
    parser = argparse.ArgumentParser(description="Fit the search's parameters to requests with known answers.")
    parser.add_argument("home", type=Path, help="home folder whose index holds the pool")
    parser.add_argument("calls", type=Path, nargs="+", help="requests (.jsonl, .jsonl.gz), some unanswerable")
    parser.add_argument("--choose", type=Path, nargs="*", default=[], help="requests that limits are chosen on")
    parser.add_argument("--alike", type=Path, nargs="*", default=[], help="requests for tools that sound like none")
    parser.add_argument("--everyday", type=Path, nargs="*", default=[], help="requests over small installations")
    parser.add_argument("--installations", type=Path, help="their servers (.json: name -> list of server ids)")
    parser.add_argument("--encoder", default="default")
    parser.add_argument("--out", type=Path, required=True, help="search.json to write")
    parser.add_argument("--false-refusals", type=float, default=0.03)
    parser.add_argument("--false-offers", type=float, default=0.08)
    parser.add_argument("--small-refusals", type=float, default=0.05)
    parser.add_argument("--lost", type=float, default=0.01)
    parser.add_argument("--longer", type=float, default=0.25)
    args = parser.parse_args(argv)
    settings = Settings(home=args.home, encoder=args.encoder)
    index = SearchIndex.open(settings.index_dir, settings=settings, params=fusion.SearchParams())
    calls = read_kept_apart(args.calls)
    choose = [call for path in args.choose for call in read_records(path, Call)] if args.choose else calls
    names = ", ".join(path.name for path in [*args.calls, *args.alike, *args.everyday, *args.choose])
    counts = f"{len(calls)} and {len(choose)}" if args.choose else f"{len(calls)}"
    params, report = fit(
        index,
        calls,
        choose,
        [call for path in args.alike for call in read_records(path, Call)],
        [call for path in args.everyday for call in read_records(path, Call)],
        json.loads(args.installations.read_text("utf-8")) if args.installations else {},
        {str(row["id"]): str(row["kind"]) for path in args.everyday for _, row in read_objects(path) if "kind" in row},
        false_refusals=args.false_refusals,
        false_offers=args.false_offers,
        small_refusals=args.small_refusals,
        lost=args.lost,
        longer=args.longer,
        fitted=f"{names}: {counts} requests over {len(index)} tools, by finetune/fit_search.py",
    )
    fusion.write_params(args.out, params)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
