"""The language that an instruction's letters tell of: tools documented in Chinese get Chinese instructions unasked."""

from __future__ import annotations

import re

_LETTERS = (
    ("ja", re.compile(r"[\u3040-\u30ff]")),
    ("ko", re.compile(r"[\uac00-\ud7af]")),
    ("zh", re.compile(r"[\u4e00-\u9fff]")),
    ("ru", re.compile(r"[\u0400-\u04ff]")),
    ("ar", re.compile(r"[\u0600-\u06ff]")),
    ("hi", re.compile(r"[\u0900-\u097f]")),
    ("el", re.compile(r"[\u0370-\u03ff]")),
    ("th", re.compile(r"[\u0e00-\u0e7f]")),
)
_SHARE = 0.3


def written_in(text: str, otherwise: str) -> str:
    """The commonest language of the script that at least 0.3 of the letters are of (kana before Han); else
    ``otherwise``: Latin letters do not tell one language from another."""
    letters = [c for c in text if c.isalpha()]
    for language, script in _LETTERS:
        count = sum(bool(script.match(c)) for c in letters)
        # Japanese is written in Han letters, too, and Chinese never in kana.
        if count and count >= _SHARE * len(letters) * (0.3 if language == "ja" else 1):
            return language
    return otherwise
