"""What a user has: the servers and tools to look at, from the home folder or from files. Nothing is changed."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.errors import BadInput, NotFound
from toolscout.eval.rows import check_files
from toolscout.index.build import build_index
from toolscout.index.catalogue import LOG_KEPT, CallLog, Catalogue
from toolscout.index.document import server_text, tool_text
from toolscout.index.encoder import Encoder, make_encoder
from toolscout.index.search import SearchIndex
from toolscout.records import Call, Review, Server, ServerState, Tool
from toolscout.settings import Settings

MOST_TOOLS = 3000
"""Tools that are looked at at most: every one is asked for and compared with every other."""

_FEWER = "Give --tools only files of servers that you use."
_LEAVE_OUT = "Leave out --everything, or name files of the tools that you use with --tools."
_CONFIGURE = "Configure the servers that you use (toolscout add), or name files of their tools with --tools."


@dataclass
class Installed:
    """Servers by id and their tools, ordered by id; ``log`` has the newest entry first. ``notes`` say what was left
    out. ``vectors`` holds those of tools' and servers' texts that the catalogue has encoded already."""

    servers: dict[str, Server]
    tools: list[Tool]
    exemplars: list[Call] = field(default_factory=list)
    log: list[CallLog] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    vectors: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)

    @property
    def searchable(self) -> list[Tool]:
        """The tools that ``find_tools`` offers: approved, of servers that are not quarantined."""
        return [tool for tool in self.tools if not self.is_held(tool)]

    def is_held(self, tool: Tool) -> bool:
        """Whether the guard keeps a tool from being offered."""
        server = self.servers.get(tool.server_id)
        return tool.review is not Review.APPROVED or (server is not None and server.state is ServerState.QUARANTINED)


def from_home(settings: Settings, *, everything: bool = False) -> Installed:
    """What the home folder holds. With servers configured (``mcp.json``) those that are switched on, or, with
    ``everything`` or none configured, all servers of the catalogue.

    Raises BadInput if ``mcp.json`` cannot be read or there are more than `MOST_TOOLS` tools, StorageError for the
    catalogue.
    """
    from toolscout.server.config import ServersFile

    file = ServersFile(settings.servers_file)
    configured = file.load()
    notes = [f"Left out, its entry in mcp.json cannot be used: {name}." for name in file.problems]
    if not settings.database and not (settings.home / "catalogue.db").is_file():
        notes += [f"{name} is configured, but its tools were never listed: toolscout refresh." for name in configured]
        return Installed({}, [], notes=notes)
    with Catalogue(settings.database_url) as catalogue:
        servers = {server.server_id: server for server in catalogue.servers()}
        if configured and not everything:
            enabled = {name for name, config in configured.items() if not config.disabled}
            notes += [
                f"{name} is configured, but switched off: left out." for name in sorted(set(configured) - enabled)
            ]
            left = len(set(servers) - set(configured))
            if left:
                notes.append(
                    f"The catalog knows {left:,} more servers that are not configured: left out (--everything takes "
                    "them in)."
                )
            servers = {name: server for name, server in servers.items() if name in enabled}
            unlisted = sorted(enabled - set(servers))
        else:
            unlisted = sorted(set(configured) - set(servers))
        notes += [f"{name} is configured, but its tools were never listed: toolscout refresh." for name in unlisted]
        tools: list[Tool] = []
        for server_id in sorted(servers):
            tools += catalogue.tools(server_id)
            _check(len(tools), _LEAVE_OUT if everything else _CONFIGURE)
        exemplars, log = list(catalogue.exemplars()), catalogue.call_log(LOG_KEPT)
        return Installed(servers, tools, exemplars, log, notes, _vectors(catalogue, servers, tools, settings))


def _vectors(
    catalogue: Catalogue, servers: dict[str, Server], tools: Sequence[Tool], settings: Settings
) -> dict[str, npt.NDArray[np.float32]]:
    """By text what the catalogue has encoded already; its keys are those of `toolscout.index.build`."""
    texts = {server_text(server) for server in servers.values()}
    texts |= {tool_text(tool, servers.get(tool.server_id)) for tool in tools}
    keys = {hashlib.sha256(f"document\0{t}".encode("utf-8", "surrogatepass")).hexdigest(): t for t in texts}
    found = catalogue.get_vectors(make_encoder(settings).fingerprint, list(keys))
    return {keys[key]: vector for key, vector in found.items()}


def from_files(tools: Sequence[Path], servers: Sequence[Path] = ()) -> Installed:
    """What files of the data contract hold, scanned by the guard as an import does.

    Raises NotFound for a file that does not exist, BadInput for a malformed line, where no file holds a tool or all
    together more than `MOST_TOOLS`.
    """
    from toolscout.index.transfer import import_files

    check_files(tools, servers)
    with (
        tempfile.TemporaryDirectory(prefix="toolscout-setup-") as folder,
        Catalogue(f"sqlite:///{Path(folder) / 'catalogue.db'}") as catalogue,
    ):
        import_files(catalogue, servers=servers, tools=tools)
        found = {server.server_id: server for server in catalogue.servers()}
        installed = Installed(found, list(catalogue.tools()))
    if not installed.tools:
        raise BadInput("The tools files hold no tools.", "Give at least one file of tools with --tools.")
    _check(len(installed.tools), _FEWER)
    return installed


def home_settings(settings: Settings, home: Path | None) -> Settings:
    """Settings over the home folder that was named. Raises NotFound if it does not exist."""
    if home is None:
        return settings
    if home.expanduser().is_file():
        raise BadInput(f"{home} is a file.", "Give --home a folder, or name files with --tools.")
    if not home.expanduser().is_dir():
        raise NotFound(f"There is no folder {home}.", "Name a home folder of Toolscout, or leave --home out.")
    return settings.model_copy(update={"home": home.expanduser(), "database": ""})


def build(installed: Installed, folder: Path, settings: Settings, encoder: Encoder) -> SearchIndex:
    """An index over the searchable tools alone, in ``folder``; exemplars stay out, since they are asked.

    Raises BadInput for more than `MOST_TOOLS` tools.
    """
    tools = installed.searchable
    _check(len(tools), _FEWER)
    mine = settings.model_copy(update={"home": folder, "database": "", "starter": False})
    wanted = {tool.server_id for tool in tools}
    with Catalogue(mine.database_url, guard=False) as catalogue:
        catalogue.merge(_known(installed, wanted), tools)
        build_index(catalogue, mine, encoder=encoder)
    return SearchIndex.open(mine.index_dir, encoder, mine)


def _known(installed: Installed, wanted: Iterable[str]) -> list[Server]:
    return [installed.servers.get(i) or Server(server_id=i, name=i.rsplit("/", 1)[-1]) for i in sorted(wanted)]


def _check(tools: int, hint: str) -> None:
    if tools > MOST_TOOLS:
        raise BadInput(f"More than {MOST_TOOLS:,} tools are a catalog, not one person's setup.", hint)
