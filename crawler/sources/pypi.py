"""PyPI as a source: names from a file or the simple index (PEP 503, 691), the index being the user's own.

The JSON form of the index carries a serial number for each project that grows with every change: that is what makes a
later crawl touch only what is new.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

from toolscout.crawler.fetch import Fetcher, FetchError
from toolscout.crawler.install.pypi import simple_index
from toolscout.crawler.sources import names as listed
from toolscout.crawler.sources.base import Batch, Source
from toolscout.errors import BadInput

_JSON = "application/vnd.pypi.simple.v1+json"
_ACCEPT_JSON = {"accept": _JSON}
_ACCEPT = {"accept": f"{_JSON}, text/html;q=0.1"}
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_ANCHOR = re.compile(r"<a\b[^>]*>\s*([^<]+?)\s*</a>", re.I)


class PypiSource(Source):
    """PyPI projects by their names.

    Args:
        names: a file of names; without it they come from the index.
        index: address of a simple index; the user's own by default.
        pattern: which names are taken (regular expression, any case); by default those with "mcp", of a file all.
    """

    name: ClassVar[str] = "pypi"

    def __init__(self, *, names: Path | None = None, index: str | None = None, pattern: str | None = None) -> None:
        self._names = names
        self._index = index
        self._pattern = listed.pattern_for(names, pattern)
        self.narrowed = listed.narrowed(names, self._pattern, index)

    def lists_all(self) -> bool:
        """See `Source.lists_all`."""
        return self._names is None and self._pattern == listed.PATTERN

    async def batches(
        self, fetcher: Fetcher, *, since: str | None = None, cursor: str | None = None
    ) -> AsyncIterator[Batch]:
        """See `Source.batches`."""
        serials: dict[str, str] = {}
        if self._names is None:
            serials = await self._all(fetcher)
        given = listed.read_names(self._names) if self._names else list(serials)
        names = listed.matching(given, self._pattern)
        self.unmatched = len(given) - len(names) if self._names else 0
        for start in range(listed.start_of(names, cursor), len(names), listed.BATCH):
            part = names[start : start + listed.BATCH]
            yield listed.batch(names, start, [listed.found(self.name, n, marker=serials.get(n) or None) for n in part])

    async def _all(self, fetcher: Fetcher) -> dict[str, str]:
        """Every project of the index, with its serial number where it says one."""
        index = self._index or simple_index()
        if index is None:
            raise BadInput("pip has no index configured.", "Name a file of package names.")
        page = await fetcher.get(f"{index.rstrip('/')}/", headers=_ACCEPT)
        if "json" not in page.content_type:
            return dict.fromkeys(_ANCHOR.findall(page.text), "")
        document = page.json()
        projects = document.get("projects") if isinstance(document, dict) else None
        return {
            str(project["name"]): str(project.get("_last-serial") or "")
            for project in (projects if isinstance(projects, list) else ())
            if isinstance(project, dict) and project.get("name")
        }


async def published(fetcher: Fetcher, package: str, version: str, index: str | None = None) -> str | None:
    """When a version was uploaded (ISO 8601), as the JSON index says (PEP 700); None when it does not."""
    plain = re.sub(r"[-_.]+", "_", package).lower()
    for file in await _files(fetcher, package, index):
        name = str(file.get("filename") or "").lower()
        stem = re.sub(r"[-_.]+", "_", name[: len(plain)]), name[len(plain) :]
        if stem[0] == plain and re.match(rf"-{re.escape(version.lower())}(?:-|\.tar|\.zip)", stem[1]):
            moment = file.get("upload-time")
            return str(moment) if moment else None
    return None


async def release_days(fetcher: Fetcher, package: str, index: str | None = None) -> tuple[str, str]:
    """Days of a package's first and newest upload (ISO 8601), as the JSON index says; empty when it does not."""
    days = sorted(str(file.get("upload-time") or "")[:10] for file in await _files(fetcher, package, index))
    days = [day for day in days if _DAY.fullmatch(day)]
    return (days[0], days[-1]) if days else ("", "")


def is_kept(fetcher: Fetcher, package: str, index: str | None = None) -> bool:
    """Whether a package's page of the index is at hand, so that nobody is asked for it."""
    address = _address(package, index)
    return address is not None and fetcher.has(address, _ACCEPT_JSON)


def _address(package: str, index: str | None) -> str | None:
    index = index or simple_index()
    return None if index is None else f"{index.rstrip('/')}/{re.sub(r'[-_.]+', '-', package).lower()}/"


async def _files(fetcher: Fetcher, package: str, index: str | None) -> list[dict[str, Any]]:
    """What the JSON index says of a package's files."""
    address = _address(package, index)
    try:
        document = await fetcher.json(address, headers=_ACCEPT_JSON) if address else None
    except FetchError:
        return []
    files = document.get("files") if isinstance(document, dict) else None
    return [file for file in files if isinstance(file, dict)] if isinstance(files, list) else []
