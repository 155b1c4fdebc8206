"""The web agent with a model and no rules, in Chromium against the local sites: by one that chooses right, one that
chooses wrong, and a real small one (slow)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_endpoint import Endpoint, picks
from marketplace_sites.base import Listed, LocalSite, npx, uvx
from marketplace_sites.chromium import browser, first_of, settings
from marketplace_sites.crawling import Pages, crawl, found, problems
from marketplace_sites.pages import GlamaSite, McpHubSite, McpSoSite, PipedreamSite, SmitherySite
from weights import llama_server, pulled

from toolscout.crawler.agent.costs import Costs
from toolscout.crawler.sources.marketplaces import marketplace

FEW = [
    Listed("Weather", "Forecasts and alerts.", npx("@acme/weather")),
    Listed("Git Tools", "Works on repositories.", uvx("git-tools-mcp")),
    Listed("Gone", "Its page is gone.", status=404),
]
APPS = [Listed("Slack", "Messages.", tools=["send", "read", "find", "pin"]), Listed("Notes", "Notes.", tools=["write"])]
SITES: dict[str, type[LocalSite]] = {
    "smithery": SmitherySite, "glama": GlamaSite, "mcpso": McpSoSite, "mcphub": McpHubSite, "pipedream": PipedreamSite,
}  # fmt: skip
RIGHT = picks(
    r"links /(?:server|mcp|mcp-servers|app)/\.\.\. in (?!link)", r"links /PipedreamHQ/", r'"Next"|"Load',
    r'"JSON"|"Show config"|"Server Config"|"Show more"|"Connect"$|"Show all',
)  # fmt: skip


def site_of(name: str) -> LocalSite:
    """A small local site, two entries on a page."""
    site = SITES[name](list(APPS if name == "pipedream" else FEW))
    site.per_page = 2  # type: ignore[attr-defined]
    return site


def wanted(name: str) -> set[str]:
    """Server ids of `site_of`."""
    return (
        {"pipedream/slack", "pipedream/notes"} if name == "pipedream" else {"npm/@acme/weather", "pypi/git-tools-mcp"}
    )


async def run(site: LocalSite, name: str, url: str, costs: Costs, **more: Any) -> list[Any]:
    """One listing with a model."""
    chosen = settings(site, name, queries=[""], model_url=url, model_timeout=1800, **more)
    return await crawl(marketplace(name, chosen, costs), Pages())


@browser
@pytest.mark.parametrize("name", first_of(SITES))
async def test_a_model_that_chooses_right_needs_no_rules(name: str) -> None:
    costs = Costs(price_in=1.0, price_out=2.0)
    with site_of(name) as site, Endpoint(RIGHT) as endpoint:
        got = await run(site, name, endpoint.url, costs, fallback=False)
        servers = found(got)
        assert set(servers) == wanted(name)
        assert [len(f.tools or ()) for f in servers.values()] == ([4, 1] if name == "pipedream" else [0, 0])
        assert not costs.spent.rules and not costs.spent.overruled
        row = costs.summary()[0]
        assert row["prompt_tokens_per_server"] > 0 and row["price_per_server"] > 0
        # Sections of the site's own instructions were shown, and no question was asked twice.
        assert len(endpoint.questions) == len(set(endpoint.questions))
        assert len(problems(got)) == (0 if name == "pipedream" else 1)


@browser
async def test_a_model_that_chooses_wrong_is_overruled_and_nothing_is_lost() -> None:
    costs = Costs()
    with site_of("mcpso") as site, Endpoint(picks(r"/tag/", r'"Comments"')) as endpoint:
        got = await run(site, "mcpso", endpoint.url, costs)
        assert set(found(got)) == wanted("mcpso") and len(problems(got)) == 1
        assert costs.spent.overruled > 0
    with site_of("mcpso") as site, Endpoint(picks(r"/tag/", r'"Comments"')) as endpoint:
        assert found(await run(site, "mcpso", endpoint.url, Costs(), fallback=False)) == {}


# -- a real small model


@pytest.fixture(scope="module")
def qwen() -> Iterator[str]:
    """Qwen2.5-Coder-0.5B behind llama.cpp's own server; ``TEST_AGENT_GGUF`` names the file, else it is pulled."""
    path = os.environ.get("TEST_AGENT_GGUF")
    with llama_server(Path(path) if path else pulled("qwen2.5-coder-0.5b"), context=4096) as url:
        yield url


@browser
@pytest.mark.slow
@pytest.mark.parametrize("name", SITES)
async def test_a_small_model_backed_by_rules_finds_everything(name: str, qwen: str) -> None:
    costs = Costs(price_in=0.15, price_out=0.6)
    with site_of(name) as site:
        got = await run(site, name, qwen, costs)
        assert set(found(got)) == wanted(name)
        assert costs.spent.model > 0 and costs.summary()[0]["prompt_tokens_per_server"] > 0
    print(name, costs.spent, costs.summary())
