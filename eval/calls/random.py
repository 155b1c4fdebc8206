"""Random tools with random requests: is every call that is offered valid, and does no schema break anything?

The other rows ask what tools are for; here requests have nothing to do with the tool that has to be called, so that
the model is led astray as far as it can be.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from toolscout.errors import ModelError
from toolscout.eval.calls.identity import identity
from toolscout.eval.calls.measure import Suggests, schema_valid
from toolscout.eval.metrics import spread
from toolscout.eval.rows import Say, draw, silent
from toolscout.eval.work_file import Work, work_file
from toolscout.records import Call, JsonObject, Tool
from toolscout.server.calling import constrain
from toolscout.settings import Settings

if TYPE_CHECKING:
    from toolscout.index.chooser import Chooser


class Takes:
    """A chooser that takes the first tool, whatever is asked."""

    none_at = 1.0

    def odds(self, task: str, tools: Sequence[Tool]) -> list[float]:
        """P(tool) for each tool, then P(none of them)."""
        return [1.0, *(0.0 for _ in tools)]


def check_constraints(tools: Sequence[Tool]) -> JsonObject:
    """Make every tool's constraints, for both kinds of backend, and say how many could not be made."""
    failed: Counter[str] = Counter()
    seconds, sizes = [], []
    for tool in tools:
        start = time.perf_counter()
        try:
            grammar = constrain.arguments_grammar(tool.input_schema, copying="ids", text=tool.description or tool.name)
            constrain.call_schema(tool.name, tool.input_schema)
        except Exception as error:  # whatever it is: to be counted, not to end the run
            failed[f"{type(error).__name__}: {tool.tool_id}"] += 1
            continue
        seconds.append(1000 * (time.perf_counter() - start))
        sizes.append(float(len(grammar)))
    return {
        "tools": len(tools),
        "failed": sorted(failed),
        "ms": spread(seconds),
        "characters": spread(sizes, 0),
    }


def random_calls(
    tools: Sequence[Tool],
    rows: Sequence[Call],
    count: int,
    *,
    settings: Settings | None = None,
    caller: Suggests | None = None,
    seed: int = 0,
    work: Path | None = None,
    say: Say = silent,
) -> JsonObject:
    """``count`` tools drawn from the pool, each with the request of a row drawn for it. ``work`` keeps what is done.

    Returns ``{n, offered, schema_valid, incomplete, refused, crashed, seconds, constraints}``: ``schema_valid`` is the
    share of the whole calls offered that validate, ``incomplete`` and ``refused`` count the rest, and ``crashed`` lists
    what raised, which nothing should. Raises BadInput for a ``work`` file of another run.
    """
    drawn = sorted(tools, key=lambda t: draw(seed, f"tool\n{t.tool_id}"))[:count]
    settings = settings or Settings()
    header = {**(identity(settings) if caller is None else {}), "seed": seed, "random": True}
    requests = {t.tool_id: rows[draw(seed, f"request\n{t.tool_id}") % len(rows)].query for t in drawn}
    with work_file(work, header) as kept:
        found = asyncio.run(_ask_all(drawn, requests, settings, caller, kept, say))
    states = Counter(str(r["state"]) for r in found)
    offered = states["valid"] + states["invalid"]
    return {
        "n": len(found),
        "offered": offered,
        "schema_valid": round(states["valid"] / offered, 4) if offered else None,
        "invalid": [r["tool_id"] for r in found if r["state"] == "invalid"],
        "incomplete": states["incomplete"],
        "refused": states["refused"],
        "crashed": [r["tool_id"] for r in found if r["state"] == "crashed"],
        "seconds": spread([r["seconds"] for r in found]),
        "constraints": check_constraints(tools),
    }


async def _ask_all(
    drawn: Sequence[Tool],
    requests: Mapping[str, str],
    settings: Settings,
    caller: Suggests | None,
    kept: Work,
    say: Say,
) -> list[JsonObject]:
    from toolscout.server.calling.caller import Caller

    owned = None
    if caller is None:
        caller = owned = Caller(settings, chooser=lambda: cast("Chooser", Takes()))
    found = []
    try:
        for number, tool in enumerate(drawn, start=1):
            key = f"{tool.tool_id}\n{requests[tool.tool_id]}"
            if key not in kept:
                kept.add(key, await _ask(caller, tool, requests[tool.tool_id]))
            found.append(kept[key])
            if number in (1, 5) or number % 50 == 0:
                states = Counter(str(r["state"]) for r in found)
                counts = ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
                say(f"{number} of {len(drawn)} random tools: {counts}")
    finally:
        if owned is not None:
            await owned.close()
    return found


async def _ask(caller: Suggests, tool: Tool, query: str) -> JsonObject:
    from toolscout.server.calling.suggestion import Candidate

    row: JsonObject = {"tool_id": tool.tool_id, "query": query, "state": "crashed", "arguments": None}
    start = time.perf_counter()
    try:
        given = await caller.suggest(query, [Candidate(tool, 0.0, [])])
    except ModelError:
        raise  # no model, or none that answers: nothing is measured
    except Exception as error:  # whatever it is: to be counted, not to end the run
        return {**row, "reason": f"{type(error).__name__}: {error}", "seconds": round(time.perf_counter() - start, 4)}
    row["seconds"] = round(time.perf_counter() - start, 4)
    if given.abstained or not given.calls:
        return {**row, "state": "refused", "reason": given.reason}
    call = given.calls[0]
    row["arguments"] = call.arguments
    if call.missing:
        return {**row, "state": "incomplete", "missing": call.missing}
    return {**row, "state": "valid" if schema_valid(call.arguments, tool.input_schema) else "invalid"}
