"""Deploy one server: install it, start it in the sandbox, list its tools, and remove every trace of it."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from toolscout.crawler import dummies
from toolscout.crawler.classify import by_metadata
from toolscout.crawler.failures import DeployError, Failure, Verdict, classify
from toolscout.crawler.install.base import Entry, Installed, Installer, own_folder
from toolscout.crawler.limits import Limits
from toolscout.crawler.listing import Gone, Listing, read_listing
from toolscout.crawler.process import start
from toolscout.crawler.sandbox import Job, Sandbox

Published = Callable[[str], Awaitable[str | None]]
"""``await published(version)``: when that version was published (ISO 8601), None if nobody knows."""

_Arguments = tuple[tuple[str, ...], tuple[str, ...]]

_ENTRIES = 3
"""Most commands of a package that are tried."""
_ROUNDS = 8
"""Most starts of one command."""
_PIN_DAYS = 3
_AGAIN = 0.6
"""Share of the time limit that further starts get."""
_STDIO: tuple[tuple[tuple[str, ...], Mapping[str, str]], ...] = (
    (("--stdio",), {}),
    ((), {"MCP_TRANSPORT": "stdio", "TRANSPORT": "stdio", "MCP_TRANSPORT_TYPE": "stdio", "MCP_MODE": "stdio"}),
    (("--transport", "stdio"), {}),
    (("stdio",), {}),
)
"""How servers that speak HTTP are told to speak stdio."""


@dataclass(frozen=True)
class Start:
    """One way to start a command. ``shown`` are its arguments as recorded, with placeholders for dummies."""

    entry: Entry
    args: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Variables whose value is meant as it is (``MCP_TRANSPORT=stdio``)."""
    copied: tuple[Path, ...] = ()


@dataclass
class Outcome:
    """What became of a deployment. ``verdict`` is None when tools were listed."""

    verdict: Verdict | None = None
    listing: Listing | None = None
    start: Start | None = None
    installed: Installed | None = None
    needs_key: bool = False
    """Tools came only after dummy values were given: the list may be incomplete."""
    needs_arguments: bool = False
    install_seconds: float = 0.0
    run_seconds: float = 0.0
    starts: int = 0
    peak: int = 0
    """Most private memory of a start, in bytes."""


@dataclass
class Deployer:
    """Deploys packages, one folder each, which is gone afterwards.

    Args:
        work: the crawl's work folder.
        installers: by registry.
    """

    sandbox: Sandbox
    work: Path
    installers: Mapping[str, Installer]
    limits: Limits = field(default_factory=Limits)
    keep: Callable[[Path], None] | None = None
    """Called with each installation before it is removed (for tests)."""
    _removals: set[asyncio.Task[None]] = field(default_factory=set)

    async def deploy(
        self,
        registry: str,
        package: str,
        version: str | None = None,
        *,
        published: Published | None = None,
        args: tuple[str, ...] = (),
        shown: tuple[str, ...] | None = None,
        slot: int = 0,
    ) -> Outcome:
        """Deploy one package; every expected failure is in the outcome.

        Args:
            published: asked only where the resolver's clock may have to be set.
            args: arguments from a configuration.
            shown: the same as they are recorded, with placeholders; ``args`` as they are without it.
            slot: number of the worker.
        """
        outcome = Outcome()
        installer = self.installers.get(registry)
        if installer is None:
            outcome.verdict = Verdict(Failure.INSTALL, "no_installer", f"nothing here installs {registry} packages")
            return outcome
        folder = self.work / "installs" / f"{slot}"
        try:
            first = (args, args if shown is None else shown)
            await self._deploy(outcome, installer, folder, package, version, published, first, slot)
        except DeployError as error:
            outcome.verdict = error.verdict
        finally:
            if self.keep is not None:
                self.keep(folder)
            self._discard(folder)
        return outcome

    async def tidy(self) -> None:
        """Wait until all that was thrown away is gone, and remove what an earlier run left."""
        for folder in ("installs", "trash"):
            for path in list((self.work / folder).glob("*")):
                self._discard(path)
        while self._removals:
            await asyncio.gather(*self._removals, return_exceptions=True)

    def _discard(self, folder: Path) -> None:
        """Remove a folder in the background: thousands of small files take the disk seconds."""
        trash = self.work / "trash"
        trash.mkdir(exist_ok=True)
        target = trash / f"{time.monotonic_ns()}"
        try:
            folder.rename(target)
        except FileNotFoundError:
            return
        task = asyncio.create_task(asyncio.to_thread(shutil.rmtree, target, True))
        self._removals.add(task)
        task.add_done_callback(self._removals.discard)

    async def _deploy(
        self,
        outcome: Outcome,
        installer: Installer,
        folder: Path,
        package: str,
        version: str | None,
        published: Published | None,
        args: _Arguments,
        slot: int,
    ) -> None:
        installed = await self._install(outcome, installer, folder, package, version, None)
        if not installed.entries:
            verdict, reason = by_metadata(installed.metadata, has_entry=False)
            raise DeployError(Failure.NO_ENTRY_POINT, str(verdict), reason)
        if await self._try_entries(outcome, installed, args, slot):
            return
        found = outcome.verdict
        dated = installer.registry == "pypi" and found is not None and found.failure is Failure.CRASHED
        if not dated or published is None:
            return
        moment = await published(installed.metadata.version)
        pin = _days_after(moment, _PIN_DAYS) if isinstance(moment, str) else None
        if pin is None:
            return
        # An unpinned dependency of today broke a package of yesterday: mcp 2 and servers written for mcp 1.
        try:
            pinned = await self._install(outcome, installer, folder, package, installed.metadata.version, pin)
        except DeployError:
            return
        if pinned.entries:
            await self._try_entries(outcome, pinned, args, slot)

    async def _install(
        self,
        outcome: Outcome,
        installer: Installer,
        folder: Path,
        package: str,
        version: str | None,
        pin: str | None,
    ) -> Installed:
        self._discard(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        own_folder(folder)
        began = time.monotonic()
        try:
            outcome.installed = await installer.install(folder, package, version, pin)
        finally:
            outcome.install_seconds += time.monotonic() - began
        return outcome.installed

    async def _try_entries(self, outcome: Outcome, installed: Installed, args: _Arguments, slot: int) -> bool:
        """Try the commands of an installation, best first; whether one listed tools."""
        began = time.monotonic()
        worst: Verdict | None = None
        try:
            for entry in installed.entries[:_ENTRIES]:
                if await self._try_entry(outcome, installed, Start(entry, *args), slot):
                    return True
                if worst is None or _telling(outcome.verdict) > _telling(worst):
                    worst = outcome.verdict
        finally:
            outcome.run_seconds += time.monotonic() - began
        outcome.verdict = worst
        return False

    async def _try_entry(self, outcome: Outcome, installed: Installed, first: Start, slot: int) -> bool:
        """Start one command again and again, each time with what the last failure asked for."""
        current = first
        switches = list(_STDIO)
        scanned = guessed = False
        best: Verdict | None = None
        for _ in range(_ROUNDS):
            verdict, text = await self._once(outcome, installed, current, slot)
            if verdict is None:
                return True
            if best is None or _telling(verdict) >= _telling(best):
                best = verdict
            following: Start | None = None
            if verdict.cause == "writes_beside_itself" and not current.copied and installed.own:
                following = replace(current, copied=_outermost(installed.own))
            elif verdict.cause == "http_only" and switches:
                args, env = switches.pop(0)
                following = replace(current, args=(*first.args, *args), shown=(*first.shown, *args), fixed=env)
            elif verdict.failure is Failure.NEEDS_KEY or (verdict.failure is Failure.EMPTY and not scanned):
                wanted = dummies.reformed(text, current.env) if verdict.failure is Failure.NEEDS_KEY else {}
                names = dummies.asked_for(text, current.env) if verdict.failure is Failure.NEEDS_KEY else []
                if not wanted and not names and not scanned:
                    scanned = True
                    names = await asyncio.to_thread(dummies.in_source, installed.own, current.env)
                wanted |= {name: dummies.value_for(name) for name in names}
                fewer = dummies.exclusive(text, current.env)
                if fewer is not None:
                    following = replace(current, env=fewer)
                elif wanted:
                    following = replace(current, env={**current.env, **wanted})
            elif verdict.failure is Failure.NEEDS_ARGUMENTS and not guessed:
                guessed = True
                given, shown = dummies.arguments_for(text)
                if given:
                    following = replace(current, args=(*current.args, *given), shown=(*current.shown, *shown))
            if following is None:
                break
            current = following
        outcome.verdict = best
        return False

    async def _once(self, outcome: Outcome, installed: Installed, how: Start, slot: int) -> tuple[Verdict | None, str]:
        """One start; None and the outcome filled when tools were listed, else why not and all that was said."""
        job = Job(
            (*how.entry.argv, *how.args),
            {**how.env, **how.fixed},
            (installed.folder, *how.entry.readable),
            how.copied,
            self.limits,
            slot,
        )
        outcome.starts += 1
        running = await start(self.sandbox, job)
        listing: Listing | None = None
        verdict: Verdict | None = None
        try:
            # What has been started before is in the file cache, and a server that waits for a key check waits for long.
            async with asyncio.timeout(self.limits.seconds * (1.0 if outcome.starts == 1 else _AGAIN)):
                listing = await read_listing(running)
        except TimeoutError:
            verdict = classify(running.stderr.text, _text(running.noise), None, running.broken)
        except Gone:
            await running.exited(1.0)
            await asyncio.sleep(0.05)  # what it said last may still be in the pipe
            verdict = classify(running.stderr.text, _text(running.noise), running.returncode, running.broken)
        except DeployError as error:
            verdict = error.verdict
        finally:
            await running.stop()
            outcome.peak = max(outcome.peak, running.peak)
        said = f"{running.stderr.text}\n{_text(running.noise)}"
        if listing is not None and not listing.tools:
            verdict = Verdict(Failure.EMPTY, _why_empty(listing), said[-500:].strip())
            outcome.listing = outcome.listing or listing
        elif listing is not None:
            outcome.listing, outcome.start, outcome.verdict = listing, how, None
            outcome.needs_key = bool(how.env)
            outcome.needs_arguments = how.args != how.shown
        return verdict, said


def package_command(registry: str, package: str, version: str, how: Start) -> tuple[str, list[str]]:
    """How a user would start it: the command and its arguments, dummies as placeholders."""
    if registry == "npm":
        bare = package.rpartition("/")[2]
        pinned = f"{package}@{version}" if version else package
        if how.entry.name == bare:
            return "npx", ["-y", pinned, *how.shown]
        return "npx", ["-y", "-p", pinned, how.entry.name, *how.shown]
    pinned = f"{package}=={version}" if version else package
    if how.entry.name.startswith("python -m "):
        module = how.entry.name.removeprefix("python -m ")
        return "uvx", ["--from", pinned, "python", "-m", module, *how.shown]
    return "uvx", ["--from", pinned, how.entry.name, *how.shown]


_TELLING = {
    Failure.EMPTY: 6,
    Failure.NEEDS_KEY: 5,
    Failure.NEEDS_ARGUMENTS: 4,
    Failure.PROTOCOL: 3,
    Failure.CRASHED: 3,
    Failure.TIMEOUT: 2,
    Failure.NOT_A_SERVER: 1,
}


def _telling(verdict: Verdict | None) -> int:
    """Of several failures, the one nearest to a server is reported."""
    return _TELLING.get(verdict.failure, 0) if verdict is not None else -1


def _why_empty(listing: Listing) -> str:
    if "tools" in listing.capabilities:
        return "no_tools"
    others = [name for name in ("prompts", "resources") if name in listing.capabilities]
    return f"only_{'_'.join(others)}" if others else "declares_nothing"


def _outermost(folders: tuple[Path, ...]) -> tuple[Path, ...]:
    return tuple(f for f in folders if not any(f != o and f.is_relative_to(o) for o in folders))


def _days_after(moment: str, days: int) -> str | None:
    match = re.match(r"\d{4}-\d\d-\d\d", moment)
    if match is None:
        return None
    return (datetime.fromisoformat(match.group()) + timedelta(days=days)).strftime("%Y-%m-%dT00:00:00Z")


def _text(data: bytearray) -> str:
    return bytes(data).decode("utf-8", "replace")
