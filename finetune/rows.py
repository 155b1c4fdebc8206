"""Training rows in the order in which they are trained on: the file that these make is all that a model has seen.

A batch serves each of its rows with the other rows' documents as negatives. So no row shares a batch with a document
that serves its request: rows are put into batches by what their requests are served by and which documents they bring.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from toolscout.errors import BadInput
from toolscout.finetune.augment import augment
from toolscout.finetune.negatives import Miner, draw_negatives
from toolscout.finetune.pairs import NOTHING, Pair, Pool
from toolscout.index.encoder import printable
from toolscout.records import Record

_RANDOM_TRIES = 20


class TrainingRow(Record):
    """One row: a request, the tool that serves it, tools that do not, and the view in which all are shown."""

    pair: str
    query: str
    gold: str
    negatives: list[str]
    view: str = "full"


@dataclass(frozen=True)
class RowOptions:
    """How pairs become rows. ``views`` maps a view to its share; ``augment`` is the share of requests changed;
    ``together`` requests for tools of one server share a batch, so that each has the others' tools as negatives
    (batches by topic: Hofstätter et al., arXiv 2104.06967)."""

    negatives: int = 1
    sources: tuple[str, ...] = ("siblings", "words", "dense")
    views: Mapping[str, float] = field(default_factory=lambda: {"full": 1.0})
    augment: float = 0.0
    kinds: tuple[str, ...] = ("keywords", "lower", "typo")
    epochs: int = 1
    batch: int = 48
    together: int = 1
    seed: int = 0


def build_rows(
    pairs: Sequence[Pair], found: Sequence[Mapping[str, list[str]]], miner: Miner, options: RowOptions
) -> list[TrainingRow]:
    """Rows of all epochs in training order: ``len(pairs) // batch`` whole batches an epoch.

    Each epoch draws anew which negatives, view and form of the request a pair shows. ``found`` is what
    ``miner.mine`` gave for the pairs. Raises BadInput when there are fewer pairs than a batch holds.
    """
    if len(pairs) < options.batch:
        raise BadInput(
            f"{len(pairs)} pairs do not fill a batch of {options.batch}.", "Give more calls or a smaller --batch."
        )
    relevant = {pair.id: pair.relevant for pair in pairs}
    rows: list[TrainingRow] = []
    for epoch in range(options.epochs):
        draw = random.Random(f"{options.seed} {epoch}")
        drawn = [_row(pair, negatives, miner, options, draw) for pair, negatives in zip(pairs, found, strict=True)]
        order = _side_by_side(drawn, options.together, miner.pool, draw)
        rows += in_batches(order, relevant, miner, options.batch, draw)
    return rows


def _side_by_side(rows: Sequence[TrainingRow], together: int, pool: Pool, draw: random.Random) -> list[TrainingRow]:
    """The rows shuffled, in groups of at most ``together`` of one server."""
    order = list(rows)
    draw.shuffle(order)
    by_server: dict[str, list[TrainingRow]] = defaultdict(list)
    for i, row in enumerate(order):
        by_server[pool.tools[row.gold].server_id if row.gold in pool.tools else f"{NOTHING} {i}"].append(row)
    groups = [some[i : i + together] for some in by_server.values() for i in range(0, len(some), together)]
    draw.shuffle(groups)
    return [row for group in groups for row in group]


def _row(
    pair: Pair, found: Mapping[str, list[str]], miner: Miner, options: RowOptions, draw: random.Random
) -> TrainingRow:
    views = list(options.views)
    view = pair.view or draw.choices(views, [options.views[v] for v in views])[0]
    if view == "server":
        found = {source: _other_servers(pair, tools, miner.pool) for source, tools in found.items()}
    negatives = draw_negatives(dict(found), options.sources, options.negatives, draw)
    for _ in range(_RANDOM_TRIES * options.negatives):
        if len(negatives) == options.negatives:
            break
        other = draw.choice(miner.ids)
        if other not in negatives and other not in pair.relevant and not miner.near_duplicate(pair.gold, other):
            negatives.append(other)
    if len(negatives) < options.negatives:
        raise BadInput(
            f"{pair.gold!r} has fewer than {options.negatives} negatives in this pool.",
            "Give more tools or fewer --negatives.",
        )
    query = augment(pair.query, draw.choice(options.kinds), draw) if draw.random() < options.augment else pair.query
    return TrainingRow(pair=pair.id, query=query, gold=pair.gold, negatives=negatives, view=view)


def _other_servers(pair: Pair, tools: Sequence[str], pool: Pool) -> list[str]:
    """Of these tools, one for each server that has no tool for the request."""
    own = {pool.tools[t].server_id for t in (pair.gold, *pair.relevant) if t in pool.tools}
    one = {pool.tools[t].server_id: t for t in reversed(tools) if pool.tools[t].server_id not in own}
    return list(reversed(one.values()))


def in_batches(
    rows: Sequence[TrainingRow],
    relevant: Mapping[str, frozenset[str]],
    miner: Miner,
    size: int,
    draw: random.Random,
) -> list[TrainingRow]:
    """The rows about in this order, such that in no run of ``size`` a request meets a document that serves it as
    another's.

    A row that fits nowhere is left out and another one shown twice instead; in data too small for that it stays.
    """
    order = list(rows)
    waiting, placed = order, list[TrainingRow]()
    for _ in range(len(rows) // size):
        batch = _Batch(miner, relevant)
        left: list[TrainingRow] = []
        for i, row in enumerate(waiting):
            if not batch.add(row):
                left.append(row)
            if len(batch.rows) == size:
                left += waiting[i + 1 :]
                break
        for row in draw.sample(order, len(order)) if len(batch.rows) < size else ():
            batch.add(row)
            if len(batch.rows) == size:
                break
        batch.rows += left[: size - len(batch.rows)] or order[: size - len(batch.rows)]
        waiting = left
        placed += batch.rows
    return placed


class _Batch:
    """Rows that may be shown together."""

    def __init__(self, miner: Miner, relevant: Mapping[str, frozenset[str]]) -> None:
        self.miner, self.relevant = miner, relevant
        self.rows: list[TrainingRow] = []
        self.queries: set[str] = set()
        self.served_by: set[str] = set()
        self.shown: set[str] = set()

    def add(self, row: TrainingRow) -> bool:
        """Take the row unless it does not go with those taken."""
        served_by, shown = self._served_by(row), self._shown(row)
        if row.query in self.queries or served_by & self.shown or shown & self.served_by:
            return False
        self.rows.append(row)
        self.queries.add(row.query)
        self.served_by |= served_by
        self.shown |= shown
        return True

    def _served_by(self, row: TrainingRow) -> set[str]:
        pool = self.miner.pool
        tools = [t for t in (row.gold, *self.relevant.get(row.pair, ())) if t in pool.tools]
        return {self.miner.kind(t) for t in tools} | {f"server {pool.tools[t].server_id}" for t in tools}

    def _shown(self, row: TrainingRow) -> set[str]:
        # NOTHING may be shown to many rows: the loss does not hold a row's own document against it.
        tools = [t for t in (row.gold, *row.negatives) if t != NOTHING]
        if row.view == "server":
            return {f"server {self.miner.pool.tools[t].server_id}" for t in tools}
        return {self.miner.kind(t) for t in tools}


def row_texts(row: TrainingRow, pool: Pool, query_prefix: str = "", document_prefix: str = "") -> list[str]:
    """What the encoder reads of a row: the request, the positive, the negatives; prefixed as in serving."""
    documents = [document_prefix + printable(pool.text(t, row.view)) for t in (row.gold, *row.negatives)]
    return [query_prefix + printable(row.query), *documents]
