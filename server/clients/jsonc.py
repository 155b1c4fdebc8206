"""JSON with comments: read it, and change one member of it without touching any other byte.

Editors keep their configuration in JSON with ``//`` and ``/* */`` comments and trailing commas. Parsing such a file
and dumping it again would destroy the user's comments and layout, so edits here are textual: the member's place is
found, the text is spliced, and the result is parsed again and compared with what was meant. An edit that does not
come out exactly as meant is refused.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from toolscout.errors import BadInput

_MAX_DEPTH = 200
_BLANK = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)+", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_ATOM = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null")


@dataclass
class _Member:
    key: str
    start: int
    value: _Node
    comma: int | None = None
    """Offset of the comma after the value, if there is one."""


@dataclass
class _Node:
    start: int
    end: int
    value: Any
    members: list[_Member] = field(default_factory=list)

    def member(self, key: str) -> _Member | None:
        """The member that readers see: the last one of that name."""
        return next((m for m in reversed(self.members) if m.key == key), None)


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def parse(self) -> _Node:
        node = self._value(0)
        self._blank()
        if self.at != len(self.text):
            raise self._error("unexpected text after the end of the document")
        return node

    def _error(self, what: str) -> BadInput:
        line = self.text.count("\n", 0, self.at) + 1
        column = self.at - (self.text.rfind("\n", 0, self.at) + 1) + 1
        return BadInput(f"Not valid JSON: {what} at line {line}, column {column}.")

    def _blank(self) -> None:
        match = _BLANK.match(self.text, self.at)
        if match:
            self.at = match.end()
        if self.text.startswith("/*", self.at):
            raise self._error("a comment that is never closed")

    def _peek(self) -> str:
        self._blank()
        return self.text[self.at : self.at + 1]

    def _value(self, depth: int) -> _Node:
        if depth > _MAX_DEPTH:
            raise self._error("nesting that is too deep")
        char = self._peek()
        if char == "{":
            return self._object(depth)
        if char == "[":
            return self._array(depth)
        start = self.at
        if char == '"':
            text = self._string()
            return _Node(start, self.at, text)
        match = _ATOM.match(self.text, self.at)
        if not match:
            raise self._error("a missing value" if not char else f"unexpected {char!r}")
        try:
            value = json.loads(match.group())
        except ValueError:  # more digits than Python reads
            raise self._error("a number that is too long") from None
        self.at = match.end()
        return _Node(start, self.at, value)

    def _string(self) -> str:
        match = _STRING.match(self.text, self.at)
        if not match:
            raise self._error("a string that is not closed on its line")
        try:
            text = json.loads(match.group())
        except ValueError:
            raise self._error("a bad escape in a string") from None
        self.at = match.end()
        return str(text)

    def _object(self, depth: int) -> _Node:
        node = _Node(self.at, self.at, {})
        self.at += 1
        while (char := self._peek()) != "}":
            if char != '"':
                raise self._error('a missing "}"' if not char else "a key that is not a quoted string")
            start = self.at
            key = self._string()
            if self._peek() != ":":
                raise self._error("a missing colon")
            self.at += 1
            member = _Member(key, start, self._value(depth + 1))
            node.members.append(member)
            node.value[key] = member.value.value
            if self._peek() == ",":
                member.comma = self.at
                self.at += 1
            elif self._peek() != "}":
                raise self._error("a missing comma" if self._peek() else 'a missing "}"')
        self.at += 1
        node.end = self.at
        return node

    def _array(self, depth: int) -> _Node:
        node = _Node(self.at, self.at, [])
        self.at += 1
        while self._peek() != "]":
            node.value.append(self._value(depth + 1).value)
            if self._peek() == ",":
                self.at += 1
            elif self._peek() != "]":
                raise self._error("a missing comma" if self._peek() else 'a missing "]"')
        self.at += 1
        node.end = self.at
        return node


def loads(text: str) -> Any:
    """The value of a JSON document; comments and trailing commas are allowed.

    Raises BadInput with line and column.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _Parser(text).parse().value


def set_member(text: str, path: Sequence[str], value: Any) -> str:
    """``text`` with the member at ``path`` set to ``value``; objects on the way are made where missing.

    Every byte outside the new member (and the comma before it) stays as it was. Raises BadInput if the document
    cannot be parsed or something on the way is not an object.
    """
    if not text.strip():
        newline = "\r\n" if "\r\n" in text else "\n"
        return _dump(_nest(path, value), "  ", newline) + newline
    root = _Parser(text).parse()
    wanted = copy.deepcopy(root.value)
    node, done = root, 0
    while True:
        if not isinstance(node.value, dict):
            where = ".".join(path[:done]) or "the document"
            raise BadInput(f"Not the expected form: {where} is not an object.")
        member = node.member(path[done])
        if member is None or done == len(path) - 1:
            break
        node, done = member.value, done + 1
    _assign(wanted, path, value)
    if member is not None:
        indent = _line_indent(text, member.start)
        rendered = _dump(value, _unit(text, root), _newline(text), indent)
        edited = text[: member.value.start] + rendered + text[member.value.end :]
    else:
        edited = _insert(text, root, node, path[done], _nest(path[done + 1 :], value))
    return _verified(edited, wanted)


def remove_member(text: str, path: Sequence[str]) -> str:
    """``text`` without the member at ``path``; unchanged if it is not there. Raises BadInput if it cannot be parsed."""
    root = _Parser(text).parse()
    node = root
    for key in path[:-1]:
        member = node.member(key)
        if member is None or not isinstance(member.value.value, dict):
            return text
        node = member.value
    target = node.member(path[-1])
    if target is None:
        return text
    wanted = copy.deepcopy(root.value)
    holder = wanted
    for key in path[:-1]:
        holder = holder[key]
    del holder[path[-1]]
    for edited in _removals(text, node, target):
        if _matches(edited, wanted):
            return edited
    raise BadInput(f"The entry {path[-1]!r} could not be removed without changing something else.")


def _removals(text: str, node: _Node, target: _Member) -> list[str]:
    """Candidate texts without ``target``, the tidiest first."""
    position = node.members.index(target)
    previous = node.members[position - 1] if position else None
    last = position == len(node.members) - 1
    end = target.value.end if target.comma is None else target.comma + 1
    if len(node.members) == 1:
        inner = text[node.start + 1 : target.start] + text[end : node.end - 1]
        if not inner.strip():
            return [text[: node.start] + "{}" + text[node.end :]]
    if not last or previous is None:
        start, stop = target.start, end
        while start and text[start - 1] in " \t":
            start -= 1
        tail = re.compile(r"[ \t]*").match(text, stop)
        stop = tail.end() if tail else stop
        if start and text[start - 1] == "\n" and text.startswith(("\n", "\r\n"), stop):
            stop = text.index("\n", stop) + 1
            return [text[:start] + text[stop:], text[: target.start] + text[end:]]
        return [text[: target.start] + text[stop:], text[: target.start] + text[end:]]
    start = target.start
    while text[start - 1] in " \t\r\n":
        start -= 1
    cut = text[:start] + text[end:]
    plain = text[: target.start] + text[end:]
    if target.comma is None and previous.comma is not None:
        comma = previous.comma
        return [
            cut[:comma] + cut[comma + 1 :],
            plain[:comma] + plain[comma + 1 :],
        ]
    return [cut, plain]


def _insert(text: str, root: _Node, node: _Node, key: str, value: Any) -> str:
    newline, unit = _newline(text), _unit(text, root)
    body = text[node.start + 1 : node.end - 1]
    quoted = json.dumps(key, ensure_ascii=False)
    if node.members and "\n" not in body:  # everything on one line stays on one line
        comma = node.members[-1].comma
        at = node.members[-1].value.end if comma is None else comma + 1
        one_line = f"{quoted}: {json.dumps(value, ensure_ascii=False)}"
        return f"{text[:at]}, {one_line}{text[at:]}" if comma is None else f"{text[:at]} {one_line},{text[at:]}"
    if not body.strip() and "\n" not in text.strip():
        return f"{text[: node.start]}{{{quoted}: {json.dumps(value, ensure_ascii=False)}}}{text[node.end :]}"
    outer = _line_indent(text, node.start)
    inner = outer + unit
    if node.members:
        last = node.members[-1]
        own = _own_line_indent(text, last.start)
        inner = inner if own is None else own
    entry = f"{inner}{quoted}: {_dump(value, unit, newline, inner)}"
    if not body.strip():
        return f"{text[: node.start]}{{{newline}{entry}{newline}{outer}}}{text[node.end :]}"
    stop = node.end - 1
    while text[stop - 1] in " \t\r\n":
        stop -= 1
    closing = text[stop:] if "\n" in text[stop : node.end] else f"{newline}{outer}{text[node.end - 1 :]}"
    head = text[:stop]
    if node.members and node.members[-1].comma is None:
        end = node.members[-1].value.end
        head = f"{text[:end]},{text[end:stop]}"
    elif node.members:
        entry += ","  # the file's own style: a comma after the last member too
    return f"{head}{newline}{entry}{closing}"


def _nest(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _assign(document: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for key in path[:-1]:
        document = document.setdefault(key, {})
    document[path[-1]] = value


def _dump(value: Any, unit: str, newline: str, indent: str = "") -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return (newline + indent).join(lines)


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _line_indent(text: str, at: int) -> str:
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _own_line_indent(text: str, at: int) -> str | None:
    """What stands before ``at`` on its line, if that is only white space."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return line if not line.strip(" \t") and "\n" in text[:at] else None


def _unit(text: str, root: _Node) -> str:
    for member in root.members:
        own = _own_line_indent(text, member.start)
        if own:
            return own
    return "  "


def _matches(text: str, wanted: Any) -> bool:
    try:
        return bool(_Parser(text).parse().value == wanted)
    except BadInput:
        return False


def _verified(text: str, wanted: Any) -> str:
    if not _matches(text, wanted):
        raise BadInput("The file's layout does not allow a safe edit.")
    return text
