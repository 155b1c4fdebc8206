"""The faults: each is put on, held for some seconds, and lifted; then it is tried how soon all is well again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from chaos.model import NONSENSE
from chaos.tally import Tally
from chaos.world import STDIO, WEB, World

Inject = Callable[["Site"], Awaitable[None]]

_GONE = Path(__file__).with_name("gone.py")
_LOCKER = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
connection.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""


@dataclass
class Site:
    """What a fault works on; it puts what ends it into ``undo``, which is done in any case."""

    world: World
    tally: Tally
    random: random.Random
    hold: float
    upstream: str
    undo: contextlib.AsyncExitStack

    def later(self, work: Callable[..., object], *args: object) -> None:
        """Do this when the fault is lifted."""
        self.undo.callback(work, *args)


@dataclass(frozen=True)
class Fault:
    """One kind. ``on``: which upstreams it can befall, else ``what`` other operation shows its end."""

    kind: str
    inject: Inject
    on: tuple[str, ...] = (*STDIO, WEB)
    probe: str = "invoke"


def _says(*words: str) -> Inject:
    async def inject(site: Site) -> None:
        site.world.say(site.upstream, site.random.choice(words))
        site.later(site.world.say, site.upstream, "ok")
        await asyncio.sleep(site.hold)

    return inject


async def _kill(site: Site) -> None:
    """Its processes are killed again and again."""
    site.later(site.world.start_web)
    end = site.tally.now() + site.hold
    while site.tally.now() < end:
        site.world.signal_upstream(site.upstream, signal.SIGKILL)
        await asyncio.sleep(site.random.uniform(0.5, 2.0))


async def _stop(site: Site) -> None:
    """Its processes stand still, and those that are started meanwhile too."""
    site.later(site.world.signal_upstream, site.upstream, signal.SIGCONT)
    end = site.tally.now() + site.hold
    while site.tally.now() < end:
        site.world.signal_upstream(site.upstream, signal.SIGSTOP)
        await asyncio.sleep(0.5)


async def _fill_disk(site: Site) -> None:
    """Not a byte is left where the catalogue and the index are; tools change meanwhile, which wants to be written."""
    filler = site.world.home / "filler"
    site.later(filler.unlink)
    site.later(site.world.say, site.upstream, "ok")
    with filler.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (1 << 20, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)
    if site.upstream != WEB:
        site.world.say(site.upstream, "change")
    await asyncio.sleep(site.hold)


async def _read_only(site: Site) -> None:
    """Nothing in the home folder may be written or made: the files and folders lose their write permission."""
    paths = [site.world.home, *site.world.home.rglob("*")]
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            mode = path.stat().st_mode
            site.later(_restore, path, stat.S_IMODE(mode))
            path.chmod(stat.S_IMODE(mode) & ~0o222)
    site.later(site.world.say, site.upstream, "ok")
    if site.upstream != WEB:
        site.world.say(site.upstream, "change")
    await asyncio.sleep(site.hold)


def _restore(path: Path, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.chmod(mode)


def _jump(*seconds: int) -> Inject:
    async def inject(site: Site) -> None:
        site.world.clock.jump(site.random.choice(seconds))
        site.later(site.world.clock.jump, 0)
        await asyncio.sleep(site.hold)

    return inject


async def _lock_database(site: Site) -> None:
    """Another process holds the write lock; tools of an upstream change meanwhile."""
    locker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _LOCKER, str(site.world.database), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert locker.stdout is not None
    site.later(locker.kill)
    site.later(site.world.say, site.upstream, "ok")
    if not await locker.stdout.readline():
        raise RuntimeError("the lock on the catalogue was not got")
    if site.upstream != WEB:
        site.world.say(site.upstream, "change")
    await asyncio.sleep(site.hold)


async def _model_down(site: Site) -> None:
    await asyncio.to_thread(site.world.model.down)
    site.later(site.world.model.up)
    await asyncio.sleep(site.hold)


def _model(*modes: str) -> Inject:
    async def inject(site: Site) -> None:
        site.later(setattr, site.world.model, "mode", "ok")
        end = site.tally.now() + site.hold
        while site.tally.now() < end:
            site.world.model.mode = site.random.choice(modes)
            await asyncio.sleep(1.0)

    return inject


def _client_gone(face: str) -> Inject:
    async def inject(site: Site) -> None:
        """A client is killed while its call is at the upstream."""
        world = site.world
        target = [f"{world.url}/mcp"] if face == "http" else []
        wait = [f"{site.upstream}/wait", f"n-gone-{site.random.randrange(10**9)}"]
        client = await asyncio.create_subprocess_exec(
            sys.executable, str(_GONE), face, *target, *wait,
            env=world.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        assert client.stdout is not None
        try:
            said = await asyncio.wait_for(client.stdout.readline(), 60)
            if said.strip() != b"connected":
                raise RuntimeError(f"the client that was to go did not come: {said!r}")
            await asyncio.sleep(min(site.hold, site.random.uniform(0.3, 3.0)))
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(client.pid, signal.SIGKILL)
            await client.wait()

    return inject


FAULTS = (
    Fault("upstream_killed", _kill),
    Fault("upstream_stopped", _stop),
    Fault("upstream_slow", _says("slow")),
    Fault("upstream_hangs", _says("hang")),
    Fault("upstream_floods", _says("flood_stdout", "flood_stderr", "flood_answer")),
    Fault("upstream_lies", _says("lie_schema", "lie_shape", "lie_ids", "lie_error")),
    Fault("upstream_changes_tools", _says("change"), on=STDIO),
    Fault("upstream_drops", _says("drop")),
    Fault("upstream_crashes", _says("crash")),
    Fault("upstream_leaks", _says("leak"), on=STDIO),
    Fault("upstream_forks", _says("fork"), on=STDIO),
    Fault("disk_full", _fill_disk),
    Fault("read_only", _read_only),
    Fault("clock_forward", _jump(3600, 86_400 * 400)),
    Fault("clock_back", _jump(-3600, -86_400 * 400)),
    Fault("database_locked", _lock_database),
    Fault("model_down", _model_down, probe="suggest"),
    Fault("model_nonsense", _model(*NONSENSE), probe="suggest"),
    Fault("model_slow", _model("slow"), probe="suggest"),
    Fault("client_gone_http", _client_gone("http")),
    Fault("client_gone_stdio", _client_gone("stdio")),
)
