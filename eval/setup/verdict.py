"""Marks for servers and what would raise them most. docs/EVALUATION.md states the formula."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from toolscout.eval.setup.confusion import LOOKS, Outcome, Pair
from toolscout.eval.setup.rules import RULES, Finding
from toolscout.records import JsonObject, Tool

WEIGHTS = {"found": 0.4, "distinct": 0.3, "described": 0.3}
LETTERS = ((90, "A"), (80, "B"), (70, "C"), (60, "D"))
CHANGES = 3

_NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Parts:
    """A tool's three parts, each 0 to 1."""

    found: float
    distinct: float
    described: float

    @property
    def score(self) -> float:
        """0 to 100."""
        return 100 * sum(weight * float(getattr(self, name)) for name, weight in WEIGHTS.items())


class Marks:
    """The marks of all tools, and what they would be after a change."""

    def __init__(
        self, tools: Sequence[Tool], outcomes: Iterable[Outcome], pairs: Sequence[Pair], findings: Sequence[Finding]
    ) -> None:
        self.tools, self.pairs, self.findings = tools, pairs, findings
        self._outcomes: dict[str, list[Outcome]] = defaultdict(list)
        for outcome in outcomes:
            self._outcomes[outcome.request.tool_id].append(outcome)
        self._pairs: dict[str, list[Pair]] = defaultdict(list)
        for pair in pairs:
            for tool_id in pair.ids:
                self._pairs[tool_id].append(pair)
        self._costs: dict[str, list[Finding]] = defaultdict(list)
        for finding in findings:
            self._costs[finding.tool_id].append(finding)
        self.parts = {tool.tool_id: self._parts(tool.tool_id) for tool in tools}

    def _parts(
        self, tool_id: str, without: frozenset[str] = _NOBODY, fixed: Callable[[Finding], bool] = lambda f: False
    ) -> Parts:
        ranks = [outcome.rank(without) for outcome in self._outcomes[tool_id]]
        found = sum(1.0 if r == 1 else 0.5 if r is not None and r <= LOOKS else 0.0 for r in ranks) / max(1, len(ranks))
        pairs = [p for p in self._pairs[tool_id] if not without.intersection(p.ids)]
        distinct = 0.0 if any(p.copy for p in pairs) else min((p.told_apart for p in pairs), default=1.0)
        cost = sum(f.cost for f in self._costs[tool_id] if not fixed(f))
        return Parts(found, distinct, max(0.0, 1.0 - cost))

    def mean(self, tools: Iterable[Tool]) -> Parts:
        """The mean parts of some tools."""
        parts = [self.parts[t.tool_id] for t in tools]
        n = max(1, len(parts))
        return Parts(sum(p.found for p in parts) / n, sum(p.distinct for p in parts) / n,
                     sum(p.described for p in parts) / n)  # fmt: skip

    def without(self, server_id: str) -> float:
        """The score of all other tools if this server were gone."""
        gone = frozenset(t.tool_id for t in self.tools if t.server_id == server_id)
        left = [self._parts(t.tool_id, gone).score for t in self.tools if t.server_id != server_id]
        return sum(left) / len(left) if left else 0.0

    def corrected(self, server_id: str, rule: str) -> float:
        """The score of all tools if one server broke one rule no longer."""
        scores = [
            self._parts(t.tool_id, fixed=lambda f: f.rule == rule).score
            if t.server_id == server_id
            else self.parts[t.tool_id].score
            for t in self.tools
        ]
        return sum(scores) / max(1, len(scores))

    def told(self, tool_ids: frozenset[str]) -> float:
        """The score of all tools if these came first for their own requests and were confused with none."""
        scores = []
        for tool in self.tools:
            part = self.parts[tool.tool_id]
            scores.append(Parts(1.0, 1.0, part.described).score if tool.tool_id in tool_ids else part.score)
        return sum(scores) / max(1, len(scores))


def letter(score: float) -> str:
    """A to E."""
    return next((mark for least, mark in LETTERS if score >= least), "E")


def verdict(parts: Parts) -> JsonObject:
    """Letter, score and parts as JSON."""
    shown = {name: round(getattr(parts, name), 3) for name in WEIGHTS}
    return {"letter": letter(round(parts.score)), "score": round(parts.score), **shown}


def changes(marks: Marks, names: dict[str, str], tokens: dict[str, int]) -> list[JsonObject]:
    """What would raise the score of the whole most, best first: ``{kind, server_id, text, tools, points, tokens}``.

    Points are by the formula, of the mean score of all tools; for descriptions alone they are a lower bound (better
    ones are found better as well), for telling tools apart the most that can come of it.
    """
    before = marks.mean(marks.tools).score
    found = [*_removals(marks, names, tokens, before), *_corrections(marks, names, before)]
    removed = {str(c["server_id"]) for c in found if c["kind"] == "remove"}
    found += [c for c in _distinctions(marks, names, before) if c["server_id"] not in removed]
    found = [change for change in found if float(change["points"]) >= 0.05]
    return sorted(found, key=lambda c: (-float(c["points"]), str(c["text"])))


def _change(kind: str, server_id: str, text: str, tools: list[str], points: float, tokens: int = 0) -> JsonObject:
    return {
        "kind": kind,
        "server_id": server_id,
        "text": text,
        "tools": tools,
        "points": round(points, 1),
        "tokens": tokens,
    }


def _removals(marks: Marks, names: dict[str, str], tokens: dict[str, int], before: float) -> Iterable[JsonObject]:
    """Servers at least half of whose tools another one has as well; of the two the smaller one is to go, of equal ones
    that without which the rest is better."""
    twins: dict[tuple[str, str], set[str]] = defaultdict(set)
    for pair in marks.pairs:
        one, other = pair.one, pair.other
        if pair.copy and one.server_id != other.server_id:
            twins[one.server_id, other.server_id].add(one.tool_id)
            twins[other.server_id, one.server_id].add(other.tool_id)
    sizes: dict[str, int] = defaultdict(int)
    for tool in marks.tools:
        sizes[tool.server_id] += 1
    for (server, keeper), doubled in sorted(twins.items()):
        if _to_keep(marks, sizes, server, keeper) == server or 2 * len(doubled) < sizes[server]:
            continue
        text = (
            f"Keep {names[keeper]} and remove {names[server]}: {len(doubled)} of its {_tools(sizes[server])} "
            f"{'is' if len(doubled) == 1 else 'are'} there as well."
        )
        saved = sum(tokens[t.tool_id] for t in marks.tools if t.server_id == server)
        yield _change("remove", server, text, sorted(doubled), marks.without(server) - before, saved)


def _to_keep(marks: Marks, sizes: dict[str, int], one: str, other: str) -> str:
    if sizes[one] != sizes[other]:
        return max(one, other, key=lambda server: sizes[server])
    return min(sorted((one, other)), key=marks.without)


_DOING = {
    "no_description": "Describe",
    "repeats_name": "Say more than the name in",
    "short_description": "Say more in the descriptions of",
    "parameter_undescribed": "Describe the parameters of",
    "parameter_untyped": "Give types to the parameters of",
    "required_missing": "List what is required in the schemas of",
    "long_description": "Shorten the descriptions of",
    "other_language": "Translate the descriptions of",
}


def _corrections(marks: Marks, names: dict[str, str], before: float) -> Iterable[JsonObject]:
    broken: dict[tuple[str, str], list[str]] = defaultdict(list)
    for finding in marks.findings:
        broken[finding.server_id, finding.rule].append(finding.tool_id)
    for (server, rule), tools in sorted(broken.items()):
        text = f"{_DOING[rule]} {_tools(len(tools))} of {names[server]}. {RULES[rule].instead}"
        yield _change(rule, server, text, tools, marks.corrected(server, rule) - before)


def _distinctions(marks: Marks, names: dict[str, str], before: float) -> Iterable[JsonObject]:
    """By server the tools that lose own requests to others that are no copies of them."""
    losing: dict[str, dict[str, Pair]] = defaultdict(dict)
    for pair in marks.pairs:
        if pair.copy:
            continue
        for tool in (pair.one, pair.other):
            if any(r.tool_id == tool.tool_id for r in pair.lost):
                losing[tool.server_id].setdefault(tool.tool_id, pair)
    for server, tools in sorted(losing.items()):
        worst = min(tools.values(), key=lambda p: (p.told_apart, -p.cosine))
        ours = worst.one if worst.one.server_id == server else worst.other
        theirs = worst.other if ours is worst.one else worst.one
        rival = theirs.name if theirs.server_id == server else f"{theirs.name} of {names[theirs.server_id]}"
        text = (
            f"In {names[server]}, begin {_descriptions(len(tools))} with what sets the tool apart: the product, the "
            f"object, the case it is for; {ours.name} against {rival}, for example."
        )
        yield _change("tell_apart", server, text, sorted(tools), marks.told(frozenset(tools)) - before)


def _tools(n: int) -> str:
    return f"{n} tool{'' if n == 1 else 's'}"


def _descriptions(n: int) -> str:
    return "the description of 1 tool" if n == 1 else f"the descriptions of {n} tools"
