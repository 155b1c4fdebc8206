"""Catalogue files, broken in every way, through the import, and out again."""

# ruff: noqa: E501  (tables of odd values)

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from fuzzing.schemas import schemas
from fuzzing.values import as_json, json_objects, json_values, mangled, nested_text, numbers, scalars, texts
from toolscout.errors import ToolscoutError
from toolscout.index.catalogue import Catalogue
from toolscout.index.transfer import export_files, import_files

_IDS = st.one_of(
    st.sampled_from(["s", "s/t", "s/u", "a/b/c", "", " ", "\x00", "x\x00y", "\ud800", "s" * 3000]), scalars
)
_WRONG = json_values
_server = {
    "server_id": _IDS, "name": scalars, "title": scalars, "description": scalars, "category": scalars,
    "sources": st.one_of(st.lists(st.fixed_dictionaries({"marketplace": texts, "id": texts}), max_size=2), _WRONG),
    "transport": st.sampled_from(["stdio", "http", "ftp", None, 1]),
    "install": st.one_of(st.fixed_dictionaries({}, optional={"registry": scalars, "args": _WRONG, "env": _WRONG}), _WRONG),
    "popularity": numbers, "state": st.sampled_from(["ready", "quarantined", "", 7]), "checked_at": scalars,
}  # fmt: skip
_tool = {
    "tool_id": _IDS, "server_id": _IDS, "name": st.one_of(st.sampled_from(["t", "u", ""]), scalars), "title": scalars,
    "description": scalars, "input_schema": schemas, "output_schema": st.one_of(st.none(), json_objects, _WRONG),
    "annotations": st.one_of(st.none(), json_objects, _WRONG), "fingerprint": scalars, "first_seen": scalars,
    "review": st.sampled_from(["approved", "pending", "blocked", "x", 0]), "findings": st.one_of(st.just([]), _WRONG),
    "server_description": scalars,
}  # fmt: skip
_gold = st.fixed_dictionaries({"tool_id": _IDS}, optional={"arguments": _WRONG, "accept": _WRONG, "depends_on": _WRONG})
_callrow = {
    "id": _IDS, "query": scalars, "gold": st.one_of(st.lists(_gold, max_size=2), _WRONG), "relevant": _WRONG,
    "split": scalars, "lang": scalars, "source": scalars,
}  # fmt: skip
_trajectory = {"id": _IDS, "messages": st.one_of(st.lists(json_objects, max_size=2), _WRONG), "tools": _WRONG,
               "calls": _WRONG, "outcome": scalars}  # fmt: skip
KINDS = {"servers": _server, "tools": _tool, "calls": _callrow, "trajectories": _trajectory}
_NEEDED = {"servers": ("server_id",), "tools": ("tool_id", "server_id", "name"), "calls": ("id", "query"),
           "trajectories": ("id", "messages")}  # fmt: skip


def _rows(kind: str) -> st.SearchStrategy[Any]:
    fields = KINDS[kind]
    good = {"server_id": "s", "tool_id": "s/t", "name": "t", "id": "c", "query": "q", "messages": []}
    usual = {name: st.one_of(st.just(good[name]), fields[name]) for name in _NEEDED[kind]}
    return st.fixed_dictionaries(usual, optional={k: v for k, v in fields.items() if k not in usual})


def _line(kind: str) -> st.SearchStrategy[bytes]:
    row = st.builds(as_json, _rows(kind), ascii_only=st.booleans())
    deep = st.builds(nested_text, st.sampled_from([100, 900, 1100, 20_000]), st.just('{"a":'), st.just("}"))
    place = st.builds(
        lambda text: b'{"tool_id":"s/t","server_id":"s","name":"t","input_schema":' + text.encode() + b"}", deep
    )
    odd = st.sampled_from(
        [b"", b"  ", b"null", b"[]", b'"x"', b"{", b"{}", b"\xff", b"1" * 5000, b'{"a":' + b"9" * 5000 + b"}"]
    )
    return st.one_of(row, row, row, row.flatmap(mangled), place, odd)


@st.composite
def _file(draw: st.DrawFn) -> tuple[str, bytes]:
    kind = draw(st.sampled_from(["tools", "tools", "servers", "calls", "trajectories"]))
    data = draw(st.sampled_from([b"\n", b"\r\n", b"\n\n"])).join(draw(st.lists(_line(kind), max_size=4)))
    if draw(st.integers(0, 9)) == 0:
        data = draw(mangled(data))
    if draw(st.integers(0, 3)) == 0:
        data = gzip.compress(data, 1, mtime=0)
        data = draw(st.one_of(st.just(data), mangled(data)))
    return kind, data


SHARE = 10
cases = st.tuples(st.lists(_file(), min_size=1, max_size=2), st.booleans())


@contextmanager
def checking() -> Iterator[Callable[[Any], None]]:
    """The check of a case against a catalogue that grows with all of them; what is in it can be written and read."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        done = 0
        with Catalogue(f"sqlite:///{folder / 'c.db'}") as catalogue:

            def check(case: Any) -> None:
                nonlocal done
                files, skip_bad = case
                paths: dict[str, list[Path]] = {}
                for number, (kind, data) in enumerate(files):
                    path = folder / f"{number}.jsonl"
                    path.write_bytes(data)
                    paths.setdefault(kind, []).append(path)
                try:
                    import_files(catalogue, skip_bad=skip_bad, **paths)
                except ToolscoutError as error:
                    assert str(error) and "\n" not in str(error), error
                done += 1
                if done % 200 == 0:
                    _and_back(catalogue, folder)

            yield check
            _and_back(catalogue, folder)


def _rows_of(path: Path) -> list[tuple[Any, list[Any]]]:
    rows = [json.loads(line) for line in path.read_text("utf-8").split("\n") if line]
    return [(row, row.pop("findings", [])) for row in rows]


def _and_back(catalogue: Catalogue, folder: Path) -> None:
    written = export_files(catalogue, folder / "out", gz=False)
    with Catalogue(f"sqlite:///{folder / 'again.db'}") as again:
        paths = {name.partition(".")[0]: [folder / "out" / name] for name in written}
        import_files(again, **paths)
        export_files(again, folder / "back", gz=False)
    for name in written:
        before, after = (_rows_of(folder / side / name) for side in ("out", "back"))
        assert [row for row, _ in before] == [row for row, _ in after], name
        # What is found of a tool hangs on its siblings, and on when they came: more may be found, nothing is lost.
        for (row, found), (_, again_found) in zip(before, after, strict=True):
            assert all(finding in again_found for finding in found), row
    for path in folder.glob("again.db*"):
        path.unlink()
