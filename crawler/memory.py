"""How much memory processes hold, shared kinds included: memfds, shared anonymous memory, System V segments.

Cheap on the whole: two small files of /proc a process. Only a sum above the limit is worth reading all mappings, since
that sum counts twice what is mapped by several processes, or is a memfd and mapped.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

_STATUS = re.compile(rb"^Rss(Anon|Shmem):\s+(\d+) kB", re.M)
_MAPPING = re.compile(rb"^[0-9a-f]+-[0-9a-f]+ \S+ \S+ (\S+) (\d+) *(.*)$")
_SHARED = (b"/memfd:", b"/dev/zero (deleted)", b"/SYSV", b"/dev/shm/", b"/tmp/")
_BLOCK = 512


def used(pids: Iterable[int], limit: int) -> int:
    """Bytes of memory that processes hold; exact where it matters, so never above the limit by counting twice.

    Not seen: a memfd on its way through a socket, a System V segment that none has attached, and files, which their
    file system bounds.
    """
    pids = list(pids)
    private, shared = 0, {}
    for pid in pids:
        anonymous, mapped = _resident(pid)
        private += anonymous
        if mapped:
            shared[pid] = mapped
    files = _memfds(pids)
    rough = private + sum(files.values()) + sum(shared.values())
    if rough <= limit or not shared:
        return rough
    return private + sum(files.values()) + sum(_mapped(pid, files.keys()) for pid in shared)


def _resident(pid: int) -> tuple[int, int]:
    """Bytes of private and of shared memory in a process; zeros when it is gone."""
    try:
        with open(f"/proc/{pid}/status", "rb", buffering=0) as file:  # noqa: PTH123
            found = {kind: int(kib) * 1024 for kind, kib in _STATUS.findall(file.read())}
    except OSError:
        return 0, 0
    return found.get(b"Anon", 0), found.get(b"Shmem", 0)


def _memfds(pids: Iterable[int]) -> dict[int, int]:
    """Bytes of the memfds that processes hold open, by inode: one that several hold is there once."""
    found: dict[int, int] = {}
    for pid in pids:
        folder = f"/proc/{pid}/fd/"
        with contextlib.suppress(OSError):
            for name in os.listdir(folder):  # noqa: PTH208 - done four times a second for each worker: bare calls
                with contextlib.suppress(OSError):
                    if os.readlink(folder + name).startswith("/memfd:"):  # noqa: PTH115
                        said = os.stat(folder + name)  # noqa: PTH116
                        found[said.st_ino] = said.st_blocks * _BLOCK
    return found


def _mapped(pid: int, counted: Iterable[int]) -> int:
    """A process's part of the shared memory it maps, without files that are counted already."""
    skip, total, counts = set(counted), 0, False
    with contextlib.suppress(OSError), Path(f"/proc/{pid}/smaps").open("rb") as lines:
        for line in lines:
            if match := _MAPPING.match(line.rstrip()):
                counts = match[3].startswith(_SHARED) and not (
                    match[3].startswith(b"/memfd:") and int(match[2]) in skip
                )
            elif counts and line.startswith(b"Pss:"):
                total += int(line.split()[1]) * 1024
    return total
