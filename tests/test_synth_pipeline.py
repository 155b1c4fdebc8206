"""The single-call pipeline over a folder: what it makes, what it drops, and that no kill loses or repeats anything."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_endpoint import Body
from synth_endpoint import SERVERS, TOOLS, WEATHER, Endpoint, Serve, kind, request_in, said, well

from toolscout.cli import execute
from toolscout.commands.synth_bench import open_bench
from toolscout.errors import BadInput, ModelError
from toolscout.jsonl import read_records, write_records
from toolscout.records import Call, JsonObject, Review, Tool
from toolscout.synth.chain import Line, Outcome
from toolscout.synth.drafts import Draft, SynthCall, subjects
from toolscout.synth.filters.invocation import Invocation
from toolscout.synth.filters.judge import Verdict
from toolscout.synth.making.evolve import Evolve
from toolscout.synth.pipeline import FILTERS, Result, make_calls, working_in
from toolscout.synth.report_folder import read_run
from toolscout.synth.settings import synth_settings
from toolscout.synth.writer import IN_VAIN, CeilingReached, NoAnswer, Writer


def make(
    endpoint: Endpoint,
    folder: Path,
    tools: Sequence[Tool] = TOOLS,
    *,
    filters: Sequence[str] = FILTERS,
    cache: Path | None = None,
    **options: Any,
) -> Result:
    settings = synth_settings(model_url=endpoint.url, longest_pause=0.02, retries=1, **options)

    async def main() -> Result:
        encodes = "resembles" in filters
        pool = {t.tool_id: t for t in tools}
        async with open_bench(pool, SERVERS, settings, folder, cache=cache, encodes=encodes) as bench:
            found, left = subjects(tools, SERVERS)
            return await make_calls(found, bench, folder, filters=filters, left_out=left)

    return asyncio.run(main())


def steps(report: JsonObject) -> dict[str, JsonObject]:
    return {step["step"]: step for step in report["steps"]}


def lines(folder: Path, name: str) -> list[Line]:
    return list(read_records(next(folder.glob(f"*-{name}.jsonl")), Line))


PLAIN = ("schema", "grounded", "duplicates")
"""Filters that need neither an encoder nor a model."""


def test_from_tools_to_calls_with_every_step_in_the_folder(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(company=4)
    result = make(endpoint, tmp_path, languages={"de": 0.3}, concurrency=4)
    found = steps(result.report)
    assert list(found) == ["generate", "fill", "evolve", "translate", "call", *FILTERS]
    assert (found["generate"]["made"], found["evolve"]["made"]) == (25, 50), "the plain ones and the deepest"
    assert result.report["finished"] and result.report["kept"]["tools"] == 5
    assert result.report["kept"]["by_level"].keys() == {"0", "2"}
    assert result.report["kept"]["by_language"]["de"] > 3
    assert 0 < result.report["kept"]["mean_cosine_distance"] < 1
    assert min(p.name for p in tmp_path.glob("*.jsonl")) == "01-generate.jsonl"
    calls = list(read_records(tmp_path / "calls.jsonl", SynthCall))
    assert [c.id for c in calls] == [c.id for c in result.calls] and len(calls) == found["judge"]["made"] > 20
    for call in calls:
        assert call.gold[0].arguments is not None and call.gold[0].arguments["city"] in call.query
        assert call.scores.keys() == {"resembles", "invocation", "judge_instruction", "judge_call"}
    assert endpoint.most_at_once == 4
    # every input has one line, and what goes on is the next step's input
    for before, after in zip(list(found)[:-1], list(found)[1:], strict=True):
        assert {d.id for row in lines(tmp_path, before) for d in row.made} == {row.id for row in lines(tmp_path, after)}


def test_a_second_run_asks_nothing_and_gives_the_same(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve()
    first = make(endpoint, tmp_path, filters=(*PLAIN, "invocation", "judge"))
    asked, written = len(endpoint.asked), (tmp_path / "calls.jsonl").read_bytes()
    again = make(endpoint, tmp_path, filters=(*PLAIN, "invocation", "judge"))
    assert len(endpoint.asked) == asked and (tmp_path / "calls.jsonl").read_bytes() == written
    assert again.report["spent"] == first.report["spent"]


def test_only_what_changed_is_made_anew(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve()
    make(endpoint, tmp_path, TOOLS[:4], filters=PLAIN)
    endpoint.asked.clear()
    make(endpoint, tmp_path, TOOLS, filters=PLAIN)
    assert endpoint.kinds()["generate"] == 1, "one tool more"
    changed = WEATHER.model_copy(update={"description": "Gives the days' figures for a town."})
    endpoint.asked.clear()
    make(endpoint, tmp_path, [changed, *TOOLS[1:]], filters=PLAIN)
    assert endpoint.kinds() == {"generate": 1, "fill": 5, "evolve": 10, "call": 10}
    endpoint.asked.clear()
    make(endpoint, tmp_path, [changed, *TOOLS[1:]], filters=PLAIN, depth=1)
    assert endpoint.kinds().keys() == {"call"}, "first generations are at hand, their calls are not"


def test_answers_can_be_shared_between_folders_and_each_books_its_own(serve: Serve, tmp_path: Path) -> None:
    endpoint, cache = serve(), tmp_path / "all.db"
    one = make(endpoint, tmp_path / "one", filters=PLAIN, cache=cache, price_in=1.0)
    asked = len(endpoint.asked)
    two = make(endpoint, tmp_path / "two", filters=PLAIN, cache=cache, price_in=1.0)
    assert len(endpoint.asked) == asked and one.report["spent"]["price"] > 0 == two.report["spent"]["price"]
    assert (tmp_path / "one/calls.jsonl").read_bytes() == (tmp_path / "two/calls.jsonl").read_bytes()


def test_a_cache_and_another_place_do_not_forget_what_was_spent(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve()
    folder, price = tmp_path / "one", {"filters": PLAIN, "price_in": 1.0}
    spent = make(endpoint, folder, TOOLS[:2], **price).report["spent"]["price"]
    moved = folder.rename(tmp_path / "moved")
    report = make(endpoint, moved, TOOLS[:2], **price, cache=tmp_path / "all.db").report
    assert report["spent"]["price"] == spent > 0
    more = make(endpoint, moved, TOOLS[:3], **price, cache=tmp_path / "all.db").report["spent"]["price"]
    last = make(endpoint, moved.rename(folder), TOOLS[:3], **price, cache=tmp_path / "all.db").report
    assert last["spent"]["price"] == pytest.approx(more) and more > spent
    assert read_run(folder).spent == last["spent"]["by_model"]


def test_the_ceiling_stops_the_run_and_a_higher_one_goes_on(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve()
    price = {"price_in": 1000.0, "price_out": 1000.0, "max_tokens": 64}  # 0.12 a request
    with pytest.raises(CeilingReached, match="is reached"):
        make(endpoint, tmp_path, filters=PLAIN, max_cost=4.0, **price)
    report = json.loads((tmp_path / "report.json").read_text())
    assert not report["finished"] and 2.0 < report["spent"]["price"] <= 4.0
    assert report["spent"]["price"] == pytest.approx(0.12 * len(endpoint.asked))
    with pytest.raises(CeilingReached):
        make(endpoint, tmp_path, filters=PLAIN, max_cost=4.0, **price)
    assert json.loads((tmp_path / "report.json").read_text())["spent"]["price"] <= 4.0, "resumed runs count together"
    make(endpoint, tmp_path, filters=PLAIN, max_cost=100.0, **price)
    assert set(endpoint.bodies().values()) == {1}
    free = make(serve(), tmp_path / "free", filters=PLAIN)
    assert [c.to_json() for c in read_records(tmp_path / "calls.jsonl", Call)] == [c.to_json() for c in plain(free)]


def plain(result: Result) -> list[Call]:
    return [Call.model_validate(c.model_dump()) for c in result.calls]


def test_an_endpoint_that_goes_away_loses_nothing(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve()
    endpoint.reply = lambda body: said(well(body)) if len(endpoint.asked) <= 30 else (503, {"error": "gone"}, {})
    with pytest.raises(ModelError, match="503"):
        make(endpoint, tmp_path, filters=PLAIN)
    answered = endpoint.bodies()
    endpoint.reply = lambda body: said(well(body))
    make(endpoint, tmp_path, filters=PLAIN)
    again = [body for body, n in (endpoint.bodies() - answered).items() if answered[body] and n]
    assert len(again) <= 8, "only what was turned away is asked again"


# -- weak models


def weak(body: Body) -> str:
    """Garbage of every kind that small models write, by the request's own hash."""
    step, good = kind(body), well(body) if kind(body) != "repair" else "{}"
    forms = [
        "I'm sorry, I cannot help with that.",
        good[: len(good) * 2 // 3],
        f"```json\n{good}\n```\nHope this helps!",
        good.replace("}", ",}"),
        "[]",
        '{"instructions": [1, 2, 3], "instruction": null, "name": 7, "arguments": [], "call": "ten"}',
        '{"name": "make_coffee", "arguments": {"city": "Oslo"}}',
        json.dumps({"instructions": ["get_forecast for <city>", "", "Is [CITY] in /path/to/file.txt?", "x" * 5000]}),
        json.dumps({"arguments": '{"city": 5}'} if step == "call" else {"instruction": "Use get_forecast. TODO"}),
        '{"name": "none"}',
    ]  # fmt: skip
    return forms[sum(map(ord, json.dumps(body["messages"]))) % len(forms)]


def test_a_weak_model_is_survived_and_everything_dropped_is_counted(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(lambda body: said(weak(body)))
    result = make(endpoint, tmp_path, filters=FILTERS, seed=3)
    report = result.report
    assert report["answers_of_this_run"]["repaired"] > 0 and report["answers_of_this_run"]["unusable"] > 0
    for name, step in steps(report).items():
        rows = lines(tmp_path, name)
        assert step["inputs"] == len(rows) and step["made"] == sum(len(r.made) for r in rows)
        assert sum(step["dropped"].values()) == sum(len(r.dropped) for r in rows)
        assert all(row.made or row.dropped for row in rows), "nothing vanishes without a reason"
    for call in result.calls:
        assert call.gold[0].arguments is not None and call.gold[0].arguments["city"] in call.query


def test_drop_reasons(serve: Serve, tmp_path: Path) -> None:
    rows = [
        "Is it wet in Oslo?",
        "is it wet in  OSLO",
        "Run get_forecast for Quito",
        "",
        "word " * 400,
        "Will [CITY] be dry on Sunday?",
    ]

    def reply(body: Body) -> Any:
        step, text = kind(body), request_in(body)
        if step == "generate":
            return said(json.dumps({"instructions": rows}))
        if step == "evolve":
            return said(json.dumps({"instruction": text}))
        if step == "call":
            return said(json.dumps({"name": "get_forecast", "arguments": {"city": "Atlantis", "days": 99}}))
        return said(well(body))

    result = make(serve(reply), tmp_path, [WEATHER], filters=("schema", "grounded"), instructions=9)
    found = {name: step["dropped"] for name, step in steps(result.report).items()}
    assert found["generate"] == {"repeated": 1, "names tool or server": 1, "empty": 1, "too long": 1}
    assert found["fill"] == {"placeholder": 1}
    assert found["evolve"] == {"unchanged": 1}
    assert found["schema"] == {"does not fit the schema": 1} and not result.calls


def test_a_refused_question_is_no_miss_of_the_tool(serve: Serve, tmp_path: Path) -> None:
    refusing = True

    def reply(body: Body) -> Any:
        if refusing and kind(body) == "choose" and "Ada asks about Oslo" in request_in(body):
            return 400, {"error": {"message": "content filter"}}, {}
        return said(well(body))

    endpoint = serve(reply)
    first = steps(make(endpoint, tmp_path, filters=("invocation",), depth=0).report)["invocation"]
    assert first["dropped"].keys() == {"refused by the endpoint"}
    refusing = False
    asked = len(endpoint.asked)
    again = steps(make(endpoint, tmp_path, filters=("invocation",), depth=0).report)["invocation"]
    assert not again["dropped"] and len(endpoint.asked) == asked + first["dropped"]["refused by the endpoint"]


@pytest.mark.parametrize("silent", [0, 1])
def test_a_model_that_was_not_asked_is_asked_again_whatever_the_other_says(
    silent: int, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def finds(self: Invocation, item: Draft, writer: Writer, turn: int) -> bool:
        raise NoAnswer(IN_VAIN if turn == silent else "unusable answer")

    monkeypatch.setattr(Invocation, "_finds", finds)
    found = steps(make(serve(), tmp_path, filters=("invocation",), depth=0).report)["invocation"]
    assert found["dropped"] == {IN_VAIN: found["inputs"]}


def test_a_translation_that_names_the_tool_is_made_anew_where_names_are_allowed(serve: Serve, tmp_path: Path) -> None:
    def reply(body: Body) -> Any:
        named = json.dumps({"instruction": f"{request_in(body)} Nimm archive_note_1."})
        return said(named if kind(body) == "translate" else well(body))

    endpoint, options = serve(reply), {"filters": ("schema",), "depth": 0, "languages": {"de": 1.0}}
    first = steps(make(endpoint, tmp_path, TOOLS[1:2], **options).report)["translate"]
    assert first["dropped"].keys() == {"names tool or server"}
    again = steps(make(endpoint, tmp_path, TOOLS[1:2], **options, allow_names=True).report)["translate"]
    assert again["made"] and not again["dropped"]


def test_values_come_from_the_environment_that_is_given(serve: Serve, files: Path, capsys: Any) -> None:
    local = files / "mine.json"
    local.write_text(json.dumps({"text": "the desk of a clerk", "files": ["ledgers/march_2031.csv"]}))
    asked = {"instructions": ["Is it wet in Oslo by /path/to/file.csv?", "Ask the harbour of Oslo what it will be."]}

    def reply(body: Body) -> Any:
        return said(json.dumps(asked) if kind(body) == "generate" else well(body))

    endpoint = serve(reply)
    words = [*command(endpoint, files, files / "out"), "--environment", str(local), "--depth", "0", "--json"]
    words[words.index("--filters") + 1] = "schema"
    assert execute(words) == 0
    report = json.loads(capsys.readouterr().out)
    calls = list(read_records(files / "out/calls.jsonl", Call))
    assert [c.query for c in calls if "march_2031" in c.query] == ["Is it wet in Oslo by ledgers/march_2031.csv?"] * 5
    assert report["placeholders_replaced"] == 5
    shown = [b["messages"][-1]["content"] for b in endpoint.asked if kind(b) == "fill"]
    assert all("the desk of a clerk; files: ledgers/march_2031.csv" in text for text in shown)
    # what the environment says may not be copied: with another one, lines of every step that looks are made anew
    local.write_text(json.dumps({"text": "ask the harbour of Oslo what it will be", "files": ["a/b_2031.csv"]}))
    assert execute(words) == 0
    found = steps(json.loads(capsys.readouterr().out))
    assert found["generate"]["dropped"] == {"copies the environment": 5} and found["fill"]["made"] == 5


@pytest.mark.parametrize(
    ("why", "answer"),
    [
        ("value lost", lambda text: json.dumps({"instruction": re.sub(r"\d+", "", f"Bitte {text}")})),
        ("unchanged", lambda text: json.dumps({"instruction": text.upper()})),
        ("unusable answer", lambda text: "Das kann ich nicht."),
        ("too long", lambda text: json.dumps({"instruction": f"{text} und so weiter" * 200})),
    ],
)
def test_where_a_translation_fails_the_instruction_stays(
    serve: Serve, tmp_path: Path, why: str, answer: Callable[[str], str]
) -> None:
    def reply(body: Body) -> Any:
        step = kind(body)
        if step == "repair" and "Answer with the request in" in body["messages"][1]["content"]:
            step = "translate"
        return said(answer(request_in(body)) if step == "translate" else well(body))

    result = make(serve(reply), tmp_path, filters=(), depth=0, languages={"de": 1.0})
    found = steps(result.report)["translate"]
    assert found["dropped"] == {why: 25} and found["made"] == 25 == len(result.calls)
    before = [d.text for line in lines(tmp_path, "fill") for d in line.made]
    assert {c.query for c in result.calls} == set(before) and {c.lang for c in result.calls} == {"en"}


@pytest.mark.parametrize(
    ("name", "value", "step", "reason"),
    [
        ("longest_instruction", 50, "generate", "too long"),
        ("copied_words", 3, "generate", "copies the description"),
        ("fill_shared_from", 1.0, "fill", "another instruction"),
        ("growth_words", 1, "evolve", "too long"),
    ],
)
def test_thresholds_of_the_making_are_settings(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: float, step: str, reason: str
) -> None:
    def reply(body: Body) -> Any:
        if kind(body) == "generate":
            return said(json.dumps({"instructions": ["Is Oslo wet? Kept by their author, I would like to know it."]}))
        if kind(body) == "fill":
            return said(json.dumps({"instruction": request_in(body).replace("like", "love")}))
        return said(well(body))

    endpoint = serve(reply)
    first = make(endpoint, tmp_path, filters=(), instructions=1).report
    assert reason not in steps(first)[step]["dropped"]
    monkeypatch.setenv(f"TOOLSCOUT_SYNTH_{name.upper()}", str(value))
    report = make(endpoint, tmp_path, filters=(), instructions=1).report
    assert steps(report)[step]["dropped"][reason] >= 4, "lines of before do not hold"
    assert report["thresholds"][name] == value


def test_a_wordy_judge_is_cut_and_not_thrown_away(serve: Serve, tmp_path: Path) -> None:
    verdict = json.dumps({"faults": "none at all " * 90, "instruction": 8, "call": 9})
    endpoint = serve(lambda body: said(verdict if kind(body) == "judge" else well(body)))
    found = steps(make(endpoint, tmp_path, filters=("judge",), depth=0).report)["judge"]
    assert found["made"] == 25 and endpoint.kinds()["judge"] == 25
    low = json.dumps({"faults": "x" * 900, "instruction": 2, "call": 9})
    endpoint.reply = lambda body: said(low if kind(body) == "judge" else well(body))
    make(endpoint, tmp_path / "low", filters=("judge",), depth=0)
    assert {len(d.detail) for line in lines(tmp_path / "low", "judge") for d in line.dropped} == {len("2: ") + 300}
    form = Verdict.model_json_schema()["properties"]["faults"]
    assert form == {"default": "", "maxLength": 300, "title": "Faults", "type": "string"}, "stored answers hold"


def test_too_few_other_tools_are_said(serve: Serve, tmp_path: Path) -> None:
    few = make(serve(), tmp_path / "few", TOOLS[:2], filters=("invocation",), depth=0).report
    assert few["remarks"][0].startswith("The filter invocation showed 10 of 10 instructions fewer than 2 other tools")
    assert make(serve(), tmp_path / "all", filters=("invocation",), depth=0).report["remarks"] == []


def test_a_revision_that_is_another_instruction(serve: Serve, tmp_path: Path) -> None:
    echo = json.dumps({"instruction": "The complete request as it should be"})
    endpoint = serve(lambda body: said(echo if kind(body) == "fill" else well(body)))
    result = make(endpoint, tmp_path, filters=(), depth=0)
    assert steps(result.report)["fill"] == {
        "step": "fill", "inputs": 25, "made": 0, "dropped": {"another instruction": 25}
    }  # fmt: skip


def test_what_may_not_be_shown_is_not_written_for(serve: Serve, tmp_path: Path) -> None:
    hidden = WEATHER.model_copy(update={"tool_id": "m/x/y", "review": Review.PENDING})
    twin = TOOLS[1].model_copy(update={"tool_id": "m/z/w"})
    found, left = subjects([*TOOLS, hidden, twin], SERVERS)
    assert {s.id for s in found} == {t.tool_id for t in TOOLS}
    assert left == {"not approved": 1, "defined like another": 1}
    others = [t.model_copy(update={"tool_id": f"other/{t.tool_id}", "name": "n"}) for t in TOOLS]
    more, _ = subjects([*others, *TOOLS], {})
    assert [s.id for s in more if not s.id.startswith("other/")] == [s.id for s in found], "the order does not move"


def test_a_run_that_is_stopped_by_hand_says_how_far_it_came(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stopped(self: Evolve, item: Draft) -> Outcome:
        raise KeyboardInterrupt

    monkeypatch.setattr(Evolve, "work", stopped)
    with pytest.raises(KeyboardInterrupt):
        make(serve(), tmp_path, filters=PLAIN)
    report = json.loads((tmp_path / "report.json").read_text())
    assert not report["finished"] and list(steps(report)) == ["generate", "fill"]


def test_a_line_cut_short_and_lines_of_others_are_made_anew(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve()
    make(endpoint, tmp_path, filters=PLAIN)
    whole = (tmp_path / "calls.jsonl").read_bytes()
    path = tmp_path / "05-call.jsonl"
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(rows[:20]) + "not JSON at all\n" + rows[21][:40])
    asked = len(endpoint.asked)
    make(endpoint, tmp_path, filters=PLAIN)
    assert (tmp_path / "calls.jsonl").read_bytes() == whole and len(endpoint.asked) == asked
    assert len(lines(tmp_path, "call")) == len(rows)


def test_one_run_a_folder(tmp_path: Path) -> None:
    with working_in(tmp_path), pytest.raises(BadInput, match="Another run"), working_in(tmp_path):
        pass


# -- the command line, killed


def command(endpoint: Endpoint, files: Path, out: Path, *more: str) -> list[str]:
    return [
        "synth", "calls", "--tools", str(files / "tools.jsonl"), "--servers", str(files / "servers.jsonl"),
        "--out", str(out), "--endpoint", endpoint.url, "--filters", "schema,grounded,duplicates,judge",
        "--concurrency", "3", *more,
    ]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write_records(tmp_path / "tools.jsonl", TOOLS)
    write_records(tmp_path / "servers.jsonl", SERVERS.values())
    return tmp_path


def test_killed_and_resumed_without_loss_or_repeats(serve: Serve, files: Path, capsys: Any) -> None:
    endpoint = serve(pause=0.02)
    out = files / "out"
    for after in (12, 60):  # while generating, and deep in the evolution
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
    assert (out / "calls.jsonl").read_bytes() == (files / "straight/calls.jsonl").read_bytes()
    straight = json.loads((files / "straight/report.json").read_text())
    assert report["steps"] == straight["steps"]
    assert report["spent"]["by_model"]["first-model"]["requests"] == len(quiet.asked), "each answer is booked once"
    for path in sorted(out.glob("0*.jsonl")):
        ids = [row.id for row in read_records(path, Line)]
        assert len(ids) == len(set(ids))


def test_what_the_command_line_says(serve: Serve, files: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = serve()
    assert execute(command(endpoint, files, files / "out")) == 0
    shown = capsys.readouterr().out
    assert "generate" in shown and "calls are in" in shown
    without = [w for w in command(endpoint, files, files / "o2") if w not in ("--endpoint", endpoint.url)]
    assert execute(without) == 2 and "--endpoint" in capsys.readouterr().err
    monkeypatch.setenv("TOOLSCOUT_SYNTH_MODEL_URL", endpoint.url)
    monkeypatch.setenv("TOOLSCOUT_SYNTH_DEPTH", "0")
    assert execute([*without, "--filters", "none", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [s["step"] for s in report["steps"]] == ["generate", "fill", "evolve", "translate", "call"]
    assert report["kept"]["by_level"] == {"0": 25}
    assert execute([*without, "--filters", "nonsense"]) == 2 and "no filter" in capsys.readouterr().err
    assert execute([*without, "--languages", "de"]) == 2 and "shares" in capsys.readouterr().err
    assert execute([*without, "--languages", "de=0.7,fr=0.7"]) == 2
    assert execute([*without, "--max-cost", "1"]) == 2 and "prices" in capsys.readouterr().err
    monkeypatch.setenv("TOOLSCOUT_SYNTH_RETRIES", "none")
    assert execute(without) == 2 and "retries" in capsys.readouterr().err


def test_drafts_read_back_as_they_were() -> None:
    draft = Draft(id="a", tool_id="t", text="x", arguments={"n": 1.0}, scores={"judge": 7})
    assert Draft.model_validate(json.loads(draft.to_json())) == draft
