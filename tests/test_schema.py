"""References within schemas: one reading of JSON pointers for signatures, validation, constraints and evaluation."""

from __future__ import annotations

from typing import Any

import pytest

from toolscout.schema import pointer, simplify_arguments
from toolscout.signature import compact_signature
from toolscout.validation import validate

ROOT: dict[str, Any] = {"$defs": {"a/b": {"type": "integer"}, "c~d": 1, "e f": 2}, "anyOf": [{"x": 3}]}


@pytest.mark.parametrize(
    ("reference", "found"),
    [
        ("#", ROOT),
        ("#/$defs/a~1b/type", "integer"),
        ("#/%24defs/c~0d", 1),
        ("#/$defs/e%20f", 2),
        ("#/anyOf/0/x", 3),
        ("#/anyOf/1", None),
        ("#/anyOf/²", None),
        ("#/anyOf/" + "9" * 5000, None),
        ("#/nowhere/at/all", None),
        ("#anchor", None),
        ("https://example.com/schema.json#/x", None),
        ("", None),
    ],
)
def test_pointer(reference: str, found: object) -> None:
    assert pointer(ROOT, reference) == found


@pytest.mark.parametrize("reference", ["#/%24defs/city", "#/$defs/city", "#/anyOf/²", "#here"])
def test_every_reader_takes_any_reference(reference: str) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"$ref": reference}},
        "$defs": {"city": {"type": "string", "$anchor": "here"}},
    }
    known = "/city" in reference
    assert compact_signature(schema) == ("city?: str" if known else "city?: any")
    assert simplify_arguments(schema)["properties"]["city"] == ({} if "²" in reference else {"type": "string"})
    assert validate({"city": "Rome"}, schema) == []
