"""A chat endpoint for the tests of synthesis: answers by the prompt, always the same, and misbehaves when told to."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from toolscout.records import Server, Tool

CITIES = ("Oslo", "Quito", "Hanoi", "Turin", "Dakar", "Perth", "Lagos", "Osaka", "Split", "Cusco", "Basel", "Tunis")
HELLO = ("Ada", "Bela", "Caro", "Dora", "Emil")

Body = dict[str, Any]
Reply = tuple[int, Any, dict[str, str]]

WEATHER = Tool(
    tool_id="m/skywatch/get_forecast",
    server_id="m/skywatch",
    name="get_forecast",
    description="Returns the meteorological outlook for a municipality.",
    input_schema={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city"],
    },
)
TOOLS = [
    WEATHER,
    *(
        Tool(
            tool_id=f"m/desk{n}/{verb}_note_{n}",
            server_id=f"m/desk{n}",
            name=f"{verb}_note_{n}",
            description=f"{verb.capitalize()}s notes of shelf {n}, kept by their author, in room {n * 7}.",
            input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        )
        for n, verb in enumerate(("archive", "rename", "print", "shred"), start=1)
    ),
]
SERVERS = {t.server_id: Server(server_id=t.server_id, name=t.server_id.split("/")[1]) for t in TOOLS}


def kind(body: Body) -> str:
    """Which step asks."""
    first, last = body["messages"][0]["content"], body["messages"][-1]["content"]
    if last.startswith("Your answer could not be used"):
        return "repair"
    for mark, name in (
        ("Number of requests", "generate"),
        ("Required parameters", "fill"),
        ("the rewritten request", "evolve"),
        ("Answer with the request in", "translate"),
        ("\nCall: ", "judge"),
    ):
        if mark in last:
            return name
    return "choose" if first.rpartition("<tools>\n")[2].count('{"name": ') > 1 else "call"


def request_in(body: Body) -> str:
    """The instruction that a prompt holds."""
    found = re.search(r"^Request: (.*)$", body["messages"][-1]["content"], re.MULTILINE)
    return found.group(1) if found else body["messages"][-1]["content"]


def tool_in(body: Body) -> str:
    """The name of the tool that a prompt is about."""
    text = "\n".join(m["content"] for m in body["messages"])
    return re.findall(r'\{"name": "([\w.]+)", "description"', text)[-1]


def well(body: Body) -> str:
    """What a capable model would answer."""
    step, name, text = kind(body), tool_in(body) if kind(body) != "translate" else "", request_in(body)
    if step == "generate":
        shift, verb = sum(map(ord, name)), name.split("_")[0][::-1]
        rows = [
            f"{who} asks about {CITIES[(shift + 5 * n) % 12]}: what does {verb} give there, {shift}?"
            for n, who in enumerate(HELLO)
        ]
        return json.dumps({"instructions": rows})
    if step == "fill":
        return json.dumps({"instruction": text})
    if step == "evolve":
        extra = "I leave on Friday and have to pack." if "pack" not in text else "My sister comes along, so be exact."
        return json.dumps({"instruction": f"{extra} {text}"})
    if step == "translate":
        return json.dumps({"instruction": text.replace("asks about", "fragt nach").replace("what does", "was gibt")})
    if step == "judge":
        return json.dumps({"instruction": 8, "call": 9, "why": "fine"})
    city = next((c for c in CITIES if c in text), None)
    if step == "choose":
        reversed_verb = re.search(r"what does (\w+)|was gibt (\w+)", text)
        wanted = (reversed_verb.group(1) or reversed_verb.group(2))[::-1] if reversed_verb else ""
        names = re.findall(r'^\{"name": "([\w.]+)"', body["messages"][0]["content"], re.MULTILINE)
        return json.dumps({"name": next((n for n in names if n.startswith(wanted)), "none"), "arguments": {}})
    return json.dumps({"name": name, "arguments": {"city": city}})


def said(text: str, prompt: int = 100, completion: int = 20) -> Reply:
    """A chat completion."""
    choice = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return 200, {"choices": [choice], "usage": {"prompt_tokens": prompt, "completion_tokens": completion}}, {}


class Endpoint:
    """Keeps what it was asked; ``reply`` may be replaced while it runs."""

    def __init__(self, reply: Callable[[Body], Reply] = lambda body: said(well(body)), pause: float = 0.0) -> None:
        self.reply, self.pause = reply, pause
        self.asked: list[Body] = []
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Lock()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send(200, {"data": [{"id": "first-model"}]}, {})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with endpoint._lock:
                    endpoint.asked.append(body)
                    endpoint._now += 1
                    endpoint.most_at_once = max(endpoint.most_at_once, endpoint._now)
                time.sleep(endpoint.pause)
                answer = endpoint.reply(body)
                with endpoint._lock:
                    endpoint._now -= 1
                self.send(*answer)

            def send(self, code: int, value: Any, headers: dict[str, str]) -> None:
                data = json.dumps(value).encode()
                with contextlib.suppress(ConnectionError):
                    self.send_response(code)
                    for name, content in headers.items():
                        self.send_header(name, content)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def bodies(self) -> Counter[str]:
        """How often each request came."""
        return Counter(json.dumps(body, sort_keys=True) for body in self.asked)

    def kinds(self) -> Counter[str]:
        """How often each step asked."""
        return Counter(kind(body) for body in self.asked)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
