"""One upstream process: its pipes, its stderr, and its certain end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

from toolscout.errors import UpstreamError
from toolscout.server.upstreams.watchdog import MARKER, group_members, marked_processes, signal_group, signal_processes

if TYPE_CHECKING:
    from toolscout.server.sandbox.box import Box, Opened
    from toolscout.server.secrecy.hiding import Hider

STDERR_KEPT = 64 * 1024
"""Bytes of stderr kept per upstream; older ones are dropped."""

_EOF_GRACE = 0.5
"""Seconds a server has to leave by itself once its stdin has ended."""
_TERM_GRACE = 1.5
_KILL_GRACE = 3.0
_STRAY_GRACE = 0.5
_POLL = 0.02


def find_program(command: str, cwd: str | None, path: str | None) -> str | None:
    """The file that a command runs, or None. One with a folder in it is looked for from ``cwd``, as a shell does."""
    command = os.path.expanduser(command)  # noqa: PTH111  (a Path would lose what a lone "./" says)
    if cwd and Path(command).name != command:
        command = str(Path(cwd).expanduser() / command)
    # What PATH names relative to the current folder would be looked for in the open project.
    folders = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    return shutil.which(command, path=os.pathsep.join(filter(os.path.isabs, folders)))


class Tail:
    """The end of a stream of bytes, bounded."""

    def __init__(self, limit: int = STDERR_KEPT) -> None:
        self._limit = limit
        self._data = bytearray()
        self._shown: tuple[object, str] = (None, "")
        self._follow: Callable[[bytes], None] | None = None
        self.total = 0

    def follow(self, take: Callable[[bytes], None]) -> None:
        """Hand on what is kept, and all that comes."""
        take(bytes(self._data))
        self._follow = take

    def add(self, data: bytes) -> None:
        """Append; what no longer fits is dropped at the front."""
        self.total += len(data)
        if self._follow is not None:
            self._follow(data)
        if len(data) >= self._limit:
            self._data[:] = data[len(data) - self._limit :]
            return
        self._data += data
        if len(self._data) > 2 * self._limit:
            del self._data[: -self._limit]

    def text(self, lines: int = 12, characters: int = 1500, hider: Hider | None = None) -> str:
        """The last lines, at most so many characters. ``hider`` sees all that is kept before it is cut: half of a
        secret would not be recognised any more."""
        asked = (self.total, lines, characters, hider)
        if self._shown[0] != asked:
            said = self._data.decode("utf-8", "replace")
            if hider is not None:
                said = hider.hide_cut(said, front=self.total > len(self._data))
            kept = "\n".join([line.rstrip() for line in said.splitlines() if line.strip()][-lines:])
            self._shown = (asked, kept if len(kept) <= characters else "..." + kept[-characters:])
        return self._shown[1]


class UpstreamProcess(asyncio.SubprocessProtocol):
    """A child process in its own session, driven by callbacks: no task, no thread and no stream per line.

    ``on_stdout`` gets the bytes as they come; ``on_closed`` is called once, when stdout has ended or the process
    has exited, whichever is first. Stderr goes to a bounded :class:`Tail`, so that a flood never blocks the child.
    """

    def __init__(self, on_stdout: Callable[[bytes], None], on_closed: Callable[[], None]) -> None:
        self.stderr = Tail()
        self.noise = Tail(0)
        self.pid = 0
        self.returncode: int | None = None
        self._on_stdout = on_stdout
        self._on_closed = on_closed
        self._closed = False
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._exited = asyncio.Event()
        self._writable = asyncio.Event()
        self._writable.set()
        self._marker = ""
        self._ended_by_us = False
        self._sandbox: Opened | None = None

    @classmethod
    async def start(
        cls,
        command: str,
        args: tuple[str, ...],
        env: Mapping[str, str],
        cwd: str | None,
        *,
        marker: str,
        on_stdout: Callable[[bytes], None],
        on_closed: Callable[[], None],
    ) -> UpstreamProcess:
        """Spawn the command with exactly ``env`` (plus the marker). Raises UpstreamError if that is impossible."""
        full_env = {**env, MARKER: marker}
        program = find_program(command, cwd, full_env.get("PATH"))
        if program is None:
            raise CommandNotFound(command)
        self = cls(on_stdout, on_closed)
        self._marker = marker
        await self._spawn(command, [program, *args], full_env, cwd)
        return self

    @classmethod
    async def start_in(
        cls, box: Box, *, marker: str, on_stdout: Callable[[bytes], None], on_closed: Callable[[], None]
    ) -> UpstreamProcess:
        """Spawn what a sandbox holds. Raises UpstreamError, or NotAllowed where the sandbox cannot be made."""
        self = cls(on_stdout, on_closed)
        self._marker = marker
        with box.open(marker) as opened:
            self._sandbox = opened
            await self._spawn(box.argv[0], opened.argv, opened.env, None, opened.fds)
        return self

    async def _spawn(
        self, command: str, argv: list[str], env: Mapping[str, str], cwd: str | None, fds: tuple[int, ...] = ()
    ) -> None:
        try:
            await asyncio.get_running_loop().subprocess_exec(
                lambda: self,
                *argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(env),
                cwd=cwd,
                start_new_session=True,
                creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
                pass_fds=fds,
            )
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise UpstreamError(
                f"'{command}' could not be started: {reason}.", hint="Check its command, arguments and working folder."
            ) from None

    # asyncio.SubprocessProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transports."""
        self._transport = cast("asyncio.SubprocessTransport", transport)
        self.pid = self._transport.get_pid()
        self._stdin = cast("asyncio.WriteTransport", self._transport.get_pipe_transport(0))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Stdout to the framing, stderr to the tail."""
        if fd == 1:
            self._on_stdout(data)
        else:
            self.stderr.add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """The end of stdin or stdout is the end of the conversation."""
        if fd in (0, 1):
            self._close()

    def process_exited(self) -> None:
        """Note the exit status."""
        if self._transport is not None:
            self.returncode = self._transport.get_returncode()
        self._exited.set()
        # What it wrote last may still be in the pipe: the end of stdout closes; this is for children that keep it open.
        asyncio.get_running_loop().call_later(0.2, self._close)

    def pause_writing(self) -> None:
        """The child does not read: hold further requests."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """The child reads again."""
        self._writable.set()

    @property
    def sandboxed(self) -> bool:
        """Whether it runs in a sandbox."""
        return self._sandbox is not None

    # for the dispatcher

    @property
    def writable(self) -> bool:
        """False while the child's stdin is full."""
        return self._writable.is_set()

    async def wait_writable(self) -> None:
        """Wait until the child reads again, or has gone."""
        await self._writable.wait()

    def write(self, data: bytes) -> bool:
        """Write without waiting. False when the child certainly got none of it."""
        stdin = self._stdin
        if self._closed or stdin is None or stdin.is_closing():
            return False
        fresh = stdin.get_write_buffer_size() == 0
        stdin.write(data)
        # With nothing queued the write was tried at once: a broken pipe has closed the transport by now.
        return not (fresh and stdin.is_closing())

    async def stop(self, *, grace: float = _EOF_GRACE) -> None:
        """End the process and everything it has started; returns when it is gone.

        The protocol's order: end of stdin, then SIGTERM to the group, then SIGKILL. When cancelled there is no time
        left for manners: everything is killed at once.
        """
        self._close()
        if self._stdin is not None and not self._stdin.is_closing():
            # abort, not close: close would first wait until a child that does not read has read it all
            self._stdin.abort()
        try:
            if not await self._exit_within(grace):
                self._ended_by_us = True
                self._terminate()
                if not await self._exit_within(_TERM_GRACE):
                    self._kill()
                    await self._exit_within(_KILL_GRACE)
            await self._end_rest()
        except asyncio.CancelledError:
            self._kill()
            signal_processes(marked_processes(self._marker), getattr(signal, "SIGKILL", signal.SIGTERM))
            raise
        finally:
            if self._transport is not None:
                with contextlib.suppress(PermissionError, ProcessLookupError):
                    self._transport.close()
            if self._sandbox is not None:
                self._sandbox.close()
            if self._exited.is_set():
                # Cut the cycles: thousands of starts must not pile up until the garbage collector comes by.
                self._transport = self._stdin = None
                self._on_stdout, self._on_closed = _ignore, _nothing

    def describe_exit(self) -> str:
        """How it ended, in words."""
        code = self.returncode
        if code is None or self._ended_by_us:
            return "closed its output"
        if self._sandbox is not None and 128 < code < 128 + signal.NSIG:
            code = 128 - code  # bubblewrap says it as shells do
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"exited with status {code}"

    async def wait_exit(self, seconds: float) -> None:
        """Give the exit status a moment to arrive after stdout has ended."""
        await self._exit_within(seconds)

    def _close(self) -> None:
        if not self._closed:
            self._closed = True
            self._writable.set()
            self._on_closed()

    async def _exit_within(self, seconds: float) -> bool:
        if not self._exited.is_set():
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._exited.wait(), seconds)
        return self._exited.is_set()

    def _signal(self, number: int) -> bool:
        if sys.platform == "win32":
            return False
        return signal_group(self.pid, number)

    def _terminate(self) -> None:
        inside = self._sandbox.group() if self._sandbox is not None else None
        if inside is None:
            self._signal(signal.SIGTERM)
        else:
            signal_group(inside, signal.SIGTERM)

    def _kill(self) -> None:
        if sys.platform == "win32":
            subprocess.run(["taskkill", "/F", "/T", "/PID", str(self.pid)], capture_output=True, check=False)
        else:
            self._signal(signal.SIGKILL)

    async def _end_rest(self) -> None:
        """Children that outlived the process: first those of its group, then those that left it."""
        if sys.platform == "win32":
            return
        if self._signal(0) and self._alive():
            for number, patience in ((signal.SIGTERM, _TERM_GRACE), (signal.SIGKILL, _KILL_GRACE)):
                self._signal(number)
                if await self._until(lambda: not self._alive(), patience):
                    break
        strays = await asyncio.to_thread(marked_processes, self._marker)
        for number, patience in ((signal.SIGTERM, _STRAY_GRACE), (signal.SIGKILL, _KILL_GRACE)):
            signal_processes(strays, number)
            if not strays or await self._until(lambda: not marked_processes(self._marker), patience):
                return
            strays = marked_processes(self._marker)

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        while not (met := condition()) and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(_POLL)
        return met

    def _alive(self) -> bool:
        members = group_members(self.pid)
        return self._signal(0) if members is None else bool(members)


def _ignore(data: bytes) -> None:
    """What comes after the end."""


def _nothing() -> None:
    """The end after the end."""


class CommandNotFound(UpstreamError):
    """The program that starts an upstream is not installed."""

    def __init__(self, command: str) -> None:
        hints = {
            "npx": "Install Node.js, which brings npx.",
            "node": "Install Node.js.",
            "uvx": "Install uv (pip install uv), which brings uvx.",
            "uv": "Install uv (pip install uv).",
            "docker": "Install Docker and start it.",
            "deno": "Install Deno.",
            "bunx": "Install Bun.",
        }
        name = Path(command).name.removesuffix(".cmd").removesuffix(".exe")
        super().__init__(
            f"The command '{command}' was not found.", hint=hints.get(name, "Install it or give its full path.")
        )
