"""Fit whether a product's name that is an ordinary word, too, means the product (`toolscout.index.meanings`).

    python -m toolscout.finetune.fit_meanings PACK --out ENCODER_FOLDER/meanings.json

Rows are those of ``word_names.jsonl``, written for it, with whole names held out as ``dev``; and requests that were
written for tools, ours and the pack's worked calls: there a name means the product if the tool's server is of it, and
is a word if it is in lower case and the server is not. Few of those count for each name, and little: they are labeled
by a rule, but their writers had no name in mind. Names of ``dev`` are left out of them.

The limit is the lowest one with a precision of ``--precision`` on ``dev``, which chose the features as well: its
figures are for choosing, not for showing.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.finetune.fit_layers import regress
from toolscout.index.encoder import make_encoder
from toolscout.index.encoder_params import write_encoder_params
from toolscout.index.meanings import Known, MeaningParams, features, means_product
from toolscout.index.pack.search import PackIndex
from toolscout.index.products import Mention
from toolscout.index.search import Ask
from toolscout.jsonl import read_objects
from toolscout.records import Server
from toolscout.settings import Settings

Floats = npt.NDArray[np.float64]

DATA = Path(__file__).parent / "data"
REQUESTS = ("requests.jsonl", "siblings_1.jsonl.gz", "siblings_2.jsonl.gz", "siblings_3.jsonl.gz")
_EACH = 12
"""Requests of each name, of each kind, that were written for tools."""

_SHARE = 0.1
"""How much one of them counts beside a row that was written for this."""

_DIRECTION_L2 = 200.0
"""Penalty of the vector's weights: with less they learn how the rows' writer words things."""


@dataclass
class Row:
    """One name in one request."""

    ask: Ask
    mention: Mention
    named: bool
    split: str
    share: float = 1.0


def written_rows(box: PackIndex, path: Path) -> list[Row]:
    """Rows that were written for this; those whose name is not in the pack's lexicon are left out."""
    found = []
    for _, row in read_objects(path):
        ask = box.ask(str(row["query"]))
        for mention in box.storage.products.mentioned(ask.text):
            if box.storage.products.name(mention.product) == row["product"]:
                found.append(Row(ask, mention, bool(row["named"]), str(row["split"])))
    return found


def requested_rows(box: PackIndex, held_out: set[str]) -> list[Row]:
    """Rows of requests that were written for tools."""
    products = box.storage.products
    requests = list(_requests(box))
    np.random.default_rng(0).shuffle(requests)
    found, seen = [], Counter[tuple[int, bool, bool]]()
    for query, tool_id in dict(requests).items():
        theirs = products.of_server(Server(server_id=tool_id.rpartition("/")[0]))
        for mention in products.mentioned(query):
            name, named = products.name(mention.product), mention.product in theirs
            squashed = "".join(filter(str.isalnum, name.casefold()))
            doubtful = not named and (mention.sure or squashed in "".join(filter(str.isalnum, tool_id.casefold())))
            kind = (mention.product, named, mention.sure)
            if products.words[mention.product] and name not in held_out and not doubtful and seen[kind] < _EACH:
                seen[kind] += 1
                found.append(Row(box.ask(query), mention, named, "train", _SHARE))
    return found


def _requests(box: PackIndex) -> Iterator[tuple[str, str]]:
    for name in REQUESTS:
        for _, row in read_objects(DATA / name):
            if row["gold"]:
                yield str(row["query"]), str(row["gold"][0]["tool_id"])
    for number in range(box.meta.exemplars):
        call = box.storage.exemplar(number)
        yield call.query, call.gold[0].tool_id


def fit(box: PackIndex, rows: Sequence[Row], *, precision: float) -> MeaningParams:
    """The regression over the rows of ``train``, and its limit on those of ``dev``."""
    told = [features(r.ask.text, r.mention.places[0], Known(r.ask, box.storage, r.mention.product)) for r in rows]
    names = list(told[0])
    x = np.array([[*(one[n] for n in names), *row.ask.tool_vector] for one, row in zip(told, rows, strict=True)])
    named, train = np.array([r.named for r in rows]), np.array([r.split == "train" for r in rows])
    l2 = np.array([1.0] * len(names) + [_DIRECTION_L2] * (x.shape[1] - len(names)))
    weights, bias = regress(x[train], named[train], shares=np.array([r.share for r in rows])[train], l2=l2)
    chances = 1 / (1 + np.exp(-(x @ weights + bias)))[~train]
    order = np.argsort(-chances)
    right = np.cumsum(named[~train][order]) / np.arange(1, len(order) + 1)
    last = int(np.flatnonzero(right >= precision).max())
    return MeaningParams(
        weights={n: round(float(w), 4) for n, w in zip(names, weights[: len(names)], strict=True)},
        direction=[round(float(w), 3) for w in weights[len(names) :]],
        bias=round(bias, 4),
        at=round(float(chances[order[last]]) - 1e-4, 4),
        fitted=f"{int(train.sum())} requests, by finetune/fit_meanings.py",
    )


def measure(box: PackIndex, rows: Sequence[Row], params: MeaningParams) -> dict[str, float]:
    """Precision and recall on the rows of ``dev``; ``served`` are those of names that servers of the pack have."""
    report = {}
    for which in ("all", "served"):
        counts = Counter(
            (row.named, means_product(row.ask, box.storage, row.mention, params))
            for row in rows
            if row.split == "dev" and (which == "all" or len(box.storage.products.servers(row.mention.product)))
        )
        right = counts[True, True]
        report[f"{which}_rows"] = float(counts.total())
        report[f"{which}_precision"] = round(right / max(right + counts[False, True], 1), 4)
        report[f"{which}_recall"] = round(right / max(right + counts[True, False], 1), 4)
    return report


def main() -> None:
    """Run the command above."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pack", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--precision", type=float, default=0.95)
    options = parser.parse_args()
    box = PackIndex.open_pack(options.pack, make_encoder(Settings()))
    rows = written_rows(box, DATA / "word_names.jsonl")
    held_out = {box.storage.products.name(r.mention.product) for r in rows if r.split == "dev"}
    params = fit(box, rows + requested_rows(box, held_out), precision=options.precision)
    write_encoder_params(options.out, params)
    print(json.dumps({"dev": measure(box, rows, params), "weights": params.weights, "at": params.at}, indent=2))


if __name__ == "__main__":
    main()
