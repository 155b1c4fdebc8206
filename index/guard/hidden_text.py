"""Text that a person does not see and a model reads: invisible and bidirectional characters, look-alike letters,
padding that pushes a text out of sight, comments and hidden markup, and words in an encoding."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from toolscout.index.guard.finding import Finding, Severity, quoted
from toolscout.index.guard.texts import Piece
from toolscout.index.guard.unveil import decoded, latin, mixed, tag_text
from toolscout.index.guard.watch import watched

_TAGS = re.compile("[\U000e0000-\U000e007f]+")
_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{2,7}\U000e007f")  # a region's flag, as Unicode defines it
_SELECTORS = re.compile("[\U000e0100-\U000e01ef]+|[\ufe00-\ufe0f]{2,}")
_BIDI = re.compile("[\u202a-\u202e\u2066-\u2069]+")
_ZERO = re.compile("[\u200b-\u200d\u2060-\u2065\ufeff\u180e\u00ad\u034f\u061c\u17b4\u17b5]+")
_BLANK = re.compile("[\u2800\u3164\u115f\u1160\uffa0]+")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]+")
_PADDING = re.compile(r"(?<!\s)(?:[ \t\u00a0\u3000]*+\n){25,}+\s*+\S|(?<![ \t\u00a0\u3000])[ \t\u00a0\u3000]{200,}+\S")
_WORD = re.compile(r"[^\W_]+")
_FOREIGN = re.compile(r"[^\W\x00-\x7f]")
_COMMENT = re.compile(r"<!--(.*?)(?:-->|$)", re.S)
_UNSEEN = watched(
    r"""style\s*=\s*["'][^"']{0,80}(?:display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0|opacity\s*:\s*0|
    color\s*:\s*(?:transparent|white|\#fff))""",
    re.I | re.X,
)
_JOINING = re.compile("[\u0600-\u08ff\u0900-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")


def may_hide(text: str) -> bool:
    """Whether a text can hide anything; ``False`` is certain."""
    plain = text.isascii() and text.isprintable() and len(text) < 200
    return not plain or "<!--" in text or _UNSEEN.possible(text)


def hidden_text(piece: Piece) -> Iterator[Finding]:
    """What is hidden in one piece."""
    text = piece.text
    if not text.isascii():
        yield from _characters(piece)
        yield from _letters(piece)
    if not text.isprintable() and (found := _CONTROL.search(text)):
        yield _finding("control_characters", Severity.WARN, piece, found, "control characters in the text")
    if _room_for_padding(text) and (found := _PADDING.search(text)):
        yield _finding("padding", Severity.WARN, piece, found, "blank space that pushes what follows out of sight")
    if "<" not in text and "=" not in text:
        return
    if piece.kind != "key" and (found := _UNSEEN.search(text)):
        yield _finding("hidden_markup", Severity.WARN, piece, found, "markup that shows nothing to a person")
    for found in _COMMENT.finditer(text):
        if len(found.group(1).split()) >= 3:
            yield _finding("hidden_markup", Severity.WARN, piece, found, "a comment that only a model reads")
            break


def _room_for_padding(text: str) -> bool:
    return text.count("\n") >= 25 or (len(text) > 200 and sum(map(text.count, " \t\u00a0\u3000")) >= 200)


def encoded_text(piece: Piece) -> Iterator[tuple[Finding, str]]:
    """Encoded runs that hold words, and what they say."""
    for name, said, start, end in decoded(piece.text):
        evidence = quoted(f"{piece.text[start:end][:40]} = {said}")
        yield Finding("encoded_text", Severity.WARN, piece.where, evidence, f"words hidden in {name}"), said


def _characters(piece: Piece) -> Iterator[Finding]:
    text = _FLAG.sub("", piece.text)
    if found := _TAGS.search(text):
        said = tag_text(found.group())
        yield Finding("tag_characters", Severity.BLOCK, piece.where, quoted(said), "text in invisible tag characters")
    if found := _SELECTORS.search(text):
        cjk = found.start() > 0 and unicodedata.name(text[found.start() - 1], "").startswith("CJK")
        if len(found.group()) > 1 or not cjk:
            yield _finding(
                "variation_selectors", Severity.BLOCK, piece, found, "data in invisible variation selectors", text
            )
    if found := _BIDI.search(text):
        yield _finding(
            "bidirectional", Severity.WARN, piece, found, "characters that change the order of the text", text
        )
    if found := _BLANK.search(text):
        severity = Severity.WARN if len(found.group()) > 1 or piece.kind == "name" else Severity.INFO
        yield _finding("invisible", severity, piece, found, "letters that show nothing", text)
    for found in _ZERO.finditer(text):
        grave = _zero_severity(text, found, piece.kind)
        if grave is not None:
            yield _finding("invisible", grave, piece, found, "invisible characters", text)
            break


def _zero_severity(text: str, found: re.Match[str], kind: str) -> Severity | None:
    before, after = text[: found.start()][-1:], text[found.end() :][:1]
    if len(found.group()) >= 4:
        return Severity.BLOCK
    if kind in ("name", "key"):
        return Severity.WARN
    if (
        _JOINING.match(before)
        or _JOINING.match(after)
        or (before and unicodedata.category(before) in ("So", "Mn", "Sk"))
    ):
        return None  # how Arabic, Indic scripts and emoji are written
    if before.isalpha() and after.isalpha():
        return Severity.WARN
    return Severity.INFO


def _letters(piece: Piece) -> Iterator[Finding]:
    for found in _WORD.finditer(piece.text) if _FOREIGN.search(piece.text) else ():
        word = found.group()
        if word.isascii():
            continue
        if mixed(word):
            message = f"letters of other scripts that read as {latin(word)!r}"
            yield _finding("mixed_script", Severity.WARN, piece, found, message)
            return
        if len(word) >= 3 and all(ord(c) > 0x2000 and "LATIN" not in unicodedata.name(c, "LATIN") for c in word):
            folded = unicodedata.normalize("NFKC", word)
            if folded.isascii() and folded.isalpha():
                yield _finding("styled_letters", Severity.WARN, piece, found, f"styled letters that read as {folded!r}")
                return


def _finding(
    code: str, severity: Severity, piece: Piece, found: re.Match[str], message: str, text: str | None = None
) -> Finding:
    end = min(found.end(), found.start() + 60)
    return Finding(
        code, severity, piece.where, quoted(piece.text if text is None else text, found.start(), end), message
    )
