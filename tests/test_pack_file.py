"""A pack as a file: what is written is read, equal inputs give equal bytes, and what is no pack is one clear error."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import search_pool
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from pack_fixture import DATE, Built, build, packed_servers

from toolscout.errors import StorageError
from toolscout.index.pack.file import FORMAT, Manifest, PackFile, write_pack
from toolscout.index.pack.search import PackIndex

MANIFEST = Manifest(FORMAT, "2026-11-25", "enc", 2, 384, 3, 5, sources={"lines.tsv": "00"})
ARRAYS: dict[str, Any] = {
    "a": np.arange(7, dtype=np.uint8),
    "b": np.arange(12, dtype=np.float32).reshape(3, 4),
    "c": np.zeros((0, 5), np.uint64),
    "d": np.array([-1, 2**40], np.int64),
}


def packed(path: Path, **changes: Any) -> Path:
    write_pack(path, ARRAYS, replace(MANIFEST, **changes))
    return path


def written(path: Path, header: object, data: bytes = b"") -> Path:
    """A file with this header, as it stands."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def header_of(path: Path) -> Any:
    data = path.read_bytes()
    return json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])


def refused(path: Path) -> str:
    with pytest.raises(StorageError) as caught:
        PackFile.open(path)
    assert str(path.name) in str(caught.value) and caught.value.hint
    return str(caught.value)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    found = PackFile.open(packed(tmp_path / "x.pack"))
    assert found.manifest == MANIFEST and set(found.arrays) == set(ARRAYS)
    for name, values in ARRAYS.items():
        assert found.arrays[name].dtype == values.dtype and found.arrays[name].shape == values.shape
        assert np.array_equal(found.arrays[name], values)
    assert not found.arrays["a"].flags.writeable


def test_equal_arrays_give_equal_bytes_in_whatever_order_they_come(tmp_path: Path) -> None:
    packed(tmp_path / "x.pack")
    write_pack(tmp_path / "y.pack", dict(reversed(ARRAYS.items())), MANIFEST)
    assert (tmp_path / "x.pack").read_bytes() == (tmp_path / "y.pack").read_bytes()


def test_equal_crawls_give_equal_packs(tmp_path: Path, built_pack: Built) -> None:
    again = build(tmp_path, packed_servers()[::-1], search_pool.tools()[::-1], built_pack.sources)
    assert again.path.read_bytes() == built_pack.path.read_bytes()


def test_any_reader_of_safetensors_would_open_it(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.pack")
    header = header_of(path)
    assert json.loads(header.pop("__metadata__")["toolscout"]) == asdict(MANIFEST)
    first = 8 + int.from_bytes(path.read_bytes()[:8], "little")
    assert first % 64 == 0, "the arrays are aligned"
    for told in header.values():
        start, end = told["data_offsets"]
        assert start % 64 == 0 and first + end <= path.stat().st_size


def test_a_manifest_of_a_later_toolscout_may_say_more(tmp_path: Path) -> None:
    header = header_of(packed(tmp_path / "x.pack"))
    told = asdict(MANIFEST) | {"moon": "full"}
    path = written(tmp_path / "y.pack", {"__metadata__": {"toolscout": json.dumps(told)}})
    assert PackFile.open(path).manifest == MANIFEST and header


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert "There is no built-in catalog" in refused(tmp_path / "none.pack")
    (tmp_path / "folder.pack").mkdir()
    refused(tmp_path / "folder.pack")


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 9, 100, -1, -64, -65, -200])
def test_a_truncated_pack_is_refused(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "x.pack"
    # The last array is long, so that no cut falls into padding alone.
    write_pack(path, ARRAYS | {"z": np.arange(64, dtype=np.uint8)}, MANIFEST)
    path.write_bytes(path.read_bytes()[:keep])
    refused(path)


@pytest.mark.parametrize("keep", [0.001, 0.01, 0.1, 0.5, 0.9, 0.999])
def test_a_real_pack_is_refused_wherever_it_is_cut(tmp_path: Path, built_pack: Built, keep: float) -> None:
    data = built_pack.path.read_bytes()
    path = tmp_path / "x.pack"
    path.write_bytes(data[: int(keep * len(data))])
    refused(path)


@pytest.mark.parametrize(
    "data", [b"", b"\0", b"\0" * 4096, b"GIF89a" + b"x" * 500, b"PK\x03\x04" + b"\0" * 99, b"\xff" * 64, b"{}" * 40]
)
def test_a_foreign_file_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.pack"
    path.write_bytes(data)
    refused(path)


@pytest.mark.parametrize("number", [0, 2, 99])
def test_another_format_is_refused_with_what_to_do(tmp_path: Path, number: int) -> None:
    path = packed(tmp_path / "x.pack", format=number)
    assert f"is of format {number}" in refused(path)
    with pytest.raises(StorageError) as caught:
        PackFile.open(path)
    assert ("Update Toolscout" in caught.value.hint) == (number > FORMAT)


@pytest.mark.parametrize(
    "header",
    [
        b"{", b"\xff\xfe\xfd", b"not JSON at all", [], 7, None, "text", {}, {"__metadata__": None},
        {"__metadata__": {}}, {"__metadata__": {"toolscout": 7}}, {"__metadata__": {"toolscout": "{"}},
        {"__metadata__": {"toolscout": "[]"}}, {"__metadata__": {"toolscout": "7"}},
        {"__metadata__": {"toolscout": "{}"}}, b"[" * 100_000,
    ],
)  # fmt: skip
def test_a_header_that_is_none_is_refused(tmp_path: Path, header: object) -> None:
    refused(written(tmp_path / "x.pack", header, bytes(256)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "1"}, {"format": None}, {"format": 1.5}, {"format": True}, {"date": 20261125}, {"date": "yesterday"},
        {"date": ""}, {"servers": -1}, {"servers": "3"}, {"encoder": None}, {"sources": []}, {"dim": 1e300},
    ],
)  # fmt: skip
def test_a_manifest_with_a_wrong_value_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    told = json.dumps(asdict(MANIFEST) | wrong)
    refused(written(tmp_path / "x.pack", {"__metadata__": {"toolscout": told}}))


@pytest.mark.parametrize(
    "told",
    [
        {"dtype": "U8", "shape": [7], "data_offsets": [-7, 0]},
        {"dtype": "U8", "shape": [7], "data_offsets": [-8, -1]},
        {"dtype": "U8", "shape": [7], "data_offsets": [0, 6]},
        {"dtype": "U8", "shape": [7], "data_offsets": [7, 0]},
        {"dtype": "U8", "shape": [-7], "data_offsets": [0, -7]},
        {"dtype": "U8", "shape": [-7, -1], "data_offsets": [0, 7]},
        {"dtype": "U8", "shape": [2**62], "data_offsets": [0, 2**62]},
        {"dtype": "U8", "shape": [7], "data_offsets": [2**63, 2**63 + 7]},
        {"dtype": "U8", "shape": [2**80], "data_offsets": [0, 2**80]},
        {"dtype": "U8", "shape": [2**62, 4], "data_offsets": [0, 0]},
        {"dtype": "U64", "shape": [2**61], "data_offsets": [0, 0]},
        {"dtype": "U8", "shape": [float("inf")], "data_offsets": [0, 7]},
        {"dtype": "U8", "shape": [float("nan")], "data_offsets": [0, 7]},
        {"dtype": "U8", "shape": [7], "data_offsets": [0, float("inf")]},
        {"dtype": "U8", "shape": [7], "data_offsets": [0]},
        {"dtype": "U8", "shape": [7], "data_offsets": None},
        {"dtype": "U8", "shape": None, "data_offsets": [0, 7]},
        {"dtype": "U8", "shape": ["seven"], "data_offsets": [0, 7]},
        {"dtype": "O", "shape": [7], "data_offsets": [0, 7]},
        {"dtype": ["U8"], "shape": [7], "data_offsets": [0, 7]},
        {"shape": [7], "data_offsets": [0, 7]},
        [1, 2], None, 7, "U8",
    ],
)  # fmt: skip
def test_an_array_that_lies_about_itself_is_refused(tmp_path: Path, told: object) -> None:
    header = {"__metadata__": {"toolscout": json.dumps(asdict(MANIFEST))}, "a": told}
    refused(written(tmp_path / "x.pack", header, bytes(256)))


def test_a_header_longer_than_the_file_is_refused(tmp_path: Path) -> None:
    path = packed(tmp_path / "x.pack")
    for length in (2**63, 2**64 - 1, path.stat().st_size, 1 << 21, 1, 0):
        path.write_bytes(length.to_bytes(8, "little") + path.read_bytes()[8:])
        refused(path)


@given(st.data())
@hypothesis_settings(max_examples=300)
def test_whatever_happens_to_its_bytes_it_opens_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, built_pack: Built, data: st.DataObject
) -> None:
    whole = bytearray(built_pack.path.read_bytes())
    header = 8 + int.from_bytes(whole[:8], "little")
    # Most of the flips where they matter: in the header.
    places = st.one_of(st.integers(0, header), st.integers(0, len(whole) - 1))
    for place, value in data.draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=6)):
        whole[place] = value
    keep = data.draw(st.one_of(st.just(len(whole)), st.integers(0, len(whole))))
    path = tmp_path_factory.getbasetemp() / "flipped.pack"
    path.write_bytes(whole[:keep])
    try:
        PackFile.open(path)
        PackIndex.open_pack(path, built_pack.encoder)
    except StorageError as error:
        assert error.hint


@pytest.mark.parametrize("name", ["server.first", "tool.planes", "records.offsets", "word.terms", "product.hashes"])
def test_a_pack_without_one_of_its_arrays_is_refused_when_it_is_searched(
    tmp_path: Path, built_pack: Built, name: str
) -> None:
    pack = PackFile.open(built_pack.path)
    write_pack(tmp_path / "x.pack", {n: v for n, v in pack.arrays.items() if n != name}, pack.manifest)
    with pytest.raises(StorageError, match="damaged"):
        PackIndex.open_pack(tmp_path / "x.pack", built_pack.encoder)


@pytest.mark.parametrize(
    "name",
    ["server.first", "tool.whole", "records.offsets", "word.indptr", "server.ids", "exemplar.rows", "tool.planes"],
)
def test_arrays_that_do_not_fit_together_are_refused(tmp_path: Path, built_pack: Built, name: str) -> None:
    pack = PackFile.open(built_pack.path)
    write_pack(tmp_path / "x.pack", {**pack.arrays, name: pack.arrays[name][..., :-1]}, pack.manifest)
    with pytest.raises(StorageError, match="damaged"):
        PackIndex.open_pack(tmp_path / "x.pack", built_pack.encoder)


def test_records_that_cannot_be_unpacked_are_a_clear_error(tmp_path: Path, built_pack: Built) -> None:
    pack = PackFile.open(built_pack.path)
    rubbish = np.full(len(pack.arrays["records.data"]), 255, np.uint8)
    write_pack(tmp_path / "x.pack", {**pack.arrays, "records.data": rubbish}, pack.manifest)
    index = PackIndex.open_pack(tmp_path / "x.pack", built_pack.encoder)
    with pytest.raises(StorageError, match="damaged"):
        index.get_server("acme/github")


def test_the_manifest_counts_what_is_in_it(built_pack: Built) -> None:
    manifest = built_pack.manifest
    assert PackFile.open(built_pack.path).manifest == manifest
    pool = len(search_pool.servers())
    # Slack's vendor is the listed package itself: it adds facts to that server, and is none of its own.
    assert (manifest.servers, manifest.vendors, manifest.tools) == (pool + 2, 2, len(search_pool.tools()))
    assert (manifest.exemplars, manifest.lines, manifest.date, manifest.crawled) == (2, 5, DATE, "2026-11-18")
    assert set(manifest.sources) == {
        "lines.tsv", "vendors.jsonl", "products.tsv", "downloads.tsv", "dates.tsv", "exemplars.jsonl",
    }  # fmt: skip
