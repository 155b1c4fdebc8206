"""An offer to install, as clients meet it: FastMCP's and the SDK's, in both protocol eras, over stdio and HTTP.

The server that is offered is a real process. What is asked, answered and written is looked at from outside.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import stat
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from crawl_registry import PackageServer
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from here import Handler, Person, client_of, over_http
from mcp import StdioServerParameters
from mcp import client as sdk
from mcp.shared.exceptions import MCPError
from mcp_types import ElicitResult as WireAnswer
from mcp_types import InputRequiredResult
from serving import environment

from toolscout.cli import execute
from toolscout.index.catalogue import Catalogue
from toolscout.records import EnvVar, Install, Review, Server, ServerState, Source, Tool
from toolscout.server.config import UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.server.install import KEY
from toolscout.server.launch import uv_binary
from toolscout.server.offer import make_offer
from toolscout.server.seal import HomeSeal
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings

TINY = Path(__file__).parent / "upstreams" / "tiny.py"
ECHO = {"tool_id": "acme/tiny/echo", "arguments": {"text": "hello"}}


class Home:
    """A home whose catalogue knows ``acme/tiny``, with the tools that it really has; nothing is configured."""

    def __init__(self, settings: Settings, log: Path) -> None:
        self.settings = settings
        self.log = log

    @property
    def server(self) -> Server:
        with Catalogue(self.settings.database_url) as catalogue:
            found = catalogue.get_server("acme/tiny")
        assert found is not None
        return found

    def put(self, change: Callable[[Tool], Tool] | None = None, **facts: Any) -> None:
        """Store the server with these facts, and its tools with ``change`` made to each."""
        server = self.server.model_copy(update=facts)
        with Catalogue(self.settings.database_url) as catalogue:
            tools = list(catalogue.tools("acme/tiny"))
            for number, tool in enumerate(tools):
                if change is not None:
                    tools[number] = changed = change(tool)
                    changed.fingerprint = changed.computed_fingerprint()
            catalogue.put_server(server, tools, accept_changes=True)

    async def index(self) -> None:
        async with Engine(self.settings) as engine:
            await engine.reindex()

    @property
    def entries(self) -> dict[str, Any]:
        path = self.settings.servers_file
        return json.loads(path.read_text())["mcpServers"] if path.exists() else {}

    @property
    def starts(self) -> int:
        """How often the server was started."""
        return self.log.read_text().count("start ") if self.log.exists() else 0

    @property
    def state(self) -> tuple[dict[str, Any], int, ServerState]:
        return self.entries, self.starts, self.server.state


_LISTED: list[Tool] = []
"""What the server really lists, found out once."""


@pytest.fixture
async def home(settings: Settings, tmp_path: Path) -> Home:
    if not _LISTED:
        config = UpstreamConfig.stdio("acme/tiny", sys.executable, [str(TINY)])
        async with UpstreamPool(settings, lambda: {"acme/tiny": config}) as pool:
            _LISTED.extend((await pool.list_tools("acme/tiny"))[1])
    tools = [tool.model_copy() for tool in _LISTED]
    log = tmp_path / "tiny.log"
    server = Server(
        server_id="acme/tiny",
        name="tiny",
        description="Answers what it gets.",
        sources=[Source(marketplace="shop", id="tiny")],
        install=Install(command=sys.executable, args=[str(TINY), "--log", str(log)]),
        license="MIT",
        homepage="https://acme.example/tiny",
        state=ServerState.NEEDS_INSTALL,
    )
    with Catalogue(settings.database_url) as catalogue:
        catalogue.put_server(server, tools)
    home = Home(settings, log)
    await home.index()
    return home


@asynccontextmanager
async def stdio(home: Home, mode: str, handler: Handler | None) -> AsyncIterator[Client[Any]]:
    """A FastMCP client of ``toolscout serve``, a process of its own."""
    transport = StdioTransport(
        sys.executable, ["-m", "toolscout", "serve"], env=environment(home.settings.home), keep_alive=False
    )
    async with Client(transport, mode=mode, elicitation_handler=handler) as client:
        yield client


def text(result: Any) -> str:
    return str(result.content[0].text)


# --- a yes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_yes_installs_starts_and_calls_over_stdio(home: Home, mode: str) -> None:
    person = Person({"install": True})
    async with stdio(home, mode, person) as client:
        called = await client.call_tool_mcp("invoke", ECHO)
        assert not called.is_error and text(called) == "hello"
        again = await client.call_tool_mcp("invoke", ECHO)
        assert text(again) == "hello"
        found = await client.call_tool_mcp("find_tools", {"query": "echo", "servers": ["acme/tiny"]})
        assert {tool["state"] for tool in found.structured_content["tools"]} == {"ready"}
    (params,) = person.asked
    assert params.mode == "form"
    line = f"{sys.executable} {TINY} --log {home.log}"
    for said in ("acme/tiny", f"It runs: {line}", "License: MIT", "https://acme.example/tiny", "'echo' is wanted",
                 "in no sandbox", "none but the usual"):  # fmt: skip
        assert said in params.message
    assert "Answers what it gets" not in params.message, "no word of the server's own"
    assert list(params.requested_schema["properties"]) == ["install"]
    assert home.entries == {"acme/tiny": {"command": sys.executable, "args": [str(TINY), "--log", str(home.log)]}}
    assert home.starts == 1
    kept = home.server
    assert (kept.license, kept.homepage, kept.description) == (
        "MIT",
        "https://acme.example/tiny",
        "Answers what it gets.",
    )
    assert kept.state is ServerState.READY and kept.install.args[-1] == str(home.log)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_sdks_client_installs_too(home: Home, mode: str) -> None:
    person = Person({"install": True})
    parameters = StdioServerParameters(
        command=sys.executable, args=["-m", "toolscout", "serve"], env=environment(home.settings.home)
    )
    async with sdk.Client(parameters, mode=mode, elicitation_callback=person.sdk) as client:
        called = await client.call_tool("invoke", ECHO)
        assert not called.is_error and text(called) == "hello"
    assert len(person.asked) == 1 and home.starts == 1


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_policy_asks_about_the_call_after_the_installation(home: Home, mode: str) -> None:
    home.settings.policy_file.write_text('default = "ask"')
    person = Person({"install": True, "allow": True})
    async with client_of(home.settings, person, mode) as client:
        assert text(await client.call_tool_mcp("invoke", ECHO)) == "hello"
    assert [list(p.requested_schema["properties"]) for p in person.asked] == [["install"], ["allow"]]
    assert home.starts == 1


async def test_what_the_policy_denies_is_not_offered_for_installation(home: Home) -> None:
    home.settings.policy_file.write_text('default = "deny"')
    person = Person({"install": True, "allow": True})
    async with client_of(home.settings, person) as client:
        refused = await client.call_tool_mcp("invoke", ECHO)
    assert refused.structured_content["refused"] == "policy_denied"
    assert person.asked == [] and home.entries == {} and home.starts == 0


async def test_what_toolscout_add_writes_is_what_an_offer_writes(
    home: Home, capsys: pytest.CaptureFixture[str]
) -> None:
    async with client_of(home.settings, Person({"install": True})) as client:
        await client.call_tool_mcp("invoke", ECHO)
    offered = home.entries["acme/tiny"]
    home.settings.servers_file.unlink()
    home.put(state=ServerState.NEEDS_INSTALL)
    # A process of its own: the command line runs an event loop, and one runs here.
    done = await asyncio.to_thread(execute, ["add", "acme/tiny", "--yes", "--no-check"])
    assert done == 0 and home.entries["acme/tiny"] == offered


async def test_what_the_server_needs_is_handed_by_name_and_only_when_it_is_set(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = [EnvVar(name="ACME_KEY", required=True, secret=True), EnvVar(name="ACME_REGION")]
    install = home.server.install.model_copy(update={"env": variables})
    home.put(install=install, state=ServerState.NEEDS_KEY)
    await home.index()
    person = Person({"install": True})
    async with client_of(home.settings, person) as client:
        refused = await client.call_tool_mcp("invoke", ECHO)
        assert refused.is_error and "needs ACME_KEY" in text(refused) and person.asked == []
        monkeypatch.setenv("ACME_KEY", "s3cret-of-acme")
        called = await client.call_tool_mcp("invoke", {"tool_id": "acme/tiny/env"})
    assert json.loads(text(called))["ACME_KEY"] == "s3cret-of-acme"
    (params,) = person.asked
    assert "Your variables it gets: ACME_KEY\n" in params.message + "\n"
    assert "s3cret-of-acme" not in params.message + home.settings.servers_file.read_text()
    assert home.entries["acme/tiny"]["env"] == {"ACME_KEY": "${ACME_KEY}"}


async def test_what_is_switched_off_is_not_offered_for_installation(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = home.server.install.model_copy(update={"env": [EnvVar(name="ACME_KEY", required=True, secret=True)]})
    home.put(install=install, state=ServerState.NEEDS_KEY)
    await home.index()
    monkeypatch.setenv("ACME_KEY", "s3cret-of-acme")
    entry = {"command": sys.executable, "args": [str(TINY)], "disabled": True}
    home.settings.servers_file.write_text(json.dumps({"mcpServers": {"acme/tiny": entry}}))
    person = Person({"install": True})
    async with client_of(home.settings, person) as client:
        refused = await client.call_tool_mcp("invoke", ECHO)
    assert refused.is_error and "switched off" in text(refused)
    assert person.asked == [] and home.entries == {"acme/tiny": entry}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_placeholder_is_a_field_of_the_form(home: Home, mode: str, tmp_path: Path) -> None:
    args = [*home.server.install.args, "--name", "<directory>"]
    home.put(install=home.server.install.model_copy(update={"args": args}))
    await home.index()
    person = Person({"install": True, "argument_1": "~/a folder"})
    async with client_of(home.settings, person, mode) as client:
        called = await client.call_tool_mcp("invoke", ECHO)
        assert text(called) == "hello"
    (params,) = person.asked
    field = params.requested_schema["properties"]["argument_1"]
    assert (field["type"], field["title"]) == ("string", "directory")
    assert params.requested_schema["required"] == ["install", "argument_1"] and "'<directory>'" in params.message
    assert home.entries["acme/tiny"]["args"][-1] == str(Path.home() / "a folder")


async def test_two_calls_at_once_install_it_once(home: Home) -> None:
    person = Person({"install": True})
    async with client_of(home.settings, person) as client:
        results = await asyncio.gather(*(client.call_tool_mcp("invoke", ECHO) for _ in range(3)))
        assert [text(result) for result in results] == ["hello"] * 3
    assert home.starts == 1 and list(home.entries) == ["acme/tiny"]


@pytest.fixture
def registries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageServer]:
    """A local npm registry and a local index with ``acme-tiny``, named where a user names them: in files at home."""
    served = PackageServer()
    wheel = tmp_path / "wheel"
    wheel.mkdir()
    (wheel / "acme_tiny.py").write_text(TINY.read_text() + "\n\ndef main():\n    pass\n")
    about = {"name": "acme-tiny", "version": "1.0", "scripts": {"tiny-mcp": "acme_tiny:main"}, "requires": []}
    about |= {"python": ">=3.9", "uploaded": "2026-07-01T00:00:00Z", "only_source": False}
    (wheel / "wheel.json").write_text(json.dumps(about))
    served.publish_wheel(wheel)
    package = tmp_path / "package"
    package.mkdir()
    (package / "package.json").write_text(
        json.dumps({"name": "acme-tiny", "version": "1.0.0", "bin": {"tiny-mcp": "index.js", "other": "index.js"}})
    )
    command = json.dumps([sys.executable, str(TINY)])
    (package / "index.js").write_text(
        "#!/usr/bin/env node\n"
        f"const [python, ...args] = {command}\n"
        "const child = require('node:child_process')\n"
        "child.spawn(python, [...args, ...process.argv.slice(2)], { stdio: 'inherit' }).on('exit', process.exit)\n"
    )
    served.publish_npm(package)
    user = tmp_path / "user"
    (user / ".config" / "uv").mkdir(parents=True)
    (user / ".npmrc").write_text(f"registry={served.url}/npm/\nupdate-notifier=false\n")
    (user / ".config" / "uv" / "uv.toml").write_text(f'[[index]]\nurl = "{served.url}/simple"\ndefault = true\n')
    for name in [n for n in os.environ if n.upper().endswith("_PROXY") or n.startswith(("UV_", "npm_", "PIP_"))]:
        monkeypatch.delenv(name)
    for name, folder in (("HOME", "."), ("XDG_CONFIG_HOME", ".config"), ("XDG_DATA_HOME", "data")):
        monkeypatch.setenv(name, str(user / folder))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("NPM_CONFIG_CACHE", str(tmp_path / "npm"))
    yield served
    served.close()


@pytest.mark.parametrize("registry", ["pypi", "npm"])
async def test_a_package_is_installed_from_its_registry(
    home: Home, registries: PackageServer, registry: str, tmp_path: Path
) -> None:
    if registry == "npm" and shutil.which("npx") is None:
        pytest.skip("no Node.js")
    version = {"pypi": "1.0", "npm": "1.0.0"}[registry]
    install = Install(
        registry=registry, package="acme-tiny", version=version, command="tiny-mcp", args=["--log", "<log file>"]
    )
    home.put(install=install)
    await home.index()
    person = Person({"install": True, "argument_1": str(home.log)})
    async with client_of(home.settings, person) as client:
        assert text(await client.call_tool_mcp("invoke", ECHO)) == "hello"
    (params,) = person.asked
    line = {
        "pypi": f"{uv_binary()} tool run --from acme-tiny==1.0 tiny-mcp --log '<log file>'",
        "npm": "npx -y --package acme-tiny@1.0.0 -- tiny-mcp --log '<log file>'",
    }[registry]
    assert f"It runs: {line}\nPackage: acme-tiny, version {version}, from {registry}\n" in params.message
    assert home.starts == 1 and home.entries["acme/tiny"]["args"][-1] == str(home.log)
    assert any("acme-tiny" in path for path in registries.asked), "it came from the local registry"
    assert home.server.install == install


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that sends any answer, as most do: FastMCP's own checks answers against the form since 4.2."""
    monkeypatch.setattr("fastmcp.client.elicitation._validate_form_content", lambda *_: None, raising=False)


# --- no yes --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("careless")
@pytest.mark.parametrize("mode", ["auto", "legacy"])
@pytest.mark.parametrize(
    "answer",
    [
        ElicitResult(action="decline"),
        ElicitResult(action="cancel"),
        ElicitResult(action="accept", content={"install": False}),
        ElicitResult(action="accept", content={}),
        ElicitResult(action="accept", content={"install": "yes, of course"}),
    ],
)
async def test_anything_but_a_ticked_box_changes_nothing(home: Home, mode: str, answer: Any) -> None:
    before = home.state
    async with client_of(home.settings, Person(answer), mode) as client:
        refused = await client.call_tool_mcp("invoke", ECHO)
    why = "no answer came" if isinstance(answer, ElicitResult) and answer.action == "cancel" else "did not agree"
    assert refused.is_error and f"{why}, so nothing was installed and 'echo' was not called" in text(refused)
    assert home.state == before


@pytest.mark.usefixtures("careless")
@pytest.mark.parametrize("value", ["", "  ", "--eval=1", "a\u202eb", "<directory>", "x" * 1001, 7, None])
async def test_a_value_that_cannot_stand_for_a_placeholder_installs_nothing(home: Home, value: Any) -> None:
    home.put(install=home.server.install.model_copy(update={"args": [str(TINY), "--name", "<directory>"]}))
    await home.index()
    before = home.state
    async with client_of(home.settings, Person({"install": True, "argument_1": value})) as client:
        refused = await client.call_tool_mcp("invoke", ECHO)
    assert refused.is_error and "toolscout add acme/tiny --arg '<directory>'" in text(refused)
    assert home.state == before


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("postgresql://me:hunter2-pass@db/x", "seems to hold a secret"),
        ("${HOME}", "No usable value"),
        ("keyring:hunter2", "No usable value"),
    ],
)
async def test_a_secret_is_neither_taken_nor_fetched_for_a_value(home: Home, value: str, said: str) -> None:
    home.put(install=home.server.install.model_copy(update={"args": [str(TINY), "--name", "<connection string>"]}))
    await home.index()
    before = home.state
    async with client_of(home.settings, Person({"install": True, "argument_1": value})) as client:
        refused = await client.call_tool_mcp("invoke", ECHO)
    assert refused.is_error and said in text(refused) and "hunter2" not in text(refused)
    assert "toolscout add acme/tiny --arg '<connection string>'" in text(refused)
    assert home.state == before


async def test_a_key_is_never_asked_for(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    args = [*home.server.install.args, "--name", "<key>"]
    home.put(install=home.server.install.model_copy(update={"args": args}))
    await home.index()
    person = Person({"install": True, "argument_1": "k"})
    async with client_of(home.settings, person) as client:
        refused = await client.call_tool_mcp("invoke", ECHO)
        assert refused.is_error and person.asked == []
        monkeypatch.setenv("TINY_KEY", "of-the-environment")
        assert text(await client.call_tool_mcp("invoke", ECHO)) == "hello"
    (params,) = person.asked
    assert list(params.requested_schema["properties"]) == ["install"] and "gets: TINY_KEY" in params.message
    assert home.entries["acme/tiny"]["args"][-1] == "${TINY_KEY}"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_client_that_cannot_ask_gets_the_command(home: Home, mode: str) -> None:
    before = home.state
    async with client_of(home.settings, None, mode) as client:
        refused = await client.call_tool_mcp("invoke", ECHO)
    assert refused.is_error and "A person can add it: toolscout add acme/tiny" in text(refused)
    assert f"It is started with: {sys.executable} {TINY}" in text(refused)
    assert home.state == before


async def test_a_handler_that_fails_is_a_client_that_cannot_ask(home: Home) -> None:
    async def broken(*_: Any) -> Any:
        raise RuntimeError("no window")

    async with client_of(home.settings, broken, "legacy") as client:
        refused = await client.call_tool_mcp("invoke", ECHO)
    assert refused.is_error and "toolscout add acme/tiny" in text(refused) and home.entries == {}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_setting_switches_it_off(home: Home, mode: str) -> None:
    home.settings.install_offers = False
    person = Person({"install": True})
    async with client_of(home.settings, person, mode) as client:
        refused = await client.call_tool_mcp("invoke", ECHO)
    assert refused.is_error and "toolscout add acme/tiny" in text(refused) and person.asked == []


async def test_wrong_arguments_and_dry_runs_ask_nobody(home: Home) -> None:
    def strict(tool: Tool) -> Tool:
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return tool.model_copy(update={"input_schema": schema}) if tool.name == "echo" else tool

    home.put(strict)
    await home.index()
    person = Person({"install": True})
    async with client_of(home.settings, person) as client:
        wrong = await client.call_tool_mcp("invoke", {"tool_id": "acme/tiny/echo", "arguments": {"txt": "x"}})
        assert wrong.is_error and "$.text: required" in text(wrong)
        dry = await client.call_tool_mcp("invoke", {**ECHO, "dry_run": True})
        assert dry.is_error and "toolscout add acme/tiny" in text(dry)
    assert person.asked == [] and home.entries == {}


# --- what the server turns out to be ---------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_tool_that_is_not_what_the_crawl_saw_is_held_back(home: Home, mode: str) -> None:
    def other(tool: Tool) -> Tool:
        return tool.model_copy(update={"description": "Says it back."}) if tool.name == "echo" else tool

    home.put(other)
    with Catalogue(home.settings.database_url) as catalogue:  # and one that the crawl did not see
        kept = [t for t in catalogue.tools("acme/tiny") if t.name != "pid"]
        catalogue.remove_server("acme/tiny")
        catalogue.put_server(
            Server(server_id="acme/tiny", name="tiny", install=home_install(home), state=ServerState.NEEDS_INSTALL),
            kept,
        )
    await home.index()
    async with client_of(home.settings, Person({"install": True}), mode) as client:
        refused = await client.call_tool_mcp("invoke", ECHO)
        assert refused.is_error and "has changed since it was approved" in text(refused)
        assert "toolscout review acme/tiny" in text(refused)
        new = await client.call_tool_mcp("invoke", {"tool_id": "acme/tiny/pid"})
        assert new.is_error and "is quarantined" in text(new)
        fine = await client.call_tool_mcp("invoke", {"tool_id": "acme/tiny/progress"})
        assert text(fine) == "done"
    assert "call echo" not in home.log.read_text() and list(home.entries) == ["acme/tiny"]
    with Catalogue(home.settings.database_url) as catalogue:
        reviews = {t.name: t.review for t in catalogue.tools("acme/tiny") if t.review is not Review.APPROVED}
    assert reviews == {"echo": Review.CHANGED, "pid": Review.PENDING}


def home_install(home: Home) -> Install:
    return Install(command=sys.executable, args=[str(TINY), "--log", str(home.log)])


async def test_a_tool_that_is_gone_is_said_to_be_gone(home: Home) -> None:
    ghost = Tool(tool_id="acme/tiny/ghost", server_id="acme/tiny", name="ghost", description="Long gone.")
    with Catalogue(home.settings.database_url) as catalogue:
        catalogue.merge(tools=[ghost])
    await home.index()
    async with client_of(home.settings, Person({"install": True})) as client:
        refused = await client.call_tool_mcp("invoke", {"tool_id": "acme/tiny/ghost"})
    assert refused.is_error and "is installed now, but it has no tool 'acme/tiny/ghost'" in text(refused)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_server_that_does_not_start_leaves_nothing_behind(home: Home, mode: str) -> None:
    install = home.server.install.model_copy(update={"args": [str(TINY), "--start", "crash"]})
    home.put(install=install)
    await home.index()
    before = home.state
    async with client_of(home.settings, Person({"install": True}), mode) as client:
        failed = await client.call_tool_mcp("invoke", ECHO)
    assert failed.is_error and "could not be installed, and nothing was changed" in text(failed)
    assert "no such module: frobnicate" in text(failed) and home.state == before


# --- what was offered is what is installed ---------------------------------------------------------------------------


YES = {KEY: WireAnswer(action="accept", content={"install": True})}


async def test_an_answer_counts_for_what_was_shown_and_for_nothing_else(home: Home) -> None:
    async with client_of(home.settings, Person(None)) as client:
        session = client.session

        async def call(arguments: dict[str, Any] = ECHO, **more: Any) -> Any:
            return await session.call_tool("invoke", arguments, allow_input_required=True, **more)

        offer = await call()
        assert isinstance(offer, InputRequiredResult) and offer.request_state is not None
        assert offer.input_requests is not None and list(offer.input_requests) == [KEY]

        # An answer to no question asks it; one to another question, and one that was tampered with, are refused.
        assert isinstance(await call(input_responses=YES), InputRequiredResult)
        other = {"tool_id": "acme/tiny/pid"}
        for arguments, state in ((ECHO, f"{offer.request_state[:-2]}zz"), (ECHO, "x"), (other, offer.request_state)):
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await call(arguments, input_responses=YES, request_state=state)
        assert home.entries == {} and home.starts == 0

        # The offer has changed between the question and the answer.
        home.put(license="Proprietary", install=home_install(home).model_copy(update={"args": ["-c", "import evil"]}))
        await home.index()
        await asyncio.sleep(1.1)  # an index that was replaced is looked for once a second
        await client.call_tool_mcp("find_tools", {"query": "echo"})
        again = await call(input_responses=YES, request_state=offer.request_state)
        assert isinstance(again, InputRequiredResult) and again.input_requests is not None
        message = again.input_requests[KEY].params.message
        assert message.startswith("What would be installed is not what you were shown before.") and "evil" in message
        assert home.entries == {}


async def test_an_answer_may_reach_another_process_and_come_twice(home: Home) -> None:
    async def ask(**more: Any) -> Any:
        async with client_of(home.settings, Person(None)) as client:
            return await client.session.call_tool("invoke", ECHO, allow_input_required=True, **more)

    offer = await ask()
    key = home.settings.home / "state.key"
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert text(await ask(input_responses=YES, request_state=offer.request_state)) == "hello"
    # The same answer once more, as after a broken connection: the call is made, nothing is installed again.
    assert text(await ask(input_responses=YES, request_state=offer.request_state)) == "hello"
    no = {KEY: WireAnswer(action="decline")}
    refused = await ask(input_responses=no, request_state=offer.request_state)
    assert refused.is_error and "did not agree" in text(refused)


def test_a_home_that_cannot_be_written_still_has_a_seal(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    seal = HomeSeal(tmp_path / "file")
    assert seal.unseal(seal.seal(b"x")) == b"x"
    (tmp_path / "state.key").write_text("short")
    broken = HomeSeal(tmp_path)
    assert broken.unseal(broken.seal(b"x")) == b"x"


def test_there_is_no_offer_of_what_cannot_be_shown_or_started(home: Home) -> None:
    server = home.server
    assert make_offer(server, "echo", 3) is not None

    def offered(**fields: Any) -> bool:
        return make_offer(server.model_copy(update={"install": Install(**fields)}), "echo", 3, {}) is not None

    assert not offered()
    assert not offered(command="srv", args=["\u202etxt.exe"])
    assert not offered(command="srv", args=["x" * 3000])
    assert not offered(command="srv", args=["--token", "ghp_0123456789abcdef0123456789abcdef0123"])
    assert not offered(registry="npm", package="--registry=http://evil")
    assert not offered(command="srv", env=[EnvVar(name="NOT_SET", required=True)])
    loud = server.model_copy(update={"license": "MIT\nTick the box.\u200b", "homepage": "javascript:alert(1)"})
    offer = make_offer(loud, "echo", 3)
    assert offer is not None and "License: MIT Tick the box.\n" in offer.message and "javascript" not in offer.message


# --- over HTTP ------------------------------------------------------------------------------------------------------


async def test_over_http_nobody_installs_unless_the_owner_says_so(home: Home) -> None:
    person = Person({"install": True})
    async with over_http(home.settings) as url:
        for mode in ("auto", "legacy"):
            async with Client(f"{url}/mcp", mode=mode, elicitation_handler=person) as client:
                refused = await client.call_tool_mcp("invoke", ECHO)
                assert refused.is_error and "toolscout add acme/tiny" in text(refused)
    assert person.asked == [] and home.entries == {}


async def test_over_http_it_is_offered_where_the_setting_says_so(home: Home) -> None:
    home.settings.install_offers = True
    person = Person({"install": True})
    async with over_http(home.settings) as url:
        # Without a session there is no way to ask a client of the older era: it gets the command.
        async with Client(f"{url}/mcp", mode="legacy", elicitation_handler=person) as client:
            refused = await client.call_tool_mcp("invoke", ECHO)
            assert refused.is_error and "toolscout add acme/tiny" in text(refused) and person.asked == []
        async with Client(f"{url}/mcp", mode="auto", elicitation_handler=person) as client:
            assert text(await client.call_tool_mcp("invoke", ECHO)) == "hello"
        async with sdk.Client(f"{url}/mcp", elicitation_callback=person.sdk) as raw:
            assert text(await raw.call_tool("invoke", ECHO)) == "hello"
    assert len(person.asked) == 1 and list(home.entries) == ["acme/tiny"]


@pytest.mark.parametrize(
    ("declared", "asked"),
    [
        ({}, False),
        ({"elicitation": {"url": {}}}, False),
        ({"elicitation": {}}, True),
        ({"elicitation": {"form": {}}}, True),
    ],
)
async def test_only_clients_that_show_forms_are_asked(home: Home, declared: dict[str, Any], asked: bool) -> None:
    home.settings.install_offers = True
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": declared,
    }
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "invoke", "arguments": ECHO, "_meta": meta},
    }
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "invoke",
    }
    async with over_http(home.settings) as url, httpx.AsyncClient() as raw:
        answered = await raw.post(f"{url}/mcp", json=body, headers=headers)
    assert ('"input_required"' in answered.text) is asked and ("toolscout add acme/tiny" in answered.text) is not asked


async def test_who_is_asked_is_who_must_answer(home: Home) -> None:
    home.settings.install_offers = True
    home.settings.auth_token = "right-token"
    async with over_http(home.settings) as url:
        transport = StreamableHttpTransport(f"{url}/mcp", auth="right-token")
        async with Client(transport, mode="auto", elicitation_handler=Person(None)) as client:
            offer = await client.session.call_tool("invoke", ECHO, allow_input_required=True)
    async with client_of(home.settings, Person(None)) as client:
        with pytest.raises(MCPError, match="requestState"):
            await client.session.call_tool(
                "invoke", ECHO, allow_input_required=True, input_responses=YES, request_state=offer.request_state
            )
    assert home.entries == {}
