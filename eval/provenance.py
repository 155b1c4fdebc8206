"""What a result is of: the command, its files with their hashes, and every option, as a part of each result.

Two results can be compared only if this is the same but for what is compared. Names of folders stay out of it: results
are shared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from toolscout.files import write_json
from toolscout.records import JsonObject

OUTPUTS = ("json_out", "report", "misses", "plot", "work", "out", "health")
"""Parameters that say where something goes."""

_SILENT = {*OUTPUTS, "cache", "quiet", "home", "install"}
"""Parameters that no number hangs on, or that name places of one machine."""

_PLACES = {"home", "database"}
"""Settings that name places of one machine."""

_told: ContextVar[JsonObject | None] = ContextVar("told", default=None)


@contextmanager
def telling(command: str, params: Mapping[str, Any]) -> Iterator[None]:
    """While it holds, results that are written say that they are of this command with these parameters."""
    before = _told.set(described(command, params))
    try:
        yield
    finally:
        _told.reset(before)


def described(command: str, params: Mapping[str, Any]) -> JsonObject:
    """``{command, version, files: {OPTION: [{file, sha256}]}, options: {OPTION: value}, settings: {NAME: value}}``.

    ``options`` has the defaults, too, as far as they say something. ``settings`` are those of the environment.
    """
    from toolscout import __version__

    files: JsonObject = {}
    options: JsonObject = {}
    for name, value in params.items():
        if name in _SILENT or value in (None, "", False, [], ()):
            continue
        option = name.removesuffix("_out").replace("_", "-")
        parts = list(value) if isinstance(value, list | tuple) else [value]
        found = [_file(part) for part in parts]
        if all(found):
            files[option] = found
        else:
            plain = [_plain(part) for part in parts]
            options[option] = plain if isinstance(value, list | tuple) else plain[0]
    return {"command": command, "version": __version__, "files": files, "options": options, "settings": _environment()}


def of_run(more: Mapping[str, Any] | None = None) -> JsonObject:
    """What a result that is written now is of, with what the experiment itself adds (such as the weights' hashes)."""
    return {**(_told.get() or {}), **(more or {})}


def with_origin(result: Mapping[str, Any]) -> JsonObject:
    """A result with ``of``, where a command is running or the experiment said something."""
    of = of_run(result.get("of"))
    return {**result, "of": of} if of else dict(result)


def write_result(path: Path, result: Mapping[str, Any]) -> None:
    """Write a result that says what it is of. Raises StorageError."""
    write_json(path, with_origin(result))


def origin_lines(of: Mapping[str, Any]) -> list[str]:
    """For a page: a line each for the command and its options, its files, and the settings."""
    if not of.get("command"):
        return []
    options = [_worded(name, value) for name, value in of["options"].items()]
    lines = [" ".join([f"toolscout eval {of['command']}", *options]) + f" (version {of['version']})"]
    files = [
        f"--{option} {part['file']} ({part['sha256'][:12]})" for option, parts in of["files"].items() for part in parts
    ]
    if files:
        lines.append("files, with the beginning of their SHA-256: " + ", ".join(files))
    if of["settings"]:
        lines.append("settings: " + ", ".join(f"{name} = {value}" for name, value in of["settings"].items()))
    if weights := of.get("weights"):
        lines.append("weights: " + ", ".join(str(one)[:12] for one in weights))
    return lines


def _worded(name: str, value: Any) -> str:
    if value is True:
        return f"--{name}"
    return f"--{name} " + (" ".join(map(str, value)) if isinstance(value, list) else str(value))


def _file(value: Any) -> JsonObject | None:
    """A file, given as a path or as NAME=PATH; None for everything else."""
    name, equals, path = value.partition("=") if isinstance(value, str) else ("", "", value)
    place = Path(path) if equals or isinstance(path, Path) else None
    if place is None or not place.is_file():
        return None
    from toolscout.index.asset import file_sha256

    return {**({"name": name} if equals else {}), "file": place.name, "sha256": file_sha256(place)}


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return value.name
    if isinstance(value, str):
        name, equals, rest = value.partition("=")
        if equals and "://" not in name and _secret(name):
            return f"{name}=..."
        if "://" in value:
            return _without_password(value)
        if equals and "/" in rest:
            return f"{name}={Path(rest).name}"
        return Path(value).name if os.sep in value and Path(value).exists() else value
    return value


def _without_password(text: str) -> str:
    before, equals, url = text.partition("=") if "=" in text.partition("://")[0] else ("", "", text)
    parts = urlsplit(url)
    return before + equals + urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _secret(name: str) -> bool:
    return name.lower().endswith(("key", "token", "secret", "password"))


def _environment() -> JsonObject:
    """The settings that the environment gives, those aside that hold a secret or name places of this machine."""
    from toolscout.settings import Settings

    given = {name: os.environ.get(f"TOOLSCOUT_{name.upper()}") for name in Settings.model_fields}
    return {name: _plain(v) for name, v in given.items() if v is not None and name not in _PLACES and not _secret(name)}
