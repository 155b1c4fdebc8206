"""The official conformance suite and the inspector: packages of npm, installed in a folder of their own.

Set ``TOOLSCOUT_TEST_NODE_TOOLS`` to a folder to keep them from one run to the next.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

CONFORMANCE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
NODE_MAJOR = 22
NODE = "22.23.3"
KEPT = os.environ.get("TOOLSCOUT_TEST_NODE_TOOLS")
_INSTALL_SECONDS = 900


class NoTools(Exception):
    """They cannot be had here; the message says why."""


@dataclass(frozen=True)
class NodeTools:
    """Where the tools are. Run one with `command`."""

    node: Path
    folder: Path

    def command(self, package: str, *arguments: str) -> list[str]:
        """The command line of a package's only script."""
        scripts = {CONFORMANCE: "dist/index.js", INSPECTOR: "clients/launcher/build/index.js"}
        return [str(self.node), str(self.package(package) / scripts[package]), *arguments]

    def package(self, package: str) -> Path:
        """The folder of an installed package."""
        return self.folder / "node_modules" / _name(package)

    def environment(self) -> dict[str, str]:
        """The environment to run them in: what they start finds the same Node.js."""
        return {**os.environ, "PATH": f"{self.node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}


def node_tools(folder: Path) -> NodeTools:
    """Install what is missing in ``folder``. Raises NoTools."""
    npm = shutil.which("npm")
    if npm is None:
        raise NoTools("no npm here")
    node = _node_here()
    own = f"node-{ {'Darwin': 'darwin', 'Windows': 'win'}.get(platform.system(), 'linux') }-{_machine()}"
    wanted = [CONFORMANCE, INSPECTOR, *([] if node else [f"{own}@{NODE}"])]
    missing = [package for package in wanted if not _installed(folder, package)]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        # Not their install scripts: none of these packages needs one.
        install = [npm, "install", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund", *missing]
        try:
            done = subprocess.run(install, capture_output=True, text=True, timeout=_INSTALL_SECONDS, cwd=folder)
        except subprocess.TimeoutExpired:
            raise NoTools(f"npm did not install {', '.join(missing)} in {_INSTALL_SECONDS} s") from None
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if "error" in line.lower()]
            raise NoTools(f"npm could not install {', '.join(missing)}: {' '.join(said)[:300]}")
    return NodeTools(node or folder / "node_modules" / own / "bin" / "node", folder)


def _node_here() -> Path | None:
    found = shutil.which("node")
    if found is None:
        return None
    said = subprocess.run([found, "--version"], capture_output=True, text=True).stdout.strip()
    major = said.removeprefix("v").partition(".")[0]
    return Path(found) if major.isdecimal() and int(major) >= NODE_MAJOR else None


def _machine() -> str:
    return "arm64" if platform.machine().lower() in {"arm64", "aarch64"} else "x64"


def _name(package: str) -> str:
    return package.rpartition("@")[0]


def _installed(folder: Path, package: str) -> bool:
    try:
        about = json.loads((folder / "node_modules" / _name(package) / "package.json").read_bytes())
    except (OSError, ValueError):
        return False
    return about.get("version") == package.rpartition("@")[2]
