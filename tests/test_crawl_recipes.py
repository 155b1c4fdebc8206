"""What is recorded of how a server is started: what worked, in full, and nothing that is somebody's secret or ours."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from crawl_registry import PackageServer
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
from toolscout.records import Server
from toolscout.server.launch import catalogue_launch


@pytest.fixture(scope="module")
def packages() -> Iterator[PackageServer]:
    server = PackageServer()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "PIP_FIND_LINKS"):
            patch.delenv(name, raising=False)
        for name, value in server.environment().items():
            patch.setenv(name, value)
        yield server
    server.close()


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
    for number, (config, shown) in enumerate(ROWS):
        made = deployer(work, SANDBOXES[0]())
        with Crawl(tmp_path / f"w{number}") as crawl:
            async with Fetcher() as fetcher:
                await crawl.list_sources([ClientSource([Configured("a", config)])], fetcher)
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
@pytest.mark.skipif(shutil.which("bun") is None, reason="no bun")
async def test_what_bun_ran_is_recorded_as_bunx(packages: PackageServer, work: Path) -> None:
    _, server = await deploy(work, "npm:typescript-mcp")
    assert (server.install.command, server.install.args) == ("bunx", ["--bun", "typescript-mcp@1.0.0"])
    assert catalogue_launch(server).entry == {"command": "bunx", "args": ["--bun", "typescript-mcp@1.0.0"]}


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
