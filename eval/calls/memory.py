"""A model that is asked the same thing once only, so that a comparison of settings costs what differs between them."""

from __future__ import annotations

import time
from typing import Any

from toolscout.server.backends import Backend, Generation, Messages


class Remembering:
    """Wraps a model; what it has answered is kept as long as this object lives.

    Of a model in process a prompt shows the chosen tool alone: among 5, 10 or 100 candidates it is mostly the same.
    :meth:`clock` counts a remembered answer with the seconds that it took when it was made.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._known: dict[str, tuple[Generation, float]] = {}
        self.spared = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    async def generate(self, messages: Messages, **options: Any) -> Generation:
        """See :class:`~toolscout.server.backends.base.Backend`."""
        key = repr((list(messages), sorted(options.items())))
        if key in self._known:
            given, seconds = self._known[key]
            self.spared += seconds
            return given
        start = time.perf_counter()
        given = await self._backend.generate(messages, **options)
        self._known[key] = given, time.perf_counter() - start
        return given

    def clock(self) -> float:
        """Seconds, as if nothing were remembered."""
        return time.perf_counter() + self.spared
