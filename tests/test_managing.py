"""Servers that are changed after they were added, by the commands for it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from toolscout.cli import execute
from toolscout.secret_store import open_store
from toolscout.server.config import ServersFile
from toolscout.server.upstreams.folder import restart_file
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings

Capture = pytest.CaptureFixture[str]
TINY = {"command": sys.executable, "args": ["-I", "-S", str(Path(__file__).parent / "upstreams" / "tiny.py")]}
FIRST, SECOND = "sk-aB3dE5gH7jK9mN1pQ3sT", "sk-zY8xW6vU4tS2rQ0pO9nM"


def write(home: Path, **entries: dict[str, Any]) -> None:
    (home / "mcp.json").write_text(json.dumps({"mcpServers": entries, "other": 1}))


def entry(home: Path, name: str = "tiny") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((home / "mcp.json").read_text())["mcpServers"][name]
    return found


def change(*arguments: str) -> int:
    return execute(["set", "tiny", "--yes", "--no-check", *arguments])


def test_a_server_is_changed_and_the_rest_of_its_entry_stays(
    home: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(home, tiny={**TINY, "env": {"A": "1", "B": "2"}, "note": "mine", "timeout": 5000}, far={"url": "http://x/"})
    before = (home / "mcp.json").read_text()
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert execute(["set", "tiny", "--env", "A=3"]) == 1
    assert (home / "mcp.json").read_text() == before
    said = capsys.readouterr()
    assert '-      "A": "1",' in said.out and '+      "A": "3",' in said.out and "--yes" in said.err

    changes = ["--env", "A=3", "--env", "KEY", "--unset", "env.B", "--unset", "timeout", "--cwd", str(home)]
    assert change(*changes) == 0
    assert entry(home) == {**TINY, "env": {"A": "3", "KEY": "${KEY}"}, "note": "mine", "cwd": str(home)}
    assert "toolscout secret set KEY" in capsys.readouterr().err
    assert json.loads((home / "mcp.json").read_text())["other"] == 1
    assert change("--timeout", "1.5", "--unset", "env.A", "--unset", "env.KEY") == 0
    assert entry(home) == {**TINY, "note": "mine", "cwd": str(home), "timeout": 1500}
    assert execute(["set", "far", "--yes", "--no-check", "--header", "X-Team=blue"]) == 0
    assert entry(home, "far") == {"url": "http://x/", "headers": {"X-Team": "blue"}}
    assert change("--keep-alive", "always") == 0
    assert entry(home)["keep_alive"] is True
    assert change("--keep-alive", "90") == 0
    assert entry(home)["keep_alive"] == 90
    capsys.readouterr()
    assert change("--timeout", "1.5") == 0
    assert "nothing was changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["nobody", "--timeout", "3"], 3),
        (["tiny", "--header", "A=b"], 2),
        (["far", "--env", "A=b"], 2),
        (["far", "--allow-network"], 2),
        (["tiny", "--unset", "env.A"], 2),
        (["tiny", "--unset", "command"], 2),
        (["tiny", "--unset", "env."], 2),
        (["tiny", "--timeout", "-1"], 2),
        (["tiny", "--timeout", "nan"], 2),
        (["tiny", "--timeout", "inf"], 2),
        (["tiny", "--keep-alive", "0"], 2),
        (["tiny", "--keep-alive", "nan"], 2),
        (["tiny", "--keep-alive", "never"], 2),
        (["tiny", "--no-sandbox", "--allow-network"], 2),
    ],
)
def test_what_cannot_be_changed_leaves_everything(home: Path, arguments: list[str], code: int) -> None:
    write(home, tiny={**TINY, "env": {"B": "c"}}, far={"url": "http://x/"})
    before = (home / "mcp.json").read_text()
    assert execute(["set", *arguments, "--yes", "--no-check"]) == code
    assert (home / "mcp.json").read_text() == before


def test_a_server_may_have_a_long_name(home: Path, settings: Settings) -> None:
    name = "\u00fc" * 300
    write(home, **{name: TINY, name + "a": TINY})
    assert execute(["restart", name]) == 0
    assert restart_file(settings.home, name).exists() and not restart_file(settings.home, name + "a").exists()
    assert execute(["logs", name]) in (0, 3)
    assert execute(["remove", name, "--yes"]) == 0
    assert not restart_file(settings.home, name).exists()


def test_a_new_secret_takes_the_place_of_the_old_one(home: Path, settings: Settings, capsys: Capture) -> None:
    write(home, tiny=TINY, other={**TINY, "env": {"X": "${SHARED_KEY}"}})
    store = open_store(settings)
    assert change("--env", f"LINEAR_API_KEY={FIRST}") == 0
    assert change("--env", f"LINEAR_API_KEY={SECOND}") == 0
    assert entry(home)["env"] == {"LINEAR_API_KEY": "${LINEAR_API_KEY}"}
    assert dict(store) == {"LINEAR_API_KEY": SECOND}
    store["SHARED_KEY"] = FIRST
    assert change("--env", "SHARED_KEY") == 0
    assert change("--env", f"SHARED_KEY={SECOND}") == 0
    assert entry(home)["env"]["SHARED_KEY"] == "${TINY_SHARED_KEY}", "the other server keeps its own"
    assert store["SHARED_KEY"] == FIRST
    write(home, tiny={**TINY, "args": [*TINY["args"], "--token", "hunter2hunter2"], "env": {"API_KEY": FIRST}})
    assert change("--env", "A=1") == 0
    said = capsys.readouterr()
    assert not any(secret in said.out + said.err for secret in (FIRST, SECOND, "hunter2"))


def test_what_a_sandbox_opens_is_added_to(home: Path, tmp_path: Path) -> None:
    write(home, tiny=TINY)
    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (tmp_path, one, two):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)
    assert change("--allow-read", str(one)) == 0
    assert change("--allow-read", str(two), "--allow-network") == 0
    assert entry(home)["sandbox"] == {"read": [str(one), str(two)], "network": True}
    assert change("--allow-host", "a.example") == 0
    assert change("--allow-host", "b.example", "--sandbox") == 0
    assert entry(home)["sandbox"]["network"] == ["a.example", "b.example"]
    assert change("--unset", "sandbox.network", "--unset", "sandbox.read") == 0
    assert entry(home)["sandbox"] is True, "nothing is open then; it is still a sandbox"
    assert change("--no-sandbox") == 0
    assert entry(home)["sandbox"] is False


def test_servers_are_switched_off_and_on(home: Path, capsys: Capture) -> None:
    write(home, tiny={**TINY, "note": "mine"}, far={"url": "http://x/"})
    assert execute(["disable", "tiny", "far"]) == 0
    assert entry(home) == {**TINY, "note": "mine", "disabled": True} and entry(home, "far")["disabled"]
    assert execute(["disable", "tiny", "nobody"]) == 3
    assert execute(["enable", "tiny"]) == 0
    assert entry(home) == {**TINY, "note": "mine"} and entry(home, "far")["disabled"]
    assert "tiny: 18 tools" in capsys.readouterr().out, "it was never listed before"


async def test_a_server_that_runs_is_started_anew_once_its_entry_has_changed(home: Path, settings: Settings) -> None:
    write(home, tiny=TINY)
    async with UpstreamPool(settings, ServersFile(settings.servers_file).load) as pool:

        async def seen() -> tuple[Any, Any]:
            env = json.loads((await pool.call_raw("tiny", "env", {}))["content"][0]["text"])
            return env.get("COLOR"), (await pool.call_raw("tiny", "pid", {}))["content"]

        plain, first = await seen()
        write(home, tiny=TINY, other=TINY)
        assert plain is None and (await seen())[1] == first
        write(home, tiny={**TINY, "env": {"COLOR": "blue"}})
        color, second = await seen()
        assert color == "blue" and second != first


def test_what_a_server_runs_is_changed_and_the_rest_stays(
    home: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = {"read": [str(tmp_path)]}
    uvx = {"command": "uvx", "args": ["--from", "notes==1", "notes"], "env": {"A": "${A}"}, "note": "mine"}
    write(home, tiny={**uvx, "sandbox": opened}, far={"url": "http://x/sse", "type": "sse", "headers": {"B": "c"}})
    before = (home / "mcp.json").read_text()
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert execute(["set", "tiny", "--", "uvx", "notes==2"]) == 1
    assert "tiny will run:  uvx notes==2" in capsys.readouterr().err
    for wrong in (["tiny", "prog"], ["tiny", "--url", "http://x/"], ["far", "--", "prog"]):
        assert execute(["set", *wrong, "--yes", "--no-check"]) == 2
    assert (home / "mcp.json").read_text() == before

    assert change("--", "uvx", "notes==2", "--token", FIRST) == 0
    args = ["notes==2", "--token", "${TINY_TOKEN}"]
    assert entry(home) == {**uvx, "args": args, "sandbox": opened}, "the same package, and its sandbox"
    assert change("--", "uvx", "other") == 0
    assert entry(home) == {**uvx, "args": ["other"], "sandbox": True}
    assert change("--no-sandbox") == 0
    monkeypatch.setenv("TOOLSCOUT_SANDBOX", "on")
    assert change("--", "prog") == 0
    assert entry(home) == {"command": "prog", "env": {"A": "${A}"}, "note": "mine", "sandbox": True}
    assert execute(["set", "far", "--url", "http://y/mcp", "--yes", "--no-check"]) == 0
    assert entry(home, "far") == {"url": "http://y/mcp", "headers": {"B": "c"}}


def test_it_is_said_which_tools_are_others_after_a_change(home: Path, tmp_path: Path, capsys: Capture) -> None:
    server = Path(TINY["args"][-1]).read_text()
    (tmp_path / "other.py").write_text(server.replace('"echo"', '"repeat"'))
    write(home, tiny=TINY)
    assert execute(["refresh", "tiny"]) == 0
    assert execute(["set", "tiny", "--yes", "--", sys.executable, "-I", "-S", str(tmp_path / "other.py")]) == 0
    said = capsys.readouterr()
    assert "1 added: repeat; 1 removed: echo" in said.out and "toolscout review" in said.err


def test_replacing_a_server_shows_the_difference_first(
    home: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        home,
        tiny={"command": "old", "args": [], "env": {"A_KEY": FIRST, "B": "1"}, "sandbox": True, "note": "mine"},
        odd={},
    )
    before = (home / "mcp.json").read_text()
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert execute(["add", "tiny", "--replace", "--env", "B=2", "--allow-network", "--", "new"]) == 1
    said = capsys.readouterr().out
    for line in (
        '-    "command": "old",',
        '+    "command": "new",',
        '-      "A_KEY": ',
        '+      "B": "2"',
        '+      "network": true',
    ):
        assert line in said
    assert '-    "note"' not in said and FIRST not in said
    assert execute(["add", "odd", "--yes", "--no-check", "--", "new"]) == 2, "it is in the file, though of no use"
    assert (home / "mcp.json").read_text() == before
    assert execute(["add", "tiny", "--replace", "--yes", "--no-check", "--", "new"]) == 0
    capsys.readouterr()
    assert execute(["add", "tiny", "--replace", "--yes", "--no-check", "--", "new"]) == 0
    assert "stays as it is" in capsys.readouterr().err


def test_a_server_that_does_not_start_or_lists_nothing_is_kept_and_says_so(home: Path, capsys: Capture) -> None:
    crash = [sys.executable, "-c", "raise SystemExit(3)"]
    nothing = [sys.executable, "-I", "-S", str(Path(TINY["args"][-1]).parent / "late.py"), "none"]
    assert execute(["config", "set", "upstream_start_timeout", "2"]) == 0
    write(home, tiny=TINY, off={"command": crash[0], "args": crash[1:], "disabled": True})
    for arguments in (["set", "tiny", "--yes"], ["add", "one", "--yes", "--replace"]):
        for command in (crash, nothing):
            assert execute([*arguments, "--", *command]) == 5
            said = capsys.readouterr().out
            assert ("configured, but" if command is crash else f"toolscout refresh {arguments[1]}") in said
            assert entry(home, arguments[1])["args"] == command[1:]
    assert execute(["enable", "off"]) == 5
    assert execute(["refresh", "one"]) == 5
    assert execute(["set", "tiny", "--yes", "--env", "KEY", "--", TINY["command"], *TINY["args"]]) == 0, (
        "a key can wait"
    )


def test_why_a_server_failed_is_known_until_it_works_again(home: Path, capsys: Capture, tmp_path: Path) -> None:
    script = tmp_path / "server.py"
    script.write_text(Path(TINY["args"][-1]).read_text())
    write(home, tiny={**TINY, "args": ["-I", "-S", str(script)]})

    def seen() -> list[str]:
        capsys.readouterr()
        found = []
        for command in (["list"], ["doctor", "--no-upstreams"], ["find", "echo a text", "--json"]):
            execute(command)
            found.append(capsys.readouterr().out)
        return found

    assert execute(["refresh", "tiny"]) == 0
    assert not any("exited with status" in said for said in seen())
    working = script.read_text()
    script.write_text("raise SystemExit('the licence has run out')")
    assert execute(["refresh", "tiny"]) == 5
    listed, checked, found = seen()
    for said in (listed, checked):
        assert "'tiny' exited with status 1 while starting. (20" in said
    assert "does not work: exited with status 1 while starting. Run: toolscout doctor tiny" in found
    assert "run out" in listed and "run out" in checked and "run out" not in found, "an agent reads no stranger's words"
    script.write_text(working)
    assert execute(["refresh", "tiny"]) == 0
    assert not any("exited with status" in said for said in seen())


def test_a_folder_that_cannot_serve_is_refused_at_once(home: Path, capsys: Capture, tmp_path: Path) -> None:
    write(home, tiny={**TINY, "sandbox": {"read": [str(tmp_path / "gone")]}})
    before = (home / "mcp.json").read_text()
    closed, file = tmp_path / "closed", tmp_path / "file"
    closed.mkdir(mode=0o000)
    file.write_text("")
    for option, path, said in (
        ("--allow-read", tmp_path / "gone", "does not exist"),
        ("--allow-write", Path("/proc"), "does not exist"),  # the path that is given already comes first
        ("--cwd", file, "is no folder"),
    ):
        assert change(option, str(path)) == 2
        assert said in capsys.readouterr().err
    write(home, tiny=TINY)
    for option, path, said in (
        ("--allow-read", closed, "may not read"),
        ("--allow-read", Path("/proc/self"), "never handed on"),
        ("--allow-read", home, "Toolscout's own files"),
    ):
        assert change(option, str(path)) == 2
        assert said in capsys.readouterr().err
        assert execute(["add", "new", "--yes", "--no-check", option, str(path), "--", "prog"]) == 2
        capsys.readouterr()
    assert before != (home / "mcp.json").read_text() == json.dumps({"mcpServers": {"tiny": TINY}, "other": 1})


def test_what_is_written_and_not_in_force_is_not_called_so_already(home: Path, capsys: Capture) -> None:
    write(home, tiny={**TINY, "args": ["-c", "raise SystemExit(3)"], "env": {"KEY": "${KEY}"}})
    assert change("--env", "KEY") == 0
    said = capsys.readouterr()
    assert "nothing was changed" not in said.out and "toolscout secret set KEY" in said.err
    write(home, tiny={**TINY, "args": ["-c", "raise SystemExit(3)"], "timeout": 3000})
    assert execute(["refresh", "tiny"]) == 5
    assert execute(["set", "tiny", "--timeout", "3", "--yes"]) == 5, "it is tried again"
    said = capsys.readouterr()
    assert "nothing was changed" not in said.out and "exited with status 3" in said.err


def test_set_says_what_a_new_line_names_and_the_sandbox_does_not_open(
    home: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOOLSCOUT_SANDBOX", "on")
    folder = tmp_path / "documents"
    folder.mkdir()
    write(home, files={"command": "npx", "args": ["-y", "some-files-server"]})
    line = ["npx", "-y", "some-files-server", str(folder)]
    assert execute(["set", "files", "--no-check", "--yes", "--", *line]) == 0
    said = capsys.readouterr().err
    assert "in a sandbox: it " in said
    assert f"--allow-write {folder}" in said or f"--allow-read {folder}" in said
