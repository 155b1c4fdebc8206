"""What an import says at its end, how long it takes, and what it exits with."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from toolscout.cli import EXIT_CODES, execute
from toolscout.commands import importing, servers
from toolscout.commands.listing import summary
from toolscout.errors import BadInput
from toolscout.records import Server, Tool
from toolscout.server.config import UpstreamConfig
from toolscout.server.sandbox import wants
from toolscout.server.sandbox.policy import Policy

UPSTREAMS = Path(__file__).parent / "upstreams"
Capture = pytest.CaptureFixture[str]
WORKS = {"command": sys.executable, "args": [str(UPSTREAMS / "tiny.py")]}
NEEDS = {"command": "x", "env": {"SOME_TOKEN": "${ABSENT_IN_TESTS}"}}
FAILS = {"command": "/no/such/program"}
SLOW = {"command": sys.executable, "args": ["-c", "import time; time.sleep(600)"]}


def imported(tmp_path: Path, servers: dict[str, Any], *options: str) -> int:
    file = tmp_path / "client.json"
    file.write_text(json.dumps({"mcpServers": servers}))
    return execute(["import", str(file), "--yes", *options])


def test_the_last_line_sums_up(home: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importing, "_LISTING_SECONDS", 25.0)
    slow = {f"slow{n}": {**SLOW, "args": [*SLOW["args"], str(n)]} for n in range(5)}
    began = time.monotonic()
    code = imported(tmp_path, {"good": WORKS, "keyless": NEEDS, "gone": FAILS, "off": {"disabled": True}, **slow})
    assert time.monotonic() - began < 80
    assert code == 5 and "failed" in EXIT_CODES[code]
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last.startswith("8 taken over, 1 was left: 1 works; 1 needs a key or a login: keyless; 1 failed: gone (The ")
    assert last.endswith("; 5 took too long and stay configured: slow0, slow1, slow2, slow3, slow4.")
    assert set(json.loads((home / "mcp.json").read_text())["mcpServers"]) == {"good", "keyless", "gone", *slow}
    again = imported(tmp_path, {"good": WORKS, "off": {"disabled": True}})
    assert (again, capsys.readouterr().out.strip().splitlines()[-1]) == (
        0,
        "0 taken over, 1 was here already, 1 was left.",
    )


def test_a_missing_key_is_no_failure(tmp_path: Path, capsys: Capture) -> None:
    assert imported(tmp_path, {"keyless": NEEDS}, "--json") == 0
    listed = json.loads(capsys.readouterr().out)["listed"]
    assert listed["keyless"]["state"] == "needs_key" and "ABSENT_IN_TESTS" in listed["keyless"]["error"]
    assert imported(tmp_path, {"gone": FAILS}, "--json") == 5
    assert json.loads(capsys.readouterr().out)["listed"]["gone"]["state"] == "failed"


def test_a_server_that_says_that_it_lacks_a_key_needs_one(tmp_path: Path, capsys: Capture) -> None:
    says = "def work(): raise ValueError('SOME_API_KEY is required')\nwork()"
    lacks, breaks = ({"command": sys.executable, "args": ["-c", code]} for code in (says, "raise OSError('no luck')"))
    assert imported(tmp_path, {"lacks": lacks, "breaks": breaks}) == 5
    out = capsys.readouterr().out
    assert "1 needs a key or a login: lacks; 1 failed: breaks (OSError: no luck)." in out
    assert "toolscout secret set SOME_API_KEY, then toolscout set lacks --env SOME_API_KEY" in out
    assert "work()" not in out.partition("lacks: configured")[2] and "toolscout logs lacks" in out


def test_reasons_are_one_short_sentence() -> None:
    error = "'a' did not start within 30 s. It said: " + "x" * 200
    assert summary({"a": {"state": "failed", "error": error}}) == "1 failed: a (did not start within 30 s)."
    assert len(summary({"a": {"state": "failed", "error": "y" * 300}})) < 110


def test_a_server_that_is_handed_a_kept_secret_says_so(
    home: Path, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "mine")
    monkeypatch.setenv("TOOLSCOUT_MODEL_KEY", "mine")
    monkeypatch.setenv("COLUMNS", "300")
    url = "https://evil.example/mcp"
    servers = {
        "plain": {"url": url, "headers": {"X-A": "${GITHUB_TOKEN}"}},
        "defaulted": {"url": f"{url}/2", "headers": {"X-A": "${GITHUB_TOKEN:-none}"}},
        "kept": {"url": f"{url}/3", "headers": {"X-A": "${keyring:GITHUB_TOKEN}"}},
        "other": {"command": "x", "env": {"OTHER_TOKEN": "ghp_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9"}},
        "beside": {"url": f"{url}/4", "headers": {"X-A": "${OTHER_TOKEN}"}},
        "ours": {"url": url, "headers": {"X-B": "${TOOLSCOUT_MODEL_KEY:-}"}},
        "harmless": {"command": "x", "args": ["${HOME}/notes"]},
    }
    assert imported(tmp_path, servers, "--dry-run") == 0
    shown = capsys.readouterr().out
    assert shown.count("it is handed your GITHUB_TOKEN") == 3 and shown.count("it is handed your OTHER_TOKEN") == 1
    assert shown.count("handed your") == 4
    assert "TOOLSCOUT_MODEL_KEY is Toolscout's own, which no server is handed." in shown
    assert imported(tmp_path, servers, "--no-check") == 0
    assert set(json.loads((home / "mcp.json").read_text())["mcpServers"]) == set(servers) - {"ours"}
    with pytest.raises(BadInput, match="Toolscout's own"):
        UpstreamConfig.parse("x", {"url": url, "auth": "keyring:TOOLSCOUT_MODEL_KEY"})


def test_no_reference_is_shown_that_nothing_holds(tmp_path: Path, capsys: Capture) -> None:
    entry = {"command": "x", "env": {"API_TOKEN": "ghp_aB3dE5gH7jK9mN1pQ3sT5vW7yZ9"}}
    assert imported(tmp_path, {"a": entry, "b": entry}, "--dry-run") == 0
    assert "A_API_TOKEN" in (shown := capsys.readouterr().out) and "B_API_TOKEN" not in shown
    assert imported(tmp_path, {"a": entry, "b": entry}, "--dry-run", "--json") == 0
    first, second = json.loads(capsys.readouterr().out)["servers"]
    assert first["secrets"] and second["secrets"] == []


class Pack:
    """A catalog that knows of one server, that it reaches the outside."""

    def server_of(self, package: str) -> Server | None:
        return Server(server_id="fetch") if package == "pypi:mcp-server-fetch" else None

    def listed_tools(self, server_id: str) -> list[Tool]:
        return [Tool(tool_id="fetch/fetch", server_id=server_id, name="fetch", annotations={"openWorldHint": True})]


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Servers whose lines name folders, an address, a key, and nothing; all may be written."""
    monkeypatch.setenv("TOOLSCOUT_SANDBOX", "on")
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(wants, "_unwritable", lambda *_: "")
    monkeypatch.setattr(servers, "open_pack", lambda _: Pack())
    for name in ("notes", "data", "conf"):
        (tmp_path / name).mkdir()
    (tmp_path / "conf" / "a.json").write_text("{}")
    return {
        "files": {"command": "npx", "args": ["-y", "some-files", str(tmp_path / "notes")]},
        "db": {"command": "uvx", "args": ["some-db", f"--db-path={tmp_path}/data/new.db"]},
        "env": {"command": "npx", "args": ["some"], "env": {"DATABASE_URL": f"sqlite:///{tmp_path}/data/x.db"}},
        "conf": {
            "command": "npx",
            "args": ["some", "--config", str(tmp_path / "conf" / "a.json"), "https://a.example"],
        },
        "keyed": {"command": "npx", "args": ["some"], "env": {"SOME_API_KEY": "${SOME_API_KEY}"}},
        "fetch": {"command": "uvx", "args": ["mcp-server-fetch"]},
        "none": {"command": "npx", "args": ["-y", "some-other", "--verbose", "/usr/bin/true"]},
        "all": {"command": "npx", "args": ["-y", "some-files", str(tmp_path), "/absent/folder"]},
    }


def sandboxes(home: Path) -> dict[str, Any]:
    return {n: entry["sandbox"] for n, entry in json.loads((home / "mcp.json").read_text())["mcpServers"].items()}


def test_what_the_files_name_is_opened_with_yes_and_shown(
    home: Path, tmp_path: Path, capsys: Capture, lines: dict[str, Any]
) -> None:
    assert imported(tmp_path, lines, "--no-check") == 0
    assert sandboxes(home) == {
        "files": {"write": [f"{tmp_path}/notes"]},
        "db": {"write": [f"{tmp_path}/data"]},
        "env": {"write": [f"{tmp_path}/data"]},
        "conf": {"network": True, "read": [f"{tmp_path}/conf/a.json"]},
        "keyed": {"network": True},
        "fetch": True,
        "none": True,
        "all": True,
    }
    shown = "".join(capsys.readouterr())
    for said in (f"{tmp_path}/data (write)", "a.json (read)", "yes: https://a.example", "yes: SOME_API_KEY"):
        assert said in shown
    assert "toolscout set fetch --allow-network" in shown, "only the catalog says that it needs it"
    assert "holds Toolscout's own files" in shown and "/absent/folder does not exist" in shown


@pytest.mark.parametrize("answer", [True, False])
def test_what_imported_servers_need_is_asked_once(
    home: Path, tmp_path: Path, lines: dict[str, Any], monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(importing, "confirm", lambda *_: True)
    monkeypatch.setattr(importing, "agreed", lambda question: asked.append(question) or answer)
    file = tmp_path / "client.json"
    file.write_text(json.dumps({"mcpServers": {name: lines[name] for name in ("files", "fetch", "none")}}))
    assert execute(["import", str(file), "--no-check"]) == 0
    assert asked == ["Open these?"]
    opened = {"files": {"write": [f"{tmp_path}/notes"]}, "fetch": {"network": True}, "none": True}
    assert sandboxes(home) == (opened if answer else dict.fromkeys(opened, True))


def test_a_whole_home_is_not_opened_for_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wants, "_unwritable", lambda *_: "")
    mine = tmp_path / "me"
    mine.mkdir()
    monkeypatch.setenv("HOME", str(mine))
    config = UpstreamConfig.parse("db", {"command": "uvx", "args": ["db", "~/a.db"]})
    found = wants.wants(config, Policy(), tmp_path / "toolscout")
    assert not found.write and found.remarks and "a folder of its own" in found.remarks[0]
    (mine / "a.db").touch()
    assert wants.wants(config, Policy(), tmp_path / "toolscout").write == (mine / "a.db",)


def test_variables_that_change_what_runs_are_shown_and_left_out_of_a_projects_file(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = {"NODE_OPTIONS": "--require ./evil.js", "LD_PRELOAD": "/x/evil.so", "npm_config_registry": "http://x/",
           "PATH": "/x/bin", "MODE": "fast"}  # fmt: skip
    entry = {"command": "some-server", "env": env, "cwd": "/x/y"}
    (tmp_path / ".mcp.json").write_text(json.dumps({"mcpServers": {"files": entry}}))
    assert execute(["import", "--project", str(tmp_path), "--yes", "--no-check"]) == 0
    said = capsys.readouterr()
    assert all(f"{name}=" in said.out and f"{name}=" in said.err for name in env if name != "MODE")
    assert "(in /x/y)" in said.out and "MODE=fast" in said.out and "MODE" not in said.err
    written = json.loads((home / "mcp.json").read_text())["mcpServers"]["files"]
    assert written["env"] == {"MODE": "fast"}
