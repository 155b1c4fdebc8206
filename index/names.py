"""Names of tools as numbers: exact lookup by hash, near misses by letter trigrams."""

from __future__ import annotations

import re
import zlib
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from toolscout.index.words import fold, hash64

Signature = npt.NDArray[np.uint64]

_WORDS = 4
_BITS = 64 * _WORDS
_NOT_NAME = re.compile(r"[\W_]+")
_MENTION = re.compile(r"[\w@][\w./@:\-]*[\w]")
_IDENTIFIER = re.compile(r"[^\W_]_[^\W_]|/|^[a-z]+[A-Z][a-z]|-[^\W_]+-")
_MAX_MENTIONS = 32


def id_hash(text: str) -> int:
    """64-bit name of an id, exact."""
    return hash64(text)


def squashed(name: str) -> str:
    """A name without case and separators: ``getUserInfo``, ``get_user_info`` and ``get-user-info`` are one."""
    return _NOT_NAME.sub("", fold(name))


def name_hash(name: str) -> int:
    """64-bit hash of a tool name, whatever its case and separators."""
    return id_hash(squashed(name))


def mentions(text: str) -> list[str]:
    """Runs of a text that only a tool's name or id looks like: ``get_user``, ``getUser`` or ``get-all-users``."""
    found = []
    for match in _MENTION.finditer(text[:4000]):
        run = match.group()
        if _IDENTIFIER.search(run) and len(run) <= 200:
            found.append(run)
    return found[:_MAX_MENTIONS]


def trigram_signature(text: str) -> Signature:
    """Which letter trigrams a text has, as 256 bits: uint64 [4]. Alike texts have many bits in common."""
    letters = f"  {squashed(text)} "
    bits = 0
    for i in range(len(letters) - 2):
        bits |= 1 << _trigram_bit(letters[i : i + 3])
    return np.frombuffer(bits.to_bytes(_BITS // 8, "little"), dtype="<u8").astype(np.uint64)


@lru_cache(maxsize=16384)
def _trigram_bit(letters: str) -> int:
    return zlib.crc32(letters.encode("utf-8", "surrogatepass")) % _BITS


def similarity(signatures: npt.NDArray[np.uint64], signature: Signature) -> npt.NDArray[np.float32]:
    """Jaccard similarity of signatures uint64 [n, 4] with one: float32 [n]."""
    common = np.bitwise_count(signatures & signature).sum(axis=1, dtype=np.int32)
    union = np.bitwise_count(signatures | signature).sum(axis=1, dtype=np.int32)
    ratio: npt.NDArray[np.float32] = (common / np.maximum(union, 1)).astype(np.float32)
    return ratio
