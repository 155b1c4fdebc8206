"""Our own dummies, out of what a server says of itself: defaults in its schemas, folders in its descriptions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from toolscout.bubblewrap import HOME, WORKDIR
from toolscout.crawler.listing import Listing

_OURS = (
    ("https://example.invalid", "<URL>"),
    ("someone@example.invalid", "<email>"),
    ("example.invalid", "<host>"),
    (WORKDIR, "<directory>"),
    (HOME, "~"),
)
_SHORTEST = 8
_COMMON = frozenset({"us-east-1", "123456789"})
"""Dummies that stand in many a text that never saw ours."""


def without_traces(listing: Listing, given: Mapping[str, str], installation: Path) -> Listing:
    """The listing with placeholders for the dummies of one start.

    Args:
        given: what it was given, variables and arguments: values by what to call them.
        installation: the folder it was installed in, which no other machine has.
    """
    telling = [(v, f"<{n}>") for n, v in given.items() if len(v) >= _SHORTEST and v not in _COMMON]
    pairs = [*telling, (str(installation), "<installation>"), *_OURS]
    # Of two with one value the first counts; longer ones hold shorter ones.
    named: dict[str, str] = {}
    for value, name in pairs:
        named.setdefault(value, name)
    pattern = re.compile("|".join(rf"{re.escape(v)}(?![\w-])" for v in sorted(named, key=len, reverse=True)))

    def cleaned(value: Any, depth: int = 0) -> Any:
        if isinstance(value, str):
            return pattern.sub(lambda m: named[m.group()], value)
        if depth > 200:
            return value  # nested beyond what is recorded anyway
        if isinstance(value, list):
            return [cleaned(item, depth + 1) for item in value]
        if isinstance(value, dict):
            return {key: cleaned(item, depth + 1) for key, item in value.items()}
        return value

    return replace(
        listing,
        server_info=cleaned(listing.server_info),
        instructions=cleaned(listing.instructions),
        tools=[cleaned(tool) for tool in listing.tools],
    )


def given_by(env: Mapping[str, str], args: Sequence[str], shown: Sequence[str]) -> dict[str, str]:
    """What a start gave: variables by their names, arguments by their placeholders."""
    given = dict(env)
    if len(args) != len(shown):
        return given  # what a listing shows as required stands where it was listed
    for value, placeholder in zip(args, shown, strict=True):
        if value != placeholder:
            name, _, bare = value.partition("=")
            inner = re.search(r"<([^<>]+)>", placeholder)
            dummy = bare if bare and placeholder.startswith(f"{name}=") else value
            given.setdefault(inner[1] if inner else placeholder, dummy.rpartition(": ")[2].rpartition(" ")[2])
    return given
