"""A search index on disk: a self-contained, immutable generation folder, and a pointer to the current one.

    index/CURRENT                 name of the generation in use, replaced atomically
    index/gen-0000000012-3f9a.../ arrays (*.npy), memory-mapped; meta.json, written last
    index/tmp-.../                a build that is going on, or was killed

A generation is complete before its name is published, so a reader sees the old one or the new one, never a half.
Readers of an old generation keep their mappings when it is deleted. One generation before the current one is kept.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import StorageError

FORMAT = 2
"""Layout of a generation; another number is not read but rebuilt."""

CURRENT = "CURRENT"
META = "meta.json"
_PREFIX = "gen-"
_TEMPORARY = "tmp-"

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

REBUILD = "Build it with `toolscout index build`."


@dataclass(frozen=True)
class Meta:
    """What a generation says about itself. ``revision`` is the catalogue's when the build began."""

    generation: str
    format: int
    document_version: int
    encoder: str
    dim: int
    revision: int
    tools: int
    servers: int
    exemplars: int
    embedded: int
    """Texts that this build had to encode; the rest came from the previous generation or the vector cache."""
    seconds: float
    files: dict[str, int]
    """Bytes of each file: a truncated one is noticed at loading, without reading it."""


class Blobs:
    """Many byte strings in one memory-mapped array: ``data`` uint8 [bytes], ``offsets`` int64 [n + 1]."""

    def __init__(self, data: Bytes, offsets: Offsets) -> None:
        self.data, self.offsets = data, offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> bytes:
        return self.data[self.offsets[i] : self.offsets[i + 1]].tobytes()

    def text(self, i: int) -> str:
        """String ``i``, decoded."""
        return self[i].decode("utf-8", "surrogatepass")

    def json(self, i: int) -> Any:
        """String ``i`` as JSON."""
        return json.loads(self.text(i))

    @staticmethod
    def of(texts: Iterable[str]) -> Blobs:
        """Pack texts."""
        pieces = [t.encode("utf-8", "surrogatepass") for t in texts]
        offsets = np.concatenate([[0], np.cumsum([len(p) for p in pieces])]).astype(np.int64)
        return Blobs(np.frombuffer(b"".join(pieces), dtype=np.uint8), offsets)

    @staticmethod
    def splice(old: Blobs, new: Blobs, rows: Offsets) -> Blobs:
        """Row i is ``old[rows[i]]``, or the next one of ``new`` where ``rows[i]`` is -1. Copies runs, not rows."""
        if len(rows) and not (rows >= 0).any():
            return new
        starts = np.empty(len(rows), dtype=np.int64)
        sizes = np.empty(len(rows), dtype=np.int64)
        fresh = rows < 0
        starts[~fresh] = old.offsets[:-1][rows[~fresh]]
        sizes[~fresh] = np.diff(old.offsets)[rows[~fresh]]
        starts[fresh] = new.offsets[:-1]
        sizes[fresh] = np.diff(new.offsets)
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        data = np.empty(offsets[-1], dtype=np.uint8)
        # A run is a stretch whose source bytes lie one after the other in the same source.
        joins = (fresh[1:] == fresh[:-1]) & (starts[1:] == starts[:-1] + sizes[:-1])
        edges = np.concatenate([[0], np.flatnonzero(~joins) + 1, [len(rows)]]) if len(rows) else np.zeros(1, int)
        for first, last in pairwise(edges):
            source = new.data if fresh[first] else old.data
            length = offsets[last] - offsets[first]
            data[offsets[first] : offsets[last]] = source[starts[first] : starts[first] + length]
        return Blobs(data, offsets)


class Draft:
    """A generation being written, in a temporary folder of its own; ``publish`` makes it current."""

    def __init__(self, index_dir: Path) -> None:
        self.index_dir = index_dir
        self.folder = index_dir / f"{_TEMPORARY}{uuid.uuid4().hex[:12]}"
        self.folder.mkdir(parents=True)

    def arrays(self, arrays: Mapping[str, Array]) -> None:
        """Write arrays, one file each."""
        for name, values in arrays.items():
            np.save(self.folder / f"{name}.npy", np.ascontiguousarray(values))

    def blobs(self, name: str, blobs: Blobs) -> None:
        """Write byte strings."""
        self.arrays({f"{name}.data": blobs.data, f"{name}.offsets": blobs.offsets})

    def publish(self, **facts: Any) -> Meta:
        """Write the meta file, make everything durable, and point CURRENT here. Old generations are removed."""
        number = 1 + max((_number(g) for g in generations(self.index_dir)), default=0)
        name = f"{_PREFIX}{number:010d}-{uuid.uuid4().hex[:8]}"
        files = {f.name: f.stat().st_size for f in sorted(self.folder.iterdir())}
        meta = Meta(generation=name, format=FORMAT, files=files, **facts)
        (self.folder / META).write_text(json.dumps(asdict(meta)), "utf-8")
        for file in self.folder.iterdir():
            _sync(file)
        _sync(self.folder)
        before = current(self.index_dir)
        self.folder.rename(self.index_dir / name)
        _sync(self.index_dir)
        point_to(self.index_dir, name)
        remove_old(self.index_dir, keep={name, before or name})
        return meta

    def discard(self) -> None:
        """Remove what was written."""
        shutil.rmtree(self.folder, ignore_errors=True)


def point_to(index_dir: Path, generation: str) -> None:
    """Make a generation the current one: write beside, make durable, replace."""
    beside = index_dir / f"{CURRENT}.{uuid.uuid4().hex[:8]}"
    beside.write_text(generation + "\n", "utf-8")
    _sync(beside)
    beside.replace(index_dir / CURRENT)
    _sync(index_dir)


def current(index_dir: Path) -> str | None:
    """Name of the current generation; None if there is none. A stat and a read of 30 bytes: cheap enough to poll."""
    try:
        name = (index_dir / CURRENT).read_text("utf-8").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(f"The index pointer in {index_dir} cannot be read: {error}.", REBUILD) from None
    return name if name.startswith(_PREFIX) and "/" not in name and "\\" not in name else None


def generations(index_dir: Path) -> list[str]:
    """Complete generations, oldest first."""
    if not index_dir.is_dir():
        return []
    return sorted(f.name for f in index_dir.iterdir() if f.name.startswith(_PREFIX))


def remove_old(index_dir: Path, keep: set[str]) -> None:
    """Remove generations that are not to be kept, and what killed builds left. Call it under the build lock."""
    for entry in index_dir.iterdir():
        old = entry.name.startswith(_PREFIX) and entry.name not in keep
        if old or entry.name.startswith(_TEMPORARY):
            shutil.rmtree(entry, ignore_errors=True)
        elif entry.name.startswith(f"{CURRENT}."):
            entry.unlink(missing_ok=True)


def read_meta(folder: Path) -> Meta:
    """A generation's meta file, with its files' sizes checked.

    Raises StorageError if it is incomplete, damaged or of another format; FileNotFoundError if it is gone.
    """
    try:
        values = json.loads((folder / META).read_text("utf-8"))
        if values.get("format") != FORMAT:
            raise StorageError(f"The index {folder.name} is of another version of Toolscout.", REBUILD)
        meta = Meta(**values)
        files = [(name, int(size)) for name, size in meta.files.items()]
    except (ValueError, TypeError, AttributeError) as error:
        raise StorageError(f"The index {folder.name} is damaged: {error}.", REBUILD) from None
    for name, size in files:
        if (folder / name).stat().st_size != size:
            raise StorageError(f"The index {folder.name} is damaged: {name} has a wrong size.", REBUILD)
    return meta


class Arrays:
    """Memory-mapped arrays of one generation, by name; each is mapped when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open: dict[str, Array] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._open:
            self._open[name] = np.load(self.folder / f"{name}.npy", mmap_mode="r").view(np.ndarray)
        return self._open[name]

    def blobs(self, name: str) -> Blobs:
        """The byte strings written under that name."""
        return Blobs(self[f"{name}.data"], self[f"{name}.offsets"])

    def load_all(self, names: Sequence[str]) -> None:
        """Map these now: once mapped, an array outlives its file."""
        for name in names:
            self[name]


def _number(generation: str) -> int:
    digits = generation.removeprefix(_PREFIX).split("-")[0]
    return int(digits) if digits.isdigit() else 0


def _sync(path: Path) -> None:
    """fsync a file or folder; folders cannot be opened on Windows, where renames are durable without it."""
    if os.name == "nt" and path.is_dir():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
