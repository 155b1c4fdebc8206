"""Faults on purpose: a real Toolscout with real upstreams and clients, broken by a seeded schedule, and watched.

    python benchmarks/faults.py [--minutes 30] [--seed 1] [--only KIND ...] [--json FILE]

A ``toolscout serve --http`` process with five upstreams (four over pipes, one over HTTP) serves concurrent clients of
both eras; further clients start a Toolscout of their own over stdio, again and again, on the same home. One fault at a
time is put on, held, and lifted. Exit status 0 only if every invariant held all the time; docs/FAULTS.md names them.
Everything needs Linux; the small disk that is filled needs root, the clock's jumps a C compiler.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any

from chaos.clients import LoadClient
from chaos.injectors import FAULTS
from chaos.schedule import play
from chaos.tally import Tally
from chaos.watch import growth, watch
from chaos.world import World


async def run(options: argparse.Namespace) -> dict[str, Any]:
    """The whole run; the report."""
    world, tally, stop = World(), Tally(), asyncio.Event()
    this = asyncio.current_task()
    assert this is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, this.cancel)
    world.prepare()
    for kind, why in world.cannot.items():
        print(f"left out: {kind}: {why}.")
    try:
        await world.start()
        tally.started = asyncio.get_running_loop().time()
        faces = [False] * options.http_clients + [True] * options.stdio_clients
        load = [LoadClient(n, world, tally, options.seed, stdio=stdio) for n, stdio in enumerate(faces)]
        tasks = [asyncio.create_task(client.run(stop)) for client in load]
        tasks.append(asyncio.create_task(watch(world, tally, stop)))
        try:
            await play(world, tally, options.seed, options.minutes * 60, options.only)
        except asyncio.CancelledError:
            tally.violate("the bench itself", "it was stopped before its time")
        finally:
            stop.set()
            for done in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(done, Exception):
                    tally.violate("the bench itself", repr(done))
    finally:
        for pid in await world.close():
            tally.violate("no orphan", f"{pid} was there after everything had been stopped")
        logs = {name: _log(path) for name, path in (("http", world.log), ("stdio", world.stdio_log))}
        if options.keep_logs:
            options.keep_logs.mkdir(parents=True, exist_ok=True)
            for path in (world.log, world.stdio_log):
                if path.exists():
                    (options.keep_logs / path.name).write_bytes(path.read_bytes())
        world.remove()
    return report(options, world, tally, logs)


def _log(path: Path) -> dict[str, Any]:
    text = path.read_text("utf-8", "replace") if path.exists() else ""
    return {"lines": text.count("\n"), "tracebacks": text.count("Traceback (most recent call last)")}


def report(options: argparse.Namespace, world: World, tally: Tally, logs: dict[str, Any]) -> dict[str, Any]:
    """Everything that was counted."""
    memory = growth(tally.memory)
    if memory and memory["mb_late"] > 1.5 * memory["mb_early"] + 100:
        tally.violate("memory bounded", f"from {memory['mb_early']} to {memory['mb_late']} MB")
    if memory and memory["descriptors_late"] > memory["descriptors_early"] + 50:
        tally.violate(
            "memory bounded", f"open descriptors {memory['descriptors_early']} to {memory['descriptors_late']}"
        )
    return {
        "seed": options.seed,
        "minutes": round(tally.now() / 60, 1),
        "left_out": world.cannot,
        "faults": dict(sorted(tally.faults.items())),
        "calls": dict(sorted(tally.calls.items())),
        "outcomes": {fault: dict(found) for fault, found in sorted(tally.outcomes.items())},
        "errors": dict(sorted(tally.errors.items())),
        "calls_until_well": {kind: dict(found) for kind, found in sorted(tally.attempts.items())},
        "longest_back_off_s": dict(tally.waited),
        "longest_call_ms": dict(tally.longest),
        "memory": memory,
        "log": logs,
        "violations": tally.violations,
    }


def show(result: dict[str, Any]) -> None:
    """The report for people."""
    print(f"\n{sum(result['faults'].values())} faults in {result['minutes']} min, seed {result['seed']}")
    for kind, number in result["faults"].items():
        outcomes = ", ".join(f"{n} {o}" for o, n in result["outcomes"].get(kind, {}).items())
        took = ", ".join(f"{n}x {tries}" for tries, n in sorted(result["calls_until_well"].get(kind, {}).items()))
        print(f"  {kind:24} {number:3} times; calls: {outcomes or 'none'}; calls until well: {took}")
    slowest = sorted(result["longest_call_ms"].items(), key=lambda one: -one[1])[:8]
    print(f"slowest calls in ms: {slowest}")
    for name in ("calls", "memory", "longest_back_off_s", "log"):
        print(f"{name}: {result[name]}")
    print(f"violations: {len(result['violations'])}")
    for violation in result["violations"][:40]:
        print(f"  {violation}")


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=[], choices=[f.kind for f in FAULTS], metavar="KIND")
    parser.add_argument("--http-clients", type=int, default=4)
    parser.add_argument("--stdio-clients", type=int, default=2)
    parser.add_argument("--json", type=Path, help="write the report to this file")
    parser.add_argument("--keep-logs", type=Path, help="copy the servers' logs into this folder")
    options = parser.parse_args()
    if not sys.platform.startswith("linux"):
        parser.error("the fault bench reads /proc and needs Linux")
    result = asyncio.run(run(options))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1))
    show(result)
    return 1 if result["violations"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
