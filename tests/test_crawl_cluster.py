"""A crawl over the machines of a Ray cluster: the same outcomes, whatever dies in the middle.

The cluster is a real one of two nodes on this machine; the driver is the command line. What needs Ray is skipped
without it (``pip install toolscout[ray]``).
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from crawl_registry import PACKAGES, PackageServer
from crawl_work import LIMITS, needs_node, needs_sandbox, processes_with, run_cli, work_folder
from databases import Postgres
from ray_cluster import address_of, quiet_and_private, two_nodes

from toolscout.crawler.cluster import Cluster
from toolscout.crawler.deploy import Outcome
from toolscout.crawler.listing import Listing
from toolscout.crawler.remote_station import Opened, Parcel, RemoteStation, Setup
from toolscout.errors import BadInput, NotAllowed, NotFound
from toolscout.index.catalogue import Catalogue

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="no Ray (pip install toolscout[ray])")

# --- without Ray -----------------------------------------------------------------------------------------------------


def test_without_ray_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(NotAllowed, match="Ray is not installed") as caught:
        Cluster("auto", Setup(tmp_path), 1)
    assert "toolscout[ray]" in caught.value.hint


def test_an_outcome_arrives_as_it_was() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    fair = {
        "name": "t",
        "description": "天气 \ud800",
        "inputSchema": {"type": "object", "x": [1.5, None, float("inf")]},
    }
    listing = Listing("2025-11-25", server_info={"name": "s"}, tools=[fair, {"name": "deep", "inputSchema": deep}])
    found = Parcel.pack(Outcome(listing=listing, starts=2)).unpack()
    assert found == Outcome(listing=Listing("2025-11-25", server_info={"name": "s"}, tools=[fair]), starts=2)
    assert Parcel.pack(Outcome(starts=1)).unpack() == Outcome(starts=1)


async def test_a_machine_without_a_sandbox_or_of_another_version_refuses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = await RemoteStation(Setup(tmp_path, version="0.0.1")).open()
    assert isinstance(said, NotAllowed) and "0.0.1" in str(said)
    monkeypatch.setattr("toolscout.crawler.sandbox.probe", lambda _: "it is broken")
    said = await RemoteStation(Setup(tmp_path)).open()
    assert isinstance(said, NotAllowed) and "only started in a sandbox" in str(said)


@needs_sandbox
async def test_stations_on_one_machine_have_folders_and_users_of_their_own(work: Path) -> None:
    setup = Setup(work, limits=LIMITS)
    first, second = RemoteStation(setup), RemoteStation(setup)
    one, two = await first.open(), await second.open()
    assert isinstance(one, Opened) and isinstance(two, Opened)
    assert two.name == f"{one.name}-2"
    assert second._first_slot == 64
    await first.close()
    third = RemoteStation(setup)
    again = await third.open()
    assert isinstance(again, Opened) and again.name == one.name
    for station in (second, third):
        await station.close()


# --- with Ray --------------------------------------------------------------------------------------------------------


@pytest.fixture
def work() -> Iterator[Path]:
    yield from work_folder()


@pytest.fixture(scope="module")
def packages() -> Iterator[PackageServer]:
    server = PackageServer()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
            patch.setenv(name, "")
        for name, value in server.environment().items():
            patch.setenv(name, value)
        quiet_and_private(patch)
        yield server
    server.close()


@pytest.fixture(scope="module")
def head(packages: PackageServer) -> Iterator[subprocess.Popen[str]]:
    with two_nodes() as keeper:
        yield keeper


@pytest.fixture(scope="module")
def address(head: subprocess.Popen[str]) -> str:
    return address_of(head)


class Driver:
    """``toolscout crawl`` over packages, in a process of its own."""

    def __init__(self, work: Path, home: Path, names: str, *options: str) -> None:
        listed = {"npm": work / "npm.txt", "pypi": work / "pypi.txt"}
        for registry, path in listed.items():
            wanted = (n.partition(":") for n in names.split())
            path.write_text("".join(f"{name}\n" for kind, _, name in wanted if kind == registry))
        self.work = work
        self.options = ["--work", str(work), "--keep-free", "0.5", *options]
        self.options += [word for kind, path in listed.items() for word in ("--names", f"{kind}={path}")]
        self.env = {"TOOLSCOUT_HOME": str(home)}

    def run(self) -> dict[str, Any]:
        """To its end."""
        done = run_cli("crawl", *self.options, "--json", env=self.env)
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        return told

    @contextlib.contextmanager
    def started(self) -> Iterator[subprocess.Popen[str]]:
        """In the background; killed in the end."""
        process = subprocess.Popen(
            [sys.executable, "-m", "toolscout", "crawl", *self.options, "--json"],
            env={**os.environ, **self.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def results(self) -> dict[str, tuple[str | None, str | None]]:
        """Failure and cause by server."""
        found = self.rows("SELECT server_id, failure, cause FROM result")
        return {row["server_id"]: (row["failure"], row["cause"]) for row in found}

    def rows(self, query: str) -> list[dict[str, Any]]:
        with contextlib.closing(sqlite3.connect(f"file:{self.work}/crawl.db?mode=ro", uri=True, timeout=30)) as db:
            db.row_factory = sqlite3.Row
            return [dict(row) for row in db.execute(query)]


def until(found: Callable[[], Any], seconds: float = 120) -> Any:
    """What it gives once it gives something."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)
    return value


def above(pid: int, name: str) -> int:
    """The process above another one whose command line begins with a name; 0 when there is none."""
    while pid > 1:
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace").startswith(name):
                return pid
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return 0
    return 0


def silent_in(work: Path) -> list[int]:
    """The processes of the server that never answers, in this test's folder."""
    return [pid for pid in processes_with(f"{work}/nodes") if "silent-mcp/index.js" in _line(pid)]


def station_of_silent(work: Path, *but: int) -> int:
    """The station that runs it, if it is another one than those."""
    stations = {above(pid, "ray::RemoteStation") for pid in silent_in(work)} - {0, *but}
    return stations.pop() if stations else 0


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def left_in(work: Path) -> list[Path]:
    return [p for name in ("installs", "trash") for p in work.glob(f"nodes/*/{name}/*")]


_SAME = "npm:weather-mcp npm:crash-mcp npm:modern-mcp npm:odd-schemas-mcp npm:keys-one-by-one-mcp npm:not-there-mcp"
_SAME += " npm:needs-folder-mcp pypi:current-mcp-server pypi:unpinned-mcp-server"


@needs_ray
@needs_sandbox
@needs_node
def test_a_cluster_finds_what_one_machine_finds(address: str, work: Path, home: Path, postgres: Postgres) -> None:
    """Record by record, and from there into a PostgreSQL catalogue."""
    alone, spread = work / "alone", work / "spread"
    for folder in (alone, spread):
        folder.mkdir()
    one = Driver(alone, home, _SAME)
    many = Driver(spread, home, _SAME, "--ray", address, "--workers", "2", "--catalog")
    url = postgres.url()
    many.env["TOOLSCOUT_DATABASE"] = url
    told = many.run()
    counts = {name: told["deployed"][name] for name in ("done", "total", "ok", "tools")}
    here = one.run()["deployed"]
    assert counts == {name: here[name] for name in counts}
    result = (
        "SELECT server_id, version, ok, failure, cause, evidence, starts, needs_key, needs_arguments, pinned, era, "
    )
    result += "noise, odd, pages, entity, tools, record FROM result ORDER BY server_id"
    tool = "SELECT server_id, name, position, fingerprint, record FROM tool ORDER BY server_id, position"
    for query in (result, tool):
        found = []
        for driver in (one, many):
            rows = driver.rows(query)
            for row in rows:
                raw = row["record"]
                record = json.loads(zlib.decompress(raw) if isinstance(raw, bytes) else raw or "{}")
                row["record"] = {k: v for k, v in record.items() if k not in ("checked_at", "first_seen")}
                if row.get("evidence"):
                    row["evidence"] = row["evidence"].replace(str(driver.work), "").count("\n")
            found.append(rows)
        assert found[0] == found[1] and found[0]
    assert not (spread / "installs").exists(), "the driver deploys nothing itself"
    stations = sorted(p.name for p in (spread / "nodes").iterdir())
    assert len(stations) == 2 and stations[1] == f"{stations[0]}-2"
    assert all((spread / "nodes" / name / "cache").is_dir() for name in stations)
    assert left_in(spread) == []
    assert many.rows("SELECT workers, sandbox FROM run")[0]["workers"] == 4
    with Catalogue(url) as catalogue:
        listed = {tool.tool_id for tool in catalogue.tools()}
        assert len(listed) == told["catalog"]["tools"] > 5 and "npm/modern-mcp/now" in listed


@needs_ray
@needs_sandbox
@needs_node
@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 3])
def test_a_killed_station_costs_nothing_but_time(address: str, work: Path, home: Path, kills: int) -> None:
    names = "npm:silent-mcp npm:weather-mcp npm:modern-mcp npm:crash-mcp"
    driver = Driver(work, home, names, "--ray", address, "--workers", "2", "--seconds", "8")
    with driver.started() as process:
        killed: list[int] = []
        for _ in range(kills):
            killed.append(until(lambda: station_of_silent(work, *killed)))
            os.kill(killed[-1], signal.SIGKILL)
        said, complaints = process.communicate(timeout=120)
    assert process.returncode == 0, complaints
    assert json.loads(said)["deployed"]["done"] == 4
    found = driver.results()
    assert found.pop("npm/silent-mcp") == (("timeout", "silent") if kills == 1 else ("lost", "station_died"))
    assert found == {
        "npm/weather-mcp": (None, None),
        "npm/modern-mcp": (None, None),
        "npm/crash-mcp": ("crashed", "status_1"),
    }
    assert silent_in(work) == [] and left_in(work) == []
    assert len(driver.rows("SELECT * FROM history")) == 4, "one transaction a package"
    if kills == 3:
        (row,) = driver.rows("SELECT evidence FROM result WHERE failure = 'lost'")
        assert row["evidence"].count("died") >= 3


@needs_ray
@needs_sandbox
@needs_node
def test_a_killed_driver_goes_on_without_repeating(
    packages: PackageServer, address: str, work: Path, home: Path
) -> None:
    names = "npm:weather-mcp npm:silent-mcp npm:modern-mcp"
    driver = Driver(work, home, names, "--ray", address, "--workers", "1", "--seconds", "6")
    patient = Driver(work, home, names, "--ray", address, "--workers", "1", "--seconds", "60")
    with patient.started() as process:
        until(lambda: station_of_silent(work))
        until(lambda: (work / "crawl.db").exists() and len(driver.results()) == 2)
        process.send_signal(signal.SIGKILL)
        process.wait()
    until(lambda: not silent_in(work), 30)
    fetched = len(packages.asked)
    told = driver.run()
    assert (told["deployed"]["done"], told["deployed"]["ok"]) == (1, 0)
    assert driver.results() == {
        "npm/weather-mcp": (None, None),
        "npm/modern-mcp": (None, None),
        "npm/silent-mcp": ("timeout", "silent"),
    }
    assert not [path for path in packages.asked[fetched:] if "weather" in path or "modern" in path]
    assert left_in(work) == []


@needs_ray
@needs_sandbox
@needs_node
def test_a_cluster_for_this_crawl_alone_ends_with_ctrl_c(packages: PackageServer, work: Path, home: Path) -> None:
    before = set(Path(tempfile.gettempdir()).glob("toolscout-ray-*"))
    names = "npm:silent-mcp npm:weather-mcp"
    driver = Driver(work, home, names, "--ray", "local", "--workers", "2", "--seconds", "60")
    with driver.started() as process:
        until(lambda: station_of_silent(work))
        (folder,) = set(Path(tempfile.gettempdir()).glob("toolscout-ray-*")) - before
        assert processes_with(str(folder))
        until(lambda: driver.results() == {"npm/weather-mcp": (None, None)})
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in said, said
    assert silent_in(work) == [] and left_in(work) == []
    assert until(lambda: not processes_with(str(folder)), 20)
    assert not folder.exists()


@needs_ray
@needs_sandbox
@needs_node
@pytest.mark.slow
def test_a_lost_machine_is_replaced_by_one_that_joins(
    packages: PackageServer, head: subprocess.Popen[str], address: str, work: Path, home: Path
) -> None:
    """Its raylet is killed, as when a machine loses its power: what it was deploying, another one deploys. Not the
    head's: that is the driver's machine, too."""
    packages.publish_npm(PACKAGES / "npm" / "silent-mcp", name="too-silent-mcp")
    names = "npm:silent-mcp npm:too-silent-mcp"
    driver = Driver(work, home, names, "--ray", address, "--workers", "1", "--seconds", "20")
    with driver.started() as process:
        until(lambda: len({above(pid, "ray::RemoteStation") for pid in silent_in(work)} - {0}) == 2)
        raylets = [pid for pid in processes_with("raylet/raylet") if address in _line(pid)]
        os.kill(next(pid for pid in raylets if "\0--head\0" not in f"\0{_line(pid)}\0"), signal.SIGKILL)
        assert head.stdin is not None and head.stdout is not None
        head.stdin.write("add\n")
        head.stdin.flush()
        assert head.stdout.readline() == "added\n"
        _, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert driver.results() == dict.fromkeys(["npm/silent-mcp", "npm/too-silent-mcp"], ("timeout", "silent"))
    assert "died; what it was deploying is tried again" in said
    assert silent_in(work) == []


@needs_ray
@needs_sandbox
@needs_node
@pytest.mark.slow
def test_full_disks_end_the_crawl_and_cost_no_package(address: str, work: Path, home: Path) -> None:
    driver = Driver(work, home, "npm:weather-mcp", "--ray", address, "--keep-free", "1000000")
    done = run_cli("crawl", *driver.options, env=driver.env)
    assert done.returncode == 8 and "GiB of disk are free" in done.stderr, done.stderr
    assert done.stderr.count("Left out:") == 2
    assert driver.results() == {}


@needs_ray
async def test_an_address_where_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="Ray's client"):
        Cluster("ray://127.0.0.1:1", Setup(tmp_path), 1)
    for address, kind in (("127.0.0.1:1", NotFound), ("somewhere", BadInput)):
        with pytest.raises(kind):
            async with Cluster(address, Setup(tmp_path), 1):
                pass
