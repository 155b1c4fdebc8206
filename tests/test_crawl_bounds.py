"""Bounds of the crawl: where its requests may lead, and what a server may use up in the real sandbox."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
from agent_endpoint import Endpoint, picks
from crawl_work import SANDBOXES, needs_sandbox
from marketplace_sites.base import Listed, npx
from marketplace_sites.chromium import browser, settings
from marketplace_sites.crawling import Pages, crawl, found
from marketplace_sites.pages import McpSoSite

from toolscout.crawler.agent.costs import Costs, Spent
from toolscout.crawler.crawl import Crawl
from toolscout.crawler.fetch import Fetcher, FetchError
from toolscout.crawler.limits import MIB, Limits
from toolscout.crawler.memory import used
from toolscout.crawler.process import descendants, start
from toolscout.crawler.reach import Reach, by_lookup, by_name
from toolscout.crawler.sandbox import Job, Sandbox
from toolscout.crawler.sources.base import Batch, Source
from toolscout.crawler.sources.marketplaces import marketplace

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


# --- memory ----------------------------------------------------------------------------------------------------------

_BLOCK = "b = bytes(range(256)) * 4096\n"
_MEMFDS = """
import os
for n in range({n} // 10):
  f = os.memfd_create(f"m{{n}}")
  for _ in range(10): os.write(f, b)
"""
_SHARED = "import mmap\nm = mmap.mmap(-1, {n} << 20)\nfor _ in range({n}): m.write(b)\n"
_REST = "print('held', flush=True)\nimport time\ntime.sleep(20)\n"


async def _held(kind: type[Sandbox], code: str, memory: int) -> tuple[list[str], str | None, int]:
    """What a program in the sandbox says within 1.5 s; the limit that it broke; its peak in MiB."""
    import asyncio
    import contextlib

    limits = Limits(seconds=20, memory=memory, disk=32, shared=16)
    running = await start(kind(), Job(["/usr/bin/python3", "-c", code], limits=limits))
    said: list[str] = []

    async def read() -> None:
        async for line in running.lines():
            said.append(line.decode())

    try:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(read(), 1.5)
    finally:
        await running.stop()
    return said, running.broken, running.peak // MIB


@needs_sandbox
@pytest.mark.parametrize("sandbox", SANDBOXES)
@pytest.mark.parametrize(
    "code",
    [_MEMFDS.format(n=200), _SHARED.format(n=200), "import os\nos.fork(), os.fork()\nh = b * 60\n"],
    ids=["memfd", "shared", "private"],
)
async def test_memory_of_every_kind_counts(sandbox: type[Sandbox], code: str) -> None:
    _, broken, peak = await _held(sandbox, _BLOCK + code + _REST, memory=128)
    assert broken is not None and "128 MiB of memory" in broken
    assert peak > 128


@needs_sandbox
@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_memory_that_several_share_counts_once(sandbox: type[Sandbox]) -> None:
    code = _BLOCK + _MEMFDS.format(n=40) + "import mmap\nw = mmap.mmap(f, 10 << 20)\n" + _SHARED.format(n=30)
    fork = "for _ in range(3):\n  if os.fork() == 0: break\nfor k in range(0, 10 << 20, 4096): w[k]\n"
    said, broken, _ = await _held(
        sandbox, code + fork + "for k in range(0, 30 << 20, 4096): m[k]\n" + _REST, memory=160
    )
    assert broken is None and said.count("held") == 4, "70 MiB, which four processes map"


@needs_sandbox
@pytest.mark.parametrize("sandbox", SANDBOXES)
async def test_its_folders_in_memory_are_bounded(sandbox: type[Sandbox]) -> None:
    code = """
for folder in ("/tmp", "/dev/shm", "/var", "/dev", "/"):
    n = 0
    try:
        with open(folder + "/f", "wb", buffering=0) as f:
            while n < 100: n += f.write(b) >> 20
    except OSError: pass
    print(folder, n, flush=True)
"""
    said, _, _ = await _held(sandbox, _BLOCK + code, memory=256)
    assert said == ["/tmp 32", "/dev/shm 16", "/var 0", "/dev 0", "/ 0"]


def test_watching_is_cheap() -> None:
    pids = descendants(os.getpid())
    began = time.perf_counter()
    for _ in range(20):
        used(pids, 1 << 40)
    assert (time.perf_counter() - began) / 20 < 0.02 * len(pids)


# --- costs -----------------------------------------------------------------------------------------------------------


@browser
@pytest.mark.parametrize("choice", [r"/server/", r"/tag/"], ids=["right", "wrong"])
async def test_every_token_is_booked(choice: str) -> None:
    costs = Costs(price_out=1.0)
    entries = [Listed(f"Server {n}", "Does things.", npx(f"@acme/server-{n}")) for n in range(3)]
    site = McpSoSite(entries)
    site.per_page = 2
    with site, Endpoint(picks(choice, r'"Next"')) as endpoint:
        chosen = settings(site, "mcpso", queries=[""], model_url=endpoint.url, model_timeout=60)
        got = await crawl(marketplace("mcpso", chosen, costs), Pages())
        assert len(found(got)) == 3
        assert sum(row.completion_tokens for row in costs.servers) == pytest.approx(7 * len(endpoint.questions))
        assert {row.server_id for row in costs.servers} > {""}, "the end of the list is on no server's account"


class _Failing(Source):
    """A source whose site fails after it has booked something."""

    name: ClassVar[str] = "failing"

    def __init__(self, costs: Costs) -> None:
        self.costs = costs

    async def batches(
        self, fetcher: Fetcher, *, since: str | None = None, cursor: str | None = None
    ) -> AsyncIterator[Batch]:
        spent = Spent(completion_tokens=5, requests=1)
        self.costs.record("failing", "https://a.example/1", "", own=(1.0, spent), shared=(0.0, Spent()), share=0)
        raise FetchError("https://a.example/2 does not answer.")
        yield Batch([], None)


async def test_what_a_failing_site_cost_is_kept(tmp_path: Path) -> None:
    costs = Costs()
    with Crawl(tmp_path) as crawling:
        async with Fetcher() as fetcher:
            [report] = await crawling.list_sources([_Failing(costs)], fetcher, costs=costs)
        assert report.error and [row.completion_tokens for row in crawling.state.costs()] == [5]
