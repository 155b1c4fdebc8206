"""The upstream pool against real processes: starting, sharing, stopping, restarting, relaying."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult, InputRequiredResult

from toolscout.errors import NotFound, UpstreamError
from toolscout.records import Transport
from toolscout.server.config import UpstreamConfig
from toolscout.server.secrecy.secrets import MissingSecret
from toolscout.server.upstreams.errors import Refused
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.server.upstreams.stateful import keeps_state
from toolscout.server.upstreams.watchdog import marked_processes
from toolscout.settings import Settings

UPSTREAMS = Path(__file__).parent / "upstreams"
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def tiny(name: str = "tiny", *args: str, env: dict[str, str] | None = None) -> UpstreamConfig:
    return UpstreamConfig.stdio(name, sys.executable, ["-I", "-S", str(UPSTREAMS / "tiny.py"), *args], env)


def text(result: CallToolResult | InputRequiredResult) -> str:
    assert isinstance(result, CallToolResult)
    return "".join(getattr(block, "text", "") for block in result.content)


MakePool = Callable[..., UpstreamPool]


@pytest.fixture
async def make_pool(settings: Settings) -> AsyncIterator[MakePool]:
    """Pools over the given configurations; after the test none of their processes may live."""
    pools: list[UpstreamPool] = []

    def make(*configs: UpstreamConfig, on_tools_changed: Any = None, **changes: Any) -> UpstreamPool:
        changes = {"upstream_start_timeout": 20.0, **changes}
        by_name = {config.name: config for config in configs}
        pool = UpstreamPool(settings.model_copy(update=changes), lambda: by_name, on_tools_changed=on_tools_changed)
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        await pool.close()
        assert marked_processes(pool.marker) == []


async def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come true"
        await asyncio.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


async def test_a_call_starts_the_upstream_and_relays_the_result(make_pool: MakePool) -> None:
    pool = make_pool(tiny())
    assert pool.status() == []
    result = await pool.call("tiny", "echo", {"text": "h\u00e9llo \U0001f600"})
    assert isinstance(result, CallToolResult)
    assert text(result) == "h\u00e9llo \U0001f600"
    assert result.structured_content == {"text": "h\u00e9llo \U0001f600"}
    assert not result.is_error
    failed = await pool.call("tiny", "fail", {})
    assert isinstance(failed, CallToolResult) and failed.is_error and text(failed) == "the tool says no"
    status = pool.status()[0]
    assert (status.state, status.era, status.starts, status.calls, status.in_flight) == ("live", "legacy", 1, 2, 0)


async def test_one_start_is_shared_by_all_callers(make_pool: MakePool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    pool = make_pool(tiny("tiny", "--log", str(log)))
    results = await asyncio.gather(*(pool.call("tiny", "echo", {"text": str(i)}) for i in range(200)))
    assert [text(r) for r in results] == [str(i) for i in range(200)]
    assert log.read_text().count("start ") == 1
    assert log.read_text().count("initialize") == 1


async def test_a_cancelled_first_caller_does_not_spoil_the_start_for_the_others(make_pool: MakePool) -> None:
    pool = make_pool(tiny())
    first = asyncio.create_task(pool.call("tiny", "echo", {"text": "1"}))
    second = asyncio.create_task(pool.call("tiny", "echo", {"text": "2"}))
    await asyncio.sleep(0.01)
    first.cancel()
    assert text(await second) == "2"
    assert pool.status()[0].starts == 1
    with pytest.raises(asyncio.CancelledError):
        await first


async def test_the_concurrency_limit_holds_and_nothing_is_lost(make_pool: MakePool, tmp_path: Path) -> None:
    pool = make_pool(tiny(), upstream_concurrency=3)
    await pool.call("tiny", "echo", {})
    started = time.monotonic()
    await asyncio.gather(*(pool.call("tiny", "sleep", {"seconds": 0.1}) for _ in range(9)))
    # nine calls, three at a time: three rounds, however slow the machine
    assert time.monotonic() - started >= 0.3


async def test_more_upstreams_than_slots_in_turn(make_pool: MakePool) -> None:
    pool = make_pool(*(tiny(f"s{i}") for i in range(6)), max_upstreams=2)
    for turn in range(2):
        for i in range(6):
            assert text(await pool.call(f"s{i}", "echo", {"text": f"{turn}/{i}"})) == f"{turn}/{i}"
            assert sum(s.state == "live" for s in pool.status()) <= 2
    # the least recently used one had to go each time: everyone was started anew in the second turn
    assert [s.starts for s in pool.status()] == [2] * 6


async def test_the_least_recently_used_one_makes_room(make_pool: MakePool) -> None:
    pool = make_pool(tiny("a"), tiny("b"), tiny("c"), max_upstreams=2)
    for name in ("a", "b", "a", "c"):
        await pool.call(name, "echo", {})
    assert {s.server_id: s.state for s in pool.status()} == {"a": "live", "b": "stopped", "c": "live"}


async def test_what_is_used_takes_no_room(make_pool: MakePool) -> None:
    pool = make_pool(tiny("a"), tiny("b"), tiny("c"), max_upstreams=1)
    await pool.call("a", "echo", {})
    busy = asyncio.create_task(pool.call("a", "hang", {}))
    await asyncio.sleep(0.05)
    assert text(await pool.call("b", "echo", {"text": "b"})) == "b"
    assert {s.server_id: s.state for s in pool.status()} == {"a": "live", "b": "live"}
    await pool.call("c", "echo", {})
    assert {s.server_id: s.state for s in pool.status()} == {"a": "live", "b": "stopped", "c": "live"}
    busy.cancel()
    await asyncio.wait([busy])
    # Both idle now, and there is room for one: for the one that was used last.
    assert {s.server_id: s.state for s in pool.status()} == {"a": "live", "b": "stopped", "c": "stopped"}


def kept(name: str, keep_alive: float | bool) -> UpstreamConfig:
    return UpstreamConfig.parse(name, {**tiny(name).fields, "keep_alive": keep_alive})


async def test_an_entry_says_how_long_its_server_may_idle(make_pool: MakePool) -> None:
    pool = make_pool(tiny("a"), kept("b", 60), kept("c", True), kept("d", 0.1), upstream_idle=0.2)
    for name in "abcd":
        await pool.call(name, "echo", {})
    await eventually(lambda: sum(s.state == "stopped" for s in pool.status()) == 2)
    await asyncio.sleep(0.3)
    assert {s.server_id for s in pool.status() if s.state == "live"} == {"b", "c"}


async def test_what_holds_a_state_lives_longer_and_makes_room_last(make_pool: MakePool) -> None:
    shell, always = tiny("shell", "--name", "mcp-shell-server"), kept("always", True)
    pool = make_pool(shell, always, tiny("a"), tiny("b"), max_upstreams=2)
    for name in ("always", "shell", "a", "b"):
        await pool.call(name, "echo", {})
    assert {s.server_id for s in pool.status() if s.state == "live"} == {"always", "shell", "b"}
    pool = make_pool(shell, tiny("a"), upstream_idle=1)
    for name in ("shell", "a"):
        await pool.call(name, "echo", {})
    await eventually(lambda: pool.status()[0].state == "stopped")
    assert pool.status()[1].state == "live"


@pytest.mark.parametrize(
    ("words", "holds"),
    [
        (("npx", "-y", "@playwright/mcp@latest"), True),
        (("npx", "-y", "chrome-devtools-mcp"), True),
        (("npx", "@browsermcp/mcp"), True),
        (("uvx", "mcp-shell-server"), True),
        (("npx", "@wonderwhy-er/desktop-commander"), True),
        (("bash", "/home/me/shell/notes.sh"), False),
        (("uvx", "mcp-server-time"), False),
        (("npx", "nutshell-docs"), False),
    ],
)
def test_servers_that_hold_a_state_are_known_by_their_command(words: tuple[str, ...], holds: bool) -> None:
    assert keeps_state(UpstreamConfig.stdio("x", words[0], words[1:])) is holds


async def test_many_concurrent_calls_over_more_upstreams_than_slots(make_pool: MakePool) -> None:
    pool = make_pool(*(tiny(f"s{i}") for i in range(8)), max_upstreams=3)
    results = await asyncio.gather(*(pool.call(f"s{i % 8}", "echo", {"text": str(i)}) for i in range(160)))
    assert [text(r) for r in results] == [str(i) for i in range(160)]


@linux
async def test_an_idle_upstream_is_stopped_and_started_again_when_needed(make_pool: MakePool) -> None:
    pool = make_pool(tiny(), upstream_idle=0.2)
    pid = int(text(await pool.call("tiny", "pid", {})))
    await eventually(lambda: not alive(pid))
    await eventually(lambda: pool.status()[0].state == "stopped")
    assert int(text(await pool.call("tiny", "pid", {}))) != pid
    assert pool.status()[0].failures == 0


async def test_idle_time_does_not_run_during_a_call(make_pool: MakePool) -> None:
    pool = make_pool(tiny(), upstream_idle=0.1)
    assert text(await pool.call("tiny", "sleep", {"seconds": 0.6})) == "slept"


@linux
async def test_stop_ends_the_process_and_a_call_starts_it_anew(make_pool: MakePool) -> None:
    pool = make_pool(tiny())
    pid = int(text(await pool.call("tiny", "pid", {})))
    await pool.stop("tiny")
    assert not alive(pid)
    await pool.stop("never heard of")
    assert int(text(await pool.call("tiny", "pid", {}))) != pid


async def test_stopping_during_a_start_is_an_error_for_its_callers_not_a_cancellation(make_pool: MakePool) -> None:
    pool = make_pool(tiny("t", "--start", "hang"))
    calls = [asyncio.create_task(pool.call("t", "echo", {})) for _ in range(3)]
    await eventually(lambda: len(marked_processes(pool.marker)) == 1)
    await pool.stop("t")
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(o, UpstreamError) and "was stopped meanwhile" in str(o) for o in outcomes), outcomes
    assert marked_processes(pool.marker) == []


async def test_closing_ends_calls_and_nothing_starts_afterwards(make_pool: MakePool) -> None:
    pool = make_pool(tiny("a"), tiny("b", "--start", "hang"))
    await pool.call("a", "echo", {})
    calls = [asyncio.create_task(pool.call("a", "hang", {})), asyncio.create_task(pool.call("b", "echo", {}))]
    await asyncio.sleep(0.1)
    await pool.close()
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(o, UpstreamError) for o in outcomes), outcomes
    with pytest.raises(UpstreamError, match="shutting down"):
        await pool.call("a", "echo", {})
    assert marked_processes(pool.marker) == []


async def test_progress_is_relayed_in_order(make_pool: MakePool) -> None:
    pool = make_pool(tiny())
    seen: list[tuple[float, float | None, str | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        seen.append((progress, total, message))

    assert text(await pool.call("tiny", "progress", {}, on_progress=on_progress)) == "done"
    assert seen == [(1, 3, "step 1"), (2, 3, "step 2"), (3, 3, "step 3")]


async def test_a_failing_progress_listener_does_not_hurt_the_call(make_pool: MakePool) -> None:
    pool = make_pool(tiny())

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        raise RuntimeError("listener")

    assert text(await pool.call("tiny", "progress", {}, on_progress=on_progress)) == "done"
    assert text(await pool.call("tiny", "echo", {"text": "still here"})) == "still here"


async def test_cancelling_the_caller_cancels_the_call_upstream(make_pool: MakePool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    pool = make_pool(tiny("tiny", "--log", str(log)))
    task = asyncio.create_task(pool.call("tiny", "hang", {}))
    await eventually(lambda: log.exists() and "hang" in log.read_text())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await eventually(lambda: "cancelled " in log.read_text())
    assert pool.status()[0].in_flight == 0
    assert text(await pool.call("tiny", "echo", {"text": "free"})) == "free"


async def test_a_timeout_says_so_cancels_upstream_and_leaves_it_usable(make_pool: MakePool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    pool = make_pool(tiny("tiny", "--log", str(log)))
    await pool.call("tiny", "echo", {})
    with pytest.raises(UpstreamError, match=r"did not answer 'hang' within 0\.3 s"):
        await pool.call("tiny", "hang", {}, timeout=0.3)
    await eventually(lambda: "cancelled " in log.read_text())
    assert text(await pool.call("tiny", "echo", {"text": "free"})) == "free"
    assert pool.status()[0].starts == 1


async def test_the_upstreams_own_error_is_relayed_with_its_code(make_pool: MakePool) -> None:
    pool = make_pool(tiny())
    with pytest.raises(Refused, match="unknown tool nope") as caught:
        await pool.call("tiny", "nope", {})
    assert caught.value.code == -32602


async def test_meta_is_relayed_and_the_identity_stamp_is_stripped(make_pool: MakePool) -> None:
    pool = make_pool(tiny())
    result = await pool.call("tiny", "meta", {}, meta={"traceparent": "00-1", "progressToken": "mine"})
    meta = json.loads(text(result))
    assert meta.pop("progressToken") != "mine", "progress is asked for under an id of ours"
    assert meta == {"traceparent": "00-1"}
    assert isinstance(result, CallToolResult) and result.meta == {"kept": 1}


async def test_an_unknown_upstream_is_an_error(make_pool: MakePool) -> None:
    with pytest.raises(NotFound, match="No server named 'nobody'"):
        await make_pool(tiny()).call("nobody", "echo", {})


async def test_listing_pages_into_records(make_pool: MakePool) -> None:
    pool = make_pool(tiny("mine", "--pages", "5", env={"API_KEY": "sekret-value", "MODE": "x"}))
    server, tools = await pool.list_tools("mine")
    assert (server.server_id, server.name, server.title, server.version) == ("mine", "tiny", "Tiny", "1.2.3")
    assert (server.instructions, server.protocol_version) == ("Use me gently.", "2025-06-18")
    assert server.checked_at and server.transport is Transport.STDIO
    assert [(v.name, v.secret) for v in server.install.env] == [("API_KEY", True), ("MODE", False)]
    assert "sekret-value" not in server.to_json()
    assert len(tools) == 18 and len({t.name for t in tools}) == 18
    echo = tools[0]
    assert (echo.tool_id, echo.title, echo.read_only) == ("mine/echo", "Echo", True)
    assert echo.output_schema == {"type": "object"}
    assert echo.input_schema["properties"] == {"text": {"type": "string"}}


async def test_the_list_is_cached_until_the_upstream_says_it_changed(make_pool: MakePool, tmp_path: Path) -> None:
    log = tmp_path / "log"
    changed: list[str] = []
    pool = make_pool(tiny("tiny", "--log", str(log)), on_tools_changed=changed.append)
    await pool.list_tools("tiny")
    _, tools = await pool.list_tools("tiny")
    assert log.read_text().count("tools/list") == 1
    await pool.call("tiny", "change", {})
    await eventually(lambda: changed == ["tiny"])
    _, more = await pool.list_tools("tiny")
    assert {t.name for t in more} - {t.name for t in tools} == {"new_tool"}
    await pool.list_tools("tiny", fresh=True)
    assert log.read_text().count("tools/list") == 3


async def test_a_clean_exit_between_calls_is_healed_without_notice(make_pool: MakePool) -> None:
    pool = make_pool(tiny())
    for i in range(4):
        assert text(await pool.call("tiny", "exit", {})) == "bye"
        await eventually(lambda: pool.status()[0].state == "stopped")
        assert text(await pool.call("tiny", "echo", {"text": str(i)})) == str(i)
    assert pool.status()[0].failures == 0


@linux
async def test_an_upstream_killed_from_outside_is_replaced(make_pool: MakePool) -> None:
    pool = make_pool(tiny())
    pid = int(text(await pool.call("tiny", "pid", {})))
    os.kill(pid, signal.SIGKILL)
    # at once, before the pool can have noticed: the write fails or the process is gone, nothing was sent
    deadline = time.monotonic() + 10
    while True:
        try:
            assert int(text(await pool.call("tiny", "pid", {}))) != pid
            break
        except UpstreamError as error:
            assert "may have been carried out" in error.hint and time.monotonic() < deadline


async def test_repeated_crashes_back_off_and_say_until_when(make_pool: MakePool) -> None:
    pool = make_pool(tiny("bad", "--start", "crash"))
    for _ in range(2):
        with pytest.raises(UpstreamError, match="exited with status 1 while starting") as caught:
            await pool.call("bad", "echo", {})
        assert "frobnicate" in str(caught.value)
    with pytest.raises(UpstreamError, match=r"failed 2 times in a row and is left alone for another \d") as caught:
        await pool.call("bad", "echo", {})
    assert "started again by the first call after" in caught.value.hint
    status = pool.status()[0]
    assert status.state == "backing_off" and status.retry_in is not None and 0 < status.retry_in <= 1
    await asyncio.sleep(status.retry_in + 0.05)
    with pytest.raises(UpstreamError, match="exited with status 1"):
        await pool.call("bad", "echo", {})
    assert (pool.status()[0].retry_in or 0) > 1, "the wait doubles"


async def test_recovery_ends_the_back_off(make_pool: MakePool, tmp_path: Path) -> None:
    pool = make_pool(tiny("t", "--start", "crash-once", "--flag", str(tmp_path / "flag")))
    # the first start fails, the free second one (with the older handshake) works
    assert text(await pool.call("t", "echo", {"text": "up"})) == "up"
    assert pool.status()[0].failures == 0


async def test_a_missing_secret_is_named_and_needs_no_patience(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    pool = make_pool(tiny("t", env={"API_KEY": "${MY_KEY}", "MODE": "${MODE:-fast}"}))
    for _ in range(3):
        with pytest.raises(MissingSecret, match="needs MY_KEY") as caught:
            await pool.call("t", "env", {})
    assert caught.value.names == ["MY_KEY"]
    monkeypatch.setenv("MY_KEY", "sekret-123")
    seen = json.loads(text(await pool.call("t", "env", {})))
    assert (seen["API_KEY"], seen["MODE"]) == ("sekret-123", "fast")


async def test_upstreams_do_not_see_our_environment(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "aws")
    monkeypatch.setenv("TOOLSCOUT_MODEL_KEY", "model")
    monkeypatch.setenv("HTTPS_PROXY", "http://user:pw@proxy:1")
    monkeypatch.setenv("http_proxy", "http://proxy:1")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    seen = json.loads(text(await make_pool(tiny()).call("tiny", "env", {})))
    assert {"AWS_SECRET_ACCESS_KEY", "TOOLSCOUT_MODEL_KEY", "HTTPS_PROXY"}.isdisjoint(seen)
    assert seen["PATH"] == os.environ["PATH"] and seen["http_proxy"] == "http://proxy:1" and seen["LC_ALL"] == "C.UTF-8"


@pytest.mark.parametrize("start", ["strict", "silent-probe"])
async def test_servers_of_the_older_era_that_dislike_the_probe(make_pool: MakePool, start: str) -> None:
    import toolscout.server.upstreams.link as link

    pool = make_pool(tiny("t", "--start", start))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(link, "_PROBE_SECONDS", 0.5)
        assert text(await pool.call("t", "echo", {"text": "hi"})) == "hi"
        await pool.stop("t")
        assert text(await pool.call("t", "echo", {"text": "again"})) == "again"


async def test_a_relative_command_is_found_in_its_own_folder(make_pool: MakePool, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{UPSTREAMS / "tiny.py"}"\n')
    script.chmod(0o755)
    pool = make_pool(UpstreamConfig.stdio("r", "./run.sh", cwd=str(tmp_path)))
    assert text(await pool.call("r", "echo", {"text": "hi"})) == "hi"


async def test_a_command_that_does_not_exist(make_pool: MakePool) -> None:
    pool = make_pool(UpstreamConfig.stdio("n", "npx-that-is-not-here"), UpstreamConfig.stdio("d", "/"))
    with pytest.raises(UpstreamError, match="'npx-that-is-not-here' was not found"):
        await pool.call("n", "echo", {})
    with pytest.raises(UpstreamError):
        await pool.call("d", "echo", {})


@linux
async def test_killing_toolscout_leaves_no_process(tmp_path: Path) -> None:
    """SIGKILL to the process that holds the pool: the watchdog ends upstream, grandchild and runaway."""
    script = f"""
import asyncio, sys
from pathlib import Path
from toolscout.server.config import UpstreamConfig
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings
config = UpstreamConfig.stdio("t", sys.executable, ["-I", "-S", {str(UPSTREAMS / "tiny.py")!r}])
async def main():
    pool = UpstreamPool(Settings(home=Path({str(tmp_path)!r})), lambda: {{"t": config}})
    await pool.call("t", "fork", {{}})
    await pool.call("t", "fork", {{"new_session": True}})
    print(pool.marker, flush=True)
    await pool.call("t", "hang", {{}})
asyncio.run(main())
"""
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        marker = await asyncio.to_thread(process.stdout.readline)
        marker = marker.strip()
        await eventually(lambda: len(marked_processes(marker)) == 3)  # a child is there before it has its environment
        process.kill()
        process.wait()
        await eventually(lambda: marked_processes(marker) == [])
    finally:
        with contextlib.suppress(OSError):
            process.kill()
        process.wait()
        process.stdout and process.stdout.close()
