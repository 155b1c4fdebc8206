"""Enrichment of one crawl: settings, store, encoder and model put together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from toolscout.crawler.agent.model import ChatModel
from toolscout.crawler.agent.settings import AgentSettings
from toolscout.crawler.enrich.enricher import Enricher, Enrichment, Facts
from toolscout.crawler.enrich.store import EnrichmentStore
from toolscout.crawler.enrich.writer import Terms
from toolscout.crawler.export import pairs
from toolscout.crawler.state import State
from toolscout.errors import BadInput
from toolscout.index.asset import DEFAULT_ENCODER, encoders_folder
from toolscout.index.encoder import OnnxEncoder

STORE = "enriched.db"


@dataclass(frozen=True)
class Asking:
    """Which model writes summaries, on what terms. What is None is as the environment has it (TOOLSCOUT_CRAWL_*)."""

    endpoint: str | None = None
    model: str | None = None
    price_in: float | None = None
    price_out: float | None = None
    max_cost: float = 0.0
    concurrency: int = 8

    def check(self) -> None:
        """Raises BadInput for what could not be used at the end: before a crawl of hours, not after it."""
        model, _ = self.resolved()
        if model is not None:
            asyncio.run(model.close())

    def resolved(self) -> tuple[ChatModel | None, Terms]:
        """The model, None where no endpoint is set, and the terms. Raises BadInput where they do not go together."""
        settings = AgentSettings()
        price_in = settings.price_in if self.price_in is None else self.price_in
        price_out = settings.price_out if self.price_out is None else self.price_out
        url = settings.model_url if self.endpoint is None else self.endpoint
        if self.max_cost and not (price_in or price_out):
            raise BadInput("A cost ceiling needs prices.", "Give --price-in and --price-out, for a million tokens.")
        terms = Terms(price_in, price_out, self.max_cost, self.concurrency)
        if not url:
            return None, terms
        name = settings.model if self.model is None else self.model
        return ChatModel(url, model=name, key=settings.model_key, timeout=settings.model_timeout), terms


def enrich(
    state: State, work: Path, asking: Asking, tick: Callable[[int], None] = lambda _: None
) -> tuple[Facts, Enrichment]:
    """Facts of all servers that leave a crawl. Raises BadInput for bad terms, StorageError for a broken store."""
    model, terms = asking.resolved()
    with EnrichmentStore(work / STORE) as store, OnnxEncoder(encoders_folder() / DEFAULT_ENCODER) as encoder:
        enricher = Enricher(store, encoder, model=model, terms=terms)
        return enricher.facts(lambda: pairs(state), tick), enricher.done
