"""A guess at the language of short requests, for tables only: rows of a file say no more than their script.

`py3langid` (BSD; a port of langid.py, Lui and Baldwin 2012) works offline with a model inside the package. Requests are
short and full of identifiers, on which it errs, so only the languages below are considered, what is not natural
language is taken out first, and a request counts as English unless another language is clearly likelier.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache

from toolscout.errors import BadInput

LANGUAGES = ("en", "de", "es", "fr", "it", "pt", "nl", "id", "tr", "pl", "sv", "da", "no", "fi", "cs", "ro", "vi", "hu")
"""Languages in Latin script that are told apart."""

SURE = 3.0
"""By how much a language's log probability must exceed that of English (20 to 1) for a request not to count as
English."""

_FOREIGN_MATTER = re.compile(r"https?://\S+|\S*[\d_@/\\{}<>=#$]\S*|\"[^\"]*\"|\b[A-Z]{2,}\b")
_FEWEST_WORDS = 3


def check_language() -> None:
    """Raises BadInput if the package is missing."""
    try:
        _rank()
    except ImportError:
        raise BadInput("Guessing languages needs the package py3langid.", "Install toolscout[eval].") from None


def guess_language(text: str, script: str | None) -> str:
    """ISO 639-1 code of a text. ``script`` is what the row says: anything but ``latin`` or nothing is taken as
    it is."""
    if script not in (None, "", "latin"):
        return str(script)
    plain = " ".join(_FOREIGN_MATTER.sub(" ", text).split())
    if len(plain.split()) < _FEWEST_WORDS:
        return "en"
    scores = dict(_rank()(plain))
    best = max(scores, key=lambda code: scores[code])
    return best if scores[best] - scores["en"] >= SURE else "en"


@cache
def _rank() -> Callable[[str], list[tuple[str, float]]]:
    import py3langid

    py3langid.set_languages(list(LANGUAGES))
    rank: Callable[[str], list[tuple[str, float]]] = py3langid.rank
    return rank
