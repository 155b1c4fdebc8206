"""A work file: every finished piece of a long run, a line each, so that the next run goes on from there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from toolscout.errors import BadInput, StorageError
from toolscout.files import check_writable
from toolscout.jsonl import read_objects
from toolscout.records import JsonObject

KEPT = "kept"
"""What names begin with in a report's folder, as long as the run is not finished."""


PREPARED = ("index",)
"""Pieces that say how a run was prepared: with these alone nothing was measured."""


def work_place(
    work: Path | None, json_out: Path | None, report: Path | None, ending: str = "rows.jsonl"
) -> Path | None:
    """Where a run keeps what it has finished: ``--work``, else beside ``--json``, else in ``--report``; or nowhere."""
    if work is not None:
        return work
    if json_out is not None:
        return json_out.with_name(f"{json_out.name}.{ending}")
    return None if report is None else report / f"{KEPT}.{ending}"


class Work:
    """Finished pieces by key. Without a file they are only remembered."""

    def __init__(self, done: dict[str, JsonObject], sink: IO[str] | None) -> None:
        self._done, self._sink = done, sink

    def __contains__(self, key: str) -> bool:
        return key in self._done

    def __getitem__(self, key: str) -> JsonObject:
        return self._done[key]

    def add(self, key: str, piece: JsonObject) -> None:
        """Remember a piece, and write it down at once."""
        self._done[key] = piece
        if self._sink is not None:
            self._sink.write(json.dumps({"key": key, **piece}, ensure_ascii=False) + "\n")
            self._sink.flush()


@contextmanager
def work_file(path: Path | None, header: JsonObject) -> Iterator[Work]:
    """The pieces that ``path`` has; new ones are appended. ``header`` says of which run they are.

    A line that a crash cut off is done again. Raises BadInput for a file of another run, or one being written.
    """
    if path is None:
        yield Work({}, None)
        return
    with alone(path):
        lines = earlier(path, header, "the pieces of another run (other files, sizes, seed, model or encoder)")
        done = {str(line["key"]): line for line in lines if "key" in line}
        with open_work(path, header) as sink:
            yield Work(done, sink)


@contextmanager
def alone(work: Path | None) -> Iterator[None]:
    """Keeps a second run away from the same work file: both would do, and write, the same rows.

    The empty lock file stays. Were it unlinked, a run that has opened it could lock what has no name any more while a
    third one locks a new file of the name; of the filelock versions that we take not all notice that.
    """
    if work is None:
        yield
        return
    from filelock import FileLock, Timeout

    lock_file = work.with_name(work.name + ".lock")
    try:
        work.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(lock_file, timeout=0)
        lock.acquire()
    except Timeout:
        check_writable(
            lock_file, "--work", append=True
        )  # the lock of a file that may not be written is never had either
        raise BadInput(f"Another run is writing to {work}.", "Wait for it, or give another file with --work.") from None
    except OSError as error:
        raise StorageError(f"{work} cannot be written: {error}.", "Give another file with --work.") from None
    try:
        yield
    finally:
        lock.release()


def earlier(work: Path, header: JsonObject, other: str) -> list[JsonObject]:
    """The lines that an interrupted run of this ``header`` wrote. What a crash cut off is dropped, to be done again.

    Raises BadInput for a file that holds something else: ``other`` says what.
    """
    if not work.exists() or not work.stat().st_size:
        return []
    lines = [found for _, found in read_objects(work, on_bad=lambda error: None)]
    if not lines or not isinstance(lines[0].get("run"), dict):
        raise BadInput(
            f"{work} is no work file of an earlier run; it is left as it is.", "Give another file with --work."
        )
    if lines[0]["run"] != header:
        if all(line.get("key") in PREPARED for line in lines[1:]):  # a run that failed at once stands in nobody's way
            work.write_text("", "utf-8")
            return []
        raise BadInput(f"{work} holds {other}.", "Give another file with --work, or delete this one.")
    return lines[1:]


def open_work(work: Path, header: JsonObject) -> IO[str]:
    """The file open for more lines, its header written if it is new. Raises StorageError if that can't be."""
    try:
        fresh = not work.exists() or not work.stat().st_size
        torn = not fresh and not work.read_bytes().endswith(b"\n")
        sink = work.open("a", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{work} cannot be written: {error}.", "Give another file with --work.") from None
    sink.write(json.dumps({"run": header}) + "\n" if fresh else "\n" if torn else "")
    return sink
