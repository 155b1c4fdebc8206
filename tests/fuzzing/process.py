"""Lines on the standard input of a real ``toolscout serve``, from its first moment on."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fuzzing.engine import HELLO, Conversation, LineReader, cases, home

SHARE = 4
__all__ = ["SHARE", "cases", "checking"]


@contextmanager
def checking() -> Iterator[Callable[[list[bytes]], None]]:
    """The check of a case against one process that lives for all of them, and must end well."""
    with home() as settings:
        environ = {**os.environ, "TOOLSCOUT_HOME": str(settings.home), "TOOLSCOUT_STARTER": "0"}
        with subprocess.Popen(
            [sys.executable, "-m", "toolscout", "serve"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environ, bufsize=0,
        ) as server:  # fmt: skip
            assert server.stdin is not None and server.stdout is not None
            pipe = server.stdin

            def send(data: bytes) -> None:
                view = memoryview(data)
                while view:
                    view = view[pipe.write(view) or 0 :]

            client = Conversation(send, LineReader(server.stdout.fileno()))
            client.request("initialize", HELLO)
            try:
                yield client.check
            finally:
                pipe.close()
                code = server.wait(60)
        assert code == 0, code
