"""Other searches in the same run: each peer over small data, programs of their own, the table and the plot."""

from __future__ import annotations

import json
import os
import shlex
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from toolscout.errors import BadInput
from toolscout.eval.cli import app
from toolscout.eval.metrics import RANKING_KEYS
from toolscout.eval.peers import PEERS, PeerPlan, measure_peers
from toolscout.eval.peers import command as command_module
from toolscout.eval.peers.base import PeerTask, mcp_names
from toolscout.eval.peers.dense import MeanPooledOnnx, open_encoder, pooled, top
from toolscout.eval.peers.fastmcp_search import PATTERN_LIMIT, patterns
from toolscout.eval.peers.mcp_zero import TOP_SERVERS, Matcher
from toolscout.eval.peers.report import NO_PLOT, everyone, peers_table, write_plot
from toolscout.eval.rows import read_calls, read_servers, read_tools
from toolscout.eval.work_file import Work
from toolscout.index.asset import DEFAULT_ENCODER, encoders_folder
from toolscout.index.encoder import OnnxEncoder
from toolscout.records import Server, Tool
from toolscout.settings import Settings

DATA = Path(__file__).parent / "data" / "eval"
RIVALS = Path(__file__).parents[1] / "benchmarks" / "rivals"
ENCODER = encoders_folder() / DEFAULT_ENCODER

PROGRAM = """
import os, sys
sys.path.insert(0, {rivals!r})
from protocol import by_server, serve, unique_names

def build(tools):
    print("what a library prints is no answer")
    named = unique_names(tools)
    def search(query, limit, offered):
        words = set(query.lower().split())
        text = lambda t: (t["name"].replace("_", " ") + " " + t["description"]).lower().split()
        ranked = sorted(tools, key=lambda t: -len(words & set(text(t))))
        ids = ["nobody/nothing"] + [t["tool_id"] for t in ranked]
        return ids[:limit], lambda: "a tool " * offered
    return f"{{len(named)}} names, {{len(by_server(tools))}} servers, {{os.environ.get('A_SECRET')}}", search

serve(build)
"""


def python(folder: Path, source: str) -> str:
    file = folder / "program.py"
    file.write_text(source, "utf-8")
    return shlex.join([sys.executable, str(file)])


def measured(plan: PeerPlan, **more: Any) -> dict[str, Any]:
    calls = read_calls([DATA / "calls.jsonl"])
    servers = read_servers([DATA / "servers.jsonl"])
    return measure_peers(plan, read_tools([DATA / "tools.jsonl"]), servers, calls, len, **more)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every peer that needs nothing special, by the command line."""
    folder = tmp_path_factory.mktemp("peers")
    program = python(folder, PROGRAM.format(rivals=str(RIVALS)))
    arguments = ["retrieval", "--tools", str(DATA / "tools.jsonl"), "--calls", str(DATA / "calls.jsonl")]
    arguments += ["--servers", str(DATA / "servers.jsonl"), "--json", str(folder / "out.json")]
    arguments += ["--report", str(folder / "report"), "--peers", ",".join(PEERS), "--cache", str(folder / "cache")]
    arguments += ["--peer-encoder", f"plain={ENCODER}", "--peer-command", f"program={program}"]
    arguments += ["--peer-command", f"broken={shlex.join([sys.executable, '-c', 'raise SystemExit(3)'])}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("A_SECRET", "hunter2")
        ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads((folder / "out.json").read_text("utf-8"))
    return {**found, "folder": folder, "output": ran.output}


def test_an_encoder_that_was_trained_anew_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dense(task: Any, *_: Any, **__: Any) -> Any:
        asked.append("dense")
        return PEERS["bm25s"](task)

    asked: list[str] = []
    monkeypatch.setattr("toolscout.eval.peers.ask_dense", dense)
    plan, done = PeerPlan(encoders={"theirs": tmp_path}), Work({}, None)
    for weights, times in (("one", 1), ("one", 1), ("two", 2)):
        (tmp_path / "model.onnx").write_text(weights)
        measured(plan, done=done)
        assert len(asked) == times, weights


def test_every_peer_is_scored_alike(run: dict[str, Any]) -> None:
    assert list(run["peers"]) == [*PEERS, "plain", "program", "broken"]
    for name, part in run["peers"].items():
        if name == "broken":
            continue
        assert part["n"] == run["n"] == 7
        assert set(part["strict"]) == set(part["equivalent"]) == set(RANKING_KEYS)
        assert part["latency_ms"]["p50"] > 0 and part["about"]
        # plain requests over twelve tools: who finds fewer than half is not asked rightly
        assert part["equivalent"]["recall@5"] >= (0.5 if name == "program" else 0.8), name


def test_answers_are_counted_where_a_peer_defines_them(run: dict[str, Any]) -> None:
    given = {name for name, part in run["peers"].items() if part.get("answer_tokens", {}).get("p50")}
    assert given == {"fastmcp", "fastmcp-regex", "mcp-zero", "program"}
    assert run["peers"]["bm25s"]["answer_tokens"] == {"p50": None, "p95": None}


def test_a_program_gets_the_tools_but_no_secret(run: dict[str, Any]) -> None:
    assert run["peers"]["program"]["about"] == "12 names, 4 servers, None"


def test_a_failed_program_is_told_and_the_others_are_measured(run: dict[str, Any]) -> None:
    part = run["peers"]["broken"]
    assert set(part) == {"about", "failed"}
    assert "The program of the peer broken ended" in part["failed"]
    assert part["failed"] in (run["folder"] / "report" / "report.html").read_text("utf-8")
    assert "broken" not in everyone(run)


def test_table_and_plot(run: dict[str, Any]) -> None:
    _, head, rows = peers_table(run)
    assert {row[0] for row in rows} == {"", "toolscout", *PEERS, "plain", "program"}
    assert {len(row) for row in rows} == {len(head)}
    assert "fastmcp-regex" in run["output"] and "mcp-zero" in run["output"]
    report = run["folder"] / "report"
    assert (report / "peers.png").read_bytes().startswith(b"\x89PNG")
    assert (report / "peers.svg").stat().st_size > 10_000
    assert "<svg" in (report / "report.html").read_text("utf-8").split("<h2>Peers</h2>")[1]


def test_without_matplotlib_the_report_says_so(
    run: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert write_plot(run, tmp_path) is None
    assert list(tmp_path.glob("peers.*")) == []
    assert "matplotlib" in NO_PLOT


def test_patterns_of_a_request() -> None:
    narrow, wide = patterns("Please create an Issue in the repository!")
    assert narrow == "create.*issue|issue.*create|issue.*repository|repository.*issue"
    assert wide == "create|issue|repository"
    assert patterns("weather") == ["weather"]
    assert patterns("what is it?") == patterns("!?") == []
    long = patterns(" ".join(f"word{i}" for i in range(400)))
    assert all(500 < len(pattern) < PATTERN_LIMIT and not pattern.endswith("|") for pattern in long)


def test_mcp_names_are_unique_and_allowed() -> None:
    tools = {i: Tool(tool_id=i, server_id="s", name="n") for i in ("a/b c", "a/b_c", "ü/" + "x" * 200)}
    names = mcp_names(tools)
    assert list(names.values()) == list(tools)
    assert list(names)[:2] == ["a_b_c", "a_b_c_2"]
    assert all(len(name) <= 128 and name.isascii() for name in names)


def test_top_is_sorted_and_first_comes_first() -> None:
    scores = np.array([0.1, 0.9, 0.5, 0.9, 0.2], dtype=np.float32)
    assert top(scores, 3) == [1, 3, 2]
    assert top(scores, 10) == [1, 3, 2, 4, 0]
    assert top(scores[:0], 3) == []


def test_a_plain_onnx_export_is_an_encoder(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    (tmp_path / "onnx" / "model.onnx").symlink_to(ENCODER / "model.onnx")
    (tmp_path / "tokenizer.json").symlink_to(ENCODER / "tokenizer.json")
    encoder = open_encoder(tmp_path)
    assert isinstance(encoder, MeanPooledOnnx)
    texts = ["boil water", "create an invoice"]
    ours = OnnxEncoder(ENCODER, prefixes=False).encode(texts)
    assert np.allclose((encoder.encode(texts) * ours).sum(axis=1), 1.0, atol=1e-3)
    assert isinstance(open_encoder(ENCODER), OnnxEncoder)


def test_the_cache_keeps_documents_but_no_timed_request(settings: Settings, tmp_path: Path) -> None:
    first = measured(PeerPlan(["mcp-zero"], {"plain": ENCODER}), settings=settings, cache=tmp_path)
    (file,) = tmp_path.glob("*.sqlite")
    with sqlite3.connect(file) as store:
        (kept,) = store.execute("SELECT count(*) FROM vectors").fetchone()
    # a plain text and a description for each of 12 tools, a description for each of 4 servers, some of them equal
    assert 20 <= kept <= 12 + 12 + 4
    again = measured(PeerPlan(["mcp-zero"], {"plain": ENCODER}), settings=settings, cache=tmp_path)
    assert [again[name]["strict"] for name in again] == [first[name]["strict"] for name in first]


def test_token_vectors_are_averaged_and_normalised() -> None:
    tokens = np.array([[[3.0, 0.0], [0.0, 8.0], [3.0, 0.0]]])
    assert np.allclose(pooled(tokens), [0.6, 0.8])
    assert np.allclose(pooled(np.array([[0.0, 2.0]])), [0.0, 1.0])


def test_mcp_zero_by_hand(settings: Settings) -> None:
    topics = ("weather", "invoices", "maps", "email", "music", "databases", "calendars")
    servers = {t: Server(server_id=t, description=f"A service for {t}") for t in topics}
    servers["maps"] = servers["maps"].model_copy(update={"summary": "Everything about rain and sunshine"})
    verbs = ("list", "create", "delete")
    tools = [Tool(tool_id=f"{t}/{v}", server_id=t, name=v, description=f"{v} {t}") for t in topics for v in verbs]
    matcher = Matcher(PeerTask({t.tool_id: t for t in tools}, servers, [], len, settings))
    ranked = matcher.rank([("weather service", "list the weather")])
    assert ranked[0] == "weather/list"
    assert len(ranked) == TOP_SERVERS * len(verbs)

    encode = matcher.encoder.encode
    wanted_server, wanted_tool = encode(["weather service", "list the weather"], kind="query")

    def level(server_id: str) -> float:
        server = servers[server_id]
        said = [server.description, server.summary or server.description]
        return float(max(encode([text])[0] @ wanted_server for text in said))

    def score(tool: Tool) -> float:
        s_server, s_tool = level(tool.server_id), float(encode([tool.description])[0] @ wanted_tool)
        return s_server * s_tool * max(s_server, s_tool)

    routed = set(sorted(topics, key=level, reverse=True)[:TOP_SERVERS])
    expected = sorted((t for t in tools if t.server_id in routed), key=score, reverse=True)
    assert ranked == [t.tool_id for t in expected]


def test_mcp_zero_takes_structured_requests(settings: Settings) -> None:
    plan = PeerPlan(["mcp-zero"], structured={"c5": [("bookkeeping", "expenses of a month"), ("", "account balance")]})
    part = measured(plan, settings=settings)["mcp-zero"]
    assert part["structured"]["n"] == 1
    # two requests take turns, so both gold tools are among the first few
    assert part["structured"]["strict"]["recall@5"] == 1.0
    ours = {"equivalent": {"recall@5": 0.0}}
    shown = everyone({**ours, "peers": {"mcp-zero": part}, "structured": {"forms": {"plain": ours, "both": ours}}})
    assert set(shown) == {"toolscout", "toolscout, both", "mcp-zero", "mcp-zero, structured"}


ANSWERS = "import sys\nfor line in sys.stdin:\n if {when!r} in line: print({line!r}, flush=True)"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import sys; sys.exit('no weights here')", "ended. Its last words: no weights here"),
        (ANSWERS.format(when="index", line="hello"), "no JSON object"),
        (ANSWERS.format(when="index", line='{"error": "sold out"}'), "says: sold out"),
        (ANSWERS.format(when="op", line="{}"), "without 'ranked'"),
        ("import time; time.sleep(60)", "gave no answer within 1 s"),
    ],
)
def test_what_a_program_does_wrong_is_said(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "within" in said:
        monkeypatch.setattr(command_module, "INDEX_SECONDS", 1)
    told: list[str] = []
    part = measured(PeerPlan(commands={"odd": python(tmp_path, source)}), say=told.append)["odd"]
    assert said in part["failed"] and part["failed"] in told


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not (stat.is_file() and stat.read_text().rpartition(")")[2].split()[0] == "Z")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="process groups are POSIX")
def test_a_stalled_program_leaves_no_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrapper that only changes the user must not leave the program itself behind."""
    monkeypatch.setattr(command_module, "INDEX_SECONDS", 3)
    note = tmp_path / "child"
    child = f"import os, time; open({str(note)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    wrapper = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {child!r}])"
    assert "failed" in measured(PeerPlan(commands={"slow": python(tmp_path, wrapper)}))["slow"]
    for _ in range(100):
        if not alive(int(note.read_text())):
            break
        time.sleep(0.05)
    else:
        pytest.fail("the program's child is still there")


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (PeerPlan(["magic"]), "no peer called 'magic'"),
        (PeerPlan(["bm25s"], encoders={"bm25s": ENCODER}), "Two peers are called 'bm25s'"),
        (PeerPlan(encoders={"e": Path("no-such-folder")}), "does not exist"),
        (PeerPlan(encoders={"e": DATA}), "no encoder in"),
        (PeerPlan(commands={"c": "no-such-program --x"}), "no program 'no-such-program'"),
        (PeerPlan(commands={"c": "'"}), "cannot be read"),
    ],
)
def test_a_wrong_plan_is_refused(plan: PeerPlan, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        measured(plan)


def test_options_of_peers_are_name_and_value() -> None:
    arguments = ["retrieval", "--tools", str(DATA / "tools.jsonl"), "--calls", str(DATA / "calls.jsonl")]
    for option, said in ((["--peer-encoder", "x"], "is not NAME=VALUE"), (["--peer-command", "a=b", "a=c"], "twice")):
        ran = CliRunner().invoke(app, arguments + option)
        assert isinstance(ran.exception, BadInput) and said in str(ran.exception)
