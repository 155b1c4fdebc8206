"""Prometheus metrics of one engine, on a registry of its own. docs/OBSERVABILITY.md lists them."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from starlette.responses import Response

from toolscout.server.telling.metrics_shared import SHARED_FOLDER

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from toolscout.server.engine import Engine

OTHERS = "other"
"""The label of upstreams beyond the first `MOST_SERVERS`."""
MOST_SERVERS = 200

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_UPSTREAM_BUCKETS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0)  # one set for each server: fewer
_REFRESH_SECONDS = 5.0
_LIVE = {"multiprocess_mode": "livesum"}
_NEWEST = {"multiprocess_mode": "livemax"}


class Metrics:
    """Counts and times what `Telemetry` tells, and shows index and upstream pool. One per process."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.registry = registry = CollectorRegistry()
        self._servers: set[str] = set()
        self._children: dict[tuple[Any, ...], Any] = {}
        self._calls = _counter(registry, "calls", "Calls of Toolscout's own tools.", "tool", "outcome")
        self._errors = _counter(registry, "call_errors", "Failed calls by kind of error.", "tool", "error")
        self._seconds = _histogram(registry, "call_seconds", "Seconds a call took.", _BUCKETS, "tool")
        self._refusals = _counter(registry, "refusals", "Calls refused by guard, policy or rate.", "by", "reason")
        self._upstream_calls = _counter(
            registry, "upstream_calls", "Calls of upstreams' tools; error is empty for an answer.", "server", "error"
        )
        self._upstream_seconds = _histogram(
            registry, "upstream_call_seconds", "Seconds an upstream took, its start included.", _UPSTREAM_BUCKETS,
            "server",
        )  # fmt: skip
        self._starts = _counter(registry, "upstream_starts", "Starts of upstreams.", "server", "outcome")
        self._start_seconds = _histogram(registry, "upstream_start_seconds", "Seconds a start took.", _BUCKETS)
        self._crashes = _counter(registry, "upstream_crashes", "Ends that nobody asked for.", "server")
        self._model = _histogram(registry, "model_seconds", "Seconds an answer of the call generator took.", _BUCKETS)
        self._model_errors = _counter(registry, "model_errors", "Answers that failed.", "error")
        self._bytes = _counter(registry, "http_bytes", "Bytes of requests (in) and answers (out).", "direction")
        self._upstreams = _gauge(registry, "upstreams", "Upstream servers by state.", _LIVE, "state")
        self._up = _gauge(registry, "upstream_up", "Whether an upstream is live, of those used.", _LIVE, "server")
        self._in_flight = _gauge(registry, "upstream_in_flight", "Calls that wait for an upstream.", _LIVE, "server")
        self._tools = _gauge(registry, "catalogue_tools", "Tools that can be found.", _NEWEST)
        self._index_servers = _gauge(registry, "index_servers", "Servers of the tools that can be found.", _NEWEST)
        self._index_age = _gauge(registry, "index_age_seconds", "Seconds since the index was built.", _NEWEST)
        self.shared = SHARED_FOLDER in os.environ
        if not self.shared:
            ProcessCollector(registry=registry)

    def call(self, tool: str, outcome: str, error: str, seconds: float) -> None:
        """One call of ``tool`` has ended; ``error`` is its kind, empty where there was none."""
        self._of(self._calls, tool, outcome).inc()
        self._of(self._seconds, tool).observe(seconds)
        if error:
            self._of(self._errors, tool, error).inc()

    def refusal(self, by: str, reason: str) -> None:
        """A call was refused."""
        self._of(self._refusals, by, reason).inc()

    def upstream_call(self, server: str, error: str, seconds: float) -> None:
        """A call of an upstream's tool has ended."""
        server = self._server(server)
        self._of(self._upstream_calls, server, error).inc()
        self._of(self._upstream_seconds, server).observe(seconds)

    def upstream_start(self, server: str, error: str, seconds: float) -> None:
        """An upstream was started, or could not be."""
        self._of(self._starts, self._server(server), error or "ok").inc()
        self._start_seconds.observe(seconds)

    def upstream_crash(self, server: str) -> None:
        """An upstream has ended by itself."""
        self._of(self._crashes, self._server(server)).inc()

    def model_answer(self, error: str, seconds: float) -> None:
        """The call generator has answered, or failed."""
        self._model.observe(seconds)
        if error:
            self._of(self._model_errors, error).inc()

    def moved(self, direction: str, size: int) -> None:
        """Bytes came ``in`` or went ``out`` over HTTP."""
        self._of(self._bytes, direction).inc(size)

    def refresh(self) -> None:
        """Set what is read and not counted: the index, the upstreams' states."""
        engine = self._engine
        self._tools.set(engine.tool_count)
        self._index_servers.set(engine.index_servers)
        self._index_age.set(max(0.0, time.time() - engine.index_made) if engine.index_made is not None else 0.0)
        states: dict[str, int] = dict.fromkeys(("live", "starting", "backing_off", "stopped"), 0)
        up: dict[str, int] = {}
        in_flight: dict[str, int] = {}
        for status in engine.upstreams():
            name = self._server(status.server_id)
            states[status.state] = states.get(status.state, 0) + 1
            up[name] = up.get(name, 0) + (status.state == "live")
            in_flight[name] = in_flight.get(name, 0) + status.in_flight
        for gauge, values in ((self._upstreams, states), (self._up, up), (self._in_flight, in_flight)):
            if not self.shared:
                gauge.clear()  # upstreams that are gone; among several workers they stay, at what they were last
            for label, value in values.items():
                gauge.labels(label).set(value)

    async def keep_fresh(self) -> None:
        """Refresh again and again: among several workers, the one that is asked shows what all have set."""
        while True:
            self.refresh()
            await asyncio.sleep(_REFRESH_SECONDS)

    async def page(self, request: Request) -> Response:
        """The text page that Prometheus scrapes."""
        self.refresh()
        registry = self.registry
        if self.shared:
            forget_dead_workers(Path(os.environ[SHARED_FOLDER]))
            registry = CollectorRegistry()
            MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    def _of(self, metric: Any, *labels: str) -> Any:
        # `labels` takes a lock and makes a key anew each time; a call tells half a dozen metrics.
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        return child

    def _server(self, name: str) -> str:
        if name in self._servers:
            return name
        if len(self._servers) >= MOST_SERVERS:
            return OTHERS
        self._servers.add(name)
        return name


def forget_dead_workers(folder: Path) -> None:
    """Take the gauges of workers that are gone out of the sum: killed, they could not do it themselves."""
    pids = {path.stem.rpartition("_")[2] for path in folder.glob("gauge_live*.db")}
    for pid in pids:
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            mark_process_dead(int(pid), str(folder))  # type: ignore[no-untyped-call]
        except (ValueError, PermissionError):
            continue  # not a worker's; or it has been given to somebody else: the sum is a little too high


class CountedBytes:
    """ASGI middleware that counts the bytes of bodies."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        metrics = self._metrics

        async def counted_receive() -> Message:
            message = await receive()
            if body := message.get("body"):
                metrics.moved("in", len(body))
            return message

        async def counted_send(message: Message) -> None:
            if body := message.get("body"):
                metrics.moved("out", len(body))
            await send(message)

        await self._app(scope, counted_receive, counted_send)


def _counter(registry: CollectorRegistry, name: str, text: str, *labels: str) -> Counter:
    return Counter(f"toolscout_{name}", text, labels, registry=registry)


def _gauge(registry: CollectorRegistry, name: str, text: str, mode: Any, *labels: str) -> Gauge:
    return Gauge(f"toolscout_{name}", text, labels, registry=registry, **mode)


def _histogram(
    registry: CollectorRegistry, name: str, text: str, buckets: tuple[float, ...], *labels: str
) -> Histogram:
    return Histogram(f"toolscout_{name}", text, labels, buckets=buckets, registry=registry)
