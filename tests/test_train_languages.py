"""Other languages for the encoder: strings, vocabulary and alignment always; the training itself where torch is."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path

import numpy as np
import polib
import pytest
from tokenizers import Tokenizer

from toolscout.cli import execute
from toolscout.errors import BadInput, NotFound
from toolscout.finetune.languages.distil import DistilOptions, in_batches, make_examples, tool_documents
from toolscout.finetune.languages.parallel import (
    Parallel,
    balance,
    clean,
    collect,
    hold_out,
    language_of,
    read_catalogue,
    usable,
)
from toolscout.finetune.languages.vocabulary import enlarge, learn_pieces, meanings, same_tokens, translation_table
from toolscout.index.asset import DEFAULT_ENCODER, encoders_folder

ROOT = Path(__file__).parents[1]
TRAINABLE = all(importlib.util.find_spec(name) for name in ("torch", "transformers", "sentence_transformers"))
needs_torch = pytest.mark.skipif(not TRAINABLE, reason="needs the train extra: torch and sentence-transformers")

VERBS = {"Open": ("打开", "Открыть"), "Delete": ("删除", "Удалить"), "Send": ("发送", "Отправить")}
NOUNS = {"the file": ("文件", "файл"), "the message": ("消息", "сообщение"), "the database": ("数据库", "базу данных")}


def pairs() -> list[Parallel]:
    """Every verb with every noun, in two languages, a few times over with a number word."""
    rows = []
    for verb, (zh_verb, ru_verb) in VERBS.items():
        for noun, (zh_noun, ru_noun) in NOUNS.items():
            for i, (more, zh_more, ru_more) in enumerate(
                [("", "", ""), (" now", "现在", " сейчас"), (" again", "再次", " снова")]
            ):
                del i
                rows.append(Parallel(lang="zh", english=f"{verb} {noun}{more}", text=f"{zh_more}{zh_verb}{zh_noun}"))
                rows.append(Parallel(lang="ru", english=f"{verb} {noun}{more}", text=f"{ru_verb} {ru_noun}{ru_more}"))
    return rows


def write_catalogue(folder: Path, lang: str, entries: dict[str, str], *, compiled: bool = True) -> None:
    """A translated program: one .mo (or .po) file where gettext looks for it."""
    catalogue = polib.POFile()
    catalogue.metadata = {"Content-Type": "text/plain; charset=UTF-8"}
    for source, target in entries.items():
        catalogue.append(polib.POEntry(msgid=source, msgstr=target))
    place = folder / "locale" / lang / "LC_MESSAGES"
    place.mkdir(parents=True, exist_ok=True)
    if compiled:
        catalogue.save_as_mofile(str(place / "tiny.mo"))
    else:
        catalogue.save(str(place / "tiny.po"))


ENGLISH = 30_522
"""Tokens of bert-base-uncased; the shipped encoder's own come after them."""


def english_tokenizer() -> Tokenizer:
    """The shipped tokenizer before it learnt other languages."""
    rules = json.loads((encoders_folder() / DEFAULT_ENCODER / "tokenizer.json").read_text("utf-8"))
    rules["model"]["vocab"] = {token: i for token, i in rules["model"]["vocab"].items() if i < ENGLISH}
    rules["added_tokens"] = [token for token in rules["added_tokens"] if token["id"] < ENGLISH]
    tokenizer = Tokenizer.from_str(json.dumps(rules))
    tokenizer.no_truncation()
    return tokenizer


# --- strings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "plain"),
    [
        ("_Save As…", "Save As"),
        ("打开(_O)...", "打开"),
        ("Sa~ve", "Save"),
        ("&Print", "Print"),
        ("Could not open %s: %(reason)s", "Could not open"),
        ("<b>Total</b>&nbsp;{count}", "Total"),
        ("Copy %1$d of %2$d files\nto “%s”", "Copy of files to"),
        ("50% der Dateien", "50% der Dateien"),
        ("x" * 1000, ""),
    ],
)
def test_marks_of_the_interface_are_taken_off(raw: str, plain: str) -> None:
    assert clean(raw) == plain


def test_what_says_nothing_is_left_out() -> None:
    assert usable("Open the file", "打开文件", "zh")
    assert not usable("Open the file", "Open the file", "de"), "not translated"
    assert not usable("Open the file", "Open le", "ru"), "another script"
    assert not usable("OK", "Gut", "de"), "too short"
    assert not usable("----- 1234 ----", "один", "ru"), "no words"
    assert not usable("Open", "Öffnet die Datei, die zuletzt gespeichert wurde", "de"), "not the same"


@pytest.mark.parametrize(
    ("path", "lang"),
    [
        ("x/locale/pt_BR/LC_MESSAGES/a.mo", "pt"),
        ("x/locale/zh_TW/LC_MESSAGES/a.mo", "zh_hant"),
        ("x/locale/zh_CN.UTF-8/LC_MESSAGES/a.mo", "zh"),
        ("x/locale/sr@latin/LC_MESSAGES/a.mo", None),
        ("tryton/modules/party/locale/de.po", "de"),
        ("x/messages.po", None),
    ],
)
def test_a_file_is_for_one_language(path: str, lang: str | None) -> None:
    assert language_of(Path(path)) == lang


@pytest.mark.parametrize("compiled", [True, False])
def test_catalogues_are_read_and_broken_ones_passed_over(tmp_path: Path, compiled: bool) -> None:
    write_catalogue(tmp_path, "de", {"_Open the file": "Datei _öffnen", "Quit": "Quit", "Close": ""}, compiled=compiled)
    write_catalogue(tmp_path, "xx", {"Open the file": "Qxz qxz"}, compiled=compiled)
    broken = tmp_path / "locale" / "fr" / "LC_MESSAGES"
    broken.mkdir(parents=True)
    (broken / "tiny.mo").write_bytes(b"\x00\x01not a catalogue")
    (broken / "tiny.po").write_bytes(b"msgid \xff\xfe")
    assert collect(tmp_path, ["de", "fr"]) == {"de": {"Datei öffnen": "Open the file"}, "fr": {}}
    assert list(read_catalogue(broken / "tiny.mo")) == []
    with pytest.raises(NotFound, match=r"no \.mo or \.po files"):
        collect(tmp_path / "nowhere", ["de"])


def test_languages_are_balanced_and_share_english() -> None:
    found = {lang: {f"{lang} {i}": f"word number {i} of them" for i in range(100)} for lang in ("de", "fr")}
    found["de"] |= {f"kurz {i}": f"short {i}" for i in range(100)}
    rows = balance(found, 30, {"de": 1.0, "fr": 0.5})
    english = {lang: {r.english for r in rows if r.lang == lang} for lang in ("de", "fr")}
    assert {lang: len(own) for lang, own in english.items()} == {"de": 30, "fr": 15}
    assert sum(e.startswith("short") for e in english["de"]) == 10, "a third are short"
    shared = {e for e in english["fr"] if e.startswith("word")}
    assert shared <= english["de"]
    assert rows == balance(found, 30, {"de": 1.0, "fr": 0.5})


def test_what_is_held_out_is_trained_on_in_no_language() -> None:
    train, held = hold_out(pairs(), 3)
    assert {r.lang for r in held} == {"zh", "ru"}
    assert len(held) == 6
    assert not {r.english.casefold() for r in train} & {r.english.casefold() for r in held}
    with pytest.raises(BadInput, match="all there is"):
        hold_out(pairs(), 1000)


# --- vocabulary ------------------------------------------------------------------------------------------------------


def test_a_larger_vocabulary_reads_words_and_leaves_english_alone() -> None:
    before = english_tokenizer()
    rows = pairs() * 4
    english = [*(r.english for r in rows), "open_file(path, mode) sendmessage to 3 users"]
    pieces, words = learn_pieces(rows, before, english)
    assert "删除" in words
    assert "фаил" in pieces, "accents go before pieces are matched"
    after = Tokenizer.from_str(enlarge(before.to_str(), pieces, words))
    assert same_tokens(before, after, english) == []
    assert after.get_vocab_size() == before.get_vocab_size() + len(pieces) + len(words)
    assert after.encode("删除数据库 and файл", add_special_tokens=False).tokens == ["删除", *"数据库", "and", "фаил"]
    assert "[UNK]" in before.encode("删除数据库").tokens
    assert same_tokens(before, after, ["删除数据库"]) == ["删除数据库"]


def test_latin_words_that_begin_an_english_one_are_not_taken() -> None:
    before = english_tokenizer()
    rows = [Parallel(lang="de", english="Delete", text="Einstellungen löschen toolbo")] * 20
    pieces, _ = learn_pieces(rows, before, ["The toolbox of the machine"])
    assert "einstellungen" in pieces
    assert "toolbo" not in pieces


def test_words_are_aligned_with_what_they_mean() -> None:
    verbs, nouns = {"open": 0, "delete": 1, "send": 2}, {"file": 3, "message": 4, "base": 5}
    data = [([10 + v, 10 + n], [v, n]) for v in verbs.values() for n in nouns.values()]
    foreign, english, p = translation_table(data, size=20, rounds=20)
    best = {f: int(english[foreign == f][p[foreign == f].argmax()]) for f in range(10, 16)}
    assert best == {10 + i: i for i in range(6)}
    table = np.eye(6, dtype=np.float32)
    rows = meanings(table, range(10, 17), data)
    assert rows.shape == (7, 6)
    assert rows[:6].argmax(1).tolist() == [0, 1, 2, 3, 4, 5]
    assert np.linalg.norm(rows, axis=1) == pytest.approx(1.0)
    assert rows[6] == pytest.approx(6**-0.5), "one that no pair has gets the average"


# --- training --------------------------------------------------------------------------------------------------------


def test_examples_and_batches_repeat_by_seed() -> None:
    options = DistilOptions(joined=0.5, english=0.5)
    examples = make_examples(pairs(), ["a document"], options)
    assert examples == make_examples(pairs(), ["a document"], options)
    assert sum(e.text == e.english for e in examples) == 1 + len(pairs()) // 2
    assert any(". " in e.english and "。" in e.text for e in examples)
    lengths = [5, 1, 9, 5, 1, 9, 2]
    batches = in_batches(lengths, 2, 0)
    assert sorted(i for batch in batches for i in batch) == list(range(7))
    assert {1, 4} in [set(batch) for batch in batches], "like lengths go together"


def test_held_out_tools_are_no_documents(tmp_path: Path) -> None:
    lines = [{"tool_id": f"s/{s}", "server_id": "s", "name": f"do_{s}", "split": s} for s in ("seen", "unseen_tool")]
    path = tmp_path / "tools.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    assert tool_documents([]) == []
    texts = tool_documents([path])
    assert len(texts) == 1
    assert "do seen" in texts[0]


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "train",
        "languages",
        "--strings",
        str(tmp_path),
        "--base",
        str(tmp_path),
        "--out",
        str(tmp_path / "o"),
    ]
    assert execute(arguments) != 0
    said = capsys.readouterr().err
    assert "There is no model in" in said or "Training needs" in said
    assert "Traceback" not in said


def test_the_script_is_sound_and_explains_itself() -> None:
    script = ROOT / "runs" / "train_languages.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "BASE OUT TOOLS" in done.stdout
    listed = (ROOT / "runs" / "translations.txt").read_text("utf-8").splitlines()
    assert all(line.startswith("#") or line.strip() == line != "" for line in listed)


@needs_torch
def test_layers_are_blended_and_embeddings_are_not() -> None:
    import torch
    from transformers import BertConfig, BertModel

    from toolscout.finetune.languages.distil import blend

    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    model, base = (BertModel(BertConfig(vocab_size=size, **small)) for size in (12, 10))
    name = "encoder.layer.0.output.dense.weight"
    before, other = (m.get_parameter(name).detach().clone() for m in (model, base))
    table = model.get_input_embeddings().weight.detach().clone()
    blend(model, base, 0.25)
    assert torch.allclose(model.get_parameter(name), 0.75 * before + 0.25 * other)
    assert torch.equal(model.get_input_embeddings().weight, table)


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_a_student_learns_and_english_stays(tmp_path: Path) -> None:
    import torch
    from sentence_transformers import SentenceTransformer
    from test_train_encoder import make_base

    from toolscout.finetune.export_encoder import export
    from toolscout.finetune.languages.distil import distil

    torch.set_num_threads(1)
    base = make_base(tmp_path)
    for lang in ("zh", "ru"):
        write_catalogue(tmp_path / "strings", lang, {r.english: r.text for r in pairs() if r.lang == lang})
    options = DistilOptions(languages=("zh", "ru"), each=40, held_out=3, batch=4, rate=1e-3, rows_rate=1e-2, joined=1.0)
    result = distil(tmp_path / "strings", base, tmp_path / "out", ["open the file", "send it"], options)
    assert result["steps"] == result["of"] > 5
    assert 0 < result["rows_only_steps"] < result["steps"]
    assert result["loss_last"] < result["loss_first"]
    assert set(result["accuracy"]["after"]) == {"zh", "ru"}
    assert result["english_cosine"]["mean"] > 0.8

    model, old = SentenceTransformer(str(tmp_path / "out" / "model")), SentenceTransformer(str(base))
    text = "删除数据库 и файл"
    tokenizer = Tokenizer.from_file(str(tmp_path / "out" / "model" / "tokenizer.json"))
    tokenizer.no_padding()
    assert model.tokenizer(text)["input_ids"] == tokenizer.encode(text).ids
    table, before = (m[0].auto_model.get_input_embeddings().weight.detach() for m in (model, old))
    assert len(table) == tokenizer.get_vocab_size() == len(before) + result["new_tokens"]
    word = tokenizer.token_to_id("file")
    assert torch.equal(table[word], before[word]), "rows of plain English never change"
    assert export(tmp_path / "out" / "model", tmp_path / "asset", name="n", source="s", min_parity=0.9).mean > 0.9
    with pytest.raises(BadInput, match="not empty"):
        distil(tmp_path / "strings", base, tmp_path / "out", [], options)
    with pytest.raises(BadInput, match="Not a known language"):
        distil(tmp_path / "strings", base, tmp_path / "o", [], DistilOptions(languages=("tlh",)))
