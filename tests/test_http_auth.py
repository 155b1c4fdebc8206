"""Who comes in over HTTP: tokens of real keys, verified by a running server against a key set that it fetches."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest
from here import over_http
from joserfc import jwk, jwt

from toolscout.errors import BadInput, NotAllowed
from toolscout.server.engine import Engine
from toolscout.server.web.auth import check_access
from toolscout.server.web.http import make_http_app
from toolscout.server.web.jwt_tokens import LEEWAY_SECONDS
from toolscout.settings import Settings, load_settings

ISSUER = "https://login.example.com"
AUDIENCE = "toolscout"
RSA = jwk.RSAKey.generate_key(2048, parameters={"kid": "r"})
EC = jwk.ECKey.generate_key("P-256", parameters={"kid": "e"})
BODY = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/list",
    "params": {
        "_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
    },
}
HEADERS = {
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/list",
}


@pytest.fixture(scope="module")
def key_set() -> Iterator[str]:
    """The URL of a key set with both public keys."""
    page = json.dumps({"keys": [key.as_dict(private=False) for key in (RSA, EC)]}).encode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}/keys"
    server.shutdown()
    server.server_close()


@pytest.fixture
def keyed(settings: Settings, key_set: str) -> Settings:
    settings.auth_jwks, settings.auth_issuer, settings.auth_audience = key_set, ISSUER, AUDIENCE
    return settings


def signed(key: Any = RSA, algorithm: str = "RS256", kid: str = "", **claims: Any) -> str:
    """A token that holds, but for the ``claims`` given; None leaves one out."""
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "exp": int(time.time()) + 600, **claims}
    header = {"alg": algorithm, "kid": kid or key.kid}
    return jwt.encode(header, {k: v for k, v in said.items() if v is not None}, key, algorithms=[algorithm])


def by_hand(algorithm: str, sign: Callable[[bytes], bytes]) -> str:
    """A token as no library would make it."""
    said = ({"alg": algorithm, "kid": "r"}, {"iss": ISSUER, "aud": AUDIENCE, "exp": int(time.time()) + 600})
    start = b".".join(_written(json.dumps(part).encode()) for part in said)
    return (start + b"." + _written(sign(start))).decode()


def _written(part: bytes) -> bytes:
    return base64.urlsafe_b64encode(part).rstrip(b"=")


def with_the_public_key(start: bytes) -> bytes:
    """Who confuses the two kinds of algorithms takes the public key for the secret of HS256."""
    return hmac.digest(RSA.as_pem(private=False), start, "sha256")


async def status(url: str, token: str) -> int:
    async with httpx.AsyncClient() as http:
        answer = await http.post(f"{url}/mcp", json=BODY, headers={**HEADERS, "authorization": f"Bearer {token}"})
    if answer.status_code == 401:
        assert answer.headers["www-authenticate"].startswith("Bearer ")
    return answer.status_code


@pytest.mark.parametrize("public_url", ["", "https://tools.example.com"])
async def test_a_token_lets_in_only_as_it_says(keyed: Settings, public_url: str) -> None:
    keyed.public_url = public_url  # then another provider stands before the verifier
    now = int(time.time())
    stranger = jwk.RSAKey.generate_key(2048, parameters={"kid": "r"})
    cases = {
        "good": (signed(), 200),
        "good for several": (signed(aud=["another", AUDIENCE]), 200),
        "it has held for a while": (signed(nbf=now - 5), 200),
        "the issuer's clock is a little ahead": (signed(nbf=now + LEEWAY_SECONDS / 2), 200),
        "expired": (signed(exp=now - 1), 401),
        "without an end": (signed(exp=None), 401),
        "its end is no time": (signed(exp="never"), 401),
        "its end is beyond all times": (signed(exp=math.inf), 401),
        "it holds later": (signed(nbf=now + 3 * LEEWAY_SECONDS), 401),
        "its beginning is no time": (signed(nbf="now"), 401),
        "for another service": (signed(aud="another"), 401),
        "for none": (signed(aud=None), 401),
        "of another issuer": (signed(iss="https://evil.example"), 401),
        "of none": (signed(iss=None), 401),
        "by a stranger's key": (signed(stranger), 401),
        "by a key that the set lacks": (signed(stranger, kid="s"), 401),
        "by no key": (by_hand("none", lambda _: b""), 401),
        "by the public key": (by_hand("HS256", with_the_public_key), 401),
        "by another algorithm": (signed(EC, "ES256"), 401),
        "no token": ("rubbish", 401),
    }
    async with over_http(keyed) as url:
        found = {name: await status(url, token) for name, (token, _) in cases.items()}
    assert found == {name: wanted for name, (_, wanted) in cases.items()}


async def test_another_algorithm_is_a_setting(keyed: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCOUT_AUTH_ALGORITHM", "ES256")
    keyed.auth_algorithm = load_settings().auth_algorithm
    async with over_http(keyed) as url:
        assert await status(url, signed(EC, "ES256")) == 200
        assert await status(url, signed()) == 401


@pytest.mark.parametrize("written", ["HS256", "none", "rot13"])
def test_an_algorithm_without_a_public_key_is_none(monkeypatch: pytest.MonkeyPatch, written: str) -> None:
    monkeypatch.setenv("TOOLSCOUT_AUTH_ALGORITHM", written)
    with pytest.raises(BadInput, match="TOOLSCOUT_AUTH_ALGORITHM cannot be used"):
        load_settings()


async def test_it_is_said_once_why_tokens_of_another_algorithm_are_refused(
    keyed: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "toolscout"):
        async with over_http(keyed) as url:
            for _ in range(2):
                await status(url, signed(EC, "ES256"))
    said = [r.getMessage() for r in caplog.records if "ES256" in r.getMessage()]
    assert said == ["A token signed by ES256 was refused: TOOLSCOUT_AUTH_ALGORITHM says RS256."]


async def test_metrics_want_the_same_token(keyed: Settings) -> None:
    async with over_http(keyed) as url, httpx.AsyncClient() as http:
        for token, wanted in ((signed(), 200), (signed(exp=None), 401), (signed(aud="another"), 401)):
            answer = await http.get(f"{url}/metrics", headers={"authorization": f"Bearer {token}"})
            assert answer.status_code == wanted


ELSEWHERE = [
    ("0.0.0.0", {}),
    ("127.0.0.1", {"public_url": "https://tools.example.com"}),
    ("127.0.0.1", {"allowed_hosts": ["tools.example.com"]}),
    ("127.0.0.1", {"allowed_hosts": ["localhost", "*.example.com:8080"]}),
]


@pytest.mark.parametrize(("host", "names"), ELSEWHERE)
def test_who_is_reached_from_elsewhere_has_to_know_who_comes(
    settings: Settings, host: str, names: dict[str, Any]
) -> None:
    settings = settings.model_copy(update=names)
    with pytest.raises(NotAllowed, match="without authentication"):
        make_http_app(Engine(settings), settings, host)
    settings.auth_jwks = "https://login.example.com/keys"
    with pytest.raises(NotAllowed, match="whoever made it") as neither:
        check_access(settings, host)
    assert "TOOLSCOUT_AUTH_ISSUER and TOOLSCOUT_AUTH_AUDIENCE" in neither.value.hint
    settings.auth_audience = AUDIENCE
    with pytest.raises(NotAllowed) as issuer:
        check_access(settings, host)
    assert "AUDIENCE" not in issuer.value.hint and "TOOLSCOUT_AUTH_ISSUER" in issuer.value.hint
    settings.auth_audience, settings.auth_issuer = "", ISSUER
    with pytest.raises(NotAllowed) as audience:
        check_access(settings, host)
    assert "ISSUER" not in audience.value.hint and "TOOLSCOUT_AUTH_AUDIENCE" in audience.value.hint
    settings.auth_audience = AUDIENCE
    assert make_http_app(Engine(settings), settings, host)
    settings.auth_jwks, settings.auth_token = "", "t"
    check_access(settings, host)


@pytest.mark.parametrize(
    "names", [{}, {"public_url": "http://localhost:8080"}, {"allowed_hosts": ["127.0.0.1:8080", "[::1]:8080"]}]
)
def test_on_this_machine_alone_nothing_has_to_be_set(settings: Settings, names: dict[str, Any]) -> None:
    check_access(settings.model_copy(update=names), "127.0.0.1")
