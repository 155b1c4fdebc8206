"""Which weights answer in a run: names alone do not tell, as the adapter that a name stands for is replaced."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from toolscout.eval.provenance import plain
from toolscout.records import JsonObject
from toolscout.settings import Settings


def identity(settings: Settings) -> JsonObject:
    """The SHA-256 of the local model's file, and of an adapter's base, and the encoder that chooses and how. Of an
    endpoint its name and address: what stands behind it cannot be seen.
    """
    from toolscout.index.encoder import make_encoder
    from toolscout.index.fusion import params_for
    from toolscout.server.backends import tuning
    from toolscout.server.models import ModelStore

    said: JsonObject = {
        "model": settings.model,
        "model_url": plain(settings.model_url),
        "encoder": _named(settings),
        "choice": params_for(make_encoder(settings)).choice,
        "chooses": settings.model_chooses,
    }
    if settings.model_temperature:
        said["temperature"] = settings.model_temperature
    if settings.model_url:
        return said
    store = ModelStore(settings)
    model = store.resolve()
    if model is None:
        return {**said, "weights": []}
    files = [model.path]
    if base := tuning(model.path).get("base"):
        files.append(store.get(str(base)).path)
    return {**said, "weights": [_hash(path) for path in files]}


def _named(settings: Settings) -> str:
    """The encoder, by its content where the name is a folder's: that is not told, and may be trained anew."""
    from toolscout.index.asset import DEFAULT_ENCODER
    from toolscout.index.encoder import make_encoder

    if settings.encoder == "default":
        return DEFAULT_ENCODER
    name = plain(settings.encoder)
    return name if name == settings.encoder else f"{name} {make_encoder(settings).fingerprint[:16]}"


def _hash(path: Path) -> str:
    found = path.stat()
    return _hash_of(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=16)  # asked for the work file and for the result: a gigabyte takes seconds
def _hash_of(path: Path, size: int, changed: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
