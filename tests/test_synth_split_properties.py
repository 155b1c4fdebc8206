"""What holds of the splits whatever the data: growth moves nothing, markets do not meet, the strictest gold decides."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from toolscout.records import Call, GoldCall, Tool
from toolscout.synth.contamination import contamination
from toolscout.synth.split import (
    HELD_OUT,
    SEEN,
    SPLITS,
    TRAIN,
    UNSEEN_SERVER,
    UNSEEN_TOOL,
    Ratios,
    Splits,
    place_tools,
    split_calls,
    split_report,
)

STRICT = (UNSEEN_SERVER, UNSEEN_TOOL, SEEN)
FEW = Ratios(servers=2, tools=2, samples=2)
"""Many tests and little training: small data meets every case."""


@st.composite
def catalogues(draw: DrawFn) -> list[Tool]:
    """Tools of a few servers in a few marketplaces, some of them defined alike, names with slashes among them."""
    found = {}
    for market, server, name, says in draw(
        st.lists(
            st.tuples(
                st.sampled_from(["one", "two", "three"]),
                st.integers(0, 8),
                st.sampled_from(["get", "put", "a/b", "list"]),
                st.sampled_from(["Does it.", "Fetches.", "Stores.", ""]),
            ),
            min_size=1,
            max_size=40,
        )
    ):
        home = f"{market}/s{server}"
        found[f"{home}/{name}"] = Tool(tool_id=f"{home}/{name}", server_id=home, name=name, description=says)
    return list(found.values())


@st.composite
def requests(draw: DrawFn, tools: list[Tool]) -> list[Call]:
    """Rows of none to four gold calls."""
    golds = draw(st.lists(st.lists(st.sampled_from([t.tool_id for t in tools]), max_size=4), max_size=30))
    return [
        Call(id=f"r{n}", query=f"request {n} of {len(gold)}", gold=[GoldCall(tool_id=t, arguments={}) for t in gold])
        for n, gold in enumerate(golds)
    ]


def by_id(calls: list[Call], splits: Splits) -> dict[str, str]:
    return {c.id: place for place, rows in split_calls(calls, splits).items() for c in rows}


def moved(before: dict[str, str], after: dict[str, str]) -> set[tuple[str, str]]:
    return {(was, after[name]) for name, was in before.items() if after[name] != was}


@given(st.data())
def test_growth_moves_nothing(data: st.DataObject) -> None:
    tools = data.draw(catalogues())
    calls = data.draw(requests(tools))
    fewer = [t for t in tools if data.draw(st.booleans())]
    small, large = place_tools(fewer, ratios=FEW), place_tools(data.draw(st.permutations(tools)), ratios=FEW)
    assert all(large.places[t.tool_id] == small.places[t.tool_id] for t in fewer)
    # rows for tools that no file held yet, among them; a twin that arrives takes a row out of training, and that is all
    before, after = by_id(calls, small), by_id(calls, large)
    slashed = {c.id for c in calls for g in c.gold if g.tool_id.endswith("/a/b")}
    assert moved({n: p for n, p in before.items() if n not in slashed}, after) <= {(TRAIN, HELD_OUT)}
    sooner = by_id([c for c in calls if data.draw(st.booleans())], large)
    assert not moved(sooner, after), "other rows have no say"


@given(st.data())
def test_a_marketplace_is_split_by_itself(data: st.DataObject) -> None:
    tools = data.draw(catalogues())
    together = place_tools(tools, ratios=FEW)
    for market in {t.server_id.partition("/")[0] for t in tools}:
        own = [t for t in tools if t.server_id.startswith(f"{market}/")]
        alone = place_tools(own, ratios=FEW)
        assert alone.places == {t.tool_id: together.places[t.tool_id] for t in own}
        rows = data.draw(requests(own))
        assert moved(by_id(rows, alone), by_id(rows, together)) <= {(TRAIN, HELD_OUT)}


@given(st.data())
def test_the_strictest_gold_decides_and_training_shows_nothing_unseen(data: st.DataObject) -> None:
    tools = data.draw(catalogues())
    pool = {t.tool_id: t for t in tools}
    splits = place_tools(tools, ratios=FEW)
    calls = data.draw(requests(tools))
    rows = split_calls(calls, splits)
    assert sorted(c.id for part in rows.values() for c in part) == sorted(c.id for c in calls)
    for place, part in rows.items():
        for call in part:
            stand = [splits.places[g.tool_id] for g in call.gold]
            strictest = next((p for p in STRICT if p in stand), SEEN)
            assert place == strictest or (strictest == SEEN and place in (TRAIN, HELD_OUT))
    tested = [c for name in (SEEN, UNSEEN_TOOL, UNSEEN_SERVER) for c in rows[name]]
    report, _ = contamination(rows[TRAIN], tested, pool, places=splits.places)
    assert report["unseen_tool_shown"]["rows"] == 0
    counts = split_report(splits, rows, pool, {})
    placed = sum((Counter(m["calls"]) for m in counts["by_marketplace"].values()), Counter())
    assert placed == Counter(p for p, part in rows.items() for c in part if c.gold), "each row counts once"
    assert sum(counts["several_steps"].values()) == sum(len(c.gold) > 1 for c in calls)


@given(st.data())
def test_what_a_stated_server_adds_later_goes_with_it(data: st.DataObject) -> None:
    tools = data.draw(catalogues())
    stated = {t.tool_id: data.draw(st.sampled_from(STRICT)) for t in tools if data.draw(st.booleans())}
    splits = place_tools(tools, stated, FEW)
    for tool in tools:
        said = {stated[t.tool_id] for t in tools if t.server_id == tool.server_id and t.tool_id in stated}
        place = splits.places[tool.tool_id]
        if tool.tool_id in stated:
            assert place == stated[tool.tool_id]
        elif said:
            assert (place == UNSEEN_SERVER) == (UNSEEN_SERVER in said)
        else:
            assert place == place_tools([tool], ratios=FEW).places[tool.tool_id]


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.text(alphabet="abcdefgh", min_size=3, max_size=8), st.text(max_size=3))
def test_the_ratios_hold_in_the_limit_in_each_marketplace(market: str, salt: str) -> None:
    """12:1, 11:1, 10:1 within five standard deviations of the binomial."""
    servers = [f"{market}/s{n}" for n in range(2600)]
    tools = [Tool(tool_id=f"{s}/t{n}", server_id=s, name=f"t{n}") for s in servers for n in range(2)]
    splits = place_tools(tools, ratios=Ratios(salt=salt))
    unseen = {t.server_id for t in tools if splits.places[t.tool_id] == UNSEEN_SERVER}
    assert close(len(unseen), len(servers), 1 / 13)
    seen = [t for t in tools if t.server_id not in unseen]
    assert close(sum(splits.places[t.tool_id] == UNSEEN_TOOL for t in seen), len(seen), 1 / 12)
    known = next(t.tool_id for t in seen if splits.places[t.tool_id] == SEEN)
    calls = [Call(id=str(n), query=f"{market} {n}", gold=[GoldCall(tool_id=known)]) for n in range(4000)]
    assert close(list(by_id(calls, splits).values()).count(SEEN), len(calls), 1 / 11)


def close(count: int, of: int, share: float) -> bool:
    return bool(abs(count - of * share) < 5 * (of * share * (1 - share)) ** 0.5)


def test_contamination_of_rows_with_several_steps() -> None:
    def row(name: str, *tools: str, **more: object) -> Call:
        gold = [GoldCall(tool_id=t, arguments={"city": "Oslo"}) for t in tools]
        return Call.model_validate({"id": name, "query": f"{name} " * 9, "gold": gold, **more})

    tools = [
        Tool(tool_id=f"m/{n}/get", server_id=f"m/{n}", name="get", description=d)
        for n, d in (("a", "Old."), ("b", "New."), ("c", "Third."), ("twin", "New."))
    ]
    places = {"m/a/get": SEEN, "m/b/get": UNSEEN_TOOL, "m/c/get": SEEN, "m/twin/get": SEEN}
    pool = {t.tool_id: t for t in tools}
    train = [row("t1", "m/a/get", "m/c/get"), row("t2", "m/c/get", candidates=["m/b/get", "m/b/get", "m/a/get"])]
    test = [
        row("plan", "m/a/get", "m/b/get", split=UNSEEN_TOOL),  # training shows its seen tool, as it may
        row("again", "m/c/get", "m/a/get", split=SEEN),
        row("single", "m/c/get", split=SEEN),
    ]
    report, removed = contamination(train, test, pool, places=places)
    assert report["unseen_tool_shown"]["rows"] == 0 and not removed
    assert report["same_tools_together"]["examples"] == [["again", "t1"]]
    assert report["same_calls"]["examples"] == [["again", "t1"], ["single", "t2"]]
    assert report["unseen_tool_listed"]["examples"] == [["t2", "m/b/get"]]
    report, _ = contamination([*train, row("t3", "m/twin/get")], test, pool, places=places)
    assert report["unseen_tool_shown"]["examples"] == [["plan", "m/twin/get"]]
    assert SPLITS[0] == TRAIN and report["test_of_several_steps"] == 2
