"""What happened: calls by outcome, faults by kind, recoveries, violations; shared by all who watch."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Tally:
    """Everything that the report is made of. Times are seconds since the start."""

    started: float = field(default_factory=time.monotonic)
    calls: Counter[str] = field(default_factory=Counter)
    outcomes: defaultdict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """Outcomes of calls by the kind of fault that was on (``calm`` for none)."""
    errors: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    attempts: defaultdict[str, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    """Calls that it took after a fault was lifted until one went well, by kind of fault."""
    waited: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    """Longest back-off in seconds that was announced after a fault was lifted, by kind."""
    longest: Counter[str] = field(default_factory=Counter)
    """Longest call in ms by fault and operation."""
    violations: list[dict[str, Any]] = field(default_factory=list)
    memory: list[tuple[float, float, int]] = field(default_factory=list)
    """Moment, MB of the HTTP server, its open descriptors."""
    active: str = ""
    """The fault that is on now."""
    quiet_since: float = 0.0
    """Since when all has been well again; 0 while a fault is on or its end has not been tried."""

    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.started

    def violate(self, invariant: str, what: str) -> None:
        """Note that an invariant was broken."""
        entry = {"at": round(self.now(), 1), "invariant": invariant, "fault": self.active or "calm", "what": what}
        self.violations.append(entry)
        print(f"  VIOLATION {entry}", flush=True)
