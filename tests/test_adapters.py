"""Adapters that come with Toolscout: found in their folder, used as soon as their base is there, pulled by name."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from toolscout.cli import execute
from toolscout.errors import ModelError, NotFound, StorageError
from toolscout.server import adapters, models
from toolscout.server.adapters import packaged_adapters
from toolscout.server.backends import make_backend
from toolscout.server.backends.gguf import GgufBackend
from toolscout.server.doctor import examine as doctor
from toolscout.server.models import KNOWN, ModelStore
from toolscout.settings import Settings

BASE = KNOWN["smollm2-135m"]
WEIGHTS = b"GGUF" + b"lora" * 50


def write_adapter(folder: Path, name: str = "smollm2-135m-calls", **changes: Any) -> Path:
    """A folder as the package holds it; what is in the GGUF file matters to llama.cpp alone."""
    place = folder / name
    place.mkdir(parents=True)
    (place / "caller.gguf").write_bytes(WEIGHTS)
    card = {
        "style": "compact",
        "budget": 4000,
        "base": BASE.name,
        "rank": 1.5,
        "sha256": hashlib.sha256(WEIGHTS).hexdigest(),
        "title": "SmolLM2 135M, tuned for calls",
    }
    said = {key: value for key, value in {**card, **changes}.items() if value is not None}
    (place / "caller.json").write_text(json.dumps(said))
    return place


@pytest.fixture
def tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with one adapter, on a machine whose Python packages bring no model."""
    folder = tmp_path / "tuned"
    write_adapter(folder)
    found = packaged_adapters(folder)
    for module in (adapters, models):
        monkeypatch.setattr(module, "packaged_adapters", lambda: found)
    monkeypatch.setattr(models, "packaged_model", lambda: None)
    return folder


@pytest.fixture(autouse=True)
def known_by_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bases of these tests are the known models."""
    sha256 = hashlib.sha256(b"GGUF base").hexdigest()
    for known in list(KNOWN.values()):
        monkeypatch.setitem(KNOWN, known.name, replace(known, sha256=sha256))


def add_base(settings: Settings, name: str = BASE.name) -> Path:
    path = settings.home / f"{name}-base.gguf"
    path.write_bytes(b"GGUF base")
    ModelStore(settings).add(str(path), name=name)
    return path


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    rows = json.loads(capsys.readouterr().out)["models"]
    return {row["name"]: row for row in rows}


def test_an_adapter_is_known_by_its_folder(tuned: Path) -> None:
    (adapter,) = packaged_adapters(tuned).values()
    assert adapter.name == "smollm2-135m-calls" and adapter.base == BASE.name and adapter.rank == 1.5
    assert adapter.path.read_bytes() == WEIGHTS and adapter.size == len(WEIGHTS) and "tuned" in adapter.title
    assert packaged_adapters(tuned / "nowhere") == {}


@pytest.mark.parametrize("wrong", [{"base": None}, {"rank": "best"}, {"title": None}])
def test_a_broken_card_is_a_clear_error(tmp_path: Path, wrong: dict[str, Any]) -> None:
    write_adapter(tmp_path / "a", **wrong)
    with pytest.raises(StorageError, match="smollm2-135m-calls is broken") as caught:
        packaged_adapters(tmp_path / "a")
    assert "again" in caught.value.hint


def test_weights_that_are_gone_are_a_clear_error(tmp_path: Path) -> None:
    (write_adapter(tmp_path / "b") / "caller.gguf").unlink()
    with pytest.raises(StorageError, match="is broken"):
        packaged_adapters(tmp_path / "b")


def test_a_base_that_nobody_can_pull_is_a_clear_error(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_adapter(tmp_path / "c", base="gpt-17")
    found = packaged_adapters(tmp_path / "c")
    monkeypatch.setattr(models, "packaged_adapters", lambda: found)
    with pytest.raises(StorageError, match="gpt-17, which is not known"):
        ModelStore(settings).installed()


def test_it_is_used_as_soon_as_its_base_is_there(tuned: Path, settings: Settings) -> None:
    store = ModelStore(settings)
    assert store.resolve() is None
    base = add_base(settings)
    model = store.resolve()
    assert model is not None and model.name == "smollm2-135m-calls" and model.rank == 1.5
    assert [m.name for m in store.installed()] == ["smollm2-135m-calls", BASE.name]
    backend = make_backend(settings.model_copy(update={"model": model.name}))
    assert isinstance(backend, GgufBackend)
    assert backend.path == base and backend.lora == tuned / "smollm2-135m-calls" / "caller.gguf"
    assert (backend.style, backend.budget, backend.name) == ("compact", 4000, "smollm2-135m-calls")
    named = ModelStore(settings.model_copy(update={"model": BASE.name})).resolve()
    assert named is not None and named.path == base, "its base alone can still be named"
    add_base(settings, "qwen2.5-coder-0.5b")
    best = store.resolve()
    assert best is not None and best.name == "qwen2.5-coder-0.5b", "a higher rank goes first"


def test_without_its_base_the_error_names_the_pull(tuned: Path, settings: Settings) -> None:
    with pytest.raises(NotFound, match=f"needs its base {BASE.name}") as caught:
        ModelStore(settings).get("smollm2-135m-calls")
    assert caught.value.hint == "Run: toolscout model pull smollm2-135m-calls"
    with pytest.raises(NotFound) as caught:
        ModelStore(settings).get("gpt-17")
    assert "smollm2-135m-calls" in caught.value.hint


def test_its_pull_fetches_the_base(tuned: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    store, asked = ModelStore(settings), []

    def fetch(self: ModelStore, known: Any, progress: Any) -> Any:
        asked.append(known.name)
        add_base(settings, known.name)
        return store.get(known.name)

    monkeypatch.setattr(ModelStore, "_pull_known", fetch)
    assert store.pull("smollm2-135m-calls").name == "smollm2-135m-calls" and asked == [BASE.name]
    assert store.pull("smollm2-135m-calls").path.read_bytes() == WEIGHTS and asked == [BASE.name], "nothing twice"
    with pytest.raises(NotFound) as caught:
        store.remove("smollm2-135m-calls")
    assert "comes with Toolscout" in caught.value.hint


def test_a_base_that_cannot_be_fetched_says_so(
    tuned: Path, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for installer in ("PIP", "UV"):
        monkeypatch.setenv(f"{installer}_FIND_LINKS", str(tmp_path))
        monkeypatch.setenv(f"{installer}_NO_INDEX", "1")
    with pytest.raises(ModelError, match="could not be fetched"):
        ModelStore(settings).pull("smollm2-135m-calls")


def test_the_list_shows_its_title_its_base_and_what_to_do(
    tuned: Path, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    assert execute(["model", "list", "--json"]) == 0
    row = shown(capsys)["smollm2-135m-calls"]
    assert row["about"] == f"SmolLM2 135M, tuned for calls, over {BASE.name}" and row["licence"] == BASE.licence
    assert not row["installed"] and not row["used"] and row["bytes"] == len(WEIGHTS)
    assert execute(["model", "list"]) == 0
    assert "toolscout model pull" in capsys.readouterr().out
    add_base(settings)
    assert execute(["model", "list", "--json"]) == 0
    rows = shown(capsys)
    assert rows["smollm2-135m-calls"]["used"] and not rows[BASE.name]["used"] and rows[BASE.name]["installed"]


def test_the_doctor_names_it_and_sees_damage(tuned: Path, settings: Settings) -> None:
    pytest.importorskip("xllamacpp")
    add_base(settings)
    check = doctor._model(settings)
    assert check.status == "ok" and "tuned for calls" in check.detail and BASE.name in check.detail
    (tuned / "smollm2-135m-calls" / "caller.gguf").write_bytes(WEIGHTS[:-1] + b"x")
    check = doctor._model(settings)
    assert check.status == "fail" and "damaged" in check.detail and "force-reinstall" in check.fix
