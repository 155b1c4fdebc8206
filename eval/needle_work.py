"""A work file: every finished piece of a long run, a line each, so that the next run goes on from there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from toolscout.errors import BadInput
from toolscout.eval.calls import _alone, _open_work
from toolscout.jsonl import read_objects
from toolscout.records import JsonObject


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
    with _alone(path):
        done = _read(path, header)
        with _open_work(path, header) as sink:
            yield Work(done, sink)


def _read(path: Path, header: JsonObject) -> dict[str, JsonObject]:
    if not path.exists() or not path.stat().st_size:
        return {}
    lines = [found for _, found in read_objects(path, on_bad=lambda error: None)]
    if not lines or lines[0].get("run") != header:
        raise BadInput(
            f"{path} holds the pieces of another run (other files, sizes, seed, model or encoder).",
            "Delete it, or give another file with --work.",
        )
    return {str(line["key"]): line for line in lines[1:] if "key" in line}
