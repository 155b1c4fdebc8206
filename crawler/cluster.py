"""Deployments on the machines of a Ray cluster: one station a machine, each an actor; the crawl's memory stays here.

Ray (Moritz et al., OSDI 2018) starts the stations, carries orders there and outcomes back, and says which process or
machine has died. What was being deployed there is tried again elsewhere. All else (what is deployed when, what is
stored) is the driver's, `toolscout.crawler.crawl`, exactly as with workers on one machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import Callable, Collection
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass
from typing import Any

from toolscout.crawler.deploy import Outcome
from toolscout.crawler.failures import Failure, Verdict, excerpt
from toolscout.crawler.place import Place, Seat
from toolscout.crawler.remote_station import MOST_SLOTS, Opened, RemoteStation, Setup
from toolscout.crawler.station import Order
from toolscout.errors import NotAllowed, ToolscoutError, UpstreamError
from toolscout.ray_link import check_ray, join_cluster, said_by_ray

_TRIES = 3
"""A package whose station died so often while it was deployed has failed."""
_REOPENINGS = 3
"""A station that died so often in a row, without having finished anything, is not opened again."""
_WATCH_EVERY = 3.0
_PATIENCE = 60.0
"""Seconds without any machine after which the crawl stops."""
_OPENING = 180.0
"""Seconds that a station may take to open."""
_CLOSING = 20.0


@dataclass(eq=False)
class _Machine:
    """A station and what Ray calls its machine."""

    node: str
    actor: Any
    opened: Opened


@dataclass
class _Node:
    """A machine of the cluster, whether or not a station is open there."""

    name: str
    died: int = 0
    """How often its stations died since one last finished something."""


class Cluster(Place):
    """The machines of a Ray cluster that have CPUs for it (``ray start --num-cpus 0`` keeps one out).

    A machine where the sandbox, or an installer that the others have, does not work is left out, and so is one whose
    disk is full; those that join later are taken in.

    Args:
        address: ``local``, ``auto`` (the cluster of this machine), or HOST:PORT of its head.
        workers: deployments at once on each machine.
        note: told which machines are used and which are not, and why.

    Raises:
        NotAllowed: Ray is not installed; on entering: no machine can deploy.
        NotFound: on entering: no cluster answers there.
    """

    def __init__(self, address: str, setup: Setup, workers: int, note: Callable[[str], None] = lambda _: None) -> None:
        check_ray(address)
        self._address = address
        self._setup = setup
        self._workers = min(max(1, workers), MOST_SLOTS)
        self._note = note
        self._ray: Any = None
        self._nodes: dict[str, _Node] = {}
        self._machines: list[_Machine] = []
        self._free: deque[tuple[_Machine, int]] = deque()
        self._changed = asyncio.Condition()
        self._opening: set[asyncio.Task[None]] = set()
        self._refused: list[str] = []
        self._over: ToolscoutError | None = None
        self._alone = asyncio.Lock()
        self._ends = AsyncExitStack()
        self._joined = self._ends.enter_context(ExitStack())

    async def __aenter__(self) -> Cluster:
        try:
            self._ray = join_cluster(self._address, self._joined)
            await asyncio.gather(*self._look(await asyncio.to_thread(self._ray.nodes)))
            self.registries = frozenset().union(*(m.opened.registries for m in self._machines))
            for machine in list(self._machines):
                if lacking := self._lacking(machine.opened):
                    await self._leave_out(machine, lacking)
            if not self._machines:
                why = "; ".join(self._refused) or "it has none with a CPU for it"
                raise NotAllowed(f"No machine of the Ray cluster can deploy: {why}.")
            watch = asyncio.create_task(self._watch())
            self._ends.callback(watch.cancel)
        except BaseException:
            await self.__aexit__()
            raise
        self.size = len(self._free)
        self.sandbox = ", ".join(sorted({m.opened.sandbox for m in self._machines}))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = self._over or NotAllowed("The crawl is over.")
        # A station that is opened in place of a dead one ends first what that one may have left running.
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait([asyncio.create_task(asyncio.sleep(0)), *self._opening], timeout=_CLOSING)
        for task in self._opening:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*self._opening, return_exceptions=True)
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*(self._close(m.actor) for m in self._machines))
        await self._ends.aclose()

    async def seat(self) -> Seat:
        """See `Place.seat`."""
        machine, slot = await self._take()
        return _Chair(self, machine, slot)

    async def deploy(self, order: Order, machine: _Machine, slot: int) -> Outcome:
        """Deploy in a slot of a machine; elsewhere where that one dies."""
        deaths: list[str] = []
        async with AsyncExitStack() as until_done:
            while True:
                try:
                    done = await machine.actor.deploy.remote(order, slot)
                except self._ray.exceptions.RayTaskError as error:
                    await self._give(machine, slot)
                    raise error.as_instanceof_cause() from None
                except self._ray.exceptions.RayError as error:
                    deaths.append(f"{machine.opened.name}: {said_by_ray(error)}")
                    await self._lost(machine, said_by_ray(error))
                else:
                    if not isinstance(done, ToolscoutError):
                        self._nodes[machine.node].died = 0
                        await self._give(machine, slot)
                        outcome: Outcome = done.unpack()
                        return outcome
                    await self._leave_out(machine, done)
                if len(deaths) >= _TRIES:
                    return Outcome(Verdict(Failure.LOST, "station_died", excerpt("\n".join(deaths))))
                if len(deaths) == 1:
                    # One suspect at a time: of those that died together, the guilty one must not take the others with
                    # it again and again.
                    await until_done.enter_async_context(self._alone)
                machine, slot = await self._take()

    # --- seats -------------------------------------------------------------------------------------------------------

    async def _take(self) -> tuple[_Machine, int]:
        async with self._changed:
            await self._changed.wait_for(lambda: self._free or self._over)
            if self._over is not None:
                raise self._over
            return self._free.popleft()

    async def _give(self, machine: _Machine, slot: int) -> None:
        async with self._changed:
            if machine in self._machines:
                self._free.append((machine, slot))
                self._changed.notify_all()

    async def _drop(self, machine: _Machine) -> bool:
        """Forget a machine and its seats; False when somebody else has."""
        async with self._changed:
            if machine not in self._machines:
                return False
            self._machines.remove(machine)
            self._free = deque(seat for seat in self._free if seat[0] is not machine)
        return True

    async def _stop(self, error: ToolscoutError) -> None:
        async with self._changed:
            self._over = self._over or error
            self._changed.notify_all()

    # --- machines ----------------------------------------------------------------------------------------------------

    def _look(self, nodes: Collection[dict[str, Any]]) -> list[asyncio.Task[None]]:
        """Open stations on machines that are new."""
        fresh = [n for n in nodes if n["Alive"] and n["Resources"].get("CPU") and n["NodeID"] not in self._nodes]
        for node in fresh:
            self._nodes[node["NodeID"]] = _Node(node["NodeManagerHostname"])
        return [self._open_soon(node["NodeID"]) for node in fresh]

    async def _watch(self) -> None:
        """Notice machines that join or leave; stop the crawl when none has been left for a while."""
        seen = time.monotonic()
        while True:
            await asyncio.sleep(_WATCH_EVERY)
            try:
                nodes = await asyncio.to_thread(self._ray.nodes)
            except self._ray.exceptions.RayError as error:
                await self._stop(UpstreamError(f"The Ray cluster does not answer any more: {said_by_ray(error)}."))
                return
            self._look(nodes)
            alive = {n["NodeID"] for n in nodes if n["Alive"]}
            for machine in [m for m in self._machines if m.node not in alive]:
                await self._lost(machine, "its machine has left the cluster")
            if self._machines or self._opening:
                seen = time.monotonic()
            elif time.monotonic() - seen > _PATIENCE:
                why = "; ".join(self._refused[-3:])
                await self._stop(UpstreamError(f"No machine of the Ray cluster is left{f' ({why})' if why else ''}."))

    def _open_soon(self, node: str) -> asyncio.Task[None]:
        task = asyncio.create_task(self._open(node))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return task

    async def _open(self, node: str) -> None:
        """Open a station; a machine that cannot is left out."""
        strategies = self._ray.util.scheduling_strategies
        placed = strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        # No CPU is reserved: installing and starting wait for the network and the disk most of the time.
        remote = self._ray.remote(RemoteStation).options(num_cpus=0, scheduling_strategy=placed)
        actor = remote.remote(self._setup)
        opened: Opened | ToolscoutError | None = None
        try:
            async with asyncio.timeout(_OPENING):
                opened = await actor.open.remote()
        except TimeoutError:
            await self._refuse(node, f"nothing came within {_OPENING:.0f} s", actor)
        except self._ray.exceptions.RayError as error:
            await self._refuse(node, said_by_ray(error), actor)
        except asyncio.CancelledError:
            self._ray.kill(actor)
            raise
        if opened is None:
            return
        if isinstance(opened, ToolscoutError):
            await self._refuse(node, opened.sentence(), actor)
            return
        if lacking := self._lacking(opened):
            await self._refuse(node, lacking.sentence(), actor)
            return
        if self._nodes[node].died >= _REOPENINGS:
            await self._refuse(node, f"its station died {self._nodes[node].died} times", actor)
            return
        if not opened.confined:
            self._note(f"WARNING: on {opened.name} servers run without a sandbox.")
        machine = _Machine(node, actor, opened)
        async with self._changed:
            self._machines.append(machine)
            self._free.extend((machine, slot) for slot in range(self._workers))
            self._changed.notify_all()

    def _lacking(self, opened: Opened) -> NotAllowed | None:
        """Why a machine cannot take part: orders go to any, so all must install what any does."""
        lacking = sorted(set(self.registries) - opened.registries)
        return NotAllowed(f"It cannot install {' and '.join(lacking)} packages, as others can.") if lacking else None

    async def _lost(self, machine: _Machine, why: str) -> None:
        """A station has died: another one is opened on its machine. Where that has not helped, it only ends what the
        dead one may have left running."""
        if not await self._drop(machine):
            return
        self._note(f"The station {machine.opened.name} died; what it was deploying is tried again. {why}")
        self._ray.kill(machine.actor)  # it may only be out of reach: what it finishes now, nobody waits for
        self._nodes[machine.node].died += 1
        self._open_soon(machine.node)

    async def _leave_out(self, machine: _Machine, error: ToolscoutError) -> None:
        """A machine says itself that it cannot go on."""
        if await self._drop(machine):
            self._refused.append(f"{machine.opened.name}: {error.sentence()}")
            self._note(f"Left out: {self._refused[-1]}")
            await self._close(machine.actor)
            if not self._machines and not self._opening:
                await self._stop(error)

    async def _refuse(self, node: str, why: str, actor: Any) -> None:
        self._refused.append(f"{self._nodes[node].name}: {why}".rstrip("."))
        self._note(f"Left out: {self._refused[-1]}.")
        await self._close(actor)

    async def _close(self, actor: Any) -> None:
        """End a station: what runs there first, then its process."""
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CLOSING):
                await actor.close.remote()
                await actor.__ray_terminate__.remote()
        with contextlib.suppress(Exception):
            self._ray.kill(actor)


class _Chair(Seat):
    def __init__(self, cluster: Cluster, machine: _Machine, slot: int) -> None:
        self._cluster = cluster
        self._machine = machine
        self._slot = slot

    async def deploy(self, order: Order) -> Outcome:
        return await self._cluster.deploy(order, self._machine, self._slot)
