"""Where foreign servers run: no network, no files of ours, nothing that stays, and an end that nobody escapes.

Three ways, best first; `choose` probes each by starting something in it:

- `Bubblewrap`: new namespaces for everything, as a real unprivileged user where we are root.
- `Namespaces`: the same view of the file system made with ``unshare`` and ``pivot_root``, for root without bubblewrap.
- `Unconfined`: an empty environment and limits only. Never chosen unless the user insists.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from toolscout.bubblewrap import (
    ETC,
    HOME,
    PATH,
    SYSTEM,
    WORKDIR,
    accounts,
    apart,
    disables_userns,
    limited,
    scratch,
    system_view,
    tool,
)
from toolscout.crawler.limits import MIB, Limits
from toolscout.errors import BadInput, NotAllowed

ORIGINAL = "/original"
"""Where the originals of `Job.copied` are seen inside."""

FIRST_UID = 60900
"""Unprivileged users that we become when we are root: numbers that no distribution gives out. No account is made."""


@dataclass(frozen=True)
class Job:
    """What to run in a sandbox."""

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    """All of its environment, apart from PATH, HOME, TMPDIR and the locale."""

    readable: Sequence[Path] = ()
    """Folders that it sees, read-only, at their own paths: its installation, the interpreter's prefix."""

    copied: Sequence[Path] = ()
    """Folders inside ``readable`` that it gets as writable copies: for servers that write beside their own code."""

    files: Mapping[str, str] = field(default_factory=dict)
    """Texts that it finds written when it starts, by their paths: absolute, or from its working folder."""

    limits: Limits = field(default_factory=Limits)
    slot: int = 0
    """Number of the worker; workers never share a user."""


class Sandbox(ABC):
    """Turns a job into a command line that runs it confined."""

    name: ClassVar[str]
    confined: ClassVar[bool] = True
    own_pids: ClassVar[bool] = True
    """Whether killing the first process kills all."""

    @abstractmethod
    def command(self, job: Job) -> list[str]:
        """The command line to start from an empty environment; it ends, with all its children, when it is killed."""

    def uid(self, slot: int) -> int:
        """The user that a worker's servers run as."""
        return FIRST_UID + 1 + slot if os.geteuid() == 0 else os.geteuid()


def install_uid() -> int:
    """The user that installs and owns the caches: another one than those that run servers, so that none can write
    into what it runs from."""
    return FIRST_UID if os.geteuid() == 0 else os.geteuid()


class Bubblewrap(Sandbox):
    """bubblewrap in a user namespace of an unprivileged user."""

    name = "bubblewrap"

    def command(self, job: Job) -> list[str]:
        """See `Sandbox.command`."""
        size = str(job.limits.disk * MIB)
        line = apart([*become(self.uid(job.slot)), tool("bwrap")])
        line += ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL", "--clearenv"]
        line += scratch(size=job.limits.disk, shared=job.limits.shared)
        if disables_userns():
            line += ["--unshare-user", "--disable-userns"]
        line += system_view()
        for name, path in accounts(self.uid(job.slot)).items():
            line += ["--ro-bind", str(path), f"/etc/{name}"]
        for path in job.readable:
            line += ["--ro-bind", str(path), str(path)]
        for number, path in enumerate(job.copied):
            line += ["--ro-bind", str(path), f"{ORIGINAL}/{number}", "--size", size, "--tmpfs", str(path)]
        for name, value in environment(job.env).items():
            line += ["--setenv", name, value]
        line += ["--dir", HOME, "--dir", WORKDIR, "--chdir", WORKDIR, "--remount-ro", "/", "--"]
        return [*line, *_prepared(job, self.uid(job.slot)), *_limited(job)]


class Namespaces(Sandbox):
    """Namespaces made by root with util-linux, then an unprivileged user without any capability."""

    name = "namespaces"

    _SCRIPT = """set -e
new=$1; shift
mount -t tmpfs -o "size=16m,mode=755,nosuid" toolscout "$new"
cd "$new"
mkdir -p proc dev etc tmp original old
while [ "$1" != -- ]; do
  kind=$1; from=$2; to=.$3; shift 3
  case $kind in
    link) ln -s "$from" "$to" ;;
    bind) if [ -d "$from" ]; then mkdir -p "$to"; else mkdir -p "$(dirname "$to")"; : > "$to"; fi
      mount --rbind "$from" "$to"; mount -o remount,bind,ro,nosuid "$to" ;;
    tmpfs) mkdir -p "$to"; mount -t tmpfs -o "size=$from,mode=1777,nosuid,nodev" toolscout "$to" ;;
  esac
done
shift
for node in null zero full random urandom; do : > "dev/$node"; mount --bind "/dev/$node" "dev/$node"; done
ln -s /proc/self/fd dev/fd; ln -s /proc/self/fd/0 dev/stdin; ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
mount -t proc -o nosuid,nodev,noexec proc proc
mkdir -p tmp/home tmp/work; chmod 1777 tmp/home tmp/work
ip link set lo up 2>/dev/null || true
pivot_root . old
umount -l /old; rmdir /old
mount -o remount,ro /
cd /tmp/work
exec "$@"
"""

    def command(self, job: Job) -> list[str]:
        """See `Sandbox.command`."""
        uid, size = self.uid(job.slot), str(job.limits.disk * MIB)
        steps: list[str] = []
        for path in map(Path, SYSTEM):
            if path.is_symlink():
                steps += ["link", str(path.readlink()), str(path)]
            elif path.exists():
                steps += ["bind", str(path), str(path)]
        steps += [w for n in ETC if Path("/etc", n).exists() for w in ("bind", f"/etc/{n}", f"/etc/{n}")]
        steps += [w for n, path in accounts(uid).items() for w in ("bind", str(path), f"/etc/{n}")]
        steps += ["tmpfs", size, "/tmp", "tmpfs", str(job.limits.shared * MIB), "/dev/shm"]
        for path in job.readable:
            steps += ["bind", str(path), str(path)]
        for number, path in enumerate(job.copied):
            steps += ["bind", str(path), f"{ORIGINAL}/{number}", "tmpfs", size, str(path)]
        line = [tool("setpriv"), "--pdeathsig", "KILL", tool("unshare"), "--mount", "--net", "--pid", "--ipc"]
        line += ["--uts", "--fork", "--kill-child=KILL", "--", "/bin/sh", "-c", self._SCRIPT, "sh"]
        line += ["/mnt", *steps, "--", *become(uid), tool("env"), "-i"]
        line += [f"{name}={value}" for name, value in environment(job.env).items()]
        return [*line, *_prepared(job, uid), *_limited(job)]


class Unconfined(Sandbox):
    """No sandbox: limits and an environment of its own only. The user has to insist on it."""

    name = "none"
    confined = False
    own_pids = False

    def command(self, job: Job) -> list[str]:
        """See `Sandbox.command`. ``copied`` and ``files`` are ignored: folders are as they lie there."""
        uid = self.uid(job.slot)
        line = [*become(uid), tool("env"), "-i", *(f"{k}={v}" for k, v in environment(job.env).items())]
        setup = f'mkdir -p {HOME}-{uid} && cd {HOME}-{uid} && export HOME="$PWD" && exec "$@"'
        return [*line, "/bin/sh", "-c", setup, "sh", *_limited(job)]


def choose(wanted: str = "auto") -> Sandbox:
    """The best sandbox that works here.

    Args:
        wanted: ``auto``, or the name of one: ``bubblewrap``, ``namespaces``, ``none``.

    Raises:
        NotAllowed: none works (``none`` has to be asked for by name).
        BadInput: there is no sandbox of this name.
    """
    kinds: dict[str, type[Sandbox]] = {k.name: k for k in (Bubblewrap, Namespaces, Unconfined)}
    if wanted != "auto":
        if wanted not in kinds:
            raise BadInput(f"There is no sandbox '{wanted}'.", f"Known are: auto, {', '.join(kinds)}.")
        sandbox = kinds[wanted]()
        problem = probe(sandbox) if sandbox.confined else None
        if problem:
            raise NotAllowed(f"The sandbox {wanted} does not work here: {problem}.")
        return sandbox
    problems = []
    for kind in (Bubblewrap, Namespaces):
        problem = probe(kind())
        if problem is None:
            return kind()
        problems.append(f"{kind.name}: {problem}")
    raise NotAllowed(
        f"Foreign servers are only started in a sandbox, and none works here ({'; '.join(problems)}).",
        "Install bubblewrap (apt install bubblewrap), or list with --no-deploy; --sandbox none runs them unconfined.",
    )


_PROBE = """id -u; grep -c : /proc/net/dev
for f in /usr/.toolscout /etc/.toolscout /.toolscout "$1"; do
  [ ! -e "$f" ] && ( : > "$f" ) 2>/dev/null && echo "$f"
done
[ -e "$2" ] && echo "$2"
: > /tmp/ok && echo done"""


def probe(sandbox: Sandbox) -> str | None:
    """Why a sandbox does not work here, or None. Starts a shell in it that tries to get out."""
    with tempfile.TemporaryDirectory(prefix="toolscout-probe-") as folder:
        Path(folder).chmod(0o777)
        job = Job(["/bin/sh", "-c", _PROBE, "sh", f"{folder}/out", folder])
        try:
            done = subprocess.run(
                sandbox.command(job), env={}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20
            )
        except NotAllowed as error:
            return str(error)
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"{type(error).__name__}"
    lines = done.stdout.split()
    if not lines or lines[-1] != "done":
        return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:200]
    if lines[0] == "0":
        return "it runs as root"
    if lines[1] != "1":
        return "it sees network interfaces"
    return f"it can reach {lines[2]}" if lines[2] != "done" else None


def refusal(sandbox: Sandbox, job: Job) -> str:
    """Why a program that should end at once does not start in a sandbox, its own last line; empty where it does."""
    try:
        done = subprocess.run(
            sandbox.command(job),
            env={},
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=20,
        )
    except NotAllowed as error:
        return str(error)
    except (OSError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:200]


def environment(given: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a sandboxed program: nothing of ours."""
    fixed = {
        "PATH": PATH,
        "HOME": HOME,
        "TMPDIR": "/tmp",
        "USER": "scout",
        "LOGNAME": "scout",
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "XDG_RUNTIME_DIR": "/tmp",
    }
    return {**fixed, **given}


def _prepared(job: Job, uid: int) -> list[str]:
    """A shell that fills the writable copies and writes the files, then gives way."""
    if not job.copied and not job.files:
        return []
    words = [*map(str, job.copied), *(word for pair in job.files.items() for word in pair)]
    steps = [f'cp -r {ORIGINAL}/{n}/. "${{{n + 1}}}"/' for n in range(len(job.copied))]
    for n in range(len(job.copied) + 1, len(words), 2):
        steps.append(f'mkdir -p "$(dirname "${{{n}}}")" && printf %s "${{{n + 1}}}" > "${{{n}}}"')
    return ["/bin/sh", "-c", f'{" && ".join(steps)} && shift {len(words)} && exec "$@"', "sh", *words]


def _limited(job: Job) -> list[str]:
    """The command under resource limits."""
    limits = job.limits
    more = [f"--fsize={limits.disk * MIB}", f"--cpu={int(limits.seconds * 2) + 5}"]
    return limited(job.argv, memory=limits.memory, processes=limits.processes, files=limits.files, more=more)


def become(uid: int) -> list[str]:
    """Give up root for good; nothing when we are not root."""
    if os.geteuid() != 0:
        return []
    line = [tool("setpriv"), f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
    return [*line, "--inh-caps=-all", "--bounding-set=-all", "--"]
