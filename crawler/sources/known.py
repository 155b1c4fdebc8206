"""All sources by name, and how each is set up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from toolscout.crawler.sources.base import Source
from toolscout.errors import BadInput

if TYPE_CHECKING:
    from toolscout.crawler.agent.costs import Costs
    from toolscout.crawler.install.npm import NpmInstaller
    from toolscout.crawler.sources.clients import Configured

MARKETPLACES = ("smithery", "glama", "mcpso", "mcphub", "pulsemcp", "deepnlp", "pipedream")
NAMES = ("npm", "pypi", "registry", "clients", *MARKETPLACES)


@dataclass(frozen=True)
class Setup:
    """What sources may need. ``names`` are files of package names by registry; ``costs`` books what marketplaces
    cost that are read page by page."""

    names: Mapping[str, Path] = field(default_factory=dict)
    pattern: str = "mcp"
    details: bool = False
    registry_url: str = ""
    configured: Sequence[Configured] = ()
    npm: NpmInstaller | None = None
    work: Path | None = None
    costs: Costs | None = None


def make(name: str, setup: Setup) -> Source:
    """One source, set up. Raises BadInput for an unknown name, or where it lacks its setting."""
    if name == "npm":
        from toolscout.crawler.sources.npm import NpmSource

        return NpmSource(
            names=setup.names.get("npm"),
            installer=setup.npm,
            work=setup.work,
            pattern=setup.pattern,
            details=setup.details,
        )
    if name == "pypi":
        from toolscout.crawler.sources.pypi import PypiSource

        return PypiSource(names=setup.names.get("pypi"), pattern=setup.pattern)
    if name == "registry":
        from toolscout.crawler.sources.registry import RegistrySource

        return RegistrySource(setup.registry_url)
    if name == "clients":
        from toolscout.crawler.sources.clients import ClientSource

        return ClientSource(setup.configured)
    if name in MARKETPLACES:
        from toolscout.crawler.sources.marketplaces import marketplace

        return marketplace(name, costs=setup.costs)
    raise BadInput(f"There is no source '{name}'.", f"Known are: {', '.join(NAMES)}.")
