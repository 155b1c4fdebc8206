"""What the home keeps of each server beside its entry: its log, and the wish that it be started anew."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from urllib.parse import quote

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


def lock_file(log: Path) -> Path:
    """What a process holds that makes a log the older one."""
    return log.with_name(f"{log.name}.lock")


def ask_restart(home: Path, name: str) -> None:
    """Have every process that runs a server start it anew at its next call."""
    path = restart_file(home, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()


def forget_files(home: Path, name: str) -> None:
    """Remove what is kept of a server."""
    log = log_file(home, name)
    for path in (log, older(log), lock_file(log), restart_file(home, name)):
        path.unlink(missing_ok=True)


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
