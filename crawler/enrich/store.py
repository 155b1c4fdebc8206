"""What enrichment worked out, kept by content in one SQLite file: nothing is encoded or paid for twice.

Each answer is committed with what it cost the moment it comes: a kill loses no more than what was under way.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from toolscout.crawler.enrich.category import Guess
from toolscout.errors import StorageError

_SCHEMA = """
CREATE TABLE IF NOT EXISTS category (key TEXT PRIMARY KEY, category TEXT NOT NULL, probability REAL NOT NULL);
CREATE TABLE IF NOT EXISTS summary (
  key TEXT NOT NULL, model TEXT NOT NULL, text TEXT NOT NULL, refused TEXT NOT NULL, price REAL NOT NULL,
  prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL, PRIMARY KEY (key, model));
"""
_VERSION = 1


class EnrichmentStore:
    """An open store. Use from one thread. Raises StorageError where the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, isolation_level=None, timeout=30)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            if version > _VERSION:
                raise StorageError(f"{path} was written by a newer Toolscout.", "Update, or move the file away.")
            self._db.executescript(_SCHEMA)
            self._db.execute(f"PRAGMA user_version={_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise StorageError(f"The store of categories and summaries {path} cannot be opened: {error}.") from None

    def category(self, key: str) -> Guess | None:
        """A category told before."""
        row = self._db.execute("SELECT category, probability FROM category WHERE key = ?", (key,)).fetchone()
        return Guess(row[0], row[1]) if row else None

    def put_categories(self, guesses: dict[str, Guess]) -> None:
        """Keep categories, all or none."""
        self._write(
            "INSERT OR REPLACE INTO category VALUES (?, ?, ?)",
            [(key, guess.category, guess.probability) for key, guess in guesses.items()],
        )

    def summary(self, key: str, model: str = "") -> tuple[str, str] | None:
        """A written summary, and why it was refused (then it is not to be used); any model's where none is named."""
        row = self._db.execute(
            "SELECT text, refused FROM summary WHERE key = ? AND (? = '' OR model = ?) ORDER BY refused, rowid DESC",
            (key, model, model),
        ).fetchone()
        return (row[0], row[1]) if row else None

    def put_summary(self, key: str, model: str, text: str, refused: str, price: float, tokens: tuple[int, int]) -> None:
        """Keep an answer, usable or not, and what it cost."""
        row = (key, model, text, refused, price, *tokens)
        self._write("INSERT OR REPLACE INTO summary VALUES (?, ?, ?, ?, ?, ?, ?)", [row])

    def has_summaries(self) -> bool:
        """Whether a model has ever written any."""
        return self._db.execute("SELECT 1 FROM summary LIMIT 1").fetchone() is not None

    def price(self) -> float:
        """What all summaries have cost."""
        return float(self._db.execute("SELECT coalesce(sum(price), 0) FROM summary").fetchone()[0])

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def __enter__(self) -> EnrichmentStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany(statement, rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise StorageError(f"{self.path} cannot be written: {error}.") from None
