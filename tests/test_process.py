"""What is kept of an upstream's stderr, and what the watchdog is told."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from toolscout.errors import UpstreamError
from toolscout.server.config import UpstreamConfig
from toolscout.server.launch import from_here, package_of
from toolscout.server.secrecy.hiding import HIDDEN, Hider
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.server.upstreams.process import Tail, find_program
from toolscout.server.upstreams.said import gist, install_hint, installer_gist, missing_value
from toolscout.server.upstreams.watchdog import MARKER, Watchdog
from toolscout.settings import Settings


def test_a_secret_at_the_cut_is_hidden_whole() -> None:
    tail = Tail()
    tail.add(b"the key is s3cr3t-value-of-some-length and then " + b"x" * 40)
    shown = tail.text(characters=60, hider=Hider({"s3cr3t-value-of-some-length"}))
    assert "length" not in shown and shown.endswith("x" * 40)
    assert "length" in tail.text(characters=60)


def parts(secret: str, text: str) -> list[str]:
    """What of the secret, in pieces of eight characters, stands in the text."""
    return [secret[i : i + 8] for i in range(len(secret) - 7) if secret[i : i + 8] in text]


def test_a_long_secret_that_is_said_again_and_again_leaves_no_part() -> None:
    secret = "".join(f"{n:04x}q" for n in range(400))
    tail = Tail()
    for _ in range(4):
        tail.add(f"token {secret}\n".encode())
    assert parts(secret, tail.text()) and not parts(secret, tail.text(hider=Hider({secret})))


@pytest.mark.parametrize("before", [0, 3, 700, 1990, 5000])
@pytest.mark.parametrize("portion", [100, 997, 100_000])
def test_nor_does_one_at_the_edge_of_what_is_kept(before: int, portion: int) -> None:
    """Also where all that is kept is a middle of the secret, and where it had room for a part of the last one."""
    secret = "".join(f"{n:04x}q" for n in range(400))
    said = b"x" * before + (f"a{secret} {secret}\n" * 3).encode() + secret[:1500].encode()
    for limit in (1000, 2500, 4001):
        tail = Tail(limit)
        for start in range(0, len(said), portion):
            tail.add(said[start : start + portion])
        shown = tail.text(hider=Hider({secret}))
        assert HIDDEN in shown and not parts(secret, shown), shown


def test_what_is_shown_is_worked_out_again_when_more_has_come() -> None:
    tail = Tail()
    tail.add(b"one")
    assert [tail.text(), tail.text()] == ["one", "one"]
    tail.add(b" two")
    assert tail.text() == "one two" and tail.text(hider=Hider({"two2", "one two"})) == HIDDEN


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_watchdog_is_not_marked_by_the_pool_that_its_toolscout_belongs_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARKER, "outer/1")
    watchdog = Watchdog("inner")
    try:
        environment, given_up = Path(f"/proc/{watchdog.pid}/environ"), time.monotonic() + 10
        while not (said := environment.read_bytes()) and time.monotonic() < given_up:
            time.sleep(0.01)  # empty until it has become the watchdog
        names = {item.partition(b"=")[0] for item in said.split(b"\0")}
        assert MARKER.encode() not in names and b"PATH" in names and os.environ[MARKER] == "outer/1"
    finally:
        watchdog.close()


def test_a_command_in_the_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_program("~/bin/server", None, None) == str(program)
    assert find_program("~/bin/server", "/", None) == str(program), "whatever folder it works in"


TRACEBACK = """+ Exception Group Traceback (most recent call last):
  |   File "/a/server.py", line 3, in main
  |     return future.result()
  |            ^^^^^^^^^^^^^^^
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/a/b.py", line 9, in run
    |     raise ValueError("x")
    | ValueError: The folder is no vault.
    +------------------------------------
"""
NODE = """file:///a/index.js:3
    throw new Error("No workspace is given");
    ^

Error: No workspace is given
    at main (file:///a/index.js:3:11)
    at node:internal/modules/run_main:129:5

Node.js v20.1.0
"""


def test_the_gist_is_what_was_said_without_stack_traces() -> None:
    assert gist(TRACEBACK).splitlines()[-1] == "ValueError: The folder is no vault."
    assert "server.py" not in gist(TRACEBACK) and "^" not in gist(TRACEBACK)
    assert gist(NODE).splitlines()[-1] == "Error: No workspace is given" and " at " not in gist(NODE)
    assert gist("only this") == "only this" and gist("") == ""


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Error: BRAVE_API_KEY environment variable is required", "BRAVE_API_KEY"),
        ("X_TOKEN is not set", "X_TOKEN"),
        ("Missing required environment variable: NOTION_TOKEN", "NOTION_TOKEN"),
        ("Please set the `SLACK_BOT_TOKEN` environment variable", "SLACK_BOT_TOKEN"),
        ("KeyError: 'LINEAR_API_KEY'", "LINEAR_API_KEY"),
        ("API key required", ""),
        ("No API key was given", ""),
        ("Request failed: 401 Unauthorized", ""),
        ("SyntaxError: Unexpected token is missing", None),
        ("code: 'ERR_MODULE_NOT_FOUND' is missing", None),
        ("TOOLSCOUT_MODEL_KEY is not set", None),
        ("EROFS: read-only file system", None),
        ("the directory /x is required", None),
    ],
)
def test_what_a_server_says_it_lacks(text: str, name: str | None) -> None:
    assert missing_value(text) == name


def test_installers_are_quoted_with_what_to_do() -> None:
    uv = (
        "  × No solution found when resolving tool dependencies:\n  ╰─▶ Because the current Python version (3.11.7) \n"
        "      does not satisfy Python>=3.13 and all versions of a depend on Python>=3.13, a cannot be used.\n\nhint: x"
    )
    assert installer_gist(uv).startswith("Because the current Python version (3.11.7) does not satisfy Python>=3.13")
    assert '"--python", "3.13"' in install_hint(uv)
    assert installer_gist("error: No solution found\n  cause: Because a\n    needs b, c.\n") == "Because a needs b, c."
    npm = (
        "npm error code E404\nnpm error 404 Not Found - GET https://r/no - Not found\nnpm error 404\n"
        "npm error A complete log of this run can be found in: /x.log\n"
    )
    assert installer_gist(npm) == "404 Not Found - GET https://r/no - Not found"
    assert "check its name" in install_hint(npm)
    assert "compiler" in install_hint("src/a.c:1:10: fatal error: libpq-fe.h: No such file or directory")


def test_a_relative_folder_on_the_path_is_no_place_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "some-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_program("some-server", None, f".{os.pathsep}{os.pathsep}/usr/bin") is None
    assert find_program("some-server", None, str(tmp_path)) == str(program)


async def test_a_server_runs_in_a_folder_of_its_own_unless_its_entry_names_one(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    (project / "json.py").write_text("raise SystemExit('the project was run')")
    said = "import os, pathlib; pathlib.Path(os.environ['OUT']).write_text(os.getcwd())"
    for name, entry in (("a/b", {}), ("named", {"cwd": str(project)})):
        out = tmp_path / "out"
        fields = {"command": sys.executable, "args": ["-c", said], "env": {"OUT": str(out)}, **entry}
        config = UpstreamConfig.parse(name, fields)
        pool = UpstreamPool(settings, lambda config=config: {config.name: config})  # type: ignore[misc]
        with pytest.raises(UpstreamError):
            await pool.call(name, "x", {})
        await pool.close()
        where = Path(out.read_text())
        assert where == (project if entry else settings.home / "servers" / "a%2Fb.work")


def test_paths_of_the_current_folder_are_written_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "server.py").write_text("")
    (tmp_path / "serve").mkdir()
    line = ["./run.sh", "server.py", "--root=../notes", ".", "serve", "-y", "@scope/package", "gone.py", "/a/b.py"]
    here = str(tmp_path)
    assert from_here(line) == [
        *(f"{here}/run.sh", f"{here}/server.py", f"--root={here}/../notes", here),
        *("serve", "-y", "@scope/package", "gone.py", "/a/b.py"),
    ]


def test_the_package_of_a_module_is_known_with_options_of_python_before_it() -> None:
    for args in (["-m", "mcp_server_time"], ["-P", "-m", "mcp_server_time.main", "--x"]):
        assert package_of({"command": "/usr/bin/python3", "args": args}) == "pypi:mcp-server-time"
    assert package_of({"command": "python3", "args": ["x.py", "-m", "y"]}) is None


def test_a_package_that_is_not_there_is_told_in_one_line() -> None:
    said = (
        "npm error code E404\nnpm error 404 Not Found - GET https://registry.example/weathr\nnpm error 404\n"
        "npm error 404  'weathr@*' is not in this registry.\nnpm error 404\n"
        "npm error 404 Note that you can also install from a\nnpm error 404 tarball, folder, http url, or git folder.\n"
    )
    assert installer_gist(said).splitlines()[-1].endswith("'weathr@*' is not in this registry.")
