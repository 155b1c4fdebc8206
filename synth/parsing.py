"""What models write, read strictly into a given form; only slips that leave no doubt are mended.

Mended are: text around the JSON (prose, code fences, a reasoning block), commas before a closing bracket, typographic
quotes around names and values, Python's ``True``, ``False`` and ``None``, an answer broken off inside a list of texts
(what was whole stays), and a lone list where the form has one list. Anything else is `Unreadable`, and says why.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

M = TypeVar("M", bound=BaseModel)

_THOUGHT = re.compile(r"<think(?:ing)?>.*?(?:</think(?:ing)?>|\Z)", re.DOTALL | re.IGNORECASE)
_COMMA = re.compile(r",(\s*[}\]])")
_PYTHON = {"True": "true", "False": "false", "None": "null"}
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_OPENING = re.compile(r"[{\[]")
_ITEM = re.compile(r'\s*"(?:[^"\\]|\\.)*"\s*(,|\])?', re.DOTALL)
_LIST = re.compile(r'\{\s*"[^"\\]*"\s*:\s*\[')
_MOST_STARTS = 200


class Unreadable(ValueError):
    """The answer has not the form that was asked for; the message says what is wrong, for its model to read."""


def read_answer(text: str, form: type[M]) -> M:
    """The first JSON value in a text that has the form. Raises Unreadable."""
    problem = "it holds no JSON object."
    for value in _values(text):
        lists = [n for n, f in form.model_fields.items() if "list" in str(f.annotation)]
        if isinstance(value, list) and len(lists) == 1:
            value = {lists[0]: value}
        if not isinstance(value, dict):
            continue
        try:
            return form.model_validate(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"]) or "the object"
            problem = f"{place}: {first['msg']}."
    raise Unreadable(problem)


def read_object(text: str) -> dict[str, Any]:
    """The first JSON object in a text. Raises Unreadable."""
    for value in _values(text):
        if isinstance(value, dict):
            return value
    raise Unreadable("it holds no JSON object.")


def _values(text: str) -> list[Any]:
    """JSON values in a text, those read as they stand before those that needed mending."""
    text = _THOUGHT.sub("", text)
    found = _scan(text)
    if not found:
        found = _scan(_mended(text))
    if not found and (whole := _broken_off(text)) is not None:
        found = [whole]
    return found


def _scan(text: str) -> list[Any]:
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    found: list[Any] = []
    at, starts, end = 0, 0, len(text.rstrip())
    while starts < _MOST_STARTS and (match := _OPENING.search(text, at)) is not None:
        starts += 1
        try:
            value, at = decoder.raw_decode(text, match.start())
        except json.JSONDecodeError as error:
            if error.pos >= end or error.msg.startswith("Unterminated string"):
                break  # it breaks off: what stands inside is a part of the answer, not the answer
            at = match.start() + 1
            continue
        except (ValueError, RecursionError):
            at = match.start() + 1
            continue
        found.append(value)
    return found


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not a JSON number")


def _mended(text: str) -> str:
    if '"' not in text:
        text = re.sub("[“”„]", '"', text)
    parts, last = [], 0
    for match in _STRING.finditer(text):  # strings stay as they are, but for raw line breaks
        parts += [_loose(text[last : match.start()]), match.group().replace("\n", "\\n").replace("\t", "\\t")]
        last = match.end()
    parts.append(_loose(text[last:]))
    return "".join(parts)


def _loose(text: str) -> str:
    """What stands between strings."""
    return re.sub(r"\b(True|False|None)\b", lambda m: _PYTHON[m.group()], _COMMA.sub(r"\1", text))


def _broken_off(text: str) -> Any:
    """``{"name": ["whole", "whole", "brok`` closed after its last whole text; None for any other break."""
    match = _LIST.match(text, max(0, text.find("{")))
    if match is None:
        return None
    end, inside = 0, text[match.end() :]
    while (item := _ITEM.match(inside, end)) is not None:
        end = item.end()
        if item.group(1) is None:
            break
    whole = inside[:end].rstrip().rstrip(",]")
    try:
        return json.loads(f"{text[match.start() : match.end()]}{whole}]}}") if whole else None
    except ValueError:
        return None
