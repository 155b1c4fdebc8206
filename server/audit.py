"""The audit log: one JSON line for each call, appended under a lock, in files that are turned over when they are full.

Values of arguments are never written as they are unless a rule says so, and what looks like a secret not even then. A
hash is keyed with a key of this installation: equal values can be told to be equal, and a short one cannot be guessed
from the log alone. A log that cannot be written stops the calls (`AuditLog.check`): it was asked for.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from toolscout.errors import NotAllowed
from toolscout.records import JsonObject, canonical_json
from toolscout.server.hiding import HIDDEN
from toolscout.server.policy import AuditOptions, Kept
from toolscout.server.suspect import is_secret

logger = logging.getLogger(__name__)

_LOCK_SECONDS = 2.0
_HASH_CHARACTERS = 16
_MOST_ARGUMENTS = 100
_MOST_OWED = 1_000_000
"""Bytes of entries that are kept for a log that cannot be written now; refused calls add to them."""

_LONGEST_CLEAR = 1000
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

    def check(self) -> None:
        """Make sure that the log can be written, where the last try failed. Raises NotAllowed if it cannot."""
        if not self._trouble:
            return
        self.write(None)
        if self._trouble:
            raise NotAllowed(
                f"The audit log {self.path} cannot be written ({self._trouble}), and no call is made without it.",
                "A person has to make room or correct [audit] in the policy file.",
            )

    def write(self, entry: JsonObject | None) -> None:
        """Append an entry; with None only try. A failure is remembered for `check` and said in the log."""
        line = (
            self._owed
            if entry is None
            else self._owed + json.dumps(entry, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock", timeout=_LOCK_SECONDS):
                self._turn_over(len(line))
                _append(self.path, line)
            self._trouble, self._owed = "", b""
        except (OSError, Timeout) as error:
            self._trouble = getattr(error, "strerror", None) or "another process holds its lock"
            if len(line) <= _MOST_OWED:
                self._owed = line
            logger.error("The audit log %s cannot be written: %s.", self.path, self._trouble)

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

    def arguments(self, server_id: str, tool_name: str, arguments: Mapping[str, Any]) -> JsonObject:
        """Arguments as they are kept: by the rules, the first that fits; secrets hidden whatever the rules say."""
        kept = {
            str(name)[:_LONGEST_CLEAR]: self._value(server_id, tool_name, str(name), value)
            for name, value in list(arguments.items())[:_MOST_ARGUMENTS]
        }
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
    """All entries that are kept, the newest first. A line that is broken (a full disk) is left out."""
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
