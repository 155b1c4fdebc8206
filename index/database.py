"""Opening the catalogue's database: connections, schema check, migrations, transactions.

Every MCP client starts a Toolscout of its own, so several processes open one catalogue at once, and each must be quick.
For SQLite the schema check, the revision counter and the call log go through the standard library alone: SQLAlchemy is
imported at the first real query, alembic only when the schema is behind.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolscout.errors import StorageError

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

SCHEMAS = ("0001", "0002")
"""Every schema version this code can bring up to date, oldest first; the last one is current."""

BUSY_SECONDS = 60
"""How long a writer waits for another process's transaction, and an opener for another one's migration."""

_LOCK_KEY = 0x746F6F6C73  # PostgreSQL advisory lock of the migrations


class Database:
    """One catalogue database, SQLite or PostgreSQL.

    Args:
        url: ``sqlite:///path/to/file.db`` or ``postgresql+psycopg://user@host/name``.

    Raises:
        StorageError: it cannot be opened, is of a newer schema, or is something else than a catalogue.
    """

    def __init__(self, url: str) -> None:
        self.path: Path | None = None
        self._light: sqlite3.Connection | None = None
        self._guard = threading.Lock()
        self._glance: sqlite3.Connection | None = None
        self._glance_guard = threading.Lock()
        if url.startswith("sqlite:"):
            self.path = _sqlite_path(url)
            self.url = f"sqlite:///{self.path}"
            self._open_sqlite(self.path)
        elif url.startswith(("postgresql:", "postgres:", "postgresql+psycopg:")):
            self.url = "postgresql+psycopg:" + url.partition(":")[2]
            self._open_postgres()
        else:
            raise StorageError(
                f"{url.partition(':')[0]!r} is no catalog database.",
                "Use sqlite:///FILE or postgresql+psycopg://USER@HOST/NAME in TOOLSCOUT_DATABASE.",
            )

    @cached_property
    def engine(self) -> Engine:
        """SQLAlchemy's engine; made at first use."""
        import sqlalchemy

        if self.path is None:
            try:
                return sqlalchemy.create_engine(self.url, pool_size=4, max_overflow=8, pool_pre_ping=True)
            except ImportError:
                raise StorageError(
                    "PostgreSQL needs the driver psycopg, which is not installed.",
                    "Install it with `pip install 'toolscout[postgres]'`.",
                ) from None
            except (sqlalchemy.exc.ArgumentError, ValueError):
                raise StorageError(
                    "The PostgreSQL URL is malformed.", "It looks like postgresql+psycopg://USER@HOST:5432/NAME."
                ) from None
        # The name is passed to the driver as it is: a '?' or '%' in a folder's name is no part of a URL here.
        path = str(self.path)
        engine = sqlalchemy.create_engine("sqlite://", creator=lambda: _connect(path), poolclass=sqlalchemy.QueuePool)
        sqlalchemy.event.listen(engine, "begin", _begin_sqlite)
        return engine

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A read transaction. Raises StorageError for anything the database reports."""
        with _reported(), self.engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A write transaction, one at a time across all processes; rolled back if its block raises."""
        import sqlalchemy

        with _reported(), self.engine.execution_options(toolscout_write=True).begin() as connection:
            if self.path is None:
                # The same single-writer rule that SQLite has: without it two importers could deadlock.
                connection.execute(sqlalchemy.text("SELECT value FROM meta WHERE key = 'revision' FOR UPDATE"))
            yield connection

    @contextlib.contextmanager
    def light(self) -> Iterator[sqlite3.Connection | None]:
        """The plain SQLite connection (autocommit, one thread at a time), or None with PostgreSQL."""
        if self._light is None:
            if self.path is not None:
                raise StorageError("The catalog is closed.")
            yield None
            return
        with self._guard, _reported():
            yield self._light

    @contextlib.contextmanager
    def glance(self) -> Iterator[sqlite3.Connection | None]:
        """A plain SQLite connection that is only read from, or None with PostgreSQL.

        Apart from `light`, which may wait for a minute behind another process's transaction: readers wait for nobody.
        """
        if self.path is None:
            yield None
            return
        with self._glance_guard, _reported():
            if self._light is None:
                raise StorageError("The catalog is closed.")
            if self._glance is None:
                self._glance = _connect(str(self.path))
                self._glance.execute("PRAGMA query_only = ON")
            yield self._glance

    def describe(self) -> dict[str, Any]:
        """Where the catalogue is kept, without any password, its schema, and its size in bytes."""
        if self.path is not None:
            files = (self.path, self.path.with_name(self.path.name + "-wal"))
            size = sum(f.stat().st_size for f in files if f.exists())
            return {"kind": "sqlite", "url": self.url, "schema": SCHEMAS[-1], "bytes": size}
        import sqlalchemy

        with self.reading() as connection:
            found = connection.execute(sqlalchemy.text("SELECT pg_database_size(current_database())")).scalar_one()
        shown = self.engine.url.render_as_string(hide_password=True)
        return {"kind": "postgresql", "url": shown, "schema": SCHEMAS[-1], "bytes": int(found)}

    def close(self) -> None:
        """Close all connections."""
        if "engine" in self.__dict__:
            self.engine.dispose()
        with self._guard:
            if self._light is not None:
                self._light.close()
                self._light = None
        with self._glance_guard:
            if self._glance is not None:
                self._glance.close()
                self._glance = None

    def _open_sqlite(self, path: Path) -> None:
        with _reported():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StorageError(
                    f"The folder {path.parent} cannot be made: {error.strerror}.",
                    "Set TOOLSCOUT_HOME or TOOLSCOUT_DATABASE.",
                ) from None
            # It holds what was asked for: for its owner alone. SQLite gives its journal the same mode.
            with contextlib.suppress(OSError):
                path.touch(0o600)
                if path.stat().st_mode & 0o077:
                    path.chmod(0o600)
            self._light = _connect(str(path))
            try:
                if _sqlite_schema(self._light, path) != SCHEMAS[-1]:
                    self._migrate_sqlite(path)
            except BaseException:
                self.close()
                raise

    def _migrate_sqlite(self, path: Path) -> None:
        from filelock import FileLock, Timeout

        assert self._light is not None
        try:
            with FileLock(f"{path}.lock", timeout=BUSY_SECONDS):
                if _sqlite_schema(self._light, path) == SCHEMAS[-1]:
                    return
                self._light.execute("PRAGMA journal_mode = WAL")
                with self.engine.execution_options(toolscout_write=True).begin() as connection:
                    _upgrade(connection)
        except Timeout:
            raise StorageError(
                f"Another process has been migrating {path} for {BUSY_SECONDS} s.", "Wait for it, or end it."
            ) from None

    def _open_postgres(self) -> None:
        import sqlalchemy

        with _reported():
            with self.engine.begin() as connection:
                if _postgres_schema(connection) == SCHEMAS[-1]:
                    return
            with self.engine.begin() as connection:
                connection.execute(sqlalchemy.text(f"SELECT pg_advisory_xact_lock({_LOCK_KEY})"))
                if _postgres_schema(connection) != SCHEMAS[-1]:
                    _upgrade(connection)


def _sqlite_path(url: str) -> Path:
    name = url.removeprefix("sqlite://").removeprefix("/")
    if not name or name == ":memory:" or url == f"sqlite:{name}":
        raise StorageError(
            "The catalog needs a file: several processes share it.", "Use sqlite:///FILE in TOOLSCOUT_DATABASE."
        )
    return Path(name)


def _connect(path: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    # synchronous=NORMAL: in WAL mode a killed process loses nothing; only a power cut may undo the last commits.
    connection.executescript("PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL;")
    return connection


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE: a transaction that reads first and then writes would otherwise fail when another one wrote between.
    write = connection.get_execution_options().get("toolscout_write")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _sqlite_schema(connection: sqlite3.Connection, path: Path) -> str | None:
    try:
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
    except sqlite3.OperationalError as error:
        if "no such table" not in str(error):
            raise
        if connection.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone():
            raise StorageError(f"{path} is an SQLite file of something else.", "Point to another file.") from None
        return None
    return _checked(found[0] if found else None, str(path))


def _postgres_schema(connection: Connection) -> str | None:
    import sqlalchemy

    if connection.execute(sqlalchemy.text("SELECT to_regclass('alembic_version')")).scalar() is None:
        return None
    found = connection.execute(sqlalchemy.text("SELECT version_num FROM alembic_version")).scalar()
    return _checked(found, f"The database {connection.engine.url.database!r}")


def _checked(version: str | None, what: str) -> str | None:
    if version is not None and version not in SCHEMAS:
        raise StorageError(
            f"{what} was made by a newer Toolscout (schema {version}; this one knows up to {SCHEMAS[-1]}).",
            "Upgrade with `pip install -U toolscout`, or use another TOOLSCOUT_DATABASE.",
        )
    return version


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@contextlib.contextmanager
def _reported() -> Iterator[None]:
    """Turn what a database driver raises into a StorageError. Statements and values stay out of the message."""
    try:
        yield
    except sqlite3.Error as error:
        raise _storage_error(error) from error
    except Exception as error:
        if type(error).__module__.startswith("sqlalchemy"):
            raise _storage_error(getattr(error, "orig", None) or error) from error
        raise


def _storage_error(error: BaseException) -> StorageError:
    reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
    hint = ""
    if "locked" in reason:
        hint = "Another process is writing to it for long; try again when it is done."
    elif "not a database" in reason or "malformed" in reason:
        hint = "The file is damaged or not a catalog; move it away and run the import again."
    elif "unable to open" in reason or "readonly" in reason:
        hint = "Check that the file and its folder can be written."
    elif "full" in reason:
        hint = "Free some disk space."
    elif "connection" in reason:
        hint = "Check that PostgreSQL runs and that TOOLSCOUT_DATABASE is right."
    return StorageError(f"The catalog's database reports: {reason}.", hint)


def rows_of(found: Any) -> list[dict[str, Any]]:
    """Result rows as plain dictionaries."""
    return [dict(row) for row in found.mappings()]
