"""Broken and hostile upstreams, each a real process: one clear error, and everything else goes on serving."""

from __future__ import annotations

import asyncio
import json
import sys
import threading
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mcp_types import CallToolResult, InputRequiredResult

from toolscout.errors import UpstreamError
from toolscout.server.config import UpstreamConfig
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.server.upstreams.watchdog import marked_processes
from toolscout.settings import Settings

UPSTREAMS = Path(__file__).parent / "upstreams"
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def text(result: CallToolResult | InputRequiredResult) -> str:
    assert isinstance(result, CallToolResult)
    return "".join(getattr(block, "text", "") for block in result.content)


def tiny(name: str, *args: str, env: dict[str, str] | None = None) -> UpstreamConfig:
    return UpstreamConfig.stdio(name, sys.executable, ["-I", "-S", str(UPSTREAMS / "tiny.py"), *args], env)


@pytest.fixture
async def pool(settings: Settings) -> AsyncIterator[UpstreamPool]:
    """One pool with every kind of trouble and a good upstream beside it, which must answer after each test."""
    configs = {
        "good": tiny("good"),
        "bad": tiny("bad", env={"API_KEY": "${BAD_KEY:-plain}"}),
        "hangs": tiny("hangs", "--start", "hang"),
        "stubborn": tiny("stubborn", "--start", "stubborn"),
        "crashes": tiny("crashes", "--start", "crash"),
        "noisy": tiny("noisy", "--start", "noise"),
        "mute": UpstreamConfig.stdio(
            "mute", sys.executable, ["-I", "-S", "-c", "print('Welcome!'); input(); raise SystemExit(5)"]
        ),
        "closed": UpstreamConfig.stdio(
            "closed", sys.executable, ["-I", "-S", "-c", "import os,time; os.close(1); time.sleep(60)"]
        ),
        "deaf": UpstreamConfig.stdio("deaf", sys.executable, ["-I", "-S", str(UPSTREAMS / "deaf.py")]),
    }
    changes = {"upstream_start_timeout": 1.5, "max_result_bytes": 1_000_000}
    pool = UpstreamPool(settings.model_copy(update=changes), lambda: configs)
    try:
        yield pool
        assert text(await pool.call("good", "echo", {"text": "still serving"})) == "still serving"
    finally:
        await pool.close()
    assert marked_processes(pool.marker) == []


@pytest.mark.parametrize("name", ["hangs", "stubborn"])
async def test_hangs_at_start(pool: UpstreamPool, name: str) -> None:
    with pytest.raises(UpstreamError, match=rf"'{name}' did not start within 1\.5 s"):
        await pool.call(name, "echo", {})
    assert marked_processes(pool.marker) == [], "the hung process is gone at once"


async def test_crashes_at_start_and_says_why(pool: UpstreamPool) -> None:
    with pytest.raises(UpstreamError, match="exited with status 1 while starting") as caught:
        await pool.call("crashes", "echo", {})
    assert "no such module: frobnicate" in str(caught.value)


async def test_leaves_in_the_middle_of_the_handshake(pool: UpstreamPool) -> None:
    with pytest.raises(UpstreamError, match="exited with status 5 while starting") as caught:
        await pool.call("mute", "echo", {})
    assert "Welcome!" in str(caught.value), "what it printed instead of protocol is shown"


async def test_closes_its_stdout_but_lives_on(pool: UpstreamPool) -> None:
    with pytest.raises(UpstreamError, match="closed its output while starting"):
        await pool.call("closed", "echo", {})


async def test_hangs_in_a_call(pool: UpstreamPool) -> None:
    with pytest.raises(UpstreamError, match="did not answer 'hang' within"):
        await pool.call("bad", "hang", {}, timeout=0.2)
    assert text(await pool.call("bad", "echo", {"text": "fine"})) == "fine"


async def test_crashes_in_a_call_and_is_restarted(pool: UpstreamPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAD_KEY", "sekret/value+1")
    hanging = asyncio.create_task(pool.call("bad", "hang", {}))
    await pool.call("bad", "echo", {})
    with pytest.raises(UpstreamError, match="exited with status 3 before it answered 'crash'") as caught:
        await pool.call("bad", "crash", {})
    assert "it all went wrong with [hidden]" in str(caught.value) and "sekret" not in str(caught.value)
    assert "may have been carried out" in caught.value.hint
    with pytest.raises(UpstreamError, match="before it answered 'hang'"):
        await hanging
    assert text(await pool.call("bad", "echo", {"text": "back"})) == "back"
    assert "sekret" not in str(pool.status())


async def test_crashing_in_every_call_leads_to_back_off(pool: UpstreamPool) -> None:
    for _ in range(2):
        with pytest.raises(UpstreamError, match="before it answered 'crash'"):
            await pool.call("bad", "crash", {})
    with pytest.raises(UpstreamError, match="failed 2 times in a row"):
        await pool.call("bad", "echo", {})


async def test_floods_stderr(pool: UpstreamPool) -> None:
    assert text(await pool.call("bad", "flood", {"bytes": 100_000_000}, timeout=60)) == "flooded"
    status = next(s for s in pool.status() if s.server_id == "bad")
    assert 0 < len(status.stderr) <= 2000
    assert text(await pool.call("bad", "echo", {"text": "fine"})) == "fine"


async def test_prints_garbage_on_stdout(pool: UpstreamPool) -> None:
    assert text(await pool.call("noisy", "echo", {"text": "ready"})) == "ready"
    assert text(await pool.call("noisy", "noise", {})) == "after the noise"
    assert text(await pool.call("noisy", "latin", {})) == "caf\ufffd"


async def test_returns_50_megabytes(pool: UpstreamPool) -> None:
    beside = asyncio.create_task(pool.call("bad", "sleep", {"seconds": 0.3}))
    with pytest.raises(UpstreamError, match="answered 'big' with more than 1,000,000 bytes") as caught:
        await pool.call("bad", "big", {"bytes": 50_000_000})
    assert "TOOLSCOUT_MAX_RESULT_BYTES" in caught.value.hint
    assert text(await beside) == "slept", "a call beside it is not hurt"
    assert len(text(await pool.call("bad", "big", {"bytes": 900_000}))) == 900_000
    assert next(s for s in pool.status() if s.server_id == "bad").starts == 1


@linux
@pytest.mark.parametrize("arguments", [{}, {"new_session": True}])
async def test_a_grandchild_that_ignores_sigterm_goes_too(pool: UpstreamPool, arguments: dict[str, bool]) -> None:
    grandchild = int(text(await pool.call("bad", "fork", arguments)))
    while grandchild not in marked_processes(pool.marker):  # noqa: ASYNC110
        await asyncio.sleep(0.01)  # its environment shows only once its program has been loaded
    await pool.stop("bad")
    assert marked_processes(pool.marker) == []


@linux
async def test_a_grandchild_outliving_a_crashed_upstream_goes_too(pool: UpstreamPool) -> None:
    await pool.call("bad", "fork", {})
    with pytest.raises(UpstreamError):
        await pool.call("bad", "crash", {})
    await pool.call("bad", "echo", {})  # the restart has waited for the end of all that came before
    assert len(marked_processes(pool.marker)) == 1


async def test_an_answer_that_is_no_tool_result(pool: UpstreamPool) -> None:
    with pytest.raises(UpstreamError, match="something that is no tool result"):
        await pool.call("bad", "bad", {})


async def test_never_reads_its_stdin(pool: UpstreamPool) -> None:
    """Requests pile up in a pipe that nobody empties: callers time out, nothing blocks."""
    await pool.call("deaf", "echo", {})
    big = {"text": "x" * 300_000}
    outcomes = await asyncio.gather(
        *(pool.call("deaf", "echo", big, timeout=0.5) for _ in range(3)), return_exceptions=True
    )
    assert all(isinstance(o, UpstreamError) and "did not answer" in str(o) for o in outcomes), outcomes


BROKEN = """
import json, sys

for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    if message["method"] == "initialize":
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": {"name": "b", "version": "1"}}
        answer = {"result": about}
    elif message["method"] == "tools/call":
        none = {"error": {"error": {"code": "many", "message": None}}, "result": {"result": [1]}}
        answer = none[message["params"]["name"]]
    else:
        answer = {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""


class _Broken(BaseHTTPRequestHandler):
    """A server of the older era over HTTP whose calls are answered with an error that is none."""

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        about = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "b", "version": "1"},
        }
        answer = {
            "initialize": {"result": about},
            "tools/list": {"result": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}},
            "tools/call": {"error": {"code": "many", "message": None}},
        }.get(message["method"], {"error": {"code": -32601, "message": "unknown"}})
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), **answer}).encode() if "id" in message else b""
        self.send_response(200 if body else 202)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    def log_message(self, *_: object) -> None:
        pass


async def test_an_error_over_http_that_is_none(settings: Settings) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Broken)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    config = UpstreamConfig.remote("web", f"http://127.0.0.1:{server.server_port}/mcp")
    try:
        async with UpstreamPool(settings, lambda: {"web": config}) as pool:
            with pytest.raises(UpstreamError) as caught:
                await pool.call("web", "echo", {})
    finally:
        server.shutdown()
        server.server_close()
    assert str(caught.value) == "'web' broke the protocol at 'echo': its answer is no JSON-RPC message."
    assert caught.value.kind == "upstream_protocol"


async def test_an_error_over_a_pipe_that_is_none(settings: Settings, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    config = UpstreamConfig.stdio("broken", sys.executable, ["-I", "-S", str(tmp_path / "broken.py")])
    async with UpstreamPool(settings, lambda: {"broken": config}) as pool:
        for name in ("error", "result"):
            with pytest.raises(UpstreamError) as caught:
                await pool.call("broken", name, {})
            assert str(caught.value) == f"'broken' broke the protocol at '{name}': its answer is no JSON-RPC message."
