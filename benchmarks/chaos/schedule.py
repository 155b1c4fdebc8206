"""The schedule: every kind of fault in an order that the seed decides; after each it is asked whether it is over."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterator, Sequence
from typing import Any

from fastmcp import Client

from chaos.clients import SETTLE, Lost, ask
from chaos.injectors import FAULTS, Fault, Site
from chaos.judge import left_alone
from chaos.tally import Tally
from chaos.world import World

_ALLOWED = 2
"""Calls until one goes well: the first after a fault may still find what is broken."""


def shuffled(seed: int, kinds: Sequence[str], world: World) -> Iterator[tuple[Fault, str, float, random.Random]]:
    """Without end: fault, the upstream it befalls, how long it is held, its own random numbers."""
    chance = random.Random(seed)
    possible = [f for f in FAULTS if (not kinds or f.kind in kinds) and f.kind not in world.cannot]
    while True:
        deck = list(possible)
        chance.shuffle(deck)
        for fault in deck:
            yield fault, chance.choice(fault.on), chance.uniform(3.0, 9.0), random.Random(chance.random())


async def play(world: World, tally: Tally, seed: int, until: float, kinds: Sequence[str] = ()) -> None:
    """Faults one after the other until the moment ``until``."""
    async with Client(f"{world.url}/mcp") as client:
        for fault, upstream, hold, chance in shuffled(seed, kinds, world):
            if tally.now() >= until:
                return
            tally.active, tally.quiet_since = fault.kind, 0.0
            tally.faults[fault.kind] += 1
            print(f"{tally.now():7.1f} s  {fault.kind} ({upstream}, {hold:.0f} s)", flush=True)
            try:
                async with contextlib.AsyncExitStack() as undo:
                    await fault.inject(Site(world, tally, chance, hold, upstream, undo))
            except (OSError, RuntimeError, TimeoutError) as error:
                tally.violate("the bench itself", f"{fault.kind} could not be put on: {error}")
            await _recover(client, fault, upstream, tally)
            await asyncio.sleep(chance.uniform(1.0, 2.0))


async def _recover(client: Client[Any], fault: Fault, upstream: str, tally: Tally) -> None:
    """Ask until it goes well; more than two calls are a violation."""
    if fault.kind in ("upstream_changes_tools", "disk_full", "read_only", "database_locked"):
        await asyncio.sleep(SETTLE)
    for operation in dict.fromkeys((fault.probe, "invoke", "find")):
        attempts, said = 0, ""
        while attempts < 8:
            outcome, kind, said = await _tried(client, operation, upstream)
            if kind == "left_alone":
                # It says itself when it will be tried again: a client that waits has not called in vain.
                wait = left_alone(said)
                tally.waited[fault.kind] = max(tally.waited[fault.kind], wait)
                await asyncio.sleep(wait + 0.1)
                continue
            attempts += 1
            if outcome == "ok":
                break
            if kind == "not_approved":
                await asyncio.sleep(SETTLE)  # a refused call has its server listed again
            if outcome != "error":
                tally.violate("every error typed", f"after {fault.kind}: {operation} {upstream}: {kind}")
        tally.attempts[fault.kind][attempts] += 1
        if attempts > _ALLOWED:
            tally.violate("recovery within one call", f"{operation} {upstream}: {attempts} calls; last: {said[:300]}")
    tally.active, tally.quiet_since = "", tally.now()


async def _tried(client: Client[Any], operation: str, upstream: str) -> tuple[str, str, str]:
    try:
        return await ask(client, operation, upstream)
    except Lost as error:
        return "lost", str(error), str(error)
