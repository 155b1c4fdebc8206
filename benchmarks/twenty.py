"""A server of twenty made-up tools, to be added to an index."""

from __future__ import annotations

from toolscout.records import Server, Tool

_TOOLS = 20
_WORDS = ("invoice", "sensor", "playlist", "ticket", "vessel", "recipe", "galaxy", "contract", "orchard", "telegram")


def server_of_twenty(number: int) -> tuple[Server, list[Tool]]:
    """A made-up server whose texts no cache has seen."""
    name = f"bench-{number}"
    tools = [
        Tool(
            tool_id=f"{name}/handle_{word}_{part}",
            server_id=name,
            name=f"handle_{word}_{part}",
            description=f"Handle {word} number {number} in way {part}: read it, change it and report on it.",
            input_schema={"type": "object", "properties": {word: {"type": "string", "description": f"The {word}."}}},
        )
        for part in range(_TOOLS // len(_WORDS))
        for word in _WORDS
    ]
    return Server(server_id=name, description=f"Benchmark server {number}."), tools
