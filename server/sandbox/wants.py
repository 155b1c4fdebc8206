"""Guess what a server needs opened in its sandbox, by its own lines and by what the catalog knows of it.

Proposed to a person, never opened by itself. The rule is told in docs/SANDBOX.md.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from toolscout.bubblewrap import SYSTEM
from toolscout.errors import NotAllowed, ToolscoutError
from toolscout.records import Server, Tool
from toolscout.server.clients.redact import AMBIENT, secret_name, secret_value
from toolscout.server.config import UpstreamConfig
from toolscout.server.launch import needs
from toolscout.server.sandbox.package import read_package
from toolscout.server.sandbox.policy import Policy
from toolscout.server.sandbox.view import alone, is_broad, own_code
from toolscout.server.secrecy.secrets import bare_names

_ADDRESS = re.compile(r"(?!(?:file|sqlite|duckdb)\b)[a-z][a-z0-9+.-]*://[^/\s]", re.IGNORECASE)
_ADDRESS_NAME = re.compile(r"(^|[_-])(url|uri|host|hostname|endpoint|domain|dsn|server|proxy)$", re.IGNORECASE)
_LOCAL_SCHEME = re.compile(r"^(?:file|sqlite|duckdb)[\w+]*://(?=/)", re.IGNORECASE)
_READ_NAME = re.compile(r"config|cred|key|cert|pem|token|secret|auth|schema|spec|template|read.?only|^-{0,2}ca$", re.I)
_PROJECT_RUNNERS = {"uv", "poetry", "npm", "pnpm", "yarn", "bun", "deno"}
"""A folder on their line is code to run."""
_ONLINE = {
    *("Web Search & Data", "Search & Web Data", "Browser Automation", "Map & Weather", "Maps & Location", "Travel"),
    *("Communication", "Email", "Social", "Finance", "Market Data", "Payments & Finance", "Cloud & Hosting"),
}
"""Categories of the catalog whose servers are about what is elsewhere."""


@dataclass(frozen=True)
class Wants:
    """Paths, and why it needs the network: by its own lines (``network``), or by the catalog alone (``likely``)."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    network: str = ""
    likely: str = ""
    remarks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.read or self.write or self.network or self.likely or self.remarks)

    def options(self) -> str:
        """The options of ``add`` and ``set`` that open what the server's own lines name; empty for nothing."""
        words = [f"--allow-write {shlex.quote(str(path))}" for path in self.write]
        words += [f"--allow-read {shlex.quote(str(path))}" for path in self.read]
        return " ".join([*words, *(["--allow-network"] if self.network else [])])

    def added_to(self, policy: Policy, *, likely: bool) -> Policy:
        """The policy with this opened, with ``likely`` also what the server's own lines do not say."""
        return replace(
            policy,
            network=policy.network or bool(self.network or (likely and self.likely)),
            read=tuple(dict.fromkeys((*policy.read, *self.read))),
            write=tuple(dict.fromkeys((*policy.write, *self.write))),
        )


@dataclass
class _Found:
    read: list[Path] = field(default_factory=list)
    write: list[Path] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def wants(
    config: UpstreamConfig, policy: Policy, home: Path, server: Server | None = None, tools: Sequence[Tool] = ()
) -> Wants:
    """What a server needs beside its ``policy``. ``server`` and ``tools``: what the catalog knows of its package.

    ``home`` is Toolscout's, which is never opened.
    """
    try:
        package = read_package(config.command, config.args)
    except ToolscoutError:
        return Wants()  # it cannot run in a sandbox at all, which its start explains
    args = package.args if package is not None else config.args
    code = own_code(config.command, config.args, config.cwd) if package is None else None
    reads = Path(config.command).name in _PROJECT_RUNNERS if package is None else _only_read(tools)
    named = [*_named(args), *config.env.items()]
    found = _Found()
    for name, path in ((name, path) for name, text in named for path in _paths(text)):
        _sort(found, config.name, path, code, home, reads or _READ_NAME.search(name) is not None)
    write = tuple(dict.fromkeys(p for p in found.write if not _within(p, policy.write)))
    write = tuple(p for p in write if not _within(p, [other for other in write if other != p]))
    read = tuple(p for p in dict.fromkeys(found.read) if not _within(p, (*write, *policy.read, *policy.write)))
    keys = [name for name in bare_names(config.references()) if name not in AMBIENT]
    own = "" if policy.network else _address(named) or next(iter(keys), "")
    likely = "" if policy.network or own or server is None else _online(server, tools)
    return Wants(read, write, own, likely, tuple(dict.fromkeys(found.remarks)))


def _sort(found: _Found, name: str, path: Path, code: Path | None, home: Path, reads: bool) -> None:
    """Put a path that the server's lines name where it belongs."""
    opened = path if path.is_dir() or (reads and path.exists()) else path.parent
    if opened != path and is_broad(opened):  # a whole home is not opened for one file
        if path.exists():
            opened = path
        found.remarks.append(alone(name, path))
    elif opened != path and code is not None and code.is_relative_to(opened):
        opened = path
    if code is not None and (path == code or (reads and path.is_relative_to(code))):
        return
    if not opened.exists() or is_broad(opened):
        if not is_broad(opened) and not secret_value(str(path)):
            option = f"{'--allow-read' if reads else '--allow-write'} {shlex.quote(str(opened))}"
            found.remarks.append(f"{path} does not exist: make it, then toolscout set {shlex.quote(name)} {option}")
        return
    try:
        Policy(read=(opened,)).check(name, home)
    except NotAllowed as error:
        found.remarks.append(f"{opened} is not opened: it {str(error).partition(', which ')[2] or error}")
        return
    reads = reads or (code is not None and code.is_relative_to(opened))
    if not reads and (why := _unwritable(opened, found.write)):
        found.remarks.append(f"{opened} can only be read: {why}")
        reads = True
    (found.read if reads else found.write).append(opened)


def _unwritable(path: Path, others: Sequence[Path]) -> str:
    """Why a sandbox cannot write a path; empty where it can."""
    if os.geteuid() != 0:
        return "" if os.access(path, os.W_OK) else "you may not write it"
    owner = (path.stat().st_uid, path.stat().st_gid)
    if owner[0] == 0:
        return "it belongs to root, and nothing runs as root in a sandbox"
    alike = all((other.stat().st_uid, other.stat().st_gid) == owner for other in others)
    return "" if alike else "it belongs to another user than the rest"


def _named(args: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The words of a command line with the option that each is a value of."""
    before = ""
    for word in args:
        flag, sep, value = word.partition("=")
        if word.startswith("-") and sep:
            yield flag, value
        elif not word.startswith("-"):
            yield before, word
        else:
            yield word, ""
        before = word if word.startswith("-") and not sep else ""


def _paths(text: str) -> Iterator[Path]:
    """The full paths that a value is, or is a list of."""
    text = os.path.expandvars(text)
    for parts in ([text], text.split(","), text.split(os.pathsep)):
        words = [_LOCAL_SCHEME.sub("", part.strip()) for part in parts]
        if all(word.startswith(("/", "~/")) and word.isprintable() for word in words):
            paths = [Path("/", word.lstrip("/")) if word[0] == "/" else Path(word).expanduser() for word in words]
            if len(paths) > 1 or paths[0].exists() or not re.search(r"[,:]", words[0]):
                yield from (p for p in paths if ".." not in p.parts and not _within(p, map(Path, (*SYSTEM, "/dev"))))
                return


def _address(named: Sequence[tuple[str, str]]) -> str:
    """What in the lines says that it talks to somebody: an address, or the name of an address or a key."""
    for name, text in named:
        if _ADDRESS.match(text):
            return text.partition("://")[0] + "://" + re.split(r"[/?#]", text.partition("://")[2].rpartition("@")[2])[0]
        if secret_name(name) or (_ADDRESS_NAME.search(name) and next(_paths(text), None) is None):
            return name.lstrip("-")
    return ""


def _online(server: Server, tools: Sequence[Tool]) -> str:
    """Why the catalog lets one think that a server talks to somebody."""
    if wanted := needs(server):
        return f"takes {wanted[0]}"
    if server.official:
        return f"is {server.publisher}'s own" if server.publisher else "is its maker's own"
    if any((tool.annotations or {}).get("openWorldHint") is True for tool in tools):
        return "says it reaches the outside"
    return f"is for {server.category}" if server.category in _ONLINE else ""


def _only_read(tools: Sequence[Tool]) -> bool:
    return bool(tools) and all(tool.read_only for tool in tools)


def _within(path: Path, folders: Sequence[Path] | Iterator[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
