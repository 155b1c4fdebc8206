"""The project's own requests for abstention: whole, distinct, of every kind, and readable as calls."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from toolscout.finetune import pairs
from toolscout.finetune.leakage import marked, marks, short_marks
from toolscout.finetune.pairs import Pool, same_text
from toolscout.index.asset import encoders_folder, file_sha256
from toolscout.index.words import has_words
from toolscout.jsonl import read_objects, read_records
from toolscout.records import Call, GoldCall, Tool

FOLDER = Path(pairs.__file__).resolve().parent / "data"
FILES = {name: FOLDER / f"{name}.jsonl" for name in ("unanswerable", "answerable")}
ROWS = {name: [row for _, row in read_objects(path)] for name, path in FILES.items()}
ALL = [row for rows in ROWS.values() for row in rows]

KINDS = {"chat", "opinion", "knowledge_talk", "composing", "physical", "impossible", "private_system", "human_relation"}
LANGUAGES = {"en", "de", "fr", "es", "it", "pt", "nl", "ru", "zh", "ja", "ko", "hi", "ar", "id", "tr"}
SCRIPTS = {
    "ru": r"[\u0400-\u04ff]",
    "zh": r"[\u4e00-\u9fff]",
    "ja": r"[\u3040-\u30ff\u4e00-\u9fff]",
    "ko": r"[\uac00-\ud7af]",
    "hi": r"[\u0900-\u097f]",
    "ar": r"[\u0600-\u06ff]",
}


@pytest.mark.parametrize(("name", "least"), [("unanswerable", 900), ("answerable", 300)])
def test_rows_are_calls(name: str, least: int) -> None:
    calls = list(read_records(FILES[name], Call))
    assert len(calls) == len(ROWS[name]) >= least
    for call in calls:
        assert call.query == call.query.strip() and has_words(call.query), call.id
        assert not call.gold and call.source == "toolscout", call.id


def test_only_unanswerable_rows_say_that_nothing_fits() -> None:
    """Empty gold means that nothing fits; the look-alikes' tools are not known yet, so they have no gold at all."""
    assert all(row["gold"] == [] for row in ROWS["unanswerable"])
    assert not any("gold" in row for row in ROWS["answerable"])


def test_ids_are_unique_and_tell_the_file() -> None:
    assert max(Counter(row["id"] for row in ALL).values()) == 1
    assert all(row["id"].startswith(f"{name[0]}-") for name, rows in ROWS.items() for row in rows)


def test_queries_are_distinct() -> None:
    said = Counter(same_text(row["query"]) for row in ALL)
    assert [text for text, n in said.items() if n > 1 or not text] == []


def test_kinds_are_about_even() -> None:
    kinds = Counter(row["kind"] for row in ROWS["unanswerable"])
    assert set(kinds) == KINDS
    assert max(kinds.values()) <= 1.25 * min(kinds.values())
    assert {row["kind"] for row in ROWS["answerable"]} == {"lookalike"}


@pytest.mark.parametrize("name", FILES)
def test_about_a_fifth_is_not_english(name: str) -> None:
    """In both files alike: else the language alone would tell which one a request comes from."""
    spoken = Counter(row["lang"] for row in ROWS[name])
    assert set(spoken) == LANGUAGES
    assert 0.15 <= 1 - spoken["en"] / len(ROWS[name]) <= 0.25


def test_language_and_script_agree() -> None:
    for row in ALL:
        written = {lang for lang, script in SCRIPTS.items() if re.search(script, row["query"])}
        assert row["lang"] in written if row["lang"] in SCRIPTS else not written, row["id"]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_is_in_every_language(kind: str) -> None:
    assert {row["lang"] for row in ROWS["unanswerable"] if row["kind"] == kind} == LANGUAGES


FORMS = {"plain", "detailed", "terse", "foreign"}


def test_neither_form_nor_language_tells_what_no_tool_serves() -> None:
    """Requests for tools and requests for none, in the same forms: long and terse, English and not."""
    asked = {
        name: [row for _, row in read_objects(FOLDER / f"{name}.jsonl")] for name in ("requests", "unanswerable_forms")
    }
    assert len(asked["requests"]) >= 4500 and len(asked["unanswerable_forms"]) >= 500
    for name, rows in asked.items():
        assert all(bool(row["gold"]) == (name == "requests") for row in rows)
        assert {row["kind"] for row in rows} == FORMS | ({"chatty"} if name == "requests" else set())
        for row in rows:
            words = len(row["query"].split())
            assert (row["lang"] != "en") == (row["kind"] == "foreign"), row["id"]
            assert row["kind"] != "terse" or words <= 12, row["id"]
            assert row["kind"] != "detailed" or words >= 12, row["id"]
        assert len({row["lang"] for row in rows}) >= 15
    everything = [row for rows in [*asked.values(), ALL] for row in rows]
    assert max(Counter(row["id"] for row in everything).values()) == 1
    assert max(Counter(same_text(row["query"]) for row in everything).values()) == 1
    tools = Counter(row["gold"][0]["tool_id"] for row in asked["requests"])
    assert max(tools.values()) == 2 and len(tools) >= 2300


def test_siblings_are_told_apart_in_words_of_their_own() -> None:
    """One request a tool in each file, for several tools of most servers; two files' tools none asked for elsewhere."""
    files = [[row for _, row in read_objects(FOLDER / f"siblings_{i}.jsonl.gz")] for i in (1, 2, 3)]
    rows = [row for file in files for row in file]
    assert [len(file) for file in files] == [6396, 3797, 6212]
    for file in files:
        tools = Counter(row["gold"][0]["tool_id"] for row in file)
        assert max(tools.values()) == 1
        servers = Counter(tool_id.rsplit("/", 1)[0] for tool_id in tools)
        assert sum(n for n in servers.values() if n > 1) > 0.85 * len(file)
    others = [row for _, row in read_objects(FOLDER / "requests.jsonl")]
    first = {r["gold"][0]["tool_id"] for file in files[:2] for r in file}
    assert first.isdisjoint(r["gold"][0]["tool_id"] for r in others)
    said = Counter(same_text(row["query"]) for row in [*rows, *others, *ALL])
    assert sum(n - 1 for n in said.values()) <= 12, "two writers put the same need in the same words"
    assert max(Counter(row["id"] for row in rows).values()) == 1
    assert {row["kind"] for row in rows} == FORMS | {"chatty", "agent"}
    assert all(". " in row["query"] for row in rows if row["kind"] == "agent")
    assert all((row["lang"] != "en") == (row["kind"] == "foreign") for row in rows)


def test_no_file_of_ours_holds_what_dev_measures_with(tmp_path: Path) -> None:
    """By hashes: the development set itself is not in the repository (`python -m toolscout.finetune.leakage`)."""
    known = json.loads((Path(__file__).parent / "dev_marks.json").read_text("utf-8"))
    assert len(known["requests"]) >= 390 and len(known["tools"]) >= 196
    # The guard's sentences are no requests.
    files = [p for p in [*FOLDER.glob("*.jsonl"), *FOLDER.glob("*.jsonl.gz")] if p.stem != "guard_sentences"]
    assert len(files) >= 8
    for file in files:
        assert marked(read_records(file, Call), known) == [], file.name
    dev = [Call(id="d", query="Ping the API!", gold=[GoldCall(tool_id="s/ping")], relevant=["s/ping", "s/reach"],
                split="unseen_tool")]  # fmt: skip
    pool = Pool({t: Tool(tool_id=t, server_id=t[0], name="ping", description="Pings.") for t in ("s/ping", "t/ping")})
    found = marks(dev, pool)
    leaks = [
        Call(id="same", query="ping the api", gold=[GoldCall(tool_id="x/y")]),
        Call(id="alike", query="is it up?", gold=[GoldCall(tool_id="t/ping")]),
        Call(id="serves", query="is it there?", gold=[GoldCall(tool_id="s/reach")]),
        Call(id="fine", query="is it up?", gold=[GoldCall(tool_id="x/y")]),
    ]
    assert marked(leaks, found) == ["same", "alike", "serves"]


def test_what_the_shipped_encoder_saw_is_not_what_dev_measures_with() -> None:
    """Every request, gold tool and negative of its training rows, by marks taken from the run's own file."""
    known = json.loads((Path(__file__).parent / "dev_marks.json").read_text("utf-8"))
    seen = np.load(Path(__file__).parent / "trained_on.npy")
    assert len(seen) > 25_000
    for what in ("requests", "tools"):
        assert not np.isin(short_marks(known[what]), seen).any(), what
    # The marks are those of its runs: the requests of ours that it was trained on are among them, of the last run too.
    for name, share in (("requests.jsonl", 0.85), ("siblings_1.jsonl.gz", 0.85), ("siblings_3.jsonl.gz", 0.7)):
        ours = [call.query for call in read_records(FOLDER / name, Call)]
        told = short_marks(hashlib.sha256(same_text(query).encode()).hexdigest() for query in ours)
        assert np.isin(told, seen).mean() > share, name


def test_the_card_names_the_files_that_the_shipped_encoder_was_trained_on() -> None:
    (card,) = (path.read_text("utf-8") for path in encoders_folder().glob("*/README.md"))
    for name in ("requests.jsonl", *(f"siblings_{i}.jsonl.gz" for i in (1, 2, 3)), "unanswerable.jsonl"):
        assert file_sha256(FOLDER / name) in card, name
    assert file_sha256(FOLDER / "unanswerable_forms.jsonl") in card


def test_length_tells_nothing() -> None:
    """Both files have requests of a few words and of several sentences, and much the same median."""
    words = {name: sorted(len(row["query"].split()) for row in rows) for name, rows in ROWS.items()}
    middle = {name: lengths[len(lengths) // 2] for name, lengths in words.items()}
    assert abs(middle["unanswerable"] - middle["answerable"]) <= 2
    assert all(lengths[0] <= 2 and lengths[-1] >= 25 for lengths in words.values())


def test_everyday_requests_are_over_installations_of_a_few_servers() -> None:
    installations = json.loads((FOLDER / "installations.json").read_text("utf-8"))
    rows = [row for _, row in read_objects(FOLDER / "everyday.jsonl")]
    assert {row["split"] for row in rows} == set(installations) and len(rows) >= 1000
    assert max(Counter(same_text(row["query"]) for row in [*rows, *ALL]).values()) == 1
    assert max(Counter(row["id"] for row in [*rows, *ALL]).values()) == 1
    kinds = Counter(row["kind"] for row in rows)
    assert set(kinds) == {"plain", "terse", "chatty", "foreign", "absent", "nothing"} and min(kinds.values()) >= 90
    for row in rows:
        assert bool(row["gold"]) == (row["kind"] not in ("absent", "nothing")), row["id"]
        servers = tuple(f"{server_id}/" for server_id in installations[row["split"]])
        assert all(tool_id.startswith(servers) for tool_id in row["relevant"]), row["id"]
    assert all(3 <= len(servers) <= 12 for servers in installations.values())
    everywhere = Counter(server_id for servers in installations.values() for server_id in servers)
    assert max(everywhere.values()) == 1, "what limits are chosen on one installation is not another's"


def test_no_request_that_measures_the_pack_is_fitted_on_or_ships_as_an_exemplar() -> None:
    """The writers of `eval/data/pack_requests.jsonl` wrote no other file; nor may their words be in one."""
    root = Path(pairs.__file__).resolve().parents[1]

    def queries(path: Path) -> set[str]:
        return {" ".join(re.findall(r"\w+", str(row["query"]).casefold())) for _, row in read_objects(path)}

    measured = queries(root / "eval" / "data" / "pack_requests.jsonl")
    assert len(measured) > 700
    fitted = [FOLDER / f"{name}.jsonl" for name in ("nothing_served", "generic_served", "requests", "everyday")]
    for path in [*fitted, *FILES.values(), root / "index" / "pack" / "sources" / "exemplars.jsonl"]:
        assert not measured & queries(path), path.name
