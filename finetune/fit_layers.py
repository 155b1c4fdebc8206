"""Fit how the person's own servers and the pack are joined, and write it into the encoder's folder.

    python -m toolscout.finetune.fit_layers HOME PACK --nothing nothing_served.jsonl --out ENCODER_FOLDER/layers.json \\
        --everyday answerable.jsonl everyday.jsonl generic.jsonl

HOME has the index that the pack was built from. Installations are drawn from its most used servers, 5 to 40 at a time.
Requests are the pack's worked calls, which several writers wrote without a search at hand; they do not count as
exemplars here. A call of an installed server is to be led by the own layer; one of a server whose product no installed
server has, by the pack; requests that nothing serves, by neither. Products that no server anywhere is of are made by
hiding the servers of a named one.

1. ``join``: logistic regression whether the own layer leads (`layers.join_features`).
2. ``kind``: ridge logistic regression on the request's vector whether software serves such a request at all, then
   ``box``: logistic regression whether the pack serves a request (`layers.box_features`); nothing is installed.
3. The limits: ``join_at`` loses ``--lost`` of the requests that an installed tool serves; ``box_at`` refuses
   ``--refused`` of the requests that the pack serves and that name no product of it: one that is named is always
   offered.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.finetune.fit_search import auroc, in_pool
from toolscout.index.encoder import make_encoder
from toolscout.index.encoder_params import write_encoder_params
from toolscout.index.fusion import log_odds
from toolscout.index.layers import (
    BOX,
    JOIN,
    LayeredIndex,
    LayerParams,
    Named,
    box_features,
    join_features,
)
from toolscout.index.pack.search import PackIndex
from toolscout.index.search import SearchIndex
from toolscout.index.words import has_words
from toolscout.jsonl import read_objects
from toolscout.records import Call
from toolscout.settings import Settings

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

DEPTH = 10
_FOLDS = 5
_KIND_PENALTY = 100.0


class _NoExemplars:
    """The worked calls are asked here: found by themselves, they would say nothing."""

    def __len__(self) -> int:
        return 0


@dataclass
class Asked:
    """One request over one installation."""

    join: dict[str, float]
    installed: bool
    served: bool


@dataclass
class Fresh:
    """One request where nothing is installed, with its vector."""

    box: dict[str, float]
    served: bool
    vector: Floats


def draw_installations(servers: Sequence[str], trust: Floats, count: int, rng: np.random.Generator) -> list[list[str]]:
    """Draw installations of 5 to 40 servers, the more used ones more often."""
    weights = trust**2 + 1e-3
    weights /= weights.sum()
    sizes = rng.integers(5, 41, count)
    return [[servers[i] for i in rng.choice(len(servers), size, replace=False, p=weights)] for size in sizes]


def ask_all(
    whole: SearchIndex, box: PackIndex, calls: Sequence[Call], installations: Sequence[Sequence[str]], each: int,
    rng: np.random.Generator,
) -> list[Asked]:  # fmt: skip
    """Ask ``each`` requests of every installation that it serves, as many that it does not, and some that nothing
    serves."""
    found = []
    products = box.storage.products
    theirs_of = products_of(box, calls)
    server_of = {call.id: call.gold[0].tool_id.rsplit("/", 1)[0] if call.gold else "" for call in calls}
    for servers in installations:
        joined = LayeredIndex(None, box, LayerParams(), servers)
        rows = [row for row in map(whole.server_row, servers) if row >= 0]
        allowed = np.isin(whole.tool_servers, rows)
        here = frozenset(p for row in rows for p in products.of_server(whole.storage.server(row)))
        joined.at_home(here)
        inside = [c for c in calls if server_of[c.id] in servers]
        outside = [c for c in calls if c.gold and server_of[c.id] not in servers and _unrelated(theirs_of[c.id], here)]
        nothing = [c for c in calls if not c.gold]
        naming = [c for c in outside if theirs_of[c.id] and _named(box, c, theirs_of[c.id] or set())]
        for some, count in ((inside, each), (outside, each), (nothing, each // 2), (naming, each // 2)):
            for place in rng.permutation(len(some))[:count]:
                call = some[int(place)]
                ask = box.ask(call.query)
                own = whole.rank(in_pool(whole, ask, allowed), allowed, DEPTH)
                visible = joined.visible
                if some is naming:
                    visible = visible & without(box, theirs_of[call.id] or set())
                theirs = box.rank(ask, visible, DEPTH)
                named = joined.named(ask)
                if some is naming:
                    named = replace(named, elsewhere=0, nowhere=1)
                right = (
                    server_of[call.id] == whole.storage.server(int(whole.tool_servers[own.rows[0]])).server_id
                    if len(own.rows)
                    else False
                )
                if not len(own.rows) or (some is inside and not right):
                    continue  # what the own layer gets wrong by itself is no question of the join
                served = bool(call.gold) and some is not naming
                found.append(Asked(join_features(own, theirs, named), some is inside, served))
    return found


def ask_fresh(
    box: PackIndex, calls: Sequence[Call], everyday: Sequence[tuple[str, bool]], most: int, rng: np.random.Generator
) -> list[Fresh]:
    """Ask the pack alone: ``most`` worked calls, a quarter as many whose product is hidden, all requests that nothing
    serves, and ``everyday`` ones, each with whether some tool surely serves it."""
    joined, theirs_of = LayeredIndex(None, box, LayerParams()), products_of(box, calls)
    served = [c for c in calls if c.gold and theirs_of[c.id] is not None]
    naming = [c for c in served if theirs_of[c.id] and _named(box, c, theirs_of[c.id] or set())]
    drawn = [served[int(place)] for place in rng.permutation(len(served))[:most]]
    hidden = [naming[int(place)] for place in rng.permutation(len(naming))[: most // 4]]
    found = []
    for query, serves in everyday:
        ask = box.ask(query)
        ranking = box.rank(ask, joined.visible, DEPTH)
        features = box_features(ranking, joined.named(ask), box.storage.unknown_words(ask.text), [])
        found.append(Fresh(features, serves, ask.tool_vector.astype(np.float64)))
    nothing = [c for c in calls if not c.gold]
    for call, is_hidden in [*((c, False) for c in [*drawn, *nothing]), *((c, True) for c in hidden)]:
        ask = box.ask(call.query)
        visible = joined.visible & without(box, theirs_of[call.id] or set()) if is_hidden else joined.visible
        ranking = box.rank(ask, visible, DEPTH)
        named = Named(nowhere=1) if is_hidden else joined.named(ask)
        features = box_features(ranking, named, box.storage.unknown_words(ask.text), [])
        found.append(Fresh(features, bool(call.gold) and not is_hidden, ask.tool_vector.astype(np.float64)))
    return found


def products_of(box: PackIndex, calls: Sequence[Call]) -> dict[str, set[int] | None]:
    """Products of the server of each call, by the call's id; None where the pack does not have its tool."""
    rows = box.storage.rows_of([call.gold[0].tool_id if call.gold else "" for call in calls])
    of_server: dict[int, set[int]] = {}
    for product in range(len(box.storage.products)):
        for server in box.storage.products.servers(product).tolist():
            of_server.setdefault(server, set()).add(product)
    return {
        call.id: of_server.get(int(box.tool_servers[row]), set()) if row >= 0 else None
        for call, row in zip(calls, rows.tolist(), strict=True)
    }


def without(box: PackIndex, products: set[int]) -> Mask:
    """Rows of the pack of no server of these products."""
    hidden = np.zeros(box.meta.servers, dtype=np.bool_)
    for product in products:
        hidden[box.storage.products.servers(product)] = True
    return ~hidden[box.tool_servers]


def _named(box: PackIndex, call: Call, products: set[int]) -> bool:
    """Whether a call's request names one of its server's products for sure."""
    return any(mention.sure and mention.product in products for mention in box.storage.products.mentioned(call.query))


def _unrelated(products: set[int] | None, here: frozenset[int]) -> bool:
    """Whether no installed server is of a product of the one that is asked for, and so may serve its call."""
    return products is not None and here.isdisjoint(products)


def fit(
    asked: Sequence[Asked], fresh: Sequence[Fresh], *, lost: float, refused: float
) -> tuple[LayerParams, dict[str, float]]:
    """Both regressions and their limits, and a report."""
    join = np.array([[a.join[n] for n in JOIN] for a in asked])
    box = np.array([[f.box[n] for n in BOX] for f in fresh])
    hidden = np.array([f.box["absent"] > 0 and not f.served for f in fresh])
    installed = np.array([a.installed for a in asked])
    elsewhere = np.array([a.served and not a.installed for a in asked])
    served = np.array([f.served for f in fresh])
    join_weights, join_bias = regress(join, installed)
    vectors = np.array([f.vector for f in fresh])
    kind = np.append(*_of_kind(vectors[~hidden], served[~hidden])).round(3)
    # Each row's own label must not be in its feature: the rows are told by the other folds.
    box[:, BOX.index("kind")] = _held_out(vectors, served, hidden)
    box_weights, box_bias = regress(box[~hidden], served[~hidden])
    leads = 1 / (1 + np.exp(-(join @ join_weights + join_bias)))
    serves = 1 / (1 + np.exp(-(box @ box_weights + box_bias)))
    naming = np.array([not a.installed and a.join["named_elsewhere"] > 0 for a in asked])
    join_at = float(np.quantile(leads[installed], lost))
    unnamed = np.array([not f.box["named"] for f in fresh])
    box_at = float(np.quantile(serves[served & unnamed], refused))
    # A product that nobody serves looks like one that is served but for its name: so much takes nine of ten under it.
    absent = min(0.0, log_odds(box_at) - float(np.quantile((box @ box_weights + box_bias)[hidden], 0.9)))
    params = LayerParams(
        join={n: round(float(w), 4) for n, w in zip(JOIN, join_weights, strict=True)},
        join_bias=round(join_bias, 4),
        join_at=round(join_at, 4),
        box={n: round(float(w), 4) for n, w in zip(BOX, box_weights, strict=True)} | {"absent": round(absent, 4)},
        box_bias=round(box_bias, 4),
        kind=kind.tolist(),
        box_at=round(box_at, 4),
    )
    return params, {
        "requests": len(asked),
        "fresh": len(fresh),
        "join_auroc": round(auroc(leads, installed), 4),
        "own_leads_wrongly": round(float((leads >= join_at)[~installed].mean()), 4),
        "lost": round(float((leads < join_at)[installed].mean()), 4),
        "own_leads_named_elsewhere": round(float((leads >= join_at)[naming].mean()), 4),
        "own_leads_wrongly_served": round(float((leads >= join_at)[elsewhere].mean()), 4),
        "box_auroc": round(auroc(serves[~hidden], served[~hidden]), 4),
        "box_offers_wrongly": round(float((serves >= box_at)[~served & ~hidden].mean()), 4),
    }


def _of_kind(vectors: Floats, served: Mask) -> tuple[Floats, float]:
    return regress(vectors, served, l2=np.full(vectors.shape[1], _KIND_PENALTY))


def _held_out(vectors: Floats, served: Mask, hidden: Mask) -> Floats:
    """The log odds of each row by what is fitted on the other folds."""
    fold = np.random.default_rng(0).integers(0, _FOLDS, len(vectors))
    found = np.zeros(len(vectors))
    for number in range(_FOLDS):
        others = (fold != number) & ~hidden
        weights, bias = _of_kind(vectors[others], served[others])
        found[fold == number] = vectors[fold == number] @ weights + bias
    return found


def regress(
    features: Floats, labels: Mask, *, shares: Floats | None = None, l2: Floats | None = None
) -> tuple[Floats, float]:
    """Logistic regression by Newton's method on standardized features; ``l2`` is each one's penalty, a little if not
    given, ``shares`` are the rows' weights."""
    shares = np.ones(len(labels)) if shares is None else shares
    l2 = np.ones(features.shape[1]) if l2 is None else l2
    centre, scale = features.mean(axis=0), features.std(axis=0) + 1e-9
    x = np.concatenate([(features - centre) / scale, np.ones((len(features), 1))], axis=1)
    w = np.zeros(x.shape[1])
    penalty = np.diag([*l2, 1e-6])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-(x @ w)))
        curve = (x.T * (shares * chance * (1 - chance))) @ x + penalty
        step = np.linalg.solve(curve, x.T @ (shares * (chance - labels)) + penalty @ w)
        w -= step
        if np.abs(step).max() < 1e-8:
            break
    weights = w[:-1] / scale
    return weights, float(w[-1] - centre @ weights)


def main() -> None:
    """Run the command above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("home", type=Path)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--nothing", type=Path, required=True)
    parser.add_argument(
        "--everyday", type=Path, nargs="*", default=[], help="requests that some tool serves, but for kind nothing"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--installations", type=int, default=100)
    parser.add_argument("--each", type=int, default=16)
    parser.add_argument("--fresh", type=int, default=1000)
    parser.add_argument("--lost", type=float, default=0.013)
    parser.add_argument("--refused", type=float, default=0.05)
    options = parser.parse_args()
    settings = Settings(home=options.home)
    encoder = make_encoder(settings)
    whole = SearchIndex.open(settings.index_dir, encoder)
    box = PackIndex.open_pack(options.pack, encoder)
    calls = [box.storage.exemplar(i) for i in range(box.meta.exemplars)]
    calls += [Call(id=f"nothing-{n}", query=row["query"]) for n, row in read_objects(options.nothing)]
    box.storage.exemplars = _NoExemplars()  # type: ignore[assignment]
    rng = np.random.default_rng(0)
    asked_servers = sorted({c.gold[0].tool_id.rsplit("/", 1)[0] for c in calls if c.gold})
    trust = np.array([box.storage.trust[max(box.server_row(s), 0)] for s in asked_servers], dtype=np.float64)
    installations = draw_installations(asked_servers, trust, options.installations, rng)
    asked = ask_all(whole, box, calls, installations, options.each, rng)
    everyday = [
        (str(row["query"]), row.get("kind") not in ("nothing", "invented"))
        for path in options.everyday
        for _, row in read_objects(path)
        if has_words(str(row["query"]))
    ]
    fresh = ask_fresh(box, calls, everyday, options.fresh, rng)
    params, report = fit(asked, fresh, lost=options.lost, refused=options.refused)
    params = replace(
        params,
        fitted=f"{len(asked)} requests over {len(installations)} installations, {len(fresh)} over the pack alone, by "
        "finetune/fit_layers.py",
    )
    write_encoder_params(options.out, params)
    print(json.dumps({"report": report, "params": asdict(params)}, indent=2))


if __name__ == "__main__":
    main()
