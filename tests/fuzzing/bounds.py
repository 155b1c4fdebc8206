"""What a case may take, and the record of those that took more or failed."""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

SECONDS = 5.0
"""Of one case, of processor time: a busy machine makes no case a hang."""
WAITS = 60.0
"""Of one case, by the clock: what waits for ever uses no processor."""
MEMORY = 3 * 2**30
"""Bytes of address space that all cases together may add."""


class TooLong(BaseException):
    """The case was not done in time. No `Exception`, so that no broad handler takes it for one of its own."""


@contextlib.contextmanager
def time_bound(seconds: float = SECONDS, waits: float = WAITS) -> Iterator[None]:
    """Raise TooLong inside of the block when it has taken too long. In the main thread, and not nested."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong(f"more than {seconds:g} s of processor time" if number == signal.SIGPROF else "it hangs")

    timers = {signal.SIGPROF: (signal.ITIMER_PROF, seconds), signal.SIGALRM: (signal.ITIMER_REAL, waits)}
    before = {number: signal.signal(number, stop) for number in timers}
    for timer, limit in timers.values():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for timer, _ in timers.values():
            signal.setitimer(timer, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def limit_memory(more: int = MEMORY) -> None:
    """From now on this process may take ``more`` bytes of address space: a blow-up is then a MemoryError."""
    with Path("/proc/self/statm").open() as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + more, resource.getrlimit(resource.RLIMIT_AS)[1]))


@dataclass
class Fault:
    """One fault: where it shows, how often, and the shortest case that shows it."""

    kind: str
    place: str
    error: str
    case: str
    trace: str
    times: int = 1


@dataclass
class Record:
    """Cases by kind, their slowest, and the faults found."""

    cases: dict[str, int] = field(default_factory=dict)
    slowest: dict[str, tuple[float, str]] = field(default_factory=dict)
    faults: dict[tuple[str, str, str], Fault] = field(default_factory=dict)

    def done(self, kind: str, seconds: float, case: Any) -> None:
        """Count a case."""
        self.cases[kind] = self.cases.get(kind, 0) + 1
        if seconds > self.slowest.get(kind, (0.0, ""))[0]:
            self.slowest[kind] = seconds, repr(case)[:300]

    def fault(self, kind: str, error: BaseException, case: Any) -> None:
        """Remember a fault; those of one place and type are one."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if "toolscout" in f.filename] or frames[-1:]
        place = f"{own[-1].filename.rpartition('toolscout/')[2]}:{own[-1].lineno}"
        key = kind, place, type(error).__name__
        text = repr(case)
        trace = "".join(traceback.format_exception(error))[-3000:]
        found = self.faults.get(key)
        if found is None:
            self.faults[key] = Fault(kind, place, f"{type(error).__name__}: {error}"[:300], text[:4000], trace)
            print(f"FAULT {kind} {place} {type(error).__name__}: {error}"[:400], file=sys.stderr)
            return
        found.times += 1
        if len(text) < len(found.case):
            found.case, found.trace = text[:4000], trace

    def to_json(self) -> str:
        """The record as JSON."""
        rows = {
            "cases": self.cases,
            "slowest": {k: {"seconds": round(s, 3), "case": c} for k, (s, c) in self.slowest.items()},
            "faults": [vars(f) for f in self.faults.values()],
        }
        return json.dumps(rows, indent=1)


@contextlib.contextmanager
def recorded(record: Record, kind: str, case: Any) -> Iterator[None]:
    """Count the case of this block; an exception in it is a fault of the record, and does not leave the block."""
    started = time.process_time()
    try:
        with time_bound():
            yield
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:  # TooLong, a panic of a library in Rust
        if type(error).__module__.startswith("hypothesis"):
            raise
        record.fault(kind, error, case)
    record.done(kind, time.process_time() - started, case)
