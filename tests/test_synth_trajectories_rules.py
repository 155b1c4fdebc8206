"""The rules of trajectories by themselves: root causes, references, what may write, what is recorded."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import CallToolResult, EmbeddedResource, ImageContent, TextContent, TextResourceContents
from test_invoke import World

from toolscout.causes import Cause, cause_of
from toolscout.errors import StorageError, UpstreamError
from toolscout.index.acts import act_of
from toolscout.records import Call, GoldCall, JsonObject, Tool
from toolscout.responses import Response, response_of
from toolscout.settings import Settings
from toolscout.synth.bench import Bench
from toolscout.synth.settings import synth_settings
from toolscout.synth.trajectories.executions import Executions, execution_key
from toolscout.synth.trajectories.pipeline import make_trajectories
from toolscout.synth.trajectories.references import fitted, look_up, read_reference, references, stands_in
from toolscout.synth.trajectories.run import Run, StepRun, draft_of_row, in_order, trajectory


def failed(text: str) -> str:
    verdict = cause_of(Response(text=text, is_error=True))
    assert verdict is not None
    return f"{verdict.cause}/{verdict.rule}"


# -- root causes


@pytest.fixture
async def world(settings: Settings) -> AsyncIterator[World]:
    world = World(settings)
    yield world
    await world.pool.close()


@pytest.mark.parametrize(
    ("tool_id", "arguments", "seconds", "cause"),
    [
        ("tiny/echo", {"txt": 1}, None, "parameter_error/arguments_refused"),
        ("tiny/echo", "{broken", None, "parameter_error/arguments_refused"),
        ("tiny/nope", {}, None, "parameter_error/refused_parameters"),
        ("tiny/ecko", {}, None, "not_callable/unknown_tool"),
        ("unlisted/x", {}, None, "not_callable/unknown_tool"),
        ("far/x", {}, None, "not_callable/not_installed"),
        ("keyed/x", {}, None, "not_callable/needs_key"),
        ("wants/echo", {}, None, "not_callable/needs_key"),
        ("down/x", {}, None, "not_callable/unavailable"),
        ("bad/x", {}, None, "not_callable/not_approved"),
        ("tiny/changed", {}, None, "not_callable/not_approved"),
        ("tiny/blocked", {}, None, "not_callable/not_approved"),
        ("tiny/hang", {}, 0.2, "session_error/timeout"),
        ("tiny/crash", {}, None, "session_error/crashed"),
        ("tiny/big", {"bytes": 1_000_000}, None, "runtime_error/too_large"),
        ("tiny/bad", {}, None, "session_error/no_tool_result"),
        ("tiny/fail", {}, None, "other_error/no_reason_given"),
    ],
)
async def test_what_invoke_itself_says(
    world: World, tool_id: str, arguments: Any, seconds: float | None, cause: str
) -> None:
    result = await world.invoker.invoke(tool_id, arguments, timeout_s=seconds)
    assert isinstance(result, CallToolResult)
    assert failed(response_of(result).text) == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("Request failed with status code 429", "api_error/quota"),
        ("You exceeded your rate limit, try again in 20 s", "api_error/quota"),
        ("HTTP 401: Unauthorized", "api_error/unauthorized"),
        ("Please set the GITHUB API key in your environment", "api_error/unauthorized"),
        ("WEATHER_API_KEY is required: the api_key is missing", "api_error/unauthorized"),
        ("API returned status 404 for /users/zzz", "api_error/not_found"),
        ("City 'Atlantis' not found", "api_error/not_found"),
        ("ENOENT: no such file or directory, open 'a.txt'", "api_error/not_found"),
        ("status: 503 Service Unavailable", "api_error/server_error"),
        ("connect ECONNREFUSED 127.0.0.1:5432", "api_error/network"),
        ("[Errno -2] Name or service not known (getaddrinfo)", "api_error/network"),
        ("504 Gateway Timeout", "api_error/http_timeout"),
        ("Error: HTTP status 400", "parameter_error/bad_request"),
        ("1 validation error for call[get_x]\nlimit\n  Input should be a valid integer", "parameter_error/validation"),
        ("MCP error -32602: Input validation error", "parameter_error/validation"),
        ("date must be in the form YYYY-MM-DD", "parameter_error/validation"),
        ("foo() got an unexpected keyword argument 'bar'", "parameter_error/validation"),
        ("Target page, context or browser has been closed", "session_error/session"),
        ("No active session: call start first", "session_error/session"),
        ("The operation timed out", "session_error/timeout"),
        ("TypeError: Cannot read properties of undefined (reading 'map')", "runtime_error/exception"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'a'", "runtime_error/exception"),
        ("ModuleNotFoundError: No module named 'frobnicate'", "runtime_error/exception"),
        ("oh dear", "other_error/no_reason_given"),
        ("", "other_error/no_reason_given"),
        # words of a tool that look like ours
        ("'city' needs to be a string, and is required", "parameter_error/validation"),
    ],
)
def test_what_tools_say(text: str, cause: str) -> None:
    assert failed(text) == cause


@pytest.mark.parametrize(
    ("response", "cause"),
    [
        (Response(text="Error: rate limit reached"), "api_error/quota"),
        (Response(text="❌ Failed to fetch: HTTP 500"), "api_error/server_error"),
        (Response(text='{"success": false, "message": "invalid argument: n"}'), "parameter_error/validation"),
        (
            Response(text="Invalid timezone: 'No time zone found with key America/Riyadh'", is_error=True),
            "parameter_error/validation",
        ),
        (Response(text='{"error": {"code": 403, "message": "forbidden"}}'), "api_error/unauthorized"),
        (Response(structured={"result": {"status": "error", "detail": "boom"}}), "other_error/no_reason_given"),
        (Response(), "empty_result/no_content"),
        (Response(text="  \n"), "empty_result/no_content"),
        (Response(text="[]"), "empty_result/empty_json"),
        (Response(text="null"), "empty_result/null"),
        (Response(text="No matching issues were found."), "empty_result/says_nothing_found"),
        (Response(text="Found 0 results for your search"), "empty_result/says_nothing_found"),
        (Response(structured={"result": []}), "empty_result/empty_json"),
        (Response(structured={"result": ""}), "empty_result/no_content"),
        (Response(structured={"result": None}), "empty_result/null"),
        (Response(text='{"query": "Moss", "total": 0, "items": []}'), "empty_result/empty_lists"),
        (Response(text='{"status": "ok", "data": {"hits": []}}'), "empty_result/empty_lists"),
        (Response(text="gone", lost="timeout"), "session_error/no_answer_in_time"),
        (Response(text="gone", lost="connection"), "session_error/connection_lost"),
        (Response(text="it went well"), None),
        (Response(text="0"), None),
        (Response(structured={"result": 0}), None),
        (Response(structured={"result": False}), None),
        (Response(text='{"total": 3, "tags": [], "name": "x"}'), None),
        (Response(text='{"error": null, "value": 4}'), None),
        (Response(text="[image/png, 900 bytes]"), None),
        (Response(text="No. 5 by Chanel costs 90 euros"), None),
        (Response(text="Error handling in Rust\n" + "A long page about errors. " * 40), None),
    ],
)
def test_results_that_are_not_declared_errors(response: Response, cause: str | None) -> None:
    verdict = cause_of(response, {"q": "moss"})
    assert (f"{verdict.cause}/{verdict.rule}" if verdict else None) == cause


def test_an_empty_answer_of_what_writes_is_no_failure() -> None:
    assert cause_of(Response(), writes=True) is None
    assert cause_of(Response(text="Error: HTTP 500"), writes=True) is not None


@given(st.text(max_size=300), st.booleans())
def test_any_text_has_a_verdict_and_never_breaks(text: str, is_error: bool) -> None:
    verdict = cause_of(Response(text=text, is_error=is_error), {"a": text})
    assert verdict is not None or not is_error
    assert verdict is None or (verdict.cause in Cause and len(verdict.evidence) <= 160)


# -- references


@pytest.mark.parametrize(
    ("text", "step", "path"),
    [
        ("$1", "1", ()),
        ("$1.id", "1", ("id",)),
        ("$a.rows[0].n", "a", ("rows", 0, "n")),
        ("$1[0].id", "1", (0, "id")),
        ("$step-2.data.docs_entities[0].token", "step-2", ("data", "docs_entities", 0, "token")),
    ],
)
def test_references_are_read(text: str, step: str, path: tuple[str | int, ...]) -> None:
    found = read_reference(text)
    assert found is not None and (found.step, found.path) == (step, path)


@pytest.mark.parametrize("value", ["1.id", "costs $1", "$1.50 or so", "$", "$1..a", "$1.a b", 5, None])
def test_what_is_no_reference(value: object) -> None:
    assert read_reference(value) is None
    assert read_reference("$HOME", ["1"]) is None


def test_references_are_found_anywhere() -> None:
    value = {"a": ["$1.x", {"b": "$2"}], "c": "$9"}
    assert [r.text for r in references(value, ["1", "2"])] == ["$1.x", "$2"]


DEEP = {"result": {"Items": [{"item_id": 4, "name": "n", "tags": ["t"]}], "next": None}}


@pytest.mark.parametrize(
    ("response", "path", "value", "how"),
    [
        (Response(structured={"a": {"b": [1, 2]}}), ("a", "b", 1), 2, "exact"),
        (Response(text='{"a": 1}'), ("a",), 1, "exact"),
        (Response(text="prose", structured={"a": 1}), ("a",), 1, "exact"),
        (Response(text='[{"id": 7}]'), (0, "id"), 7, "exact"),
        (Response(structured=DEEP), ("items", 0, "itemId"), 4, "alike"),
        (Response(structured=DEEP), ("items", "itemId"), 4, "alike"),
        (Response(text=json.dumps(DEEP)), ("data", "items", 0, "name"), "n", "alike"),
        (Response(structured={"result": '{"id": "x"}'}), ("id",), "x", "alike"),
        (Response(structured={"x": {"y": {"token": "t"}}}), ("docs", 0, "token"), "t", "found"),
        (Response(text="all of it"), (), "all of it", "exact"),
        (Response(text="5", structured={"result": 5}), (), 5, "exact"),
    ],
)
def test_values_are_looked_up(response: Response, path: tuple[str | int, ...], value: Any, how: str) -> None:
    assert look_up(response, path) == (value, how)


@pytest.mark.parametrize(
    ("response", "path"),
    [
        (Response(text="prose"), ("id",)),
        (Response(structured={"a": [{"id": 1}, {"id": 2}]}), ("b", "id")),
        (Response(structured={"a": []}), ("a", 0)),
        (Response(structured={"a": None}), ("a",)),
        (Response(text="{broken"), ("a",)),
    ],
)
def test_what_cannot_be_looked_up(response: Response, path: tuple[str | int, ...]) -> None:
    assert look_up(response, path) is None


@pytest.mark.parametrize(
    ("value", "kind", "fits"),
    [
        (42, "string", "42"),
        ("42", "integer", 42),
        ("4.5", "number", 4.5),
        ("4.5", "integer", "4.5"),
        ("x", "integer", "x"),
        (True, "string", True),
        ({"a": 1}, "string", '{"a": 1}'),
        (42, ["string", "null"], 42),
        ("true", "integer", "true"),
        ("x", None, "x"),
    ],
)
def test_values_are_fitted_where_that_leaves_no_doubt(value: Any, kind: Any, fits: Any) -> None:
    assert fitted(value, {"type": kind} if kind else {}) == fits


def test_a_read_value_has_to_stand_in_the_result() -> None:
    text = "Kept by Ada Moss in room 40."
    assert stands_in("ada moss", text) and stands_in(40, text) and stands_in(["Ada", {"n": 40}], text)
    assert not any(stands_in(v, text) for v in ("Ada Mossy", 4, "", None, True, [], ["Ada", "Eve"]))


# -- what may write


@pytest.mark.parametrize(
    ("name", "hints", "description", "writes"),
    [
        ("get_weather", None, "", False),
        ("listIssues", None, "", False),
        ("github_search_code", None, "", False),
        ("create_issue", None, "", True),
        ("deleteRepo", None, "", True),
        ("policies_create", None, "", True),
        ("get_update", None, "", False),
        ("forecasts", None, "Returns what comes.", True),
        ("weather", None, "Fetches the weather.", False),
        ("weather", None, "Sends the weather.", True),
        ("frobnicate", None, "", True),
        ("frobnicate", {"readOnlyHint": True}, "", False),
        ("frobnicate", {"readOnlyHint": True, "destructiveHint": True}, "", False),
        ("delete_all", {"readOnlyHint": True}, "", True),
        ("get_weather", {"readOnlyHint": False}, "", True),
        ("get_weather", {"destructiveHint": True}, "", True),
        ("get_weather", {"destructiveHint": False}, "", False),
    ],
)
def test_what_a_tool_does(name: str, hints: Any, description: str, writes: bool) -> None:
    tool = Tool(tool_id=f"s/{name}", server_id="s", name=name, description=description, annotations=hints)
    assert act_of(tool).writes is writes, act_of(tool)


# -- what is recorded


def test_a_response_says_what_it_holds_and_what_was_cut() -> None:
    blocks = [
        TextContent(type="text", text="a\ud800"),
        ImageContent(type="image", data="AAAA", mime_type="image/png"),
        EmbeddedResource(type="resource", resource=TextResourceContents(uri="file:///x", text="inner")),
    ]
    response = response_of(CallToolResult(content=blocks, structured_content={"n": None}))
    assert response.text == "a\ufffd\n[image/png, 3 bytes]\ninner" and response.structured == {"n": None}
    long = Response(text="x" * 500, structured={"a": "y" * 500}, size=1000)
    short = long.within(100)
    assert short.cut and short.structured is None and short.text.endswith("[cut here: 100 of 500 characters]")
    assert long.within(1000) is long
    assert Response(structured={"a": 1}).shown(100) == '{"a": 1}'


def test_steps_are_ordered_by_what_they_depend_on() -> None:
    steps = [StepRun(id=i, tool_id="s/t", depends_on=d) for i, d in (("c", ["b"]), ("b", ["a"]), ("a", []), ("x", []))]
    ordered = in_order(steps)
    assert ordered is not None and [(s.id, s.level) for s in ordered] == [("a", 0), ("x", 0), ("b", 1), ("c", 2)]
    assert in_order([StepRun(id="a", tool_id="s/t", depends_on=["a"])]) is None


def test_a_run_goes_through_a_draft_unchanged_and_becomes_a_record() -> None:
    tools = {f"{s}/go": Tool(tool_id=f"{s}/go", server_id=s, name="go") for s in ("one", "two")}
    call = Call(
        id="r",
        query="q",
        gold=[
            GoldCall(tool_id="one/go", arguments={"a": None, "b": [1]}),
            GoldCall(tool_id="two/go", arguments={"c": "$1.x"}),
        ],
    )
    draft = draft_of_row(call, tools)
    run = Run.of(draft)
    assert run.steps[1].depends_on == ["1"] and run.steps[0].arguments == {"a": None, "b": [1]}
    run.steps = in_order(run.steps) or []
    for step in run.steps:
        step.sent, step.response = step.arguments, Response(text="t", structured={"z": None})
    run.answer = "done"
    carried = run.into(draft, judge=7.0)
    assert Run.of(carried) == run and carried.scores == {"judge": 7.0}
    record = trajectory(carried, tools, 100)
    names = [c["function"]["name"] for m in record.messages for c in m.get("tool_calls", ())]
    assert names == ["one_go", "two_go"], "names of functions are distinct and plain"
    assert json.loads(record.to_json())["calls"][0]["response"]["structuredContent"] == {"z": None}


def test_executions_know_three_kinds_of_calls(tmp_path: Path) -> None:
    tool = Tool(tool_id="s/t", server_id="s", name="t")
    keys = [execution_key("r", str(n), tool, {"n": n}) for n in range(3)]
    store = Executions(tmp_path / "e.db")
    store.send(keys[1], "r", "1", "s/t", {"n": 1})
    store.send(keys[2], "r", "2", "s/t", {"n": "\ud800"})
    store.done(keys[2], Response(text="gone", is_error=True, lost="timeout"), 1.5, "session_error")
    store.close()
    store = Executions(tmp_path / "e.db")
    assert [store.state(k)[0] for k in keys] == [False, True, True]
    assert store.state(keys[1])[1] is None
    assert store.state(keys[2])[1:] == (Response(text="gone", is_error=True, lost="timeout"), 1.5)
    assert store.forget(["session_error"], {"other/t"}) == [] and store.forget(["session_error"], {"s/t"}) == ["r"]
    assert store.state(keys[2]) == (False, None, 0.0)
    store.close()
    assert execution_key("r", "1", tool, {"n": 1}) != execution_key(
        "r", "1", tool.model_copy(update={"description": "d"}), {"n": 1}
    )


def test_a_store_of_executions_that_is_broken_says_so(tmp_path: Path) -> None:
    store = Executions(tmp_path / "e.db")
    store.send("k", "r", "1", "s/t", {})
    store._db.execute("UPDATE execution SET response = 'no JSON'")
    with pytest.raises(StorageError, match="holds a response that cannot be read"):
        store.state("k")
    store._db.execute("DROP TABLE execution")
    with pytest.raises(StorageError, match="cannot be read: no such table"):
        store.state("k")
    with pytest.raises(StorageError, match="cannot be read"):
        store.forget(["api_error"], ["s/t"])


class Breaks:
    """In place of a `Caller`: answers some calls, then cannot be reached."""

    def __init__(self, answers: int) -> None:
        self.answers = answers

    async def ready(self) -> None:
        if not self.answers:
            raise UpstreamError("The server cannot be reached.")
        self.answers -= 1

    async def call(self, tool_id: str, arguments: JsonObject) -> Response:
        return Response(text=f"Here is {arguments['city']}.")


async def test_a_run_that_is_stopped_while_it_executes_says_what_was_executed(tmp_path: Path) -> None:
    tool = Tool(tool_id="s/get_city", server_id="s", name="get_city", description="Reads a city's page.")
    rows = [
        Call(id=f"r{n}", query=f"Read {n}.", gold=[GoldCall(tool_id="s/get_city", arguments={"city": f"c{n}"})])
        for n in range(5)
    ]
    bench = Bench({tool.tool_id: tool}, {}, synth_settings(calls_at_once=1))
    for answers, whole in ((3, False), (5, True)):
        caller = cast(Any, Breaks(answers))
        try:
            await make_trajectories(rows, bench, caller, tmp_path)
        except UpstreamError:
            assert not whole
        report = json.loads((tmp_path / "report.json").read_text())
        assert report["finished"] == whole and report["inputs"] == 5
        assert report["executed"]["calls"] == report["executed"]["went_well"] == (5 if whole else 3)
