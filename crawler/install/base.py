"""What installers share: the interface, the result, and running a package client as an unprivileged user."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from toolscout.bubblewrap import apart
from toolscout.crawler.failures import DeployError, Failure
from toolscout.crawler.limits import MIB, Limits
from toolscout.crawler.process import Stderr, kill_all
from toolscout.crawler.sandbox import install_uid
from toolscout.errors import NotAllowed

_POLL = 1.0


@dataclass(frozen=True)
class Entry:
    """One way to start a package."""

    name: str
    """What a user types: the name of the command."""
    argv: tuple[str, ...]
    readable: tuple[Path, ...] = ()
    """What it needs to see besides the installation (the interpreter's prefix)."""
    launcher: str = ""
    """What starts it where that is not the registry's usual launcher: ``bunx``."""


@dataclass(frozen=True)
class Metadata:
    """What a package says of itself."""

    name: str
    version: str = ""
    description: str = ""
    license: str | None = None
    homepage: str | None = None
    keywords: tuple[str, ...] = ()
    dependencies: tuple[str, ...] = ()
    """Names only."""
    requires_runtime: str | None = None


@dataclass
class Installed:
    """An installation: what it says of itself, how it may be started, and what it takes."""

    folder: Path
    metadata: Metadata
    entries: list[Entry] = field(default_factory=list)
    own: tuple[Path, ...] = ()
    """The package's own folders, without its dependencies."""
    size: int = 0
    """Bytes on disk."""
    pinned: str | None = None
    """The moment to which the resolver's clock was set, if it was."""
    clock: tuple[str, ...] = ()
    """The options that set it, as the client takes them: for all packages, or for some alone."""
    extra: str = ""
    """The package's optional parts that were installed with it."""


class Installer(ABC):
    """Installs packages of one registry."""

    registry: ClassVar[str]
    problems: list[str]
    """What of its programs is missing here or cannot be run, each in half a sentence."""

    @property
    @abstractmethod
    def usable(self) -> bool:
        """Whether all that it needs is here."""

    @abstractmethod
    def keep_starting(self, refusal: Callable[[Entry], str]) -> None:
        """Give up interpreters that do not start where servers run, and note that among the problems.

        Args:
            refusal: why one does not start there; empty where it does.
        """

    @abstractmethod
    async def install(
        self, folder: Path, package: str, version: str | None, pin: str | None = None, extra: str = ""
    ) -> Installed:
        """Install into an empty folder, running nothing of the package.

        Args:
            version: None for the newest.
            pin: set the resolver's clock to this moment (ISO 8601), where the client can.
            extra: of the package's optional parts those to install with it (PyPI), apart by commas.

        Raises:
            DeployError: of class ``install``, with what the client said.
        """

    def interpreter(self) -> Entry | None:
        """A Python that starts where servers run, for programs of ours; None where there is none."""
        return None

    def other_runtime(self, entry: Entry, said: str) -> Entry | None:
        """The same command under another runtime that is here, where what it said calls for that one."""
        return None


@dataclass(frozen=True)
class Shop:
    """Where and as whom package clients run: one for each work folder."""

    cache: Path
    """Shared by all installations; writable for the installing user alone."""
    config: Path
    """Home of the clients: their configuration, copied from the user's own."""
    limits: Limits = field(default_factory=Limits)

    @classmethod
    def open(cls, work: Path, limits: Limits) -> Shop:
        """Make the folders, owned by the installing user."""
        shop = cls(work / "cache", work / "config", limits)
        for folder in (shop.cache, shop.config, shop.cache / "tmp"):
            own_folder(folder, 0o700)
        return shop

    async def run(
        self, argv: Sequence[str], folder: Path, env: Mapping[str, str], seconds: float | None = None
    ) -> tuple[int, str]:
        """Run a package client in ``folder``; its exit status and what it printed.

        Raises DeployError when it takes longer or fills more disk than the limits allow.
        """
        seconds = seconds or self.limits.install_seconds
        process = await asyncio.create_subprocess_exec(
            *self._confined(folder, argv),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=folder,
            env={**client_environment(), "HOME": str(self.config), "TMPDIR": str(self.cache / "tmp"), **env},
            start_new_session=True,
        )
        said = Stderr()
        free = _free(folder)

        async def read() -> None:
            assert process.stdout is not None
            while data := await process.stdout.read(1 << 16):
                said.add(data)
            await process.wait()

        reading = asyncio.create_task(read())
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        try:
            while not reading.done():
                await asyncio.wait([reading], timeout=min(_POLL, max(deadline - loop.time(), 0.01)))
                if reading.done():
                    break
                if loop.time() >= deadline:
                    raise DeployError(
                        Failure.INSTALL, "timeout", f"{said.text}\nstill installing after {seconds:.0f} s"
                    )
                if self._grew(free):
                    self.sized(folder)
        finally:
            if process.returncode is None:
                kill_all(process.pid)
            await asyncio.wait([reading], timeout=5)
            reading.cancel()
        return process.returncode or 0, said.text

    def sized(self, folder: Path) -> int:
        """The installation's bytes. Raises DeployError when they are more than the limits allow."""
        size = folder_size(folder)
        if size > self.limits.install_disk * MIB:
            raise DeployError(
                Failure.INSTALL, "too_large", f"the installation grew beyond {self.limits.install_disk} MiB"
            )
        return size

    def _grew(self, before: int) -> bool:
        """Whether an installation can have grown too large, as cheaply as can be: to go through all of its files every
        second costs as much as installing it. Other workers' files count in, so a yes is only a reason to look."""
        return before - _free(self.cache) > self.limits.install_disk * MIB // 2

    def _confined(self, folder: Path, argv: Sequence[str]) -> list[str]:
        """As the installing user, who can write the installation and the caches and nothing else."""
        line = []
        if os.geteuid() == 0:
            uid = install_uid()
            setpriv = shutil.which("setpriv") or "setpriv"
            line = [setpriv, f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs"]
            line += ["--inh-caps=-all", "--bounding-set=-all", "--"]
        bwrap = shutil.which("bwrap")
        if bwrap is not None:
            line += [bwrap, "--die-with-parent", "--unshare-pid", "--unshare-ipc", "--ro-bind", "/", "/"]
            line += ["--dev", "/dev", "--proc", "/proc"]
            for path in (self.cache, self.config, folder):
                line += ["--bind", str(path), str(path)]
            line = apart([*line, "--chdir", str(folder), "--"])
        return [*line, *argv]


_PASSED = re.compile(
    r"(?:NPM_CONFIG_|UV_|PIP_|BUN_CONFIG_)\w+|(?:HTTPS?|ALL|NO)_PROXY|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|"
    r"NODE_EXTRA_CA_CERTS|CURL_CA_BUNDLE|LANG|LC_\w+",
    re.I,
)


def client_environment() -> dict[str, str]:
    """The package clients' own settings, proxies and certificates; nothing else of our environment."""
    kept = {name: value for name, value in os.environ.items() if _PASSED.fullmatch(name)}
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "CI": "1", "NO_COLOR": "1", **kept}


def own_folder(folder: Path, mode: int = 0o755) -> Path:
    """Make a folder that belongs to the installing user."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(mode)
    if os.geteuid() == 0:
        os.chown(folder, install_uid(), install_uid())
    return folder


def _free(folder: Path) -> int:
    """Free bytes of its file system."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


def folder_size(folder: Path) -> int:
    """Bytes of all files in a folder, links not followed; what vanishes meanwhile counts nothing."""
    total, queue = 0, [str(folder)]
    while queue:
        with contextlib.suppress(OSError), os.scandir(queue.pop()) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        queue.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    return total


_AVOIDED = re.compile(
    r"(?:^|[-_:])(?:install(?:er)?|setup|init|configure|config|wizard|login|auth|uninstall|migrate|test|dev|client|"
    r"inspector|cli|bench\w*|demo|example|doctor|daemon|hook|proxy)(?:$|[-_:])",
    re.I,
)


def ranked(names: Sequence[str], package: str) -> list[str]:
    """Command names, the likeliest server first: named as the package, then by what the name says."""

    def key(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    bare = key(package.rpartition("/")[2])

    def score(name: str) -> tuple[bool, bool, int, int]:
        k = key(name)
        words = ("mcp" in k) + ("server" in k) + ("stdio" in k)
        return (_AVOIDED.search(name) is not None and k != bare, k != bare, -words, len(name))

    return sorted(dict.fromkeys(names), key=score)


def reachable(folder: Path) -> bool:
    """Whether the installing user can enter a folder (a home of root's often bars it)."""
    if os.geteuid() != 0:
        return os.access(folder, os.W_OK | os.X_OK)
    uid = install_uid()
    for path in (folder, *folder.parents):
        mode = path.stat()
        if not mode.st_mode & 0o001 and mode.st_uid != uid:
            return False
    return True


def told(line: Sequence[str], seconds: float = 300.0) -> str:
    """What a program of the user's own says when it is asked something; empty when it fails.

    Raises NotAllowed when it does not answer at all: going on without its settings could ask the wrong registry.
    """
    try:
        done = subprocess.run(line, capture_output=True, text=True, check=False, cwd="/", timeout=seconds)
    except OSError:
        return ""
    except subprocess.TimeoutExpired:
        raise NotAllowed(f"{' '.join(line[:3])} does not answer.", "Is the machine overloaded? Try again.") from None
    return done.stdout.strip() if done.returncode == 0 else ""
