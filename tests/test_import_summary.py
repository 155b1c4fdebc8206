"""What an import says at its end, how long it takes, and what it exits with."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from toolscout.cli import EXIT_CODES, execute
from toolscout.commands import importing
from toolscout.commands.listing import summary
from toolscout.errors import BadInput
from toolscout.server.config import UpstreamConfig

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
