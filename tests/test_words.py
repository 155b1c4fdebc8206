"""Splitting text into words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolscout.index.words import MAX_WORD, has_words, hashes, stem, surface_words, words


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("getUserHTTPInfo2", ["get", "user", "http", "info", "2", "getuserhttpinfo2"]),
        ("get_user-info", ["get", "user", "info", "getuserinfo"]),
        ("Résumé ÉtatCivil naïve", ["resum", "etat", "civil", "etatcivil", "naiv"]),
        ("ﬁle Ｆｕｌｌ", ["file", "full"]),
        ("what is the weather", ["weather"]),
        ("東京の天気", ["東", "京", "天", "気", "東京", "天気"]),
        ("把文件转换", ["文", "件", "转", "换", "文件", "件转", "转换"]),
        ("날씨를", ["날씨", "씨를"]),
        ("हिन्दी привет", ["हिन्दी", "привет"]),
        ("PDF转换", ["pdf", "转", "换", "转换"]),
        ("?!… 😀", []),
        ("", []),
    ],
)
def test_words(text: str, found: list[str]) -> None:
    assert list(words(text)) == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("queries", "query"),
        ("files", "file"),
        ("issues", "issue"),
        ("deleting", "delete"),
        ("created", "create"),
        ("running", "run"),
        ("boxes", "box"),
        ("caches", "cache"),
        ("prices", "price"),
    ],
)
def test_forms_of_a_word_meet(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(("one", "other"), [("bus", "bu"), ("status", "statu"), ("string", "str"), ("need", "ne")])
def test_different_words_stay_apart(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@given(st.text())
def test_any_text_gives_short_folded_words(text: str) -> None:
    for word in words(text):
        assert word
        assert len(word) <= 3 * MAX_WORD
        assert not any(c.isspace() for c in word)
    assert len(hashes(text)) == len(list(words(text)))
    surface_words(text)


def test_case_and_accents_do_not_matter() -> None:
    assert hashes("CREATE Éclair") == hashes("create eclair")


def test_has_words() -> None:
    assert has_words("あ") and has_words("7")
    assert not has_words("?! — 😀")
