"""Logs of a real session: stdout holds JSON-RPC alone, stderr a JSON object per line, and nothing waits for it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from serving import environment

from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.telling.logs import JsonLines, Plain
from toolscout.settings import Settings

UPSTREAMS = Path(__file__).parent / "upstreams"
PLANTED = "planted-value-4711"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Session:
    """One stdio session, whose stdout is kept byte by byte."""

    def __init__(self, home: Path, *arguments: str, read_stderr: bool = True, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "toolscout", "serve", *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env={**environment(home), "API_KEY": PLANTED, **env},
        )  # fmt: skip
        self.stdout: list[bytes] = []
        self.stderr = b""
        self._id = 0
        self._reader = threading.Thread(target=self._read_stderr, daemon=True)
        if read_stderr:
            self._reader.start()

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        self.stderr = self.process.stderr.read()

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """The answer; everything that comes is kept."""
        assert self.process.stdout is not None
        self._id += 1
        self.send({"id": self._id, "method": method, "params": params})
        while line := self.process.stdout.readline():
            self.stdout.append(line)
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == self._id:
                return message
        raise AssertionError(f"the server has gone: {self.stderr.decode()}")

    def invoke(self, tool: str, **arguments: Any) -> dict[str, Any]:
        meta = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01"}
        call = {"name": "invoke", "arguments": {"tool_id": f"tiny/{tool}", "arguments": arguments}, "_meta": meta}
        return self.ask("tools/call", call)

    def hello(self) -> None:
        self.ask("initialize", HELLO)
        self.send({"method": "notifications/initialized"})

    def end(self) -> None:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        self.stdout += self.process.stdout.readlines()
        if self._reader.ident is not None:
            self._reader.join(60)
        self.process.wait(60)


@pytest.fixture
def tiny(settings: Settings) -> Path:
    config = UpstreamConfig.stdio("tiny", sys.executable, ["-I", "-S", str(UPSTREAMS / "tiny.py"), "--start", "noise"])
    ServersFile(settings.servers_file).add(config)
    return settings.home


@pytest.mark.parametrize("log_format", ["json", "plain"])
def test_at_debug_level_every_byte_on_stdout_is_json_rpc(tiny: Path, log_format: str) -> None:
    session = Session(tiny, "--log-format", log_format, TOOLSCOUT_LOG_LEVEL="debug", FASTMCP_LOG_LEVEL="DEBUG")
    session.hello()
    session.ask("tools/list", {})
    assert session.invoke("noise")["result"]["content"][0]["text"] == "after the noise"
    session.invoke("flood", bytes=300_000)
    session.invoke("echo", text=PLANTED)
    session.invoke("fail")
    session.invoke("crash", why=PLANTED)
    session.invoke("bad")
    session.invoke(PLANTED)
    session.ask("tools/call", {"name": "find_tools", "arguments": {"query": PLANTED}})
    session.end()
    whole = b"".join(session.stdout)
    assert whole.endswith(b"\n")
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in whole.splitlines())
    stderr = session.stderr.decode()
    assert "invoke tiny/echo: ok" in stderr
    assert PLANTED not in stderr
    if log_format == "plain":
        return
    entries = [json.loads(line) for line in stderr.splitlines()]
    calls = [entry for entry in entries if entry.get("event") == "call"]
    told = {entry.get("target", entry["tool"]): entry for entry in calls}
    assert told["echo"]["outcome"] == "ok" and told["echo"]["server"] == "tiny" and told["echo"]["duration_ms"] > 0
    assert told["echo"]["trace_id"] == TRACE
    assert told["fail"]["error"] == "tool_error" and told["crash"]["error"] == "upstream_crashed"
    assert any(entry.get("error") == "not_found" and "target" not in entry for entry in calls)
    assert {"upstream_start", "upstream_end"} <= {entry.get("event") for entry in entries}


def test_plain_without_a_level_says_nothing_of_calls(tiny: Path) -> None:
    session = Session(tiny)
    session.hello()
    session.invoke("echo", text="x")
    session.end()
    assert session.stderr == b""


def test_a_client_that_never_reads_stderr_is_served_all_the_same(tiny: Path) -> None:
    session = Session(tiny, read_stderr=False, TOOLSCOUT_LOG_FORMAT="json")
    session.hello()
    # Each line is some 300 bytes, and a pipe holds 64 KiB.
    for n in range(600):
        assert session.invoke("echo", text=str(n))["result"]["content"][0]["text"] == str(n)
    session.end()


def test_a_format_that_is_none_is_said(tiny: Path) -> None:
    env = {**environment(tiny), "TOOLSCOUT_LOG_FORMAT": "xml"}
    hello = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}) + "\n"
    command = [sys.executable, "-m", "toolscout", "serve"]
    done = subprocess.run(command, env=env, input=hello, capture_output=True, text=True)
    assert done.returncode == 2 and "TOOLSCOUT_LOG_FORMAT" in done.stderr and done.stdout == ""


def test_a_plain_line_is_one_line_whatever_a_server_says() -> None:
    record = logging.LogRecord("toolscout", logging.WARNING, "f", 1, "said %s", ("a\nFAKE \x1b[31mline",), None)
    assert Plain().format(record).count("\n") == 0 and "\x1b" not in Plain().format(record)


SECRET = "sk-live-Ab12Cd34Ef56Gh78Ij90"


def record_of(message: str, name: str = "toolscout") -> logging.LogRecord:
    """A record of an exception whose text holds a secret."""
    try:
        raise ValueError(f"the key {SECRET} is wrong")
    except ValueError:
        return logging.LogRecord(name, logging.ERROR, "f", 1, message, None, sys.exc_info())


@pytest.mark.parametrize("formatter", [Plain(), JsonLines()])
def test_of_an_exception_the_type_and_the_frames_are_told_and_not_its_text(formatter: logging.Formatter) -> None:
    task = f"Task exception was never retrieved\nfuture: <Task exception=ValueError('the key {SECRET} is wrong')>"
    for record in (record_of("failed"), record_of(f"failed: the key {SECRET} is wrong"), record_of(task, "asyncio")):
        told = formatter.format(record)
        assert SECRET not in told and "ValueError" in told and "record_of" in told and "test_logs.py" in told


def test_without_any_setting_a_fault_is_told_without_its_text() -> None:
    script = f"""
import logging
from toolscout.server.telling.logs import configure_logging
from toolscout.settings import Settings
configure_logging(Settings())
try:
    raise ValueError("{SECRET}")
except ValueError:
    logging.getLogger("toolscout.server.app").exception("invoke failed")
    logging.getLogger("fastmcp.server").exception("it failed")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "invoke failed" in done.stderr and "it failed" in done.stderr and "ValueError" in done.stderr
    assert SECRET not in done.stderr
