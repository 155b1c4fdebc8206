"""JSON values as hostile or careless programs write them."""

# ruff: noqa: E501  (tables of odd values)

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

ODD_TEXTS = [
    "", " ", "\x00", "\ud800", "a\udfffb", "\U0001f600", "‮evil", "e\u0301", "\ufeff", "\u2028", "İ", "ß", "x" * 5000,
    "../../etc/passwd", "$1.id", "${HOME}", "keyring:x", "<script>", '"', "\\", "'", "\r\n", "null", "NaN", "1e999",
    "{", "[[[[", '{"arguments": {}}', "#", "#/", "#/$defs/a", "%", "%zz", "a/b", "~0~1", "__proto__", "*", "re:(", "日本",
]  # fmt: skip
ODD_NUMBERS = [
    0, -0.0, -1, 1, 2**31, 2**53 + 1, -(2**63), 2**64, 10**30, 10**400, 1e308, -1e-320, 0.1, 1.0,
    float("nan"), float("inf"), float("-inf"),
]  # fmt: skip

texts = st.one_of(st.sampled_from(ODD_TEXTS), st.text(max_size=12), st.text(st.characters(), max_size=8))
numbers = st.one_of(st.sampled_from(ODD_NUMBERS), st.integers(), st.floats())
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)


def _inside(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.lists(children, max_size=4), st.dictionaries(texts, children, max_size=4))


json_values: st.SearchStrategy[Any] = st.recursive(scalars, _inside, max_leaves=10)
json_objects = st.dictionaries(texts, json_values, max_size=5)


def nested(depth: int, kind: str) -> Any:
    """A value ``depth`` levels deep, of lists, objects or both."""
    value: Any = 1
    for level in range(depth):
        value = [value] if kind == "list" or (kind == "both" and level % 2) else {"a": value}
    return value


def nested_text(depth: int, opening: str, closing: str, core: str = "1") -> str:
    """JSON text so deep that no recursive writer could have written it."""
    return opening * depth + core + closing * depth


@st.composite
def mangled(draw: st.DrawFn, data: bytes) -> bytes:
    """The bytes with something cut off, put in, doubled or flipped, or as they are."""
    what = draw(st.sampled_from(["as is", "as is", "cut", "put", "double", "flip", "other encoding"]))
    at = draw(st.integers(0, len(data)))
    if what == "cut":
        return data[:at]
    if what == "put":
        junk = draw(
            st.sampled_from([b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"\r", b"\xef\xbb\xbf", b"\xc3", b"}", b"//"])
        )
        return data[:at] + junk + data[at:]
    if what == "double":
        return data[:at] + data
    if what == "flip" and data:
        at = min(at, len(data) - 1)
        return data[:at] + bytes([data[at] ^ draw(st.integers(1, 255))]) + data[at + 1 :]
    if what == "other encoding":
        codec = draw(st.sampled_from(["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "cp037"]))
        return data.decode("utf-8", "replace").encode(codec, "replace")
    return data


def as_json(value: Any, *, ascii_only: bool = True) -> bytes:
    """JSON text of a value, NaN and lone surrogates included: as other programs write them."""
    return json.dumps(value, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
