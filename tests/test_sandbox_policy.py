"""The ``sandbox`` of an entry: what is understood, what is refused, which hosts it lets through."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from toolscout.errors import BadInput, NotAllowed
from toolscout.server.config import UpstreamConfig
from toolscout.server.doctor.examine import examine
from toolscout.server.sandbox import box
from toolscout.server.sandbox.policy import Policy
from toolscout.server.sandbox.proxy import Refused, _address, _asked, allows
from toolscout.server.sandbox.view import own_code, runtime
from toolscout.settings import Settings


@pytest.mark.parametrize(
    "sandbox",
    [
        "yes",
        1,
        [],
        {"netwrok": False},
        {"network": "example.com"},
        {"network": []},
        {"network": ["https://example.com"]},
        {"network": ["example.com/path"]},
        {"network": ["example.com:0"]},
        {"network": ["*"]},
        {"network": ["a b"]},
        {"read": "~/x"},
        {"read": ["relative"]},
        {"read": ["/a/../b"]},
        {"write": [""]},
        {"memory": "1 GB"},
        {"memory": True},
        {"processes": 1},
    ],
)
def test_what_is_not_understood_is_refused(sandbox: object) -> None:
    with pytest.raises(BadInput, match="sandbox"):
        UpstreamConfig.parse("s", {"command": "x", "sandbox": sandbox})


def test_what_is_understood() -> None:
    policy = Policy.parse("s", {"network": ["API.example.com", "*.x.org", "[::1]:80", "10.0.0.1"], "read": ["~/a"]})
    assert policy == Policy(("api.example.com", "*.x.org", "[::1]:80", "10.0.0.1"), (Path.home() / "a",))
    assert Policy.parse("s", policy.as_json()) == policy
    assert Policy.parse("s", True) == Policy.parse("s", {}) == Policy() and Policy().as_json() is True
    assert Policy.parse("s", False) is None


def test_the_default_and_the_entry() -> None:
    def of(**entry: object) -> UpstreamConfig:
        return UpstreamConfig.parse("s", {"command": "x", **entry})

    assert of().policy("off") is None and of().policy("on") == Policy()
    assert of().policy("network") == Policy(network=True)
    assert of(sandbox=False).policy("on") is None and of(sandbox=True).policy("off") == Policy()
    assert UpstreamConfig.parse("s", {"url": "https://example.com"}).policy("on") is None


@pytest.mark.parametrize(
    ("host", "port", "passes"),
    [
        ("example.com", 443, True),
        ("EXAMPLE.com.", 80, True),
        ("example.com", 22, False),
        ("www.example.com", 443, False),
        ("evilexample.com", 443, False),
        ("a.x.org", 443, True),
        ("a.b.x.org", 443, True),
        ("x.org", 443, False),
        ("evilx.org", 443, False),
        ("localhost", 8080, True),
        ("localhost", 80, False),
        ("::1", 9000, True),
        ("example.com.evil.org", 443, False),
    ],
)
def test_hosts(host: str, port: int, passes: bool) -> None:
    assert allows(("example.com", "*.x.org", "localhost:8080", "[::1]:9000"), host, port) is passes


def test_what_a_proxy_is_asked() -> None:
    assert _asked(b"CONNECT a.b:443 HTTP/1.1\r\nHost: other\r\n\r\n") == ("a.b", 443, None)
    host, port, sent = _asked(b"GET http://a.b/x?y HTTP/1.1\r\nHost: other\r\nProxy-Connection: keep-alive\r\n\r\n")
    assert (host, port, sent) == ("a.b", 80, b"GET /x?y HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\n\r\n")
    for head in (
        b"GET /x HTTP/1.1\r\n\r\n",
        b"GET ftp://a/x HTTP/1.1\r\n\r\n",
        b"CONNECT a HTTP/1.1\r\n\r\n",
        b"x\r\n\r\n",
    ):
        with pytest.raises(Refused):
            _asked(head)


def test_what_a_program_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me = tmp_path / "me"
    monkeypatch.setattr(Path, "home", lambda: me)
    tool = me / ".local/share/uv/tools/x/bin/x"
    for folder in (tool.parent, me / ".local/bin", me / "py/bin", me / "bin", me / "project/src"):
        folder.mkdir(parents=True)
    (me / "py/bin/python3").touch()
    (tool.parent / "python").symlink_to(me / "py/bin/python3")
    (tool.parent.parent / "pyvenv.cfg").write_text(f"home = {me}/py/bin\n")
    tool.write_text(f"#!{tool.parent}/python\n")
    (me / ".local/bin/x").symlink_to(tool)
    (me / "bin/y").write_text("#!/bin/sh\n")
    of_tool = {tool.parent, tool.parents[1] / "pyvenv.cfg"}
    assert set(runtime(me / ".local/bin/x")) == {me / ".local/bin/x", *of_tool, me / "py/bin"}
    assert runtime(me / "bin/y") == [me / "bin/y"], "never the home that a bin folder lies in"
    assert runtime(Path("/usr/bin/env")) == []
    (me / "project/package.json").touch()
    (me / "project/src/main.js").touch()
    (me / "main.js").touch()
    assert own_code("node", (str(me / "project/src/main.js"), "/etc"), None) == me / "project"
    assert own_code("node", ("src/main.js",), str(me / "project")) == me / "project"
    assert own_code("node", (str(me / "main.js"),), None) == me / "main.js"
    assert own_code("frobnicate", (str(me / "main.js"),), None) is None


def test_a_name_alone_opens_no_folder(tmp_path: Path) -> None:
    """What ``pyvenv.cfg`` or a first line names has to be a program."""
    (tmp_path / "secret" / "bin").mkdir(parents=True)
    (tmp_path / "app" / "bin").mkdir(parents=True)
    program = tmp_path / "app" / "bin" / "run"
    program.write_text(f"#!{tmp_path}/secret/bin/no-such-program\n")
    (tmp_path / "app" / "pyvenv.cfg").write_text(f"home = {tmp_path}/secret/bin\n")
    assert runtime(program) == [tmp_path / "app"]


async def test_doctor_says_that_no_sandbox_can_be_made(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(box, "trouble", lambda: "bubblewrap is not installed")
    (home / "mcp.json").write_text('{"mcpServers": {"a": {"command": "x", "sandbox": true}, "b": {"command": "x"}}}')
    for default, status in (("off", "fail"), ("on", "fail")):
        checks = await examine(Settings(home=home, sandbox=default), upstreams=False)  # type: ignore[arg-type]
        found = next(check for check in checks if check.name == "sandbox")
        assert found.status == status and "bubblewrap is not installed; a" in found.detail
        assert "apt install bubblewrap" in found.fix
    (home / "mcp.json").write_text('{"mcpServers": {"b": {"command": "x"}}}')
    checks = await examine(Settings(home=home), upstreams=False)
    assert next(check for check in checks if check.name == "sandbox").status == "ok"


@pytest.mark.parametrize(
    "leads_to", ["127.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1", "0.0.0.0", "224.0.0.1"]
)
async def test_a_name_on_the_list_does_not_lead_into_this_machine(
    leads_to: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (leads_to, 443))]

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", found)
    with pytest.raises(Refused, match="leads to this machine itself"):
        await _address("rebound.example.org", 443, ("*.example.org",))


async def test_a_name_that_leads_elsewhere_or_localhost_itself_is_let_through() -> None:
    assert await _address("203.0.113.7", 443, ("203.0.113.7",)) == "203.0.113.7"
    assert await _address("localhost", 443, ("localhost",)) in {"127.0.0.1", "::1"}


def test_of_several_owners_root_is_the_one_to_change(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root has a choice of users")
    theirs, roots = tmp_path / "a", tmp_path / "b"
    for folder in (theirs, roots):
        folder.mkdir()
    os.chown(theirs, 60999, 60999)
    for write in ((theirs, roots), (roots, theirs)):
        with pytest.raises(NotAllowed, match=f"may write {roots}, which belongs to root"):
            box.Box("x", (), {}, Policy(write=write)).user()
