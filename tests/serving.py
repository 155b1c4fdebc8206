"""Toolscout, or an upstream, as a process of its own that listens on a free loopback port."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

_START_SECONDS = 120


def environment(home: Path) -> dict[str, str]:
    """The environment of a Toolscout that lives in ``home`` and has no starter set."""
    return {**os.environ, "TOOLSCOUT_HOME": str(home), "TOOLSCOUT_STARTER": "0"}


@contextlib.contextmanager
def listening(command: list[str], place: str = "{port}", env: dict[str, str] | None = None) -> Iterator[str]:
    """Run ``COMMAND PLACE`` until the block ends; yields its base URL once it listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*command, place.format(port=port)], env=env)
    try:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
                break
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{' '.join(command)} did not start.")
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def serving(home: Path) -> contextlib.AbstractContextManager[str]:
    """``toolscout serve --http``; yields its base URL."""
    return listening([sys.executable, "-m", "toolscout", "serve", "--http"], "127.0.0.1:{port}", environment(home))
