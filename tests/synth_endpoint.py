"""A chat endpoint for the tests of synthesis: answers by the prompt, always the same, and misbehaves when told to."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Callable

import chat_endpoint
from chat_endpoint import Body, ChatEndpoint, Reply

from toolscout.records import Server, Tool

CITIES = ("Oslo", "Quito", "Hanoi", "Turin", "Dakar", "Perth", "Lagos", "Osaka", "Split", "Cusco", "Basel", "Tunis")
HELLO = ("Ada", "Bela", "Caro", "Dora", "Emil")

Serve = Callable[..., "Endpoint"]
"""The fixture ``serve``."""

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
    return chat_endpoint.said(text, prompt_tokens=prompt, completion_tokens=completion)


class Endpoint(ChatEndpoint):
    """Answers well unless told otherwise, after ``pause`` seconds. Its first requests wait until ``company`` of them
    are there, 20 seconds at most: whether several are asked at once is not left to the machine's speed."""

    def __init__(
        self, reply: Callable[[Body], Reply] = lambda body: said(well(body)), pause: float = 0.0, company: int = 1
    ) -> None:
        self.pause = pause
        self.company = company
        self.most_at_once = 0
        self._now = 0
        self._lock = threading.Condition()
        super().__init__(reply)

    def answer(self, body: Body, headers: dict[str, str]) -> Reply:
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            self.asked.append(body)
            self._lock.notify_all()
            self._lock.wait_for(lambda: self.most_at_once >= self.company, timeout=20)
        time.sleep(self.pause)
        try:
            return self.reply(body)
        finally:
            with self._lock:
                self._now -= 1

    def bodies(self) -> Counter[str]:
        """How often each request came."""
        return Counter(json.dumps(body, sort_keys=True) for body in self.asked)

    def kinds(self) -> Counter[str]:
        """How often each step asked."""
        return Counter(kind(body) for body in self.asked)
