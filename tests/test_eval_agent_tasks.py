"""The task set: every check fails on the starting state and holds on the reference end state; reading, checking."""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from toolscout.errors import BadInput, NotFound
from toolscout.eval.agent.check import failures, first_number, said
from toolscout.eval.agent.state import DATABASE, apply, git, inside, place, serving
from toolscout.eval.agent.tasks import OWN_TASKS, Check, Start, Task, limited, read_tasks

TASKS, SERVERS = read_tasks(OWN_TASKS)
PAGES = "http://127.0.0.1:1"


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.id)
def test_a_task_is_not_done_at_the_start_and_is_at_its_reference_end(task: Task, tmp_path: Path) -> None:
    folder = tmp_path / "trial"
    mine = task.filled(folder, PAGES)
    place(mine.start, folder, tmp_path / "site")
    # Talk alone is no end state: neither silence nor giving up, nor saying that it is done.
    for talk in ("", "ANSWER: I could not do it.", "ANSWER: done"):
        assert failures(mine, folder, talk)
    answer = apply(mine.solution, folder)
    assert failures(mine, folder, answer) == []


def test_the_set_is_as_large_as_it_says() -> None:
    assert len(TASKS) >= 60
    assert sum(len(task.servers) > 1 for task in TASKS) >= 20
    assert {name for task in TASKS for name in task.servers} == set(SERVERS)
    assert all(task.solution for task in TASKS)


def test_a_state_is_made_anew_and_the_same_each_time(tmp_path: Path) -> None:
    task = next(t for t in TASKS if t.id == "git-03").filled(tmp_path / "a", PAGES)
    heads = []
    for _ in range(2):
        place(task.start, tmp_path / "a", tmp_path / "site")
        heads.append(git(tmp_path / "a" / "garden", "rev-parse", "HEAD"))
        (tmp_path / "a" / "stray.txt").write_text("left behind")
    assert heads[0] == heads[1]
    place(task.start, tmp_path / "a", tmp_path / "site")
    assert not (tmp_path / "a" / "stray.txt").exists()


def test_pages_are_served_on_loopback(tmp_path: Path) -> None:
    place(Start(pages={"a/b.html": "<p>Heron</p>"}), tmp_path / "x", tmp_path / "site")
    with serving(tmp_path / "site") as address, urllib.request.urlopen(f"{address}/a/b.html") as page:
        assert b"Heron" in page.read()


def one(check: dict[str, object], **start: object) -> Task:
    return Task.model_validate({"id": "t", "request": "r", "servers": [], "start": start, "checks": [check]})


@pytest.mark.parametrize(
    ("check", "answer", "good"),
    [
        ({"answer": True, "number": 9.2}, "The honey is 5.90 or 9.20.\nANSWER: 9.20 euros", True),
        ({"answer": True, "number": 9.2}, "ANSWER: 5.90, or 9.20", False),
        ({"answer": True, "number": 1234.5}, "**Final answer:** 1,234.5", True),
        ({"answer": True, "number": -3}, "answer: \u22123", True),
        ({"answer": True, "number": 7}, "", False),
        ({"answer": True, "number": 7}, "There are 3 boxes.\nSo 7 in all", True),
        ({"answer": True, "contains": ["Edda Rask"]}, "ANSWER: edda rask", True),
        ({"answer": True, "contains": ["Edda"]}, "Edda did it.\nANSWER: nobody knows", False),
        ({"answer": True, "lacks": ["Lena"]}, "ANSWER: Lena", False),
        ({"answer": True, "matches": r"(?<!\d)0?5:30(?!\d)"}, "ANSWER: 5:30", True),
        ({"answer": True, "matches": r"(?<!\d)0?5:30(?!\d)"}, "ANSWER: 15:30", False),
    ],
)
def test_answers(check: dict[str, object], answer: str, good: bool, tmp_path: Path) -> None:
    assert (not failures(one(check), tmp_path, answer)) is good


def test_what_is_said_and_numbers() -> None:
    assert said("Thinking.\nANSWER: a\nANSWER: b") == "b"
    assert said("one\n\ntwo\n") == "two"
    assert said("") == ""
    assert first_number("no digits") is None


def test_files_and_tables_are_checked_by_content(tmp_path: Path) -> None:
    place(
        Start(files={"a.json": '{"b": 1}'}, tables=["CREATE TABLE t (x)", "INSERT INTO t VALUES (1)"]),
        tmp_path / "f",
        tmp_path / "s",
    )
    folder = tmp_path / "f"
    assert not failures(one({"file": "a.json", "json": {"b": 1}}), folder, "")
    assert failures(one({"file": "a.json", "json": {"b": 2}}), folder, "")
    assert failures(one({"file": "gone.txt", "contains": ["x"]}), folder, "") == ["file: gone.txt is not there"]
    assert not failures(one({"sql": "SELECT x FROM t", "rows": [[1]]}), folder, "")
    assert "no such table" in failures(one({"sql": "SELECT x FROM u", "rows": []}), folder, "")[0]
    guarded = one({"unchanged": ["a.json"]}, files={"a.json": '{"b": 1}'})
    assert not failures(guarded, folder, "")
    (folder / "a.json").write_text("{}")
    assert failures(guarded, folder, "") == ["unchanged: a.json was changed"]


def test_checking_changes_nothing_and_ends(tmp_path: Path) -> None:
    place(Start(tables=["CREATE TABLE t (x)"]), tmp_path / "f", tmp_path / "s")
    folder = tmp_path / "f"
    before = (folder / DATABASE).read_bytes()
    assert failures(one({"sql": "DELETE FROM t", "rows": []}), folder, "")
    assert failures(one({"sql": "ATTACH 'other.db' AS o", "rows": []}), folder, "")
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n"
    assert failures(one({"sql": endless, "rows": []}), folder, "")
    assert (folder / DATABASE).read_bytes() == before


def test_a_repository_that_an_agent_armed_runs_nothing(tmp_path: Path) -> None:
    """What stands in a repository's configuration are programs: the checker's git must not run them."""
    start = Start.model_validate({"repos": {"r": [{"message": "m", "files": {"a.txt": "1\n"}}]}})
    place(start, tmp_path / "f", tmp_path / "s")
    repository = tmp_path / "f" / "r"
    touch = f"touch {tmp_path}/ran"
    config = repository / ".git" / "config"
    config.write_text(
        f'[core]\n\tfsmonitor = "{touch}"\n[filter "x"]\n\tclean = "{touch}; cat"\n[diff]\n\texternal = "{touch}"\n'
    )
    (repository / ".gitattributes").write_text("* filter=x\n")
    (repository / "a.txt").write_text("2\n")
    for fact in ("modified", "staged", "head", "show:a.txt"):
        failures(one({"git": "r", "fact": fact, "contains": ["a.txt"]}), tmp_path / "f", "")
    assert not (tmp_path / "ran").exists()


def test_paths_stay_inside(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="leads out"):
        inside(tmp_path, "../x")
    with pytest.raises(BadInput, match="leads out"):
        place(Start(files={"/etc/x": ""}), tmp_path / "f", tmp_path / "s")
    with pytest.raises(BadInput, match="no operation"):
        apply([{"git": ["config", "x", "y"], "in": "r"}], tmp_path)


def test_bad_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="There is no file"):
        read_tasks(tmp_path / "none.jsonl")
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"id": "a", "request": "r", "servers": [], "checks": [{"fiel": "x", "equals": "y"}]}\n')
    with pytest.raises(BadInput, match=r"bad.jsonl:1.*fiel"):
        read_tasks(bad)
    bad.write_text('{"servers": {}}\n')
    with pytest.raises(BadInput, match="no tasks"):
        read_tasks(bad)
    for check in ({"file": "a"}, {"file": "a", "sql": "b", "rows": []}, {"git": "r", "fact": "mood", "equals": "x"}):
        with pytest.raises(ValueError, match=r"check|fact"):
            Check.model_validate(check)


def test_the_same_tasks_are_drawn_each_time() -> None:
    drawn = limited(TASKS, 5, seed=3)
    assert len(drawn) == 5
    assert drawn == limited(list(reversed(TASKS)), 5, seed=3)[::-1]
    assert limited(TASKS, None, 0) == TASKS
