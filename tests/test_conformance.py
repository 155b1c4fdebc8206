"""The official conformance suite and the inspector's command line against Toolscout as a client meets it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance import run as suite
from node_tools import INSPECTOR, KEPT, NodeTools, NoTools, node_tools

from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.settings import Settings

UPSTREAMS = Path(__file__).parent / "upstreams"


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> NodeTools:
    try:
        return node_tools(Path(KEPT) if KEPT else tmp_path_factory.mktemp("node"))
    except NoTools as reason:
        pytest.skip(f"the official tools are not to be had: {reason}")


@pytest.mark.parametrize("revision", suite.REVISIONS)
def test_every_expected_failure_has_its_reason(revision: str) -> None:
    lines = suite.baseline(revision).read_text().splitlines()
    entries = [line for line in lines if line.lstrip().startswith("-")]
    assert len(entries) == len(set(suite.expected(revision))) > 0
    for entry in entries:
        assert re.fullmatch(r"  - [\w-]+:[\w-]+ # .{10,}", entry), entry


@pytest.mark.slow
@pytest.mark.parametrize("revision", suite.REVISIONS)
def test_the_suite_fails_only_where_the_baseline_says(tools: NodeTools, tmp_path: Path, revision: str) -> None:
    with suite.toolscout(tmp_path / "home") as url:
        outcome = suite.run(tools, url, revision, tmp_path / "results")
    assert outcome.as_expected, outcome.report()
    assert outcome.scenarios >= 30 and outcome.passed > outcome.failed


@pytest.fixture
async def ready(settings: Settings) -> Settings:
    """A home with one upstream of each era."""
    servers = {"tiny": UPSTREAMS / "tiny.py", "low": UPSTREAMS / "lowlevel.py"}
    for name, script in servers.items():
        ServersFile(settings.servers_file).add(UpstreamConfig.stdio(name, sys.executable, [str(script)]))
    async with Engine(settings) as engine:
        for name in servers:
            await engine.refresh_server(name, trust=True)
    return settings


@contextlib.contextmanager
def over_http(settings: Settings) -> Iterator[list[str]]:
    """``toolscout serve --http``; yields the inspector's arguments that name it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    serve = [sys.executable, "-m", "toolscout", "serve", "--http", address]
    process = subprocess.Popen(serve, env=environment(settings))
    try:
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/health", timeout=5):
                break
            assert process.poll() is None and time.monotonic() < deadline, "Toolscout did not start"
            time.sleep(0.1)
        yield ["--transport", "http", "--server-url", f"http://{address}/mcp"]
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def over_stdio(settings: Settings) -> Iterator[list[str]]:
    yield ["--transport", "stdio", "--", sys.executable, "-m", "toolscout", "serve"]


def environment(settings: Settings) -> dict[str, str]:
    return {**os.environ, "TOOLSCOUT_HOME": str(settings.home), "TOOLSCOUT_STARTER": "0"}


@pytest.mark.slow
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("face", [over_stdio, over_http])
def test_the_inspector_lists_finds_and_invokes(tools: NodeTools, ready: Settings, face: Any, era: str) -> None:
    with face(ready) as where:

        def inspect(method: str, *more: str) -> tuple[int, Any, str]:
            """Exit code, result and what stood on stderr."""
            command = tools.command(
                INSPECTOR, "--cli", "--protocol-era", era, "--method", method, *more, *passed, *where
            )
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=120, env={**environment(ready), **tools.environment()}
            )
            return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr

        passed = [f"-e{name}={environment(ready)[name]}" for name in ("TOOLSCOUT_HOME", "TOOLSCOUT_STARTER")]
        code, listed, said = inspect("tools/list", "--strict")
        assert code == 0, said  # 6: a schema that some client refuses
        assert [tool["name"] for tool in listed["tools"]] == ["find_tools", "suggest_call", "invoke"]

        code, found, said = inspect("tools/call", "--tool-name", "find_tools", "--tool-arg", "query=echo a text")
        assert code == 0 and found["structuredContent"]["tools"], said

        for tool_id in ("tiny/echo", "low/echo"):
            arguments = json.dumps({"tool_id": tool_id, "arguments": {"text": "hello"}})
            code, called, said = inspect("tools/call", "--tool-name", "invoke", "--tool-args-json", arguments)
            assert code == 0 and called["content"] == [{"type": "text", "text": "hello"}], said

        wrong = json.dumps({"tool_id": "tiny/fail", "arguments": {}})
        code, failed, said = inspect("tools/call", "--tool-name", "invoke", "--tool-args-json", wrong)
        assert failed["isError"] and failed["content"][0]["text"] == "the tool says no", (code, said)
