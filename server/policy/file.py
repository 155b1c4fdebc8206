"""The policy file: which calls are allowed, asked about or denied, and the limits and the audit log that go with them.

Rules are tried from the top, and the first that fits a call decides; where none fits, ``default`` does. A file that
cannot be used is an error and never an empty policy: who wrote one wants it kept (`docs/POLICY.md`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationError, field_validator

from toolscout.errors import NotAllowed
from toolscout.records import Tool
from toolscout.server.policy.patterns import Matcher, glob_matcher, text_matcher, value_texts

_PERIODS = {"s": 1.0, "second": 1.0, "min": 60.0, "minute": 60.0, "h": 3600.0, "hour": 3600.0}
_RATE = re.compile(r"\s*(\d{1,9})\s*/\s*(\w+)\s*")


class PolicyBroken(NotAllowed):
    """The policy file cannot be used, so nothing is called."""


class Action(StrEnum):
    """What happens to a call."""

    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Effect(StrEnum):
    """What a tool's server declares that its calls do; nobody has checked it."""

    READ_ONLY = "read_only"
    ADDITIVE = "additive"
    DESTRUCTIVE = "destructive"
    UNDECLARED = "undeclared"


def effect_of(tool: Tool) -> Effect:
    """By the tool's annotations. Of a contradiction the worse counts, as does the protocol's own reading of silence:
    a tool that declares to change things, and not how, is destructive."""
    stated = tool.annotations or {}
    read_only, destructive = stated.get("readOnlyHint"), stated.get("destructiveHint")
    if destructive is True:
        return Effect.DESTRUCTIVE
    if read_only is True:
        return Effect.READ_ONLY
    if destructive is False:
        return Effect.ADDITIVE
    return Effect.DESTRUCTIVE if read_only is False else Effect.UNDECLARED


@dataclass(frozen=True)
class Rate:
    """So many calls in so many seconds; as many may come at once."""

    calls: int
    seconds: float

    def __str__(self) -> str:
        period = {1.0: "a second", 60.0: "a minute"}.get(self.seconds, "an hour")
        return f"{self.calls:,} {'call' if self.calls == 1 else 'calls'} {period}"


def _rate(value: object) -> Rate:
    match = _RATE.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2] not in _PERIODS or not int(match[1]):
        raise ValueError('a rate is text such as "10/s", "60/min" or "500/h"')
    return Rate(int(match[1]), _PERIODS[match[2]])


def _several(value: object) -> object:
    return [value] if isinstance(value, str) else value


Patterns = Annotated[list[str], BeforeValidator(_several), Field(min_length=1)]
Effects = Annotated[list[Effect], BeforeValidator(_several), Field(min_length=1)]
RateText = Annotated[Rate, PlainValidator(_rate)]


class _Part(BaseModel):
    """A misspelt field is an error: a rule that silently does nothing would be worse than none."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Rule(_Part):
    """One rule. All conditions that it has must hold; one that it lacks holds always."""

    action: Action
    name: str = ""
    reason: str = ""
    """Told to the agent, and to the person who is asked."""

    server: Patterns = ["*"]
    tool: Patterns = ["*"]
    effect: Effects = list(Effect)
    arguments: dict[str, Patterns] = {}
    max_chars: int | None = Field(default=None, ge=100)
    """The limit on the results of the calls that this rule decides, in place of the common one."""

    @field_validator("arguments")
    @classmethod
    def _compiles(cls, value: dict[str, list[str]]) -> dict[str, list[str]]:
        for patterns in value.values():
            text_matcher(patterns)
        return value

    def fits(self, tool: Tool, effect: Effect, arguments: Mapping[str, Any]) -> bool:
        """Whether the rule is about this call.

        A value inside of an argument is enough to deny or to ask; to allow, all of them have to match.
        """
        if not self.is_about(tool, effect):
            return False
        for path, matches in self._values:
            texts = value_texts(arguments, path, keys=self.action is not Action.ALLOW)
            if self.action is Action.ALLOW:
                found = list(texts)
                if not found or not all(map(matches, found)):
                    return False
            elif not any(map(matches, texts)):
                return False
        return True

    def is_about(self, tool: Tool, effect: Effect) -> bool:
        """Whether the rule can be about calls of this tool: their arguments aside."""
        return effect in self.effect and self._server(tool.server_id) and self._tool(tool.name)

    @cached_property
    def _server(self) -> Matcher:
        return glob_matcher(self.server)

    @cached_property
    def _tool(self) -> Matcher:
        return glob_matcher(self.tool)

    @cached_property
    def _values(self) -> list[tuple[str, Matcher]]:
        return [(path, text_matcher(patterns)) for path, patterns in self.arguments.items()]


class Rates(_Part):
    """Rate limits; none where nothing is said."""

    client: RateText | None = None
    search: RateText | None = None
    """Of each client, for ``find_tools`` and ``suggest_call`` together."""

    upstream: RateText | None = None
    upstreams: dict[str, RateText] = {}
    """For single servers by their id, in place of ``upstream``."""

    def of_upstream(self, server_id: str) -> Rate | None:
        """The rate of one upstream, all clients together."""
        return self.upstreams.get(server_id, self.upstream)


class Responses(_Part):
    """Limits on what one call may bring back."""

    max_chars: int | None = Field(default=None, ge=100)


class Kept(StrEnum):
    """What the audit log keeps of an argument's value."""

    HASH = "hash"
    HIDE = "hide"
    CLEAR = "clear"


class AuditRule(_Part):
    """How some arguments' values are kept."""

    keep: Kept
    server: Patterns = ["*"]
    tool: Patterns = ["*"]
    arguments: Patterns = ["*"]

    def fits(self, server_id: str, tool_name: str, argument: str) -> bool:
        """Whether the rule is about this argument of this tool."""
        return all(m(text) for m, text in zip(self._matchers, (server_id, tool_name, argument), strict=True))

    @cached_property
    def _matchers(self) -> list[Matcher]:
        return [glob_matcher(self.server), glob_matcher(self.tool), glob_matcher(self.arguments)]


class AuditOptions(_Part):
    """Where the audit log is and what it holds. Sizes in bytes; ``files`` counts the one that is being written."""

    file: str = "audit.jsonl"
    max_bytes: int = Field(default=10_000_000, ge=10_000)
    files: int = Field(default=5, ge=1, le=1000)
    values: Kept = Kept.HASH
    rules: list[AuditRule] = []

    @field_validator("file")
    @classmethod
    def _leads_somewhere(cls, value: str) -> str:
        try:
            Path(value).expanduser()
        except RuntimeError:
            raise ValueError(f"the home folder in '{value}' is not known") from None
        return value

    @field_validator("values")
    @classmethod
    def _not_all_in_clear(cls, value: Kept) -> Kept:
        if value is Kept.CLEAR:
            raise ValueError('values are kept in clear only where a rule says so: write [[audit.rules]] keep = "clear"')
        return value


@dataclass(frozen=True)
class Decision:
    """What the policy says of one call; ``rule`` is None where the default has decided, ``number`` counts from 1."""

    action: Action
    effect: Effect
    rule: Rule | None = None
    number: int = 0

    @property
    def label(self) -> str:
        """The rule as people find it in the file."""
        if self.rule is None:
            return "the default"
        return f"rule {self.number}" + (f" ({self.rule.name})" if self.rule.name else "")


class Policy(_Part):
    """A whole policy file."""

    default: Action = Action.ALLOW
    rules: list[Rule] = []
    rates: Rates = Rates()
    responses: Responses = Responses()
    audit: AuditOptions | None = None

    def decide(self, tool: Tool, arguments: Mapping[str, Any]) -> Decision:
        """What happens to a call of ``tool``: the first rule that fits it decides."""
        effect = effect_of(tool)
        for number, rule in enumerate(self.rules, 1):
            if rule.fits(tool, effect, arguments):
                return Decision(rule.action, effect, rule, number)
        return Decision(self.default, effect)

    def never(self, tool: Tool) -> bool:
        """Whether every call of ``tool`` is denied, whatever its arguments: then it is no use to offer it."""
        effect = effect_of(tool)
        for rule in self.rules:
            if rule.is_about(tool, effect):
                if not rule.arguments:
                    return rule.action is Action.DENY
                if rule.action is not Action.DENY:
                    return False
        return self.default is Action.DENY

    def max_chars(self, decision: Decision | None) -> int | None:
        """The limit on a result's size in characters; None for none."""
        own = decision.rule.max_chars if decision is not None and decision.rule is not None else None
        return own if own is not None else self.responses.max_chars

    def in_short(self) -> str:
        """The policy in a line, for people."""
        parts = [f"{len(self.rules)} rules" if len(self.rules) != 1 else "1 rule", f"otherwise {self.default}"]
        rates = self.rates
        if rates.client or rates.search or rates.upstream or rates.upstreams:
            parts.append("rate limits")
        if self.responses.max_chars or any(rule.max_chars for rule in self.rules):
            parts.append("limits on results")
        parts.append("audit log" if self.audit else "no audit log")
        return ", ".join(parts)


def read_policy(path: Path) -> Policy:
    """Read a policy file.

    Raises:
        PolicyBroken: it is not there, not TOML, or says something that is not understood.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise _broken(path, f"cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise _broken(path, f"is not valid TOML: {error}") from None
    try:
        return Policy.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
        what = "there is no such field" if first["type"] == "extra_forbidden" else first["msg"]
        raise _broken(path, f"is wrong at {where}: {what.removeprefix('Value error, ')}") from None


def read_audit(path: Path) -> AuditOptions | None:
    """What a policy file that cannot be used asks of the audit log, as far as that can be made out."""
    try:
        options = tomllib.loads(path.read_text(encoding="utf-8-sig")).get("audit")
        return None if options is None else AuditOptions.model_validate(options)
    except (OSError, ValueError, RecursionError):
        return None


def _broken(path: Path, what: str) -> PolicyBroken:
    return PolicyBroken(
        f"The policy file {path} {what}.",
        "Until a person has corrected it no tool is called; `toolscout doctor` checks it.",
    )
