"""Runs Toolscout's command line in a forked process that is killed with SIGKILL at a point that is told.

Forked from a process that has imported everything: a start costs milliseconds then, and the points fall into the work
instead of the imports.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_HEAVY = ("sqlmodel", "alembic.command", "alembic.config", "faiss", "onnxruntime", "tokenizers", "toolscout.cli",
          "toolscout.commands.catalog", "toolscout.commands.reviewing", "toolscout.commands.crawl",
          "toolscout.crawler.crawl", "toolscout.server.engine", "toolscout.index.build", "toolscout.index.search",
          "toolscout.index.transfer", "toolscout.index.guard", "toolscout.server.upstreams.pool")  # fmt: skip
_POSIX = frozenset(
    (
        "write",
        "rename",
        "replace",
        "unlink",
        "remove",
        "mkdir",
        "rmdir",
        "fsync",
        "link",
        "symlink",
        "open",
        "ftruncate",
    )
)
_FILES = frozenset(("write", "close", "flush", "open", "tofile", "truncate"))
_SQL = frozenset(("execute", "executemany", "executescript", "commit", "rollback", "close"))


@dataclass(frozen=True)
class Ending:
    """When to die: at the ``effect``-th effect, before or after it, or after ``seconds``; ``count`` only counts."""

    effect: int = -1
    before: bool = True
    seconds: float = -1.0
    count: bool = False

    def __str__(self) -> str:
        if self.effect >= 0:
            return f"{'before' if self.before else 'after'} effect {self.effect}"
        return f"after {self.seconds:.3f} s"


@dataclass(frozen=True)
class Ended:
    """``code`` as in `subprocess`, what was ``said`` on both outputs, and how many ``effects`` were counted."""

    code: int
    said: str
    effects: int = 0


def import_all() -> None:
    """Import what the commands would."""
    for name in _HEAVY:
        importlib.import_module(name)


def run_cli(line: Sequence[str], environment: Mapping[str, str], ending: Ending | None = None) -> Ended:
    """``toolscout ...`` in a fork of this process; killed as ``ending`` says, else to its end."""
    with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as counted:
        pid = os.fork()
        if pid == 0:
            _child(line, environment, ending, said.fileno(), counted.fileno())
        if ending is not None and ending.seconds >= 0:
            time.sleep(ending.seconds)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said.seek(0)
        counted.seek(0)
        return Ended(code, said.read().decode("utf-8", "replace"), int(counted.read() or b"0"))


def _child(line: Sequence[str], environment: Mapping[str, str], ending: Ending | None, said: int, counted: int) -> None:
    code = 70
    try:
        os.setsid()
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.environ.update(environment)
        sys.argv = ["toolscout", *line]
        counter = _Counter(ending)
        if ending is not None and (ending.count or ending.effect >= 0):
            threading.setprofile(counter)
            sys.setprofile(counter)
        try:
            from toolscout.__main__ import main

            main()
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
        finally:
            sys.setprofile(None)
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(counted, str(counter.seen).encode())
    except BaseException:
        import traceback

        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)


class _Counter:
    """A profile function that counts calls with an effect, in all threads, and kills at the one that is told."""

    def __init__(self, ending: Ending | None) -> None:
        self.seen = 0
        self._at = ending.effect if ending is not None else -1
        self._event = "c_call" if ending is None or ending.before else "c_return"
        self._kill: Callable[[int, int], None] = os.kill

    def __call__(self, frame: Any, event: str, function: Any) -> None:
        if event != self._event or not _has_effect(function):
            return
        if self.seen == self._at:
            self._kill(os.getpid(), signal.SIGKILL)
        self.seen += 1


def _has_effect(function: Any) -> bool:
    name = getattr(function, "__name__", "")
    if function.__module__ == "posix":
        return name in _POSIX
    kind = type(getattr(function, "__self__", None))
    if kind.__module__ == "sqlite3":
        return name in _SQL
    return name in _FILES and (kind.__module__ in ("_io", "numpy") or function.__module__ in ("_io", "io"))
