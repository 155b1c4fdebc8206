"""Lets the product's own planner answer each row: suggest_call with ``steps``, over its candidates or the search's.

Every plan is kept as soon as it is there; what it is worth is judged afterwards, so that rules can change without
asking again.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from toolscout.errors import ModelError
from toolscout.eval.calls.measure import PLAN_STEPS, Pool, Suggests
from toolscout.eval.plans.answers import AnswerCall
from toolscout.eval.provenance import plain
from toolscout.eval.rows import Say
from toolscout.eval.served import who_serves
from toolscout.eval.work_file import alone, earlier, open_work
from toolscout.records import Call, GoldCall, JsonObject, sha256_hex
from toolscout.settings import Settings

if TYPE_CHECKING:
    from toolscout.server.calling.suggestion import Candidate

Search = Callable[[str, int], "list[Candidate]"]


@dataclass
class Given:
    """The answer to one row: ``calls`` are ``{id, tool_id, arguments, depends_on}``. ``asked`` says what was asked."""

    id: str
    asked: str = ""
    calls: list[JsonObject] = field(default_factory=list)
    reason: str | None = None
    seconds: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    model: str = ""

    def plan(self) -> list[GoldCall]:
        """The calls as records."""
        return [AnswerCall.model_validate(call) for call in self.calls]


@dataclass(frozen=True)
class Planning:
    """How rows are asked. ``tools`` are the files of the pool, which a search is built from."""

    pool: Pool
    tools: Sequence[Path]
    settings: Settings
    found: int | None = None
    """Tools searched for a row without candidates; by default as many as suggest_call searches."""
    seed: int = 0

    def header(self, *, ours: bool = True) -> JsonObject:
        """What a work file is of: plans of other weights, or over another encoder's search, are not gone on with.

        ``ours``: the product's own planner answers, not one that was given.
        """
        who = {"model": self.settings.model, "model_url": plain(self.settings.model_url)}
        return {
            "plans": 1, **(who_serves(self.settings) if ours else who), "found": self.found,
            "seed": self.seed, "tools": sha256_hex("\n".join(sorted(self.pool.tools))),
        }  # fmt: skip

    def asked(self, row: Call) -> str:
        """Changes with the request and with its candidates."""
        return sha256_hex(json.dumps([row.query, row.candidates, self._steps(row)]))[:16]

    def _steps(self, row: Call) -> int:
        """That there are several calls is told, how many is not."""
        return PLAN_STEPS if len(row.gold) > 1 else 1

    async def ask(self, caller: Suggests, row: Call, search: Search | None) -> Given:
        """One row through the planner. A prompt that does not fit the model counts as no plan.

        Raises ModelError for any other failure of the model.
        """
        from toolscout.server.backends import ContextOverflow
        from toolscout.server.calling.suggestion import Candidate

        given = Given(row.id, self.asked(row))
        start = time.perf_counter()
        if row.candidates is not None or search is None:
            # The count says nothing: these rows bring their own.
            offered = [Candidate(tool) for tool in self.pool.candidates(row, 0, self.seed)]
        else:
            offered = search(row.query, self._steps(row))
        if not offered:
            given.reason = "The search found no tool that fits."
            return given
        try:
            suggestion = await caller.suggest(row.query, offered, steps=self._steps(row))
        except ContextOverflow as error:
            given.reason = str(error)
            return given
        given.seconds = round(time.perf_counter() - start, 4)
        if suggestion.model is None:
            raise ModelError(
                f"No model answered: {(suggestion.reason or 'none is installed').rstrip('.')}.",
                "Name one with --model (see `toolscout model list`), or an endpoint with --model-url.",
            )
        if not suggestion.abstained:
            given.calls = [
                {"id": c.id, "tool_id": c.tool_id, "arguments": c.arguments, "depends_on": c.depends_on}
                for c in suggestion.calls
            ]
        given.reason, given.model = suggestion.reason, suggestion.model
        given.prompt_tokens, given.completion_tokens = suggestion.prompt_tokens, suggestion.completion_tokens
        return given


async def run_plans(
    rows: Sequence[Call], planning: Planning, work: Path | None, caller: Suggests | None, say: Say
) -> list[Given]:
    """Every row's answer, in the rows' order; rows that ``work`` has are not asked again.

    Raises BadInput for a ``work`` file of another run or one that is being written, ModelError when the model fails.
    """
    with ExitStack() as stack:
        stack.enter_context(alone(work))
        header = planning.header(ours=caller is None)
        before = _resume(work, header) if work is not None else {}
        done = {r.id: before[r.id] for r in rows if r.id in before and before[r.id].asked == planning.asked(r)}
        left = [row for row in rows if row.id not in done]
        if done:
            say(f"{len(done)} of {len(rows)} rows were done before")
        if not left:
            return [done[row.id] for row in rows]
        search = None
        if any(row.candidates is None for row in left):
            search = stack.enter_context(searching(planning, say))
        sink = stack.enter_context(open_work(work, header)) if work is not None else None
        owned = None
        if caller is None:
            from toolscout.server.calling.caller import Caller

            caller = owned = Caller(planning.settings)
        try:
            started = time.monotonic()
            for number, row in enumerate(left, start=1):
                done[row.id] = await planning.ask(caller, row, search)
                if sink is not None:
                    sink.write(json.dumps(asdict(done[row.id]), ensure_ascii=False) + "\n")
                    sink.flush()
                if number in (1, 5) or number % 10 == 0:
                    minutes = (time.monotonic() - started) / number * (len(left) - number) / 60
                    planned = sum(bool(given.calls) for given in done.values())
                    say(f"{len(done)} of {len(rows)} rows, about {minutes:.0f} min left; {planned} have a plan")
        finally:
            if owned is not None:
                await owned.close()
    return [done[row.id] for row in rows]


@contextmanager
def searching(planning: Planning, say: Say) -> Iterator[Search]:
    """The product's search over the pool, in a throw-away home: as suggest_call searches, abstention included."""
    from toolscout.eval.retrieval.measure import RetrievalFiles, _build_apart
    from toolscout.index.search import SearchIndex
    from toolscout.server.calling.steps import offered
    from toolscout.server.calling.suggestion import Candidate

    with tempfile.TemporaryDirectory(prefix="toolscout-eval-") as home:
        mine = planning.settings.model_copy(update={"home": Path(home), "database": "", "starter": False})
        say(f"building the index of {len(planning.pool.tools)} tools: there are rows without candidates")
        _build_apart(mine, RetrievalFiles(planning.tools, []), None)
        index = SearchIndex.open(mine.index_dir, settings=mine)

        def search(query: str, steps: int) -> list[Candidate]:
            answer = index.find(query, limit=planning.found or offered(steps), dynamic=steps == 1)
            return [] if answer.no_match else [Candidate(hit.tool, hit.score) for hit in answer.hits]

        try:
            yield search
        finally:
            index.close()


def _resume(work: Path, header: JsonObject) -> Mapping[str, Given]:
    """Answers of an earlier run; of two to one row the later. What a crash cut off is dropped and asked again."""
    lines = earlier(work, header, "the rows of another run (other model or weights, encoder, size, seed or tools)")
    names = set(Given.__dataclass_fields__)
    return {line["id"]: Given(**{k: v for k, v in line.items() if k in names}) for line in lines if "id" in line}
