"""What is looked at all the time: the server lives, no process is left alone, memory stays bounded."""

from __future__ import annotations

import asyncio
import os

from chaos.processes import command_of, descends, descriptors, marked, rss_mb
from chaos.tally import Tally
from chaos.world import MARK, World

_ALONE_SECONDS = 20.0
"""A process may be without a living Toolscout for so long: the watchdog takes two seconds, a busy machine more."""
_EVERY = 2.0
_MOST_MB = 900.0


async def watch(world: World, tally: Tally, stop: asyncio.Event) -> None:
    """Look every two seconds until ``stop``; a server that has ended is noted and started again."""
    alone: dict[int, float] = {}
    while not stop.is_set():
        if not world.server_alive():
            code = world.server.returncode if world.server is not None else None
            tally.violate("no crash", f"toolscout serve --http ended with {code}: {_last_words(world)}")
            await world.start_server()
        assert world.server is not None
        size = rss_mb(world.server.pid)
        tally.memory.append((round(tally.now(), 1), round(size, 1), descriptors(world.server.pid)))
        if size > _MOST_MB:
            tally.violate("memory bounded", f"{size:.0f} MB")
        found = await asyncio.to_thread(_orphans, world)
        alone = {pid: alone.get(pid, tally.now()) for pid in found}
        for pid, since in list(alone.items()):
            if tally.now() - since > _ALONE_SECONDS:
                tally.violate("no orphan", f"{pid}: {command_of(pid)}")
                alone[pid] = float("inf")
        await asyncio.sleep(_EVERY)


def _orphans(world: World) -> list[int]:
    return [pid for pid, _ in marked(MARK, world.run) if not descends(pid, os.getpid())]


def _last_words(world: World) -> str:
    return world.log.read_text("utf-8", "replace")[-500:]


def growth(memory: list[tuple[float, float, int]]) -> dict[str, float]:
    """Memory and descriptors of the first third after the start, and of the last third: medians and peaks."""
    if len(memory) < 9:
        return {}
    third = len(memory) // 3
    first, last = memory[third // 3 : third], memory[-third:]
    middle = lambda rows, n: sorted(row[n] for row in rows)[len(rows) // 2]  # noqa: E731
    return {
        "mb_early": middle(first, 1),
        "mb_late": middle(last, 1),
        "mb_peak": max(row[1] for row in memory),
        "descriptors_early": middle(first, 2),
        "descriptors_late": middle(last, 2),
    }
