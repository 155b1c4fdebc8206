"""The last line against orphans: a tiny process that outlives Toolscout by a second and ends its upstreams.

When Toolscout is killed with SIGKILL nothing inside it can clean up, and an upstream that ignores the end of its
stdin would live on. The watchdog holds the reading end of a pipe; end of file means that Toolscout is gone, however
it went. It then ends every process group it was told of and, on Linux, every process that carries the pool's marker
in its environment (grandchildren that left their group included). It is started in a session of its own, uses the
standard library alone, and does nothing while Toolscout lives.

This file is also the program: it is run as a script, so it must not import anything of Toolscout.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

MARKER = "TOOLSCOUT_POOL"
"""Environment variable that marks every process that comes from a pool."""

MARKER_BYTES = MARKER.encode()


def marked_processes(marker: str) -> list[int]:
    """Ids of living processes whose marker is ``marker`` or lies below it (Linux; empty elsewhere).

    Markers are paths: ``<pool>/<process>``, so that the pool's own marker covers all of its processes.
    """
    needle = f"{MARKER}={marker}".encode()
    below = needle + b"/"
    found = []
    own = os.getpid()
    try:
        entries = os.listdir("/proc")  # noqa: PTH208  (a scan of thousands of entries: names are enough)
    except OSError:
        return []
    for entry in entries:
        if not entry.isdigit() or int(entry) == own:
            continue
        environment = _read(f"/proc/{entry}/environ")
        if MARKER_BYTES not in environment:
            continue
        if any(item == needle or item.startswith(below) for item in environment.split(b"\0")):
            found.append(int(entry))
    return found


def group_members(group: int) -> list[int] | None:
    """Living (not zombie) members of a process group; None where there is no /proc to ask."""
    try:
        entries = os.listdir("/proc")  # noqa: PTH208
    except OSError:
        return None
    members = []
    for entry in entries:
        if not entry.isdigit():
            continue
        # The command name stands in parentheses and may hold anything, spaces and parentheses included.
        fields = _read(f"/proc/{entry}/stat").rpartition(b")")[2].split()
        if len(fields) > 2 and int(fields[2]) == group and fields[0] not in (b"Z", b"X"):
            members.append(int(entry))
    return members


def _read(path: str) -> bytes:
    """A small file; empty when it has gone or is another user's. (Path objects would intern every process id.)"""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123
            return file.read()
    except OSError:
        return b""


def signal_group(group: int, number: int) -> bool:
    """Signal a process group; False when there is none any more."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # some member is another user's: the others got it
    return True


def signal_processes(pids: list[int], number: int) -> None:
    """Signal single processes, those that are gone already ignored."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


class Watchdog:
    """Handle of the watchdog process of one pool. Where it can't be started, all methods do nothing."""

    def __init__(self, marker: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        if os.name != "posix" or not sys.executable:
            return
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, marker],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                # A Toolscout that is itself somebody's upstream: whoever ends that must not end this too early.
                env={name: value for name, value in os.environ.items() if name != MARKER},
            )

    @property
    def pid(self) -> int | None:
        """Process id, None where there is no watchdog."""
        return self._process.pid if self._process else None

    def add(self, group: int) -> None:
        """A process group that must not outlive Toolscout."""
        self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        """A process group that has ended."""
        self._tell(f"-{group}\n")

    def close(self) -> None:
        """Let it go: it ends what is left, which after an orderly close is nothing."""
        if self._process is None:
            return
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)

    def _tell(self, line: str) -> None:
        if self._process is None or self._process.stdin is None:
            return
        with contextlib.suppress(OSError, ValueError):
            self._process.stdin.write(line.encode())
            self._process.stdin.flush()


def _watch(marker: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        with contextlib.suppress(ValueError):
            (groups.add if line.startswith("+") else groups.discard)(int(line[1:]))
    groups = {group for group in groups if signal_group(group, signal.SIGTERM)}
    signal_processes(marked_processes(marker), signal.SIGTERM)
    deadline = time.monotonic() + 1.0
    while time.monotonic() < deadline:
        groups = {group for group in groups if group_members(group) != []}
        if not groups and not marked_processes(marker):
            return
        time.sleep(0.05)
    for group in groups:
        signal_group(group, signal.SIGKILL)
    signal_processes(marked_processes(marker), signal.SIGKILL)


if __name__ == "__main__":
    _watch(sys.argv[1])
