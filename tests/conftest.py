"""Fixtures shared by all tests: every test gets a home folder of its own and no settings from outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from chat_endpoint import serve  # noqa: F401 (fixture of the tests with a model endpoint)
from databases import catalogue_url, postgres  # noqa: F401 (fixtures of the catalogue's tests)
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from pack_fixture import built_pack  # noqa: F401 (fixture of the tests with a pack)
from weights import small_model, smollm2  # noqa: F401 (fixtures of the tests with a real model)

from toolscout.index.pack.current import shipped
from toolscout.settings import Settings

# A busy machine is no failure: how long a case takes says nothing here.
hypothesis_settings.register_profile("toolscout", deadline=None, suppress_health_check=[HealthCheck.too_slow])
hypothesis_settings.load_profile("toolscout")

_NO_KEYRING = "keyring.backends.fail.Keyring"
os.environ["PYTHON_KEYRING_BACKEND"] = _NO_KEYRING


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh ``TOOLSCOUT_HOME`` without a pack; no ``TOOLSCOUT_`` variable of the caller's environment is seen."""
    for name in list(os.environ):
        if name.startswith("TOOLSCOUT_"):
            monkeypatch.delenv(name)
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("TOOLSCOUT_HOME", str(folder))
    # Most tests count what is found among servers of their own; the built-in catalog would be found beside them.
    monkeypatch.setenv("TOOLSCOUT_PACK", "off")
    # The keyring of whoever runs the tests is not theirs to write.
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", _NO_KEYRING)
    return folder


@pytest.fixture
def with_pack(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Switch the pack that comes with Toolscout on; where it lies."""
    if not (found := shipped()):
        pytest.skip("no pack comes with this checkout")
    monkeypatch.setenv("TOOLSCOUT_PACK", "default")
    return found[-1]


@pytest.fixture
def settings(home: Path) -> Settings:
    """Settings over the test's own home folder, without the starter set."""
    return Settings(home=home, starter=False)
