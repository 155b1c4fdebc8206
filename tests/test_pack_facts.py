"""What a pack keeps of servers and tools: facts come out as they went in, and no sentence that others wrote is kept.

With PACK_UNDER_TEST (a pack) and PACK_EXPORT (a folder with servers.jsonl and tools.jsonl of the crawl that it was
built from) in the environment, the same is checked of these.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import search_pool
from hypothesis import given
from hypothesis import strategies as st
from odd_schemas import ODD
from pack_fixture import Built, build, packed_servers

from toolscout.index.pack.facts import (
    MAX_PARAMETERS,
    PackedRecords,
    describe,
    is_name,
    pack_all,
    pack_server,
    pack_tool,
    publisher_of,
    read_server,
    read_tool,
    web_address,
)
from toolscout.index.pack.file import PackFile
from toolscout.index.pack.search import PackIndex
from toolscout.index.pack.sources import PackSources
from toolscout.jsonl import read_objects
from toolscout.records import EnvVar, Install, Server, ServerState, Source, Tool, Transport
from toolscout.signature import compact_signature, parameters

SERVER = Server(
    server_id="npm/@acme/tickets",
    name="Tickets",
    category="Developer Tools",
    description="A sentence of the publisher, which must not be kept by anybody.",
    sources=[Source(marketplace="npm", id="@acme/tickets")],
    transport=Transport.HTTP,
    install=Install(
        registry="npm", package="@acme/tickets", version="2.0.1", command="npx", args=["-y", "@acme/tickets"],
        url="https://mcp.acme.example/v1",
        env=[
            EnvVar(name="ACME_KEY", required=True, secret=True, description="Get your key on the page of the account"),
            EnvVar(name="ACME_REGION"),
        ],
    ),
    license="Apache-2.0",
    homepage="https://github.com/acme-inc/tickets",
    official=True,
    popularity=1234.0,
    published="2025-03-01T12:00:00Z",
    updated="2026-09-08T12:00:00Z",
    looks_like="npm:@acme-corp/tickets",
    state=ServerState.NEEDS_KEY,
    checked_at="2026-11-18T10:00:00+00:00",
)  # fmt: skip


def tool(schema: Any, name: str = "create_ticket", **more: Any) -> Tool:
    return Tool(
        tool_id=f"{SERVER.server_id}/{name}", server_id=SERVER.server_id, name=name, input_schema=schema, **more
    )


def through(packed: list[Any]) -> Any:
    """Packed, compressed, and read again."""
    records = PackedRecords(*(pack_all([packed, packed])[n] for n in ("data", "offsets", "dictionary")))
    assert len(records) == 2 and records[0] == records[1]
    return records[1]


def again(made: Tool) -> Tool:
    return read_tool(SERVER, through(pack_tool(made)))


# --- facts -----------------------------------------------------------------------------------------------------------


def test_a_servers_facts_come_out_as_they_went_in() -> None:
    found = read_server(through(pack_server(SERVER, "Tickets of Acme, in our words.")))
    for field in (
        "server_id", "name", "category", "transport", "license", "official", "popularity", "state", "homepage",
        "looks_like",
    ):  # fmt: skip
        assert getattr(found, field) == getattr(SERVER, field), field
    assert found.install.model_copy(update={"env": []}) == SERVER.install.model_copy(update={"env": []})
    assert [(e.name, e.required, e.secret, e.description) for e in found.install.env] == [
        ("ACME_KEY", True, True, None),
        ("ACME_REGION", False, False, None),
    ]
    assert (found.description, found.publisher) == ("Tickets of Acme, in our words.", "acme-inc")
    assert (found.published, found.updated, found.checked_at) == ("2025-03-01", "2026-09-08", "2026-11-18")


@pytest.mark.parametrize("facts", [14, 17, 25])
def test_a_server_of_an_older_pack_and_of_a_newer_one_is_read(facts: int) -> None:
    packed = [*pack_server(SERVER, "Tickets."), *["?"] * 9][:facts]
    found = read_server(through(packed))
    assert (found.published, found.official) == ("2025-03-01", True)
    assert found.homepage == (SERVER.homepage if facts > 14 else None)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("https://github.com/acme-inc/tickets#readme", "https://github.com/acme-inc/tickets"),
        ("https://Acme.example/", "https://acme.example"),
        ("https://acme.example/docs?for=you", "https://acme.example/docs"),
        ("http://acme.example", ""),
        ("git+https://github.com/acme-inc/tickets.git", ""),
        ("https://user:secret@acme.example/x", ""),
        ("https://acme.example:8443/x", ""),
        ("https://acme.example/Ignore all of this", ""),
        ("https://acme.example/" + "x" * 200, ""),
        ("https://[", ""),
        ("javascript:alert(1)", ""),
        (None, ""),
    ],
)
def test_a_homepage_is_kept_as_far_as_it_is_an_address(text: str | None, address: str) -> None:
    assert web_address(text) == address


def test_a_server_of_which_nothing_is_known_comes_out_too() -> None:
    found = read_server(through(pack_server(Server(server_id="x"), "")))
    assert (found.server_id, found.name, found.description) == ("x", "x", "")
    assert (found.license, found.publisher, found.popularity, found.category) == (None, None, None, None)


@pytest.mark.parametrize(
    ("facts", "publisher"),
    [
        ({"homepage": "https://github.com/acme-inc/x"}, "acme-inc"),
        ({"homepage": "git@github.com:acme-inc/x.git"}, "acme-inc"),
        ({"homepage": "https://acme.example"}, ""),
        ({"install": Install(registry="npm", package="@acme/x")}, "acme"),
        ({"install": Install(registry="npm", package="x")}, ""),
    ],
)
def test_a_publisher_is_the_owner_of_the_repository_or_of_the_scope(facts: dict[str, Any], publisher: str) -> None:
    assert publisher_of(Server(server_id="x", **facts)) == publisher


def test_a_tools_facts_come_out_as_they_went_in() -> None:
    schema = {
        "type": "object",
        "properties": {
            "title": {"type": "string"},
            "count": {"type": "integer"},
            "price": {"type": "number"},
            "urgent": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "extra": {"type": "object"},
            "level": {"type": "string", "enum": ["low", "high"]},
            "rank": {"enum": [1, 2.5, True]},
            "since": {"type": ["string", "null"]},
            "anything": {},
        },
        "required": ["title", "count", "level"],
    }
    hints = {"readOnlyHint": False, "destructiveHint": True, "openWorldHint": True}
    found = again(tool(schema, annotations=hints))
    assert (found.tool_id, found.server_id, found.name) == (
        "npm/@acme/tickets/create_ticket", SERVER.server_id, "create_ticket",
    )  # fmt: skip
    assert found.input_schema["required"] == ["title", "count", "level"]
    properties = found.input_schema["properties"]
    assert set(properties) == set(schema["properties"])
    for name in ("title", "count", "price", "urgent", "tags", "extra", "since", "anything"):
        assert properties[name] == schema["properties"][name], name
    assert properties["level"]["enum"] == ["low", "high"] and properties["rank"]["enum"] == [1, 2.5, True]
    assert found.annotations == hints and not found.read_only
    assert again(tool({}, annotations={"readOnlyHint": True})).read_only
    assert again(tool({})).annotations is None and again(tool({})).input_schema["properties"] == {}


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        ({"type": ["array", "string"]}, {"type": ["string", "array"]}),
        ({"type": ["string", "array"]}, {"type": ["string", "array"]}),
        ({"type": ["array", "null"]}, {"type": ["null", "array"]}),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, {"type": ["integer", "null"]}),
        (
            {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}]},
            {"type": ["null", "array"], "items": {"type": "string"}},
        ),
        (
            {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "integer"}}]},
            {"type": ["string", "array"], "items": {"type": "integer"}},
        ),
        ({"type": "array", "items": {"type": "object"}}, {"type": "array", "items": {"type": "object"}}),
        ({"type": "array", "items": {"type": "null"}}, {"type": "array", "items": {"type": "null"}}),
        ({"type": "klingon"}, {}),
    ],
)
def test_a_choice_of_types_stays_that_choice(schema: dict[str, Any], wanted: dict[str, Any]) -> None:
    found = again(tool({"type": "object", "properties": {"p": schema}}))
    assert found.input_schema["properties"]["p"] == wanted


def test_names_may_have_any_sign() -> None:
    names = ["a:b", "x!", "ä-ö.ü/1", "名前", "'\"\\", "@type", "$ref", "a:s!", ":"]
    found = again(tool({"type": "object", "properties": {n: {} for n in names}, "required": ["x!"]}))
    assert set(found.input_schema["properties"]) == set(names) and found.input_schema["required"] == ["x!"]
    odd = "a:b/c d"
    assert again(tool({}, name=odd)).tool_id == f"{SERVER.server_id}/{odd}"


def test_a_great_many_parameters_are_cut_required_ones_last() -> None:
    many = {f"p{n}": {"type": "string"} for n in range(100)}
    found = again(tool({"type": "object", "properties": many, "required": ["p99"]}))
    assert len(found.input_schema["properties"]) == MAX_PARAMETERS
    assert found.input_schema["required"] == ["p99"]


@pytest.mark.parametrize("name", ODD)
def test_odd_schemas_do_not_break_a_pack(name: str) -> None:
    schema = ODD[name] if isinstance(ODD[name], dict) else {"properties": ODD[name]}
    found = again(tool(schema))
    assert isinstance(compact_signature(found), str)
    assert {p.name for p in parameters(found.input_schema)} <= {p.name for p in parameters(schema)}


def test_a_schema_of_endless_choices_does_not_break_a_pack() -> None:
    nested: dict[str, Any] = {"type": "string"}
    for _ in range(5000):
        nested = {"anyOf": [nested, nested]}
    assert again(tool({"type": "object", "properties": {"p": nested}})).input_schema["properties"] == {"p": {}}


_KEYS = st.sampled_from(["type", "properties", "items", "anyOf", "enum", "required", "a"])
_LEAVES = st.none() | st.booleans() | st.integers() | st.text(max_size=9)


@given(
    st.recursive(
        _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=4), max_leaves=20
    )
)
def test_whatever_stands_for_a_schema_is_packed_and_read(schema: Any) -> None:
    again(tool(schema if isinstance(schema, dict) else {"properties": {"a": schema}}))


def test_nothing_at_all_can_be_packed() -> None:
    parts = pack_all([])
    assert len(PackedRecords(*(parts[n] for n in ("data", "offsets", "dictionary")))) == 0


def test_a_tool_is_described_in_our_words() -> None:
    assert describe("getUserInfo", SERVER).startswith("Get User Info (Tickets).")
    lined = SERVER.model_copy(update={"description": "Tickets of Acme."})
    assert describe("create_ticket", lined) == "Create ticket (Tickets). Tickets of Acme."


def test_the_pack_gives_the_facts_of_every_tool_that_it_was_built_from(built_pack: Built) -> None:
    index = PackIndex.open_pack(built_pack.path, built_pack.encoder)
    for made in search_pool.tools():
        found = index.get_tool(made.tool_id)
        assert found is not None and found.name == made.name and found.read_only == made.read_only
        told = {p.name: (p.schema.get("type"), p.required) for p in parameters(made.input_schema)}
        assert {p.name: (p.schema.get("type"), p.required) for p in parameters(found.input_schema)} == told
    for server in packed_servers():
        read = index.get_server(server.server_id)
        assert read is not None and read.install.package == server.install.package and read.license == "MIT"
        assert [e.name for e in read.install.env] == [e.name for e in server.install.env]
    fetch, github, slack = (index.get_server(i) for i in ("demo/fetch", "acme/github", "acme/slack"))
    assert fetch is not None and fetch.popularity == 250_000
    assert (fetch.published, fetch.updated) == ("2025-03-01", "2026-09-08")
    assert github is not None and (github.published, github.updated) == (None, "2026-10")
    assert github.homepage == "https://github.com/acme-inc/github" and github.looks_like is None
    assert github.description == "Manage GitHub repositories, issues and pull requests."
    assert slack is not None and (slack.official, slack.publisher) == (True, "Slack Technologies")
    notion = index.get_server("vendor/notion")
    assert slack.homepage == "https://docs.slack.example/mcp"
    assert notion is not None and notion.homepage == "https://docs.notion.example"


# --- no sentence of others -------------------------------------------------------------------------------------------

_RUN = 6
_ADDRESS = re.compile(r"\w+://\S+")
_CJK = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+")
_CJK_RUN = 16


def runs(text: str) -> Iterator[tuple[str, ...] | str]:
    """Runs of six words in a text (addresses are none), and runs of as many letters where words are not spaced."""
    words = re.findall(r"\w+", _ADDRESS.sub(" . ", text).casefold())
    for run in zip(*(words[n:] for n in range(_RUN)), strict=False):
        if sum(len(word) > 1 and not word.isdigit() for word in run) >= _RUN - 2:  # else numbers, or noise
            yield run
    for piece in _CJK.findall(text):
        yield from (piece[n : n + _CJK_RUN] for n in range(len(piece) - _CJK_RUN + 1))


def strings(value: object) -> Iterator[str]:
    """All strings in a JSON value, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from strings(key)
            yield from strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from strings(inner)


def stored(path: Path) -> Iterator[str]:
    """Every text in a pack: its records, its header, and all bytes of it that can be read as text."""
    pack = PackFile.open(path)
    for name in ("records", "calls"):
        records = PackedRecords(*(pack.arrays[f"{name}.{part}"] for part in ("data", "offsets", "dictionary")))
        for number in range(len(records)):
            yield from strings(records[number])
    data = path.read_bytes()
    yield data[8 : 8 + int.from_bytes(data[:8], "little")].decode()
    for values in (values for values in pack.arrays.values() if values.dtype == np.uint8):
        yield values.tobytes().decode("utf-8", "ignore")


def said(servers: Iterable[Server], tools: Iterable[Tool]) -> Iterator[str]:
    """What others wrote: of servers and tools everything but ids, names and addresses."""
    for server in servers:
        yield from strings([server.name, server.title, server.description, server.summary, server.category])
        yield from strings([server.license, server.instructions, server.publisher])
        yield from strings([e.description for e in server.install.env])
    for made in tools:
        yield from strings([made.title, made.description, made.input_schema, made.output_schema, made.annotations])


def is_license(text: str) -> bool:
    return re.search(r"\b(?:OR|AND|WITH|LicenseRef|SEE LICENSE IN)\b", text) is not None


def kept_of_others(path: Path, servers: Iterable[Server], tools: Iterable[Tool]) -> set[str]:
    """Runs of words that a pack has in common with what others wrote."""
    # What has no space in it is an identifier, and so is a license: facts, however many words they are made of.
    known = {run for text in stored(path) if " " in text and not is_license(text) for run in runs(text)}
    return {" ".join(run) for text in said(servers, tools) for run in runs(text) if run in known}


def test_a_run_in_common_is_found() -> None:
    assert list(runs("one, Two three-four five")) == []
    assert ("one", "two", "three", "four", "five", "six") in set(runs("(One) two three four; five six seven"))
    assert list(runs("https://a.example/one/two/three/four/five/six")) == []


def test_no_sentence_of_others_is_in_a_pack(built_pack: Built) -> None:
    assert kept_of_others(built_pack.path, packed_servers(), search_pool.tools()) == set()


PLACES = [
    "description", "title", "name", "summary", "category", "license", "publisher", "instructions", "env", "tool title",
    "tool description", "parameter", "parameter title", "default", "enum", "const", "examples", "items", "output",
    "annotations", "parameter name", "schema", "chinese",
]  # fmt: skip


def planted(place: str) -> tuple[Server, Tool, str]:
    sentence = f"Zebras quietly juggle seven {place.replace(' ', '')} lanterns behind grandmother today"
    if place == "chinese":
        sentence = "斑马悄悄地在祖母的房子后面玩弄七个灯笼而且非常高兴今天"
    short = (
        " ".join(sentence.split()[:6]) if place in ("license", "enum") else sentence
    )  # as much as a limit lets through
    server: dict[str, Any] = {}
    field: dict[str, Any] = {"type": "string"}
    schema: dict[str, Any] = {"type": "object", "properties": {"city": field}}
    made: dict[str, Any] = {"description": "Looks something up."}
    if place == "env":
        server["install"] = Install(env=[EnvVar(name="A_KEY", description=sentence), EnvVar(name=sentence)])
    elif place == "chinese":
        server = dict.fromkeys(("title", "name", "category", "license", "publisher", "description"), sentence)
        field |= {"description": sentence, "title": sentence, "enum": [sentence]}
        schema["properties"][sentence] = {"type": "string"}
        made |= {"title": sentence, "description": sentence}
    elif place.startswith("tool "):
        made[place.removeprefix("tool ")] = sentence
    elif place in ("parameter", "parameter title"):
        field["description" if place == "parameter" else "title"] = sentence
    elif place in ("enum", "examples"):
        field[place] = ["a b c d e f", "zebras a b c d", short]
    elif place in ("default", "const"):
        field[place] = sentence
    elif place == "items":
        field |= {"type": "array", "items": {"type": "string", "description": sentence, "enum": [sentence]}}
    elif place == "output":
        made["output_schema"] = {"type": "object", "description": sentence}
    elif place == "annotations":
        made["annotations"] = {"title": sentence, "readOnlyHint": sentence}
    elif place == "parameter name":
        schema["properties"][sentence] = {"type": "string"}
    elif place == "schema":
        schema |= {"description": sentence, "title": sentence, "$comment": sentence}
    else:
        server[place] = short
    server_id = f"acme/{place.replace(' ', '-')}"
    found = Server(**{"server_id": server_id, "name": "Zoo", "description": "A zoo."} | server)
    return (
        found,
        Tool(tool_id=f"{server_id}/look", server_id=server_id, name="look", input_schema=schema, **made),
        short,
    )


def test_no_planted_sentence_is_in_a_pack(tmp_path: Path) -> None:
    servers, tools, sentences = zip(*map(planted, PLACES), strict=True)
    built = build(tmp_path, servers, tools, PackSources())
    assert built.manifest.tools == len(PLACES), "all of them are packed"
    assert all(list(runs(sentence)) for sentence in sentences), "every one would be found"
    assert kept_of_others(built.path, servers, tools) == set()
    everything = " ".join(stored(built.path)).casefold()
    assert "quietly juggle" not in everything and "斑马悄悄" not in everything


def test_our_own_line_would_be_found_if_it_were_copied(tmp_path: Path) -> None:
    server, made, _ = planted("description")
    copied = PackSources(lines={server.server_id: server.description})
    assert kept_of_others(build(tmp_path, [server], [made], copied).path, [server], [made])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("GitHub", True), ("Google Maps Platform", True), ("one two three four five", True), ("", False),
        ("one two three four five six", False), ("two\nlines", False), ("x" * 81, False), ("a/b/c/d/e/f", False),
        ("地图服务", True), ("查询指定城市的天气预报并且返回未来十天的温度", False), ("two\u2028lines", False),
    ],
)  # fmt: skip
def test_a_name_is_short(text: str, name: bool) -> None:
    assert is_name(text) is name


@pytest.mark.parametrize(
    ("license_id", "kept"),
    [
        ("MIT", True), ("Apache-2.0", True), ("MIT OR Apache-2.0 OR BSD-3-Clause OR ISC", True), ("GPL-3.0+", True),
        ("SEE LICENSE IN LICENSE.md", True), ("This may be used by anyone who asks me", False), ("MIT\nx", False),
    ],
)  # fmt: skip
def test_a_license_is_kept_by_its_id_alone(license_id: str, kept: bool) -> None:
    found = read_server(through(pack_server(SERVER.model_copy(update={"license": license_id}), "")))
    assert (found.license == license_id) is kept


@pytest.mark.skipif(
    not {"PACK_UNDER_TEST", "PACK_EXPORT"} <= set(os.environ),
    reason="PACK_UNDER_TEST and PACK_EXPORT name no real pack",
)
def test_no_sentence_of_others_is_in_a_real_pack() -> None:
    folder = Path(os.environ["PACK_EXPORT"])

    def rows(kind: str) -> Iterator[dict[str, Any]]:
        path = next(p for p in (folder / f"{kind}.jsonl", folder / f"{kind}.jsonl.gz") if p.is_file())
        return (row for _, row in read_objects(path))

    found = kept_of_others(
        Path(os.environ["PACK_UNDER_TEST"]),
        (Server.model_validate(row) for row in rows("servers")),
        (Tool.model_validate(row) for row in rows("tools")),
    )
    # A name is a fact, also where a hyphen makes six words of five.
    for server in rows("servers"):
        found -= {" ".join(run) for text in (server.get("name"), server.get("title")) for run in runs(text or "")}
    for tool in rows("tools"):
        found -= {" ".join(run) for text in (tool["name"], tool.get("title")) for run in runs(text or "")}
    found.discard("yyyy mm dd hh mm ss")  # a format
    assert not found, f"{len(found)} runs of words are others': {json.dumps(sorted(found)[:20], ensure_ascii=False)}"
