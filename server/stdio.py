"""Serving over stdin and stdout: first the gate, then the engine, on the same two descriptors.

The SDK's stdio transport is fed with line objects of ours instead of its own wrapped files: those hand every line
through a worker thread, and a pipe needs none.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscout.errors import ToolscoutError
from toolscout.server import face
from toolscout.server.gate import Handover, hold, write_all

if TYPE_CHECKING:
    from toolscout.server.engine import Engine
    from toolscout.settings import Settings

_FACE_SECONDS = 5.0

MAX_LINE = 64 * 1024 * 1024
"""Longest message accepted on stdin, in bytes."""


def run_stdio() -> None:
    """Serve one client on stdin and stdout until it closes them."""
    fd_in, fd_out = _claim_standard_streams()
    loaded: list[Any] = []
    answers = face.load(_home())
    handover = hold(answers, lambda: loaded.append(_load()), fd_in, fd_out)
    if handover.error is not None:
        raise handover.error
    if handover.eof and not handover.wanted and not handover.rest.strip():
        # Nothing is left to do, and a thread may still be importing: leave without tearing the interpreter down.
        os._exit(0)
    settings, serve = loaded[0]
    asyncio.run(serve(settings, handover, json.dumps(answers), fd_in, fd_out))


def _home() -> Path:
    """The home folder without the settings machinery, whose import costs more than the gate may take."""
    if home := os.environ.get("TOOLSCOUT_HOME"):
        return Path(home).expanduser()
    from platformdirs import user_data_path

    return user_data_path("toolscout")


def _load() -> Any:
    from toolscout.server import app, engine  # noqa: F401  (their import is what takes the time)
    from toolscout.server.telling.logs import configure_logging
    from toolscout.settings import load_settings

    settings = load_settings()
    configure_logging(settings)
    return settings, _serve


async def _serve(settings: Settings, handover: Handover, told: str, fd_in: int, fd_out: int) -> None:
    """Run the engine; ``told`` is what the gate may have answered, as text."""
    from mcp.server.stdio import stdio_server

    from toolscout.server.app import App
    from toolscout.server.engine import Engine

    async with Engine(settings, serving=True) as engine:
        app = App(engine)
        source = _Lines(handover, fd_in)
        sink = _Sink(handover.muted, fd_out)
        engine.on_change = lambda: _announce(engine.behind, told, source, sink)
        face_task = asyncio.create_task(_keep_face(app, settings))
        await source.open()
        await sink.open()
        try:
            async with app.fastmcp._lifespan_manager(), stdio_server(stdin=source, stdout=sink) as (read, write):  # type: ignore[arg-type]
                await app.lowlevel.run(read, write, app.lowlevel.create_initialization_options())
        finally:
            # A client that leaves early must not cost the next one its quick start.
            await asyncio.wait({face_task}, timeout=_FACE_SECONDS)
            face_task.cancel()


def _announce(behind: str, told: str, source: _Lines, sink: _Sink) -> None:
    """Tell a client of the 2025 era that the sentence about the catalogue has changed; later eras poll instead."""
    if source.initialized and behind not in told:
        sink.send(b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n')


async def prepare(settings: Settings) -> None:
    """Make the first start as quick as later ones: ``codex exec`` and ``claude -p`` do not wait for a slow server."""
    from toolscout.server.app import App
    from toolscout.server.engine import Engine

    if not face.load(settings.home):
        async with Engine(settings) as engine:
            await _keep_face(App(engine), settings)


async def renew(engine: Engine) -> None:
    """Prepare the first start after an upgrade, whichever command it is that loads the engine before."""
    if face.outdated(engine.settings.home):
        from toolscout.server.app import App

        with suppress(ToolscoutError):  # the command has done what it was for
            await _keep_face(App(engine), engine.settings)


async def _keep_face(app: Any, settings: Settings) -> None:
    await app.engine.loaded()
    answers = await face.record(app.lowlevel)
    if answers != face.load(settings.home):
        face.save(settings.home, answers)


def _claim_standard_streams() -> tuple[int, int]:
    """Private duplicates of stdin and stdout; the public ones then lead nowhere and to stderr.

    A stray print, or a child process that inherits descriptors, can thus never write into the protocol.
    """
    fd_in, fd_out = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return fd_in, fd_out


def _is_stream(fd: int) -> bool:
    mode = os.fstat(fd).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)


class _Lines:
    """Async iterator over incoming messages, the held ones first."""

    def __init__(self, handover: Handover, fd: int) -> None:
        self._handover = handover
        self._fd = fd
        self._reader: asyncio.StreamReader | None = None
        self.initialized = False
        """Whether the client has finished the handshake of the 2025 era."""

    async def open(self) -> None:
        """Attach to the descriptor; a file or terminal is read by a thread instead."""
        loop = asyncio.get_running_loop()
        self._reader = asyncio.StreamReader(limit=MAX_LINE)
        self._reader.feed_data(self._handover.rest)
        if self._handover.eof:
            self._reader.feed_eof()
        elif _is_stream(self._fd):
            pipe = os.fdopen(self._fd, "rb", buffering=0)
            await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._reader), pipe)  # type: ignore[arg-type]
        else:
            self._task = loop.create_task(self._pump(self._reader))

    async def _pump(self, reader: asyncio.StreamReader) -> None:
        while chunk := await asyncio.to_thread(os.read, self._fd, 65536):
            reader.feed_data(chunk)
        reader.feed_eof()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for line in self._handover.lines:
            self._look(line)
            yield line
        assert self._reader is not None
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as end:
                if end.partial.strip():
                    yield end.partial
                return
            except asyncio.LimitOverrunError:
                await self._skip_line()
                line = b"(line too long)"
            if line.strip():
                self._look(line)
                yield line

    def _look(self, line: bytes) -> None:
        if not self.initialized and len(line) < 1000 and b'"notifications/initialized"' in line:
            self.initialized = True

    async def _skip_line(self) -> None:
        assert self._reader is not None
        while True:
            try:
                await self._reader.readuntil(b"\n")
                return
            except asyncio.LimitOverrunError as overrun:
                await self._reader.readexactly(overrun.consumed or 1)
            except asyncio.IncompleteReadError:
                return


class _Sink:
    """Where the SDK writes its lines; leaves out the answers that the gate has given already."""

    def __init__(self, muted: set[str], fd: int) -> None:
        self._muted = muted
        self._fd = fd
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Attach to the descriptor; anything but a pipe or socket is written to directly."""
        if not _is_stream(self._fd):
            return
        loop = asyncio.get_running_loop()
        pipe = os.fdopen(self._fd, "wb", buffering=0)
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), pipe
        )
        self._writer = asyncio.StreamWriter(transport, protocol, None, loop)

    async def write(self, line: str) -> None:
        """Send one line, unless it answers a request that is answered."""
        if self._muted and self._is_muted(line):
            return
        self.send(line.encode("utf-8", "replace"))

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        if self._writer is None:
            write_all(self._fd, data)
        else:
            self._writer.write(data)

    async def flush(self) -> None:
        """Wait until the client has room again."""
        if self._writer is not None:
            await self._writer.drain()

    def _is_muted(self, line: str) -> bool:
        message = json.loads(line)
        key = json.dumps(message.get("id"))
        if "method" in message or key not in self._muted:
            return False
        self._muted.discard(key)
        return True
