"""Training rows of the call generator: a request, candidate tools, and the answer that decoding can write.

Rows come in groups that share their candidates and so, by the one renderer, the whole system message: a trainer may
compute that once for all of a group. Candidates are drawn at random from the pool, as MCP-Flow does (arXiv 2510.24284),
or hard: siblings of the gold and near misses by words. Every request with a gold call is shown once an epoch, each time
among other candidates; beside those stand requests that none of the candidates serves, and requests whose required
value was taken out.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import Field

from toolscout.errors import BadInput
from toolscout.prompt import DEFAULT_BUDGET, NONE, USER_ROOM, Style, answer, labels, render
from toolscout.records import Call, JsonObject, Record
from toolscout.synth.answers import without_value, writable
from toolscout.synth.tool_pool import ToolPool

SIZES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 6, 6: 2, 8: 4, 10: 10, 12: 2, 15: 1, 20: 1}
"""How often a group has so many candidates, by default: search hands over 5, the measure asks with 10."""

_EXEMPLARS = 5
_MARGIN = 1.5
"""By how much the gold must beat a tool's BM25 score for the tool to count as not serving the gold's request."""


class CallRow(Record):
    """One row. ``messages`` are what serving renders; ``answer`` is what the model is to write.

    ``kind``: call, none_foreign (a request that no tool at all serves), none_absent (its tool is not among the
    candidates), missing (a required value is not in the request).
    """

    id: str
    group: int
    kind: str
    query: str
    tools: list[str]
    gold: str = ""
    call: str = ""
    exemplars: list[str] = Field(default_factory=list)
    style: Style = "full"
    budget: int = DEFAULT_BUDGET
    messages: list[dict[str, str]]
    answer: str


@dataclass(frozen=True)
class CallRowOptions:
    """How calls become rows. Shares are of all rows, but ``hard`` and ``exemplars``, which are of the groups.

    ``styles`` maps a rendering to its share, ``budget`` is the renderer's: a model is served as it was trained.
    """

    sizes: Mapping[int, float] = field(default_factory=lambda: dict(SIZES))
    branches: int = 12
    """Most rows of a group."""
    hard: float = 0.4
    none: float = 0.12
    foreign: float = 0.5
    """Share of the rows without a fitting candidate whose request no tool at all serves."""
    missing: float = 0.04
    exemplars: float = 0.1
    styles: Mapping[Style, float] = field(default_factory=lambda: {"compact": 1.0})
    budget: int = 4000
    epochs: int = 1
    seed: int = 0


def build_call_rows(
    calls: Sequence[Call], pool: ToolPool, unanswerable: Sequence[Call] = (), options: CallRowOptions | None = None
) -> tuple[list[CallRow], Counter[str]]:
    """Rows in training order; beside them, how many calls were left out and why.

    ``unanswerable`` are requests that no tool serves. Raises BadInput when no call can be used.
    """
    options = options or CallRowOptions()
    left: Counter[str] = Counter()
    usable = []
    for call in calls:
        why = _unusable(call, pool)
        if why:
            left[why] += 1
        else:
            usable.append(call)
    if not usable:
        raise BadInput("No call can be trained on.", "Check that calls and tools belong together.")
    builder = _Builder(usable, pool, list(unanswerable), options)
    rows = [row for epoch in range(options.epochs) for row in builder.epoch(epoch)]
    return rows, left


def _unusable(call: Call, pool: ToolPool) -> str:
    if len(call.gold) != 1 or not call.query.strip():
        return "without exactly one gold call"
    gold = call.gold[0]
    if gold.tool_id not in pool.tools:
        return "tool held out, not approved or not in the pool"
    if gold.arguments is None:
        return "without arguments"
    return "" if writable(pool.tools[gold.tool_id], gold.arguments) is not None else "arguments no grammar writes"


class _Builder:
    def __init__(self, calls: list[Call], pool: ToolPool, foreign: list[Call], options: CallRowOptions) -> None:
        self.calls, self.pool, self.options = calls, pool, options
        self.foreign = [c for c in foreign if not c.gold and c.query.strip()]
        self.of_tool: dict[str, list[Call]] = defaultdict(list)
        for call in calls:
            self.of_tool[call.gold[0].tool_id].append(call)
        self.shortened: dict[str, tuple[str, str]] = {}
        for call in calls:
            found = without_value(call, pool.tools[call.gold[0].tool_id])
            if found:
                self.shortened[call.id] = found
        self.queue: deque[Call] = deque()
        self.left: set[str] = set()
        self.known_scores: dict[str, dict[str, float]] = {}
        self.group = 0

    def epoch(self, number: int) -> list[CallRow]:
        """Every call once, in groups."""
        draw = random.Random(f"{self.options.seed} {number}")
        order = draw.sample(self.calls, len(self.calls))
        self.queue, self.left = deque(order), {call.id for call in order}
        self.strangers = draw.sample(self.foreign, len(self.foreign))
        rows: list[CallRow] = []
        while self.left:
            rows += self.make_group(draw)
        return rows

    def fresh(self, tool_id: str) -> Call | None:
        """A call of this tool that the epoch has not shown yet."""
        return next((c for c in self.of_tool.get(tool_id, ()) if c.id in self.left), None)

    def next_call(self) -> Call:
        """The next call that the epoch has not shown; it goes to the end of the queue until it is shown."""
        while self.queue[0].id not in self.left:
            self.queue.popleft()
        self.queue.rotate(-1)
        return self.queue[-1]

    def scores(self, call: Call) -> dict[str, float]:
        """BM25 of the tools nearest to a call's request."""
        if call.id not in self.known_scores:
            self.known_scores[call.id] = self.pool.scores(call.query)
        return self.known_scores[call.id]

    def make_group(self, draw: random.Random) -> list[CallRow]:
        options = self.options
        size = draw.choices(list(options.sizes), list(options.sizes.values()))[0]
        hard = draw.random() < options.hard
        chosen, used = self.candidates(size, hard, draw)
        most = max(1, round(options.branches * (1 - options.none - options.missing)))
        for tool_id in chosen:  # a small group has room for the other request of a tool
            if len(used) < most and (call := self.fresh(tool_id)):
                self.left.discard(call.id)
                used.append(call)
        exemplars = self.exemplars(chosen, used, draw) if draw.random() < options.exemplars else []
        draw.shuffle(chosen)
        styles = list(options.styles)
        style = draw.choices(styles, [options.styles[s] for s in styles])[0]
        tools = [self.pool.tools[t] for t in chosen]
        names = dict(zip(chosen, labels(tools), strict=True))
        drafts: list[tuple[str, str, str, str, str]] = []
        for call in used:
            gold = call.gold[0]
            arguments = writable(self.pool.tools[gold.tool_id], gold.arguments or {})
            drafts.append(("call", call.id, call.query, gold.tool_id, answer(names[gold.tool_id], arguments)))
            drafts += self.missing_row(call, arguments or {}, names, draw)
        for _ in range(_whole(len(used) * options.none / (1 - options.none), draw)):
            drafts += self.none_row(chosen, hard, draw)
        draw.shuffle(drafts)
        group, self.group = self.group, self.group + 1
        rows = []
        shared = render("", tools, exemplars, style=style, budget=options.budget)[0]
        for i, (kind, call_id, query, gold_id, text) in enumerate(drafts):
            user = render(query, (), style=style, budget=options.budget)[1]
            messages = [shared, user]
            if len(user["content"]) > USER_ROOM:  # the tools have to make room
                messages = render(query, tools, exemplars, style=style, budget=options.budget)
            rows.append(
                CallRow(
                    id=f"{group}-{i}",
                    group=group,
                    kind=kind,
                    query=query,
                    tools=list(chosen),
                    gold=gold_id,
                    call=call_id,
                    exemplars=[e.id for e in exemplars],
                    style=style,
                    budget=options.budget,
                    messages=messages,
                    answer=text,
                )
            )
        return rows

    def candidates(self, size: int, hard: bool, draw: random.Random) -> tuple[list[str], list[Call]]:
        """Candidates of a group, no two of which do the same, and the calls that it shows."""
        first = self.next_call()
        self.left.discard(first.id)
        chosen, used = [first.gold[0].tool_id], [first]
        near = self.near(first, draw) if hard else []
        barred = set(first.relevant_ids())
        for _ in range(20 * size):
            if len(chosen) == size:
                break
            if near:
                other = near.pop(0)
            elif hard and len(used) > 1 and draw.random() < 0.5:
                near = self.near(used[-1], draw)
                continue
            elif self.left and draw.random() < 0.8:
                other = self.next_call().gold[0].tool_id
            else:
                other = draw.choice(self.pool.ids)
            call = self.fresh(other)
            relevant = call.relevant_ids() - {other} if call else set()
            if other in barred or relevant & set(chosen) or any(self.pool.same(other, c) for c in chosen):
                continue
            chosen.append(other)
            if call is not None and len(used) < self.options.branches:
                self.left.discard(call.id)
                used.append(call)
                barred |= relevant
        return chosen, used

    def near(self, call: Call, draw: random.Random) -> list[str]:
        """A few tools that look right for a request and are not: siblings, and near misses by words."""
        gold = call.gold[0].tool_id
        scores = self.scores(call)
        bar = scores.get(gold, 0.0)
        siblings = sorted(self.pool.siblings(gold), key=lambda t: -scores.get(t, 0.0))[:8]
        # What beats the gold by its words and sits on another server is often an equal: left out, not called wrong.
        others = [t for t, s in scores.items() if s < bar and t not in siblings and t != gold]
        piles = [p for p in (siblings, others[:12]) if p]
        found: list[str] = []
        for _ in range(draw.randint(2, 4)):
            pile = draw.choice(piles) if piles else []
            # those that have requests of their own to show come first
            fresh = [t for t in pile if self.fresh(t)]
            source = fresh if fresh and draw.random() < 0.7 else pile
            if source:
                tool_id = source[int(len(source) * draw.random() ** 2)]
                if tool_id not in found and not self.pool.same(tool_id, gold) and tool_id not in call.relevant_ids():
                    found.append(tool_id)
        return found

    def exemplars(self, chosen: Sequence[str], used: Sequence[Call], draw: random.Random) -> list[Call]:
        """Worked requests of the candidates, none of which the group asks."""
        asked = {call.id for call in used}
        found = [c for t in chosen for c in self.of_tool.get(t, ()) if c.id not in asked]
        return draw.sample(found, min(len(found), _EXEMPLARS))

    def missing_row(
        self, call: Call, arguments: JsonObject, names: Mapping[str, str], draw: random.Random
    ) -> list[tuple[str, str, str, str, str]]:
        """The request without a required value, as often as the share wants and the data gives."""
        share = self.options.missing * len(self.calls) / max(1, len(self.shortened))
        if call.id not in self.shortened or draw.random() >= share:
            return []
        query, name = self.shortened[call.id]
        gold = call.gold[0].tool_id
        rest = {n: v for n, v in arguments.items() if n != name}
        return [("missing", call.id, query, gold, answer(names[gold], rest, [name]))]

    def none_row(self, chosen: Sequence[str], hard: bool, draw: random.Random) -> list[tuple[str, str, str, str, str]]:
        """A request that none of the candidates serves."""
        if self.strangers and draw.random() < self.options.foreign:
            call = self.strangers.pop()
            self.strangers.insert(0, call)
            return [("none_foreign", call.id, call.query, "", answer(NONE))]
        for _ in range(12):
            call = draw.choice(self.calls)
            if hard:  # of a sibling or near miss that is not among the candidates
                near = [t for t in self.pool.siblings(draw.choice(list(chosen))) if self.of_tool.get(t)]
                call = draw.choice(self.of_tool[draw.choice(near)]) if near else call
            if not self.served(call, chosen):
                return [("none_absent", call.id, call.query, "", answer(NONE))]
        return []

    def served(self, call: Call, chosen: Sequence[str]) -> bool:
        """Whether a candidate may serve a request: its tool or one like it, or one that is as near by its words."""
        gold = call.gold[0].tool_id
        if call.relevant_ids() & set(chosen) or any(self.pool.same(gold, t) for t in chosen):
            return True
        scores = self.scores(call)
        return scores.get(gold, 0.0) < _MARGIN * max(scores.get(t, 0.0) for t in chosen)


def _whole(expected: float, draw: random.Random) -> int:
    """A whole number with this expectation."""
    return int(expected) + (draw.random() < expected - int(expected))
