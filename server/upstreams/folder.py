"""What the home keeps of each server beside its entry: its log, its last failure, the wish to start it anew."""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from toolscout.errors import StorageError
from toolscout.files import write_json
from toolscout.records import canonical_json, sha256_hex

if TYPE_CHECKING:
    from toolscout.server.config import UpstreamConfig

_FOLDER = "servers"
_LONGEST = 150
"""Characters of a name that its files are called by: file systems take 255, some fewer; a hash stands for the rest."""


def restart_file(home: Path, name: str) -> Path:
    """The file whose time says when a person last wanted a server started anew: every process looks at it."""
    return _file(home, name, ".restart")


def log_file(home: Path, name: str) -> Path:
    """What a server has written to stderr; what is older lies in `older`."""
    return _file(home, name, ".log")


def older(log: Path) -> Path:
    """The part of a log that comes before it."""
    return log.with_name(f"{log.name}.1")


def work_folder(home: Path, name: str) -> Path:
    """Make the folder that a server runs in whose entry names none.

    Not the one that Toolscout was started in: that is often an open project, and npx, uv and "python -m" run what they
    find there.
    """
    path = _file(home, name, ".work")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def lock_file(log: Path) -> Path:
    """What a process holds that makes a log the older one."""
    return log.with_name(f"{log.name}.lock")


def ask_restart(home: Path, name: str) -> None:
    """Have every process that runs a server start it anew at its next call."""
    path = restart_file(home, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


@dataclass(frozen=True)
class Failure:
    """Why a server did not start: ``why`` in Toolscout's words, ``said`` the last line of the server's own."""

    why: str
    said: str
    command: str
    """What a person runs about it."""
    at: str
    entry: str
    """The hash of the entry that it was started by: what failed with another says nothing of this one."""

    def shown(self) -> str:
        """For people, with the time."""
        return f"{self.why} ({self.at[:16].replace('T', ' ')} UTC){f' It said: {self.said}' if self.said else ''}"


def note_failure(home: Path, config: UpstreamConfig, error: Exception) -> None:
    """Keep why a server did not start, until it does."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    at = datetime.now(UTC).isoformat(timespec="seconds")
    command = f"toolscout doctor {shlex.quote(config.name)}"
    if names := getattr(error, "names", None):  # of values that it lacks
        command = f"toolscout secret set {' '.join(names)}"
    elif getattr(error, "login", False):
        command = f"toolscout login {shlex.quote(config.name)}"
    failure = Failure(lines[0][:300], lines[-1][:200] if lines[1:] else "", command, at, _of(config))
    with suppress(StorageError):  # a full disk is told elsewhere
        write_json(_file(home, config.name, ".failed"), asdict(failure), mode=0o600)


def forget_failure(home: Path, name: str) -> None:
    """It works again."""
    with suppress(OSError):
        _file(home, name, ".failed").unlink(missing_ok=True)


def last_failure(home: Path, config: UpstreamConfig) -> Failure | None:
    """Why a server did not start when it was last tried with this entry; None where it did."""
    try:
        found = Failure(**json.loads(_file(home, config.name, ".failed").read_text("utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return found if found.entry == _of(config) else None


def _of(config: UpstreamConfig) -> str:
    return sha256_hex(canonical_json(dict(config.fields)))


def forget_files(home: Path, name: str) -> None:
    """Remove what is kept of a server; its work folder only where it has written nothing."""
    log = log_file(home, name)
    forget_failure(home, name)
    for path in (log, older(log), lock_file(log), restart_file(home, name)):
        path.unlink(missing_ok=True)
    with suppress(OSError):
        _file(home, name, ".work").rmdir()


def stamp(path: Path) -> int:
    """When a file was changed; 0 where it is not there."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  (at each call: half as long as Path.stat)
    except OSError:
        return 0


def _file(home: Path, name: str, ending: str) -> Path:
    written = quote(name, safe="")
    if len(written) > _LONGEST:
        written = f"{written[:_LONGEST]}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return home / _FOLDER / (written + ending)
