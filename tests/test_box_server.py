"""A server with the built-in catalog behind it: what an empty home answers, what invoke and add do with it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from here import Person, client_of
from pack_fixture import Built, build

from toolscout.cli import execute
from toolscout.errors import UpstreamError
from toolscout.index.catalogue import Catalogue
from toolscout.index.pack.sources import PackSources
from toolscout.records import EnvVar, Install, Review, Server, ServerState, Source, Tool, Transport
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.contract import FIND_OUTPUT, SUGGEST_OUTPUT
from toolscout.server.engine import Engine
from toolscout.server.launch import needs, package_of
from toolscout.server.offer import make_offer
from toolscout.server.upstreams.folder import note_failure
from toolscout.server.upstreams.pool import UpstreamPool
from toolscout.settings import Settings

TINY = Path(__file__).parent / "upstreams" / "tiny.py"


@pytest.fixture
def boxed(settings: Settings, built_pack: Built) -> Settings:
    """An empty home with the small pack."""
    return settings.model_copy(update={"pack": str(built_pack.path)})


async def found(settings: Settings, query: str, **options: Any) -> Any:
    async with client_of(settings) as client:
        answer = (await client.call_tool_mcp("find_tools", {"query": query, **options})).structured_content
    jsonschema.validate(answer, FIND_OUTPUT)
    return answer


def text(result: Any) -> str:
    return str(result.content[0].text)


# --- find ------------------------------------------------------------------------------------------------------------


async def test_an_empty_home_finds_what_could_be_installed(boxed: Settings) -> None:
    answer = await found(boxed, "weather forecast for Oslo")
    first = answer["tools"][0]
    assert (first["tool_id"], first["state"], first["publisher"]) == (
        "acme/weather/get_forecast", "needs_install", 'says "acme-inc"',
    )  # fmt: skip
    assert "kind" not in first and "city" in first["signature"] and "needs_install" in answer["advice"]


async def test_what_needs_a_key_says_how_it_is_added(boxed: Settings) -> None:
    answer = await found(boxed, "start playing a song on Spotify")
    assert answer["tools"][0]["state"] == "needs_key"
    assert "toolscout add acme/spotify" in answer["advice"] and "Spotify is not installed here" in answer["advice"]
    assert answer["tools"][0]["needs"] == ["SPOTIFY_TOKEN"] and "SPOTIFY_TOKEN" in answer["advice"]


async def test_a_server_known_as_a_whole_says_so_and_who_publishes_it(boxed: Settings) -> None:
    answer = await found(boxed, "create a page in Notion")
    first = answer["tools"][0]
    assert (first["tool_id"], first["kind"], first["state"]) == ("vendor/notion", "server", "needs_install")
    assert first["publisher"] == "Notion (official)" and first["signature"] == ""
    assert "toolscout add vendor/notion" in answer["advice"]


@pytest.mark.parametrize("says", ["The weather is out.", "WEATHER_API_KEY is not set"])
async def test_a_configured_server_that_does_not_start_is_said_to_and_not_offered_again(
    boxed: Settings, says: str
) -> None:
    entry = {"command": "npx", "args": ["-y", "@acme/weather-mcp"]}  # what the pack knows it by
    ServersFile(boxed.servers_file).add(UpstreamConfig.parse("sky", entry))
    async with Engine(boxed) as engine:
        answer = await engine.find_tools("weather forecast for Oslo")
        assert "sky, which may serve this, is configured here" in answer["advice"]
        assert "toolscout refresh sky" in answer["advice"], "nobody has tried it yet"
        failing = {"command": sys.executable, "args": ["-c", f"raise SystemExit({says!r})"]}
        engine.configured = lambda: {"sky": UpstreamConfig.parse("sky", failing)}  # type: ignore[method-assign]
        with pytest.raises(UpstreamError) as failed:
            await engine.refresh_server("sky")
        del engine.configured  # type: ignore[method-assign]
        note_failure(boxed.home, UpstreamConfig.parse("sky", entry), failed.value)
        answer = await engine.find_tools("weather forecast for Oslo")
        assert "does not work: exited with status 1 while starting" in answer["advice"]
        assert says not in answer["advice"] and "is not installed" not in answer["advice"]
        command = "toolscout secret set WEATHER_API_KEY" if "KEY" in says else "toolscout doctor sky"
        assert answer["advice"].endswith(command)
        assert not any(tool["tool_id"].startswith("acme/weather/") for tool in answer["tools"])
        refused = await engine.invoke("acme/weather/get_forecast", {"city": "Oslo"})
        assert refused.is_error and "configured here" in text(refused) and command in text(refused)


async def test_a_look_alike_is_said_to_be_one(settings: Settings, tmp_path: Path) -> None:
    boxed = await tiny_pack(tmp_path / "pack", settings)
    first = (await found(boxed, "echo", servers=["acme/tiny"]))["tools"][0]
    assert (first["tool_id"], first["looks_like"]) == ("acme/tiny/echo", "npm:@acme/tinny")


async def test_a_product_that_nobody_has_is_said(boxed: Settings) -> None:
    answer = await found(boxed, "reset the Salesforce password")
    assert answer["no_match"] and "Salesforce" in answer["advice"]


async def test_without_a_pack_an_empty_home_finds_nothing(settings: Settings) -> None:
    off = settings.model_copy(update={"pack": "off"})
    async with client_of(off) as client:
        answer = await client.call_tool_mcp("find_tools", {"query": "weather forecast for Oslo"})
    assert answer.is_error or not answer.structured_content["tools"]


async def test_a_pack_that_cannot_be_read_stops_nothing(
    settings: Settings, tmp_path: Path, built_pack: Built, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "broken.pack"
    broken.write_bytes(built_pack.path.read_bytes()[:5000])
    async with client_of(settings.model_copy(update={"pack": str(broken)})) as client:
        assert {tool.name for tool in await client.list_tools()} >= {"find_tools", "invoke"}
    assert "broken.pack" in caplog.text


async def test_nothing_of_the_pack_is_written_into_the_home(boxed: Settings) -> None:
    await found(boxed, "weather forecast for Oslo")
    with Catalogue(boxed.database_url) as catalogue:
        assert list(catalogue.servers()) == []
    assert not boxed.servers_file.exists()


# --- invoke ----------------------------------------------------------------------------------------------------------


async def test_to_call_what_is_not_installed_says_what_adds_it(boxed: Settings) -> None:
    async with client_of(boxed) as client:
        result = await client.call_tool_mcp(
            "invoke", {"tool_id": "acme/weather/get_forecast", "arguments": {"city": "x"}}
        )
        assert result.is_error and "toolscout add acme/weather" in text(result)
        result = await client.call_tool_mcp("invoke", {"tool_id": "vendor/stripe", "arguments": {}})
        assert result.is_error and "toolscout add vendor/stripe" in text(result)
        result = await client.call_tool_mcp("invoke", {"tool_id": "vendor/notion"})
        assert result.is_error and "toolscout add vendor/notion" in text(result)


@pytest.mark.parametrize(
    "tool_id", ["acme/weather/get_forcast", "acme/weather", "vendor/stripe/refund", "nobody/nothing", "/", "x"]
)
async def test_an_unknown_id_is_said_with_those_alike(boxed: Settings, tool_id: str) -> None:
    async with client_of(boxed) as client:
        result = await client.call_tool_mcp("invoke", {"tool_id": tool_id, "arguments": {}})
    assert result.is_error and "internal" not in text(result).lower() and "trigrams" not in text(result)
    if tool_id.startswith("acme/weather"):
        assert "acme/weather/get_forecast" in text(result)


# --- add -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def environment(boxed: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TOOLSCOUT_PACK", boxed.pack)
    monkeypatch.setenv("TOOLSCOUT_STARTER", "false")
    return boxed


def test_add_by_a_name_in_plain_words_lists_choices_where_nobody_can_be_asked(
    environment: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["add", "GitHub", "--no-check"]) == 3
    said = capsys.readouterr().err
    assert "1. acme/github" in said and "90,000 downloads a month" in said and "MIT" in said and "acme-inc" in said
    assert "toolscout add acme/github" in said
    assert not environment.servers_file.exists()


def test_add_by_an_unknown_name_says_what_can_be_given(
    environment: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["add", "Zorblax", "--no-check"]) == 3
    assert "No server 'Zorblax' is known" in capsys.readouterr().err


@pytest.mark.parametrize(("written", "meant"), [("GitHubb", "GitHub"), ("Spotfy", "Spotify"), ("wether", "weather")])
def test_add_by_a_name_with_a_slip_names_what_is_near(
    environment: Settings, capsys: pytest.CaptureFixture[str], written: str, meant: str
) -> None:
    assert execute(["add", written, "--no-check"]) == 3
    said = capsys.readouterr().err
    assert f"No server '{written}' is known. Near it: " in said and meant in said


def test_add_by_a_name_that_one_server_has_does_not_speak_of_several(
    environment: Settings, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert execute(["add", "Spotify", "--no-check", "--json"]) == 3
    captured = capsys.readouterr()
    failure = json.loads(captured.out)
    assert [(c["server_id"], c["needs"]) for c in failure["choices"]] == [("acme/spotify", ["SPOTIFY_TOKEN"])]
    assert "several" not in captured.err and "toolscout add acme/spotify" in captured.err
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert execute(["add", "Spotify", "--no-check", "--yes"]) == 0
    assert list(json.loads(environment.servers_file.read_text())["mcpServers"]) == ["acme/spotify"]


def test_add_by_an_id_of_the_pack_writes_its_entry(environment: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["add", "acme/github", "--no-check", "--yes"]) == 0, capsys.readouterr().err
    entry = json.loads(environment.servers_file.read_text())["mcpServers"]["acme/github"]
    assert package_of(entry) == "npm:@acme/github-mcp"
    said = capsys.readouterr().err
    assert "newest release 2026-10" in said and "https://github.com/acme-inc/github" in said
    assert "is this the one you mean" not in said


@pytest.mark.parametrize("name", ["acme/tiny", "npm:tinny", "npm:tinny@1.0.0", "tiny"])
async def test_add_says_whose_name_a_servers_is_almost(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    boxed = await tiny_pack(tmp_path / "pack", settings)
    monkeypatch.setenv("TOOLSCOUT_PACK", boxed.pack)
    monkeypatch.setenv("TOOLSCOUT_STARTER", "false")
    assert execute(["add", name, "--no-check", "--yes"]) == (3 if name == "tiny" else 0)
    said = capsys.readouterr().err
    assert 'acme/tiny  (says "Acme", 4,321 downloads a month, first released 2025-03-01, newest release 2026-09' in said
    assert "Its name is almost that of @acme/tinny (npm)" in said


def test_a_pack_that_cannot_be_read_keeps_no_package_from_being_added(
    environment: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TOOLSCOUT_ENCODER", str(tmp_path / "none"))
    assert execute(["add", "npm:some-mcp", "--no-check", "--yes"]) == 0


@pytest.mark.parametrize(
    ("entry", "package"),
    [
        ({"command": "npx", "args": ["-y", "@acme/x@1.2.0"]}, "npm:@acme/x"),
        ({"command": "npx", "args": ["x-mcp"]}, "npm:x-mcp"),
        ({"command": "C:\\node\\npx.cmd", "args": ["x-mcp@latest"]}, "npm:x-mcp"),
        ({"command": "cmd", "args": ["/c", "npx", "-y", "x-mcp"]}, "npm:x-mcp"),
        ({"command": "npx", "args": ["-y", "--package", "@acme/x", "start"]}, "npm:@acme/x"),
        ({"command": "uvx", "args": ["x-mcp==1.0"]}, "pypi:x-mcp"),
        ({"command": "/usr/bin/uvx", "args": ["--from", "x-mcp[all]>=1", "start"]}, "pypi:x-mcp"),
        ({"command": "pipx", "args": ["run", "x-mcp"]}, "pypi:x-mcp"),
        ({"command": "uv", "args": ["tool", "run", "x-mcp"]}, "pypi:x-mcp"),
        ({"command": "python3.12", "args": ["-m", "mcp_server_time"]}, "pypi:mcp-server-time"),
        ({"url": "https://mcp.acme.example/mcp"}, "url:https://mcp.acme.example/mcp"),
        ({"command": "node", "args": ["server.js"]}, None),
        ({"command": "npx"}, None),
        ({"command": "cmd"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_what_an_entry_runs_is_told_by_its_package(entry: dict[str, Any], package: str | None) -> None:
    assert package_of(entry) == package


def test_add_says_which_key_and_which_login_a_server_wants(
    environment: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    execute(["add", "spotify", "--no-check"])
    assert "needs SPOTIFY_TOKEN" in capsys.readouterr().err
    execute(["add", "vendor/notion", "--no-check", "--yes"])
    said = capsys.readouterr().err
    assert "hosted, asks you to log in" in said and "log in, in your browser" in said and "key" not in said


def test_find_in_a_terminal_shows_the_key(environment: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    assert execute(["find", "start playing a song on Spotify"]) == 0
    assert "    needs SPOTIFY_TOKEN\n" in capsys.readouterr().out


_FOR_AGENTS = ("find_tools", "invoke it", "Invoke its", "the user", "ready_only", "Ask them", "say so instead")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["find", "weather forecast for Oslo"], "run: toolscout add acme/weather"),
        (
            ["find", "start playing a song on Spotify"],
            "Set that, then run: toolscout add acme/spotify",
        ),
        (["find", "create a page in Notion"], "toolscout add vendor/notion"),
        (["find", "reset the Salesforce password"], "No server for Salesforce is installed"),
        (["find", "weather forecast for Oslo", "--ready", "--read-only"], "filters (--read-only, --ready)"),
        (["suggest", "weather forecast for Oslo"], "run: toolscout add acme/weather"),
        (["suggest", "create a page in Notion"], "toolscout add vendor/notion"),
        (["invoke", "acme/weather/get_forecast", '{"city": "x"}'], "toolscout add acme/weather"),
        (["invoke", "nobody/nothing"], "toolscout find"),
        (["suggest", "x", "--tool", "qqq"], "toolscout find"),
    ],
)
def test_the_command_line_names_commands_and_does_not_speak_to_agents(
    environment: Settings, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    execute(words)
    shown = "".join(capsys.readouterr())
    assert said in shown, shown
    assert not [text for text in _FOR_AGENTS if text in shown]


async def test_a_suggested_call_says_where_its_server_is_not_installed(boxed: Settings) -> None:
    async with client_of(boxed) as client:
        answer = await client.call_tool_mcp("suggest_call", {"task": "weather forecast for Oslo"})
    jsonschema.validate(answer.structured_content, SUGGEST_OUTPUT)
    call = answer.structured_content["calls"][0]
    assert call["state"] == "needs_install" and call["advice"].startswith("needs_install: invoke it")


def test_the_first_find_of_an_empty_home_starts_nothing(
    environment: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TOOLSCOUT_STARTER")
    assert execute(["find", "convert a time from one timezone to another", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["tools"][0]["tool_id"] == "demo/time/convert_time"
    assert "toolscout add starter" in captured.err and not environment.servers_file.exists()


@pytest.mark.parametrize(
    ("install", "wanted"),
    [
        (Install(command="npx", args=["x"], env=[EnvVar(name="A", required=True), EnvVar(name="B", secret=True),
                                                 EnvVar(name="C"), EnvVar(name="see the page", secret=True)]),
         ["A", "B"]),
        (Install(command="npx", args=["x", "--some-api-key", "<key>"]), ["SOME_API_KEY"]),
        (Install(url="https://x.example/mcp", env=[EnvVar(name="X-Api-Key", required=True)]), ["S_X_API_KEY"]),
        (Install(url="https://{host}/mcp", env=[EnvVar(name="A_KEY", required=True)]), ["A_KEY"]),
        (Install(url="https://x.example/mcp", auth="oauth", env=[EnvVar(name="A_KEY", required=True)]), []),
        (Install(), []),
    ],
)  # fmt: skip
def test_what_a_server_needs_is_told_by_the_facts(install: Install, wanted: list[str]) -> None:
    assert needs(Server(server_id="acme/s", name="s", install=install, transport=Transport("http"))) == wanted


def test_a_server_that_lists_without_its_key_needs_one_all_the_same(boxed: Settings) -> None:
    keyed = Server(
        server_id="acme/s", name="s", state=ServerState.NEEDS_INSTALL,
        install=Install(command="srv", env=[EnvVar(name="S_KEY", secret=True)]),
    )  # fmt: skip
    engine = Engine(boxed)
    assert engine.state_of(keyed, "acme/s") is ServerState.NEEDS_KEY
    assert engine.state_of(keyed.model_copy(update={"install": Install(command="srv")}), "s") == "needs_install"
    offer = make_offer(keyed, "t", 3, {})
    assert offer is not None and "Keys it may want, not set here: S_KEY" in offer.message


def test_the_question_about_a_hosted_server_has_no_empty_lines() -> None:
    hosted = Server(
        server_id="vendor/x", name="X", transport=Transport("http"), publisher="X", official=True,
        install=Install(registry="url", url="https://x.example/mcp", auth="oauth"), state=ServerState.NEEDS_INSTALL,
    )  # fmt: skip
    offer = make_offer(hosted, "x", 0, {})
    assert offer is not None
    assert offer.message.splitlines()[1:] == [
        "It calls: https://x.example/mcp",
        "Publisher: X (official)",
        "Tools: known once it is added",
        "Login: it asks you to log in, in your browser",
        "Your variables it gets: none",
    ]


# --- install ---------------------------------------------------------------------------------------------------------

_LISTED: list[Tool] = []


def fake_npx(folder: Path) -> Path:
    """A runner of packages that runs the tiny server, whatever it is asked for."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "npx").write_text(f"#!/bin/sh\nexec {sys.executable} {TINY}\n")
    (folder / "npx").chmod(0o755)
    return folder / "npx"


async def tiny_pack(folder: Path, settings: Settings, change: Callable[[Tool], Tool] | None = None) -> Settings:
    """A home with a pack of ``acme/tiny``, a real server, as it was when the pack was built."""
    if not _LISTED:
        config = UpstreamConfig.stdio("acme/tiny", sys.executable, [str(TINY)])
        async with UpstreamPool(settings, lambda: {"acme/tiny": config}) as pool:
            _LISTED.extend((await pool.list_tools("acme/tiny"))[1])
    tools = []
    for tool in _LISTED:
        made = change(tool.model_copy()) if change is not None else tool.model_copy()
        made.fingerprint = made.computed_fingerprint()
        tools.append(made)
    npx = fake_npx(folder)
    server = Server(
        server_id="acme/tiny", name="tiny", description="Answers what it gets.", license="MIT",
        sources=[Source(marketplace="shop", id="tiny")], homepage="https://github.com/Acme/tiny", popularity=4321.0,
        install=Install(registry="npm", package="tinny", command=str(npx), args=["-y", "tinny"]),
        state=ServerState.NEEDS_INSTALL,
    )  # fmt: skip
    sources = PackSources(downloads={"npm:@acme/tinny": 4321 * 50}, dates={"npm:tinny": ("2025-03-01", "2026-09")})
    return settings.model_copy(update={"pack": str(build(folder, [server], tools, sources).path)})


def reviews(settings: Settings) -> dict[str, Review]:
    with Catalogue(settings.database_url) as catalogue:
        return {tool.name: tool.review for tool in catalogue.tools("acme/tiny")}


async def test_a_yes_installs_a_packed_server_whose_tools_are_as_listed(settings: Settings, tmp_path: Path) -> None:
    boxed = await tiny_pack(tmp_path / "pack", settings)
    person = Person({"install": True})
    async with client_of(boxed, person) as client:
        called = await client.call_tool_mcp("invoke", {"tool_id": "acme/tiny/echo", "arguments": {"text": "hello"}})
        assert not called.is_error, text(called)
        assert text(called) == "hello"
        answer = await client.call_tool_mcp("find_tools", {"query": "echo", "servers": ["acme/tiny"]})
    assert {tool["state"] for tool in answer.structured_content["tools"]} == {"ready"}
    ids = [tool["tool_id"] for tool in answer.structured_content["tools"]]
    assert len(ids) == len(set(ids)), "the pack's copy is hidden"
    (params,) = person.asked
    for said in (
        'Publisher: says "Acme"', "Downloads: 4,321 a month", "License: MIT", "Homepage: https://github.com/Acme/tiny",
        "Age: first released 2025-03-01, newest release 2026-09",
        "Its name is almost that of @acme/tinny (npm), which is downloaded at least 50 times as often",
    ):  # fmt: skip
        assert said in params.message
    held = {tool.name for tool in _LISTED} - {
        name for name, review in reviews(boxed).items() if review is Review.APPROVED
    }
    assert "echo" not in held


async def test_a_tool_that_is_not_as_the_pack_had_it_is_held(settings: Settings, tmp_path: Path) -> None:
    def change(tool: Tool) -> Tool:
        return tool.model_copy(update={"description": "Before."}) if tool.name == "echo" else tool

    boxed = await tiny_pack(tmp_path / "pack", settings, change)
    async with client_of(boxed, Person({"install": True})) as client:
        called = await client.call_tool_mcp("invoke", {"tool_id": "acme/tiny/echo", "arguments": {"text": "hello"}})
    assert called.is_error and "hello" not in text(called)
    found = reviews(boxed)
    assert found["echo"] is Review.PENDING
    assert Review.APPROVED in {review for name, review in found.items() if name != "echo"}


async def test_a_no_installs_nothing(settings: Settings, tmp_path: Path) -> None:
    boxed = await tiny_pack(tmp_path / "pack", settings)
    async with client_of(boxed, Person({"install": False})) as client:
        await client.call_tool_mcp("invoke", {"tool_id": "acme/tiny/echo", "arguments": {"text": "hello"}})
    assert not boxed.servers_file.exists() and reviews(boxed) == {}


async def test_an_engine_counts_the_servers_of_the_pack(boxed: Settings) -> None:
    async with Engine(boxed) as engine:
        index = await engine.index()
        assert index.get_tool("acme/weather/get_forecast") is not None
        assert engine.index_servers == 17
