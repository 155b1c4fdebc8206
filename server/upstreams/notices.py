"""An upstream's notices that its tools have changed: which are news, and which the echo of our own listing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from toolscout.records import JsonObject

_ECHO_SECONDS = 5.0
"""A notice so soon after a listing is an echo, with a server whose listings have echoed before."""
_ECHOES = 2
_LATE_SECONDS = 10.0
_SETTLE_SECONDS = 1.0


class Notices:
    """What one connection has told. ``told`` counts the news: a listing that began before the last of them is old."""

    def __init__(self) -> None:
        self.told = 0
        self._heard = asyncio.Event()
        self._last: tuple[list[JsonObject], int] | None = None
        self._in_progress = 0
        self._listed_at = float("-inf")
        self._repeated = 0
        self._waited = False

    @property
    def echoes(self) -> bool:
        """Whether it says after each listing that its tools have changed, though they have not."""
        return self._repeated >= _ECHOES

    def begin(self) -> None:
        """Forget what an earlier connection has told; what was listed over it is old."""
        self.told += 1
        self._heard.clear()
        self._last, self._repeated, self._waited = None, 0, False

    def hear(self) -> bool:
        """Take in a notice; whether it is news."""
        if self.echoes and (self._in_progress or time.monotonic() - self._listed_at < _ECHO_SECONDS):
            return False
        self.told += 1
        self._heard.set()
        return True

    async def listed(self, ask: Callable[[], Awaitable[list[JsonObject]]]) -> list[JsonObject]:
        """A listing, with its echoes told apart from news."""
        told = self.told
        self._in_progress += 1
        try:
            tools = await ask()
        finally:
            self._in_progress -= 1
            self._listed_at = time.monotonic()
        if self._last is not None and told > self._last[1]:
            self._repeated = self._repeated + 1 if tools == self._last[0] else 0
            if self.echoes:
                self.told = told  # what came during this listing was one, too
        self._last = tools, told
        return tools

    async def late(self, seconds: float, closed: asyncio.Event) -> bool:
        """Wait, once, for the first tools of a server that has none yet and says when it does; whether it said so."""
        if self._waited:
            return False
        self._waited = True
        ending = asyncio.create_task(closed.wait())
        hearing = asyncio.create_task(self._heard.wait())
        try:
            wait = min(seconds / 2, _LATE_SECONDS)
            await asyncio.wait({ending, hearing}, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ending.cancel()
            hearing.cancel()
        if not self._heard.is_set():
            return False
        with suppress(TimeoutError):
            async with asyncio.timeout(min(seconds / 4, _LATE_SECONDS)):
                told = -1
                while told != self.told:  # some register them one by one
                    told = self.told
                    await asyncio.sleep(_SETTLE_SECONDS)
        return True
