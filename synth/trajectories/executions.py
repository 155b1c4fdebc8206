"""What was executed, kept in one SQLite file, so that no kill makes a call happen twice.

A call is entered before it is sent and completed with its response when that comes, each in a transaction of its own.
So after a kill there are three kinds: never sent, sent and answered, and sent with an answer that nobody got.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from pathlib import Path
from typing import Any

from toolscout.errors import StorageError
from toolscout.records import JsonObject, Tool, canonical_json, sha256_hex
from toolscout.responses import Response
from toolscout.synth.drafts import definition_mark

_SCHEMA = """
CREATE TABLE IF NOT EXISTS execution (
  key TEXT PRIMARY KEY, row TEXT NOT NULL, step TEXT NOT NULL, tool_id TEXT NOT NULL, arguments TEXT NOT NULL,
  response TEXT, seconds REAL, cause TEXT NOT NULL DEFAULT '', sent TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE INDEX IF NOT EXISTS execution_cause ON execution (cause);
"""
_VERSION = 1
_WHAT_TO_DO = "Free it, or give another --out: without it, what was executed would be executed again."


class Executions:
    """An open store. Use from one thread and one process: the folder's lock sees to that.

    :raises StorageError: the file cannot be opened, or is of a later version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._db = sqlite3.connect(path, isolation_level=None, timeout=30)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            if self._db.execute("PRAGMA user_version").fetchone()[0] > _VERSION:
                raise StorageError(f"{path} was written by a newer Toolscout.", "Update, or give another --out.")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise StorageError(f"The store of executions {path} cannot be opened: {error}.", _WHAT_TO_DO) from None

    def state(self, key: str) -> tuple[bool, Response | None, float]:
        """(whether the call was ever sent, its response if one came, the seconds that it took)."""
        found = self._read("SELECT response, seconds FROM execution WHERE key = ?", (key,))
        if not found:
            return False, None, 0.0
        ((kept, seconds),) = found
        try:
            return True, Response.model_validate_json(kept) if kept else None, seconds or 0.0
        except ValueError:
            raise StorageError(f"{self.path} holds a response that cannot be read.", _WHAT_TO_DO) from None

    def send(self, key: str, row: str, step: str, tool_id: str, arguments: JsonObject) -> None:
        """Enter a call that is about to be sent."""
        self._write(
            "INSERT OR REPLACE INTO execution (key, row, step, tool_id, arguments) VALUES (?, ?, ?, ?, ?)",
            (key, row, step, tool_id, _text(arguments)),
        )

    def done(self, key: str, response: Response, seconds: float, cause: str) -> None:
        """Complete a call with its response; ``cause`` is why it failed, or empty."""
        kept = json.dumps(response.model_dump(mode="json"), ensure_ascii=False).encode("utf-8", "replace").decode()
        self._write(
            "UPDATE execution SET response = ?, seconds = ?, cause = ? WHERE key = ?", (kept, seconds, cause, key)
        )

    def forget(self, causes: Collection[str], tool_ids: Collection[str]) -> list[str]:
        """Forget calls of these tools that failed for these causes, so that they are made again; the rows' ids."""
        marks = ",".join("?" * len(causes))
        found = self._read(f"SELECT key, row, tool_id FROM execution WHERE cause IN ({marks})", tuple(causes))
        found = [one for one in found if one[2] in tool_ids]
        for key, _, _ in found:
            self._write("DELETE FROM execution WHERE key = ?", (key,))
        return list(dict.fromkeys(row for _, row, _ in found))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _read(self, statement: str, values: tuple[object, ...]) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise StorageError(f"{self.path} cannot be read: {error}.", _WHAT_TO_DO) from None

    def _write(self, statement: str, values: tuple[object, ...]) -> None:
        try:
            self._db.execute(statement, values)
        except sqlite3.Error as error:
            raise StorageError(f"{self.path} cannot be written: {error}.", _WHAT_TO_DO) from None


def execution_key(row: str, step: str, tool: Tool, arguments: JsonObject) -> str:
    """What makes a call the same one: its place in its row, the tool as it is defined, the arguments that are sent."""
    return sha256_hex(canonical_json([row, step, tool.tool_id, definition_mark(tool), arguments]))


def _text(value: JsonObject) -> str:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace").decode()
