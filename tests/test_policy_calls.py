"""A policy as clients meet it: real upstream processes, both protocol eras, in process, over stdio and over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.client.transports import StdioTransport, StreamableHttpTransport
from filelock import FileLock
from here import Person, client_of, over_http
from mcp.shared.exceptions import MCPError
from mcp_types import MISSING_REQUIRED_CLIENT_CAPABILITY, Implementation, InputRequiredResult
from serving import environment

from toolscout.cli import execute
from toolscout.records import Review
from toolscout.server.app import App
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.server.policy import trim
from toolscout.server.policy.approval import KEY
from toolscout.server.policy.audit import read_log
from toolscout.server.policy.trim import within
from toolscout.settings import Settings

UPSTREAMS = Path(__file__).parent / "upstreams"
ECHO = {"tool_id": "tiny/echo", "arguments": {"text": "hello"}}
HI = {"query": "say hello"}
FAIL = {"tool_id": "tiny/fail", "arguments": {}}
ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two upstreams of either era, listed and indexed once; tests work on copies."""
    folder = tmp_path_factory.mktemp("prepared") / "home"
    folder.mkdir()
    settings = Settings(home=folder, starter=False)
    servers = ServersFile(settings.servers_file)
    servers.add(UpstreamConfig.stdio("tiny", sys.executable, ["-I", "-S", str(UPSTREAMS / "tiny.py")]))
    servers.add(UpstreamConfig.stdio("low", sys.executable, [str(UPSTREAMS / "lowlevel.py")]))

    async def fill() -> None:
        async with Engine(settings) as engine:
            await engine.refresh_server("tiny", reindex=False)
            await engine.refresh_server("low")

    asyncio.run(fill())
    return folder


class Home:
    """A copy of the prepared home, with a log of what its upstream ``tiny`` was really asked."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.log = settings.home / "tiny.log"

    def policy(self, text: str) -> None:
        self.settings.policy_file.write_text(text)

    @property
    def calls(self) -> list[str]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.removeprefix("call ") for line in lines if line.startswith("call ")]

    @property
    def audit(self) -> list[dict[str, Any]]:
        return list(read_log(self.settings.home / "audit.jsonl"))[::-1]


@pytest.fixture
def ready(prepared: Path, home: Path, settings: Settings) -> Home:
    shutil.copytree(prepared, home, dirs_exist_ok=True)
    args = ["-I", "-S", str(UPSTREAMS / "tiny.py"), "--log", str(home / "tiny.log")]
    ServersFile(settings.servers_file).add(UpstreamConfig.stdio("tiny", sys.executable, args))
    return Home(settings)


YES = {"allow": True}
NOES = [
    ElicitResult(action="decline", content=None),
    ElicitResult(action="cancel", content=None),
    {"allow": False},
]


def text(result: Any) -> str:
    return "\n".join(block.text for block in result.content)


def refused(result: Any) -> str:
    """The kind of a refusal, which is a tool error in words too."""
    assert result.is_error and result.structured_content["message"] == text(result)
    return str(result.structured_content["refused"])


# --- allow and deny --------------------------------------------------------------------------------------------------


async def test_without_a_file_nothing_is_different(ready: Home) -> None:
    async with client_of(ready.settings) as client:
        assert text(await client.call_tool_mcp("invoke", ECHO)) == "hello"
        assert text(await client.call_tool_mcp("invoke", FAIL)) == "the tool says no"
        dry = await client.call_tool_mcp("invoke", {**ECHO, "dry_run": True})
        assert "policy" not in dry.structured_content
    assert not (ready.settings.home / "audit.jsonl").exists() and not (ready.settings.home / "audit.key").exists()


@ERAS
async def test_rules_hold_by_server_tool_annotation_and_argument(ready: Home, mode: str) -> None:
    ready.policy("""
        [[rules]]
        action = "deny"
        name = "no greetings"
        reason = "Greetings are rude."
        tool = "echo"
        arguments = { text = "re:(?i)^good morning" }
        [[rules]]
        action = "allow"
        effect = "read_only"
        [[rules]]
        action = "deny"
        server = "tiny"
    """)
    async with client_of(ready.settings, mode=mode) as client:
        assert text(await client.call_tool_mcp("invoke", ECHO)) == "hello"
        wrapped = {"tool_id": "tiny/echo", "arguments": json.dumps({"arguments": {"text": "Good Morning"}})}
        denied = await client.call_tool_mcp("invoke", wrapped)
        assert refused(denied) == "policy_denied" and denied.structured_content["rule"] == "rule 1 (no greetings)"
        assert "Greetings are rude." in text(denied)
        assert refused(await client.call_tool_mcp("invoke", FAIL)) == "policy_denied"
        assert refused(await client.call_tool_mcp("invoke", {**FAIL, "dry_run": True})) == "policy_denied"
        other = await client.call_tool_mcp("invoke", {"tool_id": "low/echo", "arguments": {"text": "good morning"}})
        assert refused(other) == "policy_denied"
        dry = await client.call_tool_mcp("invoke", {**ECHO, "dry_run": True})
        assert dry.structured_content["policy"] == {"action": "allow", "rule": "rule 2"}
    assert ready.calls == ["echo"]


async def test_a_file_that_changes_counts_at_once_and_one_that_breaks_or_goes_stops_all(ready: Home) -> None:
    async with client_of(ready.settings) as client:
        assert not (await client.call_tool_mcp("invoke", ECHO)).is_error
        ready.policy('default = "deny"')
        assert refused(await client.call_tool_mcp("invoke", ECHO)) == "policy_denied"
        ready.policy('default = "allow"\n[[rules]]\nacton = "deny"')
        broken = await client.call_tool_mcp("invoke", ECHO)
        assert refused(broken) == "policy_broken" and "rules[1]" in text(broken) and "no tool is called" in text(broken)
        assert (await client.call_tool_mcp("find_tools", {"query": "echo"})).structured_content["tools"]
        ready.policy("")
        assert not (await client.call_tool_mcp("invoke", ECHO)).is_error
        ready.settings.policy_file.unlink()
        gone = await client.call_tool_mcp("invoke", ECHO)
        assert refused(gone) == "policy_broken" and "No such file" in text(gone)
    assert ready.calls == ["echo", "echo"]


async def test_a_file_that_was_named_has_to_be_there(ready: Home) -> None:
    ready.settings = ready.settings.model_copy(update={"policy": ready.settings.home / "elsewhere.toml"})
    async with client_of(ready.settings) as client:
        assert refused(await client.call_tool_mcp("invoke", ECHO)) == "policy_broken"
        ready.policy("")
        assert not (await client.call_tool_mcp("invoke", ECHO)).is_error


# --- ask -------------------------------------------------------------------------------------------------------------

ASK = '[[rules]]\naction = "ask"\nserver = "*"\nreason = "Somebody should look."\n[audit]\n'


@ERAS
async def test_a_yes_makes_the_call_once(ready: Home, mode: str) -> None:
    ready.policy(ASK)
    person = Person(YES)
    async with client_of(ready.settings, person, mode) as client:
        assert text(await client.call_tool_mcp("invoke", ECHO)) == "hello"
        assert text(await client.call_tool_mcp("invoke", ECHO)) == "hello"
    assert len(person.asked) == 2, "each call is asked about"
    params = person.asked[0]
    assert params.mode == "form" and list(params.requested_schema["properties"]) == ["allow"]
    assert '  text: "hello"' in params.message and "Somebody should look." in params.message
    assert "it only reads" in params.message
    assert ready.calls == ["echo", "echo"]
    done = [e for e in ready.audit if e["outcome"] == "ok"]
    assert len(done) == 2 and all(e["approved"] and e["action"] == "ask" for e in done)
    if mode == "auto":
        assert [e["outcome"] for e in ready.audit] == ["asked", "ok"] * 2


@ERAS
@pytest.mark.parametrize("answer", NOES, ids=["decline", "cancel", "box not ticked"])
async def test_anything_else_does_not(ready: Home, mode: str, answer: Any) -> None:
    """A form that is closed is no answer: nobody may be there, and the agent is not told that somebody said no."""
    ready.policy(ASK)
    async with client_of(ready.settings, Person(answer), mode) as client:
        result = await client.call_tool_mcp("invoke", ECHO)
        kind, words = ("declined", "did not agree") if answer != NOES[1] else ("unanswered", "no answer came")
        assert refused(result) == f"approval_{kind}" and words in text(result)
    assert ready.calls == []


@ERAS
async def test_a_client_that_cannot_ask_gets_a_typed_refusal(ready: Home, mode: str) -> None:
    ready.policy(ASK)
    async with client_of(ready.settings, None, mode) as client:
        result = await client.call_tool_mcp("invoke", ECHO)
        assert refused(result) == "approval_unavailable"
        assert "declared no form elicitation" in text(result) and "toolscout invoke" in text(result)
        dry = await client.call_tool_mcp("invoke", {**ECHO, "dry_run": True})
        assert dry.structured_content["policy"]["action"] == "ask"
    assert ready.calls == []


async def test_wrong_arguments_are_explained_before_a_person_is_asked(ready: Home) -> None:
    ready.policy(ASK)
    person = Person(YES)
    async with client_of(ready.settings, person) as client:
        result = await client.call_tool_mcp("invoke", {"tool_id": "tiny/echo", "arguments": {"text": 5}})
        assert result.is_error and "$.text" in text(result)
    assert person.asked == [] and ready.audit[-1]["outcome"] == "invalid_arguments"


async def test_a_yes_holds_for_the_call_that_was_shown_alone(ready: Home) -> None:
    ready.policy(ASK)
    async with client_of(ready.settings, Person(YES)) as client:
        first = await _round(client, ECHO)
        assert isinstance(first, InputRequiredResult)
        answer = {KEY: {"action": "accept", "content": YES}}
        with pytest.raises(MCPError):
            await _round(client, {**ECHO, "arguments": {"text": "other"}}, answer, first.request_state)
        with pytest.raises(MCPError):
            await _round(client, ECHO, answer, "toolscout-approved:forged:")
        again = await _round(client, ECHO, answer, None)
        assert isinstance(again, InputRequiredResult), "an answer to no question is none"
        assert isinstance(await _round(client, ECHO, None, first.request_state), InputRequiredResult)
        assert ready.calls == []
        assert text(await _round(client, ECHO, answer, first.request_state)) == "hello"
        anew = await _round(client, ECHO, answer, first.request_state)
        assert isinstance(anew, InputRequiredResult), "a yes is good once"
        assert "this is another one" in anew.input_requests[KEY].params.message
    assert ready.calls == ["echo"]


async def _round(client: Client[Any], arguments: Any, responses: Any = None, state: str | None = None) -> Any:
    """One request of the stateless era, whatever is answered."""
    from mcp_types import CallToolRequest, CallToolRequestParams, CallToolResult
    from pydantic import TypeAdapter

    params = CallToolRequestParams(name="invoke", arguments=arguments, input_responses=responses, request_state=state)
    either: TypeAdapter[Any] = TypeAdapter(InputRequiredResult | CallToolResult)
    return await client.session.send_request(CallToolRequest(params=params), either)


@pytest.fixture
async def late(ready: Home) -> AsyncIterator[tuple[Home, Engine, Path]]:
    """An engine whose upstream ``tiny`` is a file of the test's own, so that it can change."""
    program = ready.settings.home / "own_tiny.py"
    shutil.copy(UPSTREAMS / "tiny.py", program)
    args = ["-I", "-S", str(program), "--log", str(ready.log)]
    ServersFile(ready.settings.servers_file).add(UpstreamConfig.stdio("tiny", sys.executable, args))
    ready.policy(ASK)
    async with Engine(ready.settings) as engine:
        yield ready, engine, program


async def test_a_late_yes_does_not_outlive_the_policy(late: tuple[Home, Engine, Path]) -> None:
    ready, engine, _ = late

    async def slowly(*_: Any) -> Any:
        ready.policy('default = "deny"\n[audit]\nfile = "other.jsonl"')
        return YES

    async with Client(App(engine).fastmcp, mode="legacy", elicitation_handler=slowly) as client:
        assert refused(await client.call_tool_mcp("invoke", ECHO)) == "policy_denied"
    assert ready.calls == []
    await asyncio.to_thread(engine.governor.close)  # the line of a call's end is written beside the event loop
    assert [e["outcome"] for e in read_log(ready.settings.home / "other.jsonl")] == ["policy_denied"]


async def test_a_late_yes_does_not_outlive_the_review(late: tuple[Home, Engine, Path]) -> None:
    ready, engine, _ = late

    async def slowly(*_: Any) -> Any:
        engine.catalogue.set_review(["tiny/echo"], Review.BLOCKED)
        await engine.reindex()
        return YES

    async with Client(App(engine).fastmcp, mode="legacy", elicitation_handler=slowly) as client:
        result = await client.call_tool_mcp("invoke", ECHO)
    assert result.is_error and "is blocked here" in text(result) and ready.calls == []


async def test_a_late_yes_does_not_hold_for_another_tool_of_the_name(late: tuple[Home, Engine, Path]) -> None:
    ready, engine, program = late

    async def slowly(*_: Any) -> Any:
        program.write_text(program.read_text().replace('"readOnlyHint": True', '"destructiveHint": True'))
        await engine.pool.stop("tiny")
        await engine.refresh_server("tiny", accept_changes=True)
        return YES

    async with Client(App(engine).fastmcp, mode="legacy", elicitation_handler=slowly) as client:
        result = await client.call_tool_mcp("invoke", ECHO)
        assert refused(result) == "approval_outdated" and "has changed" in text(result) and ready.calls == []


async def test_what_is_always_denied_is_not_offered(ready: Home) -> None:
    wanted = {"query": "answers what it gets", "servers": ["tiny", "low"]}

    async def found() -> tuple[list[str], dict[str, Any]]:
        async with client_of(ready.settings) as client:
            answer = (await client.call_tool_mcp("find_tools", wanted)).structured_content
        return [tool["tool_id"] for tool in answer["tools"]], answer

    assert "tiny/echo" in (await found())[0]
    ready.policy('[[rules]]\naction = "deny"\nserver = "tiny"\ntool = "echo"\narguments = { text = "secret*" }\n')
    assert "tiny/echo" in (await found())[0], "some calls are allowed"
    ready.policy('[[rules]]\naction = "deny"\nserver = "tiny"\n')
    offered, _ = await found()
    assert offered and all(tool_id.startswith("low/") for tool_id in offered), "others take the places"
    ready.policy('default = "deny"\n')
    offered, answer = await found()
    assert offered == [] and answer["no_match"] and "denied by this installation's policy" in answer["advice"]
    assert answer["nearest"] == []
    async with client_of(ready.settings) as client:
        suggested = (await client.call_tool_mcp("suggest_call", {"task": "echo a text"})).structured_content
    assert suggested["abstained"] and "denied by this installation's policy" in suggested["reason"]


async def test_what_is_always_denied_is_not_named_where_nothing_fits(ready: Home) -> None:
    wanted = {"query": "book a flight to Tokyo for Monday"}

    async def named() -> tuple[set[str], set[str]]:
        async with client_of(ready.settings) as client:
            found = (await client.call_tool_mcp("find_tools", wanted)).structured_content
            assert found["no_match"]
            suggested = (await client.call_tool_mcp("suggest_call", {"task": wanted["query"]})).structured_content
            assert suggested["abstained"]
        nearest = {tool["tool_id"] for tool in found["nearest"]}
        return nearest, set(suggested["alternatives"])

    before = await named()
    assert all(before)
    denied = sorted(before[0] | before[1])[0]
    for which in (f'server = "{denied.split("/")[0]}"\ntool = "{denied.split("/")[1]}"\n', 'tool = "*"\n'):
        ready.policy(f'[[rules]]\naction = "deny"\n{which}')
        after = await named()
        assert denied not in after[0] | after[1]
    assert after == (set(), set())


async def test_what_is_always_denied_is_not_named_for_an_unknown_id(ready: Home) -> None:
    async def named() -> str:
        async with client_of(ready.settings) as client:
            return text(await client.call_tool_mcp("invoke", {"tool_id": "tiny/echoes", "arguments": {}}))

    assert "tiny/echo" in (await named()).partition("Nearest")[2]
    ready.policy('[[rules]]\naction = "deny"\nserver = "tiny"\ntool = "echo"\n')
    assert "tiny/echo" not in (await named()).partition("Nearest")[2]


async def test_a_late_yes_holds_where_the_new_policy_does_not_mind(late: tuple[Home, Engine, Path]) -> None:
    ready, engine, _ = late

    async def slowly(*_: Any) -> Any:
        ready.policy("[responses]\nmax_chars = 100")
        return YES

    long = {**ECHO, "arguments": {"text": "x" * 300}}
    async with Client(App(engine).fastmcp, mode="legacy", elicitation_handler=slowly) as client:
        assert "100 of 300" in text(await client.call_tool_mcp("invoke", long)), "and its limits hold"
    assert ready.calls == ["echo"]


async def test_a_yes_is_not_used_up_by_a_call_that_the_rate_refuses(ready: Home) -> None:
    ready.policy(ASK + '[rates]\nupstream = "1/s"\n')
    answer = {KEY: {"action": "accept", "content": YES}}
    async with client_of(ready.settings, Person(YES)) as client:
        first, second = await _round(client, ECHO), await _round(client, ECHO)
        assert isinstance(first, InputRequiredResult) and isinstance(second, InputRequiredResult)
        ready.policy(ASK + '[rates]\nupstream = "1/h"\n')
        assert text(await _round(client, ECHO, answer, first.request_state)) == "hello"
        limited = await _round(client, ECHO, answer, second.request_state)
        assert refused(limited) == "rate_limited"
        assert refused(await _round(client, ECHO)) == "rate_limited", "nobody is asked in vain"
        ready.policy(ASK)
        assert text(await _round(client, ECHO, answer, second.request_state)) == "hello", "the same yes"
        anew = await _round(client, ECHO, answer, second.request_state)
        assert isinstance(anew, InputRequiredResult)
        said = anew.input_requests[KEY].params.message
        assert "The same call was approved before; this is another one." in said
    assert ready.calls == ["echo", "echo"]


async def test_a_tool_that_asks_itself_goes_on_after_the_yes(ready: Home) -> None:
    ready.policy(ASK)
    person = Person(YES, {"color": "blue"})
    async with client_of(ready.settings, person) as client:
        result = await client.call_tool_mcp("invoke", {"tool_id": "low/ask", "arguments": {}})
        assert text(result) == "blue state-1", "answer and state reached the tool, and nothing of ours did"
    ours, theirs = (p.message.split("\n") for p in person.asked)
    assert ours[0] == "An agent wants to call the tool 'ask' of the MCP server 'low'."
    assert theirs == ["The MCP server 'low' asks this, not Toolscout:", "Which colour?"]
    assert [e["outcome"] for e in ready.audit] == ["asked", "input_required", "ok"]


async def test_without_ask_a_tools_own_question_passes_as_before(ready: Home) -> None:
    ready.policy("[responses]\nmax_chars = 100\n")
    person = Person({"color": "red"})
    async with client_of(ready.settings, person) as client:
        assert text(await client.call_tool_mcp("invoke", {"tool_id": "low/ask", "arguments": {}})) == "red state-1"
    assert len(person.asked) == 1


@ERAS
async def test_over_stdio(ready: Home, mode: str) -> None:
    ready.policy(ASK)
    person = Person(YES)
    env = environment(ready.settings.home)
    transport = StdioTransport(sys.executable, ["-m", "toolscout", "serve"], env=env, keep_alive=False)
    async with Client(transport, mode=mode, elicitation_handler=person) as client:
        assert text(await client.call_tool_mcp("invoke", ECHO)) == "hello"
    assert len(person.asked) == 1
    who = ready.audit[-1]["client"]
    assert who["via"] == "stdio" and who["name"] and "address" not in who


@ERAS
async def test_over_http(ready: Home, mode: str) -> None:
    """Where there are no sessions, so that a client of the 2025 handshake cannot be asked."""
    ready.policy(ASK)
    person = Person(YES)
    settings = ready.settings.model_copy(update={"auth_token": "the-token"})
    async with over_http(settings) as url:
        transport = StreamableHttpTransport(f"{url}/mcp", auth="the-token")
        async with Client(transport, mode=mode, elicitation_handler=person) as client:
            result = await client.call_tool_mcp("invoke", ECHO)
    if mode == "legacy":
        assert refused(result) == "approval_unavailable" and "2025 protocol over HTTP" in text(result)
    else:
        assert text(result) == "hello"
    assert len(person.asked) == len(ready.calls) == (0 if mode == "legacy" else 1)
    who = ready.audit[-1]["client"]
    assert (who["via"], who["user"], who["address"]) == ("http", "bearer", "127.0.0.1")
    assert "the-token" not in (ready.settings.home / "audit.jsonl").read_text()


# --- limits ----------------------------------------------------------------------------------------------------------


@ERAS
async def test_rates(ready: Home, mode: str) -> None:
    ready.policy('[rates]\nclient = "3/h"\nupstream = "100/s"\n[rates.upstreams]\ntiny = "2/h"\n[audit]\n')
    low = {"tool_id": "low/echo", "arguments": {"text": "x"}}
    async with client_of(ready.settings, mode=mode) as client:
        assert not (await client.call_tool_mcp("invoke", ECHO)).is_error
        assert (await client.call_tool_mcp("invoke", {**ECHO, "arguments": {"text": 1}})).is_error, "not counted"
        assert not (await client.call_tool_mcp("invoke", ECHO)).is_error
        third = await client.call_tool_mcp("invoke", ECHO)
        assert refused(third) == "rate_limited"
        assert "allows the server 'tiny' 2 calls an hour" in text(third)
        assert 1700 < third.structured_content["retry_after_s"] <= 1800
        assert not (await client.call_tool_mcp("invoke", low)).is_error, "a refusal took nothing from the client"
        fourth = await client.call_tool_mcp("invoke", low)
        assert refused(fourth) == "rate_limited" and "allows this client 3 calls an hour" in text(fourth)
    assert ready.calls == ["echo", "echo"]
    assert [e["outcome"] for e in ready.audit].count("rate_limited") == 2


@ERAS
@pytest.mark.parametrize("token", ["", "the-token"])
async def test_another_name_is_no_other_client(ready: Home, mode: str, token: str) -> None:
    ready.policy('[rates]\nclient = "1/h"\nsearch = "1/h"\n[audit]\n')
    settings = ready.settings.model_copy(update={"auth_token": token})
    said = []
    async with over_http(settings) as url:
        for name in ("one", "two"):
            transport = StreamableHttpTransport(f"{url}/mcp", auth=token or None)
            async with Client(transport, mode=mode, client_info=Implementation(name=name, version="1")) as client:
                said.append((await client.call_tool_mcp("invoke", ECHO), await client.call_tool_mcp("find_tools", HI)))
    assert not said[0][0].is_error and not said[0][1].is_error
    assert refused(said[1][0]) == "rate_limited" and said[1][1].is_error
    if mode == "auto":  # one of 2025 says its name once, and over HTTP nobody remembers it
        assert [entry["client"]["name"] for entry in ready.audit] == ["one 1", "two 1"], "the log keeps the names"


@pytest.mark.parametrize("trusted", [[], ["10.0.0.0/8"], ["127.0.0.0/8"]])
async def test_where_a_client_calls_from_is_believed_of_trusted_proxies_alone(ready: Home, trusted: list[str]) -> None:
    ready.policy('[rates]\nclient = "1/h"\n[audit]\n')
    said = []
    async with over_http(ready.settings.model_copy(update={"trusted_proxies": trusted})) as url:
        for address in ("192.0.2.1", "192.0.2.2"):
            transport = StreamableHttpTransport(f"{url}/mcp", headers={"x-forwarded-for": address})
            async with Client(transport, mode="auto") as client:
                said.append(await client.call_tool_mcp("invoke", ECHO))
    known = trusted == ["127.0.0.0/8"]
    assert not said[0].is_error and said[1].is_error is not known
    addresses = {entry["client"]["address"] for entry in ready.audit}
    assert addresses == ({"192.0.2.1", "192.0.2.2"} if known else {"127.0.0.1"})


@ERAS
async def test_searches_have_a_rate_of_their_own(ready: Home, mode: str) -> None:
    ready.policy('[rates]\nsearch = "3/h"\n')
    async with client_of(ready.settings, mode=mode) as client:
        assert not (await client.call_tool_mcp("find_tools", HI)).is_error
        assert (await client.call_tool_mcp("find_tools", {"limit": "many"})).is_error, "not counted"
        assert not (await client.call_tool_mcp("find_tools", HI)).is_error
        await client.call_tool_mcp("suggest_call", {"task": "say hello"})
        for name, arguments in (("find_tools", HI), ("suggest_call", {"task": "say hello"})):
            fourth = await client.call_tool_mcp(name, arguments)
            assert fourth.is_error and f"{name} did not search: the policy allows this client 3 calls an hour" in text(
                fourth
            )
            assert "Try again in" in text(fourth)
            assert fourth.structured_content is None, "it would have to be of the tool's output schema"
        assert not (await client.call_tool_mcp("invoke", ECHO)).is_error, "calls are another thing"
        ready.policy("[rates]\nsearch = 3")
        assert not (await client.call_tool_mcp("find_tools", HI)).is_error, "a policy that is broken stops no search"
        ready.policy('[rates]\nclient = "3/h"\n')
        for _ in range(5):
            assert not (await client.call_tool_mcp("find_tools", HI)).is_error


@ERAS
async def test_a_call_that_was_asked_about_counts_once_for_its_client(ready: Home, mode: str) -> None:
    ready.policy(ASK + '[rates]\nclient = "1/h"\n')
    async with client_of(ready.settings, Person(YES), mode=mode) as client:
        assert text(await client.call_tool_mcp("invoke", ECHO)) == "hello"
        assert refused(await client.call_tool_mcp("invoke", ECHO)) == "rate_limited"


async def test_a_client_that_asks_without_end_is_limited_too(ready: Home) -> None:
    ready.policy(ASK + '[rates]\nclient = "2/h"\n')
    person = Person({"allow": False})
    async with client_of(ready.settings, person) as client:
        kinds = [refused(await client.call_tool_mcp("invoke", ECHO)) for _ in range(3)]
    assert kinds == ["approval_declined", "approval_declined", "rate_limited"] and len(person.asked) == 2


@ERAS
async def test_results_are_cut_and_never_made_invalid(ready: Home, mode: str) -> None:
    ready.policy("""
        [responses]
        max_chars = 1000
        [[rules]]
        action = "allow"
        arguments = { text = "long*" }
        max_chars = 200
        [audit]
    """)
    async with client_of(ready.settings, mode=mode) as client:
        big = await client.call_tool_mcp("invoke", {"tool_id": "tiny/big", "arguments": {"bytes": 5000}})
        assert big.content[0].text == "x" * 1000 and not big.is_error
        assert "1,000 of 5,000 characters of text are shown, 4,000 are missing" in big.content[1].text
        echo = await client.call_tool_mcp("invoke", {**ECHO, "arguments": {"text": "long" + "y" * 500}})
        assert echo.structured_content is None and len(echo.content[0].text) == 200
        assert "structured content" in echo.content[1].text and "was left out" in echo.content[1].text
        whole = await client.call_tool_mcp("invoke", {**ECHO, "arguments": {"text": "y" * 500}})
        assert whole.structured_content == {"text": "y" * 500} and len(whole.content) == 1
    assert [e.get("cut", False) for e in ready.audit] == [True, True, False]


async def test_what_a_failing_server_says_is_cut_too(ready: Home) -> None:
    ready.policy("[responses]\nmax_chars = 200\n[audit]\n")
    cases = [
        ("tiny/error", {"code": -32000, "message": "~" * 5000}, "refused"),
        ("tiny/error", {"code": -32602, "message": "~" * 5000}, "Input schema: {"),
        ("tiny/crash", {"last_words": "ValueError: " + "~" * 1000 + "\n"}, "The call may have been carried out"),
    ]
    async with client_of(ready.settings) as client:
        for tool_id, arguments, ours in cases:
            result = await client.call_tool_mcp("invoke", {"tool_id": tool_id, "arguments": arguments})
            assert result.is_error and ours in text(result), tool_id
            assert text(result).count("~") <= 200 and "the policy's limit of 200 characters" in text(result)
            assert len(result.content[0].text) <= 200
        short = {"tool_id": "tiny/error", "arguments": {"code": -32000, "message": "no"}}
        assert text(await client.call_tool_mcp("invoke", short)) == "'tiny' refused 'error': no (code -32000)."
    assert [entry.get("cut", False) for entry in ready.audit] == [True, True, True, False]
    assert {entry["outcome"] for entry in ready.audit} == {"upstream_error"}


@pytest.mark.parametrize("limit", [None, 200])
async def test_an_error_for_programs_is_small(ready: Home, limit: int | None) -> None:
    """That a capability of the client is missing goes to it as the protocol's own error, with data."""
    if limit is not None:
        ready.policy(f"[responses]\nmax_chars = {limit}\n[audit]\n")

    async def answer(client: Client[Any], message: str, data: Any) -> Any:
        said = {"code": MISSING_REQUIRED_CLIENT_CAPABILITY, "message": message, "data": data}
        with pytest.raises(MCPError) as caught:
            await client.call_tool_mcp("invoke", {"tool_id": "tiny/error", "arguments": said})
        return caught.value.error

    wanted = {"requiredCapabilities": {"sampling": {}}}
    async with client_of(ready.settings) as client:
        error = await answer(client, "sampling is needed", wanted)
        assert "sampling is needed" in error.message and error.data == wanted
        error = await answer(client, "m" * 5000, wanted)
        assert len(error.message) <= (limit or 2100) and error.data == wanted
        assert (await answer(client, "x", {"all": ["~" * (limit or 2000)]})).data is None
        assert (await answer(client, "x", "$DEEP")).data is None


async def test_an_errors_data_holds_no_secret(ready: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TINY_KEY", "sk-one-two-three")
    args = ["-I", "-S", str(UPSTREAMS / "tiny.py")]
    config = UpstreamConfig.stdio("tiny", sys.executable, args, env={"API_KEY": "${TINY_KEY}"})
    ServersFile(ready.settings.servers_file).add(config)
    data = {"url": ["https://x.example?key=$KEY", {"$KEY": 1}], "requiredCapabilities": {"sampling": {}}}
    said = {"code": MISSING_REQUIRED_CLIENT_CAPABILITY, "message": "x", "data": data}
    async with client_of(ready.settings) as client:
        with pytest.raises(MCPError) as caught:
            await client.call_tool_mcp("invoke", {"tool_id": "tiny/error", "arguments": said})
    found = caught.value.error.data
    assert found["url"] == ["https://x.example?key=[hidden]", {"[hidden]": 1}]
    assert found["requiredCapabilities"] == {"sampling": {}}


def test_many_small_blocks_are_large_too() -> None:
    blocks = [{"type": "text", "text": ""} for _ in range(10_000)]
    cut, was = within({"content": blocks}, 2000)
    assert was and len(json.dumps(cut)) < 5000
    assert "further blocks were left out" in cut["content"][-1]["text"]
    few = {"content": [{"type": "text", "text": "a"} for _ in range(20)]}
    assert within(few, 2000) == (few, False)


@ERAS
async def test_progress_messages_are_cut_and_its_numbers_go_on(
    ready: Home, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready.policy("[responses]\nmax_chars = 100\n")
    whole = trim.Messages
    monkeypatch.setattr(trim, "Messages", lambda limit: whole(limit // 10))
    told: list[tuple[float, str | None]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async with client_of(ready.settings, mode=mode) as client:
        await client.call_tool_mcp("invoke", {"tool_id": "tiny/progress", "arguments": {}}, progress_handler=hear)
    assert told == [(1, "step 1"), (2, "step"), (3, None)]


async def test_half_a_question_is_none(ready: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trim, "_SMALL", 0)
    ready.policy("[responses]\nmax_chars = 100\n[audit]\n")
    person = Person({"color": "red"})
    async with client_of(ready.settings, person) as client:
        result = await client.call_tool_mcp("invoke", {"tool_id": "low/ask", "arguments": {}})
    assert refused(result) == "question_too_large" and "low/ask" in text(result)
    assert person.asked == [] and ready.audit[-1]["outcome"] == "question_too_large"


# --- the log ---------------------------------------------------------------------------------------------------------


async def test_every_call_leaves_one_line_and_no_value_in_clear(ready: Home) -> None:
    ready.policy("""
        [[rules]]
        action = "deny"
        tool = "pid"
        [audit]
        [[audit.rules]]
        keep = "clear"
        tool = "echo"
        arguments = "colour"
    """)
    secret = "a very private sentence"
    async with client_of(ready.settings) as client:
        arguments = {"text": secret, "colour": "blue", "api_key": "k3y-of-somebody"}
        await client.call_tool_mcp("invoke", {**ECHO, "arguments": arguments})
        await client.call_tool_mcp("invoke", FAIL)
        await client.call_tool_mcp("invoke", {"tool_id": "tiny/pid"})
        await client.call_tool_mcp("invoke", {"tool_id": "tiny/crash"})
        await client.call_tool_mcp("invoke", {"tool_id": "no/such"})
        await client.call_tool_mcp("invoke", {**ECHO, "dry_run": True})
        with pytest.raises(Exception, match=r"(?i)timed out|timeout"):
            await client.call_tool_mcp("invoke", {"tool_id": "tiny/hang"}, timeout=0.5)
        for _ in range(100):
            if len(ready.audit) == 7 and ready.audit[-1]["outcome"] != "begun":
                break
            await asyncio.sleep(0.05)
    outcomes = [(e["tool_id"], e["outcome"]) for e in ready.audit]
    assert outcomes == [
        ("tiny/echo", "ok"), ("tiny/fail", "tool_error"), ("tiny/pid", "policy_denied"),
        ("tiny/crash", "upstream_error"), ("no/such", "not_found"), ("tiny/echo", "dry_run"),
        ("tiny/hang", "cancelled"),
    ]  # fmt: skip
    first = ready.audit[0]
    assert first["arguments"]["colour"] == "blue" and first["arguments"]["api_key"] == "[hidden]"
    assert first["arguments"]["text"].startswith("hmac:") and first["ms"] > 0 and first["at"].endswith("+00:00")
    assert (first["action"], first["rule"]) == ("allow", "the default")
    raw = (ready.settings.home / "audit.jsonl").read_text()
    assert secret not in raw and "k3y-of-somebody" not in raw


def lines(ready: Home) -> list[dict[str, Any]]:
    """The log as it is on disk, with both lines of a call."""
    return [json.loads(line) for line in (ready.settings.home / "audit.jsonl").read_text().splitlines()]


async def test_a_call_in_flight_is_in_the_log_before_its_upstream_sees_it(ready: Home) -> None:
    """Killed without warning while the upstream works, a server leaves the line that the call has begun."""
    ready.policy("[audit]")
    server = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "toolscout", "serve", env=environment(ready.settings.home),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    call = {"name": "invoke", "arguments": {"tool_id": "tiny/hang", "arguments": {}}}
    assert server.stdin is not None
    for message in (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": call},
    ):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    async with asyncio.timeout(60):
        while "hang" not in ready.calls:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    server.kill()
    await server.wait()
    assert [(e["tool_id"], e["outcome"]) for e in ready.audit] == [("tiny/hang", "begun")]
    assert lines(ready)[0]["id"] and lines(ready)[0]["client"]["name"] == "test 1"


async def test_both_lines_of_a_call_count_once(ready: Home) -> None:
    ready.policy("[audit]")
    async with client_of(ready.settings) as client:
        await client.call_tool_mcp("invoke", ECHO)
        await client.call_tool_mcp("invoke", {"tool_id": "no/such"})
    assert [(e["outcome"], "id" in e) for e in lines(ready)] == [("begun", True), ("ok", True), ("not_found", False)]
    assert (
        lines(ready)[0]["id"] == lines(ready)[1]["id"] and lines(ready)[0]["arguments"] == lines(ready)[1]["arguments"]
    )
    assert [e["outcome"] for e in ready.audit] == ["ok", "not_found"]


async def test_calls_that_end_before_they_are_looked_at_leave_a_line_too(ready: Home) -> None:
    ready.policy("[audit]")
    given = {"text": "hello"}
    async with client_of(ready.settings) as client:
        for bad in ({**ECHO, "timeout_s": -1}, {"arguments": given}, {"tool_id": "no/such", "arguments": given}):
            assert (await client.call_tool_mcp("invoke", bad)).is_error
        await client.call_tool_mcp("invoke", {"tool_id": "tiny/echo", "arguments": "[1, 2"})
        ready.policy("broken")
        assert refused(await client.call_tool_mcp("invoke", ECHO)) == "policy_broken"
    assert [e["outcome"] for e in ready.audit] == [*["invalid_arguments"] * 2, "not_found", "invalid_arguments",
                                                   "policy_broken"]  # fmt: skip
    assert all(e["arguments"]["text"].startswith("hmac:") for e in (*ready.audit[:3], ready.audit[4]))
    assert ready.audit[3]["arguments"]["arguments"].startswith("hmac:") and ready.calls == []


async def test_a_policy_that_is_broken_from_the_start_logs_where_its_audit_table_can_be_read(ready: Home) -> None:
    ready.policy("[[rules]]\naction = 'maybe'\n[audit]")
    async with client_of(ready.settings) as client:
        assert refused(await client.call_tool_mcp("invoke", ECHO)) == "policy_broken"
    assert [(e["tool_id"], e["outcome"]) for e in ready.audit] == [("tiny/echo", "policy_broken")]


async def test_what_the_guard_refuses_is_logged_with_its_arguments(ready: Home) -> None:
    ready.policy("[audit]")
    async with Engine(ready.settings) as engine:
        await engine.loaded()
        engine.catalogue.set_review(["tiny/echo"], Review.BLOCKED)
        await engine.reindex()
        assert (await engine.invoke_raw(**ECHO))["isError"]
    assert [e["outcome"] for e in ready.audit] == ["not_allowed"]
    assert ready.audit[0]["arguments"]["text"].startswith("hmac:")


async def test_names_that_look_like_secrets_are_hidden(ready: Home) -> None:
    ready.policy("[audit]")
    key = "sk-live-Ab12Cd34Ef56Gh78Ij90"
    async with client_of(ready.settings) as client:
        await client.call_tool_mcp("invoke", {"tool_id": "tiny/echo", "arguments": {key: 1, f"{key}2": 1, "text": "x"}})
        for tool_id in (f"bills/pay_bill {key}", "x/password=hunter2"):
            await client.call_tool_mcp("invoke", {"tool_id": tool_id, "arguments": {"deep": {key: 1}}})
    raw = (ready.settings.home / "audit.jsonl").read_text()
    assert key not in raw and "hunter2" not in raw and "[hidden]" in raw
    assert {"text"} < set(ready.audit[0]["arguments"]) and len(ready.audit[0]["arguments"]) == 3


async def test_a_clients_name_that_holds_a_secret_is_hidden_as_far(ready: Home) -> None:
    ready.policy("[audit]")
    info = Implementation(name="my agent sk-abcdefgh12345678ABCD", version="password=hunter2")
    async with Engine(ready.settings) as engine, Client(App(engine).fastmcp, mode="auto", client_info=info) as client:
        assert not (await client.call_tool_mcp("invoke", ECHO)).is_error
    assert {e["outcome"] for e in ready.audit} >= {"ok"}
    assert {e["client"]["name"] for e in ready.audit} == {"my agent [hidden] password=[hidden]"}
    raw = (ready.settings.home / "audit.jsonl").read_text()
    assert "sk-abcdefgh" not in raw and "hunter2" not in raw


async def test_a_lock_that_is_held_stops_calls_but_not_the_loop(ready: Home) -> None:
    ready.policy("[audit]")
    async with Engine(ready.settings) as engine:
        assert not (await engine.invoke_raw(**ECHO)).get("isError")
        longest, done = 0.0, False

        async def beat() -> None:
            nonlocal longest
            while not done:
                began = time.perf_counter()
                await asyncio.sleep(0.01)
                longest = max(longest, time.perf_counter() - began)

        beating = asyncio.create_task(beat())
        with FileLock(f"{ready.settings.home / 'audit.jsonl'}.lock"):
            result = await engine.invoke_raw(**ECHO)
        done = True
        await beating
        assert result["isError"] and "another process holds its lock" in result["content"][0]["text"]
        assert longest < 1
    assert ready.calls.count("echo") == 1 and [e["outcome"] for e in ready.audit] == ["ok", "not_allowed"]


async def test_no_call_is_made_that_cannot_be_logged(ready: Home) -> None:
    (ready.settings.home / "log").touch()
    ready.policy('[audit]\nfile = "log/calls.jsonl"')
    async with client_of(ready.settings) as client:
        result = await client.call_tool_mcp("invoke", ECHO)
        assert result.is_error and "cannot be written" in text(result) and "no call is made without it" in text(result)
        assert ready.calls == []
        (ready.settings.home / "log").unlink()
        assert text(await client.call_tool_mcp("invoke", ECHO)) == "hello"


# --- the command line ------------------------------------------------------------------------------------------------


def test_the_command_line_obeys_too(ready: Home, capsys: pytest.CaptureFixture[str]) -> None:
    ready.policy('[[rules]]\naction = "deny"\ntool = "fail"\n[[rules]]\naction = "ask"\ntool = "echo"\n[audit]')
    assert execute(["invoke", "tiny/fail", "{}"]) == 7
    assert "denies this call" in capsys.readouterr().err
    assert execute(["invoke", "tiny/echo", '{"text": "hi"}']) == 7, "there is no terminal to ask on"
    assert "nobody can be asked" in capsys.readouterr().err
    assert ready.calls == [] and {e["client"]["via"] for e in ready.audit} == {"cli"}


@pytest.mark.parametrize(("typed", "code"), [("y\n", 0), ("n\n", 1)])
def test_on_a_terminal_the_person_is_asked(ready: Home, typed: str, code: int) -> None:
    ready.policy('default = "ask"')
    ours, theirs = pty.openpty()
    env = {**os.environ, "TOOLSCOUT_STARTER": "0"}
    command = [sys.executable, "-m", "toolscout", "invoke", "tiny/echo", '{"text": "hi"}']
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        out, err = process.communicate(timeout=120)
    os.close(ours)
    assert process.returncode == code, err
    assert b"wants to call the tool 'echo'" in err and b'text: "hi"' in err
    assert out == (b"hi\n" if code == 0 else b"") and ready.calls == (["echo"] if code == 0 else [])
