"""What the faults happen to: a home folder, upstreams, a Toolscout over HTTP, and what it takes to break them."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
import uuid
from pathlib import Path

from chaos.clock import Clock
from chaos.model import ModelEndpoint
from chaos.processes import marked

UPSTREAM = Path(__file__).with_name("upstream.py")
MARK = "TOOLSCOUT_CHAOS"
WHO = "CHAOS_UPSTREAM"
STDIO = ("alpha", "beta", "gamma", "delta")
WEB = "web"
SHARED = ("alpha", "beta", WEB)
"""One process, or session, for all clients over HTTP; of the others each client has its own."""
_HOME_BYTES = 64_000_000
_AUDIT = '[audit]\nvalues = "hash"\n[responses]\nmax_chars = 50000\n'


class World:
    """Open it with `start`, leave with `close`. ``cannot``: what this machine does not allow, by kind of fault."""

    def __init__(self) -> None:
        self.run = uuid.uuid4().hex[:12]
        self.folder = Path(tempfile.mkdtemp(prefix="toolscout-chaos-"))
        self.home = self.folder / "home"
        self.control = self.folder / "control"
        self.clock = Clock(self.folder)
        self.log = self.folder / "server.log"
        self.stdio_log = self.folder / "stdio.log"
        self.cannot: dict[str, str] = {}
        self.model = ModelEndpoint()
        self.port = _free_port()
        self.web_port = _free_port()
        self.server: subprocess.Popen[bytes] | None = None
        self.web: subprocess.Popen[bytes] | None = None
        self.server_ends = 0
        self._mounted = False

    @property
    def url(self) -> str:
        """Where Toolscout listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def database(self) -> Path:
        """The catalogue."""
        return self.home / "catalogue.db"

    def prepare(self) -> None:
        """Folders, mounts and the upstreams' configuration."""
        self.home.mkdir()
        self.control.mkdir()
        self._mount()
        if self.clock.trouble:
            self.cannot |= dict.fromkeys(("clock_forward", "clock_back"), self.clock.trouble)
        if os.geteuid() == 0 and shutil.which("setpriv") is None:
            self.cannot["read_only"] = "root is let in everywhere, and there is no setpriv to take that from the server"
        servers = {
            name: {
                "command": sys.executable,
                "args": ["-I", "-S", str(UPSTREAM), name, str(self.control / name)],
                "env": {MARK: self.run, WHO: name},
                "shared": name in SHARED,
            }
            for name in STDIO
        }
        web = {"url": f"http://127.0.0.1:{self.web_port}/mcp", "shared": True}
        (self.home / "mcp.json").write_text(json.dumps({"mcpServers": {**servers, WEB: web}}))
        (self.folder / "policy.toml").write_text(_AUDIT)

    def environment(self, **more: str) -> dict[str, str]:
        """The environment of a Toolscout."""
        outside = {k: v for k, v in os.environ.items() if not k.startswith("TOOLSCOUT_")}
        ours = {
            MARK: self.run,
            "TOOLSCOUT_HOME": str(self.home),
            "TOOLSCOUT_STARTER": "0",
            "TOOLSCOUT_PACK": "off",
            "TOOLSCOUT_MODEL_URL": self.model.url,
            "TOOLSCOUT_MODEL": "chaos",
            "TOOLSCOUT_MODEL_TIMEOUT": "4",
            "TOOLSCOUT_UPSTREAM_START_TIMEOUT": "10",
            "TOOLSCOUT_UPSTREAM_CALL_TIMEOUT": "10",
            "TOOLSCOUT_MAX_RESULT_BYTES": "5000000",
        }
        return {**outside, **ours, **self.clock.environment, **more}

    def command(self, *args: str) -> list[str]:
        """A command line of Toolscout; as root without root's right to write everywhere."""
        plain = [sys.executable, "-m", "toolscout", *args]
        if os.geteuid() == 0 and "read_only" not in self.cannot:
            return ["setpriv", "--inh-caps=-all", "--bounding-set=-all", *plain]
        return plain

    async def start(self) -> None:
        """The web upstream and Toolscout, until it answers."""
        self.start_web()
        await self.start_server()

    async def start_server(self) -> None:
        """Start Toolscout over HTTP and wait until its health page says ok."""
        with self.log.open("ab") as log:
            self.server = subprocess.Popen(  # noqa: ASYNC220  (it outlives this function, and the bench waits for it)
                self.command("serve", "--http", f"127.0.0.1:{self.port}"),
                env=self.environment(), stdout=log, stderr=log, cwd=self.folder, start_new_session=True,
            )  # fmt: skip
        for _ in range(600):
            if await asyncio.to_thread(self._healthy):
                return
            if self.server.poll() is not None:
                break
            await asyncio.sleep(0.2)
        raise RuntimeError(f"Toolscout did not start: {self.log.read_text('utf-8', 'replace')[-2000:]}")

    def start_web(self) -> None:
        """Start the upstream that is reached over HTTP."""
        if self.web is None or self.web.poll() is not None:
            self.web = subprocess.Popen(
                [sys.executable, "-I", "-S", str(UPSTREAM), WEB, str(self.control / WEB), "--http", str(self.web_port)],
                env={**os.environ, WHO: WEB, MARK: self.run}, stderr=subprocess.DEVNULL,
            )  # fmt: skip

    def say(self, name: str, word: str) -> None:
        """Tell an upstream how to behave."""
        fresh = self.control / f".{name}"
        fresh.write_text(word)
        fresh.replace(self.control / name)

    def signal_upstream(self, name: str, number: int) -> int:
        """Send a signal to every process of an upstream, of every Toolscout; says to how many."""
        pids = [pid for pid, env in marked(MARK, self.run) if env.get(WHO) == name]
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        return len(pids)

    def server_alive(self) -> bool:
        """Whether Toolscout runs."""
        return self.server is not None and self.server.poll() is None

    async def close(self) -> list[int]:
        """Stop everything as a person would; the ids of processes of ours that stay behind, which are then killed."""
        if self.server is not None:
            self.server.send_signal(signal.SIGTERM)
            try:
                await asyncio.to_thread(self.server.wait, 30)
            except subprocess.TimeoutExpired:
                self.server.kill()
        if self.web is not None:
            self.web.kill()
            self.web.wait()
        self.model.down()
        left: list[int] = []
        for _ in range(100):
            left = [pid for pid, _ in marked(MARK, self.run) if pid != os.getpid()]
            if not left:
                break
            await asyncio.sleep(0.2)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        return left

    def remove(self) -> None:
        """Delete the folder."""
        if self._mounted:
            subprocess.run(["umount", "-l", str(self.home)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _mount(self) -> None:
        if os.geteuid() != 0:
            self.cannot["disk_full"] = "only root may mount the small disk that is filled"
            return
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={_HOME_BYTES},mode=755", "tmpfs", str(self.home)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self._mounted = done.returncode == 0
        if not self._mounted:
            self.cannot["disk_full"] = f"the small disk could not be mounted: {done.stderr.strip()}"


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
