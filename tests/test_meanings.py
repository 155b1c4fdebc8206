"""Names of products that are ordinary words, too: where they mean the product."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest
from pack_fixture import Built

from toolscout.errors import StorageError
from toolscout.finetune.fit_meanings import DATA, measure, written_rows
from toolscout.index import pack
from toolscout.index.encoder_params import write_encoder_params
from toolscout.index.layers import LayeredIndex, layer_params
from toolscout.index.meanings import MeaningParams, features, meaning_params
from toolscout.index.pack.current import shipped
from toolscout.index.pack.search import PackIndex
from toolscout.index.pack.sources import PRODUCTS
from toolscout.index.products import read_products
from toolscout.jsonl import read_objects

SOURCES = Path(pack.__file__).parent / "sources"
ROWS = [row for _, row in read_objects(DATA / "word_names.jsonl")]


@pytest.fixture(scope="module")
def box(built_pack: Built) -> PackIndex:
    return PackIndex.open_pack(built_pack.path, built_pack.encoder)


@pytest.fixture(scope="module")
def real(built_pack: Built) -> PackIndex:
    """The pack that comes with Toolscout."""
    if not (found := shipped()):
        pytest.skip("no pack comes with this checkout")
    return PackIndex.open_pack(found[-1], built_pack.encoder)


def known(*words: str) -> SimpleNamespace:
    return SimpleNamespace(features={"words": 1.0}, has=lambda word: word in words)


@pytest.mark.parametrize(
    ("text", "name", "told"),
    [
        ("post it in slack", "slack", {"at_end", "first_verb"}),
        ("post it in Slack.", "Slack", {"at_end", "first_verb", "capital", "capital_long"}),
        ("bring it to close", "close", {"at_end", "to"}),
        ("my linear cycle", "linear", {"my_noun", "their_noun"}),
        ("the make scenario", "make", {"the_noun"}),
        ("notion of time", "notion", {"of"}),
        ("sketch a cat", "sketch", {"object"}),
        ("Make a chart", "Make", {"object"}),
        ("linear. list them", "linear", {"head"}),
        ("Cut me some slack", "slack", {"other_end", "lower_in_cased", "lower_in_cased_long"}),
        ("Drop the rest. Keep the first.", "Keep", {"object", "first_verb"}),
        ("OPEN IT IN BOX", "BOX", {"at_end", "first_verb", "lower_in_cased", "lower_in_cased_long"}),
    ],
)
def test_what_stands_beside_a_name_is_told(text: str, name: str, told: set[str]) -> None:
    start = text.index(name)
    found = features(text, (start, start + len(name)), known("cycle"))  # type: ignore[arg-type]
    assert {key for key, value in found.items() if value} - {"words"} == told


@pytest.mark.parametrize(
    ("query", "product", "sure"),
    [
        ("create a page in notion", "Notion", True),
        ("post in slack that lunch is here", "Slack", True),
        ("a vague notion of time", "Notion", False),
        ("slack off for an hour", "Slack", False),
        ("drop a box of nails into the cart", "Box", False),
        ("Sort the shoes. Box them up.", "Box", False),
        ("open an issue on github", "GitHub", True),
    ],
)
def test_a_word_names_a_product_where_the_request_says_so(box: PackIndex, query: str, product: str, sure: bool) -> None:
    mentions = {box.storage.products.name(m.product): m.sure for m in box.mentioned(box.ask(query))}
    assert mentions == {product: sure}


def test_a_word_is_not_told_to_be_missing(box: PackIndex) -> None:
    alone = LayeredIndex(None, box, layer_params(box.encoder))
    assert alone.find("create a page in notion").absent == "Notion"
    assert alone.find("a vague notion of time", abstain=False).absent == ""


def test_an_encoder_without_parameters_goes_by_capitals(built_pack: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolscout.index.pack.search.meaning_params", lambda encoder: None)
    box = PackIndex.open_pack(built_pack.path, built_pack.encoder)
    assert [m.sure for m in box.mentioned(box.ask("a notion in Slack"))] == [False, True]


def test_names_are_told_from_words_in_the_pack_that_ships(real: PackIndex) -> None:
    params = meaning_params(real.encoder)
    assert params is not None and params.fitted != "not fitted"
    found = measure(real, written_rows(real, DATA / "word_names.jsonl"), params)
    assert found["all_rows"] > 600 and found["all_precision"] >= 0.94 and found["all_recall"] >= 0.84
    assert found["served_precision"] >= 0.94 and found["served_recall"] >= 0.91


def test_a_word_puts_the_products_tools_first_less_often(real: PackIndex) -> None:
    rows = [r for r in written_rows(real, DATA / "word_names.jsonl") if r.split == "dev"]
    first: dict[bool, list[bool]] = {True: [], False: []}
    for row in rows:
        if len(servers := real.storage.products.servers(row.mention.product)):
            ranking = real.rank(row.ask, None, 1)
            first[row.named].append(bool(len(ranking.rows)) and real.tool_servers[ranking.rows[0]] in servers)
    assert sum(first[True]) / len(first[True]) >= 0.94 and sum(first[False]) / len(first[False]) <= 0.56


def test_rows_hold_whole_names_out() -> None:
    assert len({str(row["query"]).casefold() for row in ROWS}) == len(ROWS) >= 300
    names = {split: {row["product"] for row in ROWS if row["split"] == split} for split in ("train", "dev")}
    assert not names["train"] & names["dev"] and len(names["train"] | names["dev"]) >= 80
    counts = Counter((row["split"], row["named"]) for row in ROWS)
    assert len(counts) == 4 and all(count > 200 for count in counts.values())
    assert all(str(row["product"]).split()[0].casefold() in str(row["query"]).casefold() for row in ROWS)


def test_the_lexicon_marks_these_names_as_words() -> None:
    marked = {product.name for product in read_products(SOURCES / PRODUCTS) if product.word}
    assert {row["product"] for row in ROWS} <= marked


def test_parameters_are_written_and_read(tmp_path: Path) -> None:
    elsewhere = SimpleNamespace(folder=tmp_path)
    assert meaning_params(elsewhere) is None
    params = MeaningParams({"at_end": 3.0}, [0.5, -0.25], -1.0, 0.7, "in a test")
    write_encoder_params(tmp_path / "meanings.json", params)
    read = meaning_params(elsewhere)
    assert read is not None and asdict(read) == asdict(params)
    for broken in ("{", "[]", "7"):
        (tmp_path / "meanings.json").write_text(broken)
        with pytest.raises(StorageError, match=r"meanings\.json"):
            meaning_params(elsewhere)
