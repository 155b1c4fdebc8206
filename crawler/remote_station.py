"""A station on a machine of a cluster. Runs there, as an actor of `toolscout.crawler.cluster`; knows nothing of Ray."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import zlib
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

import toolscout
from toolscout.crawler.deploy import Outcome
from toolscout.crawler.fetch import Fetcher
from toolscout.crawler.limits import Limits
from toolscout.crawler.sandbox import choose
from toolscout.crawler.station import Order, Station, keep_starting, open_installers
from toolscout.errors import NotAllowed, StorageError, ToolscoutError

MOST_SLOTS = 64
"""Most deployments at once on one machine."""
_MOST_STATIONS = 4
"""Most stations on one machine. Each has its own users: 256 from 60901 stay below those that systemd gives out."""


@dataclass(frozen=True)
class Setup:
    """How every station of a cluster works.

    Args:
        work: the folder on each machine in which stations have theirs.
    """

    work: Path
    sandbox: str = "auto"
    limits: Limits = field(default_factory=Limits)
    keep_free: float = 5.0
    npm_client: str = "auto"
    pythons: Sequence[Path] = ()
    contact: str = ""
    version: str = toolscout.__version__


@dataclass(frozen=True)
class Opened:
    """What an open station can do."""

    name: str
    sandbox: str
    confined: bool
    registries: frozenset[str]


@dataclass(frozen=True)
class Parcel:
    """An outcome on its way. What a foreign server said travels as JSON text: pickle bears less nesting than JSON."""

    outcome: Outcome
    said: bytes = b""

    @classmethod
    def pack(cls, outcome: Outcome) -> Parcel:
        """Tools that no JSON writer bears are left out: no record can be made of them anyway."""
        listing = outcome.listing
        if listing is None:
            return cls(outcome)
        tools = [text for text in map(_written, listing.tools) if text]
        parts = [_written(listing.server_info) or "{}", _written(listing.capabilities) or "{}", f"[{','.join(tools)}]"]
        bare = replace(listing, server_info={}, capabilities={}, tools=[])
        return cls(replace(outcome, listing=bare), zlib.compress(f"[{','.join(parts)}]".encode(), 1))

    def unpack(self) -> Outcome:
        """The outcome as it was."""
        if self.outcome.listing is None:
            return self.outcome
        info, capabilities, tools = json.loads(zlib.decompress(self.said))
        listing = replace(self.outcome.listing, server_info=info, capabilities=capabilities, tools=tools)
        return replace(self.outcome, listing=listing)


class RemoteStation:
    """Opens a station in a folder of its own and deploys there. Expected errors are returned, not raised: they have
    to arrive as they are."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._resources = AsyncExitStack()
        self._station: Station | None = None
        self._first_slot = 0
        self._running: set[asyncio.Task[Outcome]] = set()

    async def open(self) -> Opened | ToolscoutError:
        """Probe the sandbox, find what installs, remove what an earlier run left."""
        setup = self._setup
        try:
            if setup.version != toolscout.__version__:
                raise NotAllowed(
                    f"Toolscout {toolscout.__version__} is installed there, {setup.version} here.",
                    "Install the same version on all machines.",
                )
            sandbox = choose(setup.sandbox)
            work = self._take_folder()
            installers = open_installers(work, setup.limits, setup.npm_client, setup.pythons)
            installers = keep_starting(sandbox, installers, setup.limits)
            fetcher = await self._resources.enter_async_context(Fetcher(contact=setup.contact))
            self._station = Station(sandbox, work, installers, fetcher, setup.limits, setup.keep_free)
            await self._station.begin()
        except ToolscoutError as error:
            await self._resources.aclose()
            return error
        return Opened(work.name, sandbox.name, sandbox.confined, self._station.registries)

    async def deploy(self, order: Order, slot: int) -> Parcel | ToolscoutError:
        """Deploy one package in one of this station's slots."""
        assert self._station is not None
        task = asyncio.create_task(self._station.deploy(order, self._first_slot + slot))
        self._running.add(task)
        try:
            return Parcel.pack(await task)
        except ToolscoutError as error:
            return error
        finally:
            self._running.discard(task)

    async def close(self) -> None:
        """End whatever runs, and leave nothing but the caches."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._station is not None:
            await self._station.tidy()
        await self._resources.aclose()

    def _take_folder(self) -> Path:
        """The first free folder of this machine's; it is this process's alone until the process ends."""
        host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()) or "machine"
        for number in range(_MOST_STATIONS):
            folder = self._setup.work / (f"{host}-{number + 1}" if number else host)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                lock = FileLock(folder / "station.lock", thread_local=False)
                lock.acquire(timeout=0)
            except Timeout:
                continue
            except OSError as error:
                raise StorageError(
                    f"The folder {folder} cannot be made: {error.strerror}.", "Name another one with --ray-work."
                ) from None
            self._resources.callback(lock.release)
            self._first_slot = number * MOST_SLOTS
            return folder
        raise NotAllowed(f"{_MOST_STATIONS} stations are at work in {self._setup.work} already.")


def _written(value: Any) -> str:
    """A value as JSON; empty for what JSON writers do not bear."""
    try:
        return json.dumps(value)
    except (RecursionError, ValueError):
        return ""
