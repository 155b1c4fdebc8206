"""What tool definitions cost in a prompt, against Toolscout's three tools and its answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from toolscout.eval.tokens import TokenCounter
from toolscout.index.document import server_name
from toolscout.records import JsonObject, Server, Tool
from toolscout.server.contract import describe_catalogue, tool_definitions


def definition_text(name: str, description: str, input_schema: Mapping[str, Any]) -> str:
    """One tool as clients put it into the prompt: name, description and input schema as compact JSON. Titles,
    annotations and output schemas stay with the client."""
    value = {"name": name, "description": description, "input_schema": input_schema}
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def tool_tokens(tool: Tool, count: TokenCounter) -> int:
    """Tokens of a tool's definition."""
    return count(definition_text(tool.name, tool.description, tool.input_schema))


def own_tokens(tools: Sequence[Tool], servers: Mapping[str, Server], count: TokenCounter) -> int:
    """Tokens of Toolscout's three tools, as they would read with these servers behind them."""
    sizes: dict[str, int] = {}
    for tool in tools:
        sizes[tool.server_id] = sizes.get(tool.server_id, 0) + 1
    names = [i.rsplit("/", 1)[-1][:40] for i in sorted(sizes, key=lambda i: -sizes[i])[:8]]
    behind = describe_catalogue(len(tools), len(sizes), names)
    made = tool_definitions(behind)
    return sum(count(definition_text(d["name"], d["description"], d["inputSchema"])) for d in made)


def context(
    tools: Sequence[Tool],
    held: Sequence[Tool],
    servers: Mapping[str, Server],
    answers: Iterable[int],
    count: TokenCounter,
) -> JsonObject:
    """The ``context`` object of the result.

    :param tools: those that Toolscout offers; ``held`` are those it does not, counted apart.
    :param answers: tokens of one ``find_tools`` answer for each tool's own words.
    """
    sizes = {tool.tool_id: tool_tokens(tool, count) for tool in tools}
    total, own = sum(sizes.values()), own_tokens(tools, servers, count)
    answered = list(answers)
    answer = round(median(answered)) if answered else None
    rows: list[JsonObject] = []
    for server_id in sorted({t.server_id for t in tools}):
        mine = [t for t in tools if t.server_id == server_id]
        tokens = sum(sizes[t.tool_id] for t in mine)
        largest = max(mine, key=lambda t: sizes[t.tool_id])
        rows.append(
            {
                "server_id": server_id,
                "name": server_name(servers.get(server_id), server_id),
                "tools": len(mine),
                "tokens": tokens,
                "share": round(tokens / total, 4),
                "largest": {"tool_id": largest.tool_id, "tokens": sizes[largest.tool_id]},
                "against_toolscout": tokens - own - (answer or 0),
            }
        )
    rows.sort(key=lambda row: -int(row["tokens"]))
    with_one = own + (answer or 0)
    return {
        "all_definitions": total,
        "toolscout_tools": own,
        "find_answer": answer,
        "with_toolscout": with_one,
        "saved": total - with_one,
        "saved_share": round((total - with_one) / total, 4) if total else None,
        "searches_until_even": max(0, (total - own) // answer) if answer else None,
        "held_back": sum(tool_tokens(tool, count) for tool in held),
        "by_server": rows,
    }
