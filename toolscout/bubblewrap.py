"""What every sandbox made with bubblewrap has in common: the crawler's, and the one around configured upstreams.

Only pieces of its command line; what they add up to, and what a sandbox promises, is said where they are used.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from toolscout.errors import NotAllowed

_MIB = 2**20

HOME = "/tmp/home"
"""The home of whatever runs in a sandbox; it is gone afterwards."""

WORKDIR = "/tmp/work"

PATH = "/usr/local/bin:/usr/bin:/bin"

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
"""Folders with programs and libraries, and nothing of anybody's own."""

ETC = (
    *("ssl", "ca-certificates", "pki", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime"),
    *("timezone", "mime.types", "protocols", "services"),
)
"""What is seen of ``/etc``."""

PRIVATE = ("/etc/ssl/private", "/etc/pki/tls/private", "/etc/pki/CA/private")
"""What is not seen of that: the keys of this machine's own services."""


def system_view() -> list[str]:
    """The system's programs, read-only, and those parts of ``/etc`` that hold nothing private."""
    line: list[str] = []
    for path in map(Path, SYSTEM):
        if path.is_symlink():
            line += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            line += ["--ro-bind", str(path), str(path)]
    for name in ETC:
        line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    for private in PRIVATE:
        # Whoever runs this may be able to read keys there, as may what it starts.
        if os.path.isdir(private) and not os.path.islink(private):  # noqa: PTH112, PTH114  (Path.is_dir may raise)
            line += ["--perms", "0755", "--tmpfs", private, "--remount-ro", private]
    return line


def scratch(*, size: int, shared: int) -> list[str]:
    """A fresh ``/proc``, a ``/dev`` without devices, and an empty ``/tmp``. Sizes in MiB, both in memory."""
    line = ["--hostname", "localhost", "--proc", "/proc", "--dev", "/dev"]
    for path, room in (("/dev/shm", shared), ("/tmp", size)):
        # Everybody's, as /tmp is: whoever sets up the sandbox need not be whom the program runs as.
        line += ["--perms", "1777", "--size", str(room * _MIB), "--tmpfs", path]
    return [*line, "--remount-ro", "/dev"]


def limited(
    argv: Sequence[str], *, memory: int, processes: int | None, files: int, more: Sequence[str] = ()
) -> list[str]:
    """The command under resource limits: ``memory`` in MiB a process, counts of processes and open files.

    RLIMIT_DATA, not RLIMIT_AS: V8 and WebAssembly reserve far more address space than they use.
    """
    line = [tool("prlimit"), f"--data={memory * _MIB}", f"--nofile={files}", "--core=0"]
    return [*line, *([f"--nproc={processes}"] if processes is not None else []), *more, "--", *argv]


def tool(name: str) -> str:
    """Path of a system program, the user's PATH aside. Raises NotAllowed where it is missing."""
    found = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin")
    if found is None:
        raise NotAllowed(f"{name} is not installed")
    return found


def apart(command: Sequence[str]) -> list[str]:
    """The command line that starts bubblewrap (or what becomes it) outside of this session: see `own_session`."""
    return [sys.executable, "-I", "-S", str(Path(__file__).with_name("own_session.py")), *command]


_accounts_at: list[Path] = []


def accounts(uid: int) -> dict[str, Path]:
    """Files of ``/etc`` with the sandbox's one user: Node's ``os.userInfo`` fails for a user without an entry."""
    if not _accounts_at or not _accounts_at[0].is_dir():  # what cleans up /tmp may have taken it
        folder = Path(tempfile.mkdtemp(prefix="toolscout-accounts-"))
        folder.chmod(0o755)
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        _accounts_at[:] = [folder]
    texts = {
        "passwd": f"scout:x:{uid}:{uid}::{HOME}:/bin/sh\n",
        "group": f"scout:x:{uid}:\n",
        "hosts": "127.0.0.1 localhost\n::1 localhost\n",
    }
    files = {name: _accounts_at[0] / f"{name}-{uid}" for name in texts}
    for name, path in files.items():
        if not path.exists():
            path.write_text(texts[name])
            path.chmod(0o644)
    return files


_userns: list[bool] = []


def disables_userns() -> bool:
    """Whether this bubblewrap can forbid further namespaces inside (0.8 and newer)."""
    if not _userns:
        done = subprocess.run([tool("bwrap"), "--help"], capture_output=True, text=True, check=False)
        _userns.append("--disable-userns" in done.stdout)
    return _userns[0]
