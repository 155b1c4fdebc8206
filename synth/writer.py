"""A model as the steps see it: answers in a given form, from the store where it has them, within the cost ceiling."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from toolscout.errors import NotAllowed
from toolscout.records import JsonObject, canonical_json
from toolscout.synth.answer_store import AnswerStore, answer_key
from toolscout.synth.chat import Message, Refused, Reply, TookTooLong, TooLong
from toolscout.synth.parsing import Unreadable

T = TypeVar("T")

_MORE = """Your answer could not be used: {problem}
Answer again with the JSON object alone: nothing before it, nothing after it, no comments."""
_ENVELOPE = 64
"""Bytes that a chat template adds to a message, at most."""

_SHOWN = 2000
"""Characters of an unusable answer that are shown to its model again."""


TOO_LONG, REFUSED, IN_VAIN = "too long for the model", "refused by the endpoint", "no answer in time"
UNANSWERED = frozenset((TOO_LONG, REFUSED, IN_VAIN))
"""Reasons of drops for which no answer came: nothing was paid, and another time one may come."""


class CeilingReached(NotAllowed):
    """The next request could cost more than is left. What was made is kept."""


class NoAnswer(Exception):
    """No usable answer came, after all repairs; ``reason`` is what reports count, ``detail`` says what was wrong."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(detail or reason)
        self.reason, self.detail = reason, detail

    @property
    def passing(self) -> bool:
        """Whether a later run asks again."""
        return self.reason in UNANSWERED


class Endpoint(Protocol):
    """Where a model is asked: `ChatEndpoint`, or one that spreads requests over machines."""

    model: str

    async def prepare(self) -> str:
        """See `ChatEndpoint.prepare`."""
        ...

    async def ask(
        self,
        messages: list[Message],
        *,
        max_tokens: int = ...,
        temperature: float = ...,
        schema: JsonObject | None = ...,
    ) -> Reply:
        """See `ChatEndpoint.ask`."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


@dataclass
class Purse:
    """What may still be spent. Requests under way are reserved for at their upper bound, so none can break the ceiling.

    ``ceiling`` 0 means none.
    """

    ceiling: float = 0.0
    spent: float = 0.0
    reserved: float = 0.0
    under_way: int = 0
    _settled: asyncio.Condition = field(default_factory=asyncio.Condition)

    @asynccontextmanager
    async def reserve(self, most: float) -> Any:
        """Room for a request that costs at most so much; waits where only those under way are in the way of it.

        Raises:
            CeilingReached: even alone it could go above the ceiling.
        """
        async with self._settled:
            while self.ceiling and self.spent + self.reserved + most > self.ceiling:
                if not self.under_way:
                    raise CeilingReached(
                        f"The cost ceiling of {self.ceiling:g} is reached: {self.spent:.4g} is spent, and the next "
                        f"request could cost {most:.2g}.",
                        "What was made is kept. Raise --max-cost and run the same command again to go on.",
                    )
                await self._settled.wait()
            self.reserved += most
            self.under_way += 1
        try:
            yield
        finally:
            async with self._settled:
                self.under_way -= 1
                self.reserved = self.reserved - most if self.under_way else 0.0  # no rounding error may stay
                self._settled.notify_all()


@dataclass(frozen=True)
class Price:
    """Of a million tokens."""

    prompt: float = 0.0
    completion: float = 0.0

    def of(self, prompt_tokens: float, completion_tokens: float) -> float:
        """Price of so many tokens."""
        return (prompt_tokens * self.prompt + completion_tokens * self.completion) / 1_000_000

    def most(self, messages: list[Message], max_tokens: int, schema: JsonObject | None = None) -> float:
        """Upper bound of a request: a token for each byte of the prompt and of the answer's schema (tokenizers fall
        back to bytes), and the longest answer."""
        texts = [m["content"] for m in messages] + ([canonical_json(schema)] if schema is not None else [])
        return self.of(sum(len(text.encode("utf-8", "replace")) + _ENVELOPE for text in texts), max_tokens)


class Writer:
    """One model with its store. ``counts`` has, for this process, ``asked``, ``stored``, ``repaired``, ``unusable``."""

    def __init__(
        self,
        endpoint: Endpoint,
        store: AnswerStore,
        purse: Purse,
        *,
        price: Price | None = None,
        max_tokens: int = 1024,
        repairs: int = 1,
        gate: asyncio.Semaphore | None = None,
    ) -> None:
        self.endpoint, self.store, self.purse = endpoint, store, purse
        self.price = price or Price()
        self.max_tokens, self.repairs = max_tokens, repairs
        self.counts: Counter[str] = Counter()
        self._gate = gate or asyncio.Semaphore(8)
        self._under_way: dict[str, asyncio.Task[Reply]] = {}

    @property
    def model(self) -> str:
        """The model's name; empty before `prepare` where none was given."""
        return self.endpoint.model

    async def prepare(self) -> None:
        """Find out the model's name. Raises ModelError."""
        await self.endpoint.prepare()

    async def write(
        self,
        messages: list[Message],
        read: Callable[[str], T],
        *,
        temperature: float = 0.0,
        schema: JsonObject | None = None,
    ) -> T:
        """What ``read`` makes of the model's answer; one that it finds unreadable is asked for again with the reason.

        Raises:
            NoAnswer: none was readable or came in time, or the request does not fit the model or is refused.
            CeilingReached, ModelError, NotAllowed: as `ChatEndpoint.ask`; the run has to stop.
        """
        talk = list(messages)
        problem = ""
        for attempt in range(self.repairs + 1):
            try:
                reply = await self._answer(talk, temperature if not attempt else 0.0, schema)
            except (TooLong, Refused) as error:
                if attempt:
                    break  # what came was unusable, and there is no asking for more
                raise NoAnswer(TOO_LONG if isinstance(error, TooLong) else REFUSED, str(error)) from None
            except TookTooLong as error:
                raise NoAnswer(IN_VAIN, str(error)) from None
            try:
                value = read(reply.text)
            except Unreadable as error:
                problem = f"{error}" if reply.complete else f"{error} It was cut off: be briefer."
                talk = [
                    *talk,
                    {"role": "assistant", "content": reply.text[:_SHOWN]},
                    {"role": "user", "content": _MORE.format(problem=problem)},
                ]
                continue
            self.counts["repaired"] += attempt > 0
            return value
        self.counts["unusable"] += 1
        raise NoAnswer("unusable answer", problem)

    async def _answer(self, messages: list[Message], temperature: float, schema: JsonObject | None) -> Reply:
        options: JsonObject = {"temperature": temperature, "max_tokens": self.max_tokens, "schema": schema}
        key = answer_key(self.model, messages, options)
        stored = self.store.get(key)
        if stored is not None:
            self.counts["stored"] += 1
            return stored
        task = self._under_way.get(key)
        if task is None:  # the same question twice at once is asked once
            task = asyncio.create_task(self._pay(key, messages, temperature, schema))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        else:
            self.counts["stored"] += 1
        return await asyncio.shield(task)

    async def _pay(self, key: str, messages: list[Message], temperature: float, schema: JsonObject | None) -> Reply:
        most = self.price.most(messages, self.max_tokens, schema)
        async with self.purse.reserve(most), self._gate:
            reply = await self.endpoint.ask(
                messages, max_tokens=self.max_tokens, temperature=temperature, schema=schema
            )
            # What nobody counts may have cost as much as a request can.
            paid = self.price.of(reply.prompt_tokens, reply.completion_tokens) if reply.counted else most
            self.store.put(key, self.model, reply, paid)
            self.purse.spent += paid
            self.counts["asked"] += 1
            return reply
