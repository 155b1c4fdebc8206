"""What is known of a server: how its texts describe it, what it offers, what it costs, and how its calls went."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from toolscout.causes import Cause
from toolscout.errors import BadInput, NotFound
from toolscout.eval.metrics import mean, percentile
from toolscout.eval.setup.context import tool_tokens
from toolscout.eval.tokens import TokenCounter
from toolscout.index.catalogue import CallLog
from toolscout.index.health import Health
from toolscout.records import JsonObject, Server, Tool
from toolscout.signature import parameters

CALLERS = frozenset({Cause.PARAMETER, Cause.REFERENCE, Cause.NOT_CALLABLE})
"""Failures that say nothing of the server: the call was wrong, or was never made."""

_WEIGHT = 5.0
"""Calls that the mean of all servers counts for: one lost call of one says little."""


@dataclass
class Evidence:
    """How a server's calls went, and what came of them. ``seconds`` are medians with the number of calls of each."""

    made: int = 0
    went_well: int = 0
    causes: Counter[str] = field(default_factory=Counter)
    seconds: list[tuple[float, int]] = field(default_factory=list)
    outcomes: int = 0
    right: float = 0.0
    """Requests whose outcome was judged, and those that came out right; a part for each trial."""

    @property
    def answered(self) -> int:
        """Calls that the server answered without a fault: empty results are answers."""
        return self.went_well + self.causes[Cause.EMPTY]

    @property
    def faults(self) -> int:
        """Calls that failed at the server: API, session, runtime, errors without a reason."""
        return sum(n for cause, n in self.causes.items() if cause not in CALLERS and cause != Cause.EMPTY)

    @property
    def success_rate(self) -> float | None:
        """Share of the calls made that went well."""
        return self.went_well / self.made if self.made else None

    @property
    def median(self) -> float | None:
        """Seconds of a call: the medians' mean, weighed by calls."""
        calls = sum(n for _, n in self.seconds)
        return sum(s * n for s, n in self.seconds) / calls if calls else None


def from_executed(paths: Iterable[Path]) -> dict[str, Evidence]:
    """What ``eval execute --json`` wrote of each server, summed over the files.

    Raises NotFound, BadInput for a file that is none of these.
    """
    found: dict[str, Evidence] = {}
    for path in paths:
        try:
            result = json.loads(path.read_text("utf-8"))
            for server_id, part in (result.get("outcomes") or {}).items():  # results of older versions have none
                evidence = found.setdefault(server_id, Evidence())
                evidence.outcomes += int(part["n"])
                evidence.right += int(part["n"]) * float(part["right"])
            for server_id, part in result["by_server"].items():
                evidence = found.setdefault(server_id, Evidence())
                evidence.made += int(part["made"])
                evidence.went_well += int(part["went_well"])
                evidence.causes.update({str(cause): int(n) for cause, n in part["by_cause"].items()})
                # A server that answers nothing is not quick.
                if part["seconds"]["p50"] is not None and int(part["went_well"]):
                    evidence.seconds.append((float(part["seconds"]["p50"]), int(part["made"])))
        except FileNotFoundError:
            raise NotFound(f"There is no file {path}.", "Check the path.") from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            raise BadInput(f"{path} is no result of eval execute.", "Give what its --json wrote.") from None
    return found


def from_log(entries: Iterable[CallLog], server_of: Mapping[str, str]) -> dict[str, Evidence]:
    """What the call log says; of a failed call it does not say why, so all count as other errors."""
    found: dict[str, Evidence] = {}
    seconds: dict[str, list[float]] = {}
    for entry in entries:
        server_id = server_of.get(entry.tool_id or "")
        if entry.kind != "invoke" or server_id is None:
            continue
        evidence = found.setdefault(server_id, Evidence())
        evidence.made += 1
        if entry.outcome == "ok":
            evidence.went_well += 1
            seconds.setdefault(server_id, []).append(entry.ms / 1000)
        else:
            evidence.causes[Cause.OTHER] += 1
    for server_id, values in seconds.items():
        found[server_id].seconds = [(percentile(values, 50) or 0.0, len(values))]
    return found


def healths(evidence: Mapping[str, Evidence]) -> tuple[dict[str, Health], float | None]:
    """Each server's health and the mean of all.

    Health is the share of calls that the server answered without a fault of its own, drawn towards the mean of all
    servers as if that were five calls more. A server without such calls has none.
    """
    answered = sum(e.answered for e in evidence.values())
    counted = answered + sum(e.faults for e in evidence.values())
    if not counted:
        return {}, None
    average = answered / counted
    found = {}
    for server_id, one in sorted(evidence.items()):
        calls = one.answered + one.faults
        if calls:
            value = (one.answered + _WEIGHT * average) / (calls + _WEIGHT)
            found[server_id] = Health(health=round(value, 4), calls=calls)
    return found, round(average, 4)


def facts(
    server: Server | None, tools: Sequence[Tool], evidence: Evidence | None, health: Health | None, count: TokenCounter
) -> JsonObject:
    """All numbers of one server; None where nothing is known."""
    found = evidence or Evidence()
    return {
        "calls": found.made,
        "outcomes": found.outcomes,
        "right": _round(found.right / found.outcomes) if found.outcomes else None,
        "success_rate": _round(found.success_rate),
        "health": health.health if health is not None else None,
        "by_cause": dict(sorted((str(c), n) for c, n in found.causes.items() if n)),
        "seconds": _round(found.median),
        "quality": quality(tools),
        "tools": len(tools),
        "parameters": sum(len(parameters(t.input_schema)) for t in tools),
        "tokens": sum(tool_tokens(t, count) for t in tools),
        "popularity": server.popularity if server is not None else None,
    }


def quality(tools: Sequence[Tool]) -> JsonObject:
    """How well the texts describe: the shares of tools with a description beyond their name, of parameters that are
    described, and of parameters with a type; ``score`` is the mean of those that there are. ``outputs`` is the share
    of tools that declare what they return."""
    found = [p for tool in tools for p in parameters(tool.input_schema)]
    shares = {
        "described": mean(float(_says_more(tool)) for tool in tools),
        "parameters_described": mean(float(bool(p.description.strip())) for p in found),
        "parameters_typed": mean(
            float(any(k in p.schema for k in ("type", "enum", "const", "anyOf", "oneOf"))) for p in found
        ),
    }
    score = mean(value for value in shares.values() if value is not None)
    outputs = mean(float(bool(tool.output_schema)) for tool in tools)
    return {"score": _round(score), **{n: _round(v) for n, v in shares.items()}, "outputs": _round(outputs)}


def _says_more(tool: Tool) -> bool:
    name = "".join(c for c in tool.name.casefold() if c.isalnum())
    said = "".join(c for c in tool.description.casefold() if c.isalnum())
    return bool(said) and said != name


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
