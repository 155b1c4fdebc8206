"""Sample: which tools a plan is written over: dealt within a category, or over the categories of a combination.

MCPToolBench++ (arXiv 2508.07575, section 2): within a category without replacement. Half of the hands come from a deck
in which a server's tools stand together: tools of one server go together more often than tools of one category.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from toolscout.records import JsonObject, Tool, canonical_json, sha256_hex
from toolscout.synth.bench import Bench
from toolscout.synth.chain import Dropped, Outcome
from toolscout.synth.drafts import Draft, draw
from toolscout.synth.plans.categories import Deck
from toolscout.synth.plans.dag import LEAST
from toolscout.synth.plans.state import Plan, hand
from toolscout.synth.report_folder import SEAT


def seats(categories: Mapping[str, Sequence[Tool]]) -> list[Draft]:
    """One input a category."""
    return [
        Plan(categories=[name]).on(Draft(id=f"{SEAT}{sha256_hex(name)[:8]}", tool_id="", text=name))
        for name in categories
    ]


class Sample:
    """From categories and combinations to hands of tools, by seed."""

    name = "sample"

    def __init__(self, bench: Bench, categories: Mapping[str, Sequence[Tool]]) -> None:
        self.bench, self.categories = bench, categories
        self.of = {tool.tool_id: name for name, tools in categories.items() for tool in tools}

    def decides(self) -> JsonObject:
        """See `Sweep`."""
        s = self.bench.settings
        return {
            "tools": sha256_hex(canonical_json(sorted(self.of.items())))[:16],
            "seed": s.seed,
            "plans": s.plans,
            "sizes": [s.plan_smallest, s.plan_largest],
            "near": s.plan_near,
        }

    def sweep(self, items: Sequence[Draft]) -> list[Outcome]:
        """See `Sweep`."""
        same, seed = self.bench.pool.same, self.bench.settings.seed
        over = {name: Deck(tools, same, False, seed, "across", name) for name, tools in self.categories.items()}
        return [
            self._within(item, plan.categories[0]) if len(plan.categories) == 1 else self._across(item, plan, over)
            for item in items
            for plan in [Plan.of(item)]
        ]

    def _size(self, key: str) -> int:
        s = self.bench.settings
        return s.plan_smallest + int(draw(s.seed, "size", key) * (s.plan_largest - s.plan_smallest + 1))

    def _within(self, item: Draft, name: str) -> Outcome:
        s, tools = self.bench.settings, self.categories[name]
        decks = {near: Deck(tools, self.bench.pool.same, near, s.seed, name, near) for near in (False, True)}
        outcome, dealt = Outcome(), set[frozenset[str]]()
        for n in range(s.plans):
            id_ = f"{item.id}-{n}"
            found = decks[draw(s.seed, "near", id_) < s.plan_near].deal(self._size(id_), LEAST)
            if not found:
                outcome.dropped.append(Dropped(reason="too few tools", detail=f"{name}: {len(tools)}"))
                break
            if frozenset(found) in dealt:
                outcome.dropped.append(Dropped(reason="dealt before", detail=name))
                continue
            dealt.add(frozenset(found))
            outcome.made.append(hand(id_, found, self.bench.tools, categories=[name]))
        return outcome

    def _across(self, item: Draft, plan: Plan, decks: Mapping[str, Deck]) -> Outcome:
        """A tool of each category first; then by turns one that speaks of the need, and one off the deck."""
        size = max(self._size(item.id), len(plan.categories))
        names, same = plan.categories, self.bench.pool.same
        near = [t for t in self.bench.pool.scores(plan.need) if self.of.get(t) in names]
        found: list[str] = []
        for at in range(2 * size):
            if len(found) == size:
                break
            name = names[at % len(names)]
            spoken = [t for t in near if self.of[t] == name and not any(same(t, f) for f in found)]
            if spoken and (at < len(names) or at % 2):
                found.append(spoken[0])
            else:
                found += decks[name].deal(1, 1, found)
        if len({self.of[t] for t in found}) < LEAST:
            return Outcome.drop("too few tools", ", ".join(names), plan.need)
        return Outcome([hand(f"{item.id}-0", found, self.bench.tools, categories=names, need=plan.need)])
