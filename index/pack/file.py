"""A pack as a file: named arrays and a manifest, in the safetensors format, memory-mapped.

    8 bytes    length of the header, little-endian
    header     JSON: {name: {dtype, shape, data_offsets}, "__metadata__": {"toolscout": manifest as JSON}}
    data       the arrays, one after the other

The format is Hugging Face's (https://github.com/huggingface/safetensors): any of its readers opens a pack. Nothing in
it is executed when it is read. Whether a pack is whole is seen from its size; that it is unchanged, from its SHA-256.
"""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import date as calendar_date
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from toolscout.errors import StorageError
from toolscout.files import replace_file
from toolscout.index.document import DOCUMENT_VERSION

Array = npt.NDArray[Any]

FORMAT = 1
"""Version of the arrays' names and meanings; a pack of another one is not read."""

SUFFIX = ".pack"
_MOST_HEADER = 1 << 20
_ALIGN = 64
_KINDS = {"int": int, "str": str, "dict[str, str]": dict}
_TYPES = {"U8": "<u1", "I8": "<i1", "U16": "<u2", "I32": "<i4", "U32": "<u4", "I64": "<i8", "U64": "<u8", "F32": "<f4"}
_NAMES = {np.dtype(code): name for name, code in _TYPES.items()}

HINT = "Get a whole one with `toolscout catalog update`."


@dataclass(frozen=True)
class Manifest:
    """What a pack says of itself."""

    format: int
    date: str
    """Day on which it was built, ISO 8601; of two packs the later one is newer."""
    encoder: str
    """Fingerprint of the encoder that made its vectors."""
    document_version: int
    dim: int
    servers: int
    tools: int
    vendors: int = 0
    """Servers known as a whole, whose tools cannot be listed without an account."""
    exemplars: int = 0
    lines: int = 0
    """Servers with a summary of our own."""
    crawled: str = ""
    """Day of the newest listing in it."""
    sources: dict[str, str] = field(default_factory=dict)
    """SHA-256 of each file that it was built from."""

    @staticmethod
    def of(values: Any) -> Manifest:
        """Read a manifest. Raises ValueError or TypeError for one that is none."""
        kinds = {f.name: _KINDS[str(f.type)] for f in fields(Manifest)}
        told = {name: value for name, value in dict(values).items() if name in kinds}
        wrong = [n for n, v in told.items() if type(v) is not kinds[n] or (isinstance(v, int) and v < 0)]
        if wrong:
            raise ValueError(f"its {wrong[0]} is wrong")
        calendar_date.fromisoformat(told.get("date", ""))
        return Manifest(**told)


def write_pack(path: Path, arrays: Mapping[str, Array], manifest: Manifest) -> None:
    """Write a pack atomically. Equal arrays and manifests give equal bytes."""
    header: dict[str, Any] = {"__metadata__": {"toolscout": json.dumps(asdict(manifest), sort_keys=True)}}
    pieces: list[bytes] = []
    end = 0
    for name in sorted(arrays):
        values = np.ascontiguousarray(arrays[name])
        data = values.tobytes() + bytes(-values.nbytes % _ALIGN)
        header[name] = {
            "dtype": _NAMES[values.dtype.newbyteorder("<")],
            "shape": list(values.shape),
            "data_offsets": [end, end + values.nbytes],
        }
        pieces.append(data)
        end += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGN)
    replace_file(path, b"".join([len(text).to_bytes(8, "little"), text, *pieces]))


class PackFile:
    """An open pack: ``manifest``, and its arrays by name, mapped."""

    def __init__(self, path: Path, manifest: Manifest, arrays: Mapping[str, Array]) -> None:
        self.path, self.manifest, self.arrays = path, manifest, arrays

    @staticmethod
    def open(path: Path) -> PackFile:
        """Map a pack; only its header is read.

        Raises StorageError for a file that is not there, no pack, truncated, or of another version.
        """
        try:
            with path.open("rb") as stream:
                data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
            manifest, arrays = _parse(data)
        except FileNotFoundError:
            raise StorageError(f"There is no built-in catalog {path}.", HINT) from None
        except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
            raise StorageError(f"The built-in catalog {path.name} is damaged or none: {error}.", HINT) from None
        if manifest.format != FORMAT:
            raise StorageError(
                f"The built-in catalog {path.name} is of format {manifest.format}; this Toolscout reads {FORMAT}.",
                "Update Toolscout." if manifest.format > FORMAT else HINT,
            )
        return PackFile(path, manifest, arrays)

    def for_encoder(self, encoder: str) -> PackFile:
        """This pack, for an encoder of this fingerprint (empty: any). Raises StorageError if another one made it."""
        if encoder and (self.manifest.encoder, self.manifest.document_version) != (encoder, DOCUMENT_VERSION):
            raise StorageError(
                f"The built-in catalog {self.path.name} was made with another encoder.",
                "Unset TOOLSCOUT_ENCODER, or build one with `toolscout catalog build-pack`.",
            )
        return self


def _parse(data: mmap.mmap) -> tuple[Manifest, dict[str, Array]]:
    """Manifest and arrays of a mapped file. Raises what `PackFile.open` catches where it is no pack."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or not 2 <= length <= min(_MOST_HEADER, len(data) - 8):
        raise ValueError("it has no header")
    header = json.loads(data[8 : 8 + length])
    manifest = Manifest.of(json.loads(header.pop("__metadata__")["toolscout"]))
    arrays = {}
    for name, told in header.items():
        dtype, shape = np.dtype(_TYPES[told["dtype"]]), [int(n) for n in told["shape"]]
        start, end = (8 + length + int(n) for n in told["data_offsets"])
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if min(shape, default=0) < 0 or not 8 + length <= start or end - start != size:
            raise ValueError(f"the array {name} has a wrong size")
        if end > len(data):
            raise ValueError("it is cut off")
        flat = np.frombuffer(data, dtype, size // dtype.itemsize, start) if size else np.zeros(0, dtype)
        arrays[name] = flat.reshape(shape)
    return manifest, arrays
