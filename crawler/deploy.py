"""Deploy one server: install it, start it in the sandbox, list its tools, and remove every trace of it."""

from __future__ import annotations

import asyncio
import re
import shutil
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from toolscout.crawler import dummies
from toolscout.crawler.classify import by_metadata
from toolscout.crawler.failures import DeployError, Failure, Verdict, classify, missing_extra, refused, speaks_http
from toolscout.crawler.install.base import Entry, Installed, Installer, own_folder
from toolscout.crawler.limits import Limits
from toolscout.crawler.listing import Gone, Listing, read_listing
from toolscout.crawler.process import Running, kill_all, naming, start
from toolscout.crawler.recipes import Recipe, made_up, recipe_for
from toolscout.crawler.sandbox import Job, Sandbox
from toolscout.crawler.sources.base import package_id
from toolscout.crawler.traces import given_by, without_traces
from toolscout.records import JsonObject

Published = Callable[[str], Awaitable[str | None]]
"""``await published(version)``: when that version was published (ISO 8601), None if nobody knows."""

_Arguments = tuple[tuple[str, ...], tuple[str, ...]]

_ENTRIES = 3
"""Most commands of a package that are tried."""
_ROUNDS = 8
"""Most starts of one command."""
_RECIPE_ROUNDS = 3
"""Most starts of a recipe: one that has aged leaves time for what is found out without it."""
_SUBCOMMANDS = 2
"""Most subcommands in a row: ``server start``."""
_PIN_DAYS = 3
_LEAST = 2.0
"""A start that would get fewer seconds is not worth it."""
_AGAIN = 0.6
"""Share of the time limit that further starts get."""
_STDIO: tuple[tuple[tuple[str, ...], Mapping[str, str]], ...] = (
    (("--stdio",), {}),
    ((), {"MCP_TRANSPORT": "stdio", "TRANSPORT": "stdio", "MCP_TRANSPORT_TYPE": "stdio", "MCP_MODE": "stdio"}),
    (("--transport", "stdio"), {}),
    (("stdio",), {}),
)
"""How servers that speak HTTP are told to speak stdio."""
_STUB = "/tmp/.toolscout-stub.cjs"
_HTTP_GRACE = 4.0
"""Seconds that a server which says it listens on a port gets to answer on stdio all the same."""
_LOOK_EVERY = 0.5


@dataclass(frozen=True)
class Start:
    """One way to start a command. ``shown`` are its arguments as recorded, with placeholders for dummies."""

    entry: Entry
    args: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Variables whose value is meant as it is (``MCP_TRANSPORT=stdio``)."""
    here: Mapping[str, str] = field(default_factory=dict)
    """Variables that nobody but this crawl needs."""
    copied: tuple[Path, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)
    """Files that it finds, by their paths."""
    guessed: frozenset[str] = frozenset()
    """Variables that its code reads and that it never asked for."""
    switch: tuple[str, ...] = ()
    """Those of its arguments that are ours, to make it speak stdio."""
    stubbed: bool = False
    """Whether something else stands in place of its compiled parts, which its own installation would have made."""
    http: bool = False
    """Whether it is asked over HTTP, through `toolscout.crawler.bridge`."""


@dataclass
class Outcome:
    """What became of a deployment. ``verdict`` is None when tools were listed."""

    verdict: Verdict | None = None
    listing: Listing | None = None
    start: Start | None = None
    endpoint: JsonObject = field(default_factory=dict)
    """Of a server that was asked over HTTP: ``transport`` and ``url``, as they were in its sandbox."""
    installed: Installed | None = None
    needs_key: bool = False
    """Tools came only after dummy values were given: the list may be incomplete."""
    needs_arguments: bool = False
    install_seconds: float = 0.0
    run_seconds: float = 0.0
    starts: int = 0
    started_seconds: float = 0.0
    """What its starts took together, of which there is a limit."""
    peak: int = 0
    """Most private memory of a start, in bytes."""


@dataclass
class _Tried:
    """What has been tried with one command."""

    switches: list[tuple[tuple[str, ...], Mapping[str, str]]] = field(default_factory=lambda: list(_STDIO))
    scanned: bool = False
    subcommands: list[str] = field(default_factory=list)
    positional: bool = False
    runtime: bool = False
    http: Verdict | None = None
    """Its first word of listening on a port."""
    heard: Start | None = None
    """The start at which it said so."""
    read: frozenset[str] | None = None
    """Variables that its own code reads, once looked for."""


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
    package_seconds: float = 90.0
    """Seconds for all starts of one package together: servers that answer nothing would take hours of a crawl."""
    recipes: Callable[[str], Recipe | None] = recipe_for
    """The recipe of a package, by its identity."""
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

    def end_strays(self) -> None:
        """Kill what an earlier run, itself killed, left running. Nothing else may be at work in this folder."""
        kill_all(0, naming(self.work / "installs"))

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
        recipe = self.recipes(package_id(installer.registry, package))
        extra = recipe.extra if recipe else ""
        installed = await self._install(outcome, installer, folder, package, version, None, extra)
        if not installed.entries:
            verdict, reason = by_metadata(installed.metadata, has_entry=False)
            raise DeployError(Failure.NO_ENTRY_POINT, str(verdict), reason)
        if await self._try(outcome, installer, installed, recipe, args, slot):
            return
        found = outcome.verdict
        missing = missing_extra(found.evidence, package) if found and installer.registry == "pypi" and not extra else ""
        if missing:
            extra = missing
            try:
                whole = await self._install(outcome, installer, folder, package, version, None, extra)
            except DeployError:
                return
            if whole.entries and await self._try(outcome, installer, whole, recipe, args, slot):
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
            pinned = await self._install(outcome, installer, folder, package, installed.metadata.version, pin, extra)
        except DeployError:
            return
        if pinned.entries:
            await self._try(outcome, installer, pinned, recipe, args, slot)

    async def _install(
        self,
        outcome: Outcome,
        installer: Installer,
        folder: Path,
        package: str,
        version: str | None,
        pin: str | None,
        extra: str = "",
    ) -> Installed:
        self._discard(folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        own_folder(folder)
        began = time.monotonic()
        try:
            outcome.installed = await installer.install(folder, package, version, pin, extra)
        finally:
            outcome.install_seconds += time.monotonic() - began
        return outcome.installed

    async def _try(
        self,
        outcome: Outcome,
        installer: Installer,
        installed: Installed,
        recipe: Recipe | None,
        args: _Arguments,
        slot: int,
    ) -> bool:
        """Start an installation as its recipe says, then in all other ways; whether it listed tools."""
        if recipe is not None:
            if await self._try_recipe(outcome, installer, installed, recipe, slot):
                return True
            if outcome.verdict is not None and _dependencies_broke(installer, installed, outcome.verdict):
                return False
        return await self._try_entries(outcome, installer, installed, args, slot)

    async def _try_recipe(
        self, outcome: Outcome, installer: Installer, installed: Installed, recipe: Recipe, slot: int
    ) -> bool:
        """Start a package as its recipe says; whether it listed tools."""
        began = time.monotonic()
        entry = next((e for e in installed.entries if e.name == recipe.entry), installed.entries[0])
        http = recipe.http and self._carrier() is not None
        how = Start(
            entry, recipe.args, recipe.shown, recipe.env, recipe.fixed, recipe.here, files=recipe.files, http=http
        )
        try:
            return await self._try_entry(outcome, installer, installed, how, slot, _RECIPE_ROUNDS)
        finally:
            outcome.run_seconds += time.monotonic() - began

    async def _try_entries(
        self, outcome: Outcome, installer: Installer, installed: Installed, args: _Arguments, slot: int
    ) -> bool:
        """Try the commands of an installation, best first; whether one listed tools."""
        began = time.monotonic()
        worst: Verdict | None = None
        try:
            for entry in installed.entries[:_ENTRIES]:
                if await self._try_entry(outcome, installer, installed, Start(entry, *args), slot):
                    return True
                if worst is None or _telling(outcome.verdict) > _telling(worst):
                    worst = outcome.verdict
                if worst is not None and (
                    worst.cause == "http_only" or _dependencies_broke(installer, installed, worst)
                ):
                    break  # the other commands would tell the same, at the same price
        finally:
            outcome.run_seconds += time.monotonic() - began
        outcome.verdict = worst
        return False

    async def _try_entry(
        self,
        outcome: Outcome,
        installer: Installer,
        installed: Installed,
        first: Start,
        slot: int,
        rounds: int = _ROUNDS,
    ) -> bool:
        """Start one command again and again, each time with what the last failure asked for."""
        current = first
        tried = _Tried()
        best: Verdict | None = None
        for _ in range(rounds):
            if outcome.starts and self.package_seconds - outcome.started_seconds < _LEAST:
                break
            verdict, text = await self._once(outcome, installed, current, slot)
            if verdict is None:
                return True
            if tried.http is not None and dummies.refuses(text, current.switch):
                verdict = tried.http  # what it says of our switch says nothing of the server
            if best is None or _telling(verdict) >= _telling(best):
                best = verdict
            following = await self._next(installer, installed, first, current, verdict, text, tried)
            if following is None:
                break
            current = following
        # Last: over pipes it would be started by whoever uses it, over HTTP that is somebody's own business.
        left = self.package_seconds - outcome.started_seconds
        if tried.heard is not None and self._carrier() is not None and left >= _LEAST:
            verdict, _ = await self._once(outcome, installed, replace(tried.heard, http=True), slot)
            if verdict is None:
                return True
            if _telling(verdict) > _telling(best):
                best = verdict
        outcome.verdict = best
        return False

    def _carrier(self) -> Entry | None:
        """The interpreter that runs `toolscout.crawler.bridge`; none where that could reach somebody else's ports."""
        if not self.sandbox.confined:
            return None
        return next((found for i in self.installers.values() if (found := i.interpreter())), None)

    async def _next(
        self,
        installer: Installer,
        installed: Installed,
        first: Start,
        current: Start,
        verdict: Verdict,
        text: str,
        tried: _Tried,
    ) -> Start | None:
        """What a failure asks for, as the next start; None when it asks for nothing that can be given."""
        if verdict.cause == "writes_beside_itself":
            return replace(current, copied=_outermost(installed.own)) if not current.copied and installed.own else None
        if verdict.cause == "native_module":
            fits = installer.registry == "npm" and self.sandbox.confined and not current.stubbed
            return replace(current, stubbed=True) if fits else None
        if verdict.cause == "http_only":
            if current.http:
                return None
            tried.http, tried.heard = tried.http or verdict, tried.heard or current
            if not tried.switches:
                return None
            args, env = tried.switches.pop(0)
            return replace(current, args=(*first.args, *args), shown=(*first.shown, *args), fixed=env, switch=args)
        if verdict.cause == "other_runtime":
            other = None if tried.runtime else installer.other_runtime(current.entry, text)
            tried.runtime = True
            return replace(current, entry=other) if other else None
        if verdict.failure is Failure.NEEDS_ARGUMENTS or verdict.cause == "prints_and_exits":
            word = dummies.subcommand(text)
            if word and word not in tried.subcommands and len(tried.subcommands) < _SUBCOMMANDS:
                tried.subcommands.append(word)
                words = tried.subcommands
                return replace(current, args=(*first.args, *words), shown=(*first.shown, *words))
            return _with_arguments(current, text, tried) if verdict.failure is Failure.NEEDS_ARGUMENTS else None
        if _dependencies_broke(installer, installed, verdict):
            return None
        # An end without a word is a missing variable as often as not.
        unexplained = verdict.cause.startswith("status_") or verdict.cause == "exits"
        if verdict.failure is Failure.NEEDS_KEY or unexplained:
            return await self._with_variables(installed, current, text, tried)
        if verdict.failure is Failure.EMPTY and not tried.scanned:
            return await self._with_variables(installed, current, "", tried)
        return None

    async def _with_variables(self, installed: Installed, current: Start, text: str, tried: _Tried) -> Start | None:
        wanted = dummies.reformed(text, current.env)
        names = dummies.asked_for(text, current.env)
        if len(dummies.asked_for(text)) > 1:
            # A text in capitals holds more than variables: of its words those count that its code reads as such.
            if tried.read is None:
                tried.read = frozenset(await asyncio.to_thread(dummies.in_source, installed.own, (), 1000))
            if tried.read.intersection(dummies.asked_for(text)):
                names = [n for n in names if n in tried.read]
        if "Field required" in text:
            names += await asyncio.to_thread(dummies.in_settings, text, installed.own, current.env)
        guessed: list[str] = []
        if not wanted and not names and not tried.scanned:
            tried.scanned = True
            guessed = await asyncio.to_thread(dummies.in_source, installed.own, current.env)
        fewer = dummies.exclusive(text, current.env)
        if fewer is not None:
            return replace(current, env=fewer)
        wanted |= {name: dummies.value_for(name) for name in (*names, *guessed)}
        if not wanted:
            return None
        return replace(current, env={**current.env, **wanted}, guessed=current.guessed.union(guessed).difference(names))

    async def _once(self, outcome: Outcome, installed: Installed, how: Start, slot: int) -> tuple[Verdict | None, str]:
        """One start; None and the outcome filled when tools were listed, else why not and all that was said."""
        argv, readable = (*how.entry.argv, *how.args), (installed.folder, *how.entry.readable)
        carrier = self._carrier() if how.http else None
        if carrier is not None:
            argv, readable = (*carrier.argv, "-c", _text_of("bridge.py"), *argv), (*readable, *carrier.readable)
        env, files = {**how.env, **how.fixed, **how.here}, dict(how.files)
        if how.stubbed:
            env["NODE_OPTIONS"], files[_STUB] = f"--require={_STUB}", _text_of("stub.cjs")
        job = Job(
            argv,
            env,
            tuple(dict.fromkeys(readable)),
            how.copied,
            files,
            self.limits,
            slot,
        )
        outcome.starts += 1
        began = time.monotonic()
        # What has been started before is in the file cache, and a server that waits for a key check waits for long.
        seconds = self.limits.seconds * (1.0 if outcome.starts == 1 else _AGAIN)
        seconds = min(seconds, max(self.package_seconds - outcome.started_seconds, _LEAST))
        running = await start(self.sandbox, job)
        listing: Listing | None = None
        verdict: Verdict | None = None
        answer = ""
        try:
            async with asyncio.timeout(seconds):
                talk = read_listing(running)
                listing = await (talk if how.http else _unless_http(talk, running))
        except TimeoutError:
            verdict = classify(running.stderr.text, _text(running.noise), None, running.broken)
            if not running.broken and not running.answered and running.listens():
                verdict = replace(verdict, failure=Failure.NEEDS_ARGUMENTS, cause="http_only")
        except Gone:
            await running.exited(1.0)
            await asyncio.sleep(0.05)  # what it said last may still be in the pipe
            verdict = classify(running.stderr.text, _text(running.noise), running.returncode, running.broken)
        except DeployError as error:
            verdict = refused(error.verdict)
            answer = f"\n{error.verdict.evidence}"
        finally:
            await running.stop()
            outcome.peak = max(outcome.peak, running.peak)
            outcome.started_seconds += time.monotonic() - began
        said = f"{running.stderr.text}\n{_text(running.noise)}{answer}"
        if listing is not None and not listing.tools:
            verdict = Verdict(Failure.EMPTY, _why_empty(listing), said[-500:].strip())
            outcome.listing = outcome.listing or listing
        elif listing is not None:
            given = given_by(how.env, how.args, how.shown)
            parts = made_up((*how.env.values(), *how.args, *how.files.values()))
            given |= {f"key {n}": value for n, value in enumerate(parts, 1)}
            outcome.listing = without_traces(listing, given, installed.folder)
            outcome.start, outcome.verdict, outcome.endpoint = how, None, running.endpoint if how.http else {}
            # Variables that it was given unasked, and that hold no secret, it may well do without.
            outcome.needs_key = any(n not in how.guessed or dummies.is_secret(n) for n in how.env)
            outcome.needs_key |= any("<key>" in word for word in how.shown) or any(made_up(how.files.values()))
            outcome.needs_key |= outcome.endpoint.get("authorized") is True
            outcome.needs_arguments = how.args != how.shown
        return verdict, said


@cache
def _text_of(name: str) -> str:
    """The text of a program of ours that runs inside: a server's user need not be able to read its file."""
    return Path(__file__).with_name(name).read_text("utf-8")


def _dependencies_broke(installer: Installer, installed: Installed, verdict: Verdict) -> bool:
    """Whether a package likely fails for what its dependencies have become, and there is a clock to set back."""
    if installer.registry != "pypi" or installed.pinned or verdict.failure is not Failure.CRASHED:
        return False
    return verdict.cause == "import_error" or re.search(r'^\s+File "', verdict.evidence, re.M) is not None


async def _unless_http(talk: Coroutine[Any, Any, Listing], running: Running) -> Listing:
    """The talk's result. TimeoutError some seconds after the server said that it listens on a port, where the talk is
    not over by then: waiting for the whole time limit would cost most of what such servers take."""
    talking = asyncio.ensure_future(talk)
    left = _HTTP_GRACE
    try:
        while not talking.done():
            await asyncio.wait([talking], timeout=_LOOK_EVERY)
            if not running.answered and speaks_http(f"{running.stderr.text}\n{_text(running.noise)}"):
                left -= _LOOK_EVERY
                if left <= 0 and not talking.done():
                    raise TimeoutError
        return talking.result()
    finally:
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)


def _with_arguments(current: Start, text: str, tried: _Tried) -> Start | None:
    """The arguments that a usage text asks for and that were not given yet; None if there is none.

    What is shown already as required, by whoever listed it, is not shown twice.
    """
    given, shown = dummies.arguments_for(text, current.args)
    if not given:
        return None
    if not given[0].startswith("-"):
        if tried.positional:
            return None
        tried.positional = True
        known = len(current.shown) > len(current.args)
        return replace(
            current, args=(*current.args, *given), shown=current.shown if known else (*current.shown, *shown)
        )
    more = [w for pair in zip(shown[::2], shown[1::2], strict=True) if pair[0] not in current.shown for w in pair]
    return replace(current, args=(*current.args, *given), shown=(*current.shown, *more))


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
