"""Enrichment of what leaves a crawl: the category and the summary of each server, worked out once for all outputs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from toolscout.crawler.agent.model import ChatModel
from toolscout.crawler.enrich.category import OTHER, Categoriser, stated
from toolscout.crawler.enrich.store import EnrichmentStore
from toolscout.crawler.enrich.summary import LIMIT, extract
from toolscout.crawler.enrich.text import clean, directs, sentences
from toolscout.crawler.enrich.writer import Pair, SummaryWriter, Terms, Written, shown, summary_key
from toolscout.errors import NotAllowed, StorageError
from toolscout.index.encoder import Encoder
from toolscout.records import JsonObject, Server, Tool

_BATCH = 64

Facts = dict[str, JsonObject]
"""What is known of servers beyond what they were listed with, by id: ``category`` and ``summary``."""


@dataclass
class Enrichment:
    """What was worked out. ``stated`` counts categories that a marketplace gave; ``categories`` counts all."""

    servers: int = 0
    stated: int = 0
    categories: Counter[str] = field(default_factory=Counter)
    summaries: Counter[str] = field(default_factory=Counter)
    written: Written | None = None
    problem: str = ""

    def to_dict(self) -> JsonObject:
        """The numbers as one JSON object."""
        value: dict[str, Any] = {
            "servers": self.servers,
            "categories": dict(self.categories.most_common()),
            "categories_stated": self.stated,
            "summaries": dict(self.summaries.most_common()),
        }
        if self.written is not None:
            value["model"] = {**vars(self.written), "failed": dict(self.written.failed)}
        if self.problem:
            value["problem"] = self.problem
        return value


class Enricher:
    """Works out the facts of servers.

    Args:
        store: where they are kept.
        encoder: the one that ships with the package: categories are told by no other.
        model: writes the summaries where given; without, what it wrote earlier is used all the same.
    """

    def __init__(
        self, store: EnrichmentStore, encoder: Encoder, *, model: ChatModel | None = None, terms: Terms | None = None
    ) -> None:
        self._store, self._model, self._terms = store, model, terms or Terms()
        self._model_name = model.name if model is not None else ""
        self._writing = model is not None or store.has_summaries()
        self.done = Enrichment()
        self._categoriser: Categoriser | None = None
        try:
            self._categoriser = Categoriser(encoder)
        except (NotAllowed, StorageError) as error:
            self.done.problem = error.sentence()  # no category is better than a meaningless one

    def facts(self, servers: Callable[[], Iterable[Pair]], tick: Callable[[int], None] = lambda _: None) -> Facts:
        """Category and summary of each server. ``servers`` is read twice where a model writes."""
        if self._model is not None:
            wanted = (pair for pair in servers() if not _stated_summary(*pair))
            self.done.written = asyncio.run(_written(self._model, self._store, self._terms, wanted, tick))
        found: Facts = {}
        for batch in _batches(servers(), _BATCH):
            categories = self._categories(batch)
            for (server, tools), category in zip(batch, categories, strict=True):
                facts = {"category": category, "summary": self._summary(server, tools)}
                found[server.server_id] = {name: value for name, value in facts.items() if value}
                self.done.servers += 1
                self.done.categories[category or "none"] += 1
            tick(len(found))
        return found

    def _categories(self, batch: Sequence[Pair]) -> list[str | None]:
        given = [stated(server.category) for server, _ in batch]
        self.done.stated += sum(category is not None for category in given)
        if self._categoriser is None:
            return given
        keys = [self._categoriser.key(*pair) for pair in batch]
        known = {key: self._store.category(key) for key in keys}
        new = {
            key: pair
            for key, pair, category in zip(keys, batch, given, strict=True)
            if category is None and known[key] is None
        }
        if new:
            guesses = dict(zip(new, self._categoriser.guesses(list(new.values())), strict=True))
            self._store.put_categories(guesses)
            known |= guesses
        return [
            category or (guess.category if (guess := known[key]) else OTHER)
            for key, category in zip(keys, given, strict=True)
        ]

    def _summary(self, server: Server, tools: Sequence[Tool]) -> str | None:
        if said := _stated_summary(server, tools):
            self.done.summaries["stated"] += 1
            return said
        known = self._store.summary(summary_key(shown(server, tools)), self._model_name) if self._writing else None
        if known and not known[1]:
            self.done.summaries["written"] += 1
            return known[0]
        self.done.summaries["extracted"] += 1
        return extract(server, tools)


def _stated_summary(server: Server, tools: Sequence[Tool]) -> str:
    """A marketplace's summary as it is kept: cleaned, cut to sentences; empty if the guard finds anything in it."""
    if not server.summary or not clean(server.summary, server, [tool.name for tool in tools]):
        return ""
    said = ""
    for sentence in sentences(server.summary):
        if directs(sentence) or len(said) + 1 + len(sentence) > LIMIT:
            break
        said = f"{said} {sentence}".strip()
    return said


async def _written(
    model: ChatModel, store: EnrichmentStore, terms: Terms, pairs: Iterable[Pair], tick: Callable[[int], None]
) -> Written:
    try:
        return await SummaryWriter(model, store, terms).write(pairs, tick)
    finally:
        await model.close()


def _batches(pairs: Iterable[Pair], size: int) -> Iterator[list[Pair]]:
    left = iter(pairs)
    while batch := list(islice(left, size)):
        yield batch
