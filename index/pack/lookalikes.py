"""Packages that are named almost like one that is used far more.

Two names are alike where, without their scopes and separators, they are the same or one slip of the pen apart: a letter
more, less or another one, or two that changed places (Damerau-Levenshtein). Short names are alike by chance, so a slip
counts in longer ones alone. The order of words is none: `mcp-git` and `git-mcp` are two names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from toolscout.records import Server

MORE_USED = 50
"""How many times as many downloads the original has."""

_SHORTEST = 6
"""Letters, without what every package is called, from which on a slip counts."""

_SEPARATORS = re.compile(r"[-_.]+")
_ANYBODYS = frozenset(
    {"mcp", "server", "servers", "mcpserver", "modelcontextprotocol", "tool", "tools", "client", "cli", "sdk", "api"}
    | {"ai", "agent", "agents", "core", "app", "proxy", "plugin", "skill", "skills", "cloud", "data", "docs", "search"}
    | {"code", "web", "http", "stdio", "local", "remote", "js", "ts", "node", "py", "python"}
    | {"linux", "darwin", "win32", "x64", "arm64"}
)
"""Words that say nothing of whose package it is."""

_LOOK_SAME = (("rn", "m"), ("vv", "w"), ("0", "o"), ("1", "l"))


@dataclass(frozen=True)
class _Name:
    """A package's name to compare: ``plain`` without separators, ``own`` letters of it that are not anybody's."""

    key: str
    scope: str
    plain: str
    own: int

    @staticmethod
    def of(key: str) -> _Name:
        """``key`` is registry and name, as in ``npm:@playwright/mcp``."""
        scope, _, base = key.partition(":")[2].lower().removeprefix("@").rpartition("/")
        words = [word for word in _SEPARATORS.split(base) if word]
        if not set(words) - _ANYBODYS:  # named by its scope alone
            words = [word for word in _SEPARATORS.split(scope) if word] + words
        plain = "".join(words)
        for seen, meant in _LOOK_SAME:
            plain = plain.replace(seen, meant)
        return _Name(key, scope, plain, sum(len(word) for word in words if word not in _ANYBODYS))


def look_alikes(servers: Sequence[Server], downloads: Mapping[str, int]) -> dict[int, str]:
    """Places of servers whose package looks like another publisher's, with the original as ``registry:package``.

    ``downloads`` are those a month by ``registry:package``. A package that is not counted has as many as the least of
    its registry: the counted ones are the most used. Official ones, and those in the original's scope, look like none.
    """
    counts = dict(downloads)
    for server in servers:
        if server.popularity:
            counts.setdefault(_key(server), int(server.popularity))
    least: dict[str, int] = {}
    for key, count in counts.items():
        registry = key.partition(":")[0]
        least[registry] = min(count, least.get(registry, count))
    used = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    originals = [(_Name.of(key), count) for key, count in used if count >= MORE_USED * least[key.partition(":")[0]]]
    found = {}
    for place, server in enumerate(servers):
        if server.official or not server.install.package or server.install.registry not in least:
            continue
        name = _Name.of(_key(server))
        most = counts.get(name.key, least[server.install.registry])
        alike = [
            (slips, original.key)
            for original, count in originals
            if count >= MORE_USED * most
            and original.key.startswith(f"{server.install.registry}:")
            and not (name.scope and name.scope == original.scope)
            and (slips := _slips(name, original)) <= 1
        ]
        if alike:
            found[place] = min(alike, key=lambda pair: pair[0])[1]
    copies = {_key(servers[place]): original for place, original in found.items()}
    for place, original in found.items():
        while original in copies:  # a copy of a copy
            original = copies[original]
        found[place] = original
    return found


def _key(server: Server) -> str:
    return f"{server.install.registry}:{server.install.package}"


def _slips(name: _Name, original: _Name) -> int:
    """Slips of the pen between two names, 2 for more than one."""
    if name.plain == original.plain:
        return 0
    long = min(name.own, original.own) >= _SHORTEST and name.plain[0] == original.plain[0]
    return 1 if long and one_slip(name.plain, original.plain) else 2


def one_slip(one: str, other: str) -> bool:
    """Whether one letter more, less or another, or two swapped neighbors make one text of the other."""
    if abs(len(one) - len(other)) > 1 or one == other:
        return False
    start = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    one, other = one[start:], other[start:]
    swapped = one[:2] == other[1::-1] and one[2:] == other[2:]
    return swapped or one[1:] == other[1:] or one[1:] == other or one == other[1:]
