"""Model answers kept by content in one SQLite file: what was asked once is never paid for again.

The key is a hash of model, messages and options. An answer is committed, with what it cost, the moment it comes, so
that a kill at any point loses no more than what was under way.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

from toolscout.errors import StorageError
from toolscout.records import JsonObject, canonical_json, sha256_hex
from toolscout.synth.chat import Reply

_SCHEMA = """
CREATE TABLE IF NOT EXISTS answer (
  key TEXT PRIMARY KEY, model TEXT NOT NULL, text TEXT NOT NULL, complete INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP);
CREATE TABLE IF NOT EXISTS spent (
  folder TEXT NOT NULL, model TEXT NOT NULL, requests INTEGER NOT NULL, retries INTEGER NOT NULL,
  prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, price REAL NOT NULL,
  PRIMARY KEY (folder, model)) WITHOUT ROWID;
"""
_VERSION = 1


class AnswerStore:
    """An open store. Use from one thread; several processes may share the file.

    :param folder: whose spending is booked: a name of the data folder that holds where the store is shared.
    :raises StorageError: the file cannot be opened, or is of a later version.
    """

    def __init__(self, path: Path, folder: str = "") -> None:
        self.path, self.folder = path, folder
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, timeout=30)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > _VERSION:
                raise StorageError(f"{path} was written by a newer Toolscout.", "Update, or name another --cache.")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise StorageError(f"The store of answers {path} cannot be opened: {error}.") from None

    def get(self, key: str) -> Reply | None:
        """A stored answer."""
        row = self._db.execute(
            "SELECT text, prompt_tokens, completion_tokens, complete FROM answer WHERE key = ?", (key,)
        ).fetchone()
        return Reply(row[0], row[1], row[2], bool(row[3])) if row else None

    def put(self, key: str, model: str, reply: Reply, price: float) -> None:
        """Keep an answer and book what it cost, both or neither."""
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(
                "INSERT OR REPLACE INTO answer (key, model, text, complete, prompt_tokens, completion_tokens) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (key, model, _plain(reply.text), reply.complete, reply.prompt_tokens, reply.completion_tokens),
            )
            self._db.execute(
                "INSERT INTO spent VALUES (?, ?, 1, ?, ?, ?, ?) ON CONFLICT (folder, model) DO UPDATE SET "
                "requests = requests + 1, retries = retries + excluded.retries, "
                "prompt_tokens = prompt_tokens + excluded.prompt_tokens, "
                "completion_tokens = completion_tokens + excluded.completion_tokens, price = price + excluded.price",
                (self.folder, model, reply.retries, reply.prompt_tokens, reply.completion_tokens, price),
            )
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise StorageError(f"{self.path} cannot be written: {error}.") from None

    def price(self) -> float:
        """What the folder has cost so far."""
        row = self._db.execute("SELECT coalesce(sum(price), 0) FROM spent WHERE folder = ?", (self.folder,)).fetchone()
        return float(row[0])

    def spent(self) -> dict[str, JsonObject]:
        """Requests, retries, tokens and price of the folder, by model."""
        rows = self._db.execute(
            "SELECT model, requests, retries, prompt_tokens, completion_tokens, price FROM spent "
            "WHERE folder = ? ORDER BY model",
            (self.folder,),
        ).fetchall()
        names = ("requests", "retries", "prompt_tokens", "completion_tokens", "price")
        return {row[0]: dict(zip(names, row[1:], strict=True)) for row in rows}

    def close(self) -> None:
        """Close the file."""
        self._db.close()


def answer_key(model: str, messages: list[dict[str, str]], options: JsonObject) -> str:
    """The content that an answer is kept under: SHA-256, hex."""
    return sha256_hex(canonical_json([model, messages, options]))


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
