"""The endpoint, the store of answers and the cost ceiling, against endpoints that misbehave as real ones do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_endpoint import Body, Reply
from synth_endpoint import Endpoint, Serve, said

from toolscout.errors import BadInput, ModelError, NotAllowed, StorageError
from toolscout.synth.answer_store import AnswerStore, answer_key
from toolscout.synth.chat import ChatEndpoint, Refused, TookTooLong, TooLong, Unreachable
from toolscout.synth.chat import Reply as Answer
from toolscout.synth.parsing import Unreadable, read_object
from toolscout.synth.writer import CeilingReached, NoAnswer, Price, Purse, Writer

ASK = [{"role": "user", "content": "Hello?"}]


def failing(*codes: int, headers: dict[str, str] | None = None, then: str = "{}") -> Callable[[Body], Reply]:
    """Fails with these codes in turn, then answers."""
    left = list(codes)

    def reply(body: Body) -> Reply:
        if left:
            return left.pop(0), {"error": {"message": "busy"}}, headers or {}
        return said(then)

    return reply


def chat(endpoint: Endpoint, **options: Any) -> ChatEndpoint:
    return ChatEndpoint(endpoint.url, **{"longest_pause": 0.02, "model": "m", **options})


async def test_what_fails_in_passing_is_sent_again(serve: Serve) -> None:
    endpoint = serve(failing(500, 503, 429, then="yes"))
    client = chat(endpoint)
    reply = await client.ask(ASK)
    assert (reply.text, reply.retries, reply.prompt_tokens, reply.completion_tokens) == ("yes", 3, 100, 20)
    await client.close()


async def test_what_goes_on_failing_is_said(serve: Serve) -> None:
    endpoint = serve(lambda body: (503, {"error": {"message": "overloaded"}}, {}))
    client = chat(endpoint, retries=2)
    with pytest.raises(ModelError, match="503: overloaded"):
        await client.ask(ASK)
    assert len(endpoint.asked) == 3
    await client.close()


async def test_an_answer_that_takes_too_long_says_what_to_change(serve: Serve) -> None:
    def slow(body: Body) -> Reply:
        time.sleep(0.5)
        return 200, {}, {}

    client = chat(serve(slow), timeout=0.05, retries=0)
    with pytest.raises(ModelError, match=r"took more than 0\.05 s") as caught:
        await client.ask(ASK)
    assert "TOOLSCOUT_SYNTH_TIMEOUT" in caught.value.hint
    await client.close()


async def test_a_request_that_is_waited_for_in_vain_twice_is_left_out_and_an_endpoint_that_is_always_slow_ends_the_run(
    serve: Serve,
) -> None:
    slow = True

    def sometimes(body: Body) -> Reply:
        time.sleep(0.3 if slow and body["messages"][-1]["content"] == "hi" else 0)
        return said("here")

    endpoint = serve(sometimes)
    client = chat(endpoint, timeout=0.1, retries=6, longest_pause=0.01)
    hi, other = [{"role": "user", "content": "hi"}], [{"role": "user", "content": "other"}]
    with pytest.raises(TookTooLong, match="twice"):
        await client.ask(hi)
    assert len(endpoint.asked) == 2
    for _ in range(3):
        assert (await client.ask(other)).text == "here"
        with pytest.raises(TookTooLong):
            await client.ask(hi)
    for _ in range(2):
        with pytest.raises(TookTooLong):
            await client.ask(hi)
    with pytest.raises(Unreachable, match="8 times in a row"):
        await client.ask(hi)
    await client.close()


async def test_a_429_makes_everyone_wait_as_long_as_it_says(serve: Serve) -> None:
    endpoint = serve(failing(429, headers={"Retry-After": "0.4"}, then="yes"))
    client = chat(endpoint, longest_pause=5.0)
    asked = asyncio.create_task(client.ask(ASK))
    while len(endpoint.asked) < 1 or client.resting() == 0:  # noqa: ASYNC110 (what is awaited happens in a thread)
        await asyncio.sleep(0.01)
    assert (await client.ask(ASK)).text == "yes" and client.resting() == 0, "another request waits as well"
    assert (await asked).text == "yes"
    await client.close()


async def test_fields_that_an_endpoint_refuses_are_left_out_from_then_on(serve: Serve) -> None:
    def reply(body: Body) -> Reply:
        for field, message in (
            ("max_tokens", "use max_completion_tokens instead"),
            ("temperature", "temperature is fixed"),
            ("response_format", "no such thing"),
        ):
            if field in body:
                return 400, {"error": {"message": message}}, {}
        return said("yes")

    endpoint = serve(reply)
    client = chat(endpoint)
    assert (await client.ask(ASK, schema={"type": "object"})).text == "yes"
    assert len(endpoint.asked) == 4
    assert (await client.ask(ASK, schema={"type": "object"})).text == "yes"
    assert len(endpoint.asked) == 5 and "max_completion_tokens" in endpoint.asked[-1]
    await client.close()


async def test_a_request_that_is_refused_for_what_it_says_costs_the_others_nothing(
    serve: Serve, tmp_path: Path
) -> None:
    def filtered(body: Body) -> Reply:
        if "bad" in body["messages"][-1]["content"]:
            return 400, {"error": {"message": "content filter: no talk of temperature"}}, {}
        return said("{}")

    endpoint = serve(filtered)
    client = chat(endpoint)
    with pytest.raises(Refused, match="content filter"):
        await client.ask([{"role": "user", "content": "bad"}], schema={"type": "object"})
    assert (await client.ask(ASK, schema={"type": "object"})).text == "{}"
    assert {"temperature", "response_format", "max_tokens"} <= endpoint.asked[-1].keys()
    with pytest.raises(NoAnswer) as caught:
        await writer(endpoint, tmp_path).write([{"role": "user", "content": "bad"}], read_object)
    assert caught.value.reason == "refused by the endpoint" and caught.value.passing
    await client.close()


@pytest.mark.parametrize(
    ("code", "message", "error"),
    [
        (401, "bad key", NotAllowed),
        (404, "no model", ModelError),
        (400, "maximum context length is 2048 tokens", TooLong),
        (400, "nonsense", ModelError),
    ],
)
async def test_refusals_are_told_apart(serve: Serve, code: int, message: str, error: type[Exception]) -> None:
    client = chat(serve(lambda body: (code, {"error": {"message": message}}, {})))
    with pytest.raises(error):
        await client.ask(ASK)
    await client.close()


async def test_no_endpoint_and_no_address() -> None:
    with pytest.raises(BadInput, match="not the address"):
        ChatEndpoint("localhost:8000")
    client = ChatEndpoint("http://127.0.0.1:9/v1", model="m", retries=1, longest_pause=0.01)
    with pytest.raises(ModelError, match="cannot be reached"):
        await client.ask(ASK)
    await client.close()


async def test_the_model_is_found_out(serve: Serve) -> None:
    client = chat(serve(), model="")
    assert await client.prepare() == "first-model"
    await client.close()


# -- the store


def test_answers_are_kept_by_content_and_spending_by_folder(tmp_path: Path) -> None:
    shared, one, two = tmp_path / "a.db", tmp_path / "one/answers.db", tmp_path / "two/answers.db"
    store = AnswerStore(shared, one)
    key = answer_key("m", ASK, {"temperature": 0})
    assert key != answer_key("m", ASK, {"temperature": 1}) != answer_key("n", ASK, {"temperature": 1})
    assert store.get(key) is None
    store.put(key, "m", Answer("hé\ud800", 10, 5, False, 2), 0.5)
    store.close()
    again, other = AnswerStore(shared, one), AnswerStore(shared, two)
    kept = other.get(key)
    assert kept is not None and kept.text == "hé?" and not kept.complete
    assert again.price() == 0.5 and other.price() == 0
    assert again.spent() == {
        "m": {"requests": 1, "retries": 2, "prompt_tokens": 10, "completion_tokens": 5, "price": 0.5}
    }


def test_what_earlier_versions_booked_in_a_shared_store_is_the_folders(tmp_path: Path) -> None:
    shared, own = AnswerStore(tmp_path / "a.db"), tmp_path / "one/answers.db"
    place = str((tmp_path / "one").resolve())
    shared._db.execute("INSERT INTO spent VALUES (?, 'm', 3, 1, 30, 6, 1.5)", (place,))
    with contextlib.closing(AnswerStore(own)) as before:
        before.put("k", "m", Answer("yes", 10, 2), 0.5)
    for _ in range(2):
        with contextlib.closing(AnswerStore(tmp_path / "a.db", own)) as store:
            assert store.price() == 2.0 and store.spent()["m"]["requests"] == 4


def test_a_store_that_breaks_or_is_locked_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = AnswerStore(tmp_path / "a.db")
    store.put("k", "m", Answer("yes" * 9000, 10, 2), 0.5)
    store._db.execute("PRAGMA busy_timeout=10")
    store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with contextlib.closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StorageError, match="cannot be written: database is locked") as caught:
            store.put("l", "m", Answer("no"), 0.5)
        assert "another run" in caught.value.hint
        other.execute("ROLLBACK")
    store.close()
    size = (tmp_path / "a.db").stat().st_size
    with (tmp_path / "a.db").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (size - 4096))
    store = AnswerStore(tmp_path / "a.db")
    for reads in (lambda: store.get("k"), store.price, store.spent):
        with pytest.raises(StorageError, match="cannot be read"):
            reads()


def test_a_store_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_text("this is no database, and long enough to be seen as none " * 20)
    with pytest.raises(StorageError, match="cannot be opened"):
        AnswerStore(tmp_path / "a.db")


# -- the writer


def writer(endpoint: Endpoint, folder: Path, **options: Any) -> Writer:
    purse = options.pop("purse", Purse())
    return Writer(chat(endpoint), AnswerStore(folder / "a.db"), purse, max_tokens=100, **options)


async def test_the_same_question_is_paid_for_once(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(lambda body: said('{"a": 1}'), pause=0.05)
    one = writer(endpoint, tmp_path)
    answers = await asyncio.gather(*(one.write(ASK, read_object) for _ in range(5)))
    assert answers == [{"a": 1}] * 5 and len(endpoint.asked) == 1
    assert await writer(endpoint, tmp_path).write(ASK, read_object) == {"a": 1}, "another process"
    assert len(endpoint.asked) == 1
    assert await one.write(ASK, read_object, temperature=0.5) == {"a": 1} and len(endpoint.asked) == 2


async def test_garbage_is_asked_for_again_with_what_is_wrong(serve: Serve, tmp_path: Path) -> None:
    answers = ["I would rather not.", 'Of course: {"a": 2}']
    endpoint = serve(lambda body: said(answers[len(body["messages"]) // 2]))
    one = writer(endpoint, tmp_path)
    assert await one.write(ASK, read_object) == {"a": 2}
    assert one.counts["repaired"] == 1
    talk = endpoint.asked[1]["messages"]
    assert talk[1]["content"] == answers[0] and "no JSON object" in talk[2]["content"]


async def test_garbage_for_ever_is_no_answer_and_costs_nothing_again(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(lambda body: said("no"))
    for _ in range(2):
        with pytest.raises(NoAnswer, match="no JSON object"):
            await writer(endpoint, tmp_path, repairs=2).write(ASK, read_object)
    assert len(endpoint.asked) == 3


async def test_a_request_that_is_too_long_is_its_own_trouble(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(lambda body: (413, {"error": {"message": "payload"}}, {}))
    with pytest.raises(NoAnswer) as caught:
        await writer(endpoint, tmp_path).write(ASK, read_object)
    assert caught.value.reason == "too long for the model"
    endpoint.reply = lambda body: (413, "", {}) if len(body["messages"]) > 1 else said("no")
    with pytest.raises(NoAnswer, match="no JSON object") as caught:
        await writer(endpoint, tmp_path).write(ASK, read_object)
    assert caught.value.reason == "unusable answer", "one came, and only the repair does not fit"


async def test_the_ceiling_is_never_broken_even_with_many_at_once(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(lambda body: said("{}", prompt=10, completion=100), pause=0.01)
    price = Price(1_000_000, 1_000_000)  # 1 a token: a request can cost 168 and does cost 110
    purse = Purse(ceiling=1000)
    one = writer(endpoint, tmp_path, purse=purse, price=price)

    async def ask(n: int) -> None:
        await one.write([{"role": "user", "content": f"{n:04d}"}], read_object)

    results = await asyncio.gather(*(ask(n) for n in range(40)), return_exceptions=True)
    stopped = [r for r in results if isinstance(r, CeilingReached)]
    assert len(endpoint.asked) == 8 and len(stopped) == 32, "it goes as near as it can"
    assert one.store.price() == pytest.approx(880) and purse.spent == 880 and purse.reserved == 0
    assert "--max-cost" in stopped[0].hint


async def test_an_endpoint_that_counts_nothing_is_booked_at_the_upper_bound(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(lambda body: (200, {"choices": [{"message": {"content": "{}"}}]}))
    purse = Purse(ceiling=1000)
    one = writer(endpoint, tmp_path, purse=purse, price=Price(1_000_000, 1_000_000))
    with pytest.raises(CeilingReached):
        for n in range(40):
            await one.write([{"role": "user", "content": f"{n:04d}"}], read_object)
    assert len(endpoint.asked) == 5 and purse.spent == one.store.price() == 5 * (4 + 64 + 100)


def test_the_upper_bound_holds_where_every_byte_is_a_token() -> None:
    text, schema = "ሰላም 🜚" * 9, {"type": "object"}
    bound = Price(1_000_000, 0).most([{"role": "user", "content": text}], 100, schema)
    assert bound >= len(text.encode()) + len(json.dumps(schema).replace(" ", ""))


async def test_rounding_leaves_nothing_reserved() -> None:
    purse = Purse(ceiling=1.0)

    async def hold(most: float, seconds: float) -> None:
        async with purse.reserve(most):
            await asyncio.sleep(seconds)
            purse.spent += most

    await asyncio.gather(hold(0.1, 0.01), hold(0.2, 0.02), hold(0.3, 0.03))
    with pytest.raises(CeilingReached):  # and does not wait for ever
        await asyncio.wait_for(hold(0.5, 0), 5)


async def test_reservations_are_given_back(serve: Serve, tmp_path: Path) -> None:
    endpoint = serve(failing(401))
    purse = Purse(ceiling=1)
    one = writer(endpoint, tmp_path, purse=purse, price=Price(1, 1))
    with pytest.raises(NotAllowed):
        await one.write(ASK, read_object)
    assert purse.reserved == 0 and purse.spent == 0


def test_reading_says_what_is_wrong() -> None:
    with pytest.raises(Unreadable, match="no JSON object"):
        read_object(json.dumps([1, 2]))
