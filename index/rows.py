"""Records to database rows and back, and what a text must be to be stored.

What is stored fits both databases and every consumer behind them: a lone surrogate becomes U+FFFD everywhere; U+0000,
which PostgreSQL's text cannot hold, becomes U+FFFD in plain texts and stays in schemas, where a pattern or an
enumeration may mean it. Fingerprints are computed over the stored form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolscout.errors import BadInput
from toolscout.jsonl import well_formed
from toolscout.records import Call, Record, Server, Tool, Trajectory, canonical_json

MAX_ID = 2000
"""Longest id stored, in UTF-8 bytes; a database index holds no more."""

MAX_DEPTH = 200
"""Most levels of nesting stored: what pydantic can still write as JSON, with the record around it."""

_JSON_FIELDS = frozenset(
    {"sources", "install", "input_schema", "output_schema", "annotations", "findings"}
    | {"gold", "relevant", "candidates", "messages", "tools", "calls"}
)


def plain(text: str) -> str:
    """The stored form of a plain text or id."""
    if text.isascii():
        return text.replace("\0", "�")
    return str(well_formed(text)).replace("\0", "�")


_FACTS_OF_PACK = frozenset({"publisher", "official", "published", "updated", "looks_like"})
"""Not stored: the pack has worked them out, and what an imported file says of them is nobody's to believe."""


def server_row(server: Server) -> dict[str, Any]:
    """Columns of the server table."""
    row = _row(server, "server_id")
    return {name: value for name, value in row.items() if name not in _FACTS_OF_PACK}


def tool_row(tool: Tool) -> dict[str, Any]:
    """Columns of the tool table that the record has (``accepted`` is the catalogue's own); fingerprint computed.

    Raises:
        BadInput: an id that is too long, or a schema nested too deeply to be written.
    """
    row = _row(tool, "tool_id")
    row["server_id"] = plain(tool.server_id)
    stored = Tool.model_construct(**{k: row[k] for k in _FINGERPRINTED})
    try:
        row["fingerprint"] = stored.computed_fingerprint()
    except (RecursionError, ValueError) as error:  # ValueError: an integer of thousands of digits
        raise BadInput(f"The schema of {row['tool_id'][:200]} cannot be stored: {error}.") from None
    return row


def exemplar_row(call: Call) -> dict[str, Any]:
    """Columns of the exemplar table; the tool ids in it are the stored ones."""
    row = _row(call, "id")
    row["gold"] = [gold | {"tool_id": plain(gold["tool_id"])} for gold in row["gold"]]
    for name in ("relevant", "candidates"):
        if row[name] is not None:
            row[name] = [plain(tool_id) for tool_id in row[name]]
    return row


def trajectory_row(trajectory: Trajectory) -> dict[str, Any]:
    """Columns of the trajectory table."""
    return _row(trajectory, "id")


_FINGERPRINTED = ("name", "description", "input_schema", "output_schema", "annotations")


def _shallow(value: Any, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_shallow(one, levels - 1) for one in inner)


def _row(record: Record, key: str) -> dict[str, Any]:
    try:
        row = record.model_dump()
        for name, value in row.items():
            if isinstance(value, str):
                row[name] = plain(value)
            elif name in _JSON_FIELDS and value:
                if not _shallow(value, MAX_DEPTH):
                    raise RecursionError
                row[name] = well_formed(value)
    except (RecursionError, ValueError):  # ValueError: pydantic's own limit
        raise BadInput(f"{getattr(record, key)[:200]} is nested too deeply to be stored.") from None
    if len(row[key].encode()) > MAX_ID:
        raise BadInput(f"The id {row[key][:100]}... is longer than {MAX_ID} bytes.")
    return row


def reads_as(row: Mapping[str, Any], fingerprint: str | None, title: str | None) -> bool:
    """Whether a tool says no more than an accepted version. A fingerprint knows no title, so that is compared beside
    it: one that is left out, or only spells the tool's name, is no change."""
    if row["fingerprint"] != fingerprint:
        return False
    said = row["title"]
    if said is None or said == title:
        return True
    # Letters are not all that a model reads, but of plain ASCII they are all that says something.
    return bool(said.isascii() and said.isprintable() and _letters(said) in _letters(row["name"]))


def settled(row: dict[str, Any], known: Mapping[str, Any] | None) -> dict[str, Any]:
    """The row as ``known`` words it, where no more than the order differs of lists whose order means nothing: many
    servers write such a list from a set, and so in another order at each start."""
    if known is None or row["fingerprint"] in ("", known["fingerprint"]):
        return row
    if any(canonical_json(_unordered(row[name])) != canonical_json(_unordered(known[name])) for name in _FINGERPRINTED):
        return row
    return row | {name: known[name] for name in (*_FINGERPRINTED, "fingerprint")}


def _unordered(value: Any) -> Any:
    if isinstance(value, list):
        return [_unordered(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: sorted(map(canonical_json, item))
        if name in ("enum", "required", "type") and isinstance(item, list)
        else _unordered(item)
        for name, item in value.items()
    }


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text.casefold()))
