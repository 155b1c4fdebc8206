"""References to secrets: resolved late, missing ones named, values never shown."""

from __future__ import annotations

import sys
import types

import pytest

from toolscout.server.secrets import HIDDEN, MissingSecret, Resolver, read_keyring, redact, references

ENVIRON = {"TOKEN": "tok-1234", "EMPTY": "", "REGION": "eu"}


@pytest.mark.parametrize(
    ("value", "resolved"),
    [
        ("plain", "plain"),
        ("", ""),
        ("${TOKEN}", "tok-1234"),
        ("${env:TOKEN}", "tok-1234"),
        ("Bearer ${TOKEN}", "Bearer tok-1234"),
        ("${REGION}-${TOKEN}-${REGION}", "eu-tok-1234-eu"),
        ("${NOPE:-fallback}", "fallback"),
        ("${NOPE:-}", ""),
        ("${EMPTY:-fallback}", "fallback"),
        ("${EMPTY}", ""),
        ("${REGION:-fallback}", "eu"),
        ("${NOPE:-http://h:1/${x}", "http://h:1/${x"),
        ("$TOKEN $(id) ${} ${1x} `id`", "$TOKEN $(id) ${} ${1x} `id`"),
        ("C:\\${REGION}\\x", "C:\\eu\\x"),
    ],
)
def test_resolving(value: str, resolved: str) -> None:
    resolver = Resolver(ENVIRON)
    assert resolver.resolve(value) == resolved
    resolver.check("x")


def test_a_value_is_not_resolved_twice() -> None:
    assert Resolver({"A": "${B}", "B": "secret"}).resolve("${A}") == "${B}"


def test_all_missing_names_are_in_one_error_and_no_value_is() -> None:
    resolver = Resolver(ENVIRON)
    resolver.resolve_all({"A": "${ONE}", "B": "${TWO}${ONE}", "C": "${TOKEN}"})
    with pytest.raises(MissingSecret) as caught:
        resolver.check("github")
    assert caught.value.names == ["ONE", "TWO"]
    assert "'github' needs ONE, TWO" in str(caught.value) and "tok-1234" not in caught.value.sentence()


def test_what_was_resolved_or_is_named_like_a_secret_is_hidden() -> None:
    resolver = Resolver(ENVIRON)
    resolver.resolve_all(
        {"Authorization": "Bearer abcdef", "API_KEY": "literal-key", "MODE": "verbose", "X": "${TOKEN}"}
    )
    shown = redact("abcdef literal-key verbose tok-1234", resolver.secrets)
    assert shown == f"{HIDDEN} {HIDDEN} verbose {HIDDEN}"


def test_redaction_covers_url_encoding_and_longer_secrets_first_and_spares_short_ones() -> None:
    text = redact("a%2Fb%2Bsecret a/b+secret a/b+secret-long xy", {"a/b+secret", "a/b+secret-long", "xy", ""})
    assert text == f"{HIDDEN} {HIDDEN} {HIDDEN} xy"


def test_references_lists_what_an_entry_needs() -> None:
    assert references(["${A} ${B:-x}", "keyring:C", "${keyring:D}", "none", "${A}"]) == ["A", "keyring:C", "keyring:D"]


def test_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A keyring backend of the real library, in memory."""
    import keyring
    from keyring.backend import KeyringBackend

    class Memory(KeyringBackend):
        priority = 1  # type: ignore[assignment]

        def get_password(self, service: str, username: str) -> str | None:
            return {("toolscout", "gh"): "from-keyring"}.get((service, username))

        def set_password(self, service: str, username: str, password: str) -> None:
            raise NotImplementedError

    before = keyring.get_keyring()
    keyring.set_keyring(Memory())
    try:
        resolver = Resolver({})
        assert resolver.resolve("keyring:gh") == "from-keyring"
        assert resolver.resolve("Bearer ${keyring:gh}") == "Bearer from-keyring"
        assert resolver.secrets == {"from-keyring"}
        resolver.resolve("keyring:absent")
        assert resolver.missing == ["keyring:absent"]
    finally:
        keyring.set_keyring(before)


def test_without_a_keyring_a_reference_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = types.ModuleType("keyring")
    monkeypatch.setitem(sys.modules, "keyring", broken)
    assert read_keyring("toolscout", "gh") is None
