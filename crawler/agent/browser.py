"""A real browser, held politely: one page after the other, documents through the crawler's own client.

Documents go through `Fetcher`: so robots.txt, rate limits, retries, the user agent and the cache are the same as for
every other source. What a page then loads by itself goes to the site directly, at the same pace; pictures, fonts,
films, foreign frames, posts, and everything on this machine's own network do not. Redirects are followed here, hop by
hop: Chromium would follow them unasked.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from toolscout.crawler.agent.snapshot import Node, parse
from toolscout.crawler.fetch import Fetcher, FetchError
from toolscout.crawler.reach import Reach, by_lookup
from toolscout.errors import BadInput, NotFound, ToolscoutError

if TYPE_CHECKING:
    from playwright.async_api import APIResponse, BrowserContext, Page, Request, Route

_SKIPPED = frozenset({"image", "media", "font", "websocket", "eventsource", "manifest", "texttrack", "ping"})
_ON_PATH = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_HUMANS_ONLY = ("verify you are human", "checking your browser", "enable javascript and cookies to continue")
_SETTLE = 6.0
"""Most seconds for a page to come to rest."""
_MOST_HOPS = 5
_LONGEST_DELAY = 60.0
"""Most seconds between two pages that a site's robots.txt is granted."""


class Browser:
    """A headless Chromium over a fetcher. Use as ``async with Browser(fetcher) as browser``.

    Args:
        executable: path of a Chromium; '' looks on the path, then for Playwright's own.
        unsandboxed: run without Chromium's sandbox (as root there is no other way).
        delay: least seconds between two documents of one host, and between two things that a page loads by itself
            a tenth of it; a site's Crawl-delay wins where it is longer.
        rest: seconds without a change or a request under way after which a page has come to rest.
        timeout: seconds for one page.
    """

    def __init__(
        self,
        fetcher: Fetcher,
        *,
        executable: str = "",
        unsandboxed: bool = False,
        delay: float = 1.0,
        rest: float = 0.5,
        timeout: float = 30.0,
    ) -> None:
        self.pages = 0
        """Documents opened."""
        self._fetcher = fetcher
        self._executable = executable
        self._unsandboxed = unsandboxed
        self._delay = delay
        self._rest = rest
        self._timeout = timeout
        self._next: dict[str, float] = {}
        self._turns: dict[str, asyncio.Lock] = {}
        self._stack = contextlib.AsyncExitStack()
        self._context: BrowserContext | None = None
        self._tabs: dict[Page, Tab] = {}

    async def __aenter__(self) -> Browser:
        try:
            from playwright.async_api import Error, async_playwright
        except ImportError:
            raise NotFound(
                "Playwright is not installed, and this marketplace is read with a browser.",
                "Install it with: pip install 'toolscout[crawl]'",
            ) from None
        if hasattr(os, "geteuid") and os.geteuid() == 0 and not self._unsandboxed:
            raise BadInput(
                "Chromium has no sandbox when it is started as root.",
                "Run the crawl as another user, or set TOOLSCOUT_CRAWL_UNSANDBOXED=1 in a container made for it.",
            )
        try:
            playwright = await self._stack.enter_async_context(async_playwright())
            browser = await playwright.chromium.launch(
                executable_path=self._executable or find_chromium(),
                chromium_sandbox=not self._unsandboxed,
                args=["--disable-dev-shm-usage"],
            )
        except Error as error:
            await self._stack.aclose()
            first = str(error).strip().splitlines()[0][:200]
            raise NotFound(
                f"Chromium does not start: {first}",
                "Install one (Debian: apt-get install chromium), or set TOOLSCOUT_CRAWL_BROWSER to its path.",
            ) from None
        self._stack.push_async_callback(browser.close)
        self._context = await browser.new_context(
            user_agent=self._fetcher.user_agent,
            accept_downloads=False,
            service_workers="block",
            viewport={"width": 1280, "height": 1600},
        )
        await self._context.route("**/*", self._serve)
        self._context.set_default_timeout(self._timeout * 1000)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def tab(self, site: str) -> Tab:
        """A new tab that stays on one site (the host of this address)."""
        assert self._context is not None, "the browser is not open"
        page = await self._context.new_page()
        tab = self._tabs[page] = Tab(self, page, urlsplit(site).netloc)
        page.on("popup", lambda popup: asyncio.ensure_future(popup.close()))
        return tab

    async def _serve(self, route: Route, request: Request) -> None:
        """Everything that any page asks for comes by here; what is no tab's (a popup's) gets nothing."""
        from playwright.async_api import Error

        with contextlib.suppress(Error):  # the page may be gone by now
            tab = self._tabs.get(request.frame.page)
            await (tab._serve(route, request) if tab is not None else route.abort())

    @contextlib.asynccontextmanager
    async def _turn(self, url: str, share: float = 1.0) -> AsyncIterator[None]:
        """This host's turn: one at a time, and the next a pause after this one's end, however slow either side is."""
        host = urlsplit(url).netloc
        pause = await self._pause(url) * share
        async with self._turns.setdefault(host, asyncio.Lock()):
            await asyncio.sleep(self._next.get(host, 0.0) - time.monotonic())
            try:
                yield
            finally:
                self._next[host] = time.monotonic() + pause

    async def _pause(self, url: str) -> float:
        """Seconds between two pages of this site: ours, or what its robots.txt asks for."""
        return max(self._delay, min(await self._fetcher.crawl_delay(url), _LONGEST_DELAY))


class Tab:
    """One tab. It never leaves its site."""

    def __init__(self, browser: Browser, page: Page, host: str) -> None:
        self._browser = browser
        self._page = page
        self._host = host
        self._failure: ToolscoutError | None = None
        self._fresh = False
        self._under_way: set[Request] = set()
        page.on("request", lambda request: self._under_way.add(request))
        page.on("requestfinished", lambda request: self._under_way.discard(request))
        page.on("requestfailed", lambda request: self._under_way.discard(request))

    @property
    def url(self) -> str:
        """Where it is."""
        return self._page.url

    async def open(self, url: str, *, fresh: bool = False) -> Node:
        """Open an address and wait until the page rests. ``fresh`` asks the site even if the page is kept.

        Raises:
            FetchError: robots.txt forbids it, it does not answer, or it wants a human.
        """
        from playwright.async_api import Error

        self._failure, self._fresh = None, fresh
        self._under_way.clear()
        self._browser.pages += 1
        try:
            patience = self._browser._timeout + await self._browser._pause(url)
            await self._page.goto(url, wait_until="domcontentloaded", timeout=patience * 1000)
        except Error as error:
            raise self._failed(url, error) from None
        if self._failure is not None:
            raise self._failure
        root = await self.settle()
        said = (await self.text())[:2000].lower()
        if any(words in said for words in _HUMANS_ONLY):
            raise FetchError(f"{_bare(url)} wants a human to look at it; it is left alone.", status=403)
        return root

    async def press(self, ref: str) -> Node:
        """Press what a snapshot calls by this reference, and wait until the page rests."""
        from playwright.async_api import Error

        self._failure, self._fresh = None, True
        before = self._page.url
        try:
            await self._page.locator(f"aria-ref={ref}").click(timeout=5000)
        except Error as error:
            raise self._failed(before, error) from None
        root = await self.settle()
        if self._failure is not None:
            raise self._failure
        return root

    async def scroll(self) -> Node:
        """Go to the end of the page: what comes only then is there afterwards."""
        await self._page.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)")
        await asyncio.sleep(0.2)
        return await self.settle()

    async def settle(self) -> Node:
        """Wait until nothing changes any more, or the time for that is over."""
        from playwright.async_api import Error

        end = time.monotonic() + _SETTLE
        last, root, since = "", Node("page"), time.monotonic()
        while time.monotonic() < end:
            try:
                now = await self._page.aria_snapshot(mode="ai")
            except Error:
                await asyncio.sleep(0.1)  # it is moving to another page
                continue
            if now != last:
                last, root, since = now, parse(now), time.monotonic()
            elif not self._under_way and time.monotonic() - since >= self._browser._rest and not _loading(root):
                break
            await asyncio.sleep(0.1)
        return root

    async def text(self) -> str:
        """All that can be read on the page, fields included."""
        script = """() => {
            const fields = [...document.querySelectorAll('textarea, input:not([type=hidden]):not([type=password])')]
            return [document.body ? document.body.innerText : '', ...fields.map(f => f.value || '')].join('\\n')
        }"""
        return str(await self._evaluate(script, ""))

    async def about(self) -> tuple[str, str]:
        """The page's title and its own description of itself (the meta element that is made for this)."""
        script = """() => [document.title || '',
            (document.querySelector('meta[name=description], meta[property="og:description"]') || {}).content || '']"""
        title, description = await self._evaluate(script, ["", ""])
        return str(title), str(description)

    async def close(self) -> None:
        """Close it."""
        await self._page.close()

    async def _evaluate(self, script: str, otherwise: Any) -> Any:
        from playwright.async_api import Error

        try:
            return await self._page.evaluate(script)
        except Error:
            return otherwise

    def _failed(self, url: str, error: Exception) -> ToolscoutError:
        first = str(error).strip().splitlines()[0][:120]
        return self._failure or FetchError(f"{_bare(url)} cannot be used in the browser: {first}.")

    async def _serve(self, route: Route, request: Request) -> None:
        try:
            await self._answer(route, request)
        except ToolscoutError as error:
            self._failure = error
            await _stay(route)

    async def _answer(self, route: Route, request: Request) -> None:
        parts = urlsplit(request.url)
        same = parts.netloc == self._host
        if request.is_navigation_request():
            if not same or request.frame.parent_frame is not None or request.method != "GET":
                await _stay(route)
                return
            async with self._browser._turn(request.url):
                page = await self._browser._fetcher.get(
                    request.url, robots=True, stay=True, max_age=0 if self._fresh else None
                )
            await route.fulfill(status=200, body=page.body, content_type=page.content_type or "text/html")
            return
        if (
            request.resource_type in _SKIPPED
            or request.method not in ("GET", "HEAD", "OPTIONS")
            or not await self._may_load(request.url)
        ):
            await route.abort()
            return
        if same and request.resource_type in ("xhr", "fetch"):
            async with self._browser._turn(request.url, 0.1):
                answer = await self._load(route, request.url)
        else:
            answer = await self._load(route, request.url)
        await (route.abort() if answer is None else route.fulfill(response=answer))

    async def _may_load(self, url: str) -> bool:
        """Whether a page may load this by itself: from its own site, and from the open network."""
        parts = urlsplit(url)
        return parts.netloc == self._host or (
            parts.scheme in ("http", "https") and await by_lookup(parts.hostname or "") is Reach.WORLD
        )

    async def _load(self, route: Route, url: str) -> APIResponse | None:
        """What is there, or where it leads to; None where that is out of bounds or does not answer."""
        from playwright.async_api import Error

        try:
            for _ in range(_MOST_HOPS + 1):
                answer = await route.fetch(url=url, max_redirects=0)
                location = answer.headers.get("location", "")
                if not (300 <= answer.status < 400 and location):
                    return answer
                url = urljoin(url, location)
                if not await self._may_load(url):
                    return None
        except (Error, ValueError):
            pass
        return None


async def _stay(route: Route) -> None:
    """Nothing there: Chromium stays where it is. After an abort it would go on to a page of its own, which gets into
    the way of the next address."""
    await route.fulfill(status=204)


def find_chromium() -> str | None:
    """A Chromium of the system; None leaves it to Playwright's own."""
    return next((path for name in _ON_PATH if (path := shutil.which(name))), None)


def _loading(root: Node) -> bool:
    words = ("loading", "loading...", "loading…")
    return any(n.role == "progressbar" or (n.text or n.name).strip().lower() in words for n in root.walk())


def _bare(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"[:200]
