"""Fit the choice among a few tools (``index.chooser``) and write it into the encoder's ``search.json``.

    python -m toolscout.finetune.fit_choice ENCODER_FOLDER FIT.jsonl.gz --tools TOOLS --servers SERVERS

From requests that the encoder was not trained on, each several times among 1 to 20 candidates drawn at random, a share
of them with siblings of the gold tool; in a third of the draws the gold tool is not among them, and requests that no
tool serves have none. The weights maximise the likelihood of the right answer, *none* included (a conditional logit
model); ``none_at`` is then the P(none) above which ``--false-refusals`` of the draws with their gold tool lie.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput
from toolscout.finetune.pairs import Pool, definition, read_calls, read_kept_apart, read_pool
from toolscout.index import fusion
from toolscout.index.chooser import TERMS, Chooser, logits, probabilities
from toolscout.index.encoder import OnnxEncoder
from toolscout.records import Call

Floats = npt.NDArray[np.float64]

SIZES = (1, 2, 3, 5, 5, 8, 10, 10, 20)
DRAWS = 3
SIBLINGS = 0.3
ABSENT = 0.35


@dataclass(frozen=True)
class Draw:
    """A request among candidates: its cosines, and which one is right (their count: none)."""

    cosines: list[float]
    nothing: float
    right: int
    foreign: bool
    """True of a request that no tool at all serves."""


def draws(calls: Sequence[Call], pool: Pool, chooser: Chooser, seed: int = 0) -> list[Draw]:
    """``DRAWS`` draws of each call with one gold tool that the pool holds, or with none."""
    kinds = {t: definition(tool) for t, tool in pool.tools.items()}
    siblings = defaultdict(list)
    for tool in pool.tools.values():
        siblings[tool.server_id].append(tool.tool_id)
    ids = sorted(pool.tools)
    found = []
    for call in calls:
        gold = [g.tool_id for g in call.gold]
        if len(gold) > 1 or any(g not in pool.tools for g in gold):
            continue
        for number in range(DRAWS):
            draw = random.Random(f"{seed} {call.id} {number}")
            size = draw.choice(SIZES)
            served = set(gold) | call.relevant_ids()
            barred = {kinds[t] for t in served if t in kinds}
            near: list[str] = []
            if gold and draw.random() < SIBLINGS:
                same = siblings[pool.tools[gold[0]].server_id]
                near = draw.sample(same, min(2, len(same)))
            others = dict.fromkeys(
                t for t in [*near, *draw.sample(ids, min(len(ids), 2 * size + 20))] if kinds[t] not in barred
            )
            absent = not gold or (size > 1 and draw.random() < ABSENT)
            chosen = list(others)[: size - (not absent)] + ([] if absent else gold)
            tools = [pool.tools[t] for t in chosen]
            cosines, nothing = chooser.cosines(call.query, tools, [pool.servers.get(t.server_id) for t in tools])
            found.append(Draw(cosines, nothing, len(chosen) if absent else len(chosen) - 1, not gold))
    return found


def fit(rows: Sequence[Draw], steps: int = 4000, rate: float = 0.05) -> dict[str, float]:
    """The weights of ``TERMS`` by gradient descent (Adam) on the mean negative log-likelihood."""
    size = max(len(r.cosines) for r in rows)
    cosines = np.full((len(rows), size), -np.inf)
    for i, row in enumerate(rows):
        cosines[i, : len(row.cosines)] = row.cosines
    own = np.isfinite(cosines)
    plain = np.where(own, cosines, 0.0)
    right = np.array([r.right if r.right < len(r.cosines) else size for r in rows])
    none = np.array([[1.0, r.nothing, np.log(max(1, len(r.cosines)))] for r in rows])
    if not none[:, 1].any():
        none[:, 1] = 0.0
    weights = np.array([15.0, 4.0, 0.0, 0.0])
    mean, square = np.zeros(4), np.zeros(4)
    wanted = np.zeros((len(rows), size + 1))
    wanted[np.arange(len(rows)), right] = 1.0
    for step in range(1, steps + 1):
        values = np.concatenate([np.where(own, weights[0] * plain, -np.inf), (none @ weights[1:])[:, None]], axis=1)
        chance = np.exp(values - values.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        error = (chance - wanted) / len(rows)
        gradient = np.array([(error[:, :size] * plain).sum(), *(error[:, size] @ none)])
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        weights -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-9)
    return {name: round(float(w), 4) for name, w in zip(TERMS, weights, strict=True)}


def report(rows: Sequence[Draw], params: dict[str, float]) -> dict[str, float]:
    """How often the right tool is chosen and none rightly (its tool not there; no tool at all) and wrongly."""
    kinds: dict[str, list[tuple[bool, bool]]] = defaultdict(list)
    for row in rows:
        odds = probabilities(logits(row.cosines, row.nothing, params))
        none = odds[-1] >= params["none_at"]
        best = int(np.argmax(odds[:-1]))
        kind = "foreign" if row.foreign else "absent" if row.right == len(row.cosines) else "there"
        kinds[kind].append((none, best == row.right))

    def share(kind: str, at: int) -> float:
        return round(float(np.mean([k[at] for k in kinds[kind]])), 4) if kinds[kind] else 0.0

    return {
        "draws": len(rows),
        "right_tool_first": share("there", 1),
        "false_refusals": share("there", 0),
        "right_refusals_absent": share("absent", 0),
        "right_refusals_foreign": share("foreign", 0),
    }


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of this script."""
    parser = argparse.ArgumentParser(description="Fit the choice among a few tools to requests with known answers.")
    parser.add_argument("encoder", type=Path, help="the encoder's folder; its search.json is rewritten")
    parser.add_argument("calls", type=Path, nargs="+", help="requests (.jsonl, .jsonl.gz), some unanswerable")
    parser.add_argument("--tools", type=Path, nargs="+", required=True)
    parser.add_argument("--servers", type=Path, nargs="*", default=[])
    parser.add_argument("--check", type=Path, nargs="*", default=[], help="requests that are only reported on")
    parser.add_argument("--false-refusals", type=float, default=0.02)
    args = parser.parse_args(argv)
    pool = read_pool(args.tools, args.servers)
    path = args.encoder / fusion.PARAMS_FILE
    params = fusion.read_params(path)
    with OnnxEncoder(args.encoder) as encoder:
        chooser = Chooser(encoder, params)
        rows = draws(read_kept_apart(args.calls), pool, chooser)
        checked = draws(read_calls(args.check), pool, chooser) if args.check else []
    if not any(r.right < len(r.cosines) for r in rows):
        raise BadInput("None of the requests has a gold tool in the pool.", "Give the tools that they are for.")
    choice = {**fit(rows), "none_at": 1.0}
    there = [probabilities(logits(r.cosines, r.nothing, choice))[-1] for r in rows if r.right < len(r.cosines)]
    choice["none_at"] = round(float(np.quantile(there, 1 - args.false_refusals)), 4)
    fusion.write_params(path, replace(params, choice=choice))
    print(
        json.dumps(
            {"choice": choice, "fitted_on": report(rows, choice), "checked_on": report(checked, choice)}, indent=2
        )
    )


if __name__ == "__main__":
    main()
