"""Package coordinates: what another needs to make a crawl again, and to see whether it came out the same. No text of
the packages themselves is in them, so they can be handed on freely."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from toolscout.crawler.sources.base import package_id
from toolscout.crawler.sources.names import read_names
from toolscout.crawler.state import State
from toolscout.errors import BadInput
from toolscout.files import replace_file
from toolscout.records import Tool

REGISTRIES = ("npm", "pypi")
_SPEC = re.compile(r"(?P<registry>npm|pypi):(?P<name>@?[^@\s]+)(?:@(?P<version>[^@\s]+))?")
_DIGITS = 16


@dataclass(frozen=True)
class Coordinate:
    """One package. ``digest`` is that of the tools it listed, empty where nothing is known of them."""

    registry: str
    package: str
    version: str | None = None
    digest: str = ""

    @property
    def server_id(self) -> str:
        """Its identity in a crawl."""
        return package_id(self.registry, self.package)

    def __str__(self) -> str:
        version = f"@{self.version}" if self.version else ""
        return f"{self.registry}:{self.package}{version}" + (f" {self.digest}" if self.digest else "")


@dataclass
class Comparison:
    """How a crawl came out against coordinates: servers that list the same tools, others, and none."""

    same: int = 0
    other_tools: int = 0
    no_tools: int = 0
    not_tried: int = 0


def parse(text: str) -> Coordinate:
    """``npm:NAME``, ``pypi:NAME@VERSION``, with a digest behind a blank or without. Raises BadInput."""
    spec, _, digest = text.strip().partition(" ")
    match = _SPEC.fullmatch(spec)
    if match is None:
        raise BadInput(f"{text!r} is no package.", "Use npm:NAME or pypi:NAME, with @VERSION for a certain one.")
    return Coordinate(match["registry"], match["name"], match["version"], digest.strip())


def read(path: Path) -> list[Coordinate]:
    """The coordinates in a file, one a line, gzip or not; ``#`` begins a comment. Raises NotFound, BadInput."""
    return [parse(line) for line in read_names(path)]


def write(state: State, path: Path) -> int:
    """Write the coordinates of all servers with tools, in order, atomically; how many. Equal states, equal bytes."""
    lines = []
    for server, _ in state.servers():
        install = server.install
        if install.registry in REGISTRIES and install.package:
            found = digest(state.tools(server.server_id))
            lines.append(str(Coordinate(install.registry, install.package, install.version, found)))
    text = "".join(f"{line}\n" for line in lines).encode()
    replace_file(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)
    return len(lines)


def digest(tools: Iterable[Tool]) -> str:
    """One short digest of a server's tools, whatever their order."""
    marks = sorted(tool.fingerprint or tool.computed_fingerprint() for tool in tools)
    return hashlib.sha256("\n".join(marks).encode()).hexdigest()[:_DIGITS]


def compare(state: State, coordinates: Iterable[Coordinate]) -> Comparison:
    """See which servers list the tools that the coordinates speak of."""
    done = Comparison()
    found = {server.server_id for server, _ in state.servers()}
    tried = {row["server_id"] for row in state.rows("SELECT server_id FROM result")}
    for coordinate in coordinates:
        if coordinate.server_id in found:
            same = digest(state.tools(coordinate.server_id)) == coordinate.digest
            done.same += same
            done.other_tools += not same
        elif coordinate.server_id in tried:
            done.no_tools += 1
        else:
            done.not_tried += 1
    return done
