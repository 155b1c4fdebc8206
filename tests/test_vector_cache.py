"""The cache of embeddings between runs: the same vectors, each text encoded once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from toolscout.errors import StorageError
from toolscout.eval.vector_cache import CachingEncoder
from toolscout.index.encoder import Vectors


class Hashing:
    """An encoder made of hashes: cheap, and every text and kind has its own vectors."""

    fingerprint = "f" * 64
    dim = 8

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, texts: Sequence[str], *, kind: Any = "document") -> Vectors:
        self.encoded += texts
        return np.stack([_vector(f"{kind} {text}", self.dim) for text in texts])


def _vector(text: str, dim: int) -> Vectors:
    raw = np.frombuffer(hashlib.sha256(text.encode()).digest()[: 4 * dim], dtype=np.uint32).astype(np.float32) - 2.0**31
    return (raw / np.linalg.norm(raw)).astype(np.float32)


TEXTS = ["one two three", "four", "one two three", "five six"]


def test_each_text_is_encoded_once_and_kinds_are_kept_apart(tmp_path: Path) -> None:
    plain = Hashing()
    cached = CachingEncoder(plain, tmp_path)
    first = cached.encode(TEXTS)
    assert sorted(plain.encoded) == ["five six", "four", "one two three"]
    again = CachingEncoder(later := Hashing(), tmp_path)
    np.testing.assert_array_equal(again.encode(TEXTS[::-1]), first[::-1])
    assert later.encoded == []
    queries = again.encode(TEXTS[:1], kind="query")
    assert later.encoded == ["one two three"]
    assert not np.allclose(queries[0], first[0])


def test_a_folder_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be used"):
        CachingEncoder(Hashing(), tmp_path / "file")
