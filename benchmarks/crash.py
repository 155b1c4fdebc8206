"""``kill -9`` at random points of import, index build, review and crawl: is all there, does it serve, does it end?

    python benchmarks/crash.py [--points 200] [--seed 1] [--only import index review crawl] [--json FILE]

Each point starts a fresh copy of a small home, runs the real command line in a process of its own and kills it with
SIGKILL: half of the points at the N-th effect (a write, a rename, an SQL statement, ...) of that command, before or
after it; half at a moment of the command's running time. Then the catalogue must be whole and hold all that it held
before, the index must answer, and the same command run again must end well and leave the state that it leaves when it
is not killed. Exit status 0 only if all that was so at every point. Linux; the crawl needs a sandbox, Node.js and npm.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from chaos.commands import KINDS, Command
from chaos.dying import Ending, import_all, run_cli
from chaos.wholeness import after_kill, after_rerun, in_child


def one_point(command: Command, chance: random.Random, effects: int, seconds: float) -> dict[str, Any]:
    """Kill once, look, run again, look; what was found wrong is in ``wrong``."""
    work = command.fresh()
    try:
        if chance.random() < 0.5:
            point = Ending(effect=chance.randrange(effects), before=chance.random() < 0.5)
        else:
            point = Ending(seconds=chance.uniform(0.0, seconds * 1.05))
        killed = run_cli(command.line(work), command.environment(work), point)
        wrong = [] if killed.code in (0, -9) else [f"ended by itself with {killed.code}: {killed.said[-300:]}"]
        wrong += in_child(after_kill, work.home, command.before, command.may_change)
        again = run_cli(command.line(work), command.environment(work))
        if again.code:
            wrong.append(f"run again, it ended with {again.code}: {again.said[-300:]}")
        wrong += in_child(after_rerun, work.home, command.after, command.indexes)
        wrong += command.leftovers(work)
        return {"point": str(point), "killed": killed.code == -9, "wrong": wrong}
    finally:
        shutil.rmtree(work.folder, ignore_errors=True)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=200, help="in all; shared out among the commands")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="+", default=list(KINDS), choices=list(KINDS), metavar="COMMAND")
    parser.add_argument("--json", type=Path, help="write the report to this file")
    options = parser.parse_args()
    if not sys.platform.startswith("linux"):
        parser.error("the crash bench forks and reads /proc: it needs Linux")
    import_all()
    report: dict[str, Any] = {"seed": options.seed, "commands": {}, "violations": []}
    with tempfile.TemporaryDirectory(prefix="toolscout-crash-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for number, kind in enumerate(options.only):
            points = options.points // len(options.only) + (number < options.points % len(options.only))
            with KINDS[kind](folder / kind) as command:
                if command.trouble:
                    print(f"left out: {kind}: {command.trouble}.")
                    continue
                report["commands"][kind] = _one_command(kind, command, points, options.seed, report["violations"])
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    print(f"violations: {len(report['violations'])}")
    return 1 if report["violations"] else 0


def _one_command(kind: str, command: Command, points: int, seed: int, violations: list[Any]) -> dict[str, Any]:
    chance = random.Random(f"{seed}/{kind}")
    work = command.fresh()
    began = time.monotonic()
    whole = run_cli(command.line(work), command.environment(work), Ending(count=True))
    seconds = time.monotonic() - began
    if whole.code:
        raise SystemExit(f"{kind} does not even end when nobody kills it: {whole.said[-500:]}")
    command.after = in_child(command.state, work.home)
    shutil.rmtree(work.folder, ignore_errors=True)
    found: Counter[str] = Counter()
    took = []
    for number in range(points):
        began = time.monotonic()
        result = one_point(command, chance, whole.effects, seconds)
        took.append(time.monotonic() - began)
        found["killed" if result["killed"] else "was quicker"] += 1
        if number % 10 == 9:
            print(f"  {kind}: {number + 1} points, {dict(found)}", flush=True)
        for wrong in result["wrong"]:
            violations.append({"command": kind, "number": number, "point": result["point"], "what": wrong})
            print(f"  VIOLATION {violations[-1]}", flush=True)
    line = {"points": points, **found, "effects": whole.effects, "seconds_unharmed": round(seconds, 2)}
    print(f"{kind}: {line}, median {statistics.median(took):.1f} s a point", flush=True)
    return line


if __name__ == "__main__":
    raise SystemExit(main())
