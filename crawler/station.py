"""One machine's deployments: what installs here, how a package is deployed here, the disk that stays free."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from toolscout.crawler.deploy import Deployer, Outcome, Published
from toolscout.crawler.fetch import Fetcher, FetchError
from toolscout.crawler.install.base import Installer, Shop, reachable
from toolscout.crawler.install.npm import NpmInstaller
from toolscout.crawler.install.pypi import PypiInstaller
from toolscout.crawler.limits import Limits
from toolscout.crawler.sandbox import Job, Sandbox, refusal
from toolscout.crawler.sources.pypi import published
from toolscout.crawler.state import Todo
from toolscout.errors import NotAllowed, StorageError

_CACHES = ("uv", "bun", "npm")
_UNREACHABLE = frozenset({"other_host", "refused"})
_MOST_UNREACHABLE = 20
"""So many installations in a row that reach no registry, and the station stops: the fault is not the packages'."""


@dataclass(frozen=True)
class Order:
    """One package to deploy, as it travels to whoever deploys it."""

    registry: str
    package: str
    version: str | None = None
    args: tuple[str, ...] = ()
    shown: tuple[str, ...] | None = None
    """The arguments as they are recorded, where that differs."""
    published: str | None = None
    """When the version was published, where the listing knew it."""

    @classmethod
    def of(cls, todo: Todo) -> Order:
        """What is to be done for an entry."""
        install = todo.server.install
        assert install.package is not None
        shown = tuple(install.args) if install.args else None
        return cls(install.registry, install.package, install.version, todo.args, shown, todo.published)


class Station:
    """Deploys on this machine, in one work folder, any number at once (each in a slot of its own).

    Args:
        fetcher: asks the index when a version was published.
        keep_free: GiB of disk that stay free: the caches are emptied, then it stops.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        work: Path,
        installers: Mapping[str, Installer],
        fetcher: Fetcher,
        limits: Limits,
        keep_free: float = 5.0,
    ) -> None:
        self.sandbox = sandbox
        self.work = work
        self.keep_free = keep_free
        self.registries = frozenset(installers)
        self._deployer = Deployer(sandbox, work, installers, limits)
        self._fetcher = fetcher
        self._active = 0
        self._quiet = asyncio.Condition()
        self._emptying = False
        self._unreachable = 0

    async def deploy(self, order: Order, slot: int) -> Outcome:
        """Deploy one package; every expected failure of the package is in the outcome.

        Raises:
            StorageError: the disk is full.
            FetchError: the registries cannot be reached.
        """
        await self._room()
        async with self._quiet:
            await self._quiet.wait_for(lambda: not self._emptying)
            self._active += 1
        try:
            outcome = await self._deployer.deploy(
                order.registry,
                order.package,
                order.version,
                published=self._published(order),
                args=order.args,
                shown=order.shown,
                slot=slot,
            )
        finally:
            async with self._quiet:
                self._active -= 1
                self._quiet.notify_all()
        verdict = outcome.verdict
        self._unreachable = self._unreachable + 1 if verdict and verdict.cause in _UNREACHABLE else 0
        if self._unreachable >= _MOST_UNREACHABLE:
            raise FetchError(
                f"{_MOST_UNREACHABLE} installations in a row reached no package registry.",
                "Is the network there? Later run the same command with --retry install.",
            )
        return outcome

    async def begin(self) -> None:
        """End and remove what an earlier run left when it was killed."""
        self._deployer.end_strays()
        await self.tidy()

    async def tidy(self) -> None:
        """Wait until all that was thrown away is gone."""
        await self._deployer.tidy()

    def _published(self, order: Order) -> Published:
        async def ask(version: str) -> str | None:
            return order.published or await published(self._fetcher, order.package, version)

        return ask

    async def _room(self) -> None:
        """See that the disk has room; else empty the package clients' caches while nothing is being deployed."""
        if self._free() > self.keep_free or self._emptying:
            return
        self._emptying = True
        try:
            async with self._quiet:
                await self._quiet.wait_for(lambda: self._active == 0)
                for name in _CACHES:
                    await asyncio.to_thread(shutil.rmtree, self.work / "cache" / name, True)
        finally:
            async with self._quiet:
                self._emptying = False
                self._quiet.notify_all()
        if self._free() <= self.keep_free:
            raise StorageError(
                f"Less than {self.keep_free:g} GiB of disk are free.", "Make room, or set --keep-free lower."
            )

    def _free(self) -> float:
        return shutil.disk_usage(self.work).free / 2**30


def open_installers(
    work: Path,
    limits: Limits,
    npm_client: str = "auto",
    pythons: Sequence[Path] = (),
    tell: Callable[[str], None] = lambda _: None,
) -> dict[str, Installer]:
    """The installers that work on this machine, by registry.

    Args:
        tell: called with a sentence for each installer or interpreter that is left out.

    Raises NotAllowed when none does, or when the user that installs cannot enter the work folder.
    """
    if not reachable(work):
        raise NotAllowed(
            f"The unprivileged user that installs cannot reach {work}.",
            "Name a folder that others may enter with --work, such as one under /var/tmp.",
        )
    shop = Shop.open(work, limits)
    found: tuple[Installer, ...] = (NpmInstaller(shop, npm_client), PypiInstaller(shop, pythons))
    return _usable(found, "Install Node.js with npm, or python3.", tell)


def keep_starting(
    sandbox: Sandbox, installers: Mapping[str, Installer], limits: Limits, tell: Callable[[str], None] = lambda _: None
) -> dict[str, Installer]:
    """The installers whose interpreters start where servers run; what does not start there is told.

    To be called before the first package: where the sandbox does not show Node.js, each npm package seems to crash.
    Raises NotAllowed when none is left.
    """
    for installer in installers.values():
        installer.problems = []
        installer.keep_starting(lambda e: refusal(sandbox, Job(e.argv, readable=e.readable, limits=limits)))
    hint = "Use interpreters in a folder that every user may enter, such as /usr/local."
    return _usable(tuple(installers.values()), hint, tell)


def _usable(found: Sequence[Installer], hint: str, tell: Callable[[str], None]) -> dict[str, Installer]:
    usable = {i.registry: i for i in found if i.usable}
    if not usable:
        why = "; ".join(f"{i.registry}: {', '.join(i.problems)}" for i in found)
        raise NotAllowed(f"No package can be installed and run here ({why}).", hint)
    for installer in found:
        if not installer.usable:
            tell(f"{installer.registry} packages are left out: {'; '.join(installer.problems)}. {hint}")
        else:
            for problem in installer.problems:
                tell(f"Not used for {installer.registry} packages: {problem}.")
    return usable
