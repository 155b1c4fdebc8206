"""Search over pools of ten thousand to a million tools: latency, memory, build, recall; docs/EVALUATION.md, "Scale".

    python benchmarks/scale.py --data DATA --calls dev.jsonl.gz --work WORK --sizes 11363 48566 100000 1000000 --out OUT

DATA holds mcpflow/, crawled/ and public/toucan/ (servers.jsonl.gz, tools.jsonl.gz). WORK keeps the pools, the encoded
texts and the indexes (about 5 GB a million tools); what is there is not made again. OUT gets scale.json and scale.png.
Each size is built and measured in processes of its own. Pools up to ``--texts-up-to`` are built from texts like any
other; larger ones are grown row by row (`grown_index`).
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from grown_catalogue import GrownCatalogue
from grown_index import IndexCatalogue, grow_index
from grown_pool import Part, calibrated, derived_encoder, first_of, parts_of, write_pool
from twenty import server_of_twenty

from toolscout.index.catalogue import Catalogue, ToolKey
from toolscout.index.encoder import Encoder, make_encoder
from toolscout.records import Call, Server, Tool
from toolscout.settings import Settings

if TYPE_CHECKING:
    from toolscout.index.search import Ask, SearchIndex

COPIES = 3000
"""Copies that are really encoded to learn from."""

EXACT_QUERIES = 50
RUNS = 3


class PoolCatalogue(GrownCatalogue):
    """Answered from the pool's files."""

    def __init__(self, parts: list[Part], size: int) -> None:
        super().__init__()
        self.parts, self.size = parts, size

    def first_servers(self) -> Iterator[Server]:
        yield from (server for server, _ in first_of(self.parts, self.size))

    def first_keys(self) -> Iterator[ToolKey]:
        left = self.size
        for part in self.parts:
            with (part.folder / "tools.jsonl").open(encoding="utf-8") as lines:
                for line in lines:
                    if not left:
                        break
                    values = json.loads(line)
                    yield ToolKey(values["tool_id"], values["server_id"], "")
                    left -= 1

    def first_tools(self) -> Iterator[Tool]:
        yield from (copy.tool for _, copies in first_of(self.parts, self.size) for copy in copies)


def memory_mb() -> dict[str, float]:
    """Resident memory of this process (MiB): all of it, and its anonymous share; the rest is mapped files."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    kinds = {"rss": "VmRSS", "anonymous": "RssAnon", "peak_rss": "VmHWM"}
    return {name: round(int(lines[key].split()[0]) / 1024, 1) for name, key in kinds.items()}


class Watch:
    """Greatest anonymous memory while it runs, and the seconds."""

    def __enter__(self) -> Watch:
        self.most, self._ends, self.started = 0.0, threading.Event(), time.perf_counter()
        self.cpu = time.process_time()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._ends.wait(0.2):
            self.most = max(self.most, memory_mb()["anonymous"])

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self.started
        self.cpu = time.process_time() - self.cpu
        self._ends.set()
        self._thread.join()

    def report(self) -> dict[str, float]:
        """What came out."""
        return {
            "seconds": round(self.seconds, 2),
            "cpu_seconds": round(self.cpu, 2),
            "peak_anonymous_mb": self.most,
            "load": round(os.getloadavg()[0], 1),
        }


def build(work: Path, size: int) -> dict[str, Any]:
    """Build the index of ``size`` tools from the pool's texts, vectors derived; then add servers to a copy of it."""
    from toolscout.index.build import build_index

    parts = parts_of(work / "pool")
    calibration = calibrated(work, _encoder(work), COPIES)
    catalogue = PoolCatalogue(parts, size)
    derived = derived_encoder(parts, _encoder(work), calibration)
    settings = _home(work, size)
    with Watch() as watch:
        build_index(catalogue, settings, encoder=derived)  # type: ignore[arg-type]
    return _built("build", settings, watch) | _add_servers(settings, catalogue, derived)


def grow(work: Path, size: int, source: int) -> dict[str, Any]:
    """Grow the index of ``size`` tools from that of ``source``, row by row; then add a server to a copy of it."""
    from toolscout.index import snapshot

    settings, smaller = _home(work, size), Settings(home=work / f"home-{source}")
    folder = smaller.index_dir / (snapshot.current(smaller.index_dir) or "")
    calibration = calibrated(work, _encoder(work), COPIES)
    with Watch() as watch:
        meta = grow_index(folder, settings.index_dir, size, calibration)
    catalogue = IndexCatalogue(settings.index_dir / meta.generation)
    found = _built("grow", settings, watch) | {"grown_from": source}
    return found | _add_servers(settings, catalogue, _encoder(work), times=1)


def _home(work: Path, size: int) -> Settings:
    shutil.rmtree(work / f"home-{size}", ignore_errors=True)
    return Settings(home=work / f"home-{size}")


def _built(how: str, settings: Settings, watch: Watch) -> dict[str, Any]:
    from toolscout.index import snapshot

    meta = snapshot.read_meta(settings.index_dir / (snapshot.current(settings.index_dir) or ""))
    return {
        "tools": meta.tools,
        "servers": meta.servers,
        how: {**watch.report(), "peak_rss_mb": memory_mb()["peak_rss"]},
        "index_mb": round(sum(meta.files.values()) / 2**20, 1),
        "files_mb": {n: round(s / 2**20, 1) for n, s in sorted(meta.files.items(), key=lambda i: -i[1])[:12]},
    }


def _add_servers(settings: Settings, catalogue: GrownCatalogue, encoder: Encoder, times: int = 3) -> dict[str, Any]:
    """Add servers of 20 tools, one after the other, to a copy of the index."""
    from toolscout.index.build import build_index

    copy = Settings(home=settings.home.with_name(settings.home.name + "-added"))
    shutil.rmtree(copy.home, ignore_errors=True)
    shutil.copytree(settings.index_dir, copy.index_dir, copy_function=os.link)
    reports = []
    for number in range(times):
        catalogue.more.append(server_of_twenty(number))
        with Watch() as watch:
            build_index(catalogue, copy, encoder=encoder)  # type: ignore[arg-type]
        reports.append(watch.report())
    shutil.rmtree(copy.home)
    return {"add_server": {key: round(median(r[key] for r in reports), 2) for key in reports[0]}}


def imported(work: Path, size: int) -> dict[str, Any]:
    """Import the first ``size`` tools into a catalogue of their own, batch by batch as the importer does."""
    from toolscout.index.transfer import BATCH

    home = work / f"catalogue-{size}"
    shutil.rmtree(home, ignore_errors=True)
    settings = Settings(home=home)
    home.mkdir(parents=True)
    batch: list[Tool] = []
    with Watch() as watch, Catalogue(settings.database_url) as catalogue:
        for server, copies in first_of(parts_of(work / "pool"), size):
            catalogue.merge([server])
            batch += [copy.tool for copy in copies]
            while len(batch) >= BATCH:
                catalogue.merge(tools=batch[:BATCH])
                del batch[:BATCH]
        catalogue.merge(tools=batch)
        started = time.perf_counter()
        keys = sum(1 for _ in catalogue.tool_keys())
        read = time.perf_counter() - started
    bytes_used = sum(f.stat().st_size for f in home.rglob("*") if f.is_file())
    shutil.rmtree(home)
    return {
        "tools": keys,
        "seconds": round(watch.seconds, 1),
        "cpu_seconds": round(watch.cpu, 1),
        "keys_seconds": round(read, 2),
        "mb": round(bytes_used / 2**20, 1),
        "peak_anonymous_mb": watch.most,
    }


def measure(work: Path, size: int, calls_file: Path) -> dict[str, Any]:
    """Ask every request of ``calls_file`` of the index of ``size`` tools."""
    from toolscout.eval.rows import read_calls
    from toolscout.index.search import SearchIndex

    settings = Settings(home=work / f"home-{size}")
    calls = read_calls([calls_file])
    started = time.perf_counter()
    index = SearchIndex.open(settings.index_dir, settings=settings)
    opened = (time.perf_counter() - started) * 1000
    at_open = memory_mb()
    started = time.perf_counter()
    index.warm()
    first = (time.perf_counter() - started) * 1000
    at_first = memory_mb()
    for call in calls:
        index.find(call.query)
    runs, cpu = [], []
    for _ in range(RUNS):
        timed = [_timed(lambda c=call: index.find(c.query)) for call in calls]  # type: ignore[misc]
        runs.append([wall for wall, _ in timed])
        cpu.append([used for _, used in timed])
    result: dict[str, Any] = {
        "pool": len(index),
        "approximate": index._candidates(index.ask("warm up"), None) is not None,
        "open_ms": round(opened, 1),
        "first_find_ms": round(first, 1),
        "find_ms": {
            "p50": round(median(float(np.quantile(run, 0.5)) for run in runs), 2),
            "p95": round(median(float(np.quantile(run, 0.95)) for run in runs), 2),
            "p50_each_run": [round(float(np.quantile(run, 0.5)), 2) for run in runs],
            # What the machine's other work cost cannot be in all runs of a request: its best one is nearest the truth.
            "p50_of_best": round(float(np.quantile(np.min(runs, axis=0), 0.5)), 2),
            "p95_of_best": round(float(np.quantile(np.min(runs, axis=0), 0.95)), 2),
            # And processor time of the one thread that answers leaves out waiting for a core.
            "cpu_p50": round(float(np.quantile(np.median(cpu, axis=0), 0.5)), 2),
            "cpu_p95": round(float(np.quantile(np.median(cpu, axis=0), 0.95)), 2),
            "load": round(os.getloadavg()[0], 1),
        },
        "parts_ms": _parts(index, [c.query for c in calls]),
        "memory_mb": {"open": at_open, "first": at_first, "after": memory_mb()},
    }
    asks = [index.ask(c.query) for c in calls]
    result |= _agreement(index, asks)
    result["dev"] = _found(work, index, calls, asks)
    return result


def _parts(index: SearchIndex, queries: Sequence[str]) -> dict[str, float]:
    """Median milliseconds of processor time of the parts of a question; the rest is choosing and explaining."""
    from toolscout.index.search import CANDIDATES

    spent: dict[str, list[float]] = {}

    def part(name: str, work: Callable[[], Any]) -> Any:
        started = time.thread_time()
        found = work()
        spent.setdefault(name, []).append(1000 * (time.thread_time() - started))
        return found

    for query in queries:
        ask = part("encode", lambda q=query: index.ask(q))  # type: ignore[misc]
        if index.storage.compressed is not None:
            part(
                "vectors",
                lambda a=ask: index.storage.compressed.nearest(a.tool_vector, CANDIDATES, index.storage.tools),
            )  # type: ignore[misc,union-attr]
        part("words", lambda a=ask: a.words.top(CANDIDATES))  # type: ignore[misc]
        ask = index.ask(query)
        rows = part("all candidates", lambda a=ask: index._candidates(a, None))  # type: ignore[misc]
        part("signals", lambda a=ask, r=rows: index.signals(a, r))  # type: ignore[misc]
    return {name: round(median(values), 2) for name, values in spent.items()}


def _agreement(index: SearchIndex, asks: Sequence[Ask]) -> dict[str, Any]:
    """The approximate search against the exact one over the same vectors: proposals, and whole answers."""
    from toolscout.index import compressed
    from toolscout.index.search import CANDIDATES

    if index.storage.compressed is None:
        return {}
    vectors = np.stack([ask.tool_vector for ask in asks])
    best_scores = np.full((len(asks), 10), -2.0, dtype=np.float32)
    best_rows = np.zeros((len(asks), 10), dtype=np.int64)
    for start in range(0, len(index), 8192):
        rows = np.arange(start, min(start + 8192, len(index)))
        scores = np.concatenate([best_scores, vectors @ index.storage.tools.floats(rows).T], axis=1)
        known = np.concatenate([best_rows, np.broadcast_to(rows, (len(asks), len(rows)))], axis=1)
        top = np.argpartition(-scores, 10, axis=1)[:, :10]
        best_scores, best_rows = np.take_along_axis(scores, top, 1), np.take_along_axis(known, top, 1)
    by_proposed: dict[str, Any] = {}
    usual = compressed.PROPOSED
    for proposed in sorted({300, 1000, usual}):
        compressed.PROPOSED = proposed
        found = [index.storage.compressed.nearest(ask.tool_vector, CANDIDATES, index.storage.tools) for ask in asks]
        share = np.mean([np.isin(best, rows).mean() for best, rows in zip(best_rows, found, strict=True)])
        by_proposed[str(proposed)] = round(float(share), 4)
    compressed.PROPOSED = usual
    result: dict[str, Any] = {"recall_of_vectors": by_proposed[str(usual)], "by_proposed": by_proposed}
    same, first = [], []
    everything = np.ones(len(index), dtype=np.bool_)
    for ask in asks[:: max(1, len(asks) // EXACT_QUERIES)]:
        approximate = index.rank(ask, None, 10).rows
        exact = index.rank(ask, everything, 10).rows
        same.append(np.isin(exact, approximate).mean())
        first.append(exact[0] == approximate[0])
    result["recall_of_answers"] = round(float(np.mean(same)), 4)
    result["same_first"] = round(float(np.mean(first)), 4)
    result["exact_queries"] = len(same)
    return result


def _found(work: Path, index: SearchIndex, calls: Sequence[Call], asks: Sequence[Ask]) -> dict[str, Any]:
    """Recall of the requests with gold, any judged tool counting; copies of a good tool are counted by three rules.

    ``originals``: only the real tools that were judged count, every copy of one is a wrong answer in its way.
    ``set aside``: copies of judged tools, and unjudged tools of exactly their name and description, are left out of
    the ranking; whether they serve is not known. ``family``: they count as the tool they were made from.
    """
    parts = parts_of(work / "pool")
    real = list(parts[0].tools())
    origins = np.concatenate([part.array("tools")[:, 1] for part in parts])[: len(index)].astype(np.int64)
    if "grow" in json.loads((work / f"build-{len(index)}.json").read_text()):
        origins = np.arange(len(index)) % len(real)
    by_id = {tool.tool_id: row for row, tool in enumerate(real)}
    twins: dict[tuple[str, str], list[int]] = {}
    for row, tool in enumerate(real):
        twins.setdefault((tool.name, tool.description), []).append(row)
    hits: dict[str, list[list[bool]]] = {"originals": [], "set aside": [], "family": []}
    for call, ask in zip(calls, asks, strict=True):
        if not call.gold:
            continue
        good = {by_id[i] for i in (*(g.tool_id for g in call.gold), *(call.relevant or ())) if i in by_id}
        family = {twin for row in good for twin in twins[(real[row].name, real[row].description)]}
        rows = index.rank(ask, None, 300).rows.tolist()
        judged = [(row in good, int(origins[row]) in family) for row in rows]
        readings = {
            "originals": [first for first, _ in judged],
            "set aside": [first for first, kin in judged if first or not kin],
            "family": [kin for _, kin in judged],
        }
        for name, ranked in readings.items():
            hits[name].append([any(ranked[:k]) for k in (1, 5, 10)])
    return {
        name: {
            f"recall@{k}": round(float(share), 4) for k, share in zip((1, 5, 10), np.mean(rows, axis=0), strict=True)
        }
        for name, rows in hits.items()
    } | {"n": len(hits["family"])}


def _timed(work: Callable[[], Any]) -> tuple[float, float]:
    """Milliseconds by the clock, and of this thread's processor time."""
    started, used = time.perf_counter(), time.thread_time()
    work()
    return 1000 * (time.perf_counter() - started), 1000 * (time.thread_time() - used)


def _encoder(work: Path) -> Encoder:
    from toolscout.eval.vector_cache import CachingEncoder

    return CachingEncoder(make_encoder(Settings(), threads=os.cpu_count()), work / "cache")


def calibration_report(work: Path) -> dict[str, Any]:
    """What derived vectors are like beside really encoded ones."""
    return dict(calibrated(work, _encoder(work), COPIES).report)


def _apart(task: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as worker:
        return worker.submit(task, *arguments).result()


def plot(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Latency, recall and memory against the size of the pool."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (latency, recall, memory) = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained")
    sizes = [r["pool"] for r in results]
    latency.plot(sizes, [r["find_ms"]["p50"] for r in results], "o-", label="p50")
    latency.plot(sizes, [r["find_ms"]["p95"] for r in results], "s--", label="p95")
    latency.plot(sizes, [r["find_ms"]["cpu_p50"] for r in results], "^:", label="p50 of processor time")
    latency.axhline(20, color="grey", lw=0.8, ls=":", label="target for p50 at 1,000,000")
    latency.set(title="find, encoder included", ylabel="ms", yscale="log")
    for name in ("family", "set aside", "originals"):
        recall.plot(sizes, [r["dev"][name]["recall@5"] for r in results], "o-", label=f"dev recall@5, copies: {name}")
    large = [r for r in results if "recall_of_answers" in r]
    for name, key in (("vectors", "recall_of_vectors"), ("answers", "recall_of_answers")):
        recall.plot([r["pool"] for r in large], [r[key] for r in large], "^:", label=f"{name} against exact, @10")
    recall.set(title="recall", ylim=(0, 1.02))
    memory.plot(sizes, [r["memory_mb"]["after"]["rss"] for r in results], "o-", label="resident")
    memory.plot(sizes, [r["memory_mb"]["after"]["anonymous"] for r in results], "s--", label="of it anonymous")
    memory.plot(sizes, [r["index_mb"] for r in results], "^:", label="index on disk")
    memory.set(title="memory of a searching process", ylabel="MiB", yscale="log")
    for axes in (latency, recall, memory):
        axes.set(xscale="log", xlabel="tools in the pool")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)


def main() -> None:
    """Build and measure each size, and write what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--calls", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[11_363, 48_566, 100_000, 1_000_000])
    parser.add_argument("--import-sizes", type=int, nargs="*", default=[48_566])
    parser.add_argument("--texts-up-to", type=int, default=200_000, help="larger pools are grown row by row")
    parser.add_argument("--grow-from", type=int, default=48_566, help="the size they are grown from: all real tools")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    work, out = options.work, options.out
    out.mkdir(parents=True, exist_ok=True)
    texts = max([size for size in options.sizes if size <= options.texts_up_to], default=options.grow_from)
    write_pool(options.data, work / "pool", texts + COPIES, options.workers)
    report: dict[str, Any] = {"calibration": _apart(calibration_report, work), "sizes": [], "import": []}
    for size in options.import_sizes:
        report["import"].append(_apart(imported, work, size))
    for size in options.sizes:
        kept = work / f"build-{size}.json"
        if not kept.is_file():
            grown = size > options.texts_up_to
            made = _apart(grow, work, size, options.grow_from) if grown else _apart(build, work, size)
            kept.write_text(json.dumps(made))
        report["sizes"].append(json.loads(kept.read_text()) | _apart(measure, work, size, options.calls))
        print(json.dumps(report["sizes"][-1], indent=1), flush=True)
        (out / "scale.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    plot(report["sizes"], out / "scale.png")


if __name__ == "__main__":
    main()
