"""Upstreams in a real bubblewrap: what they cannot do, what they are allowed, and that none outlives Toolscout."""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CallToolResult
from test_pool import alive, eventually

from toolscout import bubblewrap
from toolscout.errors import NotAllowed, UpstreamError
from toolscout.server.config import UpstreamConfig
from toolscout.server.sandbox import box
from toolscout.server.sandbox.package import read_package
from toolscout.server.sandbox.proxy import proxy
from toolscout.server.upstreams.folder import log_file
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.server.upstreams.watchdog import marked_processes
from toolscout.settings import Settings

PROBER = Path(__file__).parent / "upstreams" / "prober.py"
TROUBLE = box.trouble()
# ruff: noqa: ASYNC220, ASYNC240, PTH208
pytestmark = pytest.mark.skipif(TROUBLE is not None, reason=f"no sandbox here: {TROUBLE}")
SERVANT = 60999
"""Who owns the folders that servers may write, where the tests run as root."""


def prober(sandbox: object = True, *args: str, **more: Any) -> UpstreamConfig:
    entry = {"command": sys.executable, "args": ["-I", "-S", str(PROBER), *args], "sandbox": sandbox, **more}
    return UpstreamConfig.parse("prober", entry)


class Pools:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings.model_copy(update={"upstream_start_timeout": 30.0})
        self.made: list[UpstreamPool] = []

    def __call__(self, config: UpstreamConfig, **changes: Any) -> UpstreamPool:
        settings = self.settings.model_copy(update=changes)
        pool = UpstreamPool(settings, lambda: {config.name: config})
        self.made.append(pool)
        return pool


@pytest.fixture
async def pools(settings: Settings) -> AsyncIterator[Pools]:
    found = Pools(settings)
    yield found
    for pool in found.made:
        await pool.close()
        assert marked_processes(pool.marker) == []


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that a server may be given: not Toolscout's, not root's, and open on the way down."""
    path = Path(tempfile.mkdtemp(prefix="toolscout-sandbox-", dir="/var/tmp"))
    path.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(path, SERVANT, SERVANT)
    yield path
    shutil.rmtree(path, ignore_errors=True)


async def ask(pool: UpstreamPool, tool: str, **arguments: Any) -> Any:
    """What a tool says; None when it failed inside."""
    result = await pool.call("prober", tool, arguments)
    assert isinstance(result, CallToolResult)
    said = "".join(getattr(block, "text", "") for block in result.content)
    if result.is_error:
        return None
    try:
        return json.loads(said)
    except ValueError:
        return said


@pytest.fixture
def listener() -> Iterator[int]:
    """A port of the machine's loopback where somebody says hello."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"hello")

    threading.Thread(target=serve, daemon=True).start()
    yield server.getsockname()[1]
    server.close()


async def test_files_of_others_are_not_there(pools: Pools, folder: Path) -> None:
    secret = folder / "secret.txt"
    secret.write_text("nobody's business")
    plain, confined = pools(prober(False)), pools(prober())
    assert await ask(plain, "read", path=str(secret)) == "nobody's business", "the server would read it if it could"
    assert await ask(confined, "read", path=str(secret)) is None
    for path in ("/etc/shadow", "/etc/hostname", str(Path.home() / ".bashrc"), f"/proc/{os.getpid()}/environ"):
        assert await ask(confined, "read", path=path) is None, path
    listed = set(await ask(confined, "list", path="/tmp"))
    tests_own = {p.parts[2] for p in (Path(sys.prefix), Path(__file__).resolve()) if p.parts[1] == "tmp"}
    assert {"home", "work"} <= listed <= {"home", "work"} | tests_own, "a /tmp of its own"
    assert await ask(confined, "list", path="/tmp/home") == []


async def test_nothing_outside_is_written(pools: Pools, folder: Path) -> None:
    pool = pools(prober({"read": [str(folder)]}))
    inside = [str(PROBER.parent / "x"), str(folder / "x"), "/usr/x", "/etc/x", "/x", "/run/x", sys.prefix + "/x"]
    for path in inside:
        assert await ask(pool, "write", path=path) is None, path
        assert not Path(path).exists()
    assert await ask(pool, "write", path="/tmp/x") == "written"
    assert await ask(pool, "write", path="/tmp/home/x") == "written"
    assert not Path("/tmp/x").exists() and not Path("/tmp/home/x").exists()


async def test_what_the_lists_name_is_there(pools: Pools, folder: Path) -> None:
    for name in ("open", "mine"):
        (folder / name).mkdir()
        if os.geteuid() == 0:
            os.chown(folder / name, SERVANT, SERVANT)
    (folder / "open" / "a.txt").write_text("readable")
    pool = pools(prober({"read": [str(folder / "open")], "write": [str(folder / "mine")]}))
    assert await ask(pool, "read", path=str(folder / "open" / "a.txt")) == "readable"
    assert await ask(pool, "write", path=str(folder / "open" / "a.txt")) is None
    assert await ask(pool, "write", path=str(folder / "mine" / "b.txt")) == "written"
    assert (folder / "mine" / "b.txt").read_text() == "from inside"
    assert await ask(pool, "list", path=str(folder)) == ["mine", "open"]


async def test_no_network_means_no_loopback_either(pools: Pools, listener: int) -> None:
    closed, opened = pools(prober()), pools(prober({"network": True}))
    assert await ask(opened, "connect", host="127.0.0.1", port=listener) == "hello"
    assert await ask(closed, "connect", host="127.0.0.1", port=listener) is None


async def test_abstract_sockets_of_the_session_are_not_reached(pools: Pools) -> None:
    if ctypes.CDLL(None).syscall(444, None, 0, 1) < 6:
        pytest.skip("this kernel's Landlock knows no scopes")
    name = f"toolscout-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("\0" + name)
        listening.listen(2)
        assert await ask(pools(prober(False)), "abstract", name=name) == "connected"
        assert await ask(pools(prober({"network": True})), "abstract", name=name) is None


def test_keys_of_the_session_are_not_found(home: Path, tmp_path: Path) -> None:
    keyctl = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)
    script = f"""
import asyncio, ctypes, sys
sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parents[1])]!r}
system = ctypes.CDLL(None)
system.syscall.restype = ctypes.c_long
if system.syscall({keyctl}, 1, None) <= 0:  # a session of this process's own
    sys.exit(77)
assert system.syscall({keyctl} - 2, b"user", b"toolscout-test", b"a ticket", 8, -3) > 0
from test_sandbox import ask, prober
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings
async def main():
    for sandbox in (False, True):
        pool = UpstreamPool(Settings(), lambda: {{"prober": prober(sandbox)}})
        print(await ask(pool, "keyring", keyctl={keyctl}, name="toolscout-test"))
        await pool.close()
asyncio.run(main())
"""
    if keyctl is None:
        pytest.skip("the number of keyctl is not known here")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("keyrings are forbidden here")
    assert done.stdout.split() == ["True", "False"], done.stderr


async def test_what_lies_beside_a_homes_programs_is_not_there(
    pools: Pools, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(folder))
    prefix = folder / ".cargo"
    for name in ("bin", "lib"):
        (prefix / name).mkdir(parents=True)
    (prefix / "credentials.toml").write_text("token")
    (prefix / "lib" / "library").write_text("code")
    program = prefix / "bin" / "server"
    program.write_text(f"#!{sys.executable} -IS\n" + PROBER.read_text("utf-8"))
    program.chmod(0o755)
    pool = pools(UpstreamConfig.parse("prober", {"command": str(program), "sandbox": True}))
    assert await ask(pool, "read", path=str(prefix / "lib" / "library")) == "code"
    assert await ask(pool, "read", path=str(prefix / "credentials.toml")) is None


async def test_other_processes_are_not_seen(pools: Pools) -> None:
    seen = await ask(pools(prober()), "look")
    assert os.getpid() not in seen["pids"] and max(seen["pids"]) < 50
    assert await ask(pools(prober()), "kill", pid=os.getpid()) is None


async def test_it_is_nobody_and_stays_it(pools: Pools) -> None:
    pool = pools(prober())
    seen = await ask(pool, "look")
    assert seen["uid"] != 0 and seen["gid"] != 0
    assert seen["uid"] == os.getuid() or os.getuid() == 0
    assert seen["caps"].pop("NoNewPrivs") == "1"
    assert {int(value, 16) for value in seen["caps"].values()} == {0}
    if os.geteuid() != 0:
        assert (await ask(pool, "namespace"))["status"] != 0


async def test_the_environment_is_what_it_is_given(pools: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_OURS", "s3cr3t")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent")
    monkeypatch.setenv("ITS_KEY", "k3y-value")
    pool = pools(prober(env={"API_KEY": "${ITS_KEY}"}))
    seen = (await ask(pool, "look"))["env"]
    usual = {"PATH", "HOME", "TMPDIR", "USER", "LOGNAME", "LANG", "TERM", "PWD", "TOOLSCOUT_POOL", "TZ"}
    assert {name for name in seen if name not in usual and not name.startswith("LC_")} == {"API_KEY"}
    assert seen["API_KEY"] == "k3y-value" and seen["HOME"] == "/tmp/home"
    lines = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in marked_processes(pool.marker)]
    assert lines and not any(b"k3y-value" in line for line in lines), "a command line is everybody's to read"


async def test_a_nul_in_the_environment_opens_nothing(pools: Pools) -> None:
    with pytest.raises(NotAllowed, match="NUL"):
        await pools(prober(env={"A": "1\0--ro-bind\0/\0/host"})).call("prober", "list", {"path": "/host"})


@pytest.mark.skipif(not os.path.isdir("/etc/ssl/private"), reason="no such folder here")  # noqa: PTH112
async def test_keys_beside_the_certificates_are_not_there(pools: Pools) -> None:
    pool = pools(prober())
    assert await ask(pool, "list", path="/etc/ssl/private") == []
    assert await ask(pool, "list", path="/etc/ssl/certs") != []
    assert await ask(pool, "write", path="/etc/ssl/private/x") is None


async def test_it_starts_after_something_has_cleaned_up_in_tmp(pools: Pools) -> None:
    assert await ask(pools(prober()), "look")
    shutil.rmtree(bubblewrap._accounts_at[0])
    assert await ask(pools(prober()), "read", path="/etc/passwd")


async def test_memory_has_a_limit(pools: Pools) -> None:
    pool = pools(prober({"memory": 256}))
    assert await ask(pool, "grow", mib=64) == 64 * 2**20
    assert await ask(pool, "grow", mib=512) is None


# --- a list of hosts --------------------------------------------------------------------------------------------------


@pytest.fixture
def web() -> Iterator[int]:
    """A web server on the machine's loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = f"{self.path} at {self.headers['host']}".encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


async def test_a_host_on_the_list_is_reached_and_no_other(pools: Pools, web: int, listener: int) -> None:
    pool = pools(prober({"network": [f"localhost:{web}"]}))
    assert await ask(pool, "fetch", url=f"http://localhost:{web}/a?b=c") == [200, f"/a?b=c at localhost:{web}"]
    status, said = await ask(pool, "fetch", url=f"http://localhost:{listener}/")
    assert status == 403 and "not among the hosts" in said
    status, said = await ask(pool, "fetch", url="http://example.com/")
    assert status == 403 and "example.com" in said
    assert await ask(pool, "connect", host="127.0.0.1", port=web) is None, "past the proxy there is nothing"


@pytest.mark.parametrize("host", ["a..example.org", f"{'x' * 70}.example.org", "a\0.example.org"])
async def test_odd_names_of_hosts_are_answered(host: str, caplog: pytest.LogCaptureFixture) -> None:
    async with proxy(("*.example.org",), os.geteuid()) as path:
        reader, writer = await asyncio.open_unix_connection(str(path))
        writer.write(f"CONNECT {host}:443 HTTP/1.1\r\n\r\n".encode("latin-1"))
        assert (await reader.read()).startswith(b"HTTP/1.1 502 ")
        writer.close()
    assert not caplog.records


async def test_a_tunnel_to_the_list_only(pools: Pools, web: int, listener: int) -> None:
    inside = (
        "import socket, sys\nfor port in map(int, sys.argv[1:]):\n"
        "    s = socket.create_connection(('127.0.0.1', 3128))\n"
        "    s.sendall(b'CONNECT localhost:%d HTTP/1.1\\r\\n\\r\\n' % port)\n"
        "    said = s.recv(1000)\n"
        "    if b' 200 ' in said.split(b'\\r\\n')[0]:\n"
        "        s.sendall(b'GET /deep HTTP/1.0\\r\\n\\r\\n')\n"
        "        while data := s.recv(1000): said += data\n"
        "    print(said.decode(), file=sys.stderr)\n"
    )
    entry = {"command": sys.executable, "args": ["-c", inside, str(web), str(listener)]}
    config = UpstreamConfig.parse("prober", {**entry, "sandbox": {"network": [f"localhost:{web}"]}})
    with pytest.raises(UpstreamError):
        await pools(config).call("prober", "x", {})
    said = log_file(pools.settings.home, "prober").read_text("utf-8")
    assert "/deep at None" in said and "403 Forbidden" in said


# --- its end ----------------------------------------------------------------------------------------------------------


def inner(marker: str) -> set[int]:
    """All processes of a pool's upstreams, as the machine sees them."""
    found: set[int] = set()
    queue = marked_processes(marker)
    while queue:
        pid = queue.pop()
        if pid not in found:
            found.add(pid)
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                queue += map(int, children.read_text().split())
    return found


async def test_closing_leaves_nothing_even_of_what_hides(pools: Pools) -> None:
    pool = pools(prober(True, "--deaf"))
    assert isinstance(await ask(pool, "leave", mark="hidden"), int)
    everything = inner(pool.marker)
    assert len(everything) >= 4, "bubblewrap twice, the server, and its child without our mark"
    await pool.close()
    assert not [pid for pid in everything if alive(pid)]


async def test_the_polite_signal_arrives_inside(pools: Pools, folder: Path) -> None:
    pool = pools(prober({"write": [str(folder)]}, "--deaf"))
    assert await ask(pool, "farewell", path=str(folder / "goodbye")) == "ready"
    await pool.close()
    assert (folder / "goodbye").read_text() == "goodbye"


async def test_a_killed_toolscout_leaves_nothing(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "toolscout_to_kill.py"
    entry = {"command": sys.executable, "args": ["-I", "-S", str(PROBER), "--deaf"]}
    entry["sandbox"] = {"network": ["localhost:1"]}
    script.write_text(
        f"""
import asyncio
from toolscout.server.config import UpstreamConfig
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings
async def main():
    config = UpstreamConfig.parse("prober", {entry!r})
    pool = UpstreamPool(Settings(), lambda: {{"prober": config}})
    await pool.call("prober", "leave", {{"mark": "hidden"}})
    print(pool.marker, flush=True)
    await asyncio.sleep(300)
asyncio.run(main())
"""
    )
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        marker = (await asyncio.to_thread(process.stdout.readline)).strip()

        everything = inner(marker)
        assert len(everything) >= 5
        process.send_signal(signal.SIGKILL)
    await eventually(lambda: not [pid for pid in everything if alive(pid)])


async def test_a_crash_inside_is_told_as_one(pools: Pools) -> None:
    config = UpstreamConfig.parse("prober", {"command": "/bin/sh", "args": ["-c", "kill -9 $$"], "sandbox": True})
    with pytest.raises(UpstreamError, match="was killed by SIGKILL"):
        await pools(config).call("prober", "x", {})


# --- refused ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tool", ["bwrap", "prlimit"])
async def test_without_bubblewrap_nothing_is_started(
    pools: Pools, monkeypatch: pytest.MonkeyPatch, folder: Path, tool: str
) -> None:
    def missing(name: str) -> str:
        if name == tool:
            raise NotAllowed(f"{name} is not installed")
        return f"/usr/bin/{name}"

    monkeypatch.setattr(box, "tool", missing)
    monkeypatch.setattr("toolscout.bubblewrap.tool", missing)
    monkeypatch.setattr(box, "_works", [])
    witness = folder / "started"
    config = UpstreamConfig.parse("prober", {"command": "/bin/touch", "args": [str(witness)], "sandbox": True})
    with pytest.raises(NotAllowed, match="is not installed") as failure:
        await pools(config).call("prober", "x", {})
    assert "apt install bubblewrap" in failure.value.hint and not witness.exists()


async def test_the_default_holds_where_the_entry_is_silent(pools: Pools, listener: int) -> None:
    silent = UpstreamConfig.parse("prober", {k: v for k, v in prober().fields.items() if k != "sandbox"})
    for default, reached in (("off", "hello"), ("on", None), ("network", "hello")):
        pool = pools(silent, sandbox=default)
        assert await ask(pool, "connect", host="127.0.0.1", port=listener) == reached
    assert (await ask(pools(silent, sandbox="on"), "look"))["env"]["HOME"] == "/tmp/home"
    assert (await ask(pools(prober(False), sandbox="on"), "look"))["pids"].count(os.getpid()) == 1


async def test_toolscouts_own_files_are_never_handed_on(pools: Pools, home: Path, folder: Path) -> None:
    for path in (home, home.parent, home / "mcp.json"):
        path.touch() if path.suffix else None
        with pytest.raises(NotAllowed, match="Toolscout's own files"):
            await pools(prober({"read": [str(path)]})).call("prober", "look", {})
    link = folder / "link"
    link.symlink_to(home)
    with pytest.raises(NotAllowed, match="Toolscout's own files"):
        await pools(prober({"read": [str(link)]})).call("prober", "look", {})


@pytest.mark.parametrize(
    ("sandbox", "said"),
    [
        ({"read": ["/"]}, "never handed on"),
        ({"write": ["/tmp"]}, "never handed on"),
        ({"read": ["/proc/1"]}, "never handed on"),
        ({"read": ["/nowhere/at/all"]}, "does not exist"),
    ],
)
async def test_paths_that_are_refused(pools: Pools, sandbox: object, said: str) -> None:
    with pytest.raises(NotAllowed, match=said):
        await pools(prober(sandbox)).call("prober", "look", {})


async def test_a_path_within_what_it_may_write_is_refused(pools: Pools, folder: Path) -> None:
    (folder / "sub").mkdir()
    with pytest.raises(NotAllowed, match="where it may write"):
        await pools(prober({"write": [str(folder)], "read": [str(folder / "sub")]})).call("prober", "look", {})


async def test_a_link_into_what_it_may_write_is_refused(pools: Pools, folder: Path, tmp_path: Path) -> None:
    (folder / "sub").mkdir()
    (tmp_path / "link").symlink_to(folder / "sub")
    with pytest.raises(NotAllowed, match="where it may write"):
        await pools(prober({"write": [str(folder)], "read": [str(tmp_path / "link")]})).call("prober", "look", {})


async def test_it_may_not_write_its_own_code(pools: Pools, folder: Path) -> None:
    program = _program(folder / "env")
    config = UpstreamConfig.parse("prober", {"command": str(program), "sandbox": {"write": [str(folder / "env")]}})
    with pytest.raises(NotAllowed, match="where its own code lies"):
        await pools(config).call("prober", "x", {})


async def test_a_program_beside_toolscouts_own_files_is_refused(pools: Pools, home: Path) -> None:
    for place in (home.parent, home):
        config = UpstreamConfig.parse("prober", {"command": str(_program(place)), "sandbox": True})
        with pytest.raises(NotAllowed, match="Toolscout's own files"):
            await pools(config).call("prober", "x", {})


def _program(environment: Path) -> Path:
    """A program in an environment of its own, which would be seen whole."""
    program = environment / "bin" / "server"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    if os.geteuid() == 0:
        for path in (environment, program.parent, program):
            os.chown(path, SERVANT, SERVANT)
    return program


@pytest.mark.skipif(os.geteuid() != 0, reason="only root's own programs are in the way")
@pytest.mark.parametrize("name", ["LD_PRELOAD", "GLIBC_TUNABLES"])
async def test_nothing_is_loaded_into_what_root_starts(pools: Pools, name: str) -> None:
    with pytest.raises(NotAllowed, match=f"sets {name}"):
        await pools(prober(env={name: "/tmp/x.so"})).call("prober", "look", {})


@pytest.mark.skipif(os.geteuid() != 0, reason="root has another user write")
async def test_nothing_runs_as_root(pools: Pools, folder: Path) -> None:
    os.chown(folder, 0, 0)
    with pytest.raises(NotAllowed, match="belongs to root"):
        await pools(prober({"write": [str(folder)]})).call("prober", "look", {})


async def test_docker_is_refused(pools: Pools) -> None:
    config = UpstreamConfig.parse("prober", {"command": "docker", "args": ["run", "x"], "sandbox": True})
    with pytest.raises(NotAllowed, match="docker cannot run in a sandbox"):
        await pools(config).call("prober", "x", {})


async def test_starts_do_not_leak_descriptors(pools: Pools) -> None:
    pool = pools(prober())
    await ask(pool, "look")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await pool.stop("prober")
        await ask(pool, "look")
    assert len(os.listdir("/proc/self/fd")) <= before + 1


# --- where it is asked for --------------------------------------------------------------------------------------------


def cli(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "toolscout", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=120,
    )


def entries(home: Path) -> Any:
    return json.loads((home / "mcp.json").read_text())["mcpServers"]


def test_add_import_list_and_doctor(home: Path, folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-S", str(PROBER)]
    done = cli("add", "a", "--yes", "--allow-host", "example.com", "--allow-read", str(folder), "--", *command)
    assert done.returncode == 0, done.stderr
    assert "in a sandbox: it reaches the hosts example.com; reads" in done.stderr and "11 tools" in done.stdout
    assert entries(home)["a"]["sandbox"] == {"network": ["example.com"], "read": [str(folder)]}
    assert cli("add", "a", "--yes", "--replace", "--no-check", "--", *command).returncode == 0
    assert entries(home)["a"]["sandbox"] is True, "what replaces it is not let out, nor handed what was opened for it"
    file = tmp_path / "client.json"
    file.write_text(json.dumps({"mcpServers": {"b": {"command": "x"}, "c": {"url": "https://example.com/mcp"}}}))
    assert cli("import", str(file), "--yes", "--no-check", "--sandbox").returncode == 0
    assert entries(home)["b"]["sandbox"] is True and "sandbox" not in entries(home)["c"]
    rows = {row["name"]: row["sandbox"] for row in json.loads(cli("list", "--json").stdout)}
    assert rows == {"a": True, "b": True, "c": False}
    checks = {c["name"]: c for c in json.loads(cli("doctor", "--no-upstreams", "--json").stdout)["checks"]}
    assert checks["sandbox"]["status"] == "ok" and "used for a, b" in checks["sandbox"]["detail"]


def test_add_replace_clears_what_the_entry_before_ran_from(home: Path) -> None:
    before, shared = ("uvx", "--from", "weather==1", "weather"), ("uvx", "clock")
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {
        "a": {"command": before[0], "args": before[1:], "sandbox": True},
        "b": {"command": shared[0], "args": shared[1:], "sandbox": True},
        "c": {"command": shared[0], "args": shared[1:], "sandbox": True},
    }}))  # fmt: skip
    folders = []
    for command in (before, shared):
        package = read_package(command[0], command[1:])
        assert package is not None
        folders.append(home / "sandbox" / package.key)
        folders[-1].mkdir(parents=True)
    assert (
        cli("add", "a", "--yes", "--replace", "--no-check", "--", "uvx", "--from", "weather==2", "weather").returncode
        == 0
    )
    assert cli("add", "b", "--yes", "--replace", "--no-check", "--", "uvx", "other").returncode == 0
    assert [folder.exists() for folder in folders] == [False, True], "what c runs from too is kept"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--no-sandbox", "--allow-network"], "leaves nothing to allow"),
        (["--allow-network", "--allow-host", "example.com"], "not both"),
        (["--allow-host", "https://example.com/x"], "is no host"),
        (["--url", "https://example.com/mcp", "--sandbox"], "called at its address"),
    ],
)
def test_options_that_make_no_sense(home: Path, options: list[str], said: str) -> None:
    done = cli("add", "a", "--yes", "--no-check", *options, *([] if "--url" in options else ["--", "x"]))
    assert done.returncode == 2 and said in done.stderr
    assert not (home / "mcp.json").exists()
