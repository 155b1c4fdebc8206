"""Trajectories end to end: real upstreams behind a real ``toolscout serve``, a real endpoint that plays the model."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from chat_endpoint import Body, ChatEndpoint, said

from toolscout.cli import execute
from toolscout.jsonl import read_records, write_records
from toolscout.records import Call, GoldCall, JsonObject, Trajectory
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.engine import Engine
from toolscout.settings import Settings
from toolscout.synth.chain import Line

UPSTREAMS = Path(__file__).parent / "upstreams"


class Endpoint(ChatEndpoint):
    """Answers as a capable model would, by what stands in the prompt."""

    def __init__(self, reply: Any = None) -> None:
        super().__init__(reply or (lambda body: said(well(body), prompt_tokens=100, completion_tokens=10)))

    def kinds(self) -> Counter[str]:
        return Counter(kind(body) for body in self.asked)


def kind(body: Body) -> str:
    last = body["messages"][-1]["content"]
    for mark, name in (("could not be used", "repair"), ("Parameter to fill", "read"), ("Final answer: ", "faithful")):
        if mark in last:
            return name
    return "answer" if '{"answer"' in last else "response"


def well(body: Body) -> str:
    last = body["messages"][-1]["content"]
    if kind(body) == "read":
        keeper = re.search(r"kept by (\w+ \w+)", last)
        return json.dumps({"value": keeper.group(1) if keeper else None})
    if kind(body) == "answer":
        return json.dumps({"answer": f"The tools say: {re.findall(r'^Answer .*?: (.*)$', last, re.M)[-1][:80]}"})
    return json.dumps({"score": 8, "why": "fine"})


def row(id: str, *gold: GoldCall, query: str = "") -> Call:
    return Call(id=id, query=query or f"What about {id}?", gold=list(gold), lang="en")


def gold(tool: str, id: str | None = None, after: tuple[str, ...] = (), /, **arguments: Any) -> GoldCall:
    return GoldCall(tool_id=f"library/{tool}", arguments=arguments, id=id, depends_on=list(after))


def home_with(folder: Path, *options: str) -> Path:
    """A home with the library and tiny configured, and their tools listed."""
    settings = Settings(home=folder, starter=False)
    folder.mkdir(parents=True, exist_ok=True)
    file = ServersFile(settings.servers_file)
    file.add(UpstreamConfig.stdio("library", sys.executable, ["-I", "-S", str(UPSTREAMS / "library.py"), *options]))
    file.add(UpstreamConfig.stdio("tiny", sys.executable, ["-I", "-S", str(UPSTREAMS / "tiny.py")]))

    async def main() -> None:
        async with Engine(settings) as engine:
            await engine.refresh_server("library")
            await engine.refresh_server("tiny")

    asyncio.run(main())
    return folder


def command(home: Path, rows: Path, out: Path, *more: str) -> list[str]:
    return ["synth", "trajectories", "--calls", str(rows), "--home", str(home), "--out", str(out), *more]


def run(capsys: Any, arguments: list[str]) -> JsonObject:
    capsys.readouterr()
    assert execute([*arguments, "--json"]) == 0
    report: JsonObject = json.loads(capsys.readouterr().out)
    return report


def steps(report: JsonObject) -> dict[str, JsonObject]:
    return {step["step"]: step for step in report["steps"]}


def trajectories(out: Path, name: str = "trajectories") -> dict[str, Trajectory]:
    return {t.id.removesuffix("/run"): t for t in read_records(out / f"{name}.jsonl", Trajectory)}


ROWS = [
    row("single", gold("get_book", book_id="b1")),
    row(
        "chain",
        gold("find_keeper", "d", ("c",), name="$c.keeper.name"),  # in prose: the model reads it out
        gold("describe_shelf", "c", ("b",), shelf="$b.data.shelf"),
        gold("get_book", "b", ("a",), book_id="$a.books[0].book_id"),  # it is bookId there, and a number
        gold("search_books", "a", query="moss"),
        gold("get_page", "e", characters=20),
    ),
    row("empty", gold("search_books", query="nothing")),
    row("denied", gold("get_loans", "1", reader="ann"), gold("get_book", "2", ("1",), book_id="x")),
    row("denied softly", gold("get_loans", reader="quiet")),
    row("wrong", gold("describe_shelf", shelf="twelve")),
    row("lost reference", gold("get_book", "1", book_id="b"), gold("find_keeper", "2", name="$1.keeper")),
    row("crash", gold("get_crash")),
    row("nap", gold("get_nap")),
    row("large", gold("get_page", characters=5000)),
    row("deleting", gold("search_books", "1", query="a"), gold("delete_book", "2", book_id="$1.books[0].bookId")),
    row("untold", gold("shelve", book_id="b")),
    row("unknown", gold("burn_down")),
    row("cycle", gold("get_book", "1", book_id="$2.id"), gold("get_book", "2", book_id="$1.id")),
    row("dangling", gold("get_book", "1", ("9",), book_id="b")),
    row("twice", gold("get_book", "1", book_id="b"), gold("get_book", "1", book_id="c")),
    row("nothing serves it"),
    row("bare", GoldCall(tool_id="library/get_book")),
]


def test_from_calls_to_trajectories(serve: Any, tmp_path: Path, capsys: Any) -> None:
    log = tmp_path / "log"
    home = home_with(tmp_path / "th", "--log", str(log))
    write_records(tmp_path / "rows.jsonl", ROWS)
    endpoint, out = serve(), tmp_path / "out"
    base = command(home, tmp_path / "rows.jsonl", out, "--call-timeout", "3", "--characters", "2000")
    base += ["--calls-at-once", "1"]  # a crash takes what is under way on its server with it
    first = run(capsys, [*base, "--execute-only"])
    assert first["finished"] and first["models"]["writes"] is None and not endpoint.asked
    assert set(trajectories(out)) == {"single", "large"}, "without a model nobody reads prose"
    called = Counter(log.read_text().splitlines())

    report = run(capsys, [*base, "--endpoint", endpoint.url])
    found = steps(report)
    assert list(found) == ["plan", "execute", "outcome", "response", "answer", "faithful"]
    assert report["left_out"] == {"no gold call": 1, "a call without arguments": 1}
    assert found["plan"]["dropped"] == {
        "cycle": 1, "depends on no step": 1, "may write": 2, "tool unknown or not approved": 1,
        "two steps with one id": 1,
    }  # fmt: skip
    assert found["outcome"]["dropped"] == {
        "api_error": 2, "empty_result": 1, "parameter_error": 1, "reference_error": 1, "session_error": 2,
    }  # fmt: skip
    executed = report["executed"]
    assert executed["by_rule"] == {
        "api_error/unauthorized": 2, "empty_result/empty_lists": 1, "parameter_error/arguments_refused": 1,
        "reference_error/no_value": 1, "session_error/crashed": 1, "session_error/timeout": 1,
    }  # fmt: skip
    assert executed["skipped"] == 1 and executed["cut"] == 1
    assert executed["references"] == {"alike": 2, "read": 1}
    assert executed["by_tool"]["library/get_loans"] == {"calls": 2, "went_well": 0, "failed": {"api_error": 2}}
    assert executed["by_server"]["library"]["calls"] == executed["calls"]
    new = Counter(log.read_text().splitlines()) - called
    assert new == {'find_keeper {"name": "Ada Moss"}': 1}, "what was executed is not executed again"
    assert not any(line.startswith(("delete_book", "shelve")) for line in called)

    kept = trajectories(out)
    assert set(kept) == {"single", "chain", "large"}
    chain = kept["chain"]
    assert [m["role"] for m in chain.messages] == [
        "user", "assistant", "tool", "tool", "assistant", "tool", "assistant", "tool", "assistant", "tool", "assistant",
    ]  # fmt: skip
    asked = [c for m in chain.messages for c in m.get("tool_calls", ())]
    assert [c["function"]["name"] for c in asked] == [
        "search_books", "get_page", "get_book", "describe_shelf", "find_keeper"
    ]  # fmt: skip
    assert [json.loads(c["function"]["arguments"]) for c in asked] == [
        {"query": "moss"}, {"characters": 20}, {"book_id": "7"}, {"shelf": 12}, {"name": "Ada Moss"}
    ]  # fmt: skip
    assert [c["id"] for c in asked] == [m["tool_call_id"] for m in chain.messages if m["role"] == "tool"]
    assert chain.messages[-1]["content"].startswith("The tools say: ") and chain.outcome == "success"
    book = next(c for c in chain.calls if c["tool_id"] == "library/get_book")
    assert book["response"]["structuredContent"] == {"id": "7", "pages": 320, "shelf": 12}
    assert book["as_written"] == {"book_id": "$a.books[0].book_id"}
    page = kept["large"].calls[0]["response"]
    # The row before it ended the server: that is said behind what it gives.
    assert (
        page["cut"]
        and page["bytes"] > 5000
        and page["text"].endswith(f"[cut here: 2,000 of {page['bytes']:,} characters]")
    )

    failed = trajectories(out, "failed")
    assert {t.outcome for t in failed.values()} == set(found["outcome"]["dropped"])
    assert failed["denied"].calls[1]["skipped"] and failed["denied"].calls[0]["response"]["isError"]
    for name in found:
        lines = list(read_records(next(out.glob(f"*-{name}.jsonl")), Line))
        assert len(lines) == found[name]["inputs"] and all(line.made or line.dropped for line in lines)

    # a run more does nothing
    requests, calls = len(endpoint.asked), len(log.read_text())
    assert run(capsys, [*base, "--endpoint", endpoint.url])["steps"] == report["steps"]
    assert (len(endpoint.asked), len(log.read_text())) == (requests, calls)

    # what failed is made again when that is asked for, and only that
    before = Counter(log.read_text().splitlines())
    again = run(capsys, [*base, "--endpoint", endpoint.url, "--again", "api_error,parameter_error"])
    assert again["steps"] == report["steps"]
    made = Counter(log.read_text().splitlines()) - before
    assert made == {'get_loans {"reader": "ann"}': 1, 'get_loans {"reader": "quiet"}': 1}


def test_what_may_write_is_executed_when_it_is_allowed(serve: Any, tmp_path: Path, capsys: Any) -> None:
    log = tmp_path / "log"
    home = home_with(tmp_path / "th", "--log", str(log))
    rows = [r for r in ROWS if r.id in ("deleting", "untold")]
    rows.append(Call(id="tiny", query="Say hi.", gold=[GoldCall(tool_id="tiny/fail", arguments={})]))
    write_records(tmp_path / "rows.jsonl", rows)
    endpoint, out = serve(), tmp_path / "out"
    report = run(capsys, [*command(home, tmp_path / "rows.jsonl", out, "--endpoint", endpoint.url), "--writes"])
    assert set(trajectories(out)) == {"deleting"}, "a deletion that answers nothing is not an empty result"
    assert 'delete_book {"book_id": "7"}' in log.read_text()
    assert report["executed"]["by_rule"] == {"other_error/no_reason_given": 1, "parameter_error/refused_parameters": 1}
    assert report["executed"]["by_server"]["tiny"] == {"calls": 1, "went_well": 0, "failed": {"other_error": 1}}


def test_judges_drop_with_their_thresholds(serve: Any, tmp_path: Path, capsys: Any) -> None:
    home = home_with(tmp_path / "th")
    rows = [row(f"r{n}", gold("get_book", book_id=f"b{n}")) for n in range(6)]
    write_records(tmp_path / "rows.jsonl", rows)

    def judged(body: Body) -> Any:
        text, step = body["messages"][-1]["content"], kind(body)
        if step == "response":
            return said(json.dumps({"score": 3 if "about r0?" in text else 7, "why": "w"}))
        if step == "answer" and "about r1?" in text:
            return said(json.dumps({"answer": "By the JSON object that I was given, yes."}))
        if step in ("answer", "repair") and "about r2?" in body["messages"][1]["content"]:
            return said('{"answer": "  "}')
        if step == "faithful":
            return said(json.dumps({"score": 5.5 if "about r3?" in text else 9}))
        return said(well(body))

    endpoint, out = serve(judged), tmp_path / "out"
    base = command(home, tmp_path / "rows.jsonl", out, "--endpoint", endpoint.url)
    found = steps(run(capsys, base))
    assert found["response"]["dropped"] == {"response judged too low": 1}
    assert found["answer"]["dropped"] == {"answer speaks of the prompt": 1, "unusable answer": 1}
    assert found["faithful"]["dropped"] == {"answer judged too low": 1}
    assert set(trajectories(out)) == {"r4", "r5"}
    report = run(capsys, [*base, "--response", "2", "--answer", "5"])
    assert report["thresholds"] == {"response_below": 2, "answer_below": 5}
    assert set(trajectories(out)) == {"r0", "r3", "r4", "r5"}
    scores = json.loads((out / "trajectories.jsonl").read_text().splitlines()[0])["scores"]
    assert (out / "report.html").stat().st_size > 1000
    assert scores == {"judge_response": 3, "judge_faithful": 9}


@pytest.mark.slow
def test_killed_and_resumed_without_loss_or_repeats(serve: Any, tmp_path: Path, capsys: Any) -> None:
    log = tmp_path / "log"
    home = home_with(tmp_path / "th", "--log", str(log), "--pause", "0.05")
    rows = [
        row(f"r{n}", gold("search_books", "1", query=f"q{n}"), gold("get_page", "2", ("1",), characters=n + 1))
        for n in range(24)
    ]
    rows += [row(f"w{n}", gold("delete_book", book_id=f"d{n}")) for n in range(16)]
    write_records(tmp_path / "rows.jsonl", rows)
    endpoint, out = serve(), tmp_path / "out"
    wanted = [
        *command(home, tmp_path / "rows.jsonl", out, "--endpoint", endpoint.url),
        "--writes",
        "--calls-at-once",
        "3",
    ]
    for after in (20, 25):
        before = _lines(log)
        running = subprocess.Popen([sys.executable, "-m", "toolscout", *wanted], env=os.environ)
        while _lines(log) < before + after and running.poll() is None:
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        assert running.wait() == -signal.SIGKILL
    report = run(capsys, wanted)
    called = Counter(log.read_text().splitlines())
    repeated = {line: n for line, n in called.items() if n > 1}
    assert len(repeated) <= 2 * 3 and not any(line.startswith("delete") for line in repeated), repeated
    assert len(called) == 24 * 2 + 16, "every call was made"
    interrupted = report["executed"]["by_rule"].get("session_error/interrupted", 0)
    assert interrupted <= 2 * 3 and report["executed"]["by_cause"] in ({}, {"session_error": interrupted})
    assert len(trajectories(out)) + interrupted == 40
    assert all(f"r{n}" in trajectories(out) for n in range(24)), "reading again loses nothing"
    for path in out.glob("0*.jsonl"):
        ids = [line.id for line in read_records(path, Line)]
        assert len(ids) == len(set(ids))
    with sqlite3.connect(out / "executions.db") as db:
        assert db.execute("SELECT count(*) FROM execution WHERE response IS NOT NULL").fetchone() == (64,)


def _lines(log: Path) -> int:
    return log.read_text().count("\n") if log.exists() else 0


def test_over_http_with_a_token(serve: Any, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    home = home_with(tmp_path / "th")
    write_records(tmp_path / "rows.jsonl", ROWS[:1])
    endpoint, out, port = serve(), tmp_path / "out", _free_port()
    env = {**os.environ, "TOOLSCOUT_HOME": str(home), "TOOLSCOUT_AUTH_TOKEN": "s3cret"}
    running = subprocess.Popen([sys.executable, "-m", "toolscout", "serve", "--http", f"127.0.0.1:{port}"], env=env)
    try:
        tools = tmp_path / "tools.jsonl"
        write_records(tools, _tools(home))
        url = f"http://127.0.0.1:{port}/mcp"
        wanted = [
            "synth", "trajectories", "--calls", str(tmp_path / "rows.jsonl"), "--url", url, "--tools", str(tools),
            "--out", str(out), "--endpoint", endpoint.url,
        ]  # fmt: skip
        _until_open(port)
        assert execute(wanted) == 5 and "cannot be reached" in capsys.readouterr().err, "without the token"
        monkeypatch.setenv("TOOLSCOUT_SYNTH_SERVE_TOKEN", "s3cret")
        assert run(capsys, wanted)["kept"]["trajectories"] == 1
    finally:
        running.terminate()
        running.wait()
    assert not any(b"s3cret" in p.read_bytes() for p in out.iterdir() if p.is_file())


def _tools(home: Path) -> Any:
    from toolscout.index.catalogue import Catalogue

    with Catalogue(Settings(home=home).database_url) as catalogue:
        return list(catalogue.tools())


def _free_port() -> int:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _until_open(port: int) -> None:
    import socket

    for _ in range(600):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)


def test_a_toolscout_that_cannot_be_reached_stops_the_run_and_the_next_one_goes_on(
    serve: Any, tmp_path: Path, capsys: Any
) -> None:
    home, out = home_with(tmp_path / "th"), tmp_path / "out"
    write_records(tmp_path / "rows.jsonl", ROWS[:1])
    write_records(tmp_path / "tools.jsonl", _tools(home))
    given = ["synth", "trajectories", "--calls", str(tmp_path / "rows.jsonl"), "--out", str(out), "--execute-only"]
    away = [*given, "--url", f"http://127.0.0.1:{_free_port()}/mcp", "--tools", str(tmp_path / "tools.jsonl")]
    assert execute(away) == 5 and "cannot be reached" in capsys.readouterr().err
    report = json.loads((out / "report.json").read_text())
    assert not report["finished"] and list(steps(report)) == ["plan"]
    assert run(capsys, [*given, "--home", str(home)])["executed"]["went_well"] == 1


def test_what_the_command_line_says(tmp_path: Path, capsys: Any) -> None:
    write_records(tmp_path / "rows.jsonl", ROWS)
    rows, out = str(tmp_path / "rows.jsonl"), str(tmp_path / "out")
    base = ["synth", "trajectories", "--calls", rows, "--out", out, "--execute-only"]
    for more, code, words in (
        ([], 2, "--home FOLDER or --url URL"),
        (["--home", str(tmp_path), "--url", "http://x/mcp"], 2, "--home FOLDER or --url URL"),
        (["--url", "http://x/mcp"], 2, "--tools"),
        (["--home", str(tmp_path / "none")], 3, "no folder"),
        (["--home", str(tmp_path)], 2, "has none of the tools"),
    ):
        assert execute([*base, *more]) == code
        assert words in capsys.readouterr().err
    home = home_with(tmp_path / "th")
    assert execute([*base, "--home", str(home), "--again", "bad_luck"]) == 2
    assert "no root cause 'bad_luck'" in capsys.readouterr().err
    without = [w for w in base if w != "--execute-only"]
    assert execute([*without, "--home", str(home)]) == 2 and "--endpoint" in capsys.readouterr().err
