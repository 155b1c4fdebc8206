"""HTTP for all sources: one polite client with rate limits, retries with back-off, cached pages and robots.txt."""

from __future__ import annotations

import asyncio
import email.utils
import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
from protego import Protego

import toolscout
from toolscout.errors import ToolscoutError

MAX_BYTES = 128 * 1024 * 1024
"""Largest page taken, after decompression."""

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_LONGEST_WAIT = 120.0


class FetchError(ToolscoutError):
    """A page could not be had. ``status`` is the HTTP status, 0 when there was no answer."""

    exit_code = 5

    def __init__(self, message: str, hint: str = "", status: int = 0) -> None:
        super().__init__(message, hint)
        self.status = status


@dataclass(frozen=True)
class Page:
    """One page. ``etag`` is its validator, ``fetched_at`` seconds since the epoch."""

    url: str
    body: bytes
    content_type: str = ""
    etag: str = ""
    fetched_at: float = 0.0
    cached: bool = False

    @property
    def text(self) -> str:
        """The body as text; what is not UTF-8 is replaced."""
        return self.body.decode("utf-8", "replace")

    def json(self) -> Any:
        """The body as JSON. Raises FetchError."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            raise FetchError(f"{_shown(self.url)} did not answer with JSON.") from None


class PageCache(Protocol):
    """Where pages are kept between runs."""

    def get_page(self, url: str) -> Page | None:
        """The kept page, however old."""

    def put_page(self, page: Page) -> None:
        """Keep a page in place of an older one."""


class Fetcher:
    """Fetches pages. Use as ``async with Fetcher(...) as fetcher``.

    Args:
        cache: keeps pages; a page younger than ``max_age`` is not asked for again, an older one is revalidated.
        max_age: seconds that a page stays fresh.
        rate: most requests a second to one host.
        concurrency: most requests at once to one host.
        retries: further tries after a failure that may pass (no answer, 429, 5xx), with doubling waits and jitter;
            ``Retry-After`` is obeyed.
        contact: an address put into the user agent, so that a service can reach whoever crawls.
        headers: sent to every host (an API key belongs into `get`'s headers instead).
    """

    def __init__(
        self,
        cache: PageCache | None = None,
        *,
        max_age: float = 3600.0,
        rate: float = 5.0,
        concurrency: int = 4,
        retries: int = 4,
        timeout: float = 30.0,
        backoff: float = 0.5,
        contact: str = "",
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.user_agent = (
            f"toolscout/{toolscout.__version__} (MCP catalogue crawler{'; ' + contact if contact else ''})"
        )
        self.requests = 0
        """Requests that went out, retries included."""
        self._cache = cache
        self._max_age = max_age
        self._gap = 1.0 / rate if rate > 0 else 0.0
        self._concurrency = concurrency
        self._retries = retries
        self._backoff = backoff
        self._hosts: dict[str, _Host] = {}
        self._robots: dict[str, Protego | None] = {}
        self._client = httpx.AsyncClient(
            follow_redirects=True,
            timeout=timeout,
            headers={"user-agent": self.user_agent},
            transport=transport,
        )

    async def __aenter__(self) -> Fetcher:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.aclose()

    async def get(
        self,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        max_age: float | None = None,
        robots: bool = False,
    ) -> Page:
        """One page, from the cache while it is fresh.

        Args:
            headers: further request headers; pages asked for with an ``authorization`` header are never cached.
            max_age: in place of the fetcher's; 0 always asks (with the kept validator).
            robots: obey the site's robots.txt: for pages made for people, not for APIs.

        Raises:
            FetchError: refused by robots.txt, no answer after all retries, a status of failure, or too large.
        """
        sent = {k.lower(): v for k, v in (headers or {}).items()}
        cache = self._cache if "authorization" not in sent else None
        kept = cache.get_page(_key(url, sent)) if cache else None
        fresh_for = self._max_age if max_age is None else max_age
        if kept is not None and time.time() - kept.fetched_at < fresh_for:
            return Page(url, kept.body, kept.content_type, kept.etag, kept.fetched_at, cached=True)
        if robots and not await self._allowed(url):
            raise FetchError(f"{_shown(url)} must not be crawled: the site's robots.txt says so.", status=403)
        if kept is not None and kept.etag:
            sent["if-none-match"] = kept.etag
        answer = await self._retrying(url, sent)
        body = answer.content
        if answer.status_code == 304 and kept is not None:
            page = Page(url, kept.body, kept.content_type, kept.etag, time.time())
        else:
            page = Page(url, body, answer.headers.get("content-type", ""), answer.headers.get("etag", ""), time.time())
        if cache is not None:
            cache.put_page(Page(_key(url, sent), page.body, page.content_type, page.etag, page.fetched_at))
        return page

    async def json(self, url: str, **options: Any) -> Any:
        """One page as JSON; options and errors as in `get`."""
        headers = {"accept": "application/json", **(options.pop("headers", None) or {})}
        return (await self.get(url, headers=headers, **options)).json()

    async def _retrying(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        host = self._hosts.setdefault(urlsplit(url).netloc, _Host(self._gap, self._concurrency))
        for attempt in range(self._retries + 1):
            wait = min(self._backoff * 2**attempt * (0.5 + random.random()), _LONGEST_WAIT)
            try:
                async with host:
                    self.requests += 1
                    answer = await self._send(url, headers)
            except httpx.InvalidURL as error:
                raise FetchError(f"{url[:200]} is no address: {error}.") from None
            except httpx.HTTPError as error:
                failure = FetchError(f"{_shown(url)} does not answer: {type(error).__name__}.", "Try again later.")
            else:
                if answer.status_code < 400:
                    return answer
                hint = "The address wants a key." if answer.status_code in (401, 403) else ""
                failure = FetchError(
                    f"{_shown(url)} answers with status {answer.status_code}.", hint, answer.status_code
                )
                if answer.status_code not in _RETRIED:
                    raise failure
                wait = max(wait, _retry_after(answer.headers.get("retry-after", "")))
            if attempt == self._retries:
                raise failure
            host.rest(wait)
            await asyncio.sleep(wait)
        raise AssertionError("unreachable")

    async def _send(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        """The whole answer, stopped where it grows too large (a header may lie, or be missing)."""
        async with self._client.stream("GET", url, headers=dict(headers)) as answer:
            body = bytearray()
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > MAX_BYTES:
                    raise FetchError(f"{_shown(url)} is larger than {MAX_BYTES // 2**20} MiB.")
            plain = {k: v for k, v in answer.headers.items() if k not in ("content-encoding", "content-length")}
            return httpx.Response(answer.status_code, headers=plain, content=bytes(body))

    async def crawl_delay(self, url: str) -> float:
        """Seconds between two pages that the site's robots.txt asks for; 0 where it asks for nothing.

        Raises:
            FetchError: robots.txt cannot be had.
        """
        rules = await self._rules(url)
        return float((rules and rules.crawl_delay(self.user_agent)) or 0.0)

    async def _allowed(self, url: str) -> bool:
        rules = await self._rules(url)
        return rules is None or bool(rules.can_fetch(url, self.user_agent))

    async def _rules(self, url: str) -> Protego | None:
        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc}"
        if site not in self._robots:
            try:
                self._robots[site] = Protego.parse((await self._retrying(f"{site}/robots.txt", {})).text)
            except FetchError as error:
                # RFC 9309: no such file means that everything may be crawled; a failing server, that nothing may.
                if not 400 <= error.status < 500:
                    raise
                self._robots[site] = None
        return self._robots[site]


class _Host:
    """One host's turn-taking: at most so many at once, a gap between starts, a rest for all after a failure."""

    def __init__(self, gap: float, concurrency: int) -> None:
        self._gap = gap
        self._next = 0.0
        self._slots = asyncio.Semaphore(concurrency)

    async def __aenter__(self) -> None:
        await self._slots.acquire()
        start = max(time.monotonic(), self._next)
        self._next = start + self._gap
        try:
            await asyncio.sleep(start - time.monotonic())
        except BaseException:
            self._slots.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self._slots.release()

    def rest(self, seconds: float) -> None:
        self._next = max(self._next, time.monotonic() + seconds)


def _retry_after(value: str) -> float:
    """Seconds of a Retry-After header: a number or a date."""
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError):
            return 0.0
    return min(max(seconds, 0.0), _LONGEST_WAIT)


def _key(url: str, headers: Mapping[str, str]) -> str:
    """Cache key: one address may answer in several formats."""
    return f"{url} {headers['accept']}" if "accept" in headers else url


def _shown(url: str) -> str:
    """An address for messages, without user, password and query: keys travel there."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"[:200]
