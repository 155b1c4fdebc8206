"""A crawl: list the sources, deploy what is new with several workers, remember every finished step."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from toolscout.crawler.fetch import Fetcher, FetchError
from toolscout.crawler.moments import rfc3339
from toolscout.crawler.place import Place, Seat
from toolscout.crawler.sources.base import Source
from toolscout.crawler.state import State, Todo
from toolscout.crawler.station import Order
from toolscout.errors import NotAllowed, StorageError

if TYPE_CHECKING:
    from toolscout.crawler.agent.costs import Costs


@dataclass
class Progress:
    """How a crawl stands. ``rate`` is servers with tools an hour, over this run."""

    done: int = 0
    total: int = 0
    ok: int = 0
    tools: int = 0
    seconds: float = 0.0
    last: str = ""

    @property
    def rate(self) -> float:
        """Servers with tools an hour."""
        return self.ok / self.seconds * 3600 if self.seconds else 0.0

    @property
    def left(self) -> float:
        """Seconds left at this pace; 0 before anything is known."""
        return (self.total - self.done) * self.seconds / self.done if self.done else 0.0


@dataclass
class ListingReport:
    """What listing one source did."""

    source: str
    listed: int = 0
    new: int = 0
    gone: int = 0
    problems: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    """How many of the listing are not deployed, by the reason."""
    error: str = ""
    """Why it stopped early; the same command goes on from there."""


Tell = Callable[[Progress], None]


class Crawl:
    """One work folder, taken for this process alone. Use as a context manager.

    Raises:
        NotAllowed: another crawl is running in this folder.
        StorageError: the folder cannot be used.
    """

    def __init__(self, work: Path) -> None:
        self.work = work.resolve()
        try:
            self.work.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"The work folder {work} cannot be made: {error.strerror}.") from None
        self._lock = FileLock(self.work / "crawl.lock")
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise NotAllowed(f"Another crawl is running in {work}.", "Wait for it, or name another folder.") from None
        self.state = State(self.work)

    def __enter__(self) -> Crawl:
        return self

    def __exit__(self, *_: object) -> None:
        self.state.close()
        self._lock.release()

    async def list_sources(
        self,
        sources: Sequence[Source],
        fetcher: Fetcher,
        *,
        since: str | None = None,
        fresh: bool = False,
        limit: int = 0,
        tell: Callable[[str, int], None] | None = None,
        costs: Costs | None = None,
    ) -> list[ListingReport]:
        """Go through the sources' listings, one after the other, each where it was left.

        Args:
            since: ``last`` or a moment (ISO 8601): only what changed since, where the source can tell.
            fresh: begin anew what was left unfinished.
            limit: stop a listing after so many entries; the next run goes on.
            tell: called with a source's name and how many entries it has given so far.
            costs: where the sources book what reading pages costs; stored with every batch.

        Raises:
            BadInput: ``since`` is no moment, or a source is not set up.
        """
        reports = []
        if since is not None and since != "last":
            since = rfc3339(since)
        for source in sources:
            report = ListingReport(source.name)
            reports.append(report)
            key = source.key
            cursor, start = self.state.begin_listing(
                key, since=since if source.incremental else None, fresh=fresh, name=source.name, setup=source.setup
            )
            try:
                async with contextlib.aclosing(
                    source.batches(fetcher, since=start, cursor=cursor)  # type: ignore[type-var]
                ) as batches:
                    async for batch in batches:
                        report.new += self.state.put_batch(key, batch)
                        report.listed += len(batch.found)
                        report.problems += len(batch.problems)
                        if costs is not None:
                            self.state.put_costs(costs.take())
                        if tell is not None:
                            tell(source.name, report.listed)
                        if limit and report.listed >= limit and batch.cursor is not None:
                            break
                    else:
                        report.gone = self.state.end_listing(key, complete=source.lists_all())
            except FetchError as error:
                report.error = error.sentence()
            finally:
                if costs is not None:  # those of a batch that the site's failure cut short, too
                    self.state.put_costs(costs.take())
            unmatched = {"no match for --pattern": source.unmatched} if source.unmatched else {}
            report.left_out = {**unmatched, **self.state.left_out(key)}
        return reports

    async def deploy(self, place: Place, options: DeployOptions | None = None, tell: Tell | None = None) -> Progress:
        """Deploy all that waits for it. Cancelling it kills what runs; whatever was finished is kept.

        Args:
            place: where deployments run, and how many at once.

        Raises:
            NotAllowed: nothing can be deployed there.
            StorageError: the disk is full.
            FetchError: the registries cannot be reached.
        """
        return await _Run(self, place, options or DeployOptions(), tell).go()


@dataclass(frozen=True)
class DeployOptions:
    """What to deploy.

    Args:
        limit: stop after so many; 0: all.
        minutes: stop after so long; 0: no limit.
        retry: failure classes that are tried again.
        sources: deploy only what one of these listings (`Source.key`) has; None: all that waits.
        named: servers that are tried again whatever became of them, unless they gave tools.
        first: servers that are deployed before all others, in this order.
    """

    limit: int = 0
    minutes: float = 0.0
    retry: Collection[str] = ()
    sources: Collection[str] | None = None
    named: Collection[str] = ()
    first: Sequence[str] = ()


class _Run:
    """One run of `Crawl.deploy`."""

    def __init__(self, crawl: Crawl, place: Place, options: DeployOptions, tell: Tell | None) -> None:
        self._state = crawl.state
        self._place = place
        self._options = options
        self._tell = tell
        self._progress = Progress()
        self._waiting: deque[Todo] = deque()

    async def go(self) -> Progress:
        options = self._options
        async with self._place as place:
            todo = self._state.todo(
                retry=options.retry,
                registries=place.registries,
                sources=options.sources,
                named=options.named,
                first=options.first,
            )
            self._waiting.extend(todo[: options.limit] if options.limit else todo)
            self._progress.total = len(self._waiting)
            number = self._state.begin_run(place.size, place.sandbox)
            began = time.monotonic()
            deadline = began + options.minutes * 60 if options.minutes else float("inf")
            try:
                async with asyncio.TaskGroup() as group:
                    while self._waiting:
                        seat = await place.seat()
                        if time.monotonic() >= deadline:
                            break
                        group.create_task(self._one(self._waiting.popleft(), seat, number, began))
            except BaseExceptionGroup as errors:
                raise errors.exceptions[0] from None
            finally:
                self._progress.seconds = time.monotonic() - began
                self._state.tick_run(number, self._progress.seconds)
        return self._progress

    async def _one(self, todo: Todo, seat: Seat, run: int, began: float) -> None:
        outcome = await seat.deploy(Order.of(todo))
        verdict = outcome.verdict
        tools = self._state.put_outcome(todo, outcome, run)
        self._progress.ok += tools > 0
        self._progress.tools += tools
        said = f"{tools} tools" if verdict is None else f"{verdict.failure} ({verdict.cause})"
        self._progress.last = f"{todo.server.server_id}: {said}"
        self._progress.done += 1
        self._progress.seconds = time.monotonic() - began
        self._state.tick_run(run, self._progress.seconds)
        if self._tell is not None:
            self._tell(self._progress)
