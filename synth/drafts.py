"""What the steps hand on: subjects (tools to write for) and drafts (instructions on their way to being calls)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pydantic import ConfigDict, Field

from toolscout.records import Call, GoldCall, JsonObject, Record, Review, Server, ServerState, Tool, sha256_hex

PLAIN = "en"


class Subject(Record):
    """A tool to write instructions for, with what is known of its server. ``id`` is the tool's."""

    id: str
    tool: Tool
    server: Server | None = None


class OpenCall(Call):
    """A row of the data contract that keeps whatever else its file says of it."""

    model_config = ConfigDict(extra="allow")


class SynthCall(Call):
    """A made call: a row of the data contract with how it came about."""

    family: str = ""
    """Calls that were made of one instruction say alike things: they stand in one split."""
    level: int = 0
    directions: list[str] = Field(default_factory=list)
    scores: dict[str, float] = Field(default_factory=dict)


class Draft(Record):
    """An instruction for one tool, and as it goes on, the arguments of the call.

    ``definition`` marks the tool as it was defined: what was made for another definition is made anew.
    ``level`` counts its evolutions, ``directions`` names them; ``parent`` is the draft that it was made of. ``scores``
    are what filters measured. ``replaced`` counts placeholders that a local candidate took the place of.
    """

    id: str
    tool_id: str
    definition: str = ""
    text: str
    level: int = 0
    directions: list[str] = Field(default_factory=list)
    parent: str = ""
    lang: str = PLAIN
    arguments: JsonObject | None = None
    scores: dict[str, float] = Field(default_factory=dict)
    replaced: int | None = None

    def call(self) -> SynthCall:
        """The draft as a row of the data contract."""
        return SynthCall(
            id=self.id,
            query=self.text,
            gold=[GoldCall(tool_id=self.tool_id, arguments=self.arguments)],
            lang=self.lang,
            source="synth",
            family=_family(self.id),
            level=self.level,
            directions=self.directions,
            scores=self.scores,
        )


def _family(id_: str) -> str:
    """Of an instruction, its generations and its translations: what their ids begin with."""
    match = re.match(r"[0-9a-f]{10}-\d+", id_)
    return match[0] if match else id_


def definition_mark(tool: Tool) -> str:
    """A short name of what the tool says of itself."""
    return tool.computed_fingerprint()[:12]


def draft_of(call: Call, tools: Mapping[str, Tool]) -> Draft | None:
    """A row of the data contract as a draft; None unless it has exactly one gold call with arguments, of one of the
    tools."""
    if len(call.gold) != 1 or call.gold[0].arguments is None or call.gold[0].tool_id not in tools:
        return None
    gold = call.gold[0]
    return Draft(
        id=call.id,
        tool_id=gold.tool_id,
        definition=definition_mark(tools[gold.tool_id]),
        text=call.query,
        lang=call.lang or PLAIN,
        arguments=gold.arguments,
    )


def subjects(
    tools: Iterable[Tool], servers: Mapping[str, Server], limit: int = 0
) -> tuple[list[Subject], dict[str, int]]:
    """What to write for, in an order that is drawn once and does not change when tools are added; beside it, how many
    tools were left out and why.

    Tools that the guard has not approved, and those of quarantined servers, never reach training data. Of tools that
    are defined alike, the first one stands for all: they could not be told apart.
    """
    found: list[Subject] = []
    left: dict[str, int] = {}
    seen: set[str] = set()
    for tool in tools:
        server = servers.get(tool.server_id)
        definition = tool.computed_fingerprint()
        why = _barred(tool, server) or ("defined like another" if definition in seen else "")
        if why:
            left[why] = left.get(why, 0) + 1
            continue
        seen.add(definition)
        found.append(Subject(id=tool.tool_id, tool=tool, server=server))
    found.sort(key=lambda s: sha256_hex(s.id))
    return (found[:limit] if limit else found), left


def shown(tools: Iterable[Tool], servers: Mapping[str, Server]) -> dict[str, Tool]:
    """The tools that data may show, by id."""
    return {t.tool_id: t for t in tools if not _barred(t, servers.get(t.server_id))}


def _barred(tool: Tool, server: Server | None) -> str:
    if tool.review is not Review.APPROVED:
        return "not approved"
    return "server quarantined" if server is not None and server.state is ServerState.QUARANTINED else ""


def draw(*parts: object) -> float:
    """A number from 0 up to 1 drawn by a hash of the parts: the same for the same parts, everywhere and always."""
    return int(sha256_hex("\0".join(map(str, parts)))[:13], 16) / 16**13
