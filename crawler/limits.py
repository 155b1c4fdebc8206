"""What a foreign server may use up."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True)
class Limits:
    """Limits of one start. Sizes in MiB, times in seconds."""

    seconds: float = 25.0
    """Wall time from the start to the end of the listing."""

    memory: int = 2048
    """Memory of all its processes together: private, shared and in memfds."""

    processes: int = 256
    """Processes and threads."""

    disk: int = 256
    """What it may write to ``/tmp``, and as much to each writable copy of its own folder: all in memory, outside
    ``memory``, and gone with it."""

    shared: int = 64
    """What it may write to ``/dev/shm``."""

    files: int = 2048
    """Open files of one process."""

    output: int = 64
    """What it may print on stdout; a listing of thousands of tools takes a few."""

    install_seconds: float = 120.0
    install_disk: int = 1024
    """Size of an installation."""
