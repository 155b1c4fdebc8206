"""What all commands of ``toolscout eval`` have in common: places, origins of results, interruptions, work files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from toolscout.cli import execute
from toolscout.errors import BadInput, StorageError
from toolscout.eval.provenance import described, origin_lines, with_origin
from toolscout.eval.work_file import work_file, work_place
from toolscout.files import check_writable

DATA = Path(__file__).parent / "data" / "eval"
FILES = ["--tools", str(DATA / "tools.jsonl"), "--calls", str(DATA / "calls.jsonl")]


# --- where results go ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("option", ["--json", "--report", "--work", "--misses"])
def test_a_place_that_takes_no_result_is_refused_before_the_work(
    option: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("toolscout.eval.retrieval.measure.measure_retrieval", None)  # nothing may be measured
    (tmp_path / "file.jsonl").write_text("mine\n", "utf-8")
    assert execute(["eval", "retrieval", *FILES, option, str(tmp_path / "file.jsonl" / "out")]) == 8
    said = capsys.readouterr().err
    assert "file.jsonl is a file" in said and option in said
    assert (tmp_path / "file.jsonl").read_text("utf-8") == "mine\n"


def test_folders_that_may_not_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_writable(tmp_path / "new" / "folders" / "out.json", "--json")
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(StorageError, match="may be written") as refused:
        check_writable(tmp_path / "new" / "out.json", "--json")
    assert "--json" in refused.value.hint


def test_work_is_kept_beside_the_result() -> None:
    work, out, page = Path("w.jsonl"), Path("a/out.json"), Path("b")
    assert work_place(work, out, page) == work
    assert work_place(None, out, page) == Path("a/out.json.rows.jsonl")
    assert work_place(None, None, page, "work") == Path("b/kept.work")
    assert work_place(None, None, None) is None


@pytest.mark.parametrize("held", ["a diary\n", '{"id": "row-1"}\n', '{"run": 3}\n'])
def test_somebody_elses_file_is_no_work_file(held: str, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_text(held, "utf-8")
    with pytest.raises(BadInput, match="no work file") as refused, work_file(tmp_path / "mine.jsonl", {"of": 1}):
        pass
    assert "elete" not in refused.value.hint and (tmp_path / "mine.jsonl").read_text("utf-8") == held


# --- what a result is of ---------------------------------------------------------------------------------------------


def test_a_result_and_its_page_say_what_they_are_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLSCOUT_MODEL_THREADS", "1")
    monkeypatch.setenv("TOOLSCOUT_MODEL_KEY", "hush")
    out, page = tmp_path / "out.json", tmp_path / "page"
    places = ["--json", str(out), "--report", str(page)]
    assert execute(["eval", "retrieval", *FILES, *places, "--limit", "3", "--seed", "7", "--quiet"]) == 0
    of = json.loads(out.read_text("utf-8"))["of"]
    assert of == json.loads((page / "result.json").read_text("utf-8"))["of"]
    assert of["command"] == "retrieval" and of["options"]["limit"] == 3 and of["options"]["seed"] == 7
    digest = hashlib.sha256((DATA / "calls.jsonl").read_bytes()).hexdigest()
    assert of["files"]["calls"] == [{"file": "calls.jsonl", "sha256": digest}]
    assert of["settings"]["model_threads"] == "1"
    text = (page / "report.html").read_text("utf-8")
    assert "--seed 7" in text and digest[:12] in text
    for whole in (out.read_text("utf-8"), text):
        assert "hush" not in whole and str(tmp_path) not in whole


def test_neither_places_nor_secrets_are_told(tmp_path: Path, home: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n", "utf-8")
    of = described(
        "x",
        {
            "model_url": "https://me:pass@models.example/v1?key=1",
            "settings": ["model_key=hush", "encoder_url=http://u:p@h.example/v1", f"policy={tmp_path}/p.toml"],
            "calls": [f"ours={tmp_path / 'a.jsonl'}"], "peers": "", "quiet": True, "json_out": tmp_path / "o.json",
            "encoder": str(tmp_path),
        },
    )  # fmt: skip
    assert of["options"] == {
        "model-url": "https://models.example/v1", "encoder": tmp_path.name,
        "settings": ["model_key=...", "encoder_url=http://h.example/v1", "policy=p.toml"],
    }  # fmt: skip
    assert [(f["name"], f["file"]) for f in of["files"]["calls"]] == [("ours", "a.jsonl")]
    assert str(tmp_path) not in " ".join(origin_lines(of)) and "toolscout eval x" in origin_lines(of)[0]


def test_what_no_command_measured_has_only_its_own_origin() -> None:
    assert with_origin({"n": 1}) == {"n": 1}
    assert with_origin({"n": 1, "of": {"rows": "a"}}) == {"n": 1, "of": {"rows": "a"}}
    assert origin_lines({"rows": "a"}) == []


# --- interruptions ---------------------------------------------------------------------------------------------------


def interrupted_at(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes at the answer of so many requests."""
    from toolscout.index.search import SearchIndex

    find, asked = SearchIndex.find, iter(range(10_000))

    def stop(self: SearchIndex, *args: Any, **more: Any) -> Any:
        if next(asked) >= number:
            raise KeyboardInterrupt
        return find(self, *args, **more)

    monkeypatch.setattr(SearchIndex, "find", stop)


@pytest.mark.parametrize(("option", "kept"), [("--json", "out.rows.jsonl"), ("--report", "out/kept.rows.jsonl")])
def test_an_interruption_says_where_the_work_is_and_goes_on(
    option: str, kept: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["eval", "retrieval", *FILES, option, str(tmp_path / "out")]
    with monkeypatch.context() as patched:
        interrupted_at(12, patched)
        assert execute(command) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"Interrupted. What was finished is in {tmp_path / kept}. Run the same command again to go on."
    assert execute(command) == 0
    assert "requests were answered before" in capsys.readouterr().err


def test_an_interruption_says_that_nothing_is_kept(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        interrupted_at(3, patched)
        assert execute(["eval", "retrieval", *FILES, "--quiet"]) == 130
    said = "Interrupted. Nothing is kept of this run. With --json, --report or --work it goes on.\n"
    assert capsys.readouterr().err == said
    with monkeypatch.context() as patched:
        patched.setattr("toolscout.eval.retrieval.measure._build_apart", stop)
        assert execute(["eval", "retrieval", *FILES, "--quiet", "--json", str(tmp_path / "o.json")]) == 130
    assert capsys.readouterr().err == "Interrupted. Nothing was finished yet.\n"

    monkeypatch.setattr("toolscout.eval.diversity.measure.measure_diversity", stop)
    assert execute(["eval", "diversity", "--calls", f"a={DATA / 'calls.jsonl'}"]) == 130
    assert capsys.readouterr().err == "Interrupted. This command keeps nothing of a run that does not end.\n"


# --- options that would say nothing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["calls", "--sizes", "1,5"], "--compare candidates"),
        (["calls", "--any-tool"], "--exemplars"),
        (["strategies", "--sizes", "3", "--tokens-only", "--model", "x"], "asks no model"),
    ],
)
def test_an_option_without_the_one_it_belongs_to_is_refused(command: list[str], why: str, capsys: Any) -> None:
    assert execute(["eval", *command, *FILES]) == 2
    assert why in capsys.readouterr().err
