"""npx and uvx lines in a sandbox: the package is installed once, into a folder of its own, and run from there.

The runners themselves want a home, a cache that others share, and the network at every start. Instead the package is
installed inside a sandbox with the network and without anything of the server's (no keys, no files); what runs later
sees the folder read-only. So a server cannot change its own code, nor any other's.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import AsyncFileLock

from toolscout.errors import BadInput, NotAllowed, ToolscoutError, UpstreamError
from toolscout.files import write_json
from toolscout.server.launch import uv_binary
from toolscout.server.sandbox.box import Box, own_user
from toolscout.server.sandbox.environment import base_environment, certificates
from toolscout.server.sandbox.policy import Policy
from toolscout.server.sandbox.view import python_runtime, runtime
from toolscout.server.upstreams.environment import safe_environment
from toolscout.server.upstreams.process import CommandNotFound, Tail, UpstreamProcess, find_program
from toolscout.server.upstreams.said import install_hint, installer_gist

if TYPE_CHECKING:
    from toolscout.server.config import UpstreamConfig

_NPX_FLAGS = {"-y", "--yes", "-q", "--quiet", "--prefer-offline", "--prefer-online", "--offline", "--"}
_UV_FLAGS = {"-q", "--quiet", "--isolated", "--refresh", "--no-progress", "--offline", "--no-cache", "-n"}
_UV_VALUES = {
    *("--with", "-w", "--python", "-p", "--index", "--default-index", "--index-url", "-i", "--extra-index-url"),
    *("--prerelease", "--resolution", "--index-strategy", "--exclude-newer"),
}
_NPM_SPEC = re.compile(r"(?P<name>(?:@[\w.~-]+/)?[A-Za-z0-9~][\w.~-]*)(?:@[\w.^~<>=*+ |-]+)?")
_PYPI_SPEC = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(?P<extras>\[[\w,.-]+\])?(?:@(?P<version>[\w.!+-]+)|[<>=!~].*)?")
_SECRET_URL = re.compile(r"://[^/\s]+@")
_REGISTRY = re.compile(r"(npm_config_registry|UV_(DEFAULT_INDEX|INDEX|INDEX_URL|EXTRA_INDEX_URL|INDEX_STRATEGY))", re.I)


@dataclass(frozen=True)
class Package:
    """What an npx or uvx line says: which packages from where, which of their programs, and what is passed to it."""

    runner: str
    specs: tuple[str, ...]
    options: tuple[str, ...]
    binary: str | None
    args: tuple[str, ...]

    @property
    def key(self) -> str:
        """Name of its installation; two lines with equal packages share one."""
        said = json.dumps([self.runner, self.specs, self.options, self.binary])
        return f"{self.runner}-{hashlib.sha256(said.encode()).hexdigest()[:20]}"


@dataclass(frozen=True)
class Installed:
    """A program in the folder of its installation."""

    program: Path
    folder: Path


def read_package(command: str, args: tuple[str, ...]) -> Package | None:
    """The package that a command line runs; None when the command is no such runner.

    Raises NotAllowed for a line that cannot be run in a sandbox, with what to do instead.
    """
    runner = Path(command).name
    if runner in ("docker", "podman", "nerdctl"):
        raise NotAllowed(
            f"{runner} cannot run in a sandbox: its containers are started by a service outside of it.",
            'A container is one itself; set "sandbox": false for this server and limit it by its own options.',
        )
    if runner == "npx" or (runner == "npm" and args[:1] in (("exec",), ("x",))):
        return _npx(args if runner == "npx" else args[1:])
    if runner == "uvx":
        return _uvx(args)
    if runner == "uv" and args[:2] == ("tool", "run"):
        return _uvx(args[2:])
    return None


async def provide(package: Package, home: Path, *, marker: str) -> Installed:
    """The installation of a package below ``home``, made if there is none.

    Raises UpstreamError when it cannot be installed, CommandNotFound without npm or uv.
    """
    folder = home / "sandbox" / package.key
    done = folder.with_suffix(".json")
    folder.parent.mkdir(parents=True, exist_ok=True)
    async with AsyncFileLock(f"{folder}.lock"):
        found = await asyncio.to_thread(_installed, folder, done)
        if found is None:
            await asyncio.to_thread(_clear, folder, done)
            _make(folder, package.key)
            try:
                install = _install_npm if package.runner == "npx" else _install_uv
                program = await install(package, folder, marker)
            except BaseException:
                await asyncio.to_thread(_clear, folder, done)
                raise
            for rest in ("cache", "tmp"):
                await asyncio.to_thread(shutil.rmtree, folder / rest, ignore_errors=True)
            write_json(done, {"program": str(program), "specs": list(package.specs)})
            found = Installed(program, folder)
    return found


def forget(config: UpstreamConfig, others: Iterable[UpstreamConfig], home: Path) -> None:
    """Remove the installation that a server runs from, unless one of the others does: the next start makes it anew."""
    key = _key(config)
    if key is not None and key not in map(_key, others):
        folder = home / "sandbox" / key
        _clear(folder, folder.with_suffix(".json"))


def missing(config: UpstreamConfig, home: Path) -> bool:
    """Whether the next start of a sandboxed server has to install its package first."""
    key = _key(config)
    return key is not None and _installed(home / "sandbox" / key, home / "sandbox" / f"{key}.json") is None


def installable(config: UpstreamConfig) -> bool:
    """Whether a command line is that of a package, and what installs one for a sandbox is here."""
    try:
        package = read_package(config.command, config.args)
        if package is not None:
            _ = _found("npm") if package.runner == "npx" else uv_binary()
    except ToolscoutError:
        return False
    return package is not None


def _key(config: UpstreamConfig) -> str | None:
    try:
        package = read_package(config.command, config.args)
    except ToolscoutError:
        return None
    return package.key if package is not None else None


def _installed(folder: Path, done: Path) -> Installed | None:
    try:
        program = Path(json.loads(done.read_text("utf-8"))["program"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Installed(program, folder) if program.is_file() and program.is_relative_to(folder) else None


def _clear(folder: Path, done: Path) -> None:
    done.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)


def _make(folder: Path, name: str) -> None:
    """The empty folder, of the user who installs."""
    for made in (folder, folder / "tmp"):
        made.mkdir(mode=0o755)
        if os.geteuid() == 0:
            os.chown(made, own_user(name), own_user(name))


def _npx(args: tuple[str, ...]) -> Package:
    packages: list[str] = []
    words = list(args)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, sep, value = word.partition("=")
        if name in ("-p", "--package"):
            if not sep and not words:
                break
            packages.append(value if sep else words.pop(0))
        elif word == "--":
            break
        elif word not in _NPX_FLAGS:
            raise _unread("npx", word)
    binary: str | None = None
    if packages and words:
        binary = words.pop(0)
    elif words:
        packages.append(words.pop(0))
    if not packages or any(_NPM_SPEC.fullmatch(spec) is None for spec in packages):
        raise _unread("npx", (packages or ["no package"])[-1])
    return Package("npx", tuple(packages), (), binary, tuple(words))


def _uvx(args: tuple[str, ...]) -> Package:
    options: list[str] = []
    source: str | None = None
    words = list(args)
    while words and words[0].startswith("-"):
        word = words.pop(0)
        name, sep, value = word.partition("=")
        if word == "--":
            break
        if word in _UV_FLAGS:
            continue
        if name not in (*_UV_VALUES, "--from") or (not sep and not words):
            raise _unread("uvx", word)
        value = value if sep else words.pop(0)
        if name == "--from":
            source = value
        else:
            options += [{"-w": "--with", "-p": "--python", "-i": "--index-url"}.get(name, name), value]
    if not words:
        raise _unread("uvx", "no package")
    binary = words.pop(0)
    match = _PYPI_SPEC.fullmatch(source or binary)
    if match is None or any(v.startswith((".", "/", "~")) for v in options[1::2]):
        raise _unread("uvx", source or binary)
    if source is None:
        binary = match["name"]
    spec = source or args[len(args) - len(words) - 1]
    if match["version"]:
        exact = "" if match["version"] == "latest" else f"=={match['version']}"
        spec = match["name"] + (match["extras"] or "") + exact
    return Package("uvx", (spec,), tuple(options), binary, tuple(words))


def _unread(runner: str, word: str) -> BadInput:
    return BadInput(
        f"{runner} with {word!r} cannot be run in a sandbox: only packages of a registry are installed for it.",
        'Install it yourself and give the program itself as the command, with its folder in the sandbox\'s "read".',
    )


async def _install_npm(package: Package, folder: Path, marker: str) -> Path:
    npm = _found("npm")
    env = {**_told(), "npm_config_cache": str(folder / "cache"), "npm_config_update_notifier": "false"}
    line = [npm, "install", "--prefix", str(folder), "--omit=dev", "--no-audit", "--no-fund", "--no-package-lock"]
    line += ["--no-progress", "--loglevel=error"]
    config = _npm_config()
    # The user's registries and their keys are for npm alone: what the packages bring runs without them, afterwards.
    own = {**env, "npm_config_userconfig": str(config)} if config else env
    scripts_off = [*line, "--ignore-scripts", "--", *package.specs]
    await _run(package, folder, scripts_off, own, [Path(npm)], [config] if config else [], marker)
    rebuild = [npm, "rebuild", "--prefix", str(folder), "--loglevel=error"]
    bare = {name: value for name, value in env.items() if not _SECRET_URL.search(value)}
    await _run(package, folder, rebuild, bare, [Path(npm)], [], marker)
    return _npm_program(package, folder)


def _npm_program(package: Package, folder: Path) -> Path:
    match = _NPM_SPEC.fullmatch(package.specs[0])
    assert match is not None
    name = match["name"]
    try:
        manifest: Any = json.loads((folder / "node_modules" / name / "package.json").read_text("utf-8-sig"))
    except (OSError, ValueError):
        manifest = {}
    given = manifest.get("bin") if isinstance(manifest, dict) else None
    short = name.rpartition("/")[2]
    names = [short] if isinstance(given, str) else list(given) if isinstance(given, dict) else []
    wanted = package.binary or (names[0] if len(names) == 1 else short if short in names else None)
    program = folder / "node_modules" / ".bin" / str(wanted)
    if wanted is None or "/" in wanted or not program.is_file():
        if not names:
            raise UpstreamError(
                f"The package {name} brings no program: it is a library, or is started otherwise.",
                "Look up how it is started, and give that as the command.",
            )
        raise UpstreamError(
            f"The package {name} has no program {wanted or 'of its own name'}.",
            f'It has {", ".join(names)}: put "--package", "{package.specs[0]}", "--" and one of them into its "args".',
        )
    return program


async def _install_uv(package: Package, folder: Path, marker: str) -> Path:
    uv = Path(uv_binary())
    env = {
        **_told(),
        "UV_CACHE_DIR": str(folder / "cache"),
        "UV_TOOL_DIR": str(folder / "tools"),
        "UV_TOOL_BIN_DIR": str(folder / "bin"),
        "UV_PYTHON_INSTALL_DIR": str(folder / "python"),
        "UV_PYTHON_BIN_DIR": str(folder / "python-bin"),
        "UV_NO_PROGRESS": "1",
    }
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "uv" / "uv.toml"
    seen = [config] if config.is_file() else []
    if seen:
        env["UV_CONFIG_FILE"] = str(config)
    given = [*env.values(), *package.options, config.read_text("utf-8", "replace") if seen else ""]
    if any(_SECRET_URL.search(text) for text in given):
        env["UV_NO_BUILD"] = "1"  # what builds a package is the package's own code, and would see the key
    line = [str(uv), "tool", "install", "--quiet", *package.options, "--", package.specs[0]]
    python = python_runtime()
    if python:
        env["PATH"] = f"{python[0] / 'bin'}:{env['PATH']}"
    await _run(package, folder, line, env, [uv], [*python, *seen], marker)
    found = sorted((folder / "tools").glob(f"*/bin/{package.binary}"))
    if not found:
        names = ", ".join(sorted(p.name for p in (folder / "bin").glob("*"))) or "none"
        raise UpstreamError(
            f"The package {package.specs[0]} has no program {package.binary}.",
            f'It has {names}. One that is the server is named after the package: "--from", "{package.specs[0]}", NAME',
        )
    return found[0]


async def _run(
    package: Package,
    folder: Path,
    argv: list[str],
    env: Mapping[str, str],
    programs: list[Path],
    readable: list[Path],
    marker: str,
) -> None:
    """Run an installer: it has the network, and may write the folder and nothing else."""
    seen = [path for program in programs for path in runtime(program)]
    box = Box(
        package.key,
        ["/bin/sh", "-c", 'umask 022; exec "$@"', "sh", *argv],
        {**env, "TMPDIR": str(folder / "tmp")},
        Policy(network=True, write=(folder,)),
        cwd=str(folder),
        readable=[*seen, *readable, *certificates(env)],
    )
    said = Tail()
    ended = asyncio.Event()
    process = await UpstreamProcess.start_in(box, marker=marker, on_stdout=said.add, on_closed=ended.set)
    try:
        await ended.wait()
        await process.wait_exit(30.0)
    finally:
        await process.stop()
    if process.returncode != 0:
        what = ", ".join(package.specs)
        told = process.stderr.text(200, 20_000) or said.text(200, 20_000)
        why = installer_gist(told) or process.describe_exit()
        raise UpstreamError(f"{what} could not be installed for its sandbox: {why}", install_hint(told))


def _told() -> dict[str, str]:
    """The environment of an installer: where packages come from, and which certificates to trust."""
    env = base_environment(True)
    env.update({name: value for name, value in os.environ.items() if _REGISTRY.fullmatch(name)})
    node = find_program("node", None, os.environ.get("PATH"))
    if node is not None:
        env["PATH"] = f"{Path(node).parent}:{env['PATH']}"
    return env


def _found(command: str) -> str:
    program = find_program(command, None, safe_environment().get("PATH"))
    if program is None:
        raise CommandNotFound("npx")
    return program


def _npm_config() -> Path | None:
    """The user's npm configuration."""
    said = os.environ.get("NPM_CONFIG_USERCONFIG") or os.environ.get("npm_config_userconfig")  # noqa: SIM112
    path = Path(said).expanduser() if said else Path.home() / ".npmrc"
    return path if path.is_file() else None
