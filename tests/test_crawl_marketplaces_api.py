"""Marketplaces with an API, against local ones that answer as documented: pages, details, broken rows, increments."""

from __future__ import annotations

from typing import Any

import pytest
from marketplace_sites.base import Listed, LocalSite, Reply, as_json, npx, uvx
from marketplace_sites.crawling import Pages, crawl, found, now, problems

from toolscout.crawler.agent.settings import AgentSettings
from toolscout.crawler.fetch import FetchError
from toolscout.crawler.sources.base import Verdict
from toolscout.crawler.sources.known import MARKETPLACES
from toolscout.crawler.sources.marketplaces import marketplace
from toolscout.crawler.sources.marketplaces_api import DeepNlp, PulseMcp, Smithery
from toolscout.crawler.sources.marketplaces_pages import SmitheryPages
from toolscout.records import ServerState, Transport

FORECAST = {
    "name": "forecast",
    "description": "Weather of a city.",
    "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


class SmitheryApi(LocalSite):
    """``/servers`` with ``page`` and ``pageSize``, ``/servers/NAME``; bearer keys."""

    page_size = 3

    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
        if headers.get("authorization") != "Bearer k-1":
            return 401, "application/json", '{"error": "no key"}'
        if path == "/servers":
            number, size = int(query["page"]), self.page_size
            shown: list[Any] = [
                {
                    "qualifiedName": f"acme/{s.slug}",
                    "displayName": s.name,
                    "description": s.about,
                    "useCount": str(s.stars),
                    "createdAt": "2026-01-05T00:00:00Z",
                    **s.env,
                }
                for s in self.servers[(number - 1) * size : number * size]
            ]
            if number == 1:
                shown.append({"displayName": "Nameless"})
            pages = -(-len(self.servers) // size)
            return as_json({"servers": shown, "pagination": {"currentPage": number, "totalPages": pages}})
        server = self.by_slug(path.rpartition("/")[2])
        if server is None or server.status != 200:
            return server.status if server else 404, "application/json", "{}"
        return as_json({"qualifiedName": f"acme/{server.slug}", **(server.config or {})})


HOSTED = [
    Listed(
        "Weather",
        "Forecasts.",
        {
            "connections": [
                {
                    "type": "http",
                    "deploymentUrl": "https://weather.acme.dev/mcp",
                    "configSchema": {
                        "type": "object",
                        "properties": {"apiKey": {"type": "string", "description": "Key."}, "units": {}},
                        "required": ["apiKey"],
                    },
                }
            ],
            "tools": [FORECAST, "garbled", {"description": "nameless"}],
        },
        stars=12483,
    ),
    Listed("Local", "A bundle.", {"connections": [{"type": "stdio", "bundleUrl": "https://b"}], "tools": [FORECAST]}),
    Listed("Empty", "States nothing.", {"connections": []}),
    Listed("Gone", "No longer.", status=404),
    Listed("Plain", "Without tools.", {"connections": [{"type": "http", "deploymentUrl": "https://plain.acme.dev"}]}),
]


def keyed(site: LocalSite, name: str, **more: Any) -> AgentSettings:
    """Settings for a local API."""
    return AgentSettings(bases={name: site.base}, keys={"smithery": "k-1"}, **more)


async def test_smithery_with_a_key() -> None:
    cache = Pages()
    with SmitheryApi(list(HOSTED)) as site:
        source = marketplace("smithery", keyed(site, "smithery"))
        assert isinstance(source, Smithery)
        got = await crawl(source, cache)
        servers = found(got)
        assert set(servers) == {"smithery/acme/weather", "smithery/acme/local", "smithery/acme/plain"}
        weather = servers["smithery/acme/weather"]
        assert weather.tools == (FORECAST,) and weather.server.transport is Transport.HTTP
        assert weather.server.install.url == "https://weather.acme.dev/mcp" and weather.server.popularity == 12483
        assert [(v.name, v.required, v.secret) for v in weather.server.install.env] == [
            ("apiKey", True, True),
            ("units", False, False),
        ]
        assert weather.server.state is ServerState.NEEDS_KEY
        assert servers["smithery/acme/plain"].tools is None
        assert len(problems(got)) == 3 and "neither an address nor tools" in " ".join(problems(got))
        assert not any("k-1" in str(p) for p in [*problems(got), *cache])

        since = now()
        site.servers += [Listed("Fresh", "New.", HOSTED[4].config)]
        site.asked.clear()
        second = await crawl(marketplace("smithery", keyed(site, "smithery")), cache, since=since)
        assert set(found(second)) == {"smithery/acme/fresh"}
        assert site.opened("/servers/") == ["/servers/acme%2Ffresh"]

        # An entry that says it changed is read again.
        site.servers[0] = Listed("Weather", "Better.", HOSTED[0].config, env={"updatedAt": "2126-01-01T00:00:00Z"})
        third = await crawl(marketplace("smithery", keyed(site, "smithery")), cache, since=now())
        assert set(found(third)) == {"smithery/acme/weather"}
        assert found(third)["smithery/acme/weather"].marker == "2126-01-01T00:00:00Z"


async def test_smithery_goes_on_at_a_cursor_and_says_that_a_key_is_wrong() -> None:
    with SmitheryApi(list(HOSTED)) as site:
        begun = await crawl(marketplace("smithery", keyed(site, "smithery")), Pages(), batches=1)
        rest = await crawl(marketplace("smithery", keyed(site, "smithery")), Pages(), cursor=begun[0].cursor)
        assert set(found(rest)) == {"smithery/acme/plain"}
        wrong = AgentSettings(bases={"smithery": site.base}, keys={"smithery": "other"})
        with pytest.raises(FetchError, match="401") as caught:
            await crawl(marketplace("smithery", wrong), Pages())
        assert "key" in caught.value.hint


def test_smithery_without_a_key_is_read_by_its_pages() -> None:
    assert isinstance(marketplace("smithery", AgentSettings()), SmitheryPages)
    assert [marketplace(name, AgentSettings()).name for name in MARKETPLACES] == list(MARKETPLACES)


class PulseApi(LocalSite):
    """``/servers`` with ``count_per_page`` and ``offset``; ``next`` is an address."""

    rows: list[Any] = []  # noqa: RUF012

    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
        assert path == "/servers"
        if "/" not in headers.get("user-agent", ""):
            return 410, "application/json", "{}"  # as theirs: a user agent must name a version
        size, offset = int(query["count_per_page"]), int(query["offset"])
        more = offset + size < len(self.rows)
        following = f"https://elsewhere.invalid/servers?count_per_page={size}&offset={offset + size}" if more else None
        return as_json({"servers": self.rows[offset : offset + size], "total_count": len(self.rows), "next": following})


def pulse(slug: str, **more: Any) -> dict[str, Any]:
    """A row of PulseMCP."""
    row = {"name": slug.title(), "url": f"https://p.invalid/servers/acme-{slug}", "short_description": f"Does {slug}."}
    return row | {"source_code_url": f"https://github.com/acme/{slug}", "github_stars": 7} | more


async def test_pulsemcp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PulseMcp, "per_page", 3)
    cache = Pages()
    with PulseApi([]) as site:
        site.rows = [  # type: ignore[attr-defined]
            pulse("mail", package_registry="npm", package_name="@acme/mail"),
            pulse("git", package_registry="pypi", package_name="Git_Tools"),
            pulse("far", remotes=[{"transport": "sse", "url_direct": "https://far.acme.dev/sse"}]),
            pulse("code", package_registry=None, package_name=None, remotes=[{"url_direct": None}]),
            "garbled",
            {"name": "No address"},
            pulse("box", package_registry="docker", package_name="acme/box"),
        ]
        got = await crawl(marketplace("pulsemcp", keyed(site, "pulsemcp")), cache)
        servers = found(got)
        assert set(servers) == {
            "npm/@acme/mail",
            "pypi/git-tools",
            "pulsemcp/acme-far",
            "pulsemcp/acme-code",
            "oci/acme/box",
        }
        assert len(got) == 3 and len(problems(got)) == 2 and len(site.asked) == 3
        assert servers["pulsemcp/acme-far"].server.transport is Transport.SSE
        assert servers["pulsemcp/acme-code"].verdict is Verdict.UNKNOWN
        assert servers["npm/@acme/mail"].server.popularity == 7
        since = now()
        site.rows.insert(0, pulse("fresh", package_registry="npm", package_name="fresh"))  # type: ignore[attr-defined]
        assert set(found(await crawl(marketplace("pulsemcp", keyed(site, "pulsemcp")), cache, since=since))) == {
            "npm/fresh"
        }


class DeepNlpApi(LocalSite):
    """Search in list mode by ``page_id``; ``/server/ID`` and ``/tools/ID``."""

    def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
        if path in ("", "/"):
            assert query["mode"] == "list"
            size, at = int(query["count_per_page"]), int(query["page_id"])
            hits = [s for s in self.servers if query["query"] in s.about.lower()][at * size : (at + 1) * size]
            items = [{"id": f"acme/{s.slug}", "content_name": s.name, "description": s.about} for s in hits]
            return as_json({"q": query["query"], "limit": size, "items": [*items, {"id": "", "content_name": "Lost"}]})
        server = self.by_slug(path.rpartition("/")[2])
        if server is None or server.status != 200:
            return 404, "application/json", "{}"
        if path.startswith("/tools/"):
            tools = [{"name": t, "description": f"Runs {t}.", "input_schema": {"type": "object"}} for t in server.tools]
            return as_json({"id": f"/acme/{server.slug}", "tools": tools})
        config = [server.config] if server.config is not None else []
        return as_json({"items": [{"id": f"acme/{server.slug}", "website": "https://w.invalid", "config": config}]})


async def test_deepnlp(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeepNlp, "per_page", 3)
    cache = Pages()
    listed = [
        Listed("Routes", "Finds a way on a map.", npx("@acme/routes", MAPS_API_KEY="YOUR-API-KEY"), tools=["route"]),
        Listed("Tiles", "Draws a map.", uvx("tiles-mcp")),
        Listed("Places", "Points on a map, and search.", tools=["find", "near"]),
        Listed("Nothing", "A map of nothing."),
        Listed("Gone", "No map any more.", status=404),
        Listed("Query", "Only for search.", uvx("query-mcp")),
    ]
    with DeepNlpApi(listed) as site:
        source = marketplace("deepnlp", keyed(site, "deepnlp", queries=["map", "search"]))
        got = await crawl(source, cache)
        servers = found(got)
        assert set(servers) == {"npm/@acme/routes", "pypi/tiles-mcp", "deepnlp/acme/places", "pypi/query-mcp"}
        # What can be installed is asked for its tools itself; what cannot has those that the marketplace states.
        assert servers["npm/@acme/routes"].tools is None and "/tools/acme/routes" not in site.opened("/tools")
        assert [t["name"] for t in servers["deepnlp/acme/places"].tools or ()] == ["find", "near"]
        assert (servers["deepnlp/acme/places"].tools or ({},))[0]["inputSchema"] == {"type": "object"}
        assert servers["npm/@acme/routes"].server.state is ServerState.NEEDS_KEY
        assert "YOUR-API-KEY" not in servers["npm/@acme/routes"].server.to_json()
        assert source.complete is False
        said = " ".join(problems(got))
        assert "acme/nothing" in said and "acme/gone" in said and "without a name" in said
        since = now()
        listed.append(Listed("Fresh", "A new map.", uvx("fresh-mcp")))
        site.asked.clear()
        source = marketplace("deepnlp", keyed(site, "deepnlp", queries=["map", "search"]))
        assert set(found(await crawl(source, cache, since=since))) == {"pypi/fresh-mcp"}
        assert site.opened("/server/") == ["/server/acme/fresh"]


async def test_what_is_no_json_ends_a_listing_with_a_sentence() -> None:
    class Html(LocalSite):
        def page(self, path: str, query: dict[str, str], headers: dict[str, str]) -> Reply:
            return 200, "text/html", "<h1>Hello</h1>"

    with Html([]) as site:
        for name in ("smithery", "pulsemcp", "deepnlp"):
            with pytest.raises(FetchError, match="did not answer with JSON"):
                await crawl(marketplace(name, keyed(site, name)), Pages())
