"""Model answers kept by content in one SQLite file: what was asked once is never paid for again.

The key is a hash of model, messages and options. An answer is committed, with what it cost, the moment it comes, so
that a kill at any point loses no more than what was under way. Answers may lie in a file that several folders share;
what a folder has spent stands in its own file, and goes where the folder goes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
_OWN = ""
"""What stands under ``folder`` in a folder's own file. Versions before booked under the folder's place."""
_COUNTS = ("requests", "retries", "prompt_tokens", "completion_tokens", "price")
_WHAT_TO_DO = (
    "Wait if another run works with it. A broken one can be deleted: its answers are asked for again, and what stands "
    "booked in it no longer counts towards --max-cost."
)


class AnswerStore:
    """An open store. Use from one thread; several processes may share the file.

    :param books: the file that what is spent is booked in, in the folder whose it is; the same file by default.
    :raises StorageError: a file cannot be opened, or is of a later version. Every method raises it for a file that is
        locked, full or broken.
    """

    def __init__(self, path: Path, books: Path | None = None) -> None:
        self.path = path
        self.books = path if books is None or books.resolve() == path.resolve() else books
        self._db = _opened(path)
        self._own = self._db if self.books is path else _opened(self.books)
        if self._own is not self._db:
            self._take_over(str(self.books.parent.resolve()))

    def get(self, key: str) -> Reply | None:
        """A stored answer."""
        with _told(self.path, "read"):
            row = self._db.execute(
                "SELECT text, prompt_tokens, completion_tokens, complete FROM answer WHERE key = ?", (key,)
            ).fetchone()
        return Reply(row[0], row[1], row[2], bool(row[3])) if row else None

    def put(self, key: str, model: str, reply: Reply, price: float) -> None:
        """Keep an answer and book what it cost: both or neither, and in two files never the answer alone."""
        counts = (1, reply.retries, reply.prompt_tokens, reply.completion_tokens, price)
        if self._own is not self._db:
            with _told(self.books, "written"), _whole(self._own):
                _book(self._own, model, counts)
        with _told(self.path, "written"), _whole(self._db):
            self._db.execute(
                "INSERT OR REPLACE INTO answer (key, model, text, complete, prompt_tokens, completion_tokens) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (key, model, _plain(reply.text), reply.complete, reply.prompt_tokens, reply.completion_tokens),
            )
            if self._own is self._db:
                _book(self._db, model, counts)

    def price(self) -> float:
        """What the folder has cost so far."""
        return float(sum(counts["price"] for counts in self.spent().values()))

    def spent(self) -> dict[str, JsonObject]:
        """Requests, retries, tokens and price of the folder, by model."""
        with _told(self.books, "read"):
            rows = self._own.execute(_SPENT, (_OWN,)).fetchall()
        return {row[0]: dict(zip(_COUNTS, row[1:], strict=True)) for row in rows}

    def close(self) -> None:
        """Close the files."""
        self._db.close()
        self._own.close()

    def _take_over(self, place: str) -> None:
        """Book in the folder what earlier versions booked for it in the shared file. Killed between the two it counts
        twice: a ceiling may stop a run too early, not too late."""
        with _told(self.path, "read"):
            rows = self._db.execute(_SPENT, (place,)).fetchall()
        if not rows:
            return
        with _told(self.books, "written"), _whole(self._own):
            for model, *counts in rows:
                _book(self._own, model, counts)
        with _told(self.path, "written"):
            self._db.execute("DELETE FROM spent WHERE folder = ?", (place,))


_SPENT = f"SELECT model, {', '.join(_COUNTS)} FROM spent WHERE folder = ? ORDER BY model"


def _opened(path: Path) -> sqlite3.Connection:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        db = sqlite3.connect(path, isolation_level=None, timeout=30)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise StorageError(f"{path} was written by a newer Toolscout.", "Update, or name another --cache.")
        db.executescript(_SCHEMA)
        db.execute(f"PRAGMA user_version={_VERSION}")
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"The store of answers {path} cannot be opened: {error}.", _WHAT_TO_DO) from None
    return db


def _book(db: sqlite3.Connection, model: str, counts: Sequence[float]) -> None:
    more = ", ".join(f"{name} = {name} + excluded.{name}" for name in _COUNTS)
    db.execute(
        f"INSERT INTO spent (folder, model, {', '.join(_COUNTS)}) VALUES (?, ?, ?, ?, ?, ?, ?) "
        f"ON CONFLICT (folder, model) DO UPDATE SET {more}",
        (_OWN, model, *counts),
    )


@contextmanager
def _whole(db: sqlite3.Connection) -> Iterator[None]:
    """One transaction."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        if db.in_transaction:
            db.execute("ROLLBACK")
        raise


@contextmanager
def _told(path: Path, what: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise StorageError(f"The store of answers {path} cannot be {what}: {error}.", _WHAT_TO_DO) from None


def answer_key(model: str, messages: list[dict[str, str]], options: JsonObject) -> str:
    """The content that an answer is kept under: SHA-256, hex."""
    return sha256_hex(canonical_json([model, messages, options]))


def _plain(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")
