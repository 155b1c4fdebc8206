"""A chat endpoint that plays the model of plans: rule-made answers over whatever tools a prompt shows."""

from __future__ import annotations

import json
import re
from collections import Counter
from typing import Any

from chat_endpoint import Body
from synth_endpoint import Endpoint, said

from toolscout.records import Server, Tool

WORDS = (
    "amber",
    "birch",
    "cobalt",
    "dune",
    "ember",
    "fjord",
    "grove",
    "harbour",
    "island",
    "juniper",
    "kelp",
    "lagoon",
)


def plan_kind(body: Body) -> str:
    """Which step asks."""
    last = body["messages"][-1]["content"]
    for mark, name in (
        ("Your answer could not be used", "repair"),
        ("Number of needs:", "combine"),
        ("Slot types:", "template"),
        ("\nRequest to serve:", "semantic"),
        ("Request to judge:", "reasonable"),
        ("Values:", "rewrite"),
    ):
        if last.startswith(mark) or mark in last:
            return name
    raise AssertionError(last)


def line_in(body: Body, name: str) -> str:
    """What stands after ``name:`` in the last message."""
    found = re.search(rf"^{name}: (.*)$", body["messages"][-1]["content"], re.MULTILINE)
    assert found is not None
    return found.group(1)


def tools_in(body: Body) -> list[dict[str, Any]]:
    """The tools that a prompt shows, as JSON."""
    return [json.loads(t) for t in re.findall(r'^\{"name": .*$', body["messages"][-1]["content"], re.MULTILINE)]


def required(tool: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Required parameters with their schemas, whichever way the prompt shows them."""
    told = tool["parameters"]
    if isinstance(told.get("required"), list):
        return {n: told["properties"][n] for n in told["required"] if n in told["properties"]}
    return {
        name: {"type": line.removeprefix("required ").split(":")[0].split(" ")[0], "description": line}
        for name, line in told.items()
        if isinstance(line, str) and line.startswith("required ")
    }


def template(body: Body) -> dict[str, Any]:
    """A plan over at most three of the tools: a slot for each required text or number; the last call gets its first
    text from the first call."""
    types = line_in(body, "Slot types")
    tools = tools_in(body)[:3]
    parts, slots, steps = [], {}, []
    for at, tool in enumerate(tools, 1):
        arguments: dict[str, Any] = {}
        for name, node in required(tool).items():
            slot = f"s{at}_{len(slots)}"
            kind = node.get("type")
            referred = any(isinstance(v, str) and v.startswith("$") for v in arguments.values())
            if "enum" in node:
                arguments[name] = node["enum"][0]
                parts.append(str(node["enum"][0]))
                continue
            if at == len(tools) > 1 and kind == "string" and not referred:
                arguments[name] = "$1.result.id"
                continue
            if "IATA" in node.get("description", "") and "airport (" in types:
                values: list[Any] = ["Zurich Airport", "Helsinki Vantaa Airport", "Narita International Airport"]
            elif kind in ("integer", "number"):
                values = [4 + at + 10 * n + len(slots) for n in range(3)]
            else:
                shift = len(tool["name"]) + len(slots)
                values = [f"{WORDS[(shift + n) % 12]} {tool['name'][::-1][:6]}" for n in range(4)]
            slots[slot] = {"type": "text", "values": values}
            arguments[name] = f"{{{slot}}}"
            parts.append(f"{{{slot}}}")
        steps.append({"id": at, "tool": tool["name"], "arguments": arguments})
    return {"request": f"Look after {', then '.join(parts) or 'everything'} for me", "slots": slots, "steps": steps}


def played(body: Body) -> str:
    """What a capable model would answer."""
    kind = plan_kind(body)
    if kind == "combine":
        shown = re.findall(r"^(.+?): \d+ tools of", body["messages"][-1]["content"], re.MULTILINE)
        count = int(line_in(body, "Number of needs"))
        pairs = [(a, b) for i, a in enumerate(shown) for b in shown[i + 1 :]]
        found = [{"categories": list(p), "need": f"Something of {p[0]} that {p[1]} goes on with"} for p in pairs]
        return json.dumps({"combinations": found[:count]})
    if kind == "template":
        return json.dumps(template(body))
    if kind == "rewrite":
        text = line_in(body, "Request")
        return json.dumps({"instruction": f"I am off on Monday and short of time. {text}, please."})
    return json.dumps({"score": 8 if kind == "reasonable" else 9, "why": "fine"})


class Player(Endpoint):
    """Answers as `played` unless told otherwise."""

    def __init__(self, reply: Any = lambda body: said(played(body)), pause: float = 0.0, company: int = 1) -> None:
        super().__init__(reply, pause, company)

    def kinds(self) -> Counter[str]:
        return Counter(plan_kind(body) for body in self.asked)


def _tool(server: str, name: str, description: str, /, *needed: str, **more: Any) -> Tool:
    properties: dict[str, Any] = {n: {"type": "string"} for n in needed}
    properties |= more.pop("properties", {})
    return Tool(
        tool_id=f"{server}/{name}",
        server_id=server,
        name=name,
        description=description,
        input_schema={"type": "object", "properties": properties, "required": list(needed)},
        **more,
    )


_IATA = {"type": "string", "description": "IATA code"}
FLIGHTS = _tool(
    "m/wing", "find_flights", "Flights of a day between two places.", "origin", "destination", "date",
    properties={"origin": _IATA, "destination": _IATA},
    output_schema={"type": "object", "properties": {"flights": {"type": "array"}}},
)  # fmt: skip
HOLD = _tool("m/wing", "hold_seat", "Reserves a place in a plane.", "flight_id", "passenger")
TRIPS = [
    FLIGHTS,
    HOLD,
    _tool("m/wing", "lounge_hours", "Opening times of waiting rooms.", "place"),
    _tool("m/bed", "find_rooms", "Free beds of a night.", "town", "night"),
    _tool("m/bed", "book_room", "Books a bed.", "room", "guest"),
    _tool("m/bed", "cancel_stay", "Gives a booked bed back.", "booking"),
]
MONEY = [
    _tool("m/purse", "convert_sum", "Turns a sum into other money.", "sum", "into"),
    _tool("m/purse", "note_expense", "Writes an expense down.", "what", "price"),
    _tool("m/ledger", "list_debts", "Who owes what.", "person"),
    _tool("m/ledger", "send_reminder", "Reminds a debtor.", "debtor", "wording"),
]
PLAN_TOOLS = [*TRIPS, *MONEY]
PLAN_SERVERS = {
    server: Server(server_id=server, name=f"{server.split('/')[1]}x", category=category)
    for server, category in (("m/wing", "Travel"), ("m/bed", "Travel"), ("m/purse", "Money"), ("m/ledger", "Money"))
}
