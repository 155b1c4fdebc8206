"""All marketplaces by name, each by its API where there is one that serves, else by the web agent."""

from __future__ import annotations

from toolscout.crawler.agent.costs import Costs
from toolscout.crawler.agent.settings import AgentSettings
from toolscout.crawler.sources.base import Source
from toolscout.crawler.sources.known import MARKETPLACES
from toolscout.crawler.sources.marketplaces_api import DeepNlp, PulseMcp, Smithery
from toolscout.crawler.sources.marketplaces_pages import Glama, McpHub, McpSo, PagesSource, Pipedream, SmitheryPages
from toolscout.errors import NotFound

_PAGES: dict[str, type[PagesSource]] = {s.name: s for s in (SmitheryPages, Glama, McpSo, McpHub, Pipedream)}


def marketplace(name: str, settings: AgentSettings | None = None, costs: Costs | None = None) -> Source:
    """A marketplace's source.

    Args:
        settings: the agent's settings; by default from the environment.
        costs: books what the web agent spends; one for all marketplaces of a run.

    Raises:
        NotFound: no such marketplace.
    """
    settings = settings or AgentSettings()
    if name == "smithery" and settings.keys.get(name):
        return Smithery(settings)
    if name == "pulsemcp":
        return PulseMcp(settings)
    if name == "deepnlp":
        return DeepNlp(settings)
    if name in _PAGES:
        return _PAGES[name](settings, costs)
    raise NotFound(f"There is no marketplace {name!r}.", f"Known are: {', '.join(MARKETPLACES)}.")
