"""Reading evaluation rows: which rows are measured, in which split and language they count."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from toolscout.errors import BadInput, NotFound
from toolscout.jsonl import read_records
from toolscout.records import Call, JsonObject, Server, Tool

Say = Callable[[str], None]
T = TypeVar("T")


def silent(_: str) -> None:
    """Progress that nobody reads."""


def draw(seed: int, text: str) -> int:
    """A number that depends on the seed and the text alone: 64 bits of SHA-256."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{text}".encode("utf-8", "surrogatepass")).digest()[:8], "big")


def read_calls(paths: Sequence[Path], limit: int | None = None, seed: int = 0) -> list[Call]:
    """The rows of all files. ``limit`` keeps that many, drawn by a hash of seed and row id: the same rows at every run.

    Raises BadInput when there are none, or when an id occurs twice.
    """
    rows = [row for path in paths for row in read_records(path, Call)]
    if not rows:
        raise BadInput("The calls files hold no rows.", "Give at least one file of calls with --calls.")
    seen: set[str] = set()
    for row in rows:
        if row.id in seen:
            raise BadInput(f"The row id {row.id!r} occurs twice in the calls files.", "Row ids must be unique.")
        seen.add(row.id)
    if limit is not None and limit < len(rows):
        kept = {row.id for row in sorted(rows, key=lambda row: draw(seed, row.id))[:limit]}
        rows = [row for row in rows if row.id in kept]
    return rows


def read_tools(paths: Sequence[Path]) -> dict[str, Tool]:
    """The pool by tool id; of two tools with one id the first counts, as in an import."""
    tools: dict[str, Tool] = {}
    for path in paths:
        for tool in read_records(path, Tool):
            tools.setdefault(tool.tool_id, tool)
    if not tools:
        raise BadInput("The tools files hold no tools.", "Give at least one file of tools with --tools.")
    return tools


def check_files(tools: Iterable[Path], servers: Iterable[Path] = ()) -> None:
    """Asked before an index is built: an import's own words would speak of a catalogue that nobody fills.

    Raises NotFound for a file that does not exist; the hint names the option that gave it.
    """
    for option, paths in (("--tools", tools), ("--servers", servers)):
        for path in paths:
            if not path.exists():
                raise NotFound(f"There is no file {path}.", f"Check the paths of {option}.")
            if path.is_dir():
                raise BadInput(f"{path} is a folder.", f"Give {option} files.")


def read_servers(paths: Sequence[Path]) -> dict[str, Server]:
    """Servers by id; of two with one id the first counts, as in an import."""
    servers: dict[str, Server] = {}
    for path in paths:
        for server in read_records(path, Server):
            servers.setdefault(server.server_id, server)
    return servers


def split_of(row: Call) -> str:
    """The split a row counts in: its own, else its source."""
    return row.split or row.source or "all"


def marketplace_of(row: Call, server_of: Mapping[str, Server | None] | None = None) -> str:
    """Where the first gold tool's server was found: the first source of its record, else what an id of three parts
    (MARKETPLACE/SERVER/TOOL) begins with. An id of two parts names no marketplace: ``unknown``.

    :param server_of: servers by tool id, as far as they are known.
    """
    if not row.gold:
        return "unknown"
    tool_id = row.gold[0].tool_id
    server = (server_of or {}).get(tool_id)
    if server is not None and server.sources:
        return server.sources[0].marketplace
    return tool_id.partition("/")[0] if tool_id.count("/") > 1 else "unknown"


def lang_of(row: Call) -> str:
    """The language a row counts in."""
    return row.lang or "unknown"


def grouped(rows: Iterable[T], key: Callable[[T], str]) -> dict[str, list[T]]:
    """Rows by key, keys in alphabetical order."""
    groups: dict[str, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return dict(sorted(groups.items()))


def missing_gold(rows: Iterable[Call], known: Callable[[str], bool]) -> list[str]:
    """Gold tool ids that the pool does not hold, each once, in order."""
    return list(dict.fromkeys(g.tool_id for row in rows for g in row.gold if not known(g.tool_id)))


def definition(tool: Tool) -> JsonObject:
    """What a model reads of a tool: tools equal in this cannot be told apart."""
    return {"name": tool.name, "description": tool.description, "input_schema": tool.input_schema}
