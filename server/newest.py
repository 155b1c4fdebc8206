"""The package that an entry runs: which version it names, which is the newest, and the entry that names another."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from toolscout.errors import NotFound, ToolscoutError, UpstreamError
from toolscout.server.sandbox.package import read_package
from toolscout.server.upstreams.process import CommandNotFound, find_program

_NPM = re.compile(r"(?P<name>(?:@[\w.~-]+/)?[A-Za-z0-9~][\w.~-]*)(?:@(?P<version>.+))?")
_PYPI = re.compile(r"(?P<name>[A-Za-z0-9][\w.-]*)(?P<extras>\[[\w,.-]+\])?(?:@(?P<at>.+)|(?P<bound>[<>=!~].*))?")
_EXACT = re.compile(r"(==)?v?(?P<version>\d+\.\d[\w.+!-]*|\d+)")
_LOOK_SECONDS = 90.0


@dataclass(frozen=True)
class Runs:
    """A package that an entry runs through npx or uvx. ``version`` is None where it names none exactly."""

    registry: str
    name: str
    version: str | None
    place: int
    """Which of the arguments names it."""
    options: tuple[str, ...] = ()
    """uv's options that say where packages come from."""

    def pinned(self, entry: Mapping[str, Any], version: str) -> dict[str, Any]:
        """The entry with this version of the package."""
        args = [str(arg) for arg in entry["args"]]
        flag, sep, spec = args[self.place].rpartition("=") if args[self.place].startswith("-") else ("", "", "")
        spec = spec or args[self.place]
        if self.registry == "npm":
            new = f"{self.name}@{version}"
        else:
            match = _PYPI.fullmatch(spec)
            extras = (match["extras"] if match else None) or ""
            # Only behind --from may the version be bound as in a requirement.
            requirement = bool(sep) or args[self.place - 1 : self.place] == ["--from"]
            new = f"{self.name}{extras}{'==' if requirement else '@'}{version}"
        return {**entry, "args": [*args[: self.place], flag + sep + new, *args[self.place + 1 :]]}


def runs_of(entry: Mapping[str, Any]) -> Runs | None:
    """The package that an entry runs; None where it runs none, or in a way that cannot be read."""
    args = tuple(str(arg) for arg in entry.get("args") or ())
    try:
        package = read_package(str(entry.get("command") or ""), args)
    except ToolscoutError:
        return None
    if package is None:
        return None
    pattern = _NPM if package.runner == "npx" else _PYPI
    main = pattern.fullmatch(package.specs[0])
    if main is None:
        return None
    for place, arg in enumerate(args):
        spec = arg.partition("=")[2] if arg.startswith(("--package=", "-p=", "--from=")) else arg
        match = pattern.fullmatch(spec)
        if match is None or match["name"] != main["name"]:
            continue
        said = match["version"] if package.runner == "npx" else match["at"] or match["bound"]
        exact = _EXACT.fullmatch(said or "")
        version = exact["version"] if exact else None
        if package.runner == "npx":  # where 1.2 means the newest 1.2.x
            return Runs("npm", main["name"], version if (version or "").count(".") > 1 else None, place)
        return Runs("pypi", main["name"], version, place, package.options)
    return None


def newest(package: Runs) -> str:
    """The newest version of a package that its registry has for this machine, as its own client says it.

    Raises NotFound for a package that is not there, CommandNotFound without npm, UpstreamError where the registry does
    not answer.
    """
    return _newest_npm(package) if package.registry == "npm" else _newest_pypi(package)


def is_newer(version: str, than: str) -> bool:
    """Whether a version is newer than another one by the numbers that it begins with; a release is than what was
    before it."""
    return _key(version) > _key(than)


def _key(version: str) -> tuple[list[int], bool]:
    match = re.match(r"[\d.]*\d", version)
    numbers = match.group() if match else ""
    found = [int(number) for number in numbers.split(".") if number]
    while found and not found[-1]:
        found.pop()
    return found, "post" in version or not re.match(r"-?[A-Za-z]", version[len(numbers) :].lstrip("."))


def _newest_npm(package: Runs) -> str:
    npm = find_program("npm", None, os.environ.get("PATH"))
    if npm is None:
        raise CommandNotFound("npx")
    said = _run([npm, "view", "--json", f"{package.name}@latest", "version"], package, "E404")
    try:
        version = json.loads(said)
    except ValueError:
        version = None
    if isinstance(version, list):
        version = version[-1] if version else None
    if not isinstance(version, str) or not _EXACT.fullmatch(version):
        raise UpstreamError(f"npm names no newest version of {package.name}.")
    return version


def _newest_pypi(package: Runs) -> str:
    from toolscout.server.launch import uv_binary

    pairs = zip(package.options[::2], package.options[1::2], strict=True)
    options = [word for pair in pairs if pair[0] != "--with" for word in pair]
    python = [] if "--python" in options else ["--python", sys.executable]
    line = [uv_binary(), "pip", "compile", "--quiet", "--no-deps", "--no-header", "--no-annotate", "--refresh"]
    said = _run([*line, *python, *options, "-"], package, "not found in the package registry", package.name)
    match = re.search(r"^[\w.-]+(?:\[.*\])?==(\S+)", said, re.MULTILINE)
    if match is None:
        raise UpstreamError(f"uv names no newest version of {package.name}.")
    return match[1]


def _run(line: Sequence[str], package: Runs, absent: str, given: str = "") -> str:
    try:
        done = subprocess.run(line, input=given, capture_output=True, text=True, timeout=_LOOK_SECONDS, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UpstreamError(f"The newest version of {package.name} could not be looked up: {error}.") from None
    if done.returncode == 0:
        return done.stdout
    if absent in done.stdout + done.stderr:
        raise NotFound(f"The registry has no package {package.name}.")
    why = next((said for line in reversed(done.stderr.splitlines()) if (said := line.strip())), "it failed")
    raise UpstreamError(
        f"The newest version of {package.name} could not be looked up: {why}",
        "Check that this machine reaches its registry.",
    )
