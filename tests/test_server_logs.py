"""What the home keeps of servers that run: their logs, and the wish that they be started anew."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from test_pool import eventually, text, tiny

from toolscout.cli import execute
from toolscout.errors import UpstreamError
from toolscout.server.config import ServersFile
from toolscout.server.secrecy.hiding import HIDDEN, Hider
from toolscout.server.upstreams.folder import log_file, older, restart_file
from toolscout.server.upstreams.log import ServerLog
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings

Capture = pytest.CaptureFixture[str]
KEY = "sk-aB3dE5gH7jK9mN1pQ3sT"


@pytest.fixture
async def pool(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[UpstreamPool]:
    monkeypatch.setenv("A_KEY", KEY)
    servers = ServersFile(settings.servers_file)
    servers.add(tiny(env={"API_KEY": "${A_KEY}"}))
    async with UpstreamPool(settings, servers.load) as pool:
        yield pool


def lines(home: Path, name: str = "tiny") -> list[str]:
    """The log's lines without their times."""
    return [line.split(" ", 2)[2] for line in log_file(home, name).read_text().splitlines()]


async def test_what_a_server_says_is_kept_without_its_secrets(pool: UpstreamPool, home: Path, capsys: Capture) -> None:
    assert execute(["logs", "tiny"]) == 0
    assert "has written nothing yet" in capsys.readouterr().err
    assert execute(["logs", "nobody"]) == 3
    with pytest.raises(UpstreamError):
        await pool.call("tiny", "crash", {"last_words": "no line's end"})
    await eventually(lambda: len(lines(home)) == 4)
    said = lines(home)
    assert said[0].startswith("[toolscout] started: process ")
    assert said[1:3] == [f"Traceback: it all went wrong with {HIDDEN}", "no line's end"]
    assert said[3] == "[toolscout] ended: it exited with status 3"
    assert log_file(home, "tiny").stat().st_mode & 0o777 == 0o600
    capsys.readouterr()
    assert execute(["logs", "tiny", "-n", "2", "--json"]) == 0
    assert [line.split(" ", 2)[2] for line in json.loads(capsys.readouterr().out)["lines"]] == said[2:]
    assert execute(["remove", "tiny", "--yes"]) == 0
    assert not list((home / "servers").iterdir())


async def test_a_flood_is_kept_in_part(pool: UpstreamPool, home: Path) -> None:
    for _ in range(4):
        await pool.call("tiny", "flood", {"bytes": 2_000_000})
        await asyncio.sleep(0.6)
    path = log_file(home, "tiny")
    assert sum(f.stat().st_size for f in (path, older(path)) if f.exists()) < 400_000
    everything = older(path).read_text() + (path.read_text() if path.exists() else "")
    assert "bytes were left out here" in everything


async def test_no_half_of_a_secret_is_written(tmp_path: Path) -> None:
    path = tmp_path / "x.log"
    log = ServerLog(path, Hider([KEY]))
    log.add(f"one\ntwo {KEY[:12]}".encode())
    await eventually(path.exists)
    assert KEY[:8] not in path.read_text()
    log.add(f"{KEY[12:]} three\n".encode())
    log.note("end")
    assert f"two {HIDDEN} three" in path.read_text()
    log.add(b"x" * (64 * 1024 - 20) + KEY.encode() + b"y" * (64 * 1024 - 8))
    log.note("end")
    assert KEY[-8:] not in path.read_text()


@pytest.mark.parametrize("at", range(8, len(KEY) - 6))
async def test_no_half_of_a_secret_is_written_around_a_note(tmp_path: Path, at: int) -> None:
    path = tmp_path / "x.log"
    log = ServerLog(path, Hider([KEY]))
    log.add(f"two {KEY[:at]}".encode())
    log.note("restarted")
    log.add(f"{KEY[at:]} three\n".encode())
    log.note("end")
    assert [line.split(" ", 2)[2] for line in path.read_text().splitlines()] == [
        f"two {HIDDEN}", "[toolscout] restarted", f"{HIDDEN} three", "[toolscout] end",
    ]  # fmt: skip


async def test_two_processes_make_a_log_the_older_one_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.log"
    path.write_text("old\n" * 40_000)
    one, two = ServerLog(path, Hider([])), ServerLog(path, Hider([]))
    close = os.close

    def closed(file: int) -> None:
        monkeypatch.setattr(os, "close", close)
        close(file)
        two.note("of two")  # it makes it the older one before one does
        two.note("fresh")

    monkeypatch.setattr(os, "close", closed)
    one.note("of one")
    assert older(path).read_text().startswith("old\n")
    assert path.read_text().endswith("fresh\n")


def test_a_log_is_followed_into_the_next_file(home: Path) -> None:
    ServersFile(home / "mcp.json").add(tiny())
    path = log_file(home, "tiny")
    path.parent.mkdir()
    path.write_text("zero\none\n")
    command = [sys.executable, "-m", "toolscout", "logs", "tiny", "--follow", "--lines", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == "one\n"
        with path.open("a") as file:
            file.write("two\n")
        assert following.stdout.readline() == "two\n"
        with path.open("a") as file:
            file.write("three\n")
        path.replace(older(path))
        path.write_text("four\x1b[2J\n")
        assert [following.stdout.readline() for _ in range(2)] == ["three\n", "four\ufffd[2J\n"]
        following.terminate()


async def test_a_server_is_started_anew_though_a_call_hangs(pool: UpstreamPool, home: Path) -> None:
    first = text(await pool.call("tiny", "pid", {}))
    hanging = asyncio.create_task(pool.call("tiny", "hang", {}))
    await asyncio.sleep(0.1)
    assert execute(["restart", "tiny"]) == 0
    second = text(await pool.call("tiny", "pid", {}))
    assert second != first
    with pytest.raises(UpstreamError, match="was stopped, as it was restarted by hand, before it answered 'hang'"):
        await hanging
    assert pool.status()[0].failures == 0
    assert text(await pool.call("tiny", "pid", {})) == second
    assert "[toolscout] ended: it was restarted by hand" in lines(home)
    assert execute(["restart", "tiny", "nobody"]) == 3
    assert text(await pool.call("tiny", "pid", {})) == second, "all of them are known, or nothing happens"


async def test_a_restart_ends_the_wait_after_failures(settings: Settings, home: Path) -> None:
    servers = ServersFile(settings.servers_file)
    servers.add(tiny("broken", "--start", "crash"))
    async with UpstreamPool(settings, servers.load) as pool:

        async def fail() -> str:
            with pytest.raises(UpstreamError) as caught:
                await pool.call("broken", "echo", {})
            return str(caught.value)

        for _ in range(20):
            if "left alone" in (said := await fail()):
                break
        assert "left alone" in said
        restart_file(home, "broken").touch()
        assert "no such module" in await fail()
