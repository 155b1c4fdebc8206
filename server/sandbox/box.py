"""The sandbox itself: one upstream's command line inside bubblewrap.

What it is given (its environment above all) reaches bubblewrap through a file descriptor: a command line can be read
by everybody on the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import subprocess
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from toolscout.bubblewrap import (
    HOME,
    PATH,
    WORKDIR,
    accounts,
    apart,
    disables_userns,
    limited,
    scratch,
    system_view,
    tool,
)
from toolscout.errors import NotAllowed
from toolscout.server.sandbox.policy import Policy
from toolscout.server.upstreams.watchdog import MARKER

SOCKET = "/run/toolscout/proxy"
BRIDGE = "/run/toolscout/bridge.py"
"""Where the proxy's socket and the program that leads to it are seen inside."""

_SCRATCH = 512
_SHARED = 128
_FILES = 8192
_FIRST_UID, _UIDS = 60710, 180
"""Users that servers run as where Toolscout is root; no distribution gives these numbers out."""

_NETWORK_ETC = ("resolv.conf", "hosts", "nsswitch.conf", "host.conf", "gai.conf")
FIX = (
    'Install bubblewrap (apt install bubblewrap) and allow user namespaces, or set "sandbox": false in the server\'s'
    " entry of mcp.json to run it with all your rights."
)


@dataclass(frozen=True)
class Box:
    """One upstream in its sandbox.

    ``argv`` and ``env`` are all that runs in there; ``readable`` are paths that it sees read-only besides what the
    policy opens. ``bindings`` are further (source, place inside) pairs. ``first`` runs before ``argv`` and becomes it.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    policy: Policy
    cwd: str = WORKDIR
    readable: Sequence[Path] = ()
    bindings: Sequence[tuple[Path, str]] = ()
    first: Sequence[str] = field(default=())

    @contextmanager
    def open(self, marker: str) -> Iterator[Opened]:
        """The command to start, with the descriptors that it has to inherit; they are closed on leaving.

        Raises NotAllowed where the sandbox cannot be made as it was asked for.
        """
        words = self._arguments(marker)
        if any("\0" in word for word in words):
            raise NotAllowed(f"'{self.name}' has a NUL character in its environment or working folder.")
        given = os.memfd_create("toolscout-sandbox")
        said, tell = os.pipe()
        opened = None
        try:
            os.write(given, b"".join(os.fsencode(word) + b"\0" for word in words))
            os.lseek(given, 0, os.SEEK_SET)
            opened = Opened(
                apart([tool("bwrap"), "--args", str(given), "--info-fd", str(tell), "--", *self._inner()]),
                {MARKER: marker, "PATH": PATH},
                (given, tell),
                said,
            )
            yield opened
        except BaseException:
            if opened is None:
                os.close(said)
            else:
                opened.close()
            raise
        finally:
            os.close(given)
            os.close(tell)

    def _arguments(self, marker: str) -> list[str]:
        uid, _ = self.user()
        line = ["--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try"]
        if self.policy.network is not True:
            line += ["--unshare-net"]
        line += ["--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
        if os.geteuid() == 0:
            if loaded := [name for name in self.env if name.startswith(("LD_", "GLIBC_", "GCONV_"))]:
                raise NotAllowed(
                    f"'{self.name}' sets {loaded[0]}, which root's own programs would obey.", "Run Toolscout as a user."
                )
            # Root makes the sandbox, and gives itself up inside: see `_inner`.
            line += [word for cap in ("SETUID", "SETGID", "SETPCAP") for word in ("--cap-add", f"CAP_{cap}")]
        else:
            line += ["--unshare-user", *(["--disable-userns"] if disables_userns() else [])]
        # Bubblewrap makes the folders on the way to what it binds for its own user alone.
        line += [word for folder in ("/etc", "/nix", "/gnu") for word in ("--perms", "0755", "--dir", folder)]
        line += [*scratch(size=_SCRATCH, shared=_SHARED), *system_view()]
        line += ["--perms", "1777", "--size", str(_SHARED * 2**20), "--tmpfs", "/var/tmp"]
        for name, path in accounts(uid).items():
            line += ["--ro-bind", str(path), f"/etc/{name}"]
        if self.policy.network is True:
            for name in _NETWORK_ETC:
                line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
        line += self._files()
        if self.bindings:
            line += [word for folder in ("/run", "/run/toolscout") for word in ("--perms", "0755", "--dir", folder)]
        for source, place in self.bindings:
            line += ["--ro-bind", str(source), place]
        for name, value in {**self.env, MARKER: marker}.items():
            line += ["--setenv", name, value]
        for folder in (HOME, WORKDIR):
            line += ["--perms", "1777", "--dir", folder]
        return [*line, "--chdir", self.cwd, "--remount-ro", "/"]

    def _files(self) -> list[str]:
        """Outer folders first: what is bound later covers what was before."""
        how = dict.fromkeys((*self.readable, *self.policy.read), "--ro-bind")
        how.update(dict.fromkeys(self.policy.write, "--bind"))
        line: list[str] = []
        made: set[Path] = set()
        for path in sorted(how, key=lambda path: len(path.parts)):
            for folder in reversed(path.parents):
                if folder not in made and not any(folder.is_relative_to(bound) for bound in how):
                    made.add(folder)
                    line += ["--perms", "0755", "--dir", str(folder)]
            line += [how[path], str(path), str(path)]
        return line

    def _inner(self) -> list[str]:
        # Before 5.14 Linux counted all processes of the user, those outside of the sandbox as well.
        counts = os.geteuid() == 0 or _kernel() >= (5, 14)
        line = limited(
            [*self.first, *self.argv],
            memory=self.policy.memory,
            processes=self.policy.processes if counts else None,
            files=_FILES,
        )
        if os.geteuid() == 0:
            uid, gid = self.user()
            line = [
                *(tool("setpriv"), f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--inh-caps=-all"),
                *("--bounding-set=-all", "--no-new-privs", "--", *line),
            ]
        return line

    def user(self) -> tuple[int, int]:
        """Whom it runs as: never root. Where we are, the owner of what it may write, or a user of its own."""
        if os.geteuid() != 0:
            return os.geteuid(), os.getegid()
        owners = {(status.st_uid, status.st_gid): path for path in self.policy.write for status in (path.stat(),)}
        if not owners:
            return (own_user(self.name),) * 2
        for (uid, _), path in sorted(owners.items()):  # root's first: those are what has to be given away
            if uid == 0 or len(owners) > 1:
                raise NotAllowed(
                    f"'{self.name}' may write {path}, which belongs to {'root' if uid == 0 else 'another user'};"
                    " nothing runs as root in a sandbox.",
                    "Give what it may write to one other user (chown), or run Toolscout as such a user.",
                )
        return next(iter(owners))


def check_folders(name: str, policy: Policy, home: Path) -> None:
    """Look at what a sandbox opens as `Policy.check` does, and whether its user may use it. Raises NotAllowed."""
    policy.check(name, home)
    uid, gid = Box(name, (), {}, policy).user()
    for path in (*policy.read, *policy.write):
        status, writes = path.stat(), path in policy.write
        wanted = os.R_OK | (os.X_OK if path.is_dir() else 0) | (os.W_OK if writes else 0)
        shift = 6 if status.st_uid == uid else 3 if status.st_gid == gid else 0
        if os.geteuid() and os.access(path, wanted):
            continue
        if os.geteuid() or (status.st_mode >> shift) & wanted != wanted:
            what = "write" if writes else "read"
            raise NotAllowed(
                f"The sandbox of '{name}' is given {path}, which it may not {what} as user {uid}.",
                "Allow it (chmod, chown), or name another.",
            )


def own_user(name: str) -> int:
    """The user that a sandbox of this name runs as, where root starts it and it may write nothing."""
    return _FIRST_UID + zlib.crc32(name.encode()) % _UIDS


class Opened:
    """A sandbox about to start: its command, and later whom to signal inside."""

    def __init__(self, argv: list[str], env: Mapping[str, str], fds: tuple[int, int], said: int) -> None:
        self.argv = argv
        self.env = env
        self.fds = fds
        self._said = said
        self._first = 0
        os.set_blocking(said, False)

    def group(self) -> int | None:
        """The process group of what runs inside, once it is there.

        Bubblewrap passes no signals on: told to end, it takes everything inside with it at once.
        """
        if not self._first and self._said >= 0:
            with contextlib.suppress(OSError, ValueError, AttributeError):
                self._first = int(json.loads(os.read(self._said, 4096))["child-pid"])
        if not self._first:
            return None
        with contextlib.suppress(ProcessLookupError):
            # Until it has a session of its own, its group is bubblewrap's.
            return self._first if os.getpgid(self._first) == self._first else None
        return None

    def close(self) -> None:
        """Forget it."""
        if self._said >= 0:
            os.close(self._said)
            self._said = -1


_works: list[bool] = []


def require() -> None:
    """Raise NotAllowed with one sentence where no sandbox can be made here. Tried once, by making one."""
    if _works:
        return
    if problem := trouble():
        raise NotAllowed(f"No sandbox can be made here: {problem}.", FIX)
    _works.append(True)


def trouble() -> str | None:
    """Why no sandbox can be made here, or None; starts nothing but a program that ends at once."""
    if platform.system() != "Linux":
        return f"bubblewrap is for Linux, and this is {platform.system()}"
    box = Box("probe", ["/bin/sh", "-c", "exit 0"], {"PATH": PATH}, Policy())
    try:
        with box.open("probe") as opened:
            done = subprocess.run(
                opened.argv,
                env=dict(opened.env),
                pass_fds=opened.fds,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=20,
                check=False,
            )
            opened.close()
    except NotAllowed as error:
        return "bubblewrap is not installed" if "bwrap" in str(error) else str(error)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap could not be started ({type(error).__name__})"
    if done.returncode == 0:
        return None
    said = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:200]
    if re.search(r"namespace|uid map|Operation not permitted|Permission denied", said):
        return f"this system does not allow namespaces ({said})"
    return f"bubblewrap is too old (0.8 is known to work): {said}" if "nknown option" in said else said


def _kernel() -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r"\d+", platform.release())[:2])
