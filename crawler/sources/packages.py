"""Packages that the user names one by one, or whose coordinates somebody else's crawl gave."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from toolscout.crawler.fetch import Fetcher
from toolscout.crawler.sources import names as listed
from toolscout.crawler.sources.base import Batch, Found, Source, Verdict

if TYPE_CHECKING:
    from toolscout.crawler.coordinates import Coordinate


class PackagesSource(Source):
    """Deployed whatever their names look like; in the version that was named, else the newest."""

    name: ClassVar[str] = "named"
    complete: ClassVar[bool] = False

    def __init__(self, packages: Sequence[Coordinate]) -> None:
        self._packages = packages

    async def batches(
        self, fetcher: Fetcher, *, since: str | None = None, cursor: str | None = None
    ) -> AsyncIterator[Batch]:
        """See `Source.batches`. There is one batch."""
        yield Batch([self.found(package) for package in self._packages], None)

    @staticmethod
    def found(package: Coordinate) -> Found:
        """A package that the user named."""
        found = listed.found(package.registry, package.package, marker=package.version)
        install = found.server.install.model_copy(update={"version": package.version})
        server = found.server.model_copy(update={"install": install})
        return replace(found, server=server, verdict=Verdict.SERVER, reason="named by the user")
