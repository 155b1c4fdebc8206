"""What a serving Toolscout told of its calls, from its JSON log or its metrics, in one form for the diagnosis."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from toolscout.errors import BadInput, NotFound

_MOST_TIMES = 100_000
_SAMPLE = re.compile(r'(toolscout_\w+)(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})? (\S+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass
class Upstream:
    """Calls of one upstream: how many, of which kinds of error, and how long they took (seconds)."""

    calls: int = 0
    errors: Counter[str] = field(default_factory=Counter)
    crashes: int = 0
    start_failures: Counter[str] = field(default_factory=Counter)
    times: list[float] = field(default_factory=list)
    """Of each call, from a log."""
    buckets: dict[float, float] = field(default_factory=dict)
    """Calls that took at most so long, from metrics."""

    def slow(self) -> float | None:
        """Seconds that 95 of 100 calls did not exceed (from metrics: the bucket's bound); None if not known."""
        if self.times:
            return sorted(self.times)[min(len(self.times) - 1, int(len(self.times) * 0.95))]
        total = max(self.buckets.values(), default=0.0)
        return next((bound for bound, n in sorted(self.buckets.items()) if n >= 0.95 * total), None) if total else None


@dataclass
class Traffic:
    """All of it. ``refusals`` by who refused and why; ``internal`` errors are Toolscout's own faults."""

    source: str
    calls: int = 0
    upstreams: dict[str, Upstream] = field(default_factory=dict)
    refusals: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Failed calls by tool and kind."""

    def of(self, server: str) -> Upstream:
        """The upstream of that name."""
        return self.upstreams.setdefault(server, Upstream())


def from_logs(path: Path) -> Traffic:
    """Read a log of ``--log-format json``; lines that are none of its are passed over.

    Raises NotFound, and BadInput where no line is one of a JSON log's.
    """
    traffic, ours, lines = Traffic(str(path)), 0, 0
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                lines += bool(line.strip())
                with contextlib.suppress(ArithmeticError):  # a number beyond every float
                    ours += _logged(traffic, line)
    except OSError as error:
        raise NotFound(
            f"{path} cannot be read: {error.strerror}.", "Name a file that the log was written to."
        ) from None
    if lines and not ours:
        raise BadInput(
            f"{path} holds no JSON log of Toolscout's.", "Serve with --log-format json, and send stderr to a file."
        )
    return traffic


def _logged(traffic: Traffic, line: str) -> bool:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return False
    if not isinstance(entry, dict) or "logger" not in entry or "message" not in entry:
        return False
    event, server = entry.get("event"), str(entry.get("server") or "")
    kind, seconds = str(entry.get("error") or ""), entry.get("duration_ms")
    if event == "call":
        traffic.calls += 1
        if kind:
            traffic.errors[str(entry.get("tool")), kind] += 1
        if refused := entry.get("refused_by"):
            traffic.refusals[str(refused), kind] += 1
        elif server:
            upstream = traffic.of(server)
            upstream.calls += 1
            if kind:
                upstream.errors[kind] += 1
            if isinstance(seconds, int | float) and len(upstream.times) < _MOST_TIMES:
                upstream.times.append(seconds / 1000)
    elif event == "upstream_end" and server:
        traffic.of(server).crashes += 1
    elif event == "upstream_start" and server and kind:
        traffic.of(server).start_failures[kind] += 1
    return True


def from_metrics(source: str, headers: dict[str, str] | None = None) -> Traffic:
    """Read the metrics page at a URL (``/metrics`` is added where there is no path) or in a file.

    Raises NotFound where it cannot be read, BadInput where it is no metrics page of Toolscout's.
    """
    traffic = Traffic(_shown(source))
    found = list(_samples(_page(source, headers or {}).splitlines()))
    for sample in found:
        with contextlib.suppress(KeyError, ValueError):  # a bucket without a bound, or with one that is no number
            _count(traffic, *sample)
    if not found:
        raise BadInput(f"{source} is no metrics page of Toolscout's.", "Name http://HOST:PORT/metrics of a server.")
    return traffic


def _page(source: str, headers: dict[str, str]) -> str:
    if not source.startswith(("http://", "https://")):
        try:
            return Path(source).read_text("utf-8", "replace")
        except OSError as error:
            raise NotFound(f"{source} cannot be read: {error.strerror}.", "Name a URL or a file.") from None
    import httpx

    shown = _shown(source)
    try:
        if not httpx.URL(source).path.strip("/"):
            source = source.rstrip("/") + "/metrics"
        answer = httpx.get(source, headers=headers, timeout=10)
        answer.raise_for_status()
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        hint = "Set TOOLSCOUT_AUTH_TOKEN to the server's token." if code in (401, 403) else "Check the address."
        raise NotFound(f"{shown} answered {code}.", hint) from None
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise NotFound(f"{shown} does not answer: {error}.", "Start the server, or check the address.") from None
    return answer.text


def _shown(source: str) -> str:
    """The address without user and password."""
    scheme, separator, rest = source.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path}" if separator else source


def _samples(lines: Iterable[str]) -> Iterable[tuple[str, dict[str, str], float]]:
    for line in lines:
        if (match := _SAMPLE.fullmatch(line.strip())) is None:
            continue
        try:
            yield match[1], dict(_LABEL.findall(match[2] or "")), float(match[3])
        except ValueError:
            continue


def _count(traffic: Traffic, name: str, labels: dict[str, str], value: float) -> None:
    number, server = int(value) if value == value and abs(value) < 1e15 else 0, labels.get("server", "")
    error = labels.get("error", "")
    if name == "toolscout_calls_total":
        traffic.calls += number
    elif name == "toolscout_call_errors_total":
        traffic.errors[labels.get("tool", ""), error] += number
    elif name == "toolscout_refusals_total":
        traffic.refusals[labels.get("by", ""), labels.get("reason", "")] += number
    elif name == "toolscout_upstream_calls_total":
        traffic.of(server).calls += number
        if error:
            traffic.of(server).errors[error] += number
    elif name == "toolscout_upstream_crashes_total":
        traffic.of(server).crashes += number
    elif name == "toolscout_upstream_starts_total" and (outcome := labels.get("outcome")) != "ok":
        traffic.of(server).start_failures[str(outcome)] += number
    elif name == "toolscout_upstream_call_seconds_bucket":
        traffic.of(server).buckets[float(labels["le"].replace("+Inf", "inf"))] = value
