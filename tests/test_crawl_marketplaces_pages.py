"""Marketplaces by their pages: a real Chromium against local sites, by the sites' own rules."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest
from crawl_work import run_cli
from marketplace_sites.base import Listed, LocalSite, npx, uvx
from marketplace_sites.chromium import browser, first_of, settings
from marketplace_sites.crawling import Pages, crawl, found, now, problems
from marketplace_sites.pages import GlamaSite, McpHubSite, McpSoSite, PipedreamSite, SmitherySite

from toolscout.crawler.agent.costs import Costs
from toolscout.crawler.agent.settings import AgentSettings
from toolscout.crawler.fetch import FetchError
from toolscout.crawler.sources.marketplaces import marketplace
from toolscout.errors import BadInput, NotFound
from toolscout.records import ServerState, Transport

SERVERS = [
    Listed("Weather", "Forecasts and alerts.", npx("@acme/weather"), stars=1200),
    Listed("Git Tools", "Works on repositories.", uvx("git-tools-mcp", "--quiet"), stars=310),
    Listed("Mail", "Sends mail.", npx("mail-mcp@1.4.0", MAIL_API_KEY="sk-somebodys-own", LOG_LEVEL="info"), stars=77),
    Listed("Remote", "Runs elsewhere.", {"mcpServers": {"r": {"type": "http", "url": "https://r.acme.dev/mcp?k=1"}}}),
    Listed("Image", "Runs in a container.", {"mcpServers": {"i": {"command": "docker", "args": ["run", "-i", "--rm",
           "-e", "IMG_TOKEN", "acme/image:2.1"]}}}),
    Listed("Gone", "Its page is gone.", status=404),
    Listed("Silent", "States nothing."),
    Listed("Garbled", "Prints nonsense.", '{"mcpServers": {"g": {"command": "npx", "args": ["-y",'),
    Listed("Comments", "Prints comments.", '{ // for Claude\n "mcpServers": {"c": {"command": "uvx", "args": '
           '["commented-mcp"],},},\n}'),
    Listed("Windows", "Wrapped.", {"mcpServers": {"w": {"command": "cmd", "args": ["/c", "npx", "-y", "win-mcp"]}}}),
    Listed("Maps", "Finds places.", npx("@acme/maps"), stars=5),
]  # fmt: skip
READABLE = {
    "npm/@acme/weather", "pypi/git-tools-mcp", "npm/mail-mcp", "oci/acme/image", "pypi/commented-mcp", "npm/win-mcp",
    "npm/@acme/maps",
}  # fmt: skip
"""Server ids of `SERVERS` but for the remote one, whose id begins with the marketplace."""

SITES = {"smithery": SmitherySite, "glama": GlamaSite, "mcpso": McpSoSite, "mcphub": McpHubSite}
REMOTE = {"smithery": "@acme/remote", "glama": "acme/remote", "mcpso": "remote/acme", "mcphub": "acme/remote"}


@browser
@pytest.mark.parametrize("name", first_of(SITES))
async def test_all_servers_of_a_marketplace_are_found(name: str) -> None:
    with SITES[name](list(SERVERS)) as site:
        costs = Costs()
        source = marketplace(name, settings(site, name, queries=[""]), costs)
        got = await crawl(source, Pages())
    servers = found(got)
    assert set(servers) == READABLE | {f"{name}/{REMOTE[name]}"}
    assert got[-1].cursor is None and all(b.cursor for b in got[:-1])
    assert source.lists_all() == (name in ("mcpso", "mcphub"))
    told = sorted(problems(got))
    assert len(told) == 3 and "gone" in told[1] and "garbled" in told[0] and "no JSON" in told[0], told
    weather, mail = servers["npm/@acme/weather"].server, servers["npm/mail-mcp"].server
    assert (weather.name, weather.description) == ("Weather", "Forecasts and alerts.")
    assert weather.sources[0].marketplace == name and weather.sources[0].url.startswith(site.base)
    assert mail.version == "1.4.0" and mail.state is ServerState.NEEDS_KEY
    assert {(v.name, v.required, v.secret) for v in mail.install.env} == {
        ("MAIL_API_KEY", True, True),
        ("LOG_LEVEL", False, False),
    }
    assert "somebodys" not in mail.to_json()
    assert servers["pypi/git-tools-mcp"].args == ("--quiet",)
    remote = servers[f"{name}/{REMOTE[name]}"].server
    assert remote.transport is Transport.HTTP and remote.install.url == "https://r.acme.dev/mcp"
    if name in ("glama", "mcpso"):
        assert weather.popularity == 1200 and weather.homepage == "https://github.com/acme/weather"
    row = costs.summary()[0]
    assert row["marketplace"] == name and row["servers"] == 8 and row["pages_read"] == 11
    assert row["seconds_per_server"] > 0 and row["price"] == 0


APPS = [Listed(f"App {n}", f"Works with app {n}.", tools=[f"do-{k}" for k in range(1, 2 + n % 6)]) for n in range(1, 9)]


@browser
async def test_apps_that_come_by_scrolling_and_all_their_tools() -> None:
    with PipedreamSite([*APPS, Listed("Bare", "No tools."), Listed("Gone", status=404)]) as site:
        got = await crawl(marketplace("pipedream", settings(site, "pipedream")), Pages())
    servers = found(got)
    assert set(servers) == {f"pipedream/{a.slug}" for a in APPS}
    assert len(problems(got)) == 2
    for app in APPS:
        entry = servers[f"pipedream/{app.slug}"]
        assert entry.tools is not None
        assert [t["name"] for t in entry.tools] == [f"{app.slug}-{t}" for t in app.tools]
        assert entry.tools[0]["description"] == f"Runs {app.tools[0]} in {app.name}."
        assert entry.server.state is ServerState.NEEDS_KEY and f"app={app.slug}" in str(entry.server.install.url)


@browser
@pytest.mark.slow
async def test_a_second_run_reads_only_what_is_new() -> None:
    cache = Pages()
    with McpSoSite([SERVERS[0], SERVERS[2], *SERVERS[5:8]]) as site:
        source = marketplace("mcpso", settings(site, "mcpso"))
        first = found(await crawl(source, cache))
        since = now()
        site.servers.insert(0, Listed("Fresh", "New here.", npx("fresh-mcp")))
        site.asked.clear()
        second = await crawl(source, cache, since=since)
        assert set(found(second)) == {"npm/fresh-mcp"}
        assert {p.split("/")[2].split("?")[0] for p in site.opened("/server/")} == {"fresh"}
        site.asked.clear()
        whole = found(await crawl(source, cache))
        assert set(whole) == {*first, "npm/fresh-mcp"}
        assert not site.opened("/server/") and site.opened("/servers")
        assert whole["npm/mail-mcp"] == first["npm/mail-mcp"]


@browser
@pytest.mark.parametrize("name", first_of(["mcpso", "mcphub"]))
async def test_a_stopped_run_goes_on_where_it_was(name: str) -> None:
    with SITES[name]([s for s in SERVERS if s.config and s.name != "Garbled"][:6]) as site:
        site.per_page = 2  # type: ignore[attr-defined]
        source = marketplace(name, settings(site, name))
        begun = await crawl(source, Pages(), batches=2)
        site.asked.clear()
        rest = await crawl(source, Pages(), cursor=begun[-1].cursor)
        assert not set(found(begun)) & set(found(rest))
        assert (len(found(begun)), len(found(rest))) == (4, 2)
        assert not site.opened("/server/weather") and not site.opened("/mcp-servers/acme/weather")


@browser
async def test_searches_give_a_server_once() -> None:
    with GlamaSite(list(SERVERS)) as site:
        got = await crawl(marketplace("glama", settings(site, "glama", queries=["forecasts", "weather"])), Pages())
        assert set(found(got)) == {"npm/@acme/weather"}
        assert len(site.opened("/mcp/servers?query=")) == 2 and len(site.opened("/mcp/servers/acme/weather")) == 1


@browser
async def test_robots_are_obeyed_and_every_request_says_who_asks() -> None:
    forbidden = Listed("Forbidden", "Not for robots.", npx("forbidden-mcp"))
    with McpSoSite([forbidden, SERVERS[0]]) as site:
        site.robots = "User-agent: *\nDisallow: /server/forbidden\nCrawl-delay: 1.5\n"
        got = await crawl(marketplace("mcpso", settings(site, "mcpso")), Pages())
        assert set(found(got)) == {"npm/@acme/weather"}
        assert problems(got) == [
            f"{site.base}/server/forbidden/acme must not be crawled: the site's robots.txt says so."
        ]
        assert not site.opened("/server/forbidden")
        assert site.asked and all("toolscout/" in agent for _, _, agent in site.asked)
        opened = [when for when, path, _ in site.asked if path.startswith("/server")]
        # Its Crawl-delay is 1.5 seconds; the clock is read when a request arrives.
        assert min(b - a for a, b in itertools.pairwise(opened)) > 1.2


class Hostile(LocalSite):
    """A page that tries what a page must not."""

    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, str, str]:
        script = """
          fetch('/post', {method: 'POST', body: 'x'}).catch(() => {});
          fetch('http://localhost:' + location.port + '/own-network').catch(() => {});
          fetch('http://127.0.0.2:' + location.port + '/own-network').catch(() => {});
          window.open('/popup'); alert('stop');
          setTimeout(() => { location.href = 'http://localhost:' + location.port + '/elsewhere'; }, 50);
        """
        body = f"<h1>x</h1><a href='/server/a/b'><h3>A</h3></a><img src=/image.png><script>{script}</script>"
        return 200, "text/html", body + "<iframe src='/frame'></iframe>"


@browser
async def test_a_page_cannot_post_leave_its_site_or_reach_this_machine() -> None:
    with Hostile([]) as site:
        await crawl(marketplace("mcpso", settings(site, "mcpso")), Pages())
        asked = {path for _, path, _ in site.asked}
        assert {"/servers", "/server/a/b"} <= asked
        assert not asked & {"/post", "/own-network", "/elsewhere", "/image.png", "/frame"}


class Down(McpSoSite):
    """Its entries fail, its lists do not."""

    def entry(self, server: Listed, path: str, tab: str) -> tuple[int, str, str]:
        return 503, "text/html", "<h1>Unavailable</h1>"


@browser
async def test_a_site_that_is_down_ends_the_listing_and_is_asked_again_next_time() -> None:
    cache = Pages()
    with Down(list(SERVERS)) as site, pytest.raises(FetchError, match="503"):
        await crawl(marketplace("mcpso", settings(site, "mcpso")), cache)
    assert not [key for key in cache if "kept" in key]


@browser
async def test_a_page_for_humans_only_is_left_alone() -> None:
    class Wall(LocalSite):
        def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> tuple[int, str, str]:
            return 200, "text/html", "<h1>One moment</h1><p>Verify you are human.</p>"

    with Wall([]) as site, pytest.raises(FetchError, match="wants a human"):
        await crawl(marketplace("mcpso", settings(site, "mcpso")), Pages())


async def test_what_is_missing_is_said() -> None:
    with pytest.raises(NotFound, match="no marketplace 'nowhere'"):
        marketplace("nowhere")
    wrong = AgentSettings(browser="/nowhere/chromium", unsandboxed=True)
    with pytest.raises(NotFound, match="Chromium does not start"):
        await crawl(marketplace("mcpso", wrong), Pages())
    if os.geteuid() == 0:
        with pytest.raises(BadInput, match="started as root"):
            await crawl(marketplace("mcpso", AgentSettings()), Pages())


class Flaky(McpSoSite):
    """One entry does not answer this time."""

    def entry(self, server: Listed, path: str, tab: str) -> tuple[int, str, str]:
        if server.name == "Mail" and self.robots:
            return 503, "text/html", "<h1>Unavailable</h1>"
        return super().entry(server, path, tab)


@browser
async def test_an_entry_that_does_not_answer_has_not_vanished() -> None:
    cache = Pages()
    with Flaky(SERVERS[:3]) as site:
        source = marketplace("mcpso", settings(site, "mcpso"))
        first = await crawl(source, cache)
        assert len(found(first)) == 2 and "503" in problems(first)[0] and not source.lists_all()
        site.robots = ""
        assert "npm/mail-mcp" in found(await crawl(source, cache)) and source.lists_all()


@browser
def test_from_the_command_line(tmp_path: Path) -> None:
    """A marketplace is a source like others: its servers wait for deployment, a second run finds nothing new, and the
    report says what reading them took."""
    work, out = tmp_path / "work", tmp_path / "out"
    line = ["crawl", "--source", "mcpso", "--work", str(work), "--no-deploy", "--report", str(out), "--json"]
    with McpSoSite([SERVERS[0], SERVERS[3], SERVERS[5]]) as site:
        env = {
            "TOOLSCOUT_HOME": str(tmp_path),
            "TOOLSCOUT_CRAWL_BASES": json.dumps({"mcpso": site.base}),
            "TOOLSCOUT_CRAWL_UNSANDBOXED": str(os.geteuid() == 0),
            "TOOLSCOUT_CRAWL_PAGE_DELAY": "0.01",
            "TOOLSCOUT_CRAWL_PAGE_REST": "0.3",
        }
        done = run_cli(*line, env=env)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["listed"][0] | {"error": ""} == {
            "source": "mcpso", "listed": 2, "new": 2, "gone": 0, "problems": 1, "error": "",
        }  # fmt: skip
        again = run_cli(*line, env=env)
        assert json.loads(again.stdout)["listed"][0]["new"] == 0
        later = run_cli(*line, "--since", "last", env=env)
        told = json.loads(later.stdout)["listed"][0]
        assert (told["listed"], told["gone"]) == (0, 0), "what was read before is left out, and has not vanished"
    (row,) = json.loads((out / "crawl.json").read_text())["marketplaces"]
    assert (row["marketplace"], row["pages_read"], row["servers"]) == ("mcpso", 3, 2), (
        "the second run read no page again"
    )
    assert row["seconds_per_server"] > 0
    assert "page took" in (out / "crawl.html").read_text()
