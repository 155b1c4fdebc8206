"""A tool asked for several times at once: "the weather in Oslo and Bergen" takes two calls of one tool.

Models tuned on single calls write the call for the first and leave the others out, or write the list into one argument.
Where the value of an argument is one of several that the request lists, and the call holds none of the others, the
others are calls of their own: the same one with that value. Nothing is generated for them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any

from toolscout.records import JsonObject

MOST = 12
"""Calls that one call stands for; a request that lists more is answered with the first ones."""

_AND = r"and|or|&|und|oder|et|ou|y|e|o|и|en|og|och|ve|dan"
_LINK = re.compile(rf"\s*,?\s+(?:{_AND})\s+|\s*(?:、|和|与|跟|と|及び|그리고)\s*", re.IGNORECASE)
_COMMA = re.compile(r"\s*[,;]\s+|\s*、\s*")
_NUMBER = r"[-+]?\d+(?:[.,]\d+)*"
_QUOTED = r"\"[^\"\n]+\"|'[^'\n]+'|“[^”\n]+”|«[^»\n]+»|「[^」\n]+」|`[^`\n]+`"
_CAPITAL = "A-Z\u00c0-\u00de\u0391-\u03a9\u0410-\u042f"
_NAME = rf"(?-i:[{_CAPITAL}][\w'’.&-]*(?:[ ]+(?:(?:of|de|la|el|the)[ ])?[{_CAPITAL}0-9][\w'’&-]*){{0,4}})"
_MARKED = r"(?=[\w.@:/#-]*[\d_@:/.#-])[\w@:/#.-]*[\w/]"
_ARTICLES = frozenset(re.findall(r"\w+", "the a an der die das den dem ein eine le la les un une el los las il lo i"))
_TAKES_SEVERAL = re.compile(
    r"comma|separated|\blist\b|multiple|one or more|several|\(s\)|quer(?:y|ies)|\btext\b|expression|sentence",
    re.IGNORECASE,
)
"""In the description of a parameter whose one value may be a list, or any words at all."""
_BETWEEN = re.compile(r"\b(?:between|from|zwischen|von|entre|desde|tra|fra)\s+(?:\w+\s+){0,2}$", re.IGNORECASE)
"""Two values are then the ends of a range."""


def spread(arguments: JsonObject, node: JsonObject, text: str) -> list[JsonObject]:
    """The arguments of all the calls that this one stands for, itself first; alone where it stands for itself.

    Two lists give every pair: two teams in two seasons are four calls.

    :param node: the tool's simplified schema.
    """
    axes: list[tuple[str, list[Any]]] = []
    for name, value in arguments.items():
        own = node.get("properties", {}).get(name, {})
        if isinstance(value, str) and re.search(r"[^s]s$", name):
            continue  # "topics" takes them all
        held = {str(v).casefold() for key, v in _scalars(arguments) if key != name}
        values = _apart(value, own, text) or [value, *_others(value, own, held, text)]
        if len(values) > 1:
            axes.append((name, values))
    if not axes:
        return [arguments]
    names = [name for name, _ in axes]
    pairs = itertools.product(*(values for _, values in axes))
    return [{**arguments, **dict(zip(names, values, strict=True))} for values in itertools.islice(pairs, MOST)]


def asked_again(calls: Sequence[JsonObject], clauses: Sequence[str], start: int) -> int | None:
    """The first clause from ``start`` on that asks for the same with other values; None if there is none.

    It says values of the same form after the same words as the first call's ("of 5 ... of 7", "at the value 5 ... at
    the value 3"), for half of those that the clauses say in so many words, and no call has them yet.
    """
    said = " ".join(clauses)
    frames: dict[str, set[tuple[str, str]]] = {}
    for name, value in calls[0].items():
        if isinstance(value, str | int | float) and not isinstance(value, bool) and value != "":
            for begin, _, form in _places(value, said, listed=False):
                if word := _word_before(said, begin):
                    frames.setdefault(name, set()).add((word, form))
    used = {str(v).casefold().removesuffix(".0") for call in calls for _, v in _scalars(call)}
    for index in range(max(start, 1), len(clauses)):
        met = sum(any(_new(clauses[index], word, form, used) for word, form in known) for known in frames.values())
        if met and 2 * met >= len(frames):
            return index
    return None


def _new(clause: str, word: str, form: str, used: set[str]) -> bool:
    """True if the clause has a value of this form after this word that no call has."""
    for match in re.finditer(rf"(?<!\w){form}", clause):
        raw = match[0][1:-1] if form == _QUOTED else match[0].rstrip(".")
        if _word_before(clause, match.start()) == word and not any(raw.casefold() in one for one in used):
            return True
    return False


def _word_before(text: str, place: int) -> str:
    """The word before a place, articles and signs aside."""
    words = re.findall(r"[^\W\d_]+", text[max(place - 40, 0) : place].casefold())
    while words and words[-1] in _ARTICLES:
        words.pop()
    return words[-1] if words else ""


def _apart(value: Any, node: JsonObject, text: str) -> list[Any]:
    """The values of a list that was written as one text ("Oslo, Bergen"), unless the parameter may take such."""
    if not isinstance(value, str) or "enum" in node or _TAKES_SEVERAL.search(str(node.get("description", ""))):
        return []
    for items in _lists(text):
        said = [re.escape(item) for item in items]
        if re.fullmatch(r"\s*[,;/&+]?\s*".join(said), value.strip(), re.IGNORECASE):
            return items
    return []


def _lists(text: str) -> Iterator[list[str]]:
    """Every list of names, ids, quoted texts or words that the text holds."""
    for item in (_NAME, _MARKED, _QUOTED, r"[^\W\d_]+"):
        for match in re.finditer(rf"(?<![\w/]){item}", text):
            others = _listed(match.start(), match.end(), item, text, back=False)
            if others:
                yield [re.sub(r"^[\"'“«「`]|[\"'”»」`]$", "", one) for one in (match[0], *others)]


def _others(value: Any, node: JsonObject, held: set[str], text: str) -> list[Any]:
    """What the request lists beside the value of an argument; nothing if another argument holds some of it."""
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value == "":
        return []
    allowed = node.get("enum")
    for start, end, form in _places(value, text, listed=isinstance(allowed, list)):
        others = [_as(value, raw) for raw in _listed(start, end, form, text)]
        if isinstance(allowed, list):
            others = [_among(o, allowed) for o in others]
        if not others or None in others:
            continue
        if any(str(o).casefold() in held for o in others):
            return []
        return [o for o in dict.fromkeys(others) if o != value]
    return []


def _places(value: str | int | float, text: str, listed: bool) -> Iterator[tuple[int, int, str]]:
    """Where the value stands in the text, and the pattern that its neighbours in a list have."""
    said = re.escape(str(value).removesuffix(".0") if isinstance(value, float) else str(value))
    if isinstance(value, int | float):
        for match in re.finditer(rf"(?<![\w.,-]){said}(?![\w]|[.,]\d)", text):
            yield match.start(), match.end(), _NUMBER
        return
    for match in re.finditer(rf"(?<![\w/]){said}(?![\w/])", text, re.IGNORECASE):
        start, end = match.span()
        quoted = text[start - 1 : start] + text[end : end + 1]
        if re.fullmatch(_QUOTED, text[max(start - 1, 0) : end + 1]) and len(quoted) == 2:
            yield start - 1, end + 1, _QUOTED
        elif re.fullmatch(_NUMBER, str(value)):
            yield start, end, _NUMBER
        elif re.fullmatch(_NAME, text[start:end]):
            yield start, end, _NAME
        elif re.fullmatch(_MARKED, text[start:end]):
            yield start, end, _MARKED
        elif listed:
            yield start, end, r"[\w-]+"


def _listed(start: int, end: int, item: str, text: str, *, back: bool = True) -> list[str]:
    """The other members of the list that text[start:end] is a member of; none unless a word like "and" ends it."""
    if _BETWEEN.search(text[:start]):
        return []
    one = re.compile(item)
    before: list[str] = []
    linked = False
    place = start
    while back:
        match = next((m for link in (_COMMA, _LINK) if (m := _ending(link, text, place))), None)
        if match is None or (found := _item_ending(one, text, match.start())) is None:
            break
        linked = linked or _LINK.fullmatch(match[0]) is not None
        place = found.start()
        before.insert(0, found[0])
    if _BETWEEN.search(text[:place]):
        return []
    after: list[str] = []
    place = end
    while True:
        match = _LINK.match(text, place) or _COMMA.match(text, place)
        if match is None or (found := one.match(text, match.end())) is None:
            break
        linked = linked or _LINK.fullmatch(match[0]) is not None
        place = found.end()
        after.append(found[0])
    return [*before, *after] if linked else []


def _ending(pattern: re.Pattern[str], text: str, end: int) -> re.Match[str] | None:
    """The longest match that ends there; a separator is short."""
    for start in range(max(end - 12, 0), end):
        if match := pattern.fullmatch(text, start, end):
            return match
    return None


def _item_ending(pattern: re.Pattern[str], text: str, end: int) -> re.Match[str] | None:
    for start in range(max(end - 60, 0), end):
        if (start == 0 or not (text[start - 1].isalnum() or text[start - 1] in "_.-")) and (
            match := pattern.fullmatch(text, start, end)
        ):
            return match
    return None


def _as(value: str | int | float, raw: str) -> str | int | float | None:
    """The listed text in the type of the value beside it."""
    if isinstance(value, str):
        return raw[1:-1] if re.fullmatch(_QUOTED, raw) else raw.rstrip(".")
    try:
        number = float(raw.replace(",", "."))
    except ValueError:
        return None
    return int(number) if isinstance(value, int) and number.is_integer() else number


def _among(value: Any, allowed: list[Any]) -> Any:
    return next((a for a in allowed if str(a).casefold() == str(value).casefold()), None)


def _scalars(arguments: JsonObject) -> Iterator[tuple[str, Any]]:
    for name, value in arguments.items():
        stack = [value]
        while stack:
            top = stack.pop()
            if isinstance(top, dict):
                stack += top.values()
            elif isinstance(top, list):
                stack += top
            else:
                yield name, top
