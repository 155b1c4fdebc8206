"""A server that was started anew between two calls: what the client that makes the second is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from test_invoke import World
from test_pool import eventually

from toolscout.records import JsonObject
from toolscout.server.client_identity import ClientIdentity
from toolscout.settings import Settings

ANEW = "[Toolscout: 'tiny' was started anew since your last call: "


@pytest.fixture
async def world(settings: Settings) -> AsyncIterator[World]:
    world = World(settings.model_copy(update={"upstream_idle": 0.2}))
    yield world
    await world.pool.close()


async def call(world: World, tool: str = "echo", client: str = "one", **arguments: Any) -> JsonObject:
    arguments = arguments or {"text": "hi"}
    return await world.invoker.invoke_raw(f"tiny/{tool}", arguments, client=lambda: ClientIdentity("http", client))


def remarks(result: JsonObject) -> list[str]:
    return [block["text"] for block in result["content"] if block["text"].startswith("[Toolscout")]


async def stopped(world: World) -> None:
    await eventually(lambda: world.pool.status()[0].state == "stopped")


async def test_each_client_is_told_once_and_only_where_it_had_called_before(world: World) -> None:
    assert not remarks(await call(world)) and not remarks(await call(world))
    await stopped(world)
    told = await call(world)
    assert remarks(told) == [ANEW + "it was stopped after 0.2 s without a call. What it held in memory is gone.]"]
    assert told["structuredContent"] == {"text": "hi"} and told["content"][0]["text"] == "hi"
    assert not remarks(await call(world))
    assert not remarks(await call(world, client="two")), "its first call"


async def test_a_crash_and_a_changed_entry_are_told_too(world: World) -> None:
    await call(world)
    assert (await call(world, "crash"))["isError"]
    (told,) = remarks(await call(world))
    assert told.startswith(ANEW + "it exited with status 3.")
    world.configs["tiny"] = replace(world.configs["tiny"], env={"COLOR": "blue"})
    (told,) = remarks(await call(world))
    assert told.startswith(ANEW + "its entry in mcp.json has changed.")


async def test_structured_content_alone_is_not_hidden_behind_the_remark(world: World) -> None:
    from toolscout.server.invoke import _remarked

    said = _remarked({"content": [], "structuredContent": [1]}, "x")
    assert [block["text"] for block in said["content"]] == ["[1]", "[Toolscout: x]"]
