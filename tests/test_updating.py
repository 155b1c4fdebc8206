"""Newer versions of the packages that servers run: looked up, tried, shown, and pinned on a yes."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from crawl_registry import PACKAGES, PackageServer, served
from test_cli import reviews
from test_sandbox import TROUBLE

from toolscout.cli import execute
from toolscout.commands import updating
from toolscout.server.newest import is_newer, runs_of

Capture = pytest.CaptureFixture[str]
needs_node = pytest.mark.skipif(shutil.which("npm") is None, reason="no Node.js")
needs_sandbox = pytest.mark.skipif(TROUBLE is not None, reason=f"no sandbox here: {TROUBLE}")
SECOND = """#!/usr/bin/env node
const { serve, tool } = require('tiny-mcp')
serve('weather', [{ ...tool('forecast'), description: 'Tells tomorrow, too.' }, tool('tides')])
"""


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageServer]:
    yield from served()


def write(home: Path, **entries: dict[str, Any]) -> None:
    (home / "mcp.json").write_text(json.dumps({"mcpServers": entries}))


def rows(capsys: Capture) -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in json.loads(capsys.readouterr().out)}


@pytest.mark.parametrize(
    ("command", "args", "version", "pinned"),
    [
        ("npx", ["-y", "weather-mcp"], None, ["-y", "weather-mcp@9.0.1"]),
        ("npx", ["-y", "@a/b@1.2.3", "x"], "1.2.3", ["-y", "@a/b@9.0.1", "x"]),
        ("npx", ["-y", "@a/b@^1.2"], None, ["-y", "@a/b@9.0.1"]),
        ("npx", ["--package=a@1.0.0", "--", "b"], "1.0.0", ["--package=a@9.0.1", "--", "b"]),
        ("npm", ["exec", "-y", "a@1.2"], None, ["exec", "-y", "a@9.0.1"]),
        ("uvx", ["a-b"], None, ["a-b@9.0.1"]),
        ("uvx", ["a-b@1.0", "a-b"], "1.0", ["a-b@9.0.1", "a-b"]),
        ("/x/uv", ["tool", "run", "--from", "a[y]==1", "a"], "1", ["tool", "run", "--from", "a[y]==9.0.1", "a"]),
        ("uvx", ["--with", "b<2", "--from=a", "c"], None, ["--with", "b<2", "--from=a==9.0.1", "c"]),
    ],
)
def test_an_entrys_package_is_read_and_pinned(command: str, args: list[str], version: str | None, pinned: Any) -> None:
    entry = {"command": command, "args": args, "env": {"A": "1"}}
    found = runs_of(entry)
    assert found is not None and found.version == version
    assert found.pinned(entry, "9.0.1") == {"command": command, "args": pinned, "env": {"A": "1"}}


def test_what_is_newer() -> None:
    assert is_newer("1.10.0", "1.9.9") and is_newer("2.0.0", "2.0.0-beta.1") and is_newer("2.0", "2.0rc1")
    assert not is_newer("1.0", "1.0.0") and not is_newer("1.9", "2.0b1")
    assert runs_of({"command": "docker", "args": ["run", "x"]}) is None and runs_of({"url": "http://x/"}) is None


@needs_node
def test_check_only_tells(home: Path, packages: PackageServer, capsys: Capture) -> None:
    write(
        home,
        old={"command": "npx", "args": ["-y", "weather-mcp@0.9.0"]},
        new={"command": "uvx", "args": ["arguments-mcp-server@1.0"]},
        ahead={"command": "uvx", "args": ["arguments-mcp-server@2.0b1"]},
        off={"command": "uvx", "args": ["arguments-mcp-server"], "disabled": True},
        own={"command": "/bin/true"},
    )
    before = (home / "mcp.json").read_text()
    assert execute(["update", "--check", "--json"]) == 0
    found = rows(capsys)
    assert {name: (row["newest"], row["state"]) for name, row in found.items()} == {
        "old": ("1.0.0", "newer"), "new": ("1.0", "newest"), "ahead": ("1.0", "newest")
    }  # fmt: skip
    assert (home / "mcp.json").read_text() == before
    assert execute(["update", "own"]) == 2
    assert execute(["update", "nobody"]) == 3
    write(home, gone={"command": "uvx", "args": ["no-such-package-here"]})
    assert execute(["update", "gone"]) == 3
    assert "no package no-such-package-here" in capsys.readouterr().out


@needs_node
@needs_sandbox
def test_a_new_version_is_tried_shown_and_pinned_on_a_yes(
    home: Path, packages: PackageServer, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"command": "npx", "args": ["-y", "weather-mcp@1.0.0"], "sandbox": True, "note": "mine"}
    write(home, weather=entry)
    assert execute(["refresh"]) == 0
    before, kept = (home / "mcp.json").read_text(), set((home / "sandbox").iterdir())
    packages.publish_npm(PACKAGES / "npm" / "weather-mcp", version="2.0.0", files={"index.js": SECOND})

    capsys.readouterr()
    assert execute(["update", "weather"]) == 1, "nobody can be asked"
    said = capsys.readouterr().err
    assert "new: weather/tides" in said and "gone: weather/history" in said and "changed: weather/forecast" in said
    assert "+description: Tells tomorrow, too." in said
    assert (home / "mcp.json").read_text() == before and reviews(capsys) == {}
    assert {p for p in (home / "sandbox").iterdir() if p.suffix != ".lock"} <= kept

    asked: list[str] = []
    monkeypatch.setattr(updating, "confirm", lambda question, yes: asked.append(question))
    assert execute(["update", "--json"]) == 0
    assert rows(capsys)["weather"]["state"] == "updated" and "approve its tools" in asked[0]
    assert json.loads((home / "mcp.json").read_text())["mcpServers"]["weather"] == {
        **entry, "args": ["-y", "weather-mcp@2.0.0"]
    }  # fmt: skip
    assert reviews(capsys) == {}, "the yes was for the tools as they were shown"
    assert execute(["invoke", "weather/tides", "{}"]) in (0, 5)

    packages.publish_npm(PACKAGES / "npm" / "weather-mcp", version="3.0.0")
    assert execute(["update", "--yes"]) == 0
    assert reviews(capsys) == {"weather/forecast": "changed"}, "unseen, what has changed waits"
    packages.publish_npm(PACKAGES / "npm" / "weather-mcp", version="4.0.0", files={"index.js": "process.exit(3)"})
    before = (home / "mcp.json").read_text()
    assert execute(["update", "--yes"]) == 5
    assert (home / "mcp.json").read_text() == before
