"""`eval calls --compare`: the same rows under several settings, side by side; as in MCP-Flow's Figures 5 and 6."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from toolscout.errors import BadInput
from toolscout.eval.calls.measure import CallsRun, measure_calls
from toolscout.eval.rows import Say, silent
from toolscout.records import JsonObject
from toolscout.settings import Settings

if TYPE_CHECKING:
    from toolscout.eval.calls.exemplars import Exemplars
    from toolscout.server.calling.suggestion import Decoding

Aspect = Literal["candidates", "decoding", "exemplars"]
ASPECTS: tuple[str, ...] = get_args(Aspect)
SIZES = (1, 5, 10, 20, 50, 100)
DECODINGS: tuple[Decoding, ...] = ("free", "constrained", "schema", "repair")


@dataclass(frozen=True)
class Variant:
    """One setting of a comparison."""

    name: str
    candidates: int
    decoding: Decoding = "repair"
    exemplars: Exemplars | None = None


def variants_of(
    aspect: str,
    *,
    candidates: int,
    sizes: Sequence[int] = SIZES,
    decoding: Decoding = "repair",
    exemplars: Exemplars | None = None,
) -> list[Variant]:
    """The settings that a comparison of ``aspect`` runs; what is not compared stays as given. Raises BadInput."""
    if aspect == "candidates":
        return [Variant(str(size), size, decoding, exemplars) for size in sizes]
    if aspect == "decoding":
        return [Variant(name, candidates, name, exemplars) for name in DECODINGS]
    if aspect == "exemplars":
        if exemplars is None:
            raise BadInput("--compare exemplars needs exemplars.", "Give files of calls with --exemplars.")
        return [Variant("off", candidates, decoding), Variant("on", candidates, decoding, exemplars)]
    raise BadInput(f"--compare {aspect} is nothing that can be compared.", f"Known: {', '.join(ASPECTS)}.")


def compare_calls(
    tools: Sequence[Path],
    calls: Sequence[Path],
    aspect: str,
    variants: Sequence[Variant],
    *,
    servers: Sequence[Path] = (),
    settings: Settings | None = None,
    limit: int | None = None,
    seed: int = 0,
    work: Path | None = None,
    say: Say = silent,
) -> tuple[JsonObject, dict[str, CallsRun]]:
    """``{"by": aspect, "variants": {name: result}}`` and the runs. Each variant has a ``work`` file of its own beside
    the one named, so that an interrupted comparison goes on. Raises as :func:`measure_calls` does.
    """
    from toolscout.eval.calls.memory import Remembering
    from toolscout.server.backends import Backend, make_backend
    from toolscout.server.calling.caller import Caller

    settings = settings or Settings()
    made = make_backend(settings)
    # An endpoint chooses among the candidates itself, so that every prompt is another one.
    memory = Remembering(made) if made is not None and made.queues else None
    runs: dict[str, CallsRun] = {}
    try:
        for variant in variants:
            say(f"{aspect}: {variant.name}")
            caller = Caller(settings, backend=cast(Backend, memory), decoding=variant.decoding) if memory else None
            runs[variant.name] = measure_calls(
                tools,
                calls,
                servers=servers,
                settings=settings,
                candidates=variant.candidates,
                sized=aspect == "candidates",
                limit=limit,
                seed=seed,
                work=work.with_name(f"{work.name}.{aspect}-{variant.name}.jsonl") if work is not None else None,
                caller=caller,
                decoding=variant.decoding,
                exemplars=variant.exemplars,
                clock=memory.clock if memory else time.perf_counter,
                say=say,
            )
    finally:
        if memory is not None:
            asyncio.run(memory.close())
    return {"by": aspect, "variants": {name: run.result for name, run in runs.items()}}, runs


def lost_and_won(before: CallsRun, after: CallsRun) -> Mapping[str, int]:
    """On how many rows AST turned from right to wrong, and the other way, between two runs of the same rows."""
    first = {o.id: o.ast for o in before.outcomes}
    pairs = [(first[o.id], o.ast) for o in after.outcomes if o.ast is not None and first.get(o.id) is not None]
    return {"won": sum(b and not a for a, b in pairs), "lost": sum(a and not b for a, b in pairs)}  # type: ignore[misc]
