"""The face of Toolscout: its three tools as any client sees them.

Everything here is plain data. The list never varies by connection (the 2026-07-28 revision has none to vary by);
only the sentence that names what stands behind it follows the catalogue.
"""

from __future__ import annotations

from typing import Any

NAME = "toolscout"
TITLE = "Toolscout"

SUGGESTS = "suggest_call writes the arguments for you. "
INSTRUCTIONS = (
    "Toolscout reaches the tools of many MCP servers through three of its own. Work in this order: "
    "find_tools with what you want to do; read the signature of the tool you pick; invoke it with its tool_id and "
    f"arguments. {SUGGESTS}A tool error says what was wrong and shows the schema: "
    "correct the call and try once more. no_match means that no tool here does it: do not force one."
)

_MOST_NAMES, _NAMES_CHARACTERS = 60, 900
"""So many servers are named to agents, in so many characters at most: each request of theirs carries them."""

_STATES = ["ready", "needs_install", "needs_key", "quarantined", "unavailable"]

_TOOL_ID = {"type": "string", "description": "Id of a tool, exactly as find_tools gave it.", "minLength": 1}

FIND_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "One operation and the product or kind of thing it is done to, in plain English, such as "
            "'list open pull requests on GitHub'. Ids, names and values only blur it: leave them out.",
        },
        "requests": {
            "type": "array",
            "description": "Instead of query: several needs at once, each by kind of server and kind of operation.",
            "items": {
                "type": "object",
                "properties": {
                    "server": {"type": "string", "description": "Kind of server or platform, e.g. 'GitHub'."},
                    "tool": {"type": "string", "description": "Kind of operation, e.g. 'list open pull requests'."},
                },
                "required": ["tool"],
                "additionalProperties": False,
            },
            "maxItems": 10,
        },
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": 50,
            "default": 5,
            "description": "How many tools to aim for: fewer come back when one stands clear, up to twice as many when "
            "they are about as good or the maker's own server joins, one at least for each of several requests.",
        },
        "detail": {
            "type": "string",
            "enum": ["compact", "full"],
            "default": "compact",
            "description": "full adds each tool's description and input schema.",
        },
        "exemplars": {
            "type": "integer",
            "minimum": 0,
            "maximum": 10,
            "default": 0,
            "description": "Worked examples (request and arguments) to add for each tool.",
        },
        "servers": {
            "type": "array",
            "items": {"type": "string"},
            "maxItems": 50,
            "description": "Search only these servers, by id or name. Names that no server has are left out; if none "
            "is left all are searched, and advice says so.",
        },
        "read_only": {"type": "boolean", "default": False, "description": "Only tools that declare to change nothing."},
        "ready_only": {"type": "boolean", "default": False, "description": "Only tools that can be called right now."},
    },
    "additionalProperties": False,
}

_EXEMPLAR = {
    "type": "object",
    "properties": {"request": {"type": "string"}, "arguments": {"type": "object"}},
    "required": ["request", "arguments"],
}

_FOUND_TOOL = {
    "type": "object",
    "properties": {
        "tool_id": {"type": "string"},
        "kind": {
            "type": "string",
            "enum": ["server"],
            "description": "A server as a whole, whose tools are known once it is installed: invoke its tool_id "
            "with no arguments to ask the user for that.",
        },
        "title": {"type": "string"},
        "summary": {"type": "string"},
        "signature": {"type": "string", "description": "Parameters; '?' marks optional ones, '=' gives defaults."},
        "score": {"type": "number"},
        "server": {"type": "string"},
        "publisher": {"type": "string", "description": "Of a server that is not installed: who publishes it."},
        "needs": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Variables with keys and settings that its server takes, which is not set up here.",
        },
        "looks_like": {"type": "string", "description": "A far more used package whose name this one's is almost."},
        "state": {"type": "string", "enum": _STATES},
        "why": {"type": "string"},
        "requests": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "Which of several requests it serves: 1 is the first, 0 the query.",
        },
        "read_only": {"type": "boolean"},
        "description": {"type": "string"},
        "input_schema": {"type": "object"},
        "exemplars": {"type": "array", "items": _EXEMPLAR},
    },
    "required": ["tool_id", "summary", "signature", "score", "state"],
}

FIND_OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tools": {"type": "array", "items": _FOUND_TOOL},
        "no_match": {"type": "boolean"},
        "confidence": {"type": "number", "description": "Probability that one of these tools serves the request."},
        "nearest": {
            "type": "array",
            "description": "With no_match: the closest tools, for orientation. They are not offers.",
            "items": {
                "type": "object",
                "properties": {"tool_id": {"type": "string"}, "summary": {"type": "string"}},
                "required": ["tool_id", "summary"],
            },
        },
        "unserved": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "Which of several requests none of these tools serves.",
        },
        "advice": {"type": "string"},
    },
    "required": ["tools", "no_match", "confidence"],
}

SUGGEST_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "task": {"type": "string", "minLength": 1, "description": "The task with every value that the call needs."},
        "tool_ids": {
            "type": "array",
            "items": _TOOL_ID,
            "maxItems": 20,
            "description": "Candidates to choose from; without them Toolscout searches.",
        },
        "context": {"type": "string", "default": "", "description": "What happened so far, e.g. earlier results."},
        "steps": {
            "type": "integer",
            "minimum": 1,
            "maximum": 10,
            "default": 1,
            "description": "More than 1 asks for a plan of up to that many calls.",
        },
    },
    "required": ["task"],
    "additionalProperties": False,
}

SUGGEST_OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "calls": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "tool_id": {"type": "string"},
                    "arguments": {"type": "object"},
                    "confidence": {"type": "number"},
                    "ready": {"type": "boolean", "description": "True: the arguments are whole and validate."},
                    "state": {"type": "string", "enum": _STATES, "description": "Whether its server can be called."},
                    "advice": {"type": "string", "description": "What to do first, where it cannot."},
                    "missing": {
                        "type": "array",
                        "items": {"type": "string"},
                        "description": "Required values that the task does not state.",
                    },
                    "id": {"type": "string"},
                    "depends_on": {"type": "array", "items": {"type": "string"}},
                    "signature": {"type": "string"},
                    "skeleton": {"type": "object", "description": "If not ready: the arguments with placeholders."},
                },
                "required": ["tool_id", "arguments", "confidence", "ready", "missing"],
            },
        },
        "alternatives": {"type": "array", "items": {"type": "string"}},
        "exemplars": {"type": "array", "items": _EXEMPLAR},
        "abstained": {"type": "boolean"},
        "reason": {"type": "string"},
        "model": {"type": "string"},
    },
    "required": ["calls", "abstained"],
}

INVOKE_INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "tool_id": _TOOL_ID,
        "arguments": {
            # A string is accepted and parsed, null means none: models send both, a refusal costs a round trip.
            "type": ["object", "string", "null"],
            "description": "The tool's arguments as an object that matches its input schema.",
            "default": {},
        },
        "timeout_s": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 3600,
            "description": "Seconds to wait, at most.",
        },
        "dry_run": {"type": "boolean", "default": False, "description": "Validate and show the call, do not make it."},
    },
    "required": ["tool_id"],
    "additionalProperties": False,
}


def describe_catalogue(tools: int, servers: int, names: list[str]) -> str:
    """One sentence that names what stands behind the search; agents pick a search tool by it."""
    if not tools:
        return "The catalog is empty until servers are added."
    known = f"{tools:,} tools of {servers:,} servers are behind it"
    shown: list[str] = []
    for name in names:
        if len(shown) < _MOST_NAMES and len(", ".join([*shown, name])) <= _NAMES_CHARACTERS:
            shown.append(name)
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return f"{known}, among them {', '.join(shown)}{more}." if shown else f"{known}."


_SEEN = {"anthropic/alwaysLoad": True}
"""Claude Code hides tools behind a search of its own; ours are the few that it is to see."""


def tool_definitions(behind: str) -> list[dict[str, Any]]:
    """The three tools in wire form (``tools/list``); ``behind`` is the sentence of `describe_catalogue`."""
    tools: list[dict[str, Any]] = [
        {
            "name": "find_tools",
            "title": "Find tools",
            "description": (
                "Search the tools of many MCP servers by what you want to do and get the few that fit, best first: "
                "tool_id, one-line summary, signature, whether it is ready to call. Says no_match when nothing fits. "
                "Use it before saying that something cannot be done; then invoke the tool that you pick. "
                f"{behind}"
            ),
            "inputSchema": FIND_INPUT,
            "outputSchema": FIND_OUTPUT,
            "annotations": {"readOnlyHint": True, "idempotentHint": True, "openWorldHint": False},
        },
        {
            "name": "suggest_call",
            "title": "Suggest a call",
            "description": (
                "Write the call for a task: picks a tool (of tool_ids, or by search) and fills in its arguments, which "
                "always validate against the tool's schema. Names the values that the task leaves open in missing "
                "instead of inventing them. It does not make the call: give the result to invoke."
            ),
            "inputSchema": SUGGEST_INPUT,
            "outputSchema": SUGGEST_OUTPUT,
            "annotations": {"readOnlyHint": True, "openWorldHint": False},
        },
        {
            "name": "invoke",
            "title": "Invoke a tool",
            "description": (
                "Call a tool found by find_tools: its server is started if needed, the arguments are checked against "
                "the tool's schema, the result comes back as the server gave it. A wrong call returns what was wrong "
                "and the schema, so that you can correct it. The effect is the tool's own, which may change things."
            ),
            "inputSchema": INVOKE_INPUT,
            "annotations": {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True},
        },
    ]
    return [{**tool, "_meta": _SEEN} for tool in tools]
