"""Combine: needs that call for tools of several categories, proposed by the model from summaries of the categories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import BaseModel

from toolscout.records import JsonObject, Tool
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Dropped, Outcome
from toolscout.synth.drafts import Draft
from toolscout.synth.filters.duplicates import same_text
from toolscout.synth.making.generate import tidy
from toolscout.synth.parsing import read_answer
from toolscout.synth.plans.categories import summary
from toolscout.synth.plans.state import Plan
from toolscout.synth.prompt_files import load_prompt

_AT_ONCE = 5
"""Combinations a request: with more, a model repeats itself."""
_FEWEST, _MOST = 2, 4
"""Categories of a combination."""


class Combination(BaseModel):
    """A need and the categories that it takes."""

    categories: list[str]
    need: str


class Combinations(BaseModel):
    """The answer's form."""

    combinations: list[Combination]


def asks(categories: Mapping[str, Sequence[Tool]], bench: Bench) -> list[Draft]:
    """What the model is asked: the categories, each time shown by other tools of theirs."""
    if len(categories) < _FEWEST:
        return []
    made = []
    wanted = bench.settings.plans_across
    for at in range(0, wanted, _AT_ONCE):
        told = [summary(n, t, bench.servers, bench.settings.seed, "told", at) for n, t in categories.items()]
        plan = Plan(categories=list(categories))
        made.append(
            plan.on(
                Draft(id=f"across{at // _AT_ONCE}", tool_id="", text="\n".join(told), level=min(_AT_ONCE, wanted - at))
            )
        )
    return made


class Combine:
    """From the categories to combinations of them. An ask's ``level`` is how many are wanted."""

    name = "combine"

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.prompt = load_prompt("plan_combine")

    def decides(self) -> JsonObject:
        """See `Step`."""
        s = self.bench.settings
        return {
            "prompt": self.prompt.fingerprint,
            "model": self.bench.writer.model,
            "temperature": s.temperature,
            "longest": s.longest_instruction,
            "max_tokens": s.max_tokens,
        }

    async def work(self, item: Draft) -> Outcome:
        """See `Step`."""
        known = {same_text(name): name for name in Plan.of(item).categories}
        found = await self.bench.writer.write(
            self.prompt.render(categories=item.text, count=item.level),
            lambda said: read_answer(said, Combinations),
            temperature=self.bench.settings.temperature,
            schema=Combinations.model_json_schema(),
        )
        outcome = Outcome()
        seen: set[str] = set()
        for one in found.combinations:
            need = tidy(one.need)[: self.bench.settings.longest_instruction]
            unknown = [c for c in one.categories if same_text(c) not in known]
            named = list(dict.fromkeys(known[same_text(c)] for c in one.categories if same_text(c) in known))
            why, detail = "", ""
            if unknown:
                why, detail = "no such category", ", ".join(unknown)
            elif not _FEWEST <= len(named) <= _MOST:
                why, detail = "not two to four categories", ", ".join(named)
            elif not need:
                why = "empty"
            elif same_text(need) in seen:
                why = "repeated"
            elif len(outcome.made) == item.level:
                why = "more than asked for"
            if why:
                outcome.dropped.append(Dropped(reason=why, detail=detail, text=need))
                continue
            seen.add(same_text(need))
            plan = Plan(categories=named, need=need)
            outcome.made.append(plan.on(Draft(id=f"{item.id}-{len(seen) - 1}", tool_id="", text=need)))
        if not found.combinations:
            outcome.dropped.append(Dropped(reason="empty"))
        return outcome
