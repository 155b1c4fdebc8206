"""Traps of a crawl that stay untold by single features: what servers wait for, what they hide, how much they answer."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from crawl_registry import PACKAGES, PackageServer, served
from crawl_work import LIMITS, SANDBOXES, needs_node, needs_sandbox, run_cli, work_folder
from test_crawl_deploy import deploy, names

from toolscout.crawler.deploy import Deployer
from toolscout.crawler.install.base import Shop, own_folder
from toolscout.crawler.install.pypi import PypiInstaller
from toolscout.crawler.records import server_record, tool_records
from toolscout.crawler.sources.names import found
from toolscout.index.catalogue import Catalogue
from toolscout.jsonl import read_records
from toolscout.records import Review, Server, Tool

pytestmark = needs_sandbox


@pytest.fixture(scope="module")
def packages() -> Iterator[PackageServer]:
    yield from served()


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    yield from work_folder()


# --- what servers wait for -------------------------------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits long for a server that says it speaks HTTP."""
    monkeypatch.setattr("toolscout.crawler.deploy._HTTP_GRACE", 1.0)


@needs_node
async def test_http_unless_a_variable_says_otherwise(packages: PackageServer, work: Path, hasty: None) -> None:
    outcome = await deploy(work, "npm:http-by-variable-mcp")
    assert names(outcome) == ["route"]
    assert outcome.start is not None and outcome.start.args == ()
    server = server_record(found("npm", "http-by-variable-mcp").server, outcome, "2026-01-01T00:00:00Z")
    assert "MCP_TRANSPORT=stdio" in [v.description for v in server.install.env]
    assert not outcome.needs_key, "the value is meant as it is"


@needs_node
async def test_http_unless_an_option_says_otherwise(packages: PackageServer, work: Path, hasty: None) -> None:
    outcome = await deploy(work, "npm:http-by-transport-mcp")
    assert names(outcome) == ["tile"]
    server = server_record(found("npm", "http-by-transport-mcp").server, outcome, "2026-01-01T00:00:00Z")
    assert server.install.args == ["--transport", "stdio"] and server.install.env == []


@needs_node
async def test_http_only_whatever_it_is_told(packages: PackageServer, work: Path, hasty: None) -> None:
    outcome = await deploy(work, "npm:http-only-mcp")
    assert outcome.verdict is not None
    assert (str(outcome.verdict.failure), outcome.verdict.cause) == ("needs_arguments", "http_only")
    assert "3123" in outcome.verdict.evidence
    assert outcome.starts == 6, "as it is, told in four ways, and asked over HTTP"


@needs_node
@pytest.mark.slow
async def test_http_only_is_given_up_soon(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "npm:http-only-mcp", replace(LIMITS, seconds=25))
    assert outcome.verdict is not None and outcome.verdict.cause == "http_only"
    assert outcome.run_seconds < 40


@needs_node
async def test_a_failed_request_instead_of_a_handshake(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "npm:asks-at-once-mcp")
    assert outcome.verdict is not None
    assert "fetch failed" in outcome.verdict.evidence


@pytest.mark.parametrize(
    ("package", "failure", "cause", "evidence"),
    [
        pytest.param("npm:fetches-model-mcp", "crashed", "downloads_at_start", "embed-small", marks=needs_node),
        ("pypi:fetches-model-mcp-server", "crashed", "downloads_at_start", "name resolution"),
        pytest.param("npm:needs-neo4j-mcp", "crashed", "needs_service", "7687", marks=needs_node),
        pytest.param("npm:newer-node-mcp", "crashed", "other_runtime", "Node.js 99", marks=needs_node),
        pytest.param(
            "npm:wraps-uv-mcp",
            "crashed",
            "other_runtime",
            "spawn uvx ENOENT",
            marks=[needs_node, pytest.mark.skipif(shutil.which("uvx") is not None, reason="uvx is here")],
        ),
    ],
)
async def test_what_is_not_here(
    packages: PackageServer, work: Path, package: str, failure: str, cause: str, evidence: str
) -> None:
    outcome = await deploy(work, package)
    assert outcome.verdict is not None
    assert (str(outcome.verdict.failure), outcome.verdict.cause) == (failure, cause), outcome.verdict.evidence
    assert evidence in outcome.verdict.evidence


@needs_node
async def test_engines_are_a_wish(packages: PackageServer, work: Path) -> None:
    """Many packages name a newer Node.js than they need: what runs is listed, and what it asks for is known."""
    outcome = await deploy(work, "npm:only-engines-mcp")
    assert names(outcome) == ["turn"]
    assert outcome.installed is not None and outcome.installed.metadata.requires_runtime == ">=99"


async def test_writing_beside_itself_in_a_wheel(packages: PackageServer, work: Path) -> None:
    outcome = await deploy(work, "pypi:writes-beside-itself-mcp-server")
    assert names(outcome) == ["remember"]
    assert outcome.starts == 2


# --- interpreters ----------------------------------------------------------------------------------------------------

_OLDER = """#!/bin/bash
# An interpreter that calls itself Python 3.10 whenever it is asked.
set -o pipefail
(exec -a "$0" {python} "$@") | sed 's/{version}/3.10/g'
"""


def _older(newer: Path, folder: Path) -> Path:
    """An interpreter that is as old as can be told from outside."""
    older = folder / "python3.10"
    older.write_text(_OLDER.format(python=newer.resolve(), version=re.escape(_said(newer))))
    older.chmod(0o755)
    return older


async def test_a_newer_interpreter_for_a_package_that_wants_one(packages: PackageServer, work: Path) -> None:
    shop = Shop.open(work, LIMITS)
    newer = next((python for python, _ in PypiInstaller(shop).pythons if _said(python) != "3.10"), None)
    if newer is None:
        pytest.skip("no Python newer than 3.10 that the installing user can run")
    older = _older(newer, work)
    installer = PypiInstaller(shop, [older, newer])
    assert [python for python, _ in installer.pythons] == [older, newer], "both are taken for what they call themselves"
    installers = {"pypi": installer}
    asked: list[Path] = []
    once = installer._try

    async def watched(folder: Path, python: Path, *rest: Any) -> tuple[int, str]:
        asked.append(python)
        return await once(folder, python, *rest)

    installer._try = watched  # type: ignore[method-assign]
    made = Deployer(SANDBOXES[0](), work, installers, LIMITS)
    outcome = await made.deploy("pypi", "newer-python-mcp-server")
    assert names(outcome) == [f"python_{_said(newer).replace('.', '_')}"]
    assert asked == [older, newer]
    asked.clear()
    installed = await installer.install(own_folder(work / "installs" / "any"), "current-mcp-server", None)
    assert installed.entries and asked == [older], "the first one is good enough"
    await made.tidy()


def _said(python: Path) -> str:
    """What version an interpreter calls itself."""
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    return subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True).stdout.strip()


# --- large answers ---------------------------------------------------------------------------------------------------


def _large() -> list[dict[str, Any]]:
    """460 tools, more than a megabyte; the first has a schema of 45 kB with references and alternatives."""
    fields = {
        f"field_{n}": {
            "anyOf": [{"$ref": f"#/$defs/part_{n % 40}"}, {"type": ["integer", "null"]}],
            "description": f"Field number {n} of the order, as the office for orders counts them." * 2,
        }
        for n in range(200)
    }
    parts = {
        f"part_{n}": {
            "type": "object",
            "properties": {"value": {"type": ["string", "number", "null"]}},
            "title": f"{n}",
        }
        for n in range(40)
    }
    first = {"type": "object", "properties": fields, "$defs": parts, "required": ["field_0"]}
    tools = [{"name": "order", "description": "Places an order.", "inputSchema": first, "outputSchema": first}]
    text = "Reads one of the many registers of this office, by number and year, and gives its entries. " * 20
    for n in range(1, 460):
        schema = {"type": "object", "properties": {"year": {"type": ["integer", "string"], "description": text[:600]}}}
        tools.append({"name": f"register_{n}", "description": f"{n}. {text}", "inputSchema": schema})
    return tools


@needs_node
async def test_large_answers_are_recorded_whole(packages: PackageServer, work: Path) -> None:
    tools = _large()
    assert len(json.dumps(tools[0]["inputSchema"])) > 45_000 and len(json.dumps(tools)) > 1_000_000
    script = "require('tiny-mcp').serve('large', require('./tools.json'))"
    files = {"index.js": script, "tools.json": json.dumps(tools)}
    packages.publish_npm(PACKAGES / "npm" / "weather-mcp", name="large-mcp", bin={"large-mcp": "index.js"}, files=files)
    outcome = await deploy(work, "npm:large-mcp")
    assert outcome.listing is not None and outcome.listing.tools == tools
    assert (outcome.listing.pages, outcome.listing.noise, outcome.listing.odd) == (1, 0, 0)
    records = tool_records("npm/large-mcp", outcome.listing.tools, "2026-01-01T00:00:00Z")
    kept = [(t.name, t.description, t.input_schema, t.output_schema) for t in records]
    assert kept == [(t["name"], t["description"], t["inputSchema"], t.get("outputSchema")) for t in tools]


# --- what a server sees of who started it ----------------------------------------------------------------------------


@needs_node
@pytest.mark.parametrize("sandbox", range(len(SANDBOXES)), ids=[k.name for k in SANDBOXES])
async def test_nothing_of_the_caller_is_seen(
    packages: PackageServer, work: Path, monkeypatch: pytest.MonkeyPatch, sandbox: int
) -> None:
    callers = work / "caller"
    callers.mkdir(exist_ok=True)
    callers.chmod(0o755)
    (callers / "token").write_text("a-secret-of-the-caller")
    (callers / "token").chmod(0o644)
    monkeypatch.setenv("CALLERS_TOKEN", "a-secret-of-the-caller")
    home = Path.home()
    files = [callers / "token", home / ".bashrc", home / ".ssh/id_rsa", Path("/etc/shadow"), work / "config/.npmrc"]
    folders = [callers, home, work, work / "cache", Path("/home"), Path("/root"), Path(__file__).parent]
    targets = {"files": [str(p) for p in files], "folders": [str(p) for p in folders]}
    packages.publish_npm(PACKAGES / "npm" / "curious-mcp", files={"targets.json": json.dumps(targets)})
    outcome = await deploy(work, "npm:curious-mcp", sandbox=sandbox)
    told = names(outcome)
    assert outcome.listing is not None
    variables = {name.removeprefix("env_") for name in told if name.startswith("env_")}
    assert variables and variables.isdisjoint({"CALLERS_TOKEN", "TOOLSCOUT_HOME"})
    assert not any("secret" in v.lower() or v.lower().startswith(("npm_", "uv_", "pip_")) for v in variables)
    said = json.dumps(outcome.listing.tools)
    assert "a-secret-of-the-caller" not in said
    assert packages.url not in said, "the registry's address is the caller's affair"
    assert [name for name in told if name.startswith("file_")] == []
    seen = {t["name"]: t["description"] for t in outcome.listing.tools if t["name"].startswith("folder_")}
    bare = {name: text for name, text in seen.items() if text not in ("", "installs")}
    assert bare == {}, "a folder of the caller is listed"


# --- a whole crawl: from the names of a registry to an answer of the search ------------------------------------------

_CROPS = re.findall(
    r"\w+",
    "almond apple apricot artichoke asparagus aubergine barley beetroot blackberry cabbage carrot cauliflower "
    "celery cherry chestnut cucumber currant date elderberry fennel fig garlic gooseberry grape hazelnut hop kale "
    "leek lemon lentil lettuce maize medlar melon mulberry nectarine oat olive onion orange parsnip peach pear plum "
    "pumpkin quince radish raspberry spinach walnut",
)
_DOUBTFUL = ["@iflow-mcp/weather-mcp", "iflow-mcp_weather-mcp", "mseep-weather-mcp", "@mseep/weather-mcp"]
_DOUBTFUL += ["weather-mcp-linux-x64", "@weather-mcp/server-darwin-arm64", "weather-mcp-win32-x64-msvc"]
_NAMED = ["weather-mcp", "@copy/weather-mcp-fork", "nameless-one-mcp", "nameless-two-mcp", "poisoned-mcp"]


def _publish(packages: PackageServer, name: str, **files: str) -> None:
    scripts = {"index.js": files["index"]} if "index" in files else {"names.json": files["names"]}
    packages.publish_npm(
        PACKAGES / "npm" / "weather-mcp", name=name, bin={name.split("/")[-1]: "index.js"}, files=scripts
    )


@dataclass(frozen=True)
class Crawled:
    """What one crawl of the local registry left: its own words, its files, and a catalogue that is searched."""

    told: dict[str, Any]
    servers: dict[str, Server]
    tools: dict[str, Tool]
    env: dict[str, str]
    asked: list[str]


@pytest.fixture(scope="module")
def crawled(packages: PackageServer) -> Iterator[Crawled]:
    for crop in _CROPS:
        text = f"Tells when the {crop} is harvested, and how to store the crop of {crop} over the winter."
        tool = {"name": f"harvest_{crop}", "description": text, "inputSchema": {"type": "object"}}
        _publish(packages, f"{crop}-mcp", index=f"require('tiny-mcp').serve('{crop}', [{json.dumps(tool)}])")
    for name in _DOUBTFUL:
        _publish(packages, name, index=(PACKAGES / "npm" / "weather-mcp" / "index.js").read_text())
    crops = [f"{crop}-mcp" for crop in _CROPS]
    _publish(packages, "all-the-package-names", names=json.dumps([*crops, *_DOUBTFUL, *_NAMED, "left-pad"]))
    before = len(packages.asked)
    for work in work_folder():
        env = {"TOOLSCOUT_HOME": str(work / "home")}
        (work / "home").mkdir()
        options = ["--work", str(work / "crawl"), "--export", str(work / "out"), "--catalog", "--json"]
        done = run_cli("crawl", "--source", "npm", *options, env=env)
        assert done.returncode == 0, done.stderr
        assert run_cli("index", "build", env=env).returncode == 0
        servers = {s.server_id: s for s in read_records(work / "out" / "servers.jsonl.gz", Server)}
        tools = {t.tool_id: t for t in read_records(work / "out" / "tools.jsonl.gz", Tool)}
        yield Crawled(json.loads(done.stdout), servers, tools, env, packages.asked[before:])


@needs_node
def test_names_of_the_registry(crawled: Crawled) -> None:
    (listed,) = crawled.told["listed"]
    assert listed["listed"] == len(_CROPS) + len(_DOUBTFUL) + len(_NAMED), "whatever holds 'mcp'"
    assert crawled.told["deployed"]["done"] == crawled.told["deployed"]["ok"] == len(_CROPS) + len(_NAMED)
    assert any(path.startswith("/tarball/all-the-package-names/") for path in crawled.asked)
    for name in [*_DOUBTFUL, "left-pad"]:
        assert not [p for p in crawled.asked if unquote(p).startswith((f"/npm/{name}", f"/tarball/{name}/"))], name
    assert {f"npm/{crop}-mcp/harvest_{crop}" for crop in _CROPS} <= crawled.tools.keys()


@needs_node
def test_copies_are_one_and_nameless_ones_are_not(crawled: Crawled) -> None:
    assert crawled.told["export"]["merged"] == 1
    assert "npm/@copy/weather-mcp-fork" not in crawled.servers
    assert {s.id for s in crawled.servers["npm/weather-mcp"].sources} == {"weather-mcp", "@copy/weather-mcp-fork"}
    assert {"npm/nameless-one-mcp", "npm/nameless-two-mcp"} <= crawled.servers.keys()
    assert {t.name for t in crawled.tools.values() if t.server_id.startswith("npm/nameless")} == {"a", "b", "c", "d"}
    assert not [t for t in crawled.tools.values() if "weather-mcp-fork" in t.tool_id]


_FOUND = {
    "light_lighthouse": ("override", "description"),
    "measure_lighthouse": ("tag_characters", "description"),
    "p\u0430int_lighthouse": ("lookalike_name", "name"),
    "visit_lighthouse": ("stuffing", "description"),
    "close_lighthouse": ("override", "description"),
    "count_lighthouses": ("secret_read", "input_schema.properties.city.description"),
}


@needs_node
def test_poisoned_texts_wait_and_their_harmless_neighbour_is_found(crawled: Crawled) -> None:
    exported = {t.name: t for t in crawled.tools.values() if t.server_id == "npm/poisoned-mcp"}
    with Catalogue(f"sqlite:///{crawled.env['TOOLSCOUT_HOME']}/catalogue.db") as catalogue:
        searched = [k.tool_id for k in catalogue.tool_keys() if k.tool_id.startswith("npm/poisoned-mcp/")]
        stored = {t.name: t for t in catalogue.tools() if t.server_id == "npm/poisoned-mcp"}
    assert len(exported) == 7 and stored.keys() == exported.keys()
    for tools in (exported, stored):
        harmless = tools["paint_lighthouse"]
        assert harmless.review is Review.APPROVED and harmless.findings == []
        poisoned = [t for t in tools.values() if t is not harmless]
        assert {t.review for t in poisoned} == {Review.PENDING}
        assert {t.name: (t.findings[0]["code"], t.findings[0]["where"]) for t in poisoned} == _FOUND
    assert searched == ["npm/poisoned-mcp/paint_lighthouse"]
    done = run_cli(
        "find", "light, measure, paint, visit, count or close a lighthouse", "-n", "50", "--json", env=crawled.env
    )
    assert done.returncode == 0, done.stderr
    told = json.dumps(json.loads(done.stdout), ensure_ascii=False)
    assert "npm/poisoned-mcp/paint_lighthouse" in told
    assert [name for name in exported if f"/{name}" in told] == ["paint_lighthouse"]


@needs_node
def test_a_tool_of_a_server_that_is_not_installed_is_found(crawled: Crawled) -> None:
    done = run_cli("find", "when is the quince harvested?", env=crawled.env)
    assert done.returncode == 0, done.stderr
    first = done.stdout.split("\n")[0].split()
    assert (first[0], first[2]) == ("npm/quince-mcp/harvest_quince", "needs_install")
    assert "toolscout add npm/quince-mcp" in " ".join(done.stderr.split()), "what to do"
    done = run_cli("invoke", "npm/quince-mcp/harvest_quince", env=crawled.env)
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert "toolscout add" in done.stderr and "quince-mcp" in done.stderr, done.stderr
