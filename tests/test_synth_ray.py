"""Requests to models from the machines of a Ray cluster: what comes out is as on one, whatever dies in the middle."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from ray_cluster import address_of, quiet_and_private, two_nodes
from synth_endpoint import SERVERS, TOOLS, Endpoint, said, well

from toolscout.commands.synth_bench import open_bench
from toolscout.errors import ModelError, NotAllowed, ToolscoutError
from toolscout.synth.chat import Reply, TooLong, Unreachable
from toolscout.synth.drafts import subjects
from toolscout.synth.pipeline import Result, make_calls
from toolscout.synth.settings import synth_settings
from toolscout.synth.stations import Machines, StationEndpoint
from toolscout.synth.writer import CeilingReached

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="no Ray (pip install toolscout[ray])")

# --- without Ray -----------------------------------------------------------------------------------------------------


class RayError(Exception):
    """Stands in for Ray's."""


class Actor:
    """A station that answers with what it is told; ``held`` requests wait for ``go``."""

    def __init__(self, model: str | ToolscoutError, say: Callable[[], Any]) -> None:
        self.model, self.say = model, say
        self.asked = 0
        self.go = asyncio.Event()
        self.go.set()
        self.prepare = SimpleNamespace(remote=self._prepare)
        self.ask = SimpleNamespace(remote=self._ask)

    async def _prepare(self) -> str | ToolscoutError:
        return self.model

    async def _ask(self, *_: Any) -> Any:
        self.asked += 1
        await self.go.wait()
        said = self.say()
        if isinstance(said, RayError):
            raise said
        return said


class Fake:
    """A cluster of actors that stand in for stations; a machine that is opened again gets its next one."""

    def __init__(self, **actors: list[Actor]) -> None:
        self.actors = actors
        self.notes: list[str] = []
        self.note = self.notes.append
        self.ray = SimpleNamespace(
            exceptions=SimpleNamespace(RayError=RayError, RayTaskError=type("RayTaskError", (RayError,), {})),
            kill=lambda actor: None,
        )

    def alive(self) -> dict[str, str]:
        return {node: f"host-{node}" for node in self.actors}

    def start(self, node: str, url: str, options: Any) -> Actor:
        return self.actors[node].pop(0)


def well_said() -> Reply:
    return Reply("fine")


async def ask(fake: Fake, times: int = 1, at_once: int = 2) -> tuple[list[Any], StationEndpoint]:
    endpoint = StationEndpoint(cast(Machines, fake), "http://127.0.0.1:1/v1", at_once=at_once)
    try:
        tasks = (endpoint.ask([{"role": "user", "content": str(n)}]) for n in range(times))
        return await asyncio.gather(*tasks, return_exceptions=True), endpoint
    finally:
        await endpoint.close()


async def test_requests_go_to_the_machine_with_the_fewest() -> None:
    one, two = Actor("m", well_said), Actor("m", well_said)
    for actor in (one, two):
        actor.go.clear()
    running = asyncio.create_task(ask(Fake(a=[one], b=[two]), times=7, at_once=20))
    await asyncio.sleep(0.05)
    assert sorted((one.asked, two.asked)) == [3, 4]
    for actor in (one, two):
        actor.go.set()
    replies, endpoint = await running
    assert [r.text for r in replies] == ["fine"] * 7 and endpoint.model == "m"


async def test_no_machine_has_more_under_way_than_its_bound() -> None:
    held = Actor("m", well_said)
    held.go.clear()
    running = asyncio.create_task(ask(Fake(a=[held]), times=5, at_once=2))
    await asyncio.sleep(0.05)
    assert held.asked == 2
    held.go.set()
    replies, _ = await running
    assert len(replies) == 5 and held.asked == 5


async def test_a_machine_that_reaches_no_model_is_given_up_and_its_requests_are_asked_elsewhere() -> None:
    fake = Fake(a=[Actor("m", lambda: Unreachable("It cannot be reached."))], b=[Actor("m", well_said)])
    replies, _ = await ask(fake, times=20)
    assert all(r.text == "fine" for r in replies)
    assert fake.notes == ["Left out: host-a: It cannot be reached."]


async def test_a_station_that_dies_is_opened_again_and_a_third_time_no_more() -> None:
    def dies() -> RayError:
        return RayError("The actor died.")

    fake = Fake(a=[Actor("m", dies), Actor("m", well_said)])
    replies, _ = await ask(fake)
    assert replies[0].text == "fine" and "died; what it was asked is asked again" in fake.notes[0]
    always = Fake(a=[Actor("m", dies) for _ in range(9)])
    replies, _ = await ask(always)
    assert isinstance(replies[0], ModelError) and "died" in str(replies[0]) and len(always.actors["a"]) == 6


async def test_an_answer_that_is_an_error_of_the_request_is_not_asked_elsewhere() -> None:
    one, two = Actor("m", lambda: TooLong("It is too long.")), Actor("m", lambda: TooLong("It is too long."))
    replies, _ = await ask(Fake(a=[one], b=[two]))
    assert isinstance(replies[0], TooLong) and one.asked + two.asked == 1


async def test_machines_with_another_model_or_none_are_left_out() -> None:
    fake = Fake(a=[Actor("m", well_said)], b=[Actor("other", well_said)], c=[Actor(ModelError("No."), well_said)])
    replies, _ = await ask(fake, times=3)
    assert all(r.text == "fine" for r in replies)
    assert len(fake.notes) == 2 and any("and that of others m" in n or "that of others other" in n for n in fake.notes)
    nobody = Fake(a=[Actor(ModelError("It lists no model."), well_said)])
    replies, _ = await ask(nobody)
    assert isinstance(replies[0], ModelError) and "lists no model" in str(replies[0])
    replies, _ = await ask(Fake())
    assert isinstance(replies[0], NotAllowed) and "no machine" in str(replies[0])


# --- with Ray --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        quiet_and_private(patch)
        with two_nodes() as keeper:
            yield address_of(keeper)


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    found = Endpoint()
    yield found
    found.close()


def make(url: str, folder: Path, ray: str | None, seen: list[dict[str, int]] | None = None, **options: Any) -> Result:
    settings = synth_settings(model_url=url, longest_pause=0.02, retries=1, concurrency=2, **options)

    async def main() -> Result:
        pool = {t.tool_id: t for t in TOOLS}
        async with open_bench(pool, SERVERS, settings, folder, encodes=False, ray=ray) as bench:
            found, left = subjects(TOOLS, SERVERS)
            result = await make_calls(found, bench, folder, filters=("schema", "grounded", "judge"), left_out=left)
            if seen is not None and bench.first is not None:
                seen.append(cast(StationEndpoint, bench.first.endpoint).answered())
            return result

    return asyncio.run(main())


def stations() -> list[int]:
    """Process ids of the stations on this host."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if line.startswith(b"ray::Station"):
                found.append(int(entry.name))
    return found


@needs_ray
def test_two_machines_make_what_one_makes(address: str, endpoint: Endpoint, tmp_path: Path) -> None:
    alone = make(endpoint.url, tmp_path / "one", None)
    asked = sum(endpoint.bodies().values())
    endpoint.asked.clear()
    endpoint.pause = 0.02
    seen: list[dict[str, int]] = []
    together = make(endpoint.url, tmp_path / "two", address, seen)
    assert (tmp_path / "one/calls.jsonl").read_bytes() == (tmp_path / "two/calls.jsonl").read_bytes()
    assert together.report["kept"] == alone.report["kept"] and together.report["spent"] == alone.report["spent"]
    assert len(endpoint.asked) == asked == len(endpoint.bodies()), "nothing is asked twice"
    assert len(seen[0]) == 2 and min(seen[0].values()) > asked / 4, "both machines ask"
    endpoint.asked.clear()
    make(endpoint.url, tmp_path / "two", address)
    assert endpoint.asked == [], "a second run asks nothing"


@needs_ray
def test_a_station_killed_in_the_middle_costs_nothing_but_its_requests(
    address: str, endpoint: Endpoint, tmp_path: Path
) -> None:
    alone = make(endpoint.url, tmp_path / "one", None)
    asked = len(endpoint.asked)
    endpoint.asked.clear()
    endpoint.pause = 0.05
    killed: list[int] = []

    def kill() -> None:
        while len(endpoint.asked) < 12:
            time.sleep(0.01)
        killed.extend(stations()[:1])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    together = make(endpoint.url, tmp_path / "two", address)
    killer.join()
    assert killed
    assert (tmp_path / "one/calls.jsonl").read_bytes() == (tmp_path / "two/calls.jsonl").read_bytes()
    assert together.report["spent"] == alone.report["spent"], "an answer is booked once"
    assert asked <= len(endpoint.asked) <= asked + 2, "only what it had under way is asked again"


@needs_ray
def test_the_ceiling_holds_over_all_machines(address: str, endpoint: Endpoint, tmp_path: Path) -> None:
    price = {"price_in": 1000.0, "price_out": 1000.0, "max_tokens": 64}  # 0.12 a request
    with pytest.raises(CeilingReached):
        make(endpoint.url, tmp_path, address, max_cost=3.0, **price)
    assert 1.5 < 0.12 * len(endpoint.asked) <= 3.0


@needs_ray
def test_an_endpoint_that_no_machine_reaches_ends_the_run_in_one_sentence(address: str, tmp_path: Path) -> None:
    gone = Endpoint(lambda body: said(well(body)))
    gone.close()
    with pytest.raises(ModelError, match="cannot be reached"):
        make(gone.url, tmp_path, address)
