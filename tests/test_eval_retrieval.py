"""``toolscout eval retrieval`` end to end, over a real index with the real encoder."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from toolscout.errors import BadInput, NotFound
from toolscout.eval.cli import _settings, app
from toolscout.eval.metrics import RANKING_KEYS
from toolscout.eval.peers import PEERS, PeerPlan
from toolscout.eval.report import retrieval_report
from toolscout.eval.retrieval import measure
from toolscout.eval.retrieval.measure import Asked, RetrievalFiles, measure_retrieval, score
from toolscout.eval.retrieval.pieces import header_of
from toolscout.eval.rows import read_calls
from toolscout.eval.tokens import make_counter
from toolscout.records import Call, GoldCall
from toolscout.server.models import InstalledModel
from toolscout.settings import Settings

DATA = Path(__file__).parent / "data" / "eval"
FILES = RetrievalFiles([DATA / "tools.jsonl"], [DATA / "calls.jsonl"], [DATA / "servers.jsonl"])
KEYS = {
    "n", "pool", "strict", "equivalent", "by_split", "by_lang", "abstention", "latency_ms", "answer_tokens",
    "index_seconds", "rss_mb", "of",
}  # fmt: skip


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One run by the command line: several files of a kind after one option, gzip, every row."""
    folder = tmp_path_factory.mktemp("run")
    lines = (DATA / "tools.jsonl").read_text("utf-8").splitlines(keepends=True)
    (folder / "a.jsonl").write_text("".join(lines[:5]), "utf-8")
    with gzip.open(folder / "b.jsonl.gz", "wt", encoding="utf-8") as stream:
        stream.writelines(lines[5:])
    arguments = ["retrieval", "--tools", str(folder / "a.jsonl"), str(folder / "b.jsonl.gz")]
    arguments += ["--calls", str(DATA / "calls.jsonl"), "--servers", str(DATA / "servers.jsonl")]
    arguments += ["--json", str(folder / "out.json"), "--report", str(folder / "report"), "--peers", "fastmcp,bm25s"]
    ran = CliRunner().invoke(app, arguments)
    assert ran.exit_code == 0, ran.output
    found: dict[str, Any] = json.loads((folder / "out.json").read_text("utf-8"))
    found["folder"], found["output"] = folder, ran.output
    return found


def test_result_has_the_keys_of_the_contract(result: dict[str, Any]) -> None:
    assert set(result) - {"folder", "output", "peers"} == KEYS
    for part in (result, *result["by_split"].values(), *result["by_lang"].values(), *result["peers"].values()):
        assert set(part["strict"]) == set(part["equivalent"]) == set(RANKING_KEYS)
    assert set(result["abstention"]) == {"auroc", "false_offer_rate", "false_refusal_rate", "threshold"}
    assert set(result["latency_ms"]) == set(result["answer_tokens"]) == {"p50", "p95"}


def test_counts_and_groups(result: dict[str, Any]) -> None:
    assert (result["n"], result["pool"]) == (7, 12)
    assert {name: part["n"] for name, part in result["by_split"].items()} == {
        "own": 1, "seen": 3, "several": 1, "unseen_tool": 2,
    }  # fmt: skip
    assert {name: part["n"] for name, part in result["by_lang"].items()} == {"de": 1, "en": 6}


def test_plain_requests_find_their_tools(result: dict[str, Any]) -> None:
    assert result["strict"]["recall@5"] >= 0.9
    assert result["equivalent"]["recall@1"] >= 0.7
    for key in RANKING_KEYS:
        assert result["equivalent"][key] >= result["strict"][key]
    assert result["peers"]["bm25s"]["strict"]["recall@10"] >= 0.8
    assert result["peers"]["fastmcp"]["strict"]["recall@10"] >= 0.8


def test_costs_are_measured(result: dict[str, Any]) -> None:
    assert 0 < result["latency_ms"]["p50"] <= result["latency_ms"]["p95"]
    assert 50 < result["answer_tokens"]["p50"] < 1500
    assert result["index_seconds"] > 0
    assert result["rss_mb"] > 20


def test_report_tells_every_row(result: dict[str, Any]) -> None:
    folder = result["folder"] / "report"
    page = (folder / "report.html").read_text("utf-8")
    assert "<h2>Recall by split</h2>" in page and (folder / "recall.png").exists()
    assert "Retrieval over 12 tools" in page and "Refusal and calibration" in page and "fastmcp" in page
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text("utf-8").splitlines()]
    # n2 says only that nothing among its two candidates fits
    assert [row["id"] for row in rows] == [r.id for r in read_calls([DATA / "calls.jsonl"]) if r.id != "n2"]
    assert "1 rows without gold left out" in page
    assert rows[0]["rank"] == rows[0]["top"].index("kettle/boil_water") + 1
    assert "nDCG@10" in result["output"] and "report.html" in result["output"]


def asked(gold: list[str], ranked: list[str], probability: float, no_match: bool, **more: Any) -> Asked:
    row = Call(id=str(id(ranked)), query="q", gold=[GoldCall(tool_id=g) for g in gold], source="src", **more)
    return Asked(row, ranked, probability, no_match, 2.0, 300)


def test_scores_by_hand() -> None:
    rows = [
        asked(["a"], ["a", "b"], 0.9, False),
        asked(["a"], ["b", "c", "a"], 0.4, True, relevant=["a", "b"], split="s"),
        asked([], ["b"], 0.5, False),
        asked([], ["b"], 0.1, True),
    ]
    result = score(rows, pool=3, threshold=0.45, index_seconds=1.0)
    assert result["n"] == 2
    assert result["strict"]["recall@1"] == 0.5
    assert result["strict"]["mrr"] == round((1 + 1 / 3) / 2, 4)
    assert result["equivalent"]["recall@1"] == 1.0
    assert set(result["by_split"]) == {"s", "src"}
    assert result["by_split"]["s"]["strict"]["recall@1"] == 0.0
    assert result["by_lang"] == {"unknown": {"n": 2, "strict": result["strict"], "equivalent": result["equivalent"]}}
    # pairs: .9>.5, .9>.1, .4<.5, .4>.1
    assert result["abstention"] == {
        "auroc": 0.75, "false_offer_rate": 0.5, "false_refusal_rate": 0.5, "threshold": 0.45,
    }  # fmt: skip


def test_without_unanswerable_rows_abstention_is_not_guessed() -> None:
    result = score([asked(["a"], ["a"], 0.9, False)], pool=1, threshold=0.5, index_seconds=1.0)
    assert result["abstention"]["auroc"] is None
    assert result["abstention"]["false_offer_rate"] is None
    assert result["abstention"]["false_refusal_rate"] == 0.0


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_gold_tools_outside_the_pool_count_as_not_found_and_are_told(tmp_path: Path) -> None:
    calls = write(
        tmp_path / "calls.jsonl",
        [
            {"id": "1", "query": "Run the descaling programme of the kettle", "gold": [{"tool_id": "kettle/descale"}]},
            {"id": "2", "query": "Fly to the moon", "gold": [{"tool_id": "moon/fly"}]},
            {"id": "3", "query": "!?", "gold": [{"tool_id": "atlas/route"}]},
        ],
    )
    said: list[str] = []
    run = measure_retrieval(RetrievalFiles([DATA / "tools.jsonl"], [calls]), say=said.append, cache=tmp_path / "cache")
    assert run.result["strict"]["recall@10"] == pytest.approx(1 / 3, abs=1e-4)
    assert run.warnings == ["1 of 3 gold tools are not in the pool and count as not found, e.g. 'moon/fly'."]
    assert run.warnings[0] in said
    assert run.asked[2].ranked == [] and run.asked[2].no_match
    assert list((tmp_path / "cache").glob("*.sqlite"))
    again = measure_retrieval(RetrievalFiles([DATA / "tools.jsonl"], [calls]), cache=tmp_path / "cache")
    assert [a.ranked for a in again.asked] == [a.ranked for a in run.asked]
    assert retrieval_report(run, tmp_path / "report").read_text("utf-8").count("moon/fly") >= 1


def test_files_that_do_not_belong_together(tmp_path: Path) -> None:
    calls = write(tmp_path / "calls.jsonl", [{"id": "1", "query": "q", "gold": [{"tool_id": "moon/fly"}]}])
    with pytest.raises(BadInput, match=r"None of the 1 gold tools is in the tools files; the first is 'moon/fly'"):
        measure_retrieval(RetrievalFiles([DATA / "tools.jsonl"], [calls]))


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as missing:
        measure_retrieval(RetrievalFiles([tmp_path / "no.jsonl"], [DATA / "calls.jsonl"]))
    assert missing.value.hint == "Check the paths of --tools.", "no words of an import that nobody asked for"
    with pytest.raises(NotFound) as missing:
        no = [tmp_path / "no.jsonl"]
        measure_retrieval(RetrievalFiles([DATA / "tools.jsonl"], [DATA / "calls.jsonl"], no))
    assert missing.value.hint == "Check the paths of --servers."
    broken = tmp_path / "broken.jsonl"
    broken.write_text('{"tool_id": "a/b"\n', "utf-8")
    with pytest.raises(BadInput, match=r"broken\.jsonl:1"):
        measure_retrieval(RetrievalFiles([broken], [DATA / "calls.jsonl"]))
    twice = write(tmp_path / "twice.jsonl", [{"id": "1", "query": "q"}, {"id": "1", "query": "r"}])
    with pytest.raises(BadInput, match="'1' occurs twice"):
        read_calls([twice])
    empty = write(tmp_path / "empty.jsonl", [])
    with pytest.raises(BadInput, match="no rows"):
        read_calls([empty])


def test_limit_draws_the_same_rows_whatever_their_order(tmp_path: Path) -> None:
    rows = [{"id": f"r{i}", "query": "q"} for i in range(40)]
    forward = read_calls([write(tmp_path / "a.jsonl", rows)], limit=10, seed=3)
    backward = read_calls([write(tmp_path / "b.jsonl", rows[::-1])], limit=10, seed=3)
    assert {r.id for r in forward} == {r.id for r in backward}
    assert len(forward) == 10
    assert {r.id for r in read_calls([tmp_path / "a.jsonl"], limit=10, seed=4)} != {r.id for r in forward}


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, cache = tmp_path / "deep" / "work.jsonl", tmp_path / "cache"
    asked_rows: list[str] = []
    really, peer = measure._ask, PEERS["bm25s"]

    def fails(index: Any, row: Call, *rest: Any) -> Asked:
        asked_rows.append(row.id)
        if len(asked_rows) == 4:
            raise RuntimeError("out of memory")
        return really(index, row, *rest)

    monkeypatch.setattr(measure, "_ask", fails)
    with pytest.raises(RuntimeError):
        measure_retrieval(FILES, work=work, cache=cache)
    with work.open("a", encoding="utf-8") as stream:
        stream.write('{"key": "plain c5')  # the machine lost power in the middle of a line
    # the second run comes further: all rows, and the first peer
    peers_asked: list[str] = []

    def counted(name: str, fails: bool) -> Any:
        def ask(task: Any) -> Any:
            peers_asked.append(name)
            if fails:
                raise RuntimeError("killed")
            return peer(task)

        return ask

    monkeypatch.setitem(PEERS, "bm25s", counted("bm25s", False))
    monkeypatch.setitem(PEERS, "bm25s-words", counted("bm25s-words", True))
    plan = PeerPlan(["bm25s", "bm25s-words"])
    with pytest.raises(RuntimeError):
        measure_retrieval(FILES, work=work, cache=cache, peers=plan)
    monkeypatch.setitem(PEERS, "bm25s-words", counted("bm25s-words", False))
    said: list[str] = []
    run = measure_retrieval(FILES, work=work, cache=cache, peers=plan, say=said.append)
    rows = [r.id for r in read_calls(FILES.calls) if r.id != "n2"]
    assert asked_rows == rows[:4] + rows[3:], "no row was answered twice"
    assert peers_asked == ["bm25s", "bm25s-words", "bm25s-words"]
    assert "8 of 8 requests were answered before" in said and "bm25s was asked before" in said
    assert run.notes["latency_ms"] == "8 of 8 requests were answered in an earlier run"
    whole = measure_retrieval(FILES, cache=cache, peers=plan)
    for key in ("strict", "equivalent", "by_split", "abstention", "answer_tokens"):
        assert run.result[key] == whole.result[key]
    assert run.result["peers"]["bm25s"]["strict"] == whole.result["peers"]["bm25s"]["strict"]
    assert [a.ranked for a in run.asked] == [a.ranked for a in whole.asked] and run.result["rss_mb"] > 20
    with pytest.raises(BadInput, match="another run"):
        measure_retrieval(RetrievalFiles(FILES.tools, FILES.calls), work=work)


def test_a_finished_run_leaves_nothing_for_the_next(result: dict[str, Any]) -> None:
    assert not (result["folder"] / "out.json.rows.jsonl").exists()


def test_a_work_file_is_of_one_search(tmp_path: Path) -> None:
    (tmp_path / "tools.jsonl").write_text("a")
    settings = Settings(home=tmp_path, encoder=str(tmp_path))
    first = header_of([tmp_path / "tools.jsonl"], [], settings, None)
    assert first == header_of([tmp_path / "tools.jsonl"], [], settings, None)
    (tmp_path / "model.onnx").write_text("other weights")
    assert header_of([tmp_path / "tools.jsonl"], [], settings, None) != first
    assert len(first["search"]) == 64 and first["files"][0]


def test_unknown_peer_and_setting(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no peer called 'magic'"):
        measure_retrieval(FILES, peers=PeerPlan(["magic"]))
    arguments = [
        "retrieval",
        "--tools",
        str(DATA / "tools.jsonl"),
        "--calls",
        str(DATA / "calls.jsonl"),
        "--set",
        "no=1",
    ]
    ran = CliRunner().invoke(app, arguments)
    assert isinstance(ran.exception, BadInput) and "--set no=1 is no setting" in str(ran.exception)


def test_a_setting_is_known_by_its_variable_too() -> None:
    made = _settings(["TOOLSCOUT_MODEL_CHOOSES=true", "model_context=2048"])
    assert made.model_chooses is True and made.model_context == 2048


def test_tokens_are_counted_with_a_real_vocabulary(small_model: InstalledModel) -> None:
    counter = make_counter()
    assert counter.name == "SmolLM2 BPE"
    assert counter("") == 0
    # digits one by one, the rest by GPT-2's words: "_", " find", "_", "tools", ...
    assert counter("12345") == 5
    assert 3 <= counter("find tools for the weather") <= 6


def test_a_tokenizer_may_be_given(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tiny.json"))
    counter = make_counter(tmp_path / "tiny.json")
    assert (counter.name, counter("a b c")) == ("tiny", 3)
    with pytest.raises(BadInput, match="cannot be read"):
        make_counter(DATA / "tools.jsonl")


@pytest.mark.parametrize(("option", "says"), [("--report", "is a file"), ("--json", "is a folder")])
def test_a_place_that_cannot_take_the_result_is_refused_first(option: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" if option == "--report" else tmp_path
    for command in (["retrieval"], ["needle"]):
        asked = [*command, "--tools", str(tmp_path / "none.jsonl"), "--calls", str(tmp_path / "none.jsonl")]
        ran = CliRunner().invoke(app, [*asked, option, str(place)])
        assert isinstance(ran.exception, BadInput) and says in str(ran.exception)
