"""What servers write to stderr, kept in the home: the last lines of each, without the secrets that it was given."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from pathlib import Path

from filelock import FileLock, Timeout

from toolscout.server.secrecy.hiding import Hider
from toolscout.server.secrecy.suspect import hide_suspect
from toolscout.server.upstreams.folder import lock_file, older

_FILE_BYTES = 128 * 1024
"""A file that is larger becomes the older one of two."""

_WAITING_BYTES = 64 * 1024
_WRITE_SECONDS = 0.5


class ServerLog:
    """The log of one process. Several may write to a file: lines stay whole.

    Written twice a second at most; of a flood only the end, so that it costs neither time nor room.
    """

    def __init__(self, path: Path, hider: Hider) -> None:
        self._path = path
        self._hider = hider
        self._waiting = bytearray()
        self._dropped = 0
        self._cut = False
        """Whether the last text that was written ended within a line: the next begins within one."""
        self._timer: asyncio.TimerHandle | None = None

    def add(self, data: bytes) -> None:
        """Take what came on stderr."""
        self._waiting += data[-_WAITING_BYTES:]
        self._dropped += max(0, len(data) - _WAITING_BYTES)
        if (beyond := len(self._waiting) - _WAITING_BYTES) > 0:
            del self._waiting[:beyond]
            self._dropped += beyond
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_WRITE_SECONDS, self._write)

    def note(self, text: str) -> None:
        """Write a line of Toolscout's own, after all that came before."""
        if self._timer is not None:
            self._timer.cancel()
        self._write(ended=True)
        self._append([f"[toolscout] {text}"])

    def _write(self, *, ended: bool = False) -> None:
        self._timer = None
        # A line that has not ended may be half of a secret; one that fills all there is room for is cut.
        end = len(self._waiting) if ended or self._dropped else self._waiting.rfind(b"\n") + 1
        text, cut = self._waiting[:end].decode("utf-8", "replace"), self._dropped
        del self._waiting[:end]
        self._dropped = 0
        front, self._cut = cut > 0 or self._cut, bool(text) and not text.endswith("\n")
        text = self._hider.hide_cut(text, front=front) if front or self._cut else self._hider.hide(text)
        # What it was called with is no secret of its own: in a log that stays, what looks like one is hidden, too.
        lines = [hide_suspect(line.rstrip()) for line in text.splitlines() if line.strip()]
        if cut:
            lines[:1] = [f"[toolscout] {cut:,} bytes were left out here"]
        if lines:
            self._append(lines)

    def _append(self, lines: list[str]) -> None:
        now = time.strftime("%Y-%m-%d %H:%M:%S")
        data = "".join(f"{now} {line}\n" for line in lines).encode("utf-8", "replace")
        with contextlib.suppress(OSError, Timeout):  # a full disk stops no server
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                os.write(file, data)
                full = os.fstat(file).st_size > _FILE_BYTES
            finally:
                os.close(file)
            if full:
                with FileLock(lock_file(self._path), timeout=0):  # else another process does it, or just has
                    if self._path.stat().st_size > _FILE_BYTES:
                        self._path.replace(older(self._path))
