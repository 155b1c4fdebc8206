"""A model's endpoint that follows a script, so that real clients call tools without a model.

Speaks Anthropic's messages, OpenAI's chat completions and responses, and Gemini's content, as streams. Where the script
is, is told by how many results of tools the client has sent so far; requests without tools (titles, summaries) get a
word.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Step = tuple[str, dict[str, Any] | Callable[[str], dict[str, Any]]]
"""A tool, by the end of its name at the client, and its arguments, or what makes them of the last result."""

Call = tuple[str, dict[str, Any], str]
"""A tool by its full name, its arguments, and the call's ID."""


@dataclass
class Model:
    """The endpoint, while it runs: where it is, and what the clients showed it."""

    url: str
    tools: set[str] = field(default_factory=set)
    """Those of the first request that had any."""

    results: list[str] = field(default_factory=list)
    """What the tools answered, of the longest conversation."""

    images: list[bytes] = field(default_factory=list)
    """What the model would see as images, of the same conversation."""


@contextlib.contextmanager
def scripted_model(script: Sequence[Step]) -> Iterator[Model]:
    """Run an endpoint that has these tools called, one after the other, and then says ``Done.``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self._answer(json.dumps({"object": "list", "data": [], "models": []}), "application/json")

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            path = self.path.partition("?")[0]
            if not (spoken := [dialect for dialect in _DIALECTS if path.endswith(dialect[0])]):
                self.send_error(404)
                return
            [(_, read, write)] = spoken
            names, results = read(request)
            model.tools = model.tools or set(names)
            if len(results) > len(model.results):
                model.results, model.images = results, list(_images(request))
            call = None
            if names and len(results) < len(script):
                tool, wanted = script[len(results)]
                if name := next((n for n in names if n.endswith(tool)), None):
                    arguments = wanted if isinstance(wanted, dict) else wanted(results[-1])
                    call = (name, arguments, f"call_{len(results)}")
            self._answer("".join(write(call)), "text/event-stream")

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


def _images(value: Any) -> Iterator[bytes]:
    """The parts of a request that are images in any of the dialects, whichever message they are in."""
    if isinstance(value, list):
        for one in value:
            yield from _images(one)
    elif isinstance(value, dict):
        url = value.get("image_url")
        url = url.get("url") if isinstance(url, dict) else url
        if value.get("type") == "image" and "source" in value:
            yield base64.b64decode(value["source"]["data"])
        elif value.get("type") in ("image_url", "input_image") and isinstance(url, str):
            yield base64.b64decode(re.sub("^data:image/[a-z]+;base64,", "", url))
        elif "inlineData" in value:
            yield base64.b64decode(value["inlineData"]["data"])
        else:
            yield from _images(list(value.values()))


def _text(content: Any) -> str:
    """What a result says, without its images."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if "text" in part)


def _event(data: dict[str, Any]) -> str:
    kind = f"event: {data['type']}\n" if "type" in data else ""
    return f"{kind}data: {json.dumps(data)}\n\n"


def _read_anthropic(request: dict[str, Any]) -> tuple[list[str], list[str]]:
    parts = [p for m in request["messages"] if isinstance(m["content"], list) for p in m["content"]]
    results = [_text(part.get("content")) for part in parts if part.get("type") == "tool_result"]
    return [tool["name"] for tool in request.get("tools") or () if not tool.get("defer_loading")], results


def _anthropic(call: Call | None) -> Iterator[str]:
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": []}
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": "Done."}
    if call:
        block = {"type": "tool_use", "id": call[2], "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    usage = {"input_tokens": 1, "output_tokens": 1}
    yield _event({"type": "message_start", "message": {**about, "stop_reason": None, "usage": usage}})
    yield _event({"type": "content_block_start", "index": 0, "content_block": block})
    yield _event({"type": "content_block_delta", "index": 0, "delta": delta})
    yield _event({"type": "content_block_stop", "index": 0})
    reason = {"stop_reason": "tool_use" if call else "end_turn"}
    yield _event({"type": "message_delta", "delta": reason, "usage": usage})
    yield _event({"type": "message_stop"})


def _read_chat(request: dict[str, Any]) -> tuple[list[str], list[str]]:
    results = [_text(message["content"]) for message in request["messages"] if message["role"] == "tool"]
    return [tool["function"]["name"] for tool in request.get("tools") or ()], results


def _chat(call: Call | None) -> Iterator[str]:
    delta: dict[str, Any] = {"role": "assistant", "content": "Done."}
    if call:
        function = {"name": call[0], "arguments": json.dumps(call[1])}
        delta = {
            "role": "assistant",
            "tool_calls": [{"index": 0, "id": call[2], "type": "function", "function": function}],
        }
    for changed, reason in ((delta, None), ({}, "tool_calls" if call else "stop")):
        choice = {"index": 0, "delta": changed, "finish_reason": reason}
        yield _event({"id": "x", "object": "chat.completion.chunk", "choices": [choice]})
    yield "data: [DONE]\n\n"


def _read_responses(request: dict[str, Any]) -> tuple[list[str], list[str]]:
    # Tools of one server may come as a namespace, and are called with its name beside theirs.
    names = []
    for tool in request.get("tools") or ():
        names += [f"{tool['name']}\t{inner['name']}" for inner in tool.get("tools") or ()]
        names += [tool["name"]] if tool["type"] == "function" else []
    parts = request["input"] if isinstance(request["input"], list) else []
    return names, [_text(part["output"]) for part in parts if part["type"] == "function_call_output"]


def _responses(call: Call | None) -> Iterator[str]:
    item: dict[str, Any] = {"type": "message", "role": "assistant", "id": "m1"}
    item["content"] = [{"type": "output_text", "text": "Done.", "annotations": []}]
    if call:
        namespace, _, name = call[0].rpartition("\t")
        item = {"type": "function_call", "id": "f1", "call_id": call[2], "name": name}
        item |= {"arguments": json.dumps(call[1])} | ({"namespace": namespace} if namespace else {})
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    yield _event({"type": "response.created", "response": {"id": "r1"}})
    yield _event({"type": "response.output_item.done", "output_index": 0, "item": item})
    yield _event({"type": "response.completed", "response": {"id": "r1", "output": [item], "usage": usage}})


def _read_gemini(request: dict[str, Any]) -> tuple[list[str], list[str]]:
    names = [f["name"] for tool in request.get("tools") or () for f in tool.get("functionDeclarations") or ()]
    parts = [part for content in request["contents"] for part in content["parts"]]
    responses = [part["functionResponse"]["response"] for part in parts if "functionResponse" in part]
    return names, [str(response.get("output") or response.get("error")) for response in responses]


def _gemini(call: Call | None) -> Iterator[str]:
    part: dict[str, Any] = {"text": "Done."}
    if call:
        part = {"functionCall": {"id": call[2], "name": call[0], "args": call[1]}}
    candidate = {"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
    yield _event({"candidates": [candidate], "usageMetadata": {"totalTokenCount": 2}})


_DIALECTS = (
    ("/messages", _read_anthropic, _anthropic),
    ("/chat/completions", _read_chat, _chat),
    ("/responses", _read_responses, _responses),
    (":streamGenerateContent", _read_gemini, _gemini),
)
