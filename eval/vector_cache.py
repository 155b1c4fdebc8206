"""An encoder that remembers its vectors on disk, so that the next throw-away index of the same tools is quick."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from toolscout.errors import StorageError
from toolscout.eval.wrapped_encoder import WrappedEncoder
from toolscout.records import sha256_hex

if TYPE_CHECKING:
    from toolscout.index.encoder import Encoder, Kind, Vectors

_BATCH = 256


class CachingEncoder(WrappedEncoder):
    """Wraps an encoder; vectors are kept in ``folder/<fingerprint>.sqlite`` by the text's hash and kind.

    Only an index is built with it (exemplars are encoded as queries are), so no measured request is ever read from
    here. Raises StorageError if the folder cannot be written.
    """

    def __init__(self, encoder: Encoder, folder: Path) -> None:
        super().__init__(encoder)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._store = sqlite3.connect(folder / f"{encoder.fingerprint[:32]}.sqlite", check_same_thread=False)
            self._store.execute("CREATE TABLE IF NOT EXISTS vectors (text TEXT PRIMARY KEY, vector BLOB NOT NULL)")
        except (OSError, sqlite3.Error) as error:
            raise StorageError(f"The cache folder {folder} cannot be used: {error}.", "Give another --cache.") from None

    def encode(self, texts: Sequence[str], *, kind: Kind = "document") -> Vectors:
        """As the wrapped encoder's; texts seen before are read, not computed."""
        vectors = np.empty((len(texts), self.dim), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            vectors[start : start + len(batch)] = self._batch(batch, kind)
        return vectors

    def _batch(self, texts: Sequence[str], kind: Kind) -> Vectors:
        keys = _keys(texts, kind)
        marks = ",".join("?" * len(keys))
        known = dict(self._store.execute(f"SELECT * FROM vectors WHERE text IN ({marks})", keys))
        fresh = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
        if fresh:
            computed = self._encoder.encode(list(fresh.values()), kind=kind)
            new = dict(zip(fresh, (row.tobytes() for row in computed), strict=True))
            known.update(new)
            with self._store:
                self._store.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", list(new.items()))
        return np.stack([np.frombuffer(known[key], dtype=np.float32) for key in keys])


def _keys(texts: Sequence[str], kind: Kind) -> list[str]:
    return [sha256_hex(text if kind == "document" else f"{kind}\0{text}") for text in texts]
