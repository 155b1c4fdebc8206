"""HTTP for all sources: one polite client with rate limits, retries with back-off, cached pages and robots.txt."""

from __future__ import annotations

import asyncio
import email.utils
import json
import math
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urljoin, urlsplit

import httpx
from protego import Protego

import toolscout
from toolscout.crawler.reach import by_lookup
from toolscout.errors import ToolscoutError

MAX_BYTES = 128 * 1024 * 1024
"""Largest page taken, after decompression."""

_RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
_LONGEST_WAIT = 120.0
"""Seconds. A host that asks for a longer pause is left alone until then."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_HOPS = 5
_FAR = 4e9
_TRAVELLING = frozenset({"accept", "accept-language", "if-none-match"})
"""Request headers that go along to another site; keys stay with the one they are for."""


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
            ``Retry-After`` is obeyed: one of more than two minutes ends the matter, for this host, until then.
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
            follow_redirects=False,
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
        stay: bool = False,
    ) -> Page:
        """One page, from the cache while it is fresh.

        Redirects are followed as if each address had been asked for: with its own robots.txt and its host's turn. None
        leads from the open network into a private one, nor from https to http.

        Args:
            headers: further request headers; pages asked for with an ``authorization`` header are never cached.
            max_age: in place of the fetcher's; 0 always asks (with the kept validator).
            robots: obey the site's robots.txt: for pages made for people, not for APIs.
            stay: what leads to another host is no page of this one.

        Raises:
            FetchError: refused by robots.txt, no answer after all retries, a status of failure, too large, or a
                redirect that is not followed.
        """
        sent = {k.lower(): v for k, v in (headers or {}).items()}
        cache = self._cache if "authorization" not in sent else None
        kept = cache.get_page(_key(url, sent)) if cache else None
        fresh_for = self._max_age if max_age is None else max_age
        if kept is not None and time.time() - kept.fetched_at < fresh_for:
            return Page(url, kept.body, kept.content_type, kept.etag, kept.fetched_at, cached=True)
        if kept is not None and kept.etag:
            sent["if-none-match"] = kept.etag
        answer = await self._following(url, sent, robots=robots, stay=stay)
        body = answer.content
        if answer.status_code == 304 and kept is not None:
            page = Page(url, kept.body, kept.content_type, kept.etag, time.time())
        else:
            page = Page(url, body, answer.headers.get("content-type", ""), answer.headers.get("etag", ""), time.time())
        if cache is not None:
            cache.put_page(Page(_key(url, sent), page.body, page.content_type, page.etag, page.fetched_at))
        return page

    def has(self, url: str, headers: Mapping[str, str]) -> bool:
        """Whether `get` would answer with a kept page that is fresh, and ask nobody."""
        kept = self._cache.get_page(_key(url, headers)) if self._cache else None
        return kept is not None and time.time() - kept.fetched_at < self._max_age

    async def json(self, url: str, **options: Any) -> Any:
        """One page as JSON; options and errors as in `get`."""
        headers = {"accept": "application/json", **(options.pop("headers", None) or {})}
        return (await self.get(url, headers=headers, **options)).json()

    async def _following(
        self, url: str, headers: Mapping[str, str], *, robots: bool = False, stay: bool = False
    ) -> httpx.Response:
        at, sent = url, headers
        for _ in range(_MOST_HOPS + 1):
            if robots and not await self._allowed(at):
                raise FetchError(f"{_shown(at)} must not be crawled: the site's robots.txt says so.", status=403)
            answer = await self._retrying(at, sent)
            location = answer.headers.get("location", "")
            if answer.status_code not in _REDIRECTS or not location:
                return answer
            to = await _leads(at, location, stay=stay)
            if (urlsplit(to).scheme, _host(to)) != (urlsplit(at).scheme, _host(at)):
                sent = {name: value for name, value in sent.items() if name in _TRAVELLING}
            at = to
        raise FetchError(f"{_shown(url)} is redirected more than {_MOST_HOPS} times.")

    async def _retrying(self, url: str, headers: Mapping[str, str]) -> httpx.Response:
        host = self._hosts.setdefault(_host(url), _Host(self._gap, self._concurrency))
        if host.closed > time.time():
            raise _closed(url, host.closed)
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
                asked = _retry_after(answer.headers.get("retry-after", ""))
                if asked > _LONGEST_WAIT:
                    host.closed = time.time() + asked
                    raise _closed(url, host.closed, answer.status_code)
                wait = max(wait, asked)
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
        site = f"{parts.scheme}://{_host(url)}"
        if site not in self._robots:
            try:
                self._robots[site] = Protego.parse((await self._following(f"{site}/robots.txt", {})).text)
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
        self.closed = 0.0
        """Until when it wants to be left alone, in seconds since the epoch."""
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
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def _closed(url: str, until: float, status: int = 429) -> FetchError:
    moment = time.strftime("%Y-%m-%d %H:%M", time.gmtime(until)) if until < _FAR else "long after today"
    message = f"{_shown(url)} is not asked any more: its host wants to be left alone until {moment} UTC."
    return FetchError(message, "The same command goes on after that.", status)


async def _leads(at: str, location: str, *, stay: bool) -> str:
    """Where a redirect leads. Raises FetchError where it is not followed."""
    try:
        to = urljoin(at, location)
        before, after = urlsplit(at), urlsplit(to)
        host, other, _ = _host(at), _host(to), after.port
    except ValueError:
        raise FetchError(f"{_shown(at)} is redirected to what is no address.") from None
    refused = ""
    if after.scheme not in ("http", "https") or not after.hostname:
        refused = "to what is no address of the web"
    elif before.scheme == "https" and after.scheme == "http":
        refused = "from https to http"
    elif stay and host != other:
        refused = f"to another site, {other[:100]}"
    elif host != other and await by_lookup(after.hostname) < await by_lookup(before.hostname or ""):
        refused = "into a private network"
    if refused:
        raise FetchError(f"{_shown(at)} is redirected {refused}; that is not followed.", status=403)
    return to


def _host(url: str) -> str:
    """Host and port, without user and password: what takes turns."""
    return urlsplit(url).netloc.rpartition("@")[2].lower()


def _key(url: str, headers: Mapping[str, str]) -> str:
    """Cache key: one address may answer in several formats."""
    return f"{url} {headers['accept']}" if "accept" in headers else url


def _shown(url: str) -> str:
    """An address for messages, without user, password and query: keys travel there."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"[:200]
