"""Logs of a serving Toolscout: to stderr only, plain or as JSON lines, never waited for.

The level holds for Toolscout's own loggers; libraries stay at warnings, because what they say below that holds URLs,
arguments and results. Of an exception the type and the frames are told, never its own text, in every format: it may
quote what a client or an upstream sent.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import threading
import traceback
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from toolscout.server.telling.plain import plain
from toolscout.server.telling.telemetry import current_call
from toolscout.server.telling.tracecontext import trace_id
from toolscout.settings import Settings

_STDERR = 2
_MOST_WAITING = 10_000
_CLOSE_SECONDS = 2.0
_FRAMES = 20


def configure_logging(settings: Settings) -> None:
    """Send the logs to stderr as the settings want them; before serving, and again after a library has put handlers in.

    Also where nothing is asked for: Python's own last resort writes exceptions with their texts, and waits for stderr.
    """
    handler = StderrHandler()
    handler.setFormatter(JsonLines() if settings.log_format == "json" else Plain())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    level = settings.log_level or ("info" if settings.log_format == "json" else "warning")
    logging.getLogger("toolscout").setLevel(level.upper())
    for name in ("fastmcp", "uvicorn", "uvicorn.error", "uvicorn.access", "mcp"):
        other = logging.getLogger(name)  # FastMCP and uvicorn write for terminals, to handlers of their own
        other.handlers.clear()
        other.propagate = True
        other.setLevel(logging.WARNING)
    logging.raiseExceptions = False


class JsonLines(logging.Formatter):
    """One JSON object per line: ``time``, ``level``, ``logger``, ``message``, what the event says, and trace ids."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
        }
        entry |= {key: value for key, value in getattr(record, "event", {}).items() if value not in ("", None)}
        entry |= _trace_ids()
        if record.exc_info and record.exc_info[0] is not None:
            entry["exception"], entry["stack"] = record.exc_info[0].__qualname__, _frames(record.exc_info[2])
        return json.dumps(entry, ensure_ascii=True, default=str)


class Plain(logging.Formatter):
    """For people: time, level, logger, message; below it an exception's frames and type."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """One line for the message: what a server is called or says cannot write lines of its own."""
        record.message, record.asctime = _message(record), self.formatTime(record)
        line = plain(self.formatMessage(record))
        if record.exc_info and record.exc_info[0] is not None:
            told = [f"  at {frame}" for frame in _frames(record.exc_info[2])]
            line = "\n".join([line, *told, f"  {record.exc_info[0].__qualname__}"])
        return line


def _frames(trace: TracebackType | None) -> list[str]:
    """The innermost frames: places in the code, no values."""
    return [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in traceback.extract_tb(trace)[-_FRAMES:]]


def _message(record: logging.LogRecord) -> str:
    """What a record says, without the text of the exception that it is about."""
    said = record.getMessage()
    if record.name == "asyncio":
        said = said.partition("\n")[0]  # the lines below show tasks with their exceptions
    error = record.exc_info[1] if record.exc_info else None
    if error is not None and len(text := str(error)) > 3:
        said = said.replace(text, type(error).__qualname__)
    return said


class StderrHandler(logging.Handler):
    """Writes lines to stderr by a thread of its own: a client that does not read its end must not stop the server.

    Lines that find no room are dropped, and the next that does says how many.
    """

    def __init__(self, fd: int = _STDERR) -> None:
        super().__init__()
        self._fd = fd
        self._waiting: queue.Queue[str | None] = queue.Queue(_MOST_WAITING)
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def emit(self, record: logging.LogRecord) -> None:
        """Queue one record, formatted here: its trace is the caller's."""
        try:
            line = self.format(record)
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_all, name="logs", daemon=True)
                self._thread.start()
            self._waiting.put_nowait(line)
        except queue.Full:
            self._dropped += 1
        except Exception:
            self._dropped += 1  # a record that cannot be formatted must not break what it tells of

    def close(self) -> None:
        """Write what waits, for a moment at most."""
        if self._thread is not None:
            thread, self._thread = self._thread, None
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                pass
            else:
                thread.join(_CLOSE_SECONDS)
        super().close()

    def _write_all(self) -> None:
        while (line := self._waiting.get()) is not None:
            if self._dropped:
                count, self._dropped = self._dropped, 0
                said = {"levelname": "WARNING", "name": __name__, "msg": f"{count} log lines were dropped"}
                self._write(self.format(logging.makeLogRecord(said)))
            self._write(line)

    def _write(self, line: str) -> None:
        data = memoryview(line.encode("utf-8", "replace") + b"\n")
        try:
            while data:
                data = data[os.write(self._fd, data) :]
        except OSError:
            pass  # nobody is there to read it


def _trace_ids() -> dict[str, str]:
    call = current_call()
    if call is None:
        return {}
    tracing = call.telemetry.tracing
    if tracing is not None:
        trace, span = tracing.ids()
        return {"trace_id": trace, "span_id": span} if trace else {}
    return {"trace_id": trace_id(call.carrier)} if call.carrier else {}
