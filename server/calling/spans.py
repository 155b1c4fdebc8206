"""Grammar rules for text that is copied out of the request.

Ids, keys, addresses and paths of a call stand in the request word for word (97 of 100 in the training pairs). A small
model that has to write them letter by letter drops a prefix, mixes two up or falls back to ``my_workspace``; one that
may only go on along the request does not.
"""

from __future__ import annotations

import json
import re

SPAN = "copied"
"""The rule for a JSON string that holds a span of the text."""

LINK = "linked"
"""The same, and ``https://`` may be put before it where the text names sites without."""

MAX_PIECES = 600
"""Of longer texts no rules are made: every token would be tried against each place that a span may start at."""

# Scripts that write no blanks between words: a span may start and end at each of their characters.
_DENSE = "\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
# ``sess_7b21``, ``order-12`` and ``+4930`` are one piece: half of such a word is another id.
_PIECE = re.compile(rf"[{_DENSE}]|\s+|\+?[^\W{_DENSE}]+(?:-[^\W{_DENSE}]+)*|.", re.DOTALL)
_ENDS = ".,;:!?"
"""Signs that end a sentence or a clause, and no span, where white space follows."""


def pieces(text: str) -> list[str]:
    """The text in the pieces between which a span may start and end; joined they are the text, ends stripped."""
    return _PIECE.findall(text.strip())


def span_rules(text: str) -> list[str]:
    """GBNF rules for :data:`SPAN` and :data:`LINK`; empty where the text has no words or too many.

    The rule of a piece goes on with the next one's: as many rules as pieces, though there are as many spans as pairs.
    """
    found = pieces(text.strip().rstrip(_ENDS))
    if not found or len(found) > MAX_PIECES:
        return []
    rules = []
    for number, piece in enumerate(found):
        after = f"t{number + 1}" if number + 1 < len(found) else ""
        literal = quoted(json.dumps(piece, ensure_ascii=False)[1:-1])
        ends = piece in _ENDS and found[number + 1 : number + 2] and found[number + 1].isspace()
        follows = after if piece.isspace() or ends else f"{after}?" if after else ""
        rules.append(f"t{number} ::= {literal} {follows}".rstrip())
    starts = " | ".join(f"t{number}" for number, piece in enumerate(found) if not piece.isspace())
    scheme = "" if "://" in text else '"https://"? '
    head = [rf'{SPAN} ::= "\"" spans "\""', rf'{LINK} ::= "\"" {scheme}spans "\""', f"spans ::= {starts}"]
    return [*head, *rules]


def quoted(text: str) -> str:
    """A GBNF literal. Characters outside printable ASCII stay as they are; control characters are escaped."""
    out = []
    for char in text:
        if char in '"\\':
            out.append("\\" + char)
        elif ord(char) < 32 or ord(char) == 127:
            out.append(f"\\x{ord(char):02X}")
        elif 0xD800 <= ord(char) <= 0xDFFF:
            out.append("\\uFFFD")
        else:
            out.append(char)
    return '"' + "".join(out) + '"'
