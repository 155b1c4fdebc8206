"""Fit how the person's own servers and the pack are joined, and write it into the encoder's folder.

    python -m toolscout.finetune.fit_layers HOME PACK --nothing NOTHING.jsonl --out ENCODER_FOLDER/layers.json

HOME has the index that the pack was built from. Installations are drawn from its most used servers, 5 to 40 at a time.
Requests are the pack's worked calls, which several writers wrote without a search at hand; they do not count as
exemplars here. A call of an installed server is to be led by the own layer; one of a server whose product no installed
server has, by the pack; requests that nothing serves, by neither. Products that no server anywhere is of are made by
hiding the servers of a named one.

1. ``join``: logistic regression whether the own layer leads (`layers.join_features`).
2. ``box``: logistic regression whether the pack serves a request (`layers.box_features`), over the pack without the
   tool that was asked for as a harder negative in one of ten.
3. The limits: ``join_at`` loses at most ``--lost`` of the installed requests, ``box_at`` refuses at most ``--refused``
   of the requests that the pack serves.
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
from toolscout.index.layers import BOX, JOIN, LayeredIndex, LayerParams, box_features, join_features, write_layer_params
from toolscout.index.pack.search import PackIndex
from toolscout.index.search import SearchIndex
from toolscout.jsonl import read_objects
from toolscout.records import Call
from toolscout.settings import Settings

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

DEPTH = 10


class _NoExemplars:
    """The worked calls are asked here: found by themselves, they would say nothing."""

    def __len__(self) -> int:
        return 0


@dataclass
class Asked:
    """One request over one installation."""

    join: dict[str, float]
    box: dict[str, float]
    installed: bool
    served: bool


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
    rows_of = box.storage.rows_of([call.gold[0].tool_id if call.gold else "" for call in calls])
    products = box.storage.products
    of_server: dict[int, set[int]] = {}
    for product in range(len(products)):
        for server in products.servers(product).tolist():
            of_server.setdefault(server, set()).add(product)
    theirs_of = {
        call.id: of_server.get(int(box.tool_servers[row]), set()) if row >= 0 else None
        for call, row in zip(calls, rows_of.tolist(), strict=True)
    }
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
                visible, named = joined.visible, joined.named(ask)
                if some is naming:
                    hidden = np.zeros(box.meta.servers, dtype=np.bool_)
                    for product in theirs_of[call.id] or ():
                        hidden[products.servers(product)] = True
                    visible = visible & ~hidden[box.tool_servers]
                    named = replace(named, elsewhere=0, nowhere=1)
                theirs = box.rank(ask, visible, DEPTH)
                right = (
                    server_of[call.id] == whole.storage.server(int(whole.tool_servers[own.rows[0]])).server_id
                    if len(own.rows)
                    else False
                )
                if not len(own.rows) or (some is inside and not right):
                    continue  # what the own layer gets wrong by itself is no question of the join
                unknown = box.storage.has_unknown_name(ask.text)
                found.append(
                    Asked(join_features(own, theirs, named), box_features(theirs, named, unknown),
                          some is inside, bool(call.gold) and some is not naming)
                )  # fmt: skip
    return found


def _named(box: PackIndex, call: Call, products: set[int]) -> bool:
    """Whether a call's request names one of its server's products for sure."""
    return any(mention.sure and mention.product in products for mention in box.storage.products.mentioned(call.query))


def _unrelated(products: set[int] | None, here: frozenset[int]) -> bool:
    """Whether no installed server is of a product of the one that is asked for, and so may serve its call."""
    return products is not None and here.isdisjoint(products)


def fit(asked: Sequence[Asked], *, lost: float, refused: float) -> tuple[LayerParams, dict[str, float]]:
    """Both regressions and their limits, and a report."""
    join = np.array([[a.join[n] for n in JOIN] for a in asked])
    box = np.array([[a.box[n] for n in BOX] for a in asked])
    installed = np.array([a.installed for a in asked])
    served = np.array([a.served for a in asked])
    join_weights, join_bias = _regress(join, installed)
    # What an installed server serves may be served by the pack, too; only what nothing serves is a clear no.
    box_weights, box_bias = _regress(box, served)
    leads = 1 / (1 + np.exp(-(join @ join_weights + join_bias)))
    serves = 1 / (1 + np.exp(-(box @ box_weights + box_bias)))
    join_at = float(np.quantile(leads[installed], lost))
    box_at = float(np.quantile(serves[served], refused))
    params = LayerParams(
        join={n: round(float(w), 4) for n, w in zip(JOIN, join_weights, strict=True)},
        join_bias=round(join_bias, 4),
        join_at=round(join_at, 4),
        box={n: round(float(w), 4) for n, w in zip(BOX, box_weights, strict=True)},
        box_bias=round(box_bias, 4),
        box_at=round(box_at, 4),
    )
    return params, {
        "requests": len(asked),
        "join_auroc": round(auroc(leads, installed), 4),
        "own_leads_wrongly": round(float((leads >= join_at)[~installed].mean()), 4),
        "own_leads_wrongly_served": round(float((leads >= join_at)[~installed & served].mean()), 4),
        "box_auroc": round(auroc(serves, served), 4),
        "box_offers_wrongly": round(float((serves >= box_at)[~served].mean()), 4),
    }


def _regress(features: Floats, labels: Mask) -> tuple[Floats, float]:
    """Logistic regression by Newton's method with a little L2, on standardized features."""
    centre, scale = features.mean(axis=0), features.std(axis=0) + 1e-9
    x = np.concatenate([(features - centre) / scale, np.ones((len(features), 1))], axis=1)
    w = np.zeros(x.shape[1])
    penalty = np.diag([1.0] * features.shape[1] + [1e-6])
    for _ in range(50):
        chance = 1 / (1 + np.exp(-(x @ w)))
        curve = (x.T * (chance * (1 - chance))) @ x + penalty
        step = np.linalg.solve(curve, x.T @ (chance - labels) + penalty @ w)
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
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--installations", type=int, default=40)
    parser.add_argument("--each", type=int, default=24)
    parser.add_argument("--lost", type=float, default=0.02)
    parser.add_argument("--refused", type=float, default=0.02)
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
    params, report = fit(asked, lost=options.lost, refused=options.refused)
    params = replace(
        params,
        fitted=f"{len(asked)} requests over {len(installations)} installations, by finetune/fit_layers.py",
    )
    write_layer_params(options.out, params)
    print(json.dumps({"report": report, "params": asdict(params)}, indent=2))


if __name__ == "__main__":
    main()
