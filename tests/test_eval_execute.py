"""``toolscout eval execute``: real calls through a real Toolscout to a server of ours, judged by checks and a model."""

from __future__ import annotations

import asyncio
import json
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from chat_endpoint import Body, ChatEndpoint, refused, said
from fastmcp import Client
from fastmcp.client.transports import ClientTransport, FastMCPTransport

from toolscout.cli import execute
from toolscout.errors import BadInput
from toolscout.records import JsonObject
from toolscout.server.app import App
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.settings import Settings
from toolscout.synth.trajectories.caller import Target

PATIENCE = 300.0
"""Seconds for a start, as long as a busy machine may take."""

SERVER = '''
import json, sys
from pathlib import Path

log = Path(sys.argv[1])


def note(line):
    with log.open("a") as file:
        file.write(line + "\\n")
    return log.read_text().splitlines().count(line)


def get_depth(pier):
    note(f"get_depth {pier}")
    return {"pier": pier, "depth": {"metres": 4.25, "sure": True}, "ships": ["Ada", "Bo"] if pier == "north" else []}


def find_ship(name):
    note(f"find_ship {name}")
    return f"The {name} <b>lies</b> at pier north, 1,204 tons." if name != "Ghost" else "No ships found"


def get_tide(pier):
    """Every second answer is lost."""
    if note(f"get_tide {pier}") % 2:
        raise RuntimeError("HTTP 503 Service Unavailable")
    return "high at 14:30"


def book_berth(pier):
    note(f"book_berth {pier}")
    return "booked"


TOOLS = {
    "get_depth": (get_depth, "pier", "The depth of the water at a pier, in metres.", True),
    "find_ship": (find_ship, "name", "Finds a ship by its name.", True),
    "get_tide": (get_tide, "pier", "The tide at a pier.", True),
    "book_berth": (book_berth, "pier", "Books a berth.", False),
}


def answer(method, params):
    if method == "initialize":
        about = {"name": "harbour", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "tools/list":
        return {"tools": [
            {"name": name, "description": text, "annotations": {"readOnlyHint": reads},
             "inputSchema": {"type": "object", "properties": {takes: {"type": "string"}}, "required": [takes]}}
            for name, (_, takes, text, reads) in TOOLS.items()
        ]}
    try:
        value = TOOLS[params["name"]][0](**params["arguments"])
    except RuntimeError as error:
        return {"content": [{"type": "text", "text": f"Error: {error}"}], "isError": True}
    if isinstance(value, dict):
        return {"content": [{"type": "text", "text": json.dumps(value)}], "structuredContent": value}
    return {"content": [{"type": "text", "text": value}]}


for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    known = asked["method"] in ("initialize", "tools/list", "tools/call")
    told = {"result": answer(asked["method"], asked.get("params"))} if known else {
        "error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **told}), flush=True)
'''
"""Only the standard library: it starts in no time, and twice for each test."""


class Endpoint(ChatEndpoint):
    """Judges, strictly where the request says so."""

    def __init__(self) -> None:
        super().__init__(self.judge)

    def judge(self, body: Body) -> Any:
        asked = body["messages"][-1]["content"]
        return said(json.dumps({"score": 2 if "Ghost" in asked or "strictly" in asked else 9, "why": "so it seems"}))


class Inside(ClientTransport):
    """The Toolscout under test in this process, its upstream a real one: a process less to wait for."""

    def __init__(self, target: Target) -> None:
        given = {name.removeprefix("TOOLSCOUT_").lower(): value for name, value in target.env.items()}
        self.settings = Settings.model_validate({"home": target.home, "starter": False, **given})

    @asynccontextmanager
    async def connect_session(self, **options: Any) -> AsyncIterator[Any]:
        async with (
            Engine(self.settings) as engine,
            FastMCPTransport(App(engine).fastmcp).connect_session(**options) as s,
        ):
            yield s


@pytest.fixture
def inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls go to a Toolscout in this process."""
    monkeypatch.setattr(Target, "client", lambda self: Client(Inside(self), mode="auto"))


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the harbour's tools listed; ``calls.log`` in it has a line for each call."""
    home = tmp_path_factory.mktemp("harbour")
    (home / "harbour.py").write_text(SERVER)
    settings = Settings(home=home, starter=False, upstream_start_timeout=PATIENCE)
    entry = UpstreamConfig.stdio(
        "harbour", sys.executable, ["-I", "-S", str(home / "harbour.py"), str(home / "calls.log")]
    )
    ServersFile(settings.servers_file).add(entry)

    async def main() -> None:
        async with Engine(settings) as engine:
            await engine.refresh_server("harbour")

    asyncio.run(main())
    return home


def gold(tool: str, id: str | None = None, after: tuple[str, ...] = (), /, **arguments: Any) -> JsonObject:
    call: JsonObject = {"tool_id": f"harbour/{tool}", "arguments": arguments, "depends_on": list(after)}
    return call | ({"id": id} if id else {})


def row(id: str, *calls: JsonObject, expect: Any = None, query: str = "", split: str = "all") -> JsonObject:
    found = {"id": id, "query": query or f"What of {id}?", "gold": list(calls), "split": split}
    return found if expect is None else found | {"expect": expect}


ROWS = [
    row("depth", gold("get_depth", pier="north"), expect=[
        {"path": "$.depth.metres", "equals": 4.25}, {"path": "$.ships[1]", "equals": "Bo"}, {"path": "$.depth.sure"},
        {"number": 4, "within": 0.3}, {"no_error": True},
    ]),
    row("ship", gold("find_ship", name="Ada"), expect={"contains": ["the ada", "PIER north"]}, query="strictly, Ada?"),
    row("tons", gold("find_ship", name="Bo"), expect={"number": 1204}),
    row("wrong", gold("get_depth", pier="south"), expect={"path": "$.ships[0]", "equals": "Ada"}, split="other",
        query="What <b>lies</b> at south?"),
    row("tide", gold("get_tide", pier="north"), expect={"contains": "14:30"}, split="other"),
    row("chain", gold("find_ship", "b", ("a",), name="$a.ships[0]"), gold("get_depth", "a", pier="north"),
        expect=[{"contains": "Ada"}, {"number": 4.25, "of": "any"}], split="other"),
    row("ghost", gold("find_ship", name="Ghost"), expect={"no_error": True}, split="other"),
    row("open", gold("find_ship", name="Cy")),
    row("haunted", gold("find_ship", name="Ghost")),
    row("booking", gold("book_berth", pier="north"), expect={"no_error": True}),
    row("nothing"),
    row("unknown", gold("sink_ship", name="Ada"), expect={"no_error": True}),
]  # fmt: skip


def write(path: Path, rows: list[JsonObject]) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in rows), "utf-8")
    return path


def run(home: Path, folder: Path, rows: list[JsonObject], *more: str) -> JsonObject:
    calls, out = write(folder / "calls.jsonl", rows), folder / "out.json"
    options = ["--home", str(home), "--json", str(out), "--report", str(folder / "report"), "--quiet"]
    options += ["--set", f"upstream_start_timeout={PATIENCE}"]
    assert execute(["eval", "execute", "--calls", str(calls), *options, *more]) == 0
    result: JsonObject = json.loads(out.read_text())
    return result


def called(home: Path) -> Counter[str]:
    log = home / "calls.log"
    return Counter(log.read_text().splitlines() if log.exists() else ())


@pytest.mark.usefixtures("inside")
def test_gold_calls_judged_by_checks_and_by_a_model(serve: Any, harbour: Path, tmp_path: Path) -> None:
    endpoint, before = serve(), called(harbour)
    options = ["--gold", "--trials", "4", "--judge-url", endpoint.url, "--calls-at-once", "1"]
    result = run(harbour, tmp_path, ROWS, *options)
    assert result["left_out"] == {
        "with a gold call that may write (--writes makes it)": 1, "without gold": 1,
        "with a gold tool that is unknown or not approved": 1,
    }  # fmt: skip
    assert (result["rows"], result["n"], result["trials"], result["calls_from"]) == (9, 9, 4, "gold")
    assert result["judge"] == "first-model" and result["judged"] == {"by_rules": 7, "by_model": 2, "not": 0}
    # passed of four trials: depth, ship, tons, chain, ghost and open 4, tide 2 (every second), the others 0
    assert result["pass"]["pass@1"] == round(6.5 / 9, 4)
    assert result["pass"]["pass@2"] == round((6 + 1 - 1 / 6) / 9, 4)
    assert result["pass"]["pass@4"] == result["any_of"]["4"] == round(7 / 9, 4)
    assert result["any_of"]["1"] == round(6 / 9, 4), "the first answer about the tide is lost"
    assert result["by_split"]["other"]["pass"]["pass@4"] == 0.75
    assert result["failures"] == {"wrong outcome": 8, "api_error": 2}
    calls = result["calls"]
    assert calls["made"] == 40 and calls["by_cause"] == {"api_error": 2, "empty_result": 8}
    assert calls["went_well"] == 30 and calls["success_rate"] == 0.75
    assert result["by_server"]["harbour"] == calls and result["by_tool"]["harbour/get_tide"]["by_cause"] == {
        "api_error": 2
    }
    # the judge saw the 26 trials of rows with checks whose calls did not fail
    agreed = result["agreement"]
    assert {k: agreed[k] for k in ("n", "rows", "both_pass", "only_rule", "only_model", "both_fail")} == {
        "n": 26, "rows": 7, "both_pass": 14, "only_rule": 8, "only_model": 4, "both_fail": 0,
    }  # fmt: skip
    rule, model = 22 / 26, 18 / 26
    chance = rule * model + (1 - rule) * (1 - model)
    assert agreed["share"] == round(14 / 26, 4)
    assert agreed["kappa"] == pytest.approx((14 / 26 - chance) / (1 - chance), abs=1e-4)

    page = (tmp_path / "report" / "report.html").read_text()
    assert "<h2>Pass@K and calls</h2>" in page
    assert "&lt;b&gt;lies&lt;/b&gt;" in page and "<b>lies" not in page and "kappa" in page
    trials = [json.loads(line) for line in (tmp_path / "report" / "rows.jsonl").read_text().splitlines()]
    assert len(trials) == 36 and trials[0]["steps"][0]["answer"]
    wrong = next(t for t in trials if t["id"] == "wrong")
    assert wrong["passed"] is False and wrong["model"] is True and "does not hold" in wrong["why"]

    # a run more calls nothing and asks nothing, and comes to the same
    asked, made = len(endpoint.asked), called(harbour)
    assert (made - before).total() == 40
    assert run(harbour, tmp_path, ROWS, *options) == result
    assert (len(endpoint.asked), called(harbour)) == (asked, made)
    # what failed is made again on demand, and only that
    again = run(harbour, tmp_path, ROWS, *options, "--again", "api_error")
    assert called(harbour) - made == {"get_tide north": 2} and again["calls"]["by_cause"] != calls["by_cause"]


@pytest.mark.usefixtures("inside")
def test_a_content_filter_refuses_one_question(serve: Any, harbour: Path, tmp_path: Path, capsys: Any) -> None:
    """Once it ended the command, at that row at every run."""
    endpoint = serve()
    judge = endpoint.reply

    def reply(body: Body) -> Any:
        asked = json.dumps(body["messages"])
        if "Borealis" in asked:
            return refused("The response was filtered by the content management policy", 400)
        if "Dione" in asked:
            silent = {"message": {"content": None, "refusal": "No."}, "finish_reason": "content_filter"}
            return 200, {"choices": [silent]}
        return judge(body)

    endpoint.reply = reply
    rows = [row(name, gold("find_ship", name=name)) for name in ("Ada", "Borealis", "Cy")]
    rows.append(row("Dione", gold("find_ship", name="Dione"), expect={"contains": "dione"}))
    options = ["--gold", "--trials", "1", "--judge-url", endpoint.url]
    result = run(harbour, tmp_path, rows, *options)
    assert result["unjudged"] == {"refused by the endpoint": 1, "unusable answer": 1}
    assert result["judged"] == {"by_rules": 1, "by_model": 2, "not": 1} and result["n"] == 3
    page = (tmp_path / "report" / "report.html").read_text()
    assert "1 refused by the endpoint, 1 unusable answer" in page and "without the judge" in page
    assert '"unjudged": "refused by the endpoint"' in (tmp_path / "report" / "rows.jsonl").read_text()
    # the next run asks again only what was refused, and a judge that takes it now is believed
    endpoint.reply, asked = judge, len(endpoint.asked)
    again = run(harbour, tmp_path, rows, *options)
    assert len(endpoint.asked) == asked + 1 and again["judged"]["not"] == 0
    # one that takes nothing is none
    endpoint.reply = lambda body: refused("no such parameter")
    calls = write(tmp_path / "more.jsonl", rows[:2])
    line = ["eval", "execute", "--calls", str(calls), "--home", str(harbour), "--quiet", "--gold", "--trials", "1"]
    assert execute([*line, "--judge-url", endpoint.url, "--set", f"upstream_start_timeout={PATIENCE}"]) == 6
    assert "The judge cannot be asked" in capsys.readouterr().err


@pytest.mark.usefixtures("inside")
def test_given_answers(harbour: Path, tmp_path: Path) -> None:
    rows = [one for one in ROWS if one["id"] in ("depth", "ship", "tons", "chain", "open")]
    answers = write(
        tmp_path / "answers.jsonl",
        [
            {"id": "depth", "calls": [gold("get_depth", pier="north")]},
            {"id": "ship", "calls": [gold("find_ship", name="Bo")]},
            {"id": "ship", "calls": [gold("find_ship", name="Ada")]},
            {"id": "tons", "calls": [gold("book_berth", pier="x")]},
            {"id": "chain", "calls": [gold("get_depth", "1"), gold("find_ship", "2", ("1",), name="$1.ships[0]")]},
        ],
    )
    before = called(harbour)
    result = run(harbour, tmp_path, rows, "--answers", str(answers), "--trials", "2")
    assert result["n"] == 4 and result["judged"]["not"] == 1
    assert result["pass"] == {"pass@1": 0.375, "pass@2": 0.5}, "of ship the second answer is right"
    assert result["failures"] == {"not made: may write": 2, "parameter_error": 2, "no calls": 2, "wrong outcome": 1}
    assert result["answered"] == 0.8 and result["calls"]["skipped"] == 2
    assert not any(line.startswith("book_berth") for line in called(harbour) - before)
    assert execute(["eval", "execute", "--calls", str(tmp_path / "calls.jsonl"), "--home", str(harbour), "--answers",
                    str(answers), "--trials", "3"]) == 2  # fmt: skip


class Writes(ChatEndpoint):
    """Writes calls as a chat model does that is asked for them under a schema."""


@pytest.mark.slow
@pytest.mark.usefixtures("inside")
def test_suggested_calls(harbour: Path, tmp_path: Path, capsys: Any) -> None:
    def reply(body: Body) -> Any:
        text = json.dumps(body["messages"])
        pier = "north" if "north pier" in text else "south"
        return said(json.dumps({"name": "get_depth", "arguments": {"pier": pier}}))

    rows = [
        row("n", gold("get_depth", pier="north"), query="How deep is the water at north pier?",
            expect={"path": "$.pier", "equals": "north"}) | {"candidates": ["harbour/get_depth"]},
        row("s", gold("get_depth", pier="west"), query="How deep is the water at the pier called 'south'?",
            expect={"path": "$.pier", "equals": "west"}) | {"candidates": ["harbour/get_depth"]},
    ]  # fmt: skip
    with Writes(reply) as endpoint:
        result = run(harbour, tmp_path, rows, "--model-url", endpoint.url, "--model", "first-model", "--trials", "2")
        assert result["calls_from"] == "model" and result["model"]
        assert result["pass"] == {"pass@1": 0.5, "pass@2": 0.5} and result["failures"] == {"wrong outcome": 2}
        asked = len(endpoint.asked)
        assert asked >= 4, "an endpoint is asked for each trial"
        run(harbour, tmp_path, rows, "--model-url", endpoint.url, "--model", "first-model", "--trials", "2")
        assert len(endpoint.asked) == asked
    calls = str(tmp_path / "calls.jsonl")
    assert execute(["eval", "execute", "--calls", calls, "--home", str(harbour), "--gold", "--work",
                    str(tmp_path / "out.json.work")]) == 2  # fmt: skip
    assert "holds another run" in capsys.readouterr().err


def test_whose_calls_are_gone_on_with_and_what_the_toolscout_gets(
    harbour: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The weights of the home that is called through count, not those of the caller's own; keys are written nowhere."""
    seen: list[tuple[JsonObject, Any]] = []

    async def never(rows: Any, source: Any, caller: Any, *_: Any, **__: Any) -> Any:
        seen.append((source.header(), dict(caller.target.env)))
        raise BadInput("That is enough.")

    monkeypatch.setattr("toolscout.eval.execute.measure.measure_execution", never)
    weights = tmp_path / "adapter.gguf"
    weights.write_bytes(b"GGUF one")
    calls = write(tmp_path / "calls.jsonl", [one for one in ROWS if one["id"] == "depth"])
    line = ["eval", "execute", "--calls", str(calls), "--home", str(harbour), "--quiet", "--model", str(weights)]

    def header(*more: str) -> JsonObject:
        assert execute([*line, *more]) == 2
        assert "That is enough" in capsys.readouterr().err
        return seen[-1][0]

    first = header("--set", "TOOLSCOUT_PROBE_OFFERS=1", "--set", "model_key=hush")
    assert seen[-1][1] == {
        "TOOLSCOUT_PROBE_OFFERS": "1", "TOOLSCOUT_MODEL_KEY": "hush", "TOOLSCOUT_MODEL": str(weights),
    }  # fmt: skip
    assert header("--set", "probe_offers=1") == first and "hush" not in json.dumps(first)
    assert header("--set", "probe_offers=1", "--set", "model_temperature=0.7") != first
    monkeypatch.setenv("TOOLSCOUT_PROBE_OFFERS", "1")  # the Toolscout that is started has this, too
    assert header() == first
    monkeypatch.setenv("TOOLSCOUT_MODEL_PROMPT", "style=full")
    assert header() != first
    monkeypatch.delenv("TOOLSCOUT_MODEL_PROMPT")
    weights.write_bytes(b"GGUF two")
    assert header("--set", "probe_offers=1") != first
    assert execute([*line, "--set", "home=elsewhere"]) == 2
    assert "would not hold: this command decides home" in capsys.readouterr().err


@pytest.mark.slow
def test_through_a_served_toolscout(harbour: Path, tmp_path: Path, capsys: Any) -> None:
    """As users have it: a ``toolscout serve`` of its own. Without a model nothing is suggested, and that is said."""
    rows = [one | {"candidates": ["harbour/get_depth"]} for one in ROWS if one["id"] in ("depth", "tons")]
    result = run(harbour, tmp_path, rows, "--gold", "--trials", "1")
    assert result["pass"] == {"pass@1": 1.0} and result["probes"] is None
    calls = str(tmp_path / "calls.jsonl")
    assert execute(["eval", "execute", "--calls", calls, "--home", str(harbour), "--quiet"]) == 6
    assert "No model answered" in capsys.readouterr().err
