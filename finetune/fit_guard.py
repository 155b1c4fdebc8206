"""Fit the guard's learned second reader (``index.guard.learned``) and write its weights.

    python -m toolscout.finetune.fit_guard --attacks ATTACKS.jsonl ... --sentences SENTENCES.jsonl \\
        --honest TRICKY.jsonl ... --tools TOOLS.jsonl.gz ... --servers SERVERS.jsonl.gz ... [--out learned.npz]

Only rows of the part ``tuning`` are read of files of attacks and of tricky honest tools. Of an attack it is not known
which sentence is the poison: all of its windows count as such at first, then those that the model itself finds worst
(multiple-instance learning after MI-SVM, Andrews et al. 2003). Of honest texts the windows that score worst are added
round by round (hard negatives), so that not all of them have to be fitted at once. Honest servers
are split in ten by hash: some folds give the threshold, above which ``--alarms`` of their tools score, and take no part
in the first fit; the second one has them all.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from toolscout.index.guard import learned
from toolscout.index.guard.learned import Reader, Weights
from toolscout.index.guard.rules import sentences
from toolscout.index.guard.texts import Piece, server_pieces, tool_pieces
from toolscout.index.guard.unveil import plain
from toolscout.jsonl import parse_record, read_objects
from toolscout.records import Server, Tool

NO_WORDS = frozenset({"lookalike", "stuffing", "encoded", "hidden_text", "hidden"})
"""Kinds of attack that are not made of what a text says: they teach words nothing."""

Floats = npt.NDArray[np.float64]


class Window(NamedTuple):
    """A sentence, or two: the buckets of its words, and its sorts of words."""

    words: list[int]
    sorts: int


@dataclass
class Model:
    """Weights while they are fitted."""

    of: Floats
    bias: float

    def score(self, window: Window) -> float:
        """Log-odds of a window."""
        met = self.of[list(learned.meetings(window.sorts))].sum() * learned.SORT_VALUE
        return self.bias + float(self.of[window.words].sum()) / float(np.sqrt(len(window.words))) + float(met)


class _Featurizer:
    """Windows of texts, each as its buckets; words come again and are remembered."""

    def __init__(self) -> None:
        self._words: dict[str, list[int]] = {}

    def windows(self, text: str) -> list[Window]:
        """Every sentence of a text that is judged, and every two that follow each other."""
        found: list[Window] = []
        before: Window | None = None
        for start, end in sentences(text):
            words = learned.tokens(text[start:end])
            if len(words) < learned.LEAST_WORDS:
                continue
            now = Window(self._features(words), learned.sorts_of(text[start:end], words))
            found.append(now)
            if before is not None:
                found.append(Window(before.words + now.words, before.sorts | now.sorts))
            before = now
        return found

    def _features(self, words: list[str]) -> list[int]:
        found: list[int] = []
        for word in words:
            one = self._words.get(word)
            if one is None:
                one = self._words[word] = learned.word_features(word)
            found += one
        return found + [learned.pair_features(*pair) for pair in learned.pairs(words)]


def fold(server_id: str) -> int:
    """One of ten folds, by hash of the server's id."""
    return int(hashlib.sha256(f"fold {server_id}".encode("utf-8", "surrogatepass")).hexdigest()[:8], 16) % 10


def half(server_id: str) -> str:
    """The half of a server: A is fitted on, B only measured on (docs/GUARD.md)."""
    return "B" if int(hashlib.sha256(server_id.encode("utf-8", "surrogatepass")).hexdigest()[:8], 16) % 2 else "A"


def _texts(pieces: Iterable[Piece]) -> Iterator[str]:
    for piece in pieces:
        if learned.judges(piece.kind, piece.text):
            yield plain(piece.text)


def _rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Kind and texts of each tuning row."""
    for number, row in read_objects(path):
        if row.get("part") == "tuning":
            tool = parse_record(row["tool"], Tool, f"{path}:{number}")
            server = parse_record(row["server"], Server, f"{path}:{number}")
            yield str(row["kind"]), [*_texts(tool_pieces(tool)), *_texts(server_pieces(server))]


def _honest(paths: Iterable[Path], kind: type[Tool] | type[Server], every: int) -> Iterator[tuple[str, list[str]]]:
    """Server and texts of each honest tool or server that is fitted on; of pools but MCP-Flow half A alone."""
    for path in paths:
        for number, row in read_objects(path):
            if ("mcpflow" not in str(path) and half(row["server_id"]) == "B") or number % every:
                continue
            if kind is Tool:
                yield row["server_id"], list(_texts(tool_pieces(parse_record(row, Tool, f"{path}:{number}"))))
            else:
                yield row["server_id"], list(_texts(server_pieces(parse_record(row, Server, f"{path}:{number}"))))


def _entries(lists: Sequence[Sequence[int]]) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """All entries one after the other, and the row of each."""
    lengths = np.array([len(one) for one in lists])
    entries = np.fromiter((entry for one in lists for entry in one), np.int32, int(lengths.sum()))
    return entries, np.repeat(np.arange(len(lists), dtype=np.int32), lengths)


def fit(windows: Sequence[Window], labels: Floats, shares: Floats, *, rounds: int = 50, l2: float = 2e-6) -> Model:
    """Logistic regression by AdaGrad over all windows at once; features count by the root of a window's length."""
    words, met = _entries([window.words for window in windows]), _entries([learned.meetings(w.sorts) for w in windows])
    buckets, rows = (np.concatenate(both) for both in zip(words, met, strict=True))
    roots = (1 / np.sqrt([len(window.words) for window in windows]))[words[1]]
    values = np.concatenate([roots, np.full(len(met[1]), learned.SORT_VALUE)]).astype(np.float32)
    of, bias = np.zeros(learned.SIZE), -3.0
    squares, square = np.full(learned.SIZE, 1e-6), 1e-6
    shares = shares / shares.sum()
    for step in range(rounds):
        chance = 1 / (1 + np.exp(-bias - np.bincount(rows, of[buckets] * values, len(windows))))
        wrong = (chance - labels) * shares
        slope = np.bincount(buckets, wrong[rows] * values, learned.SIZE) + l2 * of
        squares += slope**2
        of -= (0.5 if step < 0.7 * rounds else 0.2) * slope / np.sqrt(squares)
        square += float(wrong.sum()) ** 2
        bias -= 0.25 * float(wrong.sum()) / float(np.sqrt(square))
    return Model(of, bias)


def fit_bags(
    poisoned: Sequence[Sequence[Window]], honest: Sequence[Window], tricky: Sequence[Window], *, seed: int = 2
) -> Model:
    """A model over poisoned tools, of which some window is poison, and windows of honest ones."""
    draw = random.Random(seed)
    chosen = set(draw.sample(range(len(honest)), min(4_000, len(honest))))
    picked = [(window, 1 / len(bag)) for bag in poisoned for window in bag]
    model: Model | None = None
    for weight in (0.05, 0.15, 0.15, 0.15):
        if model is not None:
            scores = np.array([model.score(window) for window in honest])
            chosen |= set(np.argsort(-scores)[:5000].tolist())
            picked = []
            for bag in poisoned:
                worth = [model.score(window) for window in bag]
                best = sorted((w for w in zip(worth, bag, strict=True) if w[0] >= max(worth) - 0.5), reverse=True)
                picked += [(window, 1.0) for _, window in best[:3]]
        some = [honest[i] for i in sorted(chosen)]
        windows = [*(window for window, _ in picked), *tricky, *some]
        labels = np.array([1.0] * len(picked) + [0.0] * (len(tricky) + len(some)))
        shares = np.array([share for _, share in picked] + [0.5] * len(tricky) + [weight] * len(some))
        model = fit(windows, labels, shares)
    assert model is not None
    return model


def quantized(model: Model, least: float) -> Weights:
    """The model with one signed byte a bucket."""
    scale = float(np.abs(model.of).max()) / 127
    return Weights(np.rint(model.of / scale).astype(np.int8).tobytes(), scale, model.bias, least)


def main(argv: Sequence[str] | None = None) -> None:
    """Fit, choose the threshold, fit again, write."""
    args = _arguments(argv)
    random.seed(args.seed)
    make = _Featurizer()
    start = time.process_time()
    poisoned: list[list[Window]] = []
    for path in args.attacks:
        for kind, texts in _rows(path):
            bag = [window for text in texts for window in make.windows(text)]
            if kind not in NO_WORDS and bag:
                poisoned.append(bag)
    tricky = [w for path in args.honest for _, texts in _rows(path) for text in texts for w in make.windows(text)]
    for path in args.sentences:
        for _, row in read_objects(path):
            bag = make.windows(plain(str(row["text"])))
            if bag and row["poison"]:
                poisoned.append(bag)
            elif bag:
                tricky += bag
    folds: list[list[Window]] = [[] for _ in range(10)]
    tops: list[tuple[int, list[Window]]] = []
    seen: set[str] = set()
    pools: list[tuple[list[Path], type[Tool] | type[Server], int]] = [
        (args.tools, Tool, args.every), (args.servers, Server, 1),
    ]  # fmt: skip
    for server_id, texts in (one for paths, kind, every in pools for one in _honest(paths, kind, every)):
        of = fold(server_id)
        windows = [window for text in texts for window in make.windows(text)]
        if of in args.folds:
            tops.append((of, windows))
        for text in texts:
            if text not in seen:
                seen.add(text)
                folds[of] += make.windows(text)
    print(f"{len(poisoned)} poisoned, {len(tricky)} tricky, {sum(map(len, folds))} honest windows", _ran(start))
    model = fit_bags(poisoned, [w for i, f in enumerate(folds) if i not in args.folds for w in f], tricky)
    print("first fit", _ran(start))
    worst = np.array([max(map(model.score, windows), default=-99.0) for _, windows in tops])
    least = float(np.quantile(worst, 1 - args.alarms))
    print(json.dumps({"least": least, "tools": len(tops)}), _ran(start))
    if args.final:
        model = fit_bags(poisoned, [w for f in folds for w in f], tricky)
    kept = quantized(model, args.least if args.least is not None else least)
    np.savez_compressed(
        args.out, of=np.frombuffer(kept.of, np.int8), scale=kept.scale, bias=kept.bias, least=kept.least
    )
    reader = Reader(kept)
    for path in [*args.attacks, *args.honest, *args.test]:
        top = [max((reader.judge(text).score for text in texts), default=-99.0) for _, texts in _rows(path)]
        print(path.name, len(top), "held", round(float(np.mean(np.array(top) >= kept.least)), 3), _ran(start))


def _ran(start: float) -> str:
    return f"({time.process_time() - start:.0f} s of processor time)"


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fit the guard's learned reader.")
    for name in ("attacks", "sentences", "honest", "tools", "servers", "test"):
        parser.add_argument(f"--{name}", type=Path, nargs="*", default=[])
    parser.add_argument("--every", type=int, default=3, help="take one honest tool in so many")
    parser.add_argument("--folds", type=int, nargs="*", default=[0, 1, 2], help="folds that give the threshold")
    parser.add_argument("--alarms", type=float, default=0.002, help="share of their tools above the threshold")
    parser.add_argument("--least", type=float, help="this threshold instead")
    parser.add_argument("--final", action="store_true", help="fit again over all folds")
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--out", type=Path, default=learned.WEIGHTS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    main()
