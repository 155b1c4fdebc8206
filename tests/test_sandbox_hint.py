"""What is said of calls that fail in a real sandbox, and that the command it names opens it."""

from __future__ import annotations

import os
import shlex
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from test_sandbox import SERVANT, TROUBLE, folder, listener, prober  # noqa: F401 (fixtures)

from toolscout.cli import execute
from toolscout.records import Server, ServerState, Tool
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.invoke import Invoker
from toolscout.server.sandbox.hint import call_hint, start_hint
from toolscout.server.sandbox.policy import Policy
from toolscout.server.sandbox.wants import wants
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings

# ruff: noqa: F811
pytestmark = pytest.mark.skipif(TROUBLE is not None, reason=f"no sandbox here: {TROUBLE}")


class Client:
    """Calls the prober of the home's ``mcp.json``."""

    def __init__(self, settings: Settings) -> None:
        self.servers = ServersFile(settings.servers_file)
        self.pool = UpstreamPool(settings, self.servers.load)
        tools = {f"prober/{n}": n for n in ("read", "write", "connect", "fetch")}
        found = {i: Tool(tool_id=i, server_id="prober", name=n, review="approved") for i, n in tools.items()}
        ready = Server(server_id="prober", state=ServerState.READY)
        self.invoker = Invoker(found.get, lambda _: ready, lambda _: [], lambda _: None, self.pool, settings)

    async def __call__(self, tool: str, **arguments: Any) -> str:
        result = await self.invoker.invoke(f"prober/{tool}", arguments)
        texts = [getattr(block, "text", "") for block in result.content]
        return "\n".join(text for text in texts if "was started anew" not in text)  # since it was changed


@pytest.fixture
async def call(settings: Settings) -> AsyncIterator[Client]:
    client = Client(settings.model_copy(update={"upstream_start_timeout": 30.0}))
    yield client
    await client.pool.close()


def typed(said: str) -> list[str]:
    """The command that a hint names, as a person types it."""
    return shlex.split(said.partition("toolscout ")[2].rstrip("]"))


async def test_a_call_that_lacks_the_network_is_answered_with_what_opens_it(
    call: Client,
    listener: int,
) -> None:
    call.servers.add(prober())
    said = await call("connect", host="127.0.0.1", port=listener)
    assert "runs in a sandbox and has no network" in said
    assert typed(said) == ["set", "prober", "--allow-network"]
    assert execute([*typed(said), "--yes", "--no-check"]) == 0
    assert await call("connect", host="127.0.0.1", port=listener) == "hello"


async def test_a_call_that_lacks_a_folder_is_answered_with_what_opens_it(
    call: Client,
    folder: Path,
    tmp_path: Path,
) -> None:
    call.servers.add(prober())
    mine, note = folder / "mine", folder / "a note.txt"
    mine.mkdir()
    if os.geteuid() == 0:
        os.chown(mine, SERVANT, SERVANT)
    note.write_text("readable")
    said = await call("read", path=str(note))
    assert "sees no files of yours" in said and typed(said) == ["set", "prober", "--allow-read", str(note)]
    assert execute([*typed(said), "--yes", "--no-check"]) == 0
    assert await call("read", path=str(note)) == "readable"
    said = await call("write", path=str(mine / "new.txt"))
    assert typed(said) == ["set", "prober", "--allow-write", str(mine)]
    assert execute([*typed(said), "--yes", "--no-check"]) == 0
    assert await call("write", path=str(mine / "new.txt")) == "written"
    assert "[Toolscout" not in await call("read", path=str(mine / "absent.txt"))
    assert "[Toolscout" not in await call("read", path="/absent/absent.txt")


def test_the_hint_names_what_the_call_asked_for_and_nothing_that_the_server_says(tmp_path: Path) -> None:
    config = prober(True, str(tmp_path))
    hosts = Policy(network=("a.example",))
    refused = "HTTP 403: b.example:443 is not among the hosts that this server's sandbox may reach"

    def hint(policy: Policy, said: str, **arguments: Any) -> str:
        return call_hint(config, policy, said, arguments, reads=True)

    assert typed(hint(hosts, refused, urls=["https://b.example/x"]))[2:] == ["--allow-host", "b.example"]
    assert typed(hint(hosts, refused))[2:] == ["--allow-host", "HOST"]
    assert hint(Policy(network=True), "fetch failed") == ""
    assert hint(Policy(), "No such file: /etc/passwd") == "", "the server alone names it"
    assert typed(hint(Policy(), f"ENOENT {tmp_path}/x"))[2:] == ["--allow-read", str(tmp_path)], "so does its entry"
    assert hint(Policy(read=(tmp_path,)), f"ENOENT {tmp_path}/x", path=str(tmp_path)) == ""
    assert hint(Policy(), "the amount is wrong", path=str(tmp_path)) == ""


@pytest.mark.parametrize(
    ("said", "hinted"),
    [
        ("getaddrinfo EAI_AGAIN api.example.com", "--allow-network"),
        ("connect ECONNREFUSED 127.0.0.1:5432", ""),
        ("OSError: [Errno 30] Read-only file system: 'DATA/new'", "--allow-write DATA"),
        ("PermissionError: [Errno 13] Permission denied: '/x'", "--allow-read PATH"),
        ("ENOENT: no such file or directory, open 'DATA/hidden'", "--allow-read PATH"),
        ("ENOENT: no such file or directory, open '/absent/x'", ""),
        ("SyntaxError: Unexpected token", ""),
    ],
)
def test_a_failed_start_is_laid_to_the_sandbox_only_where_it_looks_like_that(
    tmp_path: Path, said: str, hinted: str
) -> None:
    (tmp_path / "hidden").touch()
    config = prober(True, f"{tmp_path}/new") if "new" in said else prober()
    found = start_hint(config, Policy(), said.replace("DATA", str(tmp_path)))
    assert (hinted.replace("DATA", str(tmp_path)) in found) if hinted else found == ""


def test_a_home_is_never_what_is_to_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    kept = tmp_path / "memory.json"
    config = UpstreamConfig.parse("memory", {"command": "x", "env": {"MEMORY_FILE_PATH": str(kept)}})
    hint = call_hint(config, Policy(write=(kept,)), f"EROFS: read-only file system, open '{kept}.tmp'", {}, reads=False)
    assert f"--allow-write {tmp_path}" not in hint and "a folder of its own" in hint
    kept.write_text("{}")
    wanted = wants(config, Policy(), tmp_path / "ts")
    assert wanted.write in ((kept,), ()) and any("a folder of its own" in remark for remark in wanted.remarks)
