"""The audit log: one JSON line for each call, appended under a lock, in files that are turned over when they are full.

Values of arguments are never written as they are unless a rule says so, and what looks like a secret not even then. A
hash is keyed with a key of this installation: equal values can be told to be equal, and a short one cannot be guessed
from the log alone. A log that cannot be written stops the calls (`AuditLog.ready`, `AuditLog.begin`): it was asked for.

A call that is made leaves two lines with the same ``id``: ``begun``, on disk before the upstream hears of it, and how
it ended. They are written by a thread: neither a slow disk nor another process's lock holds the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
import logging
import os
import threading
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from toolscout.errors import NotAllowed
from toolscout.records import JsonObject, canonical_json
from toolscout.server.policy.file import AuditOptions, Kept
from toolscout.server.secrecy.hiding import HIDDEN
from toolscout.server.secrecy.suspect import is_secret, plain_name

logger = logging.getLogger(__name__)

_LOCK_SECONDS = 2.0
_HASH_CHARACTERS = 16
_MOST_ARGUMENTS = 100
_MOST_OWED = 1_000_000
"""Bytes of entries that are kept for a log that cannot be written now; refused calls add to them."""

_MOST_WAITING = 10_000
_LONGEST_CLEAR = 1000
_LONGEST_NAME = 300
BEGUN = "begun"
_KEY_FILE = "audit.key"


class AuditLog:
    """Writes one log. Several processes on one home may write the same."""

    def __init__(self, home: Path, options: AuditOptions) -> None:
        self.path = log_file(home, options)
        self.options = options
        self._home = home
        self._key: bytes | None = None
        self._trouble = "it was not tried yet"
        self._owed = b""
        self._lock = threading.Lock()
        self._waiting: deque[tuple[bytes, Future[str] | None]] = deque()
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="audit")

    def check(self) -> None:
        """Make sure that the log can be written, where the last try failed. Raises NotAllowed if it cannot."""
        if self._trouble:
            self.write(None)
        if self._trouble:
            raise self._refusal(self._trouble)

    async def ready(self) -> None:
        """As `check`, on the event loop."""
        if self._trouble:
            await asyncio.get_running_loop().run_in_executor(self._threads, self.write, None)
        if self._trouble:
            raise self._refusal(self._trouble)

    async def begin(self, entry: JsonObject) -> None:
        """Append the entry of a call that is about to be made. Raises NotAllowed if it is not on disk."""
        done: Future[str] = Future()
        self._queue(_line(entry), done)
        if trouble := await asyncio.wrap_future(done):
            raise self._refusal(trouble)

    def end(self, entry: JsonObject) -> None:
        """Append the entry of a call that has ended, soon; `close` waits for it."""
        if len(self._waiting) < _MOST_WAITING:
            self._queue(_line(entry), None)
        else:
            logger.error("The audit log %s takes no more entries: one is lost.", self.path)

    def close(self) -> None:
        """Write what waits. Blocks; what comes after is written by who brings it."""
        self._threads.shutdown(wait=True)

    def write(self, entry: JsonObject | None) -> None:
        """Append an entry here and now; with None only try. A failure is remembered for `check` and said in the log."""
        self._write(b"" if entry is None else _line(entry))

    def _refusal(self, trouble: str) -> NotAllowed:
        return NotAllowed(
            f"The audit log {self.path} cannot be written ({trouble}), and no call is made without it.",
            "A person has to make room or correct [audit] in the policy file.",
        )

    def _queue(self, line: bytes, done: Future[str] | None) -> None:
        self._waiting.append((line, done))
        try:
            self._threads.submit(self._write_waiting)
        except RuntimeError:  # closed: of a call that ends later than its engine
            self._write_waiting()

    def _write_waiting(self) -> None:
        """All lines that wait, at once: what is queued for the later ones of them finds nothing left to do."""
        batch = []
        while self._waiting:
            batch.append(self._waiting.popleft())
        if not batch:
            return
        # What was to begin and could not be written down is not made: there is nothing to write later.
        trouble = self._write(
            b"".join(line for line, _ in batch), b"".join(line for line, done in batch if done is None)
        )
        for _, done in batch:
            if done is not None and done.set_running_or_notify_cancel():
                done.set_result(trouble)

    def _write(self, lines: bytes, owed: bytes | None = None) -> str:
        """Append lines, and before them what is owed; what is in the way, if anything. ``owed``: what of the lines is
        kept for later where they cannot be written."""
        with self._lock:
            lines, owed = self._owed + lines, self._owed + (lines if owed is None else owed)
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with FileLock(f"{self.path}.lock", timeout=_LOCK_SECONDS):
                    self._turn_over(len(lines))
                    _append(self.path, lines)
                self._trouble, self._owed = "", b""
            except (OSError, Timeout) as error:
                self._trouble = getattr(error, "strerror", None) or "another process holds its lock"
                if len(owed) <= _MOST_OWED:
                    self._owed = owed
                logger.error("The audit log %s cannot be written: %s.", self.path, self._trouble)
            return self._trouble

    def _turn_over(self, more: int) -> None:
        try:
            size = self.path.stat().st_size
        except FileNotFoundError:
            return
        if not size or size + more <= self.options.max_bytes:
            return
        if self.options.files == 1:
            self.path.unlink()
            return
        for number in range(self.options.files - 2, 0, -1):
            older = numbered(self.path, number)
            if older.exists():
                older.replace(numbered(self.path, number + 1))
        self.path.replace(numbered(self.path, 1))

    def arguments(
        self, server_id: str, tool_name: str, arguments: Mapping[str, Any], known: Collection[str] = ()
    ) -> JsonObject:
        """Arguments as they are kept: by the rules, the first that fits; secrets hidden whatever the rules say, in
        names, too, but for ``known`` ones, which are the tool's own."""
        kept: JsonObject = {}
        for given, value in list(arguments.items())[:_MOST_ARGUMENTS]:
            name = str(given)
            shown = name[:_LONGEST_CLEAR] if name in known else plain_name(name, _LONGEST_NAME)
            if shown in kept:
                shown = f"{shown} ({len(kept) + 1})"
            kept[shown] = self._value(server_id, tool_name, name, value)
        if len(arguments) > _MOST_ARGUMENTS:
            kept["..."] = f"{len(arguments) - _MOST_ARGUMENTS} more"
        return kept

    def _value(self, server_id: str, tool_name: str, name: str, value: Any) -> Any:
        rule = next((r for r in self.options.rules if r.fits(server_id, tool_name, name)), None)
        keep = rule.keep if rule is not None else self.options.values
        if keep is Kept.HIDE or is_secret(name, value):
            return HIDDEN
        if keep is Kept.HASH:
            data = canonical_json(value).encode("utf-8", "replace")
            return "hmac:" + hmac.new(self._hash_key(), data, hashlib.sha256).hexdigest()[:_HASH_CHARACTERS]
        text = json.dumps(value, ensure_ascii=False)
        return value if len(text) <= _LONGEST_CLEAR else f"{text[:_LONGEST_CLEAR]} ... ({len(text):,} characters)"

    def _hash_key(self) -> bytes:
        if self._key is None:
            from toolscout.server.seal import home_key

            self._key = home_key(self._home / _KEY_FILE)
        return self._key


def log_file(home: Path, options: AuditOptions) -> Path:
    """Where the log is: a relative name is one in the home folder."""
    return home / Path(options.file).expanduser()


def numbered(path: Path, number: int) -> Path:
    """The file that the log was ``number`` turns ago."""
    return path.with_name(f"{path.name}.{number}")


def read_log(path: Path) -> Iterator[JsonObject]:
    """All calls that are kept, each once, the newest first: as it ended, or as ``begun`` where no end was written.

    A line that is broken (a full disk) is left out.
    """
    ended: set[Any] = set()
    for entry in _read_lines(path):
        call = entry.get("id")
        if isinstance(call, str):
            if entry.get("outcome") != BEGUN:
                ended.add(call)
            elif call in ended:
                ended.remove(call)
                continue
        yield entry


def _read_lines(path: Path) -> Iterator[JsonObject]:
    number = 0
    file = path
    while file.exists():
        for line in reversed(file.read_text("utf-8", "replace").split("\n")):
            try:
                entry = json.loads(line)
            except ValueError:
                continue
            if isinstance(entry, dict):
                yield entry
        number += 1
        file = numbered(path, number)


def _line(entry: JsonObject) -> bytes:
    return json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _append(path: Path, data: bytes) -> None:
    """Append all or nothing: half a line would spoil the next one, too. Raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        size = os.fstat(handle).st_size
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)
