"""What is told of a running Toolscout: counts, spans and log lines, each only where it is switched on.

One `Call` stands for one request to a tool of Toolscout's. Whoever knows something of it (which upstream it was for,
what kind of error ended it) says so on `current_call`; what is switched on reads it at the end. Never an argument's
value, a request's words, or the text of an error: upstreams put values into theirs.

Light on purpose: nothing of the libraries behind it is imported here.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolscout.server.telling.tracecontext import Carrier, carrier_of

if TYPE_CHECKING:
    from toolscout.server.telling.metrics import Metrics
    from toolscout.server.telling.tracing import Tracing

calls_logger = logging.getLogger("toolscout.calls")
upstreams_logger = logging.getLogger("toolscout.upstreams")

_REFUSALS = {
    **dict.fromkeys(("blocked", "quarantined"), "guard"),
    "rate_limited": "rate",
    **dict.fromkeys(("policy_denied", "policy_broken", "question_too_large"), "policy"),
    **dict.fromkeys(("approval_unavailable", "approval_unanswered"), "policy"),
    **dict.fromkeys(("approval_declined", "approval_outdated"), "policy"),
}
"""Who refuses a call, by the kind of the error."""

Span = contextlib.AbstractContextManager[Any]


@dataclass(slots=True)
class Call:
    """One request to one of the three tools, or to ``unknown``, which is any other.

    ``error`` is the kind that ended it, empty where nothing did."""

    tool: str
    telemetry: Telemetry
    carrier: Carrier = field(default_factory=dict)
    """The client's W3C trace context, as it came: passed on where no span of ours stands between."""
    server: str = ""
    target: str = ""
    """The upstream's tool; only of one that the catalogue knows, so that clients cannot invent labels."""
    error: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    """Numbers and flags for span and log, by the names of span attributes."""

    def span(self, name: str, *, client: bool = False, attributes: Mapping[str, Any] | None = None) -> Span:
        """A span within this call; nothing where traces are off."""
        tracing = self.telemetry.tracing
        return _NOTHING if tracing is None else tracing.span(name, client=client, attributes=attributes)

    def outgoing(self) -> Carrier:
        """The trace context for an upstream: of the span that is open, else the client's own."""
        tracing = self.telemetry.tracing
        return self.carrier if tracing is None else tracing.outgoing() or self.carrier


_NOTHING: Span = contextlib.nullcontext()
_current: ContextVar[Call | None] = ContextVar("toolscout_call", default=None)


def current_call() -> Call | None:
    """The call that this task works for; None outside of one, and in what is shared between calls."""
    return _current.get()


def span(name: str, *, client: bool = False, attributes: Mapping[str, Any] | None = None) -> Span:
    """A span within the current call; nothing where there is none, or traces are off."""
    call = _current.get()
    return _NOTHING if call is None else call.span(name, client=client, attributes=attributes)


@contextlib.contextmanager
def model_call(name: str) -> Iterator[None]:
    """One question to the call generator: its span and its seconds."""
    call = _current.get()
    if call is None:
        yield
        return
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": name}
    started, error = time.perf_counter(), ""
    try:
        with call.span(f"chat {name}", client=True, attributes=attributes):
            yield
    except BaseException as raised:
        error = _kind_of(raised)
        raise
    finally:
        call.telemetry.model(error, time.perf_counter() - started)


class Telemetry:
    """Where an engine tells what happens. Everything is off until it is put in."""

    def __init__(self) -> None:
        self.metrics: Metrics | None = None
        self.tracing: Tracing | None = None

    @contextlib.contextmanager
    def tool_call(self, tool: str, ctx: Any) -> Iterator[Call]:
        """One request to one of the three tools, from its handler. ``ctx`` is the SDK's request context."""
        call = Call(tool, self, carrier_of(ctx))
        token = _current.set(call)
        started = time.perf_counter()
        server_span = _NOTHING if self.tracing is None else self.tracing.server_span(call, ctx)
        try:
            with server_span:
                try:
                    yield call
                except BaseException as error:
                    call.error = call.error or _kind_of(error)
                    raise
                finally:
                    self._finished(call, time.perf_counter() - started)
        finally:
            _current.reset(token)

    def _finished(self, call: Call, seconds: float) -> None:
        outcome = "ok" if not call.error else "cancelled" if call.error == "cancelled" else "error"
        refused = _REFUSALS.get(call.error, "")
        if self.metrics is not None:
            self.metrics.call(call.tool, outcome, call.error, seconds)
            if refused:
                self.metrics.refusal(refused, call.error)
        if self.tracing is not None:
            self.tracing.describe(call)
        if calls_logger.isEnabledFor(logging.INFO):
            about = f" {call.server}/{call.target}" if call.target else ""
            event = {"event": "call", "tool": call.tool, "outcome": outcome, "duration_ms": round(seconds * 1000, 2)}
            event |= {"server": call.server, "target": call.target, "error": call.error, "refused_by": refused}
            event |= {name.removeprefix("toolscout."): value for name, value in call.facts.items()}
            calls_logger.info(
                "%s%s: %s in %.1f ms", call.tool, about, call.error or "ok", seconds * 1000, extra={"event": event}
            )

    def upstream_call(self, server: str, error: str, seconds: float) -> None:
        """One call of an upstream's tool has ended. ``error`` is the kind, empty where it answered."""
        if self.metrics is not None:
            self.metrics.upstream_call(server, error, seconds)

    def upstream_started(self, server: str, error: str, seconds: float) -> None:
        """An upstream was started (or connected), or could not be."""
        if self.metrics is not None:
            self.metrics.upstream_start(server, error, seconds)
        said = f"{server} did not start: {error}" if error else f"{server} started in {seconds * 1000:.0f} ms"
        self._upstream_event("upstream_start", server, error, said, seconds)

    def upstream_crashed(self, server: str) -> None:
        """A live upstream has ended, or its connection broke, without being told to."""
        if self.metrics is not None:
            self.metrics.upstream_crash(server)
        self._upstream_event("upstream_end", server, "upstream_crashed", f"{server} has ended by itself", None)

    def _upstream_event(self, what: str, server: str, error: str, said: str, seconds: float | None) -> None:
        if not upstreams_logger.isEnabledFor(logging.INFO):
            return
        event: dict[str, Any] = {"event": what, "server": server, "outcome": "error" if error else "ok"}
        event["error"] = error
        if seconds is not None:
            event["duration_ms"] = round(seconds * 1000, 2)
        upstreams_logger.info("%s", said, extra={"event": event})

    def model(self, error: str, seconds: float) -> None:
        """The call generator has answered once, or failed."""
        if self.metrics is not None:
            self.metrics.model_answer(error, seconds)

    def close(self) -> None:
        """Send what is left. Takes a few seconds where the collector does not answer; never longer."""
        if self.tracing is not None:
            self.tracing.close()


def _kind_of(error: BaseException) -> str:
    import asyncio

    if isinstance(error, asyncio.CancelledError):
        return "cancelled"
    kind = getattr(error, "kind", "")
    return kind if isinstance(kind, str) and kind else "refused" if hasattr(error, "error") else "internal"
