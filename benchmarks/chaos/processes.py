"""Processes by a mark in their environment (Linux's /proc): who is there, whose child, how large."""

from __future__ import annotations

import contextlib
from pathlib import Path


def marked(name: str, value: str) -> list[tuple[int, dict[str, str]]]:
    """Living processes whose environment has ``name=value``, each with its environment."""
    needle = f"{name}={value}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            raw = (entry / "environ").read_bytes()
            if needle not in raw or _stat(int(entry.name))[0] in "ZX":
                continue
        except (OSError, IndexError):
            continue
        pairs = (item.decode("utf-8", "replace").partition("=") for item in raw.split(b"\0") if item)
        found.append((int(entry.name), {key: text for key, _, text in pairs}))
    return found


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()


def descends(pid: int, ancestor: int) -> bool:
    """Whether a process stands below another one; False also when it has just gone."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        while pid > 1:
            if pid == ancestor:
                return True
            pid = int(_stat(pid)[1])
    return False


def rss_mb(pid: int) -> float:
    """Resident memory in MB, 0 when the process has gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
        return int(status.split("VmRSS:")[1].split()[0]) / 1024
    except (OSError, IndexError, ValueError):
        return 0.0


def descriptors(pid: int) -> int:
    """Open file descriptors, 0 when the process has gone."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return 0


def command_of(pid: int) -> str:
    """Its command line, shortened."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")[-160:].strip()
    except OSError:
        return "(gone)"
