"""``toolscout eval strategies``: which tools to put into the prompt.

RAG-MCP's Table 1 (arXiv 2505.03275): the same model is given *blank* (every tool of the pool), *keyword* (their "actual
match": the tools that share a word with the request) or *retrieved* (the best few of the search) tools. What comes out:
is the right tool in the prompt, what does the prompt cost, does it fit, and which tool does the model choose.
docs/EVALUATION.md, Strategies, defines each number.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from toolscout.errors import BadInput, ModelError
from toolscout.eval.calls.identity import identity
from toolscout.eval.metrics import mean, share, wilson
from toolscout.eval.needle.draw import Draws, limited, needle_rows, parse_sizes
from toolscout.eval.needle.pool import Haystack, open_haystack
from toolscout.eval.provenance import of_experiment, plain
from toolscout.eval.retrieval.measure import RetrievalFiles
from toolscout.eval.rows import Say, draw, read_calls, read_tools, silent
from toolscout.eval.tokens import TokenCounter, make_counter
from toolscout.eval.work_file import Work, work_file
from toolscout.index.encoder import make_encoder
from toolscout.index.words import hashes
from toolscout.prompt import NONE, labels, render, render_tool
from toolscout.records import Call, JsonObject, Tool, sha256_hex
from toolscout.settings import Settings

if TYPE_CHECKING:
    from toolscout.server.backends import Backend

STRATEGIES = ("blank", "keyword", "retrieved")

ANSWER_TOKENS = 256
"""Most tokens of an answer: a call with its arguments. Room for them is kept in the context."""

_WHOLE = 1 << 40
"""A prompt's budget under which nothing is cut: what the strategies cost would else be hidden."""


@dataclass(frozen=True)
class StrategyOptions:
    """What is measured. ``found``: tools that *retrieved* gives; ``context``: tokens that the model takes, 0: unknown
    (an endpoint is then asked whatever the length, and says itself what it does not take)."""

    sizes: str = "10,100,1000,all"
    strategies: Sequence[str] = STRATEGIES
    found: int = 5
    tokens_only: bool = False
    context: int = 0
    limit: int | None = None
    seed: int = 0
    tokenizer: Path | None = None


@dataclass
class StrategiesRun:
    """``result`` is the JSON object; ``pieces`` are the prompts behind it, one for each row, size and strategy."""

    result: JsonObject
    pieces: list[JsonObject]
    warnings: list[str] = field(default_factory=list)


def measure_strategies(
    files: RetrievalFiles,
    options: StrategyOptions,
    *,
    settings: Settings | None = None,
    cache: Path | None = None,
    work: Path | None = None,
    say: Say = silent,
) -> StrategiesRun:
    """Every row under every strategy in pools of every size. Raises BadInput for files that do not fit together or a
    ``work`` file of another run, ModelError when the model fails."""
    settings = settings or Settings()
    unknown = [name for name in options.strategies if name not in STRATEGIES]
    if unknown or not options.strategies:
        raise BadInput(f"There is no strategy {(unknown or [''])[0]!r}.", f"Strategies are {', '.join(STRATEGIES)}.")
    tools = read_tools(files.tools)
    rows, warnings = needle_rows(read_calls(files.calls), tools)
    rows = limited(rows, options.limit, options.seed)
    draws = Draws(tools, options.seed)
    sizes, said = parse_sizes(options.sizes, min(map(draws.room, rows)))
    warnings += said
    for warning in warnings:
        say(warning)
    backend = None if options.tokens_only else _backend(settings)
    context = options.context or (getattr(backend, "context", 0) if backend is not None else 0)
    counter = make_counter(options.tokenizer)
    header: JsonObject = {
        "strategies": 1, "seed": options.seed, "sizes": sizes, "found": options.found, "context": context,
        "tokens_only": options.tokens_only, "model": "" if backend is None else settings.model,
        "model_url": "" if backend is None else plain(settings.model_url), "tokenizer": counter.name,
        "encoder": make_encoder(settings).fingerprint, "tools": draws.fingerprint,
    }  # fmt: skip
    if backend is not None:  # the model answers freely, so that nothing else of its identity says anything here
        header |= {k: v for k, v in identity(settings).items() if k in ("weights", "temperature")}
    plan = [(row, size, name) for row in rows for size in sizes for name in options.strategies]
    started = time.monotonic()
    with work_file(work, header) as done:
        todo = [one for one in plan if _key(*one) not in done]
        if len(todo) < len(plan):
            say(f"{len(plan) - len(todo)} of {len(plan)} prompts were done before")
        if todo:
            with open_haystack(files, draws.tool_ids, settings, cache, say) as haystack:
                prompts = Prompts(haystack, draws, tools, counter, options.found)
                asyncio.run(_all(todo, prompts, backend, context, done, say))
        pieces = [done[_key(*one)] for one in plan]
    model = next((str(p["model"]) for p in pieces if p.get("model")), settings.model if backend is not None else "")
    result: JsonObject = {
        "experiment": "strategies", "n": len(rows), "pool": len(tools), "model": model or None, "found": options.found,
        "context": context or None, "tokenizer": counter.name, "encoder": settings.encoder, "seed": options.seed,
        "pools": [
            {
                "size": size,
                "strategies": {
                    name: summary(_of(pieces, size, name), model=backend is not None) for name in options.strategies
                },
            }
            for size in sizes
        ],
        "seconds": round(time.monotonic() - started, 1), "warnings": warnings,
        "of": of_experiment({key: header[key] for key in ("weights", "temperature") if key in header}),
    }  # fmt: skip
    return StrategiesRun(result, pieces, warnings)


class Prompts:
    """The tools that each strategy gives for a row, and what they cost."""

    def __init__(
        self, haystack: Haystack, draws: Draws, tools: Mapping[str, Tool], counter: TokenCounter, found: int
    ) -> None:
        self.haystack, self.draws, self.tools, self.count, self.found = haystack, draws, tools, counter, found
        self._tokens: dict[str, int] = {}
        self._frame = counter(render("", [], budget=_WHOLE)[0]["content"])

    def given(self, row: Call, size: int, strategy: str) -> list[Tool]:
        """The tools of the prompt: *blank* and *keyword* in the pool's order, *retrieved* best first."""
        order = self.draws.order(row, "prompt")
        needle = row.gold[0].tool_id
        depth = draw(self.draws.seed, f"position\n{row.id}") / 2**64
        places = self.draws.haystack(row, needle, order, size, depth).tools
        ids = [self.draws.tool_ids[place] for place in places]
        if strategy == "keyword":
            having = self.haystack.words.having(hashes(row.query))
            ids = [tool_id for tool_id in ids if having[self.haystack.row_of[tool_id]]]
        elif strategy == "retrieved":
            best = self.haystack.find(self.haystack.asks(row.query), self.haystack.mask(ids), self.found)
            ids = [self.haystack.id_of[place] for place in best.rows]
        return [self.tools[tool_id] for tool_id in ids]

    def tokens(self, row: Call, given: Sequence[Tool]) -> int:
        """Tokens of the prompt, each tool's line counted by itself: within a token a tool of the whole text's count."""
        return self._frame + self.count(row.query) + sum(map(self._line, given))

    def _line(self, tool: Tool) -> int:
        if tool.tool_id not in self._tokens:
            self._tokens[tool.tool_id] = self.count(render_tool(tool) + "\n")
        return self._tokens[tool.tool_id]


async def _all(
    todo: Sequence[tuple[Call, int, str]], prompts: Prompts, backend: Backend | None, context: int, done: Work, say: Say
) -> None:
    began = time.monotonic()
    try:
        if backend is not None:
            await backend.prepare()
        for number, (row, size, name) in enumerate(todo, start=1):
            given = prompts.given(row, size, name)
            piece: JsonObject = {
                "id": row.id, "size": size, "strategy": name, "tools": len(given),
                "gold": row.gold[0].tool_id in {tool.tool_id for tool in given},
                "counted": prompts.tokens(row, given),
                "fits": True if context or backend is not None else None,
            }  # fmt: skip
            if context and piece["counted"] + (ANSWER_TOKENS if backend is not None else 0) > context:
                piece["fits"] = False
            elif backend is not None:
                piece |= await ask(backend, row, given)
            done.add(_key(row, size, name), piece)
            if number in (1, 5) or number % 50 == 0:
                left = (time.monotonic() - began) / number * (len(todo) - number) / 60
                say(f"{number} of {len(todo)} prompts, about {left:.0f} min left")
    finally:
        if backend is not None:
            await backend.close()


async def ask(backend: Backend, row: Call, given: Sequence[Tool]) -> JsonObject:
    """Let the model answer freely; which tool did it choose? A prompt that it does not take is no error.

    Raises ModelError for any other failure of the model.
    """
    from toolscout.server.backends import ContextOverflow

    start = time.perf_counter()
    try:
        answer = await backend.generate(render(row.query, given, budget=_WHOLE), max_tokens=ANSWER_TOKENS)
    except ContextOverflow as error:
        return {"fits": False, "said": str(error)}
    chosen = chosen_tool(answer.text, given)
    return {
        "chosen": chosen, "right": chosen == row.gold[0].tool_id, "prompt": answer.prompt_tokens,
        "completion": answer.completion_tokens, "seconds": round(time.perf_counter() - start, 3), "model": backend.name,
        "text": answer.text[:1000],
    }  # fmt: skip


def chosen_tool(text: str, given: Sequence[Tool]) -> str | None:
    """The tool that an answer names, by the label it had in the prompt; None for none of them. Models also write the
    call in the form they were trained on: ``tool`` or ``function`` for ``name``, or around it."""
    from toolscout.server.calling.constrain import parse_answer

    named = parse_answer(text)
    for key in ("function", "tool_call", "tool"):
        if isinstance(named, dict) and isinstance(named.get(key), dict):
            named = named[key]
    if not isinstance(named, dict):
        return None
    name = next((named[key] for key in ("name", "tool", "function") if isinstance(named.get(key), str)), NONE)
    by_label = {label: tool.tool_id for label, tool in zip(labels(given), given, strict=True)}
    return by_label.get(name)


def summary(pieces: Sequence[JsonObject], *, model: bool = True) -> JsonObject:
    """One strategy in pools of one size. Rows whose prompt does not fit count as wrong, and in no mean but `counted`'s.

    Without a ``model``, ``accuracy`` and what goes with it are None; so is ``does_not_fit`` where no context is known.
    """
    answered = [piece for piece in pieces if "right" in piece]
    right = sum(bool(piece.get("right")) for piece in pieces)
    return {
        "n": len(pieces),
        "accuracy": round(right / len(pieces), 4) if model else None,
        "accuracy_95": wilson(right, len(pieces)) if model else None,
        "accuracy_of_fitting": _mean([float(piece["right"]) for piece in answered]),
        "gold_in_prompt": _round(share(bool(piece["gold"]) for piece in pieces)),
        "reachable": _round(share(piece["gold"] and piece["fits"] is not False for piece in pieces)),
        "tools": _mean([float(piece["tools"]) for piece in pieces], 1),
        "does_not_fit": _round(share(not piece["fits"] for piece in pieces if piece["fits"] is not None)),
        "tokens": {
            "counted": _mean([float(piece["counted"]) for piece in pieces], 1),
            "prompt": _mean([float(piece["prompt"]) for piece in answered if piece["prompt"]], 1),
            "completion": _mean([float(piece["completion"]) for piece in answered if piece["completion"]], 1),
        },
        "seconds": _mean([float(piece["seconds"]) for piece in answered], 3),
    }


def _mean(values: Sequence[float], digits: int = 4) -> float | None:
    return _round(mean(values), digits)


def _round(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


def _of(pieces: Sequence[JsonObject], size: int, name: str) -> list[JsonObject]:
    return [piece for piece in pieces if (piece["size"], piece["strategy"]) == (size, name)]


def _key(row: Call, size: int, strategy: str) -> str:
    """Changes with what is asked, not only with the row's id."""
    asked = sha256_hex("\n".join([row.query, *sorted(row.relevant_ids())]))[:16]
    return f"{row.id} {asked} {size} {strategy}"


def _backend(settings: Settings) -> Backend:
    from toolscout.server.backends import make_backend

    backend = make_backend(settings)
    if backend is None:
        raise ModelError(
            "There is no model to choose tools.",
            "Name one with --model or --model-url, or measure prompts alone with --tokens-only.",
        )
    return backend
