"""The clients that Toolscout knows: where each keeps its configuration, and in what form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolscout.errors import NotFound
from toolscout.server.clients import places
from toolscout.server.clients.places import Machine as Machine
from toolscout.server.clients.places import Place as Place


@dataclass(frozen=True)
class Form:
    """How a client writes a server down: the names of its fields, and what else stands in each entry."""

    command: str = "command"
    args: str | None = "args"
    """None: they stand in one list with the command."""

    env: str = "env"
    url: str | None = "url"
    """None where the file takes only local servers."""

    local: Mapping[str, Any] = field(default_factory=dict)
    remote: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Client:
    """An MCP client: its places, best first; the first is where Toolscout is written when no file exists yet."""

    id: str
    title: str
    places: Callable[[Machine], Iterator[Place]] = field(repr=False)
    reload: str = ""
    """What the user does for a change to take effect."""

    form: Form = Form()
    untyped: str = ""
    """The transport of a remote entry that names none, where it is not told from the URL."""

    paste: str = ""
    """Where a person pastes an entry, for a client whose files are not to be edited."""


_TYPED = Form(local={"type": "stdio"}, remote={"type": "http"})
_LOADED = {"alwaysLoad": True}
"""Claude Code waits for such a server before its first turn; that its tools are shown at once they say themselves."""
_OF_GOOSE = {
    "name": "toolscout",
    "description": "Finds and calls tools of other servers",
    "enabled": True,
    "timeout": 300,
}

CLIENTS: dict[str, Client] = {
    client.id: client
    for client in (
        Client(
            "claude", "Claude Desktop", places.claude, "Quit Claude Desktop fully and start it again.", Form(url=None)
        ),
        Client(
            "claude-code", "Claude Code", places.claude_code, "Start a new Claude Code session.",
            Form(local={"type": "stdio", **_LOADED}, remote={"type": "http", **_LOADED}),
        ),
        Client(
            "cursor", "Cursor", places.files("~/.cursor/mcp.json", ".cursor/mcp.json"),
            "Cursor picks it up by itself; check Settings > MCP.",
        ),
        Client("vscode", "VS Code", places.vscode, "Run 'MCP: List Servers' in VS Code and start toolscout.", _TYPED),
        Client("codex", "Codex", places.codex, "Start a new Codex session."),
        Client(
            "windsurf", "Windsurf", places.files("~/.codeium/windsurf/mcp_config.json"),
            "Press Refresh in Windsurf's MCP panel.", Form(url="serverUrl"),
        ),
        Client(
            "gemini", "Gemini CLI", places.gemini,
            "Start a new Gemini CLI session, in a folder that it trusts.", Form(url="httpUrl"),
        ),
        Client(
            "opencode", "opencode", places.opencode, "Start opencode again.",
            Form(args=None, env="environment", local={"type": "local"}, remote={"type": "remote"}),
        ),
        Client("zed", "Zed", places.zed, "Zed picks it up by itself; check Settings > AI > MCP Servers."),
        Client(
            "cline", "Cline", places.cline, "Cline picks it up by itself; check its MCP Servers panel.",
            Form(remote={"type": "streamableHttp"}), untyped="sse",
        ),
        Client(
            "roo", "Roo Code", places.roo, "Roo Code picks it up by itself; check its MCP view.",
            Form(remote={"type": "streamable-http"}),
        ),
        Client(
            "goose", "Goose", places.goose, "Start a new Goose session.",
            Form(
                "cmd", "args", "envs", "uri", {**_OF_GOOSE, "type": "stdio"}, {**_OF_GOOSE, "type": "streamable_http"}
            ),
        ),
        Client(
            "lmstudio", "LM Studio", places.files("~/.lmstudio/mcp.json", "~/.cache/lm-studio/mcp.json"),
            "LM Studio picks it up by itself; check its Program tab.",
        ),
        Client("junie", "JetBrains Junie", places.files("~/.junie/mcp/mcp.json", ".junie/mcp/mcp.json"),
            "Check Settings > Tools > Junie > MCP Settings."),
        Client(
            "jetbrains", "JetBrains AI Assistant", places.files("~/.ai/mcp/mcp.json", ".ai/mcp/mcp.json", old=2),
            paste="Settings > Tools > AI Assistant > Model Context Protocol (MCP) > Add > As JSON",
        ),
        Client(
            "kiro", "Kiro", places.files("~/.kiro/settings/mcp.json", ".kiro/settings/mcp.json"),
            "Kiro picks it up by itself; start a new session of its command line.",
        ),
        Client(
            "amazonq", "Amazon Q Developer",
            places.files(
                "~/.aws/amazonq/mcp.json", ".amazonq/mcp.json", "~/.aws/amazonq/default.json",
                "~/.aws/amazonq/agents/default.json", ".amazonq/default.json", old=3,
            ),
            "Start a new session.", Form(remote={"type": "http"}),
        ),
    )
}  # fmt: skip
NAMES = ", ".join(CLIENTS)

_ALIASES = {
    "claude-desktop": "claude",
    "claudecode": "claude-code",
    "claude_code": "claude-code",
    "vs-code": "vscode",
    "code": "vscode",
    "gemini-cli": "gemini",
    "roo-code": "roo",
    "lm-studio": "lmstudio",
    "amazon-q": "amazonq",
    "q": "amazonq",
    "ai-assistant": "jetbrains",
}


def get_client(name: str) -> Client:
    """The client of that name. Raises NotFound with the names that are known."""
    lowered = name.strip().lower()
    client = CLIENTS.get(_ALIASES.get(lowered, lowered))
    if client is None:
        raise NotFound(f"No client is known by the name {name!r}.", f"Known clients: {NAMES}.")
    return client


def is_client(name: str) -> bool:
    """Whether ``name`` names a known client (else it may be a file)."""
    lowered = name.strip().lower()
    return _ALIASES.get(lowered, lowered) in CLIENTS
