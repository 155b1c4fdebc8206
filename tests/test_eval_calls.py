"""``toolscout eval calls``: candidates, scoring, resuming; and one run of the real model."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from toolscout.errors import BadInput, ModelError
from toolscout.eval.calls.measure import Outcome, Pool, measure_calls, schema_valid, score
from toolscout.eval.cli import app
from toolscout.eval.metrics import wilson
from toolscout.eval.report import calls_report, calls_tables
from toolscout.eval.rows import marketplace_of, read_calls, read_tools
from toolscout.records import Call, GoldCall, Server, Source, Tool
from toolscout.server.backends import ContextOverflow
from toolscout.server.calling.suggestion import Candidate, SuggestedCall, Suggestion
from toolscout.server.models import InstalledModel
from toolscout.settings import Settings

DATA = Path(__file__).parent / "data" / "eval"
TOOLS, CALLS = [DATA / "tools.jsonl"], [DATA / "calls.jsonl"]
KEYS = {
    "n",
    "model",
    "candidates",
    "overall",
    "by_split",
    "by_lang",
    "by_marketplace",
    "by_marketplace_split",
    "intervals",
    "abstention",
    "of",
    "seconds",
    "first_token_seconds",
    "tokens",
}
RATES = {"tool", "param", "ast", "schema_valid"}


class Scripted:
    """Answers each request with calls written down before, so that every verdict is known."""

    def __init__(self, script: dict[str, list[tuple[str, dict[str, Any]]] | None]) -> None:
        self.script = script
        self.asked: list[tuple[str, list[str], int]] = []

    async def suggest(self, task: str, candidates: Sequence[Candidate], *, steps: int = 1) -> Suggestion:
        self.asked.append((task, [c.tool.tool_id for c in candidates], steps))
        made = self.script[task]
        if made is None:
            return Suggestion([], abstained=True, reason="nothing fits", model="scripted", prompt_tokens=100)
        calls = [SuggestedCall(tool_id, arguments, 0.9) for tool_id, arguments in made]
        return Suggestion(calls, model="scripted", prompt_tokens=100, completion_tokens=20)


def right_answers() -> dict[str, list[tuple[str, dict[str, Any]]] | None]:
    rows = read_calls(CALLS)
    return {r.query: [(g.tool_id, g.arguments or {}) for g in r.gold] or None for r in rows}


def test_right_answers_score_one_everywhere() -> None:
    caller = Scripted(right_answers())
    run = measure_calls(TOOLS, CALLS, candidates=4, caller=caller)
    result = run.result
    assert set(result) == KEYS and set(result["overall"]) == RATES
    assert (result["n"], result["model"], result["candidates"]) == (7, "scripted", 4)
    assert (result["overall"]["tool"], result["overall"]["param"], result["overall"]["ast"]) == (1.0, 1.0, 1.0)
    # ids of two parts name no marketplace
    assert {name: part["n"] for name, part in result["by_marketplace"].items()} == {"unknown": 7}
    assert result["by_marketplace_split"] == {"unknown": result["by_split"]}
    assert {name: part["n"] for name, part in result["by_lang"].items()} == {"de": 1, "en": 6}
    assert {k: result["intervals"]["overall"][k] for k in ("tool", "ast")} == {
        "tool": wilson(7, 7),
        "ast": wilson(6, 6),
    }
    assert result["intervals"]["by_split"]["own"]["tool"] == wilson(1, 1)
    assert {name: part["n"] for name, part in result["by_split"].items()} == {
        "own": 1, "seen": 3, "several": 1, "unseen_tool": 2,
    }  # fmt: skip
    assert result["abstention"] == {"unanswerable": 2, "right_refusal_rate": 1.0, "false_refusal_rate": 0.0}
    assert result["tokens"] == {"prompt": 100.0, "cached": 0.0, "completion": round(7 * 20 / 9, 1)}
    assert set(result["seconds"]) == {"p50", "p95"}
    steps = {task: n for task, _, n in caller.asked}
    assert steps["Search the notes"] == 1 and sorted(set(steps.values())) == [1, 10]


def test_every_kind_of_mistake_is_told_apart() -> None:
    script = right_answers()
    queries = {r.id: r.query for r in read_calls(CALLS)}
    script[queries["c1"]] = [("kettle/boil_water", {"celsius": 90})]  # a wrong value
    script[queries["c2"]] = [("ledger/create_invoice", {"customer": "Orchard Ltd"})]  # a required one left out
    script[queries["c3"]] = [("atlas/route", {"start": "Lisbon", "destination": "Lisbon"})]  # another tool
    script[queries["c4"]] = None  # refused
    script[queries["n1"]] = [("scribe/word_count", {"document": "sonata"})]  # offered where nothing fits
    run = measure_calls(TOOLS, CALLS, candidates=12, caller=Scripted(script))
    verdicts = {o.id: (o.tool, o.param, o.ast, o.schema_valid) for o in run.outcomes}
    assert verdicts == {
        "c1": (True, True, False, True),
        "c2": (True, False, False, False),
        "c3": (False, False, False, True),
        "c4": (False, False, False, None),
        "c5": (True, True, True, True),
        "c6": (True, True, True, True),
        "c7": (True, None, None, False),  # gold without arguments: only the tool is asked for
        "n1": (None, None, None, True),
        "n2": (None, None, None, None),
    }
    overall = run.result["overall"]
    assert overall == {"tool": round(5 / 7, 4), "param": 0.5, "ast": round(2 / 6, 4), "schema_valid": round(4 / 6, 4)}
    assert run.result["abstention"] == {
        "unanswerable": 2,
        "right_refusal_rate": 0.5,
        "false_refusal_rate": round(1 / 7, 4),
    }


def test_candidates_are_the_same_for_every_model_and_order_of_the_pool() -> None:
    tools = read_tools(TOOLS)
    rows = {r.id: r for r in read_calls(CALLS)}
    forward, backward = Pool(tools), Pool(dict(reversed(tools.items())))
    for row in rows.values():
        ids = [t.tool_id for t in forward.candidates(row, 5, seed=1)]
        assert ids == [t.tool_id for t in backward.candidates(row, 5, seed=1)]
        assert {g.tool_id for g in row.gold} <= set(ids)
        assert len(ids) == len(set(ids)) == (2 if row.candidates else 5)
    drawn = {seed: [t.tool_id for t in forward.candidates(rows["c1"], 5, seed)] for seed in range(8)}
    assert len({tuple(ids) for ids in drawn.values()}) > 4
    assert len({ids.index("kettle/boil_water") for ids in drawn.values()}) > 1, "the gold tool must not sit still"


def test_no_distractor_can_do_the_job_of_the_gold() -> None:
    tools = read_tools(TOOLS)
    copy = tools["atlas/route"].model_copy(update={"tool_id": "copy/route", "server_id": "copy"})
    pool = Pool({**tools, copy.tool_id: copy})
    row = Call(id="x", query="q", gold=[GoldCall(tool_id="atlas/route")], relevant=["atlas/find_place"])
    ids = {t.tool_id for t in pool.candidates(row, 100, seed=0)}
    assert ids == set(tools) - {"atlas/find_place"}


def test_own_candidates_are_used_with_the_gold_added() -> None:
    pool = Pool(read_tools(TOOLS))
    row = Call(id="x", query="q", gold=[GoldCall(tool_id="atlas/route")], candidates=["scribe/new_note", "no/such"])
    assert {t.tool_id for t in pool.candidates(row, 10, seed=0)} == {"atlas/route", "scribe/new_note"}


def test_own_candidates_are_brought_to_a_size_that_is_compared() -> None:
    pool = Pool(read_tools(TOOLS))
    own = ["scribe/new_note", "scribe/word_count", "kettle/descale", "no/such"]
    row = Call(id="x", query="q", gold=[GoldCall(tool_id="atlas/route")], candidates=own)
    sets = {n: {t.tool_id for t in pool.candidates(row, n, seed=0, sized=True)} for n in (1, 2, 3, 4, 6, 99)}
    assert [len(ids) for ids in sets.values()] == [1, 2, 3, 4, 6, 12] and sets[1] == {"atlas/route"}
    assert sets[4] == {"atlas/route", *own[:3]} and sets[2] < sets[3] < sets[4] < sets[6] < sets[99]
    empty = row.model_copy(update={"gold": []})
    assert {t.tool_id for t in pool.candidates(empty, 6, seed=0, sized=True)} == set(own[:3]), "the pool may serve it"
    assert len(pool.candidates(empty, 2, seed=0, sized=True)) == 2


def test_a_marketplace_is_a_source_or_the_head_of_an_id_of_three_parts() -> None:
    def row(tool_id: str) -> Call:
        return Call(id="x", query="q", gold=[GoldCall(tool_id=tool_id)])

    server = Server(server_id="io.github.me/notes", sources=[Source(marketplace="registry", id="1")])
    assert marketplace_of(row("smithery/notes/add")) == "smithery"
    assert marketplace_of(row("smithery/me/notes/add")) == "smithery"
    assert marketplace_of(row("notes/add")) == "unknown" and marketplace_of(Call(id="x", query="q")) == "unknown"
    assert marketplace_of(row("io.github.me/notes/add"), {"io.github.me/notes/add": server}) == "registry"
    bare = server.model_copy(update={"sources": []})
    assert marketplace_of(row("glama/notes/add"), {"glama/notes/add": bare}) == "glama"


def test_marketplaces_come_from_the_servers_and_are_crossed_with_splits(tmp_path: Path) -> None:
    servers = tmp_path / "servers.jsonl"
    found = {"kettle": "glama", "atlas": "smithery", "ledger": "glama"}
    rows = [Server(server_id=i, sources=[Source(marketplace=m, id=i)]) for i, m in found.items()]
    servers.write_text("".join(row.to_json() + "\n" for row in rows), "utf-8")
    run = measure_calls(TOOLS, CALLS, servers=[servers], candidates=4, caller=Scripted(right_answers()))
    heads = {r.id: r.gold[0].tool_id.partition("/")[0] for r in read_calls(CALLS) if r.gold}
    wanted = Counter((found.get(heads[r.id], "unknown"), r.split or r.source) for r in read_calls(CALLS) if r.gold)
    crossed = run.result["by_marketplace_split"]
    assert {(m, s): part["n"] for m, splits in crossed.items() for s, part in splits.items()} == wanted
    shown = {table.title: table for table in calls_tables(run.result)}
    assert len(shown["By marketplace and split"].rows) == len(wanted) and "By language" in shown


class Breaks(Scripted):
    """Fails after so many requests."""

    def __init__(self, script: dict[str, Any], after: int) -> None:
        super().__init__(script)
        self.after = after

    async def suggest(self, task: str, candidates: Sequence[Candidate], *, steps: int = 1) -> Suggestion:
        if len(self.asked) == self.after:
            raise ModelError("The endpoint went away.")
        return await super().suggest(task, candidates, steps=steps)


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    work = tmp_path / "deep" / "work.jsonl"
    whole = measure_calls(TOOLS, CALLS, candidates=4, caller=Scripted(right_answers()))
    with pytest.raises(ModelError, match="went away"):
        measure_calls(TOOLS, CALLS, candidates=4, work=work, caller=Breaks(right_answers(), after=4))
    with work.open("a", encoding="utf-8") as stream:
        stream.write('{"id": "c5", "split": "sev')  # the machine lost power in the middle of a line
    said: list[str] = []
    rest = Scripted(right_answers())
    run = measure_calls(TOOLS, CALLS, candidates=4, work=work, caller=rest, say=said.append)
    assert len(rest.asked) == 5 and "4 of 9 rows were done before" in said
    assert [o.id for o in run.outcomes] == [o.id for o in whole.outcomes]
    assert run.result["overall"] == whole.result["overall"]
    nothing_left = Scripted({})
    again = measure_calls(TOOLS, CALLS, candidates=4, work=work, caller=nothing_left)
    assert nothing_left.asked == [] and again.result == run.result


def test_a_work_file_of_another_run_is_refused(tmp_path: Path) -> None:
    work = tmp_path / "work.jsonl"
    measure_calls(TOOLS, CALLS, candidates=4, work=work, caller=Scripted(right_answers()))
    before = work.read_bytes()
    with pytest.raises(BadInput, match="another run"):
        measure_calls(TOOLS, CALLS, candidates=5, work=work, caller=Scripted(right_answers()))
    assert work.read_bytes() == before


def test_a_work_file_of_other_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Product(Scripted):
        def __init__(self, settings: Settings, **_: object) -> None:
            super().__init__(right_answers())

        async def close(self) -> None:
            return None

    monkeypatch.setattr("toolscout.server.calling.caller.Caller", Product)
    model, work = tmp_path / "mine.gguf", tmp_path / "work.jsonl"
    settings = Settings(home=tmp_path, model=str(model))
    model.write_bytes(b"GGUF one")
    first = measure_calls(TOOLS, CALLS, settings=settings, candidates=4, work=work)
    assert measure_calls(TOOLS, CALLS, settings=settings, candidates=4, work=work).result == first.result
    model.write_bytes(b"GGUF two")
    with pytest.raises(BadInput, match="weights"):
        measure_calls(TOOLS, CALLS, settings=settings, candidates=4, work=work)


@pytest.mark.parametrize("how", ["random", "siblings"])
def test_without_the_right_tool_refusing_is_right(how: str) -> None:
    class Refuses(Scripted):
        async def suggest(self, task: str, candidates: Sequence[Candidate], *, steps: int = 1) -> Suggestion:
            shown.append((task, [c.tool for c in candidates]))
            return Suggestion([], abstained=task == shown[0][0], model="scripted")

    shown: list[tuple[str, list[Tool]]] = []
    caller = Refuses({})
    rows = {row.query: row for row in read_calls(CALLS) if row.gold}
    run = measure_calls(TOOLS, CALLS, candidates=4, caller=caller, without_gold=how)
    assert run.result["n"] == 0 and len(run.outcomes) == len(rows) == len(shown)
    assert run.result["abstention"]["right_refusal_rate"] == round(1 / len(rows), 4)
    near = 0
    for task, tools in shown:
        assert not {t.tool_id for t in tools} & rows[task].relevant_ids() and len(tools) == 4
        near += bool({t.server_id for t in tools} & {g.tool_id.rsplit("/", 1)[0] for g in rows[task].gold})
    assert how == "random" or near == len(rows)


def test_seconds_are_those_of_a_model() -> None:
    class Refuses(Scripted):
        async def suggest(self, task: str, candidates: Sequence[Candidate], *, steps: int = 1) -> Suggestion:
            return Suggestion([], abstained=True, model="scripted")

    run = measure_calls(TOOLS, CALLS, candidates=4, caller=Refuses({}))
    assert run.result["seconds"]["p50"] is None


def test_two_runs_never_share_a_work_file(tmp_path: Path) -> None:
    work = tmp_path / "work.jsonl"

    class Meddles(Scripted):
        async def suggest(self, task: str, candidates: Sequence[Candidate], *, steps: int = 1) -> Suggestion:
            with pytest.raises(BadInput, match="Another run is writing"), ThreadPoolExecutor(1) as other:
                other.submit(measure_calls, TOOLS, CALLS, candidates=4, work=work, caller=Scripted({})).result()
            return await super().suggest(task, candidates, steps=steps)

    run = measure_calls(TOOLS, CALLS, candidates=4, limit=2, work=work, caller=Meddles(right_answers()))
    assert len(run.outcomes) == 2
    assert len(work.read_text("utf-8").splitlines()) == 3


def test_a_prompt_too_long_for_the_model_is_one_wrong_row_not_the_end() -> None:
    class Overflows(Scripted):
        async def suggest(self, task: str, candidates: Sequence[Candidate], *, steps: int = 1) -> Suggestion:
            if task.startswith("Heat"):
                raise ContextOverflow("The prompt has 9000 tokens, the context 4096.", 0.45)
            return await super().suggest(task, candidates, steps=steps)

    run = measure_calls(TOOLS, CALLS, candidates=4, caller=Overflows(right_answers()))
    first = run.outcomes[0]
    assert (first.tool, first.abstained) == (False, False) and "9000 tokens" in (first.reason or "")
    assert run.result["overall"]["tool"] == round(6 / 7, 4)


def test_rows_whose_gold_is_unknown_are_left_out_and_told(tmp_path: Path) -> None:
    extra = tmp_path / "extra.jsonl"
    extra.write_text(json.dumps({"id": "z", "query": "q", "gold": [{"tool_id": "moon/fly"}]}) + "\n", "utf-8")
    run = measure_calls(TOOLS, [*CALLS, extra], candidates=4, caller=Scripted(right_answers()))
    assert run.result["n"] == 7
    assert run.warnings == ["1 rows left out: their gold tools are not in the tools files."]
    with pytest.raises(BadInput, match="None of the gold tools"):
        measure_calls(TOOLS, [extra], caller=Scripted({}))


def test_gold_calls_that_no_model_can_meet_are_told(tmp_path: Path) -> None:
    extra = tmp_path / "extra.jsonl"
    gold = [{"tool_id": "kettle/boil_water", "arguments": {"litres": 1}}]  # celsius is required
    extra.write_text(json.dumps({"id": "z", "query": "Boil a litre", "gold": gold}) + "\n", "utf-8")
    script = right_answers() | {"Boil a litre": [("kettle/boil_water", {"litres": 1})]}
    run = measure_calls(TOOLS, [*CALLS, extra], candidates=4, caller=Scripted(script))
    assert run.warnings == ["1 rows have gold calls that break their tool's schema and cannot be met, e.g. 'z'."]
    assert run.outcomes[-1].param is False


def test_report_shows_what_went_wrong(tmp_path: Path) -> None:
    script = right_answers()
    script["Heat the kettle water to 80 degrees"] = [("kettle/boil_water", {"celsius": 9012, "<b>": 1})]
    run = measure_calls(TOOLS, CALLS, candidates=4, caller=Scripted(script))
    page = calls_report(run, tmp_path).read_text("utf-8")
    assert "<h2>By split and marketplace</h2>" in page
    assert "9012" in page and "<b>" not in page
    assert len((tmp_path / "rows.jsonl").read_text("utf-8").splitlines()) == 9
    assert json.loads((tmp_path / "result.json").read_text("utf-8")) == run.result


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"celsius": 80}, True),
        ({"celsius": 80.5}, False),
        ({}, False),
        ({"celsius": "$1.temperature"}, True),
        ({"celsius": "$1"}, True),
        ({"celsius": "$five"}, False),
    ],
)
def test_schema_validity(arguments: dict[str, Any], expected: bool) -> None:
    assert schema_valid(arguments, read_tools(TOOLS)["kettle/boil_water"].input_schema) is expected


def test_schema_validity_at_the_edges() -> None:
    assert schema_valid({}, None) is False
    assert schema_valid({"x": 1}, {"type": "no such type"}) is True
    assert schema_valid({}, {}) is True


def test_no_rows_of_a_kind_give_none_not_zero() -> None:
    result = score([Outcome("a", "s", 0, abstained=True)], "m", 10)
    assert result["overall"] == {"tool": None, "param": None, "ast": None, "schema_valid": None}
    assert result["abstention"] == {"unanswerable": 1, "right_refusal_rate": 1.0, "false_refusal_rate": None}
    assert result["tokens"] == {"prompt": None, "cached": None, "completion": None}


@pytest.mark.skipif(importlib.util.find_spec("xllamacpp") is None, reason="needs the extra 'local'")
def test_the_real_model_by_the_command_line(tmp_path: Path, small_model: InstalledModel) -> None:
    out = tmp_path / "out.json"
    arguments = ["calls", "--tools", *map(str, TOOLS), "--calls", *map(str, CALLS), "--candidates", "3"]
    arguments += ["--limit", "2", "--model", "smollm2-135m", "--json", str(out), "--report", str(tmp_path / "report")]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, (ran.output, ran.exception)
    result = json.loads(out.read_text("utf-8"))
    assert set(result) == KEYS and result["model"] == "smollm2-135m"
    rows = [json.loads(line) for line in (tmp_path / "report" / "rows.jsonl").read_text("utf-8").splitlines()]
    assert len(rows) == 2 and all(row["abstained"] or row["calls"] for row in rows)
    assert result["tokens"]["prompt"] > 50 and result["seconds"]["p50"] > 0
    assert len((tmp_path / "out.json.rows.jsonl").read_text("utf-8").splitlines()) == 3


def test_a_schema_of_a_stranger_fetches_nothing(tmp_path: Path) -> None:
    elsewhere = tmp_path / "integer.json"
    elsewhere.write_text('{"type": "integer"}')
    schema = {"type": "object", "properties": {"a": {"$ref": elsewhere.as_uri()}}}
    assert schema_valid({"a": "text"}, schema), "a schema that cannot be read asks nothing"
