"""What all commands of ``toolscout eval`` have in common: places, origins of results, interruptions, work files."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from chat_endpoint import ChatEndpoint, obeying, said, schema_of

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
    told = capsys.readouterr().err
    assert "file.jsonl is a file" in told and option in told, told
    assert (tmp_path / "file.jsonl").read_text("utf-8") == "mine\n"


def test_folders_and_files_that_may_not_be_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_writable(tmp_path / "new" / "folders" / "out.json", "--json")
    (tmp_path / "there.json").write_text("{}", "utf-8")
    closed: set[Path] = set()
    monkeypatch.setattr("os.access", lambda path, mode: Path(path) not in closed)  # the tests' user may do everything
    closed.add(tmp_path)
    for name in ("new/out.json", "there.json"):  # to replace a file its folder is written to
        with pytest.raises(StorageError, match="nothing may be written to") as refused:
            check_writable(tmp_path / name, "--json")
        assert "--json" in refused.value.hint
    closed = {tmp_path / "there.json"}
    check_writable(tmp_path / "there.json", "--json")
    with pytest.raises(StorageError, match="may not be changed"):
        check_writable(tmp_path / "there.json", "--work", append=True)


def test_what_is_no_file_is_not_replaced_by_one(tmp_path: Path, capsys: Any) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert execute(["eval", "retrieval", *FILES, "--json", str(tmp_path / "pipe")]) == 8
    assert "no regular file" in capsys.readouterr().err and (tmp_path / "pipe").is_fifo()
    assert not (tmp_path / "pipe.rows.jsonl").exists()


@pytest.mark.parametrize(
    ("places", "why"),
    [
        (["--json", "a.json", "--work", "./a.json"], "--json and --work are the same place"),
        (["--report", "r", "--json", "r/result.json"], "--report writes"),
        (["--report", "r", "--work", "r/rows.jsonl"], "--report writes"),
        (["--work", "."], "is a folder"),
    ],
)
def test_two_outputs_in_one_place_are_refused(
    places: list[str], why: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert execute(["eval", "retrieval", *FILES, *places]) == 2
    assert why in capsys.readouterr().err and [path.name for path in tmp_path.iterdir()] == ["home"]


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


def test_a_run_that_finished_nothing_stands_in_nobodys_way(tmp_path: Path) -> None:
    work = tmp_path / "w.jsonl"
    with work_file(work, {"of": 1}):
        pass
    with work_file(work, {"of": 2}) as done:
        done.add("a", {"n": 1})
    with pytest.raises(BadInput, match="another run"), work_file(work, {"of": 1}):
        pass
    with work_file(work, {"of": 2}) as done:
        assert "a" in done


@pytest.mark.parametrize(
    "command",
    [
        ["retrieval", "--tools", "tools.jsonl", "--calls", "calls.jsonl", "--json", "./calls.jsonl"],
        ["retrieval", "--tools", "tools.jsonl", "--calls", "calls.jsonl", "--misses", "tools.jsonl"],
        ["diversity", "--calls", "a=calls.jsonl", "--json", "calls.jsonl"],
        ["setup", "--tools", "tools.jsonl", "--json", "tools.jsonl"],
        ["plan", "--tools", "tools.jsonl", "--calls", "calls.jsonl", "--answers", "r/rows.jsonl", "--report", "r"],
        ["scaling", "--runs", "1=r/result.json", "--report", "r"],
    ],
)
def test_what_is_read_is_not_written_over(
    command: list[str], tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r").mkdir()
    for name in ("tools.jsonl", "calls.jsonl", "r/rows.jsonl", "r/result.json"):
        (tmp_path / name).write_text("mine\n", "utf-8")
    assert execute(["eval", *command]) == 2
    assert "would write over" in capsys.readouterr().err
    for name in ("tools.jsonl", "calls.jsonl", "r/rows.jsonl", "r/result.json"):
        assert (tmp_path / name).read_text("utf-8") == "mine\n"


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


@pytest.mark.parametrize("command", ["calls", "plan"])
def test_an_address_with_a_password_stays_out_of_everything_that_is_written(
    command: str, tmp_path: Path, home: Path
) -> None:
    with ChatEndpoint(lambda body: said(obeying(schema_of(body)))) as endpoint:
        check_what_is_written(command, endpoint, tmp_path)


def check_what_is_written(command: str, endpoint: ChatEndpoint, tmp_path: Path) -> None:
    url = endpoint.url.replace("http://", "http://me:hunter2@")
    files = ["--tools", str(DATA / "tools.jsonl"), "--calls", str(DATA / "calls.jsonl"), "--limit", "2"]
    places = ["--report", str(tmp_path / "r"), "--json", str(tmp_path / "o.json")]
    assert execute(["eval", command, *files, "--model", "m", "--model-url", url, *places]) == 0
    of = json.loads((tmp_path / "o.json").read_text("utf-8"))["of"]
    assert of["options"]["model-url"] == endpoint.url and of["options"]["seed"] == 0 and of["run"]["tools"]
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".png"]
    assert {"report.html", "o.json", "o.json.rows.jsonl"} <= {path.name for path in written}
    for path in written:
        assert "hunter2" not in path.read_text("utf-8"), path


def test_neither_places_nor_secrets_are_told(tmp_path: Path, home: Path) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n", "utf-8")
    of = described(
        "x",
        {
            "model_url": "https://me:pass@models.example/v1?key=1",
            "settings": ["model_key=hush", "encoder_url=http://u:p@h.example/v1", f"policy={tmp_path}/p.toml"],
            "calls": [f"ours={tmp_path / 'a.jsonl'}"], "peers": "", "quiet": True, "json_out": tmp_path / "o.json",
            "encoder": "st:/home/me/models/enc", "model": "~/x.gguf", "near": 0, "limit": None, "off": False,
            "peer_command": ["mine=env API_KEY=hush /home/me/peer.py --url http://u:p@h/"],
        },
        {"settings": "set"},
    )  # fmt: skip
    assert of["options"] == {
        "model-url": "https://models.example/v1", "encoder": "st:enc", "model": "x.gguf", "near": 0,
        "peer-command": ["mine"], "set": ["model_key=...", "encoder_url=http://h.example/v1", "policy=p.toml"],
    }  # fmt: skip
    assert [(f["name"], f["file"]) for f in of["files"]["calls"]] == [("ours", "a.jsonl")]
    assert str(tmp_path) not in " ".join(origin_lines(of)) and "toolscout eval x" in origin_lines(of)[0]


def test_what_no_command_measured_has_only_its_own_origin() -> None:
    assert with_origin({"n": 1}) == {"n": 1}
    assert with_origin({"n": 1, "of": {"run": {"rows": "a"}}}) == {"n": 1, "of": {"run": {"rows": "a"}}}
    assert with_origin({"encoder": "/home/me/enc"}) == {"encoder": "enc"}
    assert origin_lines({"run": {"rows": "a"}}) == []


def test_a_file_that_cannot_be_read_is_left_to_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.jsonl").write_text("{}\n", "utf-8")

    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("toolscout.index.asset.file_sha256", refuse)
    of = described("x", {"calls": [tmp_path / "a.jsonl"]})
    assert of["files"] == {"calls": [{"file": "a.jsonl", "sha256": None}]} and "unread" in " ".join(origin_lines(of))


def test_variables_are_read_as_settings_read_them(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    monkeypatch.delenv("TOOLSCOUT_PACK")
    monkeypatch.setenv("toolscout_model_context", "1234")
    monkeypatch.setenv("TOOLSCOUT_SYNTH_CALL_TIMEOUT", "9")
    monkeypatch.setenv("TOOLSCOUT_AGENT_KEY", "hush")
    monkeypatch.setenv("TOOLSCOUT_POLICY", "/home/me/client/p.toml")
    assert described("x", {})["settings"] == {"model_context": "1234", "policy": "p.toml", "synth_call_timeout": "9"}


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
    command = ["eval", "retrieval", *FILES, "--details", option, str(tmp_path / "out")]
    with monkeypatch.context() as patched:
        interrupted_at(12, patched)
        assert execute(command) == 130
    (tmp_path / f"{kept}shop.txt").write_text("one\ntwo\n", "utf-8")  # another's file whose name begins alike
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"Interrupted. What was finished is in {tmp_path / kept}. Run the same command again to go on."
    assert execute(command) == 0
    assert "requests were answered before" in capsys.readouterr().err
    assert not (tmp_path / kept).exists(), "nothing of a finished search stands for the next"


def test_an_interruption_says_that_nothing_is_kept(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        interrupted_at(3, patched)
        assert execute(["eval", "retrieval", *FILES, "--quiet"]) == 130
    nothing = "Interrupted. Nothing is kept of this run. With --json, --report or --work it goes on.\n"
    assert capsys.readouterr().err == nothing
    with monkeypatch.context() as patched:
        patched.setattr("toolscout.eval.retrieval.measure._build_apart", stop)
        assert execute(["eval", "retrieval", *FILES, "--quiet", "--json", str(tmp_path / "o.json")]) == 130
    assert capsys.readouterr().err == "Interrupted. Nothing was finished yet.\n"

    monkeypatch.setattr("toolscout.eval.diversity.measure.measure_diversity", stop)
    assert execute(["eval", "diversity", "--calls", f"a={DATA / 'calls.jsonl'}"]) == 130
    assert capsys.readouterr().err == "Interrupted. This command keeps nothing of a run that does not end.\n"


def test_a_report_alone_keeps_nothing_of_a_finished_run(tmp_path: Path, home: Path) -> None:
    command = ["eval", "calls", *FILES, "--limit", "2", "--model", "m", "--report", str(tmp_path / "r")]
    with ChatEndpoint(lambda body: said(obeying(schema_of(body)))) as endpoint:
        for _ in range(2):
            asked = len(endpoint.asked)
            assert execute([*command, "--model-url", endpoint.url]) == 0
            assert len(endpoint.asked) > asked, "measured anew"
            assert not list((tmp_path / "r").glob("kept*"))


# --- options that would say nothing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "why"),
    [
        (["calls", "--sizes", "1,5"], "--compare candidates"),
        (["calls", "--any-tool"], "--exemplars"),
        (["calls", "--compare", "candidates", "--sizes", "1,5", "--candidates", "20"], "none of the --sizes"),
        (["retrieval", "--details"], "--json"),
        (["strategies", "--sizes", "3", "--tokens-only", "--model", "x"], "asks no model"),
    ],
)
def test_an_option_without_the_one_it_belongs_to_is_refused(command: list[str], why: str, capsys: Any) -> None:
    assert execute(["eval", *command, *FILES]) == 2
    assert why in capsys.readouterr().err
