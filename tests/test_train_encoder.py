"""Training of the tool encoder: pairs, negatives, batches and leakage always; the training itself where torch is."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import search_pool

from toolscout.cli import execute
from toolscout.commands.options import card_command
from toolscout.errors import BadInput, ModelError, NotFound
from toolscout.finetune import train_encoder as training
from toolscout.finetune.augment import KINDS, augment
from toolscout.finetune.leakage import check_leakage, hold_out
from toolscout.finetune.leakage import main as leakage_main
from toolscout.finetune.model import encode, load_model
from toolscout.finetune.negatives import Miner, draw_negatives
from toolscout.finetune.pairs import (
    NOTHING,
    VIEWS,
    Pair,
    Pool,
    description_pairs,
    make_pairs,
    nothing_pairs,
    read_pool,
    same_text,
    split_off,
)
from toolscout.finetune.recall import dense_recall
from toolscout.finetune.rows import RowOptions, TrainingRow, build_rows, row_texts
from toolscout.finetune.running import last_checkpoint
from toolscout.index.document import query_text, server_text, tool_text
from toolscout.jsonl import read_records, write_records
from toolscout.records import Call, GoldCall, Review, ServerState, Tool

ROOT = Path(__file__).parents[1]

SERVERS = {s.server_id: s for s in search_pool.servers()}
TOOLS = {t.tool_id: t for t in search_pool.tools()}


def call(name: str, query: str, *gold: str, relevant: list[str] | None = None, split: str | None = None) -> Call:
    return Call(id=name, query=query, gold=[GoldCall(tool_id=g) for g in gold], relevant=relevant, split=split)


def requests() -> list[Call]:
    """One request for every tool of the small pool."""
    return [call(f"r{i}", f"please {t.description} number {i}", t.tool_id) for i, t in enumerate(TOOLS.values())]


@pytest.fixture
def pool() -> Pool:
    return Pool(dict(TOOLS), dict(SERVERS))


# --- pairs -----------------------------------------------------------------------------------------------------------


def test_texts_are_those_of_the_index(pool: Pool) -> None:
    for tool_id, tool in TOOLS.items():
        server = SERVERS[tool.server_id]
        assert pool.text(tool_id) == tool_text(tool, server)
        assert pool.text(tool_id, "server") == server_text(server)
        for view in VIEWS:
            assert pool.text(tool_id, view).strip()


def test_views_leave_their_part_out(pool: Pool) -> None:
    tool = "acme/weather/get_forecast"
    assert "temperature, rain" in pool.text(tool)
    assert "temperature, rain" not in pool.text(tool, "no_description")
    assert pool.text(tool).endswith("city, days")
    assert not pool.text(tool, "no_parameters").endswith("city, days")
    assert pool.text(tool).startswith("Weather. ")
    assert pool.text(tool, "no_server").startswith("get forecast")
    with pytest.raises(BadInput, match="no document view"):
        pool.text(tool, "sideways")


def test_pairs_are_made_of_what_may_be_shown(pool: Pool) -> None:
    blocked = TOOLS["demo/time/convert_time"].model_copy(update={"review": Review.BLOCKED})
    pool = Pool(pool.tools | {blocked.tool_id: blocked}, pool.servers, frozenset(["demo/git/git_log"]))
    pairs, left = make_pairs(
        [
            call("a", "open https://x.example/y as text", "demo/fetch/fetch"),
            call("b", "convert the time", "demo/time/convert_time"),
            call("c", "what was committed", "demo/git/git_log"),
            call("d", "sing"),
            call("e", "look and commit", "demo/git/git_status", "demo/git/git_commit"),
            call("f", "fly", "nobody/knows"),
            call("g", "?!", "demo/git/git_status"),
        ],
        pool,
    )
    assert [(p.id, p.gold) for p in pairs] == [("a", "demo/fetch/fetch")]
    assert pairs[0].query == query_text("open https://x.example/y as text") != "open https://x.example/y as text"
    assert dict(left) == {
        "tool held out or not approved": 2,
        "without gold or words": 2,
        "with several tools": 1,
        "tool not in the pool": 1,
    }
    several, _ = make_pairs([call("e", "look, commit", "demo/git/git_status", "demo/git/git_commit")], pool, max_gold=2)
    assert [(p.id, p.gold) for p in several] == [("e#0", "demo/git/git_status"), ("e#1", "demo/git/git_commit")]


def test_no_training_shows_tools_of_a_quarantined_server(pool: Pool) -> None:
    home = TOOLS["demo/time/convert_time"].server_id
    held = SERVERS[home].model_copy(update={"state": ServerState.QUARANTINED})
    pool = Pool(pool.tools, {**pool.servers, home: held})
    assert pool.shown() == [t for t, tool in TOOLS.items() if tool.server_id != home]
    pairs, left = make_pairs([call("a", "convert the time", "demo/time/convert_time")], pool)
    assert (pairs, dict(left)) == ([], {"tool held out or not approved": 1})


def test_descriptions_ask_for_tools_that_no_request_names(pool: Pool) -> None:
    pool = pool.without(["demo/git/git_log"])
    found = {p.gold: p for p in description_pairs(pool, skip={"demo/fetch/fetch"})}
    assert "demo/fetch/fetch" not in found
    assert "demo/git/git_log" not in found
    assert found["demo/git/git_status"].query.startswith("Shows the working tree status")
    assert found["demo/git/git_status"].view == "no_description"


def test_unseen_tools_of_the_files_are_held_out(tmp_path: Path) -> None:
    lines = [
        {"tool_id": "s/a", "server_id": "s", "name": "a", "split": "seen"},
        {"tool_id": "s/b", "server_id": "s", "name": "b", "split": "unseen_tool"},
        {"tool_id": "s/a", "server_id": "s", "name": "again"},
    ]
    path = tmp_path / "tools.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    pool = read_pool([path])
    assert pool.held_out == {"s/b"}
    assert pool.shown() == ["s/a"]
    assert pool.tools["s/a"].name == "a"


def test_requests_in_other_forms() -> None:
    draw = random.Random(0)
    assert augment("What is the weather in Lima?", "keywords", draw) == "What is the weather in Lima?"
    assert augment("Show me the open issues of project Atlas", "keywords", draw) == "Show open issues project Atlas"
    assert augment("Merge PDF Files!", "lower", draw) == "merge pdf files"
    slipped = augment("merge files", "typo", draw)
    assert slipped != "merge files"
    assert sorted(slipped) == sorted("merge files")
    for kind in KINDS:
        assert augment("東京の天気", kind, draw) == "東京の天気"
    with pytest.raises(BadInput):
        augment("x", "shout", draw)


# --- leakage ---------------------------------------------------------------------------------------------------------


def test_a_dev_request_among_the_training_rows_is_refused() -> None:
    dev = [call("d", "What is the weather in Bogotá?", "acme/weather/get_forecast")]
    check_leakage([call("t", "weather in Lima", "acme/weather/get_forecast")], dev)
    with pytest.raises(BadInput, match=r"1 training rows ask what a dev row asks.*'t'"):
        check_leakage([call("t", "what is... THE weather, in bogota", "acme/weather/get_forecast")], dev)


@pytest.mark.parametrize(("split", "refused"), [("unseen_tool", True), ("unseen_server", True), ("seen", False)])
def test_an_unseen_dev_tool_among_the_training_rows_is_refused(split: str, refused: bool) -> None:
    dev = [call("d", "commit my work", "demo/git/git_commit", split=split)]
    for train in (
        call("t", "save it in git", "demo/git/git_commit"),
        call("t", "save it", "demo/git/git_status", relevant=["demo/git/git_commit"]),
    ):
        if refused:
            with pytest.raises(BadInput, match=r"show a tool that dev calls unseen.*git_commit"):
                check_leakage([train], dev)
        else:
            check_leakage([train], dev)


def test_marks_of_several_runs_are_united(tmp_path: Path) -> None:
    for name, gold in (("first", "a/b/c"), ("second", "a/b/d"), ("third", "a/b/e")):
        row = {"query": "weather in Lima", "gold": gold, "negatives": ["x/y/z"]}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    before, after = tmp_path / "before.npy", tmp_path / "after.npy"
    leakage_main(["--trained", str(before), str(tmp_path / "first.jsonl"), str(tmp_path / "second.jsonl")])
    assert len(np.load(before)) == 4  # the request and the negative are the same
    leakage_main(["--trained", str(after), str(before), str(tmp_path / "third.jsonl")])
    assert len(np.load(after)) == 5 and set(np.load(before)) < set(np.load(after))


def test_an_unseen_tool_is_held_out_under_every_name(pool: Pool) -> None:
    tool = TOOLS["demo/git/git_commit"]
    copy = tool.model_copy(update={"tool_id": "copy/git_commit", "server_id": "copy"})
    pool = Pool(pool.tools | {copy.tool_id: copy}, pool.servers)
    held = hold_out(pool, [call("d", "commit my work", tool.tool_id, split="unseen_tool")])
    assert held.held_out == {tool.tool_id, copy.tool_id}
    pairs, _ = make_pairs([call("t", "save it", copy.tool_id)], held)
    assert pairs == []
    rows = rows_of(held, requests())
    assert not {t for row in rows for t in (row.gold, *row.negatives)} & held.held_out


# --- negatives -------------------------------------------------------------------------------------------------------


def test_negatives_are_near_and_wrong(pool: Pool) -> None:
    pair = Pair("p", "open an issue about the login bug", "acme/github/create_issue", frozenset())
    found = Miner(pool).mine([pair])[0]
    assert found["siblings"], "other tools of the server"
    assert all(t.startswith("acme/github/") and t != pair.gold for t in found["siblings"])
    assert "acme/gitlab/create_issue" in found["words"]
    assert pair.gold not in found["words"]
    assert "dense" not in found


def test_what_is_relevant_is_no_negative(pool: Pool) -> None:
    right = frozenset(["acme/github/create_issue", "acme/gitlab/create_issue"])
    pair = Pair("p", "open an issue about the login bug", "acme/github/create_issue", right)
    found = Miner(pool).mine([pair])[0]
    assert not right & {t for tools in found.values() for t in tools}


def test_near_duplicates_of_the_gold_are_no_negatives(pool: Pool) -> None:
    gold = TOOLS["acme/weather/get_forecast"]
    changes: dict[str, dict[str, Any]] = {
        "same description": {"name": "forecast_v2", "input_schema": {}},
        "same words": {"description": gold.description.replace(" and ", ", ") + " Now."},
        "same definition": {},
        "another tool": {"name": "sea_state", "description": "Forecast of waves and tides at a beach."},
    }
    copies = {
        key: gold.model_copy(update={"tool_id": f"{key}/x", "server_id": key, **change})
        for key, change in changes.items()
    }
    miner = Miner(Pool(pool.tools | {t.tool_id: t for t in copies.values()}, pool.servers))
    assert {key: miner.near_duplicate(gold.tool_id, t.tool_id) for key, t in copies.items()} == {
        "same description": True,
        "same words": True,
        "same definition": True,
        "another tool": False,
    }
    found = miner.mine([Pair("p", "weather forecast for a city", gold.tool_id, frozenset())])[0]
    assert [t for t in found["words"] if t.endswith("/x")] == ["another tool/x"]


def test_siblings_in_the_same_words_stay_negatives() -> None:
    tools = [
        Tool(tool_id=f"s/{verb}_page", server_id="s", name=f"{verb}_page", description=f"{verb} a page {text}")
        for verb in ("get", "delete")
        for text in ["of the wiki by id in the space that was chosen before, with version, labels and comments"]
    ]
    miner = Miner(Pool({t.tool_id: t for t in tools}))
    found = miner.mine([Pair("p", "remove the page", "s/delete_page", frozenset())])[0]
    assert found["siblings"] == ["s/get_page"]


def test_dense_near_misses_come_nearest_first(pool: Pool) -> None:
    ids = pool.shown()
    random_vectors = np.random.default_rng(0).standard_normal((len(ids), 8)).astype(np.float32)
    vectors = random_vectors / np.linalg.norm(random_vectors, axis=1, keepdims=True)
    gold = 3
    found = Miner(pool, vectors).mine([Pair("p", "anything", ids[gold], frozenset())], vectors[gold : gold + 1])[0]
    order = [ids[i] for i in np.argsort(-(vectors @ vectors[gold])) if vectors[i] @ vectors[gold] > 0]
    assert found["dense"] == [t for t in order if t != ids[gold]][: len(found["dense"])]
    with pytest.raises(BadInput, match="do not fit"):
        Miner(pool, vectors[1:])


def test_what_a_trained_encoder_puts_beside_the_gold_is_no_negative(pool: Pool) -> None:
    miner = Miner(pool, np.eye(len(pool.shown()), dtype=np.float32), trained=True)
    gold, beside, below = [t for t in miner.ids if pool.tools[t].server_id != pool.tools[miner.ids[0]].server_id][:3]
    query = np.zeros((1, len(miner.ids)), dtype=np.float32)
    for tool_id, cosine in ((gold, 0.8), (beside, 0.79), (below, 0.7)):
        query[0, miner.row_of[tool_id]] = cosine
    found = miner.mine([Pair("x", "zzz", gold, frozenset([gold]))], query)[0]
    assert found["dense"] == [below]
    miner.trained = False
    assert miner.mine([Pair("x", "zzz", gold, frozenset([gold]))], query)[0]["dense"] == [beside, below]


def test_drawn_negatives_differ_and_repeat_by_seed() -> None:
    found = {"siblings": ["a", "b"], "words": ["b", "c"]}
    sources = ("siblings", "words", "dense")
    drawn = draw_negatives(found, sources, 3, random.Random(1))
    assert sorted(drawn) == ["a", "b", "c"]
    assert drawn == draw_negatives(found, sources, 3, random.Random(1))
    assert found == {"siblings": ["a", "b"], "words": ["b", "c"]}, "left as it was"


# --- rows ------------------------------------------------------------------------------------------------------------


def rows_of(pool: Pool, calls: list[Call], **options: Any) -> list[TrainingRow]:
    pairs, _ = make_pairs(calls, pool)
    miner = Miner(pool)
    return build_rows(pairs, miner.mine(pairs), miner, RowOptions(**{"batch": 8, **options}))


def conflicts(rows: list[TrainingRow], size: int, pool: Pool, relevant: Mapping[str, frozenset[str]]) -> int:
    """Documents in a batch that serve another row's request."""
    count = 0
    for start in range(0, len(rows), size):
        batch = rows[start : start + size]
        for row in batch:
            right = {row.gold, *relevant.get(row.pair, ())}
            others = [t for other in batch if other is not row for t in (other.gold, *other.negatives)]
            count += sum(t in right for t in others)
    return count


def test_rows_repeat_by_seed_and_change_by_epoch(pool: Pool) -> None:
    rows = rows_of(pool, requests(), epochs=2, augment=0.5)
    assert rows == rows_of(pool, requests(), epochs=2, augment=0.5)
    assert rows != rows_of(pool, requests(), epochs=2, augment=0.5, seed=1)
    half = len(rows) // 2
    assert half == len(TOOLS) // 8 * 8
    assert [r.pair for r in rows[:half]] != [r.pair for r in rows[half:]]


def test_no_batch_shows_an_answer_as_a_negative(pool: Pool) -> None:
    calls = requests() + [call(f"again{i}", f"{c.query} again", c.gold[0].tool_id) for i, c in enumerate(requests())]
    rows = rows_of(pool, calls, epochs=3, negatives=2)
    assert conflicts(rows, 8, pool, {}) == 0
    assert all(len(set(row.negatives)) == 2 and row.gold not in row.negatives for row in rows)


def test_requests_for_tools_of_one_server_share_batches_where_asked(pool: Pool) -> None:
    calls = [
        c for i in range(3) for c in (call(f"{r.id} {i}", f"{r.query} {i}", r.gold[0].tool_id) for r in requests())
    ]

    def neighbours(together: int) -> float:
        rows = rows_of(pool, calls, epochs=2, together=together)
        assert conflicts(rows, 8, pool, {}) == 0
        servers = [TOOLS[row.gold].server_id for row in rows]
        batches = [servers[i : i + 8] for i in range(0, len(servers), 8)]
        return sum(len(batch) - len(set(batch)) for batch in batches) / len(batches)

    assert neighbours(4) > 1.5 * neighbours(1)
    rows = rows_of(pool, calls, together=4)
    assert rows == rows_of(pool, calls, together=4)
    assert len({row.pair for row in rows}) > 0.8 * len(calls)


def test_server_views_show_other_servers_as_negatives(pool: Pool) -> None:
    rows = rows_of(pool, requests(), views={"server": 1.0})
    for row in rows:
        anchor, positive, negative = row_texts(row, pool, "query: ", "passage: ")
        assert anchor == "query: " + row.query
        assert positive == "passage: " + server_text(SERVERS[TOOLS[row.gold].server_id])
        assert positive != negative


def test_too_few_pairs_are_refused(pool: Pool) -> None:
    with pytest.raises(BadInput, match="do not fill a batch"):
        rows_of(pool, requests()[:3])


def test_recall_counts_gold_and_equivalents() -> None:
    documents = np.eye(4, dtype=np.float32)
    calls = [
        call("a", "x", "t0", split="seen"),
        call("b", "x", "t1", relevant=["t2"], split="seen"),
        call("c", "x"),
        call("d", "x", "t3", "gone"),
    ]
    queries = np.array([[1, 0.2, 0.1, 0], [0, 0.5, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]], dtype=np.float32)
    found = dense_recall(calls, queries, ["t0", "t1", "t2", "t3"], documents)
    assert found["strict"]["recall@1"] == pytest.approx(0.5)
    assert found["strict"]["recall@5"] == pytest.approx(2.5 / 3, abs=1e-4)
    assert found["equivalent"]["recall@1"] == 1.0
    assert set(found) == {"strict", "equivalent", "equivalent seen"}


def test_requests_that_nothing_serves_get_near_misses_and_share_batches(pool: Pool) -> None:
    pairs, _ = make_pairs(requests(), pool)
    pairs += nothing_pairs([call(f"n{i}", f"list the weather of my mood {i}") for i in range(8)] + [call("x", "?!")])
    miner = Miner(pool)
    rows = build_rows(pairs, miner.mine(pairs), miner, RowOptions(batch=8, epochs=3))
    nothing = [row for row in rows if row.gold == NOTHING]
    assert len({row.pair for row in nothing}) == 8
    assert all(row.negatives and NOTHING not in row.negatives for row in nothing)
    assert max(sum(row.gold == NOTHING for row in rows[i : i + 8]) for i in range(0, len(rows), 8)) > 1
    assert row_texts(nothing[0], pool)[1].startswith("Nothing")


def test_requests_are_split_off_by_tool_and_stay_where_they_are() -> None:
    calls = [call(f"c{i}{j}", f"request {i} {j}", f"s/t{i}") for i in range(200) for j in range(2)]
    calls += [call(f"n{i}", f"nothing {i}") for i in range(100)]
    kept, gone = split_off(calls, 0.1, 0)
    assert sorted(c.id for c in kept + gone) == sorted(c.id for c in calls)
    tools = [{g.tool_id for c in part for g in c.gold} for part in (kept, gone)]
    assert not tools[0] & tools[1]
    assert 8 <= len(tools[1]) <= 35
    assert 15 <= sum(not c.gold for c in gone) <= 45
    assert {c.id for c in split_off(calls[:250], 0.1, 0)[1]} <= {c.id for c in gone}
    assert split_off(calls, 0.0, 0)[1] == []


# --- the run ---------------------------------------------------------------------------------------------------------


def test_options_that_say_nothing_are_refused() -> None:
    for options in (
        training.TrainOptions(rows=RowOptions(views={"sideways": 1})),
        training.TrainOptions(rows=RowOptions(sources=("luck",))),
        training.TrainOptions(rows=RowOptions(views={"full": 0.0})),
    ):
        with pytest.raises(BadInput):
            training.check_options(options)


def test_the_command_needs_weights_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--calls", "c", "--tools", "t", "--base", str(tmp_path), "--out", str(tmp_path / "o")]
    assert execute(["train", "encoder", *arguments]) == NotFound.exit_code
    assert "There is no model in" in capsys.readouterr().err
    assert execute(["train", "encoder", *arguments, "--views", "full=much"]) == BadInput.exit_code


def test_the_cards_command_names_no_place() -> None:
    given = ["train", "encoder", "--calls", "/some/where/train.jsonl.gz", "--query-prefix", "query: "]
    assert card_command(given) == "toolscout train encoder --calls train.jsonl.gz --query-prefix 'query: '"


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"Training needs torch, transformers, sentence_transformers"):
        training.require_training()


def test_a_broken_checkpoint_is_passed_over(tmp_path: Path) -> None:
    for step, whole in ((9, True), (10, True), (20, False)):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        if whole:
            (folder / "trainer_state.json").touch()
    last = last_checkpoint(tmp_path)
    assert last is not None
    assert last.name == "checkpoint-10"
    assert last_checkpoint(tmp_path / "none") is None


def test_the_script_is_sound_and_explains_itself() -> None:
    script = ROOT / "runs" / "train_encoder.sh"
    subprocess.run(["bash", "-n", str(script)], check=True)
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True)
    assert done.returncode == 2
    assert "BASE OUT TRAIN DEV TOOLS SERVERS" in done.stdout


TRAINABLE = all(
    importlib.util.find_spec(name) for name in ("torch", "transformers", "sentence_transformers", "datasets", "onnx")
)
needs_torch = pytest.mark.skipif(not TRAINABLE, reason="needs the train extra: torch and sentence-transformers")


def make_base(folder: Path) -> Path:
    """A BERT encoder of two layers with random weights, over the tokenizer that ships with the package."""
    import torch
    from sentence_transformers import SentenceTransformer, models
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from toolscout.index.asset import DEFAULT_ENCODER, encoders_folder

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=str(encoders_folder() / DEFAULT_ENCODER / "tokenizer.json"),
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder / "bert")
    tokenizer.save_pretrained(folder / "bert")
    transformer = models.Transformer(str(folder / "bert"))
    model = SentenceTransformer(modules=[transformer, models.Pooling(32, "mean"), models.Normalize()])
    model.save(str(folder / "base"), create_model_card=False)
    return folder / "base"


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_a_stopped_run_ends_as_one_that_was_not_stopped(tmp_path: Path) -> None:
    from toolscout.finetune.export_encoder import export
    from toolscout.index.asset import DEFAULT_ENCODER, encoders_folder, verify
    from toolscout.index.encoder import OnnxEncoder

    base = make_base(tmp_path)
    write_records(tmp_path / "tools.jsonl", TOOLS.values())
    write_records(tmp_path / "servers.jsonl", SERVERS.values())
    write_records(tmp_path / "train.jsonl", [*requests(), *(call(f"n{i}", f"hello {i}") for i in range(8))])
    dev = [call("d0", "it rains", "acme/weather/get_forecast", split="seen")]
    write_records(tmp_path / "dev.jsonl", dev)
    files = training.TrainFiles(
        [tmp_path / "train.jsonl"], [tmp_path / "tools.jsonl"], [tmp_path / "servers.jsonl"], [tmp_path / "dev.jsonl"]
    )
    options = training.TrainOptions(rows=RowOptions(batch=8), steps=3, rate=1e-3, max_tokens=64)

    def go(name: str, stop_at: int = 0) -> Any:
        running = training.EncoderRunning(threads=1, stop_at=stop_at, command="toolscout train encoder")
        return training.train_encoder(files, base, tmp_path / name, options, running)

    whole = go("whole")
    assert whole["finished"]
    assert set(whole["dev"]) == {"base", "trained"}
    stopped = go("parts", stop_at=2)
    assert not stopped["finished"]
    assert stopped["steps"] == 2
    assert not (tmp_path / "parts" / "model").exists()
    assert go("parts")["finished"]

    texts = ["merge two files", "weather"]
    left, right = (encode(load_model(tmp_path / name / "model", 64), texts) for name in ("whole", "parts"))
    assert np.allclose(left, right, atol=1e-5), "resumed at the same place, with the same rows"
    assert whole["nothing"]
    untrained = encode(load_model(base, 64), texts)
    assert not np.allclose(left, untrained, atol=1e-3)

    rows = list(read_records(tmp_path / "whole" / "rows.jsonl.gz", TrainingRow))
    assert len(rows) == 24
    assert any(row.gold == NOTHING for row in rows)
    assert same_text(dev[0].query) not in {same_text(row.query) for row in rows}
    assert "recall@5" in (tmp_path / "whole" / "README.md").read_text("utf-8")
    with pytest.raises(BadInput, match="holds a run with other options"):
        training.train_encoder(files, base, tmp_path / "whole", training.TrainOptions())

    licence = encoders_folder() / DEFAULT_ENCODER / "LICENSE"
    asset = tmp_path / "asset"
    parity = export(
        tmp_path / "whole" / "model", asset, name="t", source="t", licence_file=licence, max_tokens=64, min_parity=0.9
    )
    assert parity.mean > 0.9
    verify(asset)
    with OnnxEncoder(asset) as encoder:
        assert (encoder.encode(texts) * left).sum(axis=1).min() > 0.9


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_the_loss_and_gradient_are_the_librarys(tmp_path: Path) -> None:
    from sentence_transformers.sentence_transformer import losses as library

    from toolscout.finetune import losses

    model = load_model(make_base(tmp_path), 64, dropout=0.0).train()
    texts = [["a", "weather in Lima " * 9, "merge", "list all files"] * 3, [t.description for t in TOOLS.values()][:12]]
    tokenise = getattr(model, "preprocess", None) or model.tokenize
    found = []
    for loss in (
        library.MultipleNegativesRankingLoss(model, scale=20.0),
        losses.make_loss(model, scale=20.0),
    ):
        model.zero_grad()
        value = loss([dict(tokenise(t)) for t in texts], None)
        value.backward()
        found.append((float(value), [p.grad.clone() for p in model.parameters() if p.grad is not None]))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5)
    for a, b in zip(found[0][1], found[1][1], strict=True):
        assert np.allclose(a.numpy(), b.numpy(), atol=1e-5)


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_a_document_that_several_rows_share_is_held_against_none_of_them(tmp_path: Path) -> None:
    from toolscout.finetune import losses

    model = load_model(make_base(tmp_path), 64, dropout=0.0)
    tokenise = getattr(model, "preprocess", None) or model.tokenize
    loss = losses.make_loss(model, scale=20.0)

    def value(queries: list[str], documents: list[str], others: list[str]) -> float:
        return float(loss([dict(tokenise(t)) for t in (queries, documents, others)], None))

    shared = value(["hello", "good night"], ["Nothing.", "Nothing."], ["list files", "list files in a folder"])
    alone = [value([q], ["Nothing."], ["list files"]) for q in ("hello", "good night")]
    assert shared > max(alone) * 0.999  # two negatives instead of one
    third = [
        float(loss([dict(tokenise(t)) for t in ([q], ["Nothing."], ["list files"], ["list files in a folder"])], None))
        for q in ("hello", "good night")
    ]
    assert shared == pytest.approx(sum(third) / 2, rel=1e-5)


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_a_leaking_file_stops_the_run_before_it_learns(tmp_path: Path) -> None:
    base = make_base(tmp_path)
    write_records(tmp_path / "tools.jsonl", TOOLS.values())
    write_records(tmp_path / "train.jsonl", requests())
    write_records(tmp_path / "dev.jsonl", requests()[:1])
    files = training.TrainFiles([tmp_path / "train.jsonl"], [tmp_path / "tools.jsonl"], dev=[tmp_path / "dev.jsonl"])
    with pytest.raises(BadInput, match="ask what a dev row asks"):
        training.train_encoder(files, base, tmp_path / "run")


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_a_base_that_is_only_to_be_had_as_onnx_becomes_trainable(tmp_path: Path) -> None:
    import torch
    from transformers import BertModel

    from toolscout.finetune.import_onnx import import_onnx

    base = make_base(tmp_path)
    model = BertModel.from_pretrained(str(tmp_path / "bert"))
    for weight in model.parameters():  # the exporter writes equal ones once, as fresh biases are
        weight.data += 0.01 * torch.randn_like(weight)
    for folder in (tmp_path / "bert", base):
        model.save_pretrained(str(folder))

    class States(BertModel):
        def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
            return self.encoder(self.embeddings(input_ids)).last_hidden_state

    exported = tmp_path / "exported"
    exported.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (exported / name).write_bytes((tmp_path / "bert" / name).read_bytes())
    axes = {"input_ids": {0: "batch", 1: "tokens"}}
    ids = torch.ones((1, 7), dtype=torch.int64)
    torch.onnx.export(
        States.from_pretrained(str(tmp_path / "bert"), add_pooling_layer=False).eval(),
        (ids,),
        str(exported / "model.onnx"),
        input_names=["input_ids"],
        dynamic_axes=axes,
        dynamo=False,
    )
    import_onnx(exported, tmp_path / "again")
    texts = ["list files", "wind"]
    left, right = (encode(load_model(folder, 64), texts) for folder in (base, tmp_path / "again"))
    assert np.allclose(left, right, atol=1e-5)
    with pytest.raises(NotFound, match=r"no model\.onnx"):
        import_onnx(tmp_path, tmp_path / "other")


@needs_torch
@pytest.mark.filterwarnings("ignore")
def test_an_exported_encoder_becomes_trainable_again(tmp_path: Path) -> None:
    from toolscout.finetune.export_encoder import export
    from toolscout.finetune.import_encoder import import_encoder

    base, shipped = make_base(tmp_path), tmp_path / "shipped"
    export(base, shipped, name="small", source="the test", licence_file=ROOT / "LICENSE", max_tokens=64)
    assert import_encoder(shipped, tmp_path / "again") > 0.98
    texts = ["list files", "wind in Lisbon tomorrow", "東京の天気"]
    left, right = (encode(load_model(folder, 64), texts) for folder in (base, tmp_path / "again"))
    # Apart by the rounding to int8 alone.
    assert np.einsum("ij,ij->i", left, right).min() > 0.995
    with pytest.raises(NotFound, match="no encoder"):
        import_encoder(tmp_path, tmp_path / "other")
