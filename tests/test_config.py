"""mcp.json: read as all clients write it, written so that nothing of it is ever lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from toolscout.errors import BadInput, NotFound
from toolscout.records import Transport
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.secrecy.secrets import Resolver
from toolscout.server.upstreams.listing import install_of, server_from_config, tools_of


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "conf" / "mcp.json"


def write(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")


def test_no_file_is_no_servers(path: Path) -> None:
    assert ServersFile(path).load() == {}


def test_entries_in_all_usual_forms(path: Path) -> None:
    entries = {
        "std": {
            "command": "uvx",
            "args": ["x", 1, True],
            "env": {"PORT": 80, "DEBUG": True, "NONE": None},
            "cwd": "/x",
        },
        "plain-url": {"url": "https://h/mcp"},
        "sse-by-path": {"url": "https://h/sse"},
        "sse": {"type": "sse", "url": "https://h/x"},
        "typed": {"type": "streamableHttp", "url": "https://h/sse"},
        "windsurf": {"serverUrl": "https://h/mcp", "headers": {"A": "b"}},
        "gemini": {"httpUrl": "https://h/sse"},
        "variable": {"url": "${BASE}/mcp", "auth": "oauth", "timeout": 5000},
        "off": {"command": "x", "disabled": True},
    }
    write(path, {"mcpServers": entries})
    found = ServersFile(path).load()
    assert list(found) == list(entries)
    std = found["std"]
    assert (std.transport, std.command, std.args, std.cwd) == (Transport.STDIO, "uvx", ("x", "1", "true"), "/x")
    assert std.env == {"PORT": "80", "DEBUG": "true"}
    kinds = {n: c.transport.value for n, c in found.items()}
    assert kinds["plain-url"] == kinds["typed"] == kinds["windsurf"] == kinds["gemini"] == kinds["variable"] == "http"
    assert kinds["sse-by-path"] == kinds["sse"] == "sse"
    assert (found["variable"].auth, found["variable"].timeout) == ("oauth", 5.0)
    assert found["off"].disabled and not std.disabled


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ({}, "neither 'command' nor 'url'"),
        ("npx", "must be an object"),
        ({"command": "x", "args": "y"}, "'args'"),
        ({"command": "x", "env": ["A=1"]}, "'env'"),
        ({"command": ["x"]}, "must be text"),
        ({"url": "ftp://h"}, "http://"),
        ({"url": "https://h", "type": "pigeon"}, "unknown transport 'pigeon'"),
        ({"command": "x", "timeout": -1}, "'timeout'"),
    ],
)
def test_a_broken_entry_is_named_and_does_not_hide_the_others(path: Path, entry: object, reason: str) -> None:
    write(path, {"mcpServers": {"good": {"command": "x"}, "broken": entry}})
    file = ServersFile(path)
    assert list(file.load()) == ["good"]
    assert reason in file.problems["broken"] and "'broken'" in file.problems["broken"]


@pytest.mark.parametrize(
    "content", ["{", "[1]", '{"mcpServers": []}', "// comment\n{}", '{"mcpServers": {}} x', "\x00\x01"]
)
def test_what_cannot_be_parsed_is_never_overwritten(path: Path, content: str) -> None:
    write(path, content)
    file = ServersFile(path)
    for change in (
        file.load,
        lambda: file.add(UpstreamConfig.stdio("a", "b")),
        lambda: file.remove("a"),
        lambda: file.save({}),
    ):
        with pytest.raises(BadInput, match=r"mcp\.json"):
            change()
    assert path.read_text() == content


def test_undecodable_bytes_are_kept_too(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b'{"mcpServers": "\xff"}')
    with pytest.raises(BadInput):
        ServersFile(path).add(UpstreamConfig.stdio("a", "b"))
    assert path.read_bytes() == b'{"mcpServers": "\xff"}'


def test_adding_and_removing_keeps_all_else(path: Path) -> None:
    before = {
        "$schema": "x",
        "mcpServers": {
            "one": {"command": "old", "args": ["1"], "icon": "i.png", "toolTransforms": {"a": 1}},
            "broken": {"what": "ever"},
            "zwei \u00fc": {"url": "https://h"},
        },
        "other": [1, {"deep": None}],
    }
    write(path, "\ufeff" + json.dumps(before))
    file = ServersFile(path)
    assert file.add(UpstreamConfig.stdio("two", "cmd", ["a"], {"K": "${K}"})) is True
    assert file.add(UpstreamConfig.remote("one", "https://new")) is False
    after = json.loads(path.read_text(encoding="utf-8"))
    assert after["$schema"] == "x" and after["other"] == before["other"]
    assert after["mcpServers"]["broken"] == {"what": "ever"}
    assert after["mcpServers"]["one"] == {"icon": "i.png", "toolTransforms": {"a": 1}, "url": "https://new"}
    assert after["mcpServers"]["two"] == {"command": "cmd", "args": ["a"], "env": {"K": "${K}"}}
    file.remove("two")
    assert list(file.load()) == ["one", "zwei \u00fc"]
    with pytest.raises(NotFound):
        file.remove("two")
    with pytest.raises(BadInput, match="configured already"):
        file.add(UpstreamConfig.stdio("one", "x"), overwrite=False)


def test_what_was_said_of_the_old_program_does_not_hold_for_a_new_one(path: Path) -> None:
    old = {"command": "old", "args": [], "sandbox": False, "keep_alive": True, "starter": "time", "note": 1}
    write(path, {"mcpServers": {"a": old}})
    file = ServersFile(path)
    file.add(UpstreamConfig.stdio("a", "new"))
    assert file.entry("a") == {"note": 1, "command": "new", "args": []}


def test_saving_a_whole_set(path: Path) -> None:
    write(path, {"mcpServers": {"a": {"command": "x", "note": 1}, "b": {"command": "y"}}, "k": 1})
    file = ServersFile(path)
    file.save({"a": UpstreamConfig.stdio("a", "z")})
    assert json.loads(path.read_text()) == {"mcpServers": {"a": {"note": 1, "command": "z", "args": []}}, "k": 1}


def test_changes_by_others_are_seen_and_the_files_mode_is_kept(path: Path) -> None:
    file = ServersFile(path)
    file.add(UpstreamConfig.stdio("a", "x"))
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o640)
    assert list(file.load()) == ["a"]
    ServersFile(path).add(UpstreamConfig.stdio("b", "x"))
    assert list(file.load()) == ["a", "b"]
    assert path.stat().st_mode & 0o777 == 0o640
    path.unlink()
    assert file.load() == {}


def test_a_linked_file_stays_a_link(path: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("{}")
    path.parent.mkdir()
    path.symlink_to(real)
    ServersFile(path).add(UpstreamConfig.stdio("a", "x"))
    assert path.is_symlink() and "a" in json.loads(real.read_text())["mcpServers"]


def test_processes_that_write_at_once_lose_nothing(path: Path) -> None:
    script = """
import sys
from pathlib import Path
from toolscout.server.config import ServersFile, UpstreamConfig
for i in range(8):
    ServersFile(Path(sys.argv[1])).add(UpstreamConfig.stdio(f"{sys.argv[2]}{i}", "x"))
"""
    running = [subprocess.Popen([sys.executable, "-c", script, str(path), name]) for name in "abc"]
    assert [p.wait() for p in running] == [0, 0, 0]
    assert len(ServersFile(path).load()) == 24
    assert [p.name for p in path.parent.iterdir() if p.suffix != ".lock"] == ["mcp.json"], "no temporary file is left"


def test_references_are_resolved_at_start_only() -> None:
    config = UpstreamConfig.parse(
        "x", {"command": "run", "args": ["--key=${KEY}"], "env": {"A": "${KEY}", "B": "${D:-d}"}, "cwd": "${DIR}"}
    )
    assert config.references() == ["KEY", "DIR"]
    resolved = config.resolved(Resolver({"KEY": "k", "DIR": "/d"}))
    assert (resolved.args, resolved.env, resolved.cwd) == (("--key=k",), {"A": "k", "B": "d"}, "/d")
    assert config.args == ("--key=${KEY}",) and resolved.fields == {}


def test_tools_whose_names_no_database_keeps_as_they_are_are_left_out() -> None:
    names = ["pay", "pay\0x", "pay\x1b[2J", "pay\n", "pay\ud800", "päy", "pay bill"]
    tools = tools_of("s", [{"name": name, "inputSchema": {"type": "object"}} for name in names])
    assert [tool.name for tool in tools] == ["pay", "päy", "pay bill"]


def test_records_made_from_a_configuration_hold_no_value() -> None:
    secret = "s3cr3t-value"
    config = UpstreamConfig.parse(
        "gh",
        {
            "command": "npx",
            "args": [
                "-y",
                "@scope/server@1.2.3",
                "--token",
                secret,
                f"--api-key={secret}",
                f"--password {secret}",
                f"Server=d;Pwd={secret}",
                "KEY=${KEY}",
                "Authorization: Bearer ${KEY}",
                "--verbose",
                "yes",
            ],
            "env": {"GITHUB_TOKEN": secret, "MODE": "fast", "URL": "${THE_URL}"},
            "description": "GitHub",
        },
    )
    server = server_from_config(config)
    assert secret not in server.to_json() and "fast" not in server.to_json()
    install = server.install
    assert (install.registry, install.package, install.version) == ("npm", "@scope/server", "1.2.3")
    assert install.args[-4:] == ["KEY=${KEY}", "Authorization: Bearer ${KEY}", "--verbose", "yes"]
    assert [(v.name, v.secret) for v in install.env] == [("GITHUB_TOKEN", True), ("MODE", False), ("URL", True)]
    remote = install_of(
        UpstreamConfig.remote("r", f"https://u:{secret}@h/mcp?key={secret}", headers={"X": "${TOKEN}"}, auth=secret)
    )
    assert secret not in remote.model_dump_json() and remote.url == "https://h/mcp"
    assert [v.name for v in remote.env] == ["TOKEN"]


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ("uvx", ["mcp-server-time"], ("pypi", "mcp-server-time", None)),
        ("uvx", ["--from", "pkg==1.0", "cmd"], ("pypi", "pkg", "1.0")),
        ("C:\\nodejs\\npx.cmd", ["-y", "thing"], ("npm", "thing", None)),
        ("npx", ["@a/b"], ("npm", "@a/b", None)),
        ("docker", ["run", "-i", "--rm", "ghcr.io/x/y:1"], ("oci", "ghcr.io/x/y:1", None)),
        ("/usr/bin/python3", ["-m", "x"], ("none", None, None)),
    ],
)
def test_packages_behind_runners(command: str, args: list[str], expected: tuple[str, str | None, str | None]) -> None:
    install = install_of(UpstreamConfig.stdio("x", command, args))
    assert (install.registry, install.package, install.version) == expected


@pytest.mark.skipif(os.name != "posix", reason="sends signals that only POSIX has")
def test_a_kill_during_writing_leaves_the_old_file(path: Path) -> None:
    ServersFile(path).add(UpstreamConfig.stdio("kept", "x"))
    script = """
import os, signal, sys
from pathlib import Path
from toolscout.server.config import ServersFile, UpstreamConfig
os.fsync = lambda fd: os.kill(os.getpid(), signal.SIGKILL)
ServersFile(Path(sys.argv[1])).add(UpstreamConfig.stdio("new", "x"))
"""
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == -9
    assert list(ServersFile(path).load()) == ["kept"]
    ServersFile(path).add(UpstreamConfig.stdio("next", "x"))
    assert list(ServersFile(path).load()) == ["kept", "next"]
