"""vLLM as a child process: started in a session of its own, watched until it is healthy, and surely ended."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from toolscout.errors import BadInput, ModelError, NotAllowed
from toolscout.server.upstreams.process import Tail
from toolscout.server.upstreams.watchdog import (
    MARKER,
    Watchdog,
    group_members,
    marked_processes,
    signal_group,
    signal_processes,
)

_POLL = 0.5
_TERM_GRACE = 20.0
"""Seconds for vLLM's orderly end: its engine takes a few, more on a busy machine."""
_KILL_GRACE = 3.0

# What vLLM says last is that something failed "above"; what failed is the last error before that.
_CAUSE = re.compile(r"((?:\w+\.)*\w*(?:Error|Exception)): (.+)")
_NO_CAUSE = re.compile(r"[Ee]ngine core initialization failed|See (?:root cause|stack trace) \(?above")


class ModelServer:
    """One vLLM process. ``url`` is the address that clients use (it ends in ``/v1``).

    :param on_line: gets each line of its log, in another thread.
    """

    def __init__(
        self,
        command: Sequence[str],
        env: Mapping[str, str],
        url: str,
        *,
        on_line: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.command = list(command)
        self.env = dict(env)
        self.url = url
        self.log = Tail()
        self._on_line = on_line
        self._marker = f"serve-{os.getpid()}-{secrets.token_hex(4)}"
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: Watchdog | None = None
        self._reader: threading.Thread | None = None

    @property
    def pid(self) -> int | None:
        """Process id, also that of its group; None before the start."""
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start the process; it is not ready yet. Raises ModelError, NotAllowed on Windows."""
        if os.name != "posix":
            raise NotAllowed("vLLM does not run on Windows.", "Use WSL 2, or a GGUF model: toolscout model pull")
        self._watchdog = Watchdog(self._marker)
        try:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**self.env, MARKER: self._marker},
            )
        except OSError as error:
            self._watchdog.close()
            raise ModelError(
                f"{self.command[0]} could not be started: {error.strerror}.", "Check --python or --env."
            ) from None
        self._watchdog.add(self._process.pid)
        self._reader = threading.Thread(target=self._read, name="toolscout-vllm-log", daemon=True)
        self._reader.start()

    def wait_healthy(self, seconds: float, tick: Callable[[float], None] = lambda waited: None) -> float:
        """Seconds until ``/health`` answered. Raises ModelError with vLLM's last words when it dies or hangs."""
        import httpx

        begun = time.monotonic()
        address = self.url.removesuffix("/v1") + "/health"
        with httpx.Client(timeout=5, trust_env=False) as client:
            while (waited := time.monotonic() - begun) < seconds:
                self.check_alive("while starting")
                with contextlib.suppress(httpx.HTTPError):
                    if client.get(address).status_code == 200:
                        return waited
                tick(waited)
                time.sleep(_POLL)
        raise ModelError(
            f"vLLM was not ready after {seconds:g} s.{self._last_words()}", "Give it longer: --wait SECONDS"
        )

    def check_alive(self, when: str = "") -> None:
        """Raises ModelError with the cause and the last lines of the log if it has ended."""
        assert self._process is not None
        code = self._process.poll()
        if code is None:
            return
        if self._reader is not None:
            self._reader.join(2)
        how = f"was killed by {_signal_name(-code)}" if code < 0 else f"ended with status {code}"
        hint = "Memory may be short: a smaller --context, or --cache-gib 1." if code == -signal.SIGKILL else ""
        raise ModelError(f"vLLM {how}{' ' + when if when else ''}.{self._last_words()}", hint)

    def wait(self) -> None:
        """Return never while it lives; raises ModelError when it dies."""
        while True:
            self.check_alive()
            time.sleep(_POLL)

    def stop(self) -> None:
        """End it and everything it has started; returns when that is gone. May be called twice."""
        process = self._process
        if process is None:
            return
        # Its own handler first, which ends the engine in order; what does not follow is killed.
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_TERM_GRACE)
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self._left():
                break
            signal_group(process.pid, number)
            signal_processes(marked_processes(self._marker), number)
            self._until_gone(_KILL_GRACE)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_KILL_GRACE)
        if self._watchdog is not None:
            self._watchdog.remove(process.pid)
            self._watchdog.close()
            self._watchdog = None
        self._process = None

    def _left(self) -> bool:
        assert self._process is not None
        self._process.poll()
        return bool(group_members(self._process.pid)) or bool(marked_processes(self._marker))

    def _until_gone(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self._left() and time.monotonic() < deadline:
            time.sleep(0.05)

    def _read(self) -> None:
        assert self._process is not None and self._process.stdout is not None
        for line in self._process.stdout:
            self.log.add(line)
            self._on_line(line.decode("utf-8", "replace").rstrip("\n"))

    def _last_words(self) -> str:
        text = self.log.text(lines=400, characters=60_000)
        causes = [m for m in _CAUSE.finditer(text) if not _NO_CAUSE.search(m[0])]
        cause = f" {causes[-1][1].rpartition('.')[2]}: {causes[-1][2].strip()[:300]}" if causes else ""
        last = self.log.text()
        return f"{cause}\n\nIts last lines:\n{last}\n" if last else f"{cause} It wrote nothing."


def free_port(host: str, port: int, hint: str = "Choose another --port; 0 takes a free one.") -> int:
    """``port`` if it is free, any free one for 0. Raises BadInput, with ``hint``, if something else listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise BadInput(f"Nothing can listen on {host}:{port}: {error.strerror}.", hint) from None
        return int(probe.getsockname()[1])


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
