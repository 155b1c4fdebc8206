"""A chat endpoint on this machine, as OpenAI's: its replies are decided by a test, and it keeps what it was asked."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

Body = dict[str, Any]
Reply = tuple[int, Any] | tuple[int, Any, dict[str, str]]
"""Status, body (bytes, else sent as JSON), and headers if any."""


class ChatEndpoint:
    """``reply`` may be replaced while it runs."""

    def __init__(self, reply: Callable[[Body], Reply]) -> None:
        self.reply = reply
        self.asked: list[Body] = []
        self.headers: list[dict[str, str]] = []
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send(*endpoint.listed())

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self.send(*endpoint.answer(body, dict(self.headers)))

            def send(self, code: int, value: Any, headers: dict[str, str] | None = None) -> None:
                data = value if isinstance(value, bytes) else json.dumps(value).encode()
                with contextlib.suppress(ConnectionError):  # the client gave up
                    self.send_response(code)
                    for name, content in (headers or {}).items():
                        self.send_header(name, content)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self._thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def listed(self) -> Reply:
        """Its list of models."""
        return 200, {"data": [{"id": "first-model"}, {"id": "second-model"}]}

    def answer(self, body: Body, headers: dict[str, str]) -> Reply:
        """Keep the request, and reply."""
        self.asked.append(body)
        self.headers.append(headers)
        return self.reply(body)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def __enter__(self) -> ChatEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def serve(request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Starts endpoints of the class that the test's module calls ``Endpoint``; they are closed after the test."""
    with contextlib.ExitStack() as opened:
        yield lambda *args, **options: opened.enter_context(request.module.Endpoint(*args, **options))


def said(text: str, **usage: int) -> Reply:
    """A chat completion; ``usage`` are its counts of tokens."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return 200, {"choices": [choice]} | ({"usage": usage} if usage else {})


def refused(message: str, code: int = 400) -> Reply:
    """An error as OpenAI words it."""
    return code, {"error": {"message": message, "type": "invalid_request_error"}}


def schema_of(body: Body) -> Any:
    """The schema that a request wants its answer to obey."""
    return body.get("response_format", {}).get("json_schema", {}).get("schema")


def obeying(schema: dict[str, Any]) -> str:
    """What a constrained model could write: the first enum value of each property, empty arguments."""
    out = {}
    for name, node in schema["properties"].items():
        out[name] = node["enum"][0] if "enum" in node else {"city": "Oslo"} if name == "arguments" else []
    return json.dumps({k: v for k, v in out.items() if k != "missing"})
