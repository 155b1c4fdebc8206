"""Bounds of the crawl: where its requests may lead, and what a server may use up in the real sandbox."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from marketplace_sites.chromium import browser

from toolscout.crawler.fetch import Fetcher, FetchError
from toolscout.crawler.reach import Reach, by_lookup, by_name

# --- redirects -------------------------------------------------------------------------------------------------------


class Site:
    """A local site that says what it is told to, and remembers what it was asked."""

    def __init__(self, robots: str = "") -> None:
        self.asked: list[str] = []
        self.keys: list[str | None] = []
        self.pages: dict[str, str] = {"/robots.txt": robots, "/page": "a page"}
        self.moved: dict[str, str] = {}
        site = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                site.asked.append(self.path)
                site.keys.append(self.headers.get("x-api-key"))
                body = site.pages.get(self.path, "").encode()
                self.send_response(302 if self.path in site.moved else 200 if self.path in site.pages else 404)
                if self.path in site.moved:
                    self.send_header("location", site.moved[self.path])
                self.send_header("content-type", "text/html")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Gone."""
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Callable[..., Site]]:
    """Makes sites."""
    made: list[Site] = []

    def make(robots: str = "") -> Site:
        made.append(Site(robots))
        return made[-1]

    yield make
    for one in made:
        one.close()


async def test_a_redirect_obeys_the_robots_txt_of_where_it_leads(site: Callable[..., Site]) -> None:
    first, closed, open_ = site(), site("User-agent: *\nDisallow: /\n"), site()
    first.moved = {"/closed": f"{closed.url}/page", "/open": f"{open_.url}/page", "/near": "/page"}
    async with Fetcher(rate=0) as fetcher:
        with pytest.raises(FetchError, match=r"robots\.txt"):
            await fetcher.get(f"{first.url}/closed", robots=True)
        assert closed.asked == ["/robots.txt"]
        assert (await fetcher.get(f"{first.url}/open", robots=True)).text == "a page"
        assert open_.asked == ["/robots.txt", "/page"]
        with pytest.raises(FetchError, match="another site"):
            await fetcher.get(f"{first.url}/open", robots=True, stay=True)
        assert (await fetcher.get(f"{first.url}/near", stay=True)).text == "a page"


async def test_redirects_end_keep_their_keys_and_wait_for_their_turn(site: Callable[..., Site]) -> None:
    first, other = site(), site()
    first.moved = {"/round": "/round", "/away": f"{other.url}/page"}
    async with Fetcher(rate=0) as fetcher:
        with pytest.raises(FetchError, match="more than 5 times"):
            await fetcher.get(f"{first.url}/round")
        assert first.asked == ["/round"] * 6
        await fetcher.get(f"{first.url}/away", headers={"X-Api-Key": "secret"})
        assert first.keys[-1] == "secret" and other.keys == [None]
    other.moved = {"/a": "/b", "/b": "/page"}
    async with Fetcher(rate=10) as fetcher:
        began = time.monotonic()
        await fetcher.get(f"{other.url}/a")
        assert time.monotonic() - began >= 0.19, "each hop is a request: two gaps of a tenth of a second"


@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("http://127.0.0.1:9/x", "private network"),
        ("http://169.254.169.254/latest/meta-data", "private network"),
        ("http://[::ffff:10.0.0.1]/", "private network"),
        ("http://localhost/", "private network"),
        ("http://db.internal/", "private network"),
        ("file:///etc/passwd", "no address"),
        ("http://[broken/", "no address"),
    ],
)
async def test_no_redirect_leads_from_the_open_network_into_a_private_one(location: str, why: str) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.host == "93.184.216.34":
            return httpx.Response(302, headers={"location": location})
        return httpx.Response(200, text="internal")

    async with Fetcher(transport=httpx.MockTransport(answer)) as fetcher:
        with pytest.raises(FetchError, match=why):
            await fetcher.get("http://93.184.216.34/x")
        assert fetcher.requests == 1


async def test_parts_of_the_network() -> None:
    assert [by_name(h) for h in ("example.com", "8.8.8.8", "2606:4700::1111")] == [Reach.WORLD] * 3
    assert [by_name(h) for h in ("10.1.2.3", "nas", "a.lan", "fd00::1", "192.168.0.1")] == [Reach.NETWORK] * 5
    assert [by_name(h) for h in ("127.0.0.2", "[::1]", "x.localhost", "0.0.0.0")] == [Reach.MACHINE] * 4
    assert by_name("169.254.169.254") is Reach.LINK
    assert await by_lookup("localhost") is Reach.MACHINE


async def test_a_long_retry_after_ends_the_matter_until_then() -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(429, headers={"retry-after": "3600"})

    async with Fetcher(transport=httpx.MockTransport(answer)) as fetcher:
        until = time.strftime("%Y-%m-%d %H:", time.gmtime(time.time() + 3600))
        for _ in range(2):
            with pytest.raises(FetchError, match=until):
                await fetcher.get("http://a.example/x")
        assert fetcher.requests == 1, "the host said when: it is not asked before"


@browser
@pytest.mark.slow
async def test_a_page_is_never_another_sites(site: Callable[..., Site]) -> None:
    from toolscout.crawler.agent.browser import Browser

    first, other = site(), site()
    other.pages["/data"] = "stolen"
    first.moved = {"/away": f"{other.url}/page", "/data": f"{other.url}/data", "/near": "/own"}
    first.pages |= {
        "/load": "<h1>Waiting</h1><script>fetch('/data').then(r => r.text()).catch(() => 'nothing').then("
        "t => fetch('/near').then(r => r.text()).then(u => document.body.textContent = t + ' and ' + u))</script>",
        "/own": "our own",
    }
    async with Fetcher(rate=0) as fetcher, Browser(fetcher, unsandboxed=os.geteuid() == 0, delay=0.01) as web:
        tab = await web.tab(first.url)
        with pytest.raises(FetchError, match="another site"):
            await tab.open(f"{first.url}/away")
        await tab.open(f"{first.url}/load")
        assert (await tab.text()).strip() == "nothing and our own"
        assert other.asked == []
