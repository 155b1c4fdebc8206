"""Ask a pack what people ask: by itself, as a new user does, and below installed servers.

Rows are of four kinds (``kind``): ``product`` names a product, with the pieces of names (``accept``) that its servers
are known by; ``generic`` names none and is served by many; ``nothing`` is served by no tool; ``installed`` is served by
a tool of the installed servers (``gold``). A product that no server of the pack is of counts as ``absent``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from toolscout.errors import BadInput
from toolscout.index.layers import LayeredIndex, layer_params
from toolscout.index.pack.search import PackIndex
from toolscout.index.search import Answer, Hit, SearchIndex
from toolscout.jsonl import read_objects
from toolscout.records import Server

KINDS = ("product", "generic", "nothing", "installed")
LIMIT = 5

Say = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One request."""

    query: str
    kind: str
    writer: str
    accept: tuple[str, ...] = ()
    gold: tuple[str, ...] = ()


def read_rows(path: Path) -> list[Row]:
    """Read requests. Raises BadInput for a row of no known kind, NotFound for a missing file."""
    rows = []
    for line, values in read_objects(path):
        if values.get("kind") not in KINDS or not isinstance(values.get("query"), str):
            raise BadInput(f"{path}:{line}: a row has a query and a kind, one of {', '.join(KINDS)}.")
        accept, gold = tuple(values.get("accept") or ()), tuple(values.get("gold") or ())
        rows.append(Row(values["query"], values["kind"], str(values.get("writer", "")), accept, gold))
    return rows


def measure_pack(box: PackIndex, own: SearchIndex | None, rows: Sequence[Row], say: Say) -> dict[str, Any]:
    """Measure a pack; with ``own``, also below these servers. Fractions are between 0 and 1, times milliseconds."""
    params = layer_params(box.encoder)
    manifest = box.storage.pack.manifest
    say(f"the pack of {manifest.date} by itself: {manifest.servers:,} servers, {manifest.tools:,} tools")
    known = [_names(box.storage.server(row)) for row in range(box.meta.servers)]
    there = {row: _is_there(row, known) for row in rows if row.kind == "product"}
    result: dict[str, Any] = {
        "pack": {"date": manifest.date, "servers": manifest.servers, "tools": manifest.tools},
        "n": {kind: sum(row.kind == kind for row in rows) for kind in KINDS},
        "fresh": _fresh(LayeredIndex(None, box, params), rows, there),
    }
    if own is not None:
        ids = own.storage.server_ids()
        say(f"below {len(ids)} installed servers")
        layered = LayeredIndex(own, box, params, [*ids, *map(_package, map(own.storage.server, range(len(ids))))])
        result["installed"] = _installed(layered, own, rows, there)
    return result


def _fresh(index: LayeredIndex, rows: Sequence[Row], there: Mapping[Row, bool]) -> dict[str, Any]:
    index.warm()
    named, absent = [], []
    refused, offered = [], []
    taken = []
    by_writer: dict[str, list[bool]] = {}
    for row in rows:
        if row.kind == "installed":
            continue
        started = time.perf_counter()
        answer = index.find(row.query, limit=LIMIT)
        taken.append(1000 * (time.perf_counter() - started))
        if row.kind == "generic":
            refused.append(answer.no_match)
        elif row.kind == "nothing":
            offered.append(not answer.no_match)
        elif there[row]:
            right = _right(answer, row)
            named.append((right[:1] == [True], True in right, answer.no_match))
            by_writer.setdefault(row.writer, []).append(right[:1] == [True])
        else:
            absent.append(not answer.no_match)
    first, five, none = np.array(named, dtype=float).reshape(-1, 3).T
    return {
        "products": len(named),
        "right_first": _mean(first),
        "right_among_5": _mean(five),
        "refused": {"named": _mean(none), "generic": _mean(refused), "all": _mean([*none, *refused])},
        "offered": {"nothing": _mean(offered), "absent_product": _mean(absent), "absent_products": len(absent)},
        "right_first_by_writer": {writer: _mean(values) for writer, values in sorted(by_writer.items())},
        "latency_ms": {"p50": round(float(np.median(taken)), 2), "p95": round(float(np.quantile(taken, 0.95)), 2)},
    }


def _installed(
    layered: LayeredIndex, own: SearchIndex, rows: Sequence[Row], there: Mapping[Row, bool]
) -> dict[str, Any]:
    here = [_names(own.storage.server(row)) for row in range(own.meta.servers)]
    ids = set(own.storage.server_ids())
    alone, joined, right, wrong = [], [], [], []
    for row in rows:
        if row.kind == "installed":
            alone.append(_hits_gold(own.find(row.query, limit=LIMIT), row))
            joined.append(_hits_gold(layered.find(row.query, limit=LIMIT), row))
        elif row.kind == "product" and there[row] and not _is_there(row, here):
            answer = layered.find(row.query, limit=LIMIT)
            right.append(
                any(ok and hit.server_id not in ids for ok, hit in zip(_right(answer, row), answer.hits, strict=False))
            )
            wrong.append(bool(answer.hits) and answer.hits[0].server_id in ids)
    alone_first, alone_five = np.array(alone, dtype=float).reshape(-1, 2).T
    first, five = np.array(joined, dtype=float).reshape(-1, 2).T
    return {
        "servers": len(ids),
        "tools": len(own),
        "served": len(alone),
        "right_first": {"without_pack": _mean(alone_first), "with_pack": _mean(first)},
        "right_among_5": {"without_pack": _mean(alone_five), "with_pack": _mean(five)},
        "not_installed": len(right),
        "not_installed_found": _mean(right),
        "wrong_installed_first": _mean(wrong),
    }


def _names(server: Server) -> str:
    return " ".join([server.server_id, server.name, server.publisher or ""]).lower()


def _package(server: Server) -> str:
    return f"{server.install.registry}:{server.install.package or server.install.url}"


def _is_there(row: Row, known: Sequence[str]) -> bool:
    return any(piece in names for names in known for piece in row.accept)


def _right(answer: Answer, row: Row) -> list[bool]:
    """Of each of the first hits, whether it is of the product that the row names."""

    def right(hit: Hit) -> bool:
        return any(piece in _names(hit.server) for piece in row.accept)

    return [right(hit) for hit in answer.hits[:LIMIT]]


def _hits_gold(answer: Answer, row: Row) -> tuple[bool, bool]:
    found = [hit.tool_id in row.gold for hit in answer.hits[:LIMIT]]
    return found[:1] == [True], True in found


def _mean(values: Any) -> float:
    return round(float(np.mean(values)), 4) if len(values) else 0.0
