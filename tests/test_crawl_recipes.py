"""What is recorded of how a server is started: what worked, in full, and nothing that is somebody's secret or ours."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from crawl_registry import PACKAGES, PackageServer, served
from crawl_work import SANDBOXES, deployer, needs_node, needs_sandbox, work_folder

from toolscout.crawler.agent.configuration import read_entry
from toolscout.crawler.arguments import recordable, recordable_url
from toolscout.crawler.classify import by_name
from toolscout.crawler.crawl import Crawl
from toolscout.crawler.deploy import Outcome
from toolscout.crawler.export import export_files
from toolscout.crawler.fetch import Fetcher
from toolscout.crawler.records import server_record
from toolscout.crawler.sources.clients import ClientSource, Configured
from toolscout.crawler.sources.names import found
from toolscout.crawler.sources.pypi import published as uploaded
from toolscout.crawler.station import Order
from toolscout.records import Server, ServerState
from toolscout.server.launch import catalogue_launch


@pytest.fixture(scope="module")
def packages() -> Iterator[PackageServer]:
    yield from served()


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    yield from work_folder()


# --- secrets of configurations ---------------------------------------------------------------------------------------

SECRETS = ("hunter2", "sk-live", "1234567890abcdef", "SECRETTOKEN", "querykey", "alice", "db/x")
ROWS: tuple[tuple[dict[str, Any], list[str] | str], ...] = (
    ({"command": "npx", "args": ["-y", "echo-arguments-mcp", "postgresql://u:hunter2@db/x"]}, ["<connection string>"]),
    ({"command": "npx", "args": ["-y", "echo-arguments-mcp", "sk-live-1234567890abcdef"]}, ["<key>"]),
    (
        {"command": "npx", "args": ["echo-arguments-mcp", "--dsn", "postgresql://u:hunter2@db/x", "--mode=fast"]},
        ["--dsn", "<connection string>", "--mode=fast"],
    ),
    (
        {"command": "npx", "args": ["echo-arguments-mcp", "--header", "Authorization: Bearer sk-live-1"]},
        ["--header", "Authorization: Bearer <key>"],
    ),
    (
        {"command": "npx", "args": ["echo-arguments-mcp", "--user", "alice", "--password", "hunter2", "--port", "80"]},
        ["--user", "<value>", "--password", "<key>", "--port", "80"],
    ),
    ({"url": "https://user:hunter2@x.dev/mcp/s/SECRETTOKEN123/sse"}, "https://x.dev/mcp/s/<token>/sse"),
    ({"url": "https://x.dev/SECRETTOKEN123?key=querykey#sk-live-2"}, "https://x.dev/<token>"),
)


@needs_sandbox
@needs_node
async def test_no_secret_of_a_configuration_is_stored_or_given_to_a_server(
    packages: PackageServer, work: Path, tmp_path: Path
) -> None:
    publish(
        packages,
        "echo-arguments-mcp",
        "serve('echo', [tool('echo', `Started with ${JSON.stringify(process.argv.slice(2))}`)])",
    )
    for number, (config, shown) in enumerate(ROWS):
        made = deployer(work, SANDBOXES[0]())
        with Crawl(tmp_path / f"w{number}") as crawl:
            async with Fetcher() as fetcher:
                await crawl.list_sources([ClientSource([Configured("a", config, "/home/alice/team.json")])], fetcher)
            listed = crawl.state.rows("SELECT record, args FROM entry")[0]
            if isinstance(shown, str):
                assert f'"url":"{shown}"' in listed["record"].replace('": ', '":')
            for todo in crawl.state.todo():
                order = Order.of(todo)
                assert list(order.shown or ()) == shown
                outcome = await made.deploy("npm", "echo-arguments-mcp", args=order.args, shown=order.shown)
                assert outcome.verdict is None, outcome.verdict
                assert outcome.listing is not None
                crawl.state.put_outcome(todo, outcome, crawl.state.begin_run(1, "x"))
                said = outcome.listing.tools[0]["description"]
                assert len(shown) == said.count('","') + 1, "the server got as many words as were configured"
                assert not [s for s in SECRETS if s in said]
            export_files(crawl.state, tmp_path / "out")
        await made.tidy()
        files = [p.read_bytes() for p in (tmp_path / f"w{number}").rglob("*") if p.is_file()]
        files += [
            gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes()
            for p in (tmp_path / "out").iterdir()
        ]
        assert not [s for s in SECRETS if any(s.encode() in content for content in files)], config


@pytest.mark.parametrize(("config", "shown"), ROWS)
def test_no_secret_of_a_page_is_taken(config: dict[str, Any], shown: list[str] | str) -> None:
    found = read_entry("a", config)
    assert found is not None
    assert (found.install.url if isinstance(shown, str) else found.install.args) == shown
    assert not [s for s in SECRETS if s in repr(found)]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["--stdio", "-v", "--transport", "stdio", "mcp"], ["--stdio", "-v", "--transport", "stdio", "mcp"]),
        (
            ["--port=8080", "--level", "1.5", "--tools", "read,write"],
            ["--port=8080", "--level", "1.5", "--tools", "read,write"],
        ),
        (
            ["--package", "@acme/things", "--api-version", "2024.1.2"],
            ["--package", "@acme/things", "--api-version", "2024.1.2"],
        ),
        (["/home/alice/notes", "C:\\Users\\alice", "~/x.db"], ["<directory>", "<directory>", "<file>"]),
        (["--token", "none", "--token", "hunter"], ["--token", "none", "--token", "<key>"]),
        (["-pHunter2", "--sk-live-1234567890abcdef", "password=hunter"], ["<value>", "<key>", "password=<key>"]),
        (["--host", "db.internal", "--org", "acme"], ["--host", "<URL>", "--org", "<value>"]),
        (["ghp_abcdefghijklmnop0123456789"], ["<key>"]),
        (['{"key": "hunter2"}', "correct horse"], ["<key>", "<value>"]),
    ],
)
def test_only_what_is_plainly_harmless_is_kept(words: list[str], shown: list[str]) -> None:
    kept = recordable(words)
    assert list(kept.shown) == shown
    assert [r for r, s in zip(kept.run, kept.shown, strict=True) if "<" not in s] == [s for s in shown if "<" not in s]


@pytest.mark.parametrize(
    ("url", "clean"),
    [
        ("https://mcp.example/v1/streamable-http/sse", "https://mcp.example/v1/streamable-http/sse"),
        (
            "https://server.example/@JackKuo666/pubmed-mcp-server/mcp",
            "https://server.example/@JackKuo666/pubmed-mcp-server/mcp",
        ),
        ("http://h.example:8080/api/mcp/a/1234/mcp", "http://h.example:8080/api/mcp/a/1234/mcp"),
        ("https://h.example/0f8fad5b-d9cb-469f-a165-70867728950e/mcp", "https://h.example/<token>/mcp"),
        ("https://h.example/xkqzrtplmnbv/mcp", "https://h.example/<token>/mcp"),
        ("https://h.example/a1B2c3D4e5", "https://h.example/<token>"),
        ("file:///etc/passwd", ""),
        ("http://[::1", ""),
    ],
)
def test_addresses_lose_what_may_be_a_token(url: str, clean: str) -> None:
    assert recordable_url(url)[0] == clean


# --- what worked is what is recorded ---------------------------------------------------------------------------------


def published(package: str) -> Server:
    registry, _, name = package.partition(":")
    return found(registry, name).server


async def deploy(work: Path, package: str, listed: Server | None = None, **options: Any) -> tuple[Outcome, Server]:
    """A deployment that lists tools, and its record."""
    registry, _, name = package.partition(":")
    made = deployer(work, SANDBOXES[0]())

    async def when(version: str) -> str | None:
        async with Fetcher(backoff=0.01) as fetcher:
            return await uploaded(fetcher, name, version)

    try:
        outcome = await made.deploy(registry, name, published=when, **options)
    finally:
        await made.tidy()
    assert outcome.verdict is None, outcome.verdict
    return outcome, server_record(listed or published(package), outcome, "2026-01-01T00:00:00Z")


@needs_sandbox
async def test_where_only_some_packages_were_dated_only_those_are_recorded(packages: PackageServer, work: Path) -> None:
    _, server = await deploy(work, "pypi:half-pinned-mcp-server")
    assert "--exclude-newer" not in server.install.args
    dated = [w for f, w in pairwise(server.install.args) if f == "--exclude-newer-package"]
    assert dated == [f"{name}=2025-05-23T00:00:00Z" for name in ("mcp", "fastmcp", "pydantic")]
    assert server.install.args[-3:] == ["--from", "half-pinned-mcp-server==0.1.0", "half-pinned-mcp-server"]
    assert catalogue_launch(server).entry["args"] == ["tool", "run", *server.install.args]


@needs_sandbox
@needs_node
@pytest.mark.skipif(shutil.which("bun") is None, reason="runs the real bun, which is not installed here")
async def test_what_bun_ran_is_recorded_as_bunx(packages: PackageServer, work: Path) -> None:
    _, server = await deploy(work, "npm:typescript-mcp")
    assert (server.install.command, server.install.args) == ("bunx", ["--bun", "typescript-mcp@1.0.0"])
    assert catalogue_launch(server).entry == {"command": "bunx", "args": ["--bun", "typescript-mcp@1.0.0"]}


@needs_sandbox
async def test_an_optional_part_that_it_asks_for(packages: PackageServer, work: Path, tmp_path: Path) -> None:
    code = """
import sys

from mcp.runner import serve

try:
    import shapes
except ImportError:
    sys.exit('The server is optional. Run: pip install "optional_mcp[server]"')


def main():
    serve("optional", [shapes.__name__])
"""
    (tmp_path / "optional_mcp.py").write_text(code)
    about: dict[str, Any] = {"name": "optional-mcp", "version": "1.0", "scripts": {"optional-mcp": "optional_mcp:main"}}
    about["requires"] = ["mcp", "shapes ; extra == 'server'\nProvides-Extra: server"]
    about |= {"python": ">=3.9", "uploaded": "2026-07-01T00:00:00Z", "only_source": False}
    (tmp_path / "wheel.json").write_text(json.dumps(about))
    packages.publish_wheel(tmp_path)
    _, server = await deploy(work, "pypi:optional-mcp")
    wanted = ["--from", "optional-mcp[server]==1.0", "optional-mcp"]
    assert (server.install.command, server.install.args) == ("uvx", wanted)


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("create-mcp-server", "template"),
        ("mcp-server-template", "template"),
        ("mcp-server-sdk", "library"),
        ("@acme/mcp-server-core", "library"),
        ("mcp-server-client", "client"),
        ("mcp-server-utils", "server"),
        ("mcp-server-chat", "server"),
        ("telegram-mcp-chat", "unknown"),
        ("mcp-inspector", "unknown"),
        ("mcp-image-generator", "unknown"),
    ],
)
def test_what_a_name_says(name: str, verdict: str) -> None:
    assert by_name(name)[0] == verdict


# --- packages that each show one way to be asked ---------------------------------------------------------------------

TINY = "const { serve, tool } = require('tiny-mcp')\n"
FAIL = "const fail = (text) => { console.error(text); process.exit(1) }\n"
FLAG = "const flag = (name) => process.argv[process.argv.indexOf(name) + 1] && process.argv.includes(name)\n"


def publish(packages: PackageServer, name: str, code: str) -> str:
    """A package of one script; its specification."""
    files = {"index.js": f"#!/usr/bin/env node\n{TINY}{FAIL}{FLAG}{code}"}
    packages.publish_npm(PACKAGES / "npm" / "weather-mcp", name=name, bin={name: "index.js"}, files=files)
    return f"npm:{name}"


async def failed(work: Path, package: str, **fields: Any) -> Outcome:
    """A deployment that lists nothing."""
    made = replace(deployer(work, SANDBOXES[0]()), **fields)
    try:
        outcome = await made.deploy("npm", package.removeprefix("npm:"))
    finally:
        await made.tidy()
    assert outcome.verdict is not None
    return outcome


sandboxed = [needs_sandbox, needs_node]


class TestStarts:
    pytestmark = sandboxed

    async def test_only_variables_that_its_code_reads_are_required(self, packages: PackageServer, work: Path) -> None:
        code = """
        if (!process.env.LEDGER_API_TOKEN) fail('CONFIG_INCOMPLETE: LEDGER_API_TOKEN is required, NOT_CONFIGURED. ' +
          'Set LEDGER_API_TOKEN=YOUR_TOKEN, see ACCOUNT_SETTINGS and LOGGER_LEVEL')
        serve('ledger', [tool('book')])"""
        _, server = await deploy(work, publish(packages, "capitals-mcp", code))
        assert [v.name for v in server.install.env] == ["LEDGER_API_TOKEN"]
        assert server.state is ServerState.NEEDS_KEY

    async def test_folders_that_it_never_asked_for_are_no_key(self, packages: PackageServer, work: Path) -> None:
        code = "if (!process.env.NOTES_DIR) process.exit(3)\nserve('notes', [tool('note')])"
        _, server = await deploy(work, publish(packages, "notes-folder-mcp", code))
        assert [(v.name, v.required) for v in server.install.env] == [("NOTES_DIR", False)]
        assert server.state is ServerState.NEEDS_INSTALL

    async def test_no_dummy_is_in_what_a_server_says(self, packages: PackageServer, work: Path) -> None:
        code = """
        const site = process.env.ACME_SITE_URL, key = process.env.ACME_API_KEY
        if (!site || !key) fail('ACME_SITE_URL and ACME_API_KEY are required environment variables')
        const listed = tool('ask', `Asks ${site}/api with ${key} from ${process.cwd()}, ${__filename}`)
        listed.inputSchema.properties.base = { type: 'string', default: site, examples: [`${process.cwd()}/a.txt`] }
        serve('asks', [listed])"""
        outcome, _ = await deploy(work, publish(packages, "shows-dummies-mcp", code))
        assert outcome.listing is not None
        said = json.dumps(outcome.listing.tools)
        for ours in ("example.invalid", "/tmp/work", "/tmp/home", "0123456789abcdef", str(work)):
            assert ours not in said
        base = outcome.listing.tools[0]["inputSchema"]["properties"]["base"]
        assert base == {"type": "string", "default": "<ACME_SITE_URL>", "examples": ["<directory>/a.txt"]}
        assert "with <ACME_API_KEY> from <directory>, <installation>" in said

    async def test_a_listed_argument_is_not_doubled(self, packages: PackageServer, work: Path) -> None:
        code = (
            "if (!flag('--dir')) fail(\"error: required option '--dir <folder>' not given\")\nserve('d', [tool('d')])"
        )
        outcome, server = await deploy(work, publish(packages, "listed-dir-mcp", code), shown=("--dir", "<folder>"))
        assert server.install.args == ["--dir", "<folder>"]
        assert outcome.start is not None and outcome.start.args == ("--dir", "/tmp/work")

    async def test_one_missing_option_after_another(self, packages: PackageServer, work: Path) -> None:
        code = """
        for (const name of ['--space', '--owner', '--api-token'])
          if (!flag(name)) fail(`Usage: x [OPTIONS]\\nError: Missing option '${name}'.`)
        serve('space', [tool('dock')])"""
        _, server = await deploy(work, publish(packages, "one-by-one-mcp", code))
        assert server.install.args == ["--space", "<value>", "--owner", "<value>", "--api-token", "<key>"]
        assert server.state is ServerState.NEEDS_KEY

    async def test_options_as_yargs_names_them(self, packages: PackageServer, work: Path) -> None:
        code = """
        if (!flag('--config') || !flag('--token')) fail('Options:\\n  --config\\n  --token\\n\\n' +
          'Missing required arguments: config, token')
        serve('y', [tool('pull')])"""
        _, server = await deploy(work, publish(packages, "yargs-like-mcp", code))
        assert server.install.args == ["--config", "<file>", "--token", "<key>"]

    async def test_no_dummy_where_a_command_is_wanted(self, packages: PackageServer, work: Path) -> None:
        code = """
        const word = process.argv[2]
        if (word !== 'tree') fail(word ? `invalid choice: '${word}' (choose from 'tree', 'show')` :
          'usage: x [-h] <command>\\nerror: the following arguments are required: command')"""
        outcome = await failed(work, publish(packages, "commands-mcp", code))
        assert outcome.starts == 1 and "invalid choice" not in outcome.verdict.evidence

    async def test_our_own_switch_is_not_the_reason(self, packages: PackageServer, work: Path) -> None:
        code = """
        if (process.argv.length > 2) fail(`error: unknown option '${process.argv[2]}'`)
        console.error('Server listening on http://localhost:3000'); setInterval(() => {}, 1000)"""
        outcome = await failed(work, publish(packages, "http-only-mcp", code))
        assert (outcome.verdict.cause, outcome.starts) == ("http_only", 6), outcome.verdict
        assert "unknown option" not in outcome.verdict.evidence

    async def test_an_older_revision_is_offered(self, packages: PackageServer, work: Path) -> None:
        code = """
        let asked = ''
        process.stdin.on('data', (data) => { asked = String(data) })
        serve('old', [tool('elder')], { initialize: (reply, refuse) => asked.includes('2025-03-26')
          ? reply({ protocolVersion: '2025-03-26', capabilities: { tools: {} }, serverInfo: { name: 'old' } })
          : refuse(-32602, 'Unsupported protocol version: 2025-11-25') })"""
        _, server = await deploy(work, publish(packages, "old-revision-mcp", code))
        assert server.protocol_version == "2025-03-26"

    async def test_an_error_that_names_a_key(self, packages: PackageServer, work: Path) -> None:
        code = """
        serve('late', [tool('late')], process.env.LATE_API_KEY ? {} :
          { initialize: (_, refuse) => refuse(-32000, 'LATE_API_KEY is not set') })"""
        _, server = await deploy(work, publish(packages, "key-in-error-mcp", code))
        assert [v.name for v in server.install.env] == ["LATE_API_KEY"]

    async def test_an_error_that_names_the_network(self, packages: PackageServer, work: Path) -> None:
        code = "serve('far', [], { initialize: (_, refuse) => refuse(-32603, 'fetch failed: EAI_AGAIN') })"
        outcome = await failed(work, publish(packages, "far-mcp", code))
        assert (str(outcome.verdict.failure), outcome.verdict.cause) == ("protocol_error", "needs_network")

    async def test_all_starts_of_a_package_have_a_limit(self, packages: PackageServer, work: Path) -> None:
        name = publish(
            packages, "slow-keys-mcp", "setTimeout(() => fail(`A${process.hrtime()[1]}_KEY is required`), 1500)"
        )
        outcome = await failed(work, name, package_seconds=4.0)
        assert outcome.starts in (2, 3) and outcome.started_seconds < 7
