"""Packages that the user names one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import ClassVar

from toolscout.crawler.fetch import Fetcher
from toolscout.crawler.sources import names as listed
from toolscout.crawler.sources.base import Batch, Source, Verdict


class PackagesSource(Source):
    """``(registry, name)`` pairs, deployed whatever their names look like."""

    name: ClassVar[str] = "named"
    complete: ClassVar[bool] = False

    def __init__(self, packages: Sequence[tuple[str, str]]) -> None:
        self._packages = packages

    async def batches(
        self, fetcher: Fetcher, *, since: str | None = None, cursor: str | None = None
    ) -> AsyncIterator[Batch]:
        """See `Source.batches`. There is one batch."""
        found = [listed.found(registry, package) for registry, package in self._packages]
        yield Batch([replace(f, verdict=Verdict.SERVER, reason="named by the user") for f in found], None)
