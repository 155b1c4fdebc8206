"""Marketplaces without an API (or without one that says how a server is started), read by the web agent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from toolscout.crawler.agent.configuration import Configured
from toolscout.crawler.agent.costs import Costs
from toolscout.crawler.agent.decide import Backed, ByModel, ByRules, Decider
from toolscout.crawler.agent.settings import AgentSettings
from toolscout.crawler.agent.site import Rules, Site
from toolscout.crawler.agent.snapshot import Link
from toolscout.crawler.fetch import Fetcher, FetchError
from toolscout.crawler.sources.base import Batch, Found, Source, Verdict, package_id, remote_id
from toolscout.crawler.sources.marketplaces_kept import Kept, moment
from toolscout.records import EnvVar, Install, Server, ServerState, Transport
from toolscout.records import Source as Place

if TYPE_CHECKING:
    from toolscout.crawler.agent.web import Entry, WebAgent

QUERIES = (
    "search", "database", "browser", "files", "git", "email", "calendar", "chat", "weather", "maps", "finance",
    "crypto", "image", "video", "music", "documents", "spreadsheet", "notes", "memory", "code", "testing", "cloud",
    "monitoring", "security", "analytics", "news", "social", "shopping", "travel", "health", "education", "science",
)  # fmt: skip
"""Search words for marketplaces that are listed by search, one list each."""

_DOWN = 5
"""Failures in a row after which a site is taken to be down."""

_PIPEDREAM = "https://remote.mcp.pipedream.net/v3"
_PIPEDREAM_WANTS = ("Authorization", "x-pd-project-id", "x-pd-environment", "x-pd-external-user-id")
"""Headers of its remote server, as documented under "Connect, MCP, Developers"."""


@dataclass(frozen=True)
class _Place:
    """Where a listing goes on: which list, which of its pages, how many presses and scrolls after that."""

    list: int = 0
    url: str = ""
    steps: int = 0

    @classmethod
    def read(cls, cursor: str | None) -> _Place:
        try:
            value = json.loads(cursor or "{}")
            return cls(int(value.get("list", 0)), str(value.get("url", "")), int(value.get("steps", 0)))
        except (ValueError, TypeError, AttributeError):
            return cls()  # of another version: from the start; what is kept is not read again

    def write(self) -> str:
        return json.dumps({"list": self.list, "url": self.url, "steps": self.steps})


class PagesSource(Source):
    """A marketplace by its pages; a new one sets ``name`` and ``site``, and has a file of instructions.

    Args:
        settings: model, browser, delays, other base address, search words.
        costs: books what every server costs; one for all marketplaces of a run.
    """

    incremental: ClassVar[bool] = True

    site: ClassVar[Site]

    def __init__(self, settings: AgentSettings | None = None, costs: Costs | None = None) -> None:
        self._settings = settings or AgentSettings()
        self.costs = costs or Costs(self._settings.price_in, self._settings.price_out)
        self.base = self._settings.bases.get(self.name, self.site.base).rstrip("/")
        self._given, self._unreadable, self._missed = 0, 0, 0

    def lists_all(self) -> bool:
        """See `Source.lists_all`. A page that did not answer is no server that has vanished, and a site on which most
        pages say nothing has rather been redesigned."""
        return self.complete and not self._missed and self._unreadable <= self._given

    async def batches(
        self, fetcher: Fetcher, *, since: str | None = None, cursor: str | None = None
    ) -> AsyncIterator[Batch]:
        """See `Source.batches`. One batch per list page; with ``since``, entries read before it are left out.

        Raises:
            NotFound: no playwright, or no Chromium.
            BadInput: Chromium would run as root, and nobody said that it may.
        """
        from toolscout.crawler.agent.browser import Browser
        from toolscout.crawler.agent.web import WebAgent

        settings = self._settings
        starts = self.site.starts(self.base, tuple(settings.queries) or QUERIES)
        at = _Place.read(cursor)
        kept = Kept(fetcher, self.name, settings.refresh_days)
        given: set[str] = set()
        self._given, self._unreadable, self._missed = 0, 0, 0
        async with AsyncExitStack() as stack:
            browser = await stack.enter_async_context(
                Browser(
                    fetcher,
                    executable=settings.browser,
                    unsandboxed=settings.unsandboxed,
                    delay=settings.page_delay,
                    rest=settings.page_rest,
                )
            )
            agent = WebAgent(browser, self.site, await self._decider(stack), self.costs, self.base)
            for index in range(at.list, len(starts)):
                start, steps = (at.url, at.steps) if index == at.list and at.url else (starts[index], 0)
                async for sheet in agent.sheets(start, steps):
                    batch = await self._batch(agent, sheet.entries, kept, moment(since), given)
                    self._given += len(batch.found)
                    yield Batch(batch.found, _Place(index, sheet.url, sheet.steps + 1).write(), batch.problems)
        yield Batch([], None)

    async def _decider(self, stack: AsyncExitStack) -> Decider:
        rules = ByRules(self.site)
        if not self._settings.model_url:
            return rules
        from toolscout.crawler.agent.model import ChatModel

        settings = self._settings
        model = ChatModel(
            settings.model_url, model=settings.model, key=settings.model_key, timeout=settings.model_timeout
        )
        stack.push_async_callback(model.close)
        by_model = ByModel(self.site, model)
        return Backed(by_model, rules) if settings.fallback else by_model

    async def _batch(self, agent: WebAgent, entries: list[Link], kept: Kept, since: float, given: set[str]) -> Batch:
        found, problems, wanted = self._known(entries, kept, since, given)
        read, failed, passing = await self._read(agent, wanted, kept)
        if wanted and not read and not found:
            other = await agent.second_opinion(entries)
            if other:
                known, _, wanted = self._known(other, kept, since, given)
                read, failed, passing = await self._read(agent, wanted, kept)
                found += known
        if read or found:
            for entry, problem in failed.items():
                kept.put(entry, problem)
        return Batch([*found, *read], None, [*problems, *failed.values(), *passing])

    def _known(
        self, entries: Iterable[Link], kept: Kept, since: float, given: set[str]
    ) -> tuple[list[Found], list[str], list[Link]]:
        """What need not be read: records, problems; and the links that must be."""
        found: list[Found] = []
        problems: list[str] = []
        wanted: list[Link] = []
        for link in entries:
            entry = self.site.entry_id(link.url)
            if entry in given:
                continue
            given.add(entry)
            known = kept.get(entry)
            if known is None:
                wanted.append(link)
            elif isinstance(known[0], str):
                problems.append(known[0])
            elif known[1] >= since:
                found.append(known[0])
        return found, problems, wanted

    async def _read(
        self, agent: WebAgent, wanted: list[Link], kept: Kept
    ) -> tuple[list[Found], dict[str, str], list[str]]:
        """Read entries: records, why others gave none, and what may be there the next time.

        Raises FetchError when the site fails several times in a row.
        """
        from toolscout.crawler.agent.web import Unreadable

        found: list[Found] = []
        failed: dict[str, str] = {}
        passing: list[str] = []
        down = 0
        for link in wanted:
            entry = self.site.entry_id(link.url)
            try:
                record = self._found(entry, await agent.entry(link, 1 / len(wanted)))
            except Unreadable as error:
                failed[entry], down = str(error), 0
                self._unreadable += 1
            except FetchError as error:
                gone = 400 <= error.status < 500 and error.status != 429
                down = 0 if gone else down + 1
                self._missed += not gone
                if down >= _DOWN:
                    raise
                if gone:
                    failed[entry] = str(error)
                else:
                    passing.append(str(error))
            else:
                kept.put(entry, record)
                found.append(record)
                down = 0
        return found, failed, passing

    def _found(self, entry: str, said: Entry) -> Found:
        place = Place(marketplace=self.name, id=entry, url=said.url)
        if said.configured is not None:
            return _configured(self.name, entry, said, said.configured, place)
        wants = [EnvVar(name=n, required=True, secret=n == "Authorization") for n in _PIPEDREAM_WANTS]
        server = Server(
            server_id=remote_id(self.name, entry),
            name=said.name,
            description=said.description,
            sources=[place],
            transport=Transport.HTTP,
            install=Install(registry="url", url=f"{_PIPEDREAM}?app={entry}", env=wants),
            homepage=said.url,
            state=ServerState.NEEDS_KEY,
        )
        return Found(server, Verdict.SERVER, "lists its tools", tools=tuple(said.tools or ()))


class SmitheryPages(PagesSource):
    """Smithery without a key; with one, its API says more."""

    name: ClassVar[str] = "smithery"
    complete = False
    site = Site(
        name="smithery",
        base="https://smithery.ai",
        lists=("/servers?q={query}",),
        rules=Rules(
            entry=r"/servers?/(?P<id>@?[^/]+(?:/[^/]+)?)", reveal=("json", "connect", "show configuration", "install")
        ),
    )


class Glama(PagesSource):
    """Glama's search results, most stars first. Its API wants a key and does not say how a server is started."""

    name: ClassVar[str] = "glama"
    complete = False
    site = Site(
        name="glama",
        base="https://glama.ai",
        lists=("/mcp/servers?query={query}&sort=github-stargazers%3Adesc",),
        rules=Rules(
            entry=r"/mcp/servers/(?!categories/|attributes/)(?P<id>@?[^/]+/[^/]+)",
            reveal=("show more", "read more", "install", "json", "schema"),
        ),
    )


class McpSo(PagesSource):
    """MCP.so: numbered pages, the configuration on a server's page."""

    name: ClassVar[str] = "mcpso"
    site = Site(
        name="mcpso",
        base="https://mcp.so",
        lists=("/servers",),
        rules=Rules(
            entry=r"/servers?/(?P<id>[^/]+(?:/[^/]+)?)", reveal=("server config", "config", "json", "installation")
        ),
    )


class McpHub(PagesSource):
    """MCPHub: more cards by a button, the configuration behind another."""

    name: ClassVar[str] = "mcphub"
    site = Site(
        name="mcphub",
        base="https://mcphub.com",
        lists=("/mcp-servers",),
        rules=Rules(
            entry=r"/mcp-servers/(?P<id>[^/]+/[^/]+)",
            reveal=("show config", "server config", "json", "config", "install"),
        ),
    )


class Pipedream(PagesSource):
    """Pipedream: every app is a server; its page lists the tools, which run at Pipedream only."""

    name: ClassVar[str] = "pipedream"
    site = Site(
        name="pipedream",
        base="https://mcp.pipedream.com",
        lists=("/",),
        lists_tools=True,
        rules=Rules(
            entry=r"/app/(?P<id>[^/]+)",
            advance=("load more", "show more", "more apps"),
            reveal=("show all", "show more", "load more", "more tools"),
            tool=r"/components/(?P<app>[^/]+)/actions/(?P<key>[^/]+)/",
        ),
    )


def _configured(marketplace: str, entry: str, said: Entry, configured: Configured, place: Place) -> Found:
    install = configured.install
    packaged = install.registry in ("npm", "pypi", "oci") and install.package
    server = Server(
        server_id=package_id(install.registry, str(install.package)) if packaged else remote_id(marketplace, entry),
        name=said.name or configured.name or entry,
        description=said.description,
        sources=[place],
        transport=configured.transport,
        install=install,
        version=configured.version,
        homepage=said.homepage,
        popularity=said.popularity,
        state=ServerState.NEEDS_KEY if configured.needs_key else ServerState.NEEDS_INSTALL,
    )
    reason = "states its configuration" if packaged or install.url else "runs from a checkout of its own"
    verdict = Verdict.SERVER if packaged or install.url else Verdict.UNKNOWN
    return Found(server, verdict, reason, marker=configured.version, args=configured.args)
