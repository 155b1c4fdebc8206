"""Rate limits: token buckets in this process, one for each client and one for each upstream."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

from toolscout.server.policy.file import Rate

_MOST_BUCKETS = 10_000
"""Clients may be many; who has not called for longest is forgotten first."""


class Limiter:
    """Token buckets by name: each holds as many tokens as its rate has calls, and fills at the rate's pace."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, wanted: Sequence[tuple[str, Rate]]) -> tuple[str, float] | None:
        """Take one token from each bucket, or from none: then which is empty, and seconds until it has one again."""
        if (empty := self.empty(wanted)) is not None:
            return empty
        now = self._clock()
        for name, rate in wanted:
            self._buckets[name] = (self._level(name, rate, now) - 1, now)
            self._buckets.move_to_end(name)
        while len(self._buckets) > _MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return None

    def empty(self, wanted: Sequence[tuple[str, Rate]]) -> tuple[str, float] | None:
        """What `take` would say, and nothing is taken."""
        now = self._clock()
        levels = [(name, rate, self._level(name, rate, now)) for name, rate in wanted]
        waits = [(name, (1 - level) * rate.seconds / rate.calls) for name, rate, level in levels if level < 1]
        return max(waits, key=lambda found: found[1]) if waits else None

    def _level(self, name: str, rate: Rate, now: float) -> float:
        if (kept := self._buckets.get(name)) is None:
            return float(rate.calls)
        level, at = kept
        return min(float(rate.calls), level + (now - at) * rate.calls / rate.seconds)
