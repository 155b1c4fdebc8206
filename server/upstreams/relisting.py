"""Lists servers that say their tools have changed, and does not give up: an unseen change is an unreviewed one."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

from toolscout.errors import NotAllowed, NotFound, ToolscoutError

logger = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0  # servers announce each of many changes; they are listed once
_LONGEST_WAIT = 60.0
_LOOK_AGAIN_SECONDS = 2.0


class Relisting:
    """One task for each server that has something to list; ``work(name)`` lists it and stores what it found.

    What fails for want of room, of a lock, or of an answer is tried again after 2, 4, ... at most 60 seconds, until it
    goes well; sooner where it speaks again or somebody wants one of its tools. A server that is not configured any
    more, or may not be started (a secret is missing), is let be until it is announced again. Logged are kinds of
    errors: their texts are the servers'.
    """

    def __init__(self, work: Callable[[str], Awaitable[object]]) -> None:
        self._work = work
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._looked: dict[str, float] = {}
        self._wanted: dict[str, asyncio.Event] = {}

    def announce(self, name: str) -> None:
        """The server says that its tools have changed. What has failed before is not waited for any longer."""
        self._again.add(name)
        self._wanted.setdefault(name, asyncio.Event()).set()
        if name not in self._tasks:
            task = self._tasks[name] = asyncio.create_task(self._run(name))
            task.add_done_callback(lambda done: self._ended(name, done))

    def look_again(self, name: str) -> None:
        """A tool of the server is wanted that had changed: it may be as approved by now. At most every two seconds."""
        now = time.monotonic()
        if now - self._looked.get(name, -_LOOK_AGAIN_SECONDS) >= _LOOK_AGAIN_SECONDS:
            self._looked[name] = now
            self.announce(name)

    async def close(self) -> None:
        """Stop at once; returns when nothing runs any more."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(name, None)
        if name in self._again and not task.cancelled():  # announced between the task's last look and now
            self.announce(name)

    async def _wait(self, name: str, seconds: float) -> None:
        """So many seconds; where the server speaks or somebody wants a tool, the shortest wait is enough."""
        await asyncio.sleep(_SETTLE_SECONDS)
        wanted = self._wanted.setdefault(name, asyncio.Event())
        with suppress(TimeoutError):
            await asyncio.wait_for(wanted.wait(), max(0.0, seconds - _SETTLE_SECONDS))
        wanted.clear()

    async def _run(self, name: str) -> None:
        wait = _SETTLE_SECONDS
        while name in self._again:
            await self._wait(name, wait)
            self._again.discard(name)
            try:
                await self._work(name)
                wait = _SETTLE_SECONDS
            except (NotFound, NotAllowed) as error:
                logger.warning("The changed tools of %s could not be listed: %s", name, error.kind)
            except Exception as error:  # whatever it is: what nobody looks at is called unreviewed
                self._again.add(name)
                wait = min(_LONGEST_WAIT, wait * 2)
                kind = error.kind if isinstance(error, ToolscoutError) else type(error).__name__
                logger.warning("The changed tools of %s could not be listed: %s; again in %g s", name, kind, wait)
