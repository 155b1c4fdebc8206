"""Many clients over HTTP at once: throughput, latencies, errors, fairness between clients, the server's memory.

    python benchmarks/load.py --clients 500 --minutes 10 [--workers N] [--postgres] [--json FILE]
    python benchmarks/load.py --clients 500 --minutes 10 --invoke-share 1 --against proxy      # FastMCP's own proxy

A real ``toolscout serve --http`` is started in a home of its own, with one stdio upstream that echoes, and the tools
of ``--servers`` and ``--tools`` beside it; or with ``--against proxy`` FastMCP's proxy of the same upstream. Clients
keep a connection each and make one call after another (``--pause``: mean seconds between, 0 as fast as they can).
``--era``: modern, legacy or mixed. ``--requests FILE``: one request per line for `find_tools`; some are built in.
Drivers run in processes of their own. Times before ``--warmup`` seconds have passed do not count.

Of several runs beside each other only the shares of the processors can be told; run one at a time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any
from urllib.request import urlopen

sys.path.insert(0, str(Path(__file__).parent))
from invoke import UPSTREAM
from load_client import Connection, Done, Work, drive

REQUESTS = [
    "echo a text", "show the commit history of a repository", "what time is it in Tokyo", "send an email",
    "convert a PDF to text", "search the web for news", "create a calendar event", "read a file from disk",
    "query a PostgreSQL database", "translate a sentence into French", "post a message to a Slack channel",
    "list open pull requests", "get the weather forecast for a city", "resize an image", "book a flight",
]  # fmt: skip

PROXY = """
import sys
from fastmcp.server import create_proxy
config = {"mcpServers": {"bench": {"command": sys.executable, "args": ["-c", sys.argv[2]]}}}
create_proxy(config, name="proxy").run(
    transport="http", host="127.0.0.1", port=int(sys.argv[1]), stateless_http=True, show_banner=False,
    log_level="ERROR", path="/mcp",
)
"""


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--drivers", type=int, default=2, help="processes that the clients run in")
    parser.add_argument("--invoke-share", type=float, default=0.3)
    parser.add_argument("--pause", type=float, default=0.0)
    parser.add_argument("--warmup", type=float, default=10.0)
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--era", choices=("modern", "legacy", "mixed"), default="modern")
    parser.add_argument("--against", choices=("toolscout", "proxy"), default="toolscout")
    parser.add_argument("--servers", type=Path, help="servers of a catalogue (JSONL)")
    parser.add_argument("--tools", type=Path, help="tools of a catalogue (JSONL)")
    parser.add_argument("--requests", type=Path)
    parser.add_argument("--database", default="", help="URL of the catalogue's database")
    parser.add_argument("--postgres", action="store_true", help="start a PostgreSQL for it, as the tests do")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.against == "proxy" and options.invoke_share < 1:
        parser.error("the proxy has no find_tools: give --invoke-share 1 to both")
    with tempfile.TemporaryDirectory() as folder, served(options, Path(folder)) as (url, process):
        result = measure(options, url, process)
    print(text_of(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


def measure(options: argparse.Namespace, url: str, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """Drive the clients against ``url`` and add up what came of it."""
    start = time.time() + 1.0 + options.clients / 250
    work = Work(url, options.era, calls_of(options), start + options.warmup, 0, options.pause, options.timeout)
    work.until = work.from_ + options.minutes * 60
    memory = Memory(process.pid)
    shares = [len(range(n, options.clients, options.drivers)) for n in range(options.drivers)]
    with ProcessPoolExecutor(options.drivers, mp_context=get_context("spawn")) as drivers, memory:
        mixed = options.era == "mixed"
        running = [drivers.submit(drive, work, share, n, mixed) for n, share in enumerate(shares)]
        done = [one for future in running for one in future.result()]
    return {
        "against": options.against, "clients": options.clients, "seconds": options.minutes * 60,
        "workers": options.workers, "era": options.era, "pause": options.pause, "drivers": options.drivers,
        "database": "postgresql" if options.postgres or "postgres" in options.database else "sqlite",
        "cores": os.cpu_count(), **summary(done, options.minutes * 60), "memory": memory.told(work.from_),
    }  # fmt: skip


def calls_of(options: argparse.Namespace) -> list[tuple[str, str, dict[str, Any], float]]:
    """The mix of calls: label, tool, arguments, weight."""
    if options.against == "proxy":
        return [("invoke", "echo", {"text": "hello"}, 1.0)]
    share = options.invoke_share
    calls = [("invoke", "invoke", {"tool_id": "bench/echo", "arguments": {"text": "hello"}}, share)] if share else []
    if share < 1:
        requests = options.requests.read_text("utf-8").splitlines() if options.requests else REQUESTS
        requests = [line.strip() for line in requests if line.strip()]
        calls += [("find_tools", "find_tools", {"query": q}, (1 - share) / len(requests)) for q in requests]
    return calls


@contextlib.contextmanager
def served(options: argparse.Namespace, folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The server under load, warm: its endpoint and its process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with contextlib.ExitStack() as stack:
        env = {**os.environ, "TOOLSCOUT_HOME": str(folder), "TOOLSCOUT_STARTER": "0", "TOOLSCOUT_SHARE_UPSTREAMS": "1"}
        if options.postgres:
            sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
            from databases import Postgres, programs

            database = Postgres(programs())
            stack.callback(database.close)
            env["TOOLSCOUT_DATABASE"] = database.url()
        elif options.database:
            env["TOOLSCOUT_DATABASE"] = options.database
        if options.against == "proxy":
            command = [sys.executable, "-c", PROXY, str(port), UPSTREAM]
        else:
            entry = {"command": sys.executable, "args": ["-c", UPSTREAM]}
            (folder / "mcp.json").write_text(json.dumps({"mcpServers": {"bench": entry}}))
            if options.tools:
                files = [
                    "--tools",
                    str(options.tools),
                    *(["--servers", str(options.servers)] if options.servers else []),
                ]
                toolscout = [sys.executable, "-m", "toolscout", "catalog", "import", *files]
                subprocess.run(toolscout, env=env, check=True, stdout=sys.stderr)
            address = ["--http", f"127.0.0.1:{port}", "--workers", str(options.workers)]
            command = [sys.executable, "-m", "toolscout", "serve", *address]
        process = subprocess.Popen(command, env=env)
        try:
            url = f"http://127.0.0.1:{port}/mcp"
            wait_ready(options, url, process)
            yield url, process
        finally:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_ready(options: argparse.Namespace, url: str, process: subprocess.Popen[bytes]) -> None:
    """Wait until a call of each kind has been answered, several times: every worker has to be warm."""
    import asyncio

    kinds = {label: (tool, arguments) for label, tool, arguments, _ in calls_of(options)}

    async def once() -> bool:
        connection = Connection(Work(url, options.era.replace("mixed", "modern"), [], 0, 0))
        try:
            async with asyncio.timeout(120):
                answers = [await connection.call(*call) for call in kinds.values()]
        finally:
            connection.close()
        return all("result" in a and not a["result"].get("isError") for a in answers)

    deadline, good = time.monotonic() + 600, 0
    while good < 8 * options.workers:
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("The server did not become ready.")
        try:
            good = good + 1 if asyncio.run(once()) else 0
        except (OSError, EOFError, ValueError, TimeoutError):
            good = 0
        if not good:
            time.sleep(0.5)
    if options.against == "toolscout":
        with urlopen(url.removesuffix("/mcp") + "/metrics", timeout=60) as page:
            page.read()


class Memory(threading.Thread):
    """Samples the resident memory of a process and its Python workers (not the upstreams), in MB."""

    def __init__(self, pid: int, seconds: float = 2.0) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._seconds = seconds
        self._ended = threading.Event()
        self.samples: list[tuple[float, float, int]] = []

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self.join()

    def run(self) -> None:
        """Sample until told to stop."""
        while not self._ended.wait(self._seconds):
            sizes = [size for pid in self._own() if (size := _rss(pid))]
            files = sum(_files(pid) for pid in self._own())
            self.samples.append((time.time(), sum(sizes), files))

    def _own(self) -> list[int]:
        children = [int(c) for c in _read(f"/proc/{self._pid}/task/{self._pid}/children").split()]
        workers = [c for c in children if "spawn_main" in _read(f"/proc/{c}/cmdline")]
        return [self._pid, *workers]

    def told(self, begin: float) -> dict[str, Any]:
        """Beginning, middle, end and highest, and the slope over the second half in MB per minute."""
        found = [(at, size) for at, size, _ in self.samples if at >= begin]
        if len(found) < 4:
            return {"samples": len(found)}
        half = found[len(found) // 2 :]
        slope = statistics.linear_regression([at / 60 for at, _ in half], [size for _, size in half]).slope
        return {
            "samples": len(found),
            "start_mb": round(found[0][1], 1),
            "middle_mb": round(half[0][1], 1),
            "end_mb": round(found[-1][1], 1),
            "most_mb": round(max(size for _, size in found), 1),
            "slope_mb_per_minute": round(slope, 2),
            "most_open_files": max(files for *_, files in self.samples),
        }


def summary(done: list[Done], seconds: float) -> dict[str, Any]:
    """Throughput, latencies, errors and fairness over all clients."""
    times: dict[str, list[float]] = {}
    errors: dict[str, int] = {}
    for one in done:
        for label, values in one.times.items():
            times.setdefault(label, []).extend(values)
        for kind, count in one.errors.items():
            errors[kind] = errors.get(kind, 0) + count
    eras = sorted({one.era for one in done})
    return {
        "calls": sum(one.calls for one in done),
        "calls_per_second": round(sum(one.calls for one in done) / seconds, 1),
        "errors": dict(sorted(errors.items(), key=lambda item: -item[1])),
        "tools": {label: spread(values, seconds) for label, values in sorted(times.items())},
        # Each era for itself: a call of the older one costs the server more, so its clients get fewer done.
        "per_client": {era: fairness([one.calls for one in done if one.era == era]) for era in eras},
    }


def fairness(counts: list[int]) -> dict[str, Any]:
    """Calls done per client, and Jain's index: 1 is perfectly fair, 1/n is one client that got everything."""
    calls = sorted(counts)
    squares = sum(c * c for c in calls)
    shares = {"least": 0.0, "p5": 0.05, "median": 0.5, "p95": 0.95, "most": 1.0}
    jain = round(sum(calls) ** 2 / (len(calls) * squares), 4) if squares else 0.0
    return {"clients": len(calls), **{name: at(calls, share) for name, share in shares.items()}, "jain": jain}


def spread(values: list[float], seconds: float) -> dict[str, Any]:
    """Calls, calls per second and percentiles in milliseconds."""
    ordered = sorted(values)
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "most": 1.0}
    milliseconds = {f"{name}_ms": round(at(ordered, share) * 1000, 1) for name, share in shares.items()}
    return {"calls": len(ordered), "per_second": round(len(ordered) / seconds, 1), **milliseconds}


def at(ordered: list[Any], share: float) -> Any:
    """The value that ``share`` of the others do not exceed."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def text_of(result: dict[str, Any]) -> str:
    """The same for people."""
    memory = result["memory"]
    lines = [
        f"{result['against']}: {result['clients']} clients, {result['seconds']:g} s, {result['workers']} worker(s), "
        f"{result['era']}, {result['database']}",
        f"{result['calls']:,} calls, {result['calls_per_second']:,} per second; errors: {result['errors'] or 'none'}",
    ]
    for label, t in result["tools"].items():
        lines.append(
            f"  {label:10} {t['calls']:>8,}  p50 {t['p50_ms']:g} ms, p95 {t['p95_ms']:g}, p99 {t['p99_ms']:g}, "
            f"most {t['most_ms']:g}"
        )
    for era, fair in result["per_client"].items():
        lines.append(f"calls per client, {era}: " + ", ".join(f"{name} {value}" for name, value in fair.items()))
    lines.append("memory: " + ", ".join(f"{key} {value}" for key, value in memory.items()))
    return "\n".join(lines)


def _read(path: str) -> str:
    try:
        return Path(path).read_text("utf-8", "replace")
    except OSError:
        return ""


def _rss(pid: int) -> float:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6 if len(fields) > 1 else 0.0


def _files(pid: int) -> int:
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


if __name__ == "__main__":
    main()
