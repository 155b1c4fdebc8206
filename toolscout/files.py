"""Files that are replaced in one step: a crash, a full disk or a failure leaves what was there before."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from toolscout.errors import StorageError

_LOCK_SECONDS = 10.0


@contextlib.contextmanager
def replacing(path: Path, *, mode: int | None = None, force_mode: bool = False) -> Iterator[BinaryIO]:
    """A file to write to, which takes the place of ``path`` when all of it is on disk; through symbolic links.

    An existing file keeps its permissions, but with ``force_mode``; a new one gets ``mode``, or what the umask leaves.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        target = path.resolve()
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists() and not force_mode:
            mode = target.stat().st_mode & 0o7777
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as out:
                yield out
                out.flush()
                os.fsync(out.fileno())
            temporary.chmod(0o666 & ~_umask() if mode is None else mode)
            temporary.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}.") from None


def replace_file(path: Path, data: str | bytes, *, mode: int | None = None, force_mode: bool = False) -> None:
    """Write a whole file, text as UTF-8; otherwise as ``replacing``."""
    with replacing(path, mode=mode, force_mode=force_mode) as out:
        out.write(data.encode("utf-8", "replace") if isinstance(data, str) else data)


def write_json(path: Path, value: object, *, mode: int | None = None, force_mode: bool = False) -> None:
    """Write one JSON value for people to read as well; otherwise as ``replacing``."""
    replace_file(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n", mode=mode, force_mode=force_mode)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file to read, change and write it: two processes never lose each other's change.

    Raises:
        StorageError: another process has held it for too long, or there cannot be one.
    """
    from filelock import FileLock, Timeout

    target = path.resolve()
    lock = FileLock(f"{target}.lock", timeout=_LOCK_SECONDS)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise StorageError(f"{path} is being changed by another process.", "Try again.") from None
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}.") from None
    try:
        yield
    finally:
        lock.release()


def check_writable(path: Path, option: str, *, append: bool = False) -> None:
    """Ask before long work whether its file can be written to ``path``, whose folders may not be there yet.

    ``append``: lines are added to what is there; else the file is replaced, which its folder has to allow.

    Raises:
        StorageError: it can't be; ``option`` is named as the one to change.
    """
    hint = f"Give another place with {option}."
    target = path.resolve()
    if target.exists() and not target.is_file():
        raise StorageError(f"{path} cannot be written: it is no regular file.", hint)
    if append and target.exists() and not os.access(target, os.W_OK):
        raise StorageError(f"{path} cannot be written: it may not be changed.", hint)
    above = target.parent
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir():
        raise StorageError(f"{path} cannot be written: {above} is a file.", hint)
    if not os.access(above, os.W_OK | os.X_OK):
        raise StorageError(f"{path} cannot be written: nothing may be written to {above}.", hint)


@contextlib.contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """An empty folder to write into, which becomes ``path`` at the end: whole, or after a failure not at all.

    Another process that made ``path`` meanwhile was first: its folder stays, this one goes.

    Raises:
        StorageError: ``path`` cannot be made, or something else is there.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as around:
            made = Path(around) / path.name
            made.mkdir()
            yield made
            names = {entry.name for entry in made.iterdir()}
            try:
                made.rename(path)  # an empty folder gives way
            except OSError:
                if not path.is_dir() or not names <= {entry.name for entry in path.iterdir()}:
                    raise
    except OSError as error:
        raise StorageError(
            f"The folder {path} cannot be made: {error.strerror or error}.", "Delete what is there."
        ) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
