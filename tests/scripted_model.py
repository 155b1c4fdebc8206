"""A model's endpoint that follows a script, so that real clients call tools without a model.

Speaks Anthropic's messages and OpenAI's chat completions, as streams. Where the script is, is told by how many results
of tools the client has sent so far; requests without tools (titles, summaries) get a word.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = tuple[str, dict[str, Any]]
"""A tool, by the end of its name at the client, and its arguments."""


@dataclass
class Model:
    """The endpoint, while it runs: where it is, and what the clients showed it."""

    url: str
    tools: set[str] = field(default_factory=set)
    results: list[str] = field(default_factory=list)
    """What the tools answered, of the longest conversation."""


@contextlib.contextmanager
def scripted_model(script: Sequence[Step]) -> Iterator[Model]:
    """Run an endpoint that has these tools called, one after the other, and then says ``Done.``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            names = [t.get("name") or t["function"]["name"] for t in request.get("tools") or ()]
            results = list(_results(request["messages"]))
            model.tools.update(names)
            model.results = max(model.results, results, key=len)
            call = None
            if names and len(results) < len(script):
                tool, arguments = script[len(results)]
                if name := next((n for n in names if n.endswith(tool)), None):
                    call = (name, json.dumps(arguments))
            events = _anthropic(call) if self.path.partition("?")[0].endswith("/messages") else _openai(call)
            self._answer("".join(events), "text/event-stream")

        def _answer(self, text: str, kind: str) -> None:
            data = text.encode()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model = Model(f"http://127.0.0.1:{server.server_port}")
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()


def _results(messages: list[dict[str, Any]]) -> Iterator[str]:
    for message in messages:
        if message["role"] == "tool":
            yield json.dumps(message["content"])
        parts = message["content"] if isinstance(message["content"], list) else ()
        yield from (json.dumps(part["content"]) for part in parts if part.get("type") == "tool_result")


def _anthropic(call: tuple[str, str] | None) -> Iterator[str]:
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": "Done."}
    if call:
        block = {"type": "tool_use", "id": f"toolu_{abs(hash(call))}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": call[1]}
    usage = {"input_tokens": 1, "output_tokens": 1}
    for event in (
        {"type": "message_start", "message": {**about, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use" if call else "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ):
        yield f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"


def _openai(call: tuple[str, str] | None) -> Iterator[str]:
    delta: dict[str, Any] = {"role": "assistant", "content": "Done."}
    if call:
        function = {"name": call[0], "arguments": call[1]}
        delta = {
            "role": "assistant",
            "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}],
        }
    for changed, reason in ((delta, None), ({}, "tool_calls" if call else "stop")):
        choice = {"index": 0, "delta": changed, "finish_reason": reason}
        yield f"data: {json.dumps({'id': 'x', 'object': 'chat.completion.chunk', 'choices': [choice]})}\n\n"
    yield "data: [DONE]\n\n"
