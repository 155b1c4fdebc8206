"""Properties of the graph match, and an independent implementation of it: networkx's isomorphism (VF2) and matching."""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any

import networkx as nx
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from networkx.algorithms.isomorphism import DiGraphMatcher

from toolscout.ast_match import most_pairs
from toolscout.eval.plans.graph import Plan
from toolscout.eval.plans.match import Comparison, fitting
from toolscout.records import Call, GoldCall

TOOLS = ["a/one", "a/two", "b/three"]
WORDS = ["red", "green"]


def plan_of(draw: random.Random, most: int = 6) -> list[GoldCall]:
    """A plan without a cycle: few tools and values, so that calls are often alike."""
    calls: list[GoldCall] = []
    for number in range(1, draw.randint(1, most) + 1):
        earlier = [str(n) for n in range(1, number)]
        arguments: dict[str, Any] = {}
        for name in draw.sample(["x", "y", "z"], draw.randint(0, 3)):
            if earlier and draw.random() < 0.5:
                reference = f"${draw.choice(earlier)}.{draw.choice(['id', 'rows[0].id'])}"
                arguments[name] = draw.choice([reference, [draw.choice(WORDS), reference], {"in": reference}])
            else:
                arguments[name] = draw.choice(WORDS)
        after = draw.sample(earlier, min(len(earlier), draw.choice([0, 0, 1, 2])))
        calls.append(GoldCall(id=str(number), tool_id=draw.choice(TOOLS), arguments=arguments, depends_on=after))
    return calls


def replaced(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {k: replaced(v, change) for k, v in value.items()}
    return [replaced(v, change) for v in value] if isinstance(value, list) else value


def renumbered(calls: list[GoldCall], draw: random.Random) -> list[GoldCall]:
    """The same plan under other ids and in another order; a depends_on that a reference implies is left out or in."""
    ids = [c.id or "" for c in calls]
    fresh = dict(zip(ids, draw.sample([*map(str, range(1, 60)), "first", "step_7", "a-b"], len(ids)), strict=True))

    def rename(text: str) -> str:
        return re.sub(r"^\$(\d+)", lambda m: f"${fresh[m[1]]}", text)

    made = []
    for call in calls:
        implied = set(re.findall(r"\$(\d+)", str(call.arguments)))
        stated = set(call.depends_on) - implied | {i for i in implied if draw.random() < 0.5}
        made.append(
            GoldCall(
                id=fresh[call.id or ""],
                tool_id=call.tool_id,
                arguments=replaced(call.arguments, rename),
                depends_on=[fresh[i] for i in sorted(stated)],
            )
        )
    draw.shuffle(made)
    return made


def changed(calls: list[GoldCall], draw: random.Random) -> list[GoldCall]:
    """A plan with one thing changed, which may or may not make it another plan."""
    calls = [c.model_copy(deep=True) for c in calls]
    at = draw.randrange(len(calls))
    call, earlier = calls[at], [str(n) for n in range(1, at + 1)]
    kind = draw.choice(["tool", "word", "path", "rewire", "edge", "drop", "swap", "tools"])
    if kind == "tool":
        call.tool_id = draw.choice(TOOLS)
    elif kind == "word":
        call.arguments = replaced(call.arguments, lambda t: t if t.startswith("$") else draw.choice(WORDS))
    elif kind == "path":
        call.arguments = replaced(call.arguments, lambda t: re.sub(r"^(\$\d+)\..*", r"\1.other", t))
    elif kind == "rewire" and earlier:
        call.arguments = replaced(call.arguments, lambda t: re.sub(r"^\$\d+", f"${draw.choice(earlier)}", t))
    elif kind == "edge" and earlier:
        call.depends_on = sorted({*call.depends_on, draw.choice(earlier)})
    elif kind == "drop":
        call.depends_on = call.depends_on[1:]
    elif kind == "swap":
        other = draw.choice(calls[: at + 1])
        call.tool_id, other.tool_id = other.tool_id, call.tool_id
    else:
        for one in calls:
            one.tool_id = TOOLS[0]
    return calls


def compare(made: list[GoldCall], gold: list[GoldCall]) -> Comparison:
    return Comparison(Plan(made), Plan(gold), fitting(Call(id="r", query="q", gold=gold), {}), {})


def theirs(calls: list[GoldCall], *, paths: bool) -> nx.DiGraph:
    """The plan as networkx has it, read with nothing of ours: tools and values on nodes, references on edges."""
    graph = nx.DiGraph()
    for call in calls:
        graph.add_node(
            call.id, tool=call.tool_id, arguments=replaced(call.arguments, lambda t: re.sub(r"^\$.*", "R", t))
        )
    for call in calls:
        for parent in call.depends_on:
            graph.add_edge(parent, call.id)
        found: list[tuple[str, str, str]] = []

        def walk(value: Any, way: str, found: list[tuple[str, str, str]] = found) -> None:
            if isinstance(value, str) and value.startswith("$"):
                parent, _, path = value[1:].partition(".")
                found.append((parent, way, path))
            elif isinstance(value, dict | list):
                for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
                    walk(inner, f"{way}/{key}")

        walk(call.arguments, "")
        for parent, way, path in found:
            graph.add_edge(parent, call.id)
            graph[parent][call.id].setdefault("references", set()).add((way, path if paths else ""))
    return graph


def isomorphic(made: list[GoldCall], gold: list[GoldCall], *, paths: bool) -> bool:
    return bool(
        DiGraphMatcher(
            theirs(made, paths=paths),
            theirs(gold, paths=paths),
            node_match=lambda a, b: a == b,
            edge_match=lambda a, b: a.get("references", set()) == b.get("references", set()),
        ).is_isomorphic()
    )


seeds = st.integers(0, 2**32).map(random.Random)
often = hypothesis_settings(max_examples=150, deadline=None)


@often
@given(seeds)
def test_renumbered_and_reordered_plans_are_the_same(draw: random.Random) -> None:
    gold = plan_of(draw, most=10)
    found = compare(renumbered(gold, draw), gold)
    assert found.graph(paths=True) and found.graph(paths=False)
    assert found.last(paths=True) and found.last(paths=False) and found.tools and found.values(paths=True)
    assert found.edge_hits == len(found.gold.edges) == len(found.made.edges)


@often
@given(seeds)
def test_a_dropped_edge_is_another_plan(draw: random.Random) -> None:
    gold = plan_of(draw)
    made = [c.model_copy(deep=True) for c in gold]
    droppable = [
        (c, i) for c in made for i in c.depends_on if f"${i}." not in str(c.arguments)
    ]  # one that a reference implies stays
    assume(droppable)
    call, dropped = draw.choice(droppable)
    call.depends_on = [i for i in call.depends_on if i != dropped]
    found = compare(renumbered(made, draw), gold)
    assert not found.graph(paths=False) and found.values(paths=True)
    assert len(found.made.edges) == len(found.gold.edges) - 1 == found.edge_hits


@often
@given(seeds)
def test_another_value_or_tool_is_another_plan(draw: random.Random) -> None:
    gold = plan_of(draw)
    made = [c.model_copy(deep=True) for c in gold]
    call = draw.choice(made)
    if call.arguments and draw.random() < 0.5:
        call.arguments = {**call.arguments, draw.choice(sorted(call.arguments)): "blue"}
    else:
        call.tool_id = "c/other"
    assert not compare(renumbered(made, draw), gold).graph(paths=False)


@often
@given(seeds)
def test_swapped_arguments_are_another_plan(draw: random.Random) -> None:
    gold = plan_of(draw)
    at = draw.randrange(len(gold))
    gold[at] = gold[at].model_copy(update={"arguments": {"x": "left", "y": "right"}})
    made = [c.model_copy(deep=True) for c in gold]
    made[at] = made[at].model_copy(update={"arguments": {"x": "right", "y": "left"}})
    found = compare(renumbered(made, draw), gold)
    assert not found.graph(paths=False) and found.tools


@often
@given(seeds)
def test_a_right_graph_is_right_in_every_lesser_reading(draw: random.Random) -> None:
    gold = plan_of(draw)
    found = compare(renumbered(changed(gold, draw), draw), gold)
    if found.graph(paths=True):
        assert found.graph(paths=False) and found.last(paths=True)
    if found.graph(paths=False):
        assert found.last(paths=False) and found.values(paths=False) and found.edge_hits == len(found.gold.edges)
    if found.values(paths=False):
        assert found.tools


def test_networkx_comes_to_the_same_verdicts() -> None:
    seen: Counter[tuple[bool, bool]] = Counter()
    for seed in range(2000):
        draw = random.Random(seed)
        gold = plan_of(draw)
        made = gold
        for _ in range(draw.randint(0, 2)):
            made = changed(made, draw)
        made = renumbered(made, draw)
        found = compare(made, gold)
        ours = (found.graph(paths=False), found.graph(paths=True))
        assert ours == (isomorphic(made, gold, paths=False), isomorphic(made, gold, paths=True)), seed
        seen[ours] += 1
        nodes = Counter(c.tool_id for c in made) & Counter(c.tool_id for c in gold)
        assert found.node_hits == nodes.total()
        pairs = [
            Counter((g.nodes[a]["tool"], g.nodes[b]["tool"]) for a, b in g.edges)
            for g in (theirs(made, paths=False), theirs(gold, paths=False))
        ]
        assert found.edge_hits == (pairs[0] & pairs[1]).total()
    assert min(seen[kind] for kind in ((True, True), (True, False), (False, False))) >= 50, seen


@often
@given(st.lists(st.sets(st.integers(0, 7)), max_size=8))
def test_the_matching_is_as_large_as_networkxs(wanted: list[set[int]]) -> None:
    graph = nx.Graph()
    left = [("g", at) for at in range(len(wanted))]
    graph.add_nodes_from(left)
    graph.add_edges_from((("g", at), ("m", m)) for at, choice in enumerate(wanted) for m in choice)
    best = nx.bipartite.maximum_matching(graph, top_nodes=left)
    given_ = most_pairs([sorted(choice) for choice in wanted])
    assert len(given_) == len(best) // 2
    assert len(set(given_.values())) == len(given_) and all(m in wanted[at] for m, at in given_.items())
