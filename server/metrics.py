"""Prometheus metrics of one engine, on a registry of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

    from toolscout.server.engine import Engine

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class Metrics:
    """Counts and times calls of the three tools, and shows the upstream pool."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.registry = CollectorRegistry()
        self._calls = Counter(
            "toolscout_calls", "Calls of Toolscout's own tools.", ["tool", "outcome"], registry=self.registry
        )
        self._seconds = Histogram(
            "toolscout_call_seconds", "Seconds a call took.", ["tool"], buckets=_BUCKETS, registry=self.registry
        )
        self._upstreams = Gauge("toolscout_upstreams", "Upstream servers by state.", ["state"], registry=self.registry)
        self._tools = Gauge("toolscout_catalogue_tools", "Tools that can be found.", registry=self.registry)

    def observe(self, tool: str, outcome: str, seconds: float) -> None:
        """Record one finished call."""
        self._calls.labels(tool, outcome).inc()
        self._seconds.labels(tool).observe(seconds)

    async def page(self, request: Request) -> Response:
        """The text page that Prometheus scrapes."""
        self._tools.set(self._engine.tool_count)
        self._upstreams.clear()
        for state, count in self._engine.upstream_states().items():
            self._upstreams.labels(state).set(count)
        return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_LATEST)
