"""What all steps share: the tools, the models, the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from toolscout.index.encoder import Encoder
from toolscout.prompt import render_tool
from toolscout.records import JsonObject, Server, Tool
from toolscout.synth.environment import Environment
from toolscout.synth.naming import names_used
from toolscout.synth.settings import SynthSettings
from toolscout.synth.tool_pool import ToolPool
from toolscout.synth.writer import Writer

Ungrounded = Callable[[Tool, str, JsonObject], list[str]]
"""(tool, instruction, arguments) -> names of the arguments that the instruction does not give."""


@dataclass
class Bench:
    """The things that steps work with. ``second`` judges; without one, ``first`` judges itself.

    ``ungrounded`` comes from outside: the rules are the server's, which refuses such calls, and it stands beside this
    room.
    """

    tools: Mapping[str, Tool]
    servers: Mapping[str, Server]
    settings: SynthSettings
    environment: Environment = field(default_factory=Environment)
    first: Writer | None = None
    second: Writer | None = None
    encoder: Encoder | None = None
    ungrounded: Ungrounded | None = None
    at_once: int = 0
    """Inputs that steps work at together; 0 for as many as requests. More where several machines are asked."""

    @cached_property
    def pool(self) -> ToolPool:
        """The tools, with what does the same and what looks alike."""
        return ToolPool(self.tools.values(), self.servers)

    @property
    def inputs_at_once(self) -> int:
        """Inputs that a step works at together."""
        return self.at_once or self.settings.concurrency

    @property
    def writer(self) -> Writer:
        """The model that writes."""
        assert self.first is not None, "steps with a model are only made with one"
        return self.first

    @property
    def judge(self) -> Writer:
        """The model that judges."""
        return self.second or self.writer

    def shown(self, tool_id: str) -> str:
        """A tool as prompts show it."""
        return render_tool(self.tools[tool_id], level=1)

    def names_in(self, text: str, tool_id: str) -> list[str]:
        """Names of the tool and its server that a text uses, unless that is allowed."""
        tool = self.tools[tool_id]
        return [] if self.settings.allow_names else names_used(text, tool, self.servers.get(tool.server_id))
