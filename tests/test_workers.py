"""Several workers behind one port, as a real process: both eras, one catalogue, one count, one use of a yes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from databases import Postgres
from fastmcp import Client
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from serving import environment, listening

from toolscout.errors import BadInput
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.server.policy.spent import Spent
from toolscout.server.serve import run
from toolscout.server.telling.metrics import forget_dead_workers
from toolscout.server.telling.metrics_shared import SHARED_FOLDER
from toolscout.server.web.workers import run_workers, searches_at_once
from toolscout.settings import Settings

UPSTREAMS = Path(__file__).parent / "upstreams"
CALLS = 24


@contextmanager
def workers(home: Path, number: int, database: str = "") -> Iterator[str]:
    env = {**environment(home), "TOOLSCOUT_DATABASE": database}
    command = [sys.executable, "-m", "toolscout", "serve", "--workers", str(number), "--http"]
    with listening(command, "127.0.0.1:{port}", env) as url:
        yield url


def test_two_workers_share_a_port_a_catalogue_in_postgresql_and_their_numbers(
    settings: Settings, postgres: Postgres
) -> None:
    settings.database = postgres.url()
    tiny = UpstreamConfig.stdio("tiny", sys.executable, ["-I", "-S", str(UPSTREAMS / "tiny.py")])
    ServersFile(settings.servers_file).add(tiny)

    async def fill() -> None:
        async with Engine(settings) as engine:
            await engine.refresh_server("tiny")

    async def use(url: str) -> tuple[set[str], str]:
        async def one(mode: str) -> str:
            async with Client(f"{url}/mcp", mode=mode) as client:
                found = await client.call_tool_mcp("find_tools", {"query": "answers what it gets"})
                assert "tiny/echo" in found.content[0].text
                result = await client.call_tool_mcp("invoke", {"tool_id": "tiny/pid", "arguments": {}})
                assert not result.is_error, result.content
                return str(result.content[0].text)

        pids: set[str] = set()
        calls = 0
        # Which worker takes a connection is the kernel's choice: ask until both have.
        while len(pids) < 2 or calls < CALLS:
            assert calls < 600
            pids |= set(await asyncio.gather(*(one(("auto", "legacy")[n % 2]) for n in range(CALLS))))
            calls += CALLS
        await asyncio.sleep(6)  # the workers' gauges
        async with httpx.AsyncClient() as http:
            page = (await http.get(f"{url}/metrics")).text
        assert f'toolscout_calls_total{{outcome="ok",tool="invoke"}} {calls:.1f}' in page
        return pids, page

    asyncio.run(fill())
    with workers(settings.home, 2, settings.database) as url:
        pids, page = asyncio.run(use(url))
    assert 'toolscout_upstreams{state="live"} 2.0' in page
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids) or sys.platform != "linux"


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_end_when_their_supervisor_is_killed_and_a_killed_worker_is_replaced(settings: Settings) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    command = [sys.executable, "-m", "toolscout", "serve", "--workers", "2", "--http", f"127.0.0.1:{address[1]}"]
    supervisor = subprocess.Popen(command, env=environment(settings.home))

    def serving() -> list[int]:
        children = Path(f"/proc/{supervisor.pid}/task/{supervisor.pid}/children").read_text().split()
        return [int(c) for c in children if b"spawn_main" in Path(f"/proc/{c}/cmdline").read_bytes()]

    def healthy() -> bool:
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{address[1]}/health", timeout=5).status_code == 200
        return False

    eventually(lambda: healthy() and len(serving()) == 2)
    before = serving()
    os.kill(before[0], signal.SIGKILL)
    eventually(lambda: len(serving()) == 2 and before[0] not in serving())
    assert before[1] in serving()
    eventually(healthy)
    last = serving()
    supervisor.kill()
    supervisor.wait()
    eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in last))
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(address)


def test_a_worker_that_was_killed_counts_no_more(tmp_path: Path) -> None:
    worker = (
        "import os, sys; from prometheus_client import CollectorRegistry, Counter, Gauge; r = CollectorRegistry()\n"
        "Gauge('up', 'u', registry=r, multiprocess_mode='livesum').set(1); Counter('c', 'c', registry=r).inc()\n"
        "print('ready', flush=True); sys.stdin.read()"
    )
    env = {**os.environ, SHARED_FOLDER: str(tmp_path)}
    started = [
        subprocess.Popen([sys.executable, "-c", worker], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]

    def shown() -> list[float | None]:
        forget_dead_workers(tmp_path)
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(tmp_path))  # type: ignore[no-untyped-call]
        return [registry.get_sample_value("up"), registry.get_sample_value("c_total")]

    try:
        for process in started:
            assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert shown() == [2, 2]
        started[0].kill()
        started[0].communicate()
        assert shown() == [1, 2], "what it had counted stays"
    finally:
        for process in started:
            process.kill()
            process.communicate()


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_an_approval_is_used_once_whoever_is_quicker(tmp_path: Path) -> None:
    ours = [Spent(tmp_path) for _ in range(8)]
    used: list[bool] = []
    barrier = threading.Barrier(len(ours))

    def use(spent: Spent) -> None:
        barrier.wait()
        used.append(spent.add("00ff00ff00ff00ff"))

    threads = [threading.Thread(target=use, args=(spent,)) for spent in ours]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert used.count(True) == 1
    assert "00ff00ff00ff00ff" in Spent(tmp_path)  # after a restart, too
    assert "00ff00ff00ff00aa" not in Spent(tmp_path)
    assert not Spent(tmp_path).add("../../x") and "../../x" in Spent(tmp_path)


def test_old_uses_are_forgotten(tmp_path: Path) -> None:
    Spent(tmp_path).add("aaaaaaaaaaaaaaaa")
    file = tmp_path / "spent" / "aaaaaaaaaaaaaaaa"
    os.utime(file, (1, 1))
    Spent(tmp_path).add("bbbbbbbbbbbbbbbb")
    assert not file.exists() and "bbbbbbbbbbbbbbbb" in Spent(tmp_path)


def test_a_use_that_cannot_be_noted_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "spent").write_text("a file is in the way")
    assert not Spent(tmp_path).add("aaaaaaaaaaaaaaaa")


@pytest.mark.parametrize("number", [0, -1, 1000])
def test_numbers_of_workers_that_are_none_are_said(number: int) -> None:
    with pytest.raises(BadInput, match="too many or too few"):
        run_workers("127.0.0.1", 1, number)


@pytest.mark.parametrize(("written", "believed"), [("", []), ("10.0.0.1", ["10.0.0.1/32"])])
def test_workers_believe_trusted_proxies_alone(
    written: str, believed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn, "run", lambda *_, **given: options.update(given))
    for name in (
        "TOOLSCOUT_WORKER_HOST",
        "TOOLSCOUT_WORKER_COUNT",
        SHARED_FOLDER,
    ):  # it sets them: both are put back after the test
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("TOOLSCOUT_TRUSTED_PROXIES", written)
    run_workers("127.0.0.1", 0, 2)
    assert options["proxy_headers"] is bool(believed) and options["forwarded_allow_ips"] == believed


@pytest.mark.parametrize(
    ("cores", "workers", "searches"), [(2, 1, 2), (2, 2, 1), (2, 4, 1), (16, 4, 2), (1, 1, 1), (8, 5, 1)]
)
def test_all_workers_together_search_on_a_core_each(
    monkeypatch: pytest.MonkeyPatch, cores: int, workers: int, searches: int
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)), raising=False)
    assert searches_at_once(workers) == searches


def test_workers_without_a_port_are_said() -> None:
    with pytest.raises(BadInput, match="--workers needs --http"):
        run(None, 2)


def test_few_files_are_said() -> None:
    code = (
        "import logging, resource\nlogging.basicConfig()\nresource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        "from toolscout.server.limits import raise_file_limit\nprint(raise_file_limit())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == 64 and "Only 64 files may be open" in done.stderr
