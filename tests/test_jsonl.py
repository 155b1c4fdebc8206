"""JSON Lines: what is read is right, what cannot be read is named exactly, what is written is whole."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from toolscout import jsonl
from toolscout.errors import BadInput, NotFound, StorageError
from toolscout.jsonl import count_lines, read_objects, read_records, well_formed, write_records
from toolscout.records import Tool

GOOD = {"tool_id": "s/a", "server_id": "s", "name": "a"}


def tool(name: str, **fields: object) -> Tool:
    return Tool.model_validate({"tool_id": f"s/{name}", "server_id": "s", "name": name, **fields})


@pytest.mark.parametrize("name", ["tools.jsonl", "tools.jsonl.gz"])
def test_written_records_come_back(tmp_path: Path, name: str) -> None:
    tools = [tool("a", description="naïve 検索 🔍"), tool("b", input_schema={"default": None, "x": [1, 2.5, "\0"]})]
    assert write_records(tmp_path / name, tools) == 2
    assert list(read_records(tmp_path / name, Tool)) == tools
    assert count_lines(tmp_path / name) == 2
    assert (tmp_path / name).read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")


def test_gzip_is_told_by_content_and_is_reproducible(tmp_path: Path) -> None:
    write_records(tmp_path / "one.gz", [tool("a")])
    write_records(tmp_path / "two.gz", [tool("a")])
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()
    (tmp_path / "one.gz").rename(tmp_path / "one.jsonl")
    assert [t.name for t in read_records(tmp_path / "one.jsonl", Tool)] == ["a"]


def test_bom_blank_lines_crlf_and_a_missing_last_newline_are_no_errors(tmp_path: Path) -> None:
    line = json.dumps(GOOD).encode()
    (tmp_path / "f").write_bytes(b"\xef\xbb\xbf" + line + b"\r\n\r\n   \n" + line)
    assert [number for number, _ in read_objects(tmp_path / "f")] == [1, 4]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"tool_id": ', "not JSON"),
        (b'["a"]', "a JSON object was expected, found an array"),
        (b'"text"', "found a string"),
        (b"null", "found null"),
        (b"3", "found a number"),
        (b"\xff\xfe{}", "not UTF-8 text (byte 1"),
        (b'{"a": NaN}', "NaN is not a JSON number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"tool_id": "s/a", "server_id": "s"}', "name: Field required"),
        (b'{"tool_id": "s/a", "server_id": "s", "name": "a", "input_schema": []}', "input_schema: Input should be"),
        (b'{"tool_id": "s/a", "server_id": "s", "name": "a", "review": "fine"}', "review: Input should be"),
    ],
)
def test_a_malformed_line_is_named_and_can_be_skipped(tmp_path: Path, line: bytes, reason: str) -> None:
    path = tmp_path / "tools.jsonl"
    good = json.dumps(GOOD).encode()
    path.write_bytes(good + b"\n" + line + b"\n" + good + b"\n")
    with pytest.raises(BadInput) as caught:
        list(read_records(path, Tool))
    assert str(caught.value).startswith(f"{path}:2: ")
    assert reason in str(caught.value)
    bad: list[BadInput] = []
    assert len(list(read_records(path, Tool, on_bad=bad.append))) == 2
    assert [str(b) for b in bad] == [str(caught.value)]


def test_a_json_array_file_is_recognised(tmp_path: Path) -> None:
    (tmp_path / "f.json").write_text(json.dumps([GOOD], indent=2))
    with pytest.raises(BadInput) as caught:
        list(read_objects(tmp_path / "f.json"))
    assert "one JSON array" in caught.value.hint


def test_an_endless_line_costs_no_memory_and_the_next_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE", 1 << 20)
    path = tmp_path / "f.jsonl.gz"
    with gzip.open(path, "wb") as out:
        out.write(b'{"a": "' + b"x" * (5 << 20) + b'"}\n' + json.dumps(GOOD).encode() + b"\n")
    with pytest.raises(BadInput, match=r"f\.jsonl\.gz:1: the line is longer than 1 MiB"):
        list(read_objects(path))
    bad: list[BadInput] = []
    assert [number for number, _ in read_objects(path, on_bad=bad.append)] == [2]
    assert len(bad) == 1


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_gzip_file_ends_with_an_error(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "f.jsonl.gz"
    write_records(path, [tool(f"t{i}", description=str(hash(i) * 7919)) for i in range(2000)])
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[len(data) // 2 :]
    else:
        data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(BadInput, match=r"f\.jsonl\.gz:\d+: "):
        list(read_objects(path))
    bad: list[BadInput] = []
    names = [found["name"] for _, found in read_objects(path, on_bad=bad.append)]
    assert names[0] == "t0"
    assert bad


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="There is no file"):
        list(read_objects(tmp_path / "none"))
    with pytest.raises(BadInput, match="cannot be read"):
        list(read_objects(tmp_path))


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "tools.jsonl.gz"
    write_records(path, [tool("old")])

    def failing() -> Iterator[Tool]:
        yield tool("new")
        raise RuntimeError("the source broke")

    with pytest.raises(RuntimeError, match="the source broke"):
        write_records(path, failing())
    assert [t.name for t in read_records(path, Tool)] == ["old"]
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["tools.jsonl.gz"]


def test_a_folder_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        write_records(tmp_path / "file" / "tools.jsonl", [tool("a")])


def test_lone_surrogates_become_replacement_characters_and_pairs_are_joined(tmp_path: Path) -> None:
    raw = '{"tool_id":"s/a","server_id":"s","name":"a","description":"x\\ud800y \\ud83d\\ude00",'
    (tmp_path / "f").write_text(raw + '"input_schema":{"\\udfff":["\\udbff"]}}')
    (found,) = read_records(tmp_path / "f", Tool)
    assert found.description == "x�y 😀"
    assert found.input_schema == {"�": ["�"]}
    write_records(tmp_path / "g", [tool("a", description="x\ud800y")])
    assert [t.description for t in read_records(tmp_path / "g", Tool)] == ["x�y"]


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)  # surrogates and controls included
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@given(value=ANY_JSON)
def test_well_formed_text_can_be_encoded_and_is_left_alone(value: object) -> None:
    fixed = well_formed(value)
    json.dumps(fixed, ensure_ascii=False).encode()
    assert well_formed(fixed) == fixed
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    assert fixed == value


@hypothesis_settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(schema=st.dictionaries(ANY_TEXT, ANY_JSON, max_size=4), description=ANY_TEXT)
def test_any_tool_survives_the_file(tmp_path: Path, schema: dict[str, object], description: str) -> None:
    write_records(tmp_path / "f.jsonl", [tool("a", input_schema=schema, description=description)])
    (found,) = read_records(tmp_path / "f.jsonl", Tool)
    assert found.description == well_formed(description)
    if well_formed(schema) == schema:
        assert found.input_schema == schema
