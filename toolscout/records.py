"""The data contract: servers, tools, calls and trajectories, alike on disk (JSONL) and in the database."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

JsonObject = dict[str, Any]


class Transport(StrEnum):
    """How a server is spoken to."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


class ServerState(StrEnum):
    """Whether a server's tools can be called now, and if not, why."""

    READY = "ready"
    NEEDS_INSTALL = "needs_install"
    NEEDS_KEY = "needs_key"
    QUARANTINED = "quarantined"
    UNAVAILABLE = "unavailable"


class Review(StrEnum):
    """The guard's verdict on one tool. Only ``approved`` tools are searched, suggested and called."""

    APPROVED = "approved"
    PENDING = "pending"
    CHANGED = "changed"
    BLOCKED = "blocked"


class Record(BaseModel):
    """Base of all records: unknown fields are ignored, so that newer files stay readable; null means absent."""

    model_config = ConfigDict(extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, value: object) -> object:
        if isinstance(value, dict) and None in value.values():
            return {name: inner for name, inner in value.items() if inner is not None}
        return value

    def to_json(self) -> str:
        """One JSONL line (no newline), without fields that are unset or None."""
        return json.dumps(self.model_dump(mode="json", exclude_none=True), ensure_ascii=False)


class Source(Record):
    """Where a server was found."""

    marketplace: str
    id: str
    url: str | None = None


class EnvVar(Record):
    """An environment variable that a server reads. Never holds a value."""

    name: str
    required: bool = False
    secret: bool = False
    description: str | None = None


class Install(Record):
    """How a server is installed and started. ``registry`` is npm, pypi, oci, url or none."""

    registry: str = "none"
    package: str | None = None
    version: str | None = None
    command: str | None = None
    args: list[str] = Field(default_factory=list)
    env: list[EnvVar] = Field(default_factory=list)
    url: str | None = None
    auth: str | None = None
    """``oauth`` where a hosted server asks the person to log in."""


class Server(Record):
    """One MCP server: identity, how to reach it, and what is known about it."""

    server_id: str = Field(min_length=1)
    name: str = ""
    title: str | None = None
    description: str = ""
    summary: str | None = None
    category: str | None = None
    sources: list[Source] = Field(default_factory=list)
    transport: Transport = Transport.STDIO
    install: Install = Field(default_factory=Install)
    version: str | None = None
    license: str | None = None
    homepage: str | None = None
    publisher: str | None = None
    official: bool = False
    """Whether the publisher is the maker of the product that the server is for."""
    published: str | None = None
    """Day of the first release."""
    updated: str | None = None
    """Day of the newest release; of some only the month is known."""
    looks_like: str | None = None
    """A far more used package whose name this one's is almost, as ``registry:package``."""
    popularity: float | None = None
    """Downloads a month, as the registry counts them."""
    state: ServerState = ServerState.NEEDS_INSTALL
    instructions: str | None = None
    protocol_version: str | None = None
    checked_at: str | None = None

    @field_validator("description", mode="before")
    @classmethod
    def _none_is_empty(cls, value: object) -> object:
        return "" if value is None else value


def age_shown(server: Server) -> str:
    """Since when a server is released, and whether it still is."""
    said = [
        f"first released {server.published}" if server.published else "",
        f"newest release {server.updated}" if server.updated else "",
    ]
    return ", ".join(filter(None, said))


def warning_shown(server: Server) -> str:
    """A sentence for a server whose package is named almost like another one; else nothing."""
    registry, _, package = (server.looks_like or "").partition(":")
    if not package:
        return ""
    return (
        f"Its name is almost that of {package[:100]} ({registry}), which is downloaded at least 50 times as often: "
        "is this the one you mean?"
    )


def publisher_shown(server: Server) -> str:
    """Who publishes a server. A scope of npm is its owner's; what a package states of itself is anybody's."""
    if not server.publisher:
        return ""
    name = server.publisher[:60]
    if server.official:
        return f"{name} (official)"
    scoped = (server.install.package or "").casefold().startswith(f"@{server.publisher}/".casefold())
    return name if scoped else f'says "{name}"'


class Tool(Record):
    """One tool of one server. ``tool_id`` is ``<server_id>/<tool name>``."""

    tool_id: str = Field(min_length=1)
    server_id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    title: str | None = None
    description: str = ""
    input_schema: JsonObject = Field(default_factory=dict)
    output_schema: JsonObject | None = None
    annotations: JsonObject | None = None
    fingerprint: str = ""
    first_seen: str | None = None
    changed_at: str | None = None
    review: Review = Review.APPROVED
    findings: list[JsonObject] = Field(default_factory=list)

    @field_validator("description", mode="before")
    @classmethod
    def _none_is_empty(cls, value: object) -> object:
        return "" if value is None else value

    @field_validator("input_schema", mode="before")
    @classmethod
    def _none_is_no_schema(cls, value: object) -> object:
        return {} if value is None else value

    @property
    def is_server(self) -> bool:
        """Whether this stands for a server as a whole, whose tools are known once it is installed."""
        return self.tool_id == self.server_id

    @property
    def read_only(self) -> bool:
        """True only if the server itself declares ``readOnlyHint``."""
        return bool((self.annotations or {}).get("readOnlyHint"))

    def computed_fingerprint(self) -> str:
        """SHA-256 (hex) over the canonical JSON of name, description, schemas and annotations."""
        return fingerprint(self.name, self.description, self.input_schema, self.output_schema, self.annotations)


class GoldCall(Record):
    """One expected call. ``accept`` lists other right values per argument (BFCL's allowed sets)."""

    tool_id: str
    arguments: JsonObject | None = None
    accept: dict[str, list[Any]] | None = None
    id: str | None = None
    depends_on: list[str] = Field(default_factory=list)


class Call(Record):
    """A request with its gold calls. Empty ``gold`` means that no tool serves it."""

    id: str
    query: str
    gold: list[GoldCall] = Field(default_factory=list)
    relevant: list[str] | None = None
    candidates: list[str] | None = None
    split: str | None = None
    lang: str | None = None
    source: str = ""

    def relevant_ids(self) -> set[str]:
        """Every tool that would do the job: gold tools and their functional equivalents."""
        return {g.tool_id for g in self.gold} | set(self.relevant or ())


class Trajectory(Record):
    """A recorded run: messages, the tools it saw, the calls it made, and how it ended."""

    id: str
    messages: list[JsonObject]
    tools: list[str] = Field(default_factory=list)
    calls: list[JsonObject] = Field(default_factory=list)
    outcome: str = ""
    source: str = ""


def canonical_json(value: object) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def sha256_hex(text: str) -> str:
    """SHA-256 of UTF-8 text, hex. Lone surrogates are kept, not refused: they occur in crawled text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def fingerprint(
    name: str,
    description: str,
    input_schema: JsonObject,
    output_schema: JsonObject | None = None,
    annotations: JsonObject | None = None,
) -> str:
    """A tool's identity for pinning: it changes when anything that a model reads of the tool changes."""
    parts = {
        "name": name,
        "description": description,
        "input_schema": input_schema,
        "output_schema": output_schema,
        "annotations": annotations,
    }
    return sha256_hex(canonical_json(parts))


def entity_key(tools: Iterable[Tool]) -> str | None:
    """A server's identity by its tools: servers whose sets of tool descriptions are identical are one entity.

    MCP-Flow's rule (arXiv 2510.24284). Names are left out because marketplaces prefix them. None when every
    description is empty: such servers say nothing about themselves, so equal sets prove nothing.
    """
    described = sorted({t.description.strip() for t in tools})
    if not any(described):
        return None
    return sha256_hex(canonical_json(described))
