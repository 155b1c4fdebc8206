"""From what a person names (a package, a catalogue entry, a command, a URL) to the upstream entry that runs it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from toolscout.errors import BadInput, NotAllowed

if TYPE_CHECKING:
    from toolscout.records import Server

_NPM = re.compile(
    r"(?P<name>(?:@[a-z0-9~][\w.~-]*/)?[a-z0-9~][\w.~-]*)(?:@(?P<version>[\w.^~<>=*+-]+))?", re.IGNORECASE
)
_PYPI = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(?P<extras>\[[\w,.-]+\])?(?:(?:==|@)(?P<version>[\w.!+-]+))?")
_RUNNERS = {
    "npx",
    "uvx",
    "uv",
    "docker",
    "node",
    "python",
    "python3",
    "bunx",
    "bun",
    "deno",
    "pipx",
    "podman",
    "npm",
    "pnpm",
}


def npm_entry(spec: str, args: Sequence[str] = (), *, binary: str | None = None) -> dict[str, Any]:
    """``PACKAGE[@VERSION]`` through npx. Raises BadInput for a bad name, NotAllowed where Node.js is missing."""
    match = _NPM.fullmatch(spec)
    if match is None:
        raise BadInput(f"{spec!r} is not the name of an npm package.", "Use npm:NAME or npm:@SCOPE/NAME@VERSION.")
    if shutil.which("npx") is None:
        raise NotAllowed(
            "npx is not on the PATH, and npm packages need it.", "Install Node.js (nodejs.org), then retry."
        )
    words = ["-y", "--package", spec, "--", binary, *args] if binary else ["-y", spec, *args]
    return {"command": "npx", "args": words}


def pypi_entry(
    spec: str, args: Sequence[str] = (), *, binary: str | None = None, extra: Sequence[str] = ()
) -> dict[str, Any]:
    """``PACKAGE[==VERSION]`` isolated through ``uv tool run``; ``extra`` are requirements to install beside it.

    Raises BadInput for a bad name.
    """
    match = _PYPI.fullmatch(spec)
    if match is None:
        raise BadInput(f"{spec!r} is not the name of a PyPI package.", "Use pypi:NAME or pypi:NAME==VERSION.")
    source = match["name"] + (match["extras"] or "") + (f"=={match['version']}" if match["version"] else "")
    beside = [word for requirement in extra for word in ("--with", requirement)]
    return {"command": uv_binary(), "args": ["tool", "run", *beside, "--from", source, binary or match["name"], *args]}


def uv_binary() -> str:
    """Path of uv: the one that came with Toolscout, else the one on the PATH. Raises NotAllowed without either."""
    try:
        import uv

        return str(uv.find_uv_bin())
    except (ImportError, FileNotFoundError):
        found = shutil.which("uv")
    if found is None:
        raise NotAllowed("uv is not installed, and PyPI packages are run through it.", "Run: pip install uv")
    return found


def catalogue_entry(server: Server, args: Sequence[str] = ()) -> tuple[dict[str, Any], list[str]]:
    """How a server of the catalogue is run, and the variables that must be set for it.

    Raises NotAllowed if the catalogue does not say how it is installed.
    """
    install = server.install
    required = [v.name for v in install.env if v.required]
    env = {name: f"${{{name}}}" for name in required}
    env |= {v.name: f"${{{v.name}}}" for v in install.env if not v.required and os.environ.get(v.name)}
    words = [*install.args, *args]
    command = (install.command or "").strip()
    runner = command.replace("\\", "/").rpartition("/")[2].removesuffix(".exe").removesuffix(".cmd")
    pinned = f"{install.package}=={install.version}" if install.version else install.package
    if install.url and not command:
        headers = {v.name: f"${{{v.name}}}" for v in install.env if v.required}
        entry: dict[str, Any] = {"url": install.url, "transport": "sse" if server.transport == "sse" else "http"}
        return entry | ({"headers": headers} if headers else {}), required
    if runner in _RUNNERS and words:
        entry = {"command": uv_binary(), "args": ["tool", "run", *words]} if runner == "uvx" else _plain(command, words)
    elif install.registry == "npm" and install.package:
        spec = f"{install.package}@{install.version}" if install.version else install.package
        entry = npm_entry(spec, words, binary=command or None)
    elif install.registry == "pypi" and install.package:
        entry = pypi_entry(str(pinned), words, binary=command or None)
    elif install.registry == "oci" and install.package:
        image = f"{install.package}:{install.version}" if install.version else install.package
        passed = [word for name in env for word in ("-e", name)]
        entry = _plain("docker", ["run", "-i", "--rm", *passed, image, *words])
    elif command and install.registry == "none":
        entry = _plain(command, words)
    else:
        raise NotAllowed(
            f"The catalogue does not say how {server.server_id} is installed.",
            "Look at its homepage, then: toolscout add NAME -- COMMAND ARGS...",
        )
    return entry | ({"env": env} if env else {}), required


def _plain(command: str, args: Sequence[str]) -> dict[str, Any]:
    return {"command": command, "args": list(args)}


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """``["K=V", ...]`` as a mapping. Raises BadInput naming the option."""
    found: dict[str, str] = {}
    for text in texts:
        name, sep, value = text.partition("=")
        if not sep or not name.strip():
            raise BadInput(f"{option} takes NAME=VALUE, not {text!r}.")
        found[name.strip()] = value
    return found


def shown(entry: Mapping[str, Any]) -> str:
    """What an entry runs or calls, on one line, quoted as for a shell."""
    import shlex

    if "url" in entry:
        return str(entry["url"])
    return shlex.join([str(entry["command"]), *map(str, entry.get("args") or ())])
