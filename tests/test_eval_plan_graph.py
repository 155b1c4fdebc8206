"""Plans as graphs, and when one is the gold one: each rule by an example."""

from __future__ import annotations

from typing import Any

import pytest

from toolscout.ast_match import most_pairs
from toolscout.eval.plans.graph import Plan, lines
from toolscout.eval.plans.match import Comparison, fitting
from toolscout.eval.plans.schema import misfits
from toolscout.records import Call, GoldCall, Tool

LOOK, SEND, NOTE = "mail/look", "mail/send", "notes/write"


def call(id_: str | None, tool_id: str, *after: str, **arguments: Any) -> GoldCall:
    return GoldCall(id=id_, tool_id=tool_id, arguments=arguments, depends_on=list(after))


GOLD = [
    call("1", LOOK, name="Ada"),
    call("2", SEND, "1", to="$1.items[0].address", text="Hello"),
    call("3", NOTE, text="done"),
]


def compare(made: list[GoldCall], gold: list[GoldCall] = GOLD, **row: Any) -> Comparison:
    return Comparison(Plan(made), Plan(gold), fitting(Call(id="r", query="q", gold=gold, **row), {}), {})


def verdicts(made: list[GoldCall], gold: list[GoldCall] = GOLD) -> tuple[bool, bool, bool, bool]:
    """graph, graph with paths, last, last with paths."""
    found = compare(made, gold)
    return (*(found.graph(paths=p) for p in (False, True)), *(found.last(paths=p) for p in (False, True)))


def test_edges_come_from_depends_on_and_from_references_alike() -> None:
    plan = Plan(
        [
            call("a", LOOK),
            call("b", LOOK, "a"),
            call("c", SEND, to=["x", {"deep": "$b.id"}], text="see $a.url and $b.rows[0]"),
        ]
    )
    assert plan.edges == [(0, 1), (0, 2), (1, 2)] and plan.last == [2] and plan.order == [0, 1, 2]
    assert plan.acyclic and not plan.dangling


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("$1.name", [(0, "name")]),
        ("$1", [(0, "")]),
        ("$1[0].id", [(0, "0.id")]),
        ("$1.items[0]['id']", [(0, "items.0.id")]),
        ("Dear $1.name, hello", [(0, "name")]),
        ("$1.50", []),
        ("it costs $1 today", []),
        ("US$1.name", []),
        ("$3.name", [(None, "3.name")]),
        ("$30", []),
        ("$HOME.x", []),
    ],
)
def test_what_is_a_reference(text: str, found: list[tuple[int | None, str]]) -> None:
    plan = Plan([call("1", LOOK), call("2", LOOK)])
    assert plan.references({"x": [text]}) == found


def test_in_a_plan_whose_calls_have_names_a_wrong_name_is_a_wrong_reference() -> None:
    plan = Plan([call("find", LOOK), call("send", SEND, to="$serach.id", text="$find.id")])
    assert plan.dangling == ["$serach.id"] and plan.edges == [(0, 1)]


def test_calls_without_ids_are_counted_and_an_id_of_two_calls_leads_nowhere() -> None:
    plan = Plan([call(None, LOOK), call(None, SEND, to="$1.x")])
    assert plan.ids == ["1", "2"] and plan.edges == [(0, 1)]
    twice = Plan([call("1", LOOK), call("1", LOOK), call("2", SEND, to="$1.x")])
    assert twice.edges == [] and twice.dangling == ["$1.x"]
    assert Plan([call("2", LOOK), call(None, LOOK)]).ids == ["2", "2'"]


def test_cycles_and_calls_that_need_themselves() -> None:
    loop = Plan([call("1", LOOK, "2"), call("2", LOOK, "1"), call("3", NOTE, "2"), call("4", NOTE)])
    assert not loop.acyclic and loop.order == [3]
    itself = Plan([call("1", LOOK, name="$1.x")])
    assert not itself.acyclic and itself.dangling == ["$1"]


def test_the_same_plan_in_other_words_is_right() -> None:
    made = [
        call("x", NOTE, text="Done."),  # BFCL's comparison of texts
        call("y", LOOK, name="ada"),
        call("z", SEND, to="$y.items[0].address", text="hello"),  # the reference alone says what it needs
    ]
    assert verdicts(made) == (True, True, True, True)


def test_paths_of_references_count_only_where_asked() -> None:
    made = [GOLD[0], call("2", SEND, to="$1.address", text="Hello"), GOLD[2]]
    assert verdicts(made) == (True, False, True, False)
    written = [GOLD[0], call("2", SEND, to="$1['items'].0.address", text="Hello"), GOLD[2]]
    assert verdicts(written) == (True, True, True, True)
    punctuation = [call("1", LOOK), call("2", SEND, to="$1.user_id")]
    assert verdicts([call("1", LOOK), call("2", SEND, to="$1.userid")], punctuation)[:2] == (True, False)


@pytest.mark.parametrize(
    "made",
    [
        [GOLD[0], call("2", SEND, to="ada@example.org", text="Hello"), GOLD[2]],  # a value in place of the reference
        [GOLD[0], call("2", SEND, "1", to="$9.x", text="Hello"), GOLD[2]],  # to no call
        [GOLD[0], call("2", SEND, "1", to="$3.x", text="Hello"), GOLD[2]],  # to another call
        [call("1", LOOK, name="Bob"), *GOLD[1:]],  # another value
        [GOLD[0], GOLD[1], call("3", NOTE, "1", text="done")],  # an edge more
        GOLD[:2],
        [*GOLD, call("4", NOTE, text="done")],
        [],
    ],
)
def test_other_graphs_are_wrong(made: list[GoldCall]) -> None:
    assert verdicts(made)[:2] == (False, False)


def test_last_calls_may_be_right_where_the_graph_is_not() -> None:
    gold = [call("1", LOOK, name="Ada"), call("2", LOOK, name="Bob"), call("3", SEND, "1", "2", to="$1.x")]
    assert verdicts([call("1", LOOK, name="Eve"), call("3", SEND, to="$1.x")], gold) == (False, False, True, True)
    other = [call("1", NOTE, text="x"), call("3", SEND, to="$1.x")]
    assert verdicts(other, gold)[2] is False, "what a last call refers to is of another tool"


def test_a_reference_to_the_wrong_one_of_two_alike_calls_breaks_the_graph() -> None:
    gold = [call("1", LOOK, name="Ada"), call("2", LOOK, name="Bob"), call("3", SEND, "1", "2", to="$1.x", text="$2.x")]
    crossed = [*gold[:2], call("3", SEND, "1", "2", to="$2.x", text="$1.x")]
    assert verdicts(crossed, gold) == (False, False, True, True)


def test_accepted_values_and_left_out_arguments_count_as_in_calls() -> None:
    gold = [
        GoldCall(id="1", tool_id=LOOK, arguments={"name": "Ada", "deep": True}, accept={"deep": ["", False]}),
        GoldCall(id="2", tool_id=SEND, arguments={"to": "$1.mail"}, accept={"to": ["ada@example.org"]}),
    ]
    assert verdicts([call("1", LOOK, name="Ada"), call("2", SEND, to="$1.mail")], gold)[0]
    assert verdicts([call("1", LOOK, name="Ada", deep=False), call("2", SEND, "1", to="ada@example.org")], gold)[0]
    assert not verdicts([call("1", LOOK, name="Ada"), call("2", SEND, to="ada@example.org")], gold)[0], "no edge"


def test_equivalent_tools_count() -> None:
    twin = {i: Tool(tool_id=i, server_id="s", name="look", description="Look up.") for i in (LOOK, "copy/look")}
    row = Call(id="r", query="q", gold=GOLD, relevant=["chat/send", SEND])
    fits = fitting(row, twin)
    assert fits("copy/look", LOOK) and fits("chat/send", SEND) and not fits("mail/other", LOOK)
    assert not fits(LOOK, SEND), "a gold tool does its own step's job only"
    made = [call("1", "copy/look", name="Ada"), call("2", "chat/send", to="$1.x", text="Hello"), GOLD[2]]
    found = Comparison(Plan(made), Plan(GOLD), fits, {})
    assert found.graph(paths=False) and found.last(paths=False) and found.tools
    assert (found.node_hits, found.edge_hits) == (3, 1)


def test_nodes_and_edges_are_counted_one_to_one() -> None:
    made = [call("1", LOOK), call("2", LOOK), call("3", SEND, "1", "2"), call("4", "x/y")]
    found = compare(made)
    assert (found.node_hits, found.edge_hits, found.tools) == (2, 1, False)
    assert most_pairs([[0, 1], [0], []]) == {0: 1, 1: 0}


def test_many_alike_calls_are_compared_at_once() -> None:
    gold = [call(str(n), LOOK, name="Ada") for n in range(1, 31)]
    assert verdicts(list(reversed(gold)), gold) == (True, True, True, True)
    ring = [*gold[:29], call("30", LOOK, "1", name="Ada")]
    assert not verdicts(gold, ring)[0] and verdicts(list(reversed(ring)), ring)[0]


def test_schemas_are_checked_beside_the_references() -> None:
    schema = {
        "type": "object",
        "properties": {"count": {"type": "integer"}, "ids": {"type": "array", "items": {"type": "integer"}}},
        "required": ["count"],
    }
    tools = {LOOK: Tool(tool_id=LOOK, server_id="mail", name="look", input_schema=schema)}

    def wrong(**arguments: Any) -> list[str]:
        return misfits(Plan([call("1", LOOK, count=1), call("2", LOOK, "1", **arguments)]), tools)

    assert wrong(count=3) == [] and wrong(count="$1.n", ids=[1, "$1.id"]) == []
    assert wrong(count="$9.n") == [], "a wrong reference is counted as such, not as a wrong value"
    assert [w.split(":")[0] for w in wrong(count="three")] == [f"2. {LOOK}"]
    assert len(wrong(ids=[1])) == 1 and len(wrong(count=1, ids=["x", "$1.id"])) == 1
    assert misfits(Plan([call("1", "no/such")]), tools) == ["1. no/such: no such tool"]


def test_a_plan_reads_as_lines() -> None:
    assert lines(Plan(GOLD))[1] == '2. mail/send {"to": "$1.items[0].address", "text": "Hello"} (after 1)'
