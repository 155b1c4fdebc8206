"""Packages of PyPI: wheels only, with uv, each in a virtual environment of hard links into one cache."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import metadata as dist
from pathlib import Path
from typing import ClassVar

from toolscout.crawler.failures import DeployError, Failure
from toolscout.crawler.install.base import (
    Entry,
    Installed,
    Installer,
    Metadata,
    Shop,
    client_environment,
    ranked,
    told,
)
from toolscout.crawler.install.bytecode import Bytecode
from toolscout.crawler.install.npm import write_own
from toolscout.crawler.sandbox import become, install_uid

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_VERSIONS = ("3.12", "3.13", "3.11", "3.14", "3.10")
"""Interpreters, the one that most packages have wheels for first."""
_WANTS_PYTHON = re.compile(
    r"requires? Python|does not satisfy Python|Python version|Requires-Python|no wheels with a matching Python"
)
_MODULE = re.compile(r"[A-Za-z_]\w*")


class PypiInstaller(Installer):
    """Installs wheels from the indexes of the user's own pip and uv configuration.

    Args:
        pythons: interpreters to use, best first; found by itself when empty.
    """

    registry: ClassVar[str] = "pypi"

    def __init__(self, shop: Shop, pythons: Sequence[Path] = ()) -> None:
        self._shop = shop
        self._uv = _reachable_uv(shop)
        self.problems: list[str] = [] if self._uv else ["uv cannot be run by the unprivileged user"]
        self.pythons, self._bases, problems = _usable(pythons or _find_pythons())
        if pythons or not self.pythons:  # of those found by itself nobody misses one
            self.problems += [f"--python {problem}" if pythons else problem for problem in problems]
        self._indexes = pip_options()
        self._bytecode = Bytecode(shop, self._fetch_alone)
        keep_constraints(shop)

    @property
    def usable(self) -> bool:
        """Whether uv and an interpreter that an unprivileged user can run are here."""
        return bool(self._uv and self.pythons)

    def interpreter(self) -> Entry | None:
        """See `Installer.interpreter`."""
        for python, prefix in self.pythons:
            return Entry(python.name, (self._bases[python], "-I"), prefix)
        return None

    def keep_starting(self, refusal: Callable[[Entry], str]) -> None:
        """See `Installer.keep_starting`."""
        for python, prefix in list(self.pythons):
            if why := refusal(Entry(python.name, (self._bases[python], "-I", "-c", ""), prefix)):
                self.problems.append(f"{python} does not start in the sandbox: {why}")
                self.pythons.remove((python, prefix))

    async def install(
        self, folder: Path, package: str, version: str | None, pin: str | None = None, extra: str = ""
    ) -> Installed:
        """See `Installer.install`.

        With ``pin`` the resolver's clock is set for all packages; where only sources resolve then, for mcp, fastmcp
        and pydantic alone.
        """
        if not _NAME.fullmatch(package):
            raise DeployError(Failure.INSTALL, "bad_name", f"{package!r} is no PyPI package name")
        clocks: list[list[str]] = [[]]
        if pin:
            few = [
                word for name in ("mcp", "fastmcp", "pydantic") for word in ("--exclude-newer-package", f"{name}={pin}")
            ]
            clocks = [["--exclude-newer", pin], few]
        said = ""
        wanted = f"{package}[{extra}]" if extra else package
        wanted = f"{wanted}=={version}" if version else wanted
        for clock in clocks:
            for python, prefix in self.pythons:
                status, said = await self._try(folder, python, wanted, clock)
                if status == 0:
                    installed = await self._installed(folder, package, prefix, pin, clock)
                    installed.extra = extra
                    return installed
                if not _WANTS_PYTHON.search(said):
                    break
        raise DeployError(Failure.INSTALL, _cause(said), said)

    async def _try(self, folder: Path, python: Path, wanted: str, clock: Sequence[str]) -> tuple[int, str]:
        venv = folder / "venv"
        shutil.rmtree(venv, ignore_errors=True)
        env = self._env()
        status, said = await self._shop.run([self._uv, "venv", "-q", "--python", str(python), str(venv)], folder, env)
        if status != 0:
            return status, said
        line = [self._uv, "pip", "install", "-q", "--python", str(venv / "bin" / "python"), "--only-binary", ":all:"]
        line += ["--link-mode", "hardlink", *self._indexes, *clock, wanted]
        return await self._shop.run(line, folder, env)

    def _env(self) -> Mapping[str, str]:
        env = {
            "UV_CACHE_DIR": str(self._shop.cache / "uv"),
            "UV_PYTHON_DOWNLOADS": "never",
            "UV_HTTP_TIMEOUT": "30",
            "UV_NO_PROGRESS": "1",
        }
        config = self._shop.config / "uv.toml"
        return {**env, "UV_CONFIG_FILE": str(config)} if config.is_file() else {**env, "UV_NO_CONFIG": "1"}

    async def _fetch_alone(self, python: Path, folder: Path, wanted: str) -> bool:
        line = [self._uv, "pip", "install", "-q", "--python", str(python), "--only-binary", ":all:", "--no-deps"]
        line += ["--link-mode", "hardlink", "--target", str(folder / "alone"), *self._indexes, wanted]
        status, _ = await self._shop.run(line, folder, self._env())
        return status == 0

    async def _installed(
        self, folder: Path, package: str, prefix: tuple[Path, ...], pin: str | None, clock: Sequence[str]
    ) -> Installed:
        venv = folder / "venv"
        site = next((venv / "lib").glob("python*/site-packages"))
        wanted = re.sub(r"[-_.]+", "-", package).lower()
        found = next(
            (d for d in dist.distributions(path=[str(site)]) if re.sub(r"[-_.]+", "-", d.name or "").lower() == wanted),
            None,
        )
        if found is None:
            raise DeployError(Failure.INSTALL, "not_installed", f"{package} is not among what was installed")
        await self._bytecode.provide(site, venv / "bin" / "python")
        scripts = [e.name for e in found.entry_points if e.group == "console_scripts"]
        entries = [
            Entry(name, (str(venv / "bin" / name),), prefix)
            for name in ranked(scripts, package)
            if (venv / "bin" / name).is_file()
        ]
        tops = _tops(found)
        runnable = [t for t in tops if (site / t / "__main__.py").is_file()] + _scripts(site, tops)
        entries += [Entry(f"python -m {t}", (str(venv / "bin" / "python"), "-m", t), prefix) for t in runnable]
        own = tuple(site / t for t in tops if (site / t).is_dir())
        return Installed(folder, metadata(found, package), entries, own, self._shop.sized(folder), pin, tuple(clock))


def metadata(found: dist.Distribution, package: str) -> Metadata:
    """What a wheel's METADATA says."""
    given = found.metadata

    def text(name: str) -> str:
        value = given.json.get(name.lower().replace("-", "_"), "")
        return str(value or "").strip()

    urls = {
        label.strip().lower(): url.strip()
        for label, _, url in (str(v).partition(",") for v in given.get_all("Project-URL") or [])
    }
    home = text("Home-page") or urls.get("homepage") or urls.get("repository") or next(iter(urls.values()), "")
    requires = [re.match(r"[A-Za-z0-9._-]+", r) for r in found.requires or [] if "extra ==" not in r]
    licence = text("License-Expression") or text("License").split("\n")[0][:100]
    if not licence:
        classifiers = [str(c) for c in given.get_all("Classifier") or []]
        licence = next((c.rpartition(":: ")[2] for c in classifiers if c.startswith("License ::")), "")
    return Metadata(
        name=package,
        version=found.version,
        description=text("Summary"),
        license=licence or None,
        homepage=home or None,
        keywords=tuple(k.strip() for k in re.split(r"[,\s]+", text("Keywords")) if k.strip()),
        dependencies=tuple(dict.fromkeys(re.sub(r"[-_.]+", "-", m.group()).lower() for m in requires if m)),
        requires_runtime=text("Requires-Python") or None,
    )


def _tops(found: dist.Distribution) -> list[str]:
    """The import packages and modules of a distribution."""
    names = (Path(str(f)).parts for f in found.files or [])
    tops = {parts[0].removesuffix(".py") if len(parts) == 1 else parts[0] for parts in names if parts}
    return sorted(t for t in tops if _MODULE.fullmatch(t) and t not in ("tests", "test", "docs", "examples"))


def _scripts(site: Path, tops: Sequence[str]) -> list[str]:
    """Modules that are made to be run as scripts, by name and by what stands in them."""
    found = []
    for top in tops:
        folder = site / top if (site / top).is_dir() else None
        for name in ("server", "mcp_server", "main", "app") if folder else ("",):
            path = folder / f"{name}.py" if folder else site / f"{top}.py"
            if path.is_file() and re.search(r"__name__\s*==\s*['\"]__main__", path.read_text("utf-8", "replace")):
                found.append(f"{top}.{name}" if name else top)
    return found


def pip_options() -> tuple[str, ...]:
    """The indexes of the user's pip configuration as uv's options; none where uv has settings of its own."""
    if any(os.environ.get(n) for n in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "UV_EXTRA_INDEX_URL")):
        return ()
    options: list[str] = []
    found = _pip_config()
    if main := found.get("index-url"):
        options += ["--default-index", main]
    for extra in found.get("extra-index-url", "").split():
        options += ["--index", extra]
    for place in found.get("find-links", "").split():
        options += ["--find-links", place]
    if "--index" in options:  # as pip does: the best version of all indexes
        options += ["--index-strategy", "unsafe-best-match"]
    return tuple(options)


@cache
def _pip_config() -> dict[str, str]:
    """pip's own view of its configuration, environment included; empty without pip."""
    for line in ([sys.executable, "-P", "-m", "pip"], [shutil.which("pip") or ""]):
        if not line[0]:
            continue
        said = told([*line, "config", "list"])
        if said:
            settings = re.findall(r"^(\S+)='(.*)'$", said, re.M)
            return {name.rpartition(".")[2]: value.replace("\\n", " ").strip() for name, value in settings}
    return {}


def simple_index() -> str | None:
    """The address of the user's simple index: as configured, else the one that pip itself falls back to."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if os.environ.get(name):
            return os.environ[name].rstrip("/")
    if found := _pip_config().get("index-url"):
        return found.rstrip("/")
    code = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    return told([sys.executable, "-c", code]).rstrip("/") or None


def keep_constraints(shop: Shop) -> None:
    """The user's own uv.toml (indexes, their keys) for the installing user's eyes only."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    source = Path(os.environ.get("UV_CONFIG_FILE") or home / "uv" / "uv.toml")
    if source.is_file() and os.access(source, os.R_OK):
        write_own(shop.config / "uv.toml", source.read_text("utf-8", "replace"), 0o400)


def _reachable_uv(shop: Shop) -> str:
    """uv's program, copied into the work folder where the installing user could not reach it."""
    try:
        from uv import find_uv_bin

        program = find_uv_bin()
    except (ImportError, FileNotFoundError):
        program = shutil.which("uv") or ""
    if not program or _runs([program, "--version"]):
        return program
    copy = shop.cache.parent / "bin" / "uv"
    copy.parent.mkdir(exist_ok=True)
    shutil.copy2(program, copy)
    copy.chmod(0o755)
    return str(copy) if _runs([str(copy), "--version"]) else ""


def _find_pythons() -> list[Path]:
    """Interpreters that can be had here, in the order of `_VERSIONS`."""
    found: list[Path] = []
    for version in _VERSIONS:
        for place in (
            shutil.which(f"python{version}", path="/usr/local/bin:/usr/bin"),
            shutil.which(f"python{version}"),
        ):
            if place and Path(place) not in found:
                found.append(Path(place))
    return [*found, Path("/usr/bin/python3"), Path(sys.base_prefix) / "bin" / "python3"]


def _usable(
    pythons: Sequence[Path],
) -> tuple[list[tuple[Path, tuple[Path, ...]]], dict[Path, str], list[str]]:
    """The first interpreter of each version that the installing user can run, with what else must be seen of it; the
    program that an environment made with each will run; and why others cannot be used."""
    code = (
        "import sys; print('%d.%d' % sys.version_info[:2], sys.version_info >= (3, 10), sys.base_prefix, "
        "getattr(sys, '_base_executable', sys.executable), sep='\\n')"
    )
    found: dict[str, tuple[Path, tuple[Path, ...]]] = {}
    bases: dict[Path, str] = {}
    problems = []
    for python in pythons:
        said, why = _asked([str(python), "-I", "-c", code])
        version, usable, prefix, base, *_ = [*said.split("\n"), "", "", ""]
        if usable == "True" and version not in found:
            found[version] = python, () if Path(prefix).is_relative_to("/usr") else (Path(prefix),)
            bases[python] = base
        elif not said:
            problems.append(f"{python} cannot be run by the unprivileged user: {why}")
        elif usable != "True":
            problems.append(f"{python} is older than Python 3.10")
    return list(found.values()), bases, problems


def _runs(line: Sequence[str]) -> bool:
    return bool(_said(line))


def _said(line: Sequence[str]) -> str:
    """What a program says to the installing user; empty where that user cannot run it."""
    return _asked(line)[0]


def _asked(line: Sequence[str]) -> tuple[str, str]:
    """What a program says to the installing user, and where it says nothing, why."""
    try:
        done = subprocess.run(
            # By env: what setpriv runs itself it still finds with root's rights.
            [*become(install_uid()), "/usr/bin/env", *line],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env=client_environment(),
            cwd="/",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", type(error).__name__
    if done.returncode == 0:
        return done.stdout.strip(), ""
    return "", (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:200]


def _cause(said: str) -> str:
    for cause, pattern in (
        ("disk_full", r"ENOSPC|No space left"),
        ("needs_python", r"does not satisfy Python|Requires-Python|depends on Python"),
        ("only_source", r"no usable wheels|has no wheels|no wheels|building .* is disabled|no binary"),
        (
            "not_there",
            r"was not found in the package registry|not found in the provided|there is no version|no versions of",
        ),
        ("conflict", r"unsatisfiable|conflict|incompatible"),
        ("other_host", r"(?:timed? ?out|dns error|error sending request|Connection refused|Failed to fetch)"),
    ):
        if re.search(pattern, said, re.I):
            return cause
    return "failed"
