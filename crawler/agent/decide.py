"""Who decides what a page's parts mean: a model by instructions, a site's own rules, or the one backed by the other.

Every decision is a choice among things that stand on the page, so no text on a page can send the agent anywhere else.
"""

from __future__ import annotations

import re
import string
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from toolscout.crawler.agent.configuration import Configured, read_command, read_entry
from toolscout.crawler.agent.costs import Spent
from toolscout.crawler.agent.model import ChatModel
from toolscout.crawler.agent.site import Site, system_prompt
from toolscout.crawler.agent.snapshot import Control, Group, Link, Node, controls, groups, links, outline
from toolscout.errors import ModelError
from toolscout.records import JsonObject

T = TypeVar("T")

_GROUPS = 12
_CONTROLS = 24
_WORDS = 3000
"""Characters of an entry's page that a model is shown to write a configuration from."""


@dataclass(frozen=True)
class View:
    """A page as the agent sees it."""

    root: Node
    url: str
    text: str = ""

    def groups(self) -> list[Group]:
        """Its links in groups of alike ones."""
        return groups(self.root, self.url)

    def controls(self) -> list[Control]:
        """What can be pressed and is not switched off."""
        return [c for c in controls(self.root, self.url) if not c.disabled and c.name]


class Decider(Protocol):
    """Decides."""

    @property
    def spent(self) -> Spent:
        """What that cost since it was last taken."""
        ...

    async def entries(self, view: View) -> list[Link]:
        """The links of a list page that lead to entries."""
        ...

    async def advance(self, view: View) -> Control | None:
        """What leads to more entries; None at the end."""
        ...

    async def reveal(self, view: View, tried: set[str]) -> Control | None:
        """What shows an entry's configuration, or more of its tools; None if nothing does."""
        ...

    async def write(self, view: View) -> Configured | None:
        """A configuration from what a page says in words; None if it says none."""
        ...

    async def tools(self, view: View) -> list[Link]:
        """The links of an entry's page that stand for its tools."""
        ...

    def doubt(self) -> bool:
        """The last entries led nowhere. True if other ones can be had from now on."""
        ...


class ByRules:
    """A site's own rules: free, quick, and wrong as soon as the site changes its addresses."""

    def __init__(self, site: Site) -> None:
        self.spent = Spent()
        self._rules = site.rules

    async def entries(self, view: View) -> list[Link]:
        """See `Decider`."""
        self.spent.rules += 1
        host = urlsplit(view.url).netloc
        found: dict[str, Link] = {}
        for link in links(view.root, view.url):
            parts = urlsplit(link.url)
            if parts.netloc == host and re.fullmatch(self._rules.entry, unquote(parts.path)):
                bare = f"{parts.scheme}://{parts.netloc}{parts.path}"
                kept = found.get(bare)
                if kept is None or len(kept.text) < len(link.text):  # a card's picture and its title: one entry
                    found[bare] = Link(link.ref, bare, link.title or (kept.title if kept else ""), link.text)
        return list(found.values())

    async def advance(self, view: View) -> Control | None:
        """See `Decider`. Without a name that fits: the page number after the selected one."""
        self.spent.rules += 1
        return _named(view.controls(), self._rules.advance) or _following(view)

    async def reveal(self, view: View, tried: set[str]) -> Control | None:
        """See `Decider`."""
        self.spent.rules += 1
        return _named([c for c in view.controls() if _key(c) not in tried and not c.selected], self._rules.reveal)

    async def write(self, view: View) -> Configured | None:
        """See `Decider`. A line of the page that is a command to start a server, as it stands."""
        self.spent.rules += 1
        return next((c for line in view.text.splitlines() if (c := read_command(line.strip().lstrip("$ ")))), None)

    async def tools(self, view: View) -> list[Link]:
        """See `Decider`."""
        self.spent.rules += 1
        if not self._rules.tool:
            return []
        return [link for link in links(view.root, view.url) if re.search(self._rules.tool, link.url)]

    def doubt(self) -> bool:
        """Rules have nothing else to offer."""
        return False


class ByModel:
    """A model, by the site's instructions. What it decided once holds for the next pages that look the same.

    Raises ModelError where the endpoint fails.
    """

    def __init__(self, site: Site, model: ChatModel) -> None:
        self.spent = model.spent
        self._site = site
        self._model = model
        self._groups: dict[str, tuple[str, str]] = {}
        self._names: dict[str, list[str]] = {}
        self._refused: dict[str, set[tuple[str, str]]] = {}

    async def entries(self, view: View) -> list[Link]:
        """See `Decider`."""
        host = urlsplit(view.url).netloc
        offered = [g for g in view.groups() if urlsplit(g.links[0].url).netloc == host]
        return await self._group(view, "entries", offered, "Which group of links leads to the entries of the list?")

    async def tools(self, view: View) -> list[Link]:
        """See `Decider`."""
        return await self._group(view, "tools", view.groups(), "Which group of links stands for the tools of this app?")

    async def advance(self, view: View) -> Control | None:
        """See `Decider`."""
        return await self._control(view, "next", view.controls(), "Which control leads to more entries?")

    async def reveal(self, view: View, tried: set[str]) -> Control | None:
        """See `Decider`."""
        offered = [c for c in view.controls() if _key(c) not in tried and not c.selected]
        question = "Which control shows more tools?" if self._site.lists_tools else "Which control shows it?"
        return await self._control(view, "tools" if self._site.lists_tools else "configuration", offered, question)

    async def write(self, view: View) -> Configured | None:
        """See `Decider`. What the page does not say is not taken: a package from nowhere would be somebody's trap."""
        self.spent.model += 1
        schema: JsonObject = {
            "type": "object",
            "properties": {
                "command": {"type": "string", "enum": ["npx", "uvx", "docker", "none"]},
                "args": {"type": "array", "items": {"type": "string"}, "maxItems": 12},
                "env": {"type": "array", "items": {"type": "string"}, "maxItems": 12},
            },
            "required": ["command", "args", "env"],
            "additionalProperties": False,
        }
        ask = f"{self._site.instructions('configuration')}\n\nThe page says:\n{view.text[:_WORDS]}\n\nWrite it."
        answer = await self._model.answer(system_prompt(), ask, schema, max_tokens=300)
        args, env = answer.get("args"), answer.get("env")
        if answer.get("command") in (None, "none") or not isinstance(args, list) or not isinstance(env, list):
            return None
        words = [str(a) for a in args]
        if any(w not in view.text for w in words if not w.startswith("-")):
            return None
        names = {str(n): "" for n in env if str(n) in view.text}
        found = read_entry("", {"command": str(answer["command"]), "args": words, "env": names})
        return found if found is not None and found.install.package else None

    def doubt(self) -> bool:
        """Forget which group it was, and do not offer that one again."""
        group = self._groups.pop("entries", None)
        if group is not None:
            self._refused.setdefault("entries", set()).add(group)
        return group is not None

    async def _group(self, view: View, section: str, offered: list[Group], question: str) -> list[Link]:
        offered = [g for g in offered if (g.place, g.prefix) not in self._refused.get(section, ())][:_GROUPS]
        known = self._groups.get(section)
        chosen = next((g for g in offered if (g.place, g.prefix) == known), None)
        if chosen is not None:
            self.spent.remembered += 1
            return list(chosen.links)
        at = await self._choose(view, section, question, [_shown_group(g) for g in offered])
        if at is None:
            return []
        self._groups[section] = (offered[at].place, offered[at].prefix)
        return list(offered[at].links)

    async def _control(self, view: View, section: str, offered: list[Control], question: str) -> Control | None:
        for name in self._names.get(section, []):
            known = next((c for c in offered if _key(c) == name), None)
            if known is not None:
                self.spent.remembered += 1
                return known
        offered = offered[-_CONTROLS:] if section == "next" else offered[:_CONTROLS]  # paging stands at the end
        at = await self._choose(view, section, question, [_shown_control(c) for c in offered])
        if at is None:
            return None
        name = _key(offered[at])
        if not re.search(r"\d", name):  # a page's number is not the same thing on the next page
            self._names.setdefault(section, []).append(name)
        return offered[at]

    async def _choose(self, view: View, section: str, question: str, offered: Sequence[str]) -> int | None:
        """Index of the option that the model chooses; None for none of them."""
        if not offered:
            return None
        self.spent.model += 1
        letters = [_letter(i) for i in range(len(offered))]
        options = "\n".join(f"{letter}: {text}" for letter, text in zip(letters, offered, strict=True))
        ask = (
            f"{self._site.instructions(section)}\n\nThe page {urlsplit(view.url).path or '/'} in outline:\n"
            f"{outline(view.root)}\n\nOptions:\n{options}\nnone: none of these\n\n{question}"
        )
        schema: JsonObject = {
            "type": "object",
            "properties": {"choice": {"type": "string", "enum": [*letters, "none"]}},
            "required": ["choice"],
            "additionalProperties": False,
        }
        answer = await self._model.answer(system_prompt(), ask, schema, max_tokens=20)
        choice = answer.get("choice")
        return letters.index(choice) if choice in letters else None


class Backed:
    """A model whose answers are taken where they lead somewhere, and a site's rules where they do not."""

    def __init__(self, model: ByModel, rules: ByRules) -> None:
        self._model = model
        self._rules = rules
        self._distrusted = False

    @property
    def spent(self) -> Spent:
        """What both spent, added up in the model's own book."""
        self._model.spent.add(self._rules.spent.take())
        return self._model.spent

    async def entries(self, view: View) -> list[Link]:
        """See `Decider`."""
        found = [] if self._distrusted else await self._asked(self._model.entries(view), [])
        return found or self._overruled(await self._rules.entries(view))

    async def advance(self, view: View) -> Control | None:
        """See `Decider`. The model's 'nothing more' is checked against the rules: an end too early loses servers."""
        found = await self._asked(self._model.advance(view), None)
        return found or self._overruled(await self._rules.advance(view))

    async def reveal(self, view: View, tried: set[str]) -> Control | None:
        """See `Decider`. Rules first once the model has pressed two things in vain."""
        if len(tried) >= 2:
            return await self._rules.reveal(view, tried)
        found = await self._asked(self._model.reveal(view, tried), None)
        return found or self._overruled(await self._rules.reveal(view, tried))

    async def write(self, view: View) -> Configured | None:
        """See `Decider`. A command that stands on the page needs no model."""
        return await self._rules.write(view) or await self._asked(self._model.write(view), None)

    async def tools(self, view: View) -> list[Link]:
        """See `Decider`. Both, and the rules' where they differ: a tool's address is no matter of opinion."""
        found = await self._asked(self._model.tools(view), [])
        ruled = await self._rules.tools(view)
        return found if {f.url for f in found} == {r.url for r in ruled} else self._overruled(ruled)

    def doubt(self) -> bool:
        """From now on, entries by rules."""
        first, self._distrusted = not self._distrusted, True
        return first

    async def _asked(self, answer: Awaitable[T], otherwise: T) -> T:
        try:
            return await answer
        except ModelError:
            return otherwise

    def _overruled(self, found: T) -> T:
        if found:
            self._model.spent.overruled += 1
        return found


def _named(offered: Sequence[Control], names: Sequence[str]) -> Control | None:
    """The first control by the first name that fits: the whole name before a part of it."""
    for name in names:
        wanted = name.lower()
        exact = next((c for c in offered if c.name.strip().lower() == wanted), None)
        if exact is not None:
            return exact
        if len(wanted) > 3:
            part = next((c for c in offered if re.search(rf"\b{re.escape(wanted)}\b", c.name.lower())), None)
            if part is not None:
                return part
    return None


def _following(view: View) -> Control | None:
    """In a row of page numbers, the one after where we are."""
    numbers = {c.name.strip(): c for c in view.controls() if c.name.strip().isdigit()}
    here = re.search(r"[?&](?:page|p|page_id|offset)=(\d+)", view.url)
    return numbers.get(str(int(here[1]) + 1)) if here else numbers.get("2")


def _shown_group(group: Group) -> str:
    samples = ", ".join(f'"{link.title[:40]}"' for link in group.links[:4])
    return f"{len(group.links)} links {group.prefix}... in {group.place}: {samples}"


def _shown_control(control: Control) -> str:
    parts = urlsplit(control.url)
    leads = f" to {parts.path}?{parts.query}".rstrip("?") if control.url else ""
    return f'{control.role} "{control.name}"{leads}'


def _key(control: Control) -> str:
    return f"{control.role}:{control.name.strip().lower()}"


def _letter(index: int) -> str:
    return string.ascii_uppercase[index] if index < 26 else f"Z{index - 25}"
