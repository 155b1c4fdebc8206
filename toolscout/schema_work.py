"""How much work a JSON Schema can make of one value: references that come back to where they were, or double.

``allOf`` over two references to a definition of the same kind is checked 2^n times after n steps, and one that
comes back to itself for ever; no validator bounds that, and it runs in a library that nothing interrupts. So what
a schema costs is counted before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from toolscout.schema import pointer

MOST = 2_000_000
"""Checks of one set of arguments that are worth making: a second or so."""

_LONGEST_WAY = 200
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_IN_PLACE_LISTS = ("allOf", "anyOf", "oneOf", "type", "extends")
_IN_PLACE = ("not", "if", "then", "else", "extends")
_IN_PLACE_NAMED = ("dependentSchemas", "dependencies")
_INSIDE = ("additionalProperties", "contains", "propertyNames", "additionalItems", "unevaluatedItems",
           "unevaluatedProperties")  # fmt: skip


class Work:
    """Counts for one schema. Safe for any JSON value; ``most(depth)`` never takes longer than the schema is large."""

    def __init__(self, schema: object) -> None:
        self._root = schema
        self._known: dict[tuple[int, int], int] = {}
        self._underway: set[tuple[int, int]] = set()
        self._anchors: dict[str, list[Any]] = {}
        self._foreign = False
        self.why = "its references lead back to themselves"
        """Why it is too much, where it is."""
        self._look()

    def checks(self, depth: int) -> int:
        """How often, at most, one part of a value ``depth`` levels deep is checked; `MOST` stands for any more."""
        if self._foreign:
            return MOST
        return max(self._count(self._root, level, 0) for level in range(depth + 1))

    def _look(self) -> None:
        """Find the anchors. Documents within the document have references of their own, which are not followed.

        Nor is a reference that is understood here otherwise than as a place in this document: the library knows more
        ways to write one (relative to ``$id``, by its base address), and what it leads to would not be counted.
        """
        waiting = [(self._root, True)]
        references: set[str] = set()
        embeds = False
        while waiting:
            value, top = waiting.pop()
            if isinstance(value, Mapping):
                references |= {value[k] for k in _REFERENCES if isinstance(value.get(k), str)}
                embeds = embeds or (not top and any(isinstance(value.get(k), str) for k in ("$id", "id")))
                for key in ("$anchor", "$dynamicAnchor"):
                    if isinstance(value.get(key), str):
                        self._anchors.setdefault(value[key], []).append(value)
                waiting += [(v, False) for v in value.values()]
            elif isinstance(value, list):
                waiting += [(v, False) for v in value]
        lost = sorted(ref for ref in references if not self._targets(ref))
        self._foreign = bool(lost or (references and embeds))
        if lost:
            self.why = f"references to other documents are not followed: {lost[0][:100]}"

    def _count(self, schema: object, depth: int, way: int) -> int:
        if not isinstance(schema, Mapping):
            return 1
        key = id(schema), depth
        if key in self._known:
            return self._known[key]
        if key in self._underway or way > _LONGEST_WAY:
            return MOST
        self._underway.add(key)
        total = 1
        for part in self._here(schema):
            total += self._count(part, depth, way + 1)
            if total >= MOST:
                break
        if depth and total < MOST:
            total += self._below(schema, depth - 1, way + 1)
        self._underway.discard(key)
        self._known[key] = total = min(total, MOST)
        return total

    def _here(self, schema: Mapping[str, Any]) -> Iterator[Any]:
        """The parts that check the very value that the schema checks."""
        for key in _REFERENCES:
            if isinstance(ref := schema.get(key), str):
                yield from self._targets(ref)
        for key in _IN_PLACE_LISTS:
            if isinstance(parts := schema.get(key), list):
                yield from parts
        for key in _IN_PLACE:
            yield schema.get(key)
        for key in _IN_PLACE_NAMED:
            if isinstance(parts := schema.get(key), Mapping):
                yield from parts.values()

    def _targets(self, ref: str) -> list[Any]:
        own = self._root.get("$id", self._root.get("id")) if isinstance(self._root, Mapping) else None
        if isinstance(own, str) and own and ref.startswith(own):
            ref = ref[len(own) :]
            ref = ref if ref.startswith("#") else f"#{ref}"
        found = pointer(self._root, ref)
        return [found] if found is not None else self._anchors.get(ref.removeprefix("#"), [])

    def _below(self, schema: Mapping[str, Any], depth: int, way: int) -> int:
        """Of the value's own parts, each is checked by one property, by all patterns, and by what is left."""
        named = schema.get("properties")
        several = [schema.get("items"), schema.get("prefixItems")]
        one_of = [*(named.values() if isinstance(named, Mapping) else ())]
        one_of += [item for items in several if isinstance(items, list) for item in items]
        total = max((self._count(part, depth, way) for part in one_of), default=0)
        patterns = schema.get("patternProperties")
        every = [*(patterns.values() if isinstance(patterns, Mapping) else ()), *(schema.get(k) for k in _INSIDE)]
        for part in [*every, *(items for items in several if isinstance(items, Mapping))]:
            if part is not None and total < MOST:
                total += self._count(part, depth, way)
        return total
