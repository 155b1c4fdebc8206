"""The demo runs for real: it is the main job, from a client's side."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

EXPECTED = [
    "start:registered",
    "start:tools/list",
    "time:find_tools",
    "time:suggest_call",
    "time:invoke",
    "git:find_tools",
    "git:invoke",
    "fetch:find_tools",
    "fetch:invoke",
    "mistake:refused",
    "nothing:find_tools",
    "start:second start",
]
WITH_PACK = [*EXPECTED[:-1], "catalog:find_tools", EXPECTED[-1]]


def run_demo(*options: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "toolscout", "demo", *options]
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, timeout=400)


def test_without_a_pack_the_demo_shows_the_rest(home: Path) -> None:
    done = run_demo("--json")
    result = json.loads(done.stdout)
    assert (done.returncode, result["passed"]) == (0, True)
    assert [step["name"] for step in result["steps"]] == EXPECTED


def test_the_demo_shows_the_main_job_and_everything_in_it_happened(home: Path, with_pack: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    done = run_demo("--json", TMPDIR=str(temporary))
    result = json.loads(done.stdout)
    failed = {step["name"]: step["detail"] for step in result["steps"] if not step["passed"]}
    assert (failed, result["error"]) == ({}, None)
    assert [step["name"] for step in result["steps"]] == WITH_PACK
    assert "linear" in result["steps"][-2]["detail"]
    assert result["passed"] is True
    assert done.returncode == 0
    numbers = result["numbers"]
    assert numbers["cold_start_ms"] > 0
    assert numbers["find_ms_median"] > 0
    assert numbers["invoke_ms_median"] > 0
    assert numbers["definitions_tokens"] > 100
    # nothing is left behind: no file, no process, and the user's own home was not touched
    assert list(temporary.iterdir()) == []
    assert list(home.iterdir()) == []
    assert _processes_under(temporary) == []


def test_a_demo_that_cannot_show_it_says_so_and_fails(home: Path, tmp_path: Path) -> None:
    done = run_demo(PATH=str(tmp_path))
    assert done.returncode == 1
    assert "the program git is not on the PATH" in done.stdout
    assert "The demo failed" in done.stdout
    assert "Traceback" not in done.stderr


def _processes_under(folder: Path) -> list[str]:
    """Command lines of processes whose environment names ``folder``."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "environ").read_bytes():
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found
