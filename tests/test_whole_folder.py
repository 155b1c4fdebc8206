"""Folders that appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolscout.errors import StorageError
from toolscout.files import whole_folder


def test_a_folder_appears_when_all_of_it_is_there(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "er" / "made"
    with whole_folder(out) as folder:
        (folder / "config.json").write_text("{}")
        assert not out.exists()
    assert (out / "config.json").read_text() == "{}" and list(out.parent.iterdir()) == [out]


def test_after_a_failure_nothing_is_there(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), whole_folder(tmp_path / "deep" / "made") as folder:
        (folder / "half").write_text("")
        raise ZeroDivisionError
    assert list((tmp_path / "deep").iterdir()) == []


def test_of_two_that_make_it_at_once_the_first_stays(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "made"
    with whole_folder(out) as slow:
        (slow / "weights").write_text("slow")
        with whole_folder(out) as fast:
            (fast / "weights").write_text("fast")
    assert (out / "weights").read_text() == "fast" and list(out.parent.iterdir()) == [out]


def test_what_is_something_else_is_kept_and_said(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "letters").write_text("mine")
    with pytest.raises(StorageError, match="cannot be made"), whole_folder(tmp_path / "made") as folder:
        (folder / "weights").write_text("")
    assert [p.name for p in (tmp_path / "made").iterdir()] == ["letters"]
