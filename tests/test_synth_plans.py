"""Plans over a folder: what the steps make and drop, and that no kill loses or repeats anything."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_endpoint import Body
from synth_endpoint import said
from synth_plans_player import FLIGHTS, HOLD, PLAN_SERVERS, PLAN_TOOLS, Player, plan_kind, played

from toolscout.cli import execute
from toolscout.commands.synth_bench import open_bench
from toolscout.errors import BadInput
from toolscout.eval.calls.measure import schema_valid
from toolscout.jsonl import read_records, write_records
from toolscout.records import Call, JsonObject, Review, Tool
from toolscout.synth.chain import Line, Outcome
from toolscout.synth.drafts import Draft, subjects
from toolscout.synth.pipeline import Result
from toolscout.synth.plans.codes import codes_of
from toolscout.synth.plans.dag import PlanStep, depths, references, with_paths
from toolscout.synth.plans.pipeline import FILTERS, make_plans
from toolscout.synth.plans.rewrite import Rewrite
from toolscout.synth.plans.state import Plan, PlanCall
from toolscout.synth.report_folder import read_run
from toolscout.synth.report_page import write_page
from toolscout.synth.settings import synth_settings
from toolscout.synth.writer import CeilingReached

Endpoint = Player
"""What the fixture ``serve`` starts."""

Serve = Callable[..., Player]
BY_ID = {tool.tool_id: tool for tool in PLAN_TOOLS}


def make(
    endpoint: Player,
    folder: Path,
    tools: Sequence[Tool] = PLAN_TOOLS,
    *,
    filters: Sequence[str] = FILTERS,
    **options: Any,
) -> Result:
    given = {"plans": 6, "plans_across": 4, "model_url": endpoint.url, "longest_pause": 0.02, "retries": 1} | options

    async def main() -> Result:
        pool = {t.tool_id: t for t in tools if t.review is Review.APPROVED}
        async with open_bench(pool, PLAN_SERVERS, synth_settings(**given), folder, encodes=False) as bench:
            found, left = subjects(tools, PLAN_SERVERS)
            return await make_plans(found, bench, folder, filters=filters, left_out=left)

    return asyncio.run(main())


def steps(report: JsonObject) -> dict[str, JsonObject]:
    return {step["step"]: step for step in report["steps"]}


def lines(folder: Path, name: str) -> list[Line]:
    return list(read_records(next(folder.glob(f"*-{name}.jsonl")), Line))


def hands(folder: Path) -> list[Plan]:
    return [Plan.of(d) for row in lines(folder, "sample") for d in row.made]


def test_from_tools_to_plans_with_every_step_in_the_folder(serve: Serve, tmp_path: Path) -> None:
    result = make(serve(), tmp_path, plan_largest=4)
    found = steps(result.report)
    assert list(found) == ["combine", "sample", "template", "fill", "rewrite", *FILTERS]
    assert min(p.name for p in tmp_path.glob("*.jsonl")) == "01-combine.jsonl"
    calls = list(read_records(tmp_path / "plans.jsonl", Call))
    assert len(calls) == found["semantic"]["made"] == result.report["kept"]["plans"] > 8
    for call in calls:
        ids = [gold.id for gold in call.gold]
        assert ids == [str(n) for n in range(1, len(ids) + 1)] and 2 <= len(ids) <= 10
        for gold in call.gold:
            assert gold.arguments is not None and gold.tool_id in BY_ID
            assert schema_valid(gold.arguments, BY_ID[gold.tool_id].input_schema)
            needed = {step for step, _ in references(gold.arguments).values()}
            assert needed <= set(gold.depends_on) and all(int(i) < int(gold.id or 0) for i in gold.depends_on)
    assert any(references(g.arguments or {}) for c in calls for g in c.gold)
    assert {
        c.scores.keys() == {"reasonable", "semantic"} for c in read_records(tmp_path / "plans.jsonl", PlanCall)
    } == {True}
    assert result.report["kept"]["across_categories"] > 0 and result.report["kept"]["by_form"].keys() <= {
        "chain", "mixed", "parallel"
    }  # fmt: skip
    for before, after in zip(list(found)[1:-1], list(found)[2:], strict=True):
        assert {d.id for row in lines(tmp_path, before) for d in row.made} == {row.id for row in lines(tmp_path, after)}


def test_tools_are_dealt_without_replacement_and_by_seed(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve()
    sizes = {"plan_smallest": 2, "plan_largest": 2, "plan_near": 0.0, "plans_across": 0, "plans": 3}
    make(endpoint, tmp_path / "a", **sizes)
    dealt = hands(tmp_path / "a")
    travel = [plan.tools for plan in dealt if plan.categories == ["Travel"]]
    assert sorted(t for tools in travel for t in tools) == sorted(t for t in BY_ID if t.startswith(("m/wing", "m/bed")))
    assert all(len(set(plan.tools)) == len(plan.tools) == 2 for plan in dealt)
    make(endpoint, tmp_path / "b", **sizes)
    make(endpoint, tmp_path / "c", **sizes, seed=5)
    assert hands(tmp_path / "b") == dealt != hands(tmp_path / "c")
    make(endpoint, tmp_path / "d", **sizes | {"plan_near": 1.0})
    servers = [{BY_ID[t].server_id for t in plan.tools} for plan in hands(tmp_path / "d")]
    assert sum(len(s) == 1 for s in servers) >= 4, "server by server"


def test_combinations_across_categories_hold_a_tool_of_each(serve: Serve, tmp_path: Path) -> None:
    wrong = [
        {"categories": ["Travel", "Money"], "need": "Pay for a trip"},
        {"categories": ["Travel", "Cooking"], "need": "Eat on a trip"},
        {"categories": ["Money"], "need": "Count it"},
        {"categories": ["money", "travel"], "need": "pay for a TRIP"},
        {"categories": ["Money", "Travel"], "need": ""},
    ]
    answer = json.dumps({"combinations": wrong})
    result = make(serve(lambda body: said(answer if plan_kind(body) == "combine" else played(body))), tmp_path, plans=0)
    assert steps(result.report)["combine"]["dropped"] == {
        "empty": 1, "no such category": 1, "not two to four categories": 1, "repeated": 1
    }  # fmt: skip
    (plan,) = hands(tmp_path)
    assert plan.need == "Pay for a trip"
    assert {PLAN_SERVERS[BY_ID[t].server_id].category for t in plan.tools} == {"Travel", "Money"}


def test_a_second_run_asks_nothing_and_only_what_changed_is_made_anew(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve()
    first = make(endpoint, tmp_path)
    asked, written = len(endpoint.asked), (tmp_path / "plans.jsonl").read_bytes()
    again = make(endpoint, tmp_path)
    assert len(endpoint.asked) == asked and (tmp_path / "plans.jsonl").read_bytes() == written
    assert again.report["spent"] == first.report["spent"]
    endpoint.asked.clear()
    make(endpoint, tmp_path, plan_reasonable_below=7.0)
    assert not endpoint.asked, "a moved threshold costs nothing"
    make(endpoint, tmp_path, plan_fillings=1)
    assert not endpoint.kinds()["template"]


@pytest.mark.parametrize("across", [4, 0])
def test_the_page_counts_what_the_run_counted(serve: Serve, tmp_path: Path, across: int) -> None:
    result = make(serve(), tmp_path, plans_across=across)
    found = write_page(tmp_path)
    assert found["steps"] == [{**step, "waiting": 0} for step in result.report["steps"]]
    assert found["steps"][1]["made"] > 2 and found["kept"]["calls"] == len(result.calls)


def test_a_folder_that_is_begun_again_and_broken_off_is_unfinished(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(serve(), tmp_path)
    seen: list[JsonObject] = []

    async def stopped(self: Rewrite, item: Draft) -> Outcome:
        seen.append(json.loads((tmp_path / "report.json").read_text()))  # what a kill leaves
        raise KeyboardInterrupt

    monkeypatch.setattr(Rewrite, "work", stopped)
    with pytest.raises(KeyboardInterrupt):
        make(serve(), tmp_path, seed=3)
    assert not seen[0]["finished"] and seen[0]["planned"][-1] == "semantic"
    left = json.loads((tmp_path / "report.json").read_text())
    assert not left["finished"] and list(steps(left)) == ["combine", "sample", "template", "fill"]
    run = read_run(tmp_path)
    assert not run.finished and [s.waiting for s in run.steps][:4] == [0, 0, 0, 0]
    assert {tool for row in run.rows for tool, _ in row.calls} <= BY_ID.keys(), "plans on their way are read as calls"


def test_one_category_alone_is_said(serve: Serve, files: Path, capsys: Any) -> None:
    base = command(serve(), files, files / "out")
    at = base.index("--servers")
    assert execute([*base[:at], *base[at + 2 :]]) == 0
    assert "No plan is over several categories: the servers of these tools are of 1." in capsys.readouterr().err
    assert execute([*base, "--json"]) == 0 and json.loads(capsys.readouterr().out)["remarks"] == []


# -- templates

GOOD: JsonObject = {
    "request": "Hold a seat for {who} on the first flight from {here} to {there} on {day}",
    "slots": {
        "who": {"type": "text", "values": ["Ruth Okafor", "Ida Brandt"]},
        "here": {"type": "airport", "values": ["Helsinki Vantaa Airport", "ZRH"]},
        "there": {"type": "text", "values": ["Narita International Airport", "No Such Field"]},
        "day": {"type": "date", "values": ["2026-03-14", "2026-07-02"]},
    },
    "steps": [
        {"id": 2, "tool": "hold_seat", "arguments": {"flight_id": "$1.flights[0].id", "passenger": "{who}"}},
        {
            "id": 1,
            "tool": "find_flights",
            "arguments": {"origin": "{here}", "destination": "{there}", "date": "{day}"},
        },
    ],
}


def changed(*path: Any, to: Any) -> JsonObject:
    """The good answer with one thing changed."""
    answer = json.loads(json.dumps(GOOD))
    here = answer
    for step in path[:-1]:
        here = here[step]
    here[path[-1]] = to
    return dict(answer)


def two(serve: Serve, folder: Path, *answers: JsonObject, reply: Any = played, **options: Any) -> Result:
    """A run over two tools whose template is the first answer, the second one after it is refused."""

    def answer(body: Body) -> Any:
        if plan_kind(body) in ("template", "repair"):
            return said(json.dumps(answers[min(plan_kind(body) == "repair", len(answers) - 1)]))
        return said(reply(body))

    return make(serve(answer), folder, [FLIGHTS, HOLD], plans=1, plans_across=0, **options)


def test_the_request_holds_the_name_and_the_argument_the_code(serve: Serve, tmp_path: Path) -> None:
    result = two(serve, tmp_path, GOOD, plan_fillings=2)
    assert len(result.calls) == 2
    for call in result.calls:
        first, second = call.gold
        assert (first.tool_id, second.tool_id) == (FLIGHTS.tool_id, HOLD.tool_id), "in the order of need"
        assert first.arguments is not None and second.arguments is not None
        names = {"HEL": "Helsinki Vantaa Airport", "ZRH": "Zurich Airport", "NRT": "Narita International Airport"}
        for code in (first.arguments["origin"], first.arguments["destination"]):
            assert names[code] in call.query and code not in call.query
        assert first.arguments["date"] in call.query and second.arguments["passenger"] in call.query
        assert second.arguments["flight_id"] == "$1.flights[0].id" and second.depends_on == ["1"]
    assert {c.gold[0].arguments["origin"] for c in result.calls if c.gold[0].arguments} == {"HEL", "ZRH"}
    kept = result.report["kept"]
    assert (kept["by_form"], kept["by_depth"], kept["references"]) == ({"chain": 2}, {"2": 2}, 2)
    assert kept["slots_by_type"] == {"airport": 4, "text": 4}, "a text that the tool's own words call a code is one"


BAD = {
    "cycle": changed("steps", 1, "depends_on", to=[2]),
    "no such tool": changed("steps", 0, "tool", to="fly_away"),
    "reference to no step": changed("steps", 0, "arguments", "flight_id", to="$7.flights[0].id"),
    "reference without a path": changed("steps", 0, "arguments", "flight_id", to="$1[0].id"),
    "reference inside a text": changed("steps", 0, "arguments", "flight_id", to="flight $1.flights[0].id"),
    "reference to no result": changed("steps", 0, "arguments", "flight_id", to="$1.offers[0].id"),
    "two steps of one id": changed("steps", 0, "id", to=1),
    "too few calls": changed("steps", to=GOOD["steps"][1:]),
    "too many calls": changed("steps", to=[{**GOOD["steps"][1], "id": n} for n in range(1, 12)]),
    "too long": changed("request", to="{who} {here} {there} {day} " + "and so on " * 150),
    "slot that is not listed": changed("slots", to={k: v for k, v in GOOD["slots"].items() if k != "who"}),
    "slot that is not in the request": changed("request", to="Hold a seat for {who} from {here} to {there}"),
    "slot that is in no call": changed("steps", 0, "arguments", "passenger", to="Ruth"),
    "slot without values": changed("slots", "who", "values", to=[" "]),
    "does not fit the schema": changed("steps", 1, "arguments", "cabin", to="first"),
    "tools do not go together": {"request": ""},
}


@pytest.mark.parametrize("reason", BAD)
def test_bad_templates_are_counted_by_reason(serve: Serve, tmp_path: Path, reason: str) -> None:
    result = two(serve, tmp_path, BAD[reason])
    assert steps(result.report)["template"]["dropped"] == {reason: 1} and not result.calls


def test_what_is_wrong_is_said_once_and_mended(serve: Serve, tmp_path: Path) -> None:
    result = two(serve, tmp_path, BAD["cycle"], GOOD)
    assert len(result.calls) > 0 and result.report["answers_of_this_run"]["repaired"] == 1


def test_a_whole_result_is_its_only_member_and_a_slot_that_stands_nowhere_is_none(serve: Serve, tmp_path: Path) -> None:
    answer = changed("steps", 0, "arguments", "flight_id", to="$1")
    answer["slots"]["colour"] = {"type": "text", "values": ["red", "blue"]}
    result = two(serve, tmp_path, answer)
    assert result.calls, steps(result.report)["template"]["dropped"]
    assert {(c.gold[1].arguments or {})["flight_id"] for c in result.calls} == {"$1.flights"}


@pytest.mark.parametrize(
    "declared, path",
    [(None, "$1.result"), (["flights"], "$1.flights"), (["flights", "price"], "$1"), (["a b"], "$1")],
)
def test_a_reference_gets_a_path_where_there_is_no_choice(declared: list[str] | None, path: str) -> None:
    output = {"type": "object", "properties": {name: {} for name in declared}} if declared else None
    tool = FLIGHTS.model_copy(update={"output_schema": output})
    plan = [
        PlanStep(id="1", tool_id=tool.tool_id),
        PlanStep(id="2", tool_id=HOLD.tool_id, arguments={"a": ["$1", "$2", "$1.50", "$1 of it"]}),
    ]
    mended = with_paths(plan, {tool.tool_id: tool})
    assert mended[1].arguments == {"a": [path, "$2", "$1.50", "$1 of it"]}, "$2 is a tool that nobody knows"


def test_garbage_is_an_unusable_answer(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(
        lambda body: said("I cannot do that." if plan_kind(body) in ("template", "repair") else played(body))
    )
    found = steps(make(endpoint, tmp_path).report)["template"]
    assert found["dropped"] == {"unusable answer": found["inputs"]}


# -- what comes after


def rewriting(text: Callable[[str], str]) -> Callable[[Body], str]:
    def reply(body: Body) -> str:
        good = played(body)
        if plan_kind(body) == "rewrite":
            return json.dumps({"instruction": text(json.loads(good)["instruction"])})
        return good

    return reply


@pytest.mark.parametrize(
    ("step", "reason", "change"),
    [
        ("rules", "value lost", lambda text: text.replace("Narita International Airport", "Tokyo")),
        ("rules", "value lost", lambda text: text.replace("2026-", "in ")),
        ("rewrite", "names tool or server", lambda text: f"Run hold_seat: {text}"),
        ("rewrite", "placeholder", lambda text: f"{text} My mail is <your mail>"),
        ("rewrite", "empty", lambda text: ""),
    ],
)
def test_rewrites_that_lose_or_tell_too_much(
    serve: Serve, tmp_path: Path, step: str, reason: str, change: Callable[[str], str]
) -> None:
    found = steps(two(serve, tmp_path, GOOD, reply=rewriting(change), plan_fillings=2).report)
    assert found[step]["dropped"] == {reason: 2}


def test_a_value_that_the_request_does_not_give(serve: Serve, tmp_path: Path) -> None:
    made_up = changed("steps", 0, "arguments", "flight_id", to="LX-160-2291")
    result = two(serve, tmp_path, made_up, plan_fillings=2)
    assert steps(result.report)["rules"]["dropped"] == {"value not in the request": 2}
    allowed = two(serve, tmp_path / "more", made_up, plan_fillings=2, ungrounded_above=1)
    assert len(allowed.calls) == 2


def test_judges_and_their_thresholds(serve: Serve, tmp_path: Path) -> None:
    def strict(body: Body) -> str:
        scores = {"reasonable": 6.5, "semantic": 3}
        kind = plan_kind(body)
        return json.dumps({"score": scores[kind], "why": "so"}) if kind in scores else played(body)

    found = steps(two(serve, tmp_path / "a", GOOD, reply=strict, plan_fillings=2).report)
    assert found["reasonable"]["made"] == 2 and found["semantic"]["dropped"] == {"calls do not serve the request": 2}
    found = steps(two(serve, tmp_path / "b", GOOD, reply=strict, plan_fillings=2, plan_reasonable_below=7).report)
    assert found["reasonable"]["dropped"] == {"not reasonable": 2}
    result = two(serve, tmp_path / "c", GOOD, reply=strict, plan_fillings=2, plan_matches_below=3)
    assert [c.scores for c in result.calls if isinstance(c, PlanCall)] == [{"reasonable": 6.5, "semantic": 3.0}] * 2
    assert result.report["thresholds"]["plan_matches_below"] == 3


def test_near_copies_of_another_template_are_dropped_and_fillings_are_not(serve: Serve, tmp_path: Path) -> None:
    result = two(serve, tmp_path, GOOD, plan_fillings=2)
    assert steps(result.report)["duplicates"]["made"] == 2, "fillings of one template stay beside each other"
    text = json.dumps({"instruction": "Look at the whole of the rest for me in the evening, and tell my sister"})
    endpoint = serve(lambda body: said(text if plan_kind(body) == "rewrite" else played(body)))
    found = steps(make(endpoint, tmp_path / "x", filters=("duplicates",)).report)["duplicates"]
    assert found["made"] == 1 and found["dropped"].keys() == {"near copy", "same request"}


def test_what_may_not_be_shown_is_in_no_plan(serve: Serve, tmp_path: Path) -> None:
    hidden = [t.model_copy(update={"review": Review.PENDING}) if t.name == "book_room" else t for t in PLAN_TOOLS]
    result = make(serve(), tmp_path, hidden)
    assert result.report["left_out"] == {"not approved": 1} and result.calls
    assert all("book_room" not in t for plan in hands(tmp_path) for t in plan.tools)


def test_filters_and_bounds_that_are_none(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve()
    with pytest.raises(BadInput, match="no filter"):
        make(endpoint, tmp_path, filters=("judge",))
    with pytest.raises(BadInput, match="8 to 3 tools"):
        make(endpoint, tmp_path, plan_smallest=8, plan_largest=3)


# -- without the dictionaries


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the extra ``synth`` were not installed."""
    for name in ("airportsdata", "pycountry", "pytickersymbols"):
        monkeypatch.setitem(sys.modules, name, None)
    codes_of.cache_clear()
    yield
    codes_of.cache_clear()


@pytest.mark.usefixtures("without_packages")
def test_without_the_packages_slots_are_text_and_it_is_said(serve: Serve, files: Path, capsys: Any) -> None:
    result = two(serve, files / "a", GOOD)
    assert steps(result.report)["template"]["dropped"] == {"dictionary not installed": 1}
    assert result.report["dictionaries"]["missing"].keys() == {"airportsdata", "pycountry", "pytickersymbols"}
    endpoint = serve()
    assert execute(command(endpoint, files, files / "b")) == 0
    assert 'pip install "toolscout[synth]"' in capsys.readouterr().err
    assert all("airport (" not in b["messages"][-1]["content"] for b in endpoint.asked)


# -- the command line


def command(endpoint: Player, files: Path, out: Path, *more: str) -> list[str]:
    return [
        "synth", "plans", "--tools", str(files / "tools.jsonl"), "--servers", str(files / "servers.jsonl"),
        "--out", str(out), "--endpoint", endpoint.url, "--plans", "6", "--across", "4", "--concurrency", "3", *more,
    ]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_records(tmp_path / "tools.jsonl", PLAN_TOOLS)
    write_records(tmp_path / "servers.jsonl", PLAN_SERVERS.values())
    return tmp_path


def test_killed_and_resumed_without_loss_or_repeats(serve: Serve, files: Path, capsys: Any) -> None:
    endpoint = serve(pause=0.03)
    out = files / "out"
    for after in (6, 25):  # while templates are written, and deep in the rewriting
        before = len(endpoint.asked)
        running = subprocess.Popen([sys.executable, "-m", "toolscout", *command(endpoint, files, out)], env=os.environ)
        while len(endpoint.asked) < before + after and running.poll() is None:
            time.sleep(0.005)
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL
    assert execute(command(endpoint, files, out, "--json")) == 0
    report = json.loads(capsys.readouterr().out)
    repeated = {body: n for body, n in endpoint.bodies().items() if n > 1}
    assert len(repeated) <= 2 * 3 and set(repeated.values()) <= {2, 3}, "no more than was under way at the kills"
    quiet = serve()
    assert execute(command(quiet, files, files / "straight")) == 0
    assert set(quiet.bodies().values()) == {1}
    assert (out / "plans.jsonl").read_bytes() == (files / "straight/plans.jsonl").read_bytes()
    assert report["steps"] == json.loads((files / "straight/report.json").read_text())["steps"]
    assert (files / "straight/report.html").stat().st_size > 1000
    assert report["spent"]["by_model"]["first-model"]["requests"] == len(quiet.asked), "each answer is booked once"
    for path in sorted(out.glob("0*.jsonl")):
        ids = [row.id for row in read_records(path, Line)]
        assert len(ids) == len(set(ids))


def test_the_ceiling_stops_the_run_and_a_higher_one_goes_on(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve()
    price = {"price_in": 1000.0, "price_out": 1000.0, "max_tokens": 64}
    with pytest.raises(CeilingReached):
        make(endpoint, tmp_path, max_cost=4.0, **price)
    report = json.loads((tmp_path / "report.json").read_text())
    assert not report["finished"] and report["kept"] is None and 0 < report["spent"]["price"] <= 4.0
    make(endpoint, tmp_path, max_cost=1000.0, **price)
    assert set(endpoint.bodies().values()) == {1}


def test_plans_are_split_and_compared_as_other_calls(serve: Serve, files: Path, capsys: Any) -> None:
    assert execute(command(serve(), files, files / "out", "--largest", "3")) == 0
    capsys.readouterr()
    given = ["--tools", str(files / "tools.jsonl"), "--servers", str(files / "servers.jsonl")]
    plans = files / "out/plans.jsonl"
    more = ["--out", str(files / "parts"), "--ratio-servers", "1", "--json", "--against", str(plans)]
    assert execute(["synth", "split", "--calls", str(plans), *given, *more]) == 0
    report = json.loads(capsys.readouterr().out)
    rows = [call for path in (files / "parts").glob("*.jsonl") for call in read_records(path, PlanCall)]
    assert {c.id for c in rows} == {c.id for c in read_records(plans, PlanCall)} and len(rows) == sum(
        report["calls"].values()
    )
    assert all(c.categories and len(c.gold) > 1 and all(g.id for g in c.gold) for c in rows)
    assert report["contamination"]["same_request"]["rows"] == report["contamination"]["removed_from_train"]
    for call in rows:
        assert depths(Plan.model_validate({"steps": [g.model_dump() for g in call.gold]}).steps).keys() == {
            g.id for g in call.gold
        }


def test_what_the_command_line_says(serve: Serve, files: Path, capsys: Any) -> None:
    endpoint = serve()
    assert execute(command(endpoint, files, files / "out")) == 0
    shown = capsys.readouterr().out
    assert "template" in shown and "plans are in" in shown
    assert execute(command(endpoint, files, files / "o2", "--filters", "judge")) == 2
    assert "no filter" in capsys.readouterr().err
    assert execute(command(endpoint, files, files / "o3", "--smallest", "9", "--largest", "3")) == 2
    write_records(files / "tools.jsonl", [HOLD])
    assert execute(command(endpoint, files, files / "o4")) == 2 and "two tools" in capsys.readouterr().err
