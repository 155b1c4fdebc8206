"""Parallel strings from the translated user interfaces of free software: gettext's .mo and .po files.

What a program's menus and messages say is close to what tools do and to what people ask of them. The files are read
where they lie, such as in unpacked Debian packages (``runs/train_languages.sh``); nothing is fetched and nothing run.
"""

from __future__ import annotations

import functools
import gettext
import hashlib
import random
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from toolscout.errors import BadInput, NotFound
from toolscout.records import Record

SHORTEST, LONGEST = 3, 200
"""Characters of a string that is kept, both sides (two are enough in scripts without an alphabet)."""

LONG_WORDS = 4
"""From so many English words on a string counts as long: those are preferred, they are more like requests."""

LANGUAGES = {
    "zh": 2.0, "ja": 1.5, "ko": 1.5, "ru": 1.2, "de": 1.0, "fr": 1.0, "es": 1.0, "pt": 1.0, "it": 0.8, "hi": 0.8,
    "ar": 0.8, "tr": 0.8, "nl": 0.6, "pl": 0.8, "id": 0.6, "vi": 0.7, "uk": 0.7, "zh_hant": 0.7, "fa": 0.4, "he": 0.4,
    "th": 0.4, "cs": 0.4, "sv": 0.4,
}  # fmt: skip
"""Languages and their weight: how many strings of each are taken. Requests come in the first ones most."""

_CONTEXT = "\x04"
_FORMATS = re.compile(
    r"%(?:\d+\$|\([\w ]+\))?[-+#0']*(?:\*|\d+)?(?:\.\d+)?(?:hh?|ll?|[zjtLq])?[diouxXeEfFgGcsSpnmK%]|%[0-9A-Zn]\b"
    r"|\$\{?\w+\}?|\{\{?[^{}]*\}?\}|%\d+|@\w+@|\$\w+"
)
_MARKUP = re.compile(r"<[^<>]{1,120}>|&(?:\w{2,8}|#\d+);|\\[nt]|\.{3}")
_CJK_KEY = re.compile(r"\s*\(\s*[_&~]\s*\w\s*\)")
_ACCELERATOR = re.compile(r"(?<![\w.])[_~](?=\w)|(?<=[^\W\d_])[_](?=[^\W\d_])|&(?=\w)|(?<=\s)~|(?<=\w)~(?=\w)")
_EMPTY = re.compile(r"\(\s*\)|\[\s*\]|\"\s*\"|'\s*'|“\s*”|«\s*»|「\s*」|„\s*“")
_JOINERS = "\u200c\u200d"
_SPACE = re.compile(r"\s+")
_END = re.compile(r"^[\s:;,.…·*•|=+>/-]+|[\s:;,…*|=…-]+$")


class Parallel(Record):
    """An English string and its translation into ``lang``."""

    lang: str
    english: str
    text: str


@functools.lru_cache(maxsize=200_000)
def clean(text: str) -> str:
    """A user-interface string as plain text: no accelerator marks, format directives, markup or doubled space."""
    if len(text) > 2 * LONGEST:
        return ""
    text = _CJK_KEY.sub("", text)
    text = _MARKUP.sub(" ", text)
    text = _FORMATS.sub(" ", text)
    text = _ACCELERATOR.sub("", text)
    text = _EMPTY.sub(" ", _SPACE.sub(" ", text))
    if not text.isprintable():
        text = "".join(c for c in text if c.isprintable() or c in _JOINERS)
    text = _SPACE.sub(" ", text)
    return _END.sub("", text).strip()


def usable(english: str, text: str, lang: str) -> bool:
    """Whether both sides say something, and not the same."""
    shortest = 2 if lang.startswith(("zh", "ja", "ko", "th")) else SHORTEST
    if not (SHORTEST <= len(english) <= LONGEST and shortest <= len(text) <= LONGEST):
        return False
    if english == text or english.casefold() == text.casefold() or not 0.2 <= len(text) / len(english) <= 4:
        return False
    if sum(c.isascii() and (c.isalpha() or c == " ") for c in english) < 0.75 * len(english):
        return False
    letters = sum(c.isalpha() or unicodedata.category(c).startswith("M") for c in text)
    if letters < 0.5 * len(text):
        return False
    return written_in(text, lang)


_SCRIPTS = {
    "zh": "CJK", "zh_hant": "CJK", "ja": "CJK HIRAGANA KATAKANA", "ko": "HANGUL", "ru": "CYRILLIC", "uk": "CYRILLIC",
    "hi": "DEVANAGARI", "ar": "ARABIC", "fa": "ARABIC", "he": "HEBREW", "th": "THAI",
}  # fmt: skip


def written_in(text: str, lang: str) -> bool:
    """Whether at least a third of the letters are of the language's script (true of all in Latin letters)."""
    scripts = _SCRIPTS.get(lang)
    if scripts is None:
        return True
    letters = [c for c in text if c.isalpha()]
    own = sum(unicodedata.name(c, "").split(" ")[0].split("-")[0] in scripts.split() for c in letters)
    return own * 3 >= len(letters)


def language_of(path: Path) -> str | None:
    """The language that a file is for, by its folder (``locale/pt_BR/LC_MESSAGES/x.mo``) or name (``pt_BR.po``)."""
    parts = path.parts
    name = parts[parts.index("LC_MESSAGES") - 1] if "LC_MESSAGES" in parts else path.stem
    name = name.partition(".")[0].partition("@")[0].replace("-", "_")
    lang, _, country = name.partition("_")
    lang = lang.lower()
    if lang == "zh":
        return "zh_hant" if country.upper() in ("TW", "HK", "HANT", "HANT_TW") else "zh"
    if lang in LANGUAGES:
        return lang
    return None


def read_catalogue(path: Path) -> Iterator[tuple[str, str]]:
    """(English, translation) of one .mo or .po file, cleaned; nothing of a file that is none."""
    entries = _read_po(path) if path.suffix == ".po" else _read_mo(path)
    for source, target in entries:
        if source != target and len(source) <= 2 * LONGEST:
            yield clean(source), clean(target)


def _read_mo(path: Path) -> Iterator[tuple[str, str]]:
    try:
        with path.open("rb") as file:
            catalogue = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined]
    except (OSError, ValueError, UnicodeError, LookupError, SyntaxError, IndexError):
        return  # broken files lie about in packages; one fewer does no harm
    for key, target in catalogue.items():
        if isinstance(key, tuple):
            if key[1] != 0:
                continue
            key = key[0]
        source = key.rpartition(_CONTEXT)[2]
        if source and target:
            yield source, target


def _read_po(path: Path) -> Iterator[tuple[str, str]]:
    try:
        import polib  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        return
    try:
        entries = polib.pofile(str(path))
    except (OSError, ValueError, UnicodeError):
        return
    for entry in entries:
        if not entry.obsolete and not entry.fuzzy and entry.msgid:
            yield entry.msgid, entry.msgstr or entry.msgstr_plural.get(0, "")


def collect(folder: Path, languages: Iterable[str], most: int = 60_000) -> dict[str, dict[str, str]]:
    """Usable pairs below a folder: ``{language: {translation: English}}``, about ``most`` of each at least, if there.

    Files are read in an order that depends on their last name alone, so that languages share English strings.

    Raises NotFound when there are no catalogues.
    """
    wanted = set(languages)
    found: dict[str, dict[str, str]] = defaultdict(dict)
    files = [p for p in folder.rglob("*") if p.suffix in (".mo", ".po") and p.is_file()]
    files.sort(key=lambda p: (order_of(p.name if p.suffix == ".mo" else str(p.parent.parent.name), 0), str(p)))
    if not files:
        raise NotFound(f"There are no .mo or .po files in {folder}.", "Unpack packages with translations there.")
    for path in files:
        lang = language_of(path)
        if lang not in wanted or lang is None:
            continue
        pairs = found[lang]
        if len(pairs) >= most:
            continue
        for english, text in read_catalogue(path):
            if text not in pairs and usable(english, text, lang):
                pairs[text] = english
    return dict(found)


def balance(
    found: Mapping[str, Mapping[str, str]], each: int, weights: Mapping[str, float] = LANGUAGES, seed: int = 0
) -> list[Parallel]:
    """At most ``each`` times its weight of a language's pairs; two thirds of them long ones, if there are enough."""
    rows: list[Parallel] = []
    for lang in sorted(found):
        # By a hash of the English, so that languages share strings: the teacher reads each only once.
        pairs = sorted(found[lang].items(), key=lambda pair: (order_of(pair[1], seed), pair[0]))
        room = int(each * weights.get(lang, 0))
        long = [p for p in pairs if len(p[1].split()) >= LONG_WORDS]
        short = [p for p in pairs if len(p[1].split()) < LONG_WORDS]
        few = min(len(short), max(room - len(long), room // 3))
        chosen = short[:few] + long[: room - few]
        rows += [Parallel(lang=lang, english=english, text=text) for text, english in chosen]
    random.Random(seed).shuffle(rows)
    return rows


def order_of(english: str, seed: int) -> str:
    """A key that puts strings in an order that is random but the same everywhere."""
    return hashlib.sha256(f"{seed} {english}".encode()).hexdigest()


def hold_out(rows: Sequence[Parallel], each: int) -> tuple[list[Parallel], list[Parallel]]:
    """(training rows, ``each`` held-out rows a language): distinct English strings that no training row has.

    Raises BadInput when nothing is left to train on.
    """
    held: dict[str, dict[str, Parallel]] = defaultdict(dict)
    for row in rows:
        if len(held[row.lang]) < each and len(row.english.split()) >= 2:
            held[row.lang].setdefault(row.english.casefold(), row)
    english = {e for rows_ in held.values() for e in rows_}
    train = [row for row in rows if row.english.casefold() not in english]
    if not train:
        raise BadInput("The held-out strings are all there is.", "Give more translations or a smaller --hold-out.")
    return train, [row for lang in sorted(held) for row in held[lang].values()]
