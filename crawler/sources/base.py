"""The interface of all sources: list -> batches of server records, resumable by a cursor, incremental by ``since``."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, ClassVar

from toolscout.records import JsonObject, Server

if TYPE_CHECKING:
    from toolscout.crawler.fetch import Fetcher


class Verdict(StrEnum):
    """What a listed thing is, as far as its source can tell. Only ``server`` and ``unknown`` are deployed."""

    SERVER = "server"
    LIBRARY = "library"
    CLIENT = "client"
    TEMPLATE = "template"
    REUPLOAD = "reupload"
    """A copy of another package under a re-upload scope."""
    PLATFORM = "platform"
    """One platform's binaries of another package."""
    UNKNOWN = "unknown"

    @property
    def deployable(self) -> bool:
        """Whether it is worth an installation."""
        return self in (Verdict.SERVER, Verdict.UNKNOWN)


@dataclass(frozen=True)
class Found:
    """One entry of a source."""

    server: Server
    """Its record: ``server_id`` (`package_id` or `remote_id`, so that sources agree), ``sources`` with one entry, and
    ``install`` as far as known."""

    verdict: Verdict = Verdict.UNKNOWN
    reason: str = ""
    """Why this verdict, in a few words."""

    marker: str | None = None
    """Anything that becomes another when the entry changes (a version, a serial number, a time): what was deployed at
    another marker of the same source is deployed again. None: this source cannot tell, so what is known is left
    alone."""

    published: str | None = None
    """When this version was published (ISO 8601)."""

    tools: tuple[JsonObject, ...] | None = None
    """Tools as the source itself states them (wire form: name, description, inputSchema); then nothing is deployed."""

    args: tuple[str, ...] = ()
    """Arguments that a configuration gives, without secrets; tried before those that the deployment thinks of."""


@dataclass(frozen=True)
class Batch:
    """One step of a listing: a page, or some hundred names. Stored together with its cursor, in one transaction."""

    found: list[Found]
    cursor: str | None
    """Where the next batch starts; None after the last."""

    problems: list[str] = field(default_factory=list)
    """Entries that could not be read, one sentence each. They never stop a listing."""

    vanished: list[str] = field(default_factory=list)
    """Ids of servers that the source says are withdrawn. They are kept, as unavailable."""


class Source(ABC):
    """Lists servers. Holds no state between runs: the caller keeps the cursor and the time of the last full listing.

    A new source sets ``name``, implements `batches`, and is added to `toolscout.crawler.sources.known`.
    """

    name: ClassVar[str]
    """Also the ``marketplace`` of the records' sources."""

    incremental: ClassVar[bool] = False
    """Whether it can leave out what did not change since a moment; else all is listed and compared."""

    complete: ClassVar[bool] = True
    """Whether a listing from the start holds everything, so that what is missing from it has vanished."""

    narrowed: str = ""
    """What tells this listing from others of its source: an address, a file of names, a pattern. '' for the usual."""

    setup: JsonObject | None = None
    """How `toolscout.crawler.sources.known.again` makes it another time; None where nothing can."""

    @property
    def key(self) -> str:
        """Which listing this is. Cursor, time and entries are kept by it, so that two registries, or two files of
        names, never go on in each other's place or take each other's entries for vanished."""
        if not self.narrowed:
            return self.name
        return f"{self.name}:{hashlib.sha256(self.narrowed.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"

    unmatched: int = 0
    """Names of its file that the user's pattern did not find, once it has listed."""

    def lists_all(self) -> bool:
        """``complete``, unless how this one is set up narrows its listing (a file of names, say)."""
        return self.complete

    @abstractmethod
    def batches(self, fetcher: Fetcher, *, since: str | None = None, cursor: str | None = None) -> AsyncIterator[Batch]:
        """Go through the listing.

        Args:
            fetcher: does all HTTP: rate limits, retries, cache, robots.txt.
            since: only what is new or changed since this moment (ISO 8601), where the service can tell.
            cursor: go on where an earlier run's last stored batch ended.

        Raises:
            FetchError: the service does not answer as it should; what came before is kept.
            BadInput: the source is not set up (no address, no such file).
        """


_ID_SPACE = re.compile(r"\s+")


def package_id(registry: str, package: str) -> str:
    """``npm/@scope/name``, ``pypi/name``, ``oci/image``: the package is the identity, whoever lists it."""
    if registry == "pypi":
        package = re.sub(r"[-_.]+", "-", package).lower()
    return f"{registry}/{_ID_SPACE.sub('', package)}"


def remote_id(marketplace: str, name: str) -> str:
    """Identity of a server without a package: what the marketplace calls it."""
    return f"{marketplace}/{_ID_SPACE.sub('-', name.strip())}"
