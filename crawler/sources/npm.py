"""The npm registry as a source: names from a file or the package ``all-the-package-names``, details from the registry.

The address is the one of the user's npm configuration.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from toolscout.crawler.failures import DeployError
from toolscout.crawler.fetch import Fetcher, FetchError
from toolscout.crawler.install import npm as install
from toolscout.crawler.install.base import own_folder
from toolscout.crawler.sources import names as listed
from toolscout.crawler.sources.base import Batch, Found, Source, Verdict
from toolscout.errors import BadInput, NotFound

_ALL_NAMES = "all-the-package-names"


class NpmSource(Source):
    """npm packages by their names.

    Args:
        names: a file of names; without it they come from the package ``all-the-package-names``.
        installer, work: fetch that package.
        pattern: which names are taken (regular expression, any case); by default those with "mcp", of a file all.
        registry: the registry's address; asked of npm when details are wanted and it is not given.
        details: ask the registry for each package's newest manifest: version, description, whether it has commands.
            One request a name; without it a package is known only once it is installed.
    """

    name: ClassVar[str] = "npm"

    def __init__(
        self,
        *,
        names: Path | None = None,
        installer: install.NpmInstaller | None = None,
        work: Path | None = None,
        pattern: str | None = None,
        registry: str | None = None,
        details: bool = False,
    ) -> None:
        self._names = names
        self._installer = installer
        self._work = work
        self._pattern = listed.pattern_for(names, pattern)
        self._registry = registry
        self._details = details
        self.narrowed = listed.narrowed(names, self._pattern, registry)

    def lists_all(self) -> bool:
        """See `Source.lists_all`."""
        return self._names is None and self._pattern == listed.PATTERN

    async def batches(
        self, fetcher: Fetcher, *, since: str | None = None, cursor: str | None = None
    ) -> AsyncIterator[Batch]:
        """See `Source.batches`."""
        given = listed.read_names(self._names) if self._names else await self._all()
        names = listed.matching(given, self._pattern)
        self.unmatched = len(given) - len(names) if self._names else 0
        registry = self._registry or (install.npm_registry() if self._details else None)
        if self._details and registry is None:
            raise BadInput("npm has no registry configured.", "Install npm, or leave the details out.")
        for start in range(listed.start_of(names, cursor), len(names), listed.BATCH):
            entries, problems = [], []
            for package in names[start : start + listed.BATCH]:
                entry = listed.found(self.name, package)
                if registry is not None and entry.verdict.deployable:
                    try:
                        entry = await self._detailed(fetcher, registry, package, entry)
                    except FetchError as error:
                        if error.status != 404:
                            problems.append(f"{package}: {error}")
                        else:
                            continue  # unpublished since the list was made
                entries.append(entry)
            made = listed.batch(names, start, entries)
            yield Batch(made.found, made.cursor, problems)

    async def _detailed(self, fetcher: Fetcher, registry: str, package: str, entry: Found) -> Found:
        manifest = await fetcher.json(f"{registry}/{quote(package, safe='@')}/latest")
        if not isinstance(manifest, dict):
            return entry
        known = install.metadata(manifest, package)
        server = entry.server.model_copy(
            update={
                "description": known.description,
                "version": known.version or None,
                "license": known.license,
                "homepage": known.homepage,
            }
        )
        verdict, reason = entry.verdict, entry.reason
        if not manifest.get("bin"):
            verdict, reason = Verdict.LIBRARY, "it has no commands"
        return Found(server, verdict, reason, marker=known.version or None)

    async def _all(self) -> list[str]:
        """Every name of the registry, as the package of names has them."""
        if self._installer is None or self._work is None:
            raise BadInput("There are no names to list.", "Name a file of package names, or install npm.")
        with tempfile.TemporaryDirectory(dir=self._work, prefix="names-") as folder:
            own_folder(Path(folder))
            try:
                installed = await self._installer.install(Path(folder), _ALL_NAMES, None)
            except DeployError as error:
                raise NotFound(
                    f"The package {_ALL_NAMES} cannot be installed: {error.verdict.cause}.",
                    "Name a file of package names.",
                ) from None
            path = installed.own[0] / "names.json"
            try:
                names = json.loads(path.read_text("utf-8"))
            except (OSError, ValueError):
                raise NotFound(
                    f"The package {_ALL_NAMES} holds no names.json.", "Name a file of package names."
                ) from None
        return [name for name in names if isinstance(name, str)]
