"""Requests to models from the machines of a Ray cluster: what comes out is as on one, whatever dies in the middle."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from chat_endpoint import Body
from crawl_work import processes_with, run_cli
from ray_cluster import address_of, folder_of, quiet_and_private, two_nodes
from synth_endpoint import SERVERS, TOOLS, Endpoint
from synth_endpoint import Reply as Sent

from toolscout.cli import execute
from toolscout.commands.synth_bench import open_bench
from toolscout.errors import ModelError, NotAllowed, ToolscoutError
from toolscout.jsonl import write_records
from toolscout.records import Call, GoldCall
from toolscout.synth.chat import Reply, TooLong, Unreachable
from toolscout.synth.drafts import subjects
from toolscout.synth.pipeline import Result, make_calls
from toolscout.synth.settings import synth_settings
from toolscout.synth.stations import Machines, Station, StationEndpoint
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
        self.killed: list[Actor] = []
        self.note = self.notes.append
        self.under_way: Counter[str] = Counter()
        self.changed = asyncio.Condition()
        self.ray = SimpleNamespace(
            exceptions=SimpleNamespace(RayError=RayError, RayTaskError=type("RayTaskError", (RayError,), {})),
            kill=self.killed.append,
        )

    def alive(self) -> dict[str, str]:
        return {node: f"host-{node}" for node in self.actors}

    def start(self, node: str, url: str, options: Any) -> Actor:
        return self.actors[node].pop(0)


def well_said() -> Reply:
    return Reply("fine")


async def until(holds: Callable[[], Any]) -> None:
    """Wait for it, and a little longer, in which it may turn out to be too much."""
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.03)


URL = "http://127.0.0.1:1/v1"


async def ask(fake: Fake, times: int = 1, at_once: int = 2) -> tuple[list[Any], StationEndpoint]:
    endpoint = StationEndpoint(cast(Machines, fake), URL, at_once=at_once)
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
    await until(lambda: one.asked + two.asked == 7)
    assert sorted((one.asked, two.asked)) == [3, 4]
    for actor in (one, two):
        actor.go.set()
    replies, endpoint = await running
    assert [r.text for r in replies] == ["fine"] * 7 and endpoint.model == "m"


async def test_no_machine_has_more_under_way_than_its_bound() -> None:
    held = Actor("m", well_said)
    held.go.clear()
    running = asyncio.create_task(ask(Fake(a=[held]), times=5, at_once=2))
    await until(lambda: held.asked >= 2)
    assert held.asked == 2
    held.go.set()
    replies, _ = await running
    assert len(replies) == 5 and held.asked == 5


async def test_the_bound_counts_both_models_of_a_machine() -> None:
    actors = [Actor("writes", well_said), Actor("judges", well_said)]
    for actor in actors:
        actor.go.clear()
    fake = cast(Machines, Fake(a=list(actors)))
    endpoints = [StationEndpoint(fake, URL, at_once=3), StationEndpoint(fake, URL, at_once=3)]
    for endpoint in endpoints:
        await endpoint.prepare()
    running = [asyncio.create_task(endpoint.ask([])) for endpoint in endpoints for _ in range(4)]
    await until(lambda: sum(actor.asked for actor in actors) >= 3)
    assert sum(actor.asked for actor in actors) == 3
    for actor in actors:
        actor.go.set()
    assert [r.text for r in await asyncio.gather(*running)] == ["fine"] * 8
    assert not +fake.under_way
    for endpoint in endpoints:
        await endpoint.close()


async def test_a_machine_that_reaches_no_model_is_given_up_and_its_requests_are_asked_elsewhere() -> None:
    fake = Fake(a=[Actor("m", lambda: Unreachable("It cannot be reached."))], b=[Actor("m", well_said)])
    replies, _ = await ask(fake, times=20)
    assert all(r.text == "fine" for r in replies)
    assert fake.notes == ["Left out: host-a: It cannot be reached."]


async def test_what_a_machine_is_still_asked_when_it_is_given_up_is_waited_for() -> None:
    slow = asyncio.Event()
    said = iter([well_said(), *[Unreachable("It cannot be reached.")] * 9])
    first = Actor("m", lambda: next(said))
    answers = first.ask.remote

    async def remote(messages: Any, *rest: Any) -> Any:
        if messages[0]["content"] == "0":
            await slow.wait()
            return well_said()
        return await answers(messages, *rest)

    first.ask = SimpleNamespace(remote=remote)
    fake = Fake(a=[first])
    running = asyncio.create_task(ask(fake, times=8, at_once=8))
    await until(lambda: fake.notes)
    assert fake.killed == [], "it has one request left"
    slow.set()
    replies, _ = await running
    assert [type(r) for r in replies].count(Reply) == 2 and isinstance(replies[0], Reply) and fake.killed[0] is first


async def test_a_station_that_dies_is_opened_again_and_a_third_time_no_more() -> None:
    def dies() -> RayError:
        return RayError("The actor died.")

    fake = Fake(a=[Actor("m", dies), Actor("m", well_said)])
    replies, _ = await ask(fake)
    assert replies[0].text == "fine" and "died; what it was asked is asked again" in fake.notes[0]
    always = Fake(a=[Actor("m", dies) for _ in range(9)])
    replies, _ = await ask(always)
    assert isinstance(replies[0], ModelError) and "died" in str(replies[0]) and len(always.actors["a"]) == 6


async def test_a_station_that_dies_under_many_requests_died_once() -> None:
    first, second = Actor("m", lambda: RayError("The actor died.")), Actor("m", well_said)
    first.go.clear()
    fake = Fake(a=[first, second])
    running = asyncio.create_task(ask(fake, times=12, at_once=8))
    await until(lambda: first.asked == 8)
    first.go.set()
    replies, _ = await running
    assert [r.text for r in replies] == ["fine"] * 12 and second.asked == 12
    assert len(fake.notes) == 1 and not +fake.under_way


async def test_deaths_count_in_a_row() -> None:
    def dies_after(answers: int) -> Actor:
        left = iter([well_said()] * answers)
        return Actor("m", lambda: next(left, RayError("The actor died.")))

    fake = Fake(a=[*(dies_after(1) for _ in range(4)), Actor("m", well_said)])
    replies, _ = await ask(fake, times=6, at_once=1)
    assert [r.text for r in replies] == ["fine"] * 6 and len(fake.notes) == 4
    held = Actor("m", well_said)
    held.go.clear()
    hopeless = Fake(a=[dies_after(0) for _ in range(4)], b=[held])
    running = asyncio.create_task(ask(hopeless, times=6, at_once=1))
    await until(lambda: len(hopeless.notes) >= 4)
    held.go.set()
    assert [r.text for r in (await running)[0]] == ["fine"] * 6 and len(hopeless.actors["a"]) == 1
    assert hopeless.notes[-1].startswith("Left out: host-a: Its station died 3 times in a row.")


async def test_a_machine_that_joins_later_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolscout.synth.stations._WATCH_EVERY", 0.01)
    one, two = Actor("m", well_said), Actor("m", well_said)
    one.go.clear()
    fake = Fake(a=[one])
    running = asyncio.create_task(ask(fake, times=6, at_once=2))
    await until(lambda: one.asked == 2)
    fake.actors["b"] = [two]
    await until(lambda: two.asked == 4)
    assert (one.asked, two.asked) == (2, 4)
    one.go.set()
    assert [r.text for r in (await running)[0]] == ["fine"] * 6


async def test_a_station_of_another_version_refuses() -> None:
    said = await Station(URL, {"model": "m"}, "0.0.1").prepare()
    assert isinstance(said, NotAllowed) and "0.0.1" in str(said)
    assert await Station(URL, {"model": "m"}).prepare() == "m"


def test_every_command_that_asks_models_takes_a_cluster(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And says in one sentence what is wrong, before anything is started."""
    write_records(tmp_path / "tools.jsonl", TOOLS)
    gold = GoldCall(tool_id=TOOLS[0].tool_id, arguments={})
    write_records(tmp_path / "calls.jsonl", [Call(id="one", query="Do it for Oslo", gold=[gold])])
    base = ["--tools", str(tmp_path / "tools.jsonl"), "--out", str(tmp_path / "out")]
    rows = ["--calls", str(tmp_path / "calls.jsonl")]
    commands = (
        ["calls", *base, "--filters", "judge"],
        ["filter", *base, *rows, "--filters", "judge"],
        ["plans", *base],
        ["trajectories", *base, *rows, "--url", "http://127.0.0.1:1/mcp"],
    )
    for command in commands:
        assert execute(["synth", *command, "--endpoint", URL, "--ray", "ray://host:1"]) == 2
        assert "Ray's client" in capsys.readouterr().err
    asked = ["synth", *commands[0], "--ray", "local"]
    assert execute([*asked, "--endpoint", "nonsense"]) == 2
    assert "not the address of a model endpoint" in capsys.readouterr().err
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert execute([*asked, "--endpoint", URL]) == 7
    assert 'pip install "toolscout[ray]"' in capsys.readouterr().err


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

EACH_ITS_OWN = "http://model.test:8000/v1"
"""Leads to another endpoint from each of the two nodes, as ``127.0.0.1`` does on machines: their proxies differ."""
KEY = "sk-not-to-be-seen-9c1f"
AT_ONCE = 4


class Model(Endpoint):
    """The model of one machine. After ``lasts`` requests it drops every connection, as one whose process has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.server.handle_error = lambda *_: None  # type: ignore[method-assign]
        self.reset()

    def reset(self, pause: float = 0.0, lasts: int = 1_000_000) -> None:
        self.asked.clear()
        self.headers.clear()
        self.pause, self.lasts = pause, lasts

    def answer(self, body: Body, headers: dict[str, str]) -> Sent:
        if len(self.asked) >= self.lasts:
            raise ConnectionAbortedError
        self.headers.append(headers)
        return super().answer(body, headers)


@dataclass
class Two:
    """A cluster of two machines, each with a model."""

    address: str
    folder: Path
    models: list[Model]

    def asked(self) -> Counter[str]:
        """How often each request came to either."""
        return self.models[0].bodies() + self.models[1].bodies()

    def reset(self, **options: Any) -> None:
        for model in self.models:
            model.reset(**options)

    def stations(self) -> list[int]:
        """Process ids of the stations of this cluster."""
        raylets = {pid for pid in processes_with("raylet/raylet") if str(self.folder) in _line(pid)}
        return [pid for pid in processes_with("ray::Station") if _parent(pid) in raylets]


def _line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Two]:
    models = [Model(), Model()]
    ways = []
    for model in models:
        direct = dict.fromkeys(("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"), "")
        ways.append({**direct, "all_proxy": model.url.removesuffix("/v1")})
    with pytest.MonkeyPatch.context() as patch:
        quiet_and_private(patch)
        with two_nodes(*ways) as keeper:
            yield Two(address_of(keeper), folder_of(keeper), models)
    for model in models:
        model.close()


@pytest.fixture
def two(cluster: Two) -> Two:
    cluster.reset()
    return cluster


@dataclass
class Alone:
    """What comes out without Ray, and what was asked for it."""

    calls: bytes
    report: Any
    asked: Counter[str]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alone]:
    folder = tmp_path_factory.mktemp("alone")
    model = Model()
    result = make(model.url, folder, None)
    yield Alone((folder / "calls.jsonl").read_bytes(), result.report, model.bodies())
    model.close()


def make(url: str, folder: Path, ray: str | None, seen: list[dict[str, int]] | None = None, **options: Any) -> Result:
    settings = synth_settings(model_url=url, longest_pause=0.02, retries=1, concurrency=AT_ONCE, **options)

    async def main() -> Result:
        pool = {t.tool_id: t for t in TOOLS}
        async with open_bench(pool, SERVERS, settings, folder, encodes=False, ray=ray) as bench:
            found, left = subjects(TOOLS, SERVERS)
            result = await make_calls(found, bench, folder, filters=("schema", "grounded", "judge"), left_out=left)
            if seen is not None and bench.first is not None:
                seen.append(cast(StationEndpoint, bench.first.endpoint).answered())
            return result

    return asyncio.run(main())


def command(files: Path, out: Path, url: str, ray: str) -> list[str]:
    """``synth calls`` with the same settings."""
    write_records(files / "tools.jsonl", TOOLS)
    write_records(files / "servers.jsonl", SERVERS.values())
    where = ["--tools", str(files / "tools.jsonl"), "--servers", str(files / "servers.jsonl"), "--out", str(out)]
    how = ["--filters", "schema,grounded,judge", "--concurrency", str(AT_ONCE), "--json"]
    return ["synth", "calls", *where, *how, "--endpoint", url, "--ray", ray]


SETTINGS = {
    "TOOLSCOUT_SYNTH_RETRIES": "1",
    "TOOLSCOUT_SYNTH_LONGEST_PAUSE": "0.02",
    "TOOLSCOUT_SYNTH_MODEL_KEY": KEY,
}


@needs_ray
def test_two_machines_make_what_one_makes(two: Two, alone: Alone, tmp_path: Path) -> None:
    two.reset(pause=0.02)
    seen: list[dict[str, int]] = []
    together = make(EACH_ITS_OWN, tmp_path, two.address, seen)
    assert (tmp_path / "calls.jsonl").read_bytes() == alone.calls and alone.calls.count(b"\n") > 10
    for fact in ("steps", "kept", "spent"):
        assert together.report[fact] == alone.report[fact]
    assert two.asked() == alone.asked and set(alone.asked.values()) == {1}, "nothing is asked twice"
    each = [len(model.asked) for model in two.models]
    assert sorted(seen[0].values()) == sorted(each) and min(each) > sum(each) / 4, "each machine asks its own model"
    assert max(model.most_at_once for model in two.models) <= AT_ONCE


@needs_ray
def test_a_machine_whose_model_ends_in_the_middle_loses_its_requests_to_the_other(
    two: Two, alone: Alone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two.reset(pause=0.02)
    two.models[0].lasts = 12
    together = make(EACH_ITS_OWN, tmp_path, two.address)
    assert (tmp_path / "calls.jsonl").read_bytes() == alone.calls
    assert two.asked() == alone.asked and len(two.models[0].asked) == 12
    assert together.report["spent"] == alone.report["spent"], "an answer is booked once"
    said = capsys.readouterr().err
    assert said.count("Left out:") == said.count("\n") == 1 and "cannot be reached" in said, said


@needs_ray
def test_a_station_killed_in_the_middle_costs_nothing_but_its_requests(
    two: Two, alone: Alone, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two.reset(pause=0.05)
    killed: list[int] = []

    def kill() -> None:
        while two.asked().total() < 12:
            time.sleep(0.01)
        killed.extend(two.stations()[:1])
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    together = make(EACH_ITS_OWN, tmp_path, two.address)
    killer.join()
    assert killed
    assert (tmp_path / "calls.jsonl").read_bytes() == alone.calls
    assert together.report["spent"] == alone.report["spent"], "an answer is booked once"
    assert two.asked().total() <= alone.asked.total() + AT_ONCE, "only what it had under way is asked again"
    said = capsys.readouterr().err
    assert said.count("died; what it was asked is asked again") == 1 and "Left out" not in said, said


@needs_ray
def test_the_ceiling_holds_over_all_machines_and_a_higher_one_goes_on(two: Two, alone: Alone, tmp_path: Path) -> None:
    price = {"price_in": 1000.0, "price_out": 1000.0, "max_tokens": 64}  # 0.12 a request
    with pytest.raises(CeilingReached):
        make(EACH_ITS_OWN, tmp_path, two.address, max_cost=6.0, **price)
    assert 1.5 < 0.12 * two.asked().total() <= 6.0
    made = make(EACH_ITS_OWN, tmp_path, two.address, max_cost=1000.0, **price)
    assert (tmp_path / "calls.jsonl").read_bytes() == alone.calls
    assert set(two.asked().values()) == {1}, "what was paid for is not asked again"
    assert made.report["spent"]["price"] == pytest.approx(0.12 * alone.asked.total())


@needs_ray
def test_a_killed_command_goes_on_on_another_cluster_and_tells_nobody_its_key(
    two: Two, alone: Alone, tmp_path: Path
) -> None:
    two.reset(pause=0.05)
    environment = {**SETTINGS, "TOOLSCOUT_HOME": str(tmp_path / "home")}
    out = tmp_path / "out"
    with subprocess.Popen(
        [sys.executable, "-m", "toolscout", *command(tmp_path, out, EACH_ITS_OWN, two.address)],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        while two.asked().total() < 20 and running.poll() is None:
            time.sleep(0.01)
        running.send_signal(signal.SIGKILL)
        said = running.communicate()[1]
    assert running.returncode == -signal.SIGKILL and KEY not in said
    assert not (out / "calls.jsonl").exists()

    two.reset()
    before = two.asked().total()
    done = run_cli(*command(tmp_path, out, two.models[0].url, "local"), env=environment)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert json.loads(done.stdout)["kept"] == alone.report["kept"]
    assert (out / "calls.jsonl").read_bytes() == alone.calls
    assert two.asked().total() - before <= alone.asked.total() - 20 + 2 * AT_ONCE, "only what was under way"
    assert {headers["Authorization"] for headers in two.models[0].headers} == {f"Bearer {KEY}"}
    written = [p for p in [*two.folder.rglob("*"), *out.rglob("*")] if p.is_file()]
    assert len(written) > 10
    assert not [p for p in written if KEY.encode() in p.read_bytes()]


@needs_ray
def test_models_that_no_machine_reaches_end_the_command_in_one_sentence(two: Two, tmp_path: Path) -> None:
    two.reset(lasts=0)
    arguments = command(tmp_path, tmp_path / "out", EACH_ITS_OWN, two.address)
    done = run_cli(*arguments, "--model", "first-model", env={**SETTINGS, "TOOLSCOUT_HOME": str(tmp_path)})
    assert done.returncode == 6 and json.loads(done.stdout)["exit_code"] == 6, done.stderr
    *left, last = done.stderr.splitlines()
    assert len(left) == 2 and all(line.startswith("Left out:") for line in left), done.stderr
    assert last.startswith("toolscout: ") and "cannot be reached" in last
