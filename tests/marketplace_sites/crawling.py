"""Running a source as the crawler does, and what it gave."""

from __future__ import annotations

from datetime import UTC, datetime

from toolscout.crawler.fetch import Fetcher, Page
from toolscout.crawler.sources.base import Batch, Found, Source


class Pages(dict[str, Page]):
    """A page cache in memory."""

    def get_page(self, url: str) -> Page | None:
        return self.get(url)

    def put_page(self, page: Page) -> None:
        self[page.url] = page


async def crawl(
    source: Source, cache: Pages, *, since: str | None = None, cursor: str | None = None, batches: int | None = None
) -> list[Batch]:
    """Everything a source gives, or its first batches."""
    got: list[Batch] = []
    async with Fetcher(cache, rate=0, retries=1, backoff=0.01) as fetcher:
        listing = source.batches(fetcher, since=since, cursor=cursor)
        async for batch in listing:
            got.append(batch)
            if batches is not None and len(got) == batches:
                await listing.aclose()  # type: ignore[attr-defined]
                break
    return got


def found(batches: list[Batch]) -> dict[str, Found]:
    """Records by server id; none twice."""
    every = [f for batch in batches for f in batch.found]
    by_id = {f.server.server_id: f for f in every}
    assert len(by_id) == len(every)
    return by_id


def problems(batches: list[Batch]) -> list[str]:
    """All problems."""
    return [p for batch in batches for p in batch.problems]


def now() -> str:
    """This moment, ISO 8601."""
    return datetime.now(UTC).isoformat()
