"""A larger vocabulary for a WordPiece tokenizer: pieces of other scripts and languages, learnt from parallel strings.

bert-base-uncased has most Han characters missing and spells Hangul, Cyrillic, Arabic and Devanagari letter by letter.
What is added, and where:

- Han characters, kana and letters of other scripts, and pieces of words (``##``), to the WordPiece vocabulary;
- words of Han characters and katakana as added tokens: the normaliser sets Han characters apart one by one, and added
  tokens are found before it runs;
- whole words in Latin letters, but none that an English text begins a word with: English is tokenised as before.

New rows of the embedding table begin as what they mean: the English tokens that IBM Model 1 (Brown et al. 1993) aligns
them with, weighted by probability.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.finetune.languages.parallel import Parallel

Floats = npt.NDArray[np.float32]

HAN = ("zh", "zh_hant", "ja")
SCRIPTS: dict[str, tuple[tuple[str, ...], int]] = {
    "cyrillic": (("ru", "uk"), 1500),
    "hangul": (("ko",), 1300),
    "arabic": (("ar", "fa"), 800),
    "devanagari": (("hi",), 500),
    "kana": (("ja",), 350),
    "hebrew": (("he",), 200),
    "thai": (("th",), 250),
}
"""Alphabets: the languages they are learnt from, and how many pieces."""

CHARACTERS, WORDS, LATIN = 2600, 1500, 1500
"""At most so many Han characters, words of Han or katakana, and whole words in Latin letters."""

_WORD_RUN = re.compile(r"[\u4e00-\u9fff]{2,}|[\u30a1-\u30fa\u30fc]{2,}")
_SCRIPT_NAME = {"cyrillic": "CYRILLIC", "hangul": "HANGUL", "arabic": "ARABIC", "devanagari": "DEVANAGARI",
                "kana": "HIRAGANA KATAKANA", "hebrew": "HEBREW", "thai": "THAI"}  # fmt: skip


def learn_pieces(rows: Sequence[Parallel], tokenizer: Any, english: Iterable[str]) -> tuple[list[str], list[str]]:
    """(WordPiece entries, added tokens) that the ``tokenizers.Tokenizer`` lacks. ``english`` guards plain English."""
    vocabulary = tokenizer.get_vocab()
    texts: dict[str, list[str]] = {}
    for row in rows:
        texts.setdefault(row.lang, []).append(row.text)
    pieces: dict[str, None] = {}
    for piece in _characters([t for lang in HAN for t in texts.get(lang, ())]):
        pieces[piece] = None
    for script, (languages, room) in SCRIPTS.items():
        own = [t for lang in languages for t in texts.get(lang, ())]
        for piece in _word_pieces(own, tokenizer, script, room, vocabulary):
            pieces[piece] = None
    guard = list(english)
    for piece in _latin_words(texts, tokenizer, guard):
        pieces[piece] = None
    words = _words([t for lang in HAN for t in texts.get(lang, ())])
    return [p for p in pieces if p not in vocabulary], [w for w in words if w not in vocabulary and w not in pieces]


def _characters(texts: Sequence[str]) -> list[str]:
    """Han characters that occur at least three times, the most frequent first."""
    counts = Counter(c for text in texts for c in text if "\u4e00" <= c <= "\u9fff")
    return [c for c, n in counts.most_common(CHARACTERS) if n >= 3]


def _words(texts: Sequence[str]) -> list[str]:
    """Words of two to four Han characters or of katakana, by a unigram model of the runs."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    runs = [run for text in texts for run in _WORD_RUN.findall(text)]
    if not runs:
        return []
    model = Tokenizer(models.Unigram())
    model.pre_tokenizer = pre_tokenizers.Whitespace()
    alphabet = len(set("".join(runs)))
    trainer = trainers.UnigramTrainer(vocab_size=alphabet + WORDS, max_piece_length=8, show_progress=False)
    model.train_from_iterator(runs, trainer)
    counts: Counter[str] = Counter()
    for run in runs:
        counts.update(model.encode(run).tokens)
    return [w for w, n in counts.most_common() if len(w) > 1 and n >= 8][:WORDS]


def _word_pieces(
    texts: Sequence[str], tokenizer: Any, script: str, room: int, vocabulary: Mapping[str, int]
) -> list[str]:
    """Pieces of words in one script, as the tokenizer's normaliser leaves them (Hangul decomposed, accents gone)."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    names = _SCRIPT_NAME[script].split()
    if not texts:
        return []
    model = Tokenizer(models.WordPiece(unk_token="[UNK]"))  # type: ignore[call-arg, unused-ignore]
    model.normalizer = tokenizer.normalizer
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=room * 2, min_frequency=5, show_progress=False)
    model.train_from_iterator(texts, trainer)
    ranked = sorted(model.get_vocab().items(), key=lambda item: item[1])
    own = [p for p, _ in ranked if _all_in(p.removeprefix("##"), names) and p not in vocabulary]
    return own[:room]


def _all_in(piece: str, names: Sequence[str]) -> bool:
    return bool(piece) and all(
        unicodedata.category(c).startswith("M") or unicodedata.name(c, "").split(" ")[0].split("-")[0] in names
        for c in piece
    )


def _latin_words(texts: Mapping[str, Sequence[str]], tokenizer: Any, english: Sequence[str]) -> list[str]:
    """Frequent whole words that the tokenizer breaks into three pieces or more, and that begin no English word."""
    pre = tokenizer.pre_tokenizer
    beginnings: set[str] = set()
    for text in english:
        for word, _ in pre.pre_tokenize_str(tokenizer.normalizer.normalize_str(text)):
            beginnings.update(word[:i] for i in range(4, len(word) + 1))
    gain: Counter[str] = Counter()
    for lang, own in texts.items():
        if lang in HAN or any(lang in languages for languages, _ in SCRIPTS.values()):
            continue
        counts: Counter[str] = Counter()
        for text in own:
            counts.update(w for w, _ in pre.pre_tokenize_str(tokenizer.normalizer.normalize_str(text)))
        for word, n in counts.items():
            if n >= 8 and len(word) >= 4 and word.isalpha() and word not in beginnings:
                saved = len(tokenizer.encode(word, add_special_tokens=False).ids) - 1
                if saved >= 1:
                    gain[word] += n * saved
    return [word for word, _ in gain.most_common(LATIN)]


def enlarge(tokenizer_json: str, pieces: Sequence[str], words: Sequence[str]) -> str:
    """A tokenizer.json with the pieces in its WordPiece vocabulary and the words there and as added tokens."""
    data = json.loads(tokenizer_json)
    vocabulary = data["model"]["vocab"]
    for piece in (*pieces, *words):
        vocabulary[piece] = len(vocabulary)
    common = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    data["added_tokens"] += [{"id": vocabulary[word], "content": word, **common} for word in words]
    return json.dumps(data, ensure_ascii=False)


def same_tokens(before: Any, after: Any, texts: Iterable[str]) -> list[str]:
    """Those of the texts that the two tokenizers read differently."""
    return [text for text in texts if before.encode(text).ids != after.encode(text).ids]


def translation_table(
    pairs: Sequence[tuple[Sequence[int], Sequence[int]]], size: int, rounds: int = 6
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """IBM Model 1: (foreign, English, p(English | foreign)) for every two token ids that meet in a pair.

    ``pairs`` are (foreign ids, English ids), ids under ``size``. Id ``size`` stands for the empty foreign word.
    """
    foreign, english, slots = [], [], []
    slot = 0
    for f_ids, e_ids in pairs:
        own = np.append(np.unique(np.asarray(f_ids, np.int64)), size)
        other = np.unique(np.asarray(e_ids, np.int64))
        foreign.append(np.tile(own, len(other)))
        english.append(np.repeat(other, len(own)))
        slots.append(np.repeat(np.arange(slot, slot + len(other)), len(own)))
        slot += len(other)
    f, e, s = np.concatenate(foreign), np.concatenate(english), np.concatenate(slots)
    keys, entry = np.unique(f * (size + 1) + e, return_inverse=True)
    key_f, key_e = keys // (size + 1), keys % (size + 1)
    p = np.ones(len(keys))
    for _ in range(rounds):
        share = p[entry]
        share /= np.bincount(s, share, minlength=slot)[s]
        count = np.bincount(entry, share, minlength=len(keys))
        p = count / np.bincount(key_f, count, minlength=size + 1)[key_f]
    return key_f, key_e, p


def meanings(
    table: Floats, new: Sequence[int], pairs: Sequence[tuple[Sequence[int], Sequence[int]]], best: int = 4
) -> Floats:
    """First rows of the new tokens [n, dim]: the ``best`` English rows they are aligned with, by probability.

    Rows get the length that English ones have on average; a token that no pair has gets the average row.
    """
    foreign, english, p = translation_table(pairs, size=max(len(table), max(new, default=0) + 1))
    order = np.lexsort((-p, foreign))
    foreign, english, p = foreign[order], english[order], p[order]
    length = float(np.linalg.norm(table, axis=1).mean())
    rows = np.tile(table.mean(0), (len(new), 1)).astype(np.float32)
    starts = np.searchsorted(foreign, np.asarray(new))
    ends = np.searchsorted(foreign, np.asarray(new), side="right")
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if start < end:
            take = slice(start, min(end, start + best))
            rows[i] = p[take] @ table[english[take]]
    norms = np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9)
    return np.asarray(rows * (length / norms), np.float32)


def write_tokenizer(base: Path, out: Path, pieces: Sequence[str], words: Sequence[str]) -> None:
    """The base folder's tokenizer files, enlarged, in ``out``."""
    (out / "tokenizer.json").write_text(enlarge((base / "tokenizer.json").read_text("utf-8"), pieces, words), "utf-8")
    for name in ("tokenizer_config.json", "special_tokens_map.json"):
        if (base / name).is_file():
            (out / name).write_text((base / name).read_text("utf-8"), "utf-8")
