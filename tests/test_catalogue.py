"""The catalogue on SQLite and on PostgreSQL: one suite, both databases."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolscout.errors import BadInput, NotFound, StorageError
from toolscout.index import catalogue as catalogue_module
from toolscout.index.catalogue import CallLog, Catalogue, Change
from toolscout.index.database import SCHEMAS, Database
from toolscout.index.reading import PAGE
from toolscout.records import Call, Review, Server, ServerState, Source, Tool, Trajectory


@pytest.fixture
def catalogue(catalogue_url: str) -> Any:
    with Catalogue(catalogue_url) as opened:
        yield opened


def server(server_id: str = "s", **fields: object) -> Server:
    return Server.model_validate({"server_id": server_id, "name": server_id, **fields})


def tool(name: str, server_id: str = "s", **fields: object) -> Tool:
    return Tool.model_validate({"tool_id": f"{server_id}/{name}", "server_id": server_id, "name": name, **fields})


FULL_SERVER = server(
    "npm/@scope/weather",
    title="Weather",
    description="Forecasts",
    summary="w",
    category="Data",
    sources=[{"marketplace": "npm", "id": "@scope/weather", "url": "https://example.org"}],
    transport="http",
    install={
        "registry": "npm",
        "package": "@scope/weather",
        "env": [{"name": "KEY", "required": True}],
        "args": ["-y"],
    },
    version="1.2",
    license="MIT",
    homepage="https://example.org",
    popularity=12.5,
    state="needs_key",
    instructions="Ask for the city.",
    protocol_version="2025-11-25",
    checked_at="2026-01-01T00:00:00Z",
)


# --- servers and tools -----------------------------------------------------------------------------------------------


def test_everything_of_a_server_and_a_tool_comes_back(catalogue: Catalogue) -> None:
    full = tool(
        "forecast",
        FULL_SERVER.server_id,
        title="Forecast",
        description="Weather of a city",
        input_schema={"type": "object", "properties": {"b": {"default": None}, "a": {"enum": [1, 1.5, "ü", True]}}},
        output_schema={"type": "object"},
        annotations={"readOnlyHint": True},
        findings=[{"kind": "hidden_text"}],
    )
    change = catalogue.put_server(FULL_SERVER, [full])
    assert change == Change(added=[full.tool_id])
    assert catalogue.get_server(FULL_SERVER.server_id) == FULL_SERVER
    found = catalogue.get_tool(full.tool_id)
    assert found is not None
    assert found.first_seen is not None and found.changed_at is None
    assert found.fingerprint == full.computed_fingerprint() == found.computed_fingerprint()
    assert found == full.model_copy(update={"fingerprint": found.fingerprint, "first_seen": found.first_seen})
    assert list(found.input_schema["properties"]) == ["b", "a"]
    assert catalogue.get_server("nobody") is None and catalogue.get_tool("nobody/nothing") is None


def test_what_a_pack_alone_says_of_a_server_is_not_stored(catalogue: Catalogue) -> None:
    told = FULL_SERVER.model_copy(update={"publisher": "Weather Inc.", "official": True, "published": "2025-01-01"})
    catalogue.put_server(told)
    assert catalogue.get_server(FULL_SERVER.server_id) == FULL_SERVER
    before = catalogue.revision
    catalogue.put_server(told)
    assert catalogue.revision == before
    catalogue.put_server(told.model_copy(update={"version": "1.3"}))
    kept = catalogue.get_server(FULL_SERVER.server_id)
    assert kept is not None and (kept.version, kept.publisher, kept.official) == ("1.3", None, False)


def test_a_tool_list_replaces_the_one_before(catalogue: Catalogue) -> None:
    catalogue.put_server(server(), [tool("a"), tool("b"), tool("c")])
    change = catalogue.put_server(server(), [tool("a"), tool("b", description="new"), tool("d")])
    assert change == Change(["s/d"], changed=["s/b"], removed=["s/c"], unchanged=["s/a"], waiting=["s/b"])
    assert [t.tool_id for t in catalogue.tools()] == ["s/a", "s/b", "s/d"]
    assert catalogue.put_server(server(description="x")) == Change()
    assert [t.tool_id for t in catalogue.tools("s")] == ["s/a", "s/b", "s/d"]
    assert catalogue.put_server(server(), []).removed == ["s/a", "s/b", "s/d"]


def test_what_is_held_and_how_the_guard_stands_to_a_server(catalogue: Catalogue) -> None:
    catalogue.put_server(server(), [tool("a", title="A"), tool("b"), tool("c")])
    catalogue.put_server(server("t"), [tool("x", "t")])
    assert catalogue.held() == frozenset()
    catalogue.set_review(["s/a"], Review.BLOCKED)
    catalogue.put_server(server(), [tool("a", title="A"), tool("b", description="Another text."), tool("c")])
    assert catalogue.held() == {"s/a", "s/b"}
    catalogue.set_state("t", ServerState.QUARANTINED)
    assert catalogue.held() == {"s/a", "s/b", "t/x"}
    standings = catalogue.standings("s")
    assert {name: standing.review for name, standing in standings.items()} == {
        "s/a": Review.BLOCKED, "s/b": Review.CHANGED, "s/c": Review.APPROVED,
    }  # fmt: skip
    assert standings["s/b"].accepted == tool("b").computed_fingerprint()
    assert standings["s/a"].title == "A"
    assert catalogue.standings("nobody") == {}


def test_reviews_are_read_while_another_process_writes(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'c.db'}"
    with Catalogue(url) as catalogue:
        catalogue.put_server(server(), [tool("a")])
        before = catalogue.revision
        other = sqlite3.connect(tmp_path / "c.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        waiting = threading.Thread(target=catalogue.log_calls, args=([CallLog("find", "q", None, "ok", 1.0)],))
        waiting.start()
        try:
            assert catalogue.revision == before
            assert catalogue.held() == frozenset()
        finally:
            other.close()
            waiting.join()


def test_the_revision_grows_with_changes_only(catalogue: Catalogue) -> None:
    seen = [catalogue.revision]

    def grew() -> bool:
        seen.append(catalogue.revision)
        return seen[-1] > seen[-2]

    catalogue.put_server(server(), [tool("a")])
    assert grew()
    catalogue.put_server(server(), [tool("a")])
    catalogue.put_server(server(checked_at="2026-01-01T00:00:00Z"), [tool("a")])
    assert not grew()
    catalogue.put_server(server(), [tool("a", title="A")])
    assert grew()
    catalogue.set_state("s", ServerState.READY)
    assert grew()
    catalogue.set_state("s", ServerState.READY)
    assert not grew()
    assert catalogue.set_review(["s/a"], Review.BLOCKED) == 1
    assert grew()
    assert catalogue.set_review(["s/a"], Review.BLOCKED) == 0
    assert not grew()
    assert catalogue.put_exemplars([Call(id="1", query="q")]) == 1
    assert grew()
    assert catalogue.put_exemplars([Call(id="1", query="q")]) == 0
    catalogue.put_vectors("e", {"h": np.ones(2)})
    catalogue.log_call(CallLog("find", "q", None, "ok", 1.0))
    assert not grew()
    catalogue.remove_server("s")
    assert grew()


def test_sources_are_united(catalogue: Catalogue) -> None:
    npm, glama = Source(marketplace="npm", id="x"), Source(marketplace="glama", id="y", url="https://example.org")
    catalogue.put_server(server(sources=[npm]))
    catalogue.put_server(server(sources=[glama]))
    catalogue.put_server(server(sources=[npm]))
    found = catalogue.get_server("s")
    assert found is not None and found.sources == [npm, glama]


def test_removing_a_server_takes_its_tools_along(catalogue: Catalogue) -> None:
    catalogue.put_server(server(), [tool("a"), tool("b")])
    catalogue.put_server(server("t"), [tool("a", "t")])
    assert catalogue.remove_server("s") == 2
    assert [t.tool_id for t in catalogue.tools()] == ["t/a"]
    with pytest.raises(NotFound):
        catalogue.remove_server("s")
    with pytest.raises(NotFound):
        catalogue.set_state("s", ServerState.READY)


def test_a_refused_tool_list_changes_nothing(catalogue: Catalogue) -> None:
    catalogue.put_server(server(), [tool("a")])
    before = catalogue.revision
    deep: dict[str, Any] = {}
    for _ in range(600):
        deep = {"properties": deep}
    huge = tool("b", input_schema={"maximum": 10**5000})
    for wrong in (tool("b", "other"), tool("x" * 3000), tool("b", input_schema=deep), huge):
        with pytest.raises(BadInput):
            catalogue.put_server(server(description="new"), [tool("c"), wrong])
    assert catalogue.revision == before
    assert [t.tool_id for t in catalogue.tools()] == ["s/a"]
    found = catalogue.get_server("s")
    assert found is not None and found.description == ""


def test_of_two_tools_with_one_name_the_first_counts(catalogue: Catalogue) -> None:
    for _ in range(2):
        catalogue.put_server(server(), [tool("a", description="first"), tool("a", description="second")])
        found = catalogue.get_tool("s/a")
        assert found is not None and found.description == "first" and found.review is Review.APPROVED


# --- reviews ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "keywords", "after"),
    [
        (Review.APPROVED, {}, Review.CHANGED),
        (Review.APPROVED, {"trust": False}, Review.CHANGED),
        (Review.APPROVED, {"accept_changes": True}, Review.APPROVED),
        (Review.CHANGED, {}, Review.CHANGED),
        (Review.CHANGED, {"accept_changes": True}, Review.APPROVED),
        (Review.PENDING, {}, Review.PENDING),
        (Review.PENDING, {"accept_changes": True}, Review.PENDING),
        (Review.BLOCKED, {}, Review.BLOCKED),
        (Review.BLOCKED, {"accept_changes": True}, Review.BLOCKED),
    ],
)
def test_reviews_when_a_tool_changes(
    catalogue: Catalogue, before: Review, keywords: dict[str, bool], after: Review
) -> None:
    catalogue.put_server(server(), [tool("a")])
    catalogue.set_review(["s/a"], before)
    change = catalogue.put_server(server(), [tool("a", description="List every page.")], **keywords)
    assert change.changed == ["s/a"]
    found = catalogue.get_tool("s/a")
    assert found is not None
    assert found.review is after
    assert found.changed_at is not None


def test_new_tools_are_approved_only_when_trusted(catalogue: Catalogue) -> None:
    catalogue.put_server(server(), [tool("a"), tool("b", review="blocked"), tool("c", review="pending")])
    catalogue.put_server(server("t"), [tool("a", "t"), tool("b", "t", review="blocked")], trust=False)
    assert {t.tool_id: str(t.review) for t in catalogue.tools()} == {
        "s/a": "approved",
        "s/b": "blocked",
        "s/c": "pending",
        "t/a": "pending",
        "t/b": "blocked",
    }
    assert [t.tool_id for t in catalogue.tools(reviews=[Review.PENDING])] == ["s/c", "t/a"]
    assert [t.tool_id for t in catalogue.tools("t", reviews=[Review.PENDING])] == ["t/a"]


def test_a_tool_that_goes_back_to_what_was_accepted_is_approved_again(catalogue: Catalogue) -> None:
    for text, review in (("v1", "approved"), ("v2", "changed"), ("v3", "changed"), ("v1", "approved")):
        catalogue.put_server(server(), [tool("a", description=text)])
        found = catalogue.get_tool("s/a")
        assert found is not None and found.review == review
    catalogue.put_server(server(), [tool("a", description="v2")])
    catalogue.set_review(["s/a"], Review.APPROVED)
    for text, review in (("v2", "approved"), ("v1", "changed"), ("v2", "approved")):
        catalogue.put_server(server(), [tool("a", description=text)])
        found = catalogue.get_tool("s/a")
        assert found is not None and found.review == review


def test_relisting_does_not_lift_a_verdict_nor_drop_findings(catalogue: Catalogue) -> None:
    catalogue.put_server(server(), [tool("a", review="pending", findings=[{"kind": "stuffing"}])])
    catalogue.put_server(server(), [tool("a")])
    found = catalogue.get_tool("s/a")
    assert found is not None and found.review is Review.PENDING and found.findings == [{"kind": "stuffing"}]
    catalogue.put_server(server(), [tool("a", description="cleaned")])
    found = catalogue.get_tool("s/a")
    assert found is not None and found.findings == []


def test_set_review_is_all_or_nothing(catalogue: Catalogue) -> None:
    catalogue.put_server(server(), [tool("a"), tool("b")])
    with pytest.raises(NotFound, match="s/none"):
        catalogue.set_review(["s/a", "s/none"], Review.BLOCKED)
    assert [t.review for t in catalogue.tools()] == [Review.APPROVED, Review.APPROVED]


def test_first_seen_keeps_the_earliest_and_a_title_is_no_change_of_the_fingerprint(catalogue: Catalogue) -> None:
    catalogue.put_server(server(), [tool("a", first_seen="2026-03-01T00:00:00Z")])
    catalogue.put_server(server(), [tool("a", first_seen="2026-02-01T00:00:00Z", title="A")])
    catalogue.put_server(server(), [tool("a", title="A")])
    found = catalogue.get_tool("s/a")
    assert found is not None
    assert (found.first_seen, found.changed_at, found.title) == ("2026-02-01T00:00:00Z", None, "A")
    assert found.review is Review.APPROVED


# --- reading in pages ------------------------------------------------------------------------------------------------


def test_tools_stream_in_code_point_order_over_many_pages(catalogue: Catalogue) -> None:
    names = [f"{prefix}{i}" for i in range(PAGE // 2) for prefix in ("a", "B", "_", "é", "検索", "😀")]
    catalogue.put_server(server(), [tool(name) for name in names])
    found = [t.tool_id for t in catalogue.tools()]
    assert found == sorted(f"s/{name}" for name in names)
    assert len(found) > 2 * PAGE


def test_a_reader_does_not_block_a_writer(catalogue: Catalogue) -> None:
    catalogue.put_server(server(), [tool(f"t{i:04}") for i in range(PAGE + 10)])
    reader = catalogue.tools()
    next(reader)
    catalogue.put_server(server("zz"), [tool("late", "zz")])
    assert [t.tool_id for t in reader][-1] == "zz/late"


def test_servers_by_state(catalogue: Catalogue) -> None:
    for name, state in (("b", "ready"), ("a", "needs_key"), ("C", "ready")):
        catalogue.put_server(server(name, state=state))
    assert [s.server_id for s in catalogue.servers()] == ["C", "a", "b"]
    assert [s.server_id for s in catalogue.servers([ServerState.READY])] == ["C", "b"]
    assert list(catalogue.servers([])) == []


# --- odd text --------------------------------------------------------------------------------------------------------


def test_odd_text_is_stored_in_a_form_that_everything_can_carry(catalogue: Catalogue, catalogue_url: str) -> None:
    odd = "a\0b\ud800c\udfff \x1b[0m \u202e \ufffe 😀"
    schema = {"pattern": "[^\0]", "enum": ["\ud800", "\ufeff", "ok"], "\udfff": {"description": odd}}
    given = tool("n\0 é", "srv\0 é", description=odd, title=odd, input_schema=schema, annotations={"title": odd})
    home = server("srv\0 é", description=odd, instructions=odd, sources=[{"marketplace": odd, "id": odd}])
    for _ in range(2):
        catalogue.put_server(home, [given])
    found = catalogue.get_tool(given.tool_id)
    assert found is not None
    found.to_json().encode()
    assert found.description == "a�b�c� \x1b[0m \u202e \ufffe 😀"
    assert found.input_schema["pattern"] == "[^\0]" and found.input_schema["enum"] == ["�", "\ufeff", "ok"]
    assert found.fingerprint == found.computed_fingerprint()
    assert found.review is Review.PENDING and found.changed_at is None  # what it hides has to be seen by someone
    assert [t.tool_id for t in catalogue.tools(home.server_id)] == [found.tool_id]
    there = catalogue.get_server(home.server_id)
    assert there is not None and there.server_id == found.server_id and len(there.sources) == 1
    with Catalogue(catalogue_url, guard=False) as open_catalogue:  # the scanner would not have it
        call = Call(id=odd, query=odd, gold=[{"tool_id": given.tool_id, "arguments": {odd: odd}}])
        assert open_catalogue.put_exemplars([call]) == 1
    assert len(list(catalogue.exemplars(given.tool_id))) == 1
    catalogue.log_call(CallLog("find", odd, given.tool_id, "ok", 1.0))
    assert catalogue.set_review([given.tool_id], Review.BLOCKED) == 1
    assert catalogue.remove_server(home.server_id) == 1


def test_numbers_that_json_cannot_say_become_null_and_do_not_look_like_a_change(catalogue: Catalogue) -> None:
    for _ in range(2):
        catalogue.put_server(server(), [tool("a", input_schema={"maximum": float("inf"), "default": float("nan")})])
        assert catalogue.revision == 1
    found = catalogue.get_tool("s/a")
    assert found is not None and found.input_schema == {"maximum": None, "default": None}


@pytest.mark.parametrize("levels", [50, 150, 200, 230, 245, 250, 255, 300, 400])
def test_a_nested_schema_is_kept_or_refused_and_nothing_between(catalogue: Catalogue, levels: int) -> None:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"items": schema}
    try:
        catalogue.put_server(server(), [tool("a", input_schema=schema)])
    except BadInput:
        assert levels >= 200
        assert catalogue.get_tool("s/a") is None
    else:
        found = catalogue.get_tool("s/a")
        assert found is not None and found.input_schema == schema
        assert len(found.to_json()) > levels


def test_huge_schemas_are_kept(catalogue: Catalogue) -> None:
    schema = {"properties": {f"p{i}": {"description": "ü" * 100, "type": "string"} for i in range(20_000)}}
    catalogue.put_server(server(), [tool("big", input_schema=schema, description="y" * 3_000_000)])
    found = catalogue.get_tool("s/big")
    assert found is not None and found.input_schema == schema and len(found.description) == 3_000_000


# --- exemplars, trajectories, vectors, log ---------------------------------------------------------------------------


def test_exemplars_by_tool_follow_their_gold(catalogue: Catalogue) -> None:
    def call(key: str, *tools: str) -> Call:
        return Call(id=key, query=f"do {key}", gold=[{"tool_id": t, "arguments": {"x": None}} for t in tools])

    calls = [call("1", "s/a"), call("2", "s/a", "s/b", "s/a"), call("3")]
    assert catalogue.put_exemplars(iter(calls)) == 3
    assert list(catalogue.exemplars()) == calls
    assert [c.id for c in catalogue.exemplars("s/a")] == ["1", "2"]
    assert catalogue.put_exemplars([call("1", "s/b"), calls[1]]) == 1
    assert [c.id for c in catalogue.exemplars("s/a")] == ["2"]
    assert [c.id for c in catalogue.exemplars("s/b")] == ["1", "2"]


def test_many_exemplars(catalogue: Catalogue) -> None:
    calls = (Call(id=f"{i:05}", query="q", gold=[{"tool_id": "s/a"}]) for i in range(2 * PAGE + 7))
    assert catalogue.put_exemplars(calls) == 2 * PAGE + 7
    assert sum(1 for _ in catalogue.exemplars("s/a")) == 2 * PAGE + 7


def test_trajectories_come_back(catalogue: Catalogue) -> None:
    run = Trajectory(id="1", messages=[{"role": "user"}], tools=["s/a"], calls=[{"x": 1}], outcome="ok", source="me")
    assert catalogue.put_trajectories([run, run]) == 1
    assert list(catalogue.trajectories()) == [run]


def test_vectors_are_exact_and_kept_by_encoder(catalogue: Catalogue) -> None:
    rng = np.random.default_rng(7)
    vectors = {f"{i:064x}": rng.standard_normal(24).astype(np.float32) for i in range(1200)}
    catalogue.put_vectors("one", vectors)
    first = next(iter(vectors))
    catalogue.put_vectors("one", {first: np.zeros(24)})  # content addressed: the first one stays
    catalogue.put_vectors("two", {first: np.ones(3, dtype=np.float64)})
    found = catalogue.get_vectors("one", [*vectors, "unknown"])
    assert found.keys() == vectors.keys()
    assert all(v.dtype == np.float32 and (v == vectors[k]).all() for k, v in found.items())
    assert catalogue.get_vectors("two", list(vectors)).keys() == {first}
    assert catalogue.prune_vectors("one", [first]) == 1199
    assert catalogue.stats()["vectors"] == {"total": 2, "by_encoder": {"one": 1, "two": 1}}
    with pytest.raises(BadInput, match="shape"):
        catalogue.put_vectors("one", {"x": np.ones((2, 2))})
    assert catalogue.get_vectors("one", []) == {}


def test_the_log_keeps_the_newest(catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue_module, "LOG_KEPT", 5)
    entries = [CallLog("invoke", "", f"s/{i}", "ok", i / 2) for i in range(8)]
    catalogue.log_calls(entries[:6])
    catalogue.log_call(entries[6])
    catalogue.log_calls([entries[7]])
    assert catalogue.call_log() == entries[:2:-1]
    assert catalogue.call_log(2) == entries[:5:-1]


def test_stats(catalogue: Catalogue) -> None:
    catalogue.put_server(server(state="ready"), [tool("a"), tool("b", review="blocked")])
    catalogue.put_server(server("t"))
    catalogue.put_exemplars([Call(id="1", query="q", gold=[{"tool_id": "s/a"}])])
    found = catalogue.stats()
    database = found.pop("database")
    assert database["bytes"] > 10_000 and database["schema"] == SCHEMAS[-1]
    assert found == {
        "revision": catalogue.revision,
        "servers": {"total": 2, "by_state": {"needs_install": 1, "ready": 1}},
        "tools": {"total": 2, "by_review": {"approved": 1, "blocked": 1}, "waiting": 0},
        "exemplars": {"total": 1, "tools": 1},
        "trajectories": {"total": 0},
        "vectors": {"total": 0, "by_encoder": {}},
        "call_log": {"total": 0, "by_kind": {}},
    }


# --- opening, schema, several processes ------------------------------------------------------------------------------


def test_the_migrated_schema_is_the_tables(catalogue_url: str) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext
    from alembic.script import ScriptDirectory
    from sqlmodel import SQLModel

    database = Database(catalogue_url)
    with database.reading() as connection:
        assert compare_metadata(MigrationContext.configure(connection), SQLModel.metadata) == []
    database.close()
    scripts = ScriptDirectory(str(Path(catalogue_module.__file__).parent / "migrations"))
    assert tuple(s.revision for s in scripts.walk_revisions())[::-1] == SCHEMAS


def test_a_newer_schema_is_refused(catalogue_url: str) -> None:
    import sqlalchemy

    database = Database(catalogue_url)
    with database.writing() as connection:
        connection.execute(sqlalchemy.text("UPDATE alembic_version SET version_num = '9999'"))
    database.close()
    with pytest.raises(StorageError, match=r"newer Toolscout \(schema 9999") as caught:
        Catalogue(catalogue_url)
    assert "Upgrade" in caught.value.hint


def test_what_was_put_is_there_after_opening_again(catalogue_url: str) -> None:
    with Catalogue(catalogue_url) as first:
        first.put_server(server(), [tool("a")])
        revision = first.revision
    with Catalogue(catalogue_url) as second:
        assert second.revision == revision
        assert second.get_tool("s/a") is not None


def run_python(script: str, *arguments: str, wait: bool = True) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if wait:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
    return process


CLIENT = """
import sys
import threading
from toolscout.index.catalogue import Catalogue, CallLog
from toolscout.records import Server, Tool
url, me = sys.argv[1:]
with Catalogue(url) as catalogue:
    for i in range(8):
        server = f"{me}-{i}"
        tools = [Tool(tool_id=f"{server}/{n}", server_id=server, name=n) for n in "abc"]
        assert len(catalogue.put_server(Server(server_id=server), tools).added) == 3
        shared = Tool(tool_id="shared/x", server_id="shared", name="x", description=f"{me}{i}")
        catalogue.put_server(Server(server_id="shared"), [shared], accept_changes=True)
        catalogue.log_call(CallLog("find", me, None, "ok", 1.0))
        assert sum(1 for _ in catalogue.tools(server)) == 3
"""


def test_processes_that_open_a_new_catalogue_at_once_all_work(catalogue_url: str) -> None:
    clients = [run_python(CLIENT, catalogue_url, name, wait=False) for name in ("one", "two", "three")]
    for client in clients:
        _, err = client.communicate(timeout=120)
        assert client.returncode == 0, err
    with Catalogue(catalogue_url) as catalogue:
        assert sum(1 for _ in catalogue.tools()) == 3 * 8 * 3 + 1
        assert catalogue.revision == 2 * 3 * 8
        assert catalogue.stats()["call_log"]["total"] == 24


KILLED_MIGRATION = """
import os, signal, sys
from toolscout.index import database
upgrade = database._upgrade
def killed(connection):
    upgrade(connection)
    os.kill(os.getpid(), signal.SIGKILL)
database._upgrade = killed
database.Database(sys.argv[1])
"""


def test_a_migration_killed_before_its_commit_leaves_a_catalogue_that_opens(catalogue_url: str) -> None:
    process = run_python(KILLED_MIGRATION, catalogue_url, wait=False)
    process.communicate(timeout=60)
    assert process.returncode == -9
    with Catalogue(catalogue_url) as catalogue:
        catalogue.put_server(server(), [tool("a")])
        assert catalogue.revision == 1


# --- SQLite only -----------------------------------------------------------------------------------------------------


LIGHT = """
import sys
import threading
from toolscout.index.catalogue import Catalogue, CallLog
catalogue = Catalogue(sys.argv[1])
assert catalogue.revision == 1
catalogue.log_call(CallLog("find", "q", None, "ok", 1.0))
heavy = [name for name in ("sqlalchemy", "sqlmodel", "alembic", "numpy", "filelock") if name in sys.modules]
assert not heavy, heavy
"""


def test_opening_reading_the_revision_and_logging_need_no_heavy_import(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'c.db'}"
    with Catalogue(url) as catalogue:
        catalogue.put_server(server())
    run_python(LIGHT, url)
    with Catalogue(url) as catalogue:
        assert len(catalogue.call_log()) == 1


def test_odd_places(tmp_path: Path) -> None:
    path = tmp_path / "späce ?mode=ro %41 #" / "deep" / "c.db"
    with Catalogue(f"sqlite:///{path}") as catalogue:
        catalogue.put_server(server())
        assert catalogue.get_server("s") is not None
    assert path.exists()


def test_what_cannot_be_a_catalogue_is_refused_and_left_alone(tmp_path: Path) -> None:
    import sqlite3

    text = tmp_path / "text.db"
    text.write_text("not a database, " * 100)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    (tmp_path / "file").write_text("")
    for wrong, reason in (
        (f"sqlite:///{text}", "not a database"),
        (f"sqlite:///{other}", "something else"),
        (f"sqlite:///{tmp_path}/file/c.db", "cannot be made"),
        (f"sqlite:///{tmp_path}", "unable to open"),
        ("sqlite://", "needs a file"),
        ("sqlite:///:memory:", "needs a file"),
        ("mysql://root:secret@host/x", "'mysql' is no catalog database"),
    ):
        with pytest.raises(StorageError, match=reason) as caught:
            Catalogue(wrong)
        assert caught.value.hint
        assert "secret" not in caught.value.sentence()
    assert text.read_text().startswith("not a database, ")


def test_a_catalogue_whose_writer_was_killed_in_a_transaction_is_whole(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'c.db'}"
    with Catalogue(url) as catalogue:
        catalogue.put_server(server(), [tool("a")])
    script = (
        "import os, sys; from toolscout.index import writing; from toolscout.index.catalogue import Catalogue;"
        "from toolscout.records import Server\n"
        "writing.remove_missing = lambda *a: os.kill(os.getpid(), 9)\n"
        "Catalogue(sys.argv[1]).put_server(Server(server_id='s', description='half'), [])"
    )
    process = run_python(script, url, wait=False)
    process.communicate(timeout=60)
    assert process.returncode == -9
    with Catalogue(url) as catalogue:
        found = catalogue.get_server("s")
        assert found is not None and found.description == ""
        assert catalogue.get_tool("s/a") is not None


def test_a_closed_catalogue_says_so(tmp_path: Path) -> None:
    catalogue = Catalogue(f"sqlite:///{tmp_path / 'c.db'}")
    catalogue.close()
    with pytest.raises(StorageError, match="closed"):
        _ = catalogue.revision


@pytest.mark.skipif(os.name != "posix", reason="modes of files")
def test_the_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "made" / "catalogue.db"
    for _ in range(2):
        with Catalogue(f"sqlite:///{path}") as catalogue:
            catalogue.put_server(Server(server_id="a"), [])
            modes = {
                file.name: file.stat().st_mode & 0o777 for file in path.parent.iterdir() if ".lock" not in file.name
            }
            assert set(modes.values()) == {0o600}, modes
        path.chmod(0o644)  # of an older Toolscout
