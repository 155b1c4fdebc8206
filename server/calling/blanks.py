"""Blanks around a text value: a small model brings them along (``" Oslo"``), and hardly a request means them."""

from __future__ import annotations

import re
from typing import Any

_BLANKS = " \t\u00a0"
_OPEN, _CLOSE = "\"'“‘«`„「", "\"'”’»`“」"


def trimmed(value: Any, request: str) -> Any:
    """The value without the blanks around each text in it, in lists and objects too.

    A text stays as it is where blanks may be the point: if it has several lines (code, a file's content), no letter or
    digit (a separator), or stands in the request just so, in quotes.
    """
    if isinstance(value, list):
        return [trimmed(v, request) for v in value]
    if isinstance(value, dict):
        return {k: trimmed(v, request) for k, v in value.items()}
    if not isinstance(value, str) or (bare := value.strip(_BLANKS)) == value:
        return value
    if "\n" in value or re.search(r"\w", value) is None:
        return value
    quoted = re.search(f"[{_OPEN}]{re.escape(value)}[{_CLOSE}]", request)
    return value if quoted else bare
