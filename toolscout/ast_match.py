"""Tool, Param and AST accuracy of suggested calls (MCP-Flow, arXiv 2510.24284, C.2; rules of BFCL's AST check).

* Tool: the right tools are called, each as often as the gold says.
* Param: each gold call is met by a call with the right tool and the right set of argument names: every required and
  every expected one is there, none is invented.
* AST: and every value is right, see `values_match`.

Calls are matched to gold calls without regard to order, one to one, as in BFCL's parallel categories.
docs/EVALUATION.md gives the rules at length, how far they agree with the package ``bfcl-eval``, and where they differ
on purpose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolscout.records import GoldCall, JsonObject
from toolscout.schema import pointer

OMITTED = ""
"""In a list of accepted values: the argument may be left out."""

_IGNORED = re.compile(r"[ ,./\-_*^]")


@dataclass(frozen=True)
class MadeCall:
    """A call as a model made it."""

    tool_id: str
    arguments: JsonObject


@dataclass(frozen=True)
class Match:
    """Verdict on one row. ``ast`` implies ``param``, ``param`` implies ``tool``."""

    tool: bool
    param: bool
    ast: bool


def match_calls(made: Sequence[MadeCall], gold: Sequence[GoldCall], schemas: Mapping[str, JsonObject]) -> Match:
    """Verdict on the calls made for one request with at least one gold call.

    ``schemas`` maps tool ids to input schemas; a tool without one is judged by the gold values alone.
    """
    if Counter(call.tool_id for call in made) != Counter(call.tool_id for call in gold):
        return Match(False, False, False)

    def schema_of(call: GoldCall) -> JsonObject:
        return schemas.get(call.tool_id) or {}

    names = _all_matched(gold, made, lambda g, m: g.tool_id == m.tool_id and names_match(m.arguments, g, schema_of(g)))
    if not names:
        return Match(True, False, False)
    values = _all_matched(gold, made, lambda g, m: call_matches(m, g, schema_of(g)))
    return Match(True, True, values)


def call_matches(made: MadeCall, gold: GoldCall, schema: JsonObject) -> bool:
    """One call against one gold call: tool, argument names and values."""
    if made.tool_id != gold.tool_id or not names_match(made.arguments, gold, schema):
        return False
    return all(argument_matches(name, value, gold, schema) for name, value in made.arguments.items())


def names_match(arguments: Mapping[str, Any], gold: GoldCall, schema: JsonObject) -> bool:
    """Whether the set of argument names is right: none invented, none of the required or expected ones left out."""
    expected = set(gold.arguments or {}) | {n for n in gold.accept or {} if _declared(schema, n)}
    may_be_omitted = {name for name, values in (gold.accept or {}).items() if OMITTED in values}
    required = schema.get("required")
    needed = (expected - may_be_omitted) | set(required if isinstance(required, list) else ())
    return needed <= set(arguments) <= expected


def argument_matches(name: str, value: Any, gold: GoldCall, schema: JsonObject) -> bool:
    """Whether one argument has the gold value or another accepted one."""
    leaf = _property(schema, name, schema)
    arguments = gold.arguments or {}
    if name in arguments and values_match(value, arguments[name], leaf, schema):
        return True
    for accepted in (gold.accept or {}).get(name, ()):
        if accepted == OMITTED and value == []:  # BFCL: an empty list is as good as none
            return True
        if _is_alternatives(accepted, arguments.get(name)):
            if _matches_alternatives(value, accepted, leaf, schema):
                return True
        elif values_match(value, accepted, leaf, schema):
            return True
    return False


def standardise(text: str) -> str:
    """BFCL's standard form of a string: no spaces, none of ``, . / - _ * ^``, lower case, one kind of quote."""
    return _IGNORED.sub("", text).lower().replace("'", '"')


def values_match(value: Any, right: Any, schema: Any = None, root: JsonObject | None = None) -> bool:
    """Whether a value is the right one, at any depth.

    Strings are compared in standard form; lists in order; objects key by key; booleans are no numbers. An integer
    stands for an equal float; a float stands for an equal integer only where the schema says ``number`` (or nothing).
    """
    if isinstance(value, str) and isinstance(right, str):
        return standardise(value) == standardise(right)
    if isinstance(value, bool) or isinstance(right, bool):
        return value is right
    if isinstance(value, int | float) and isinstance(right, int | float):
        return value == right and _number_type_ok(value, right, schema, root or {})
    if isinstance(value, list) and isinstance(right, list):
        inner = _items(schema, root or {})
        return len(value) == len(right) and all(
            values_match(v, r, inner, root) for v, r in zip(value, right, strict=True)
        )
    if isinstance(value, dict) and isinstance(right, dict):
        return value.keys() == right.keys() and all(
            values_match(v, right[key], _property(schema, key, root or {}), root) for key, v in value.items()
        )
    return value is None and right is None


def _number_type_ok(value: int | float, right: int | float, schema: Any, root: JsonObject) -> bool:
    if isinstance(value, int) or isinstance(right, float):
        return True
    types = _types(schema, root)
    return not types or "number" in types or "integer" not in types


def _is_alternatives(accepted: Any, plain: Any) -> bool:
    """Whether an accepted object is in BFCL's form, each key with the list of its right values.

    Only the plain gold value can tell ``{"tags": ["a", "b"]}`` with two alternatives from one with a list.
    """
    if isinstance(accepted, list):
        pairs = list(zip(accepted, plain, strict=False)) if isinstance(plain, list) else [(a, None) for a in accepted]
        return bool(accepted) and all(isinstance(a, dict) and _is_alternatives(a, p) for a, p in pairs)
    if not isinstance(accepted, dict) or not accepted or not all(isinstance(v, list) for v in accepted.values()):
        return False
    if not isinstance(plain, dict):
        return plain is None
    return all(plain[key] in values for key, values in accepted.items() if key in plain)


def _matches_alternatives(value: Any, accepted: Any, schema: Any, root: JsonObject) -> bool:
    if isinstance(accepted, list):
        inner = _items(schema, root)
        return (
            isinstance(value, list)
            and len(value) == len(accepted)
            and all(_matches_alternatives(v, a, inner, root) for v, a in zip(value, accepted, strict=True))
        )
    if not isinstance(value, dict) or not value.keys() <= accepted.keys():
        return False
    if any(key not in value and OMITTED not in values for key, values in accepted.items()):
        return False
    return all(
        any(values_match(v, right, _property(schema, key, root), root) for right in accepted[key])
        for key, v in value.items()
    )


def _all_matched(
    gold: Sequence[GoldCall], made: Sequence[MadeCall], fits: Callable[[GoldCall, MadeCall], bool]
) -> bool:
    """Whether every gold call can be given a made call of its own."""
    if len(gold) != len(made):
        return False
    return len(most_pairs([[j for j, m in enumerate(made) if fits(g, m)] for g in gold])) == len(gold)


def most_pairs(wanted: Sequence[Sequence[int]]) -> dict[int, int]:
    """Given what each place may have, a largest giving of one to each: {given: place} (augmenting paths)."""
    owner: dict[int, int] = {}

    def place(i: int, tried: set[int]) -> bool:
        for j in wanted[i]:
            if j not in tried:
                tried.add(j)
                if j not in owner or place(owner[j], tried):
                    owner[j] = i
                    return True
        return False

    for i in range(len(wanted)):
        place(i, set())
    return owner


def _resolved(schema: Any, root: JsonObject, depth: int = 0) -> list[JsonObject]:
    """A schema as the list of its branches: local references followed, anyOf/oneOf/allOf opened."""
    if not isinstance(schema, dict) or depth > 8:
        return []
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        return _resolved(pointer(root, reference), root, depth + 1)
    branches = [schema]
    for key in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(key)
        for part in parts if isinstance(parts, list) else ():
            branches += _resolved(part, root, depth + 1)
    return branches


def _types(schema: Any, root: JsonObject) -> set[str]:
    types: set[str] = set()
    for branch in _resolved(schema, root):
        declared = branch.get("type")
        types |= {t for t in (declared if isinstance(declared, list) else [declared]) if isinstance(t, str)}
    return types


def _property(schema: Any, name: str, root: JsonObject) -> Any:
    for branch in _resolved(schema, root):
        properties = branch.get("properties")
        if isinstance(properties, dict) and name in properties:
            return properties[name]
    return None


def _declared(schema: JsonObject, name: str) -> bool:
    """Whether the schema knows the argument; one that declares no properties at all knows any."""
    return _property(schema, name, schema) is not None or not any(
        b.get("properties") for b in _resolved(schema, schema)
    )


def _items(schema: Any, root: JsonObject) -> Any:
    return next((b["items"] for b in _resolved(schema, root) if isinstance(b.get("items"), dict)), None)
