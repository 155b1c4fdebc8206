"""``toolscout eval needle``: is one tool still found as the pool around it grows?

RAG-MCP's stress test (arXiv 2505.03275, 4.1): one needle among N - 1 distractors, N from 1 to 11,100, the needle's
position in the pool varied. MCP-Zero's needle in a haystack (arXiv 2506.01056): the same with requests that name the
kind of server and the kind of operation, N from 1 to 2,797. Both ask a model; here the product's search answers alone,
with the encoder that ships. docs/EVALUATION.md, Needle in a haystack, defines each number.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from toolscout.errors import BadInput
from toolscout.eval.metrics import mean, reciprocal_rank, wilson
from toolscout.eval.needle.draw import Draws, limited, needle_rows, parse_sizes
from toolscout.eval.needle.pool import Haystack, open_haystack
from toolscout.eval.retrieval.measure import RetrievalFiles
from toolscout.eval.retrieval.structured import StructuredRow, read_structured
from toolscout.eval.rows import Say, read_calls, read_tools, silent
from toolscout.eval.setup.context import tool_tokens
from toolscout.eval.tokens import TokenCounter, make_counter
from toolscout.eval.work_file import work_file
from toolscout.index.encoder import make_encoder
from toolscout.index.search import ToolRequest
from toolscout.records import Call, JsonObject, Tool, sha256_hex
from toolscout.settings import Settings

CONTEXT = 128_000
"""Tokens of a model's context that the pool's definitions are laid into, for comparison."""


@dataclass(frozen=True)
class NeedleOptions:
    """What is measured. ``positions``: how many places of the needle, evenly from first to last."""

    sizes: str = "paper"
    positions: int = 11
    requests: Path | None = None
    limit: int | None = None
    seed: int = 0
    context: int = CONTEXT
    tokenizer: Path | None = None


@dataclass
class NeedleRun:
    """``result`` is the JSON object; ``pieces`` are the rows behind it, one for each row and form."""

    result: JsonObject
    pieces: list[JsonObject]
    warnings: list[str] = field(default_factory=list)


def depths(positions: int) -> list[float]:
    """Relative positions of the needle: 0 is first, 1 last; one position is the middle."""
    return [0.5] if positions == 1 else [round(i / (positions - 1), 4) for i in range(positions)]


def measure_needle(
    files: RetrievalFiles,
    options: NeedleOptions,
    *,
    settings: Settings | None = None,
    cache: Path | None = None,
    work: Path | None = None,
    say: Say = silent,
) -> NeedleRun:
    """Every row's needle in pools of every size, at every position. Raises BadInput for files that do not fit together
    or a ``work`` file of another run."""
    settings = settings or Settings()
    if options.positions < 1:
        raise BadInput("--positions is less than 1.", "Give how many places of the needle are tried, such as 11.")
    tools = read_tools(files.tools)
    rows, warnings = needle_rows(read_calls(files.calls), tools)
    rows = limited(rows, options.limit, options.seed)
    structured = read_structured(options.requests, rows) if options.requests is not None else {}
    draws = Draws(tools, options.seed)
    sizes, said = parse_sizes(options.sizes, min(map(draws.room, rows)))
    warnings += said
    for warning in warnings:
        say(warning)
    counter = make_counter(options.tokenizer)
    forms = ["plain", "structured"] if structured else ["plain"]
    header: JsonObject = {
        "needle": 1, "seed": options.seed, "sizes": sizes, "positions": options.positions, "context": options.context,
        "encoder": make_encoder(settings).fingerprint, "tokenizer": counter.name, "tools": draws.fingerprint,
    }  # fmt: skip
    started = time.monotonic()
    with work_file(work, header) as done:
        todo = [(row, form) for row in rows for form in forms if _key(row, form, structured) not in done]
        if len(todo) < len(rows) * len(forms):
            say(f"{len(rows) * len(forms) - len(todo)} of {len(rows) * len(forms)} were done before")
        if todo:
            tokens = _tokens(tools, draws.tool_ids, counter, say)
            with open_haystack(files, draws.tool_ids, settings, cache, say) as haystack:
                search = _Search(haystack, draws, sizes, depths(options.positions), tokens, options.context)
                began = time.monotonic()
                for number, (row, form) in enumerate(todo, start=1):
                    requests = structured[row.id].requests if form == "structured" else ()
                    asked = [ToolRequest(r.server, r.tool) for r in requests]
                    done.add(_key(row, form, structured), {"id": row.id, "form": form, **search.trials(row, asked)})
                    if number in (1, 5) or number % 20 == 0:
                        left = (time.monotonic() - began) / number * (len(todo) - number) / 60
                        say(f"{number} of {len(todo)} needles, about {left:.0f} min left")
        pieces = [done[_key(row, form, structured)] for row in rows for form in forms]
    result: JsonObject = {
        "experiment": "needle", "n": len(rows), "pool": len(tools), "sizes": sizes,
        "positions": depths(options.positions), "seed": options.seed, "encoder": settings.encoder,
        "context": options.context, "tokenizer": counter.name,
        "forms": {f: summary([p for p in pieces if p["form"] == f], sizes, depths(options.positions)) for f in forms},
        "seconds": round(time.monotonic() - started, 1), "warnings": warnings,
    }  # fmt: skip
    return NeedleRun(result, pieces, warnings)


class _Search:
    """One row at a time through all its haystacks."""

    def __init__(
        self, haystack: Haystack, draws: Draws, sizes: Sequence[int], at: Sequence[float], tokens: np.ndarray, room: int
    ) -> None:
        self.haystack, self.draws, self.sizes, self.at, self.tokens, self.room = (
            haystack,
            draws,
            sizes,
            at,
            tokens,
            room,
        )
        self.rows = np.array([haystack.row_of[tool_id] for tool_id in draws.tool_ids], dtype=np.int64)

    def trials(self, row: Call, requests: Sequence[ToolRequest]) -> JsonObject:
        """``rank`` (0: not among the first 50), ``offered`` and ``in_prompt``, each [sizes][positions]."""
        needle = row.gold[0].tool_id
        wanted = self.haystack.row_of[needle]
        asks = self.haystack.asks(row.query, requests)
        orders = [self.draws.order(row, str(number)) for number in range(len(self.at))]
        found: JsonObject = {"needle": needle, "rank": [], "offered": [], "in_prompt": []}
        for size in self.sizes:
            ranks, offered, fits = [], [], []
            for order, depth in zip(orders, self.at, strict=True):
                drawn = self.draws.haystack(row, needle, order, size, depth)
                answer = self.haystack.find(asks, self.haystack.mask_rows(self.rows[drawn.tools]))
                ranks.append(answer.rows.index(wanted) + 1 if wanted in answer.rows else 0)
                offered.append(int(answer.offers))
                fits.append(int(self.tokens[drawn.tools[: drawn.position + 1]].sum() <= self.room))
            for name, values in (("rank", ranks), ("offered", offered), ("in_prompt", fits)):
                found[name].append(values)
        return found


def summary(pieces: Sequence[JsonObject], sizes: Sequence[int], at: Sequence[float]) -> JsonObject:
    """``by_size`` and ``cells`` (size by position) of one form of request.

    A row's positions are not independent of each other, so the intervals (Wilson, 95 %) count rows and not trials.
    """
    ranks = np.array([piece["rank"] for piece in pieces])  # [rows, sizes, positions]
    offered = np.array([piece["offered"] for piece in pieces], dtype=float)
    in_prompt = np.array([piece["in_prompt"] for piece in pieces], dtype=float)
    first, five = ranks == 1, (ranks >= 1) & (ranks <= 5)
    by_size, cells = [], []
    for i, size in enumerate(sizes):
        values = [reciprocal_rank([int(rank == k) for k in range(1, 51)]) for rank in ranks[:, i].ravel().tolist()]
        by_size.append({
            "size": size, "trials": int(ranks[:, i].size), **_share("first", first[:, i]), **_share("five", five[:, i]),
            "mrr": round(mean(values) or 0.0, 4), "offered": round(float(offered[:, i].mean()), 4),
            "in_prompt": round(float(in_prompt[:, i].mean()), 4),
        })  # fmt: skip
        for j, depth in enumerate(at):
            cells.append({
                "size": size, "position": depth, "trials": len(pieces), "first": round(float(first[:, i, j].mean()), 4),
                "five": round(float(five[:, i, j].mean()), 4),
                "in_prompt": round(float(in_prompt[:, i, j].mean()), 4),
            })  # fmt: skip
    return {"by_size": by_size, "cells": cells}


def _share(name: str, hits: np.ndarray) -> JsonObject:
    share, rows = float(hits.mean()), len(hits)
    return {name: round(share, 4), f"{name}_95": wilson(share * rows, rows)}


def _key(row: Call, form: str, structured: Mapping[str, StructuredRow]) -> str:
    """Changes with what is asked, not only with the row's id."""
    asked = structured[row.id].to_json() if form == "structured" else row.query
    wanted = "\n".join(sorted(row.relevant_ids()))
    return f"{row.id} {form} " + sha256_hex(asked + "\n" + wanted)[:16]


def _tokens(tools: Mapping[str, Tool], ids: Sequence[str], counter: TokenCounter, say: Say) -> np.ndarray:
    say(f"counting the tokens of {len(ids):,} definitions with {counter.name}")
    return np.array([tool_tokens(tools[tool_id], counter) for tool_id in ids], dtype=np.int64)
