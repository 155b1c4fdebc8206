"""A server that says its tools have changed is listed until that has gone well: a change nobody sees is unreviewed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from toolscout.errors import NotFound, StorageError, ToolscoutError
from toolscout.index.catalogue import Catalogue
from toolscout.server.engine import Engine
from toolscout.server.upstreams import relisting
from toolscout.server.upstreams.relisting import Relisting
from toolscout.settings import Settings

TINY = Path(__file__).parent / "upstreams" / "tiny.py"


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relisting, "_SETTLE_SECONDS", 0.01)


class Work:
    """Fails with these errors in turn, then goes well."""

    def __init__(self, *errors: ToolscoutError) -> None:
        self.errors = list(errors)
        self.done: list[str] = []
        self.calls = 0

    async def __call__(self, name: str) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        self.done.append(name)


async def test_many_announcements_are_one_listing() -> None:
    work = Work()
    relist = Relisting(work)
    for _ in range(5):
        relist.announce("a")
    relist.announce("b")
    await eventually(lambda: sorted(work.done) == ["a", "b"])
    relist.announce("a")
    await eventually(lambda: sorted(work.done) == ["a", "a", "b"])
    await relist.close()


async def test_a_wanted_tool_that_had_changed_is_looked_at_again_but_not_at_every_call() -> None:
    work = Work()
    relist = Relisting(work)
    for _ in range(3):
        relist.look_again("a")
        await eventually(lambda: work.done == ["a"])
    await relist.close()


async def test_an_announcement_as_the_last_listing_ends_is_not_lost() -> None:
    done: list[str] = []

    async def work(name: str) -> None:
        done.append(name)
        if len(done) == 1:  # runs after the task's last look, before anybody knows that it has ended
            asyncio.get_running_loop().call_soon(relist.announce, name)

    relist = Relisting(work)
    relist.announce("a")
    await eventually(lambda: done == ["a", "a"])
    await relist.close()


async def test_what_passes_is_tried_until_it_goes_well() -> None:
    work = Work(StorageError("full"), StorageError("locked"))
    relist = Relisting(work)
    relist.announce("a")
    await eventually(lambda: work.done == ["a"])
    assert work.calls == 3
    await relist.close()


@pytest.mark.parametrize("ask", [Relisting.look_again, Relisting.announce])
async def test_who_wants_a_tool_and_a_server_that_speaks_again_do_not_wait_for_what_has_failed_often(
    ask: Callable[[Relisting, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    work = Work(StorageError("full"))
    relist = Relisting(work)
    real_wait = relist._wait

    async def longer(name: str, seconds: float) -> None:
        await real_wait(name, 3600.0 if work.calls else seconds)

    monkeypatch.setattr(relist, "_wait", longer)
    relist.announce("a")
    await eventually(lambda: work.calls == 1)
    await asyncio.sleep(0.05)
    assert work.done == []
    ask(relist, "a")
    await eventually(lambda: work.done == ["a"])
    await relist.close()


async def test_a_fault_of_our_own_is_no_reason_to_give_up() -> None:
    work = Work(ValueError("odd"))  # type: ignore[arg-type]
    relist = Relisting(work)
    relist.announce("a")
    await eventually(lambda: work.done == ["a"])
    await relist.close()


async def test_a_server_that_is_configured_no_longer_is_let_be() -> None:
    work = Work(NotFound("no such server"))
    relist = Relisting(work)
    relist.announce("a")
    await eventually(lambda: work.calls == 1 and not relist._tasks)
    assert work.done == []


async def test_closing_ends_a_listing_in_the_middle() -> None:
    begun = asyncio.Event()

    async def work(name: str) -> None:
        begun.set()
        await asyncio.sleep(3600)

    relist = Relisting(work)
    relist.announce("a")
    await asyncio.wait_for(begun.wait(), 30)
    await asyncio.wait_for(relist.close(), 30)
    assert not relist._tasks


async def test_a_changed_tool_is_held_although_the_catalogue_could_not_be_written_at_first(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"command": sys.executable, "args": ["-I", "-S", str(TINY)]}
    settings.servers_file.write_text(json.dumps({"mcpServers": {"tiny": entry}}))
    real, full = Catalogue.put_server, [True]

    def put_server(self: Catalogue, *args: object, **options: object) -> object:
        if full and options.get("trust") is False:
            full.clear()
            raise StorageError("The catalog's database reports: database or disk is full.")
        return real(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Catalogue, "put_server", put_server)
    async with Engine(settings, serving=True) as engine:
        await asyncio.wait_for(engine.loaded(), 60)
        assert not (await engine.invoke_raw("tiny/change", {})).get("isError")
        await eventually(lambda: engine.catalogue.get_tool("tiny/new_tool") is not None)
        assert not full
        refused = await engine.invoke_raw("tiny/new_tool", {})
        assert refused["isError"] and "quarantined" in refused["content"][0]["text"]


async def test_a_tool_that_is_as_approved_again_is_called_although_nobody_announced_it(settings: Settings) -> None:
    entry = {"command": sys.executable, "args": ["-I", "-S", str(TINY)]}
    settings.servers_file.write_text(json.dumps({"mcpServers": {"tiny": entry}}))
    async with Engine(settings, serving=True) as engine:
        await asyncio.wait_for(engine.loaded(), 60)
        with Catalogue(settings.database_url) as other:  # another process saw it while it was different
            server, tools = other.get_server("tiny"), list(other.tools("tiny"))
            assert server is not None
            changed = [t.model_copy(update={"description": "Else."}) if t.name == "echo" else t for t in tools]
            other.put_server(server, changed, trust=False)
        await engine.reindex()

        async def called() -> bool:
            return not (await engine.invoke_raw("tiny/echo", {"text": "hi"})).get("isError")

        assert not await called()
        async with asyncio.timeout(60):
            while not await called():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
