"""The web agent's parts: configurations, snapshots, decisions by a model behind a real endpoint, and what they cost."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from agent_endpoint import Endpoint, picks

from toolscout.crawler.agent.configuration import best, read_command, read_configurations
from toolscout.crawler.agent.costs import Costs, Spent, table
from toolscout.crawler.agent.decide import Backed, ByModel, ByRules, View
from toolscout.crawler.agent.model import ChatModel
from toolscout.crawler.agent.settings import AgentSettings
from toolscout.crawler.agent.snapshot import controls, groups, links, outline, parse
from toolscout.crawler.sources.marketplaces_pages import Glama, McpSo, PagesSource, Pipedream
from toolscout.errors import BadInput, ModelError

# -- configurations


@pytest.mark.parametrize(
    ("entry", "install", "args"),
    [
        ({"command": "npx", "args": ["-y", "@a/b"]}, "npm @a/b", ()),
        ({"command": "npx", "args": ["--yes", "b@1.2.3", "--mode", "fast"]}, "npm b 1.2.3", ("--mode", "fast")),
        ({"command": "npx", "args": ["-y", "b@latest"]}, "npm b", ()),
        ({"command": "npx", "args": ["-y", "-p", "@a/b", "start-b"]}, "npm @a/b start-b", ()),
        ({"command": "/usr/bin/npx.cmd", "args": ["b"]}, "npm b", ()),
        ({"command": "cmd", "args": ["/c", "npx", "-y", "b"]}, "npm b", ()),
        ({"command": "bash", "args": ["-c", "npx -y b"]}, "npm b", ()),
        ({"command": "npx -y b"}, "npm b", ()),
        ({"command": ["npx", "-y", "b"]}, "npm b", ()),
        ({"command": "bunx", "args": ["b"]}, "npm b", ()),
        ({"command": "pnpm", "args": ["dlx", "b"]}, "npm b", ()),
        ({"command": "uvx", "args": ["my_server"]}, "pypi my_server", ()),
        ({"command": "uvx", "args": ["--from", "pkg==2.0", "serve", "--x"]}, "pypi pkg serve 2.0", ("--x",)),
        ({"command": "uvx", "args": ["--python", "3.12", "pkg[all]@1.0"]}, "pypi pkg 1.0", ()),
        ({"command": "uv", "args": ["tool", "run", "pkg"]}, "pypi pkg", ()),
        ({"command": "pipx", "args": ["run", "pkg"]}, "pypi pkg", ()),
        ({"command": "docker", "args": ["run", "-i", "--rm", "-e", "A=b", "x/y:3.1", "go"]}, "oci x/y 3.1", ("go",)),
        ({"command": "npx", "args": ["mcp-remote", "https://a.dev/sse"]}, "url https://a.dev/sse", ()),
        ({"url": "https://a.dev/mcp?key=1"}, "url https://a.dev/mcp", ()),
        # what lies on somebody's own disk is no package
        ({"command": "node", "args": ["/home/me/build/index.js"]}, "none", ()),
        ({"command": "uv", "args": ["--directory", "/path/to/x", "run", "x"]}, "none", ()),
        ({"command": "uvx", "args": ["--from", "git+https://github.com/a/b", "b"]}, "none", ()),
        ({"command": "npx", "args": ["-y", "<your-package>"]}, "none", ()),
        ({"command": "npx", "args": ["github:a/b"]}, "none", ()),
    ],
)
def test_an_entry_as_pages_print_it(entry: dict[str, Any], install: str, args: tuple[str, ...]) -> None:
    found = best(read_configurations(json.dumps({"mcpServers": {"x": entry}})).found)
    assert found is not None
    said = (found.install.registry, found.install.package, found.install.command, found.install.url, found.version)
    assert " ".join(s for s in said if s) == install
    assert found.args == args


def test_no_secret_and_no_path_of_somebody_is_taken() -> None:
    text = """{"mcpServers": {"x": {"command": "npx", "args": ["-y", "b", "--api-key", "sk-live-1", "--token=t0ps3cret",
      "--depth", "2", "/Users/me/files", "--root=~/notes", "YOUR_NAME", "--verbose"],
      "env": {"API_KEY": "sk-live-2", "REGION": "eu", "HOME_DIR": "<dir>", "not a name": "x"}}}}"""
    found = read_configurations(text).found[0]
    shown = ["--api-key", "<key>", "--token=<key>", "--depth", "2", "<directory>", "--root=<directory>", "<value>"]
    assert found.install.args == [*shown, "--verbose"]
    assert len(found.args) == len(shown) + 1 and not re.search("sk-live|s3cret|notes|Users|YOUR", " ".join(found.args))
    assert [(v.name, v.required, v.secret) for v in found.install.env] == [
        ("API_KEY", True, True),
        ("REGION", False, False),
        ("HOME_DIR", True, False),
    ]
    assert found.needs_key and not re.search("sk-live|s3cret|eu|me/files", found.install.to_json())


@pytest.mark.parametrize(
    ("text", "packages", "problems"),
    [
        ('before {"mcpServers": {"a": {"command": "npx", "args": ["a"]}}} after', ["a"], 0),
        ('{ // for Claude\n"mcpServers": {"a": {"command": "npx", "args": ["a",],},}, }', ["a"], 0),
        ('# yaml-ish\n{\n# note\n"mcpServers": {"a": {"command": "npx", "args": ["a"]}}}', ["a"], 0),
        (
            '{"servers": {"a": {"command": "npx", "args": ["a"]}, "b": {"command": "uvx", "args": ["b"]}}}',
            ["a", "b"],
            0,
        ),
        ('{"mcp": {"servers": {"a": {"command": "npx", "args": ["a"]}}}}', ["a"], 0),
        ('{"a": {"command": "npx", "args": ["a"]}}', ["a"], 0),
        ('{"command": "npx", "args": ["a"]}', ["a"], 0),
        ('{"mcpServers": {"a": {"command": "npx", "args": ["-y",', [], 1),
        ('{"mcpServers": {"a": {"command": "npx" "args": []}}}', [], 1),
        ("function f() { return {a: 1}; } body { color: red }", [], 0),
        ('{"command": "ls"} {"mcpServers": {}} {"mcpServers": {"a": {"url": "ftp://x"}}}', [], 0),
        ("{" * 50_000, [], 0),
        ("", [], 0),
    ],
)
def test_configurations_within_a_text(text: str, packages: list[str], problems: int) -> None:
    readout = read_configurations(text)
    assert [f.install.package for f in readout.found] == packages
    assert len(readout.problems) == problems


def test_commands_within_a_text() -> None:
    named = [read_command(line) for line in ("npx -y @a/b", "claude mcp add b -- uvx b", "KEY=1 npx c")]
    assert [n.install.package if n else None for n in named] == ["@a/b", "b", "c"]
    assert not any(read_command(line) for line in ("", "git clone x", "npx", "use npx to start", "rm -rf / -- npx"))


# -- snapshots

LIST = """
- banner [ref=e1]:
  - navigation "Main" [ref=e2]:
    - link "Docs" [ref=e3] [cursor=pointer]:
      - /url: /docs
- main [ref=e4]:
  - heading "Servers" [level=1] [ref=e5]
  - generic [ref=e6]:
    - link "database" [ref=e7]:
      - /url: /tag/database
    - link "browser" [ref=e8]:
      - /url: /tag/browser
  - 'link "Weather: now Forecasts." [ref=e9]':
    - /url: /server/weather/acme
    - 'heading "Weather: now" [level=3] [ref=e10]'
    - paragraph [ref=e11]: Forecasts.
  - link "Git Works." [ref=e12]:
    - /url: /server/git/acme?ref=list#top
    - heading "Git" [level=3] [ref=e13]
    - paragraph [ref=e14]: Works.
  - link [ref=e15]:
    - /url: javascript:void(0)
  - navigation "pagination" [ref=e16]:
    - link "1" [ref=e17]:
      - /url: /servers?page=1
    - link "2" [ref=e18]:
      - /url: /servers?page=2
    - button "Next" [disabled] [ref=e19]
    - button "Load \\"more\\"" [ref=e20]
- contentinfo [ref=e21]:
  - link "Sponsor" [ref=e22]:
    - /url: https://sponsor.invalid/
"""
HERE = "https://m.invalid/servers"


def test_a_snapshot_as_a_tree() -> None:
    root = parse(LIST)
    found = {link.ref: link for link in links(root, HERE)}
    assert found["e9"].title == "Weather: now" and found["e9"].text == "Weather: now Forecasts."
    assert found["e12"].url == "https://m.invalid/server/git/acme?ref=list" and "e15" not in found
    by_prefix = {g.prefix: [link.title for link in g.links] for g in groups(root, HERE)}
    assert by_prefix["/server/"] == ["Weather: now", "Git"] and by_prefix["/tag/"] == ["database", "browser"]
    offered = {c.name: c for c in controls(root, HERE)}
    assert offered["2"].url == "https://m.invalid/servers?page=2" and offered["Next"].disabled
    assert offered['Load "more"'].ref == "e20" and "Docs" not in offered
    assert outline(root).splitlines()[:3] == ["banner", "  navigation: Main", "main"]
    assert len(outline(root, 20)) <= 24


@pytest.mark.parametrize("text", ["", "- [", "key: value", "- a: b: c", "- 5\n- null", "\x00"])
def test_a_snapshot_that_is_none_is_an_empty_page(text: str) -> None:
    assert links(parse(text), HERE) == []


# -- decisions by a model


@pytest.fixture
def view() -> View:
    return View(parse(LIST), HERE, "Start it with npx or so: package @acme/weather, variable WEATHER_KEY.")


async def test_a_model_chooses_among_what_is_there_and_is_asked_once(view: View) -> None:
    with Endpoint(picks("/server/", "Load")) as endpoint:
        decider = ByModel(McpSo.site, ChatModel(endpoint.url))
        assert [e.title for e in await decider.entries(view)] == ["Weather: now", "Git"]
        assert [e.title for e in await decider.entries(view)] == ["Weather: now", "Git"]
        control = await decider.advance(view)
        assert control is not None and control.ref == "e20"
        assert (await decider.advance(view)) == control
        spent = decider.spent.take()
        assert (spent.model, spent.remembered, spent.requests) == (2, 2, 2)
        assert spent.prompt_tokens > 0 and spent.completion_tokens == 14
        first = endpoint.questions[0]
        assert "MCP.so lists servers as cards" in first and "heading: Servers" in first
        assert "sponsor.invalid" not in first.partition("Options:")[2]  # entries are on the site itself


async def test_without_constraints_the_words_have_to_do(view: View) -> None:
    with Endpoint(lambda q, s: f"The answer is {json.dumps(picks('/server/')(q, s))}.", constrained=False) as endpoint:
        decider = ByModel(McpSo.site, ChatModel(endpoint.url))
        assert len(await decider.entries(view)) == 2


@pytest.mark.parametrize("answer", ["", "Yes!", '{"choice": "Q"}', '{"choice": 3}', '["A"]', "{"])
async def test_an_answer_that_is_none_of_the_options_decides_nothing(view: View, answer: str) -> None:
    with Endpoint(lambda q, s: answer) as endpoint:
        decider = ByModel(McpSo.site, ChatModel(endpoint.url))
        assert await decider.entries(view) == [] and await decider.advance(view) is None


async def test_a_model_writes_only_what_the_page_says(view: View) -> None:
    told = {"command": "npx", "args": ["-y", "@acme/weather"], "env": ["WEATHER_KEY", "OTHER_KEY"]}
    with Endpoint(lambda q, s: told) as endpoint:
        found = await ByModel(Glama.site, ChatModel(endpoint.url)).write(view)
        assert found is not None and found.install.package == "@acme/weather"
        assert [v.name for v in found.install.env] == ["WEATHER_KEY"]
    invented = {"command": "npx", "args": ["-y", "@acme/weather-mcp"], "env": []}
    with Endpoint(lambda q, s: invented) as endpoint:
        assert await ByModel(Glama.site, ChatModel(endpoint.url)).write(view) is None


async def test_rules_take_over_where_the_model_leads_nowhere(view: View) -> None:
    with Endpoint(picks("/tag/")) as endpoint:
        model, rules = ByModel(McpSo.site, ChatModel(endpoint.url)), ByRules(McpSo.site)
        decider = Backed(model, rules)
        assert [e.title for e in await decider.entries(view)] == ["database", "browser"]
        assert decider.doubt() and not decider.doubt()
        assert [e.title for e in await decider.entries(view)] == ["Weather: now", "Git"]
        control = await decider.advance(view)
        assert control is not None and control.name == 'Load "more"'
        assert decider.spent.overruled == 2
        wrong = ByModel(McpSo.site, ChatModel(endpoint.url))
        await wrong.entries(view)
        assert wrong.doubt() and await wrong.entries(view) == []


async def test_a_dead_endpoint_is_said_alone_and_does_not_matter_with_rules(view: View) -> None:
    with Endpoint(lambda q, s: "", status=401) as endpoint:
        model = ByModel(McpSo.site, ChatModel(endpoint.url, key="sk-1"))
        with pytest.raises(ModelError, match="status 401") as caught:
            await model.entries(view)
        assert "sk-1" not in caught.value.sentence()
        assert len(await Backed(model, ByRules(McpSo.site)).entries(view)) == 2
    with pytest.raises(BadInput, match="not the address"):
        ChatModel("localhost:8000")


async def test_pages_by_number_have_a_next_one(view: View) -> None:
    first = View(parse(LIST.replace('- button "Load \\"more\\"" [ref=e20]', "- text: end")), HERE)
    control = await ByRules(McpSo.site).advance(first)
    assert control is not None and control.name == "2"
    assert await ByRules(McpSo.site).advance(View(first.root, HERE + "?page=2")) is None


@pytest.mark.parametrize("source", PagesSource.__subclasses__())
def test_every_marketplace_has_instructions_and_an_address_that_settings_override(source: type[PagesSource]) -> None:
    site = source.site
    last = "tools" if site.lists_tools else "configuration"
    assert all(len(site.instructions(section)) > 80 for section in ("entries", "next", last))
    assert site.base.startswith("https://") and source(AgentSettings()).base == site.base
    assert source(AgentSettings(bases={site.name: "http://127.0.0.1:1/"})).base == "http://127.0.0.1:1"
    assert len(site.starts(site.base, ("a b", "c"))) == (2 if "{query}" in site.lists[0] else 1)


def test_what_an_entry_is_called() -> None:
    assert McpSo.site.entry_id("https://mcp.so/server/a%20b/acme") == "a b/acme"
    assert McpSo.site.entry_id("https://mcp.so/servers/new-form") == "new-form"
    assert Pipedream.site.entry_id("https://x.invalid/app/slack") == "slack"
    assert Glama.site.entry_id("https://x.invalid/else/where") == "else/where"


# -- costs


def test_costs_are_booked_per_server_and_failed_pages_count_in() -> None:
    costs = Costs(price_in=2.0, price_out=10.0)
    lists = (4.0, Spent(prompt_tokens=400, completion_tokens=40))
    for server, prompt in (("a", 100), ("b", 300), ("", 200)):
        own = (1.0, Spent(prompt_tokens=prompt, completion_tokens=10))
        costs.record("m", f"https://m.invalid/{server}", server, own=own, shared=lists, share=0.25)
    row = costs.summary()[0]
    assert (row["servers"], row["pages_read"]) == (2, 3)
    assert row["prompt_tokens_per_server"] == (100 + 300 + 200 + 300) / 2
    assert row["completion_tokens_per_server"] == (30 + 30) / 2
    assert row["seconds_per_server"] == 3.0 and row["seconds_median"] == 2.0
    assert row["price"] == pytest.approx((900 * 2 + 60 * 10) / 1e6)
    assert "| m | 2 | 450.0 |" in table(costs.summary())
