"""Which index proposes the nearest tools best: all rows, compressed codes, inverted lists (IVF) or a graph (HNSW).

    python benchmarks/index_types.py --work WORK --calls dev.jsonl.gz --sizes 20000 50000 100000 200000 --json out.json

WORK is the folder of `benchmarks/scale.py`, which makes it. Over the vectors of a grown pool, for each index: processor
milliseconds of one search for 300 proposals (one thread, median over the requests), seconds of processor time to build
it, its size, and which share of the exact ten best the proposals hold.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from grown_pool import calibrated, parts_of, tool_vectors

from toolscout.eval.rows import read_calls
from toolscout.eval.vector_cache import CachingEncoder
from toolscout.index.compressed import read_codes, write_codes
from toolscout.index.document import query_text
from toolscout.index.encoder import make_encoder
from toolscout.index.vectors import Floats, Rows, VectorStore
from toolscout.settings import Settings

PROPOSALS = 300
GRAPH_LIMIT = 100_000
Search = Callable[[Floats], Rows]


def indexes(vectors: Floats, store: VectorStore) -> Iterator[tuple[str, Callable[[], tuple[int, dict[str, Search]]]]]:
    """Names, and what builds each: bytes, and searches by setting."""
    import faiss

    size, dim = vectors.shape
    eight, product = faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT

    def everything() -> tuple[int, dict[str, Search]]:
        return store.codes.nbytes, {"": lambda q: np.argpartition(-store.scores(q), PROPOSALS)[:PROPOSALS]}

    def compressed() -> tuple[int, dict[str, Search]]:
        with TemporaryDirectory() as folder:
            write_codes(Path(folder), store)
            codes = read_codes(Path(folder), dim)
            assert codes is not None
            codes.codes = np.array(codes.codes)
        return codes.codes.nbytes, {"": lambda q: codes.nearest(q, PROPOSALS, store)}

    def lists(factor: int) -> tuple[int, dict[str, Search]]:
        count = int(factor * size**0.5)
        index = faiss.IndexIVFScalarQuantizer(faiss.IndexFlatIP(dim), dim, count, eight, product)
        index.cp.niter, index.cp.min_points_per_centroid = 8, 1
        sample = np.random.default_rng(0).choice(size, min(size, 39 * count), replace=False)
        index.train(vectors[np.sort(sample)])
        index.add(vectors)
        return _bytes(index), {
            f"{probes} of {count} lists": _search(index, faiss.SearchParametersIVF(nprobe=probes))
            for probes in (count // 16, count // 8, count // 4, count // 2)
        }

    def graph() -> tuple[int, dict[str, Search]]:
        index = faiss.IndexHNSWSQ(dim, eight, 16, product)
        index.hnsw.efConstruction = 60
        index.train(vectors)
        index.add(vectors)
        return _bytes(index), {f"ef {ef}": _search(index, faiss.SearchParametersHNSW(efSearch=ef)) for ef in (300, 600)}

    yield "all rows, int8", everything
    yield "compressed codes", compressed
    yield "IVF, 2 sqrt(n) lists, int8", lambda: lists(2)
    yield "IVF, 4 sqrt(n) lists, int8", lambda: lists(4)
    if size <= GRAPH_LIMIT:
        yield "HNSW, 16 links, int8", graph


def _bytes(index: Any) -> int:
    import faiss

    return len(faiss.serialize_index(index))


def _search(index: Any, parameters: Any) -> Search:
    def search(query: Floats) -> Rows:
        rows: Rows = index.search(query[None, :], PROPOSALS, params=parameters)[1][0]
        return rows

    return search


def main() -> None:
    """Measure and print one JSON object a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--calls", type=Path, required=True)
    parser.add_argument("--sizes", type=int, nargs="+", default=[20_000, 50_000, 100_000, 200_000])
    parser.add_argument("--copies", type=int, default=3000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    import faiss

    faiss.omp_set_num_threads(1)
    encoder = CachingEncoder(make_encoder(Settings(), threads=os.cpu_count()), options.work / "cache")
    parts = parts_of(options.work / "pool")
    calibration = calibrated(options.work, encoder, options.copies)
    calls = read_calls([options.calls])
    queries = np.stack([encoder.encode([query_text(c.query)], kind="query")[0] for c in calls])
    found = []
    for size in options.sizes:
        vectors = tool_vectors(parts, size, calibration)
        store = VectorStore.of(vectors)
        exact = [np.argpartition(-store.scores(q), 10)[:10] for q in queries]
        for name, build in indexes(vectors, store):
            started = time.process_time()
            memory, searches = build()
            built = time.process_time() - started
            for setting, search in searches.items():
                search(queries[0])
                spent, share = [], []
                for query, best in zip(queries, exact, strict=True):
                    started = time.thread_time()
                    rows = search(query)
                    spent.append(1000 * (time.thread_time() - started))
                    share.append(np.isin(best, rows).mean())
                row = {
                    "tools": size,
                    "index": name,
                    "setting": setting,
                    "cpu_ms": round(float(np.median(spent)), 3),
                    "recall@10": round(float(np.mean(share)), 4),
                    "build_cpu_s": round(built, 1),
                    "mb": round(memory / 2**20, 1),
                }
                print(json.dumps(row), flush=True)
                found.append(row)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
