"""Traces by OpenTelemetry (extra ``otel``): spans of Toolscout's own, exported over OTLP/HTTP.

The provider is ours alone, not the process's global one: FastMCP and the MCP SDK would add spans with the texts of
errors, and those hold what upstreams put into them. Imported only where traces are on.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Link, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from toolscout import __version__
from toolscout.server.telling.tracecontext import Carrier, header_carrier, meta_carrier

if TYPE_CHECKING:
    from opentelemetry.context import Context

    from toolscout.server.telling.telemetry import Call

logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 3.0
_W3C = TraceContextTextMapPropagator()


class Tracing:
    """Makes spans and sends them. ``exporter`` is for a place of one's own; by default what ``OTEL_*`` say."""

    def __init__(self, exporter: SpanExporter | None = None) -> None:
        resource = Resource.create({"service.version": __version__})
        if not os.environ.get("OTEL_SERVICE_NAME") and "service.name=" not in os.environ.get(
            "OTEL_RESOURCE_ATTRIBUTES", ""
        ):
            resource = resource.merge(Resource({"service.name": "toolscout"}))
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter or _exporter()))
        self._tracer = self._provider.get_tracer("toolscout", __version__)

    @contextmanager
    def server_span(self, call: Call, ctx: Any) -> Iterator[None]:
        """The span of one ``tools/call``, by OpenTelemetry's conventions for MCP; `describe` completes it."""
        meta, header = meta_carrier(ctx), header_carrier(ctx)
        attributes: dict[str, Any] = {
            "mcp.method.name": "tools/call",
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.tool,
            "mcp.protocol.version": str(ctx.protocol_version),
        }
        if ctx.request_id is not None:
            attributes["jsonrpc.request.id"] = str(ctx.request_id)[:100]
        over_http = ctx.request is not None
        attributes["network.transport"] = "tcp" if over_http else "pipe"
        if over_http:
            attributes["network.protocol.name"] = "http"
        links = []
        if meta and header and meta != header:  # the message's own is the parent; the HTTP request's is told
            links.append(Link(trace.get_current_span(_W3C.extract(header)).get_span_context()))
        parent = _W3C.extract(meta or header, context=otel_context.Context())
        with self._open(f"tools/call {call.tool}", SpanKind.SERVER, attributes, parent, links):
            yield

    @contextmanager
    def span(self, name: str, *, client: bool, attributes: Mapping[str, Any] | None) -> Iterator[Any]:
        """A span under the one that is open."""
        with self._open(name, SpanKind.CLIENT if client else SpanKind.INTERNAL, dict(attributes or {})) as opened:
            yield opened

    @contextmanager
    def _open(
        self,
        name: str,
        kind: SpanKind,
        attributes: dict[str, Any],
        parent: Context | None = None,
        links: list[Link] | None = None,
    ) -> Iterator[trace.Span]:
        opened = self._tracer.start_span(name, parent, kind, attributes, links)
        token = otel_context.attach(trace.set_span_in_context(opened, parent))
        try:
            yield opened
        except BaseException as error:
            _raised(opened, error)
            raise
        finally:
            otel_context.detach(token)
            opened.end()

    def describe(self, call: Call) -> None:
        """Complete the span of a call that has ended."""
        opened = trace.get_current_span()
        if call.server:
            opened.set_attributes({"toolscout.upstream": call.server, "toolscout.upstream.tool": call.target})
        opened.set_attributes(call.facts)
        if call.error:
            opened.set_attribute("toolscout.error", call.error)
            fail(opened, "tool_error" if call.error != "cancelled" else call.error)

    def outgoing(self) -> Carrier:
        """The trace context of the span that is open."""
        carrier: Carrier = {}
        _W3C.inject(carrier)
        return carrier

    def ids(self) -> tuple[str, str]:
        """Trace id and span id of the span that is open, as hex digits; empty where there is none."""
        found = trace.get_current_span().get_span_context()
        return (f"{found.trace_id:032x}", f"{found.span_id:016x}") if found.is_valid else ("", "")

    def close(self) -> None:
        """Send what waits, for a few seconds at most."""
        # A thread: a collector that does not answer must not keep a client's exit waiting.
        thread = threading.Thread(target=self._provider.shutdown, name="traces", daemon=True)
        thread.start()
        thread.join(_CLOSE_SECONDS)


def fail(opened: trace.Span, kind: str) -> None:
    """Mark a span as failed. No description and no exception event: their texts may hold values."""
    opened.set_attribute("error.type", kind)
    opened.set_status(StatusCode.ERROR)


def _raised(opened: trace.Span, error: BaseException) -> None:
    if isinstance(error, asyncio.CancelledError):
        fail(opened, "cancelled")
        return
    answer = getattr(error, "error", None)  # an MCPError: the protocol's own error goes to the client
    if (code := getattr(error, "code", getattr(answer, "code", None))) is not None:
        opened.set_attribute("rpc.response.status_code", str(code))
        fail(opened, str(code))
        return
    fail(opened, str(getattr(error, "kind", "") or type(error).__qualname__))


def _exporter() -> SpanExporter:
    if os.environ.get("OTEL_TRACES_EXPORTER", "").strip() == "console":
        return ConsoleSpanExporter(out=sys.stderr)  # never stdout: that is the protocol's
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()
