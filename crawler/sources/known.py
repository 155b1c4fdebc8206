"""All sources by name, and how each is set up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from toolscout.crawler.sources.base import Source
from toolscout.crawler.sources.names import check_file, pattern_for
from toolscout.errors import BadInput
from toolscout.records import JsonObject

if TYPE_CHECKING:
    from toolscout.crawler.agent.costs import Costs
    from toolscout.crawler.install.npm import NpmInstaller
    from toolscout.crawler.sources.clients import Configured

MARKETPLACES = ("smithery", "glama", "mcpso", "mcphub", "pulsemcp", "deepnlp", "pipedream")
NAMES = ("npm", "pypi", "registry", "clients", *MARKETPLACES)


@dataclass(frozen=True)
class Setup:
    """What sources may need. ``names`` are files of package names by registry; ``config`` are the files that
    ``configured`` was read from (none: the clients' own); ``costs`` books what marketplaces cost that are read page by
    page."""

    names: Mapping[str, Path] = field(default_factory=dict)
    pattern: str | None = None
    details: bool = False
    registry_url: str = ""
    configured: Sequence[Configured] = ()
    config: Sequence[Path] = ()
    npm: NpmInstaller | None = None
    work: Path | None = None
    costs: Costs | None = None


def make(name: str, setup: Setup) -> Source:
    """One source, set up.

    Raises:
        BadInput: an unknown name, or it lacks its setting.
        NotFound: there is no such file of names.
    """
    source = _made(name, setup)
    if name in MARKETPLACES:
        source.narrowed = _elsewhere(name, source.complete)
    source.setup = _told(name, setup)
    return source


def restored(told: JsonObject, setup: Setup) -> Setup:
    """A setup with what an earlier source was made with (`Source.setup`); the rest stays.

    Raises:
        NotFound, BadInput: its file of names is not there any more.
    """
    names = {told["source"]: Path(told["names"])} if told.get("names") else {}
    for path in names.values():
        check_file(path)
    return replace(
        setup,
        names=names,
        pattern=told.get("pattern"),
        details=bool(told.get("details")),
        registry_url=told.get("registry_url", ""),
        config=[Path(path) for path in told.get("config", ())],
    )


def _told(name: str, setup: Setup) -> JsonObject | None:
    """`Source.setup`; None where an address holds a key: keys are not for the crawl's memory."""
    told: JsonObject = {"source": name}
    if name in ("npm", "pypi"):
        path = setup.names.get(name)
        told |= {"pattern": pattern_for(path, setup.pattern), "details": setup.details and name == "npm"}
        if path is not None:
            check_file(path)
            # Another content makes another listing: its names need not lie after the place where the last one stopped.
            told |= {"names": str(path.resolve()), "digest": hashlib.sha256(path.read_bytes()).hexdigest()}
    elif name == "registry":
        parts = urlsplit(setup.registry_url)
        if parts.username or parts.password or parts.query:
            return None
        told["registry_url"] = setup.registry_url
    elif name == "clients":
        told["config"] = [str(path.resolve()) for path in setup.config]
    return told


def _elsewhere(name: str, complete: bool) -> str:
    """What tells a marketplace's listing from the usual one: another address, other search words."""
    from toolscout.crawler.agent.settings import AgentSettings

    settings = AgentSettings()
    told = {"base": settings.bases.get(name, ""), "queries": [] if complete else list(settings.queries)}
    return json.dumps(told, sort_keys=True) if any(told.values()) else ""


def _made(name: str, setup: Setup) -> Source:
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
