"""The starter set: three real, keyless servers that come with Toolscout, so that a fresh machine can do real work.

They are ordinary entries of ``mcp.json`` with ``"starter": true``. They are registered once, when there is no
``mcp.json`` yet: whoever removes one is not given it again (``toolscout add starter`` brings the set back).
"""

from __future__ import annotations

import importlib.util
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolscout.server.config import ServersFile, UpstreamConfig

MARK = "starter"


@dataclass(frozen=True)
class Starter:
    """One server of the set: a module of an installed package, run by this Python."""

    name: str
    package: str
    module: str
    description: str
    needs: str | None = None
    """A program that must be on the PATH."""
    env: Mapping[str, str] = field(default_factory=dict)

    def missing(self) -> str | None:
        """Why it cannot run here, or None."""
        if importlib.util.find_spec(self.module) is None:
            return f"the package {self.package} is not installed"
        if self.needs and shutil.which(self.needs) is None:
            return f"the program {self.needs} is not on the PATH"
        return None


STARTERS: tuple[Starter, ...] = (
    Starter(
        "time",
        "mcp-server-time",
        "mcp_server_time",
        "Current time in any IANA timezone, and conversion of times between timezones.",
    ),
    Starter(
        "git",
        "mcp-server-git",
        "mcp_server_git",
        "Work with local Git repositories: status, log, diff, show, branches, staging and commits.",
        needs="git",
    ),
    Starter(
        "fetch",
        "mcp-server-fetch",
        "mcp_server_fetch",
        "Fetch a web page by its URL and read it as Markdown. Respects robots.txt; refuses private addresses.",
        # Its HTML reader runs "npm install" on first use where it finds Node, and fails if that does: it shall not.
        env={"PATH": "/nonexistent"},
    ),
)


def starter_config(starter: Starter, extra_args: Sequence[str] = ()) -> UpstreamConfig:
    """The entry of one server of the set, run by the Python that runs this."""
    from toolscout.server.config import UpstreamConfig

    entry = {
        "command": sys.executable,
        "args": ["-P", "-m", starter.module, *extra_args],
        "description": starter.description,
        **({"env": dict(starter.env)} if starter.env else {}),
        MARK: True,
    }
    return UpstreamConfig.parse(starter.name, entry)


def register_starter(servers: ServersFile, *, extra_args: Mapping[str, Sequence[str]] | None = None) -> list[str]:
    """Put the set into ``mcp.json``; the names that are configured by it now.

    A server that cannot run here, or whose name another server has, is left out. The file is there afterwards even
    if nothing could be registered, so that this happens once only.
    """
    configured = servers.load()
    names = []
    for starter in STARTERS:
        present = configured.get(starter.name)
        if starter.missing() or (present is not None and not is_starter(present)):
            continue
        servers.add(starter_config(starter, (extra_args or {}).get(starter.name, ())))
        names.append(starter.name)
    if not servers.path.exists():
        servers.save({})
    return names


def is_starter(config: UpstreamConfig) -> bool:
    """Whether an entry was made by the starter set."""
    return config.fields.get(MARK) is True
