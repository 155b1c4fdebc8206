"""What every peer is given and gives back."""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from toolscout.errors import BadInput
from toolscout.eval.rows import Say, silent
from toolscout.records import Call, JsonObject, Server, Tool
from toolscout.settings import Settings

RANK_DEPTH = 50
"""Ranks that count, as for our own search."""

OFFERED = 5
"""Tools in the answer whose tokens are counted."""

ENCODER_FOLDER = "An encoder folder holds encoder.json, or tokenizer.json and model.onnx (also in onnx/)."

UNNAMED = "a program of its own"
"""What a peer's program is called that does not say: its line holds folders and keys, and results are shared."""

StructuredRequest = tuple[str, str]
"""What kind of server, what kind of operation: MCP-Zero's form of a request."""


@dataclass(frozen=True)
class PeerPlan:
    """Which peers are measured. ``encoders``: peers that rank by cosine with the encoder in that folder.

    ``commands``: peers that are programs of their own and speak the protocol of `toolscout.eval.peers.command`.
    ``structured``: the requests of some rows, by row id, in MCP-Zero's form.
    """

    names: Sequence[str] = ()
    encoders: Mapping[str, Path] = field(default_factory=dict)
    commands: Mapping[str, str] = field(default_factory=dict)
    structured: Mapping[str, Sequence[StructuredRequest]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.names or self.encoders or self.commands)

    def check(self, known: Sequence[str]) -> None:
        """Raises BadInput for a peer that does not exist or cannot be started, before anything is computed."""
        for name in self.names:
            if name not in known:
                raise BadInput(
                    f"There is no peer called {name!r}.",
                    f"Peers are {', '.join(known)}; --peer-encoder and --peer-command add others.",
                )
        named = [*self.names, *self.encoders, *self.commands]
        for name in named:
            if named.count(name) > 1:
                raise BadInput(f"Two peers are called {name!r}.", "Give each peer a name of its own.")
        for name, folder in self.encoders.items():
            if not folder.is_dir():
                raise BadInput(f"The encoder folder of the peer {name}, {folder}, does not exist.")
            if not any((folder / file).is_file() for file in ("encoder.json", "model.onnx", "onnx/model.onnx")):
                raise BadInput(f"There is no encoder in {folder}, the folder of the peer {name}.", ENCODER_FOLDER)
        for name, command in self.commands.items():
            try:
                words = shlex.split(command)
            except ValueError as error:
                raise BadInput(f"The command of the peer {name} cannot be read: {error}.") from None
            if not words or shutil.which(words[0]) is None:
                raise BadInput(
                    f"The peer {name} cannot be started: there is no program {words[0] if words else ''!r}.",
                    "--peer-command wants NAME='PROGRAM ARGUMENTS'.",
                )


@dataclass(frozen=True)
class PeerTask:
    """What a peer is asked: ``rows`` (with gold, in order) over ``tools``."""

    tools: Mapping[str, Tool]
    servers: Mapping[str, Server]
    rows: Sequence[Call]
    count_tokens: Callable[[str], int]
    settings: Settings
    structured: Mapping[str, Sequence[StructuredRequest]] = field(default_factory=dict)
    cache: Path | None = None
    say: Say = silent

    def server_of(self, tool: Tool) -> Server | None:
        """The tool's server, if the files have it."""
        return self.servers.get(tool.server_id)


@dataclass
class RankedPeer:
    """What a peer answered: rankings (tool ids, best first) by row id and times in milliseconds.

    ``answer_tokens`` has the tokens of its answers of five tools, where it defines what an answer looks like.
    ``about`` says in one line what was run; ``extra`` goes into the result as it is.
    """

    about: str
    ranked: dict[str, list[str]] = field(default_factory=dict)
    ms: list[float] = field(default_factory=list)
    index_seconds: float = 0.0
    answer_tokens: list[float] = field(default_factory=list)
    structured: dict[str, list[str]] = field(default_factory=dict)
    structured_ms: list[float] = field(default_factory=list)
    extra: JsonObject = field(default_factory=dict)


def plain_text(tool: Tool, server: Server | None) -> str:
    """Everything that a plain search would look at, in words: name, title, description, parameter names, server."""
    from toolscout.index.words import split_identifier

    properties = tool.input_schema.get("properties")
    names = list(properties) if isinstance(properties, dict) else []
    parts = [" ".join(split_identifier(tool.name)), tool.title or "", tool.description]
    parts += [" ".join(split_identifier(str(name))) for name in names]
    parts += [server.name, server.description] if server is not None else [tool.server_id]
    return " ".join(part for part in parts if part)


def mcp_names(tools: Mapping[str, Tool]) -> dict[str, str]:
    """Tool ids by a name that MCP allows. The server's words stay in the name, as FastMCP's own mounting has it."""
    names: dict[str, str] = {}
    for tool_id in tools:
        plain = re.sub(r"[^A-Za-z0-9_.-]+", "_", tool_id)[-120:]
        name, number = plain, 2
        while name in names:
            name, number = f"{plain}_{number}", number + 1
        names[name] = tool_id
    return names


def server_words(tool: Tool, server: Server | None) -> str:
    """A server as text: its description, else its name, else the words of its id."""
    from toolscout.index.words import split_identifier

    if server is not None and (server.description or server.name):
        return server.description or server.name
    return " ".join(split_identifier(tool.server_id))
