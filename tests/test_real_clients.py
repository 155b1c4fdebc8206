"""Real clients of npm, each in a home of its own: they connect to Toolscout, and do a task through it."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scripted_model import Model, Step, scripted_model
from upstreams.painter import png

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
PAINTER = Path(__file__).parent / "upstreams" / "painter.py"
WIPE: Step = ("invoke", {"tool_id": "painter/wipe", "arguments": {}})


def corrected(error: str) -> dict[str, Any]:
    """The call again, put right by nothing but what the error says."""
    plain = error.replace('\\"', '"')  # Gemini CLI shows an error as JSON in JSON
    name = re.findall(r"rename it to '(\w+)'", plain)[0]
    value = re.findall(rf'Signature: .*{name}: "(\w+)"', plain)[0]
    number = re.findall(r'\$\.(\w+): "[^"]*" is a string, not integer', plain)[0]
    least = re.findall(rf'"{number}":{{"type":"integer","minimum":(\d+)', plain)[0]
    return {"tool_id": "painter/paint", "arguments": {name: value, number: int(least)}}


SCRIPT: tuple[Step, ...] = (
    ("find_tools", {"query": "paint a square"}),
    ("invoke", {"tool_id": "painter/paint", "arguments": {"colour": "rouge", "width": "big"}}),
    ("invoke", corrected),
    WIPE,
    ("find_tools", {"query": "paint a square"}),
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
    ServersFile(settings.servers_file).add(UpstreamConfig.stdio("painter", sys.executable, [str(PAINTER)]))
    (home / "policy.toml").write_text('[[rules]]\naction = "ask"\neffect = "destructive"\n')
    async with Engine(settings) as engine:
        await engine.refresh_server("painter", trust=True)
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


def claude_code(person: Person, model: Model, *, bare: bool = False) -> str:
    """What Claude Code says after a task; ``bare``: with an entry as a person writes it."""
    person.connect("claude-code")
    if bare:
        file = person.home / ".claude.json"
        file.write_text(file.read_text().replace('"alwaysLoad": true', '"old": true'))
    allowed = "mcp__toolscout__find_tools,mcp__toolscout__invoke"
    return person.run(
        "claude", "-p", "Paint a square.", "--model", "claude-sonnet-4-5", "--allowedTools", allowed,
        ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="x", IS_SANDBOX="1",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
    )  # fmt: skip


def codex(person: Person, model: Model) -> str:
    """What Codex says after a task."""
    person.connect("codex")
    file = person.home / ".codex" / "config.toml"
    provider = f'name = "local"\nbase_url = "{model.url}/v1"\nwire_api = "responses"\n'
    chosen = 'model = "scripted"\nmodel_provider = "local"\n'
    file.write_text(f"{chosen}{file.read_text()}\n[model_providers.local]\n{provider}")
    tested = 'mcp_servers.toolscout.env_vars=["PYTHONPATH"]'  # Codex hands nothing on by itself
    return person.run(
        "codex", "exec", "-c", tested, "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
        "Paint a square.",
    )  # fmt: skip


def gemini(person: Person, model: Model) -> str:
    """What Gemini CLI says after a task."""
    file = person.home / ".gemini" / "settings.json"
    file.write_text(json.dumps({"security": {"auth": {"selectedType": "gemini-api-key"}}}))
    person.connect("gemini")
    return person.run(
        "gemini", "-p", "Paint a square.", "-y", "-m", "gemini-2.5-flash",
        GOOGLE_GEMINI_BASE_URL=model.url, GEMINI_API_KEY="x",
    )  # fmt: skip


def opencode(person: Person, model: Model) -> str:
    """What opencode says after a task."""
    seeing = {"attachment": True, "modalities": {"input": ["text", "image"], "output": ["text"]}}
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{model.url}/v1", "apiKey": "x"},
        "models": {"scripted": {"name": "scripted", **seeing}},
    }
    file = person.home / ".config" / "opencode" / "opencode.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"provider": {"local": provider}, "model": "local/scripted"}))
    person.connect("opencode")
    return person.run("opencode", "run", "Paint a square.", seconds=400)


UNANSWERED, DECLINED, NO_FORMS = "no answer came", "did not agree", "nobody can be asked"


@pytest.mark.parametrize(
    ("client", "asked"),
    [(claude_code, UNANSWERED), (codex, DECLINED), (gemini, NO_FORMS), (opencode, NO_FORMS)],
)
def test_the_client_does_a_task(person: Person, client: Callable[[Person, Model], str], asked: str) -> None:
    """Also where nobody can answer a question: the model is told so, and goes on."""
    with scripted_model(SCRIPT) as model:
        said = client(person, model)
    assert "Done." in said, said
    assert sum(bool(re.search(r"toolscout\W*_*(find_tools|suggest_call|invoke)$", t)) for t in model.tools) == 3, model
    found, wrong, painted, wiped, again = model.results
    assert "painter/paint" in found and "rename it to 'color'" in wrong, model.results
    picture = png("red", 8)
    assert "picture 1" in painted and base64.b64encode(picture).decode()[:20] not in painted
    assert model.images == [picture]
    assert asked in wiped and "painter/paint" in again


@pytest.mark.parametrize(("answer", "said"), [("accept", "0 pictures wiped"), ("decline", "did not agree")])
def test_a_question_is_answered_by_the_hook_of_claude_code(person: Person, answer: str, said: str) -> None:
    """As by a person: a hook is what answers where Claude Code runs without a terminal."""
    output = {"hookEventName": "Elicitation", "action": answer, "content": {"allow": True}}
    (person.home / "answer.json").write_text(json.dumps({"hookSpecificOutput": output}))
    hook = {"type": "command", "command": "cat > $HOME/asked.json; cat $HOME/answer.json"}
    (person.home / ".claude").mkdir()
    hooks = {"hooks": {"Elicitation": [{"hooks": [hook]}]}}
    (person.home / ".claude" / "settings.json").write_text(json.dumps(hooks))
    with scripted_model([WIPE]) as model:
        claude_code(person, model)
    assert "wants to call the tool 'wipe'" in json.loads((person.home / "asked.json").read_text())["message"]
    assert said in model.results[0]


def test_claude_code_shows_the_tools_at_once_whatever_its_entry_says(person: Person) -> None:
    with scripted_model(SCRIPT[:1]) as model:
        claude_code(person, model, bare=True)
    assert "painter/paint" in model.results[0]
