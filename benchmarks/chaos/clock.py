"""A wall clock of one's own for a process and its children: `clock.c`, compiled here and preloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")
_PROBE = "import time; print(time.time() - {now} > 3600, abs(time.monotonic() - {steady}) < 600); time.sleep(0.01)"


class Clock:
    """`environment` makes a process see it; `jump` sets it off by so many seconds. ``trouble``: why there is none."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "clock"
        self._library = folder / "clock.so"
        self.jump(0)
        self.trouble = self._build()

    @property
    def environment(self) -> dict[str, str]:
        """What to add to a process's environment; empty where there is trouble."""
        return {} if self.trouble else {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file)}

    def jump(self, seconds: int) -> None:
        """From now on the clock is off by so many seconds."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(str(seconds))
        fresh.replace(self._file)

    def _build(self) -> str:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            return "there is no C compiler (cc) to make the clock with"
        made = subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            return f"the clock could not be compiled: {made.stderr.strip()[:200]}"
        self.trouble = ""
        self.jump(7200)
        said = subprocess.run(
            [sys.executable, "-c", _PROBE.format(now=int(time.time()), steady=int(time.monotonic()))],
            env={**os.environ, **self.environment}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.jump(0)
        return "" if said.stdout.strip() == "True True" else f"the clock does not move: {said.stderr.strip()[-200:]}"
