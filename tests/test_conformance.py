"""The official conformance suite and the inspector's command line against Toolscout as a client meets it."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance import run as suite
from node_tools import INSPECTOR, KEPT, NodeTools, NoTools, node_tools
from serving import environment, listening, serving

from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.server.upstreams.pool import UpstreamPool
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


@pytest.mark.slow
@pytest.mark.parametrize(("revision", "scenario"), [(r, s) for r in suite.REVISIONS for s in suite.CLIENT[r]])
def test_the_suite_passes_with_toolscout_as_the_client(tools: NodeTools, revision: str, scenario: str) -> None:
    passed, said = suite.run_client(tools, revision, scenario)
    assert passed, said


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
    with serving(settings.home) as url:
        yield ["--transport", "http", "--server-url", f"{url}/mcp"]


@contextlib.contextmanager
def over_stdio(settings: Settings) -> Iterator[list[str]]:
    """The same for ``toolscout serve``."""
    passed = [f"-e{name}={environment(settings.home)[name]}" for name in ("TOOLSCOUT_HOME", "TOOLSCOUT_STARTER")]
    yield [*passed, "--transport", "stdio", "--", sys.executable, "-m", "toolscout", "serve"]


@pytest.mark.slow
@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("face", [over_stdio, over_http])
def test_the_inspector_lists_finds_and_invokes(tools: NodeTools, ready: Settings, face: Any, era: str) -> None:
    with face(ready) as where:

        def inspect(method: str, *more: str) -> tuple[int, Any, str]:
            """Exit code, result and what stood on stderr."""
            asked = ["--cli", "--protocol-era", era, "--method", method, *more, *where]
            command, env = tools.command(INSPECTOR, *asked), tools.environment()
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=env)
            return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None, done.stderr

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


@pytest.mark.slow
async def test_an_upstream_on_the_older_typescript_sdk(tools: NodeTools, settings: Settings) -> None:
    script, modules = UPSTREAMS / "typescript.mjs", tools.folder / "node_modules"
    with listening([str(tools.node), str(script), str(modules)]) as url:
        configs = {"ts": UpstreamConfig.remote("ts", f"{url}/mcp")}
        async with UpstreamPool(settings, lambda: configs) as pool:
            result = await pool.call("ts", "echo", {"text": "hello"})
            assert result.content[0].text == "hello"  # type: ignore[union-attr]
            assert pool.status()[0].protocol_version == "2025-11-25"
