"""Fit the linear layer that tells a server's category, and say how right it is.

    python -m toolscout.finetune.fit_category --servers servers.jsonl.gz --tools tools.jsonl.gz

``--servers`` have a ``category`` each (MCP-Flow's release: ten of them). Besides them stand examples of each category
that were written for this (``data/categories.json``). Only the fitted numbers are kept.

Labels are noisy, and those of servers that say nothing of themselves most of all: most of those are called
Miscellaneous for want of a text, and would teach that whoever has no description is Miscellaneous. They are left out,
and every server that has a description is shown without it once more, at half the weight.

A fifth of the servers is held out by hash, and those that the file marks as unseen; copies (the same tools, the same
name) stay on one side. The layer that is written has learnt from all but these. Each category weighs the same.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.crawler.enrich.category import CATEGORIES, HEAD, OTHER, Head, stated, vectors, write_head
from toolscout.errors import BadInput
from toolscout.index.asset import DEFAULT_ENCODER, encoders_folder
from toolscout.index.encoder import Encoder, OnnxEncoder
from toolscout.index.words import words
from toolscout.jsonl import read_objects, read_records
from toolscout.records import JsonObject, Server, Tool, entity_key, sha256_hex

Floats = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64]

EXAMPLES = Path(__file__).parent / "data" / "categories.json"
HELD_OUT = 5
"""One group of copies of so many is held out."""

BARE = 0.5
"""Weight of a server that is shown without its description."""

EXAMPLE = 16.0
"""Weight of an example of our own, against a labelled server's 1."""

DECAY = 1e-3
DIGITS = 3


@dataclass(frozen=True)
class Labelled:
    """One server with its tools, the category it is given (a place in ``CATEGORIES``), and whether it is held out."""

    server: Server
    tools: list[Tool]
    label: int
    held_out: bool


def read_labelled(servers: Sequence[Path], tools: Sequence[Path]) -> list[Labelled]:
    """The servers that have a category, in the files' order. Raises BadInput where there are none."""
    of_server: dict[str, list[Tool]] = {}
    for path in tools:
        for tool in read_records(path, Tool):
            of_server.setdefault(tool.server_id, []).append(tool)
    rows = [(Server.model_validate(row), row.get("split")) for path in servers for _, row in read_objects(path)]
    groups = _groups([(server, of_server.get(server.server_id, [])) for server, _ in rows])
    unseen = {group for group, (_, split) in zip(groups, rows, strict=True) if split == "unseen_server"}
    found = []
    for (server, _), group in zip(rows, groups, strict=True):
        category = stated(server.category)
        if category is not None:
            held = group in unseen or int(sha256_hex(group)[:8], 16) % HELD_OUT == 0
            bare = server.model_copy(update={"category": None})
            found.append(Labelled(bare, of_server.get(server.server_id, []), CATEGORIES.index(category), held))
    if not any(row.held_out for row in found) or all(row.held_out for row in found):
        raise BadInput("There are too few servers with a category to fit and to check.", "Give more with --servers.")
    return found


def _groups(servers: Sequence[tuple[Server, list[Tool]]]) -> list[str]:
    """The id of each server's first copy: servers with the same tool descriptions, or the same name, are one group."""
    first: dict[str, int] = {}
    parent = list(range(len(servers)))

    def root(at: int) -> int:
        while parent[at] != at:
            at = parent[at]
        return at

    for at, (server, tools) in enumerate(servers):
        name = re.sub(r"[\W_]|mcp|server", "", server.name.casefold())
        for key in (entity_key(tools), f"name {name}" if name else None):
            if key:
                parent[root(at)] = root(first.setdefault(key, at))
    return [servers[root(at)][0].server_id for at in range(len(servers))]


def examples(path: Path = EXAMPLES) -> list[tuple[Server, list[Tool], int]]:
    """Our own examples: a server's words and its tools' names, and the category."""
    found = []
    for category, rows in json.loads(path.read_text("utf-8")).items():
        for number, (said, done) in enumerate(rows):
            name, _, description = said.partition(". ")
            server = Server(server_id=f"example/{category}/{number}", name=name, description=description)
            tools = [
                Tool(tool_id=f"{server.server_id}/{n}", server_id=server.server_id, name=one.replace(" ", "_"))
                for n, one in enumerate(done.split(", "))
            ]
            found.append((server, tools, CATEGORIES.index(category)))
    return found


def fit(
    inputs: Floats, labels: Numbers, weights: Floats, steps: int = 300, rate: float = 0.05
) -> tuple[Floats, Floats]:
    """Multinomial logistic regression by Adam, full batch: weights [inputs, 10] and bias [10]. Categories weigh alike.

    Args:
        inputs: [n, inputs]
        labels: [n], places in ``CATEGORIES``
        weights: [n], what each row counts
    """
    mass = np.bincount(labels, weights, len(CATEGORIES))
    counts = (weights / np.maximum(mass[labels], 1e-12))[:, None]
    counts /= counts.sum()
    wanted = np.eye(len(CATEGORIES))[labels]
    inputs = np.concatenate([inputs, np.ones((len(inputs), 1))], axis=1)
    layer = np.zeros((inputs.shape[1], len(CATEGORIES)))
    mean, square = np.zeros_like(layer), np.zeros_like(layer)
    decay = np.full((len(layer), 1), DECAY)
    decay[-1] = 0.0  # the bias
    for step in range(1, steps + 1):
        logits = inputs @ layer
        odds = np.exp(logits - logits.max(axis=1, keepdims=True))
        error = (odds / odds.sum(axis=1, keepdims=True) - wanted) * counts
        gradient = inputs.T @ error + decay * layer
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        layer -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-9)
    return layer[:-1], layer[-1]


def scores(labels: Sequence[int], guessed: Sequence[int]) -> JsonObject:
    """Accuracy and macro-F1 over the categories that occur."""
    pairs = list(zip(labels, guessed, strict=True))
    f1 = []
    for kind in sorted({*labels, *guessed}):
        hits = sum(a == b == kind for a, b in pairs)
        f1.append(2 * hits / (sum(a == kind for a, _ in pairs) + sum(b == kind for _, b in pairs)))
    right = sum(a == b for a, b in pairs) / max(1, len(pairs))
    return {"n": len(pairs), "accuracy": round(right, 4), "macro_f1": round(float(np.mean(f1)), 4) if f1 else 0.0}


def by_keywords(server: Server, tools: Sequence[Tool], keywords: Sequence[set[str]], common: int) -> int:
    """A baseline: the category whose examples share most words with the server; the most common one without any."""
    own = set(words(f"{server.name} {server.description} {' '.join(t.name for t in tools)}"))
    shared = [len(own & known) / (len(known) ** 0.5) for known in keywords]
    return int(np.argmax(shared)) if max(shared) > 0 else common


def run(rows: Sequence[Labelled], encoder: Encoder, least: float) -> tuple[Head, JsonObject]:
    """Fit to what is not held out, and report on what is."""
    train, test = [r for r in rows if not r.held_out], [r for r in rows if r.held_out]
    own = examples()
    other = CATEGORIES.index(OTHER)
    taught = [r for r in train if r.server.description or r.label != other]
    bare = [r for r in taught if r.server.description]
    shown: list[tuple[Server, Sequence[Tool]]] = [(r.server, r.tools) for r in taught]
    shown += [(r.server.model_copy(update={"description": ""}), r.tools) for r in bare]
    shown += [(server, tools) for server, tools, _ in own]
    labels = np.array([*(r.label for r in taught), *(r.label for r in bare), *(label for *_, label in own)])
    counts = np.array([1.0] * len(taught) + [BARE] * len(bare) + [EXAMPLE] * len(own))
    inputs = vectors(encoder, shown).astype(np.float64)
    weights, bias = fit(inputs, labels, counts)
    head = Head(encoder.fingerprint, weights.round(DIGITS), bias.round(DIGITS), least, {})
    seen = vectors(encoder, [(r.server, r.tools) for r in test])
    guessed = [CATEGORIES.index(guess.category) for guess in head.guesses(seen)]
    wanted = [r.label for r in test]
    common = Counter(r.label for r in train).most_common(1)[0][0]
    keywords = [
        {w for s, ts, k in own if k == kind for w in words(f"{s.description} {' '.join(t.name for t in ts)}")}
        for kind in range(len(CATEGORIES))
    ]
    by_words = [by_keywords(r.server, r.tools, keywords, common) for r in test]
    alone = Head(encoder.fingerprint, *fit(inputs[-len(own) :], labels[-len(own) :], counts[-len(own) :]), 0.0, {})
    by_examples = [CATEGORIES.index(guess.category) for guess in alone.guesses(seen)]
    told = [n for n, r in enumerate(test) if r.server.description]

    def of(guesses: Sequence[int], at: Sequence[int]) -> JsonObject:
        return scores([wanted[n] for n in at], [guesses[n] for n in at])

    report: JsonObject = {"taught": len(taught), "examples": len(own), "held_out": of(guessed, range(len(test)))}
    report["held_out_with_description"] = of(guessed, told)
    report["majority"] = of([common] * len(test), range(len(test)))
    report["keywords"] = of(by_words, range(len(test)))
    report["examples_alone"] = of(by_examples, range(len(test)))
    return Head(head.encoder, head.weights, head.bias, least, report), report


def main(argv: Sequence[str] | None = None) -> None:
    """Command line of this script."""
    parser = argparse.ArgumentParser(description="Fit the linear layer that tells a server's category.")
    parser.add_argument("--servers", type=Path, nargs="+", required=True, help="servers with categories (JSONL)")
    parser.add_argument("--tools", type=Path, nargs="+", required=True, help="their tools")
    parser.add_argument("--encoder", type=Path, default=encoders_folder() / DEFAULT_ENCODER)
    parser.add_argument("--least", type=float, default=0.25, help="below this probability: Miscellaneous")
    parser.add_argument("--out", type=Path, default=HEAD)
    args = parser.parse_args(argv)
    with OnnxEncoder(args.encoder) as encoder:
        head, report = run(read_labelled(args.servers, args.tools), encoder, args.least)
    write_head(args.out, head)
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
