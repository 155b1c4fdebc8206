"""The clients that Toolscout knows: where each keeps its configuration, and in what form.

Paths are those of the clients' own documentation, for Linux, macOS and Windows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from toolscout.errors import NotFound


@dataclass(frozen=True)
class Machine:
    """The surroundings in which clients' files are looked for; tests put any operating system here."""

    home: Path = field(default_factory=Path.home)
    platform: str = sys.platform
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    project: Path | None = field(default_factory=Path.cwd)
    """Folder whose project-level configuration is read too; None leaves project files out."""

    @property
    def windows(self) -> bool:
        return self.platform == "win32"

    @property
    def config(self) -> Path:
        """Where desktop programs keep their settings on this operating system."""
        if self.windows:
            return Path(self.env.get("APPDATA") or self.home / "AppData" / "Roaming")
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support"
        return Path(self.env.get("XDG_CONFIG_HOME") or self.home / ".config")


@dataclass(frozen=True)
class Place:
    """One configuration file of a client that may exist."""

    path: Path
    scope: str = "user"
    """``user`` or ``project``."""

    key: tuple[str, ...] = ("mcpServers",)
    """Where the servers stand in the document."""


@dataclass(frozen=True)
class Client:
    """An MCP client: its places, best first; the first is where Toolscout is written when no file exists yet."""

    id: str
    title: str
    places: Callable[[Machine], Iterator[Place]] = field(repr=False)
    reload: str = ""
    """What the user does for a change to take effect."""

    url_field: str | None = "url"
    """Name of the field that holds a remote server's URL; None where the file takes only local servers."""

    typed: bool = False
    """Whether an entry names its transport in ``type``."""


def _claude(machine: Machine) -> Iterator[Place]:
    yield Place(machine.config / "Claude" / "claude_desktop_config.json")
    if machine.windows:  # the Microsoft Store build redirects its roaming folder
        local = Path(machine.env.get("LOCALAPPDATA") or machine.home / "AppData" / "Local")
        for folder in sorted((local / "Packages").glob("Claude_*")):
            yield Place(folder / "LocalCache" / "Roaming" / "Claude" / "claude_desktop_config.json")


def _claude_code(machine: Machine) -> Iterator[Place]:
    own = machine.env.get("CLAUDE_CONFIG_DIR")
    yield Place((Path(own) if own else machine.home) / ".claude.json")
    if machine.project:
        yield Place(machine.project / ".mcp.json", "project")


def _cursor(machine: Machine) -> Iterator[Place]:
    yield Place(machine.home / ".cursor" / "mcp.json")
    if machine.project:
        yield Place(machine.project / ".cursor" / "mcp.json", "project")


def _vscode(machine: Machine) -> Iterator[Place]:
    key = ("servers",)
    for name in ("Code", "Code - Insiders", "VSCodium"):
        user = machine.config / name / "User"
        yield Place(user / "mcp.json", key=key)
        for profile in sorted((user / "profiles").glob("*/mcp.json")):
            yield Place(profile, key=key)
        yield Place(user / "settings.json", key=("mcp", "servers"))  # where releases before mid-2025 kept them
    if machine.project:
        yield Place(machine.project / ".vscode" / "mcp.json", "project", key)


def _codex(machine: Machine) -> Iterator[Place]:
    own = machine.env.get("CODEX_HOME")
    key = ("mcp_servers",)
    yield Place((Path(own) if own else machine.home / ".codex") / "config.toml", key=key)
    if machine.project:
        yield Place(machine.project / ".codex" / "config.toml", "project", key)


def _windsurf(machine: Machine) -> Iterator[Place]:
    yield Place(machine.home / ".codeium" / "windsurf" / "mcp_config.json")


CLIENTS: dict[str, Client] = {
    client.id: client
    for client in (
        Client("claude", "Claude Desktop", _claude, "Quit Claude Desktop fully and start it again.", url_field=None),
        Client("claude-code", "Claude Code", _claude_code, "Start a new Claude Code session.", typed=True),
        Client("cursor", "Cursor", _cursor, "Cursor picks it up by itself; check Settings > MCP."),
        Client("vscode", "VS Code", _vscode, "Run 'MCP: List Servers' in VS Code and start toolscout.", typed=True),
        Client("codex", "Codex", _codex, "Start a new Codex session."),
        Client("windsurf", "Windsurf", _windsurf, "Press Refresh in Windsurf's MCP panel.", url_field="serverUrl"),
    )
}

_ALIASES = {
    "claude-desktop": "claude",
    "claudecode": "claude-code",
    "claude_code": "claude-code",
    "vs-code": "vscode",
    "code": "vscode",
}


def get_client(name: str) -> Client:
    """The client of that name. Raises NotFound with the names that are known."""
    lowered = name.strip().lower()
    client = CLIENTS.get(_ALIASES.get(lowered, lowered))
    if client is None:
        raise NotFound(f"No client is known by the name {name!r}.", f"Known clients: {', '.join(CLIENTS)}.")
    return client


def is_client(name: str) -> bool:
    """Whether ``name`` names a known client (else it may be a file)."""
    lowered = name.strip().lower()
    return _ALIASES.get(lowered, lowered) in CLIENTS
