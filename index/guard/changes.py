"""What is different between the accepted version of a tool and what it is now, for the person who reviews."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from difflib import unified_diff
from typing import Any

from toolscout.index.guard.finding import visible
from toolscout.records import Tool

FIELDS = ("name", "title", "description", "annotations", "input_schema", "output_schema")
"""What a model may come to read of a tool, in the order in which a person should."""

_CONTEXT = 2


def difference(before: Mapping[str, Any], now: Tool) -> list[str]:
    """The lines of a unified diff from an accepted version to the tool as it is now; empty when nothing differs.

    Hidden characters are written out (``<U+200B>``), so that a change which cannot be seen is one that can.
    """
    after = {name: getattr(now, name) for name in FIELDS}
    diff = unified_diff(list(_lines(before)), list(_lines(after)), "accepted", "now", n=_CONTEXT, lineterm="")
    return list(diff)


def _lines(fields: Mapping[str, Any]) -> Iterator[str]:
    for name in FIELDS:
        value = fields.get(name)
        if value is None or value == {}:
            continue
        text = value if isinstance(value, str) else json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
        for line in text.split("\n"):
            yield f"{name}: {visible(line)}".rstrip()
