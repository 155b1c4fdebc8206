"""A chat endpoint on this machine, as OpenAI's: it obeys the schema that it is given, or plays dead, dumb or slow."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NONSENSE = ("html", "words", "other_json", "error", "cut")


class ModelEndpoint:
    """``mode``: ``ok``, ``slow`` or one of ``NONSENSE``; `down` and `up` close and open its port."""

    def __init__(self) -> None:
        self.mode = "ok"
        self.asked = 0
        self.port = 0
        self._server: ThreadingHTTPServer | None = None
        self.up()

    @property
    def url(self) -> str:
        """Base URL."""
        return f"http://127.0.0.1:{self.port}/v1"

    def up(self) -> None:
        """Listen, on the same port each time."""
        if self._server is not None:
            return
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send({"data": [{"id": "chaos"}]})

            def do_POST(self) -> None:
                endpoint.asked += 1
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if endpoint.mode == "slow":
                    time.sleep(8)
                if endpoint.mode == "error":
                    self.send({"error": {"message": "out of everything"}}, 500)
                elif endpoint.mode == "html":
                    self.send(b"<html><body>It works!</body></html>")
                elif endpoint.mode == "other_json":
                    self.send({"hello": [1, 2, 3]})
                elif endpoint.mode == "words":
                    self.send(_completion("Banana, and once more banana: {"))
                elif endpoint.mode == "cut":
                    self.send(_completion(_reply(body)), cut=True)
                else:
                    self.send(_completion(_reply(body)))

            def send(self, value: Any, code: int = 200, cut: bool = False) -> None:
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                with contextlib.suppress(ConnectionError):
                    self.send_response(code)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data[: len(data) // 2] if cut else data)

            def log_message(self, *_: Any) -> None:
                pass

        ThreadingHTTPServer.allow_reuse_address = True
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def down(self) -> None:
        """Close the port: connections are refused."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None


def _completion(text: str) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return {"id": "1", "object": "chat.completion", "model": "chaos", "choices": [choice]}


def _reply(body: dict[str, Any]) -> str:
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema")
    return json.dumps(_filled(schema) if schema else {"ok": True})


def _filled(schema: Any) -> Any:
    """Some value that the schema allows."""
    if not isinstance(schema, dict):
        return "x"
    for word in ("anyOf", "oneOf"):
        if schema.get(word):
            return _filled(schema[word][0])
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        return {name: _filled(inner) for name, inner in schema.get("properties", {}).items()}
    return {"array": [], "number": 0.5, "integer": 1, "boolean": True, "null": None}.get(kind, "some text")
