"""YAML: change one entry of a mapping without touching any other byte.

What is written is text of its own at a place that the parser names; the result is parsed again and compared with what
was meant. An edit that does not come out exactly as meant is refused.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from typing import Any

from toolscout.errors import BadInput
from toolscout.server.clients.documents import load_yaml


def set_entry(text: str, keys: Sequence[str], entry: Mapping[str, Any]) -> str:
    """``text`` with ``entry`` at the two ``keys``. Raises BadInput."""
    outer, name = keys
    newline = "\r\n" if "\r\n" in text else "\n"
    wanted = copy.deepcopy(load_yaml(text)) if text.strip() else {}
    wanted = {} if wanted is None else wanted
    if not isinstance(wanted, dict) or not isinstance(wanted.get(outer) or {}, dict):
        raise BadInput(f"Not the expected form: {outer} is not a mapping.")
    wanted[outer] = {**(wanted.get(outer) or {}), name: dict(entry)}
    member = _member(_root(text), outer)
    if member is None:
        gap = newline if text and not text.endswith(("\n", "\r")) else ""
        edited = text + gap + block({outer: {name: entry}}, newline)
    elif _is_block(member[1]):
        edited = _set_in_block(text, member[1], name, entry, newline)
    else:
        holder = json.dumps(wanted[outer], ensure_ascii=False)
        start, end = member[1].start_mark.index, member[1].end_mark.index
        edited = f"{text[:start]}{'' if text[:start].endswith(' ') else ' '}{holder}{text[end:]}"
    return _verified(edited, wanted)


def remove_entry(text: str, keys: Sequence[str]) -> str:
    """``text`` without the entry at ``keys`` (one or two), or as it is without one. Raises BadInput."""
    holder = _root(text)
    for key in keys[:-1]:
        found = _member(holder, key)
        holder = found[1] if found else None
    member = _member(holder, keys[-1])
    if holder is None or member is None:
        return text
    wanted = copy.deepcopy(load_yaml(text))
    inner = wanted
    for key in keys[:-1]:
        inner = inner[key]
    del inner[keys[-1]]
    if _is_block(holder) and (inner or len(keys) == 1):
        start, end = _lines(text, holder, member)
        return _verified(text[:start] + text[end:], wanted)
    start, end = holder.start_mark.index, _content_end(holder)
    if _is_block(holder):
        start = text.rindex(":", 0, start) + 1
    return _verified(f"{text[:start].rstrip(' ')} {json.dumps(inner, ensure_ascii=False)}{text[end:]}", wanted)


def block(document: Mapping[str, Any], newline: str = "\n") -> str:
    """A document in block style."""
    import yaml  # type: ignore[import-untyped]

    dumped: str = yaml.safe_dump(_plain(document), sort_keys=False, allow_unicode=True, width=10_000)
    return dumped.replace("\n", newline)


def _set_in_block(text: str, holder: Any, name: str, entry: Mapping[str, Any], newline: str) -> str:
    """The entry before the others, whose layout it takes; or in the place of one of its name."""
    first = holder.value[0][0].start_mark
    member = _member(holder, name)
    start, end = _lines(text, holder, member) if member else (first.index - first.column,) * 2
    lines = block({name: entry}, newline).splitlines(keepends=True)
    return text[:start] + "".join(" " * first.column + line for line in lines) + text[end:]


def _root(text: str) -> Any:
    import yaml

    return yaml.compose(text, Loader=yaml.SafeLoader) if text.strip() else None


def _member(holder: Any, name: str) -> Any:
    pairs = holder.value if holder is not None and holder.id == "mapping" else ()
    return next((pair for pair in pairs if pair[0].value == name), None)


def _is_block(node: Any) -> bool:
    return bool(node.id == "mapping" and not node.flow_style)


def _lines(text: str, holder: Any, member: Any) -> tuple[int, int]:
    """Where the lines of a member begin and end: up to the next member, or to the end of what is in the last."""
    start = member[0].start_mark.index - member[0].start_mark.column
    following = [key.start_mark for key, _ in holder.value if key.start_mark.index > member[0].start_mark.index]
    if following:
        return start, following[0].index - following[0].column
    end = text.find("\n", max(_content_end(member[1]) - 1, start))
    return start, len(text) if end < 0 else end + 1


def _content_end(node: Any) -> int:
    """Where the last character of a node stands; a mapping's own mark is behind the comments that follow it."""
    while node.id != "scalar" and not node.flow_style and node.value:
        last = node.value[-1]
        node = last[1] if isinstance(last, tuple) else last
    return int(node.end_mark.index)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _verified(text: str, wanted: Any) -> str:
    try:
        same = (load_yaml(text) or {}) == wanted
    except BadInput:
        same = False
    if not same:
        raise BadInput("The file's layout does not allow a safe edit.")
    return text
