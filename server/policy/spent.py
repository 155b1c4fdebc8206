"""Approvals that were used: a yes holds once, however often a client sends it and whichever worker it reaches.

An empty file for each, in the home folder: made by one process alone, seen by all, and still there after a restart.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import time
from pathlib import Path

logger = logging.getLogger(__name__)

_FOLDER = "spent"
_KEPT_SECONDS = 86_400.0
"""Far longer than the seal of a state holds."""

_SWEEP_SECONDS = 600.0
_NONCE = re.compile(r"[0-9a-f]{8,64}")


class Spent:
    """The used approvals of one home folder."""

    def __init__(self, home: Path) -> None:
        self._folder = home / _FOLDER
        self._swept = 0.0

    def __contains__(self, nonce: str) -> bool:
        return not _NONCE.fullmatch(nonce) or (self._folder / nonce).exists()

    def add(self, nonce: str) -> bool:
        """Use it; False where another was quicker, or it cannot be noted: then it must not count."""
        if not _NONCE.fullmatch(nonce):
            return False
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(self._folder / nonce, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
        except OSError as error:
            logger.error("An approval cannot be noted as used in %s: %s.", self._folder, error.strerror)
            return False
        self._sweep()
        return True

    def _sweep(self) -> None:
        now = time.time()
        if now - self._swept < _SWEEP_SECONDS:
            return
        self._swept = now
        with contextlib.suppress(OSError):
            for file in self._folder.iterdir():
                with contextlib.suppress(OSError):  # another worker may sweep, too
                    if now - file.stat().st_mtime > _KEPT_SECONDS:
                        file.unlink()
