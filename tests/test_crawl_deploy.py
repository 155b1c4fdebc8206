"""Every trap that a trial crawl of the registries met, each with a small local package that shows it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crawl_registry import PACKAGES, PackageServer, served
from crawl_work import LIMITS, SANDBOXES, deployer, needs_node, needs_sandbox, processes_with, work_folder

from toolscout.crawler.deploy import Outcome
from toolscout.crawler.fetch import Fetcher
from toolscout.crawler.limits import Limits
from toolscout.crawler.records import server_record, tool_records
from toolscout.crawler.sources.names import found
from toolscout.crawler.sources.pypi import published
from toolscout.records import ServerState

pytestmark = needs_sandbox


@pytest.fixture(scope="module")
def packages() -> Iterator[PackageServer]:
    yield from served(SECRET_OF_THE_CALLER="never to be seen")


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    yield from work_folder()


async def deploy(work: Path, spec: str, limits: Limits = LIMITS, sandbox: int = 0) -> Outcome:
    registry, _, package = spec.partition(":")
    made = deployer(work, SANDBOXES[sandbox](), limits)

    async def when(version: str) -> str | None:
        async with Fetcher(backoff=0.01) as fetcher:
            return await published(fetcher, package, version)

    try:
        return await made.deploy(registry, package, published=when)
    finally:
        await made.tidy()
        assert list((work / "installs").glob("*")) == []
        assert list((work / "trash").glob("*")) == []


def names(outcome: Outcome) -> list[str]:
    assert outcome.verdict is None, outcome.verdict
    assert outcome.listing is not None
    return [tool["name"] for tool in outcome.listing.tools]


@needs_node
async def test_noise_pages_and_odd_schemas(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "npm:odd-schemas-mcp")
    assert names(outcome) == ["plain", "no_description", "list_type", "no_object", "天气", "plain"]
    assert outcome.listing is not None
    assert (outcome.listing.noise, outcome.listing.odd, outcome.listing.pages) == (2, 2, 2)
    tools = {t.name: t for t in tool_records("npm/odd-schemas-mcp", outcome.listing.tools, "2026-01-01T00:00:00Z")}
    assert len(tools) == 5
    assert tools["plain"].description == "The tool plain."
    assert tools["no_object"].input_schema == {}
    assert tools["list_type"].input_schema["properties"]["a"]["type"] == ["string", "null"]
    assert tools["天气"].title == "天气" and tools["天气"].read_only
    assert all(t.fingerprint == t.computed_fingerprint() for t in tools.values())
    server = server_record(found("npm", "odd-schemas-mcp").server, outcome, "2026-01-01T00:00:00Z")
    assert (server.server_id, server.name, server.version) == ("npm/odd-schemas-mcp", "odd", "1.0.0")
    assert server.install.command == "odd-schemas-mcp" and server.install.env == []
    assert server.state is ServerState.NEEDS_INSTALL and server.license == "Apache-2.0"


@needs_node
async def test_a_server_of_the_stateless_era(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "npm:modern-mcp")
    assert names(outcome) == ["now"]
    assert outcome.listing is not None
    assert (outcome.listing.era, outcome.listing.protocol_version) == ("modern", "2026-07-28")
    assert outcome.listing.server_info["name"] == "modern" and outcome.listing.instructions == "Be kind."


@needs_node
async def test_tools_that_come_late(packages: PackageServer, work: Path) -> None:
    assert names(await deploy(work, "npm:late-tools-mcp")) == ["late"]


@needs_node
@pytest.mark.parametrize(
    ("package", "tools", "variables"),
    [
        ("keys-one-by-one-mcp", ["charge"], ["ACME_API_KEY", "ACME_BASE_URL"]),
        ("unnamed-key-mcp", ["search"], ["HIDDEN_SERVICE_TOKEN"]),
        ("exclusive-keys-mcp", ["store", "find"], ["VECTOR_URL"]),
        ("configured-tools-mcp", ["read_page"], ["WIKI_API_TOKEN", "WIKI_SITE_URL"]),
    ],
)
async def test_keys(packages: PackageServer, work: Path, package: str, tools: list[str], variables: list[str]) -> None:
    outcome = await deploy(work, f"npm:{package}")
    assert names(outcome) == tools
    assert outcome.needs_key
    server = server_record(found("npm", package).server, outcome, "2026-01-01T00:00:00Z")
    assert server.state is ServerState.NEEDS_KEY
    assert sorted(v.name for v in server.install.env) == variables
    assert outcome.start is not None
    assert not any(value in server.to_json() for value in outcome.start.env.values()), "a dummy value was recorded"


@needs_node
async def test_needs_arguments(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "npm:needs-folder-mcp")
    assert names(outcome) == ["read_note"]
    assert outcome.needs_arguments
    server = server_record(found("npm", "needs-folder-mcp").server, outcome, "2026-01-01T00:00:00Z")
    assert server.install.args == ["<directory>"]


@needs_node
async def test_http_unless_told_otherwise(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "npm:http-first-mcp", replace(LIMITS, seconds=15))
    assert names(outcome) == ["geocode"]
    assert outcome.start is not None and outcome.start.args == ("--stdio",)

    assert outcome.run_seconds < 15, "a server that says where it listens is not waited for"


@needs_node
async def test_a_server_that_is_a_subcommand(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "npm:subcommand-mcp")
    assert names(outcome) == ["list_deeds"]
    assert outcome.start is not None and outcome.start.shown == ("serve",) and not outcome.needs_arguments


@needs_node
async def test_an_end_without_a_word(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "npm:speechless-mcp")
    assert names(outcome) == ["whisper"]
    server = server_record(found("npm", "speechless-mcp").server, outcome, "2026-01-01T00:00:00Z")
    assert server.state is ServerState.NEEDS_KEY
    assert {v.name: v.required for v in server.install.env} == {"QUIET_SERVICE_TOKEN": True, "QUIET_VERBOSE": False}


@needs_node
async def test_typescript_for_another_runtime(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "npm:typescript-mcp")
    if shutil.which("bun") is None:
        assert outcome.verdict is not None and outcome.verdict.cause == "other_runtime", outcome.verdict
    else:
        assert names(outcome) == ["typed"]


@needs_node
async def test_of_several_commands_the_server(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "npm:several-commands-mcp")
    assert names(outcome) == ["real"]
    assert outcome.start is not None and outcome.start.entry.name == "several-commands-mcp-server"


@needs_node
async def test_writing_beside_itself(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "npm:writes-beside-itself-mcp")
    assert names(outcome) == ["remember"]
    assert outcome.starts == 2


@needs_node
@pytest.mark.parametrize(
    ("package", "failure", "causes", "evidence"),
    [
        ("remote-tools-mcp", "protocol_error", ["needs_network"], "fetch failed"),
        ("wizard-mcp", "not_a_server", ["wizard"], "Would you like"),
        ("fetches-binary-mcp", "crashed", ["downloads_at_start"], "EAI_AGAIN"),
        ("needs-redis-mcp", "crashed", ["needs_service"], "ECONNREFUSED"),
        ("native-mcp", "crashed", ["native_module"], "native.node"),
        ("bun-mcp", "crashed", ["other_runtime"], "bun:"),
        ("import-error-mcp", "crashed", ["import_error"], "a-package-that-it-forgot"),
        ("workspace-mcp", "install", ["workspace_reference"], "orkspace"),
        ("file-reference-mcp", "crashed", ["import_error"], "sibling"),
        ("missing-entry-mcp", "no_entry_point", ["missing_file"], "dist/index.js"),
        ("gone-dependency-mcp", "install", ["not_there"], "tiny-mcp"),
        ("not-there-mcp", "install", ["not_there"], "404"),
        ("silent-mcp", "timeout", ["silent"], ""),
        ("crash-mcp", "crashed", ["status_1"], "boom"),
        ("mcp-helpers", "no_entry_point", ["library"], ""),
        ("prompts-only-mcp", "empty_list", ["only_prompts"], ""),
        ("refuses-mcp", "protocol_error", ["refuses_both_eras"], "Not today"),
        ("flood-mcp", "crashed", ["limit"], "MiB"),
    ],
)
async def test_failures(
    packages: PackageServer, work: Path, package: str, failure: str, causes: list[str], evidence: str
) -> None:
    limits = replace(LIMITS, seconds=6 if package == "silent-mcp" else 20, output=4)
    outcome = await deploy(work, f"npm:{package}", limits)
    assert outcome.verdict is not None
    assert (str(outcome.verdict.failure), outcome.verdict.cause) == (failure, causes[0]), outcome.verdict.evidence
    assert evidence in outcome.verdict.evidence


@needs_node
async def test_install_scripts_do_not_run(packages: PackageServer, work: Path) -> None:
    made = deployer(work, SANDBOXES[0]())
    files: set[str] = set()
    made.keep = lambda folder: files.update(p.name for p in folder.rglob("*"))
    await made.deploy("npm", "native-mcp")
    await made.tidy()
    assert "build.js" in files
    assert "SCRIPT_RAN" not in files


@needs_node
async def test_a_tarball_on_another_host_that_hangs(packages: PackageServer, work: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        packages.publish_npm(PACKAGES / "npm" / "weather-mcp", name="elsewhere-mcp")
        packages.elsewhere["elsewhere-mcp"] = f"http://127.0.0.1:{deaf.getsockname()[1]}/x.tgz"
        outcome = await deploy(work, "npm:elsewhere-mcp", replace(LIMITS, install_seconds=8))
    assert outcome.verdict is not None
    assert (str(outcome.verdict.failure), outcome.verdict.cause) == ("install", "timeout")


@needs_node
async def test_an_installation_without_end(packages: PackageServer, work: Path) -> None:
    content = random.Random(0).randbytes(80 << 20)  # npm refuses what unpacks to too many times its size
    packages.publish_npm(PACKAGES / "npm" / "weather-mcp", name="huge-mcp", files={"model.bin": content})
    outcome = await deploy(work, "npm:huge-mcp", replace(LIMITS, install_disk=32))
    assert outcome.verdict is not None
    assert (str(outcome.verdict.failure), outcome.verdict.cause) == ("install", "too_large"), outcome.verdict


async def test_a_dependency_of_today_breaks_a_package_of_yesterday(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "pypi:unpinned-mcp-server")
    assert names(outcome) == ["old_times"]
    assert outcome.installed is not None and outcome.installed.pinned == "2025-05-23T00:00:00Z"
    server = server_record(found("pypi", "unpinned-mcp-server").server, outcome, "2026-01-01T00:00:00Z")
    assert server.install.command == "uvx"
    assert server.install.args[:2] == ["--exclude-newer", "2025-05-23T00:00:00Z"]


async def test_where_only_sources_are_that_old_mcp_alone_is_dated(packages: PackageServer, work: Path) -> None:
    assert names(await deploy(work, "pypi:half-pinned-mcp-server")) == ["shapes"]


async def test_a_module_instead_of_a_command(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "pypi:current-mcp-server")
    assert names(outcome) == ["now", "then"]
    assert outcome.start is not None and outcome.start.entry.name == "python -m current_mcp_server"


async def test_a_key_that_only_a_traceback_names(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "pypi:keyed-mcp-server")
    assert names(outcome) == ["book_True"]
    assert outcome.start is not None and list(outcome.start.env) == ["LEDGER_ACCOUNT_ID"]


async def test_an_option_that_argparse_wants(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "pypi:arguments-mcp-server")
    assert names(outcome) == ["query"]
    assert outcome.start is not None and outcome.start.shown == ("--database-path", "<database file>")


@pytest.mark.parametrize(
    ("package", "failure", "cause"),
    [
        ("future-mcp-server", "install", "needs_python"),
        ("source-mcp-server", "install", "only_source"),
        ("mcp-shapes", "no_entry_point", "library"),
        ("not-there", "install", "not_there"),
    ],
)
async def test_wheels_that_fail(packages: PackageServer, work: Path, package: str, failure: str, cause: str) -> None:
    outcome = await deploy(work, f"pypi:{package}")
    assert outcome.verdict is not None
    assert (str(outcome.verdict.failure), outcome.verdict.cause) == (failure, cause), outcome.verdict.evidence


async def test_bytecode_of_shared_dependencies_is_kept(packages: PackageServer, work: Path) -> None:
    made = deployer(work, SANDBOXES[0]())
    linked: list[bool] = []
    made.keep = lambda folder: linked.append(any(folder.glob("venv/lib/*/site-packages/mcp/__pycache__/*.pyc")))
    for _ in range(3):
        assert names(await made.deploy("pypi", "current-mcp-server")) == ["now", "then"]
    await made.tidy()
    assert linked[-1]
    assert any((work / "bytecode").rglob("mcp-2.0.0/**/*.pyc"))


@needs_node
@pytest.mark.parametrize("sandbox", range(len(SANDBOXES)), ids=[k.name for k in SANDBOXES])
async def test_a_hostile_server_gets_nothing_out(packages: PackageServer, work: Path, sandbox: int) -> None:
    """It writes outside, connects out, forks, fills its disk, ignores signals, prints garbage - and still is listed."""
    home = Path.home()
    outside = work / f"outside-{sandbox}"
    outside.mkdir(exist_ok=True)
    outside.chmod(0o777)
    (outside / "secret").write_text("secret")
    (outside / "secret").chmod(0o644)
    marker = f"7{os.getpid()}{sandbox}"
    with (
        socket.create_server(("127.0.0.1", 0)) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX) as unix,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        udp.bind(("127.0.0.1", 0))
        unix.bind(str(outside / "socket"))
        unix.listen()
        (outside / "socket").chmod(0o777)
        abstract.bind(f"\0toolscout-{marker}")
        abstract.listen()
        for listening in (tcp, udp, unix, abstract):
            listening.setblocking(False)
        forbidden = [outside / "owned", home / "owned", work / "owned", work / "cache" / "owned", Path("/proc/owned")]
        forbidden += [Path(f"/{top}/owned") for top in ("", "etc", "usr", "dev", "sys", "run", "var/tmp", "opt")]
        before = home.stat().st_mtime_ns
        targets = {
            "write": [str(path) for path in forbidden],
            "read": [str(outside / "secret"), f"{work}/crawl.db", "/etc/shadow", f"{home}/.npmrc", "/proc/1/environ/x"],
            "ports": [tcp.getsockname()[1]],
            "sockets": [str(outside / "socket"), f"\0toolscout-{marker}"],
            "udp": udp.getsockname()[1],
            "megabytes": LIMITS.disk * 3,
            "sleep": marker,
        }

        packages.publish_npm(PACKAGES / "npm" / "hostile-mcp", files={"targets.json": json.dumps(targets)})
        outcome = await deploy(work, "npm:hostile-mcp", replace(LIMITS, processes=96, seconds=40), sandbox)
        tools = names(outcome)
        assert outcome.listing is not None
        escapes = [t["description"] for t in outcome.listing.tools if t["name"].startswith("escape_")]
        # Its own /tmp holds a folder of the same name; whether it reached the real one is looked at below.
        escapes = [e for e in escapes if e != f"wrote {work}/owned"]
        if SANDBOXES[sandbox].name == "namespaces":
            escapes = [e for e in escapes if e != "made a namespace"]  # one without any network or file to reach
        assert escapes == []
        assert tools[0] == "nothing"
        for listening in (tcp, unix, abstract):
            with pytest.raises(BlockingIOError):
                listening.accept()
        with pytest.raises(BlockingIOError):
            udp.recv(10)
    assert outcome.listing.noise >= 4
    assert processes_with(f"sleep {marker}") == [], "a child outlived its server"
    assert {p.name for p in outside.iterdir()} == {"secret", "socket"}
    assert [path for path in forbidden if path.exists()] == []
    assert home.stat().st_mtime_ns == before


@needs_node
async def test_memory_is_limited_over_all_its_processes(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "npm:memory-mcp-bomb", replace(LIMITS, memory=512, seconds=20))
    assert outcome.verdict is not None
    assert (str(outcome.verdict.failure), outcome.verdict.cause) == ("crashed", "limit")
    assert "512 MiB of memory" in outcome.verdict.evidence
    assert processes_with("memory-mcp-bomb/index.js") == []


@needs_node
async def test_a_cancelled_deployment_leaves_nothing(packages: PackageServer, work: Path) -> None:
    made = deployer(work, SANDBOXES[0]())
    task = asyncio.create_task(made.deploy("npm", "silent-mcp"))
    for _ in range(600):
        await asyncio.sleep(0.05)
        if processes_with("silent-mcp/index.js"):
            break
    else:
        pytest.fail("it never started")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await made.tidy()
    assert processes_with("silent-mcp/index.js") == []
    assert list((work / "installs").glob("*")) == []


def test_every_package_is_ours() -> None:
    """Packages of tests are small and carry nothing of others."""
    sizes = [p.stat().st_size for p in PACKAGES.rglob("*") if p.is_file()]
    assert len(sizes) > 60 and max(sizes) < 8192
