"""Nothing is called at an upstream before what it lists was held against what was approved."""

from __future__ import annotations

import asyncio
import contextvars
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolscout.errors import UpstreamError
from toolscout.records import JsonObject
from toolscout.server.upstreams.errors import seen

if TYPE_CHECKING:
    from toolscout.server.upstreams.link import Link
    from toolscout.server.upstreams.notices import Notices

REMOTE_SECONDS = 60.0
"""A remote server is listed and compared again when the last time was longer ago and one of its tools is called."""
_ATTEMPTS = 3  # with a server that says at each listing that its tools have changed

Compare = Callable[[str, list[JsonObject]], Awaitable[None]]
"""Holds a server's tools in wire form against what was approved."""


@dataclass(frozen=True)
class Listing:
    """What an upstream listed: its tools in wire form, over which connection, and after how many changes it told of.

    ``current``: neither was it connected anew since nor did it say anything of changes.
    """

    tools: list[JsonObject]
    link: Link | None
    told: int
    current: Callable[[], bool]


class Comparison:
    """For which connection, and up to which told change, an upstream's tools have been compared.

    ``list_tools(fresh)`` lists them, of the connection that lives when it is done; ``compare`` None: nothing is.
    """

    def __init__(
        self, server_id: str, list_tools: Callable[[bool], Awaitable[Listing]], compare: Compare | None
    ) -> None:
        self._server_id = server_id
        self._list_tools = list_tools
        self._compare = compare
        self._done: tuple[Link, int] | None = None
        self._done_at = 0.0
        self._running: asyncio.Task[None] | None = None

    async def enter(
        self,
        enter: Callable[[], Awaitable[Link]],
        notices: Notices,
        timeout: float | None,  # noqa: ASYNC109
    ) -> Link:
        """The live connection, what it lists compared since it was made, or last told of changes.

        Raises UpstreamError where that cannot be had: nothing is called that nobody could compare. Its kind is
        ``upstream_unsettled`` where the server ends or changes its tools each time that it has listed them.
        """
        link = await enter()
        for _ in range(_ATTEMPTS):
            if self._holds(link, notices):
                return link
            await self._once(link.process is None or notices.echoes, timeout)
            link = await enter()
        if self._holds(link, notices):
            return link
        raise UpstreamError(
            f"'{self._server_id}' ended or changed its tools each time it had listed them, so they could not be "
            "compared with what was approved, and nothing is called.",
            hint="Try again later.",
            kind="upstream_unsettled",
        )

    def _holds(self, link: Link, notices: Notices) -> bool:
        if self._compare is None:
            return True
        # A program behind an address may be replaced without the connection to it noticing; and where listings echo, a
        # notice among the echoes is not heard.
        ages = link.process is None or notices.echoes
        old = ages and time.monotonic() - self._done_at > REMOTE_SECONDS
        return not old and self._done == (link, notices.told)

    async def _once(self, fresh: bool, timeout: float | None) -> None:  # noqa: ASYNC109
        """List and compare; all callers share it."""
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._hold_against(fresh), context=contextvars.Context())
            self._running.add_done_callback(seen)
        said = f"The tools of '{self._server_id}' could not be compared with what was approved, so nothing is called"
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._running)
        except TimeoutError:
            raise UpstreamError(
                f"{said}: it did not list them within {timeout:g} s.", hint="Allow more time.", kind="upstream_timeout"
            ) from None
        except UpstreamError as error:
            raise UpstreamError(f"{said}: {error}", hint=error.hint, kind=error.kind) from None

    async def _hold_against(self, fresh: bool) -> None:
        assert self._compare is not None
        listing = await self._list_tools(fresh)
        await self._compare(self._server_id, listing.tools)
        if listing.link is not None and listing.current():
            self._done, self._done_at = (listing.link, listing.told), time.monotonic()
