"""Arrays that are written row by row: a build never holds a whole pool in memory."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


class _Growing:
    """One ``.npy`` file; its header, padded by numpy for any number of rows, is written again at the end."""

    def __init__(self, path: Path, first: Array) -> None:
        self.rows, self.tail = 0, first.shape[1:]
        self._descr = np.lib.format.dtype_to_descr(first.dtype)
        self._dtype = first.dtype
        self._file: BinaryIO = path.open("wb")
        self._header()

    def append(self, values: Array) -> None:
        if values.dtype != self._dtype or values.shape[1:] != self.tail:
            raise TypeError(f"{values.dtype}{values.shape} rows for a file of {self._dtype}{self.tail} ones")
        self._file.write(np.ascontiguousarray(values).data)
        self.rows += len(values)

    def close(self) -> None:
        self._file.seek(0)
        self._header()
        self._file.close()

    def _header(self) -> None:
        shape = (self.rows, *self.tail)
        np.lib.format.write_array_header_1_0(self._file, {"descr": self._descr, "fortran_order": False, "shape": shape})


class Table:
    """Named arrays of a folder, ``NAME.npy`` each, that grow by whole chunks. The first chunk fixes type and width.

    To be used as a context manager: the files are complete when it is left.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, _Growing] = {}
        self._ends: dict[str, int] = {}

    def append(self, name: str, values: Array) -> None:
        """Add rows [n, ...] to an array."""
        if name not in self._files:
            self._files[name] = _Growing(self._folder / f"{name}.npy", values)
        self._files[name].append(values)

    def append_offsets(self, name: str, offsets: npt.NDArray[np.int64]) -> None:
        """Add a chunk's offsets [n + 1], which begin at 0, to those before: the array stays one of [rows + 1]."""
        end = self._ends.get(name)
        self.append(name, offsets if end is None else offsets[1:] + end)
        self._ends[name] = int(offsets[-1]) + (end or 0)

    def __enter__(self) -> Table:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self._files.values():
            file.close()
