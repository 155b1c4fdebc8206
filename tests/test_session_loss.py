"""A remote server that has forgotten our session, or takes our key no more, however it says so."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest
from forgetful import Answer, Forgetful, rpc
from mcp_types import CallToolResult, InputRequiredResult

from toolscout.errors import UpstreamError
from toolscout.server.config import UpstreamConfig
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings


@pytest.fixture
def server() -> Iterator[Forgetful]:
    server = Forgetful()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def pool_of(settings: Settings, server: Forgetful, auth: str | None = None) -> UpstreamPool:
    config = UpstreamConfig.remote("web", server.url, auth=auth)
    return UpstreamPool(settings, lambda: {"web": config})


def text(result: CallToolResult | InputRequiredResult) -> str:
    assert isinstance(result, CallToolResult)
    return "".join(getattr(block, "text", "") for block in result.content)


UNKNOWN: list[Answer] = [
    (404, rpc(-32001, "Session not found"), {}),
    (404, rpc(-32600, "Session not found", "server-error"), {}),
    (404, "Not found", {}),
    (404, rpc(-32601, "Not found"), {}),
    (400, rpc(-32000, "Bad Request: No valid session ID provided"), {}),
    (400, rpc(-32000, "Bad Request: Server not initialized"), {}),
    (400, None, {}),
    (401, rpc(-32001, "Invalid session"), {}),
    (403, "who are you?", {}),
    (410, None, {}),
    (422, {"detail": "no such session"}, {}),
    (500, rpc(-32603, "Session not found or expired"), {}),
    (200, rpc(-32600, "Invalid session ID"), {}),
    (200, rpc(-32602, "Received request before initialization was complete"), {}),
    (200, rpc(-32001, "Unknown session"), {}),
]


@pytest.mark.parametrize("lost", UNKNOWN, ids=lambda a: f"{a[0]}-{a[1]}"[:40])
async def test_a_forgotten_session_is_made_anew(settings: Settings, server: Forgetful, lost: Answer) -> None:
    server.lost = lost
    async with pool_of(settings, server) as pool:
        assert text(await pool.call("web", "go", {})) == "called"
        for restarts in (1, 2):
            server.sessions.clear()
            assert text(await pool.call("web", "go", {})) == "called"
            assert (server.calls, server.handshakes) == (restarts + 1, restarts + 1)


@pytest.mark.parametrize("pings", [True, False], ids=["pings", "mute"])
@pytest.mark.parametrize(
    "lost",
    [
        (404, rpc(-32001, "Session not found"), {}),
        (404, None, {}),
        (200, rpc(-32602, "Received request before initialization was complete"), {}),
        (200, rpc(-32000, "Unknown session (request UUID)"), {}),
    ],
)
async def test_a_forgotten_session_over_which_a_ping_is_answered(
    settings: Settings, server: Forgetful, lost: Answer, pings: bool
) -> None:
    server.lost, server.pings = lost, pings
    async with pool_of(settings, server) as pool:
        for restarts in range(3):
            server.sessions.clear()
            assert text(await pool.call("web", "go", {})) == "called"
            assert (server.calls, server.handshakes) == (restarts + 1, restarts + 1)


@pytest.mark.parametrize(
    "refusal",
    [(200, rpc(-32000, "The browser session is closed"), {}), (404, rpc(-32002, "No such page"), {})],
)
async def test_a_refusal_like_a_lost_session_costs_one_handshake(
    settings: Settings, server: Forgetful, refusal: Answer
) -> None:
    async with pool_of(settings, server) as pool:
        await pool.call("web", "go", {})
        server.refusal = refusal
        for _ in range(3):
            with pytest.raises(UpstreamError, match="refused 'go'"):
                await pool.call("web", "go", {})
        assert (server.calls, server.handshakes) == (5, 2), "asked again over one new session, and then believed"
        server.refusal = None
        server.lost, server.pings = (404, rpc(-32001, "Session not found"), {}), refusal[0] == 200
        server.sessions.clear()
        assert text(await pool.call("web", "go", {})) == "called", "a lost one is still seen"


@pytest.mark.parametrize(
    "lost", [(500, None, {}), (500, rpc(-32603, "Internal error"), {}), (200, rpc(-32000, "Sorry"), {})]
)
async def test_what_cannot_be_told_apart_is_said(settings: Settings, server: Forgetful, lost: Answer) -> None:
    server.lost = lost
    async with pool_of(settings, server) as pool:
        await pool.call("web", "go", {})
        server.sessions.clear()
        with pytest.raises(UpstreamError, match="Whether 'go' was carried out cannot be told") as caught:
            await pool.call("web", "go", {})
        assert "Check before you repeat" in caught.value.hint
        assert text(await pool.call("web", "go", {})) == "called", "over a new session"


@pytest.mark.parametrize(
    "refusal",
    [
        (200, rpc(-32001, "Request timed out"), {}),
        (400, rpc(-32602, "url is missing"), {}),
        (500, rpc(-32603, "It broke"), {}),
        (429, "slow down", {}),
        (503, None, {}),
    ],
)
async def test_a_refused_call_is_no_lost_session(settings: Settings, server: Forgetful, refusal: Answer) -> None:
    async with pool_of(settings, server) as pool:
        await pool.call("web", "go", {})
        server.refusal = refusal
        with pytest.raises(UpstreamError, match="refused 'go'") as caught:
            await pool.call("web", "go", {})
        assert (f"HTTP status {refusal[0]}" in str(caught.value)) is (refusal[0] >= 400)
        assert (server.calls, server.handshakes) == (2, 1), "called once, over the same session"


async def test_a_server_that_knows_no_session_at_all(settings: Settings, server: Forgetful) -> None:
    server.lost, server.unknowing = (404, rpc(-32001, "Session not found"), {}), True
    async with pool_of(settings, server) as pool:
        with pytest.raises(UpstreamError, match=r"does not know the session .* nor a new one") as caught:
            await pool.call("web", "go", {})
    assert "not carried out" in caught.value.hint and (server.calls, server.handshakes) == (0, 2)


@pytest.mark.parametrize("pings", [True, False], ids=["pings", "mute"])
async def test_many_calls_find_the_session_lost_at_once(settings: Settings, server: Forgetful, pings: bool) -> None:
    if pings:
        server.lost, server.pings = (404, rpc(-32001, "Session not found"), {}), True
    async with pool_of(settings, server) as pool:
        await pool.call("web", "go", {})
        server.sessions.clear()
        results = await asyncio.gather(*(pool.call("web", "go", {}) for _ in range(10)))
    assert [text(result) for result in results] == ["called"] * 10 and server.calls == 11
    assert server.handshakes == 2, "they share one new session"


async def test_a_key_that_expires_between_two_calls(
    settings: Settings, server: Forgetful, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEB_KEY", "first")
    server.key = "first"
    async with pool_of(settings, server, "${WEB_KEY}") as pool:
        await pool.call("web", "go", {})
        server.key = "second"
        with pytest.raises(UpstreamError, match="HTTP status 401: invalid_token, Old") as caught:
            await pool.call("web", "go", {})
        assert caught.value.kind == "upstream_unauthorized" and "toolscout login web" in caught.value.hint
        monkeypatch.setenv("WEB_KEY", "second")
        assert text(await pool.call("web", "go", {})) == "called", "no restart is needed"
        server.key = "third"
        monkeypatch.setenv("WEB_KEY", "third")
        assert text(await pool.call("web", "go", {})) == "called", "nor a failed call where the new key is there"


async def test_a_call_that_needs_a_wider_scope(settings: Settings, server: Forgetful) -> None:
    server.refusal = (403, None, {"www-authenticate": 'Bearer error="insufficient_scope", scope="files:write"'})
    async with pool_of(settings, server) as pool:
        with pytest.raises(
            UpstreamError, match=r"does not allow 'go' \(HTTP status 403: insufficient_scope, files:write"
        ):
            await pool.call("web", "go", {})
    assert (server.calls, server.handshakes) == (1, 1)
