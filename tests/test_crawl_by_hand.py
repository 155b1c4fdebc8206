"""Recipes: starts written by hand; and servers whose compiled parts are not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from crawl_registry import PACKAGES, PackageServer, served
from crawl_work import SANDBOXES, deployer, needs_node, needs_sandbox, work_folder

from toolscout.crawler import recipes
from toolscout.crawler.deploy import Outcome
from toolscout.crawler.recipes import Recipe, made_up, read_recipes
from toolscout.crawler.records import server_record
from toolscout.crawler.sources.base import package_id
from toolscout.crawler.sources.names import found
from toolscout.records import Server, ServerState

_RECIPE = """
["npm/by-hand-mcp"]
entry = "second"
args = ["--mode", "mcp", { "--token=<key>" = "--token=tk_{hex}" }, { "<directory>" = "/tmp/work/notes" }]
env = { ACME_SITE = "https://acme.invalid/abc", ACME_KEY = "", ACME_PAIR = "AC{hex}/SK{hex}" }
fixed = { TRANSPORT = "stdio" }
files = { "notes/acme.json" = '{"secret": "sec_{hex}"}', "~/.acme" = "x" }
"""
_CODE = """
const { serve, tool } = require('tiny-mcp'), fs = require('node:fs')
if (process.argv.length < 5) { console.error('No.'); process.exit(1) }
const text = [...process.argv.slice(2), process.env.ACME_SITE, process.env.ACME_KEY, process.env.TRANSPORT,
  process.env.ACME_PAIR.split('/')[0],
  fs.readFileSync(process.argv[5] + '/acme.json'), fs.readFileSync(process.env.HOME + '/.acme')].join(' ')
serve('hand', [tool('wave', text)])
"""


@pytest.fixture(scope="module")
def packages() -> Iterator[PackageServer]:
    yield from served()


@pytest.fixture(scope="module")
def work() -> Iterator[Path]:
    yield from work_folder()


async def _deploy(work: Path, name: str, recipe: Recipe | None = None) -> tuple[Outcome, Server]:
    made = deployer(work, SANDBOXES[0]())
    made.recipes = lambda server_id: recipe if server_id == f"npm/{name}" else None
    outcome = await made.deploy("npm", name)
    await made.tidy()
    assert outcome.verdict is None, outcome.verdict
    return outcome, server_record(found("npm", name).server, outcome, "2026-01-01T00:00:00Z")


@needs_sandbox
@needs_node
async def test_a_recipe_is_tried_first_and_leaves_no_dummy(packages: PackageServer, work: Path) -> None:
    recipe = read_recipes(_RECIPE)["npm/by-hand-mcp"]
    bins = {"by-hand-mcp": "first.js", "second": "index.js"}
    files = {"index.js": _CODE, "first.js": "process.exit(1)"}
    packages.publish_npm(PACKAGES / "npm" / "weather-mcp", name="by-hand-mcp", bin=bins, files=files)
    outcome, server = await _deploy(work, "by-hand-mcp", recipe)
    assert outcome.starts == 1 and outcome.listing is not None
    assert (server.install.command, server.state) == ("second", ServerState.NEEDS_KEY)
    assert server.install.args == ["--mode", "mcp", "--token=<key>", "<directory>"]
    assert {v.name: v.description for v in server.install.env} == {
        "ACME_SITE": None,
        "ACME_KEY": None,
        "ACME_PAIR": None,
        "TRANSPORT": "TRANSPORT=stdio",
    }
    said = json.dumps([outcome.listing.tools, server.to_json()])
    assert "<ACME_SITE> <ACME_KEY> stdio" in said
    for ours in ("0123456789abcdef", "acme.invalid", "/tmp/work"):
        assert ours not in said


@needs_sandbox
@needs_node
async def test_what_a_recipe_does_not_start_is_found_out_as_ever(packages: PackageServer, work: Path) -> None:
    outcome, server = await _deploy(work, "needs-folder-mcp", Recipe(args=("--wrong",), shown=("--wrong",)))
    assert server.install.args == ["<directory>"] and outcome.starts > 1


@needs_sandbox
@needs_node
async def test_compiled_parts_that_are_not_there_keep_no_server_from_listing(
    packages: PackageServer, work: Path
) -> None:
    code = """
    const { serve, tool } = require('tiny-mcp'), { Database } = require('./build/Release/native.node')
    const db = new Database('/tmp/work/a.db', async (error) => {
      const rows = (await db.prepare('SELECT 1')).all()
      if (!error) serve('native', [tool('query', `${[...rows].length} rows`)])
    })"""
    packages.publish_npm(PACKAGES / "npm" / "weather-mcp", name="native-tools-mcp", files={"index.js": code})
    outcome, server = await _deploy(work, "native-tools-mcp")
    assert outcome.listing is not None and outcome.listing.tools[0]["description"] == "0 rows"
    assert (server.install.args, server.install.env) == ([], []), "whoever uses it installs it whole"


def test_the_recipes_are_well_written() -> None:
    found = recipes._all()
    assert found
    for server_id, recipe in found.items():
        registry, _, package = server_id.partition("/")
        assert server_id == package_id(registry, package) and registry in ("npm", "pypi")
        assert recipe != replace(Recipe(), http=recipe.http), f"{server_id} says nothing"
        assert not list(made_up(recipe.shown))
        assert all(text not in " ".join(recipe.shown) for text in ("/tmp/", "localhost", "example."))
    with pytest.raises(TypeError, match="argz"):
        read_recipes('["npm/x"]\nargz = []')
