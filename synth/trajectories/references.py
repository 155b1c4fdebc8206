"""References to earlier results, ``"$id.path"``: read, looked up in what came back, put in their place.

Gold calls are written before anybody has seen a result, so a path is often right in meaning and wrong in spelling.
A value is looked for in this order, and how it was found is recorded:

exact    the path as it stands, in the structured content, else in the JSON of the text
alike    names without regard to case, ``_`` and ``-``; below a wrapper (``result``, ``data``); a list's first
found    the path's last name, where it stands exactly once (or always with the same value) in the whole result
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toolscout.records import JsonObject
from toolscout.responses import Response

EXACT, ALIKE, FOUND, READ = "exact", "alike", "found", "read"
"""How a value was found; ``read`` is a model's reading of a result in prose."""

_REFERENCE = re.compile(r"\$(\w[\w-]*)((?:\.[^.\[\]\s]+|\[\d+\])*)")
_PART = re.compile(r"\.([^.\[\]\s]+)|\[(\d+)\]")
_WRAPPERS = ("result", "results", "data", "response", "content", "output", "items", "value")
_MISSING = object()


@dataclass(frozen=True)
class Reference:
    """A reference as it was written, the step that it refers to, and the way to the value."""

    text: str
    step: str
    path: tuple[str | int, ...]


def read_reference(value: object, steps: Sequence[str] | None = None) -> Reference | None:
    """A reference, or None. With ``steps``, only to one of them: "$HOME" is a text like any other."""
    match = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if match is None or (steps is not None and match.group(1) not in steps):
        return None
    path = tuple(name or int(index) for name, index in _PART.findall(match.group(2)))
    return Reference(match.group(), match.group(1), path)


def references(value: object, steps: Sequence[str] | None = None) -> Iterator[Reference]:
    """All references within a value."""
    found = read_reference(value, steps)
    if found is not None:
        yield found
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for one in inner:
        yield from references(one, steps)


def put_in(arguments: JsonObject, given: Callable[[Reference, str], Any], steps: Sequence[str]) -> JsonObject:
    """The arguments with what ``given(reference, name of the argument)`` returns in the place of each reference."""

    def put(value: Any, name: str) -> Any:
        found = read_reference(value, steps)
        if found is not None:
            return given(found, name)
        if isinstance(value, dict):
            return {k: put(v, name) for k, v in value.items()}
        return [put(v, name) for v in value] if isinstance(value, list) else value

    return {name: put(value, name) for name, value in arguments.items()}


def look_up(response: Response, path: Sequence[str | int]) -> tuple[Any, str] | None:
    """(value, how it was found) in a response, or None."""
    sources = [s for s in (response.structured, _parsed(response.text)) if s is not None]
    if not path:
        return _whole(response), EXACT
    for source in sources:
        if (value := _walk(source, path, loose=False)) is not _MISSING:
            return value, EXACT
    for source in sources:
        for start in (source, *_unwrapped(source)):
            for way in (path, path[1:] if len(path) > 1 and _folded(path[0]) in _WRAPPERS else path):
                if (value := _walk(start, way, loose=True)) is not _MISSING:
                    return value, ALIKE
    for source in sources if isinstance(path[-1], str) else ():
        hits = [v for k, v in _members(source) if _folded(k) == _folded(path[-1]) and v is not None]
        if hits and all(v == hits[0] for v in hits):
            return hits[0], FOUND
    return None


def fitted(value: Any, node: JsonObject) -> Any:
    """The value in the form that a parameter wants where that leaves no doubt: an id 42 as "42", "42" as 42."""
    kinds = node.get("type")
    wanted = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if "string" in wanted and not isinstance(value, str) and value is not None:
        if isinstance(value, bool) or len(wanted) > 1:
            return value
        return str(value) if isinstance(value, int | float) else json.dumps(value, ensure_ascii=False)
    if isinstance(value, str) and wanted and "string" not in wanted:
        try:
            number = json.loads(value)
        except ValueError:
            return value
        is_whole = isinstance(number, int) and not isinstance(number, bool)
        if (is_whole and {"integer", "number"} & set(wanted)) or (isinstance(number, float) and "number" in wanted):
            return number
    return value


def stands_in(value: Any, text: str) -> bool:
    """Whether each word or number of a value stands in a text: nothing that a model read may be its own."""
    if isinstance(value, dict | list):
        inner = list(value.values()) if isinstance(value, dict) else value
        return bool(inner) and all(stands_in(v, text) for v in inner)
    if isinstance(value, bool) or value is None:
        return False
    said = str(value).strip().casefold()
    return bool(said) and re.search(rf"(?<!\w){re.escape(said)}(?!\w)", text.casefold()) is not None


def _whole(response: Response) -> Any:
    value = response.structured
    if isinstance(value, dict) and set(value) == {"result"}:
        return value["result"]  # how FastMCP servers wrap what is no object
    return response.text if value is None or response.text.strip() else value


def _walk(value: Any, path: Sequence[str | int], *, loose: bool) -> Any:
    for part in path:
        if loose and isinstance(value, str):
            value = _parsed(value)
        if isinstance(part, str) and part.isdigit() and isinstance(value, list):
            part = int(part)
        if isinstance(value, list) and isinstance(part, str) and loose and value:
            value = value[0]
        if isinstance(value, list):
            if not isinstance(part, int) or part >= len(value):
                return _MISSING
            value = value[part]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        elif isinstance(value, dict) and isinstance(part, str) and loose:
            alike = [v for k, v in value.items() if _folded(k) == _folded(part)]
            if len(alike) != 1:
                return _MISSING
            value = alike[0]
        else:
            return _MISSING
    return value if value is not None else _MISSING


def _unwrapped(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name, inner in value.items():
            if _folded(name) in _WRAPPERS and isinstance(inner, dict | list | str):
                yield inner


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from value.items()
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _members(inner)


def _folded(name: str | int) -> str:
    return re.sub(r"[\s_-]", "", str(name)).casefold()


def _parsed(text: str) -> Any:
    if not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
