"""What a result is of: the command, its files with their hashes, and every option, as a part of each result.

Two results can be compared only if this is the same but for what is compared. Names of folders, keys and passwords stay
out of it: results are shared.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from toolscout.files import write_json
from toolscout.records import JsonObject

OUTPUTS = ("json_out", "report", "misses", "plot", "work", "out", "health")
"""Parameters that say where something goes."""

_SILENT = {*OUTPUTS, "cache", "quiet", "home", "install"}
"""Parameters that no number hangs on, or that name places of one machine."""

_UNTOLD = {"home", "database", "debug"}
"""Variables that name places of one machine, or that no number hangs on."""

_PREFIX = "toolscout_"
_SECRET = re.compile(r"(?i)(key|token|secret|password)$")
_USER = re.compile(r"//[^/@\s]*@")
_ASKED = re.compile(r"(\w+://[^\s?#]*)[?#]\S*")
_FOLDERS = re.compile(r"(?<![\w/.~])(?:~\w*|\.{1,2})?/(?:[^\s/=]+/)*([^\s/]+)")

_told: ContextVar[JsonObject | None] = ContextVar("told", default=None)


@contextmanager
def telling(command: str, params: Mapping[str, Any], options: Mapping[str, str] | None = None) -> Iterator[None]:
    """While it holds, results that are written say that they are of this command with these parameters.

    ``options``: what each parameter is called on the command line, where that is not its name.
    """
    before = _told.set(described(command, params, options))
    try:
        yield
    finally:
        _told.reset(before)


def described(command: str, params: Mapping[str, Any], options: Mapping[str, str] | None = None) -> JsonObject:
    """``{command, version, files: {OPTION: [{file, sha256}]}, options: {OPTION: value}, settings: {NAME: value}}``.

    ``options`` has the defaults, too, as far as they say something. ``settings`` are those of the environment.
    """
    from toolscout import __version__

    files: JsonObject = {}
    given: JsonObject = {}
    for name, value in params.items():
        if name in _SILENT or value is None or value is False or value in ("", [], ()):
            continue
        option = (options or {}).get(name, name.replace("_", "-"))
        parts = list(value) if isinstance(value, list | tuple) else [value]
        if name == "peer_command":  # a program of one machine, with whatever is in its line
            parts = [part.partition("=")[0] for part in parts]
        found = [_file(part) for part in parts]
        if all(found):
            files[option] = found
        else:
            plain = [_cleaned(part) for part in parts]
            given[option] = plain if isinstance(value, list | tuple) else plain[0]
    return {"command": command, "version": __version__, "files": files, "options": given, "settings": _environment()}


def with_origin(result: Mapping[str, Any]) -> JsonObject:
    """A result with ``of``, where a command is running or the experiment itself said something (``run``)."""
    of = {**(_told.get() or {}), **_cleaned(result.get("of") or {})}
    whole = dict(result)
    if isinstance(whole.get("encoder"), str):
        whole["encoder"] = plain(whole["encoder"])
    return {**whole, "of": of} if of else whole


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result that says what it is of. Raises StorageError."""
    write_json(path, with_origin(result))


def of_experiment(header: Mapping[str, Any], **more: Any) -> JsonObject:
    """What an experiment says of itself, from its work file's header: which weights answered, which rows were asked."""
    return {"run": {name: value for name, value in {**header, **more}.items() if name not in ("model", "model_url")}}


def origin_lines(of: Mapping[str, Any]) -> list[str]:
    """For a page: a line each for the command and its options, its files, and the settings."""
    if not of.get("command"):
        return []
    options = [_worded(name, value) for name, value in of["options"].items()]
    lines = [" ".join([f"toolscout eval {of['command']}", *options]) + f" (version {of['version']})"]
    files = [
        f"--{option} {part['name'] + '=' if 'name' in part else ''}{part['file']} ({(part['sha256'] or 'unread')[:12]})"
        for option, parts in of["files"].items()
        for part in parts
    ]
    if files:
        lines.append("files, with the beginning of their SHA-256: " + ", ".join(files))
    if of["settings"]:
        lines.append("settings: " + ", ".join(f"{name} = {value}" for name, value in of["settings"].items()))
    run = {name: value for name, value in of.get("run", {}).items() if isinstance(value, str | int | float | bool)}
    if measured := [f"{name} {_short(value)}" for name, value in run.items() if value != ""]:
        lines.append("measured: " + ", ".join(measured))
    if weights := of.get("run", {}).get("weights"):
        lines.append("weights, the same way: " + ", ".join(str(one)[:12] for one in weights))
    return lines


def files_of(value: Any) -> list[Path]:
    """The files that a parameter names, as paths or as NAME=PATH."""
    found = []
    for part in value if isinstance(value, list | tuple) else [value]:
        _, equals, path = part.partition("=") if isinstance(part, str) else ("", "", part)
        if (equals or isinstance(path, Path)) and Path(path).is_file():
            found.append(Path(path))
    return found


def plain(text: str) -> str:
    """A value without what must not be shared: the secret behind a name, a user in an address, what an address is
    asked, and the folders of a path."""
    name, equals, _ = text.partition("=")
    if equals and "://" not in name and _SECRET.search(name):
        return f"{name}=..."
    text = _ASKED.sub(r"\1", _USER.sub("//", text))
    if re.match(r"(~|\.{1,2})?/", text):
        return Path(text).name
    return _FOLDERS.sub(r"\1", text)


def _cleaned(value: Any) -> Any:
    if isinstance(value, Path):
        return value.name
    if isinstance(value, Mapping):
        return {name: "..." if _SECRET.search(str(name)) else _cleaned(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(one) for one in value]
    return plain(value) if isinstance(value, str) else value


def _worded(name: str, value: Any) -> str:
    if value is True:
        return f"--{name}"
    return f"--{name} " + (" ".join(map(str, value)) if isinstance(value, list) else str(value))


def _short(value: Any) -> str:
    """A hash as much as tells it from others."""
    return value[:12] if isinstance(value, str) and re.fullmatch("[0-9a-f]{40,}", value) else str(value)


def _file(value: Any) -> JsonObject | None:
    """A file, given as a path or as NAME=PATH; None for everything else. What cannot be read has no hash: the command
    itself says so better."""
    name, equals, path = value.partition("=") if isinstance(value, str) else ("", "", value)
    place = Path(path) if equals or isinstance(path, Path) else None
    try:
        if place is None or not place.is_file():
            return None
        from toolscout.index.asset import file_sha256

        digest: str | None = file_sha256(place)
    except OSError:
        digest = None
    return {**({"name": name} if equals else {}), "file": "" if place is None else place.name, "sha256": digest}


def _environment() -> JsonObject:
    """The settings that the environment gives, those aside that hold a secret or name places of this machine."""
    given = {name.lower(): value for name, value in sorted(os.environ.items()) if name.lower().startswith(_PREFIX)}
    told = {name.removeprefix(_PREFIX): value for name, value in given.items() if not _SECRET.search(name)}
    return {name: plain(v) for name, v in told.items() if name not in _UNTOLD and not name.startswith("test_")}
