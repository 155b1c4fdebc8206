"""Cold start and search latency of the server as a client sees them.

    python benchmarks/startup.py --home HOME --runs 15 --calls dev.jsonl.gz --json out.json

HOME is a Toolscout home with the catalogue to measure (``TOOLSCOUT_HOME=HOME toolscout catalog import ...``). Reports
the median seconds from spawn to the answer of the first ``tools/list`` (both protocol eras), to the answer of the
first ``find_tools``, and resident memory after it; with ``--calls`` also the latency of ``find_tools`` warm.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from rpc import ENVELOPE, RpcClient

COMMAND = [sys.executable, "-m", "toolscout", "serve"]


def cold(home: str, modern: bool) -> dict[str, float]:
    """One start: seconds to tools/list and to the first find_tools, and memory in MB after that."""
    started = time.perf_counter()
    client = RpcClient(COMMAND, {"TOOLSCOUT_HOME": home})
    try:
        if modern:
            client.request("server/discover", ENVELOPE)
            listed = client.request("tools/list", ENVELOPE)
        else:
            client.hello()
            listed = client.request("tools/list")
        to_list = time.perf_counter() - started
        assert len(listed["tools"]) == 3
        find = {"name": "find_tools", "arguments": {"query": "list open pull requests of a repository"}}
        found = client.request("tools/call", {**find, **(ENVELOPE if modern else {})})
        assert not found.get("isError"), found
        return {"tools_list_s": to_list, "first_find_s": time.perf_counter() - started, "rss_mb": client.rss_mb()}
    finally:
        client.close()


def warm(home: str, queries: list[str]) -> dict[str, Any]:
    """Milliseconds of find_tools over one warm connection."""
    client = RpcClient(COMMAND, {"TOOLSCOUT_HOME": home})
    try:
        client.hello()
        times: list[float] = []
        tokens: list[int] = []
        for number, query in enumerate(queries[:30] + queries):
            started = time.perf_counter()
            answer = client.request("tools/call", {"name": "find_tools", "arguments": {"query": query}})
            if number >= 30:
                times.append((time.perf_counter() - started) * 1000)
                tokens.append(len(answer["content"][0]["text"]) // 4)
        times.sort()
        return {
            "n": len(times),
            "p50_ms": statistics.median(times),
            "p95_ms": times[int(len(times) * 0.95)],
            "answer_chars_over_4_p50": statistics.median(tokens),
            "rss_mb": client.rss_mb(),
        }
    finally:
        client.close()


def main() -> None:
    """Measure and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", required=True)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--calls", type=Path)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    result: dict[str, Any] = {}
    cold(options.home, modern=False)  # fills the page cache and records the face
    for era, modern in (("2025-11-25", False), ("2026-07-28", True)):
        runs = [cold(options.home, modern) for _ in range(options.runs)]
        result[era] = {key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0]}
        result[era]["tools_list_s_max"] = round(max(run["tools_list_s"] for run in runs), 3)
    if options.calls:
        opened = gzip.open if options.calls.suffix == ".gz" else open
        with opened(options.calls, "rt", encoding="utf-8") as lines:
            queries = [json.loads(line)["query"] for line in lines]
        result["find_tools_warm"] = warm(options.home, queries)
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
