"""Measures suggested calls: each request with its candidates goes to the product's own caller, the calls it writes
are scored. docs/EVALUATION.md defines each number.
"""

from __future__ import annotations

import asyncio
import heapq
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from toolscout.ast_match import MadeCall, match_calls
from toolscout.errors import BadInput, ModelError
from toolscout.eval.calls.identity import identity
from toolscout.eval.calls.rates import grouped_rates, rates
from toolscout.eval.metrics import mean, share, spread
from toolscout.eval.provenance import of_experiment, plain
from toolscout.eval.rows import (
    Say,
    definition,
    draw,
    lang_of,
    marketplace_of,
    missing_gold,
    read_calls,
    read_servers,
    read_tools,
    silent,
    split_of,
)
from toolscout.eval.work_file import alone, earlier, open_work
from toolscout.records import Call, JsonObject, Tool, canonical_json, sha256_hex
from toolscout.settings import Settings
from toolscout.validation import asking_less, refuse_document

if TYPE_CHECKING:
    from toolscout.eval.calls.exemplars import Exemplars
    from toolscout.server.calling.suggestion import Candidate, Decoding, Suggestion

PLAN_STEPS = 10
"""``steps`` for a request with several gold calls: that there are several is told, how many is not."""


_REFERENCE = re.compile(r"\$\d+(\.|\[|$)")


class Suggests(Protocol):
    """What is measured: ``toolscout.server.calling.caller.Caller``, or anything with its ``suggest``."""

    async def suggest(self, task: str, candidates: Sequence[Candidate], *, steps: int = 1) -> Suggestion:
        """Calls for the task."""
        ...


@dataclass
class Outcome:
    """One row as it went. The metrics are None where the row does not ask for them."""

    id: str
    split: str
    gold: int
    calls: list[JsonObject] = field(default_factory=list)
    abstained: bool = False
    reason: str | None = None
    tool: bool | None = None
    param: bool | None = None
    ast: bool | None = None
    schema_valid: bool | None = None
    seconds: float = 0.0
    first_token_seconds: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    model: str = ""

    @property
    def written(self) -> bool:
        """Whether a model was asked: a request may be refused before, which takes no time."""
        return not self.abstained or bool(self.completion_tokens)


@dataclass
class CallsRun:
    """``result`` is the contract's object (DESIGN section 7)."""

    result: JsonObject
    outcomes: list[Outcome]
    rows: dict[str, Call]
    warnings: list[str] = field(default_factory=list)


class Pool:
    """The tools that candidates are drawn from."""

    def __init__(self, tools: Mapping[str, Tool]) -> None:
        self.tools = tools
        self._definition = {tool_id: sha256_hex(canonical_json(definition(t))) for tool_id, t in tools.items()}

    def candidates(self, row: Call, count: int, seed: int, *, sized: bool = False) -> list[Tool]:
        """The row's candidates, shuffled: its own, gold added; else its gold and ``count - 1`` distractors in all.

        They depend on the row's id, the seed and the pool, on nothing else: every model gets the same. No distractor
        is in the row's ``relevant`` or has a gold tool's definition, so that none can do the job of the gold.

        With ``sized`` a row's own candidates are brought to ``count``, too: the gold, then its own as drawn by hash,
        then distractors. A smaller number's are among a larger one's. A row without gold is not filled up: it says that
        none of its own fits, and something else in the pool may.
        """
        gold = list(dict.fromkeys(g.tool_id for g in row.gold if g.tool_id in self.tools))
        room = max(0, count - max(1, len(gold))) if gold else count
        if row.candidates is None:
            chosen = [*gold, *self._distractors(row, room, seed)]
        else:
            own = [tool_id for tool_id in dict.fromkeys(row.candidates) if tool_id in self.tools]
            chosen = list(dict.fromkeys([*own, *gold]))
            if sized:
                others = [tool_id for tool_id in own if tool_id not in gold]
                others.sort(key=lambda tool_id: draw(seed, f"draw\n{row.id}\n{tool_id}"))
                more = self._distractors(row, room, seed) if gold else []
                chosen = [*gold, *list(dict.fromkeys([*others, *more]))[:room]]
        chosen.sort(key=lambda tool_id: draw(seed, f"order\n{row.id}\n{tool_id}"))
        return [self.tools[tool_id] for tool_id in chosen]

    def _distractors(self, row: Call, count: int, seed: int) -> list[str]:
        barred = row.relevant_ids()
        definitions = {self._definition[tool_id] for tool_id in barred if tool_id in self._definition}
        allowed = (t for t in self.tools if t not in barred and self._definition[t] not in definitions)
        return heapq.nsmallest(count, allowed, key=lambda tool_id: draw(seed, f"draw\n{row.id}\n{tool_id}"))

    def without_gold(self, row: Call, count: int, seed: int, *, siblings: bool = False) -> Call:
        """The row as one that none of its candidates serves: ``count`` tools drawn as distractors are.

        With ``siblings`` the other tools of the gold tools' servers come first. Some of them may do the job all the
        same: nobody has judged that.
        """
        chosen = self._distractors(row, count, seed)
        if siblings:
            barred = row.relevant_ids()
            servers = {self.tools[g.tool_id].server_id for g in row.gold}
            near = [t.tool_id for t in self.tools.values() if t.server_id in servers and t.tool_id not in barred]
            near.sort(key=lambda tool_id: draw(seed, f"sibling\n{row.id}\n{tool_id}"))
            chosen = list(dict.fromkeys([*near[:count], *chosen]))[:count]
        return row.model_copy(update={"gold": [], "relevant": None, "candidates": chosen})


def measure_calls(
    tools: Sequence[Path],
    calls: Sequence[Path],
    *,
    servers: Sequence[Path] = (),
    settings: Settings | None = None,
    candidates: int = 10,
    sized: bool = False,
    limit: int | None = None,
    seed: int = 0,
    work: Path | None = None,
    caller: Suggests | None = None,
    decoding: Decoding = "repair",
    exemplars: Exemplars | None = None,
    without_gold: str = "",
    clock: Callable[[], float] = time.perf_counter,
    say: Say = silent,
) -> CallsRun:
    """Run every row and score it. ``settings.model`` and ``settings.model_url`` choose the model.

    ``work`` is a file that gets each outcome as soon as it is there; a later run with the same settings goes on from
    it. ``caller`` replaces the product's caller; ``decoding`` is less than the whole of it; ``exemplars`` go into the
    prompts. ``without_gold`` (``random`` or ``siblings``) takes the gold tools away (`Pool.without_gold`): to refuse is
    then right. ``sized``: rows with candidates of their own get ``candidates`` tools, too (`Pool.candidates`).
    ``servers`` say which marketplace a tool is from. ``clock`` measures the seconds. Raises BadInput for files that do
    not fit together or a ``work`` file of another run, ModelError when the model fails.
    """
    from toolscout.server.calling.caller import Caller

    settings = settings or Settings()
    pool = Pool(read_tools(tools))
    rows, warnings = answerable_rows(read_calls(calls, limit, seed), pool)
    warnings += check_gold_calls(rows, pool)
    own = [row for row in rows if row.candidates is not None]
    if sized and own:
        warnings.append(said_of_own(own, candidates))
    for warning in warnings:
        say(warning)
    if without_gold:
        hard = without_gold == "siblings"
        rows = [pool.without_gold(row, candidates, seed, siblings=hard) for row in rows if row.gold]
    ours = caller is None or isinstance(caller, Caller)
    header = {
        **(identity(settings) if ours else {"model": settings.model, "model_url": plain(settings.model_url)}),
        "candidates": candidates, "seed": seed, "tools": sha256_hex("\n".join(sorted(pool.tools))),
    }  # fmt: skip
    header |= {"without_gold": without_gold} if without_gold else {}
    header |= {"sized": True} if sized and own else {}
    header |= {"decoding": decoding} if decoding != "repair" else {}
    header |= {"exemplars": exemplars.fingerprint} if exemplars is not None else {}
    asking = Asking(pool, candidates, seed, exemplars, clock, sized)
    with alone(work):
        outcomes = asyncio.run(_run(rows, asking, settings, decoding, work, header, caller, say))
    model = settings.model or next((o.model for o in outcomes if o.model), "")
    known = read_servers(servers)
    server_of = {tool_id: known.get(tool.server_id) for tool_id, tool in pool.tools.items()}
    markets = {row.id: marketplace_of(row, server_of) for row in rows}
    result = score(outcomes, model, candidates, markets, {row.id: lang_of(row) for row in rows})
    # Another set of rows may be as many: what was measured is told by the rows' ids, after those left out.
    asked = sha256_hex("\n".join(sorted(row.id for row in rows)))
    result["of"] = of_experiment(header, decoding=decoding, rows=asked)
    return CallsRun(result, outcomes, {r.id: r for r in rows}, warnings)


def said_of_own(own: Sequence[Call], candidates: int) -> str:
    """What to say of rows with candidates of their own where a number of candidates is compared."""
    bare = sum(not row.gold for row in own)
    said = f"{len(own)} rows bring candidates of their own, which were drawn down or filled up to {candidates}"
    return said + (
        f"; the {bare} of them without gold were not filled up, as the pool may serve them." if bare else "."
    )


def answerable_rows(rows: Sequence[Call], pool: Pool) -> tuple[list[Call], list[str]]:
    """Rows whose gold tools are all in the pool, and what to say about the others: they cannot be asked.

    Raises BadInput if none is left.
    """
    missing = set(missing_gold(rows, lambda tool_id: tool_id in pool.tools))
    kept = [row for row in rows if not any(g.tool_id in missing for g in row.gold)]
    if not missing:
        return kept, []
    if not any(row.gold for row in kept):
        raise BadInput(
            f"None of the gold tools is in the tools files; the first is {min(missing)!r}.",
            "Check that --tools and --calls belong together.",
        )
    return kept, [f"{len(rows) - len(kept)} rows left out: their gold tools are not in the tools files."]


def check_gold_calls(rows: Sequence[Call], pool: Pool) -> list[str]:
    """What to say about gold calls that are wrong by the metric's own rules, such as one without a required argument.

    Such rows stay in: no model can get them right, so they lower every model's Param and AST alike.
    """
    schemas = {tool_id: tool.input_schema for tool_id, tool in pool.tools.items()}
    wrong = [
        row.id
        for row in rows
        if row.gold
        and all(g.arguments is not None for g in row.gold)
        and not match_calls([MadeCall(g.tool_id, g.arguments or {}) for g in row.gold], row.gold, schemas).ast
    ]
    if not wrong:
        return []
    return [f"{len(wrong)} rows have gold calls that break their tool's schema and cannot be met, e.g. {wrong[0]!r}."]


@dataclass(frozen=True)
class Asking:
    """How each row is put to the caller."""

    pool: Pool
    count: int = 10
    seed: int = 0
    exemplars: Exemplars | None = None
    clock: Callable[[], float] = time.perf_counter
    sized: bool = False

    def offered(self, row: Call) -> list[Tool]:
        """The row's candidates."""
        return self.pool.candidates(row, self.count, self.seed, sized=self.sized)


async def _run(
    rows: Sequence[Call],
    asking: Asking,
    settings: Settings,
    decoding: Decoding,
    work: Path | None,
    header: JsonObject,
    caller: Suggests | None,
    say: Say,
) -> list[Outcome]:
    done = _resume(work, header) if work is not None else {}
    wanted = {row.id for row in rows}
    done = {row_id: outcome for row_id, outcome in done.items() if row_id in wanted}
    if done:
        say(f"{len(done)} of {len(rows)} rows were done before")
    if len(done) == len(rows):
        return [done[row.id] for row in rows]
    owned = None
    if caller is None:
        from toolscout.server.backends import make_backend
        from toolscout.server.calling.caller import Caller

        caller = owned = Caller(settings, backend=make_backend(settings, streams=True), decoding=decoding)
    sink = open_work(work, header) if work is not None else None
    try:
        started, asked = time.monotonic(), 0
        for number, row in enumerate(rows, start=1):
            if row.id in done:
                continue
            outcome = await ask(caller, row, asking.offered(row), asking)
            done[row.id] = outcome
            asked += 1
            if sink is not None:
                sink.write(json.dumps(asdict(outcome), ensure_ascii=False) + "\n")
                sink.flush()
            if asked in (1, 5) or asked % 10 == 0:
                left = (time.monotonic() - started) / asked * (len(rows) - number)
                say(f"{number} of {len(rows)} rows, about {left / 60:.0f} min left; {_so_far(done.values())}")
    finally:
        if sink is not None:
            sink.close()
        if owned is not None:
            await owned.close()
    return [done[row.id] for row in rows]


async def ask(caller: Suggests, row: Call, candidates: Sequence[Tool], asking: Asking | None = None) -> Outcome:
    """One row through the caller. A row whose prompt does not fit the model counts as not answered.

    Raises ModelError for any other failure of the model.
    """
    from toolscout.server.backends import ContextOverflow
    from toolscout.server.calling.suggestion import Candidate

    outcome = Outcome(row.id, split_of(row), len(row.gold))
    clock = asking.clock if asking else time.perf_counter
    worked = asking.exemplars.nearest(row, candidates) if asking and asking.exemplars else {}
    offered = [Candidate(tool, 0.0, worked.get(tool.tool_id, [])) for tool in candidates]
    start = clock()
    try:
        suggestion = await caller.suggest(row.query, offered, steps=PLAN_STEPS if len(row.gold) > 1 else 1)
    except ContextOverflow as error:
        outcome.reason = str(error)
        suggestion = None
    outcome.seconds = round(clock() - start, 4)
    made: list[MadeCall] = []
    if suggestion is not None:
        if suggestion.model is None:
            raise ModelError(
                f"No model answered: {(suggestion.reason or 'none is installed').rstrip('.')}.",
                "Name one with --model (see `toolscout model list`), or an endpoint with --model-url.",
            )
        outcome.abstained, outcome.reason = suggestion.abstained, suggestion.reason
        made = [] if suggestion.abstained else [MadeCall(c.tool_id, c.arguments) for c in suggestion.calls]
        whole = [MadeCall(c.tool_id, c.arguments) for c in suggestion.calls if made and not c.missing]
        outcome.schema_valid = _all_valid(whole, candidates) if whole else None
        outcome.prompt_tokens, outcome.completion_tokens = suggestion.prompt_tokens, suggestion.completion_tokens
        outcome.cached_tokens = suggestion.cached_tokens
        if suggestion.first_token_seconds is not None:
            outcome.first_token_seconds = round(suggestion.first_token_seconds, 4)
        outcome.model = suggestion.model
    outcome.calls = [{"tool_id": call.tool_id, "arguments": call.arguments} for call in made]
    judge(outcome, row, made, {tool.tool_id: tool for tool in candidates})
    return outcome


def judge(outcome: Outcome, row: Call, made: Sequence[MadeCall], tools: Mapping[str, Tool]) -> None:
    """Fill in the verdicts. Param and AST are asked only of rows whose gold calls all state their arguments."""
    schemas = {tool_id: tool.input_schema for tool_id, tool in tools.items()}
    if not row.gold:
        return
    match = match_calls(made, row.gold, schemas)
    outcome.tool = match.tool
    if all(gold.arguments is not None for gold in row.gold):
        outcome.param, outcome.ast = match.param, match.ast


def _all_valid(calls: Sequence[MadeCall], tools: Sequence[Tool]) -> bool:
    schemas = {tool.tool_id: tool.input_schema for tool in tools}
    return all(schema_valid(call.arguments, schemas.get(call.tool_id)) for call in calls)


def schema_valid(arguments: JsonObject, schema: JsonObject | None) -> bool:
    """Whether arguments validate in full: a call that leaves a required value out does not, even if it says so.

    False for a tool that was no candidate. References to earlier results ("$1.path") are set aside: what they will
    hold is not known. A schema that is itself broken asks nothing.
    """
    import jsonschema_rs

    if schema is None:
        return False
    referring = {name for name, value in arguments.items() if isinstance(value, str) and _REFERENCE.match(value)}
    if referring:
        arguments = {name: value for name, value in arguments.items() if name not in referring}
        schema = asking_less(schema, referring)
    try:
        validator = jsonschema_rs.validator_for(schema, retriever=refuse_document)
    except (jsonschema_rs.ValidationError, ValueError):
        return True
    return bool(validator.is_valid(arguments))


def score(
    outcomes: Sequence[Outcome],
    model: str,
    candidates: int,
    markets: Mapping[str, str] | None = None,
    langs: Mapping[str, str] | None = None,
) -> JsonObject:
    """The contract's object. ``n`` and the groups count the rows with gold; those without serve abstention alone.

    :param markets: marketplaces of rows, by row id; ``langs``: their languages.
    """
    answerable = [o for o in outcomes if o.gold]
    unanswerable = [o for o in outcomes if not o.gold]
    tokens = {
        kind: _rounded(mean(float(n) for n in (getattr(o, f"{kind}_tokens") for o in outcomes) if n is not None), 1)
        for kind in ("prompt", "cached", "completion")
    }
    return {
        "n": len(answerable),
        "model": model,
        "candidates": candidates,
        **grouped_rates(answerable, markets or {}, langs or {}),
        "abstention": {
            "unanswerable": len(unanswerable),
            "right_refusal_rate": _rounded(share(o.abstained for o in unanswerable)),
            "false_refusal_rate": _rounded(share(o.abstained for o in answerable)),
        },
        "seconds": spread([o.seconds for o in outcomes if o.written]),
        "first_token_seconds": spread([s for s in (o.first_token_seconds for o in outcomes) if s is not None]),
        "tokens": tokens,
    }


def _rounded(value: float | None, digits: int = 4) -> float | None:
    return None if value is None else round(value, digits)


def _so_far(outcomes: Iterable[Outcome]) -> str:
    known = list(outcomes)
    found = {**rates([o for o in known if o.gold]), "refused": share(o.abstained for o in known if not o.gold)}
    return ", ".join(f"{name} {value:.3f}" for name, value in found.items() if value is not None)


def _resume(work: Path, header: JsonObject) -> dict[str, Outcome]:
    """Outcomes of an earlier, interrupted run. A last line cut off by a crash is dropped and its row done again."""
    lines = earlier(work, header, "the rows of another run (other model or weights, candidates, seed or tools)")
    names = set(Outcome.__dataclass_fields__)
    known = [{k: v for k, v in line.items() if k in names} for line in lines]
    return {line["id"]: Outcome(**line) for line in known if {"id", "split", "gold"} <= line.keys()}
