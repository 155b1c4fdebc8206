"""What the home keeps of each server beside its entry: the wish that it be started anew, which every process sees."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

_FOLDER = "servers"


def restart_file(home: Path, name: str) -> Path:
    """The file whose time says when a person last wanted a server started anew."""
    return home / _FOLDER / f"{quote(name, safe='')}.restart"


def stamp(path: Path) -> int:
    """When a file was changed; 0 where it is not there."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116  (at each call: half as long as Path.stat)
    except OSError:
        return 0
