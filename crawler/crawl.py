"""A crawl: list the sources, deploy what is new with several workers, remember every finished step."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from toolscout.crawler.deploy import Deployer, Published
from toolscout.crawler.fetch import Fetcher, FetchError
from toolscout.crawler.install.base import Installer
from toolscout.crawler.limits import Limits
from toolscout.crawler.sandbox import Sandbox
from toolscout.crawler.sources.base import Source
from toolscout.crawler.sources.pypi import published
from toolscout.crawler.state import State, Todo
from toolscout.errors import NotAllowed, StorageError

_CACHES = ("uv", "bun", "npm")
_UNREACHABLE = frozenset({"other_host", "refused"})
_MOST_UNREACHABLE = 20
"""So many installations in a row that reach no registry, and the crawl stops: the fault is not the packages'."""


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
    ) -> list[ListingReport]:
        """Go through the sources' listings, one after the other, each where it was left.

        Args:
            since: ``last`` or a moment: only what changed since, where the source can tell.
            fresh: begin anew what was left unfinished.
            limit: stop a listing after so many entries; the next run goes on.
            tell: called with a source's name and how many entries it has given so far.
        """
        reports = []
        for source in sources:
            report = ListingReport(source.name)
            reports.append(report)
            cursor, start = self.state.begin_listing(source.name, since=since, fresh=fresh)
            try:
                async with contextlib.aclosing(
                    source.batches(fetcher, since=start if source.incremental else None, cursor=cursor)  # type: ignore[type-var]
                ) as batches:
                    async for batch in batches:
                        report.new += self.state.put_batch(source.name, batch)
                        report.listed += len(batch.found)
                        report.problems += len(batch.problems)
                        if tell is not None:
                            tell(source.name, report.listed)
                        if limit and report.listed >= limit and batch.cursor is not None:
                            break
                    else:
                        report.gone = self.state.end_listing(source.name, complete=source.lists_all())
            except FetchError as error:
                report.error = error.sentence()
        return reports

    async def deploy(
        self,
        sandbox: Sandbox,
        installers: Mapping[str, Installer],
        fetcher: Fetcher,
        options: DeployOptions | None = None,
        tell: Tell | None = None,
    ) -> Progress:
        """Deploy all that waits for it. Cancelling it kills what runs; whatever was finished is kept.

        Raises:
            StorageError: the disk is full.
            FetchError: the registries cannot be reached.
        """
        options = options or DeployOptions()
        run = _Run(self, sandbox, installers, fetcher, options, tell)
        return await run.go()


@dataclass(frozen=True)
class DeployOptions:
    """How to deploy.

    Args:
        workers: servers at once.
        limit: stop after so many; 0: all.
        minutes: stop after so long; 0: no limit.
        retry: failure classes that are tried again.
        keep_free: GiB of disk that stay free: the caches are emptied, then the crawl stops.
    """

    workers: int = 2
    limit: int = 0
    minutes: float = 0.0
    retry: Collection[str] = ()
    keep_free: float = 5.0
    limits: Limits = field(default_factory=Limits)


class _Run:
    """One run of `Crawl.deploy`."""

    def __init__(
        self,
        crawl: Crawl,
        sandbox: Sandbox,
        installers: Mapping[str, Installer],
        fetcher: Fetcher,
        options: DeployOptions,
        tell: Tell | None,
    ) -> None:
        self._state = crawl.state
        self._work = crawl.work
        self._deployer = Deployer(sandbox, crawl.work, installers, options.limits)
        self._fetcher = fetcher
        self._options = options
        self._tell = tell
        self._progress = Progress()
        self._waiting: deque[Todo] = deque()
        self._active = 0
        self._quiet = asyncio.Condition()
        self._emptying = False
        self._unreachable = 0
        self._sandbox = sandbox

    async def go(self) -> Progress:
        options = self._options
        todo = self._state.todo(retry=options.retry, registries=list(self._deployer.installers))
        self._waiting.extend(todo[: options.limit] if options.limit else todo)
        self._progress.total = len(self._waiting)
        await self._deployer.tidy()
        number = self._state.begin_run(options.workers, self._sandbox.name)
        began = time.monotonic()
        deadline = began + options.minutes * 60 if options.minutes else float("inf")
        try:
            async with asyncio.TaskGroup() as group:
                for slot in range(max(1, options.workers)):
                    group.create_task(self._worker(slot, number, began, deadline))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._progress.seconds = time.monotonic() - began
            self._state.tick_run(number, self._progress.seconds)
            with contextlib.suppress(asyncio.CancelledError):
                await self._deployer.tidy()
        return self._progress

    async def _worker(self, slot: int, run: int, began: float, deadline: float) -> None:
        while self._waiting and time.monotonic() < deadline:
            await self._room()
            if not self._waiting:
                return
            todo = self._waiting.popleft()
            async with self._quiet:
                await self._quiet.wait_for(lambda: not self._emptying)
                self._active += 1
            try:
                await self._one(todo, slot, run)
            finally:
                async with self._quiet:
                    self._active -= 1
                    self._quiet.notify_all()
            self._progress.done += 1
            self._progress.seconds = time.monotonic() - began
            self._state.tick_run(run, self._progress.seconds)
            if self._tell is not None:
                self._tell(self._progress)

    async def _one(self, todo: Todo, slot: int, run: int) -> None:
        install = todo.server.install
        assert install.package is not None
        outcome = await self._deployer.deploy(
            install.registry,
            install.package,
            install.version,
            published=self._published(todo),
            args=todo.args,
            shown=tuple(install.args) if install.args else None,
            slot=slot,
        )
        verdict = outcome.verdict
        self._unreachable = self._unreachable + 1 if verdict and verdict.cause in _UNREACHABLE else 0
        if self._unreachable >= _MOST_UNREACHABLE:
            raise FetchError(
                f"{_MOST_UNREACHABLE} installations in a row reached no package registry.",
                "Is the network there? Later run the same command with --retry install.",
            )
        tools = self._state.put_outcome(todo, outcome, run)
        self._progress.ok += tools > 0
        self._progress.tools += tools
        said = f"{tools} tools" if verdict is None else f"{verdict.failure} ({verdict.cause})"
        self._progress.last = f"{todo.server.server_id}: {said}"

    def _published(self, todo: Todo) -> Published:
        async def ask(version: str) -> str | None:
            package = todo.server.install.package or ""
            return todo.published or await published(self._fetcher, package, version)

        return ask

    async def _room(self) -> None:
        """See that the disk has room; else empty the package clients' caches while no worker is at work."""
        if self._free() > self._options.keep_free or self._emptying:
            return
        self._emptying = True
        try:
            async with self._quiet:
                await self._quiet.wait_for(lambda: self._active == 0)
                for name in _CACHES:
                    await asyncio.to_thread(shutil.rmtree, self._work / "cache" / name, True)
        finally:
            async with self._quiet:
                self._emptying = False
                self._quiet.notify_all()
        if self._free() <= self._options.keep_free:
            raise StorageError(
                f"Less than {self._options.keep_free:g} GiB of disk are free.", "Make room, or set --keep-free lower."
            )

    def _free(self) -> float:
        return shutil.disk_usage(self._work).free / 2**30
