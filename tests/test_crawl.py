"""Sources, the polite client, the crawl's memory, and what goes out; the packages are deployed in test_crawl_deploy."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest
from crawl_registry import PACKAGES, LocalServer, PackageServer
from crawl_work import needs_node, needs_sandbox, processes_with, run_cli, work_folder

from toolscout.commands.crawl import _only_older, _Wanted
from toolscout.crawler.classify import by_metadata, by_name
from toolscout.crawler.coordinates import parse
from toolscout.crawler.crawl import Crawl
from toolscout.crawler.deploy import Deployer, Outcome, Start
from toolscout.crawler.dummies import arguments_for, asked_for, in_settings, in_source, reformed, subcommand, value_for
from toolscout.crawler.export import entities, export_files, into_catalogue
from toolscout.crawler.failures import Failure, Verdict, classify
from toolscout.crawler.fetch import Fetcher, FetchError, Page
from toolscout.crawler.install.base import Entry, Installed, Metadata, ranked
from toolscout.crawler.listing import Listing
from toolscout.crawler.moments import rfc3339
from toolscout.crawler.report import report, write_report
from toolscout.crawler.sandbox import Unconfined, choose
from toolscout.crawler.sources import names as listed
from toolscout.crawler.sources.base import Batch, Found, Source
from toolscout.crawler.sources.clients import ClientSource, Configured, package_of
from toolscout.crawler.sources.marketplaces_kept import Kept
from toolscout.crawler.sources.marketplaces_kept import moment as seconds_of
from toolscout.crawler.sources.npm import NpmSource
from toolscout.crawler.sources.packages import PackagesSource
from toolscout.crawler.sources.pypi import PypiSource, published
from toolscout.crawler.sources.registry import RegistrySource
from toolscout.crawler.state import State, Todo
from toolscout.errors import BadInput, NotAllowed, NotFound
from toolscout.index.catalogue import Catalogue
from toolscout.jsonl import read_records
from toolscout.records import EnvVar, JsonObject, Review, Server, ServerState, Tool

# --- the polite client -----------------------------------------------------------------------------------------------


async def test_a_failure_that_passes_is_tried_again() -> None:
    answers = [503, 429, 200]

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(answers.pop(0), text="[1]", headers={"retry-after": "0"})

    async with Fetcher(transport=httpx.MockTransport(answer), backoff=0.001) as fetcher:
        assert await fetcher.json("http://registry.example/x") == [1]
        assert fetcher.requests == 3


async def test_a_failure_that_stays_is_said_without_the_key() -> None:
    async with Fetcher(transport=httpx.MockTransport(lambda _: httpx.Response(404)), backoff=0.001) as fetcher:
        with pytest.raises(FetchError, match="404") as caught:
            await fetcher.get("http://user:secret@registry.example/x?key=secret")
        assert "secret" not in str(caught.value)
        assert fetcher.requests == 1


async def test_pages_are_kept_and_revalidated(tmp_path: Path) -> None:
    seen: list[str | None] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("if-none-match"))
        return httpx.Response(304 if seen[-1] else 200, text="body", headers={"etag": '"1"'})

    with State(tmp_path) as state:
        async with Fetcher(state, transport=httpx.MockTransport(answer)) as fetcher:
            for _ in range(2):
                assert (await fetcher.get("http://a.example/")).text == "body"
            assert len(seen) == 1
            assert (await fetcher.get("http://a.example/", max_age=0)).text == "body"
            assert seen == [None, '"1"']
            await fetcher.get("http://a.example/", headers={"Authorization": "Bearer x"})
            assert len(seen) == 3, "an answer for a key must not come from the cache"


async def test_robots_and_user_agent() -> None:
    def answer(path: str, query: dict[str, str]) -> tuple[int, str, bytes]:
        return 200, "text/plain", b"User-agent: *\nDisallow: /private\n" if path == "/robots.txt" else b"page"

    site = LocalServer(answer)
    try:
        async with Fetcher(contact="crawler@example.invalid") as fetcher:
            assert (await fetcher.get(f"{site.url}/open", robots=True)).text == "page"
            with pytest.raises(FetchError, match=r"robots\.txt"):
                await fetcher.get(f"{site.url}/private/x", robots=True)
        assert site.asked == ["/robots.txt", "/open"]
        assert all("toolscout/" in a and "crawler@example.invalid" in a for a in site.agents)
    finally:
        site.close()


async def test_requests_to_one_host_keep_their_distance() -> None:
    started = time.monotonic()

    async with Fetcher(transport=httpx.MockTransport(lambda _: httpx.Response(200)), rate=20) as fetcher:
        await asyncio.gather(*(fetcher.get(f"http://a.example/{n}") for n in range(4)))
    assert time.monotonic() - started >= 0.149, "three gaps of a twentieth of a second"


# --- sources ---------------------------------------------------------------------------------------------------------


async def all_of(source: Source, fetcher: Fetcher, **options: Any) -> list[Batch]:
    return [batch async for batch in source.batches(fetcher, **options)]


def test_names_come_from_any_text_file(tmp_path: Path) -> None:
    path = tmp_path / "names.gz"
    path.write_bytes(gzip.compress(b"b-mcp\n\n# a remark\na-mcp\nb-mcp\n"))
    assert listed.read_names(path) == ["b-mcp", "a-mcp"]
    with pytest.raises(NotFound):
        listed.read_names(tmp_path / "none")
    with pytest.raises(BadInput, match="regular expression"):
        listed.matching(["a"], "(")


async def test_a_listing_of_names_goes_on_after_its_cursor(tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_text("\n".join(f"p{n:04}-mcp" for n in range(1200)))
    async with Fetcher() as fetcher:
        batches = await all_of(NpmSource(names=path), fetcher)
        assert [len(b.found) for b in batches] == [500, 500, 200]
        assert batches[-1].cursor is None
        rest = await all_of(NpmSource(names=path), fetcher, cursor=batches[0].cursor)
        assert rest[0].found[0].server.server_id == "npm/p0500-mcp"
        assert sum(len(b.found) for b in rest) == 700


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("weather-mcp-server", "server"),
        ("weather-mcp", "unknown"),
        ("@iflow-mcp/weather", "reupload"),
        ("iflow-mcp_weather", "reupload"),
        ("mseep-weather-mcp", "reupload"),
        ("weather-mcp-linux-x64", "platform"),
        ("@scope/weather-mcp-darwin-arm64", "platform"),
        ("weather-mcp-win32-x64-msvc", "platform"),
        ("create-mcp-thing", "template"),
        ("mcp-template", "template"),
        ("weather-mcp-client", "client"),
        ("mcp-inspector", "unknown"),
        ("mcp-sdk", "library"),
        ("mcp-darwinism", "unknown"),
    ],
)
def test_names_tell_a_little(name: str, verdict: str) -> None:
    assert str(by_name(name)[0]) == verdict


def test_metadata_tells_more() -> None:
    assert by_metadata(Metadata("x", dependencies=("fastmcp",)), has_entry=True)[0] == "server"
    assert by_metadata(Metadata("mcp-sdk", description="An MCP server"), has_entry=True)[0] == "server"
    assert by_metadata(Metadata("x", dependencies=("mcp",)), has_entry=False)[0] == "library"
    assert by_metadata(Metadata("x-mcp-linux-x64", dependencies=("mcp",)), has_entry=True)[0] == "platform"
    assert by_metadata(Metadata("x"), has_entry=True)[0] == "unknown"


def test_of_commands_the_likeliest_comes_first() -> None:
    assert ranked(["x-setup", "x-cli", "x-mcp", "x"], "@s/x")[0] == "x"
    assert ranked(["notes-install", "notes-mcp-server", "notes"], "notes-suite") == [
        "notes-mcp-server",
        "notes",
        "notes-install",
    ]


async def test_the_simple_index_tells_what_is_new(tmp_path: Path) -> None:
    packages = PackageServer()
    try:
        async with Fetcher() as fetcher:
            source = PypiSource(index=f"{packages.url}/simple", pattern="mcp-server")
            (batch,) = await all_of(source, fetcher)
            found = {f.server.install.package: f.marker for f in batch.found}
            assert "current-mcp-server" in found and "shapes" not in found
            assert set(found.values()) == {"1"}
            index = f"{packages.url}/simple"
            assert await published(fetcher, "Unpinned_mcp.server", "0.1.0", index) == "2025-05-20T00:00:00Z"
            assert await published(fetcher, "unpinned-mcp-server", "9", index) is None
            assert await published(fetcher, "none", "9", index) is None
    finally:
        packages.close()


async def test_a_simple_index_in_html() -> None:
    body = b'<html><a href="/simple/a-mcp/">a-mcp</a>\n<a href="/simple/b/">b</a></html>'
    site = LocalServer(lambda path, query: (200, "text/html", body))
    try:
        async with Fetcher() as fetcher:
            (batch,) = await all_of(PypiSource(index=f"{site.url}/simple"), fetcher)
        assert [f.server.server_id for f in batch.found] == ["pypi/a-mcp"]
    finally:
        site.close()


async def test_npm_tells_versions_and_what_has_no_commands(tmp_path: Path) -> None:
    packages = PackageServer()
    path = tmp_path / "names.txt"
    path.write_text("weather-mcp\nmcp-helpers\ngone-mcp\n@copy/weather-mcp-fork\n")
    try:
        async with Fetcher(rate=0) as fetcher:
            source = NpmSource(names=path, registry=f"{packages.url}/npm", details=True)
            (batch,) = await all_of(source, fetcher)
        found = {f.server.install.package: f for f in batch.found}
        assert set(found) == {"weather-mcp", "mcp-helpers", "@copy/weather-mcp-fork"}
        assert str(found["mcp-helpers"].verdict) == "library"
        assert found["weather-mcp"].marker == "1.0.0" and found["weather-mcp"].server.license == "Apache-2.0"
    finally:
        packages.close()


REGISTRY_META = "io.modelcontextprotocol.registry/official"


def registry_entry(number: int, **changes: Any) -> JsonObject:
    server: JsonObject = {
        "name": f"io.example/server-{number}",
        "description": f"Server {number}",
        "version": "1.0.0",
        "packages": [
            {"registryType": "oci", "identifier": f"docker.example/s{number}", "transport": {"type": "stdio"}},
            {
                "registryType": "npm",
                "identifier": f"@example/server-{number}",
                "version": "1.0.0",
                "transport": {"type": "stdio"},
                "environmentVariables": [{"name": "API_KEY", "isRequired": True, "isSecret": True}],
                "packageArguments": [
                    {"type": "named", "name": "--mode", "value": "stdio"},
                    {"type": "positional", "valueHint": "folder", "isRequired": True},
                ],
            },
        ],
    } | changes
    return {"server": server, "_meta": {REGISTRY_META: {"status": "active", "isLatest": True}}}


class McpRegistry:
    """The registry's v0.1 API over a list of entries with the times of their last change."""

    def __init__(self, entries: list[tuple[str, JsonObject]]) -> None:
        self.entries = entries
        self.fail_at: str | None = None
        self.site = LocalServer(self._answer)

    def _answer(self, path: str, query: dict[str, str]) -> tuple[int, str, bytes]:
        since = query.get("updated_since", "")
        if since and not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", since):
            return 400, "application/json", b'{"detail": "Invalid updated_since format: expected RFC3339"}'
        if path != "/v0.1/servers" or query.get("version") != "latest":
            return 404, "application/json", b"{}"
        found = [e for at, e in self.entries if at >= since]
        if not query.get("include_deleted"):
            found = [e for e in found if e.get("_meta", {}).get(REGISTRY_META, {}).get("status") != "deleted"]
        start, size = int(query.get("cursor", "0")), 2
        if self.fail_at == str(start):
            return 500, "application/json", b"{}"
        metadata = {"count": size} | ({"nextCursor": str(start + size)} if start + size < len(found) else {})
        return (
            200,
            "application/json",
            json.dumps({"servers": found[start : start + size], "metadata": metadata}).encode(),
        )


async def test_the_mcp_registry_in_pages_with_broken_entries_and_increments(tmp_path: Path) -> None:
    remote = registry_entry(3, packages=[], remotes=[{"type": "sse", "url": "https://mcp.example.invalid/sse"}])
    entries = [("2026-01-01", registry_entry(n)) for n in range(3)]
    entries += [("2026-01-02", remote), ("2026-01-02", {"server": {"name": 7}}), ("2026-01-02", registry_entry(5))]
    registry = McpRegistry(entries)
    try:
        with Crawl(tmp_path / "w") as crawl:
            async with Fetcher(rate=0, retries=1, backoff=0.001) as fetcher:
                source = RegistrySource(registry.site.url)
                registry.fail_at = "4"
                (first,) = await crawl.list_sources([source], fetcher)
                assert (first.listed, bool(first.error)) == (4, True)
                registry.fail_at = None
                (second,) = await crawl.list_sources([source], fetcher)
                assert (second.listed, second.problems, second.error) == (1, 1, "")
                assert registry.site.asked[-1].endswith("cursor=4"), "it went on where it had stopped"
                todo = crawl.state.todo()
                assert sorted(t.server.server_id for t in todo) == [f"npm/@example/server-{n}" for n in (0, 1, 2, 5)]
                assert todo[0].args == ("--mode", "stdio")
                assert todo[0].server.install.args == ["--mode", "stdio", "<folder>"]
                assert todo[0].server.install.env[0].secret
                rows = crawl.state.rows("SELECT record FROM entry WHERE server_id = 'registry/io.example/server-3'")
                assert Server.model_validate_json(rows[0]["record"]).transport == "sse"
                # Later: one new, one deleted. Only these two come.
                gone = registry_entry(1)
                gone["_meta"][REGISTRY_META]["status"] = "deleted"
                entries[1] = ("2099-01-01", gone)
                entries.append(("2099-01-01", registry_entry(9)))
                (third,) = await crawl.list_sources([source], fetcher, since="last")
                assert (third.listed, third.new) == (1, 1)
                assert "npm/@example/server-1" not in [t.server.server_id for t in crawl.state.todo()]
                assert len(crawl.state.todo()) == 4
    finally:
        registry.site.close()


@pytest.mark.parametrize(
    ("kind", "transport"), [("streamable-http", "http"), ("sse", "sse"), ("stdio", "stdio"), (None, "stdio")]
)
def test_a_package_of_the_registry_says_how_it_is_spoken_to(kind: str | None, transport: str) -> None:
    package = {"registryType": "npm", "identifier": "a-mcp"} | ({"transport": {"type": kind}} if kind else {})
    (found,) = RegistrySource("http://user:s3cret@registry.example")._found(registry_entry(1, packages=[package]))
    assert (found.server.server_id, found.server.transport) == ("npm/a-mcp", transport)
    assert found.server.sources[0].url == "http://registry.example/v0.1/servers", "no key goes out with a record"


def test_a_remote_counts_more_than_a_package_that_nothing_installs() -> None:
    source = RegistrySource("http://registry.example")
    remotes = [{"type": "streamable-http", "url": "https://mcp.example.invalid/mcp"}]
    bundle = {"registryType": "mcpb", "identifier": "https://files.example.invalid/a.mcpb"}
    (found,) = source._found(registry_entry(1, packages=[bundle], remotes=remotes))
    assert (found.server.install.registry, found.server.install.url) == ("url", "https://mcp.example.invalid/mcp")
    assert found.server.transport == "http"
    (found,) = source._found(registry_entry(1, packages=[bundle]))
    assert found.server.install.registry == "none"
    image = {"registryType": "oci", "identifier": "docker.example/a"}
    (found,) = source._found(registry_entry(1, packages=[bundle, image], remotes=remotes))
    assert found.server.server_id == "oci/docker.example/a"


def test_a_registry_without_an_address() -> None:
    with pytest.raises(BadInput, match="not set"):
        RegistrySource("")


@pytest.mark.parametrize(
    ("command", "args", "expected"),
    [
        ("npx", ["-y", "@s/x@1.2.3", "--flag"], ("npm", "@s/x", "1.2.3", ["--flag"])),
        ("npx.cmd", ["-p", "x@latest", "x-server"], ("npm", "x", None, [])),
        ("bunx", ["x"], ("npm", "x", None, [])),
        ("uvx", ["--from", "x-y==2.0", "cmd", "a"], ("pypi", "x-y", "2.0", ["a"])),
        ("/usr/bin/uv", ["tool", "run", "x[all]@latest"], ("pypi", "x", None, [])),
        ("uvx", ["--from", "git+https://x", "cmd"], ("none", None, None, ["--from", "git+https://x", "cmd"])),
        ("node", ["x.js"], ("none", None, None, ["x.js"])),
        ("npx", ["-y"], ("none", None, None, ["-y"])),
    ],
)
def test_packages_of_command_lines(command: str, args: list[str], expected: tuple[Any, ...]) -> None:
    assert package_of(command, args) == expected


async def test_configured_servers_leave_their_secrets_behind() -> None:
    entries = [
        Configured("a", {"command": "npx", "args": ["-y", "x", "--api-key", "s3cret"], "env": {"X_TOKEN": "s3cret"}}),
        Configured("b", {"url": "https://h.example/mcp?key=s3cret", "headers": {"Authorization": "Bearer ${B_KEY}"}}),
        Configured("c", {"command": "/opt/own/server", "args": ["s3cret"]}),
    ]
    async with Fetcher() as fetcher:
        (batch,) = await all_of(ClientSource(entries), fetcher)
    assert [f.server.server_id for f in batch.found] == ["npm/x", "clients/b", "clients/c"]
    assert "s3cret" not in repr(batch)
    assert [v.name for v in batch.found[1].server.install.env] == ["B_KEY"]


# --- failures and dummies --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stderr", "code", "failure", "cause"),
    [
        ("ModuleNotFoundError: No module named 'mcp.server.fastmcp'", 1, "crashed", "import_error"),
        ("Error: Cannot find module './x'\nRequire stack:\n- /a/node_modules/x/1.js", 1, "crashed", "import_error"),
        ("ImportError: libGL.so.1: cannot open shared object file", 1, "crashed", "native_module"),
        ("Problem: X requires Node.js 22 or newer.", 1, "crashed", "other_runtime"),
        ("usage: x [-h] --db DB\nx: error: the following arguments are required: --db", 2, "needs_arguments", "usage"),
        ("Error: GITHUB_TOKEN is not set", 1, "needs_key", "environment"),
        ("KeyError: 'ACME_TOKEN'", 1, "needs_key", "environment"),
        ("pydantic_core.ValidationError: 1 validation error\napi_key\n  Field required", 1, "needs_key", "environment"),
        ("INFO: Uvicorn running on http://127.0.0.1:8000", None, "needs_arguments", "http_only"),
        (
            'Traceback (most recent call last):\n  File "x.py", line 4, in <module>\n    from mcp_server.m import run\n'
            "AttributeError: 'Server' object has no attribute 'list_tools'",
            *(1, "crashed", "status_1"),
        ),
        (
            'Traceback (most recent call last):\n  File "x.py", line 4, in token_required\n    api_key_required()\n'
            "TypeError: FastMCP() no longer accepts `log_level`, set FASTMCP_LOG_LEVEL.",
            *(1, "crashed", "status_1"),
        ),
        ("Error: connect ENOENT /var/run/docker.sock", 1, "crashed", "needs_service"),
        ("Cannot connect to the Docker daemon at unix:///x.sock. Is it running?", 1, "crashed", "needs_service"),
        ("Error: spawn python3 ENOENT", 1, "crashed", "other_runtime"),
        ("sh: 1: uvx: not found", 127, "crashed", "other_runtime"),
        ("Node.js 22+ is required", 1, "crashed", "other_runtime"),
        ("Node.js v20 is not supported. Please upgrade to v22", 1, "crashed", "other_runtime"),
        ("Starting MCP server on port 3000\n    at bind (node:net:1:2)", 1, "crashed", "status_1"),
        ("OSError: [Errno 30] Read-only file system: '/x'", 1, "crashed", "writes_beside_itself"),
        ("", None, "timeout", "silent"),
        ("hello", None, "timeout", "no_answer"),
        ("Segmentation fault", -11, "crashed", "status_-11"),
    ],
)
def test_what_was_said_is_classified(stderr: str, code: int | None, failure: str, cause: str) -> None:
    found = classify(stderr, "", code, None)
    assert (str(found.failure), found.cause) == (failure, cause)


def test_evidence_is_harmless_and_short() -> None:
    found = classify("\x1b[31mred\x1b[0m \x07\n" * 1000, "", 1, None)
    assert len(found.evidence) < 1300 and "\x1b" not in found.evidence and "\x07" not in found.evidence


def test_dummies_keep_the_form_that_is_asked_for(tmp_path: Path) -> None:
    assert value_for("STRIPE_SECRET_KEY").startswith("sk_test_")
    assert value_for("GITHUB_TOKEN").startswith("ghp_")
    assert value_for("ACME_BASE_URL").startswith("https://")
    assert value_for("SERVER_PORT") == "8080"
    assert (value_for("REDIS_DATABASE"), value_for("PG_DATABASE")) == ("0", "example")
    assert asked_for("Set ACME_KEY and ACME_ID. (NODE_ENV, ECONNREFUSED, ERR_X_Y)", ["ACME_ID"]) == ["ACME_KEY"]
    assert asked_for("KeyError: 'TOKEN'") == ["TOKEN"]
    assert reformed("ACME_KEY must start with 'ak-'", {"ACME_KEY": "x", "OTHER": "y"}).keys() == {"ACME_KEY"}
    assert arguments_for("error: the following arguments are required: --db-path")[0][0] == "--db-path"
    assert arguments_for("Please provide a base URL with the --apiUrl flag") == (
        ("--apiUrl", "https://example.invalid"),
        ("--apiUrl", "<URL>"),
    )
    asked = (
        "Usage: x --host <host>\nRequired options:\n  --host   host\n  -p, --password   password\nOptional:\n  --help"
    )
    assert arguments_for(asked)[1] == ("--host", "<URL>", "--password", "<key>")
    assert "--help" not in arguments_for("Use --help to see what is required")[0]
    assert arguments_for("Please provide a vault directory") == (("/tmp/work",), ("<directory>",))
    (tmp_path / "x.py").write_text("os.environ['A_KEY']; os.getenv('B_SITE'); os.environ.get('HOME')")
    assert in_source([tmp_path]) == ["A_KEY", "B_SITE"]
    (tmp_path / "y.py").write_text("model_config = SettingsConfigDict(env_prefix='ACME_')")
    assert in_settings("api_key\n  Field required [type=missing]", [tmp_path]) == ["ACME_API_KEY"]
    assert in_settings("api_key is missing", [tmp_path]) == []


def test_no_sandbox_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolscout.crawler.sandbox.probe", lambda _: "it is broken")
    with pytest.raises(NotAllowed, match="only started in a sandbox") as caught:
        choose()
    assert "bubblewrap" in caught.value.hint
    assert isinstance(choose("none"), Unconfined)
    with pytest.raises(BadInput):
        choose("docker")


# --- the memory ------------------------------------------------------------------------------------------------------


def outcome(package: str, tools: dict[str, str], version: str = "1", **more: Any) -> Outcome:
    entry = Entry(package, ("x",))
    wire = [{"name": n, "description": d, "inputSchema": {"type": "object"}} for n, d in tools.items()]
    return Outcome(
        listing=Listing(
            "2025-11-25", server_info={"name": f"{package} server"}, tools=wire, capabilities={"tools": {}}
        ),
        start=Start(entry, env=more.pop("env", {})),
        installed=Installed(Path("x"), Metadata(package, version, f"About {package}"), [entry], size=1 << 20),
        install_seconds=1.0,
        run_seconds=0.5,
        starts=1,
        **more,
    )


FAILED = Outcome(Verdict(Failure.CRASHED, "import_error", "<b>evidence</b>"), install_seconds=1.0)


class Fixed(Source):
    """A listing that a test holds in its hands."""

    name: ClassVar[str] = "fixed"

    def __init__(self, packages: dict[str, str | None]) -> None:
        self.packages = packages

    async def batches(
        self, fetcher: Fetcher, *, since: str | None = None, cursor: str | None = None
    ) -> AsyncIterator[Batch]:
        names = list(self.packages)
        for n in range(int(cursor or 0), len(names)):
            found = listed.found("npm", names[n], marker=self.packages[names[n]])
            yield Batch([found], str(n + 1) if n + 1 < len(names) else None)


@pytest.fixture
def crawl(tmp_path: Path) -> Iterator[Crawl]:
    with Crawl(tmp_path / "work") as made:
        yield made


async def relist(crawl: Crawl, packages: dict[str, str | None], **options: Any) -> None:
    async with Fetcher() as fetcher:
        await crawl.list_sources([Fixed(packages)], fetcher, **options)


def put(crawl: Crawl, package: str, made: Outcome) -> None:
    todo = next(t for t in crawl.state.todo(retry=["crashed"]) if t.server.install.package == package)
    crawl.state.put_outcome(todo, made, 1)


def waiting(crawl: Crawl) -> list[str]:
    return sorted(str(t.server.install.package) for t in crawl.state.todo())


async def test_finished_work_is_not_repeated(crawl: Crawl) -> None:
    await relist(crawl, {"a-mcp": "1", "b-mcp": "1", "c-mcp": None, "x-mcp-linux-x64": "1"})
    assert waiting(crawl) == ["a-mcp", "b-mcp", "c-mcp"]
    put(crawl, "a-mcp", outcome("a-mcp", {"t": "One."}))
    put(crawl, "b-mcp", FAILED)
    assert waiting(crawl) == ["c-mcp"]
    assert {t.server.install.package for t in crawl.state.todo(retry=["crashed"])} == {"b-mcp", "c-mcp"}
    put(crawl, "c-mcp", outcome("c-mcp", {"t": "Three."}))
    await relist(crawl, {"a-mcp": "1", "b-mcp": "2", "c-mcp": None, "d-mcp": "1"}, since="last")
    assert waiting(crawl) == ["b-mcp", "d-mcp"], "only what changed and what is new"


async def test_what_waits_comes_in_an_order_of_its_own(crawl: Crawl) -> None:
    packages = [f"{letter}-mcp" for letter in "abcdefghijklmnopqrstuvwxyz"]
    await relist(crawl, dict.fromkeys(packages, "1"))
    order = [str(t.server.install.package) for t in crawl.state.todo()]
    assert sorted(order) == packages and order != packages, "the first few would be no fair sample"
    assert order == [str(t.server.install.package) for t in crawl.state.todo()], "a resumed crawl goes on in it"


async def test_only_what_the_named_sources_list(crawl: Crawl) -> None:
    await relist(crawl, {"a-mcp": "1", "b-mcp": "1"})
    async with Fetcher(backoff=0.01) as fetcher:
        await crawl.list_sources([PackagesSource([parse("npm:c-mcp")])], fetcher)
    assert waiting(crawl) == ["a-mcp", "b-mcp", "c-mcp"]
    assert [t.server.install.package for t in crawl.state.todo(sources=["named"])] == ["c-mcp"]
    assert crawl.state.todo(sources=["clients"]) == []


def test_what_a_killed_crawl_left_running_is_ended(tmp_path: Path) -> None:
    stray = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", f"{tmp_path}/installs/0/x"])
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", f"{tmp_path}-other/installs/0/x"])
    try:
        Deployer(Unconfined(), tmp_path, {}).end_strays()
        assert stray.wait(5) == -signal.SIGKILL
        assert other.poll() is None
    finally:
        stray.kill()
        other.kill()
        stray.wait()
        other.wait()


async def test_a_new_version_marks_what_changed_and_a_broken_one_takes_nothing(crawl: Crawl) -> None:
    await relist(crawl, {"a-mcp": "1"})
    put(crawl, "a-mcp", outcome("a-mcp", {"same": "Same.", "other": "Before.", "old": "Old."}))
    await relist(crawl, {"a-mcp": "2"})
    put(crawl, "a-mcp", outcome("a-mcp", {"same": "Same.", "other": "After.", "new": "New."}, "2"))
    tools = {t.name: t for t in crawl.state.tools("npm/a-mcp")}
    assert set(tools) == {"same", "other", "new"}
    assert tools["same"].changed_at is None and tools["other"].changed_at is not None
    history = crawl.state.history("npm/a-mcp")
    assert [h["version"] for h in history] == ["1", "2"]
    assert (history[1]["added"], history[1]["changed"], history[1]["removed"]) == (["new"], ["other"], ["old"])
    await relist(crawl, {"a-mcp": "3"})
    put(crawl, "a-mcp", FAILED)
    assert waiting(crawl) == []
    assert len(crawl.state.tools("npm/a-mcp")) == 3
    assert [server.version for server, _ in crawl.state.servers()] == ["2"]


async def test_what_vanishes_stays_as_unavailable(crawl: Crawl) -> None:
    await relist(crawl, {"a-mcp": "1", "b-mcp": "1"})
    put(crawl, "a-mcp", outcome("a-mcp", {"t": "One."}))
    put(crawl, "b-mcp", outcome("b-mcp", {"t": "Two."}))
    await relist(crawl, {"b-mcp": "1"})
    states = {s.server_id: s.state for s, _ in crawl.state.servers()}
    assert states == {"npm/a-mcp": ServerState.UNAVAILABLE, "npm/b-mcp": ServerState.NEEDS_INSTALL}
    await relist(crawl, {"a-mcp": "1", "b-mcp": "1"})
    assert {s.state for s, _ in crawl.state.servers()} == {ServerState.NEEDS_INSTALL}


async def test_identical_tool_sets_are_one_server_with_all_sources(crawl: Crawl, tmp_path: Path) -> None:
    packages = ["weather-mcp", "@copy/weather-mcp", "one-mcp", "two-mcp"]
    await relist(crawl, dict.fromkeys(packages, "1"))
    put(crawl, "weather-mcp", outcome("weather-mcp", {"now": "The weather.", "then": "The forecast."}))
    put(crawl, "@copy/weather-mcp", outcome("@copy/weather-mcp", {"x_then": "The forecast.", "x_now": "The weather."}))
    put(crawl, "one-mcp", outcome("one-mcp", {"a": ""}))
    put(crawl, "two-mcp", outcome("two-mcp", {"a": ""}))
    found = {server.server_id: (server, copies) for server, copies in entities(crawl.state)}
    assert set(found) == {"npm/weather-mcp", "npm/one-mcp", "npm/two-mcp"}, "empty descriptions prove nothing"
    kept, copies = found["npm/weather-mcp"]
    assert copies == ["npm/@copy/weather-mcp"]
    assert {s.id for s in kept.sources} == {"weather-mcp", "@copy/weather-mcp"}
    done = export_files(crawl.state, tmp_path / "out")
    assert (done.servers, done.tools, done.merged) == (3, 4, 1)
    servers = list(read_records(tmp_path / "out" / "servers.jsonl.gz", Server))
    tools = list(read_records(tmp_path / "out" / "tools.jsonl.gz", Tool))
    assert {t.server_id for t in tools} == {s.server_id for s in servers}
    assert all(t.fingerprint == t.computed_fingerprint() for t in tools)
    first = (tmp_path / "out" / "tools.jsonl.gz").read_bytes()
    export_files(crawl.state, tmp_path / "out")
    assert (tmp_path / "out" / "tools.jsonl.gz").read_bytes() == first


async def test_a_crawl_brings_the_catalogue_up_to_date(crawl: Crawl, tmp_path: Path) -> None:
    await relist(crawl, {"a-mcp": "1", "b-mcp": "1"})
    put(crawl, "a-mcp", outcome("a-mcp", {"same": "Same.", "other": "Before.", "old": "Old."}))
    put(crawl, "b-mcp", outcome("b-mcp", {"t": "Two."}, needs_key=True, env={"B_KEY": "dummy-value"}))
    with Catalogue(f"sqlite:///{tmp_path / 'catalogue.db'}") as catalogue:
        assert into_catalogue(crawl.state, catalogue).tools == 4
        stored = catalogue.get_server("npm/b-mcp")
        assert stored is not None and stored.state is ServerState.NEEDS_KEY
        assert "dummy-value" not in stored.to_json()
        await relist(crawl, {"a-mcp": "2"})
        put(crawl, "a-mcp", outcome("a-mcp", {"same": "Same.", "other": "After."}, "2"))
        into_catalogue(crawl.state, catalogue)
        tools = {t.name: t for t in catalogue.tools()}
        assert set(tools) == {"same", "other", "t"}
        assert tools["other"].review is Review.CHANGED and tools["same"].review is Review.APPROVED
        stored = catalogue.get_server("npm/b-mcp")
        assert stored is not None and stored.state is ServerState.UNAVAILABLE


async def test_the_report_counts_and_shows_foreign_text_harmlessly(crawl: Crawl, tmp_path: Path) -> None:
    await relist(crawl, {"a-mcp": "1", "b-mcp": "1", "c-mcp": "1"})
    run = crawl.state.begin_run(2, "bubblewrap")
    put(crawl, "a-mcp", outcome("a-mcp", {"t": "One.", "u": "Two."}))
    put(crawl, "b-mcp", FAILED)
    crawl.state.tick_run(run, 1800.0)
    made = report(crawl.state, ["npm/other"])
    assert (made["servers"], made["tools"], made["new_servers"]) == (1, 2, 1)
    assert made["sources"]["fixed"]["tried"] == 2 and made["sources"]["fixed"]["success"] == 0.5
    assert made["registries"]["npm"]["failures"] == {"crashed": 1}
    assert made["registries"]["npm"]["seconds"]["max"] == 1.5
    assert made["servers_with_tools_per_hour"] == 2.0
    write_report(crawl.state, tmp_path / "out")
    page = (tmp_path / "out" / "crawl.html").read_text()
    assert "&lt;b&gt;evidence" in page and "<b>evidence" not in page
    assert page.count("<svg") > 2 and "http" not in page, "the page loads nothing"
    assert json.loads((tmp_path / "out" / "crawl.json").read_text())["servers"] == 1


def test_one_crawl_at_a_time(crawl: Crawl) -> None:
    with pytest.raises(NotAllowed, match="Another crawl"):
        Crawl(crawl.work)


def test_tools_that_a_source_states_are_kept_without_deploying(crawl: Crawl) -> None:
    server = Server(server_id="market/x", name="x")
    stated = Found(server, tools=({"name": "t", "description": "Stated."},), marker="1")
    crawl.state.begin_listing("market", since=None, fresh=False)
    crawl.state.put_batch("market", Batch([stated], None))
    assert crawl.state.todo() == []
    assert [t.description for t in crawl.state.tools("market/x")] == ["Stated."]


def put_listing(crawl: Crawl, key: str, *found: Found, complete: bool = True) -> None:
    crawl.state.begin_listing(key, since=None, fresh=False)
    crawl.state.put_batch(key, Batch(list(found), None))
    crawl.state.end_listing(key, complete=complete)


def by_registry(package: str, version: str, registry: str = "npm") -> Found:
    """A package as the MCP registry lists it, with what it says of how to start it."""
    entry = registry_entry(7, name=f"io.example/{package}", version=version)
    entry["server"]["packages"] = [
        entry["server"]["packages"][1] | {"registryType": registry, "identifier": package, "version": version}
    ]
    (found,) = RegistrySource("http://registry.example")._found(entry)
    return found


@pytest.mark.parametrize("first", ["registry", "npm"])
def test_a_listing_of_names_takes_nothing_from_a_better_one(crawl: Crawl, first: str) -> None:
    known = by_registry("a-mcp", "1.2.0")
    listings = {"registry": known, "npm": listed.found("npm", "a-mcp")}
    for key in [first, *(listings.keys() - {first})]:
        put_listing(crawl, key, listings[key])
    (todo,) = crawl.state.todo()
    assert todo.args == known.args == ("--mode", "stdio")
    assert todo.server.install == known.server.install and todo.server.install.env[0].name == "API_KEY"
    for fact in ("name", "title", "description", "version", "homepage"):
        assert getattr(todo.server, fact) == getattr(known.server, fact), fact
    assert {s.marketplace for s in todo.server.sources} == {"npm", "registry"}
    put_listing(crawl, "npm", listings["npm"])
    (again,) = crawl.state.todo()
    assert again == todo


def test_variables_of_two_listings_are_united_by_name(crawl: Crawl) -> None:
    known = by_registry("a-mcp", "1")
    server = known.server.model_copy(deep=True)
    server.sources[0].marketplace = "other"
    server.install.env = [EnvVar(name="API_KEY", secret=False), EnvVar(name="REGION", description="Where.")]
    put_listing(crawl, "registry", known)
    put_listing(crawl, "other", Found(server))
    (todo,) = crawl.state.todo()
    assert [(v.name, v.secret) for v in todo.server.install.env] == [("API_KEY", True), ("REGION", False)]
    # What the same source leaves out another time holds no longer: a pinned version, say.
    put_listing(crawl, "named", PackagesSource.found(parse("npm:b-mcp@1.0.0")))
    put_listing(crawl, "named", PackagesSource.found(parse("npm:b-mcp")))
    assert {t.server.install.version for t in crawl.state.todo() if t.server.install.package == "b-mcp"} == {None}


def test_markers_are_compared_with_those_of_the_same_listing(crawl: Crawl) -> None:
    serial = listed.found("pypi", "b-mcp", marker="12345")
    put_listing(crawl, "pypi", serial)
    put(crawl, "b-mcp", outcome("b-mcp", {"t": "One."}, "2.0"))
    for _ in range(2):
        put_listing(crawl, "registry", by_registry("b-mcp", "2.0", "pypi"))
        assert waiting(crawl) == [], "the version is the one that was deployed"
        put_listing(crawl, "pypi", serial)
        assert waiting(crawl) == []
    put_listing(crawl, "registry", by_registry("b-mcp", "2.1", "pypi"))
    assert waiting(crawl) == ["b-mcp"]
    put(crawl, "b-mcp", outcome("b-mcp", {"t": "One."}, "2.1"))
    assert waiting(crawl) == []
    put_listing(crawl, "pypi", listed.found("pypi", "b-mcp", marker="12399"))
    assert waiting(crawl) == ["b-mcp"]
    put(crawl, "b-mcp", FAILED)
    assert waiting(crawl) == [], "a failure is one, too"


def test_a_first_marker_is_that_of_what_is_deployed(crawl: Crawl) -> None:
    """Names first, details later: what did not change is not deployed once more."""
    names = {"a-mcp": "1.0.0", "b-mcp": "1.0.0", "c-mcp": None}
    put_listing(crawl, "npm", *(listed.found("npm", name) for name in names))
    put(crawl, "a-mcp", outcome("a-mcp", {"t": "One."}, "1.0.0"))
    put(crawl, "b-mcp", outcome("b-mcp", {"t": "Two."}, "1.0.0"))
    put(crawl, "c-mcp", FAILED)
    put_listing(crawl, "npm", *(detailed(name, "1.0.0") for name in names))
    assert waiting(crawl) == []
    put_listing(crawl, "npm", detailed("a-mcp", "1.0.0"), detailed("b-mcp", "1.1.0"), detailed("c-mcp", "1.0.1"))
    assert waiting(crawl) == ["b-mcp", "c-mcp"]
    put(crawl, "b-mcp", outcome("b-mcp", {"t": "Two."}, "1.0.0"))
    put(crawl, "c-mcp", FAILED)
    assert waiting(crawl) == [], "what was tried at this marker is not tried again, whatever was installed"
    put_listing(crawl, "npm:file", detailed("a-mcp", "1.2.0"))
    assert waiting(crawl) == ["a-mcp"], "another listing states another version than the deployed one"


def detailed(package: str, version: str) -> Found:
    found = listed.found("npm", package, marker=version)
    return replace(found, server=found.server.model_copy(update={"version": version}))


SCHEMA_1 = """
CREATE TABLE source (
  name TEXT PRIMARY KEY, cursor TEXT, started TEXT, since TEXT, finished TEXT, listing INTEGER NOT NULL DEFAULT 0);
CREATE TABLE listed (
  source TEXT NOT NULL, server_id TEXT NOT NULL, listing INTEGER NOT NULL,
  PRIMARY KEY (source, server_id)) WITHOUT ROWID;
ALTER TABLE entry ADD COLUMN marker TEXT;
ALTER TABLE result ADD COLUMN marker TEXT;
INSERT INTO source VALUES ('npm', NULL, NULL, NULL, '2026-01-01T00:00:00Z', 1),
  ('pypi', 'x', '2026-01-02', NULL, '', 1);
INSERT INTO listed VALUES ('npm', 'npm/a-mcp', 1), ('pypi', 'pypi/b-mcp', 1), ('npm', 'npm/c-mcp', 1),
  ('npm', 'npm/gone-mcp', 1), ('registry', 'pypi/d-mcp', 1), ('pypi', 'pypi/d-mcp', 1);
UPDATE entry SET marker = '100' WHERE server_id = 'pypi/b-mcp';
UPDATE result SET marker = '100' WHERE server_id = 'pypi/b-mcp';
UPDATE entry SET marker = '7' WHERE server_id = 'pypi/d-mcp';
UPDATE result SET marker = '1.0' WHERE server_id = 'pypi/d-mcp';
INSERT INTO page VALUES ('toolscout-kept:1:mcpso:x', 'x', 'application/json', '', 1.0),
  ('http://a.example/', 'y', '', '', 1);
PRAGMA user_version = 1;
"""
"""What the first version of the file held otherwise, put into one of today's without its newer tables."""


def test_a_memory_of_an_earlier_version_is_taken_over(tmp_path: Path) -> None:
    found = [listed.found("npm", n) for n in ("a-mcp", "c-mcp", "gone-mcp")]
    found += [listed.found("pypi", n) for n in ("b-mcp", "d-mcp")]
    with Crawl(tmp_path) as crawl:
        put_listing(crawl, "old", *found)
        for package in ("a-mcp", "b-mcp", "d-mcp", "gone-mcp"):
            put(crawl, package, outcome(package, {"t": f"Of {package}."}, "1.0"))
    with contextlib.closing(sqlite3.connect(tmp_path / "crawl.db")) as db:
        db.executescript("DROP VIEW listed; DROP TABLE mention; DROP TABLE source; DROP TABLE kept;" + SCHEMA_1)
    for _ in range(2):  # the second opening finds nothing to do
        with Crawl(tmp_path) as crawl:
            assert waiting(crawl) == ["c-mcp"], "nothing is deployed again"
            assert len(list(crawl.state.servers())) == 4
            told = crawl.state.rows("SELECT source, count(*) AS n FROM listed GROUP BY 1")
            assert {row["source"]: row["n"] for row in told} == {"npm": 3, "pypi": 2, "registry": 1}
            assert crawl.state.rows("SELECT url FROM page") == [{"url": "http://a.example/"}]
            assert crawl.state.rows("SELECT url FROM kept") == [{"url": "toolscout-kept:1:mcpso:x"}]
    with Crawl(tmp_path) as crawl:
        put_listing(crawl, "npm", listed.found("npm", "a-mcp"), detailed("c-mcp", "1.0"))
        assert waiting(crawl) == ["c-mcp"]
        put_listing(
            crawl, "pypi", listed.found("pypi", "b-mcp", marker="101"), listed.found("pypi", "d-mcp", marker="8")
        )
        assert waiting(crawl) == ["b-mcp", "c-mcp"], "a serial number that grew since; the other's source is not known"
        states = {s.server_id: s.state for s, _ in crawl.state.servers()}
        assert states["npm/gone-mcp"] is ServerState.NEEDS_INSTALL, "what listed it may have been a file of names"


def test_what_was_read_of_entries_is_not_pushed_out_by_pages(crawl: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolscout.crawler.state._PAGES_KEPT", 2)
    kept = Kept(Fetcher(crawl.state), "mcpso", 30)
    kept.put("a/weather", listed.found("npm", "a-mcp"))
    for n in range(4):
        crawl.state.put_page(Page(f"http://a.example/{n}", b"page", "text/html", "", time.time() // 97 * 97 + n * 97))
    assert len(crawl.state.rows("SELECT url FROM page")) == 2
    known = kept.get("a/weather")
    assert known is not None and isinstance(known[0], Found) and known[0].server.server_id == "npm/a-mcp"


def test_a_date_without_a_zone_is_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    try:
        assert seconds_of("2026-11-01") == seconds_of("2026-11-01T00:00:00Z") == seconds_of("2026-11-01T09:00:00+09:00")
        assert rfc3339("2026-11-01") == "2026-11-01T00:00:00Z"
        assert rfc3339("2026-11-01T09:30:00.123+09:00") == "2026-11-01T00:30:00Z"
    finally:
        monkeypatch.undo()
        time.tzset()
    assert seconds_of("soon") == seconds_of(None) == 0.0


async def test_listings_of_one_source_are_kept_apart(crawl: Crawl, tmp_path: Path) -> None:
    """Two registries, two files of names: neither goes on in the other's place, or makes its servers vanish."""
    registries = [McpRegistry([("2026-01-01T00:00:00Z", registry_entry(n))]) for n in (1, 2)]
    try:
        async with Fetcher(rate=0, retries=0) as fetcher:
            for registry in registries:
                await crawl.list_sources([RegistrySource(registry.site.url)], fetcher, since="last")
            assert waiting(crawl) == ["@example/server-1", "@example/server-2"], "the second is listed in full"
            assert "updated_since" not in registries[1].site.asked[-1]
            await crawl.list_sources([RegistrySource(registries[0].site.url)], fetcher, since="last")
            assert "updated_since=" in registries[0].site.asked[-1]
    finally:
        for registry in registries:
            registry.site.close()
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text("\n".join(f"{letter}{n:03}-mcp" for letter in "mn" for n in range(400)))
    second.write_text("alpha-mcp\nzeta-mcp\n")
    async with Fetcher() as fetcher:
        await crawl.list_sources([NpmSource(names=first)], fetcher, limit=1)
        await crawl.list_sources([NpmSource(names=second)], fetcher)
        assert {"alpha-mcp", "zeta-mcp"} <= set(waiting(crawl)), "it did not begin after the first file's last name"
        await crawl.list_sources([Fixed({"x-mcp": None})], fetcher)
        assert {"alpha-mcp", "m000-mcp", "@example/server-1"} <= set(waiting(crawl))
    assert {t.server.install.package for t in crawl.state.todo(sources=[NpmSource(names=second).key])} == {
        "alpha-mcp",
        "zeta-mcp",
    }


def test_sources_of_one_package_are_united(crawl: Crawl) -> None:
    for marketplace in ("npm", "registry"):
        found = listed.found("npm", "a-mcp")
        found.server.sources[0].marketplace = marketplace
        crawl.state.begin_listing(marketplace, since=None, fresh=False)
        crawl.state.put_batch(marketplace, Batch([found], None))
        crawl.state.end_listing(marketplace, complete=True)
    (todo,) = crawl.state.todo()
    assert isinstance(todo, Todo)
    assert {s.marketplace for s in todo.server.sources} == {"npm", "registry"}


# --- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def packages() -> Iterator[PackageServer]:
    server = PackageServer()
    yield server
    server.close()


@pytest.fixture
def work() -> Iterator[Path]:
    yield from work_folder()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--names", "x"], "REGISTRY=FILE"),
        (["--package", "x"], "npm:NAME"),
        (["--retry", "x"], "failure class"),
        (["--source", "x", "--no-deploy"], "no source"),
        (["--source", "registry", "--no-deploy"], "registry's address"),
        (["--names", "npm=/nonexistent", "--no-deploy"], "no file"),
        (["--known", "/nonexistent"], "no file /nonexistent"),
        (["--export", "/proc/x"], "folder /proc/x cannot be made"),
        (["--report", "/proc/x"], "folder /proc/x cannot be made"),
        (["--names", "npm=/dev/null", "--no-deploy"], "/dev/null is no regular file"),
        (["--since", "yesterday", "--no-deploy"], "'yesterday' is no date"),
        (["--since", "last", "--no-deploy"], "Nothing was listed here before"),
        (["--python", "/nonexistent", "--no-deploy"], "/nonexistent is no program"),
        (["--npm-client", "foo", "--no-deploy"], "no npm client 'foo'"),
        (["--sandbox", "docker"], "docker"),
    ],
)
def test_bad_input_is_one_sentence(home: Path, tmp_path: Path, options: list[str], said: str) -> None:
    done = run_cli("crawl", "--work", str(tmp_path / "w"), *options, env={"TOOLSCOUT_HOME": str(home)})
    assert done.returncode in (2, 3, 8)
    assert said in done.stderr and "Traceback" not in done.stderr


def test_names_of_a_file_are_taken_whatever_they_look_like(home: Path, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("@x/server-everything\ntides-mcp\ntides-mcp-linux-x64\nmseep-tides-mcp\n")

    def listed(*options: str) -> tuple[int, dict[str, int], str]:
        work = tmp_path / f"w{len(options)}"
        line = ["crawl", "--work", str(work), "--names", f"npm={names}", "--no-deploy", *options]
        report = json.loads(run_cli(*line, "--json", env={"TOOLSCOUT_HOME": str(home)}).stdout)["listed"][0]
        return report["listed"], report["left_out"], run_cli(*line, env={"TOOLSCOUT_HOME": str(home)}).stderr

    by_name = {"a re-upload scope": 1, "one platform's binaries": 1}
    count, left_out, said = listed()
    assert (count, left_out) == (4, by_name)
    assert "npm leaves out 2: 1 (a re-upload scope), 1 (one platform's binaries)." in said
    count, left_out, said = listed("--pattern", "mcp")
    assert (count, left_out) == (3, {"no match for --pattern": 1, **by_name})
    assert "npm leaves out 3: 1 (no match for --pattern)" in said


def test_what_waits_is_taken_in_the_order_of_the_files(crawl: Crawl, tmp_path: Path) -> None:
    packages = [f"p{n}-mcp" for n in range(9)]
    put_listing(crawl, "npm", *(listed.found("npm", name) for name in packages))
    file = tmp_path / "names.txt"
    file.write_text("p7-mcp\np2-mcp\nnot-there-mcp\n")
    wanted = _Wanted([], [f"npm={file}"], [parse("npm:p5-mcp"), parse("npm:p2-mcp")], None, False, "", [])
    assert wanted.in_order() == ["npm/p7-mcp", "npm/p2-mcp", "npm/not-there-mcp", "npm/p5-mcp", "npm/p2-mcp"]
    usual = [todo.server.name for todo in crawl.state.todo()]
    first = [todo.server.name for todo in crawl.state.todo(first=wanted.in_order())]
    assert first[:3] == ["p7-mcp", "p2-mcp", "p5-mcp"]
    assert first[3:] == [name for name in usual if name not in first[:3]], "the rest as ever"


def test_interpreters_that_are_all_too_old_are_noticed(tmp_path: Path) -> None:
    pythons = {name: tmp_path / name for name in ("python3.11", "python3.12", "python3")}
    for name in ("python3.11", "python3.12"):
        pythons[name].touch()
    pythons["python3"].symlink_to("python3.11")
    assert _only_older([pythons["python3"], pythons["python3.11"]])
    assert not _only_older([pythons["python3"], pythons["python3.12"]])
    assert not _only_older([tmp_path / "pypy", pythons["python3.11"]]), "a name that tells nothing"
    assert not _only_older([])


def test_what_was_listed_before_is_listed_again(home: Path, tmp_path: Path) -> None:
    """``--since`` without a source: all of them, as they were set up; what cannot be made again is said."""
    names, config = tmp_path / "names.txt", tmp_path / "team.json"
    names.write_text("a-mcp\n")
    config.write_text(json.dumps({"mcpServers": {"one": {"command": "npx", "args": ["one-mcp"]}}}))
    registries = [McpRegistry([("2026-01-01T00:00:00Z", registry_entry(n))]) for n in (1, 2)]
    env = {"TOOLSCOUT_HOME": str(home), "TOOLSCOUT_REGISTRY_URL": ""}

    def crawled(*options: str) -> tuple[dict[str, tuple[int, int]], str]:
        done = run_cli("crawl", "--work", str(tmp_path / "w"), "--no-deploy", "--json", *options, env=env)
        assert done.returncode == 0, done.stderr
        listings = json.loads(done.stdout)["listed"]
        return {f"{r['source']} {n}": (r["listed"], r["new"]) for n, r in enumerate(listings)}, done.stderr

    try:
        crawled("--names", f"npm={names}", "--config", str(config), "--package", "npm:x")
        for registry in registries:
            crawled("--source", "registry", "--registry-url", registry.site.url)
        names.write_text("a-mcp\nb-mcp\n")
        config.write_text(json.dumps({"mcpServers": {"two": {"command": "npx", "args": ["two-mcp"]}}}))
        registries[1].entries.append(("2099-01-01T00:00:00Z", registry_entry(9)))
        listed, said = crawled("--since", "last")
        assert listed == {"npm 0": (2, 1), "clients 1": (1, 1), "registry 2": (0, 0), "registry 3": (1, 1)}, said
        names.unlink()
        listed, said = crawled("--since", "2026-01-01")
        assert listed == {"clients 0": (1, 0), "registry 1": (1, 0), "registry 2": (2, 0)}
        assert "npm is not listed again: There is no file" in said
        asked = registries[1].site.asked[-1]
        assert "updated_since=2026-01-01T00%3A00%3A00Z" in asked
    finally:
        for registry in registries:
            registry.site.close()


@needs_sandbox
@needs_node
def test_a_killed_crawl_goes_on_without_repeating(packages: PackageServer, work: Path, home: Path) -> None:
    """Killed without warning in the middle of a deployment: nothing stays running, and the rest is done later, once."""
    env = {**packages.environment(), "TOOLSCOUT_HOME": str(home)}
    for name in ("UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL"):
        env[name] = ""
    wanted = ["npm:several-commands-mcp", "npm:silent-mcp", "npm:modern-mcp"]
    options = ["--work", str(work), "--workers", "1", *(w for name in wanted for w in ("--package", name))]
    line = [sys.executable, "-m", "toolscout", "crawl", *options]
    silent = f"{work}/installs/0/node_modules/silent-mcp/index.js"
    first = subprocess.Popen(line, env={**os.environ, **env}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not processes_with(silent, program="node") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert processes_with(silent, program="node")
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait()
    deadline = time.monotonic() + 10
    while processes_with(silent) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_with(silent) == [], "the sandbox outlived the crawl"
    fetched = len([p for p in packages.asked if p.startswith("/tarball/several-commands-mcp")])
    out = work / "out"
    done = run_cli(
        "crawl", "--work", str(work), "--seconds", "5", "--export", str(out), "--report", str(out), "--json", env=env
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["deployed"]["done"], told["deployed"]["ok"]) == (2, 1)
    assert told["export"]["servers"] == 2
    assert len([p for p in packages.asked if p.startswith("/tarball/several-commands-mcp")]) == fetched
    assert {s.server_id for s in read_records(out / "servers.jsonl.gz", Server)} == {
        "npm/several-commands-mcp",
        "npm/modern-mcp",
    }
    assert list((work / "installs").glob("*")) == [] and list((work / "trash").glob("*")) == []


@needs_sandbox
@needs_node
@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_crawl_that_is_asked_to_stop(packages: PackageServer, work: Path, home: Path, sent: signal.Signals) -> None:
    """At once, in one line, with nothing left behind; also where a shell made it ignore SIGINT, as background jobs."""
    env = {**os.environ, **packages.environment(), "TOOLSCOUT_HOME": str(home)}
    line = [sys.executable, "-m", "toolscout", "crawl", "--work", str(work), "--package", "npm:silent-mcp"]
    if sent == signal.SIGTERM:
        line = ["/bin/sh", "-c", 'trap "" INT; exec "$@"', "sh", *line]
    silent = f"{work}/installs/0/node_modules/silent-mcp/index.js"
    running = subprocess.Popen(line, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not processes_with(silent, program="node") and time.monotonic() < deadline:
        time.sleep(0.05)
    running.send_signal(sent)
    _, said = running.communicate(timeout=20)
    assert running.returncode == 130 and "Traceback" not in said, said
    assert processes_with(silent) == []
    assert list((work / "installs").glob("*")) == [] and list((work / "trash").glob("*")) == []


@needs_sandbox
@needs_node
def test_a_crawl_ends_in_the_catalogue_and_is_found(packages: PackageServer, work: Path, home: Path) -> None:
    env = {**packages.environment(), "TOOLSCOUT_HOME": str(home)}
    packages.publish_npm(
        PACKAGES / "npm" / "weather-mcp",
        name="tides-mcp",
        files={
            "index.js": "require('tiny-mcp').serve('tides', [{ name: 'high_tide', inputSchema: { type: 'object' }, "
            "description: 'When is high tide at a harbour, and how high does the sea rise there?' }])"
        },
    )
    names = work / "names.txt"
    names.write_text("tides-mcp\ntides-mcp-linux-x64\n")
    done = run_cli("crawl", "--work", str(work), "--names", f"npm={names}", "--catalog", "--json", env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["catalog"]["tools"] == 1
    assert run_cli("index", "build", env=env).returncode == 0
    found = run_cli("find", "when is high tide in the harbour", "--json", env=env)
    assert found.returncode == 0, found.stdout
    first = json.loads(found.stdout)["tools"][0]
    assert first["tool_id"] == "npm/tides-mcp/high_tide"
    assert first["state"] == "needs_install"


@pytest.mark.parametrize(
    ("usage", "word"),
    [
        ("Commands:\n  install   Write a configuration\n  serve     Run the MCP server", "serve"),
        ("Commands:\n  run <script>   Run a script\n  tool mcp       Speak MCP over stdio", "mcp"),
        ("Usage: x {init,start,stop} ...", "start"),
        ("Usage: x <login|mcp|logout>", "mcp"),
        ("usage: x [-h] --path PATH\n  --path PATH  where to start", ""),
        ("Error: run npm install first", ""),
    ],
)
def test_the_subcommand_that_serves(usage: str, word: str) -> None:
    assert subcommand(usage) == word


@needs_sandbox
@needs_node
def test_a_named_package_that_fails_says_why_and_is_tried_again(
    packages: PackageServer, work: Path, home: Path
) -> None:
    env = {**packages.environment(), "TOOLSCOUT_HOME": str(home)}
    packages.publish_npm(PACKAGES / "npm" / "weather-mcp", name="climate-mcp", version="1.0.0")
    line = ["crawl", "--work", str(work), "--package"]
    wrong = run_cli(*line, "npm:climate-mcp@99.9.9", env=env)
    assert wrong.returncode == 5
    assert "npm/climate-mcp gave no tools: install (not_there)" in wrong.stderr and "Traceback" not in wrong.stderr
    right = run_cli(*line, "npm:climate-mcp", "--json", env=env)
    assert right.returncode == 0, right.stderr
    assert json.loads(right.stdout)["deployed"]["ok"] == 1
    again = run_cli(*line, "npm:climate-mcp", env=env)
    assert again.returncode == 0 and "Nothing waited" in again.stderr + again.stdout
