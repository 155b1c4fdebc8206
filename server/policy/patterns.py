"""Patterns of a policy: globs over names, and globs or regular expressions over the values of a call's arguments.

Regular expressions run on an engine that is linear in the length of the text (jsonschema-rs): the values come from a
model, and a pattern that takes for ever would be a way around a rule.
"""

from __future__ import annotations

import fnmatch
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

REGEX = "re:"
ANYWHERE = "*"
Matcher = Callable[[str], bool]


def glob_matcher(globs: Sequence[str]) -> Matcher:
    """Whether a text matches one of the globs as a whole (``*``, ``?``, ``[...]``; case counts, ``*`` also spans /)."""
    if all(g == "*" for g in globs):
        return lambda text: True
    whole = re.compile("|".join(fnmatch.translate(g) for g in globs), re.DOTALL)
    return lambda text: whole.match(text) is not None


def text_matcher(patterns: Sequence[str]) -> Matcher:
    """As `glob_matcher`; a pattern that starts with ``re:`` is a regular expression, found anywhere in the text.

    Raises ValueError for a regular expression that cannot be compiled.
    """
    globs = [p for p in patterns if not p.startswith(REGEX)]
    matchers = [_regex_matcher(p.removeprefix(REGEX)) for p in patterns if p.startswith(REGEX)]
    if globs:
        matchers.append(glob_matcher(globs))
    return matchers[0] if len(matchers) == 1 else lambda text: any(matches(text) for matches in matchers)


def _regex_matcher(pattern: str) -> Matcher:
    import jsonschema_rs

    try:
        validator = jsonschema_rs.validator_for(
            {"type": "string", "pattern": pattern}, pattern_options=jsonschema_rs.RegexOptions()
        )
    except jsonschema_rs.ValidationError:
        raise ValueError(
            f"'{pattern}' is no regular expression that can be used (look-around and back-references cannot)"
        ) from None

    def matches(text: str) -> bool:
        # A lone surrogate is no text to the engine: what it stands for cannot be matched, the rest can.
        return bool(validator.is_valid(text.encode("utf-8", "replace").decode()))

    return matches


def value_texts(arguments: Mapping[str, Any], path: str, *, keys: bool = False) -> Iterator[str]:
    """The texts of all values under an argument: its own, and those inside of lists and objects.

    ``path`` is an argument's name, ``a.b`` for a field of an object (also of objects in a list), or ``*`` for all
    arguments. Text is given as it is, other values as JSON (``true``, ``12``, ``null``). With ``keys`` also the keys of
    objects in there: of a mapping from paths to texts they are what matters.
    """
    if path == ANYWHERE:
        found: list[Any] = list(arguments.values())
    else:
        found = [arguments]
        for part in path.split("."):
            found = [inner[part] for inner in _objects(found) if part in inner]
        if "." in path and path in arguments:
            found.append(arguments[path])
    while found:
        value = found.pop()
        if isinstance(value, Mapping):
            found.extend(value.values())
            if keys:
                yield from map(str, value)
        elif isinstance(value, list | tuple):
            found.extend(value)
        else:
            if isinstance(value, float) and value.is_integer():
                value = int(value)  # 22.0 is 22 in JSON
            yield value if isinstance(value, str) else json.dumps(value, default=str)


def _objects(values: list[Any]) -> Iterator[Mapping[str, Any]]:
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            yield value
        elif isinstance(value, list | tuple):
            waiting.extend(value)
