"""One confined process: its pipes, bounded; its memory, watched; its end, certain."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

from toolscout.crawler.limits import MIB, Limits
from toolscout.crawler.memory import used
from toolscout.crawler.sandbox import Job, Sandbox
from toolscout.records import JsonObject

_STDERR_HEAD = 16 * 1024
_STDERR_TAIL = 48 * 1024
_WATCH_EVERY = 0.25
_KILL_GRACE = 3.0
_WATCH_SHARE = 20
"""Watching takes a twentieth of the time at most: hundreds of processes are looked at less often."""


class Stderr:
    """What a process said on stderr: beginning and end, bounded."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        """Append; the middle is what gets lost."""
        room = _STDERR_HEAD - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room > 0 else data
        if len(self._tail) > 2 * _STDERR_TAIL:
            del self._tail[:-_STDERR_TAIL]

    @property
    def text(self) -> str:
        """All that is kept."""
        return (bytes(self._head) + bytes(self._tail)).decode("utf-8", "replace")


class Running:
    """A process in a sandbox. Made by `start`; always ended with `stop`.

    ``broken`` says which limit it broke, if any: it has been killed for it.
    """

    def __init__(self, process: asyncio.subprocess.Process, sandbox: Sandbox, job: Job) -> None:
        self.stderr = Stderr()
        self.broken: str | None = None
        self.peak = 0
        """Most memory seen, in bytes."""
        self.noise = bytearray()
        """The first of what it printed on stdout that was no JSON-RPC."""
        self.unfinished = bytearray()
        """The line of stdout that has no end yet: a prompt, as a rule."""
        self.answered = False
        """Whether it has answered a request."""
        self.endpoint: JsonObject = {}
        """Where `toolscout.crawler.bridge` reached it, where that carries its messages."""
        self._process = process
        self._sandbox = sandbox
        self._job = job
        self._printed = 0
        self._tasks = [asyncio.create_task(self._read_stderr()), asyncio.create_task(self._watch(job.limits))]

    @property
    def returncode(self) -> int | None:
        """Exit status, None while it runs. The sandbox reports a signal as 128 plus its number."""
        return self._process.returncode

    async def lines(self) -> AsyncIterator[bytes]:
        """The lines of stdout, without their ends, until it closes."""
        assert self._process.stdout is not None
        while data := await self._process.stdout.read(1 << 16):
            self._printed += len(data)
            if self._printed > self._job.limits.output * MIB:
                self._break(f"it printed more than {self._job.limits.output} MiB")
                return
            self.unfinished += data
            if b"\n" in data:
                *whole, last = bytes(self.unfinished).split(b"\n")
                self.unfinished = bytearray(last)
                for line in whole:
                    yield line
        if self.unfinished:
            yield bytes(self.unfinished)
            self.unfinished.clear()

    async def write(self, data: bytes) -> bool:
        """Send; False when it does not listen any more."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            await self._process.stdin.drain()
        except (OSError, RuntimeError):
            return False
        return True

    def listens(self) -> bool:
        """Whether something in its own network listens on a port."""
        if not self._sandbox.confined:
            return False
        inside = descendants(self._process.pid)[-1]
        with contextlib.suppress(OSError):
            rows = [row for name in ("tcp", "tcp6") for row in _rows(Path(f"/proc/{inside}/net/{name}"))]
            return any(row[3] == "0A" for row in rows)
        return False

    async def exited(self, seconds: float) -> bool:
        """Whether it has exited by then."""
        # Not `wait()`: that also waits until no child holds its pipes any more.
        deadline = asyncio.get_running_loop().time() + seconds
        while self._process.returncode is None and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return self._process.returncode is not None

    async def stop(self) -> None:
        """Kill it and all it has started; returns when they are gone. There is nothing in it to be saved."""
        self._kill()
        await self.exited(_KILL_GRACE)
        # Children hold stderr open: its end says that they are gone, too.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._tasks[0]), _KILL_GRACE)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        transport = getattr(self._process, "_transport", None)
        if transport is not None:
            transport.close()

    def _break(self, reason: str) -> None:
        self.broken = self.broken or reason
        self._kill()

    def _kill(self) -> None:
        kill_all(self._process.pid if self._process.returncode is None else 0, self._strays())

    def _strays(self) -> list[int]:
        """Without a pid namespace children may have left for good: then all of the worker's own user are killed."""
        alone = not self._sandbox.own_pids and os.geteuid() == 0
        return of_user(self._sandbox.uid(self._job.slot)) if alone else []

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(1 << 16):
            self.stderr.add(data)

    async def _watch(self, limits: Limits) -> None:
        while self._process.returncode is None:
            began = time.monotonic()
            held = used(descendants(self._process.pid), limits.memory * MIB)
            self.peak = max(self.peak, held)
            if held > limits.memory * MIB:
                self._break(f"it used more than {limits.memory} MiB of memory")
                return
            await asyncio.sleep(max(_WATCH_EVERY, _WATCH_SHARE * (time.monotonic() - began)))


async def start(sandbox: Sandbox, job: Job) -> Running:
    """Start a job. Raises OSError when the sandbox's own program is missing."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *sandbox.command(job),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={},
            cwd="/",
            start_new_session=True,
        )
    )
    try:
        return Running(await asyncio.shield(starting), sandbox, job)
    except asyncio.CancelledError:
        # Half-started is the worst state to leave: it is let start, then ended.
        await Running(await starting, sandbox, job).stop()
        raise


def kill_all(pid: int, others: Iterable[int] = ()) -> None:
    """Kill a process and all below it. It is stopped first, so that it cannot fork while its children are looked for:
    a sandbox that is killed while it sets itself up would leave them behind."""
    pids = list(others)
    if pid:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGSTOP)
        pids += descendants(pid)
    for found in reversed(pids):
        with contextlib.suppress(OSError):
            os.kill(found, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    """A process and all below it, as far as /proc tells."""
    found, queue = [], [pid]
    while queue:
        pid = queue.pop()
        found.append(pid)
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    queue += map(int, (task / "children").read_text().split())
    return found


def _rows(table: Path) -> list[list[str]]:
    """The rows of one of the kernel's tables of sockets, in words."""
    return [row.split() for row in table.read_text().splitlines()[1:]]


def naming(folder: Path) -> list[int]:
    """All processes whose command line names something in a folder: what an earlier crawl left running when it was
    killed while a sandbox was setting itself up, before that could be tied to its parent's life."""
    found = []
    mark = f"{folder}/".encode()
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and int(entry.name) != os.getpid() and mark in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found


def of_user(uid: int) -> list[int]:
    """All processes of a user."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                found.append(int(entry.name))
    return found
