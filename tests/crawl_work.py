"""What the crawl's tests share: a work folder that an unprivileged user reaches, and a deployer over local packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from toolscout.crawler.deploy import Deployer
from toolscout.crawler.install.base import Shop
from toolscout.crawler.install.npm import NpmInstaller
from toolscout.crawler.install.pypi import PypiInstaller
from toolscout.crawler.limits import Limits
from toolscout.crawler.sandbox import Bubblewrap, Namespaces, Sandbox, probe

LINUX = sys.platform.startswith("linux")
SANDBOXES = [kind for kind in (Bubblewrap, Namespaces) if LINUX and probe(kind()) is None]
needs_sandbox = pytest.mark.skipif(not SANDBOXES, reason="no sandbox works here")
needs_node = pytest.mark.skipif(shutil.which("npm") is None or shutil.which("node") is None, reason="no Node.js")
LIMITS = Limits(seconds=20, memory=1024, disk=32, install_seconds=60, install_disk=64)


def work_folder() -> Iterator[Path]:
    """A folder under a temporary one that others may enter; pytest's own are barred to them."""
    folder = Path(tempfile.mkdtemp(prefix="toolscout-crawl-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def deployer(work: Path, sandbox: Sandbox, limits: Limits = LIMITS) -> Deployer:
    """A deployer for both registries, as the environment has them."""
    shop = Shop.open(work, limits)
    installers = {i.registry: i for i in (NpmInstaller(shop), PypiInstaller(shop))}
    return Deployer(sandbox, work, installers, limits)


def processes_with(text: str, program: str = "") -> list[int]:
    """Running processes whose command line holds a text; only those whose program has this name."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                said = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if text in said and (not program or Path(said.split(" ", 1)[0]).name == program):
                found.append(int(entry.name))
    return found


def run_cli(*args: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """``toolscout ...`` in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "toolscout", *args],
        capture_output=True,
        text=True,
        env={**os.environ, **env},
        timeout=300,
    )
