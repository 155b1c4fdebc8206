"""Odd input of every kind, as many cases as wanted: JSON-RPC frames, HTTP requests, schemas, catalogues, settings.

    python benchmarks/fuzz.py --cases 100000 --seed 1 --what frames,engine,process,http,schemas,catalogue,config
    python benchmarks/fuzz.py --corpus tools.jsonl.gz

Without ``--what`` all kinds. ``--corpus`` puts the schemas of a file of tools through signatures, validation and
constraints instead. Exits with 1 if a fault was found. What a fault is, and how to follow one up: docs/FUZZING.md.
"""

from __future__ import annotations

import argparse
import faulthandler
import logging
import os
import signal
import sys
import time
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fuzzing.bounds import Record, limit_memory, recorded
from fuzzing.kinds import MODULES, kind_of, run

_STUCK_SECONDS = 120


def corpus(path: Path, record: Record) -> None:
    """Each schema of the file's tools, with no arguments, made-up ones and all required ones of a wrong type."""
    from fuzzing.schemas import check

    from toolscout.jsonl import read_records
    from toolscout.records import Tool
    from toolscout.server.calling.skeleton import skeleton

    for tool in read_records(path, Tool, on_bad=lambda error: print(error, file=sys.stderr)):
        faulthandler.dump_traceback_later(_STUCK_SECONDS, exit=True)
        known = tool.input_schema.get("properties")
        wrong = {str(name): [{"no": 1}] for name in known} if isinstance(known, dict) else {}
        for arguments in ({}, wrong, {"Query ": "x"}, skeleton(tool.input_schema)):
            with recorded(record, "corpus", (tool.tool_id, arguments)):
                check((tool.input_schema, arguments))


def main() -> None:
    """Run and print the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--what", default=",".join(MODULES))
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--json", type=Path, help="write the record there")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)  # the complaints about bad input are what is expected
    record = Record()
    started = time.perf_counter()
    if options.corpus:
        corpus(options.corpus, record)
    else:
        kinds = [kind_of(name) for name in options.what.split(",")]
        shares = sum(kind.share for kind in kinds)
        signal.signal(signal.SIGTERM, lambda number, frame: os._exit(_report(record, options.json, started)))
        for kind in kinds:
            if kind.name not in ("process", "engine", "http"):
                limit_memory()
            begun = time.perf_counter()
            run(kind, max(1, options.cases * kind.share // shares), options.seed, record)
            print(f"{kind.name}: {record.cases[kind.name]:,} cases in {time.perf_counter() - begun:.0f} s", flush=True)
    sys.exit(_report(record, options.json, started))


def _report(record: Record, path: Path | None, started: float) -> int:
    """Say what came out; the exit code. Also where the run is ended early, by SIGTERM."""
    print(record.to_json())
    print(f"{record.cases}")
    print(f"{sum(record.cases.values()):,} cases, {len(record.faults)} faults, {time.perf_counter() - started:.0f} s")
    sys.stdout.flush()
    if path:
        path.write_text(record.to_json())
    return 1 if record.faults else 0


if __name__ == "__main__":
    main()
