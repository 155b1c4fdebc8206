"""Settings from the environment: what people write there, and what they are told when it cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolscout.errors import BadInput, StorageError
from toolscout.settings import load_settings


@pytest.mark.parametrize(
    ("written", "hosts"),
    [
        ("tools.example.com", ["tools.example.com"]),
        ("a.example, b.example:8080 ,", ["a.example", "b.example:8080"]),
        ('["a.example", "b.example"]', ["a.example", "b.example"]),
        ("", []),
    ],
)
def test_hosts_are_separated_by_commas(written: str, hosts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCOUT_ALLOWED_HOSTS", written)
    assert load_settings().allowed_hosts == hosts


@pytest.mark.parametrize(
    ("written", "proxies"),
    [("127.0.0.1, 10.0.0.0/8", ["127.0.0.1/32", "10.0.0.0/8"]), ("[::1]", ["::1/128"]), ("", [])],
)
def test_trusted_proxies_are_addresses(written: str, proxies: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCOUT_TRUSTED_PROXIES", written)
    assert load_settings().trusted_proxies == proxies


@pytest.mark.parametrize("written", ["*", "proxy.example", "10.0.0.1/8", "127.0.0.1;10.0.0.1"])
def test_a_proxy_that_is_no_address_is_said(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCOUT_TRUSTED_PROXIES", written)
    with pytest.raises(BadInput, match="TOOLSCOUT_TRUSTED_PROXIES cannot be used: write addresses"):
        load_settings()


def test_a_bad_value_is_named_and_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCOUT_MAX_UPSTREAMS", "sk-pasted-into-the-wrong-line")
    with pytest.raises(BadInput, match="TOOLSCOUT_MAX_UPSTREAMS cannot be used") as caught:
        load_settings()
    assert "sk-pasted" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "pack"),
    [("OFF", "off"), (" off ", "off"), ("0", "off"), ("False", "off"), ("no", "off"), ("On", "default"),
     ("1", "default"), ("/tmp/Off.pack", "/tmp/Off.pack")],
)  # fmt: skip
def test_the_built_in_catalog_is_switched_off_as_people_write_it(
    written: str, pack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLSCOUT_PACK", written)
    assert load_settings().pack == pack


def test_an_empty_word_for_the_built_in_catalog_is_no_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCOUT_PACK", " ")
    with pytest.raises(BadInput, match="TOOLSCOUT_PACK cannot be used: write off, default or the path"):
        load_settings()


def test_a_tilde_is_the_home_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("TOOLSCOUT_HOME", "~/scout")
    assert load_settings().home == home / "scout"


def test_a_relative_home_is_taken_from_the_current_folder(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(home)
    monkeypatch.setenv("TOOLSCOUT_HOME", "scout")
    assert load_settings().home == Path.cwd() / "scout"


def test_a_home_that_cannot_be_made_is_a_clear_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").write_text("")
    monkeypatch.setenv("TOOLSCOUT_HOME", str(home / "file" / "below"))
    with pytest.raises(StorageError, match="cannot be made"):
        load_settings()
