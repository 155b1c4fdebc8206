"""Text of others as a person may be shown it."""

from __future__ import annotations


def plain(text: str, *, lines: bool = False) -> str:
    """Escape what a person would not see or a terminal would obey; on one line, unless ``lines`` are kept."""
    return "".join(c if c.isprintable() or (lines and c == "\n") else c.encode("unicode_escape").decode() for c in text)
