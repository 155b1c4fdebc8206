"""Verdicts by rule: a policy file says which tools that wait for review are approved, blocked, or left to a person.

TOML, a list of ``[[rule]]``; the first rule that fits a tool decides, and a tool that no rule fits goes on waiting::

    [[rule]]
    action = "block"                 # approve, block or wait
    servers = ["*"]                  # patterns of server ids; * matches any text (default: all)
    tools = ["*/delete_*"]           # patterns of tool ids (default: all)
    reviews = ["pending", "changed"] # which tools are judged (the default)
    worst = "info"                   # gravest finding that the rule takes: none, info, warn, block
    fingerprints = ["3f9a..."]       # only these versions (default: any)
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from toolscout.errors import BadInput, NotFound
from toolscout.records import Review, Tool

ACTIONS = {"approve": Review.APPROVED, "block": Review.BLOCKED, "wait": None}
WORST = ("none", "info", "warn", "block")

_HINT = "docs/GUARD.md shows a policy file."


@dataclass(frozen=True)
class PolicyRule:
    """One rule; see the module. ``worst`` is "info" for an approval and "block" for the others, if it is not said."""

    action: str
    servers: tuple[str, ...] = ("*",)
    tools: tuple[str, ...] = ("*",)
    reviews: tuple[str, ...] = (Review.PENDING.value, Review.CHANGED.value)
    worst: str = ""
    fingerprints: tuple[str, ...] = ()

    def fits(self, tool: Tool) -> bool:
        """Whether this rule decides on the tool."""
        gravest = max((WORST.index(_severity(f)) for f in tool.findings), default=0)
        worst = self.worst or ("info" if self.action == "approve" else "block")
        return (
            tool.review.value in self.reviews
            and gravest <= WORST.index(worst)
            and any(fnmatchcase(tool.server_id, pattern) for pattern in self.servers)
            and any(fnmatchcase(tool.tool_id, pattern) for pattern in self.tools)
            and (not self.fingerprints or tool.computed_fingerprint() in self.fingerprints)
        )


def read_policy(path: Path) -> list[PolicyRule]:
    """The rules of a policy file, in order.

    Raises:
        NotFound: there is no such file.
        BadInput: it is no TOML, or a rule says what cannot be understood; a policy is taken whole or not at all.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, IsADirectoryError):
        raise NotFound(f"There is no policy file {path}.", _HINT) from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:  # no TOML, no UTF-8, an endless number, deep nesting
        raise BadInput(f"{path} is no TOML: {error}.", _HINT) from None
    rules = document.get("rule")
    if not isinstance(rules, list) or not rules or set(document) != {"rule"}:
        raise BadInput(f"{path} holds something else than [[rule]] entries, or none.", _HINT)
    return [_rule(rule, f"{path}, rule {number}") for number, rule in enumerate(rules, 1)]


def verdicts(rules: Iterable[PolicyRule], tools: Iterable[Tool]) -> dict[str, Review]:
    """What the policy says, by tool id; tools that wait, or whose review it would not change, are left out."""
    found: dict[str, Review] = {}
    rules = list(rules)
    for tool in tools:
        rule = next((rule for rule in rules if rule.fits(tool)), None)
        verdict = ACTIONS[rule.action] if rule is not None else None
        if verdict is not None and verdict is not tool.review:
            found[tool.tool_id] = verdict
    return found


def _severity(finding: dict[str, Any]) -> str:
    said = finding.get("severity")
    return said if said in WORST else "warn"  # a finding that came with a catalogue, in words of its own


def _rule(rule: Any, place: str) -> PolicyRule:
    if not isinstance(rule, dict):
        raise BadInput(f"{place} is no table.", _HINT)
    known = {field.name for field in fields(PolicyRule)}
    if unknown := sorted(set(rule) - known):
        raise BadInput(f"{place}: {unknown[0]!r} is not known; rules have {', '.join(sorted(known))}.", _HINT)
    for name in ("servers", "tools", "reviews", "fingerprints"):
        value = rule.get(name, [])
        texts = isinstance(value, list) and all(isinstance(one, str) for one in value)
        if not texts or (name in rule and not value):  # an empty list would match everything, or nothing
            raise BadInput(f"{place}: {name} is not a list of texts.", _HINT)
    _among(rule.get("action"), ACTIONS, f"{place}: action")
    if "worst" in rule:
        _among(rule["worst"], WORST, f"{place}: worst")
    for review in rule.get("reviews", []):
        _among(review, [one.value for one in Review], f"{place}: reviews")
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in rule.items()}
    return PolicyRule(**values)


def _among(value: Any, allowed: Iterable[str], what: str) -> None:
    if value not in list(allowed):
        raise BadInput(f"{what} is {value!r}; it can be {', '.join(allowed)}.", _HINT)
