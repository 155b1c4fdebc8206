"""Where clients keep their configuration on Linux, macOS and Windows, as their documentation or their sources say."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Machine:
    """The surroundings in which clients' files are looked for; tests put any operating system here."""

    home: Path = field(default_factory=Path.home)
    platform: str = sys.platform
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    project: Path | None = field(default_factory=Path.cwd)
    """Folder whose project-level configuration is read too; None leaves project files out. The home is none: what lies
    there is the person's own."""

    def __post_init__(self) -> None:
        if self.project == self.home:
            object.__setattr__(self, "project", None)

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
        return self.xdg

    @property
    def xdg(self) -> Path:
        """Where command-line programs keep their settings, on macOS too."""
        return Path(self.env.get("XDG_CONFIG_HOME") or self.home / ".config")


@dataclass(frozen=True)
class Place:
    """One configuration file of a client that may exist."""

    path: Path
    scope: str = "user"
    """``user`` or ``project``."""

    key: tuple[str, ...] = ("mcpServers",)
    """Where the servers stand in the document."""

    old: bool = False
    """Whether the client reads it still, but keeps its servers elsewhere now: it is not written."""

    newer: tuple[str, ...] = ()
    """Where they stand instead in a document that has this key already."""

    def within(self, document: Any) -> Place:
        """The same for this document."""
        for key in self.newer:
            document = document.get(key) if isinstance(document, Mapping) else None
        return replace(self, key=self.newer) if self.newer and isinstance(document, Mapping) else self


def files(*paths: str, key: tuple[str, ...] = ("mcpServers",), old: int = 0) -> Callable[[Machine], Iterator[Place]]:
    """Places at fixed paths, in the home (``~/``) or in the project; the last ``old`` of them are not written."""

    def found(machine: Machine) -> Iterator[Place]:
        for number, path in enumerate(paths):
            is_old = number >= len(paths) - old
            if path.startswith("~/"):
                yield Place(machine.home / path[2:], "user", key, is_old)
            elif machine.project:
                yield Place(machine.project / path, "project", key, is_old)

    return found


def _set(machine: Machine, name: str, otherwise: Path) -> Path:
    """The folder that a variable names, if it is set."""
    return Path(own) if (own := machine.env.get(name)) else otherwise


def claude(machine: Machine) -> Iterator[Place]:
    yield Place(machine.config / "Claude" / "claude_desktop_config.json")
    if machine.windows:  # the Microsoft Store build redirects its roaming folder
        local = Path(machine.env.get("LOCALAPPDATA") or machine.home / "AppData" / "Local")
        for folder in sorted((local / "Packages").glob("Claude_*")):
            yield Place(folder / "LocalCache" / "Roaming" / "Claude" / "claude_desktop_config.json")


def claude_code(machine: Machine) -> Iterator[Place]:
    yield Place(_set(machine, "CLAUDE_CONFIG_DIR", machine.home) / ".claude.json")
    yield from files(".mcp.json")(machine)


def _users_of_code(machine: Machine) -> list[Path]:
    return [machine.config / name / "User" for name in ("Code", "Code - Insiders", "VSCodium")]


def vscode(machine: Machine) -> Iterator[Place]:
    key = ("servers",)
    for user in _users_of_code(machine):
        yield Place(user / "mcp.json", key=key)
        for profile in sorted((user / "profiles").glob("*/mcp.json")):
            yield Place(profile, key=key)
        yield Place(user / "settings.json", key=("mcp", "servers"), old=True)  # releases before mid-2025
    yield from files(".vscode/mcp.json", key=key)(machine)


def _extension(folder: str, file: str, machine: Machine) -> Iterator[Place]:
    """Where an extension of VS Code, or of an editor made from it, keeps its settings."""
    for user in (*_users_of_code(machine), machine.config / "Cursor" / "User", machine.config / "Windsurf" / "User"):
        yield Place(user / "globalStorage" / folder / "settings" / file)


def cline(machine: Machine) -> Iterator[Place]:
    data = _set(machine, "CLINE_DATA_DIR", _set(machine, "CLINE_DIR", machine.home / ".cline") / "data")
    yield Place(_set(machine, "CLINE_MCP_SETTINGS_PATH", data / "settings" / "cline_mcp_settings.json"))
    yield from _extension("saoudrizwan.claude-dev", "cline_mcp_settings.json", machine)  # it moves this one itself


def roo(machine: Machine) -> Iterator[Place]:
    yield from _extension("rooveterinaryinc.roo-cline", "mcp_settings.json", machine)
    yield from files(".roo/mcp.json")(machine)


def codex(machine: Machine) -> Iterator[Place]:
    key = ("mcp_servers",)
    yield Place(_set(machine, "CODEX_HOME", machine.home / ".codex") / "config.toml", key=key)
    yield from files(".codex/config.toml", key=key)(machine)


def gemini(machine: Machine) -> Iterator[Place]:
    yield Place(_set(machine, "GEMINI_CLI_HOME", machine.home) / ".gemini" / "settings.json")
    yield from files(".gemini/settings.json")(machine)


def opencode(machine: Machine) -> Iterator[Place]:
    folders = [(machine.xdg / "opencode", "user")]
    if machine.project:
        folders += [(machine.project, "project"), (machine.project / ".opencode", "project")]
    for folder, scope in folders:
        for name in ("opencode.json", "opencode.jsonc"):
            yield Place(folder / name, scope, ("mcp",), newer=("mcp", "servers"))  # of its second version


def zed(machine: Machine) -> Iterator[Place]:
    folder = machine.config / "Zed" if machine.windows else machine.xdg / "zed"
    yield Place(folder / "settings.json", key=("context_servers",))
    yield from files(".zed/settings.json", key=("context_servers",))(machine)


def goose(machine: Machine) -> Iterator[Place]:
    folder = machine.config / "Block" / "goose" / "config" if machine.windows else machine.xdg / "goose"
    if root := machine.env.get("GOOSE_PATH_ROOT"):
        folder = Path(root) / "config"
    yield Place(folder / "config.yaml", key=("extensions",))
