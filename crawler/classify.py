"""What a package is: a server, or something else that has "mcp" in its name. By name first, then by its metadata."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from toolscout.crawler.sources.base import Verdict

if TYPE_CHECKING:
    from toolscout.crawler.install.base import Metadata

_REUPLOAD = re.compile(r"@iflow-mcp/|iflow-mcp[_-]|mseep-|@mseep/", re.I)
_PLATFORM = re.compile(
    r"[-_.](?:linux|darwin|macos|osx|win(?:dows|32|64)?|freebsd|android|alpine|musl)[-_.]?"
    r"(?:x64|x86[-_]64|x86|amd64|arm64|aarch64|arm(?:v\d)?\w*|ia32|universal|riscv64|ppc64\w*|s390x)?"
    r"(?:[-_](?:musl|gnu|msvc|eabihf|gnueabihf))?$",
    re.I,
)
_TEMPLATE = re.compile(r"(?:^|/)create-|[-_](?:template|boilerplate|starter|scaffold|skeleton|cookiecutter)s?$", re.I)
_CLIENT = re.compile(r"[-_](?:client|clients|host|tester|playground)$", re.I)
_LIBRARY = re.compile(
    r"[-_/](?:sdk|types|typings|core|utils?|utilities|common|shared|lib|library|framework|adapters?|helpers?|schemas?|"
    r"protocol|transport|middleware|decorators?|testing|test-utils|eslint-(?:config|plugin)|plugin-sdk)$",
    re.I,
)
_SERVER = re.compile(r"mcp[-_]?server|server[-_]?mcp", re.I)
_FOR_SERVERS = re.compile(
    r"[-_/](?:sdk|types|typings|core|common|shared|lib|library|framework|middleware|decorators?)$", re.I
)
"""Libraries whose name also holds that of a server; the other words for libraries name what servers do, too."""

SERVER_PARTS = frozenset(
    {"@modelcontextprotocol/sdk", "@modelcontextprotocol/server", "fastmcp", "mcp-framework", "mcp-lite", "xmcp"}
    | {"@mastra/mcp", "mcp-handler", "mcp", "mcp-server", "fastapi-mcp", "@modelcontextprotocol/ext-apps"}
)
"""Dependencies that servers are built with."""


def by_name(package: str) -> tuple[Verdict, str]:
    """The verdict that a name alone allows, and why. Rather unknown than wrong: a name is little evidence."""
    if _REUPLOAD.match(package):
        return Verdict.REUPLOAD, "a re-upload scope"
    if _PLATFORM.search(package):
        return Verdict.PLATFORM, "one platform's binaries"
    if _TEMPLATE.search(package):
        return Verdict.TEMPLATE, "called a template"
    called = _SERVER.search(package) is not None
    if called and not (_FOR_SERVERS.search(package) or _CLIENT.search(package)):
        return Verdict.SERVER, "called a server"
    if _LIBRARY.search(package):
        return Verdict.LIBRARY, "called a library"
    if _CLIENT.search(package):
        return Verdict.CLIENT, "called a client"
    return Verdict.UNKNOWN, ""


def by_metadata(metadata: Metadata, *, has_entry: bool) -> tuple[Verdict, str]:
    """The verdict on what was installed. Only what cannot be started is called a library: what can be, is tried."""
    named, reason = by_name(metadata.name)
    if named in (Verdict.REUPLOAD, Verdict.PLATFORM):
        return named, reason
    built = SERVER_PARTS.intersection(metadata.dependencies)
    if not has_entry:
        return Verdict.LIBRARY, "nothing in it can be started"
    if built:
        return Verdict.SERVER, f"depends on {sorted(built)[0]}"
    words = " ".join((metadata.description, *metadata.keywords)).lower()
    if re.search(r"mcp.{0,20}server|model context protocol|\bmcp\b", words):
        return Verdict.SERVER, "says that it is one"
    return Verdict.UNKNOWN, ""
