"""Steps over a folder by themselves: inputs without an answer, endpoints that refuse, disks that are full."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from toolscout.errors import ModelError, StorageError
from toolscout.jsonl import read_records
from toolscout.records import JsonObject
from toolscout.synth import chain
from toolscout.synth.chain import Line, Outcome, run_step
from toolscout.synth.chat import Unreachable
from toolscout.synth.drafts import Draft
from toolscout.synth.writer import IN_VAIN, REFUSED, TOO_LONG, NoAnswer


class Asks:
    """A step that does with an input's text what it is told to."""

    name = "asks"

    def __init__(self, does: Callable[[str], str | None]) -> None:
        self.does, self.asked = does, list[str]()

    def decides(self) -> JsonObject:
        return {}

    async def work(self, item: Draft) -> Outcome:
        self.asked.append(item.id)
        await asyncio.sleep(0)
        if why := self.does(item.id):
            raise NoAnswer(why, "so it said.")
        return Outcome([item])


def inputs(*names: str) -> list[Draft]:
    return [Draft(id=name, tool_id=f"t/{name[0]}", text="x") for name in names]


def reasons(path: Path) -> Counter[str]:
    return Counter(d.reason for line in read_records(path, Line) for d in line.dropped)


async def ran(step: Asks, items: Sequence[Draft], path: Path, at_once: int = 1) -> list[str]:
    made, count = await run_step(step, items, path, concurrency=at_once)
    assert count.inputs == len(items) == len(list(read_records(path, Line))), "one line an input"
    return [draft.id for draft in made]


@pytest.mark.parametrize("why", [IN_VAIN, TOO_LONG, REFUSED])
async def test_what_got_no_answer_is_asked_again_by_a_later_run_and_last(tmp_path: Path, why: str) -> None:
    path, items = tmp_path / "01-asks.jsonl", inputs("a", "b", "c")
    assert await ran(Asks(lambda i: why if i == "a" else "unusable answer" if i == "b" else None), items, path) == ["c"]
    again = Asks(lambda i: why)
    assert await ran(again, items, path) == ["c"] and again.asked == ["a"]
    better = Asks(lambda i: None)
    assert await ran(better, [*items, *inputs("d")], path) == ["a", "c", "d"] and better.asked == ["d", "a"]
    assert reasons(path) == {"unusable answer": 1}


async def test_what_was_slow_before_and_is_again_does_not_stop_what_else_is_done(tmp_path: Path) -> None:
    path, items = tmp_path / "01-asks.jsonl", inputs(*"abcdef")
    await ran(Asks(lambda i: IN_VAIN if i < "e" else None), items, path)

    def slow(name: str) -> str | None:
        raise Unreachable("Eight times in a row.")

    again = Asks(slow)
    assert await ran(again, items, path) == ["e", "f"] and again.asked == ["a"], "one is enough to know"
    assert reasons(path) == {IN_VAIN: 4}
    with pytest.raises(Unreachable):
        await ran(Asks(slow), [*items, *inputs("new")], path)


@pytest.mark.parametrize(("why", "hint"), [(TOO_LONG, "--max-tokens"), (REFUSED, "See to that")])
async def test_an_endpoint_that_takes_nothing_ends_the_run(tmp_path: Path, why: str, hint: str) -> None:
    path, items = tmp_path / "01-asks.jsonl", inputs(*"abcdefghijklmnop")
    step = Asks(lambda i: None if i < "c" else why)
    with pytest.raises(ModelError, match=f"step asks, 8 inputs in a row are {why}: so it said") as caught:
        await ran(step, items, path)
    assert len(step.asked) == 10 and hint in caught.value.hint
    # they may have been the inputs after all: a later run has come further, and asks these last
    further = Asks(lambda i: why if "c" <= i < "k" else None)
    assert await ran(further, items, path) == list("abklmnop") and further.asked == list("klmnopcdefghij")
    few = tmp_path / "few.jsonl"
    with pytest.raises(ModelError, match=f"all 3 inputs are {why}"):
        await ran(Asks(lambda i: why), items[:3], few)
    assert await ran(Asks(lambda i: None), items[:3], few) == ["a", "b", "c"]


async def test_what_is_of_one_tool_may_be_refused_together(tmp_path: Path) -> None:
    items = inputs("a", *(f"b{n}" for n in range(10)), "c")
    assert await ran(Asks(lambda i: TOO_LONG if i[0] == "b" else None), items, tmp_path / "01-asks.jsonl") == ["a", "c"]


async def test_refusals_that_come_before_the_answers_of_others_are_not_in_a_row(tmp_path: Path) -> None:
    class Answers(Asks):
        async def work(self, item: Draft) -> Outcome:
            await asyncio.sleep(0 if self.does(item.id) else 0.05)
            return await super().work(item)

    items = inputs(*map(chr, range(ord("a"), ord("a") + 60)))
    step = Answers(lambda i: REFUSED if ord(i) % 3 == 0 else None)
    assert len(await ran(step, items, tmp_path / "01-asks.jsonl", at_once=40)) == 40
    with pytest.raises(ModelError, match="8 inputs in a row"):
        await ran(Asks(lambda i: REFUSED), items, tmp_path / "none.jsonl", at_once=4)


async def test_refusals_with_answers_between_are_single_inputs(tmp_path: Path) -> None:
    items = inputs(*"abcdefghijklmnopqrstuvwxyz")
    made = await ran(Asks(lambda i: None if i in "gnu" else REFUSED), items, tmp_path / "01-asks.jsonl")
    assert made == ["g", "n", "u"]


async def test_a_full_disk_ends_the_step_when_the_others_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, items = tmp_path / "01-asks.jsonl", inputs(*"abcd")
    wrote, write = list[str](), chain._Appender.write

    def full(self: chain._Appender, line: Line) -> None:
        if line.id == "a":
            raise StorageError("The disk is full.")
        write(self, line)
        wrote.append(line.id)

    monkeypatch.setattr(chain._Appender, "write", full)

    class Slow(Asks):
        async def work(self, item: Draft) -> Outcome:
            await asyncio.sleep(0 if item.id == "a" else 0.05)
            return await super().work(item)

    with pytest.raises(StorageError, match="disk is full"):
        await ran(Slow(lambda i: None), items, path, at_once=3)
    assert wrote == ["b", "c"] and [line.id for line in read_records(path, Line)] == ["b", "c"]
