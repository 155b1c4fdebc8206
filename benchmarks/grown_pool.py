"""A grown pool on disk: parts of JSON Lines, and for each text which real tool's or server's text it was made from.

Part 0 holds the real tools, the others whole rounds of copies, so that parts can be made side by side.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from toolscout.eval.retrieval.derived import DerivedEncoder, Moves
from toolscout.eval.retrieval.growth import Copy, Growth
from toolscout.index.document import server_text, tool_text
from toolscout.index.encoder import Encoder, Vectors
from toolscout.index.words import hash64
from toolscout.jsonl import read_records
from toolscout.records import Server, Tool

ROUNDS_A_PART = 3


def read_growth(data: Path, seed: int = 0) -> Growth:
    """The real pool: mcpflow first, then what crawled and toucan add to it."""
    servers = [s for name in ("mcpflow", "crawled") for s in read_records(data / name / "servers.jsonl.gz", Server)]
    tools: dict[str, Tool] = {}
    for name in ("mcpflow", "crawled", "public/toucan"):
        for tool in read_records(data / name / "tools.jsonl.gz", Tool):
            tools.setdefault(tool.tool_id, tool)
    return Growth(servers, list(tools.values()), seed)


@dataclass(frozen=True)
class Part:
    """What one part holds, in memory: records by line, origins and text hashes by row."""

    folder: Path

    def servers(self) -> Iterator[Server]:
        """Servers in order."""
        with (self.folder / "servers.jsonl").open(encoding="utf-8") as lines:
            yield from map(Server.model_validate_json, lines)

    def tools(self) -> Iterator[Tool]:
        """Tools in order, one server's after the other's."""
        with (self.folder / "tools.jsonl").open(encoding="utf-8") as lines:
            yield from map(Tool.model_validate_json, lines)

    def array(self, name: str) -> npt.NDArray[np.uint64]:
        """``tools`` or ``servers``: uint64 [n, 2], hash of the text and row of the origin."""
        found: npt.NDArray[np.uint64] = np.load(self.folder / f"{name}.npy")
        return found


def parts_of(folder: Path) -> list[Part]:
    """The parts, in order."""
    return [Part(f) for f in sorted(folder.glob("part-*")) if (f / "tools.npy").is_file()]


def write_pool(data: Path, folder: Path, size: int, workers: int) -> None:
    """Write as many parts as ``size`` tools need; parts that are there are kept."""
    growth = read_growth(data)
    rounds = max(0, -(-size // len(growth.tools)) - 1)
    parts = 1 + -(-rounds // ROUNDS_A_PART)
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(_write_part, [data] * parts, [folder] * parts, range(parts)))


def _write_part(data: Path, folder: Path, number: int) -> None:
    final = folder / f"part-{number:02d}"
    if (final / "tools.npy").is_file():
        return
    final.mkdir(parents=True, exist_ok=True)
    growth = read_growth(data)
    place = {server.server_id: row for row, server in enumerate(growth.servers)}
    if number:
        first = 1 + (number - 1) * ROUNDS_A_PART
        rounds = itertools.chain.from_iterable(growth.round(n) for n in range(first, first + ROUNDS_A_PART))
    else:
        rounds = growth.real()
    tools: list[tuple[int, int]] = []
    servers: list[tuple[int, int]] = []
    with (
        (final / "servers.jsonl").open("w", encoding="utf-8") as server_lines,
        (final / "tools.jsonl").open("w", encoding="utf-8") as tool_lines,
    ):
        for server, copies in rounds:
            server_lines.write(_line(server))
            servers.append((hash64(server_text(server)), place[growth.tools[copies[0].origin].server_id]))
            for copy in copies:
                tool_lines.write(_line(copy.tool))
                tools.append((hash64(tool_text(copy.tool, server)), copy.origin))
    np.save(final / "servers.npy", np.array(servers, dtype=np.uint64).reshape(-1, 2))
    np.save(final / "tools.npy", np.array(tools, dtype=np.uint64).reshape(-1, 2))


def _line(record: Server | Tool) -> str:
    return json.dumps(record.model_dump(mode="json", exclude_unset=True), ensure_ascii=True) + "\n"


def first_of(parts: list[Part], size: int) -> Iterator[tuple[Server, list[Copy]]]:
    """Servers with their tools, ``size`` tools in all, the last server cut short."""
    left = size
    for part in parts:
        origins = part.array("tools")[:, 1]
        real, row = part == parts[0], 0
        for server, (_, group) in zip(
            part.servers(), itertools.groupby(part.tools(), lambda t: t.server_id), strict=True
        ):
            if left <= 0:
                return
            copies = [Copy(tool, int(origins[row + i]), real) for i, tool in enumerate(group)]
            row += len(copies)
            yield server, copies[:left]
            left -= len(copies)


@dataclass(frozen=True)
class Calibration:
    """Really encoded originals and copies of tools and servers, and what was learned from them."""

    originals: Vectors
    """Tools' [n, dim], then servers'."""
    tools: int
    moves: Moves
    report: dict[str, object]


def calibrated(work: Path, encoder: Encoder, copies: int) -> Calibration:
    """What `calibrate` finds, kept in ``WORK/calibration.npz``."""
    file = work / "calibration.npz"
    if not file.is_file():
        found = calibrate(parts_of(work / "pool"), encoder, copies)
        moves = {"cosines": found.moves.cosines, "directions": found.moves.directions}
        np.savez(file, originals=found.originals, tools=found.tools, report=json.dumps(found.report), **moves)
    kept = np.load(file)
    moved = Moves(kept["cosines"], kept["directions"])
    return Calibration(kept["originals"], int(kept["tools"]), moved, json.loads(str(kept["report"])))


def calibrate(parts: list[Part], encoder: Encoder, copies: int) -> Calibration:
    """Encode all real texts and ``copies`` copied tools; half of these teach the moves, the other half checks them."""
    texts, server_texts = [], []
    for server, some in first_of(parts, len(parts[0].array("tools"))):
        server_texts.append(server_text(server))
        texts += [tool_text(c.tool, server) for c in some]
    originals = np.concatenate([encoder.encode(texts), encoder.encode(server_texts)])
    made = [(tool_text(c.tool, s), c.origin) for s, some in first_of(parts[1:], copies) for c in some]
    sources, found = originals[[origin for _, origin in made]], encoder.encode([text for text, _ in made])
    keys = np.array([hash64(text) for text, _ in made], dtype=np.uint64)
    half = np.arange(len(made)) % 2 == 0
    moves = Moves.of(sources[half], found[half])
    derived = moves.apply(sources[~half], keys[~half])
    report = {
        "encoded originals": len(texts),
        "encoded copies": len(made),
        "really encoded": _distances(sources[~half], found[~half], originals[: len(texts)]),
        "derived": _distances(sources[~half], derived, originals[: len(texts)]),
    }
    return Calibration(originals, len(texts), moves, report)


def _distances(sources: Vectors, copies: Vectors, originals: Vectors) -> dict[str, object]:
    """How far copies are from their originals, from the nearest real tool, and from one another."""

    def quantiles(values: Vectors) -> list[float]:
        return [round(float(v), 3) for v in np.quantile(values, [0.1, 0.25, 0.5, 0.75, 0.9])]

    some = copies[:: max(1, len(copies) // 1500)]
    among = some @ some.T
    np.fill_diagonal(among, -1)
    return {
        "quantiles": [0.1, 0.25, 0.5, 0.75, 0.9],
        "cosine with the original": quantiles(np.vecdot(sources, copies)),
        "cosine with the nearest real tool": quantiles((some @ originals.T).max(axis=1)),
        "cosine with the nearest of the other copies": quantiles(among.max(axis=1)),
        "cosine with any other copy": quantiles(among[among > -1]),
    }


def derived_encoder(parts: list[Part], encoder: Encoder, calibration: Calibration) -> DerivedEncoder:
    """An encoder for all texts of the parts."""
    tools, servers = ([part.array(kind) for part in parts] for kind in ("tools", "servers"))
    known = np.concatenate([a[:, 0] for a in (*tools, *servers)])
    rows = np.concatenate([*(a[:, 1] for a in tools), *(a[:, 1] + np.uint64(calibration.tools) for a in servers)])
    exact = np.concatenate([tools[0][:, 0], servers[0][:, 0]])
    return DerivedEncoder(encoder, calibration.originals, known, rows.astype(np.int64), exact, calibration.moves)


def tool_vectors(parts: list[Part], size: int, calibration: Calibration) -> Vectors:
    """Vectors of the first ``size`` tools [size, dim], without reading their records."""
    keys, rows = np.concatenate([part.array("tools") for part in parts])[:size].T
    vectors = calibration.originals[rows.astype(np.int64)]
    for start in range(calibration.tools, size, 65_536):
        piece = slice(start, min(start + 65_536, size))
        vectors[piece] = calibration.moves.apply(vectors[piece], keys[piece])
    return vectors
