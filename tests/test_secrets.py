"""References to secrets: resolved late, missing ones named, values never shown."""

from __future__ import annotations

import base64
import json
import sys
import time
import types
from pathlib import Path

import pytest

from toolscout.secret_store import SecretStore, read_keyring
from toolscout.server.secrecy.hiding import HIDDEN, Hider
from toolscout.server.secrecy.secrets import MissingSecret, Resolver, references
from toolscout.server.secrecy.suspect import hide_suspect

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
    shown = Hider(resolver.secrets).hide("abcdef literal-key verbose tok-1234")
    assert shown == f"{HIDDEN} {HIDDEN} verbose {HIDDEN}"


def test_redaction_covers_url_encoding_and_longer_secrets_first_and_spares_short_ones() -> None:
    text = Hider({"a/b+secret", "a/b+secret-long", "xy", ""}).hide("a%2Fb%2Bsecret a/b+secret a/b+secret-long xy")
    assert text == f"{HIDDEN} {HIDDEN} {HIDDEN} xy"


PEM = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\n/KcwggSjAgEAAoIBAQC7VJTU\n-----END PRIVATE KEY-----\n"


@pytest.mark.parametrize(
    ("secret", "said", "never"),
    [
        (PEM, f"bad key {PEM!r}", "MIIE"),
        (PEM, json.dumps({"error": f"bad key {PEM}"}), "KcwggSj"),
        (PEM, json.dumps(json.dumps(PEM)), "KcwggSj"),
        (PEM, repr(PEM.encode()), "KcwggSj"),
        (PEM, "\n".join(f"  | {line}" for line in PEM.splitlines()), "KcwggSj"),
        (PEM, PEM.replace("\n", "\r\n"), "KcwggSj"),
        ("tok-1234567\n", "the token is tok-1234567.", "tok-"),
        ("p'a\"ss\\w0rd", repr("p'a\"ss\\w0rd"), "w0rd"),
        ("p&ss<w0rd>", "<b>p&amp;ss&lt;w0rd&gt;</b>", "w0rd"),
        ("pass/w0rd+x", "?a=pass%2fw0rd%2bx", "w0rd"),
        ("pass w0rd", "?a=pass+w0rd", "w0rd"),
        ("hunter2-hunter2", base64.b64encode(b"hunter2-hunter2").decode(), "aHVudGVy"),
        ("hunter2-hunter2", "Basic " + base64.b64encode(b"bob:hunter2-hunter2").decode(), "nRlcjItaHVu"),
        ("hunter2-hunter2", "Basic " + base64.b64encode(b"bobby:hunter2-hunter2").decode(), "aHVudGVy"),
        ("Basic " + base64.b64encode(b"bob:hunter2-h").decode(), "password hunter2-h", "hunter2"),
        ("postgresql://app:hunter2@db/x", "role app, password hunter2: refused", "hunter2"),
        ("postgresql://app:hunt%40r2@db/x", "role app, password hunt@r2: refused", "r2"),
        ("postgresql://app:hunter2@db/x", base64.b64encode(b"app:hunter2").decode(), "YXBwOmh1bnRl"),
        ("host=db user=app password=hunter2", "password hunter2 refused", "hunter2"),
        ("hunter2-hunter2", b"hunter2-hunter2".hex(), "68756e746572"),
        ("hunter2-hunter2", b"hunter2-hunter2".hex().upper(), "68756E746572"),
        ("it's-hunter2", "exec 'it'\"'\"'s-hunter2'", "hunter2"),
        ("a&b<'hunter2'", '{"a": "a\\u0026b\\u003c\'hunter2\'"}', "hunter2"),
        ("a&b<'hunter2'", r'{"a": "a\u0026b\u003C\u0027hunter2\u0027"}', "hunter2"),
        ("a&b<'hunter2'", "a&#38;b&#60;&#39;hunter2&#39;", "hunter2"),
        ("a&b<'hunter2'", "a&amp;b&lt;&apos;hunter2&apos;", "hunter2"),
        ("pass/hunter2", "?next=%2Fa%3Fb%3Dpass%252Fhunter2", "hunter2"),
        ('{"type": "account", "private_key": "abcd\\nefgh"}', "the key 'abcd\\nefgh' or\nabcd\nefgh", "efgh"),
    ],
)
def test_every_form_in_which_a_secret_is_printed_is_hidden(secret: str, said: str, never: str) -> None:
    shown = Hider({secret}).hide(said)
    assert never in said and never not in shown and HIDDEN in shown


def test_what_is_no_secret_stays() -> None:
    said = "postgresql at db refused the user app: no such database x (account, true)"
    hider = Hider({"postgresql://app:hunter2@db/x", '{"type": "account", "private_key": "abcd"}', "token=true"})
    assert hider.hide(said) == said and hider.hide_cut(said) == said


def test_what_was_written_out_is_hidden_where_it_looks_like_a_secret() -> None:
    resolver = Resolver(ENVIRON)
    for value in ("postgresql://app:hunter2@db/x", "--key=sk-live-Ab12Cd34Ef56", "/home/bob/a-file.json", "--verbose"):
        resolver.resolve(value)
    assert resolver.secrets == {"hunter2", "sk-live-Ab12Cd34Ef56"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("CONNECTION_STRING", "Server=db;User Id=sa;Password=hunter2hunter;Encrypt=true"),
        ("OPTS", "--verbose --password hunter2hunter"),
        ("", "--password=hunter2hunter"),
        ("", "--header=Authorization: Bearer hunter2hunter"),
        ("", "see https://x.example/y and password: hunter2hunter"),
        ("CONFIG", '{"db": {"password":"hunter2hunter"}}'),
        ("PGPASS", "hunter2hunter"),
        ("MY_PASS", "hunter2hunter"),
        ("MY_PIN", "hunter2hunter"),
        ("BOTH", "https://x.example sk-hunter2hunter1234"),
    ],
)
def test_what_was_written_out_is_hidden_under_the_name_of_a_secret(field: str, value: str) -> None:
    resolver = Resolver(ENVIRON)
    assert resolver.resolve(value, field=field) == value
    said = next(secret for secret in ("sk-hunter2hunter1234", "hunter2hunter") if secret in value)
    assert "hunter2" not in Hider(resolver.secrets).hide(f"refused: {said}")


def test_the_argument_after_a_secrets_flag_is_hidden() -> None:
    resolver = Resolver(ENVIRON)
    args = ("run", "--password", "hunter2", "--max-tokens", "4096", "--auth", "none", "--pin", "--quiet", "loud")
    assert resolver.resolve_args(args) == args and resolver.secrets == {"hunter2"}


def test_large_secrets_and_texts_take_no_time() -> None:
    hider = Hider({"".join(f"{n:06x}" for n in range(10_000)), PEM * 20})
    began = time.perf_counter()
    hider.hide_cut("ab-----" * 20_000)
    assert time.perf_counter() - began < 2


def test_references_lists_what_an_entry_needs() -> None:
    assert references(["${A} ${B:-x}", "keyring:C", "${keyring:D}", "none", "${A}"]) == ["A", "keyring:C", "keyring:D"]


def test_keyring(tmp_path: Path) -> None:
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
        resolver = Resolver({}, SecretStore(tmp_path, "toolscout").find)
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


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("a token of love", "a token of love"),
        ("mail with sk-live-Ab12Cd34Ef56 to bob", "mail with [hidden] to bob"),
        ("login password=hunter2 as bob", "login password=[hidden] as bob"),
        ('login password: "hunter 2 x" as bob', 'login password: "[hidden]" as bob'),
        ("Authorization: Bearer abc.def now", "Authorization: [hidden] now"),
        ("mysql --password hunter2 -e x", "mysql --password [hidden] -e x"),
        ("api_key=a token=b", "api_key=[hidden] token=[hidden]"),
        ("read postgresql://app:pw@db/x now", "read [hidden] now"),
        ('{"pass\\u0077ord": "hunter2"}', "[hidden]"),
        ("-----BEGIN RSA PRIVATE KEY----- abc", "[hidden]"),
    ],
)
def test_what_looks_like_a_secret_in_a_text_is_hidden(said: str, kept: str) -> None:
    assert hide_suspect(said) == kept
    assert hide_suspect(kept) == kept
