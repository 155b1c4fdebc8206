"""Models on the machines of a Ray cluster: requests are spread, all else stays with the driver.

Each machine has a station, an actor, that asks the endpoint as it is seen from there: ``http://127.0.0.1:8000/v1`` is
each machine's own model. Folder, answers, prices and the order of steps are as on one machine, so is what comes out.
What a machine was asked when it died, or could not reach its model, is asked again elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import toolscout
from toolscout.chat_endpoint import base_url
from toolscout.errors import ModelError, NotAllowed, ToolscoutError
from toolscout.ray_link import check_ray, join_cluster, said_by_ray
from toolscout.records import JsonObject
from toolscout.synth.chat import ChatEndpoint, Message, Reply, Unreachable

_WATCH_EVERY = 3.0
_OPENING = 120.0
"""Seconds that a machine may take to start its station and to name its model."""
_MOST = 1000
_FAILURES = 3
"""A machine whose model failed, or whose station died, so often without an answer between is given up."""


class Station:
    """On a machine of the cluster: its endpoint. Errors of ours come back as values, Ray's own are raised."""

    def __init__(self, url: str, options: JsonObject, version: str = toolscout.__version__) -> None:
        self._endpoint = ChatEndpoint(url, **options)
        self._version = version

    async def prepare(self) -> str | ToolscoutError:
        """The model's name, as `ChatEndpoint.prepare`. NotAllowed where the driver's Toolscout is another version."""
        if self._version != toolscout.__version__:
            return NotAllowed(f"It has Toolscout {toolscout.__version__}, and the command {self._version}.")
        try:
            return await self._endpoint.prepare()
        except ToolscoutError as error:
            return error

    async def ask(
        self, messages: list[Message], max_tokens: int, temperature: float, schema: JsonObject | None
    ) -> Reply | ToolscoutError:
        """As `ChatEndpoint.ask`."""
        try:
            return await self._endpoint.ask(messages, max_tokens=max_tokens, temperature=temperature, schema=schema)
        except ToolscoutError as error:
            return error


class Machines:
    """The machines of a cluster that have CPUs for it (``ray start --num-cpus 0`` keeps one out).

    Args:
        address: ``local``, ``auto`` (the cluster of this machine), or HOST:PORT of its head.
        note: told which machines are left out or lost, and why.

    Raises:
        BadInput, NotAllowed: see `check_ray`; on entering also NotFound: no cluster answers there.
    """

    def __init__(self, address: str, note: Callable[[str], None] = lambda _: None) -> None:
        check_ray(address)
        self.address, self.note = address, note
        self.ray: Any = None
        self.under_way: Counter[str] = Counter()
        """Requests by machine, of all models: what `--concurrency` bounds."""
        self.changed = asyncio.Condition()
        """Told when a request ends, and when a station comes or goes."""
        self._ends = ExitStack()

    def __enter__(self) -> Machines:
        try:
            self.ray = join_cluster(self.address, self._ends)
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def alive(self) -> dict[str, str]:
        """Host names of the machines by Ray's id."""
        nodes = self.ray.nodes()
        return {n["NodeID"]: n["NodeManagerHostname"] for n in nodes if n["Alive"] and n["Resources"].get("CPU")}

    def start(self, node: str, url: str, options: JsonObject) -> Any:
        """A station on the machine. No CPU is reserved: it waits for its model most of the time."""
        strategies = self.ray.util.scheduling_strategies
        placed = strategies.NodeAffinitySchedulingStrategy(node_id=node, soft=False)
        remote = self.ray.remote(Station).options(num_cpus=0, scheduling_strategy=placed)
        return remote.remote(url, options, toolscout.__version__)


@dataclass(eq=False)
class _Open:
    """A station that takes requests."""

    node: str
    name: str
    actor: Any
    under_way: int = 0
    failures: int = 0
    answered: int = 0
    gone: bool = False
    """It takes nothing more. Set before anything is waited for: all that was under way there fails at once, and that
    is one death."""


@dataclass
class _Past:
    """What became of a machine so far."""

    name: str
    deaths: int = 0
    out: bool = False


@dataclass
class _State:
    open: list[_Open] = field(default_factory=list)
    past: dict[str, _Past] = field(default_factory=dict)
    last: ToolscoutError | None = None
    """Why the last machine was given up."""


class StationEndpoint:
    """One model on all machines; to a `Writer` it is one more endpoint.

    Args:
        options: of `ChatEndpoint`, on every machine.
        at_once: most requests under way on one machine, those to other models included; up to 1,000 (Ray's bound for
            an actor).

    Raises:
        BadInput: the address is none.
    """

    def __init__(self, machines: Machines, url: str, *, at_once: int, **options: Any) -> None:
        self.url, self.model = base_url(url), str(options.get("model", ""))
        self._machines, self._options, self._at_once = machines, options, min(at_once, _MOST)
        self._state = _State()
        self._changed = machines.changed
        self._ready = asyncio.Lock()
        self._opening: dict[str, asyncio.Task[None]] = {}
        self._actors: list[Any] = []
        self._ends = AsyncExitStack()
        self._watching = False

    async def prepare(self) -> str:
        """Open a station on each machine; the model's name, which has to be the same on all.

        Raises:
            NotAllowed: no machine can be used.
            ModelError: no machine reaches its model.
        """
        async with self._ready:
            if not self._watching:
                await self._look()
                await asyncio.gather(*self._opening.values())
                if not self._state.open:
                    raise self._state.last or NotAllowed("The Ray cluster has no machine with a CPU for it.")
                self._watching = True
                watch = asyncio.create_task(self._watch())
                self._ends.callback(watch.cancel)
        return self.model

    async def ask(
        self,
        messages: list[Message],
        *,
        max_tokens: int = 1024,
        temperature: float = 0.0,
        schema: JsonObject | None = None,
    ) -> Reply:
        """As `ChatEndpoint.ask`, on the machine with the fewest requests; on another one where that fails."""
        await self.prepare()
        while True:
            machine = await self._take()
            try:
                said = await machine.actor.ask.remote(messages, max_tokens, temperature, schema)
            except self._machines.ray.exceptions.RayTaskError as error:
                raise error.as_instanceof_cause() from None
            except self._machines.ray.exceptions.RayError as error:
                await self._died(machine, said_by_ray(error))
                continue
            finally:
                await self._give(machine)
            if isinstance(said, Unreachable):
                await self._failed(machine, said)
                continue
            machine.failures, machine.answered = 0, machine.answered + 1
            self._state.past[machine.node].deaths = 0
            if isinstance(said, ToolscoutError):
                raise said
            reply: Reply = said
            return reply

    def answered(self) -> dict[str, int]:
        """How many requests each machine's station answered, by Ray's id of the machine."""
        return {m.node: m.answered for m in self._state.open}

    async def close(self) -> None:
        """End the stations."""
        await self._ends.aclose()
        for task in self._opening.values():
            task.cancel()
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        for actor in self._actors:
            self._kill(actor)
        self._state.open.clear()

    # --- requests ----------------------------------------------------------------------------------------------------

    async def _take(self) -> _Open:
        load = self._machines.under_way
        async with self._changed:
            while True:
                free = [m for m in self._state.open if not m.gone and load[m.node] < self._at_once]
                if free:
                    machine = min(free, key=lambda m: load[m.node])
                    load[machine.node] += 1
                    machine.under_way += 1
                    return machine
                if not self._state.open and not self._opening:
                    raise self._state.last or ModelError("No machine of the Ray cluster is left.")
                await self._changed.wait()

    async def _give(self, machine: _Open) -> None:
        async with self._changed:
            self._machines.under_way[machine.node] -= 1
            machine.under_way -= 1
            self._changed.notify_all()
        self._end(machine)

    async def _failed(self, machine: _Open, error: ModelError) -> None:
        """Its model cannot be reached: after some requests in a row the machine is given up."""
        machine.failures += 1
        if machine.failures >= _FAILURES and not machine.gone:
            machine.gone = True
            self._leave_out(machine.node, error)
            await self._drop(machine)

    async def _died(self, machine: _Open, why: str) -> None:
        """Its station is gone; another one is opened there, if that has not happened too often."""
        if machine.gone:
            return
        machine.gone = True
        past = self._state.past[machine.node]
        past.deaths += 1
        self._machines.note(f"The station of {machine.name} died; what it was asked is asked again. {why}")
        if past.deaths >= _FAILURES:
            error = ModelError(f"Its station died {past.deaths} times in a row.", "Run the command again to go on.")
            self._leave_out(machine.node, error)
        # looked for before it is dropped: who waits for a machine must not find that none is left and none opens
        with contextlib.suppress(self._machines.ray.exceptions.RayError):
            await self._look(again=machine.node)
        await self._drop(machine)

    async def _drop(self, machine: _Open) -> None:
        async with self._changed:
            if machine in self._state.open:
                self._state.open.remove(machine)
            self._changed.notify_all()
        self._end(machine)

    def _end(self, machine: _Open) -> None:
        """End a station that takes nothing more, after what it is still asked: that may come, and be paid for."""
        if machine.gone and not machine.under_way:
            self._kill(machine.actor)

    def _leave_out(self, node: str, error: ToolscoutError) -> None:
        past = self._state.past[node]
        past.out, self._state.last = True, error
        self._machines.note(f"Left out: {past.name}: {error}")  # without the hint: the others go on

    # --- machines ----------------------------------------------------------------------------------------------------

    async def _look(self, again: str = "") -> None:
        """Open stations on machines that are new, and on those whose station died."""
        alive = await asyncio.to_thread(self._machines.alive)
        having = {m.node for m in self._state.open if m.node != again} | set(self._opening)
        for node, name in alive.items():
            past = self._state.past.setdefault(node, _Past(name))
            if node not in having and not past.out:
                task = asyncio.create_task(self._open(node, name))
                self._opening[node] = task
                task.add_done_callback(partial(self._opened, node))

    def _opened(self, node: str, _: asyncio.Task[None]) -> None:
        self._opening.pop(node, None)
        waking = asyncio.ensure_future(self._wake())  # who waits sees that nothing opens any more
        self._ends.callback(waking.cancel)

    async def _wake(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _open(self, node: str, name: str) -> None:
        actor = self._machines.start(node, self.url, {**self._options, "model": self.model})
        self._actors.append(actor)
        said: str | ToolscoutError
        try:
            async with asyncio.timeout(_OPENING):
                said = await actor.prepare.remote()
        except TimeoutError:
            said = ModelError(f"Nothing came from there within {_OPENING:.0f} s.")
        except self._machines.ray.exceptions.RayError as error:
            said = ModelError(said_by_ray(error))
        except asyncio.CancelledError:
            self._kill(actor)
            raise
        if isinstance(said, str) and self.model not in ("", said):
            said = ModelError(f"Its model is {said}, and that of others {self.model}: name one with --model.")
        if isinstance(said, ToolscoutError):
            self._leave_out(node, said)
            self._kill(actor)
            return
        self.model = said
        async with self._changed:
            self._state.open.append(_Open(node, name, actor))
            self._changed.notify_all()

    async def _watch(self) -> None:
        """Take in machines that join, and let go of those that leave."""
        while True:
            await asyncio.sleep(_WATCH_EVERY)
            with contextlib.suppress(self._machines.ray.exceptions.RayError):
                await self._look()

    def _kill(self, actor: Any) -> None:
        with contextlib.suppress(Exception):
            self._machines.ray.kill(actor)
