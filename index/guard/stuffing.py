"""Texts written for the ranking, not the reader: repetition, lists of keywords, praise, every language at once."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache, reduce
from operator import or_

from toolscout.index.guard.finding import Finding, Severity, quoted
from toolscout.index.guard.texts import MAX_PIECE, Piece
from toolscout.index.guard.watch import seen, watched

_WORD = re.compile(r"[^\W\d_]{2,}")
_PHRASE_END = re.compile(r"[,.;:?!\n]+")
_LABEL = watched(
    r"(?:^|[\n.(])[^\S\n]*+(?:seo|keywords?|tags?|search\sterms?|synonyms?|also\s(?:found|known)\sas|aliases)\s*:\s*([^\n]{60,})",
    re.I,
)
_PRAISE = watched(
    r"""\b(?:the\sbest|most\s(?:accurate|popular|trusted|powerful|advanced|reliable|complete)|fastest|number\sone|
    award-winning|recommended|ranked\sfirst|always\srelevant|
    perfect\s(?:match|for\sany)|highest\sscore|top\sresult|world-class|unmatched|unbeatable|any\squery|all\srequests|
    first\schoice|top-rated|leading|ultimate|must-have|only\stool\syou\sneed|any\stask)\b""",
    re.I | re.X,
)
_STOP_WORDS = (
    "the a an and or of to in for on with is are be this that it as by from at if not you your can will all any "
    "use used when which has have de la el der die das und le les des un une en que los für ist mit"
)
_STOP = frozenset(_STOP_WORDS.split())
_TOPICS = {
    "weather": "weather|forecasts?|météo|wetter|clima|天气",
    "mail": "e-?mails?|gmail|inbox|newsletters?",
    "calendar": "calendars?|meetings?|appointments?",
    "code": "github|gitlab|repositor(?:y|ies)|pull requests?|commits?|coding|run code|code review",
    "chat": "slack|discord|whatsapp|telegram|customer support|social media",
    "notes": "notion|evernote|notes",
    "tickets": "jira|trello|asana|tickets?",
    "database": "sql|postgres\\w*|mysql|mongodb|redis|databases?",
    "cloud": "aws|azure|gcp|docker|kubernetes",
    "documents": "pdfs?|excel|csv|spreadsheets?|documents?",
    "pictures": "images?|photos?|photography|pictures?",
    "video": "videos?|films?|movies?",
    "sound": "music|audio|songs?|podcasts?",
    "languages": "translat\\w+",
    "maps": "maps?|directions|navigation",
    "flights": "flights?|airlines?",
    "travel": "hotels?|travel\\w*|trips?",
    "stocks": "stocks?|shares|stock quotes",
    "crypto": "crypto\\w*|bitcoin|ethereum",
    "news": "news|headlines|newsletters",
    "sport": "sports?|scores|fitness|won the game",
    "food": "recipes?|cooking|restaurants?|book a table",
    "health": "health\\w*|medical|doctors?",
    "reading": "books?|library",
    "jobs": "jobs|careers",
    "homes": "real estate|apartments?|home repair",
    "money": "currenc(?:y|ies)|exchange rates?|dollars|euros|finance",
    "shops": "shopping|products?|prices?",
    "writing": "writing|summari[sz]e",
    "timer": "timers?|alarms?|reminders?",
    "law": "law|legal",
    "pets": "pets|gardening",
    "games": "games",
    "school": "school|education|research",
    "web": "search the web|web search",
}
_TOPIC = {name: watched(rf"(?<!\w)(?:{words})(?!\w)", re.I) for name, words in _TOPICS.items()}
_ANY_TOPIC = reduce(or_, (pattern.bits for pattern in _TOPIC.values()))

_CAPITALS = re.compile(r"\b[A-Z]{4,}\b")

LEAST_STUFFED = 60
"""Characters of the shortest text that is looked at."""

TOPICS = 9
"""Subjects of one short text from which on it wants to be found for everything."""

BARE_RUN = 28
"""Words in a row without a sentence that are a list of keywords."""

TOO_LONG = 20_000
"""Characters of a description that nobody reads."""


def stuffing(piece: Piece) -> Iterator[Finding]:
    """What in one text is there for the ranking."""
    text = piece.text
    if piece.kind not in ("prose", "parameter") or len(text) < LEAST_STUFFED:
        return
    if len(text) >= TOO_LONG:
        severity = Severity.WARN if len(text) >= MAX_PIECE else Severity.INFO
        yield Finding("too_long", severity, piece.where, quoted(text, 0, 60), f"a text of {len(text):,} characters")
    message = _repeated(text) or _keywords(text, piece.kind) or _praise(text) or _subjects(text) or _scripts(text)
    if message:
        yield Finding("stuffing", Severity.WARN, piece.where, quoted(text, 0, 100), message)


def _repeated(text: str) -> str:
    words = [w.casefold() for w in _WORD.findall(text[:20_000])]
    if len(words) < 20:
        return ""
    if len(text) >= 400 and len(words) >= 60:
        data = text[:20_000].encode("utf-8", "surrogatepass")
        if len(zlib.compress(data, 6)) / len(data) < 0.12:
            return "the same words over and over"
        grams = list(zip(words, words[1:], words[2:], words[3:], strict=False))
        least = 0.3 * len(words) / 4
        repeated = len(grams) - len(set(grams)) + 1  # no run of four is there more often
        if repeated >= least and Counter(grams).most_common(1)[0][1] >= least:
            return "the same words over and over"
    distinct = set(words)
    most = len(words) - len(distinct) + 1 + sum(word.endswith("s") for word in distinct)  # no word is there more often
    if most < max(10, 0.3 * len(words)):
        return ""
    word, times = (
        Counter(w.rstrip("s") for w in words if w not in _STOP).most_common(1)[0] if distinct - _STOP else ("", 0)
    )
    if times >= 10 and times >= 0.3 * len(words) and len(re.findall(r"[\d{}<>=\[\]]", text)) < 6:
        return f"the word {word!r} {times} times in {len(words)} words"
    return ""


def _keywords(text: str, kind: str) -> str:
    for match in _LABEL.finditer(text):
        items = [item for item in match.group(1).split(",") if item.strip()]
        prose = match.group(1).count(". ") + match.group(1).count(": ") >= 2  # the documentation of a parameter
        if not prose and (len(items) >= 12 or (len(items) < 3 and len(match.group(1).split()) >= 25)):
            return "a list of keywords"
    if kind == "prose" and (shared := _variants(text)):  # the values of a parameter are often alike
        return f"many ways to ask for {shared!r}"
    run = _bare_run(text[:20_000].split())
    return f"{run} words in a row without a sentence" if run >= BARE_RUN else ""


def _variants(text: str) -> str:
    """The word that most of many short phrases in a row share: what people would type, not what the tool does."""
    items = _PHRASE_END.split(text[:6_000])
    if len(items) < 12 or sum("_" in item for item in items) * 3 > len(items):  # names of fields are alike
        return ""
    phrases = [set(_WORD.findall(item.casefold())) - _STOP for item in items]
    short = [words for words in phrases if 1 <= len(words) <= 4]
    if len(short) < 12 or len(short) < 0.8 * len(phrases):
        return ""
    word, times = Counter(w.rstrip("s") for words in short for w in words).most_common(1)[0]
    return word if times >= 0.6 * len(short) else ""


def _bare_run(tokens: list[str]) -> int:
    """Longest run of words without punctuation or a function word between them; 0 if none has ``BARE_RUN``."""
    best = done = 0
    for place in range(BARE_RUN - 1, len(tokens), BARE_RUN):  # such a run covers one of these
        if place >= done and _bare(tokens[place]):
            start = end = place
            while start and _bare(tokens[start - 1]):
                start -= 1
            while end + 1 < len(tokens) and _bare(tokens[end + 1]):
                end += 1
            best, done = max(best, end + 1 - start), end + 1
    return best if best >= BARE_RUN else 0


def _bare(token: str) -> bool:
    bare = token.strip("\"'`")
    return bare.isalpha() and bare.isascii() and bare.casefold() not in _FUNCTION


_FUNCTION_WORDS = (
    "than then there these those they we our its into out over under between may must should would could does do "
    "did was were been but so no only each every some such via per my me i he she his her their them about after "
    "before"
)
_FUNCTION = _STOP | frozenset(_FUNCTION_WORDS.split())


def _praise(text: str) -> str:
    if not _PRAISE.possible(text):
        return ""
    found = {m.group().casefold() for m in _PRAISE.regex.finditer(text[:6_000])}
    return f"praise of itself ({len(found)} kinds)" if len(found) >= 5 else ""


def _subjects(text: str) -> str:
    if len(text) > 1_500 or (seen(text) & _ANY_TOPIC).bit_count() < TOPICS or len(_CAPITALS.findall(text)) >= TOPICS:
        return ""  # an enumeration's values
    found = [name for name, pattern in _TOPIC.items() if pattern.search(text)]
    return f"{len(found)} unrelated subjects" if len(found) >= TOPICS else ""


@lru_cache(maxsize=8192)
def _script(c: str) -> str:
    name = unicodedata.name(c, "").split(" ")[0]
    return {"HIRAGANA": "KANA", "KATAKANA": "KANA"}.get(name, name)


def _scripts(text: str) -> str:
    if text.isascii():
        return ""
    found = Counter(_script(c) for c in text[:6_000] if c.isalpha())
    real = {name for name, n in found.items() if n >= 3 and name in _SCRIPTS}
    return f"{len(real)} scripts in one text" if len(real) >= 5 else ""


_SCRIPTS_WORDS = "LATIN CYRILLIC GREEK CJK KANA HANGUL ARABIC HEBREW DEVANAGARI THAI BENGALI TAMIL"
_SCRIPTS = frozenset(_SCRIPTS_WORDS.split())
