"""A small OTLP collector: an HTTP server on loopback that takes spans as protobuf, as a real one does."""

from __future__ import annotations

import contextlib
import gzip
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """What has come. Spans are dicts: name, kind, trace, id, parent, status, attributes, links, events, service."""

    def __init__(self) -> None:
        self.spans: list[dict[str, Any]] = []
        self.raw = b""
        self.paths: set[str] = set()
        self.url = ""

    def take(self, path: str, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        self.paths.add(path)
        self.raw += body
        for resource in request.resource_spans:
            service = {a.key: a.value.string_value for a in resource.resource.attributes}.get("service.name", "")
            for span in (span for scope in resource.scope_spans for span in scope.spans):
                self.spans.append(
                    {
                        "name": span.name,
                        "kind": span.kind,
                        "trace": span.trace_id.hex(),
                        "id": span.span_id.hex(),
                        "parent": span.parent_span_id.hex(),
                        "status": span.status.code,
                        "said": span.status.message,
                        "attributes": {a.key: _value(a.value) for a in span.attributes},
                        "links": [link.span_id.hex() for link in span.links],
                        "events": len(span.events),
                        "service": service,
                    }
                )

    def wait(self, enough: Callable[[list[dict[str, Any]]], bool], seconds: float = 60) -> list[dict[str, Any]]:
        """The spans, once ``enough`` of them have come."""
        deadline = time.monotonic() + seconds
        while not enough(self.spans):
            assert time.monotonic() < deadline, [span["name"] for span in self.spans]
            time.sleep(0.05)
        return list(self.spans)

    def named(self, name: str) -> dict[str, Any]:
        """The one span of that name."""
        (found,) = [span for span in self.spans if span["name"] == name]
        return found


def _value(value: Any) -> Any:
    return getattr(value, value.WhichOneof("value"))


@contextlib.contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that listens until the block ends."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.take(self.path, body)
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
