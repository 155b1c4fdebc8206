"""A few hundred odd cases of every kind, always the same ones; ``benchmarks/fuzz.py`` runs as many as wanted.

Below them, what fuzzing has found, each with a test of its own.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fuzzing.bounds import Record, time_bound
from fuzzing.kinds import kind_of, run
from fuzzing.schemas import BOMBS, bomb
from fuzzing.schemas import check as check_schema

from toolscout.errors import BadInput
from toolscout.index.guard.policy import read_policy as read_guard_policy
from toolscout.schema import simplify
from toolscout.schema_work import MOST, Work
from toolscout.server import face
from toolscout.server.clients.importing import read_sources
from toolscout.server.clients.known import Machine
from toolscout.server.config import ServersFile, UpstreamConfig
from toolscout.server.gate import Gate
from toolscout.server.upstreams.listing import install_of
from toolscout.server.upstreams.pipe import PipeDispatcher
from toolscout.validation import schema_trouble, validate


@pytest.fixture
def quiet() -> Iterator[None]:
    """Without the complaints about bad input, which is all there is here."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize(
    ("kind", "count"),
    [("frames", 60), ("schemas", 60), ("catalogue", 40), ("config", 100), ("engine", 30), ("http", 30)],
)
def test_odd_input_is_no_fault(kind: str, count: int, quiet: None) -> None:
    record = Record()
    run(kind_of(kind), count, 7, record)
    assert record.cases[kind] == count
    assert not record.faults, "\n".join(f"{f.place} {f.error}\n{f.case}\n{f.trace}" for f in record.faults.values())


def test_a_fault_would_be_seen() -> None:
    """The fuzzing itself: what raises or takes too long is recorded, with its case."""
    from fuzzing.bounds import recorded

    record = Record()
    with recorded(record, "x", "the case"):
        raise KeyError("a")
    with recorded(record, "x", "slow"), time_bound(0.05):
        while True:
            pass
    assert record.cases == {"x": 2}
    assert {f.error.partition(":")[0] for f in record.faults.values()} == {"KeyError", "TooLong"}
    assert {f.case for f in record.faults.values()} == {"'the case'", "'slow'"}


@pytest.mark.parametrize("kind", BOMBS)
def test_small_schemas_that_mean_much_are_read_in_time(kind: str) -> None:
    with time_bound(20):
        check_schema((bomb(kind, 30), {"a": 1, "propertY-1": 2}))


def test_references_that_come_back_are_not_followed_for_ever() -> None:
    """The validator itself takes 3^n steps for these, in a library that nothing interrupts."""
    ring = bomb("allOf ring", 40)
    with time_bound(20):
        assert validate({"a": 1}, ring) == []
        assert "lead back" in str(schema_trouble(ring))
    doubled = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}] * 2} for i in range(60)}
    assert Work({"$ref": "#/$defs/d0", "$defs": doubled}).checks(0) == MOST


@pytest.mark.parametrize(
    ("own", "to"),
    [
        ("http://x.y/a.json", "a.json#"),
        ("http://x.y/a.json", "/a.json#"),
        ("http://x.y/a.json", "http://x.y/b/../a.json#"),
        ("http://x.y/a.json", "HTTP://X.Y/a.json#"),
        ("", "json-schema:///#"),
        ("", "./#"),
    ],
)
def test_every_way_to_write_a_reference_is_counted(own: str, to: str) -> None:
    """Those that are not understood here are not followed: the library would, 2^40 times."""
    chain = {f"n{i}": {"allOf": [{"$ref": f"{to}/$defs/n{i + 1}"}] * 2} for i in range(40)}
    schema = {**({"$id": own} if own else {}), "$ref": f"{to}/$defs/n0", "$defs": {**chain, "n40": {"type": "object"}}}
    with time_bound(20):
        assert validate({"a": 1}, schema) == []
        assert schema_trouble(schema) is not None


def test_branches_that_double_with_the_depth_of_the_arguments() -> None:
    """Harmless for flat arguments; for deep ones the simplified schema is used, which still tells types apart."""
    node: Any = {"anyOf": [{"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": k} for k in (1, 2)]}
    schema = {"type": "object", "properties": {"t": {"$ref": "#/$defs/n"}}, "required": ["t"], "$defs": {"n": node}}
    deep: Any = "leaf"
    for _ in range(45):
        deep = [deep, deep] if isinstance(deep, str) else [deep, 1]
    with time_bound(20):
        assert validate({"t": deep}, schema) is not None
        assert validate({"t": 3}, schema)


def test_recursive_schemas_of_real_tools_are_still_enforced() -> None:
    tree = {"type": "object", "properties": {"v": {"type": "string"}, "left": {"$ref": "#/$defs/t"},
            "right": {"$ref": "#/$defs/t"}}, "required": ["v"]}  # fmt: skip
    schema = {"type": "object", "properties": {"t": {"$ref": "#/$defs/t"}}, "$defs": {"t": tree}}
    value: Any = {"v": "x"}
    for _ in range(30):
        value = {"v": "x", "left": value, "right": {"v": "y"}}
    assert schema_trouble(schema) is None
    assert validate({"t": value}, schema) == []
    value["right"] = {}
    assert [p.path for p in validate({"t": value}, schema)] == ["$.t.right.v"]


def test_an_integer_beyond_every_float_is_a_number() -> None:
    assert simplify({"type": "integer", "enum": [10**400, 1, 1.5]}) == {"enum": [10**400, 1]}


def test_an_id_that_cannot_be_sent_back_goes_to_the_engine() -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    line = json.dumps({"jsonrpc": "2.0", "id": "\ud800", "method": "initialize", "params": hello}).encode()
    gate = Gate({"initialize": {"2025-11-25": {}}})
    assert gate.answer(line) == (None, True)


async def test_progress_beyond_every_float_ends_no_connection() -> None:
    import asyncio

    pipe, sent = PipeDispatcher(10_000), []
    pipe.attach(lambda data: sent.append(data) is None, lambda: True, asyncio.Event().wait)

    async def progressed(*given: Any) -> None:
        return None

    call = asyncio.create_task(pipe.send_raw_request("x", {}, {"on_progress": progressed}))
    await asyncio.sleep(0)
    told = {"progressToken": 1, "progress": 10**400}
    pipe.feed(json.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": told}).encode() + b"\n")
    pipe.feed(b'{"jsonrpc":"2.0","id":1,"result":{"ok":1}}\n')
    assert await call == {"ok": 1}


ENDLESS = "9" * 5000
DEEP = "[" * 100_000


@pytest.mark.parametrize("text", [f'{{"mcpServers": {{"a": {{"timeout": {ENDLESS}}}}}}}', DEEP, '{"a":' * 100_000])
def test_endless_numbers_and_deep_nesting_in_json_configurations(tmp_path: Path, text: str) -> None:
    path = tmp_path / "mcp.json"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"mcp\.json"):
        ServersFile(path).load()
    with pytest.raises(BadInput, match=r"mcp\.json"):
        read_sources([str(path)], Machine(home=tmp_path, project=None))


def test_a_list_where_a_text_belongs_is_a_problem_of_that_server_only(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    bad = {"command": "x", "env": {"A": ["b"]}}
    servers = {"bad": bad, "headed": {"url": "http://h/", "headers": {"A": {}}}, "good": {"command": "x"}}
    path.write_text(json.dumps({"mcpServers": servers}))
    found = {e.name: e.problem for e in read_sources([str(path)], Machine(home=tmp_path, project=None)).entries}
    assert found.pop("good") in (None, "")
    assert all("not text" in str(problem) for problem in found.values()) and len(found) == 2


@pytest.mark.parametrize("text", [f"a = {ENDLESS}", f"a = {DEEP}"])
def test_endless_numbers_and_deep_nesting_in_toml(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(BadInput, match=r"x\.toml"):
        read_guard_policy(path)
    with pytest.raises(BadInput, match=r"x\.toml"):
        read_sources([str(path)], Machine(home=tmp_path, project=None))


def test_a_face_that_is_nested_without_end_is_none(home: Path) -> None:
    (home / "face.json").write_text(DEEP)
    assert face.load(home) == {}


def test_the_catalogue_gets_no_key_of_an_argument_or_a_path() -> None:
    """What stands in an entry of `mcp.json` is written into the catalogue, and exported from there."""
    local = UpstreamConfig.stdio("a", "npx", ["-y", "server-pg", "postgresql://app:hunter2-pw@db.example/x"])
    remote = UpstreamConfig.remote("b", "https://u:hunter2-pw@h.example/s/sk-live-9aF3kQz81LmPx0Tt/mcp?key=hunter2-pw")
    assert install_of(local).args == ["-y", "server-pg", "***"]
    text = install_of(remote).model_dump_json()
    assert "hunter2" not in text and "9aF3kQz" not in text and "h.example" in text
