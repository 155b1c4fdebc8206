"""Fixtures: an empty catalogue URL on SQLite and on a real PostgreSQL, which is started once per test run.

PostgreSQL's programs come from the distribution (Debian: ``apt install postgresql``); where they are missing, its tests
are skipped. It listens on a unix socket in a folder of its own, as an unprivileged user (it refuses to run as root).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

_numbers = itertools.count(1)


class Postgres:
    """A running PostgreSQL whose databases sort by language rules (ICU), as a user's may."""

    def __init__(self, binaries: Path) -> None:
        self._psql = str(binaries / "psql")
        self.folder = Path(tempfile.mkdtemp(prefix="ts-pg-", dir="/tmp"))
        self._user = _unprivileged()
        if self._user is not None:
            os.chown(self.folder, self._user, -1)
        data = str(self.folder / "data")
        locale = ["--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en"]
        self._do(str(binaries / "initdb"), "-D", data, "-U", "tester", "--auth=trust", "--no-sync", *locale)
        command = [str(binaries / "postgres"), "-D", data, "-k", str(self.folder), "-c", "listen_addresses="]
        self._log = (self.folder / "log").open("wb")
        self._process = subprocess.Popen(
            [*command, "-c", "fsync=off", "-c", "shared_buffers=16MB"],
            user=self._user,
            cwd=self.folder,
            stdout=self._log,
            stderr=self._log,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        deadline = time.monotonic() + 60
        while subprocess.run([*self._shell, "-c", "SELECT 1"], capture_output=True).returncode != 0:
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.1)

    def url(self) -> str:
        """URL of a new, empty schema: far quicker to make than a database."""
        name = f"catalogue_{next(_numbers)}"
        subprocess.run([*self._shell, "-c", f"CREATE SCHEMA {name}"], check=True, capture_output=True)
        return f"postgresql+psycopg://tester@/postgres?host={self.folder}&options=-csearch_path%3D{name}"

    def close(self) -> None:
        """Stop it and remove its files."""
        self._process.send_signal(signal.SIGQUIT)  # at once: nothing of it is kept
        self._process.wait(timeout=30)
        self._log.close()
        shutil.rmtree(self.folder)

    @property
    def _shell(self) -> list[str]:
        return [self._psql, "-X", "-q", "-h", str(self.folder), "-U", "tester", "-d", "postgres"]

    def _do(self, *command: str) -> None:
        done = subprocess.run(command, user=self._user, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(done.stdout + done.stderr)


def _unprivileged() -> int | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name).pw_uid
        except KeyError:
            continue
    return 65534


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGINT)  # PR_SET_PDEATHSIG: a killed test run leaves no server behind


def programs() -> Path:
    """The folder of PostgreSQL's programs. Raises FileNotFoundError."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: int(p.parts[-3]))
    on_path = shutil.which("postgres")
    if not found and on_path is None:
        raise FileNotFoundError("PostgreSQL is not installed (Debian: apt install postgresql)")
    return (found[-1] if found else Path(str(on_path)).resolve()).parent


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """The PostgreSQL of this test run."""
    try:
        server = Postgres(programs())
    except FileNotFoundError as error:
        pytest.skip(str(error))
    yield server
    server.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def catalogue_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a catalogue that does not exist yet, on each database."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'catalogue.db'}"
    server: Postgres = request.getfixturevalue("postgres")
    return server.url()
