"""What the agent knows of a marketplace: where its lists start, instructions for a model, and rules that need none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import resources
from urllib.parse import quote, unquote, urlsplit


@dataclass(frozen=True)
class Rules:
    """The deterministic fallback. Names are compared without case, and may stand within a longer one."""

    entry: str
    """Regular expression for the whole path of an entry's address; its group ``id`` is the entry's name there."""

    advance: tuple[str, ...] = ("next", "next page", "go to next page", "load more", "show more", "more", "›", "»", "→")
    """Names of what leads to more entries, the best first."""

    reveal: tuple[str, ...] = ("json", "server config", "show config", "configuration", "config", "connect", "install")
    """Names of what shows an entry's configuration, the best first."""

    tool: str = ""
    """Regular expression for the address of a tool's source, on sites that list tools instead of configurations;
    its groups ``app`` and ``key`` make the tool's name."""


@dataclass(frozen=True)
class Site:
    """One marketplace that is read by its pages."""

    name: str
    base: str
    """Default address; settings may name another."""

    lists: tuple[str, ...]
    """Paths where lists start; ``{query}`` is replaced by each search word."""

    rules: Rules
    lists_tools: bool = False
    """Whether an entry's page lists its tools, and there is nothing to install."""

    def starts(self, base: str, queries: tuple[str, ...]) -> list[str]:
        """Addresses of all lists, those by search once per word."""
        base = base.rstrip("/")
        found: list[str] = []
        for path in self.lists:
            words = queries if "{query}" in path else ("",)
            found += [base + path.replace("{query}", quote(word, safe="")) for word in words]
        return list(dict.fromkeys(found))

    def entry_id(self, url: str) -> str:
        """What the marketplace calls the entry behind an address: by the rules, else its path."""
        path = unquote(urlsplit(url).path)
        match = re.fullmatch(self.rules.entry, path)
        return match["id"] if match and match["id"] else path.strip("/")

    def instructions(self, section: str) -> str:
        """One section of the marketplace's instruction file (`crawler/prompts/NAME.md`); '' if it has none."""
        return _sections(self.name).get(section.lower(), "")


def system_prompt() -> str:
    """What the model is told at every step, whichever the site."""
    return _read("agent").strip()


def _sections(name: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in re.split(r"(?m)^## ", _read(name))[1:]:
        title, _, text = part.partition("\n")
        found[title.strip().lower()] = text.strip()
    return found


def _read(name: str) -> str:
    return resources.files("toolscout.crawler").joinpath("prompts", f"{name}.md").read_text("utf-8")
