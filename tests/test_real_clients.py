"""Real clients of npm, each in a home of its own: they connect to Toolscout, and do a task through it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from scripted_model import scripted_model

from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.settings import Settings

pytestmark = pytest.mark.slow

PACKAGES = {
    "claude": "@anthropic-ai/claude-code@2.1.332",
    "codex": "@openai/codex@0.169.0",
    "gemini": "@google/gemini-cli@0.61.0",
    "opencode": "opencode-ai@1.18.33",
}
KEPT = os.environ.get("TOOLSCOUT_TEST_CLIENTS")
"""A folder that keeps the clients (1.3 GB) from one run to the next."""
TINY = Path(__file__).parent / "upstreams" / "tiny.py"
SCRIPT = (
    ("find_tools", {"query": "answer what it gets"}),
    ("invoke", {"tool_id": "tiny/echo", "arguments": {"text": "a word of ours"}}),
)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the clients' programs are in."""
    folder = Path(KEPT) if KEPT else tmp_path_factory.mktemp("clients")
    found = folder / "node_modules" / ".bin"
    if not all((found / name).exists() for name in PACKAGES):
        npm = shutil.which("npm")
        if npm is None or shutil.which("node") is None:
            pytest.skip("no npm or node here")
        install = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund", *PACKAGES.values()]
        try:
            done = subprocess.run(install, capture_output=True, text=True, timeout=2400, cwd=folder)
        except subprocess.TimeoutExpired:
            pytest.skip("npm did not install the clients in 40 minutes")
        if done.returncode:
            pytest.skip(f"npm could not install the clients: {done.stderr[-300:]}")
    return found


@dataclass
class Person:
    """Somebody with these clients and this Toolscout, at work in a folder."""

    home: Path
    env: dict[str, str]

    def run(self, *command: str, seconds: int = 240, **more: str) -> str:
        """What a program says."""
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, cwd=self.home / "work",
            env={**self.env, **more}, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)

    def connect(self, client: str) -> None:
        """Add Toolscout to a client."""
        assert "is connected" in self.run(sys.executable, "-m", "toolscout", "connect", client, "--yes")


@pytest.fixture
async def person(programs: Path, tmp_path: Path, home: Path, settings: Settings) -> Person:
    ServersFile(settings.servers_file).add(UpstreamConfig.stdio("tiny", sys.executable, [str(TINY)]))
    async with Engine(settings) as engine:
        await engine.refresh_server("tiny", trust=True)
    work = tmp_path / "user" / "work"
    work.mkdir(parents=True)
    trusted = tmp_path / "user" / ".gemini" / "trustedFolders.json"
    trusted.parent.mkdir()
    trusted.write_text(json.dumps({str(work): "TRUST_FOLDER"}))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "CLAUDE", "CODEX"))}
    path = f"{programs}{os.pathsep}{env['PATH']}"
    own = {"HOME": str(tmp_path / "user"), "PATH": path, "TOOLSCOUT_HOME": str(home), "TOOLSCOUT_STARTER": "0"}
    return Person(tmp_path / "user", {**env, **own})


@pytest.mark.parametrize(
    ("client", "program", "said"),
    [
        ("claude-code", "claude", r"toolscout: .* serve .*Connected"),
        ("codex", "codex", r"toolscout .* serve .*enabled"),
        ("gemini", "gemini", r"toolscout: .* serve .*Connected"),
        ("opencode", "opencode", r"toolscout connected"),
    ],
)
def test_the_client_sees_toolscout(person: Person, client: str, program: str, said: str) -> None:
    person.connect(client)
    listed = [person.run(program, "mcp", "list")]
    while not re.search(said, listed[-1]) and len(listed) < 3:  # a client waits for five seconds only
        listed.append(person.run(program, "mcp", "list"))
    assert re.search(said, listed[-1]), listed


def test_claude_code_does_a_task(person: Person) -> None:
    person.connect("claude-code")
    allowed = "mcp__toolscout__find_tools,mcp__toolscout__invoke"
    with scripted_model(SCRIPT) as model:
        said = person.run(
            "claude", "-p", "Echo a word.", "--model", "claude-sonnet-4-5", "--allowedTools", allowed,
            ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="x", IS_SANDBOX="1",
            CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        )  # fmt: skip
    done(said, model.tools, model.results)


def test_opencode_does_a_task(person: Person) -> None:
    with scripted_model(SCRIPT) as model:
        options = {"baseURL": f"{model.url}/v1", "apiKey": "x"}
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": options,
            "models": {"scripted": {"name": "scripted"}},
        }
        file = person.home / ".config" / "opencode" / "opencode.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"provider": {"local": provider}, "model": "local/scripted"}))
        person.connect("opencode")
        said = person.run("opencode", "run", "Echo a word.", seconds=400)
    done(said, model.tools, model.results)


def done(said: str, tools: set[str], results: list[str]) -> None:
    """The task was done: the client offered Toolscout's tools, and brought back what they found and did."""
    assert "Done." in said, said
    assert sum(any(tool.endswith(name) for tool in tools) for name in ("find_tools", "suggest_call", "invoke")) == 3
    assert len(results) == 2 and "tiny/echo" in results[0] and "a word of ours" in results[1], results
