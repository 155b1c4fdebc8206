"""Whether a plan is the gold one: AST-DAG accuracy (MCPToolBench++, arXiv 2508.07575, section 4.1.1).

Two readings: the last execution nodes agree (`Comparison.last`), and the whole graphs do (`Comparison.graph`). Values
are compared by the rules of `ast_match`; docs/EVALUATION.md, Plans, says at length how references are.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from toolscout.ast_match import MadeCall, call_matches, most_pairs
from toolscout.eval.plans.graph import Plan
from toolscout.eval.rows import definition
from toolscout.records import Call, JsonObject, Tool

Fits = Callable[[str, str], bool]
"""Whether a made call's tool (first) does the job of a gold call's."""

_OPEN, _SHUT = "\ue000", "\ue001"
"""Around what is written for a reference: private characters, which no rule of comparing texts takes away."""


def fitting(row: Call, tools: Mapping[str, Tool]) -> Fits:
    """A tool fits itself and every tool of the same definition. Another tool in ``relevant`` fits any gold tool: which
    one it was judged against, the row does not say.
    """
    gold = {g.tool_id for g in row.gold}
    relevant = set(row.relevant or ()) - gold
    known: dict[tuple[str, str], bool] = {}

    def same(made: str, wanted: str) -> bool:
        if made == wanted:
            return True
        one, other = tools.get(made), tools.get(wanted)
        return one is not None and other is not None and definition(one) == definition(other)

    def fits(made: str, wanted: str) -> bool:
        pair = (made, wanted)
        if pair not in known:
            free = made in relevant and not any(same(made, other) for other in gold)
            known[pair] = free or same(made, wanted)
        return known[pair]

    return fits


class Comparison:
    """One plan against the gold one. The gold plan has no cycle and no wrong reference.

    ``schemas`` are input schemas by tool id: the gold tools' own are what arguments are judged by.
    """

    def __init__(self, made: Plan, gold: Plan, fits: Fits, schemas: Mapping[str, JsonObject]) -> None:
        self.made, self.gold, self.schemas = made, gold, schemas
        self._fits = [[fits(m.tool_id, g.tool_id) for m in made.calls] for g in gold.calls]

    @cached_property
    def _given(self) -> dict[int, int]:
        places = range(len(self.made))
        return most_pairs([[m for m in places if fits[m]] for fits in self._fits])

    @property
    def node_hits(self) -> int:
        """Gold calls that can be given a made call of a fitting tool, one to one."""
        return len(self._given)

    @property
    def lacking(self) -> list[int]:
        """Gold calls that are left over then."""
        return sorted(set(range(len(self.gold))) - set(self._given.values()))

    @property
    def added(self) -> list[int]:
        """Made calls that are left over then."""
        return sorted(set(range(len(self.made))) - self._given.keys())

    @cached_property
    def edge_hits(self) -> int:
        """Gold edges that can be given a made edge between fitting tools, one to one."""
        made = self.made.edges
        ends = [
            [at for at, (a, b) in enumerate(made) if self._fits[parent][a] and self._fits[child][b]]
            for parent, child in self.gold.edges
        ]
        return len(most_pairs(ends))

    @property
    def tools(self) -> bool:
        """The same tools, each as often."""
        return self.node_hits == len(self.gold) == len(self.made)

    def values(self, *, paths: bool) -> bool:
        """The same tools with right arguments, whatever call references lead to."""
        return self._all_given(range(len(self.gold)), range(len(self.made)), lambda g, m: self._alike(g, m, paths))

    @property
    def unmet(self) -> list[int]:
        """Gold calls that no made call is like in tool and arguments, whatever call references lead to."""
        made = range(len(self.made))
        return [g for g in range(len(self.gold)) if not any(self._alike(g, m, False) for m in made)]

    def last(self, *, paths: bool) -> bool:
        """The last execution nodes: the same tools with right arguments. Within them a reference is right if it leads
        to a call of a fitting tool; with ``paths`` to the same place in its result, too.
        """
        return self._all_given(self.gold.last, self.made.last, lambda g, m: self._same_sources(g, m, paths))

    def graph(self, *, paths: bool) -> bool:
        """The strict match: an isomorphism of the graphs that keeps tools, right arguments, edges, and where each
        reference leads; with ``paths`` also to which place in the result.
        """
        if len(self.made) != len(self.gold) or self.made.dangling or not self.made.acyclic:
            return False
        options = self._narrowed(
            [{m for m in range(len(self.made)) if self._alike(g, m, paths)} for g in range(len(self.gold))]
        )
        return all(options) and self._assign(0, {}, options, paths)

    def _assign(self, depth: int, given: dict[int, int], options: list[set[int]], paths: bool) -> bool:
        """Give the gold calls, parents first, a made call each: all that a call refers to has one already."""
        if depth == len(self.gold):
            return True
        g = self.gold.order[depth]
        parents = {given[p] for p in self.gold.parents[g]}
        taken = set(given.values())
        for m in sorted(options[g] - taken):
            if self.made.parents[m] != parents:
                continue
            names = {given[p]: str(p) for p in self.gold.parents[g]}
            if self._right(g, m, names, {p: str(p) for p in self.gold.parents[g]}, paths):
                given[g] = m
                if self._assign(depth + 1, given, options, paths):
                    return True
                del given[g]
        return False

    def _narrowed(self, options: list[set[int]]) -> list[set[int]]:
        """Without the made calls whose neighbours cannot be the gold call's neighbours; until nothing changes.

        What is left makes the search short: without it, many alike calls would be tried in every order.
        """
        changed = True
        while changed:
            changed = False
            for g, choice in enumerate(options):
                kept = {
                    m
                    for m in choice
                    if _pairable(self.gold.parents[g], self.made.parents[m], options)
                    and _pairable(self.gold.children[g], self.made.children[m], options)
                }
                changed = changed or kept != choice
                options[g] = kept
        return options

    def _alike(self, g: int, m: int, paths: bool) -> bool:
        """Tool and arguments of one call, all calls being the same to a reference."""
        anywhere = dict.fromkeys(range(max(len(self.made), len(self.gold))), "")
        return self._fits[g][m] and self._right(g, m, anywhere, anywhere, paths)

    def _same_sources(self, g: int, m: int, paths: bool) -> bool:
        """Tool and arguments of one call, calls of fitting tools being the same to a reference."""
        if not self._alike(g, m, paths):
            return False
        ours, theirs = sorted(self.gold.parents[g]), sorted(self.made.parents[m])
        tools = {p: self.gold.calls[p].tool_id for p in ours}
        number = {tool_id: str(at) for at, tool_id in enumerate(dict.fromkeys(tools.values()))}
        names = {p: number[tool_id] for p, tool_id in tools.items()}
        # A relevant tool may stand for several: each way to read it is tried.
        readings = [sorted({names[p] for p in ours if self._fits[p][q]}) or ["none"] for q in theirs]
        return any(
            self._right(g, m, dict(zip(theirs, reading, strict=True)), names, paths)
            for reading in itertools.product(*readings)
        )

    def _right(self, g: int, m: int, made: Mapping[int, str], gold: Mapping[int, str], paths: bool) -> bool:
        """Whether the arguments are right when references are written with these names of calls."""
        wanted, given = self.gold.calls[g], self.made.calls[m]
        wanted = wanted.model_copy(
            update={
                "arguments": self.gold.marked(wanted.arguments or {}, _mark(gold, paths)),
                "accept": self.gold.marked(wanted.accept, _mark(gold, paths)),
            }
        )
        arguments = self.made.marked(given.arguments or {}, _mark(made, paths))
        return call_matches(MadeCall(wanted.tool_id, arguments), wanted, self.schemas.get(wanted.tool_id) or {})

    def _all_given(self, gold: Sequence[int], made: Sequence[int], fits: Callable[[int, int], bool]) -> bool:
        if len(gold) != len(made):
            return False
        return len(most_pairs([[m for m in made if fits(g, m)] for g in gold])) == len(gold)


def _mark(names: Mapping[int, str], paths: bool) -> Callable[[int | None, str], str]:
    def mark(place: int | None, path: str) -> str:
        if place is None or place not in names:
            return f"{_OPEN}?{_SHUT}"
        # As hexadecimal digits: texts are compared without their punctuation, paths are not.
        return f"{_OPEN}{names[place]}{_SHUT}{path.encode().hex() if paths else ''}{_SHUT}"

    return mark


def _pairable(gold: frozenset[int], made: frozenset[int], options: Sequence[set[int]]) -> bool:
    return len(gold) == len(made) and len(most_pairs([sorted(options[g] & made) for g in sorted(gold)])) == len(gold)
