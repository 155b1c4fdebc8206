"""Where a crawl's deployments run: on this machine, or (`toolscout.crawler.cluster`) on many."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Collection

from toolscout.crawler.deploy import Outcome
from toolscout.crawler.station import Order, Station


class Seat(ABC):
    """Room for one deployment. Whoever takes it deploys once; the seat is free again afterwards."""

    @abstractmethod
    async def deploy(self, order: Order) -> Outcome:
        """Deploy; every expected failure of the package is in the outcome.

        Raises:
            ToolscoutError: nothing can be deployed any more (a full disk, no network, no machine left).
        """


class Place(ABC):
    """Seats for deployments. An async context manager: within it the seats are there, after it nothing runs."""

    sandbox: str = ""
    """Name of the sandbox, for the record."""
    registries: Collection[str] = ()
    """What can be installed there."""
    size: int = 0
    """Seats at the beginning."""

    @abstractmethod
    async def seat(self) -> Seat:
        """The next free seat; waits for one. Raises as `Seat.deploy` does."""

    @abstractmethod
    async def __aenter__(self) -> Place: ...

    @abstractmethod
    async def __aexit__(self, *_: object) -> None: ...


class Here(Place):
    """So many workers on this machine."""

    def __init__(self, station: Station, workers: int) -> None:
        self.sandbox = station.sandbox.name
        self.registries = station.registries
        self.size = max(1, workers)
        self._station = station
        self._free: asyncio.Queue[int] = asyncio.Queue()

    async def __aenter__(self) -> Here:
        await self._station.begin()
        for slot in range(self.size):
            self._free.put_nowait(slot)
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await self._station.tidy()

    async def seat(self) -> Seat:
        """See `Place.seat`."""
        return _Slot(self._station, self._free, await self._free.get())


class _Slot(Seat):
    def __init__(self, station: Station, free: asyncio.Queue[int], slot: int) -> None:
        self._station = station
        self._free = free
        self._number = slot

    async def deploy(self, order: Order) -> Outcome:
        try:
            return await self._station.deploy(order, self._number)
        finally:
            self._free.put_nowait(self._number)
