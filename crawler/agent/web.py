"""The web agent: goes through a marketplace's lists and reads its entries, in a real browser."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from urllib.parse import unquote, urljoin

from toolscout.crawler.agent.browser import Browser, Tab
from toolscout.crawler.agent.configuration import Configured, best, read_configurations
from toolscout.crawler.agent.costs import Costs, Spent
from toolscout.crawler.agent.decide import Decider, View
from toolscout.crawler.agent.site import Site
from toolscout.crawler.agent.snapshot import Control, Link, Node, links
from toolscout.crawler.fetch import FetchError
from toolscout.errors import ToolscoutError
from toolscout.records import JsonObject

_REPOSITORY = re.compile(r"https://(?:github|gitlab|codeberg)\.(?:com|org)/[\w.-]+/[\w.-]+")
_STARS = re.compile(r"\b(\d[\d,]*(?:\.\d+)?)\s*([km])?\s*(?:github\s+)?stars\b|stars\s*:?\s+(\d[\d,.]*)([km])?", re.I)
_MOST_SHEETS = 5000
_MOST_REVEALS = 4
_MOST_TOOL_PAGES = 30


class Unreadable(ToolscoutError):
    """An entry's page gave no server. The message says why."""

    exit_code = 5


@dataclass(frozen=True)
class Sheet:
    """One view of a list: the entries that were not on an earlier one, and how to get here again."""

    entries: list[Link]
    url: str
    steps: int
    """Presses and scrolls since ``url`` was opened."""


@dataclass
class Entry:
    """What an entry's page says. Either ``configured`` or ``tools`` is set."""

    url: str
    name: str
    description: str
    homepage: str | None = None
    popularity: float | None = None
    configured: Configured | None = None
    tools: list[JsonObject] | None = None
    problems: list[str] = field(default_factory=list)


class WebAgent:
    """Reads one marketplace. ``costs`` books what every entry costs."""

    def __init__(self, browser: Browser, site: Site, decider: Decider, costs: Costs, base: str = "") -> None:
        self._browser = browser
        self._site = site
        self._base = base or site.base
        self._decider = decider
        self._costs = costs
        self._tabs: dict[str, Tab] = {}
        self._list_cost: tuple[float, Spent] = (0.0, Spent())
        self._shared_out = True
        """Whether entries have taken their shares of the list page's cost."""
        self._view: View | None = None
        self._proven = False

    async def sheets(self, start: str, steps: int = 0) -> AsyncIterator[Sheet]:
        """Go through one list from its first page, or from where an earlier run was.

        Args:
            start: address of the list, or of one of its pages.
            steps: presses and scrolls that an earlier run made there; they are made again, and nothing is given out
                for them.

        Raises:
            FetchError: a page of the list cannot be had.
        """
        tab = await self._tab("list")
        seen: set[str] = set()
        visited: set[str] = set()
        url, done = start, 0
        began = time.monotonic()
        root = await tab.open(start, fresh=True)
        visited.add(start)
        for _ in range(_MOST_SHEETS):
            root = await self._lazy(tab, root)
            entries = await self._entries(tab, root)
            new = [e for e in entries if e.url not in seen]
            seen.update(e.url for e in entries)
            if done >= steps:
                self._list_cost = (time.monotonic() - began, self._decider.spent.take())
                self._shared_out = False
                yield Sheet(new, url, done)
                if not self._shared_out:
                    self._book(url, *self._list_cost)
                self._shared_out = True
                began = time.monotonic()
            moved = await self._advance(tab, root, seen, visited)
            if moved is None:
                self._book(url, time.monotonic() - began, self._decider.spent.take())
                return
            root, control = moved
            if control is not None and control.url:
                url, done, steps = control.url, 0, 0
            else:
                done += 1

    async def second_opinion(self, tried: list[Link]) -> list[Link]:
        """Other entries of the current list page, when those tried led nowhere; [] if there are none, or if earlier
        ones of the kind did lead somewhere: then these are broken, not mistaken."""
        if self._view is None or self._proven or not self._decider.doubt():
            return []
        known, began = {link.url for link in tried}, time.monotonic()
        other = [e for e in await self._decider.entries(self._view) if e.url not in known]
        # The page's own cost is on those tried first; what comes now is for the others.
        self._list_cost = (time.monotonic() - began, self._decider.spent.take())
        self._shared_out = False
        return other

    async def entry(self, link: Link, share: float = 1.0) -> Entry:
        """Read one entry's page. ``share`` is its part of the list page's cost.

        Raises:
            FetchError: the page cannot be had.
            Unreadable: it says nothing that could be installed or called.
        """
        began = time.monotonic()
        self._shared_out = True
        server = ""
        try:
            entry = await self._tools(link) if self._site.lists_tools else await self._configuration(link)
            server = self._site.entry_id(link.url)
            self._proven = True
            return entry
        finally:
            self._costs.spent.add(own := self._decider.spent.take())
            self._costs.record(
                self._site.name,
                link.url,
                server,
                own=(time.monotonic() - began, own),
                shared=self._list_cost,
                share=share,
            )

    def _book(self, url: str, seconds: float, spent: Spent) -> None:
        """What a model's look at a list page cost that no entry has a share of: its end, or a page with nothing new."""
        if spent.requests:
            self._costs.record(self._site.name, url, "", own=(seconds, spent), shared=(0.0, Spent()), share=0.0)

    async def _tab(self, purpose: str) -> Tab:
        if purpose not in self._tabs:
            self._tabs[purpose] = await self._browser.tab(self._base)
        return self._tabs[purpose]

    async def _entries(self, tab: Tab, root: Node) -> list[Link]:
        self._view = View(root, tab.url)
        return await self._decider.entries(self._view)

    async def _lazy(self, tab: Tab, root: Node) -> Node:
        """Scroll to the end once: cards may fill in only when they are seen."""
        scrolled = await tab.scroll()
        return scrolled if len(links(scrolled, tab.url)) >= len(links(root, tab.url)) else root

    async def _advance(
        self, tab: Tab, root: Node, seen: set[str], visited: set[str]
    ) -> tuple[Node, Control | None] | None:
        """The next view of the list and what led there; None at its end. What brings nothing new is an end."""
        control = await self._decider.advance(View(root, tab.url))
        if control is not None and not (control.url and control.url in visited):
            try:
                if control.url:
                    visited.add(control.url)
                    after = await tab.open(control.url, fresh=True)
                else:
                    after = await tab.press(control.ref)
            except FetchError:
                if control.url:
                    raise
                after = root  # it could not be pressed: as good as not there
            if any(e.url not in seen for e in await self._entries(tab, after)):
                return after, control
            if control.url:
                return None
        after = await tab.scroll()
        if any(e.url not in seen for e in await self._entries(tab, after)):
            return after, None
        return None

    async def _configuration(self, link: Link) -> Entry:
        tab = await self._tab("entry")
        root = await tab.open(link.url)
        tried: set[str] = set()
        problems: list[str] = []
        configured: Configured | None = None
        for attempt in range(_MOST_REVEALS + 1):
            text = await tab.text()
            readout = read_configurations(text)
            problems += [p for p in readout.problems if p not in problems]
            configured = best(readout.found)
            if configured is not None or attempt == _MOST_REVEALS:
                break
            control = await self._decider.reveal(View(root, tab.url), tried)
            if control is None:
                root = await tab.scroll()  # what comes only when it is seen
                configured = best(read_configurations(await tab.text()).found)
                break
            tried.add(f"{control.role}:{control.name.strip().lower()}")
            try:
                root = await tab.press(control.ref)
            except FetchError as error:
                problems.append(str(error))
        if configured is None and not problems:
            configured = await self._decider.write(View(root, tab.url, await tab.text()))
        entry = await self._described(tab, root, link)
        if configured is None:
            why = problems[0] if problems else "it states no configuration"
            raise Unreadable(f"{link.url} gives no server: {why}.")
        entry.configured, entry.problems = configured, problems
        return entry

    async def _tools(self, link: Link) -> Entry:
        tab = await self._tab("entry")
        root = await tab.open(link.url)
        root = await self._lazy(tab, root)
        found = {t.url: t for t in await self._decider.tools(View(root, tab.url))}
        tried: set[str] = set()
        for _ in range(_MOST_TOOL_PAGES):
            control = await self._decider.reveal(View(root, tab.url), tried)
            if control is None:
                break
            try:
                root = await tab.press(control.ref)
            except FetchError:
                break
            count = len(found)
            found |= {t.url: t for t in await self._decider.tools(View(root, tab.url))}
            if len(found) == count:
                tried.add(f"{control.role}:{control.name.strip().lower()}")
        entry = await self._described(tab, root, link)
        entry.tools = [_tool(self._site.rules.tool, t) for t in found.values()]
        if not entry.tools:
            raise Unreadable(f"{link.url} gives no server: it lists no tools.")
        return entry

    async def _described(self, tab: Tab, root: Node, link: Link) -> Entry:
        heading = next((n.said() for n in root.walk() if n.role == "heading" and "level=1" in n.attributes), "")
        _, description = await tab.about()
        name = heading or link.title
        said = description or link.text.removeprefix(link.title).strip()
        return Entry(link.url, name[:200], said[:2000], _repository(root, tab.url), _stars(await tab.text()))


def _tool(pattern: str, link: Link) -> JsonObject:
    """A tool in wire form. Pages state no schema; Pipedream's tools take one text (its documented default mode)."""
    match = re.search(pattern, link.url) if pattern else None
    name = f"{match['app']}-{match['key']}" if match else re.sub(r"\W+", "-", link.title.lower()).strip("-")
    description = " ".join(link.text.removeprefix(link.title).split()) or link.title
    return {
        "name": name,
        "title": link.title,
        "description": description,
        "inputSchema": {
            "type": "object",
            "properties": {"instruction": {"type": "string", "description": "What to do, in words."}},
            "required": ["instruction"],
        },
    }


def _repository(root: Node, base: str) -> str | None:
    """The entry's own repository: the first address of the form host/owner/name on a code host."""
    for node in root.walk():
        if node.role == "link" and node.url and not node.within("banner", "navigation", "contentinfo"):
            match = _REPOSITORY.match(urljoin(base, node.url))
            if match:
                return unquote(match[0]).removesuffix(".git")
    return None


def _stars(text: str) -> float | None:
    match = _STARS.search(text)
    if match is None:
        return None
    number, unit = match[1] or match[3], (match[2] or match[4] or "").lower()
    try:
        return float(number.replace(",", "").rstrip(".")) * {"k": 1e3, "m": 1e6}.get(unit, 1)
    except ValueError:
        return None
